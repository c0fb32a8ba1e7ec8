"""Between rows, records and desks: how a track comes onto the desk and leaves it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kgmrf.kernels.compile import jit
from kgmrf.kernels.lanes import (
    above,
    load,
    spread,
    store,
)
from kgmrf.kernels.layout import (
    FRAME,
    INFORMATION,
    KICK,
    KNOWN_SPECTRUM,
    LEVEL,
    LIKELIHOOD,
    LOG_SCALE,
    MASK,
    N_MATRICES,
    NIS,
    ORDER,
    P11,
    P12,
    P22,
    PLANES,
    POOL,
    POSITION,
    SEEN,
    SPECTRUM,
    SPECTRUM_VAR,
    TIME,
    VELOCITY,
)
from kgmrf.kernels.products import matrix, vector


@jit
def spread_out(row: Any, at: int, w: Any, to: int, d: int, s: int) -> None:
    """A packed matrix of a row into a padded one of the desk."""
    half, zero, mask = spread(0.5), spread(0.0), vector(s, MASK)
    for i in range(d):
        start = at + i * d
        if start + s <= row.size:
            for j in range(0, s, 8):
                v = load(row, start + j)
                store(w, to + i * s + j, above(load(w, mask + j), half, v, zero))
        else:
            for j in range(d):
                w[to + i * s + j] = row[start + j]


@jit
def pack_up(w: Any, a: int, row: Any, at: int, end: int, d: int, s: int) -> None:
    """A padded matrix of the desk into a row; what lies between it and ``end`` is overwritten."""
    for i in range(d):
        start = at + i * d
        if start + s <= end:
            for j in range(0, s, 8):
                store(row, start + j, load(w, a + i * s + j))
        else:
            for j in range(d):
                row[start + j] = w[a + i * s + j]


@jit
def open_row(row: Any, at: int, w: Any, d: int, s: int) -> None:
    """The track in ``row[at:]`` onto the desk."""
    n = d * d
    spread_out(row, at, w, matrix(s, FRAME), d, s)
    spread_out(row, at + n, w, matrix(s, VELOCITY), d, s)
    if w[INFORMATION] != 0.0:
        spread_out(row, at + 2 * n, w, matrix(s, P11), d, s)
        spread_out(row, at + 3 * n, w, matrix(s, P12), d, s)
        spread_out(row, at + 4 * n, w, matrix(s, P22), d, s)
    spread_out(row, at + 5 * n, w, matrix(s, POOL), d, s)
    at += 6 * n
    lam, var = vector(s, SPECTRUM), vector(s, SPECTRUM_VAR)
    for j in range(d):
        w[lam + j] = row[at + j]
        w[var + j] = row[at + d + j]
    for k in range(9):
        w[LOG_SCALE + k] = row[at + 2 * d + k]


@jit
def close_row(w: Any, row: Any, at: int, d: int, s: int) -> None:
    """The track on the desk into ``row[at:]``."""
    n = d * d
    end = at + 6 * n + 2 * d + 9
    pack_up(w, matrix(s, FRAME), row, at, end, d, s)
    pack_up(w, matrix(s, VELOCITY), row, at + n, end, d, s)
    pack_up(w, matrix(s, P11), row, at + 2 * n, end, d, s)
    pack_up(w, matrix(s, P12), row, at + 3 * n, end, d, s)
    pack_up(w, matrix(s, P22), row, at + 4 * n, end, d, s)
    pack_up(w, matrix(s, POOL), row, at + 5 * n, end, d, s)
    at += 6 * n
    lam, var = vector(s, SPECTRUM), vector(s, SPECTRUM_VAR)
    for j in range(d):
        row[at + j] = w[lam + j]
        row[at + d + j] = w[var + j]
    for k in range(9):
        row[at + 2 * d + k] = w[LOG_SCALE + k]


@jit
def note_sorted(w: Any, record: Any, at: int, d: int, s: int) -> None:
    """Spectrum, frame, velocity and P11 into ``record[at:]``, largest first and right-handed."""
    lam, order = vector(s, SPECTRUM), vector(s, ORDER)
    frame, velocity, m11 = matrix(s, FRAME), matrix(s, VELOCITY), matrix(s, P11)
    hand = 1.0
    for j in range(d):  # by insertion, equal ones stay in order; every move swaps a pair
        k = j
        while k > 0 and w[lam + int(w[order + k - 1])] < w[lam + j]:
            w[order + k] = w[order + k - 1]
            k -= 1
            hand = -hand
        w[order + k] = j
    n = d * d
    kick = at + n + d
    angle = kick + d * (d - 1) // 2
    information = w[INFORMATION] != 0.0
    for j in range(d):
        sign = hand if j == d - 1 else 1.0
        oj = int(w[order + j])
        record[at + n + j] = w[lam + oj]
        for i in range(d):
            record[at + i * d + j] = sign * w[frame + i * s + oj]
    for i in range(d):
        row = int(w[order + i]) * s
        for j in range(i + 1, d):
            sign = hand if j == d - 1 else 1.0
            oj = int(w[order + j])
            record[kick] = sign * w[velocity + row + oj]
            kick += 1
            if information:
                record[angle] = w[m11 + row + oj]
                angle += 1


@jit
def note_record(w: Any, record: Any, at: int, d: int, s: int) -> None:
    """What an estimate shows, into ``record[at:]`` (see `layout.unfold`): largest first."""
    lam = vector(s, SPECTRUM)
    frame, velocity, m11 = matrix(s, FRAME), matrix(s, VELOCITY), matrix(s, P11)
    information = w[INFORMATION] != 0.0
    falling = True
    for j in range(1, d):
        falling = falling and not w[lam + j] > w[lam + j - 1]
    tail = at + d * d + d
    if falling:
        pack_up(w, frame, record, at, tail, d, s)
        for j in range(d):
            record[at + d * d + j] = w[lam + j]
        for i in range(d):
            for j in range(i + 1, d):
                record[tail] = w[velocity + i * s + j]
                tail += 1
        if information:
            for i in range(d):
                for j in range(i + 1, d):
                    record[tail] = w[m11 + i * s + j]
                    tail += 1
    else:
        note_sorted(w, record, at, d, s)
        tail += d * (d - 1) // 2 * (2 if information else 1)
    if w[LOG_SCALE] != 0.0:
        size = math.exp(w[LOG_SCALE])
        for j in range(d):
            record[at + d * d + j] *= size
    record[tail] = w[TIME]
    record[tail + 1] = w[SEEN]
    record[tail + 2] = w[NIS]
    record[tail + 3] = w[LIKELIHOOD]


@jit
def use_tables(w: Any, tables: Any, known: Any, k: int, d: int, s: int) -> None:
    """Gains and known spectrum of item k (or of all, if there is one) onto the desk."""
    table = min(k, tables.shape[0] - 1)
    for i in range(d):
        for j in range(d):
            w[matrix(s, POSITION) + i * s + j] = tables[table, 0, i, j]
            w[matrix(s, KICK) + i * s + j] = tables[table, 1, i, j]
    own = min(k, known.shape[0] - 1)
    for j in range(d):
        w[vector(s, KNOWN_SPECTRUM) + j] = known[own, j]


@jit
def new_desk(head: Any, d: int, s: int) -> Any:
    """A desk of its own for a loop that may run beside others."""
    w = np.zeros(matrix(s, N_MATRICES))
    for k in range(head.size):
        w[k] = head[k]
    for j in range(d):
        w[vector(s, MASK) + j] = 1.0
    for j in range(s):
        w[vector(s, LEVEL) + j] = 1.0
    for i in range(d):
        for j in range(d):
            if i != j:
                w[matrix(s, PLANES) + i * s + j] = 1.0
    return w
