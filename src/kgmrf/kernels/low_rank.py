"""The loop for many channels: forecast, judge and learn, one sample at a time; linear in d.

One step of all members:

    drift     s, the counts, U, V and P move on by dt
    hold      S_k = F_k F_k^T + diag N_k
    forecast  S = sum_k w_k S_k, again factors plus a diagonal; p(x) as of the small ensemble
    judge     tails, kappa and w learn from how well the forecast did
    learn     noise, spectrum, axes and size of every member
    arrive    channels come, and axes start from the first rows by singular values

`kgmrf.kernels.low_rank_members` has what concerns one member, `kgmrf.engines.low_rank_step` what is
rare. One loop serves a tracker, a batch, a bank and a stream: a line says which row it belongs to.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kgmrf.engines import layout as at
from kgmrf.engines import low_rank_step as maths
from kgmrf.engines.members import LEVEL_MEMORY
from kgmrf.kernels.check import INVALID, MISSING, OBSERVED, take_samples
from kgmrf.kernels.compile import compiled
from kgmrf.kernels.compile import jit_views as jit
from kgmrf.kernels.judge import blend_weights, judge_tails, settle, tail_logs, weigh
from kgmrf.kernels.lanes import bare
from kgmrf.kernels.low_rank_members import (
    along,
    apply,
    cholesky,
    drift,
    gram,
    hold,
    inverse_of,
    learn,
    overlap,
    product,
    times,
)

NOTHING, ENTERED, COUNTED, COAST = range(4)
"""Why the loop stops: for `kgmrf.engines.low_rank_step.arrive`, or for `coast`."""

TAILS, ROOTS = at.N_HEAD, at.N_HEAD + 2 * at.N_TAILS
DIMENSION, STRIDE, COLUMNS, LEVEL, BUFFER, ROWS = range(6)
"""Places in the counts of a plan: see `kgmrf.engines.low_rank.Layout`."""
BLOCK = 16  # rows of a triangle that are multiplied at once


@jit
def channels(row: Any, o: Any) -> Any:
    """Level and count of each channel, ``(2, s)``."""
    return row[o[LEVEL] : o[LEVEL] + 2 * o[STRIDE]].reshape(2, o[STRIDE])


@jit
def blend(row: Any, o: Any, table: Any, work: Any, sharp: bool) -> Any:
    """Weights w; F ``(columns, s)`` with member k times sqrt(w_k), and noises N_k ``(K, s)``."""
    c, s, members, level = o[COLUMNS], o[STRIDE], table.shape[0], channels(row, o)[0]
    weights, factors, noises = np.empty(members), work[:c], work[c:]
    blend_weights(row, ROOTS, weights, 0, members, sharp)
    first = 0
    for k in range(members):
        last = first + int(table[k, maths.RANK])
        hold(row, table[k], s, level, weights[k], factors[first:last], noises[k])
        first = last
    return weights, factors, noises


@jit
def judge(row: Any, o: Any, table: Any, work: Any, x: Any, here: Any, n: int) -> None:
    """log p(x) over the channels ``here``; the tails, kappa and the weights learn from it.

    The weights follow <S^-1 x x^T S^-1, S_k> and <S^-1, S_k>, where
    F^T S^-1 F = I - (I + F^T N^-1 F)^-1.
    """
    c, s, members = o[COLUMNS], o[STRIDE], table.shape[0]
    weights, factors, noises = blend(row, o, table, work, False)
    noise, inverse, log_det = along(weights, noises), np.zeros(s), 0.0
    for i in range(s):
        if here[i] > 0.0:
            inverse[i] = 1.0 / noise[i]
            log_det += math.log(noise[i])
    half = times(factors, inverse)
    inner, beside, kept = np.eye(c), np.zeros(s), np.zeros(c)
    for a in range(0, c, BLOCK):
        end = min(a + BLOCK, c)
        block = gram(half[a:end], factors[:end])
        for i in range(a, end):
            for j in range(end):
                inner[i, j] += block[i - a, j]
    log_det += cholesky(inner)
    left, b = inverse_of(inner), apply(half, x)
    out = along(apply(left, b), left)  # F^T S^-1 x
    for a in range(0, c, BLOCK):
        end = min(a + BLOCK, c)
        part = product(left[a:end, :end].copy(), half[:end])
        overlap(beside, part, part)
    overlap(kept, left, left)
    told = along(out, half)
    distance, y = 0.0, np.empty(s)  # y: (S^-1 x)^2
    for i in range(s):
        solved = x[i] * inverse[i] - told[i]
        distance += x[i] * solved
        y[i] = solved * solved
        inverse[i] -= beside[i]  # now diag S^-1
    distance = max(distance, 0.0)
    # One array for `judge_tails` and `weigh`: logs and shares of the tails, weights, gradient.
    numbers, values = np.empty(2 * at.N_TAILS + 2 * members), float(n)
    tail_logs(numbers, 0, values)
    grow = math.exp(-row[at.KAPPA])
    u = judge_tails(row, 0, TAILS, numbers, 0, at.N_TAILS, values, distance, log_det)
    outer, trace = apply(noises, y), apply(noises, inverse)
    to, a = 2 * at.N_TAILS, 0
    for k in range(members):
        for _ in range(int(table[k, maths.RANK])):
            outer[k] += out[a] * out[a] / weights[k]
            trace[k] += (1.0 - kept[a]) / weights[k]
            a += 1
        numbers[to + k] = weights[k]
        numbers[to + members + k] = 0.5 * (u * grow * outer[k] - trace[k])
    weigh(row, ROOTS, numbers, to, to + members, members, 1.0 / math.sqrt(values))
    settle(row, 0, ROOTS, bare(table), at.ROOT, table.shape[1], members, u)


# ----------------------------------------------------------------------- one sample


@jit
def step(row: Any, o: Any, table: Any, work: Any, sample: Any) -> int:
    """One sample of one track, at the time it has; returns what is left to do for `arrive`."""
    known, members = channels(row, o), table.shape[0]
    level, counts = known[0], known[1]
    x, here = np.zeros(o[STRIDE]), np.zeros(o[STRIDE])
    n, there, new = 0, 0, False
    for i in range(o[DIMENSION]):
        seen, inside = not math.isnan(sample[i]), level[i] > 0.0
        there += 1 if inside else 0
        if seen and inside:
            x[i], here[i] = sample[i], 1.0
            n += 1
        new = new or (seen and not inside and sample[i] * sample[i] > 0.0)
    fresh, limit = row[at.COUNT] == 0.0, 1.0
    if n == 0 and not (fresh and new):
        return ENTERED if new else NOTHING
    if n > 0:
        before, distance, values = row[at.LIKELIHOOD], row[at.DISTANCE], row[at.VALUES]
        judge(row, o, table, work, x, here, n)
        limit = min(1.0, maths.LIMIT * n / max(row[at.DISTANCE], 1e-300))
        if not math.isnan(before):  # of the samples of this line that came before
            row[at.LIKELIHOOD] += before
            row[at.DISTANCE] += distance
            row[at.VALUES] += values
        for i in range(o[DIMENSION]):
            if here[i] > 0.0:
                counts[i] += 1.0
                gain = 1.0 / min(counts[i] + maths.PRIOR_ROWS, LEVEL_MEMORY)
                level[i] += gain * (limit * x[i] * x[i] - level[i])
    row[at.COUNT] += 1.0
    row[at.SAMPLES] += 1.0
    for k in range(members if n > 0 else 0):
        learn(row, table[k], o[STRIDE], known, x, here, n, n / there)
    filled = int(row[maths.BUFFERED])
    if filled == o[ROWS]:
        return ENTERED if new else NOTHING
    for i in range(o[DIMENSION]):
        value = 0.0 if math.isnan(sample[i]) else sample[i]
        row[o[BUFFER] + filled * o[STRIDE] + i] = math.sqrt(limit) * value
    row[maths.BUFFERED] = filled + 1.0
    for k in range(members):
        for stage in range(maths.STAGE, maths.STAGE + maths.N_STAGES):
            new = new or table[k, stage] == filled + 1.0
    return COUNTED if new else NOTHING


@jit
def note(row: Any, o: Any, table: Any, work: Any, record: Any) -> None:
    """The head, tails and weights of a row and, where there is room, its factors and noise."""
    small = ROOTS + table.shape[0]
    for i in range(min(small, record.shape[0])):
        record[i] = row[i]
    if record.shape[0] <= small:
        return
    weights, factors, noises = blend(row, o, table, work, not math.isnan(row[at.VALUES]))
    noise, level, d, c = along(weights, noises), channels(row, o)[0], o[DIMENSION], o[COLUMNS]
    for i in range(d):
        absent = level[i] == 0.0
        for a in range(c):
            record[small + i * c + a] = math.nan if absent else factors[a, i]
        record[small + d * c + i] = math.nan if absent else noise[i]


@jit
def begin(row: Any, o: Any, table: Any, dt: float, seen: bool) -> None:
    """Time goes on by dt, up to the observations of a line."""
    row[at.TIME] += dt
    if row[at.COUNT] > 0.0:
        for k in range(table.shape[0]):
            drift(row, table[k], o[DIMENSION], o[STRIDE], dt)
    if seen:
        row[at.SEEN] = row[at.TIME]
    row[at.LIKELIHOOD] = row[at.DISTANCE] = row[at.VALUES] = math.nan


@compiled(
    "boolean(float64[:, ::1], int64[::1], float64[:, :, ::1], float64[::1], float64[::1],"
    " float64[:, ::1], int64[::1], float64[:, ::1], float64[:, ::1], int8[::1], int64[::1])",
)
def run(
    rows: Any,
    which: Any,
    seen: Any,
    counts: Any,
    dt: Any,
    table: Any,
    o: Any,
    work: Any,
    records: Any,
    status: Any,
    mark: Any,
) -> bool:
    """Take in lines ``(N, m, d)`` in order; line l belongs to rows[which[l]].

    The samples of a line are taken one after the other, at one time. counts[l] = 0: no
    observation; below 0: no step, only a record. Nothing happens to a track whose line is INVALID.

    What is rare is not compiled. There the loop stops and returns True; mark holds the line, the
    number of its samples that are done, and what is to be done before the loop is called again.
    """
    velocity = table[:, maths.ACCELERATION].max() > 0.0
    for line in range(mark[0], which.shape[0]):
        row = rows[which[line]]
        if mark[1] == 0:
            m, length = 0.0, seen.shape[1] * seen.shape[2]
            if counts[line] > 0.0:
                m = take_samples(bare(seen), line * length, (line + 1) * length, seen.shape[2])
            status[line] = INVALID if m < 0.0 else OBSERVED if m > 0.0 else MISSING
            if counts[line] >= 0.0 and m >= 0.0:
                if velocity and mark[2] != COAST:
                    mark[0], mark[2] = line, COAST
                    return True
                begin(row, o, table, dt[line], m > 0.0)
        for r in range(mark[1], seen.shape[1] if status[line] == OBSERVED else 0):
            left = step(row, o, table, work, seen[line, r])
            if left != NOTHING:
                mark[0], mark[1], mark[2] = line, r + 1, left
                return True
        mark[1], mark[2] = 0, NOTHING
        if records.shape[0] > 0:
            note(row, o, table, work, records[line])
    return False
