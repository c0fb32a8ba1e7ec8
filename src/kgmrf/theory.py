"""What the tracking step will do, predicted from its gains alone.

Near the truth every plane of the step is one scalar recursion. With the angle error
e = (true angle) - (estimated angle) after the correction, and the velocity error u = omega - W,

    drift     x  = e + u                          the innovation, without noise
    correct   e' = (1 - A) x - A n                A = position_gain, n = observation noise
    kick      u' = rho u - B x - B n + (1 - rho) omega + (change of omega)

B = velocity_gain, rho = retention. So z = (e, u) obeys z' = F z - (A, B) n + (0, forcing) with

    F = [[1 - A, 1 - A], [-B, rho - B]],   trace 1 - A + rho - B,   determinant rho (1 - A).

All functions take numbers or arrays and broadcast over them. Angles are radians, time is in frames.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kgmrf.gains import InformationGains, transition

__all__ = [
    "RiskTerms",
    "SteadyGains",
    "convergence_rate",
    "error_map",
    "first_order_lag",
    "lock_limit",
    "lyapunov_contraction",
    "lyapunov_energy",
    "lyapunov_matrix",
    "printed_domain",
    "printed_lag",
    "risk_bound",
    "stability_radius",
    "stable",
    "steady_information_gains",
    "steady_lag",
    "steady_noise_covariance",
    "steady_noise_variance",
    "time_constant",
]

Array = NDArray[np.float64]


def _floats(*values: ArrayLike) -> tuple[Array, ...]:
    return tuple(np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in values)))


def _number(value: Any) -> Any:
    """Return a plain number for 0-d results, so that scalars in means scalars out."""
    return value.item() if np.ndim(value) == 0 else value


# --- stability ---------------------------------------------------------------------------------


def error_map(
    position_gain: ArrayLike, velocity_gain: ArrayLike, retention: ArrayLike = 1.0
) -> Array:
    """F = [[1 - A, 1 - A], [-B, rho - B]]: how (angle error, velocity error) propagate.

    Gains of shape (...) give maps of shape (..., 2, 2).

    >>> error_map(0.25, 0.5)
    array([[ 0.75,  0.75],
           [-0.5 ,  0.5 ]])
    """
    a, b, rho = _floats(position_gain, velocity_gain, retention)
    return np.stack([np.stack([1 - a, 1 - a], -1), np.stack([-b, rho - b], -1)], -2)


def stability_radius(
    position_gain: ArrayLike, velocity_gain: ArrayLike, retention: ArrayLike = 1.0
) -> Any:
    """max |eig F|: a small error grows where this exceeds 1 and decays where it is below.

    Gains of shape (...) give radii of shape (...). The group is compact, so an unstable tracker
    does not blow up; it wanders.

    >>> round(stability_radius(0.1, 0.005), 6)
    0.948683
    """
    radius = np.abs(np.linalg.eigvals(error_map(position_gain, velocity_gain, retention))).max(-1)
    return _number(radius)


def stable(position_gain: ArrayLike, velocity_gain: ArrayLike, retention: ArrayLike = 1.0) -> Any:
    """|rho (1-A)| < 1,  B + A (1-rho) > 0,  B < (2-A)(1+rho): Jury's conditions for radius < 1.

    Gains of shape (...) give booleans of shape (...). With A = 0 and rho = 1 - damping this is the
    printed domain.

    >>> stable(0.1, 0.05), stable(0.0, 0.05), stable(0.1, 4.0)
    (True, False, False)
    """
    a, b, rho = _floats(position_gain, velocity_gain, retention)
    inside = (np.abs(rho * (1 - a)) < 1) & (b + a * (1 - rho) > 0) & (b < (2 - a) * (1 + rho))
    return _number(inside)


def printed_domain(velocity_gain: ArrayLike, damping: ArrayLike) -> Any:
    """0 < gamma < 2 and 0 < eta < 2 (2 - gamma): where Algorithm 1 as printed is stable.

    The paper divides the second bound by kappa_max, the largest eigenvalue of (inertia inverse) o
    (stiffness); that operator is the identity, so kappa_max = 1. ``damping`` is gamma as in W <- (1
    - gamma) W + eta w (erratum: the paper also uses the letter for the retention 1 - gamma).

    >>> printed_domain(0.05, 0.95), printed_domain(2.2, 0.95)
    (True, False)
    """
    eta, gamma = _floats(velocity_gain, damping)
    return _number((gamma > 0) & (gamma < 2) & (eta > 0) & (eta < 2 * (2 - gamma)))


def convergence_rate(
    position_gain: ArrayLike, velocity_gain: ArrayLike, retention: ArrayLike = 1.0
) -> Any:
    """-log(max |eig F|): errors fade like exp(-rate t), per frame; negative where they grow.

    >>> round(convergence_rate(0.1, 0.005), 4)
    0.0527
    """
    with np.errstate(divide="ignore"):
        rate = -np.log(stability_radius(position_gain, velocity_gain, retention))
    return _number(np.asarray(rate))


def time_constant(
    position_gain: ArrayLike, velocity_gain: ArrayLike, retention: ArrayLike = 1.0
) -> Any:
    """1 / convergence_rate: frames in which an error shrinks by a factor e; inf where it does not.

    >>> round(time_constant(0.1, 0.005), 1)
    19.0
    """
    rate = np.asarray(convergence_rate(position_gain, velocity_gain, retention))
    # A rate within rounding of zero is a radius of one: the error stays.
    decays = rate > 1e-12
    return _number(np.where(decays, 1.0 / np.where(decays, rate, 1.0), np.inf))


# --- lag ---------------------------------------------------------------------------------------


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
    return _number(0.5 * np.asarray(_authority(position_gain, velocity_gain, retention)))


def _authority(position_gain: ArrayLike, velocity_gain: ArrayLike, retention: ArrayLike) -> Array:
    """Return A + B / (1 - rho), the steady turn per frame that a unit innovation sustains."""
    a, b, rho = _floats(position_gain, velocity_gain, retention)
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
    omega, authority, a = _floats(omega, authority, position_gain)
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
    return _number(x if predicted else x - a * w)


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
    rate: ArrayLike, gain: ArrayLike, *, average: Literal["euclidean", "geodesic"] = "euclidean"
) -> Any:
    """(1/2) arg(1 - (1-g) exp(-2 i omega)) for M <- (1-g) M + g C; (1-g) omega / g on a geodesic.

    ``"euclidean"`` is exact for the moving average of the entries of a rotating covariance, d = 2
    (its log-Euclidean twin included, the spectrum being constant); ``"geodesic"`` is the average of
    angles, and the small-rate limit of the other.

    Errata: the paper calls the lag linear in omega; it grows 3.7-fold from .03 to .20 rad per frame
    at gain .2, and saturates. Its lower bound is |Omega|/4 in the text and |Omega|/2 in the
    appendix; the latter follows from its premises, as omega / g with g < 2, for the predicted
    estimate.

    >>> round(float(np.degrees(first_order_lag(0.08, 0.2))), 2)
    15.61
    >>> round(first_order_lag(0.08, 0.2, average="geodesic"), 4)
    0.32
    """
    omega, g = _floats(rate, gain)
    if average == "geodesic":
        return _number((1 - g) * omega / g)
    if average == "euclidean":
        keep = 1 - g
        return _number(0.5 * np.arctan2(keep * np.sin(2 * omega), 1 - keep * np.cos(2 * omega)))
    raise ValueError(f'average is "euclidean" or "geodesic", not {average!r}')


# --- noise -------------------------------------------------------------------------------------


def _stein(maps: Array, sources: Array) -> Array:
    """Solve X = F X F^T + N for symmetric 2x2 X, batched; inf where F is not a contraction."""
    f, n = np.broadcast_arrays(maps, sources)
    kron = f[..., :, None, :, None] * f[..., None, :, None, :]
    kron = kron.reshape(f.shape[:-2] + (4, 4))
    ok = np.abs(np.linalg.eigvals(f)).max(-1) < 1 - 1e-12
    kron = np.where(ok[..., None, None], kron, 0.0)
    x = np.linalg.solve(np.eye(4) - kron, n.reshape(n.shape[:-2] + (4, 1)))
    x = x.reshape(n.shape)
    x = 0.5 * (x + np.swapaxes(x, -1, -2))
    return np.where(ok[..., None, None], x, np.inf)


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

    >>> steady_noise_covariance(0.5, 0.0, 0.0).round(4)
    array([[0.3333, 0.    ],
           [0.    , 0.    ]])
    """
    a, b, rho, r = _floats(position_gain, velocity_gain, retention, observation_variance)
    g = np.stack([a, b], -1)
    # Pure position gain with an idle velocity (B = 0, rho = 1) is stable where it matters: the
    # velocity never moves, so it is taken as damped.
    rho = np.where((b == 0) & (rho == 1), 0.0, rho)
    source = r[..., None, None] * g[..., :, None] * g[..., None, :]
    return _stein(error_map(a, b, rho), source)


def steady_noise_variance(
    position_gain: ArrayLike,
    velocity_gain: ArrayLike,
    retention: ArrayLike = 1.0,
    *,
    observation_variance: ArrayLike = 1.0,
) -> Any:
    """P_11 of the steady error covariance: variance of the filtered angle, in units of R.

    >>> round(steady_noise_variance(0.1, 0.0), 4)  # an EMA: g / (2 - g)
    0.0526
    """
    p = steady_noise_covariance(
        position_gain, velocity_gain, retention, observation_variance=observation_variance
    )
    return _number(p[..., 0, 0])


# --- energy ------------------------------------------------------------------------------------


def lyapunov_matrix(
    position_gain: ArrayLike, velocity_gain: ArrayLike, retention: ArrayLike = 1.0
) -> Array:
    """L with L - F^T L F = I: the quadratic form that falls by |z|^2 in every noiseless step.

    Gains of shape (...) give (..., 2, 2); inf where unstable.

    >>> lyapunov_matrix(1.0, 0.0, 0.0)
    array([[1., 0.],
           [0., 1.]])
    """
    f = error_map(position_gain, velocity_gain, retention)
    return _stein(np.swapaxes(f, -1, -2), np.eye(2))


def lyapunov_energy(
    angle_error: ArrayLike,
    velocity_error: ArrayLike,
    position_gain: ArrayLike,
    velocity_gain: ArrayLike,
    retention: ArrayLike = 1.0,
) -> Any:
    """z^T L z with z = (e, u): per plane; add over planes for the whole frame.

    The paper's energy T(u) + |xi|^2 / 2 is equivalent to it up to constants but does not itself
    fall at every step; its proof contracts this one.

    >>> lyapunov_energy(0.3, 0.4, 1.0, 0.0, 0.0)
    0.25
    """
    m = lyapunov_matrix(position_gain, velocity_gain, retention)
    e, u = _floats(angle_error, velocity_error)
    return _number(m[..., 0, 0] * e**2 + 2 * m[..., 0, 1] * e * u + m[..., 1, 1] * u**2)


def lyapunov_contraction(
    position_gain: ArrayLike, velocity_gain: ArrayLike, retention: ArrayLike = 1.0
) -> Any:
    """kappa = 1 / lambda_max(L): energy' <= (1 - kappa) energy, without noise; 0 where unstable.

    >>> round(lyapunov_contraction(0.1, 0.05), 4)
    0.0114
    """
    m = lyapunov_matrix(position_gain, velocity_gain, retention)
    ok = np.asarray(np.isfinite(m).all((-1, -2)))
    safe = np.where(ok[..., None, None], m, np.eye(2))
    return _number(np.where(ok, 1.0 / np.linalg.eigvalsh(safe)[..., -1], 0.0))


# --- risk --------------------------------------------------------------------------------------


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
) -> RiskTerms:
    """(1/T) sum E angle_t^2 <= P_11 sum_{i<j} R_ij + 2 h V^2 / T + 2 X(z_0) / T.

    For the zero-lag law (retention 1) with fixed gains and errors small enough to be linear, summed
    over the planes. R_ij = d_i d_j / (m (lam_i - lam_j)^2), d_i = lam_i + noise_floor; P_11 is the
    steady noise variance at R = 1; V = ``rate_variation`` = sum_t |Omega_{t+1} - Omega_t|_F / sqrt
    2; h = sum_k (F^k)_{12}^2; X(z) = sum_{t >= 1} (F^t z)_1^2 for the initial angle and velocity
    errors. ``spectrum`` has shape (d,). Unlike the paper's, these constants are explicit; all terms
    are inf where the gains are unstable.

    Errata: the paper's nonstationarity term is V/T in the statement and V^2/(2T) in the proof; it
    is the square that follows. Its statistical term sigma^2 / (m Delta_wh^2) diverges as sigma^2 ->
    0, which R_ij does not. Its transient term d_0^2 (1 - kappa)^T / T cannot bound an average that
    holds the first frames' errors: that part decays like 1/T, no faster. And the error of a run
    scales as m^(-1/2), being the root of this risk.

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
    i, j = np.triu_indices(lam.size, 1)
    gap = lam[i] - lam[j]
    if np.any(gap == 0):
        raise ValueError(f"equal eigenvalues carry no angle: the risk is infinite for {lam}")
    plane_variance = (lam[i] + noise_floor) * (lam[j] + noise_floor) / (n_samples * gap**2)
    f = error_map(position_gain, velocity_gain)
    if not stable(position_gain, velocity_gain):
        return RiskTerms(np.inf, np.inf, np.inf)
    # sum_{t>=0} (F^t z)_1^2 = z^T X z with X = F^T X F + e_1 e_1^T
    x = _stein(f.T, np.diag([1.0, 0.0]))
    z0 = np.array([initial_angle, initial_velocity])
    return RiskTerms(
        float(steady_noise_variance(position_gain, velocity_gain) * plane_variance.sum()),
        float(2 * x[1, 1] * rate_variation**2 / n_frames),
        float(2 * (z0 @ (f.T @ x @ f) @ z0) / n_frames),
    )


# --- information gains -------------------------------------------------------------------------


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
    tolerance: float = 1e-13,
    max_iterations: int = 1_000_000,
) -> SteadyGains:
    """K = (p_11, p_12) / (p_11 + R) at the fixed point of the two-state Riccati recursion.

    ``acceleration`` is q, the variance a velocity gains per unit time (rad^2 per time^3), and
    ``observation_variance`` is R in rad^2; the variances returned are those after the correction.
    The gains feed the other functions here. Without any process noise the gains fade like 1/t and
    are returned as zero.

    >>> gains = steady_information_gains(1e-7, 0.3)
    >>> round(float(gains.position_gain), 4), round(float(gains.velocity_gain), 6)
    (0.0334, 0.000568)
    """
    q, r, h, wander, rho = _floats(acceleration, observation_variance, dt, angle_noise, retention)
    if np.any(q < 0) or np.any(wander < 0) or np.any(r <= 0) or np.any(h <= 0):
        raise ValueError("need acceleration, angle_noise >= 0 and observation_variance, dt > 0")
    if np.any(rho <= 0) or np.any(rho > 1):
        raise ValueError(f"need 0 < retention <= 1, got {retention!r}")
    law = InformationGains(acceleration=q, angle_noise=wander, retention=rho)
    over = transition(law, h)
    quiet = (q == 0) & (wander == 0)
    p11, p12, p22 = np.full_like(r, law.angle_prior), np.zeros_like(r), np.full_like(r, 4e-4)
    k1 = k2 = np.zeros_like(r)
    for _ in range(max_iterations):
        p11 = p11 + 2 * over.turn * p12 + over.turn**2 * p22 + over.angle
        p12 = over.coast * (p12 + over.turn * p22) + over.cross
        p22 = over.coast**2 * p22 + over.rate
        new1, new2 = p11 / (p11 + r), p12 / (p11 + r)
        p11, p12, p22 = (1 - new1) * p11, (1 - new1) * p12, p22 - new2 * p12
        moved = (np.abs(new1 - k1) > tolerance * new1) | (np.abs(new2 - k2) > tolerance * new1)
        k1, k2 = new1, new2
        if not np.any(moved & ~quiet):
            break
    else:
        raise RuntimeError(
            f"gains not settled after {max_iterations} frames; raise acceleration or max_iterations"
        )
    zero = np.zeros_like(r)
    return SteadyGains(*(np.where(quiet, zero, v) for v in (k1, k2, p11, p22)))
