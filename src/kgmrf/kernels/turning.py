"""An eigenframe that turns, one track at a time: what single laws and turning members share.

The frame lies on the desk of :mod:`kgmrf.kernels.products`, and so do its turns. Numbers of planes
i > j lie row by row, ``n`` of them, in the order W, P11, P12, P22 that rows have. They are taken by
eight; the lanes beyond the last are zero.
"""

from __future__ import annotations

from typing import Any

from kgmrf.kernels import layout as desk
from kgmrf.kernels.check import spread_out
from kgmrf.kernels.compile import jit
from kgmrf.kernels.lanes import fetch, fma, load, load_first, spread, store, store_first, total
from kgmrf.kernels.plane import correct, widen, within_circle
from kgmrf.kernels.products import matrix, mirror


@jit
def move(a: Any, start: int, b: Any, to: int, n: int) -> None:
    """n numbers of a into b."""
    whole = n // 8 * 8
    for i in range(0, whole, 8):
        store(b, to + i, load(a, start + i))
    for i in range(whole, n):
        b[to + i] = a[start + i]


@jit
def expect(a: Any, start: int, n: int) -> None:
    """n numbers of a will be needed soon."""
    for i in range(start, start + n, 8):
        fetch(a, i)


@jit
def open_frame(w: Any, q: int, d: int, s: int) -> None:
    """Q of a row onto the desk."""
    spread_out(w, q, w, matrix(s, desk.FRAME), d, s)


@jit
def close_frame(w: Any, q: int, d: int, s: int) -> None:
    """Q from the desk back into its row."""
    frame = matrix(s, desk.FRAME)
    for i in range(d):
        for j in range(0, s, 8):
            store_first(w, q + i * d + j, load(w, frame + i * s + j), d - j)


@jit
def set_turn(w: Any, planes: int, share: float, d: int, s: int) -> None:
    """The next turn is share X, X skew with these planes."""
    x, much = matrix(s, desk.TURNING), spread(share)
    p = planes
    for i in range(d):
        for j in range(0, s, 8):
            store(w, x + i * s + j, much * load_first(w, p + j, i - j))
        p += i
    mirror(w, x, -1.0, d, s)


@jit
def widen_planes(
    w: Any,
    velocity: int,
    n: int,
    turn: float,
    keep: float,
    angle: float,
    cross: float,
    rate: float,
    most: float,
) -> None:
    """P <- F P F^T + noise with F = [[1, turn], [0, keep]], within its limits."""
    a, b, c = velocity + n, velocity + 2 * n, velocity + 3 * n
    turns, keeps = spread(turn), spread(keep)
    angles, crosses, rates = spread(angle), spread(cross), spread(rate)
    for p in range(0, n, 8):
        left = n - p
        p11, p12 = load_first(w, a + p, left), load_first(w, b + p, left)
        p22 = load_first(w, c + p, left)
        p11, p12, p22 = widen(p11, p12, p22, turns, keeps, angles, crosses, rates)
        p11, p12, p22 = within_circle(p11, p12, p22, most)
        store_first(w, a + p, p11, left)
        store_first(w, b + p, p12, left)
        store_first(w, c + p, p22, left)


@jit
def compare_planes(
    w: Any, body: int, lam: int, inverse: int, m: float, planes: int, room: int, d: int, s: int
) -> None:
    """C~_ij/d_i, m C~_ij/d_j, G/d_i and m G/d_j of every plane, for `correct_planes`.

    body: C~; lam, inverse: eigenvalues and 1/d_i, with room for eight. Four lists of planes,
    ``room`` apart. Products of two eigenvalues are not formed: they may underflow.
    """
    p, many = planes, spread(m)
    for i in range(d):
        level, own = spread(w[lam + i]), spread(w[inverse + i])
        for j in range(0, i, 8):
            r, gap = load(w, body + i * s + j), load(w, lam + j) - level  # the sign of -C~ G
            other = many * load(w, inverse + j)
            store(w, p + j, r * own)
            store(w, p + room + j, r * other)
            store(w, p + 2 * room + j, gap * own)
            store(w, p + 3 * room + j, gap * other)
        p += i


@jit
def correct_planes(w: Any, velocity: int, n: int, planes: int, room: int) -> float:
    """W and P of every plane after what `compare_planes` found; the angles to turn by are left at
    ``planes``. Returns nis."""
    a, b, c = velocity + n, velocity + 2 * n, velocity + 3 * n
    one, squares = spread(1.0), spread(0.0)
    for p in range(0, n, 8):
        at, left = planes + p, n - p
        share, weight = load_first(w, at, left), load_first(w, at + 3 * room, left)
        information = load(w, at + 2 * room) * weight
        p11, p12 = load_first(w, a + p, left), load_first(w, b + p, left)
        p22, old = load_first(w, c + p, left), load(w, velocity + p)
        angle, kick, p11, p12, p22, rest = correct(p11, p12, p22, share * weight, information, one)
        squares = fma(share * load(w, at + room), rest, squares)
        store(w, at, angle)
        store_first(w, velocity + p, old + kick, left)
        store_first(w, a + p, p11, left)
        store_first(w, b + p, p12, left)
        store_first(w, c + p, p22, left)
    return total(squares)


@jit
def in_body(w: Any, x: int, units: int, to: int, d: int, s: int) -> None:
    """Q^T (x/E) of a sample, units E."""
    frame = matrix(s, desk.FRAME)
    for j in range(0, s, 8):
        acc = spread(0.0)
        for i in range(d):
            acc = fma(spread(w[x + i] / w[units + i]), load(w, frame + i * s + j), acc)
        store(w, to + j, acc)
