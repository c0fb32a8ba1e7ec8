"""The compiled loop for many channels: forecast, judge and learn, one sample at a time.

The twin of :mod:`kgmrf.engines.low_rank_step`, where the formulas are told. One loop serves a
tracker, a batch, a bank and a stream: a line says which row it belongs to. Linear in d.
"""

from __future__ import annotations

import math
from typing import Any

from kgmrf.engines.ensemble_step import LEVEL_MEMORY
from kgmrf.engines.layout import (
    COUNT,
    DISTANCE,
    KAPPA,
    LIKELIHOOD,
    N_HEAD,
    N_TAILS,
    SAMPLES,
    SEEN,
    TIME,
    VALUES,
)
from kgmrf.engines.low_rank_layout import (
    BUFFERED,
    N_METRIC,
    N_NOISE,
    N_STAGES,
    PLACE,
    RANK,
    SIZE,
    STAGE,
)
from kgmrf.engines.low_rank_step import (
    LIMIT,
    LOG_SQUARE_MEAN,
    LOG_SQUARE_SPREAD,
    LOG_SQUARE_VAR,
    PRIOR_ROWS,
)
from kgmrf.kernels.check import INVALID, MISSING, OBSERVED, take_samples
from kgmrf.kernels.compile import compiled, jit
from kgmrf.kernels.judge import blend_weights, judge_tails, settle, tail_logs, weigh
from kgmrf.kernels.lanes import div, fma, load, spread, store, total
from kgmrf.kernels.low_rank_algebra import apply, cholesky, dot, invert, products
from kgmrf.kernels.low_rank_members import drift, hold, learn, start_axes
from kgmrf.kernels.low_rank_places import (
    BUFFER,
    COLUMNS,
    DIMENSION,
    FACTORS,
    GRADIENT,
    HALF,
    INNER,
    LEFT,
    LEVEL,
    LOGS,
    NOISE,
    NOISES,
    OPEN,
    OUT,
    PRECISION,
    ROWS,
    SHARES,
    SIZE_OF_ROW,
    STRIDE,
    WEIGHTS,
    B,
    X,
    Y,
)

TAILS, ROOTS = N_HEAD, N_HEAD + 2 * N_TAILS


@jit
def blend(w: Any, o: Any, table: Any, base: int, v: Any, sharp: bool) -> None:
    """FACTORS ``(columns, s)`` with member k times sqrt(w_k), NOISES of each, NOISE of all."""
    s, members = o[STRIDE], table.shape[0]
    blend_weights(w, base + ROOTS, v, o[WEIGHTS], members, sharp)
    at = o[FACTORS]
    for k in range(members):
        hold(w, o, table[k], base, v, v[o[WEIGHTS] + k], at, o[NOISES] + k * s)
        at += int(table[k, RANK]) * s
    for i in range(0, s, 8):
        acc = spread(0.0)
        for k in range(members):
            acc = fma(spread(v[o[WEIGHTS] + k]), load(v, o[NOISES] + k * s + i), acc)
        store(v, o[NOISE] + i, acc)


@jit
def judge(w: Any, o: Any, table: Any, base: int, v: Any, n: float) -> None:
    """log p(x) over the open channels; the tails, kappa and the weights learn from it."""
    s, c, members, inner, b, out = o[STRIDE], o[COLUMNS], table.shape[0], o[INNER], o[B], o[OUT]
    p = 8 * ((c + 7) // 8)
    blend(w, o, table, base, v, False)
    known, one = o[PRECISION], spread(1.0)
    logs, distance = 0.0, spread(0.0)
    for i in range(0, s, 8):
        here = load(v, o[OPEN] + i)
        x, noise = load(v, o[X] + i), fma(here, load(v, o[NOISE] + i), one - here)
        inverse = div(here, noise)
        store(v, known + i, inverse)
        distance = fma(x * inverse, x, distance)
    for i in range(o[DIMENSION]):
        if v[o[OPEN] + i] > 0.0:
            logs += math.log(v[o[NOISE] + i])
    for a in range(c):
        at, to = o[FACTORS] + a * s, o[HALF] + a * s
        for i in range(0, s, 8):
            store(v, to + i, load(v, at + i) * load(v, known + i))
        v[b + a] = dot(v, to, v, o[X], s)
    products(v, o[FACTORS], v, o[HALF], inner, c, p, s)
    for a in range(c):
        v[inner + a * (p + 1)] += 1.0
    logs += cholesky(v, inner, c, p)
    invert(v, inner, o[LEFT], c, p)
    apply(v, o[LEFT], b, out, c, p)  # F^T S^-1 x
    square = total(distance)
    square -= dot(v, b, v, out, p)
    tail_logs(v, o[LOGS], n)
    grow = math.exp(-w[base + KAPPA])
    u = judge_tails(w, base, base + TAILS, v, o[LOGS], o[SHARES], n, max(square, 0.0), logs)
    slopes(v, o, c, p, s)
    at = 0
    for k in range(members):
        share, rank = v[o[WEIGHTS] + k], int(table[k, RANK])
        outer, trace = 0.0, 0.0
        for a in range(at, at + rank):
            outer += v[out + a] ** 2 / share
            trace += v[b + a] / share
        at += rank
        first, second = spread(0.0), spread(0.0)
        for i in range(0, s, 8):
            noise = load(v, o[NOISES] + k * s + i)
            first = fma(noise, load(v, o[Y] + i), first)
            second = fma(noise, load(v, known + i), second)
        outer, trace = outer + total(first), trace + total(second)
        v[o[GRADIENT] + k] = 0.5 * (u * grow * outer - trace)
    weigh(w, base + ROOTS, v, o[WEIGHTS], o[GRADIENT], members, 1.0 / math.sqrt(n))
    settle(w, base, base + ROOTS, table, u)


@jit
def slopes(v: Any, o: Any, c: int, p: int, s: int) -> None:
    """Y = (S^-1 x)^2, PRECISION = diag S^-1, B = 1 - diag (I + F^T N^-1 F)^-1."""
    left, b, out = o[LEFT], o[B], o[OUT]
    for i in range(0, p, 8):
        acc = spread(1.0)
        for k in range(c):
            row = load(v, left + k * p + i)
            acc = acc - row * row
        store(v, b + i, acc)
    for i in range(0, s, 8):
        taken, y = spread(0.0), load(v, o[X] + i)
        for a in range(c):
            y = fma(spread(-v[out + a]), load(v, o[FACTORS] + a * s + i), y)
        for a in range(0, c, 4):
            x0, x1, x2, x3 = spread(0.0), spread(0.0), spread(0.0), spread(0.0)
            row = left + a * p
            for k in range(min(a + 4, c)):
                f = load(v, o[FACTORS] + k * s + i)
                x0, x1 = fma(spread(v[row + k]), f, x0), fma(spread(v[row + p + k]), f, x1)
                x2 = fma(spread(v[row + 2 * p + k]), f, x2)
                x3 = fma(spread(v[row + 3 * p + k]), f, x3)
            taken = fma(x0, x0, fma(x1, x1, fma(x2, x2, fma(x3, x3, taken))))
        known = load(v, o[PRECISION] + i)
        y = known * y
        store(v, o[Y] + i, y * y)
        store(v, o[PRECISION] + i, known - known * known * taken)


# ----------------------------------------------------------------------- channels come


@jit
def enter(w: Any, o: Any, table: Any, base: int, x: Any, line: int, r: int) -> None:
    """Channels whose first value other than zero is in this sample."""
    d, s, level = o[DIMENSION], o[STRIDE], base + o[LEVEL]
    new, mean, square = 0, 0.0, 0.0
    for i in range(d):
        if is_new(w, level, x, line, r, i):
            new += 1
            mean += math.log(x[line, r, i] ** 2)
    if new == 0:
        return
    mean /= new
    for i in range(d):
        if is_new(w, level, x, line, r, i):
            square += (math.log(x[line, r, i] ** 2) - mean) ** 2 / new
    chance = LOG_SQUARE_VAR * (1.0 + 2.0 * math.sqrt(LOG_SQUARE_SPREAD / new))
    apart = max(square - chance, 0.0)
    keep = apart / (apart + LOG_SQUARE_VAR)
    for i in range(d):
        if not is_new(w, level, x, line, r, i):
            continue
        power = x[line, r, i] ** 2
        guess = math.exp(mean - LOG_SQUARE_MEAN + keep * (math.log(power) - mean))
        w[level + i] = guess
        w[level + s + i] = 1.0
        w[level + 2 * s + i] = guess
        own = (power + PRIOR_ROWS * guess) / (1.0 + PRIOR_ROWS)
        for k in range(table.shape[0]):
            at, rank = base + int(table[k, PLACE]), int(table[k, RANK])
            size = w[at + (2 + rank) * s + 2 * rank * rank + SIZE]
            w[at + i] = math.exp(-size) * own
            w[at + s + i] = w[at + i]
            for a in range(rank):
                w[at + (2 + a) * s + i] = 0.0


@jit
def is_new(w: Any, level: int, x: Any, line: int, r: int, i: int) -> bool:
    """Whether this is the first value of a channel other than zero."""
    value = x[line, r, i]
    return w[level + i] == 0.0 and not math.isnan(value) and value * value > 0.0


# ----------------------------------------------------------------------- one sample


@jit
def step(w: Any, o: Any, table: Any, base: int, v: Any, x: Any, line: int, r: int) -> None:
    """One sample of one track, at the time it has."""
    d, s, level, members = o[DIMENSION], o[STRIDE], base + o[LEVEL], table.shape[0]
    n, there, some = 0, 0, False
    for i in range(d):
        value = x[line, r, i]
        seen, inside = not math.isnan(value), w[level + i] > 0.0
        v[o[X] + i] = value if seen else 0.0
        v[o[OPEN] + i] = 1.0 if seen and inside else 0.0
        n += 1 if seen and inside else 0
        there += 1 if inside else 0
        some = some or v[o[X] + i] * v[o[X] + i] > 0.0
    fresh = w[base + COUNT] == 0.0
    if fresh and not some:
        return
    if n == 0 and not fresh:
        enter(w, o, table, base, x, line, r)
        return
    limit = 1.0
    if n > 0:
        for i in range(d):
            v[o[X] + i] *= v[o[OPEN] + i]
        judge(w, o, table, base, v, float(n))
        limit = min(1.0, LIMIT * n / max(w[base + DISTANCE], 1e-300))
        for i in range(d):
            if v[o[OPEN] + i] > 0.0:
                w[level + s + i] += 1.0
                gain = 1.0 / min(w[level + s + i] + PRIOR_ROWS, LEVEL_MEMORY)
                w[level + i] += gain * (limit * v[o[X] + i] ** 2 - w[level + i])
    w[base + COUNT] += 1.0
    w[base + SAMPLES] += 1.0
    if fresh:
        for k in range(members):
            rank = int(table[k, RANK])
            numbers = base + int(table[k, PLACE]) + (2 + rank) * s + 2 * rank * rank
            w[numbers + N_NOISE] = 1.0 + PRIOR_ROWS
            w[numbers + N_METRIC] = 1.0 + PRIOR_ROWS
    if n > 0:
        for k in range(members):
            learn(w, o, table[k], base, v, float(n), n / there)
    if there < d:
        enter(w, o, table, base, x, line, r)
    at = int(w[base + BUFFERED])
    if at < o[ROWS]:
        there = 0
        for i in range(d):
            value = x[line, r, i]
            value = 0.0 if math.isnan(value) else value
            w[base + o[BUFFER] + at * s + i] = math.sqrt(limit) * value
            there += 1 if w[level + i] > 0.0 else 0
        w[base + BUFFERED] = at + 1.0
        for k in range(members):
            for stage in range(STAGE, STAGE + N_STAGES):
                if table[k, stage] == at + 1.0:
                    start_axes(w, o, table[k], base, at + 1, there)


@jit
def note(w: Any, o: Any, table: Any, base: int, v: Any, records: Any, line: int) -> None:
    """The head, tails and weights of a row and, where there is room, its factors and noise."""
    small = ROOTS + table.shape[0]
    for i in range(min(small, records.shape[1])):
        records[line, i] = w[base + i]
    if records.shape[1] <= small:
        return
    blend(w, o, table, base, v, not math.isnan(w[base + VALUES]))
    d, s, c = o[DIMENSION], o[STRIDE], o[COLUMNS]
    for i in range(d):
        absent = w[base + o[LEVEL] + i] == 0.0
        for a in range(c):
            value = math.nan if absent else v[o[FACTORS] + a * s + i]
            records[line, small + i * c + a] = value
        records[line, small + d * c + i] = math.nan if absent else v[o[NOISE] + i]


@compiled(
    "void(float64[::1], int64[::1], float64[:, :, ::1], float64[::1], float64[::1],"
    " float64[:, ::1], int64[::1], float64[::1], float64[:, ::1], int8[::1])",
)
def run(
    w: Any,
    which: Any,
    seen: Any,
    counts: Any,
    dt: Any,
    table: Any,
    o: Any,
    v: Any,
    records: Any,
    status: Any,
) -> None:
    """Take in lines ``(N, m, d)`` in order; line l belongs to the row ``which[l]`` of w.

    The samples of a line are taken one after the other, at one time. counts[l] = 0: no
    observation; below 0: no step, only a record. Nothing happens to a track whose line is INVALID.
    """
    for line in range(which.shape[0]):
        base = which[line] * o[SIZE_OF_ROW]
        m = 0.0
        if counts[line] > 0.0:
            m = take_samples(seen, line)
        status[line] = INVALID if m < 0.0 else OBSERVED if m > 0.0 else MISSING
        if counts[line] >= 0.0 and m >= 0.0:
            likelihood, distance, values = math.nan, 0.0, 0.0
            w[base + TIME] += dt[line]
            if w[base + COUNT] > 0.0:
                for k in range(table.shape[0]):
                    drift(w, o, table[k], base, dt[line])
            if m > 0.0:
                w[base + SEEN] = w[base + TIME]
            for r in range(seen.shape[1] if m > 0.0 else 0):
                w[base + LIKELIHOOD] = math.nan
                step(w, o, table, base, v, seen, line, r)
                if not math.isnan(w[base + LIKELIHOOD]):
                    before = 0.0 if math.isnan(likelihood) else likelihood
                    likelihood = before + w[base + LIKELIHOOD]
                    distance += w[base + DISTANCE]
                    values += w[base + VALUES]
            nothing = math.isnan(likelihood)
            w[base + LIKELIHOOD] = likelihood
            w[base + DISTANCE] = math.nan if nothing else distance
            w[base + VALUES] = math.nan if nothing else values
        if records.shape[0] > 0:
            note(w, o, table, base, v, records, line)
