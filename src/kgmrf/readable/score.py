"""How well a forecast did, and what the tails, kappa and the weights learn from it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kgmrf._types import Numbers
from kgmrf.constants import (
    BLEND_LIMIT,
    BLEND_RATE,
    BLEND_SHARE,
    FARTHEST,
    KAPPA_GAIN,
    KAPPA_LIMIT,
    OUTLIER,
    RETURN,
    TAIL_SHARE,
    TAILS,
)
from kgmrf.engines import layout as at
from kgmrf.engines.layout import Layout, Track, blend_weights
from kgmrf.readable.observe import Compared

NU = np.array(TAILS)


def log_student(values: float, distance: float, log_det: float) -> Numbers:
    """log t_nu of N values at squared distance Q, for each nu of `TAILS`."""
    rise = np.array([math.lgamma(0.5 * (nu + values)) - math.lgamma(0.5 * nu) for nu in TAILS])
    spread = 0.5 * values * np.log(math.pi * NU) + 0.5 * log_det
    return rise - spread - 0.5 * (NU + values) * np.log1p(distance / NU)


def judge(track: Track, plan: Layout, parts: Numbers, seen: Compared) -> float:
    """log p(x); the tails, kappa and the weights learn from it. Returns the weight u of x."""
    n, q = seen.values, min(seen.distance, FARTHEST)
    outer, trace = (np.einsum("ij,kij->k", a, parts) for a in (seen.outer, seen.precision))
    each = log_student(n, q, seen.log_det)
    return weigh(track, plan.table[:, at.ROOT], outer, trace, each, n, q, seen.m / n)


def weigh(
    track: Any,
    prior: Numbers,
    outer: Numbers,
    trace: Numbers,
    each: Numbers,
    n: float,
    q: float,
    rate: float,
) -> float:
    """The tails, kappa and the weights learn from n values at squared distance q; returns u.

    outer: <S^-1 x x^T S^-1, S_k>. trace: <S^-1, S_k>. each: log t of each tail. rate: of the step.
    """
    tails, before = track.tails[: at.N_TAILS], track.tails[at.N_TAILS :]
    before[:] = tails
    joint = np.log(tails) + each
    top = joint.max()
    share = np.exp(joint - top)
    track.head[at.LIKELIHOOD] = top + math.log(share.sum())
    track.head[at.DISTANCE], track.head[at.VALUES] = q, n
    share /= share.sum()
    u = float(share @ ((NU + n) / (NU + q)))
    gradient = 0.5 * (u * math.exp(-track.head[at.KAPPA]) * outer - trace)
    roots, w = track.roots, blend_weights(track.roots, False)
    if np.isfinite(w @ gradient):  # otherwise so far from the forecast that it says nothing
        step = np.clip(rate * (gradient - w @ gradient), -BLEND_LIMIT, BLEND_LIMIT)
        roots *= np.exp(BLEND_RATE * step)
        roots *= (1.0 - BLEND_SHARE) / roots.sum()
        roots += BLEND_SHARE / len(roots)
    tails[:] = (1.0 - TAIL_SHARE) * share + TAIL_SHARE / at.N_TAILS
    kappa = track.head[at.KAPPA] + math.log1p(KAPPA_GAIN * (u * q / n - 1.0))
    track.head[at.KAPPA] = min(max(kappa, -KAPPA_LIMIT), KAPPA_LIMIT)
    if q > OUTLIER * n:
        # So far from the forecast that the weights no longer mean much: half back to the start.
        roots[:] = (1.0 - RETURN) * roots + RETURN * prior
        track.head[at.KAPPA] = 0.0
    return u
