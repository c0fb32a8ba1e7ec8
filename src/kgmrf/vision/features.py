"""What is measured at a pixel: a registry of features over planar images."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

__all__ = ["FEATURES", "as_image", "feature_planes", "register_feature"]

Planes = NDArray[np.float32]
FEATURES: dict[str, Callable[[Planes], Planes]] = {}


def register_feature(
    name: str,
) -> Callable[[Callable[[Planes], Planes]], Callable[[Planes], Planes]]:
    """Add a feature: a function of planes (C, H, W) returning planes (d, H, W).

    >>> @register_feature("brightest channel")
    ... def brightest(planes):
    ...     return planes.max(axis=0, keepdims=True)
    >>> feature_planes(np.ones((3, 4, 5), np.float32), ["brightest channel"]).shape
    (1, 4, 5)
    >>> del FEATURES["brightest channel"]
    """

    def add(function: Callable[[Planes], Planes]) -> Callable[[Planes], Planes]:
        if name in FEATURES:
            raise ValueError(f"a feature named {name!r} exists already")
        FEATURES[name] = function
        return function

    return add


@njit(cache=True, fastmath=True, nogil=True)
def _gradients(planes: Planes) -> Planes:
    channels, height, width = planes.shape
    grey = np.zeros((height, width), np.float32)
    for c in range(channels):
        for i in range(height):
            source, target = planes[c, i], grey[i]
            for j in range(width):
                target[j] += source[j]
    out = np.zeros((2, height, width), np.float32)
    half = np.float32(0.5 / channels)
    for i in range(height):
        row, target = grey[i], out[0, i]
        for j in range(1, width - 1):
            target[j] = half * (row[j + 1] - row[j - 1])
        if width > 1:
            target[0] = 2 * half * (row[1] - row[0])
            target[width - 1] = 2 * half * (row[width - 1] - row[width - 2])
        below, above = grey[min(i + 1, height - 1)], grey[max(i - 1, 0)]
        weight = half if 0 < i < height - 1 else 2 * half
        target = out[1, i]
        for j in range(width):
            target[j] = weight * (below[j] - above[j])
    return out


@register_feature("colour")
def _colour(planes: Planes) -> Planes:
    return planes


@register_feature("grey")
def _grey(planes: Planes) -> Planes:
    return planes.mean(axis=0, keepdims=True)


@register_feature("gradient")
def _gradient(planes: Planes) -> Planes:
    return _gradients(planes)


@register_feature("absolute gradient")
def _absolute_gradient(planes: Planes) -> Planes:
    return np.abs(_gradients(planes))


@register_feature("gradient magnitude")
def _magnitude(planes: Planes) -> Planes:
    gradient = _gradients(planes)
    return np.sqrt((gradient**2).sum(axis=0, keepdims=True))


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
    if array.dtype == np.bool_:
        return np.ascontiguousarray(array, dtype=np.float32) * np.float32(255)
    if np.issubdtype(array.dtype, np.integer):
        info = np.iinfo(array.dtype)
        scale = 255.0 / info.max
        return np.ascontiguousarray(array * scale, dtype=np.float32)
    if not np.issubdtype(array.dtype, np.floating):
        raise TypeError(f"images of {array.dtype} are not supported")
    array = np.nan_to_num(np.ascontiguousarray(array, dtype=np.float32), nan=0, posinf=0, neginf=0)
    return array if array.max() > 2 else array * np.float32(255)
