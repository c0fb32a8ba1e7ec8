"""Where the compiled loop of single laws keeps what it works on: one array, offsets by name."""

from __future__ import annotations

from typing import Any

from kgmrf.kernels import layout as row
from kgmrf.kernels.compile import jit
from kgmrf.kernels.products import matrix

# The row in hand (its beginning, then its parts), vectors (eigenvalues of the observations, their
# inverses, C~_ii), four lists of planes ROOM apart; and sizes.
ROW, FRAME, LAM, VELOCITY, POOL, LEVEL, INVERSE, POWER, PLANES, ROOM, END, D, S, N = range(14)


@jit
def set_places(o: Any, d: int, information: bool) -> None:
    """Where things lie; the matrices of `products` come first."""
    s, n = -(-d // 8) * 8, d * (d - 1) // 2
    o[D], o[S], o[N], o[ROOM] = d, s, n, -(-n // 8) * 8 + 8
    o[ROW] = matrix(s, row.N_MATRICES)
    o[FRAME] = o[ROW] + row.N_CLOCKS
    o[LAM] = o[FRAME] + d * d
    o[VELOCITY] = o[LAM] + 2 * d
    o[POOL] = o[VELOCITY] + (4 if information else 1) * n
    o[LEVEL] = o[POOL] + d * (d + 1) // 2 + 8
    o[INVERSE] = o[LEVEL] + s
    o[POWER] = o[INVERSE] + s
    o[PLANES] = o[POWER] + s
    o[END] = o[PLANES] + 4 * o[ROOM]
