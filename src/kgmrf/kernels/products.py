"""Products, exponentials and turns of one track, eight columns at a time.

Everything works on one array ``w`` whose matrices have rows of ``s`` numbers, d rounded up to a
multiple of eight; what lies beyond the d-th row or column is zero and stays so. The array begins
with the matrices of `layout`.
"""

from __future__ import annotations

import math
from typing import Any

from kgmrf.kernels.compile import jit
from kgmrf.kernels.lanes import (
    above,
    add_flip,
    first,
    flip,
    fma,
    four_rows,
    load,
    load_first,
    spread,
    store,
    total,
)
from kgmrf.kernels.layout import FRAME, SCRATCH_A, SCRATCH_B, SCRATCH_C, SCRATCH_D, TURNING

# exp(A) - I to degree 8 in three products: with y = A2 (c1 A2 + c2 A) it is
# (y + c3 A2 + c4 A)(y + c5 A2) + c6 y + A2 / 2 + A. The six numbers solve for the coefficients
# 1/3! ... 1/8! of the series; the next term is x^9/9!, 1e-14 at REACH, and leaves a rotation off by
# 5e-6 x^10, 3e-15. Beyond, the argument is halved until it is within REACH, and the result squared.
EXP1, EXP2, EXP3 = 0.0049801192055599735, 0.019920476822239894, 0.076652653211191467
EXP4, EXP5, EXP6 = 0.87650098017855534, 0.12255211501120747, 2.9743072048476267
REACH = 0.12
# Each squaring doubles what the series leaves; after more than these the frame is polished at once.
FEW_HALVINGS = 2


@jit
def matrix(s: int, k: int) -> int:
    """Where the k-th matrix begins."""
    return k * s * s


@jit
def multiply_small(
    w: Any, a: int, down: int, along: int, b: int, c: int, plus: int, share: float
) -> None:
    """C = share PLUS + A B of 8 x 8 matrices; C may be A or PLUS.

    A begins at ``a``; ``down`` leads to its next row, ``along`` to its next column.
    """
    weight = spread(share)
    for r in range(0, 64, 32):
        y0, y1, y2, y3 = four_rows(w, a + r // 8 * down, down, along, b)
        store(w, c + r, fma(weight, load(w, plus + r), y0))
        store(w, c + r + 8, fma(weight, load(w, plus + r + 8), y1))
        store(w, c + r + 16, fma(weight, load(w, plus + r + 16), y2))
        store(w, c + r + 24, fma(weight, load(w, plus + r + 24), y3))


@jit
def wide(
    w: Any, a: int, down: int, along: int, b: int, c: int, plus: int, share: float, d: int, s: int
) -> None:
    """A tile of C = share PLUS + A B, four rows of sixteen: its sums stay in registers.

    A begins at ``a``; ``down`` leads to its next row, ``along`` to its next column.
    """
    weight = spread(share)
    r1, r2, r3 = down, 2 * down, 3 * down
    c0, e0 = weight * load(w, plus), weight * load(w, plus + 8)
    c1, e1 = weight * load(w, plus + s), weight * load(w, plus + s + 8)
    c2, e2 = weight * load(w, plus + 2 * s), weight * load(w, plus + 2 * s + 8)
    c3, e3 = weight * load(w, plus + 3 * s), weight * load(w, plus + 3 * s + 8)
    for k in range(d):
        left, right = load(w, b + k * s), load(w, b + k * s + 8)
        at = a + k * along
        v = spread(w[at])
        c0, e0 = fma(v, left, c0), fma(v, right, e0)
        v = spread(w[at + r1])
        c1, e1 = fma(v, left, c1), fma(v, right, e1)
        v = spread(w[at + r2])
        c2, e2 = fma(v, left, c2), fma(v, right, e2)
        v = spread(w[at + r3])
        c3, e3 = fma(v, left, c3), fma(v, right, e3)
    store(w, c, c0)
    store(w, c + 8, e0)
    store(w, c + s, c1)
    store(w, c + s + 8, e1)
    store(w, c + 2 * s, c2)
    store(w, c + 2 * s + 8, e2)
    store(w, c + 3 * s, c3)
    store(w, c + 3 * s + 8, e3)


@jit
def narrow(
    w: Any, a: int, down: int, along: int, b: int, c: int, plus: int, share: float, d: int, s: int
) -> None:
    """The same, four rows of eight."""
    weight = spread(share)
    r1, r2, r3 = down, 2 * down, 3 * down
    c0 = weight * load(w, plus)
    c1 = weight * load(w, plus + s)
    c2 = weight * load(w, plus + 2 * s)
    c3 = weight * load(w, plus + 3 * s)
    for k in range(d):
        right = load(w, b + k * s)
        at = a + k * along
        c0 = fma(spread(w[at]), right, c0)
        c1 = fma(spread(w[at + r1]), right, c1)
        c2 = fma(spread(w[at + r2]), right, c2)
        c3 = fma(spread(w[at + r3]), right, c3)
    store(w, c, c0)
    store(w, c + s, c1)
    store(w, c + 2 * s, c2)
    store(w, c + 3 * s, c3)


@jit
def multiply(w: Any, a: int, b: int, c: int, plus: int, share: float, d: int, s: int) -> None:
    """C = share PLUS + A B; C is none of the others."""
    if s == 8:
        multiply_small(w, a, 8, 1, b, c, plus, share)
        return
    for i in range(0, d, 4):
        for j in range(0, s - 8, 16):
            wide(w, a + i * s, s, 1, b + j, c + i * s + j, plus + i * s + j, share, d, s)
        if s % 16:
            at = (i + 1) * s - 8
            narrow(w, a + i * s, s, 1, b + s - 8, c + at, plus + at, share, d, s)


@jit
def multiply_transposed(w: Any, a: int, b: int, c: int, d: int, s: int) -> None:
    """C = A^T B; C is none of the others."""
    if s == 8:
        multiply_small(w, a, 1, 8, b, c, b, 0.0)
        return
    for i in range(0, d, 4):
        for j in range(0, s - 8, 16):
            at = c + i * s + j
            wide(w, a + i, 1, s, b + j, at, b, 0.0, d, s)
        if s % 16:
            narrow(w, a + i, 1, s, b + s - 8, c + (i + 1) * s - 8, b, 0.0, d, s)


@jit
def copy(w: Any, a: int, b: int, d: int, s: int) -> None:
    """B = A."""
    for at in range(0, d * s, 8):
        store(w, b + at, load(w, a + at))


@jit
def transpose(w: Any, a: int, b: int, d: int, s: int) -> None:
    """B = A^T."""
    for i in range(0, d, 8):
        for j in range(0, d, 8):
            flip(w, a + i * s + j, s, w, b + j * s + i, s)


@jit
def note_square(w: Any, x: int, a2: int, b: int, square: Any) -> None:
    """Eight numbers of A2 and of the first sum of the series."""
    store(w, a2, square)
    store(w, b, fma(spread(EXP1), square, spread(EXP2) * load(w, x)))


@jit
def note_sums(w: Any, x: int, a2: int, b: int, c: int, e: int, y: Any) -> None:
    """Eight numbers of the other three sums of the series."""
    v, v2 = load(w, x), load(w, a2)
    store(w, b, fma(spread(EXP3), v2, fma(spread(EXP4), v, y)))
    store(w, e, fma(spread(EXP5), v2, y))
    store(w, c, fma(spread(EXP6), y, fma(spread(0.5), v2, v)))


@jit
def exponential(w: Any, x: int, a2: int, b: int, c: int, e: int, d: int, s: int) -> None:
    """Exp(X) - I into A2; the others are scratch."""
    if s == 8:
        for r in range(0, 64, 32):
            y = four_rows(w, x + r, 8, 1, x)
            note_square(w, x + r, a2 + r, b + r, y[0])
            note_square(w, x + r + 8, a2 + r + 8, b + r + 8, y[1])
            note_square(w, x + r + 16, a2 + r + 16, b + r + 16, y[2])
            note_square(w, x + r + 24, a2 + r + 24, b + r + 24, y[3])
    else:
        multiply(w, x, x, a2, x, 0.0, d, s)
        for at in range(0, d * s, 8):
            note_square(w, x + at, a2 + at, b + at, load(w, a2 + at))
    multiply(w, a2, b, c, a2, 0.0, d, s)
    for at in range(0, d * s, 8):
        note_sums(w, x + at, a2 + at, b + at, c + at, e + at, load(w, c + at))
    multiply(w, b, e, a2, c, 1.0, d, s)


@jit
def turn_frame(w: Any, planes: int, share: float, n: int, d: int, s: int) -> None:
    """Q <- Q Exp(share X), X skew with these n planes."""
    x = matrix(s, TURNING)
    a2, b, c, e = (
        matrix(s, SCRATCH_A),
        matrix(s, SCRATCH_B),
        matrix(s, SCRATCH_C),
        matrix(s, SCRATCH_D),
    )
    squares = spread(0.0)
    for p in range(0, n, 8):
        v = load_first(w, planes + p, n - p)
        squares = fma(v, v, squares)
    size = abs(share) * math.sqrt(total(squares))  # at least the largest plane angle
    if size == 0.0:
        return
    halvings = 0
    while REACH < size < math.inf:
        size, share = 0.5 * size, 0.5 * share
        halvings += 1
    much, p = spread(share), planes
    for i in range(d):
        for j in range(0, s, 8):
            store(w, x + i * s + j, much * load_first(w, p + j, i - j))
        p += i
    mirror(w, x, -1.0, d, s)
    exponential(w, x, a2, b, c, e, d, s)
    move, other = a2, b
    for _ in range(halvings):  # (I + E)^2 = I + (2 E + E E)
        multiply(w, move, move, other, move, 2.0, d, s)
        move, other = other, move
    frame = matrix(s, FRAME)
    if s == 8:
        multiply_small(w, frame, 8, 1, move, frame, frame, 1.0)  # four rows at a time, so in place
    else:
        multiply(w, frame, move, c, frame, 1.0, d, s)
        copy(w, c, frame, d, s)
    if halvings > FEW_HALVINGS:
        polish_frame(w, d, s, frame)


@jit
def polish_frame(w: Any, d: int, s: int, q: int) -> None:
    """Q <- Q + Q (I - Q^T Q) / 2: one Newton-Schulz step."""
    g, h = matrix(s, SCRATCH_A), matrix(s, SCRATCH_B)
    multiply_transposed(w, q, q, g, d, s)
    for at in range(0, d * s, 8):
        store(w, g + at, spread(-0.5) * load(w, g + at))
    for i in range(d):
        w[g + i * s + i] += 0.5
    multiply(w, q, g, h, q, 1.0, d, s)
    copy(w, h, q, d, s)


# ----------------------------------------------------------------------- packed matrices


@jit
def packed_room(n: int) -> int:
    """Numbers that one packed matrix of n pairs takes."""
    return -(-n // 8) * 8 + 8


@jit
def mirror(w: Any, a: int, share: float, d: int, s: int) -> None:
    """A <- A + share A^T, A being zero above the diagonal."""
    for i in range(0, d, 8):
        for j in range(0, i + 1, 8):
            add_flip(w, a + i * s + j, a + j * s + i, s, share)


@jit
def unpack(w: Any, packed: int, full: int, d: int, s: int) -> None:
    """The symmetric matrix of a lower triangle."""
    p, half = packed, spread(0.5)
    for i in range(d):
        for j in range(0, s, 8):
            v = load_first(w, p + j, i + 1 - j)
            store(w, full + i * s + j, first(i - j, v, half * v))
        p += i + 1
    mirror(w, full, 1.0, d, s)


@jit
def pack(w: Any, full: int, packed: int, d: int, s: int, n: int) -> None:
    """The lower triangle of a matrix; what a row writes too far, the next one overwrites."""
    p = packed
    for i in range(d):
        for j in range(0, i + 1, 8):
            store(w, p + j, load(w, full + i * s + j))
        p += i + 1
    for k in range(packed + n, packed + -(-n // 8) * 8):
        w[k] = 0.0


@jit
def scaled(w: Any, a: int, b: int, off: float, on: float, n: int, d: int) -> None:
    """B = off A, its diagonal on A."""
    share = spread(off)
    for p in range(0, n, 8):
        store(w, b + p, share * load(w, a + p))
    for i in range(d):
        w[b + i * (i + 3) // 2] = on * w[a + i * (i + 3) // 2]


@jit
def invert(w: Any, a: int, factors: int, unit: int, d: int, s: int) -> float:
    """A <- A^-1 in place, by Gauss-Jordan without pivoting; returns log |A|.

    factors: room for d numbers; unit: the identity. The column of a pivot is set by choosing
    lanes: a number stored alone, just before the eight around it are loaded, would be waited for.
    """
    logs, product = 0.0, 1.0
    half, zero = spread(0.5), spread(0.0)
    for k in range(d):
        top = a + k * s
        pivot = w[top + k]
        product *= pivot
        if not 1e-100 < product < 1e100:
            logs += math.log(product)
            product = 1.0
        inverse = spread(1.0 / pivot)
        for i in range(d):
            w[factors + i] = w[a + i * s + k]
        for j in range(0, s, 8):
            lanes = inverse * load(w, top + j)
            here = load(w, unit + k * s + j)
            for i in range(d):
                spot = a + i * s + j
                factor = zero - spread(w[factors + i])
                new = fma(factor, lanes, load(w, spot))
                store(w, spot, above(here, half, factor * inverse, new))
            store(w, top + j, above(here, half, inverse, lanes))
    return logs + math.log(product)
