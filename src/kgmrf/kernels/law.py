"""The compiled loop of single laws over lines of tracks, up to eight at a time."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from kgmrf.kernels import blocks as on
from kgmrf.kernels import layout as row
from kgmrf.kernels.blocks import (
    at_matrix,
    at_planes,
    at_vector,
    at_work,
    check_covariances,
    check_rotations,
    judged,
    take,
)
from kgmrf.kernels.check import INVALID, MISSING, OBSERVED
from kgmrf.kernels.compile import compiled, jit
from kgmrf.kernels.eigen import jacobi, sort_rows
from kgmrf.kernels.lanes import turned
from kgmrf.kernels.law_rotations import measure_rotations, start_rotations
from kgmrf.kernels.law_step import adapt_spectra, correct, drift, measure_covariances, turn_frames
from kgmrf.step import POLISH_EVERY, SMALLEST_SPECTRUM

LOG_TWO_PI = math.log(2.0 * math.pi)


@jit
def shift(
    flat: Any, starts: Any, n: int, count: int, w: Any, to: int, opening: bool, own: Any, here: Any
) -> None:
    """n numbers from each of ``count`` places into the lanes of w, or back."""
    at = 0
    if count == 8:
        while at + 8 <= n:
            for k in range(8):
                own[k], here[k] = starts[k] + at, to + 8 * (at + k)
            if opening:
                turned(flat, own, w, here)
            else:
                turned(w, here, flat, own)
            at += 8
    for k in range(count):
        for j in range(at, n):
            if opening:
                w[to + 8 * j + k] = flat[starts[k] + j]
            else:
                flat[starts[k] + j] = w[to + 8 * j + k]


@jit
def move(
    flat: Any, size: int, tracks: Any, w: Any, opening: bool, information: bool, d: int, places: Any
) -> None:
    """Rows (or records) of ``size`` numbers into the lanes of w, or back, as far as they reach.

    tracks: which rows, below 0 none from there on; places: room for offsets, ``(3, 8)``.
    """
    n, count = at_planes(4 if information else 1, d) // 8, 0
    while count < 8 and tracks[count] >= 0:
        places[0, count] = tracks[count] * size
        count += 1
    shift(flat, places[0], min(n, size), count, w, 0, opening, places[1], places[2])
    if size > n:
        for k in range(count):
            places[0, k] += n
        pool = at_planes(4, d)
        shift(flat, places[0], size - n, count, w, pool, opening, places[1], places[2])


@jit
def pool_lane(w: Any, k: int, head: Any, known: Any, mine: int, m: float, d: int) -> None:
    """Cold start of lane k: the eigendecomposition of the mean of all samples so far."""
    s = -(-d // 8) * 8
    own = np.zeros(2 * s * s)
    v, mean, seen = s * s, at_planes(4, d) + k, at_matrix(on.SEEN, d) + k
    count = w[8 * row.POOL_SAMPLES + k] + m
    at = 0
    for i in range(d):
        own[v + i * s + i] = 1.0
        for j in range(i + 1):
            x = w[mean + 8 * at]
            x += m / count * (w[seen + 8 * (i * d + j)] - x)
            w[mean + 8 * at] = x
            own[i * s + j] = own[j * s + i] = x
            at += 1
    jacobi(own, 0, v, d, s)
    sign = sort_rows(own, 0, v, d, s)
    lowest = SMALLEST_SPECTRUM * own[0]
    lam, var = at_vector(on.SPECTRUM, d) + k, at_vector(on.SPECTRUM_VAR, d) + k
    for i in range(d):
        w[lam + 8 * i] = max(own[i * s + i] - head[row.NOISE_FLOOR], lowest)
        if head[row.KNOWN] != 0.0:
            w[lam + 8 * i] = known[mine, i]
        w[var + 8 * i] = 2.0 / count
        for j in range(d):
            w[on.FRAME + 8 * (j * d + i) + k] = own[v + i * s + j] * (sign if i == d - 1 else 1.0)
    w[8 * row.POOL_SAMPLES + k] = count
    w[8 * row.POOL_FRAMES + k] += 1.0


@jit
def prepare(
    w: Any, lane: Any, head: Any, known: Any, mine: int, k: int, there: bool, m: float, d: int
) -> None:
    """The clocks of lane k, what its interval does, and its cold start; mine: its row of known."""
    samples, frames = w[8 * row.POOL_SAMPLES + k], w[8 * row.POOL_FRAMES + k]
    pooling = samples < head[row.WARMUP_SAMPLES] and frames < head[row.WARMUP_FRAMES]
    started, dt = not math.isnan(w[8 * row.SEEN + k]), lane[on.DT + k]
    moves = started and not pooling
    lane[on.MOVES + k] = 1.0 if moves else 0.0
    if not moves:
        lane[on.TURN + k], lane[on.DECAY + k] = 0.0, 1.0
        lane[on.ANGLE + k] = lane[on.CROSS + k] = lane[on.RATE + k] = 0.0
    lane[on.STRENGTH + k] = m
    w[8 * row.TIME + k] += dt
    w[8 * row.NIS + k] = math.nan
    w[8 * row.LIKELIHOOD + k] = math.nan
    if there:
        w[8 * row.SEEN + k] = w[8 * row.TIME + k]
    if moves and dt > 0.0:
        w[8 * row.STEPS + k] += 1.0
        if w[8 * row.STEPS + k] % POLISH_EVERY == 0.0:
            lane[on.DUE + k] = 1.0
    if moves and head[row.SCALE_RATE] != 0.0:
        keep = head[row.SCALE_RETENTION] ** dt
        w[8 * row.LOG_SCALE + k] *= keep
        w[8 * row.SCALE_VAR + k] = (
            keep * keep * w[8 * row.SCALE_VAR + k] + head[row.SCALE_RATE] * dt
        )
    lane[on.THERE + k] = 1.0 if there else 0.0
    if not there:
        return
    if head[row.ROTATION] != 0.0 and not started:
        lane[on.STARTS + k] = 1.0
        lane[on.THERE + k] = 0.0
    if head[row.ROTATION] == 0.0 and pooling:
        pool_lane(w, k, head, known, mine, m, d)
        lane[on.THERE + k] = 0.0


@jit
def finish(w: Any, lane: Any, head: Any, k: int, d: int) -> None:
    """Likelihood, nis and scale clock of lane k after its observation."""
    m, terms = lane[on.STRENGTH + k], lane[on.LOGS + k] + lane[on.RATIOS + k]
    w[8 * row.NIS + k] = lane[on.SQUARES + k]
    if head[row.ROTATION] != 0.0:
        terms += 0.5 * d * (d - 1) * LOG_TWO_PI
        w[8 * row.LIKELIHOOD + k] = -0.5 * terms
        return
    terms += d * (LOG_TWO_PI + w[8 * row.LOG_SCALE + k])
    w[8 * row.LIKELIHOOD + k] = -0.5 * m * terms
    if head[row.SCALE_RATE] != 0.0:
        ratio = 0.0
        for j in range(d):
            ratio += w[at_work(on.POWER, d) + 8 * j + k] / w[at_vector(on.SPECTRUM, d) + 8 * j + k]
        var = w[8 * row.SCALE_VAR + k]
        gain = var / (var + 2.0 / (m * d))
        w[8 * row.LOG_SCALE + k] += math.log1p(gain * (ratio / d - 1.0))
        w[8 * row.SCALE_VAR + k] = (1.0 - gain) * var


@lru_cache(maxsize=2)
def loop(rotation: bool) -> Any:
    """The loop for rotations or for covariances: `run`, compiled for no more than it needs."""

    @compiled(
        "void(float64[:, ::1], int64[::1], float64[:, :, ::1], int8[::1], float64[::1],"
        " float64[:, ::1], int64[::1], float64[::1], float64[:, :, :, ::1], float64[:, ::1],"
        " float64, float64[:, ::1], int8[::1])"
    )
    def run(
        rows: Any,
        which: Any,
        seen: Any,
        present: Any,
        strength: Any,
        steps: Any,
        interval: Any,
        head: Any,
        tables: Any,
        known: Any,
        tolerance: float,
        records: Any,
        status: Any,
    ) -> None:
        """Take in lines in order, up to eight of different tracks together; rows change.

        which ``(N,)``: the row of each line. seen ``(N, d, d)``. present: 1 where there is an
        observation, 0 where there is none, -1 where not even time passes. strength: samples
        behind the matrix, or noise variance of the rotation. interval: which of steps ``(K, 7)``
        leads to the line. tables and known: for all rows, or one for each. tolerance: of the
        check; below 0 none. A line that is INVALID changes nothing. records ``(N or 0, room)``
        keep the beginnings of rows.
        """
        d, lines = seen.shape[1], which.size
        information = head[row.INFORMATION] != 0.0
        w, lane = np.zeros(at_work(3, d)), np.zeros(on.N_LANES)
        tracks, order, held = np.full(8, -1), np.full(8, -1), 0
        frames, places = seen.reshape(seen.size), np.empty((3, 8), np.int64)
        flat, size = rows.reshape(rows.size), rows.shape[1]
        notes, room = records.reshape(records.size), records.shape[1]
        line = 0
        while line < lines:
            count = 1
            while count < 8 and line + count < lines:
                new = True
                for k in range(count):
                    new = new and which[line + k] != which[line + count]
                if not new:
                    break
                count += 1
            same = count == held
            for k in range(count):
                same = same and which[line + k] == tracks[k]
            if not same:
                move(flat, size, tracks, w, False, information, d, places)
                for k in range(8):
                    tracks[k] = which[line + k] if k < count else -1
                move(flat, size, tracks, w, True, information, d, places)
                held = count
            every = count == 8
            for k in range(count):
                every = every and present[line + k] > 0
            if every:
                for k in range(8):
                    places[0, k] = (line + k) * d * d
                to = at_matrix(on.SEEN, d)
                shift(frames, places[0], d * d, 8, w, to, True, places[1], places[2])
            for k in range(8):
                there = k < count and present[line + k] > 0
                lane[on.THERE + k] = 1.0 if there else 0.0
                lane[on.FINE + k] = 1.0
                if not every:
                    take(seen, line + k if there else -1, w, k, d)
            if rotation:
                check_rotations(w, lane, d, tolerance)
            else:
                check_covariances(w, lane, d, tolerance)
            for k in range(8):
                lane[on.MOVES + k] = lane[on.STARTS + k] = lane[on.DUE + k] = 0.0
                lane[on.TURN + k] = lane[on.ANGLE + k] = lane[on.CROSS + k] = lane[on.RATE + k] = (
                    0.0
                )
                lane[on.DECAY + k], lane[on.DT + k], lane[on.STRENGTH + k] = 1.0, 0.0, 1.0
                if k >= count:
                    continue
                at, found = line + k, MISSING
                if lane[on.THERE + k] > 0.5:
                    found = judged(seen, at, w, lane, k, d, tolerance < 0.0)
                status[at], lane[on.THERE + k] = found, 0.0
                if found == INVALID or present[at] < 0:
                    continue
                over = interval[at]
                lane[on.TURN + k] = steps[over, 0]
                lane[on.DECAY + k] = steps[over, 1 if found == OBSERVED else 2]
                lane[on.ANGLE + k], lane[on.CROSS + k] = steps[over, 3], steps[over, 4]
                lane[on.RATE + k], lane[on.DT + k] = steps[over, 5], steps[over, 6]
                mine = min(tracks[k], known.shape[0] - 1)
                prepare(w, lane, head, known, mine, k, found == OBSERVED, strength[at], d)
            drift(w, lane, head, d)
            if rotation:
                start_rotations(w, lane, information, d)
                measure_rotations(w, lane, head, d)
            else:
                measure_covariances(w, lane, head, d)
            correct(w, lane, head, tables, tracks, d)
            turn_frames(w, lane, d)
            for k in range(count):
                if lane[on.THERE + k] > 0.5:
                    finish(w, lane, head, k, d)
            if head[row.SPECTRUM_RATE] != 0.0:
                adapt_spectra(w, lane, d, head[row.NOISE_FLOOR])
            if records.shape[0] > 0:
                for k in range(8):
                    order[k] = line + k if k < count else -1
                move(notes, room, order, w, False, information, d, places)
            line += count
        move(flat, size, tracks, w, False, information, d, places)

    return run
