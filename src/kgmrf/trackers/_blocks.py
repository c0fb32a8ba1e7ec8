"""Blocks of samples about a mean that is followed too: moments, noise of the mean, fair scatter."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kgmrf import _check
from kgmrf._types import Mask, Numbers
from kgmrf.geometry import orbit, spd

LEAST_SHARE = 1e-12
"""Directions with less than this share of the largest variance count as having this share."""


def wide(array: Any) -> Any:
    """Numbers ``(...)`` beside matrices ``(..., d, d)``."""
    return array[..., None, None]


def outer(vectors: Numbers) -> Numbers:
    """x x^T of vectors ``(..., d)``."""
    return vectors[..., :, None] * vectors[..., None, :]


def moments(block: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Mean of the complete samples, sum of outer products about it, and their number."""
    whole = ~np.isnan(block).any(axis=-1, keepdims=True)
    count = whole.sum(axis=(-2, -1)).astype(float)
    centre = np.where(whole, block, 0.0).sum(axis=-2) / np.maximum(count, 1.0)[..., None]
    rest = np.where(whole, block - centre[..., None, :], 0.0)
    return centre, np.swapaxes(rest, -1, -2) @ rest, count


def block_mean(block: Numbers, early: Mask, unit: Numbers) -> tuple[Numbers, Numbers, Mask]:
    """The mean of what is there, its noise S_ij n_ij / (n_i n_j), and whether that is all."""
    there = ~np.isnan(block)
    # Early on, only complete samples are used.
    there = there & (there.all(axis=-1, keepdims=True) | ~wide(early))
    each = there.astype(float)
    number = each.sum(axis=-2)
    safe = np.maximum(number, 1.0)
    seen = np.where(number > 0, np.where(there, block, 0.0).sum(axis=-2) / safe, np.nan)
    noise = unit * (np.swapaxes(each, -1, -2) @ each) / outer(safe)
    partly = (there.any(axis=-1) & ~there.all(axis=-1)).any(axis=-1)
    single = there.any(axis=-1).sum(axis=-1) <= 1
    return seen, noise, ~partly | single


def usable(scatter: Numbers) -> tuple[Numbers, Mask]:
    """S of full rank, for channels that are constant or copies of one another, and where it is any.

    All that is done with it is relative to it, so that what is lifted is not felt. Where nothing
    varies yet it is the identity, and nothing depends on it.
    """
    eye = np.eye(scatter.shape[-1])
    nan = np.isnan(scatter).any(axis=(-2, -1))
    values, vectors = np.linalg.eigh(np.where(wide(nan), eye, scatter))
    least = LEAST_SHARE * values[..., -1:]
    lifted = orbit.compose(vectors, np.maximum(values, least))
    usable = ~nan & (values[..., -1] > _check.SMALLEST)
    scatter = np.where(wide(values[..., 0] < least[..., 0]), lifted, scatter)
    return np.where(wide(usable), scatter, eye), usable


def transport(wide: Numbers, fair: Numbers) -> Numbers:
    """The symmetric A with A wide A = fair (optimal transport between the two Gaussians)."""
    root = spd.sqrt(fair)
    values, vectors = np.linalg.eigh(root @ wide @ root)
    # In exact arithmetic these are positive; what rounding leaves of the smallest is not.
    values = np.maximum(values, 1e-28 * values[..., -1:])
    found = orbit.compose(root @ vectors, 1.0 / np.sqrt(values))
    if (values[..., 0] > 1e-8 * values[..., -1]).all():
        return found
    # wide is fair and more, so that 0 <= A <= 1: which also holds where nothing else is known.
    values, vectors = np.linalg.eigh(0.5 * (found + np.swapaxes(found, -1, -2)))
    return orbit.compose(vectors, np.clip(values, 0.0, 1.0))


def within_log_likelihood(within: Numbers, count: Numbers, scatter: Numbers) -> Numbers:
    """log p of m samples given their mean: the m - 1 directions about it."""
    d = scatter.shape[-1]
    m = np.maximum(count, 1.0)
    log_det = np.linalg.slogdet(scatter)[1]
    trace = np.trace(np.linalg.solve(scatter, within), axis1=-2, axis2=-1)
    return -0.5 * ((m - 1) * (d * math.log(2 * math.pi) + log_det) + trace + d * np.log(m))
