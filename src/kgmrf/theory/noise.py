"""How much of the observation noise stays in the estimate, and the gains that leave least."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from kgmrf.gains import InformationGains, transition
from kgmrf.theory._arrays import Array, floats, number, stein
from kgmrf.theory.stability import error_map

__all__ = [
    "SteadyGains",
    "steady_information_gains",
    "steady_noise_covariance",
    "steady_noise_variance",
]


def steady_noise_covariance(
    position_gain: ArrayLike,
    velocity_gain: ArrayLike,
    retention: ArrayLike = 1.0,
    *,
    observation_variance: ArrayLike = 1.0,
) -> Array:
    """P = F P F^T + R (A, B)(A, B)^T: covariance of (angle, velocity) errors in the steady state.

    Gains of shape (...) give (..., 2, 2); inf where the gains are unstable. For a covariance plane
    R = d_i d_j / (m (lam_i - lam_j)^2), for rotations R = noise_std^2.
    """
    a, b, rho, r = floats(position_gain, velocity_gain, retention, observation_variance)
    g = np.stack([a, b], -1)
    # With B = 0 and rho = 1 the velocity never moves: it is taken as damped.
    rho = np.where((b == 0) & (rho == 1), 0.0, rho)
    return stein(error_map(a, b, rho), r[..., None, None] * g[..., :, None] * g[..., None, :])


def steady_noise_variance(
    position_gain: ArrayLike,
    velocity_gain: ArrayLike,
    retention: ArrayLike = 1.0,
    *,
    observation_variance: ArrayLike = 1.0,
) -> Any:
    """P_11 of `steady_noise_covariance`: variance of the filtered angle.

    >>> round(steady_noise_variance(0.1, 0.0), 4)  # an EMA: g / (2 - g)
    0.0526
    """
    gains = (position_gain, velocity_gain, retention)
    p = steady_noise_covariance(*gains, observation_variance=observation_variance)
    return number(p[..., 0, 0])


class SteadyGains(NamedTuple):
    """Where the per-plane information gains settle; each of the inputs' broadcast shape."""

    position_gain: Array
    velocity_gain: Array
    angle_variance: Array
    velocity_variance: Array


def steady_information_gains(
    acceleration: ArrayLike,
    observation_variance: ArrayLike,
    *,
    dt: ArrayLike = 1.0,
    angle_noise: ArrayLike = 0.0,
    retention: ArrayLike = 1.0,
) -> SteadyGains:
    """K = (p_11, p_12) / (p_11 + R) at the fixed point of the two-state Riccati recursion.

    ``acceleration`` is q, the variance a velocity gains per unit time (rad^2 per time^3), and
    ``observation_variance`` is R in rad^2; the variances returned are those after the correction.
    Without any process noise the gains fade like 1/t and are returned as zero.

    >>> gains = steady_information_gains(1e-7, 0.3)
    >>> round(float(gains.position_gain), 4), round(float(gains.velocity_gain), 6)
    (0.0334, 0.000568)
    """
    q, r, h, wander, rho = floats(acceleration, observation_variance, dt, angle_noise, retention)
    if np.any(q < 0) or np.any(wander < 0) or np.any(r <= 0) or np.any(h <= 0):
        raise ValueError("need acceleration, angle_noise >= 0 and observation_variance, dt > 0")
    if np.any(rho <= 0) or np.any(rho > 1):
        raise ValueError(f"need 0 < retention <= 1, got {retention!r}")
    law = InformationGains(acceleration=q, angle_noise=wander, retention=rho)
    over = transition(law, h)
    quiet = (q == 0) & (wander == 0)
    p11, p12, p22 = np.full_like(r, law.angle_prior), np.zeros_like(r), np.full_like(r, 4e-4)
    k1 = k2 = np.zeros_like(r)
    for _ in range(1_000_000):
        p11 = p11 + 2 * over.turn * p12 + over.turn**2 * p22 + over.angle
        p12 = over.coast * (p12 + over.turn * p22) + over.cross
        p22 = over.coast**2 * p22 + over.rate
        new1, new2 = p11 / (p11 + r), p12 / (p11 + r)
        p11, p12, p22 = (1 - new1) * p11, (1 - new1) * p12, p22 - new2 * p12
        moved = np.maximum(np.abs(new1 - k1), np.abs(new2 - k2)) > 1e-13 * new1
        k1, k2 = new1, new2
        if not np.any(moved & ~quiet):
            return SteadyGains(*(np.where(quiet, 0.0, v) for v in (k1, k2, p11, p22)))
    raise RuntimeError("gains not settled after 1000000 frames; raise acceleration")
