"""What is measured at a pixel: features of planar images by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["FEATURES", "as_image", "feature_planes"]

Planes = NDArray[np.float32]
Feature: TypeAlias = Callable[[Planes], Planes]


def _gradient(planes: Planes) -> Planes:
    """Central differences of the mean channel along x and y, one-sided at the edges."""
    grey = planes.mean(axis=0)
    along = [np.gradient(grey, axis=k) if grey.shape[k] > 1 else 0 * grey for k in (1, 0)]
    return np.stack(along)


FEATURES: dict[str, Feature] = {
    "colour": lambda planes: planes,
    "grey": lambda planes: planes.mean(axis=0, keepdims=True),
    "gradient": _gradient,
    "absolute gradient": lambda planes: np.abs(_gradient(planes)),
    "gradient magnitude": lambda planes: np.linalg.norm(_gradient(planes), axis=0, keepdims=True),
}
"""Functions of planes (C, H, W) that return planes (d, H, W); add your own under a new name."""


def feature_planes(planes: Planes, names: Sequence[str]) -> Planes:
    """Stack f_1(I), f_2(I), ... of a planar image (C, H, W) to (d, H, W), float32.

    >>> feature_planes(np.zeros((3, 4, 5), np.float32), ["colour", "absolute gradient"]).shape
    (5, 4, 5)
    """
    missing = [name for name in names if name not in FEATURES]
    if missing or not names:
        raise ValueError(f"unknown features {missing}; known: {sorted(FEATURES)}")
    parts = [FEATURES[name](planes) for name in names]
    return np.ascontiguousarray(np.concatenate(parts), dtype=np.float32)


def as_image(image: ArrayLike) -> NDArray[np.generic]:
    """View an image (H, W) or (H, W, C) as contiguous (H, W, C) on a 0-255 scale.

    8-bit images are taken as they are. Other integers are scaled from their full range, booleans
    and floating-point images from [0, 1] (or left alone if any value exceeds 2, so that grey levels
    stored as floating-point numbers keep their meaning); values that are not finite become 0.

    >>> as_image(np.full((2, 3), 65535, np.uint16))[0, 0, 0]
    np.float32(255.0)
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
