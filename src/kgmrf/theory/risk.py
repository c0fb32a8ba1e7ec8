"""The mean squared angle of a run: what noise, changes of the rate and the start contribute."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from kgmrf.theory._arrays import Array, stein
from kgmrf.theory.noise import steady_noise_variance
from kgmrf.theory.stability import error_map, stable

__all__ = ["RiskTerms", "risk_bound"]


class RiskTerms(NamedTuple):
    """statistical + nonstationarity + transient: mean squared angle over a run, in rad^2."""

    statistical: float
    nonstationarity: float
    transient: float

    @property
    def total(self) -> float:
        """The sum of the three terms.

        >>> RiskTerms(1.0, 2.0, 3.0).total
        6.0
        """
        return self.statistical + self.nonstationarity + self.transient


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

    For the zero-lag law (retention 1) with fixed gains and errors small enough to be linear, summed
    over the planes. R_ij = d_i d_j / (m (lam_i - lam_j)^2), d_i = lam_i + noise_floor; P_11 is the
    steady noise variance at R = 1; V = ``rate_variation`` = sum_t |Omega_{t+1} - Omega_t|_F / sqrt
    2; h = sum_k (F^k)_{12}^2; X(z) = sum_{t >= 1} (F^t z)_1^2 for the initial angle and velocity
    errors. ``spectrum`` has shape (d,). The cross term of the square is shared equally. Without
    noise and with one jump of the rate, or none, it is an equality as T grows. All terms are inf
    where the gains are unstable.

    The paper's form, linear in V, holds only where something else is bounded: with
    ``max_variation`` >= V the term is 2 h V_max V / T, with ``max_jump``, the largest single change
    of the rate, it is 2 |g|_1^2 jump V / T, g_k = (F^k)_12; given both, the smaller. The transient
    term is then 2 X / T.

    Errata: the paper's nonstationarity term is V/T in the statement and V^2/(2T) in the proof; no
    constant makes V/T true for one jump of any size. Its statistical term sigma^2 / (m Delta_wh^2)
    diverges as sigma^2 -> 0, which R_ij does not. Its transient term d_0^2 (1 - kappa)^T / T cannot
    bound an average that holds the first frames' errors: that part decays like 1/T, no faster. And
    the error of a run scales as m^(-1/2), being the root of this risk.

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
    gap = lam[i] - lam[j]
    if np.any(gap == 0):
        raise ValueError(f"equal eigenvalues carry no angle: the risk is infinite for {lam}")
    plane_variance = (lam[i] + noise_floor) * (lam[j] + noise_floor) / (n_samples * gap**2)
    f = error_map(position_gain, velocity_gain)
    if not stable(position_gain, velocity_gain):
        return RiskTerms(np.inf, np.inf, np.inf)
    # sum_{t>=0} (F^t z)_1^2 = z^T X z with X = F^T X F + e_1 e_1^T
    x = stein(f.T, np.diag([1.0, 0.0]))
    z0 = np.array([initial_angle, initial_velocity])
    moved = float(np.sqrt(x[1, 1])) * rate_variation
    left = float(np.sqrt(max(z0 @ (f.T @ x @ f) @ z0, 0.0)))
    statistical = float(steady_noise_variance(position_gain, velocity_gain) * plane_variance.sum())
    linear = []
    if max_variation is not None:
        linear.append(2 * float(x[1, 1]) * max_variation * rate_variation)
    if max_jump is not None:
        linear.append(2 * _response_sum(f) ** 2 * max_jump * rate_variation)
    if linear:
        return RiskTerms(statistical, min(linear) / n_frames, 2 * left**2 / n_frames)
    nonstationarity, transient = moved * (moved + left), left * (moved + left)
    return RiskTerms(statistical, nonstationarity / n_frames, transient / n_frames)


def _response_sum(f: Array) -> float:
    """|g|_1 = sum_k |(F^k)_12|, to rounding."""
    total, power = 0.0, np.eye(2)
    while np.abs(power).max() > 1e-17 * (1.0 + total):
        total += abs(power[0, 1])
        power = f @ power
    return float(total)
