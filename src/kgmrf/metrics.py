"""How far an estimate is from the truth, and whether a value at risk is exceeded as it should be.

Errors are batched over leading axes, on numpy and torch alike. Angles come out in radians unless
``degrees=True``. A matrix with a NaN entry is missing, and so is its error: NaN.

Backtests take ``-returns > value_at_risk``, one truth value per day, in time order.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import numpy as np
from array_api_compat import array_namespace, device

from kgmrf._types import Array, Mask
from kgmrf.geometry import orbit, so, spd

__all__ = [
    "Backtest",
    "affine_invariant_error",
    "angular_error",
    "axis_angle",
    "christoffersen_test",
    "geodesic_error",
    "independence_test",
    "kupiec_test",
    "orbit_error",
]


def _unit(angle: Array, degrees: bool) -> Array:
    return angle * (180.0 / math.pi) if degrees else angle


def _check_pair(estimate: Array, truth: Array, d: int | None = None) -> None:
    for name, value in (("estimate", estimate), ("truth", truth)):
        shape = tuple(value.shape)
        if len(shape) < 2 or shape[-1] != shape[-2] or (d is not None and shape[-1] != d):
            size = "d, d" if d is None else f"{d}, {d}"
            raise ValueError(f"{name} must have shape (..., {size}), got {shape}")
    if estimate.shape[-1] != truth.shape[-1]:
        raise ValueError(
            f"estimate is {estimate.shape[-1]}-dimensional, truth {truth.shape[-1]}-dimensional"
        )


def _shield(*matrices: Array) -> tuple[Array, ...]:
    """Return the matrices with missing ones replaced by I, and 0 or NaN to add to the result.

    Decompositions refuse NaN, some for the whole batch, so it must not reach them.
    """
    xp = array_namespace(*matrices)
    safe, blank = [], 0.0
    for m in matrices:
        missing = xp.any(xp.isnan(m), axis=(-2, -1))
        eye = xp.eye(m.shape[-1], dtype=m.dtype, device=device(m))
        safe.append(xp.where(missing[..., None, None], eye, m))
        zero = xp.zeros(missing.shape, dtype=m.dtype, device=device(m))
        blank = blank + xp.where(missing, xp.full_like(zero, math.nan), zero)
    return (*safe, blank)


def axis_angle(covariance: Array, *, degrees: bool = False) -> Array:
    """(1/2) atan2(2 M_01, M_00 - M_11): direction of the major axis, in (-90, 90] degrees.

    Shape (..., 2, 2) -> (...).

    Parameters
    ----------
    covariance : array
        Ellipses ``(..., 2, 2)``.
    degrees : bool, default False
        Degrees instead of radians.

    Examples
    --------
    >>> import numpy as np
    >>> axis_angle(np.array([[1.25, 0.75], [0.75, 1.25]]), degrees=True).item()
    45.0
    """
    xp = array_namespace(covariance)
    _check_pair(covariance, covariance, 2)
    m = covariance
    twice = xp.atan2(m[..., 0, 1] + m[..., 1, 0], m[..., 0, 0] - m[..., 1, 1])
    return _unit(0.5 * twice, degrees)


def angular_error(estimate: Array, truth: Array, *, degrees: bool = False) -> Array:
    """|theta_hat - theta| modulo 180 degrees: angle between the major axes of two ellipses.

    Shapes (..., 2, 2) -> (...), between 0 and 90 degrees.

    Parameters
    ----------
    estimate : array
        Estimated ellipses ``(..., 2, 2)``.
    truth : array
        The true ones, of a shape that broadcasts with it.
    degrees : bool, default False
        Degrees instead of radians.

    Examples
    --------
    >>> import numpy as np
    >>> angular_error(np.diag([2.0, 0.5]), np.diag([0.5, 2.0]), degrees=True).item()
    90.0
    """
    xp = array_namespace(estimate, truth)
    _check_pair(estimate, truth, 2)
    twice = 2.0 * (axis_angle(estimate) - axis_angle(truth))
    return _unit(0.5 * xp.abs(xp.atan2(xp.sin(twice), xp.cos(twice))), degrees)


def geodesic_error(
    estimate: Array,
    truth: Array,
    *,
    degrees: bool = False,
    norm: Literal["angle", "frobenius"] = "angle",
) -> Array:
    """|Log(R_hat^T R)|_F / sqrt 2: the angle between two rotations ("frobenius": no root).

    Shapes (..., d, d) -> (...). The paper's SO(3) table is in the Frobenius norm, sqrt 2 larger.

    Parameters
    ----------
    estimate : array
        Estimated rotations ``(..., d, d)``.
    truth : array
        The true ones, of a shape that broadcasts with it.
    degrees : bool, default False
        Degrees instead of radians.
    norm : {"angle", "frobenius"}, default "angle"
        "angle" divides the norm by sqrt 2, so that one plane counts its angle; "frobenius" does
        not.

    Examples
    --------
    >>> import numpy as np
    >>> quarter = np.array([[0.0, -1.0], [1.0, 0.0]])
    >>> round(geodesic_error(np.eye(2), quarter, degrees=True).item(), 10)
    90.0
    """
    _check_pair(estimate, truth)
    if norm not in ("angle", "frobenius"):
        raise ValueError(f'norm is "angle" or "frobenius", not {norm!r}')
    estimate, truth, blank = _shield(estimate, truth)
    angle = so.distance(estimate, truth) + blank
    return _unit(angle if norm == "angle" else math.sqrt(2.0) * angle, degrees)


def orbit_error(estimate: Array, truth: Array, *, degrees: bool = False) -> Array:
    """min over signs D of |Log(Q_hat^T Q D)|_F / sqrt 2: angle between two eigenframes.

    Eigenvectors are paired by the order of their eigenvalues; the eigenvalues themselves do not
    count. Shapes (..., d, d) -> (...). For d = 2 this is :func:`angular_error`.

    Parameters
    ----------
    estimate : array
        Estimated covariances ``(..., d, d)``.
    truth : array
        The true ones, of a shape that broadcasts with it.
    degrees : bool, default False
        Degrees instead of radians.

    Examples
    --------
    >>> import numpy as np
    >>> orbit_error(np.diag([3.0, 2.0, 1.0]), np.diag([9.0, 5.0, 1.0])).item()
    0.0
    """
    _check_pair(estimate, truth)
    estimate, truth, blank = _shield(estimate, truth)
    frame, _ = orbit.decompose(estimate)
    target, _ = orbit.decompose(truth)
    return _unit(orbit.distance(frame, target) + blank, degrees)


def affine_invariant_error(estimate: Array, truth: Array) -> Array:
    """|log(A^{-1/2} B A^{-1/2})|_F: distance of two covariances that no change of units alters.

    Shapes (..., d, d) -> (...).

    Parameters
    ----------
    estimate : array
        Estimated covariances ``(..., d, d)``, positive definite.
    truth : array
        The true ones, of a shape that broadcasts with it.

    References
    ----------
    Pennec, Fillard and Ayache (2006), A Riemannian framework for tensor computing, IJCV 66(1).

    Examples
    --------
    >>> import numpy as np
    >>> round(affine_invariant_error(np.eye(2), np.exp(1.0) * np.eye(2)).item() ** 2, 10)
    2.0
    """
    _check_pair(estimate, truth)
    estimate, truth, blank = _shield(estimate, truth)
    return spd.distance(estimate, truth) + blank


class Backtest(NamedTuple):
    """A likelihood-ratio test of a value at risk.

    Parameters
    ----------
    statistic : float
        -2 log of the likelihood ratio.
    p_value : float
        How probable a larger one is if the value at risk is right; below 0.05 it is usually
        rejected.
    exceeded : int
        Days beyond the value at risk.
    expected : float
        How many there should be.
    days : int
        All days.
    """

    statistic: float
    p_value: float
    exceeded: int
    expected: float
    days: int


def kupiec_test(exceeded: Any, level: float) -> Backtest:
    """2 log[L(x/n)/L(1 - level)], chi-squared(1): is it exceeded as often as it should be?

    x of n days are beyond the value at risk; L(p) = p^x (1 - p)^(n - x).

    Parameters
    ----------
    exceeded
        ``(n,)`` truth values, ``-returns > value_at_risk``.
    level : float
        That of the value at risk, such as 0.99.

    References
    ----------
    Kupiec (1995), Techniques for verifying the accuracy of risk measurement models, Journal of
    Derivatives 3(2).

    Examples
    --------
    >>> days = np.arange(252) < 20
    >>> found = kupiec_test(days, 0.95)
    >>> round(found.statistic, 2), round(found.p_value, 3), found.exceeded
    (3.91, 0.048, 20)
    """
    hit, p = _exceeded(exceeded), _rate(level)
    n, x = len(hit), int(hit.sum())
    ratio = _log_likelihood(x, n, x / n) - _log_likelihood(x, n, p)
    return _backtest(ratio, 1, hit, p)


def independence_test(exceeded: Any, level: float) -> Backtest:
    """2 log[L(p01, p11)/L(p, p)], chi-squared(1): do exceedances follow upon one another?

    The rates after a quiet day, p01, and after an exceedance, p11, against one rate for all days
    but the first (Christoffersen, 1998). Without exceedances, or of too few days, it is 0.

    Parameters
    ----------
    exceeded
        ``(n,)`` truth values, ``-returns > value_at_risk``, in time order.
    level : float
        That of the value at risk, for ``expected`` only.

    References
    ----------
    Christoffersen (1998), Evaluating interval forecasts, International Economic Review 39(4).

    Examples
    --------
    >>> days = np.zeros(250, dtype=bool)
    >>> days[[40, 41, 42, 100, 101, 200, 201, 202, 203, 204]] = True
    >>> round(independence_test(days, 0.96).statistic, 1)
    39.4
    """
    hit, p = _exceeded(exceeded), _rate(level)
    before, now = hit[:-1], hit[1:]
    ratio = -_at_best(now)
    for state in (False, True):
        ratio += _at_best(now[before == state])
    return _backtest(ratio, 1, hit, p)


def christoffersen_test(exceeded: Any, level: float) -> Backtest:
    """The sum of both, chi-squared(2): as many exceedances as there should be, and independent.

    Parameters
    ----------
    exceeded
        ``(n,)`` truth values, ``-returns > value_at_risk``, in time order.
    level : float
        That of the value at risk, such as 0.99.

    References
    ----------
    Christoffersen (1998), Evaluating interval forecasts, International Economic Review 39(4).

    Examples
    --------
    >>> days = np.zeros(250, dtype=bool)
    >>> days[[40, 41, 42, 100, 101, 200, 201, 202, 203, 204]] = True
    >>> kupiec_test(days, 0.96).p_value, christoffersen_test(days, 0.96).p_value < 1e-8
    (1.0, True)
    """
    hit, p = _exceeded(exceeded), _rate(level)
    parts = (kupiec_test(hit, level), independence_test(hit, level))
    return _backtest(0.5 * sum(part.statistic for part in parts), 2, hit, p)


def _exceeded(exceeded: Any) -> Mask:
    hit = np.asarray(exceeded)
    if hit.dtype.kind != "b" or hit.ndim != 1 or not hit.size:
        raise ValueError(
            "exceeded must be truth values of shape (n,), -returns > value_at_risk, got "
            f"{hit.dtype} of shape {hit.shape}"
        )
    return hit


def _rate(level: float) -> float:
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must be between 0 and 1, such as 0.99, got {level!r}")
    return 1.0 - level


def _at_best(hit: Mask) -> float:
    """log L of days at the rate that fits them best."""
    n, x = len(hit), int(hit.sum())
    return _log_likelihood(x, n, x / n) if n else 0.0


def _log_likelihood(x: int, n: int, p: float) -> float:
    """x log p + (n - x) log(1 - p), where 0 log 0 = 0."""
    return (x * math.log(p) if x else 0.0) + ((n - x) * math.log1p(-p) if n > x else 0.0)


def _backtest(ratio: float, freedom: int, hit: Mask, p: float) -> Backtest:
    from scipy import special  # slow to import, and only backtests need it

    statistic = max(2.0 * ratio, 0.0)
    value = float(special.chdtrc(freedom, statistic))
    return Backtest(statistic, value, int(hit.sum()), len(hit) * p, len(hit))
