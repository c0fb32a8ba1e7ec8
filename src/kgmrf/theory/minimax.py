"""How small the worst mean squared angle can be: best fixed gains, and bounds for any estimator.

All for one plane in which each observation tells the angle with variance R = ``noise_variance``
(d_i d_j / (m (lam_i - lam_j)^2) for a covariance), over runs of T frames whose rate varies by at
most V in total. The paper's theorem, c_1 sigma^2 / (m Delta_wh^2) + c_2 V / T, is false: an average
of small gain goes below its first term, and reporting the observation goes below its second as m
grows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from kgmrf.theory._arrays import floats, number

__all__ = ["FixedGainMinimax", "fixed_gain_minimax", "minimax_lower_bound", "two_point_bound"]


class FixedGainMinimax(NamedTuple):
    """The least worst risk of a pair of fixed gains, and the pair."""

    risk: Any
    position_gain: Any
    velocity_gain: Any


def fixed_gain_minimax(
    noise_variance: ArrayLike, variation: ArrayLike, n_frames: ArrayLike
) -> FixedGainMinimax:
    """inf_{A,B} sup_{TV <= V} R_T = A R, with A the Kalman gain for velocity noise q = V^2 / T.

    For given gains the worst path of a given variation is one jump of the rate, which costs
    h V^2 / T beside the noise P_11 R; the sum is the variance of a Kalman filter whose velocity
    takes steps of variance q, and the best gains are that filter's: with lam = sqrt(q/R), y = (lam
    + sqrt(lam^2 + 16))/2 and s = (y - sqrt(y^2 - 4))/2 they are A = 1 - s^2, B = A^2/(2 - A). About
    sqrt(2) R^(3/4) (V^2/T)^(1/4) when small. Linear regime, retention 1, started in the steady
    state.

    Shapes: three of (...) -> three of (...).

    >>> found = fixed_gain_minimax(0.05, 0.02, 400)
    >>> round(found.risk, 5), round(found.position_gain, 4), round(found.velocity_gain, 5)
    (0.00451, 0.0903, 0.00427)
    """
    r, v, n = floats(noise_variance, variation, n_frames)
    if np.any(r <= 0) or np.any(v < 0) or np.any(n < 1):
        raise ValueError("need noise_variance > 0, variation >= 0 and n_frames >= 1")
    lam = v / np.sqrt(n * r)
    y = 0.5 * (lam + np.sqrt(lam**2 + 16))
    # y^2 - 4 = lam y, without the cancellation
    s = 0.5 * (y - np.sqrt(lam * y))
    a = 1 - s**2
    return FixedGainMinimax(number(a * r), number(a), number(a**2 / (2 - a)))


def minimax_lower_bound(
    noise_variance: ArrayLike, variation: ArrayLike, n_frames: ArrayLike
) -> Any:
    """max over block lengths n of (K/T) x (1 - sqrt(x/R)): no estimator's worst risk is below it.

    Assouad's argument: K = T // n blocks, in each the plane turns there and back at the rate +-c, c
    = V/(4K - 2), one sign per block; x = c^2 (n^3/12 + n/6) is the summed square of a block's
    angle, at most 4R/9 (a smaller c is allowed too), its peak at most pi/4. Two signs differ by a
    Kullback-Leibler divergence of 2x/R at most, for Wishart observations as well. Holds for any
    estimator, also one that sees the whole run. For long runs it is close to the closed form .0618
    R^(4/5) (V/T)^(2/5).

    Shapes: three of (...) -> (...).

    >>> round(minimax_lower_bound(0.05, 0.5, 4000), 6)
    0.000153
    """
    r, v, n = floats(noise_variance, variation, n_frames)
    if np.any(r <= 0) or np.any(v < 0) or np.any(n < 2):
        raise ValueError("need noise_variance > 0, variation >= 0 and n_frames >= 2")
    out = np.empty(r.shape)
    for k in np.ndindex(r.shape):
        out[k] = _assouad(float(r[k]), float(v[k]), int(n[k]))
    return number(out)


def _assouad(r: float, v: float, n_frames: int) -> float:
    n = np.arange(2, n_frames + 1, 2, dtype=np.float64)
    blocks = n_frames // n
    rate = np.minimum(v / (4 * blocks - 2), np.pi / (2 * n))
    x = np.minimum(rate**2 * (n**3 / 12 + n / 6), 4 * r / 9)
    return float(np.max(blocks / n_frames * x * (1 - np.sqrt(x / r))))


def two_point_bound(noise_variance: ArrayLike, n_observations: ArrayLike) -> Any:
    """4 R / (27 n): no estimate of an angle at rest from n observations has a smaller worst risk.

    Le Cam: two angles +-theta differ by a divergence of 2 n theta^2 / R, so that the risk is at
    least theta^2 (1 - theta sqrt(n/R)), best at theta = (2/3) sqrt(R/n). It falls like 1/n: an
    estimator that keeps averaging has no floor, against the paper's static term.

    Shapes: two of (...) -> (...).

    >>> round(two_point_bound(0.27, 10), 4)
    0.004
    """
    r, n = floats(noise_variance, n_observations)
    return number(4 * r / (27 * n))
