"""Which gains are stable, how fast errors fade, and which noise and lag stay in the estimate."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kgmrf.theory._arrays import Array, floats, number, stein

__all__ = [
    "convergence_rate",
    "error_map",
    "first_order_lag",
    "lock_limit",
    "printed_domain",
    "printed_lag",
    "stability_radius",
    "stable",
    "steady_lag",
    "steady_noise_variance",
    "turning_map",
]


def error_map(
    position_gain: ArrayLike, velocity_gain: ArrayLike, retention: ArrayLike = 1.0
) -> Array:
    """F = [[1 - A, 1 - A], [-B, rho - B]]: how (angle error, velocity error) propagate.

    Gains (...) -> (..., 2, 2).

    Parameters
    ----------
    position_gain, velocity_gain : float or array
        A and B, shares of an innovation that correct angle and velocity.
    retention : float or array, default 1.0
        Share of the velocity that is kept per step, rho; 1 is the zero-lag law.

    Examples
    --------
    >>> error_map(0.25, 0.5)
    array([[ 0.75,  0.75],
           [-0.5 ,  0.5 ]])
    """
    a, b, rho = floats(position_gain, velocity_gain, retention)
    return np.stack([np.stack([1 - a, 1 - a], -1), np.stack([-b, rho - b], -1)], -2)


def turning_map(
    position_gain: ArrayLike,
    velocity_gain: ArrayLike,
    retention: ArrayLike = 1.0,
    *,
    velocity: ArrayLike,
) -> NDArray[np.complex128]:
    """F(theta) = [[(1-A) e, (1-A) phi], [-B e, rho - B phi]], e = exp(-i theta), one per mode.

    The error map about a target that turns at ``velocity``, a skew matrix (..., d, d) in the body
    frame: d (d-1) / 2 modes theta = theta_a + theta_b, a < b, i theta_a the eigenvalues of the
    velocity, phi = (1 - e)/(i theta). Gains (...) -> (..., modes, 2, 2). At rest, and always for
    d = 2, all modes are `error_map`. The retention acts on the velocity error.

    Parameters
    ----------
    position_gain, velocity_gain : float or array
        A and B, shares of an innovation that correct angle and velocity.
    retention : float or array, default 1.0
        Share of the velocity that is kept per step, rho; 1 is the zero-lag law.
    velocity : ArrayLike
        Skew ``(..., d, d)``, body frame, radians per step.
    """
    w = np.asarray(velocity, dtype=np.float64)
    if w.ndim < 2 or w.shape[-1] != w.shape[-2] or not np.allclose(w, -np.swapaxes(w, -1, -2)):
        raise ValueError(f"velocity must be skew matrices (..., d, d), got shape {w.shape}")
    angles = np.linalg.eigvalsh(1j * w)
    i, j = np.triu_indices(w.shape[-1], 1)
    theta = angles[..., i] + angles[..., j]
    a, b, rho = (v[..., None] for v in floats(position_gain, velocity_gain, retention))
    e = np.exp(-1j * theta)
    small = np.abs(theta) < 1e-4
    safe = np.where(small, 1.0, theta)
    # (1 - exp(-i t)) / (i t) by series where t is small
    phi = np.where(small, 1 - 0.5j * theta - theta**2 / 6, (1 - e) / (1j * safe))
    entries = np.broadcast_arrays((1 - a) * e, (1 - a) * phi, -b * e, rho - b * phi)
    return np.stack(entries, -1).reshape((*entries[0].shape, 2, 2))


def stability_radius(
    position_gain: ArrayLike,
    velocity_gain: ArrayLike,
    retention: ArrayLike = 1.0,
    *,
    velocity: ArrayLike | None = None,
) -> Any:
    """max |eig F|: a small error grows where this exceeds 1 and decays where it is below.

    ``velocity``, skew (..., d, d), asks about a target that turns (see `turning_map`): for d >= 3
    that costs stability, in proportion to the speed when the gains are underdamped.

    Parameters
    ----------
    position_gain, velocity_gain : float or array
        A and B, shares of an innovation that correct angle and velocity.
    retention : float or array, default 1.0
        Share of the velocity that is kept per step, rho; 1 is the zero-lag law.
    velocity : array, default None
        Skew ``(..., d, d)``, body frame, radians per step: a target that turns. None is one at
        rest.

    Examples
    --------
    >>> from kgmrf.geometry import so
    >>> round(stability_radius(0.1, 0.005), 4)
    0.9487
    >>> round(stability_radius(0.1, 0.005, velocity=so.hat(np.array([0.0, 0.0, 0.1]))), 4)
    0.9812
    """
    at_rest = np.zeros((2, 2)) if velocity is None else velocity
    maps = turning_map(position_gain, velocity_gain, retention, velocity=at_rest)
    return number(np.abs(np.linalg.eigvals(maps)).max((-1, -2)))


def stable(
    position_gain: ArrayLike,
    velocity_gain: ArrayLike,
    retention: ArrayLike = 1.0,
    *,
    velocity: ArrayLike | None = None,
) -> Any:
    """|rho (1-A)| < 1,  B + A (1-rho) > 0,  B < (2-A)(1+rho): Jury's conditions for radius < 1.

    For a target that turns at ``velocity`` the conditions are, in every mode, |delta| < 1 and
    |tau - delta conj(tau)| < 1 - |delta|^2 with tau = tr F, delta = det F.

    Parameters
    ----------
    position_gain, velocity_gain : float or array
        A and B, shares of an innovation that correct angle and velocity.
    retention : float or array, default 1.0
        Share of the velocity that is kept per step, rho; 1 is the zero-lag law.
    velocity : array, default None
        Skew ``(..., d, d)``, body frame, radians per step: a target that turns. None is one at
        rest.

    References
    ----------
    Jury (1964), Theory and Application of the z-Transform Method, Wiley.

    Examples
    --------
    >>> from kgmrf.geometry import so
    >>> stable(0.5, 2.5), stable(0.5, 2.5, velocity=so.hat(np.array([0.0, 0.0, 1.5])))
    (True, False)
    """
    if velocity is None:
        a, b, rho = floats(position_gain, velocity_gain, retention)
        inside = (np.abs(rho * (1 - a)) < 1) & (b + a * (1 - rho) > 0) & (b < (2 - a) * (1 + rho))
        return number(inside)
    f = turning_map(position_gain, velocity_gain, retention, velocity=velocity)
    tau = f[..., 0, 0] + f[..., 1, 1]
    delta = f[..., 0, 0] * f[..., 1, 1] - f[..., 0, 1] * f[..., 1, 0]
    room = 1 - np.abs(delta) ** 2
    return number(((room > 0) & (np.abs(tau - delta * tau.conj()) < room)).all(-1))


def printed_domain(
    velocity_gain: ArrayLike, damping: ArrayLike, *, kappa_max: ArrayLike = 1.0
) -> Any:
    """0 < gamma < 2 and 0 < eta < 2 (2 - gamma) / kappa_max: where the printed law is stable.

    Parameters
    ----------
    velocity_gain : float or array
        eta.
    damping : float or array
        gamma as in W <- (1 - gamma) W + eta w.
    kappa_max : float or array, default 1.0
        Largest ratio of stiffness to inertia: 1 for the torque of Algorithm 1, whatever the data;
        the largest lam_i lam_j for the torque [C, M] of the paper's appendix, which is not
        whitened.

    Examples
    --------
    >>> printed_domain(0.05, 0.95), printed_domain(2.2, 0.95)
    (True, False)
    >>> printed_domain(0.05, 0.95, kappa_max=50.0)
    False
    """
    eta, gamma, kappa = floats(velocity_gain, damping, kappa_max)
    return number((gamma > 0) & (gamma < 2) & (eta > 0) & (eta * kappa < 2 * (2 - gamma)))


def convergence_rate(
    position_gain: ArrayLike,
    velocity_gain: ArrayLike,
    retention: ArrayLike = 1.0,
    *,
    velocity: ArrayLike | None = None,
) -> Any:
    """-log(stability_radius): errors fade like exp(-rate t), per frame; negative where they grow.

    Parameters
    ----------
    position_gain, velocity_gain : float or array
        A and B, shares of an innovation that correct angle and velocity.
    retention : float or array, default 1.0
        Share of the velocity that is kept per step, rho; 1 is the zero-lag law.
    velocity : array, default None
        Skew ``(..., d, d)``, body frame, radians per step: a target that turns. None is one at
        rest.

    Examples
    --------
    >>> round(convergence_rate(0.1, 0.005), 4)
    0.0527
    """
    with np.errstate(divide="ignore"):
        rate = -np.log(stability_radius(position_gain, velocity_gain, retention, velocity=velocity))
    return number(rate)


def steady_noise_variance(
    position_gain: ArrayLike,
    velocity_gain: ArrayLike,
    retention: ArrayLike = 1.0,
    *,
    observation_variance: ArrayLike = 1.0,
) -> Any:
    """P_11 of P = F P F^T + R (A, B)(A, B)^T: variance of the filtered angle in the steady state.

    For a covariance plane R = d_i d_j / (m (lam_i - lam_j)^2), for rotations R = noise_std^2; inf
    where the gains are unstable.

    Parameters
    ----------
    position_gain, velocity_gain : float or array
        A and B, shares of an innovation that correct angle and velocity.
    retention : float or array, default 1.0
        Share of the velocity that is kept per step, rho; 1 is the zero-lag law.
    observation_variance : float or array, default 1.0
        R, variance of an observed angle, rad^2.

    Examples
    --------
    >>> round(steady_noise_variance(0.1, 0.0), 4)  # an EMA: g / (2 - g)
    0.0526
    """
    a, b, rho, r = floats(position_gain, velocity_gain, retention, observation_variance)
    g = np.stack([a, b], -1)
    # With B = 0 and rho = 1 the velocity never moves: it is taken as damped.
    rho = np.where((b == 0) & (rho == 1), 0.0, rho)
    sources = r[..., None, None] * g[..., :, None] * g[..., None, :]
    return number(stein(error_map(a, b, rho), sources)[..., 0, 0])


def lock_limit(
    position_gain: ArrayLike, velocity_gain: ArrayLike, retention: ArrayLike = 1.0
) -> Any:
    """omega_max = (A + B / (1 - rho)) / 2: the fastest plane rotation a covariance law can hold.

    The innovation of a rotating ellipse, (1/2) sin 2x, never exceeds 1/2. Infinite without damping
    (rho = 1, B > 0); eta / (2 gamma) for the printed law.

    Parameters
    ----------
    position_gain, velocity_gain : float or array
        A and B, shares of an innovation that correct angle and velocity.
    retention : float or array, default 1.0
        Share of the velocity that is kept per step, rho; 1 is the zero-lag law.

    Examples
    --------
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
    without noise. NaN beyond the lock limit, and without any gain: there is no steady state.

    Parameters
    ----------
    rate : float or array
        omega, radians per step.
    position_gain, velocity_gain : float or array
        A and B, shares of an innovation that correct angle and velocity.
    retention : float or array, default 1.0
        Share of the velocity that is kept per step, rho; 1 is the zero-lag law.
    innovation : {"sine", "linear"}, default "sine"
        "sine" is exact for covariances with d = 2, "linear" for rotation observations.
    predicted : bool, default False
        Give x, the error before the correction.

    Examples
    --------
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

    Parameters
    ----------
    rate : float or array
        omega, radians per step.
    velocity_gain : float or array
        eta.
    damping : float or array
        gamma, 1 - retention.

    Examples
    --------
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

    Parameters
    ----------
    rate : float or array
        omega, radians per step.
    gain : float or array
        g, weight of a new observation.
    average : {"euclidean", "geodesic"}, default "euclidean"
        "euclidean", of the entries (exact for d = 2), or "geodesic", of angles.
    predicted : bool, default False
        Add omega: the error as a forecast of the next frame.

    Examples
    --------
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
