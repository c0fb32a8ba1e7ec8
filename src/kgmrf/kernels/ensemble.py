"""The compiled loop of the ensemble: forecast, judge and learn, one line of observations at a time.

`tests/readable_ensemble.py` tells the formulas and is compared with it. A line says which track it
belongs to, so one loop serves a tracker, a batch, a bank and a stream.
"""

from __future__ import annotations

import math
from typing import Any

from kgmrf.engines import layout as row
from kgmrf.engines import members as tuning
from kgmrf.factors import HEAVY
from kgmrf.kernels import ensemble_places as at
from kgmrf.kernels.check import INVALID, MISSING, OBSERVED, take_covariance, take_samples
from kgmrf.kernels.compile import compiled, jit
from kgmrf.kernels.ensemble_compare import (
    add,
    add_outer,
    clear,
    compare,
    compare_matrix,
    mark_present,
)
from kgmrf.kernels.ensemble_members import drift, enter, hold, learn_averages, start
from kgmrf.kernels.ensemble_turning import learn_turning
from kgmrf.kernels.judge import blend_weights, judge_tails, settle, tail_logs, weigh
from kgmrf.kernels.lanes import bare, fma, load, spread, store, total
from kgmrf.kernels.layout import SEEN_MATRIX
from kgmrf.kernels.products import matrix, pack, packed_room
from kgmrf.kernels.turning import expect, move

# ----------------------------------------------------------------------- forecast


@jit
def blend(w: Any, o: Any, sharp: bool) -> None:
    """TOTAL = sum_k w_k S_k, w_k = r_k^2 / sum r^2, or where sharp r_k^6 / sum r^6."""
    n, room = o[at.N_PAIRS], packed_room(o[at.N_PAIRS])
    blend_weights(w, o[at.ROOTS], w, o[at.WEIGHTS], o[at.N_MEMBERS], sharp)
    for p in range(0, n, 8):
        acc = spread(0.0)
        part = o[at.PARTS] + p
        for k in range(o[at.N_MEMBERS]):
            acc = fma(spread(w[o[at.WEIGHTS] + k]), load(w, part), acc)
            part += room
        store(w, o[at.TOTAL] + p, acc)


# ----------------------------------------------------------------------- judge


@jit
def judge(w: Any, o: Any, values: float, distance: float, log_det: float, m: float) -> float:
    """log p(x); the tails, kappa and the weights learn from it. Returns the weight u of x."""
    head, d, s, n = o[at.HEAD], o[at.DIMENSION], o[at.STRIDE], o[at.N_PAIRS]
    if w[o[at.INTERVAL] + at.LAST_VALUES] != values:
        w[o[at.INTERVAL] + at.LAST_VALUES] = values
        tail_logs(w, o[at.LOGS], values)
    grow = math.exp(-w[head + row.KAPPA])
    u = judge_tails(w, head, o[at.TAILS], w, o[at.LOGS], o[at.SHARES], values, distance, log_det)
    # Twice the slope, so that off-diagonal entries count double; the diagonal once.
    slope, factor = o[at.OTHER], spread(u * grow)
    zero = spread(0.0)
    for p in range(0, d * s, 8):
        precision = zero - load(w, o[at.PRECISION] + p)
        store(w, slope + p, fma(factor, load(w, o[at.OUTER] + p), precision))
    for i in range(d):
        w[slope + i * s + i] *= 0.5
    pack(w, slope, o[at.SLOPE], d, s, n)
    clear(w, slope, d * s)
    part = o[at.PARTS]
    for k in range(o[at.N_MEMBERS]):
        acc = spread(0.0)
        for p in range(0, n, 8):
            acc = fma(load(w, o[at.SLOPE] + p), load(w, part + p), acc)
        w[o[at.GRADIENT] + k] = total(acc)
        part += packed_room(n)
    weigh(w, o[at.ROOTS], w, o[at.WEIGHTS], o[at.GRADIENT], o[at.N_MEMBERS], m / values)
    settle(w, head, o[at.ROOTS], w, o[at.TABLE] + row.ROOT, row.N_COLUMNS, o[at.N_MEMBERS], u)
    return u


# ----------------------------------------------------------------------- one step


@jit
def step(w: Any, o: Any, x: Any, begin: int, end: int, m: float, dt: float, given: bool) -> None:
    """One line of one track: a matrix over m samples in SEEN_MATRIX, or samples x[begin:end]."""
    head, d, s, n = o[at.HEAD], o[at.DIMENSION], o[at.STRIDE], o[at.N_PAIRS]
    w[head + row.LIKELIHOOD] = math.nan
    w[head + row.DISTANCE] = math.nan
    w[head + row.VALUES] = math.nan
    w[head + row.TIME] += dt
    fresh = w[head + row.COUNT] == 0.0
    if not fresh:
        drift(w, o, dt)
    if m == 0.0:
        return
    w[head + row.SEEN] = w[head + row.TIME]
    power = o[at.Y]
    if fresh:
        clear(w, o[at.OUTER], d * s)
        if given:
            add(w, o[at.OUTER], matrix(s, SEEN_MATRIX), 1.0, d, s)
        else:
            for first in range(begin, end, d):
                for i in range(d):
                    v = x[first + i]
                    w[o[at.X] + i] = 0.0 if math.isnan(v) else v
                add_outer(w, o[at.OUTER], o[at.X], 1.0 / m, d, s)
        start(w, o, m)
        return
    hold(w, o)
    blend(w, o, False)
    n_there, holes, told = mark_present(w, o), False, m
    if given:
        values, distance, logs = compare_matrix(w, o, m, n_there)
    else:
        clear(w, o[at.OTHER], d * s)
        values, distance, logs, holes, told = compare(w, o, x, begin, end, m)
    if values > 0.0:
        pack(w, o[at.MEAN_FULL], o[at.MEAN], d, s, n)
        if holes:
            grow = math.exp(w[head + row.KAPPA]) / told
            for p in range(0, d * s, 8):
                store(w, o[at.OTHER] + p, spread(grow) * load(w, o[at.OTHER] + p))
            pack(w, o[at.OTHER], o[at.REST], d, s, n)
        else:
            clear(w, o[at.REST], n)
        u = judge(w, o, values, distance, logs, told)
        w[head + row.COUNT] += 1.0
        w[head + row.SAMPLES] += told
        early = w[head + row.SAMPLES] <= tuning.EARLY
        u = 1.0 if early else u
        gain = 1.0 / min(w[head + row.COUNT], tuning.LEVEL_MEMORY)
        for i in range(d):
            if w[o[at.THERE] + i] > 0.0:
                p = i * (i + 3) // 2
                seen = u * w[o[at.MEAN] + p] + w[o[at.REST] + p]
                w[o[at.LEVEL] + i] += gain * (seen - w[o[at.LEVEL] + i])
        single = not given and m == 1.0 and not holes
        if single and end - begin > d:
            single = False  # which of the rows it was is not remembered
        limited = tuning.OUTLIER * values / max(w[head + row.DISTANCE], tuning.OUTLIER * values)
        limited = 1.0 if early else limited
        learn_averages(w, o, u, limited, float(n_there), single, holes, early)
        learn_turning(w, o, u, told, single)
    if n_there == d:
        return
    for i in range(d):
        w[power + i] = 0.0
        if given:
            w[power + i] = w[matrix(s, SEEN_MATRIX) + i * s + i]
        else:
            for first in range(begin, end, d):
                v = x[first + i]
                w[power + i] += 0.0 if math.isnan(v) else v * v / m
    enter(w, o, power, m)


@jit
def note(w: Any, o: Any, record: Any, to: int, room: int) -> None:
    """The head, tails and weights of a row and, where there is room, its filtered covariance."""
    head, tails, d = o[at.HEAD], o[at.TAILS], o[at.DIMENSION]
    small = row.N_HEAD + 2 * row.N_TAILS + o[at.N_MEMBERS]
    move(w, head, record, to, min(small, room))
    if room <= small:
        return
    to += small
    if w[head + row.COUNT] == 0.0:
        for p in range(to, to + d * d):
            record[p] = math.nan
        return
    hold(w, o)
    blend(w, o, not math.isnan(w[head + row.VALUES]))
    grow = 1.0  # before the second observation nothing is known of the tails
    if w[head + row.COUNT] > 1.0:
        grow = 0.0
        for j in range(row.N_TAILS):
            grow += w[tails + j] * HEAVY[j]
        grow *= math.exp(w[head + row.KAPPA])
    p = o[at.TOTAL]
    for i in range(d):
        absent = w[o[at.LEVEL] + i] == 0.0
        for j in range(i + 1):
            gone = absent or w[o[at.LEVEL] + j] == 0.0
            value = math.nan if gone else grow * w[p]
            record[to + i * d + j] = record[to + j * d + i] = value
            p += 1


@compiled(
    "void(float64[:, ::1], int64[::1], float64[:, :, ::1], float64[::1], float64[::1], boolean,"
    " float64, int64[::1], float64[::1], float64[:, ::1], int8[::1])"
)
def run(
    rows: Any,
    which: Any,
    seen: Any,
    counts: Any,
    dt: Any,
    given: bool,
    tolerance: float,
    where: Any,
    work: Any,
    records: Any,
    status: Any,
) -> None:
    """Take in lines ``(N, r, d)`` in order; line l belongs to the row ``which[l]``.

    given: the lines are matrices over counts[l] samples, checked unless tolerance is negative;
    otherwise samples, which count themselves. counts[l] = 0: no observation; below 0: no step, only
    a record.
    Nothing happens to a track whose line is INVALID. records ``(N or 0, size)`` are written.
    """
    w, o, x, every, notes = bare(work), bare(where), bare(seen), bare(rows), bare(records)
    d, s, size, length = o[at.DIMENSION], o[at.STRIDE], o[at.ROW], seen.shape[1] * seen.shape[2]
    state, held, lines, room = o[at.HEAD], -1, which.shape[0], records.shape[1]
    for line in range(lines):
        k, begin, end = which[line], line * length, (line + 1) * length
        found, m = MISSING, 0.0
        if counts[line] > 0.0:
            if given:
                found = take_covariance(w, x, begin, d, s, tolerance)
                m = counts[line]
            else:
                m = take_samples(x, begin, end, d)
                found = INVALID if m < 0.0 else OBSERVED if m > 0.0 else MISSING
        status[line] = found
        if found != INVALID:
            if k != held:
                if held >= 0:
                    move(w, state, every, held * size, size)
                move(every, k * size, w, state, size)
                held = k
                if line + 1 < lines:
                    expect(every, which[line + 1] * size, size)
            if counts[line] >= 0.0:
                m = m if found == OBSERVED else 0.0
                step(w, o, x, begin, end, m, dt[line], given)
            if records.shape[0] > 0:
                note(w, o, notes, line * room, room)
    if held >= 0:
        move(w, state, every, held * size, size)
