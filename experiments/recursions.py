"""Recursions of the paper that are not the package's trackers: as printed, or as recovered.

Each takes observations ``(T, ..., d, d)`` with NaN where there is none and returns estimates of the
same shape, the first frame being observed. The package's own step is not repeated here.
"""

from __future__ import annotations

import numpy as np

from kgmrf import metrics
from kgmrf._types import Mask, Numbers
from kgmrf.geometry import orbit, so

SPECTRUM = np.array([2.0, 0.5])


def _seen(observations: Numbers) -> tuple[Mask, Numbers]:
    """Where there is an observation, and the observations with the identity in the gaps."""
    seen = ~np.isnan(observations[..., 0, 0])
    return seen, np.where(seen[..., None, None], observations, np.eye(observations.shape[-1]))


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
    seen, filled = _seen(observations)
    axis = metrics.axis_angle(filled)
    x, v = axis[0], np.zeros_like(axis[0])
    path = [x]
    for t in range(1, len(axis)):
        x = x + v
        error = np.where(seen[t], half_turn(axis[t] - x), 0.0)
        x = x + position_gain * error
        v = np.where(seen[t], v + velocity_gain * error, coast_retention * v)
        path.append(x)
    frame = so.exp(so.hat(np.stack(path)[..., None]))
    return np.asarray(orbit.compose(frame, SPECTRUM))


def alpha_beta_printed(
    observations: Numbers, position_gain: float = 0.4, velocity_gain: float = 0.1
) -> Numbers:
    """x <- x + alpha (z - x) + v;  v <- v + beta (z - x), both from the old x: as printed."""
    seen, filled = _seen(observations)
    x, v = filled[0], np.zeros_like(filled[0])
    path = [x]
    for t in range(1, len(filled)):
        error = np.where(seen[t][..., None, None], filled[t] - x, 0.0)
        x, v = x + position_gain * error + v, v + velocity_gain * error
        path.append(x)
    return np.stack(path)


def alpha_beta_gamma(
    observations: Numbers, position_gain: float, velocity_gain: float, acceleration_gain: float
) -> Numbers:
    """Third order on the entries: x, v, a predicted, then each corrected by its own gain."""
    seen, filled = _seen(observations)
    x = filled[0]
    v, a = np.zeros_like(x), np.zeros_like(x)
    path = [x]
    for t in range(1, len(filled)):
        x, v = x + v + 0.5 * a, v + a
        error = np.where(seen[t][..., None, None], filled[t] - x, 0.0)
        x = x + position_gain * error
        v = v + velocity_gain * error
        a = a + acceleration_gain * error
        path.append(x)
    return np.stack(path)


def alpha_beta_gamma_rotation(
    observations: Numbers, position_gain: float, velocity_gain: float, acceleration_gain: float
) -> Numbers:
    """The same on the group: S <- S Exp(v + a/2), e = Log(S^T Z), S <- S Exp(alpha e)."""
    seen, filled = _seen(observations)
    x = filled[0]
    v, a = np.zeros_like(x), np.zeros_like(x)
    path = [x]
    for t in range(1, len(filled)):
        x, v = x @ so.exp(v + 0.5 * a), v + a
        error = _innovation(x, filled[t], seen[t])
        x = x @ so.exp(position_gain * error)
        v = v + velocity_gain * error
        a = a + acceleration_gain * error
        path.append(x)
    return np.stack(path)


def kinetic_rotation(
    observations: Numbers,
    position_gain: float = 0.5,
    velocity_gain: float = 0.05,
    retention: float = 0.98,
) -> Numbers:
    """The paper's K-GMRF on SO(3) as recovered: e = Log(S^T Z) before any drift.

    v <- retention v + velocity_gain e;  S <- S Exp(v + position_gain e).
    """
    seen, filled = _seen(observations)
    x, v = filled[0], np.zeros_like(filled[0])
    path = [x]
    for t in range(1, len(filled)):
        error = _innovation(x, filled[t], seen[t])
        v = retention * v + velocity_gain * error
        x = x @ so.exp(v + position_gain * error)
        path.append(x)
    return np.stack(path)


def alpha_beta_rotation(
    observations: Numbers, position_gain: float = 0.5, velocity_gain: float = 0.05
) -> Numbers:
    """The paper's alpha-beta on SO(3) as recovered: S <- S Exp(v + alpha e), then v <- v + beta
    e."""
    seen, filled = _seen(observations)
    x, v = filled[0], np.zeros_like(filled[0])
    path = [x]
    for t in range(1, len(filled)):
        error = _innovation(x, filled[t], seen[t])
        x, v = x @ so.exp(v + position_gain * error), v + velocity_gain * error
        path.append(x)
    return np.stack(path)


def _innovation(here: Numbers, there: Numbers, seen: Mask) -> Numbers:
    turn = so.log(np.swapaxes(here, -1, -2) @ there)
    return np.where(seen[..., None, None], turn, 0.0)
