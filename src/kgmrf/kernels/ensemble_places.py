"""Where the compiled ensemble keeps what it works on: one array per worker, offsets by name.

The array begins as :mod:`kgmrf.kernels.products` asks (for turning frames), then holds the
row of the track in hand and the matrices below. Symmetric matrices are packed: the lower triangle,
row by row, padded to a multiple of eight; planes i > j likewise. Nothing here needs the compiler.
"""

from __future__ import annotations

import numpy as np

from kgmrf._types import Numbers
from kgmrf.engines.layout import N_TAILS, Layout, counts
from kgmrf.kernels.layout import aligned, stride, work_size

# Parts of the row in hand ...
HEAD, TAILS, ROOTS, SIZE, MASS, LEVEL, UNITS, DEVIATION, BODY, TURNED = range(10)
# ... packed matrices (PARTS has one for each member) ...
PARTS, TOTAL, SLOPE, MEAN, REST, SCALED = range(10, 16)
# ... twice four lists of planes, PLANE_ROOM apart: what an observation says of them, and W and P of
# the member in hand ...
PLANES, MOVING = 16, 17
# ... vectors ...
X, Y, LAMBDA, INVERTED, POWER, THERE, HIDDEN = range(18, 25)
# ... full matrices ...
INVERSE, OUTER, PRECISION, MEAN_FULL, TOTAL_FULL, OTHER = range(25, 31)
# ... numbers of each member, of an interval and of a number of values.
FADE, CHANNEL_GAIN, GRADIENT, LOGS, SHARES, INTERVAL = range(31, 37)
CLOCK_PARTS, CLOCK_SIZES, EXP_SIZES, EIGENVECTORS, WEIGHTS, IDENTITY, TABLE = range(37, 44)
# (members with a size clock lie side by side in CLOCK_PARTS.) Counts.
DIMENSION, STRIDE, N_MEMBERS, N_AVERAGE, N_TURNING, N_PAIRS, N_PLANES, ROW, PLANE_ROOM = range(
    44, 53
)
N_PLACES = 53

# Within INTERVAL: dt, size retention, turn noise; number of values of LOGS.
LAST_DT, SIZE_KEEP, LAST_VALUES = range(3)


def places(plan: Layout) -> tuple[Numbers, int]:
    """The offsets ``(N_PLACES,)`` for a layout, and how long the array is."""
    d, k = plan.d, len(plan.table)
    n_average, n_turning = counts(plan.table)[:2]
    s = stride(d)
    pairs, planes = d * (d + 1) // 2, d * (d - 1) // 2
    packed, plane = stride(pairs) + 8, stride(planes) + 8
    out = np.zeros(N_PLACES, dtype=np.int64)
    at = work_size(d)
    out[: len(plan.begin) - 1] = at + plan.begin[:-1]
    at += stride(plan.size) + 8
    members = stride(k) + 8
    room = {
        PARTS: k * packed,
        **dict.fromkeys((TOTAL, SLOPE, MEAN, REST, SCALED), packed),
        **dict.fromkeys((PLANES, MOVING), 4 * plane),
        **dict.fromkeys((X, Y, LAMBDA, INVERTED, POWER, THERE, HIDDEN), s),
        **dict.fromkeys((INVERSE, OUTER, PRECISION, MEAN_FULL, TOTAL_FULL, OTHER), s * s),
        **dict.fromkeys((FADE, CHANNEL_GAIN, GRADIENT, WEIGHTS), members),
        LOGS: stride(N_TAILS),
        SHARES: stride(N_TAILS),
        INTERVAL: 8,
        CLOCK_PARTS: 8 * (pairs + d),
        CLOCK_SIZES: 8,
        EXP_SIZES: members,
        IDENTITY: s * s,
        EIGENVECTORS: n_turning * s * s,
        TABLE: plan.table.size,
    }
    for name, size in room.items():
        out[name] = at
        at += size
    out[DIMENSION:] = d, s, k, n_average, n_turning, pairs, planes, plan.size, plane
    return out, at


def work(plan: Layout) -> tuple[Numbers, Numbers]:
    """Offsets and a fresh array for one worker."""
    where, size = places(plan)
    array = aligned(size)
    d = plan.d
    # Lanes that no member uses are the identity.
    diagonal = 8 * (np.arange(d) * (np.arange(d) + 3) // 2)[:, None] + np.arange(8)
    array[where[CLOCK_PARTS] + diagonal] = 1.0
    array[where[IDENTITY] + np.arange(d) * (stride(d) + 1)] = 1.0
    array[where[TABLE] : where[TABLE] + plan.table.size] = plan.table.ravel()
    array[where[INTERVAL] + LAST_DT] = np.nan
    array[where[INTERVAL] + LAST_VALUES] = np.nan
    return where, array
