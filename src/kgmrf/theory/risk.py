"""The mean squared angle over a run: what fixed gains guarantee, and what nobody can beat.

`risk_bound` is the paper's three-term bound with constants. The minimax part is for one plane in
which each observation tells the angle with variance R = ``noise_variance``, d_i d_j / (m (lam_i -
lam_j)^2) for a covariance, over runs of T frames whose rate varies by at most V in total. The
paper's theorem, c_1 sigma^2 / (m Delta_wh^2) + c_2 V / T, is false: an average of small gain goes
below its first term, and reporting the observation goes below its second as m grows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from kgmrf.theory._arrays import Array, floats, number, stein
from kgmrf.theory.stability import error_map, stable, steady_noise_variance

__all__ = [
    "FixedGainMinimax",
    "RiskTerms",
    "fixed_gain_minimax",
    "minimax_lower_bound",
    "risk_bound",
    "two_point_bound",
]


class RiskTerms(NamedTuple):
    """statistical + nonstationarity + transient: mean squared angle over a run, in rad^2.

    Parameters
    ----------
    statistical : float
        From the noise of the observations.
    nonstationarity : float
        From changes of the velocity.
    transient : float
        From the error at the start.
    """

    statistical: float
    nonstationarity: float
    transient: float

    @property
    def total(self) -> float:
        """The sum of the three terms."""
        return sum(self)


def risk_bound(
    *,
    spectrum: ArrayLike,
    n_samples: float,
    n_frames: int,
    position_gain: float,
    velocity_gain: float,
    noise_floor: float = 0.0,
    rate_variation: float = 0.0,
    initial_angle: float = 0.0,
    initial_velocity: float = 0.0,
    max_variation: float | None = None,
    max_jump: float | None = None,
) -> RiskTerms:
    """(1/T) sum E angle_t^2 <= P_11 sum_{i<j} R_ij + (sqrt(h) V + sqrt(X(z_0)))^2 / T.

    For the zero-lag law (retention 1) in the linear regime, summed over the planes of a
    ``spectrum`` (d,). R_ij = d_i d_j / (m (lam_i - lam_j)^2), d_i = lam_i + noise_floor; P_11 is
    the steady noise variance at R = 1; V = ``rate_variation`` = sum_t |Omega_{t+1} - Omega_t|_F /
    sqrt 2; h = sum_k (F^k)_{12}^2; X(z) = sum_{t >= 1} (F^t z)_1^2 for the initial errors. The
    cross term of the square is shared equally. An equality for one jump of the rate without noise,
    as T grows. All terms are inf where the gains are unstable.

    A form linear in V needs another bound: with ``max_variation`` >= V the term is 2 h V_max V / T,
    with ``max_jump``, the largest single change of the rate, 2 |g|_1^2 jump V / T, g_k = (F^k)_12;
    given both, the smaller. The transient term is then 2 X / T.

    Parameters
    ----------
    spectrum : array
        Eigenvalues lam ``(d,)``.
    n_samples : float
        m, samples behind an observation.
    n_frames : int
        T, steps of the run.
    position_gain, velocity_gain : float
        A and B, shares of an innovation that correct angle and velocity.
    noise_floor : float, default 0.0
        sigma^2, in d_i = lam_i + sigma^2.
    rate_variation : float, default 0.0
        V, total variation of the angular velocity.
    initial_angle : float, default 0.0
        Angle error at the start, radians.
    initial_velocity : float, default 0.0
        Velocity error at the start, radians per step.
    max_variation : float, default None
        V_max >= V, for the bound that is linear in V.
    max_jump : float, default None
        Largest single change of the velocity, for the same.

    Examples
    --------
    >>> terms = risk_bound(
    ...     spectrum=(2.0, 0.5), n_samples=8, n_frames=400, position_gain=0.1, velocity_gain=0.005
    ... )
    >>> round(terms.statistical, 4), terms.nonstationarity, terms.transient
    (0.0042, 0.0, 0.0)
    """
    lam = np.asarray(spectrum, dtype=np.float64)
    if lam.ndim != 1:
        raise ValueError(f"spectrum must have shape (d,), not {lam.shape}")
    if n_frames < 1 or n_samples <= 0:
        raise ValueError(f"need n_frames >= 1 and n_samples > 0, got {n_frames} and {n_samples}")
    if max_variation is not None and max_variation < rate_variation:
        raise ValueError(
            f"max_variation {max_variation} is below the variation of the rate {rate_variation}"
        )
    i, j = np.triu_indices(lam.size, 1)
    gap, d = lam[i] - lam[j], lam + noise_floor
    if np.any(gap == 0):
        raise ValueError(f"equal eigenvalues carry no angle: the risk is infinite for {lam}")
    f = error_map(position_gain, velocity_gain)
    if not stable(position_gain, velocity_gain):
        return RiskTerms(np.inf, np.inf, np.inf)
    # sum_{t>=0} (F^t z)_1^2 = z^T X z with X = F^T X F + e_1 e_1^T
    x = stein(f.T, np.diag([1.0, 0.0]))
    z0 = np.array([initial_angle, initial_velocity])
    drifted = float(np.sqrt(x[1, 1])) * rate_variation
    left = float(np.sqrt(max(z0 @ (f.T @ x @ f) @ z0, 0.0)))
    noise = steady_noise_variance(position_gain, velocity_gain)
    statistical = float(noise * (d[i] * d[j] / (n_samples * gap**2)).sum())
    linear = []
    if max_variation is not None:
        linear.append(2 * float(x[1, 1]) * max_variation * rate_variation)
    if max_jump is not None:
        linear.append(2 * _response_sum(f) ** 2 * max_jump * rate_variation)
    if linear:
        return RiskTerms(statistical, min(linear) / n_frames, 2 * left**2 / n_frames)
    nonstationarity, transient = drifted * (drifted + left), left * (drifted + left)
    return RiskTerms(statistical, nonstationarity / n_frames, transient / n_frames)


def _response_sum(f: Array) -> float:
    """|g|_1 = sum_k |(F^k)_12|, to rounding."""
    total, power = 0.0, np.eye(2)
    while np.abs(power).max() > 1e-17 * (1.0 + total):
        total += abs(power[0, 1])
        power = f @ power
    return float(total)


class FixedGainMinimax(NamedTuple):
    """The least worst risk of a pair of fixed gains, and the pair.

    Parameters
    ----------
    risk
        Least worst-case risk.
    position_gain
        Gain that attains it.
    velocity_gain
        Gain that attains it.
    """

    risk: Any
    position_gain: Any
    velocity_gain: Any


def fixed_gain_minimax(
    noise_variance: ArrayLike, variation: ArrayLike, n_frames: ArrayLike
) -> FixedGainMinimax:
    """inf_{A,B} sup_{TV <= V} R_T = A R, with A the Kalman gain for velocity noise q = V^2 / T.

    The worst path is one jump of the rate, which costs h V^2 / T beside the noise P_11 R. The best
    gains: with lam = sqrt(q/R), y = (lam + sqrt(lam^2 + 16))/2 and s = (y - sqrt(y^2 - 4))/2, A =
    1 - s^2, B = A^2/(2 - A). About sqrt(2) R^(3/4) (V^2/T)^(1/4) when small. Linear regime,
    retention 1, started in the steady state.

    Parameters
    ----------
    noise_variance : float or array
        R, variance of an observed angle, rad^2.
    variation : float or array
        V, total variation of the rate over the run, radians per step.
    n_frames : float or array
        T, steps of the run.

    Examples
    --------
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
    angle, at most 4R/9 (a smaller c is allowed too), its peak at most pi/4. Holds for any
    estimator, also one that sees the whole run. For long runs close to .0618 R^(4/5) (V/T)^(2/5).

    Parameters
    ----------
    noise_variance : float or array
        R, variance of an observed angle, rad^2.
    variation : float or array
        V, total variation of the rate over the run, radians per step.
    n_frames : float or array
        T, steps of the run.

    References
    ----------
    Tsybakov (2009), Introduction to Nonparametric Estimation, section 2.7, Springer.

    Examples
    --------
    >>> round(minimax_lower_bound(0.05, 0.5, 4000), 6)
    0.000153
    """
    r, v, n = floats(noise_variance, variation, n_frames)
    if np.any(r <= 0) or np.any(v < 0) or np.any(n < 2):
        raise ValueError("need noise_variance > 0, variation >= 0 and n_frames >= 2")
    return number(np.asarray(_assouad(r, v, np.floor(n))))


@np.vectorize
def _assouad(r: float, v: float, n_frames: float) -> float:
    n = np.arange(2.0, n_frames + 1, 2)
    blocks = n_frames // n
    rate = np.minimum(v / (4 * blocks - 2), np.pi / (2 * n))
    x = np.minimum(rate**2 * (n**3 / 12 + n / 6), 4 * r / 9)
    return float(np.max(blocks / n_frames * x * (1 - np.sqrt(x / r))))


def two_point_bound(noise_variance: ArrayLike, n_observations: ArrayLike) -> Any:
    """4 R / (27 n): no estimate of an angle at rest from n observations has a smaller worst risk.

    Le Cam: two angles +-theta differ by a divergence of 2 n theta^2 / R, so that the risk is at
    least theta^2 (1 - theta sqrt(n/R)), best at theta = (2/3) sqrt(R/n).

    Parameters
    ----------
    noise_variance : float or array
        R, variance of an observed angle, rad^2.
    n_observations : float or array
        n, observations of it.

    References
    ----------
    Tsybakov (2009), Introduction to Nonparametric Estimation, section 2.3, Springer.

    Examples
    --------
    >>> round(two_point_bound(0.27, 10), 4)
    0.004
    """
    r, n = floats(noise_variance, n_observations)
    return number(4 * r / (27 * n))
