"""How far an estimate trails a plane that turns at a constant rate."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from kgmrf.theory._arrays import Array, floats, number

__all__ = ["first_order_lag", "lock_limit", "printed_lag", "steady_lag"]


def lock_limit(
    position_gain: ArrayLike, velocity_gain: ArrayLike, retention: ArrayLike = 1.0
) -> Any:
    """omega_max = (A + B / (1 - rho)) / 2: the fastest plane rotation a covariance law can hold.

    The innovation of a rotating ellipse, (1/2) sin 2x, never exceeds 1/2; what it can sustain is
    bounded with it. Infinite without damping (rho = 1, B > 0). For the printed law this is
    eta / (2 gamma): .026 rad per frame for the paper's eta = .05, gamma = .95.

    >>> round(lock_limit(0.0, 0.05, 1 - 0.95), 4), lock_limit(0.1, 0.05)
    (0.0263, inf)
    """
    return number(0.5 * np.asarray(_authority(position_gain, velocity_gain, retention)))


def _authority(position_gain: ArrayLike, velocity_gain: ArrayLike, retention: ArrayLike) -> Array:
    """Return A + B / (1 - rho), the steady turn per frame that a unit innovation sustains."""
    a, b, rho = floats(position_gain, velocity_gain, retention)
    damped = rho < 1
    held = b / np.where(damped, 1 - rho, 1.0)
    return a + np.where(damped, held, np.where(b > 0, np.inf, 0.0))


def steady_lag(
    rate: ArrayLike,
    position_gain: ArrayLike,
    velocity_gain: ArrayLike,
    retention: ArrayLike = 1.0,
    *,
    innovation: Literal["sine", "linear"] = "sine",
    predicted: bool = False,
) -> Any:
    """e = x - A w with w = omega / (A + B/(1 - rho)), and x = (1/2) asin 2w (sine) or w (linear).

    The angle by which the filtered estimate trails a plane that turns at a constant ``rate``
    without noise; ``predicted=True`` gives x, the error before the correction.
    ``innovation="sine"`` is exact for covariances with d = 2, ``"linear"`` for rotation
    observations. NaN beyond the lock limit: there is no steady state.

    Erratum: the paper claims zero lag for its printed damping. That holds for rho = 1 only.

    >>> steady_lag(0.08, 0.1, 0.05)
    0.0
    >>> round(steady_lag(0.08, 0.2, 0.0, innovation="linear"), 4)
    0.32
    """
    omega = np.asarray(rate, dtype=np.float64)
    authority = _authority(position_gain, velocity_gain, retention)
    omega, authority, a = floats(omega, authority, position_gain)
    can = authority > 0
    w = omega / np.where(can, authority, 1.0)
    # With no gain at all only a resting plane has a steady error, and it is whatever it was.
    w = np.where(can, w, np.nan)
    if innovation == "linear":
        x = w
    elif innovation == "sine":
        locked = np.abs(w) <= 0.5
        x = np.where(locked, 0.5 * np.arcsin(np.where(locked, 2 * w, 0.0)), np.nan)
    else:
        raise ValueError(f'innovation is "sine" or "linear", not {innovation!r}')
    return number(x if predicted else x - a * w)


def printed_lag(rate: ArrayLike, velocity_gain: ArrayLike, damping: ArrayLike) -> Any:
    """(1/2) asin(2 gamma omega / eta): the lag of Algorithm 1 as printed, d = 2.

    About gamma omega / eta when small; NaN for omega > eta / (2 gamma), where it loses lock.
    Erratum: the paper states zero (its own remark on damping says why that cannot be).

    >>> round(printed_lag(0.01, 0.5, 0.5), 6)
    0.010001
    >>> printed_lag(0.08, 0.05, 0.95)
    nan
    """
    return steady_lag(rate, 0.0, velocity_gain, 1.0 - np.asarray(damping, dtype=np.float64))


def first_order_lag(
    rate: ArrayLike,
    gain: ArrayLike,
    *,
    average: Literal["euclidean", "geodesic"] = "euclidean",
    predicted: bool = False,
) -> Any:
    """(1/2) arg(1 - (1-g) exp(-2 i omega)) for M <- (1-g) M + g C; (1-g) omega / g on a geodesic.

    ``"euclidean"`` is exact for the moving average of the entries of a rotating covariance, d = 2
    (its log-Euclidean twin included, the spectrum being constant); ``"geodesic"`` is the average of
    angles, and the small-rate limit of the other. ``predicted=True`` adds omega: the error of the
    estimate as a forecast of the next frame, omega / g on a geodesic (which must stay below pi/2,
    else NaN: there the average loses the target).

    Errata: the paper calls the lag linear in omega; it grows 3.7-fold from .03 to .20 rad per frame
    at gain .2, and saturates. Its lower bound, |Omega|/4 in the text and |Omega|/2 in the appendix,
    is about predictions: they lag by more than omega/2 for every stable gain 0 < g < 2 and by omega
    or more for g <= 1. The filtered estimate has no such bound: with g = 1, hold last, it is 0.

    >>> round(float(np.degrees(first_order_lag(0.08, 0.2))), 2)
    15.61
    >>> round(first_order_lag(0.08, 0.2, average="geodesic", predicted=True), 4)
    0.4
    >>> first_order_lag(0.08, 1.0), first_order_lag(0.08, 1.0, predicted=True)
    (0.0, 0.08)
    """
    omega, g = floats(rate, gain)
    ahead = omega if predicted else np.zeros_like(omega)
    if average == "geodesic":
        held = np.abs(omega) < 0.5 * np.pi * g
        return number(np.where(held, (1 - g) * omega / g + ahead, np.nan))
    if average == "euclidean":
        keep = 1 - g
        lag = 0.5 * np.arctan2(keep * np.sin(2 * omega), 1 - keep * np.cos(2 * omega))
        return number(lag + ahead)
    raise ValueError(f'average is "euclidean" or "geodesic", not {average!r}')
