"""What is known of a Gaussian, and the arithmetic of blocks of its samples."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from kgmrf import _check
from kgmrf._types import Mask, Numbers
from kgmrf.geometry import spd
from kgmrf.trackers.product import ProductEstimate, ProductResult


class _Gaussian:
    """Short names for the two parts."""

    @property
    def mean(self) -> Numbers:
        """Estimate of the mean, (..., d)."""
        return self["mean"].position  # type: ignore[index]

    @property
    def covariance(self) -> Numbers:
        """Estimate of the covariance about the mean, (..., d, d)."""
        return self["covariance"].covariance  # type: ignore[index]


class GaussianEstimate(_Gaussian, ProductEstimate):
    """What is known of a Gaussian: ``mean``, ``covariance``; ``estimate["mean"]`` has the rest.

    >>> from kgmrf import KineticGaussian
    >>> KineticGaussian().update([[1.0, 2.0], [3.0, 2.0]]).mean
    array([2., 2.])
    """


class GaussianResult(_Gaussian, ProductResult):
    """What was known of a Gaussian at every time; `GaussianEstimate`, time first.

    >>> from kgmrf import KineticGaussian
    >>> KineticGaussian().filter([[1.0, 2.0], [3.0, 2.0], [2.0, 1.0]]).mean.shape
    (3, 2)
    """

    _estimate = GaussianEstimate


class Start(NamedTuple):
    """How the start goes: the block mean before, the variance that is owed and since when."""

    before: Numbers
    before_count: Numbers
    owed: Numbers
    since: Numbers
    samples: Numbers
    frames: Numbers
    joint: Numbers


def moments(block: Numbers, whole: Mask) -> tuple[Numbers, Numbers, Numbers]:
    """Mean of the complete samples, sum of outer products about it, and their number."""
    count = whole.sum(axis=-1).astype(float)
    rows = np.where(whole[..., None], block, 0.0)
    centre = rows.sum(axis=-2) / np.maximum(count, 1.0)[..., None]
    rest = np.where(whole[..., None], rows - centre[..., None, :], 0.0)
    return centre, np.swapaxes(rest, -1, -2) @ rest, count


def block_mean(
    block: Numbers, early: Mask, unit: Numbers, follows: Mask
) -> tuple[Numbers, Numbers, Mask]:
    """The mean of what is there, its noise S_ij n_ij / (n_i n_j), and whether that is all."""
    there = ~np.isnan(block)
    # Early on, only complete samples are used.
    there = there & (there.all(axis=-1, keepdims=True) | ~early[..., None, None])
    each = there.astype(float)
    number = each.sum(axis=-2)
    pairs = np.swapaxes(each, -1, -2) @ each
    safe = np.maximum(number, 1.0)
    seen = np.where(there, block, 0.0).sum(axis=-2) / safe
    seen = np.where((number > 0) & follows[..., None], seen, np.nan)
    noise = unit * pairs / (safe[..., :, None] * safe[..., None, :])
    partly = (there.any(axis=-1) & ~there.all(axis=-1)).any(axis=-1)
    single = there.any(axis=-1).sum(axis=-1) <= 1
    return seen, noise, ~partly | single


def shrunk(scatter: Numbers, n: Numbers) -> Numbers:
    """Pulled to a ball while it stands on few samples: d of its own weigh in."""
    d = scatter.shape[-1]
    size = np.trace(scatter, axis1=-2, axis2=-1) / d
    share = (d / (np.where(np.isinf(n), 0.0, n) + d))[..., None, None]
    share = np.where(np.isinf(n)[..., None, None], 0.0, share)
    return (1.0 - share) * scatter + share * size[..., None, None] * np.eye(d)


LEAST_SHARE = 1e-12
"""Directions with less than this share of the largest variance count as having this share."""


def regular(scatter: Numbers) -> Numbers:
    """Full rank, for channels that are constant or copies of one another; NaN where nothing varies.

    All that is done with it is relative to it, so that what is lifted is not felt.
    """
    nan = np.isnan(scatter).any(axis=(-2, -1), keepdims=True)
    values, vectors = np.linalg.eigh(np.where(nan, np.eye(scatter.shape[-1]), scatter))
    top = values[..., -1:]
    thin = (values[..., :1] < LEAST_SHARE * top)[..., None]
    lifted = (vectors * np.maximum(values, LEAST_SHARE * top)[..., None, :]) @ np.swapaxes(
        vectors, -1, -2
    )
    still = nan | ~(top > _check.SMALLEST)[..., None]
    return np.where(still, np.nan, np.where(thin, lifted, scatter))


def transport(wide: Numbers, fair: Numbers) -> Numbers:
    """The symmetric A with A wide A = fair (optimal transport between the two Gaussians)."""
    root = spd.sqrt(fair)
    values, vectors = np.linalg.eigh(root @ wide @ root)
    # In exact arithmetic these are positive; what rounding leaves of the smallest is not.
    values = np.maximum(values, 1e-28 * values[..., -1:])
    moved = root @ vectors
    found = (moved / np.sqrt(values)[..., None, :]) @ np.swapaxes(moved, -1, -2)
    if (values[..., 0] > 1e-8 * values[..., -1]).all():
        return found
    # wide is fair and more, so that 0 <= A <= 1: which also holds where nothing else is known.
    values, vectors = np.linalg.eigh(0.5 * (found + np.swapaxes(found, -1, -2)))
    return (vectors * np.clip(values, 0.0, 1.0)[..., None, :]) @ np.swapaxes(vectors, -1, -2)


def within_log_likelihood(within: Numbers, count: Numbers, scatter: Numbers) -> Numbers:
    """log p of m samples given their mean: the m - 1 directions about it."""
    d = scatter.shape[-1]
    m = np.maximum(count, 1.0)
    log_det = np.linalg.slogdet(scatter)[1]
    trace = np.trace(np.linalg.solve(scatter, within), axis1=-2, axis2=-1)
    return -0.5 * ((m - 1) * (d * math.log(2 * math.pi) + log_det) + trace + d * np.log(m))
