"""The error-state Kalman filter of a rotation in space and its velocity, and the way back.

The error (angle, velocity) lives in the body frame with a dense 6 x 6 covariance; over a time that
turns by s = turn v it is carried along: F = [[Exp(-s), turn Exp(-s/2)], [0, keep]].
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kgmrf._types import Mask, Numbers
from kgmrf.geometry import so
from kgmrf.model.gains import InformationGains, Transition, transition
from kgmrf.model.law_state import select
from kgmrf.smoothing.law import walk_back


class RotationState(NamedTuple):
    """rotation ``(..., 3, 3)``, velocity ``(..., 3)`` in the body frame, covariance of both."""

    rotation: Numbers
    velocity: Numbers
    covariance: Numbers


def start(rotation: Numbers, noise: Numbers | float, rate_prior: float) -> RotationState:
    """At rest where it was first seen, with the variance of the observation.

    >>> start(np.eye(3), 0.01, 1.0).covariance.diagonal()
    array([0.01, 0.01, 0.01, 1.  , 1.  , 1.  ])
    """
    batch = rotation.shape[:-2]
    covariance, a = np.zeros((*batch, 6, 6)), np.arange(3)
    covariance[..., a, a] = np.asarray(noise)[..., None]
    covariance[..., 3 + a, 3 + a] = rate_prior
    return RotationState(rotation, np.zeros((*batch, 3)), covariance)


def predict(state: RotationState, over: Transition) -> tuple[RotationState, Numbers]:
    """R <- R Exp(turn v), v <- keep v, P <- F P F^T + Q; also F."""
    turn, keep = (np.asarray(part)[..., None, None] for part in (over.turn, over.keep))
    eye = np.eye(3)
    step = turn * so.hat(state.velocity)
    f = np.zeros_like(state.covariance)
    f[..., :3, :3] = so.exp(-step)
    f[..., :3, 3:] = turn * so.exp(-0.5 * step)
    f[..., 3:, 3:] = keep * eye
    covariance = f @ state.covariance @ np.swapaxes(f, -1, -2)
    angle, cross, rate = (
        np.asarray(part)[..., None, None] * eye for part in (over.angle, over.cross, over.rate)
    )
    covariance[..., :3, :3] += angle
    covariance[..., :3, 3:] += cross
    covariance[..., 3:, :3] += cross
    covariance[..., 3:, 3:] += rate
    return RotationState(
        state.rotation @ so.exp(step), keep[..., 0] * state.velocity, covariance
    ), f


def correct(state: RotationState, seen: Numbers, noise: Numbers | float) -> RotationState:
    """e = Log(R^T Z), (R, v) <- (R Exp(K1 e), v + K2 e); P by Joseph's form."""
    p = state.covariance
    r = np.asarray(noise, dtype=float)[..., None, None] * np.eye(3)
    gain = p[..., :, :3] @ np.linalg.inv(p[..., :3, :3] + r)
    error = so.vee(so.log(np.swapaxes(state.rotation, -1, -2) @ seen))
    step = (gain @ error[..., None])[..., 0]
    keep = np.eye(6) + np.zeros_like(p)
    keep[..., :, :3] -= gain
    left = keep @ p @ np.swapaxes(keep, -1, -2) + gain @ r @ np.swapaxes(gain, -1, -2)
    return RotationState(_turned(state.rotation, step), state.velocity + step[..., 3:], left)


def smooth(
    law: InformationGains,
    seen: Numbers,
    observed: Mask,
    dt: Numbers,
    noise: Numbers,
    lag: int | None = None,
) -> RotationState:
    """p(R_t, v_t | Z_1..Z_T), or given Z_1..Z_{t+lag}; NaN before the first observation.

    seen ``(T, ..., 3, 3)``; observed, dt (interval before each), noise variance ``(T, ...)``.

    >>> z = np.tile(np.eye(3), (5, 1, 1))
    >>> ones = np.ones(5)
    >>> smooth(InformationGains(), z, ones > 0, ones, 0.01 * ones).rotation.shape
    (5, 3, 3)
    """
    begun = np.logical_or.accumulate(observed, axis=0)
    over = transition(law, np.asarray(dt, dtype=float))
    prior = float(np.asarray(law.rate_prior))
    states: list[RotationState] = []
    for k, there in enumerate(observed):
        safe = np.where(there[..., None, None], seen[k], np.eye(3))
        state = start(safe, noise[k], prior)
        if k:
            ahead = predict(states[-1], Transition(*(part[k] for part in over)))[0]
            state = select(
                begun[k - 1], select(there, correct(ahead, safe, noise[k]), ahead), state
            )
        states.append(state)
    filtered = RotationState(*(np.stack(parts) for parts in zip(*states, strict=True)))

    def backward(frames: slice, later: RotationState) -> RotationState:
        here = RotationState(*(part[frames] for part in filtered))
        after = slice(frames.start + 1, frames.stop + 1)
        ahead, f = predict(here, Transition(*(part[after] for part in over)))
        gain = np.swapaxes(np.linalg.solve(ahead.covariance, f @ here.covariance), -1, -2)
        angle = so.vee(so.log(np.swapaxes(ahead.rotation, -1, -2) @ later.rotation))
        error = np.concatenate([angle, later.velocity - ahead.velocity], axis=-1)
        step = (gain @ error[..., None])[..., 0]
        change = gain @ (later.covariance - ahead.covariance) @ np.swapaxes(gain, -1, -2)
        found = RotationState(
            _turned(here.rotation, step), here.velocity + step[..., 3:], here.covariance + change
        )
        return select(begun[frames], found, here)

    found = walk_back(filtered, backward, lag)
    nothing = RotationState(*(np.full_like(part, np.nan) for part in found))
    return select(begun, found, nothing)


def _turned(rotation: Numbers, step: Numbers) -> Numbers:
    return np.asarray(so.polish(rotation @ so.exp(so.hat(step[..., :3]))))
