"""How far an estimate trails a plane that turns at a constant rate."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from kgmrf.theory._arrays import floats, number

__all__ = ["first_order_lag", "lock_limit", "printed_lag", "steady_lag"]


def lock_limit(
    position_gain: ArrayLike, velocity_gain: ArrayLike, retention: ArrayLike = 1.0
) -> Any:
    """omega_max = (A + B / (1 - rho)) / 2: the fastest plane rotation a covariance law can hold.

    The innovation of a rotating ellipse, (1/2) sin 2x, never exceeds 1/2. Infinite without damping
    (rho = 1, B > 0); eta / (2 gamma) for the printed law.

    >>> round(lock_limit(0.0, 0.05, 1 - 0.95), 4), lock_limit(0.1, 0.05)
    (0.0263, inf)
    """
    a, b, rho = floats(position_gain, velocity_gain, retention)
    held = b / np.where(rho < 1, 1 - rho, 1.0)
    return number(0.5 * (a + np.where(rho < 1, held, np.where(b > 0, np.inf, 0.0))))


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
    observations. NaN beyond the lock limit, and without any gain: there is no steady state.

    >>> steady_lag(0.08, 0.1, 0.05)
    0.0
    >>> round(steady_lag(0.08, 0.2, 0.0, innovation="linear"), 4)
    0.32
    """
    limit = lock_limit(position_gain, velocity_gain, retention)
    omega, limit, a = floats(rate, limit, position_gain)
    w = np.where(limit > 0, 0.5 * omega / np.where(limit > 0, limit, 1.0), np.nan)
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

    >>> round(printed_lag(0.01, 0.5, 0.5), 6)
    0.010001
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
    (its log-Euclidean twin included); ``"geodesic"`` is the average of angles. ``predicted=True``
    adds omega: the error as a forecast of the next frame, omega / g on a geodesic (NaN from pi/2
    on, where the average loses the target). Predictions lag by more than omega/2 for every stable
    gain; the filtered estimate has no such bound: with g = 1, hold last, it is 0.

    >>> round(float(np.degrees(first_order_lag(0.08, 0.2))), 2)
    15.61
    >>> first_order_lag(0.08, 1.0), first_order_lag(0.08, 1.0, predicted=True)
    (0.0, 0.08)
    """
    omega, g = floats(rate, gain)
    if average == "geodesic":
        lag = np.where(np.abs(omega) < 0.5 * np.pi * g, (1 - g) * omega / g, np.nan)
    elif average == "euclidean":
        lag = 0.5 * np.angle(1 - (1 - g) * np.exp(-2j * omega))
    else:
        raise ValueError(f'average is "euclidean" or "geodesic", not {average!r}')
    return number(lag + omega if predicted else lag)
