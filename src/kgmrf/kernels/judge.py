"""How every compiled ensemble learns from its own likelihood: tails, kappa and weights.

Readable: `weigh` of `tests/readable_ensemble.py`. Numbers of the track are in ``w``, work in ``v``
(which may be the same array), each at its offset.
"""

from __future__ import annotations

import math
from typing import Any

from kgmrf import constants as tuning
from kgmrf.density import TAILS as NU
from kgmrf.engines import layout as row
from kgmrf.kernels.compile import jit


@jit
def tail_logs(v: Any, logs: int, values: float) -> None:
    """The part of log t_nu that depends on the number of values alone."""
    for j in range(row.N_TAILS):
        rise = math.lgamma(0.5 * (NU[j] + values)) - math.lgamma(0.5 * NU[j])
        v[logs + j] = rise - 0.5 * values * math.log(math.pi * NU[j])


@jit
def judge_tails(
    w: Any,
    head: int,
    tails: int,
    v: Any,
    logs: int,
    shares: int,
    values: float,
    distance: float,
    log_det: float,
) -> float:
    """log p(x) of x^T S^-1 x = distance; the tails learn from it. Returns the weight u of x."""
    kappa = w[head + row.KAPPA]
    q = math.exp(-kappa) * distance
    top = -math.inf
    for j in range(row.N_TAILS):
        fall = 0.5 * (NU[j] + values) * math.log1p(q / NU[j])
        v[shares + j] = v[logs + j] - fall
        top = max(top, v[shares + j])
    whole = 0.0
    for j in range(row.N_TAILS):
        v[shares + j] = w[tails + j] * math.exp(v[shares + j] - top)
        whole += v[shares + j]
    w[head + row.LIKELIHOOD] = top + math.log(whole) - 0.5 * (log_det + values * kappa)
    w[head + row.DISTANCE] = q
    w[head + row.VALUES] = values
    u = 0.0
    for j in range(row.N_TAILS):
        share = v[shares + j] / whole
        u += share * (NU[j] + values) / (NU[j] + q)
        w[tails + row.N_TAILS + j] = w[tails + j]
        w[tails + j] = (1.0 - tuning.TAIL_SHARE) * share + tuning.TAIL_SHARE / row.N_TAILS
    return u


@jit
def weigh(
    w: Any, roots: int, v: Any, weights: int, gradient: int, members: int, rate: float
) -> None:
    """r_k prop to r_k exp(clip(rate (g_k - sum w g))); then a fixed share."""
    mean = 0.0
    for k in range(members):
        mean += v[weights + k] * v[gradient + k]
    whole = 0.0
    for k in range(members):
        step = rate * (v[gradient + k] - mean)
        step = min(max(step, -tuning.BLEND_LIMIT), tuning.BLEND_LIMIT)
        w[roots + k] *= math.exp(tuning.BLEND_RATE * step)
        whole += w[roots + k]
    for k in range(members):
        kept = (1.0 - tuning.BLEND_SHARE) * w[roots + k] / whole
        w[roots + k] = kept + tuning.BLEND_SHARE / members


@jit
def settle(
    w: Any, head: int, roots: int, v: Any, start: int, apart: int, members: int, u: float
) -> None:
    """Kappa follows u q/n; after an observation beyond all tails half of the start comes back.

    The roots of the start lie at v[start], ``apart`` from each other.
    """
    q, values = w[head + row.DISTANCE], w[head + row.VALUES]
    kappa = w[head + row.KAPPA] + math.log1p(tuning.KAPPA_GAIN * (u * q / values - 1.0))
    w[head + row.KAPPA] = min(max(kappa, -tuning.KAPPA_LIMIT), tuning.KAPPA_LIMIT)
    if q > tuning.OUTLIER * values:
        w[head + row.KAPPA] = 0.0
        for k in range(members):
            back = tuning.RETURN * v[start + k * apart]
            w[roots + k] = (1.0 - tuning.RETURN) * w[roots + k] + back


@jit
def blend_weights(w: Any, roots: int, v: Any, weights: int, members: int, sharp: bool) -> None:
    """w_k = r_k^2 / sum r^2, or where sharp r_k^6 / sum r^6."""
    top, whole = 0.0, 0.0
    for k in range(members):
        top = max(top, w[roots + k])
    scale = 1.0 / top
    for k in range(members):
        share = (scale * w[roots + k]) ** 2
        share = share * share * share if sharp else share
        v[weights + k] = share
        whole += share
    scale = 1.0 / whole
    for k in range(members):
        v[weights + k] *= scale
