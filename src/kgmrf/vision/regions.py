"""Covariances of rectangles and cells, and the divergence between two of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "box_iou",
    "cell_matrices",
    "integral_covariances",
    "integral_planes",
    "jbld",
    "region_covariance",
    "stein_costs",
]

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


def integral_planes(features: ArrayLike) -> tuple[Numbers, Numbers]:
    """Running sums S[y, x] of f_a and of f_a f_b over all rows < y and columns < x.

    Takes ``features`` of shape (d, H, W). Returns the sums (d + d(d+1)/2, H+1, W+1) and the centre
    (d,) subtracted from the features first: products of centred values keep digits that the sums of
    raw grey levels would lose. They are paid for once per image; a rectangle then costs O(d^2).

    >>> sums, centre = integral_planes(np.ones((1, 2, 3)))
    >>> sums.shape, float(centre[0])
    ((2, 3, 4), 1.0)
    """
    planes = np.asarray(features, dtype=np.float64)
    if planes.ndim != 3 or 0 in planes.shape:
        raise ValueError(f"features must have shape (d, H, W), not {planes.shape}")
    centre = planes.mean(axis=(1, 2))
    planes = planes - centre[:, None, None]
    a, b = np.tril_indices(len(planes))
    sums = np.concatenate([planes, planes[a] * planes[b]]).cumsum(axis=1).cumsum(axis=2)
    return np.pad(sums, ((0, 0), (1, 0), (1, 0))), centre


def integral_covariances(
    integral: tuple[Numbers, Numbers], boxes: ArrayLike
) -> tuple[Numbers, Numbers]:
    """Unbiased covariances and means of every box: ``np.cov`` of its pixels, in O(d^2) each.

    ``integral`` is the pair from :func:`integral_planes`; ``boxes`` (..., 4) holds whole numbers
    left, top, width, height, inside the image and of two pixels at least. Returns covariances
    (..., d, d) and means (..., d).

    >>> image = np.arange(12.0).reshape(1, 3, 4)
    >>> covariance, mean = integral_covariances(integral_planes(image), [1, 0, 2, 3])
    >>> bool(np.isclose(covariance[0, 0], np.cov(image[0, :, 1:3].ravel())))
    True
    """
    sums, centre = integral
    d, (height, width) = len(centre), (sums.shape[1] - 1, sums.shape[2] - 1)
    given = np.asarray(boxes)
    if given.shape[-1:] != (4,):
        raise ValueError(f"boxes must have shape (..., 4), not {given.shape}")
    whole = given.astype(np.int64)
    if not np.array_equal(whole, given):
        raise ValueError("boxes must be whole pixels; round them first")
    left, top, w, h = np.moveaxis(whole, -1, 0)
    bad = (left < 0) | (top < 0) | (left + w > width) | (top + h > height) | (w < 1) | (h < 1)
    bad |= w * h < 2
    if bad.any():
        raise ValueError(
            f"box {whole[bad][0].tolist()} is empty, a single pixel, or leaves the {width} x "
            f"{height} image"
        )
    right, bottom, n = left + w, top + h, (w * h)[..., None]
    total = (
        sums[:, bottom, right] - sums[:, top, right] - sums[:, bottom, left] + sums[:, top, left]
    )
    total = np.moveaxis(total, 0, -1)
    mean = total[..., :d] / n
    a, b = np.tril_indices(d)
    covariances = np.empty((*whole.shape[:-1], d, d))
    covariances[..., a, b] = (total[..., d:] - n * mean[..., a] * mean[..., b]) / (n - 1)
    covariances[..., b, a] = covariances[..., a, b]
    return covariances, mean + centre


def region_covariance(features: ArrayLike, box: ArrayLike) -> Numbers:
    """C = sum (f - mean)(f - mean)^T / (n - 1) over the pixels of one box.

    ``features`` (d, H, W), ``box`` left, top, width, height in whole pixels. For many boxes of one
    image use :func:`integral_covariances`.

    >>> region_covariance(np.arange(6.0).reshape(1, 2, 3), [0, 0, 3, 2])
    array([[3.5]])
    """
    return integral_covariances(integral_planes(features), np.asarray(box))[0]


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

    >>> round(float(jbld(np.eye(2), 3 * np.eye(2))), 6)
    0.287682
    """
    a, b = np.asarray(first, np.float64), np.asarray(second, np.float64)
    for matrix in (a, b):
        np.linalg.cholesky(matrix)  # a matrix that is not SPD is an error, not a number
    return stein_costs(*np.broadcast_arrays(a, b))[1]
