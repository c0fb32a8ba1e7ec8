"""Where a single law keeps things while it works: offsets into one array of numbers.

The matrices of :mod:`kgmrf.kernels.products` come first, FRAME among them; then the other parts of
the track in hand; then vectors (eigenvalues of the observations, their inverses, C~_ii); then lists
of planes, ROOM apart: what an observation says of them, and LISTS more for W and P; then sizes.
"""

from __future__ import annotations

from typing import Any

from kgmrf.kernels import layout as row
from kgmrf.kernels.compile import jit
from kgmrf.kernels.products import matrix

CLOCKS, LAM, LAM_VAR, POOL, LEVEL, INVERSE, POWER, PLANES, MOVING = range(9)
ROOM, END, D, S, N, LISTS = range(9, 15)
N_PLACES = 15


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
