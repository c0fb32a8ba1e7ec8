"""The compiled rotation engine: one loop over lines of observations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kgmrf.kernels import rotation_core as core
from kgmrf.kernels import rotation_dense as dense
from kgmrf.kernels import rotation_rows as at
from kgmrf.kernels.compile import compiled, jit
from kgmrf.kernels.lanes import after, bare
from kgmrf.kernels.quaternions import between, read, turn

K = at.MEMBERS
LOG_UNIFORM = -math.log(8.0 * math.pi**2)  # log density when nothing is known
REFUSED_GIVEN, REFUSED_LEARNED = math.log(1e-3), math.log(3e-3)  # eps: refuse below eps x uniform
EXPERT_SWITCHING = 0.01
LEAST_LEFT, LEAST_YOUNG = 0.3, 0.5  # of the variance of Z: below, smoothing gains much
YOUNGEST = 8  # observations before dense members join, where the noise is learned
MEAN, SEEN = 10, 14  # in the scratch, from the frame: mean of all members, the observation
Z = dense.SCRATCH  # in the scratch: one of the first observations
CORE = Z + 4  # and from here that of the isotropic members
SCRATCH = CORE + core.SCRATCH


@jit
def keep_unit(x: Any, dt: float, table: Any, settings: Any) -> None:
    """The unit of time is the median of the first eight positive intervals, unless it is given."""
    if x[at.KNOWN] >= 8.0 or not dt > 0.0 or settings[at.S_UNIT] > 0.0:
        return
    n = int(x[at.KNOWN])
    while n > 0 and x[at.GAPS + n - 1] > dt:  # they are kept in order
        x[at.GAPS + n] = x[at.GAPS + n - 1]
        n -= 1
    x[at.GAPS + n] = dt
    x[at.KNOWN] += 1.0
    n = int(x[at.KNOWN])
    f = 0.5 * (x[at.GAPS + (n - 1) // 2] + x[at.GAPS + n // 2]) / x[at.UNIT]
    x[at.UNIT] *= f
    if math.isnan(x[at.SEEN]) or n == 1:
        return
    for k in range(K):
        x[at.P01 + k] *= f
        x[at.P11 + k] *= f * f
        for a in range(3):
            x[at.RATE + K * a + k] *= f
    if settings[at.S_DENSE] > 0.0:
        dense.rescale(x, f, table)


@jit
def in_use(x: Any, settings: Any) -> bool:
    """Whether dense members are: not before eight observations where the noise is learned."""
    return settings[at.S_DENSE] > 0.0 and (settings[at.S_COUNT] == 1.0 or x[at.STORED] >= YOUNGEST)


@jit
def drift(x: Any, dt: float, laws: Any, table: Any, settings: Any, w: Any) -> bool:
    """All members over dt, in units of the stamps; tells whether dense members are in use."""
    with_dense = in_use(x, settings)
    x[at.TIME] += dt
    if dt > 0.0 and not math.isnan(x[at.SEEN]):
        h = dt / x[at.UNIT]
        x[at.NOW] = 0.0
        # In pieces of about one unit, so that coasting over several is forecasting them.
        pieces = max(math.ceil(min(h, dense.LONGEST) - 0.5), 1)
        for _ in range(pieces):
            core.predict(x, h / pieces, laws, w)
        if with_dense:
            dense.drift_all(x, h, table, w)
    return with_dense


@jit
def restart_dense(x: Any, table: Any) -> None:
    """All dense members where the others are, with their prior weights."""
    for d in range(len(table)):
        dense.fresh(x, d, x[at.NOISE], table)
        x[at.DENSE + at.BLOCK * d + at.SHARE] = table[d, at.PRIOR]


@jit
def keep_first(x: Any, z: Any, rel: float, table: Any, w: Any) -> None:
    """While the noise is young: store Z; after 8 and 16 run the dense members anew."""
    n = int(x[at.STORED])
    if n >= at.LONGEST_START:
        return
    row = at.FIRST + 6 * n
    x[row] = x[at.TIME]
    x[row + 1] = rel
    for a in range(4):
        x[row + 2 + a] = z[a]
    x[at.STORED] = n + 1.0
    n += 1
    if n != 8 and n != 16:
        return
    restart_dense(x, table)
    total = 0.0
    for d in range(len(table)):
        for a in range(4):
            x[at.DENSE + at.BLOCK * d + a] = x[at.FIRST + 2 + a]
        for a in range(3):
            x[at.DENSE + at.BLOCK * d + at.MOTION + a] = 0.0
    for j in range(1, n):
        row = at.FIRST + 6 * j
        if x[row] > x[row - 6]:
            dense.drift_all(x, (x[row] - x[row - 6]) / x[at.UNIT], table, w)
        for a in range(4):
            w[Z + a] = x[row + 2 + a]
        r = x[at.NOISE] * x[row + 1]
        total += dense.score(x, after(w, Z), r, table, w)
        dense.take(x, r, table, w)
    top = max(max(x[at.EVIDENCE], x[at.EVIDENCE + 1]), total)
    for a in range(3):
        value = total if a == 2 else x[at.EVIDENCE + a]
        x[at.EXPERTS + a] = core.PRIORS[a] * math.exp(value - top)
    settle(x)


@jit
def remember(x: Any, z: Any, now: float) -> None:
    """Z came last, with noise ``now``, or was rejected (0)."""
    x[at.NOW] = now
    for a in range(4):
        x[at.LAST + a] = z[a]


@jit
def settle(x: Any) -> None:
    """The experts' probabilities, divided by their sum and never zero."""
    total = x[at.EXPERTS] + x[at.EXPERTS + 1] + x[at.EXPERTS + 2]
    for a in range(3):
        x[at.EXPERTS + a] = max(x[at.EXPERTS + a] / total, 1e-300)


@jit
def observe(
    x: Any,
    z: Any,
    e: Any,
    rel: float,
    with_dense: bool,
    laws: Any,
    table: Any,
    settings: Any,
    w: Any,
) -> int:
    """One observation: score it, refuse it or take it in; what became of it.

    e[3], e[4], e[5]: log evidence of the experts, in the end e[6]: of all, e[7]: nis.
    """
    half = 0.5 * between(x, at.FRAME, z, 0, e, 0)
    e[5] = -1e300
    e[7] = math.nan
    r = x[at.NOISE] * rel
    if with_dense:
        e[5] = dense.score(x, z, r, table, w)
    scratch = after(w, CORE)
    core.score(x, e, rel, laws, settings, scratch)
    if half > 1e-6:  # densities with respect to volume on the group
        e[3] -= 2.0 * math.log(math.sin(half) / half)
        e[4] -= 2.0 * math.log(math.sin(half) / half)
    top = max(max(e[3], e[4]), e[5])
    total = 0.0
    known = 0.0
    for a in range(3):
        prior = (1.0 - EXPERT_SWITCHING) * x[at.EXPERTS + a] + EXPERT_SWITCHING * core.PRIORS[a]
        if a < 2 or with_dense:
            known += prior
            e[8 + a] = prior * math.exp(e[3 + a] - top)
            total += e[8 + a]
    e[6] = top + math.log(total / known)
    bar = LOG_UNIFORM + (REFUSED_GIVEN if settings[at.S_COUNT] == 1.0 else REFUSED_LEARNED)
    again = core.lost(x)
    if e[6] < bar and x[at.ACCEPT] == 0.0 and not again:
        if x[at.REJECTED] > 0.0:
            again = between(x, at.LAST, z, 0, e, 8) < min(1.0, half)
        if not again:
            x[at.REJECTED] = 1.0
            remember(x, z, 0.0)
            return at.OUTLIER
    remember(x, z, rel)
    x[at.REJECTED] = 0.0
    x[at.ACCEPT] = 1.0 if again else 0.0
    if again:
        core.begin(x, z, laws, settings, True)
        if with_dense:
            restart_dense(x, table)
        if settings[at.S_DENSE] > 0.0 and x[at.STORED] < at.LONGEST_START:
            x[at.STORED] = 0.0
            x[at.EVIDENCE] = 0.0
            x[at.EVIDENCE + 1] = 0.0
            keep_first(x, z, rel, table, w)
        return at.RESTART
    for a in range(3):
        x[at.EXPERTS + a] = e[8 + a] if a < 2 or with_dense else total
    settle(x)
    e[7] = core.take(x, e, rel, laws, settings, scratch)
    if with_dense:
        dense.take(x, r, table, w)
    if settings[at.S_DENSE] > 0.0 and settings[at.S_COUNT] > 1.0:
        x[at.EVIDENCE] += e[3]
        x[at.EVIDENCE + 1] += e[4]
        keep_first(x, z, rel, table, w)
    return at.OBSERVED


@jit
def seen_share(x: Any, left: float, young: bool, settings: Any) -> float:
    """Share of Z itself in what is shown after it, where the noise is learned.

    Noise and white jitter of the rotation look alike. To take jitter for noise can be wrong by any
    factor; to take noise for jitter loses what smoothing gains, 1 / sqrt(left), with ``left`` the
    variance over that of Z. So Z is shown if ``left`` is above exp(-jitter / r), r the least noise
    of late, but never where smoothing gains much. While the noise is young more of Z is shown.
    """
    if settings[at.S_JITTER] == 0.0 or x[at.PRECISION] == 0.0:
        return 0.0
    bar = max(math.exp(-settings[at.S_JITTER] * x[at.PRECISION] / x[at.NOW]), LEAST_LEFT)
    if young:
        bar = min(bar, LEAST_YOUNG)
    return min(max(0.5 + 5.0 * (left / bar - 1.0), 0.0), 1.0)


@jit
def note(x: Any, with_dense: bool, laws: Any, table: Any, settings: Any, out: Any, w: Any) -> None:
    """What an estimate shows: the moments of the mixture of all members, into a record.

    NaN before the first observation.
    """
    share, unseen = x[at.EXPERTS + 2] if with_dense else 0.0, math.isnan(x[at.SEEN])
    for j in range(at.RECORD):
        out[j] = math.nan if unseen else 0.0
    out[at.R_TIME], out[at.R_SEEN], out[at.R_UNIT] = x[at.TIME], x[at.SEEN], x[at.UNIT]
    if unseen:
        return
    for a in range(3):
        w[MEAN + a] = 0.0
    left = 0.0
    between(x, at.FRAME, x, at.LAST, w, SEEN)
    for twice in range(2):  # means, then second moments about them
        for d in range(len(table)):
            p = at.DENSE + at.BLOCK * d
            if with_dense and share * x[p + at.SHARE] > 1e-12:
                f = share * x[p + at.SHARE]
                out[at.R_WEIGHTS + at.MEMBERS + d] = f
                between(x, at.FRAME, x, p, w, 0)
                for a in range(3):
                    if twice == 0:
                        w[MEAN + a] += f * w[a]
                        left += f * x[dense.spot(p, a, a)]
                        out[at.R_VELOCITY + a] += f * x[p + at.MOTION + a]
                    else:
                        y = w[a] - w[MEAN + a]
                        v = x[p + at.MOTION + a] - out[at.R_VELOCITY + a]
                        b, c = (a + 1) % 3, (a + 2) % 3
                        cross = (w[b] - w[MEAN + b]) * (w[c] - w[MEAN + c])
                        out[at.R_ANGLE + a] += f * (x[dense.spot(p, a, a)] + y * y)
                        out[at.R_CROSS + a] += f * (x[dense.spot(p, 3 + a, a)] + y * v)
                        out[at.R_RATE + a] += f * (x[dense.spot(p, 3 + a, 3 + a)] + v * v)
                        out[at.R_OFF + a] += f * (x[dense.spot(p, max(b, c), min(b, c))] + cross)
        for k in range(K):
            own = laws[k, at.JITTER_VAR]  # of the rotation itself: R = S Exp(j), j of variance own
            kept = 1.0
            if x[at.NOW] > 0.0:  # given S and Z it is (1 - kept) (Z - S) with variance own kept
                kept = x[at.NOW] / (x[at.NOW] + own)
            p00 = min(x[at.NOISE] * x[at.P00 + k], core.WIDEST)
            p01 = kept * x[at.P01 + k] * math.sqrt(x[at.NOISE] * p00 / x[at.P00 + k])
            p00 = kept * kept * p00 + x[at.NOISE] * own * kept
            for a in range(3):
                f = (1.0 - share) * x[at.WEIGHT + K * a + k]
                y = kept * x[at.DELTA + K * a + k] + (1.0 - kept) * w[SEEN + a]
                if twice == 0:
                    w[MEAN + a] += f * y
                    left += f * p00
                    out[at.R_WEIGHTS + k] += f / 3.0
                    out[at.R_VELOCITY + a] += f * x[at.RATE + K * a + k]
                else:
                    y -= w[MEAN + a]
                    v = x[at.RATE + K * a + k] - out[at.R_VELOCITY + a]
                    out[at.R_ANGLE + a] += f * (p00 + y * y)
                    out[at.R_CROSS + a] += f * (p01 + y * v)
                    out[at.R_RATE + a] += f * (x[at.NOISE] * x[at.P11 + k] + v * v)
        if twice == 0 and x[at.NOW] > 0.0:
            left /= 3.0 * x[at.NOISE] * x[at.NOW]
            own = seen_share(x, left, x[at.YOUNG] > 0.0, settings)
            out[at.R_SHOWN] = seen_share(x, left, False, settings)  # by those who look back
            for a in range(3):
                w[MEAN + a] += own * (w[SEEN + a] - w[MEAN + a])
    for a in range(4):
        out[a] = x[at.FRAME + a]
    turn(out, 0, w[MEAN], w[MEAN + 1], w[MEAN + 2])
    for a in range(3):
        out[at.R_VELOCITY + a] /= x[at.UNIT]
        out[at.R_CROSS + a] /= x[at.UNIT]
        out[at.R_RATE + a] /= x[at.UNIT] * x[at.UNIT]
    out[at.R_NOISE] = math.sqrt(x[at.NOISE])
    out[at.R_GAIN] = x[at.GAIN]


@compiled(
    "void(float64[:, ::1], int64[::1], int64[::1], float64[:, :, ::1], float64[::1], float64[::1],"
    " float64, float64[:, ::1], float64[:, ::1], float64[:, ::1], float64[:, ::1], int8[::1])",
)
def advance(
    rows: Any,
    which: Any,
    order: Any,
    seen: Any,
    counts: Any,
    dt: Any,
    tolerance: float,
    laws: Any,
    table: Any,
    every_setting: Any,
    records: Any,
    status: Any,
) -> None:
    """Lines ``(N,)`` in this order through the rows, in place, as :mod:`kgmrf.engines` says.

    every_setting: for all rows, or one for each.
    """
    work = np.empty(SCRATCH + 16)
    w = bare(work)
    z, e, every, notes = after(w, SCRATCH), after(w, SCRATCH + 4), bare(rows), bare(records)
    matrices = bare(seen)
    size, room = rows.shape[1], records.shape[1]
    own, length = every_setting.shape[0] - 1, every_setting.shape[1]
    for line in order:
        x = after(every, which[line] * size)
        settings = after(bare(every_setting), min(which[line], own) * length)
        shown, status[line] = at.MISSING, at.MISSING
        if counts[line] > 0.0:
            status[line] = read(matrices, 9 * line, tolerance, z)
        e[6] = math.nan
        e[7] = math.nan
        if counts[line] >= 0.0 and status[line] != at.INVALID:
            shown = status[line]
            keep_unit(x, dt[line], table, settings)
            with_dense = drift(x, dt[line], laws, table, settings, w)
            if shown == at.OBSERVED:
                noise = 1.0 / counts[line]
                if math.isnan(x[at.SEEN]):
                    core.begin(x, z, laws, settings, False)
                    remember(x, z, noise)
                    if settings[at.S_DENSE] > 0.0:
                        restart_dense(x, table)
                        keep_first(x, z, noise, table, w)
                else:
                    shown = observe(x, z, e, noise, with_dense, laws, table, settings, w)
                if shown != at.OUTLIER:
                    x[at.SEEN] = x[at.TIME]
        out = after(notes, line * room)
        note(x, in_use(x, settings), laws, table, settings, out, w)
        out[at.R_NIS] = e[7]
        out[at.R_LIKELIHOOD] = e[6]
        out[at.R_STATUS] = shown
    work[0] = 0.0  # not let go before
