"""Covariances of rectangles from running sums: pay once per image, then O(d^2) per rectangle."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

__all__ = ["integral_covariances", "integral_planes", "region_covariance"]


@njit(cache=True, nogil=True)
def _integrate(planes: NDArray[np.float64]) -> NDArray[np.float64]:
    d, height, width = planes.shape
    n_products = d * (d + 1) // 2
    sums = np.zeros((d + n_products, height + 1, width + 1))
    for a in range(d):
        for i in range(height):
            row = 0.0
            for j in range(width):
                row += planes[a, i, j]
                sums[a, i + 1, j + 1] = sums[a, i, j + 1] + row
    p = d
    for a in range(d):
        for b in range(a + 1):
            for i in range(height):
                row = 0.0
                for j in range(width):
                    row += planes[a, i, j] * planes[b, i, j]
                    sums[p, i + 1, j + 1] = sums[p, i, j + 1] + row
            p += 1
    return sums


@njit(cache=True, nogil=True)
def _lookup(
    sums: NDArray[np.float64],
    boxes: NDArray[np.int64],
    centre: NDArray[np.float64],
    covariances: NDArray[np.float64],
    means: NDArray[np.float64],
) -> None:
    d = centre.shape[0]
    mean = np.empty(d)
    for k in range(boxes.shape[0]):
        left, top, width, height = boxes[k]
        right, bottom = left + width, top + height
        n = width * height
        for a in range(d):
            s = sums[a]
            total = s[bottom, right] - s[top, right] - s[bottom, left] + s[top, left]
            mean[a] = total / n
            means[k, a] = mean[a] + centre[a]
        p = d
        for a in range(d):
            for b in range(a + 1):
                s = sums[p]
                total = s[bottom, right] - s[top, right] - s[bottom, left] + s[top, left]
                value = (total - n * mean[a] * mean[b]) / (n - 1)
                covariances[k, a, b] = value
                covariances[k, b, a] = value
                p += 1


def integral_planes(features: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Running sums S[y, x] of f_a and of f_a f_b over all rows < y and columns < x.

    Takes ``features`` of shape (d, H, W). Returns the sums (d + d(d+1)/2, H+1, W+1) and the centre
    (d,) subtracted from the features first: products of centred values keep digits that the sums of
    raw grey levels would lose.

    >>> sums, centre = integral_planes(np.ones((1, 2, 3)))
    >>> sums.shape, float(centre[0])
    ((2, 3, 4), 1.0)
    """
    planes = np.asarray(features, dtype=np.float64)
    if planes.ndim != 3 or 0 in planes.shape:
        raise ValueError(f"features must have shape (d, H, W), not {planes.shape}")
    centre = planes.mean(axis=(1, 2))
    return _integrate(planes - centre[:, None, None]), centre


def integral_covariances(
    integral: tuple[NDArray[np.float64], NDArray[np.float64]], boxes: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
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
    flat = np.ascontiguousarray(given.reshape(-1, 4), dtype=np.int64)
    if not np.array_equal(flat, given.reshape(-1, 4)):
        raise ValueError("boxes must be whole pixels; round them first")
    left, top, w, h = flat.T
    bad = (left < 0) | (top < 0) | (left + w > width) | (top + h > height) | (w < 1) | (h < 1)
    bad |= w * h < 2
    if bad.any():
        raise ValueError(
            f"box {flat[bad][0].tolist()} is empty, a single pixel, or leaves the {width} x "
            f"{height} image"
        )
    covariances = np.empty((len(flat), d, d))
    means = np.empty((len(flat), d))
    _lookup(sums, flat, centre, covariances, means)
    lead = given.shape[:-1]
    return covariances.reshape(*lead, d, d), means.reshape(*lead, d)


def region_covariance(features: ArrayLike, box: ArrayLike) -> NDArray[np.float64]:
    """C = sum (f - mean)(f - mean)^T / (n - 1) over the pixels of one box.

    ``features`` (d, H, W), ``box`` left, top, width, height in whole pixels. For many boxes of one
    image use :func:`integral_covariances`.

    >>> region_covariance(np.arange(6.0).reshape(1, 2, 3), [0, 0, 3, 2])
    array([[3.5]])
    """
    return integral_covariances(integral_planes(features), np.asarray(box))[0]
