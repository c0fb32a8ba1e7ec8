"""Images of any kind, and windows of them at the resolution the tracker wants."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kgmrf.engines import core

__all__ = ["Window", "as_image", "cut_window", "sample_window"]


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
    out = np.empty((m, n, image.shape[2]), np.float32)
    core.functions("vision").decimate(image, x, y, block_x, block_y, out)
    return Window(out, x, y, block_x, block_y)


def sample_window(
    window: Window, x: float, y: float, step_x: float, step_y: float, width: int, height: int
) -> NDArray[np.float32]:
    """I(x + j step_x, y + i step_y), antialiased: (C, height, width); pixels have whole x, y."""
    out = np.empty((window.pixels.shape[2], height, width), np.float32)
    core.functions("vision").sample_image(
        window.pixels,
        (x - window.left - (window.block_x - 1) / 2) / window.block_x,
        (y - window.top - (window.block_y - 1) / 2) / window.block_y,
        step_x / window.block_x,
        step_y / window.block_y,
        out,
    )
    return out
