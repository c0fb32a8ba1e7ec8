"""Covariances of rectangles and cells, and the divergence between two of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["box_iou", "cell_matrices", "jbld", "region_covariance", "stein_costs"]

Numbers = NDArray[np.float64]


def box_iou(first: ArrayLike, second: ArrayLike) -> Numbers:
    """|A and B| / |A or B| of boxes (..., 4): left, top, width, height.

    >>> float(box_iou([0, 0, 2, 2], [1, 0, 2, 2]))
    0.3333333333333333
    """
    a, b = np.asarray(first, np.float64), np.asarray(second, np.float64)
    low = np.maximum(a[..., :2], b[..., :2])
    high = np.minimum(a[..., :2] + a[..., 2:], b[..., :2] + b[..., 2:])
    common = np.maximum(high - low, 0).prod(-1)
    union = a[..., 2:].prod(-1) + b[..., 2:].prod(-1) - common
    # rounding may put identical boxes a hair above 1, which no threshold must see
    return np.clip(common / np.where(union > 0, union, 1), 0.0, 1.0)


def region_covariance(features: ArrayLike, box: ArrayLike) -> Numbers:
    """C = sum (f - mean)(f - mean)^T / (n - 1) over the pixels of one box.

    Parameters
    ----------
    features : array
        Images ``(d, H, W)``, one per feature.
    box : array
        Left, top, width, height in whole pixels, inside the image, of two pixels at least.

    References
    ----------
    Tuzel, Porikli and Meer (2006), Region covariance, ECCV.

    Examples
    --------
    >>> region_covariance(np.arange(6.0).reshape(1, 2, 3), [0, 0, 3, 2])
    array([[3.5]])
    """
    planes, given = np.asarray(features, dtype=np.float64), np.asarray(box)
    if planes.ndim != 3:
        raise ValueError(f"features must have shape (d, H, W), not {planes.shape}")
    if given.shape != (4,) or (given != given.astype(int)).any():
        raise ValueError(f"a box is four whole numbers left, top, width, height, not {box!r}")
    left, top, width, height = (int(v) for v in given)
    pixels = planes[:, max(top, 0) : top + height, max(left, 0) : left + width]
    if width * height < 2 or pixels.shape[1:] != (height, width):
        _, rows, columns = planes.shape
        raise ValueError(
            f"box {given.tolist()} is empty, a single pixel, or leaves the {columns} x {rows} image"
        )
    return np.atleast_2d(np.cov(pixels.reshape(len(planes), -1)))


def cell_matrices(maps: NDArray[np.float32], d: int) -> Numbers:
    """The SPD matrices mean(z z^T), z = (1, x, y, f), of all places of ``maps`` in reading order.

    Returns (h w, d+3, d+3).

    >>> from kgmrf.vision.cells import cell_moments
    >>> cell_matrices(cell_moments(np.zeros((1, 8, 16), np.float32), 8, 8, 0.01), 1).shape
    (2, 4, 4)
    """
    places = maps.reshape(len(maps), -1).T
    out = np.zeros((len(places), d + 3, d + 3))
    out[:, :3, :3] = np.eye(3)
    out[:, :3, 3:] = places[:, : 3 * d].reshape(-1, 3, d)
    out[:, 3:, :3] = np.swapaxes(out[:, :3, 3:], 1, 2)
    a, b = np.tril_indices(d)
    out[:, 3 + a, 3 + b] = out[:, 3 + b, 3 + a] = places[:, 3 * d :]
    return out


def stein_costs(first: Numbers, second: Numbers) -> tuple[Numbers, Numbers]:
    """log det B and the Stein divergence J(A, B) of pairs of SPD matrices (..., d, d)."""
    own, other, mean = np.linalg.slogdet(np.stack([first, second, 0.5 * (first + second)]))[1]
    return other, np.maximum(mean - 0.5 * (own + other), 0.0)


def jbld(first: ArrayLike, second: ArrayLike) -> Numbers:
    """J(A, B) = log det((A + B)/2) - (log det A + log det B)/2, the Stein divergence.

    Shapes (..., d, d) -> (...). Zero only for A = B, unchanged under A, B -> G A G^T, G B G^T.

    Parameters
    ----------
    first : array
        Covariances ``(..., d, d)``.
    second : array
        Covariances of a shape that broadcasts with it.

    References
    ----------
    Cherian, Sra, Banerjee and Papanikolopoulos (2013), Jensen-Bregman LogDet divergence, IEEE
    TPAMI 35(9).

    Examples
    --------
    >>> round(float(jbld(np.eye(2), 3 * np.eye(2))), 6)
    0.287682
    """
    a, b = np.asarray(first, np.float64), np.asarray(second, np.float64)
    for matrix in (a, b):
        np.linalg.cholesky(matrix)  # a matrix that is not SPD is an error, not a number
    return stein_costs(*np.broadcast_arrays(a, b))[1]
