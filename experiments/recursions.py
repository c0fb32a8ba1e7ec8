"""Recursions of the paper that are not the package's trackers: as printed, or as recovered.

Each takes observations ``(T, ..., d, d)`` with NaN where there is none and returns estimates of the
same shape, the first frame being observed. The package's own step is not repeated here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from kgmrf import metrics
from kgmrf._types import Mask, Numbers
from kgmrf.geometry import orbit, so, spd

SPECTRUM = np.array([2.0, 0.5])


def _seen(observations: Numbers) -> tuple[Mask, Numbers]:
    """Where there is an observation, and the observations with the identity in the gaps."""
    seen = ~np.isnan(observations[..., 0, 0])
    return seen, np.where(seen[..., None, None], observations, np.eye(observations.shape[-1]))


def _path(observed: Numbers, seen: Mask, step: Callable[..., Any], n_rates: int = 1) -> Numbers:
    """Estimates along time: (x, rates) <- step(x, *rates, observation, where it is there)."""
    x, rates = observed[0], [np.zeros_like(observed[0])] * n_rates
    path = [x]
    for z, there in zip(observed[1:], seen[1:], strict=True):
        x, *rates = step(x, *rates, z, there)
        path.append(x)
    return np.stack(path)


def half_turn(angle: Numbers) -> Numbers:
    """An angle between axes, modulo pi, in [-pi/2, pi/2)."""
    return (angle + 0.5 * np.pi) % np.pi - 0.5 * np.pi


def kinetic_angle(
    observations: Numbers,
    position_gain: float = 0.1,
    velocity_gain: float = 0.05,
    coast_retention: float = 0.95,
) -> Numbers:
    """The paper's K-GMRF on the ellipse as recovered: zero lag, Log innovation, d = 2.

    x <- x + v; e = the angle from x to the observed axis; x <- x + position_gain e;
    v <- v + velocity_gain e; without data v <- coast_retention v after the drift.
    """

    def step(x: Numbers, v: Numbers, z: Numbers, there: Mask) -> Any:
        x = x + v
        error = np.where(there, half_turn(z - x), 0.0)
        v = np.where(there, v + velocity_gain * error, coast_retention * v)
        return x + position_gain * error, v

    seen, filled = _seen(observations)
    found = _path(metrics.axis_angle(filled), seen, step)
    return np.asarray(orbit.compose(so.exp(so.hat(found[..., None])), SPECTRUM))


def plane_law(
    observations: Numbers,
    gap: float,
    position_gain: Numbers,
    velocity_gain: Numbers,
    retention: Numbers,
    ridge: Numbers,
) -> Numbers:
    """The package's step with fixed gains for d = 2, as angles, for many laws at once.

    Observations ``(T, n, 2, 2)`` without holes, gains ``(k, 1)`` -> angles ``(T, k, n)``, started
    at angle 0. `KGMRF` does the same; here all laws share one pass.
    """
    factor = gap / (gap**2 + ridge)
    x = np.zeros(np.broadcast_shapes(np.shape(position_gain), observations.shape[1:2]))
    w = np.zeros_like(x)
    path = []
    for seen in observations:
        x = x + w
        across = 0.5 * (seen[:, 1, 1] - seen[:, 0, 0])
        turn = factor * (across * np.sin(2 * x) + seen[:, 0, 1] * np.cos(2 * x))
        x, w = x + position_gain * turn, retention * w + velocity_gain * turn
        path.append(x)
    return np.stack(path)


def tangent_kalman_local(
    observations: Numbers, velocity_noise: float = 0.005, noise_std: float = 0.1
) -> Numbers:
    """A constant-velocity Kalman filter in the tangent space at the current estimate.

    The second reading of the paper's "linearized Kalman filter in tangent space T_{M_t} SPD(d)":
    with M = L L^T, L <- L exp(v/2); e = log(L^-1 C L^-T); L <- L exp(k_1 e/2); v <- v + k_2 e. The
    gains come from one 2 x 2 uncertainty shared by all entries; without data it predicts.
    """
    seen, filled = _seen(observations)
    root = np.linalg.cholesky(filled[0])
    v = np.zeros_like(root)
    p = np.zeros((*seen.shape[1:], 2, 2))
    p[..., 0, 0], p[..., 1, 1] = noise_std**2, velocity_noise
    drift = np.array([[1.0, 1.0], [0.0, 1.0]])
    noise = np.diag([0.0, velocity_noise])
    path = [filled[0]]
    for t in range(1, len(filled)):
        root = root @ spd.exp(0.5 * v)
        p = drift @ p @ drift.T + noise
        back = np.linalg.inv(root)
        white = back @ filled[t] @ np.swapaxes(back, -1, -2)
        there = seen[t][..., None, None]
        error = spd.log(np.where(there, 0.5 * (white + np.swapaxes(white, -1, -2)), np.eye(2)))
        gain = p[..., :, 0] / (p[..., 0, 0] + noise_std**2)[..., None]
        root = root @ spd.exp(0.5 * gain[..., 0, None, None] * error)
        v = v + gain[..., 1, None, None] * error
        p = np.where(there, p - gain[..., :, None] * p[..., None, 0, :], p)
        path.append(root @ np.swapaxes(root, -1, -2))
    return np.stack(path)


def _difference(x: Numbers, z: Numbers, there: Mask) -> Numbers:
    return np.where(there[..., None, None], z - x, 0.0)


def _innovation(x: Numbers, z: Numbers, there: Mask) -> Numbers:
    return np.where(there[..., None, None], so.log(np.swapaxes(x, -1, -2) @ z), 0.0)


def alpha_beta_printed(
    observations: Numbers, position_gain: float = 0.4, velocity_gain: float = 0.1
) -> Numbers:
    """x <- x + alpha (z - x) + v;  v <- v + beta (z - x), both from the old x: as printed."""

    def step(x: Numbers, v: Numbers, z: Numbers, there: Mask) -> Any:
        e = _difference(x, z, there)
        return x + position_gain * e + v, v + velocity_gain * e

    seen, filled = _seen(observations)
    return _path(filled, seen, step)


def _third_order(
    move: Callable[[Numbers, Numbers], Numbers],
    error: Callable[[Numbers, Numbers, Mask], Numbers],
    observations: Numbers,
    position_gain: float,
    velocity_gain: float,
    acceleration_gain: float,
) -> Numbers:
    """x, v, a predicted, then each corrected by its own gain."""

    def step(x: Numbers, v: Numbers, a: Numbers, z: Numbers, there: Mask) -> Any:
        x, v = move(x, v + 0.5 * a), v + a
        e = error(x, z, there)
        return move(x, position_gain * e), v + velocity_gain * e, a + acceleration_gain * e

    seen, filled = _seen(observations)
    return _path(filled, seen, step, n_rates=2)


alpha_beta_gamma = partial(_third_order, np.add, _difference)
"""Third order on the entries."""

alpha_beta_gamma_rotation = partial(_third_order, lambda x, step: x @ so.exp(step), _innovation)
"""The same on the group: S <- S Exp(v + a/2), e = Log(S^T Z), S <- S Exp(alpha e)."""


def kinetic_rotation(
    observations: Numbers,
    position_gain: float = 0.5,
    velocity_gain: float = 0.05,
    retention: float = 0.98,
    *,
    late: bool = False,
) -> Numbers:
    """The paper's K-GMRF on SO(3) as recovered: e = Log(S^T Z) before any drift.

    v <- retention v + velocity_gain e;  S <- S Exp(v + position_gain e). ``late`` moves S by the
    old v.
    """

    def step(x: Numbers, v: Numbers, z: Numbers, there: Mask) -> Any:
        e = _innovation(x, z, there)
        new = retention * v + velocity_gain * e
        return x @ so.exp((v if late else new) + position_gain * e), new

    seen, filled = _seen(observations)
    return _path(filled, seen, step)


alpha_beta_rotation = partial(kinetic_rotation, retention=1.0, late=True)
"""The paper's alpha-beta on SO(3) as recovered: S <- S Exp(v + alpha e), then v <- v + beta e."""
