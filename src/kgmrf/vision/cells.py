"""Cells of an image window as SPD matrices, and their divergence from a model at every shift.

A cell is a square of pixels. Its Gaussian is embedded as one SPD matrix, the mean of z z^T with
z = (1, x, y, f): x and y have zero mean and unit variance over the cell, so the leading 3 x 3 block
of an observed cell is the identity and its determinant is that of the features' covariance about
the best plane through them. What is stored per place are the other entries, d means, 2 d slopes and
d (d+1)/2 second moments, as planes (P, rows, columns).

The loops are in single precision; `kgmrf.readable.vision` has their formulas.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kgmrf.engines import core

__all__ = ["cell_moments", "colour_and_gradient", "place_costs"]

Maps = NDArray[np.float32]


def cell_moments(features: Maps, cell: int, stride: int, ridge: float) -> Maps:
    """mean(z z^T) of the cells of ``features`` (d, H, W) at every ``stride``-th row and column.

    ``ridge`` is added to the second moments of the features. Returns (3 d + d(d+1)/2, rows,
    columns): means, slopes along x, slopes along y, then second moments packed by rows of the lower
    triangle.
    """
    d, height, width = features.shape
    places = (height - cell) // stride + 1, (width - cell) // stride + 1
    out = np.empty((3 * d + d * (d + 1) // 2, *places), np.float32)
    core.functions("vision").cell_moments(features, cell, stride, ridge, out)
    return out


def place_costs(
    features: Maps,
    cell: int,
    stride: int,
    ridge: float,
    models: Maps,
    log_dets: Maps,
    weights: Maps,
    nx: int,
    ny: int,
    softness: float,
) -> Maps:
    """Sum over ny x nx neighbouring cells k of w_k t/(1 + softness t), t = JBLD(C_k, M_k).

    At every ``stride``-th shift of the cells within the standardised ``features`` (d, H, W); the
    stride divides ``cell``. ``models`` M (ny nx, d+3, d+3) are any SPD matrices, with their log
    determinants.
    """
    _, height, width = features.shape
    step = cell // stride
    shifts = (
        (height - cell) // stride + 1 - (ny - 1) * step,
        (width - cell) // stride + 1 - (nx - 1) * step,
    )
    out = np.empty(shifts, np.float32)
    model = models, log_dets, weights, nx, ny, softness
    core.functions("vision").place_costs(features, cell, stride, ridge, *model, out)
    return out


def colour_and_gradient(planes: Maps, offset: Maps, gain: Maps) -> Maps:
    """(f - offset) gain of the features of planes (C, H, W), without the outermost samples.

    The features are the channels and the absolute central differences of their mean along x and y:
    (C+2, H-2, W-2).
    """
    channels, height, width = planes.shape
    out = np.empty((channels + 2, height - 2, width - 2), np.float32)
    core.functions("vision").colour_and_gradient(planes, offset, gain, out)
    return out
