"""Observations beside the forecast of the compiled ensemble; missing cells are filled."""

from __future__ import annotations

import math
from typing import Any

from kgmrf.engines import members as tuning
from kgmrf.kernels import ensemble_places as at
from kgmrf.kernels.compile import jit
from kgmrf.kernels.lanes import fma, load, spread, store, total
from kgmrf.kernels.layout import SCRATCH_A, SEEN_MATRIX
from kgmrf.kernels.products import invert, matrix, multiply, unpack


@jit
def forecast_inverse(w: Any, o: Any) -> float:
    """INVERSE = S^-1 on the channels of THERE, 0 elsewhere; returns log |S| of them."""
    d, s, a = o[at.DIMENSION], o[at.STRIDE], o[at.INVERSE]
    unpack(w, o[at.TOTAL], a, d, s)
    for i in range(d):
        if w[o[at.THERE] + i] == 0.0:
            for j in range(d):
                w[a + i * s + j] = 0.0
                w[a + j * s + i] = 0.0
            w[a + i * s + i] = 1.0
    logs = invert(w, a, o[at.Y], o[at.IDENTITY], d, s)
    for i in range(d):
        if w[o[at.THERE] + i] == 0.0:
            w[a + i * s + i] = 0.0
    return logs


@jit
def apply(w: Any, a: int, x: int, y: int, d: int, s: int) -> None:
    """y = A x for a symmetric A."""
    for j in range(0, s, 8):
        acc = spread(0.0)
        for i in range(d):
            acc = fma(spread(w[x + i]), load(w, a + i * s + j), acc)
        store(w, y + j, acc)


@jit
def add_outer(w: Any, a: int, x: int, share: float, d: int, s: int) -> None:
    """A += share x x^T."""
    for i in range(d):
        v = spread(share * w[x + i])
        for j in range(0, s, 8):
            store(w, a + i * s + j, fma(v, load(w, x + j), load(w, a + i * s + j)))


@jit
def add(w: Any, a: int, b: int, share: float, d: int, s: int) -> None:
    """A += share B."""
    v = spread(share)
    for p in range(0, d * s, 8):
        store(w, a + p, fma(v, load(w, b + p), load(w, a + p)))


@jit
def clear(w: Any, a: int, n: int) -> None:
    """A = 0."""
    for p in range(0, n, 8):
        store(w, a + p, spread(0.0))


@jit
def mark_present(w: Any, o: Any) -> int:
    """THERE = channels that have had a value other than zero; returns how many."""
    n = 0
    for i in range(o[at.DIMENSION]):
        here = w[o[at.LEVEL] + i] > 0.0
        w[o[at.THERE] + i] = 1.0 if here else 0.0
        n += 1 if here else 0
    return n


@jit
def compare(w: Any, o: Any, x: Any, begin: int, end: int, m: float) -> Any:
    """Samples x[begin:end] beside the forecast: N, Q e^kappa, log |S|, whether cells missed, m.

    Of m samples those count that have a value of a channel that is there.
    """
    d, s = o[at.DIMENSION], o[at.STRIDE]
    mean, outer, precision = o[at.MEAN_FULL], o[at.OUTER], o[at.PRECISION]
    clear(w, mean, d * s)
    clear(w, outer, d * s)
    clear(w, precision, d * s)
    values, distance, logs, holes = 0.0, 0.0, 0.0, False
    complete, common, same, silent = 0, 0.0, False, 0.0
    for first in range(begin, end, d):
        known, hidden = 0, 0
        for i in range(d):
            v = x[first + i]
            inside = w[o[at.LEVEL] + i] > 0.0
            here = inside and not math.isnan(v)
            w[o[at.X] + i] = v if here else 0.0
            w[o[at.HIDDEN] + i] = 1.0 if inside and not here else 0.0
            known += 1 if here else 0
            hidden += 1 if inside and not here else 0
        if known == 0:
            empty = True
            for i in range(d):
                empty = empty and math.isnan(x[first + i])
            silent += 0.0 if empty else 1.0
            continue
        if hidden > 0:
            for i in range(d):
                w[o[at.THERE] + i] = (
                    1.0 if w[o[at.LEVEL] + i] > 0.0 and w[o[at.HIDDEN] + i] == 0.0 else 0.0
                )
            log_det, same = forecast_inverse(w, o), False
            mark_present(w, o)
        else:
            if not same:
                common, same = forecast_inverse(w, o), True
            log_det = common
            complete += 1
        apply(w, o[at.INVERSE], o[at.X], o[at.Y], d, s)
        q = 0.0
        for i in range(d):
            q += w[o[at.X] + i] * w[o[at.Y] + i]
        values += known
        distance += q
        logs += log_det
        add_outer(w, outer, o[at.Y], 1.0, d, s)
        if hidden > 0:
            fill(w, o, 1.0 / math.sqrt(max(q / (tuning.FILL_LIMIT * known), 1.0)), d, s)
            add(w, precision, o[at.INVERSE], 1.0, d, s)
            holes = True
        add_outer(w, mean, o[at.X], 1.0 / m, d, s)
    if complete > 0:
        if not same:
            forecast_inverse(w, o)
        add(w, precision, o[at.INVERSE], float(complete), d, s)
    if 0.0 < silent < m:
        add(w, mean, mean, silent / (m - silent), d, s)
    return values, distance, logs, holes, m - silent


@jit
def fill(w: Any, o: Any, share: float, d: int, s: int) -> None:
    """Missing cells of X by ``share`` of their expectation; their covariance is added to OTHER."""
    whole, column = o[at.TOTAL_FULL], matrix(s, SCRATCH_A)
    unpack(w, o[at.TOTAL], whole, d, s)
    for i in range(d):
        if w[o[at.HIDDEN] + i] == 0.0:
            continue
        apply(w, o[at.INVERSE], whole + i * s, column, d, s)
        guess = 0.0
        for j in range(d):
            guess += w[whole + i * s + j] * w[o[at.Y] + j]
        for j in range(d):
            if w[o[at.HIDDEN] + j] != 0.0:
                v = w[whole + i * s + j]
                for k in range(d):
                    v -= w[whole + j * s + k] * w[column + k]
                w[o[at.OTHER] + i * s + j] += v
        w[column + s + i] = share * guess
    for i in range(d):
        if w[o[at.HIDDEN] + i] != 0.0:
            w[o[at.X] + i] = w[column + s + i]


@jit
def compare_matrix(w: Any, o: Any, m: float, n_there: int) -> Any:
    """C of SEEN_MATRIX beside the forecast: N, Q e^kappa, log |S|."""
    d, s = o[at.DIMENSION], o[at.STRIDE]
    mean, a, half = o[at.MEAN_FULL], o[at.INVERSE], matrix(s, SCRATCH_A)
    seen = matrix(s, SEEN_MATRIX)
    for i in range(d):
        for j in range(d):
            both = w[o[at.THERE] + i] * w[o[at.THERE] + j]
            w[mean + i * s + j] = w[seen + i * s + j] if both > 0.0 else 0.0
    logs = forecast_inverse(w, o)
    multiply(w, a, mean, half, a, 0.0, d, s)
    multiply(w, half, a, o[at.OUTER], a, 0.0, d, s)
    q = spread(0.0)
    for p in range(0, d * s, 8):
        store(w, o[at.PRECISION] + p, spread(m) * load(w, a + p))
        store(w, o[at.OUTER] + p, spread(m) * load(w, o[at.OUTER] + p))
        q = fma(load(w, a + p), load(w, mean + p), q)
    return m * n_there, m * total(q), m * logs
