"""Where the compiled loop for many channels keeps what it works on: offsets by name in one array.

Rows of tracks stay where they are; nothing here needs the compiler.
"""

from __future__ import annotations

import numpy as np

from kgmrf._types import Numbers
from kgmrf.engines.layout import N_TAILS
from kgmrf.engines.low_rank_layout import Layout, up

# Vectors over channels (NOISES has one for each member, FACTORS and HALF one for each column) ...
X, OPEN, DEVIATION, KNOWN, Z, E, NOISE, Y, PRECISION, NOISES, FACTORS, HALF = range(12)
# ... square matrices and vectors of the blend's columns, and of the factors of a member ...
INNER, LEFT, B, OUT, ROOT, RIGHT, GRAM, SMALL, INVERSE, BR, SCORES, G, PG = range(12, 25)
# ... numbers of members and tails ...
WEIGHTS, GRADIENT, LOGS, SHARES = range(25, 29)
# ... and counts: channels, stride, columns of the blend; where level and buffer begin in a row.
DIMENSION, STRIDE, COLUMNS, LEVEL, BUFFER, ROWS, SIZE_OF_ROW = range(29, 36)
N_PLACES = 36


def work(plan: Layout) -> tuple[Numbers, Numbers]:
    """Offsets ``(N_PLACES,)`` and a fresh array for one worker."""
    s, c, k = plan.stride, plan.columns, len(plan.members)
    p, r = up(c), up(max(member.rank for member in plan.members))
    room = {
        **dict.fromkeys((X, OPEN, DEVIATION, KNOWN, Z, E, NOISE, Y, PRECISION), s),
        NOISES: k * s,
        FACTORS: c * s,
        HALF: c * s,
        **dict.fromkeys((INNER, LEFT), p * p),
        **dict.fromkeys((B, OUT), p),
        **dict.fromkeys((ROOT, RIGHT, GRAM, SMALL, INVERSE), r * r),
        **dict.fromkeys((BR, SCORES, G, PG), r),
        **dict.fromkeys((WEIGHTS, GRADIENT), k),
        **dict.fromkeys((LOGS, SHARES), N_TAILS),
    }
    out, at = np.zeros(N_PLACES, dtype=np.int64), 0
    for name, size in room.items():
        out[name] = at
        at += up(size)
    out[DIMENSION:] = plan.d, s, c, plan.channels, plan.buffer, plan.rows, plan.size
    return out, np.zeros(at)
