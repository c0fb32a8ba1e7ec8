"""What an ensemble knows beyond its forecast: how fast the eigenframe turns, how sure it is.

Worked out from rows when somebody asks; vectorised over tracks and steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kgmrf._types import Numbers
from kgmrf.engines.layout import (
    AVERAGE,
    COUNT,
    HALF_LIFE,
    KIND,
    POOLED,
    SAMPLES,
    TURNING,
    VALUES,
    Layout,
    Turned,
    blend_weights,
    track,
    turned,
)
from kgmrf.gains import ANGLE_VARIANCE_LIMIT
from kgmrf.kernels.layout import folded


def half_life(plan: Layout, weights: Numbers) -> Numbers:
    """exp(sum_k w_k log h_k / sum_k w_k) over the averages ``(...)``; NaN if they have no weight.

    >>> from kgmrf.engines.layout import layout
    >>> from kgmrf.engines.members import Average, Turning
    >>> plan = layout(2, (Average(4.0), Average(16.0), Turning(1e-6)))
    >>> half_life(plan, np.array([0.4, 0.4, 0.2])).round(9).item()
    8.0
    """
    average = plan.table[:, KIND] == AVERAGE
    mine = weights[..., average]
    total = mine.sum(axis=-1)
    there = total > 0
    mean = mine @ np.log(plan.table[average, HALF_LIFE]) / np.where(there, total, 1.0)
    return np.where(there, np.exp(mean), np.nan)


def held(engine: Any, rows: Numbers) -> Numbers:
    """Covariances of the members, ``(..., K, d, d)``: of rows in which one has all the weight."""
    d, n, lead = engine.d, len(engine.members), rows.shape[:-1]
    out, only = np.empty((*lead, n, d, d)), rows.reshape(-1, engine.size).copy()
    for k, weights in enumerate(np.eye(n)):
        engine.read(only).roots[:] = weights
        out[..., k, :, :] = engine.look(only)[:, engine.small :].reshape(*lead, d, d)
    return out


def velocity_and_angle_var(
    engine: Any, rows: Numbers, frame: Numbers, spectrum: Numbers
) -> tuple[Numbers, Numbers]:
    """Angular velocity of the eigenframe, body frame, skew, and variance of its angles.

    Shapes: rows ``(..., size)``, frame ``(..., d, d)`` and spectrum ``(..., d)`` of the blend ->
    both ``(..., d, d)``. Omega = sum_k w_k Q_k W_k Q_k^T. The variance is that of a mixture: what
    each member is unsure of, and how far the members are apart.
    """
    d, plan, parts = engine.d, engine.plan, track(rows, engine.plan)
    weights = blend_weights(parts.roots, ~np.isnan(parts.head[..., VALUES]))
    m = np.maximum(parts.head[..., SAMPLES] / np.maximum(parts.head[..., COUNT], 1.0), 1e-9)
    back = np.swapaxes(frame, -1, -2)
    apart = back[..., None, :, :] @ held(engine, rows) @ frame[..., None, :, :]
    entries = np.einsum("...k,...kij->...ij", weights, apart**2)
    spatial = np.zeros_like(frame)
    live = (parts.head[..., POOLED] < 0.0)[..., None, None]
    gap2 = (spectrum[..., :, None] - spectrum[..., None, :]) ** 2
    product = spectrum[..., :, None] * spectrum[..., None, :]
    own = np.zeros(m.shape)
    average, turning = 0, 0
    for k, law in enumerate(plan.table):
        w = weights[..., k]
        if law[KIND] == AVERAGE:
            own = own + w / (m * effective(parts.mass[..., average], law[HALF_LIFE]))
            average += 1
        elif law[KIND] == TURNING:
            member: Turned = turned(parts.turning[..., turning, :], d)
            q = np.where(live, member.frame, np.eye(d))
            turn = np.where(live, folded(member.velocity, d, -1.0), 0.0)
            spatial = spatial + w[..., None, None] * (q @ turn @ np.swapaxes(q, -1, -2))
            p11 = np.where(live, folded(member.p11, d, 1.0), ANGLE_VARIANCE_LIMIT)
            entries = entries + w[..., None, None] * gap2 * _seen_from(p11, q, frame)
            turning += 1
    entries = entries + own[..., None, None] * product
    off = 1.0 - np.eye(d)
    known = gap2 > 0.0
    variance = np.where(known, entries / np.where(known, gap2, 1.0), ANGLE_VARIANCE_LIMIT)
    body = back @ spatial @ frame
    return 0.5 * (body - np.swapaxes(body, -1, -2)), off * np.minimum(
        variance, ANGLE_VARIANCE_LIMIT
    )


def effective(mass: Numbers, half: float) -> Numbers:
    """Observations that an average of mass V is worth: V^2 over the sum of squared weights."""
    a = -np.expm1(-np.log(2.0) / half)
    rest = np.maximum(1.0 - mass * a, 0.0)
    weighed = mass * mass * a * (2.0 - a) / np.maximum(1.0 - rest * rest, 1e-12)
    return np.maximum(weighed, 1e-9)


def _seen_from(p11: Numbers, q: Numbers, frame: Numbers) -> Numbers:
    """Variances of a member's planes in the planes of another frame."""
    d = p11.shape[-1]
    share = (np.swapaxes(q, -1, -2) @ frame) ** 2
    mean = p11.sum(axis=-1) / max(d - 1, 1)
    known = p11 + mean[..., :, None] * np.eye(d)
    return np.swapaxes(share, -1, -2) @ known @ share
