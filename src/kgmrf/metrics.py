"""How far an estimate is from the truth. Batched over leading axes, on numpy and torch alike.

Angles come out in radians unless ``degrees=True``. A matrix with a NaN entry is missing, and so is
its error: NaN.
"""

from __future__ import annotations

import math
from typing import Literal

from array_api_compat import array_namespace, device

from kgmrf._types import Array
from kgmrf.geometry import orbit, so, spd

__all__ = [
    "affine_invariant_error",
    "angular_error",
    "axis_angle",
    "geodesic_error",
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

    >>> import numpy as np
    >>> round(affine_invariant_error(np.eye(2), np.exp(1.0) * np.eye(2)).item() ** 2, 10)
    2.0
    """
    _check_pair(estimate, truth)
    estimate, truth, blank = _shield(estimate, truth)
    return spd.distance(estimate, truth) + blank
