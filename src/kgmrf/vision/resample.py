"""Images of any kind, and windows of them at the resolution the tracker wants."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kgmrf.kernels.compile import compiled

__all__ = ["Window", "as_image", "cut_window", "sample_window"]

fast = compiled(fastmath=True)


def as_image(image: ArrayLike) -> NDArray[np.generic]:
    """View an image (H, W) or (H, W, C) as contiguous (H, W, C) on a 0-255 scale.

    8-bit images are taken as they are. Other integers are scaled from their full range, booleans
    and floating-point images from [0, 1] (or left alone if any value exceeds 2, so that grey levels
    stored as floating-point numbers keep their meaning); values that are not finite become 0.
    """
    array = np.asarray(image)
    if array.ndim == 2:
        array = array[:, :, None]
    if array.ndim != 3 or 0 in array.shape:
        raise ValueError(f"an image has shape (H, W) or (H, W, C), not {np.shape(image)}")
    if array.shape[2] == 4:  # an alpha channel says nothing about the scene
        array = array[:, :, :3]
    if array.dtype == np.uint8:
        return np.ascontiguousarray(array)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"images of {array.dtype} are not supported")
    if array.dtype.kind == "f":
        array = np.nan_to_num(array, nan=0, posinf=0, neginf=0)
        scale = 1.0 if array.max() > 2 else 255.0
    else:
        scale = 255.0 / (1 if array.dtype == np.bool_ else np.iinfo(array.dtype).max)
    return np.ascontiguousarray(array * scale, dtype=np.float32)


class Window(NamedTuple):
    """Block means of a part of an image: pixels (n, m, C); origin and block in image pixels."""

    pixels: NDArray[np.float32]
    left: int
    top: int
    block_x: int
    block_y: int


@fast
def _decimate(image, left, top, block_x, block_y, width, height):  # type: ignore[no-untyped-def]
    rows, cols, channels = image.shape
    out = np.empty((height, width, channels), np.float32)
    inverse = np.float32(1.0 / (block_x * block_y))
    # the columns inside the image; those beside it repeat the first or the last
    first = min(max(left, 0), cols - 1)
    last = max(min(left + width * block_x, cols) - 1, first)
    row = np.empty((last + 1 - first) * channels, np.float32)
    places = np.empty(width * block_x, np.int64)
    for j in range(len(places)):
        places[j] = (min(max(left + j, first), last) - first) * channels
    for i in range(height):
        row[:] = 0
        for k in range(block_y):
            source = image[min(max(top + i * block_y + k, 0), rows - 1)].reshape(cols * channels)
            source = source[first * channels : (last + 1) * channels]
            for j in range(len(row)):
                row[j] += np.float32(source[j])
        for j in range(width):
            for c in range(channels):
                total = np.float32(0)
                for k in range(block_x):
                    total += row[places[j * block_x + k] + c]
                out[i, j, c] = total * inverse
    return out


@fast
def _taps(start, step, n, size):  # type: ignore[no-untyped-def]
    # a triangle as wide as the step: linear interpolation when enlarging, antialiased otherwise
    support = max(1.0, step)
    m = int(np.ceil(2 * support)) + 1
    index = np.empty((n, m), np.int32)
    weight = np.zeros((n, m), np.float32)
    for i in range(n):
        c = start + i * step
        low = int(np.floor(c - support)) + 1
        total = first = second = 0.0
        for k in range(m):
            u = low + k - c
            a = max(0.0, 1.0 - abs(u) / support)
            index[i, k] = min(max(low + k, 0), size - 1)
            weight[i, k] = a
            total += a
            first += a * u
            second += a * u * u
        # cut off at whole pixels the triangle is a little lopsided: tilt it back, so that a plane
        # is sampled exactly (total second - first^2 = 0 only when one pixel has all the weight)
        spread = total * second - first * first
        tilt = first / spread if spread > 1e-9 else 0.0
        constant = second / spread if spread > 1e-9 else 1.0 / total
        for k in range(m):
            weight[i, k] *= constant - tilt * (low + k - c)
    return index, weight


@fast
def _sample(image, x, y, step_x, step_y, width, height):  # type: ignore[no-untyped-def]
    rows, cols, channels = image.shape
    index_y, weight_y = _taps(y, step_y, height, rows)
    index_x, weight_x = _taps(x, step_x, width, cols)
    first = index_x.min()
    n = index_x.max() + 1 - first
    out = np.empty((channels, height, width), np.float32)
    row = np.empty(n * channels, np.float32)
    for i in range(height):
        row[:] = 0
        for k in range(index_y.shape[1]):
            g = weight_y[i, k]
            if g != 0:
                source = image[index_y[i, k]].reshape(cols * channels)
                source = source[first * channels : (first + n) * channels]
                for j in range(n * channels):
                    row[j] += g * source[j]
        for j in range(width):
            for c in range(channels):
                total = np.float32(0)
                for k in range(index_x.shape[1]):
                    total += weight_x[j, k] * row[(index_x[j, k] - first) * channels + c]
                out[c, i, j] = total
    return out


def cut_window(
    image: NDArray[np.generic],
    left: float,
    top: float,
    width: float,
    height: float,
    step_x: float,
    step_y: float,
) -> Window:
    """Means of the largest whole blocks not above (step_x, step_y) over a part of the image.

    ``image`` (H, W, C); the part may lie partly or wholly outside.
    """
    block_x, block_y = max(1, int(step_x)), max(1, int(step_y))
    x, y = int(np.floor(left)), int(np.floor(top))
    n = int(np.ceil(width / block_x)) + 1
    m = int(np.ceil(height / block_y)) + 1
    return Window(_decimate(image, x, y, block_x, block_y, n, m), x, y, block_x, block_y)


def sample_window(
    window: Window, x: float, y: float, step_x: float, step_y: float, width: int, height: int
) -> NDArray[np.float32]:
    """I(x + j step_x, y + i step_y), antialiased: (C, height, width); pixels have whole x, y."""
    return _sample(
        window.pixels,
        (x - window.left - (window.block_x - 1) / 2) / window.block_x,
        (y - window.top - (window.block_y - 1) / 2) / window.block_y,
        step_x / window.block_x,
        step_y / window.block_y,
        width,
        height,
    )
