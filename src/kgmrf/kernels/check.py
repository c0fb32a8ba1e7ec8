"""The check of one covariance matrix: observed, missing, or invalid."""

from __future__ import annotations

import math
from typing import Any

from kgmrf._check import LARGEST, SMALLEST
from kgmrf.kernels.compile import jit
from kgmrf.kernels.lanes import (
    above,
    div,
    flip,
    fma,
    highest,
    load,
    load_first,
    spread,
    store,
    total,
)
from kgmrf.kernels.layout import SCRATCH_A, SEEN_MATRIX
from kgmrf.kernels.products import copy, matrix, transpose

MISSING, OBSERVED, INVALID = 0, 1, 2


@jit
def spread_out(row: Any, at: int, w: Any, to: int, d: int, s: int) -> None:
    """A packed matrix into a padded one of w (see `products`)."""
    for i in range(d):
        for j in range(0, s, 8):
            store(w, to + i * s + j, load_first(row, at + i * d + j, d - j))


@jit
def take_covariance(w: Any, c: Any, at: int, d: int, s: int, tolerance: float) -> int:
    """C into SEEN_MATRIX, symmetrised: OBSERVED, MISSING (all NaN) or INVALID.

    A negative tolerance trusts the matrix. Otherwise asymmetry and negative eigenvalues up to
    ``tolerance`` times the largest entry pass; C + tolerance I must have positive pivots.
    """
    seen, work = matrix(s, SEEN_MATRIX), matrix(s, SCRATCH_A)
    spread_out(c, at, w, seen, d, s)
    transpose(w, seen, work, d, s)
    zero, half = spread(0.0), spread(0.5)
    largest, skewness, fault = zero, zero, zero
    for k in range(0, d * s, 8):
        v, other = load(w, seen + k), load(w, work + k)
        store(w, seen + k, fma(half, v, half * other))
        fault = fma(v, zero, fault)  # NaN where v is not finite
        largest = above(v, largest, v, largest)
        largest = above(zero - v, largest, zero - v, largest)
        skew = fma(other, spread(-1.0), v)
        skewness = above(skew, skewness, skew, skewness)
    if tolerance < 0.0:
        return MISSING if math.isnan(c[at]) else OBSERVED
    if total(fault) != 0.0:
        for k in range(d * d):
            if not math.isnan(c[at + k]):
                return INVALID
        return MISSING
    size = highest(largest)
    if not SMALLEST <= size <= LARGEST or highest(skewness) > tolerance * size:
        return INVALID
    copy(w, seen, work, d, s)
    for i in range(d):
        w[work + i * s + i] += tolerance * size
    for k in range(d):
        pivot = w[work + k * s + k]
        if not pivot > 0.0:
            return INVALID
        inverse = -1.0 / pivot
        for i in range(k + 1, d):
            factor = spread(w[work + i * s + k] * inverse)
            for j in range((k + 1) // 8 * 8, s, 8):
                v = load(w, work + i * s + j)
                store(w, work + i * s + j, fma(factor, load(w, work + k * s + j), v))
    return OBSERVED


@jit
def fits_side_by_side(d: int) -> bool:
    """Whether eight matrices of this size are worth taking together: of two or three channels they
    are too small to transpose, and of many they do not fit into the nearest cache."""
    return 4 <= d <= 8


@jit
def side_by_side(a: Any, q: int, size: int, w: Any, to: int, n: int) -> None:
    """The first n >= 8 numbers of eight rows of a, ``size`` apart: number k of all at to + 8 k."""
    for k in range(0, n - 7, 8):
        flip(a, q + k, size, w, to + 8 * k, 8)
    flip(a, q + n - 8, size, w, to + 8 * (n - 8), 8)


@jit
def are_covariances(w: Any, seen: int, work: int, d: int, tolerance: float) -> bool:
    """Whether eight matrices side by side would all be OBSERVED; symmetrises them."""
    zero, half, one = spread(0.0), spread(0.5), spread(1.0)
    largest, skewness, good = zero, zero, one
    for i in range(0, 8 * d, 8):
        for j in range(0, i + 8, 8):
            p, q = seen + i * d + j, seen + j * d + i
            v, other = load(w, p), load(w, q)
            mean = fma(half, v, half * other)
            store(w, p, mean)
            store(w, q, mean)
            good = fma(mean, zero, good)  # NaN where one is not finite
            if tolerance >= 0.0:
                most, least = above(v, other, v, other), above(v, other, other, v)
                skewness = above(most - least, skewness, most - least, skewness)
                most = above(most, zero - least, most, zero - least)
                largest = above(most, largest, most, largest)
    if tolerance >= 0.0:
        margin = spread(tolerance) * largest
        good = above(spread(SMALLEST), largest, zero, good)
        good = above(largest, spread(LARGEST), zero, good)
        good = above(skewness, margin, zero, good)
        for k in range(0, 8 * d * d, 8):
            store(w, work + k, load(w, seen + k))
        for k in range(0, 8 * d * d, 8 * (d + 1)):
            store(w, work + k, load(w, work + k) + margin)
        for k in range(0, 8 * d, 8):
            pivot = load(w, work + k * d + k)
            good = above(pivot, zero, good, zero)
            inverse = div(spread(-1.0), above(pivot, zero, pivot, one))
            for i in range(k + 8, 8 * d, 8):
                factor = load(w, work + i * d + k) * inverse
                for j in range(k + 8, 8 * d, 8):
                    v = load(w, work + i * d + j)
                    store(w, work + i * d + j, fma(factor, load(w, work + k * d + j), v))
    return bool(total(good) == 8.0)


@jit
def take_samples(x: Any, begin: int, end: int, d: int) -> Any:
    """How many samples of x[begin:end] have a value; negative if one is too large to square."""
    count = 0.0
    for sample in range(begin, end, d):
        here = False
        for i in range(sample, sample + d):
            if not math.isnan(x[i]):
                here = True
                if not x[i] * x[i] <= LARGEST:
                    return -1.0
        count += 1.0 if here else 0.0
    return count
