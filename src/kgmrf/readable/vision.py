"""Windows of images, cells as SPD matrices, and what a box costs at every shift.

`kgmrf.vision.cells` and `kgmrf.vision.resample` say what each function finds; all is written into
``out``. The compiled loops work in single precision, these in double.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from kgmrf._types import Numbers

# ----------------------------------------------------------------------- cells


def cell_moments(features: Numbers, cell: int, stride: int, ridge: float, out: Numbers) -> None:
    """mean(z z^T) of every cell, z = (1, x, y, f), without its leading 3 x 3 block."""
    f = sliding_window_view(features.astype(np.float64), (cell, cell), axis=(1, 2))
    f = f[:, ::stride, ::stride]  # (d, rows, columns, cell, cell)
    ramp = np.arange(cell) - 0.5 * (cell - 1)
    ramp = ramp / (ramp.std() or 1.0)  # zero mean, unit variance
    d = len(f)
    out[:d] = f.mean((-2, -1))
    out[d : 2 * d] = (f * ramp).mean((-2, -1))
    out[2 * d : 3 * d] = (f * ramp[:, None]).mean((-2, -1))
    for q, (a, b) in enumerate(zip(*np.tril_indices(d), strict=True)):
        out[3 * d + q] = (f[a] * f[b]).mean((-2, -1)) + ridge * (a == b)


def cell_matrices(maps: Numbers, d: int) -> Numbers:
    """The SPD matrices mean(z z^T), z = (1, x, y, f), of all places: (rows, columns, d+3, d+3)."""
    places = np.moveaxis(maps, 0, -1)
    out = np.zeros((*places.shape[:-1], d + 3, d + 3))
    out[..., :3, :3] = np.eye(3)
    out[..., :3, 3:] = places[..., : 3 * d].reshape(*places.shape[:-1], 3, d)
    out[..., 3:, :3] = np.swapaxes(out[..., :3, 3:], -2, -1)
    a, b = np.tril_indices(d)
    out[..., 3 + a, 3 + b] = out[..., 3 + b, 3 + a] = places[..., 3 * d :]
    return out


def place_costs(
    features: Numbers,
    cell: int,
    stride: int,
    ridge: float,
    models: Numbers,
    log_dets: Numbers,
    weights: Numbers,
    nx: int,
    ny: int,
    softness: float,
    out: Numbers,
) -> None:
    """Sum over cells k of w_k t/(1 + softness t), at every shift.

    t = log det((C_k + M_k)/2) - log det(C_k)/2 - log det(M_k)/2.
    """
    (d, height, width), (nv, nu), step = features.shape, out.shape, cell // stride
    rows, columns = (height - cell) // stride + 1, (width - cell) // stride + 1
    maps = np.empty((3 * d + d * (d + 1) // 2, rows, columns))
    cell_moments(features, cell, stride, ridge, maps)
    C = cell_matrices(maps, d)
    own = np.linalg.slogdet(C)[1]
    out[:] = 0.0
    for k, (M, log_det, weight) in enumerate(zip(models, log_dets, weights, strict=True)):
        v, u = k // nx * step, k % nx * step
        here = np.s_[v : v + nv, u : u + nu]
        both = np.linalg.slogdet(0.5 * (C[here] + M))[1]
        t = np.maximum(both - 0.5 * own[here] - 0.5 * log_det, 0.0)
        out += weight * t / (1.0 + softness * t)


def colour_and_gradient(planes: Numbers, offset: Numbers, gain: Numbers, out: Numbers) -> None:
    """(f - offset) gain, f = the channels, and |d/dx|, |d/dy| of their mean."""
    grey = planes.mean(0, dtype=np.float64)
    along_x = 0.5 * np.abs(grey[1:-1, 2:] - grey[1:-1, :-2])
    along_y = 0.5 * np.abs(grey[2:, 1:-1] - grey[:-2, 1:-1])
    f = np.concatenate([planes[:, 1:-1, 1:-1], [along_x, along_y]])
    out[:] = (f - offset[:, None, None]) * gain[:, None, None]


# ----------------------------------------------------------------------- windows of images


def decimate(image: Numbers, left: int, top: int, block_x: int, block_y: int, out: Numbers) -> None:
    """Means of blocks of pixels; outside the image its edge is repeated."""
    height, width, channels = out.shape
    rows = (top + np.arange(height * block_y)).clip(0, len(image) - 1)
    columns = (left + np.arange(width * block_x)).clip(0, image.shape[1] - 1)
    pixels = image[rows[:, None], columns].astype(np.float64)
    out[:] = pixels.reshape(height, block_y, width, block_x, channels).mean((1, 3))


def taps(start: float, step: float, n: int, size: int) -> Numbers:
    """Weights ``(n, size)`` of the pixels along one axis that make the points start + i step.

    A triangle as wide as the step, tilted so that a linear image is sampled exactly: cut off at
    whole pixels it is a little lopsided. Beyond the edge, the last pixel counts again.
    """
    support = max(1.0, step)
    points = start + step * np.arange(n)
    low = np.floor(points - support).astype(int) + 1
    index = low[:, None] + np.arange(int(np.ceil(2.0 * support)) + 1)
    u = index - points[:, None]
    a = np.maximum(0.0, 1.0 - np.abs(u) / support)
    total, one, two = ((a * u**k).sum(1, keepdims=True) for k in range(3))
    spread = total * two - one * one  # 0 only when one pixel has all the weight
    straight = spread > 1e-9
    safe = np.where(straight, spread, 1.0)
    a *= np.where(straight, two / safe - one / safe * u, 1.0 / total)
    weights = np.zeros((n, size))
    np.add.at(weights, (np.arange(n)[:, None], index.clip(0, size - 1)), a)
    return weights


def sample_image(
    image: Numbers, x: float, y: float, step_x: float, step_y: float, out: Numbers
) -> None:
    """I(x + j step_x, y + i step_y), antialiased: planes (C, height, width)."""
    _, height, width = out.shape
    rows = taps(y, step_y, height, image.shape[0])
    columns = taps(x, step_x, width, image.shape[1])
    out[:] = np.einsum("iy,yxc,jx->cij", rows, image, columns, optimize=True)
