"""The compiled loop for many channels: forecast, judge and learn, one sample at a time.

The twin of :mod:`kgmrf.engines.low_rank_step`, where the formulas are told. One loop serves a
tracker, a batch, a bank and a stream: a line says which row it belongs to. Linear in d.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kgmrf._types import Numbers
from kgmrf.engines import layout as row
from kgmrf.engines import low_rank_step as maths
from kgmrf.engines.ensemble_step import LEVEL_MEMORY
from kgmrf.engines.low_rank import up
from kgmrf.kernels import low_rank_members as at
from kgmrf.kernels.check import INVALID, MISSING, OBSERVED, take_samples
from kgmrf.kernels.compile import compiled, jit
from kgmrf.kernels.judge import blend_weights, judge_tails, settle, tail_logs, weigh
from kgmrf.kernels.lanes import div, fma, load, spread, store, total
from kgmrf.kernels.low_rank_members import apply, cholesky, dot, invert, products

NOTHING, ENTERED, COUNTED, COAST = range(4)
"""Why the loop stops: for `kgmrf.engines.low_rank_step.arrive`, or for `coast`."""

TAILS, ROOTS = row.N_HEAD, row.N_HEAD + 2 * row.N_TAILS


def work(plan: Any) -> tuple[Numbers, Numbers]:
    """Offsets ``(N_PLACES,)`` and a fresh array for one worker."""
    s, c, k = plan.stride, plan.columns, len(plan.members)
    p, r = up(c), up(max(member.rank for member in plan.members))
    vectors, squares, small = (s,) * 9 + (k * s, c * s, c * s), (p * p,) * 2, (r * r,) * 5
    sizes = (*vectors, *squares, p, p, *small, r, r, r, 2 * r, k, k, row.N_TAILS, row.N_TAILS)
    begins = np.cumsum([0, *(up(size) for size in sizes)])
    counts = (plan.d, s, c, plan.channels, plan.buffer, plan.rows, plan.size)
    return np.array([*begins[:-1], *counts]), np.zeros(begins[-1])


@jit
def blend(w: Any, o: Any, table: Any, base: int, v: Any, sharp: bool) -> None:
    """FACTORS ``(columns, s)`` with member k times sqrt(w_k), NOISES of each, NOISE of all."""
    s, members = o[at.STRIDE], table.shape[0]
    blend_weights(w, base + ROOTS, v, o[at.WEIGHTS], members, sharp)
    to = o[at.FACTORS]
    for k in range(members):
        at.hold(w, o, table[k], base, v, v[o[at.WEIGHTS] + k], to, o[at.NOISES] + k * s)
        to += int(table[k, maths.RANK]) * s
    for i in range(0, s, 8):
        acc = spread(0.0)
        for k in range(members):
            acc = fma(spread(v[o[at.WEIGHTS] + k]), load(v, o[at.NOISES] + k * s + i), acc)
        store(v, o[at.NOISE] + i, acc)


@jit
def judge(w: Any, o: Any, table: Any, base: int, v: Any, n: float) -> None:
    """log p(x) over the open channels; the tails, kappa and the weights learn from it."""
    s, c, members, inner, b, out = (
        o[at.STRIDE],
        o[at.COLUMNS],
        table.shape[0],
        o[at.INNER],
        o[at.B],
        o[at.OUT],
    )
    p = 8 * ((c + 7) // 8)
    blend(w, o, table, base, v, False)
    known, one = o[at.PRECISION], spread(1.0)
    logs, distance = 0.0, spread(0.0)
    for i in range(0, s, 8):
        here = load(v, o[at.OPEN] + i)
        x, noise = load(v, o[at.X] + i), fma(here, load(v, o[at.NOISE] + i), one - here)
        inverse = div(here, noise)
        store(v, known + i, inverse)
        distance = fma(x * inverse, x, distance)
    for i in range(o[at.DIMENSION]):
        if v[o[at.OPEN] + i] > 0.0:
            logs += math.log(v[o[at.NOISE] + i])
    for a in range(c):
        to = o[at.HALF] + a * s
        for i in range(0, s, 8):
            store(v, to + i, load(v, o[at.FACTORS] + a * s + i) * load(v, known + i))
        v[b + a] = dot(v, to, v, o[at.X], s)
    products(v, o[at.FACTORS], v, o[at.HALF], inner, c, p, s)
    for a in range(c):
        v[inner + a * (p + 1)] += 1.0
    logs += cholesky(v, inner, c, p)
    invert(v, inner, o[at.LEFT], c, p)
    apply(v, o[at.LEFT], b, out, c, p)  # F^T S^-1 x
    square = total(distance)
    square -= dot(v, b, v, out, p)
    tail_logs(v, o[at.LOGS], n)
    grow = math.exp(-w[base + row.KAPPA])
    u = judge_tails(w, base, base + TAILS, v, o[at.LOGS], o[at.SHARES], n, max(square, 0.0), logs)
    slopes(v, o, c, p, s)
    first = 0
    for k in range(members):
        share, rank = v[o[at.WEIGHTS] + k], int(table[k, maths.RANK])
        outer, trace = 0.0, 0.0
        for a in range(first, first + rank):
            outer += v[out + a] ** 2 / share
            trace += v[b + a] / share
        first += rank
        along, beside = spread(0.0), spread(0.0)
        for i in range(0, s, 8):
            noise = load(v, o[at.NOISES] + k * s + i)
            along = fma(noise, load(v, o[at.Y] + i), along)
            beside = fma(noise, load(v, known + i), beside)
        outer, trace = outer + total(along), trace + total(beside)
        v[o[at.GRADIENT] + k] = 0.5 * (u * grow * outer - trace)
    weigh(w, base + ROOTS, v, o[at.WEIGHTS], o[at.GRADIENT], members, 1.0 / math.sqrt(n))
    settle(w, base, base + ROOTS, table, u)


@jit
def slopes(v: Any, o: Any, c: int, p: int, s: int) -> None:
    """Y = (S^-1 x)^2, PRECISION = diag S^-1, B = 1 - diag (I + F^T N^-1 F)^-1."""
    left, b, out = o[at.LEFT], o[at.B], o[at.OUT]
    for i in range(0, p, 8):
        acc = spread(1.0)
        for k in range(c):
            row = load(v, left + k * p + i)
            acc = acc - row * row
        store(v, b + i, acc)
    for i in range(0, s, 8):
        taken, y = spread(0.0), load(v, o[at.X] + i)
        for a in range(c):
            y = fma(spread(-v[out + a]), load(v, o[at.FACTORS] + a * s + i), y)
        for a in range(0, c, 4):
            x0, x1, x2, x3 = spread(0.0), spread(0.0), spread(0.0), spread(0.0)
            row = left + a * p
            for k in range(min(a + 4, c)):
                f = load(v, o[at.FACTORS] + k * s + i)
                x0, x1 = fma(spread(v[row + k]), f, x0), fma(spread(v[row + p + k]), f, x1)
                x2 = fma(spread(v[row + 2 * p + k]), f, x2)
                x3 = fma(spread(v[row + 3 * p + k]), f, x3)
            taken = fma(x0, x0, fma(x1, x1, fma(x2, x2, fma(x3, x3, taken))))
        known = load(v, o[at.PRECISION] + i)
        y = known * y
        store(v, o[at.Y] + i, y * y)
        store(v, o[at.PRECISION] + i, known - known * known * taken)


# ----------------------------------------------------------------------- one sample


@jit
def step(w: Any, o: Any, table: Any, base: int, v: Any, x: Any, line: int, r: int) -> int:
    """One sample of one track, at the time it has; returns what is left to do for `arrive`."""
    d, s, level, members = o[at.DIMENSION], o[at.STRIDE], base + o[at.LEVEL], table.shape[0]
    n, there, new = 0, 0, False
    for i in range(d):
        value = x[line, r, i]
        seen, inside = not math.isnan(value), w[level + i] > 0.0
        v[o[at.X] + i] = value if seen and inside else 0.0
        v[o[at.OPEN] + i] = 1.0 if seen and inside else 0.0
        n += 1 if seen and inside else 0
        there += 1 if inside else 0
        new = new or (seen and not inside and value * value > 0.0)
    fresh, limit = w[base + row.COUNT] == 0.0, 1.0
    if n == 0 and not (fresh and new):
        return ENTERED if new else NOTHING
    if n > 0:
        before, distance = w[base + row.LIKELIHOOD], w[base + row.DISTANCE]
        values = w[base + row.VALUES]
        judge(w, o, table, base, v, float(n))
        limit = min(1.0, maths.LIMIT * n / max(w[base + row.DISTANCE], 1e-300))
        if not math.isnan(before):  # of the samples of this line that came before
            w[base + row.LIKELIHOOD] += before
            w[base + row.DISTANCE] += distance
            w[base + row.VALUES] += values
        for i in range(d):
            if v[o[at.OPEN] + i] > 0.0:
                w[level + s + i] += 1.0
                gain = 1.0 / min(w[level + s + i] + maths.PRIOR_ROWS, LEVEL_MEMORY)
                w[level + i] += gain * (limit * v[o[at.X] + i] ** 2 - w[level + i])
    w[base + row.COUNT] += 1.0
    w[base + row.SAMPLES] += 1.0
    for k in range(members if n > 0 else 0):
        at.learn(w, o, table[k], base, v, float(n), n / there)
    filled = int(w[base + maths.BUFFERED])
    if filled == o[at.ROWS]:
        return ENTERED if new else NOTHING
    for i in range(d):
        value = x[line, r, i]
        value = 0.0 if math.isnan(value) else value
        w[base + o[at.BUFFER] + filled * s + i] = math.sqrt(limit) * value
    w[base + maths.BUFFERED] = filled + 1.0
    for k in range(members):
        for stage in range(maths.STAGE, maths.STAGE + maths.N_STAGES):
            new = new or table[k, stage] == filled + 1.0
    return COUNTED if new else NOTHING


@jit
def note(w: Any, o: Any, table: Any, base: int, v: Any, records: Any, line: int) -> None:
    """The head, tails and weights of a row and, where there is room, its factors and noise."""
    small = ROOTS + table.shape[0]
    for i in range(min(small, records.shape[1])):
        records[line, i] = w[base + i]
    if records.shape[1] <= small:
        return
    blend(w, o, table, base, v, not math.isnan(w[base + row.VALUES]))
    d, s, c = o[at.DIMENSION], o[at.STRIDE], o[at.COLUMNS]
    for i in range(d):
        absent = w[base + o[at.LEVEL] + i] == 0.0
        for a in range(c):
            value = math.nan if absent else v[o[at.FACTORS] + a * s + i]
            records[line, small + i * c + a] = value
        records[line, small + d * c + i] = math.nan if absent else v[o[at.NOISE] + i]


@jit
def begin(w: Any, o: Any, table: Any, base: int, dt: float, seen: bool) -> None:
    """Time goes on by dt, up to the observations of a line."""
    w[base + row.TIME] += dt
    if w[base + row.COUNT] > 0.0:
        for k in range(table.shape[0]):
            at.drift(w, o, table[k], base, dt)
    if seen:
        w[base + row.SEEN] = w[base + row.TIME]
    w[base + row.LIKELIHOOD] = math.nan
    w[base + row.DISTANCE] = math.nan
    w[base + row.VALUES] = math.nan


@compiled(
    "boolean(float64[::1], int64[::1], float64[:, :, ::1], float64[::1], float64[::1],"
    " float64[:, ::1], int64[::1], float64[::1], float64[:, ::1], int8[::1], int64[::1])",
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
    mark: Any,
) -> bool:
    """Take in lines ``(N, m, d)`` in order; line l belongs to the row ``which[l]`` of w.

    The samples of a line are taken one after the other, at one time. counts[l] = 0: no
    observation; below 0: no step, only a record. Nothing happens to a track whose line is INVALID.

    What is rare is not compiled. There the loop stops and returns True; mark holds the line, the
    number of its samples that are done, and what is to be done before the loop is called again.
    """
    velocity = table[:, maths.ACCELERATION].max() > 0.0
    for line in range(mark[0], which.shape[0]):
        base = which[line] * o[at.SIZE_OF_ROW]
        if mark[1] == 0:
            m = take_samples(seen, line) if counts[line] > 0.0 else 0.0
            status[line] = INVALID if m < 0.0 else OBSERVED if m > 0.0 else MISSING
            if counts[line] >= 0.0 and m >= 0.0:
                if velocity and mark[2] != COAST:
                    mark[0], mark[2] = line, COAST
                    return True
                begin(w, o, table, base, dt[line], m > 0.0)
        for r in range(mark[1], seen.shape[1] if status[line] == OBSERVED else 0):
            left = step(w, o, table, base, v, seen, line, r)
            if left != NOTHING:
                mark[0], mark[1], mark[2] = line, r + 1, left
                return True
        mark[1], mark[2] = 0, NOTHING
        if records.shape[0] > 0:
            note(w, o, table, base, v, records, line)
    return False
