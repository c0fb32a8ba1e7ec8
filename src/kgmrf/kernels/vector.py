"""The compiled frame of one vector: drift, then correction by an observation of all of it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kgmrf.kernels.compile import compiled

COASTED, SEEN, PARTLY = 0, 1, 2


@compiled(
    "int64(float64[::1], float64[::1], float64[:,:,::1], float64[::1], float64[:,:,::1], "
    "float64[::1], float64[::1], float64[::1], float64[:,:,::1], float64[::1])",
    fastmath=False,
)
def vector_frame(
    position: Any,
    velocity: Any,
    uncertainty: Any,
    seen: Any,
    model: Any,
    interval: Any,
    new_position: Any,
    new_velocity: Any,
    new_uncertainty: Any,
    surprise: Any,
) -> int:
    """`drift` and `correct` of :mod:`kgmrf.trackers.vector` for one vector of known components.

    model: observation noise, acceleration and position noise, (3, d, d). interval: dt, turn, keep,
    angle, cross, rate. Writes the new state, and the normalised innovation squared and the
    log-likelihood into ``surprise``; returns COASTED where all of ``seen`` is NaN, SEEN where none
    is, else PARTLY: then nothing was computed.
    """
    d = position.shape[0]
    missing = 0
    for i in range(d):
        missing += math.isnan(seen[i])
    if 0 < missing < d:
        return PARTLY
    dt, turn, keep = interval[0], interval[1], interval[2]
    angle, cross, rate = interval[3], interval[4], interval[5]
    for i in range(d):
        new_position[i] = position[i] + turn * velocity[i]
        new_velocity[i] = keep * velocity[i]
        for j in range(d):
            p12, p22, walk = uncertainty[1, i, j], uncertainty[2, i, j], model[1, i, j]
            new_uncertainty[0, i, j] = (
                uncertainty[0, i, j]
                + turn * (p12 + uncertainty[1, j, i])
                + turn * turn * p22
                + angle * walk
                + dt * model[2, i, j]
            )
            new_uncertainty[1, i, j] = keep * (p12 + turn * p22) + cross * walk
            new_uncertainty[2, i, j] = keep * keep * p22 + rate * walk
    surprise[0] = surprise[1] = math.nan
    if missing:
        return COASTED
    # L of L L^T = P + R, then L^{-1} of the innovation and of the columns that it moves
    factor = np.empty((d, d))
    error = np.empty(d)
    first = new_uncertainty[0].copy()
    second = new_uncertainty[1].copy()
    log_det = nis = 0.0
    for i in range(d):
        for j in range(i + 1):
            total = new_uncertainty[0, i, j] + model[0, i, j]
            for k in range(j):
                total -= factor[i, k] * factor[j, k]
            factor[i, j] = math.sqrt(total) if i == j else total / factor[j, j]
        inverse = 1.0 / factor[i, i]
        error[i] = seen[i] - new_position[i]
        for k in range(i):
            f = factor[i, k]
            error[i] -= f * error[k]
            for j in range(d):
                first[i, j] -= f * first[k, j]
                second[i, j] -= f * second[k, j]
        error[i] *= inverse
        for j in range(d):
            first[i, j] *= inverse
            second[i, j] *= inverse
        nis += error[i] * error[i]
        log_det += 2.0 * math.log(factor[i, i])
    for k in range(d):
        for i in range(d):
            new_position[i] += first[k, i] * error[k]
            new_velocity[i] += second[k, i] * error[k]
            for j in range(d):
                new_uncertainty[0, i, j] -= first[k, i] * first[k, j]
                new_uncertainty[1, i, j] -= first[k, i] * second[k, j]
                new_uncertainty[2, i, j] -= second[k, i] * second[k, j]
    surprise[0] = nis
    surprise[1] = -0.5 * (d * math.log(2.0 * math.pi) + log_det + nis)
    return SEEN
