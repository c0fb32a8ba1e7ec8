"""How well a forecast did, and what the tails, kappa and the weights learn from it."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from kgmrf._types import Numbers
from kgmrf.constants import (
    BIAS_GAIN,
    BIAS_LIMIT,
    BIAS_START,
    BLEND_LIMIT,
    BLEND_SHARE,
    FARTHEST,
    KAPPA_LIMIT,
    OUTLIER,
    RETURN,
    SIZE_NODES,
    SIZE_SHARES,
    TAIL_SHARE,
    WANDER_CLIP,
    WANDER_LAGS,
    WANDER_LEAST,
    WANDER_MEMORY,
)
from kgmrf.engines import horizon
from kgmrf.engines import layout as at
from kgmrf.engines.horizon import Keeps
from kgmrf.engines.layout import Layout, Track, blend_weights, present
from kgmrf.model.factors import heaviness
from kgmrf.readable.observe import Compared
from kgmrf.readable.top_clock import Aim, learn_top
from kgmrf.youth import degrees, doubt_of, widening


def log_student(nu: Numbers, values: float, distance: float, log_det: float) -> Numbers:
    """log t_nu of N values at squared distance Q, for each nu."""
    rise = np.array([math.lgamma(0.5 * (one + values)) - math.lgamma(0.5 * one) for one in nu])
    spread = 0.5 * values * np.log(math.pi * nu) + 0.5 * log_det
    return rise - spread - 0.5 * (nu + values) * np.log1p(distance / nu)


def youth(track: Any, d: int, there: Any) -> tuple[float, float]:
    """What is open of the density of a young track: delta and log c (`kgmrf.youth`)."""
    doubt = float(doubt_of(track.head[at.SAMPLES], d))
    return doubt, math.log(float(widening(doubt, there)))


class Ahead(NamedTuple):
    """What the time a since the last observation does to a forecast.

    g: a - 1 beyond one unit. keeps: of the weights. size_std: sigma, of the log size.
    """

    age: float
    g: float
    keeps: Keeps
    size_std: float


def look_ahead(track: Any, columns: Numbers) -> Ahead:
    """How a track stands at its time; columns: ``horizon`` and ``heir`` of its members."""
    age = float(track.head[at.TIME] - track.head[at.SEEN])
    g = horizon.beyond(age)
    wide = horizon.size_std(track.wander[horizon.N_LAGS :], g)
    return Ahead(age, float(g), horizon.keeps(columns[:, 0], columns[:, 1], g), float(wide))


def weights_ahead(track: Any, ahead: Ahead, sharp: bool = False) -> Numbers:
    """w(g) of the members."""
    now = blend_weights(track.roots, sharp)
    return horizon.carry(now, ahead.keeps) if ahead.g > 0.0 else now


class Mixed(NamedTuple):
    """What a density says of an observation: log p(x), its weight u, the shares of the tails."""

    log_p: float
    u: float
    shares: Numbers


def mix_tails(
    tails: Numbers, n: float, q: float, log_det: float, size_std: float, doubt: float = 0.0
) -> Mixed:
    """p(x) = sum_ij omega_i pi_j t_j(x; e^(z_i sigma) Sigma) of n values at squared distance q.

    log_det: log |Sigma|. Where sigma is 0 there is one size alone. doubt: of a young track.
    """
    nu = degrees(doubt)
    omega, sizes = np.ones(1), np.ones(1)
    if size_std > 0.0:
        omega, sizes = np.array(SIZE_SHARES), np.exp(size_std * np.array(SIZE_NODES))
    each = [log_student(nu, n, q / size, log_det + n * math.log(size)) for size in sizes]
    joint = np.log(omega)[:, None] + np.log(tails) + each
    top = joint.max()
    share = np.exp(joint - top)
    log_p = top + math.log(share.sum())
    share /= share.sum()
    u = float((share * (nu + n) / (nu * sizes[:, None] + q)).sum())
    return Mixed(log_p, u, share.sum(axis=0))


def score(
    track: Track, plan: Layout, parts: Numbers, seen: Compared, top: Aim, ahead: Ahead
) -> tuple[float, float]:
    """log p(x) under S'; the track learns as if x had been forecast by S.

    Returns the weight u of x and its squared distance from that forecast.
    """
    n, tails, there = seen.values, track.tails[: at.N_TAILS], seen.cells > 0
    doubt, log_wide = youth(track, plan.d, present(track).sum())
    narrow = math.exp(-log_wide)
    shrunk = math.exp(-track.head[at.KAPPA]) * narrow
    q = min(narrow * seen.distance, FARTHEST)
    q_top = min(narrow * seen.distance - shrunk * seen.top.distance, FARTHEST)
    log_det = seen.log_det + seen.top.log_det
    mixed = mix_tails(tails, n, q_top, log_det + n * log_wide, ahead.size_std, doubt)
    log_size = log_det - float(seen.cells[there] @ np.log(track.level[there]))
    learn_wander(track, log_size / n, ahead.age)
    z, heavy = shrunk * seen.top.share / seen.m, float(heaviness(tails))
    learn_top(track, top, z, seen.m, mixed.u, heavy, ahead.age)
    expected = float(heaviness(tails, ahead.size_std))
    learn_bias(track, q_top / (n * expected), seen.m)
    outer, trace = (np.einsum("ij,kij->k", a, parts) for a in (seen.outer, seen.precision))
    prior = plan.table[:, at.ROOT]
    rate, learning = seen.m / n, plan.learning
    wide = (doubt, log_wide)
    u = update_weights(track, prior, outer, trace, n, q, seen.log_det, rate, ahead, learning, wide)
    track.head[at.LIKELIHOOD], track.head[at.DISTANCE] = mixed.log_p, q_top
    return u, q


def update_weights(
    track: Any,
    prior: Numbers,
    outer: Numbers,
    trace: Numbers,
    n: float,
    q: float,
    log_det: float,
    rate: float,
    ahead: Ahead,
    learning: at.Learning = at.USUAL,
    wide: tuple[float, float] = (0.0, 0.0),
) -> float:
    """The tails, kappa and the weights learn from n values at squared distance q; returns u.

    outer: <S^-1 x x^T S^-1, S_k>. trace: <S^-1, S_k>. log_det: log |Sigma|, of q without its
    youth. rate: of the step. wide: `youth`.
    """
    doubt, log_wide = wide
    tails, before = track.tails[: at.N_TAILS], track.tails[at.N_TAILS :]
    found = mix_tails(tails, n, q, log_det + n * log_wide, ahead.size_std, doubt)
    track.head[at.LIKELIHOOD], track.head[at.SIZE_STD] = found.log_p, ahead.size_std
    track.head[at.DOUBT] = doubt
    track.head[at.DISTANCE], track.head[at.VALUES] = q, n
    roots, w = track.roots, blend_weights(track.roots, False)
    gradient = 0.5 * (found.u * math.exp(-track.head[at.KAPPA] - log_wide) * outer - trace)
    if ahead.g > 0.0:
        gradient = horizon.pull_back(gradient, w, ahead.keeps)
    if np.isfinite(w @ gradient):  # otherwise so far from the forecast that it says nothing
        step = np.clip(rate * (gradient - w @ gradient), -BLEND_LIMIT, BLEND_LIMIT)
        roots *= np.exp(learning.blend_rate * step)
        roots *= (1.0 - BLEND_SHARE) / roots.sum()
        roots += BLEND_SHARE / len(roots)
    before[:] = tails
    tails[:] = (1.0 - TAIL_SHARE) * found.shares + TAIL_SHARE * np.array(learning[-at.N_TAILS :])
    kappa = track.head[at.KAPPA] + math.log1p(learning.kappa_gain * (found.u * q / n - 1.0))
    track.head[at.KAPPA] = min(max(kappa, -KAPPA_LIMIT), KAPPA_LIMIT)
    if q > OUTLIER * n:
        # So far from the forecast that the weights no longer mean much: half back to the start.
        roots[:] = (1.0 - RETURN) * roots + RETURN * prior
        track.head[at.KAPPA] = 0.0
    return found.u


def learn_bias(track: Any, r: float, m: float) -> None:
    """b <- b + log(1 + g (1 - 1/m)(min(r e^-b, 20) - 1)), g = max(.002, 1/(n + 50)).

    r: size of the n-th observation, of m samples, over what was expected of it. The tails promise a
    mean size that they need not have: where sizes vary by themselves it is learned. One sample says
    nothing.
    """
    gain = max(BIAS_GAIN, 1.0 / (track.head[at.COUNT] + BIAS_START)) * max(1.0 - 1.0 / m, 0.0)
    b = float(track.bias[0])
    b += math.log(1.0 + gain * (min(r * math.exp(-b), OUTLIER) - 1.0))
    track.bias[0] = min(max(b, -BIAS_LIMIT), BIAS_LIMIT)


def learn_wander(track: Any, log_size: float, age: float) -> None:
    """How far the log size l wanders: averages mu_j over three lags, variances v_j about them."""
    if not math.isfinite(log_size):
        return
    n, lags = track.head[at.COUNT], np.array(WANDER_LAGS)
    mean, variance = track.wander[: horizon.N_LAGS], track.wander[horizon.N_LAGS :]
    if n == 1.0:
        mean[:] = log_size
    e = log_size - mean
    most = WANDER_CLIP * np.maximum(variance, WANDER_LEAST)
    variance += (np.minimum(e * e, most) - variance) / min(n, WANDER_MEMORY)
    mean += np.maximum(1.0 - (1.0 - 0.5 / lags) ** age, 1.0 / (n + 1.0)) * e
