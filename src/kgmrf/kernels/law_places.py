"""Where a single law keeps things while it works: offsets into one array of numbers.

The matrices of :mod:`kgmrf.kernels.products` come first, FRAME among them; then the other parts of
the track in hand; then vectors (eigenvalues of the observations, their inverses, C~_ii); then lists
of planes, ROOM apart: what an observation says of them, and LISTS more for W and P; then sizes.
"""

from __future__ import annotations

import math
from typing import Any

from kgmrf.kernels import layout as row
from kgmrf.kernels.compile import jit
from kgmrf.kernels.lanes import first, load_first, spread, store
from kgmrf.kernels.products import matrix
from kgmrf.kernels.turning import close_frame, close_planes, move, open_frame, open_planes

CLOCKS, LAM, LAM_VAR, POOL, LEVEL, INVERSE, POWER, PLANES, MOVING = range(9)
ROOM, END, D, S, N, LISTS = range(9, 15)
N_PLACES = 15

# Numbers of an interval, N_STEP of them in a line of `steps`.
TURN, KEEP, COAST, ANGLE, CROSS, RATE, DT = range(7)
N_STEP = 7

LOG_TWO_PI = math.log(2.0 * math.pi)


@jit
def set_places(o: Any, d: int, information: bool) -> None:
    """Fill ``o`` for dimension d; what is loaded by eight starts on a cache line."""
    s, n = -(-d // 8) * 8, d * (d - 1) // 2
    o[D], o[S], o[N], o[ROOM] = d, s, n, -(-n // 8) * 8 + 8
    o[LISTS] = 4 if information else 1
    o[CLOCKS] = matrix(s, row.N_MATRICES)
    o[LAM] = o[CLOCKS] + 16
    o[LAM_VAR] = o[LAM] + s
    o[POOL] = o[LAM_VAR] + s
    o[LEVEL] = o[POOL] + d * (d + 1) // 2 // 8 * 8 + 8
    o[INVERSE] = o[LEVEL] + s
    o[POWER] = o[INVERSE] + s
    o[PLANES] = o[POWER] + s
    o[MOVING] = o[PLANES] + 4 * o[ROOM]
    o[END] = o[MOVING] + 4 * o[ROOM]


@jit
def open_track(a: Any, q: int, w: Any, o: Any, pool: bool) -> None:
    """A row onto the desk, with or without its pool; eigenvalues that are not there are 1."""
    d, s, one = o[D], o[S], spread(1.0)
    move(a, q, w, o[CLOCKS], row.N_CLOCKS)
    q += row.N_CLOCKS
    open_frame(a, q, w, d, s)
    q += d * d
    for j in range(0, s, 8):
        left = d - j
        store(w, o[LAM] + j, first(left, load_first(a, q + j, left), one))
        store(w, o[LAM_VAR] + j, first(left, load_first(a, q + d + j, left), one))
    q += 2 * d
    open_planes(a, q, w, o[MOVING], o[ROOM], o[N], o[LISTS])
    if pool:
        move(a, q + o[LISTS] * o[N], w, o[POOL], d * (d + 1) // 2)


@jit
def close_track(w: Any, o: Any, a: Any, q: int, lists: int, pool: bool) -> None:
    """The inverse of `open_track`, with this many of the lists of planes."""
    d = o[D]
    move(w, o[CLOCKS], a, q, row.N_CLOCKS)
    q += row.N_CLOCKS
    close_frame(w, a, q, d, o[S])
    q += d * d
    move(w, o[LAM], a, q, d)
    move(w, o[LAM_VAR], a, q + d, d)
    q += 2 * d
    close_planes(w, o[MOVING], o[ROOM], a, q, o[N], lists)
    if pool:
        move(w, o[POOL], a, q + lists * o[N], d * (d + 1) // 2)
