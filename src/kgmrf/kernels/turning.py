"""An eigenframe that turns, one track at a time: what single laws and turning members share.

The frame lies on the desk of :mod:`kgmrf.kernels.products`, and so do its turns. Numbers of planes
i > j lie row by row, ``n`` of them, in the order W, P11, P12, P22: close together in a row, and in
lists with room for eight at a time on the desk.
"""

from __future__ import annotations

from typing import Any

from kgmrf.kernels import layout as desk
from kgmrf.kernels.check import spread_out
from kgmrf.kernels.compile import jit
from kgmrf.kernels.lanes import fetch, fma, load, load_first, spread, store, total
from kgmrf.kernels.plane import correct, widen, within_circle
from kgmrf.kernels.products import matrix
from kgmrf.motion import POLISH_EVERY


@jit
def move(a: Any, start: int, b: Any, to: int, n: int) -> None:
    """n numbers of a into b."""
    if n < 8:
        for i in range(n):
            b[to + i] = a[start + i]
        return
    for i in range(0, n - 7, 8):
        store(b, to + i, load(a, start + i))
    if n % 8:
        store(b, to + n - 8, load(a, start + n - 8))


@jit
def polish_is_due(steps: float) -> bool:
    """Whether rounding of a frame is to be taken back after this many steps."""
    return int(steps) % POLISH_EVERY == 0


@jit
def expect(a: Any, start: int, n: int) -> None:
    """n numbers of a will be needed soon."""
    for i in range(start, start + n, 8):
        fetch(a, i)


@jit
def open_frame(a: Any, q: int, w: Any, d: int, s: int) -> None:
    """Q of a row onto the desk."""
    spread_out(a, q, w, matrix(s, desk.FRAME), d, s)


@jit
def close_frame(w: Any, a: Any, q: int, d: int, s: int) -> None:
    """Q from the desk into a row; what a line of Q writes too far, the next ones overwrite."""
    frame, whole = matrix(s, desk.FRAME), max(0, d - -(-s // d) + 1)
    for i in range(whole):
        for j in range(0, s, 8):
            store(a, q + i * d + j, load(w, frame + i * s + j))
    for i in range(whole, d):
        move(w, frame + i * s, a, q + i * d, d)


@jit
def open_planes(a: Any, q: int, w: Any, lists: int, room: int, n: int, count: int) -> None:
    """W, P11, P12 and P22 of a row (or the first of them) onto the desk, ``room`` apart.

    There they are stored by eight: to store less takes many times as long on some processors.
    """
    for k in range(count):
        for p in range(0, n, 8):
            store(w, lists + k * room + p, load_first(a, q + k * n + p, n - p))


@jit
def close_planes(w: Any, lists: int, room: int, a: Any, q: int, n: int, count: int) -> None:
    """The inverse of `open_planes`."""
    for k in range(count):
        move(w, lists + k * room, a, q + k * n, n)


@jit
def widen_planes(
    w: Any,
    lists: int,
    room: int,
    n: int,
    turn: float,
    keep: float,
    angle: float,
    cross: float,
    rate: float,
    most: float,
) -> None:
    """P <- F P F^T + noise with F = [[1, turn], [0, keep]], within its limits."""
    turns, keeps = spread(turn), spread(keep)
    angles, crosses, rates = spread(angle), spread(cross), spread(rate)
    for p in range(lists + room, lists + room + n, 8):
        left = lists + room + n - p
        p11, p12 = load_first(w, p, left), load_first(w, p + room, left)
        p22 = load_first(w, p + 2 * room, left)
        p11, p12, p22 = widen(p11, p12, p22, turns, keeps, angles, crosses, rates)
        p11, p12, p22 = within_circle(p11, p12, p22, most)
        store(w, p, p11)
        store(w, p + room, p12)
        store(w, p + 2 * room, p22)


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
def correct_planes(w: Any, lists: int, n: int, planes: int, room: int) -> float:
    """W and P of every plane after what `compare_planes` found; the angles to turn by are left at
    ``planes``. Returns nis."""
    one, squares = spread(1.0), spread(0.0)
    for p in range(0, n, 8):
        at, mine, left = planes + p, lists + p, n - p
        share, weight = load_first(w, at, left), load_first(w, at + 3 * room, left)
        information = load(w, at + 2 * room) * weight
        p11, p12 = load(w, mine + room), load(w, mine + 2 * room)
        p22, old = load(w, mine + 3 * room), load(w, mine)
        angle, kick, p11, p12, p22, rest = correct(p11, p12, p22, share * weight, information, one)
        squares = fma(share * load(w, at + room), rest, squares)
        store(w, at, angle)
        store(w, mine, old + kick)
        store(w, mine + room, p11)
        store(w, mine + 2 * room, p12)
        store(w, mine + 3 * room, p22)
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
