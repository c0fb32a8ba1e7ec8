"""The ensemble: one Student-t forecast from K members, weighted by the gradient of its likelihood.

    drift     every member moves on by dt
    hold      S_k, the covariance that member k forecasts
    blend     S = sum_k w_k S_k,  p(x) = sum_j pi_j t_{nu_j}(x; scale e^kappa S)
    compare   the observation beside S (`kgmrf.readable.observe`)
    judge     pi, kappa and w learn from how well the forecast did; u weighs the observation
    learn     every member takes in u C

Here everything is a d x d matrix and nothing is fast; src/core/ensemble.hpp has the same names.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from kgmrf._types import Mask, Numbers
from kgmrf.constants import (
    EARLY,
    FARTHEST,
    FLOOR,
    INVALID,
    LEVEL_MEMORY,
    MISSING,
    OBSERVED,
    OUTLIER,
    SHRINKAGE,
    SIZE_DECAYS,
    SIZE_RETENTION,
    SMALLEST,
    STEADY_SHARE,
)
from kgmrf.engines import layout as at
from kgmrf.engines.horizon import LAST
from kgmrf.engines.layout import (
    Layout,
    Track,
    pack,
    pooling,
    present,
    turned,
    unpack,
)
from kgmrf.model.factors import heaviness
from kgmrf.readable.entering import arrive
from kgmrf.readable.observe import Compared, compare, compare_matrix, take_covariance, take_samples
from kgmrf.readable.rotating import drift_turning, hold_turning, learn_turning
from kgmrf.readable.score import look_ahead, score, weights_ahead
from kgmrf.readable.spread import learned, scatter_of, worth
from kgmrf.readable.top_clock import aim, drift_top, point


class Ensemble:
    """The loop over lines, as `kgmrf._core.Ensemble` has it.

    d: channels. table: the members, ``(K, columns)``. places: where the parts of a row begin; see
    :mod:`kgmrf.engines.layout`. learning: the numbers of a `kgmrf.engines.layout.Learning`.
    """

    def __init__(
        self, d: int, table: Numbers, places: Mapping[str, int], learning: Numbers
    ) -> None:
        begin = [places[name] for name in (*Track._fields, "end")]
        self.plan = Layout(d, table, np.array(begin), at.Learning(*learning))
        self.size = self.plan.size

    def run(
        self,
        rows: Numbers,
        track_index: Numbers,
        values: Numbers,
        counts: Numbers,
        dt: Numbers,
        matrix: bool,
        tolerance: float,
        records: Numbers,
        status: Numbers,
    ) -> None:
        """Take in lines (`kgmrf.engines.Lines`); rows, records and status are written."""
        for line, index in enumerate(track_index):
            row, seen, m, found = rows[index], values[line], 0.0, MISSING
            if counts[line] > 0.0 and matrix:
                seen, found = take_covariance(seen, tolerance)
                m = float(counts[line]) if found == OBSERVED else 0.0
            elif counts[line] > 0.0:
                m, found = take_samples(seen)
            status[line] = found
            if found == INVALID:
                continue
            track = at.track(row, self.plan)
            if counts[line] >= 0.0:
                step(track, self.plan, seen, m, float(dt[line]), matrix=matrix)
            if len(records):
                write_record(track, self.plan, row, records[line])


def write_record(track: Track, plan: Layout, row: Numbers, record: Numbers) -> None:
    """The head, tails and weights of a row and, where there is room, covariance and scale.

    The scale is e^kappa S'. In the covariance it has .01 of the steadiest average, so that as a
    Gaussian it is not lost where sensors get stuck: h e^b (.99 e^kappa S' + .01 S_B). An estimate
    at the time of an observation has nothing of that average, which would blur its axes.
    """
    small = plan.places["size"]
    record[:small] = row[: min(small, len(record))]
    if len(record) <= small:
        return
    if track.head[at.COUNT] == 0.0:
        record[small:] = np.nan
        return
    if len(track.scatter) and len(record) > small + plan.d**2 + plan.d * (plan.d + 1) // 2:
        record[-1] = track.scatter[at.WORTH]
    ahead, there = look_ahead(track, plan.table[:, at.HORIZON :]), present(track)
    sharp = not np.isnan(track.head[at.VALUES])
    weights = weights_ahead(track, ahead, sharp)
    parts = hold(track, plan)
    total = np.tensordot(weights, parts, 1)
    scale, heavy, share = total + aim(track, total).extra, 1.0, 0.0
    if track.head[at.COUNT] > 1.0:  # before that nothing is known of the tails
        scale *= np.exp(track.head[at.KAPPA])
        heavy = float(heaviness(track.tails[: at.N_TAILS], ahead.size_std))
        heavy *= math.exp(track.bias[0])
        share = 0.0 if sharp else STEADY_SHARE
    steadiest = plan.table[:, at.HEIR] == LAST
    whole = heavy * scale
    if steadiest.any():
        whole = heavy * ((1.0 - share) * scale + share * parts[steadiest][0])
    for matrix in (whole, scale):
        matrix[~there], matrix[:, ~there] = np.nan, np.nan
    both = np.concatenate([whole.reshape(-1), pack(scale)])
    end = min(len(record), small + len(both))
    record[small:end] = both[: end - small]


# ----------------------------------------------------------------------- drift and hold


def drift(track: Track, plan: Layout, dt: float) -> None:
    """s <- .98^dt s, V <- 2^(-dt/h) V, Q <- Q Exp(dt W), P <- F P F^T + noise.

    s decays in the first unit of time after an observation alone: 0 is not its mean.
    """
    table = plan.table
    track.size[:] *= SIZE_RETENTION ** decays(track, dt)
    drift_top(track, dt)
    track.head[at.TIME] += dt
    averages = table[:, at.KIND] == at.AVERAGE
    track.mass[:] *= 2.0 ** (-dt / table[averages, at.HALF_LIFE])
    if not pooling(track):
        drift_turning(track, plan, dt)


def decays(track: Any, dt: float) -> float:
    """How much of a time dt from now is within the first unit after the last observation."""
    age = track.head[at.TIME] - track.head[at.SEEN]
    return float(min(age + dt, SIZE_DECAYS) - min(age, SIZE_DECAYS))


def hold(track: Track, plan: Layout) -> Numbers:
    """S_k of every member, ``(K, d, d)``; zero for channels that are absent."""
    d, there = plan.d, present(track)
    out = np.zeros((len(plan.table), d, d))
    clock, channel, average, turning = 0, 0, 0, 0
    for whole, law in zip(out, plan.table, strict=True):
        if law[at.KIND] == at.TURNING:
            whole[:] = hold_turning(track, plan, turning)
            turning += 1
            continue
        whole[:] = np.eye(d)
        if law[at.KIND] == at.AVERAGE:
            keep = 1.0 - SHRINKAGE / (track.mass[average] + SHRINKAGE) * (1.0 - np.eye(d))
            whole[:] = keep * unpack(track.body[average], d)
            average += 1
            if law[at.SIZE_GAIN] > 0:
                whole *= np.exp(track.size[clock])
                clock += 1
        if law[at.CHANNEL] > 0:
            whole *= np.outer(track.deviation[channel], track.deviation[channel])
            channel += 1
        level = np.maximum(np.diag(whole), FLOOR * track.level) * (1.0 + 1e-9)
        np.fill_diagonal(whole, np.where(there, level, 0.0))
    return out


# ----------------------------------------------------------------------- learn


def learn(
    track: Track, plan: Layout, parts: Numbers, seen: Compared, u: float, q: float, age: float
) -> None:
    """Every member takes in u C; those that are limited weigh it by min(1, 20 d/z) instead.

    The first samples count in full, and no size clock moves: what they were expected to be is what
    one sample was. While the track is young none counts more: its density is wide on purpose.
    """
    table, there = plan.table, present(track)
    n_there = float(there.sum())
    track.head[at.COUNT] += 1.0
    track.head[at.SAMPLES] += seen.m
    early = track.head[at.SAMPLES] <= EARLY
    if early or (track.head[at.DOUBT] > 0.0 and u > 1.0):
        u = 1.0
    whole = u * seen.mean + seen.rest
    ages = track.entry[0]
    ages[there] += 1.0
    gain = 1.0 / np.minimum(np.where(there, ages, 1.0), LEVEL_MEMORY)
    level = track.level + gain * (np.diag(whole) - track.level)
    track.level[there] = np.maximum(level, SMALLEST)[there]
    clock, channel, average = 0, 0, 0
    o = np.ix_(there, there)
    for k, law in enumerate(table):
        if law[at.KIND] == at.TURNING:
            continue
        weight, s = u, 0.0
        if law[at.SIZE_GAIN] > 0:
            inverse = np.linalg.inv(parts[k][o])
            z = float(np.fmin((inverse * seen.mean[o]).sum(), FARTHEST))
            spare = float((inverse * seen.rest[o]).sum())
            if law[at.CLIP_OUTLIERS]:
                weight = OUTLIER * n_there / max(z, OUTLIER * n_there)
            excess = (weight * z + spare) / n_there - 1.0
            if early:
                weight, excess = 1.0, 0.0
            track.size[clock] += math.log1p(law[at.SIZE_GAIN] * excess)
            s = track.size[clock]
            clock += 1
        elif law[at.CLIP_OUTLIERS]:
            # z = Q/m of N/m values
            weight = OUTLIER * seen.values / max(q, OUTLIER * seen.values)
            weight = 1.0 if early else weight
        target = math.exp(-s) * (weight * seen.mean + seen.rest)
        if law[at.CHANNEL] > 0:
            gain = np.maximum(1.0 - 2.0 ** (-age / law[at.CHANNEL]), 1.0 / ages[there])
            own = track.deviation[channel]
            square = own[there] ** 2 + gain * (np.diag(target)[there] - own[there] ** 2)
            own[there] = np.sqrt(np.maximum(square, FLOOR * track.level[there]))
            safe = np.where(there, own, 1.0)
            target = target / safe[:, None] / safe
            channel += 1
        if law[at.KIND] == at.AVERAGE:
            track.mass[average] += 1.0
            # Of channels that came late the variance takes in 1/n of n rows, and entries the
            # geometric mean of both, so that B stays positive.
            a = np.where(
                there, 1.0 / np.minimum(np.where(there, ages, 1.0), track.mass[average]), 0.0
            )
            keep, take = (pack(np.sqrt(np.outer(part, part))) for part in (1.0 - a, a))
            track.body[average] = keep * track.body[average] + take * pack(target)
            average += 1
    if len(track.turning):
        learn_turning(track, plan, whole, seen.m)


def take_worth(known: Numbers, seen: Compared, total: Numbers, there: Mask) -> Compared:
    """What was seen, counted as many samples as such observations were worth before.

    Whether this one scatters as they did is learned. One with missing cells says nothing of it.
    """
    n, o = float(there.sum()), np.ix_(there, there)
    m = worth(known, seen.m, n)
    if seen.m > 1.0 and n > 1.0 and not seen.rest.any():
        with np.errstate(all="ignore"):
            scatter = scatter_of(np.linalg.solve(total[o], seen.mean[o]), n)
        if math.isfinite(scatter):
            known[at.JUDGED], known[at.SPREAD] = learned(
                known[at.JUDGED], known[at.SPREAD], scatter
            )
    known[at.WORTH] = worth(known, seen.m, n)
    return seen.counted_as(m)


# ----------------------------------------------------------------------- channels come


def add_channels(track: Track, plan: Layout, variance: Numbers, m: float, parts: Numbers) -> None:
    """Channels come, with these variances; 0 of all others (`kgmrf.readable.entering`)."""
    new = variance > 0.0
    if not new.any():
        return
    first = track.head[at.COUNT] == 0.0
    track.level[new] = variance[new]
    clock, channel, average, turning = 0, 0, 0, 0
    was_pooling = pooling(track)
    diagonal = np.flatnonzero(new) * (np.flatnonzero(new) + 3) // 2
    for k, law in enumerate(plan.table):
        if law[at.KIND] == at.TURNING:
            pooled = turned(track.turning[turning], plan.d).frame.reshape(-1)[
                : plan.d * (plan.d + 1) // 2
            ]
            if not was_pooling:
                pooled[:] = pack(np.where(new[:, None] | new, 0.0, parts[k]))
            pooled[diagonal] = track.level[new]
            turning += 1
            continue
        s = 0.0
        if law[at.SIZE_GAIN] > 0:
            s = track.size[clock]
            clock += 1
        own = math.exp(-s) * track.level[new]
        if law[at.CHANNEL] > 0:
            track.deviation[channel][new] = np.sqrt(own)
            own = np.ones(int(new.sum()))
            channel += 1
        if law[at.KIND] == at.AVERAGE:
            track.body[average][diagonal] = own
            average += 1
    track.head[at.POOLED] = 1.0
    if first:
        track.head[at.COUNT] = 1.0
        track.head[at.SAMPLES] = m
        track.mass[:] = 1.0


def start(track: Track, plan: Layout, samples: Numbers, m: float, *, matrix: bool) -> None:
    """The first observation that is not all zero: B = C with the diagonal (1 + 1/m) C_ii."""
    if matrix:
        seen = samples
    else:
        known = np.where(np.isnan(samples), 0.0, samples)
        seen = known.T @ known / m
    power = np.diag(seen).copy()
    if not (power > SMALLEST).any():
        return
    nothing = np.zeros((len(plan.table), plan.d, plan.d))
    add_channels(track, plan, arrive(track, power, m, nothing[0]), m, nothing)
    seen = np.where(np.outer(present(track), present(track)), seen, 0.0)
    point(track, seen)
    low, high = np.tril_indices(plan.d, -1)
    where = low * (low + 1) // 2 + high
    channel, average, turning = 0, 0, 0
    for law in plan.table:
        if law[at.KIND] == at.TURNING:
            turned(track.turning[turning], plan.d).frame.reshape(-1)[where] = seen[low, high]
            turning += 1
            continue
        scale = np.ones(plan.d)
        if law[at.CHANNEL] > 0:
            scale = np.where(present(track), track.deviation[channel], 1.0)
            channel += 1
        if law[at.KIND] == at.AVERAGE:
            track.body[average][where] = (seen / scale[:, None] / scale)[low, high]
            average += 1


# ----------------------------------------------------------------------- one step


def step(
    track: Track, plan: Layout, samples: Numbers, m: float, dt: float, *, matrix: bool
) -> None:
    """One step of one track, in place.

    samples: ``(m, d)``, or with ``matrix`` the mean of x x^T ``(d, d)`` over m samples; m = 0: no
    observation.
    """
    track.head[at.LIKELIHOOD : at.VALUES + 1] = np.nan
    track.head[at.SIZE_STD] = track.head[at.DOUBT] = 0.0
    if track.head[at.COUNT] == 0.0:
        track.head[at.TIME] += dt
        if m > 0:
            track.head[at.SEEN] = track.head[at.TIME]
            start(track, plan, samples, m, matrix=matrix)
            if len(track.scatter):
                known = worth(track.scatter, track.head[at.SAMPLES], float(present(track).sum()))
                track.head[at.SAMPLES] = track.scatter[at.WORTH] = known
        return
    drift(track, plan, dt)
    if m == 0:
        return
    ahead, parts = look_ahead(track, plan.table[:, at.HORIZON :]), hold(track, plan)
    track.head[at.SEEN] = track.head[at.TIME]
    total = np.tensordot(weights_ahead(track, ahead), parts, 1)
    top = aim(track, total)
    kappa, there = float(track.head[at.KAPPA]), present(track)
    if matrix:
        seen = compare_matrix(samples, m, total, kappa, there, top)
        power = np.diag(samples)
    else:
        seen = compare(samples, total, kappa, there, top)
        power = np.where(np.isnan(samples), 0.0, samples**2).sum(axis=0) / m
    if len(track.scatter) and seen.values > 0:
        seen = take_worth(track.scatter, seen, total, there)
    if seen.values > 0:
        u, q = score(track, plan, parts, seen, top, ahead)
        learn(track, plan, parts, seen, u, q, ahead.age)
    variance = arrive(track, power, m, total)
    if seen.values > 0 and not pooling(track) and variance.any():
        parts = hold(track, plan)
    add_channels(track, plan, variance, m, parts)
