"""An eigenframe that turns, one track at a time: what single laws and turning members share.

The frame lies on the desk of :mod:`kgmrf.kernels.products`, and so do its turns. Numbers of planes
i > j lie row by row, ``n`` of them, in the order W, P11, P12, P22 that rows have. They are taken by
eight, and what is stored too far is what was there.
"""

from __future__ import annotations

from typing import Any

from kgmrf.kernels import layout as desk
from kgmrf.kernels.compile import jit
from kgmrf.kernels.lanes import fetch, first, fma, load, spread, store, total
from kgmrf.kernels.plane import correct, widen, within_circle
from kgmrf.kernels.products import matrix


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
    """Q of a row onto the desk, zero beyond its columns."""
    frame, zero = matrix(s, desk.FRAME), spread(0.0)
    for i in range(d):
        for j in range(0, s, 8):
            store(w, frame + i * s + j, first(d - j, load(w, q + i * d + j), zero))


@jit
def close_frame(w: Any, q: int, d: int, s: int) -> None:
    """Q from the desk back into its row."""
    frame = matrix(s, desk.FRAME)
    for i in range(d):
        for j in range(0, s, 8):
            spot = q + i * d + j
            store(w, spot, first(d - j, load(w, frame + i * s + j), load(w, spot)))


@jit
def set_turn(w: Any, planes: int, share: float, d: int, s: int) -> None:
    """The next turn is share X, X skew with these planes.

    Some other work should lie between this and `turn_frame`: numbers that were stored one by one
    are slow to load by eight at once.
    """
    x = matrix(s, desk.TURNING)
    p = planes
    for i in range(d):
        w[x + i * s + i] = 0.0
        for j in range(i):
            v = share * w[p]
            w[x + i * s + j] = v
            w[x + j * s + i] = -v
            p += 1


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
        o11, o12, o22 = load(w, a + p), load(w, b + p), load(w, c + p)
        p11, p12, p22 = widen(o11, o12, o22, turns, keeps, angles, crosses, rates)
        p11, p12, p22 = within_circle(p11, p12, p22, most)
        # In this order: what a store writes too far is what was there, or is written next.
        store(w, a + p, first(n - p, p11, o11))
        store(w, b + p, first(n - p, p12, o12))
        store(w, c + p, first(n - p, p22, o22))


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
    zero, one, squares = spread(0.0), spread(1.0), spread(0.0)
    for p in range(0, n, 8):
        at = planes + p
        share, weight = load(w, at), load(w, at + 3 * room)
        information = load(w, at + 2 * room) * weight
        o11, o12, o22 = load(w, a + p), load(w, b + p), load(w, c + p)
        old = load(w, velocity + p)
        angle, kick, p11, p12, p22, rest = correct(o11, o12, o22, share * weight, information, one)
        term = share * load(w, at + room) * rest
        squares = squares + first(n - p, term, zero)
        store(w, at, angle)
        store(w, velocity + p, first(n - p, old + kick, old))
        store(w, a + p, first(n - p, p11, o11))
        store(w, b + p, first(n - p, p12, o12))
        store(w, c + p, first(n - p, p22, o22))
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
