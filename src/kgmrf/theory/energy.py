"""Energies that fall at every step: the Lyapunov form, and the paper's, with the right inertia."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from kgmrf.theory._arrays import Array, floats, number, stein
from kgmrf.theory.stability import error_map

__all__ = [
    "InertiaRange",
    "energy_contraction",
    "energy_inertia",
    "lyapunov_energy",
]

First = Literal["drift", "kick"]


def lyapunov_energy(
    angle_error: ArrayLike,
    velocity_error: ArrayLike,
    position_gain: ArrayLike,
    velocity_gain: ArrayLike,
    retention: ArrayLike = 1.0,
) -> Any:
    """z^T L z with z = (e, u), L - F^T L F = I: falls by |z|^2 in every noiseless step.

    Per plane; add over planes for the whole frame. Not finite where the gains are unstable.

    Parameters
    ----------
    angle_error : float or array
        e, radians.
    velocity_error : float or array
        u, radians per step.
    position_gain : float or array
        A, share of an innovation that corrects the angle.
    velocity_gain : float or array
        B, share that corrects the velocity.
    retention : float or array, default 1.0
        Share of the velocity that is kept per step, rho; 1 is the zero-lag law.

    Examples
    --------
    >>> lyapunov_energy(0.3, 0.4, 1.0, 0.0, 0.0)
    0.25
    """
    z = np.stack(floats(angle_error, velocity_error), -1)
    f = error_map(position_gain, velocity_gain, retention)
    matrix = stein(np.swapaxes(f, -1, -2), np.eye(2))
    return number(np.einsum("...i,...ij,...j->...", z, matrix, z))


class InertiaRange(NamedTuple):
    """Inertias a for which E = xi^2/2 + a u^2/2 falls at every step; NaN where there is none.

    Parameters
    ----------
    low
        Least inertia at which the energy falls.
    best
        The one at which it falls fastest.
    high
        The largest.
    """

    low: Any
    best: Any
    high: Any


def energy_inertia(
    position_gain: ArrayLike,
    velocity_gain: ArrayLike,
    retention: ArrayLike = 1.0,
    *,
    first: First = "drift",
) -> InertiaRange:
    """a* = |F_12 / F_21| and the interval about it in which E = xi^2/2 + a u^2/2 contracts.

    ``first="drift"``: this package's step, F = [[1-A, 1-A], [-B, rho-B]]; for rho = 1 an inertia
    exists iff B < 2 min(A, 2 - A). ``first="kick"``: the paper's theorem, F = [[1-A-B, rho],
    [-B, rho]]; with A = 0, rho = 1 - gamma an inertia exists iff B < 2 min(gamma, 2 - gamma).

    Parameters
    ----------
    position_gain : float or array
        A, share of an innovation that corrects the angle.
    velocity_gain : float or array
        B, share that corrects the velocity.
    retention : float or array, default 1.0
        Share of the velocity that is kept per step, rho; 1 is the zero-lag law.
    first : First, default "drift"
        "drift" is the step of this package, "kick" that of the paper's theorem.

    Examples
    --------
    >>> [round(float(v), 2) for v in energy_inertia(0.0, 0.05, 0.9, first="kick")]
    [12.0, 18.0, 27.0]
    >>> energy_inertia(0.0, 0.05).best
    nan
    """
    f11, f12, f21, f22 = _entries(position_gain, velocity_gain, retention, first)
    det = f11 * f22 - f12 * f21
    room = 1 + det**2 - f11**2 - f22**2
    spread = room**2 - 4 * (f12 * f21) ** 2
    # Both singular values are below 1 where their squares' sum is below 1 + det^2 and |det| < 1.
    ok = (room > 0) & (spread > 0) & (np.abs(det) < 1) & (f21 != 0)
    below = np.where(ok, f21, 1.0)
    root = np.sqrt(np.where(ok, spread, 0.0))
    low, high = ((room + sign * root) / (2 * below**2) for sign in (-1, 1))
    found = (low, np.abs(f12 / below), high)
    return InertiaRange(*(number(np.where(ok, v, np.nan)) for v in found))


def energy_contraction(
    position_gain: ArrayLike,
    velocity_gain: ArrayLike,
    retention: ArrayLike = 1.0,
    *,
    inertia: ArrayLike | None = None,
    first: First = "drift",
) -> Any:
    """c = |D F D^-1|^2, D = diag(1, sqrt a): E' <= c E for E = xi^2/2 + a u^2/2, without noise.

    The smallest such c; above 1 the energy rises at some step from some start. ``inertia`` None
    takes the best, a* = |F_12/F_21|. ``first``: see `energy_inertia`.

    Parameters
    ----------
    position_gain : float or array
        A, share of an innovation that corrects the angle.
    velocity_gain : float or array
        B, share that corrects the velocity.
    retention : float or array, default 1.0
        Share of the velocity that is kept per step, rho; 1 is the zero-lag law.
    inertia : float or array, default None
        a; None takes the best, a* = |F_12/F_21|.
    first : First, default "drift"
        See `energy_inertia`.

    Examples
    --------
    >>> round(energy_contraction(0.0, 0.05, 0.9, inertia=1.0, first="kick"), 3)
    2.148
    >>> round(energy_contraction(0.0, 0.05, 0.9, first="kick"), 3)
    0.949
    """
    f11, f12, f21, f22 = _entries(position_gain, velocity_gain, retention, first)
    if inertia is None:
        cross = 2 * np.abs(f12 * f21)
    else:
        a = np.asarray(inertia, dtype=np.float64)
        if np.any(a <= 0):
            raise ValueError(f"inertia must be positive, got {inertia!r}")
        cross = f12**2 / a + a * f21**2
    total = f11**2 + f22**2 + cross
    det = f11 * f22 - f12 * f21
    return number(0.5 * (total + np.sqrt(np.maximum(total**2 - 4 * det**2, 0.0))))


def _entries(
    position_gain: ArrayLike, velocity_gain: ArrayLike, retention: ArrayLike, first: str
) -> tuple[Array, Array, Array, Array]:
    """F_11, F_12, F_21, F_22 of the step."""
    a, b, rho = floats(position_gain, velocity_gain, retention)
    if first == "drift":
        return 1 - a, 1 - a, -b, rho - b
    if first == "kick":
        return 1 - a - b, rho, -b, rho
    raise ValueError(f'first is "drift" or "kick", not {first!r}')
