"""Rivals that the package does not have: third order, and many laws of one plane in one pass.

The paper's own recursions are `kgmrf.paper`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from kgmrf._types import Mask, Numbers
from kgmrf.geometry import so


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


def _difference(x: Numbers, z: Numbers, there: Mask) -> Numbers:
    return np.where(there[..., None, None], z - x, 0.0)


def _innovation(x: Numbers, z: Numbers, there: Mask) -> Numbers:
    return np.where(there[..., None, None], so.log(np.swapaxes(x, -1, -2) @ z), 0.0)


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
