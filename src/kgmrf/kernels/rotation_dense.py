"""The dense members of the compiled rotation engine: constant velocity and oscillators.

Each axis of the body frame carries a velocity v, its quadrature u and a log frequency l:

    v + i u  <-  z^h (v + i u),   z = exp(-i e^l),   angle += Re[(1 - z^h)/(1 - z) (v + i u)]

so that over one unit of time the angle moves by exactly v; at frequency 0 this is constant
velocity. A member is an extended Kalman filter of (angle, v, u, l), three numbers each, with its
own frame; only the lower triangle of its covariance is kept. ``m`` is scratch.
"""

from __future__ import annotations

import math
from typing import Any

from kgmrf.kernels import rotation_rows as at
from kgmrf.kernels.compile import jit
from kgmrf.kernels.lanes import after
from kgmrf.kernels.quaternions import between, turn, turning

LOG_2PI = math.log(2.0 * math.pi)
SWITCHING = 1e-3
ANGLE_CAP = math.pi**2 / 3.0  # variance of an angle about which nothing is known
LONGEST = 64.0  # a gap of more units than this is not integrated: members start anew
LOWEST = math.log(2.0 * math.pi / 1e5)  # guards only: a period of 1e5 units ...
HIGHEST = math.log(0.95 * math.pi)  # ... and Nyquist
F, A, B, C, N = 0, 144, 288, 432, 576  # in the scratch: four matrices, numbers
STASH = 624  # and from here 16 numbers for every member


@jit
def spot(p: int, i: int, j: int) -> int:
    """Where the covariance of numbers i >= j of the member at p is."""
    return p + at.COV + i * (i + 1) // 2 + j


@jit
def unpack(x: Any, p: int, m: Any) -> None:
    """The covariance of the member at p as a full matrix, to m[B]."""
    for i in range(12):
        for j in range(i + 1):
            m[B + 12 * i + j] = x[spot(p, i, j)]
            m[B + 12 * j + i] = x[spot(p, i, j)]


@jit
def fresh(x: Any, d: int, r: float, table: Any) -> None:
    """A member starts at the common frame with the common velocity and its own prior."""
    p = at.DENSE + at.BLOCK * d
    for j in range(at.COV, at.BLOCK):
        x[p + j] = 0.0
    for j in range(4):
        x[p + j] = x[at.FRAME + j]
    for a in range(3):
        v = 0.0
        for k in range(at.MEMBERS):
            v += x[at.WEIGHT + at.MEMBERS * a + k] * x[at.RATE + at.MEMBERS * a + k]
        x[p + at.MOTION + a] = v
        x[p + at.MOTION + 3 + a] = 0.0
        frequency = table[d, at.FREQUENCY + a]
        x[p + at.MOTION + 6 + a] = math.log(frequency) if frequency > 0.0 else 0.0
        x[spot(p, a, a)] = r
        x[spot(p, 3 + a, 3 + a)] = table[d, at.RATE_VAR + a]
        x[spot(p, 6 + a, 6 + a)] = table[d, at.RATE_VAR + a]
        x[spot(p, 9 + a, 9 + a)] = table[d, at.LOG_STD] ** 2
    x[p + at.AGE] = 0.0


@jit
def rescale(x: Any, f: float, table: Any) -> None:
    """The unit of time becomes f times what it was."""
    for d in range(len(table)):
        p = at.DENSE + at.BLOCK * d
        for a in range(9):
            if a < 6:
                x[p + at.MOTION + a] *= f
            else:
                x[p + at.MOTION + a] += math.log(f)
        for i in range(12):
            for j in range(i + 1):
                x[spot(p, i, j)] *= (f if 3 <= i < 9 else 1.0) * (f if 3 <= j < 9 else 1.0)


@jit
def product(m: Any, src: int, out: int) -> None:
    """m[out] = (F m[src])^T for 12 x 12 blocks of numbers; F is sparse, F src stays in m[C]."""
    for i in range(12):
        for j in range(12):
            m[C + 12 * i + j] = 0.0
        for k in range(12):
            f = m[F + 12 * i + k]
            if f != 0.0:
                for j in range(12):
                    m[C + 12 * i + j] += f * m[src + 12 * k + j]
    for i in range(12):
        for j in range(12):
            m[out + 12 * j + i] = m[C + 12 * i + j]


@jit
def drift(x: Any, d: int, h: float, table: Any, m: Any) -> None:
    """Mean and covariance of member d over h of at most one unit: P <- F P F^T + noise.

    The frequency multiplies the amplitude. While both are uncertain a first-order step would be far
    too sure of the phase, so the mean takes its second-order term and the covariance a diffusion
    w h var(log w) var(amplitude): the error of the frequency is coherent over about one radian.
    """
    p = at.DENSE + at.BLOCK * d
    q = table[d, at.ACCELERATION]
    unpack(x, p, m)
    for j in range(144):
        m[F + j] = 0.0
    for a in range(3):  # the motion of each axis; how the angle depends on it goes to row 3 of N
        v = x[p + at.MOTION + a]
        u = x[p + at.MOTION + 3 + a]
        w = math.exp(x[p + at.MOTION + 6 + a]) if table[d, at.FREQUENCY + a] > 0.0 else 0.0
        c = math.cos(w * h)
        s = math.sin(w * h)
        g = h  # (1 - z^h)/(1 - z) = g - i f, its derivative by the log frequency gl - i fl
        f = 0.0
        gl = 0.0
        fl = 0.0
        if abs(h - 1.0) < 1e-5:
            g = 1.0
        elif w > 1e-4:
            z = complex(math.cos(w), -math.sin(w))
            zh = complex(c, -s)
            gz = (1.0 - zh) / (1.0 - z)
            dz = (h * zh - gz * z) / (1.0 - z) * complex(0.0, w)
            g = gz.real
            f = -gz.imag
            gl = dz.real
            fl = -dz.imag
        v2 = c * v + s * u
        u2 = c * u - s * v
        m[N + 30 + a] = g * v + f * u
        m[N + 33 + a] = g
        m[N + 36 + a] = f
        m[N + 39 + a] = gl * v + fl * u
        m[F + 13 * (3 + a)] = c
        wh = w * h
        m[F + 12 * (3 + a) + 6 + a] = s
        m[F + 12 * (3 + a) + 9 + a] = wh * u2
        m[F + 12 * (6 + a) + 3 + a] = -s
        m[F + 13 * (6 + a)] = c
        m[F + 12 * (6 + a) + 9 + a] = -wh * v2
        m[F + 13 * (9 + a)] = 1.0
        pv = m[B + 12 * (3 + a) + 9 + a]
        pu = m[B + 12 * (6 + a) + 9 + a]
        x[p + at.MOTION + a] = v2 + wh * (c * pu - s * pv)
        x[p + at.MOTION + 3 + a] = u2 - wh * (c * pv + s * pu)
        f = wh * m[B + 13 * (9 + a)]
        m[N + 42 + a] = f * m[B + 13 * (6 + a)] + q * h
        m[N + 45 + a] = f * m[B + 13 * (3 + a)] + q * h
    f0 = m[N + 30]
    f1 = m[N + 31]
    f2 = m[N + 32]
    turn(x, p, f0, f1, f2)
    for j in range(30):
        m[A + j] = 0.0
    turning(f0, f1, f2, after(m, A))
    for a in range(3):
        for b in range(3):
            jac = m[A + 9 + 3 * a + b]
            m[F + 12 * a + b] = m[A + 3 * b + a]
            m[F + 12 * a + 3 + b] = jac * m[N + 33 + b]
            m[F + 12 * a + 6 + b] = jac * m[N + 36 + b]
            m[F + 12 * a + 9 + b] = jac * m[N + 39 + b]
    product(m, B, A)
    product(m, A, B)
    for a in range(3):
        m[B + 13 * a] += q * h * h * h / 3.0
        m[B + 12 * a + 3 + a] += q * h * h / 2.0
        m[B + 12 * (3 + a) + a] += q * h * h / 2.0
        m[B + 13 * (3 + a)] += m[N + 42 + a]
        m[B + 13 * (6 + a)] += m[N + 45 + a]
    for a in range(12):
        m[A + a] = 1.0
        if a < 3 and m[B + 13 * a] > ANGLE_CAP:  # row and column, so that P stays definite
            m[A + a] = math.sqrt(ANGLE_CAP / m[B + 13 * a])
    for i in range(12):
        for j in range(i + 1):
            x[spot(p, i, j)] = m[A + i] * m[A + j] * m[B + 12 * i + j]


@jit
def drift_all(x: Any, h: float, table: Any, m: Any) -> None:
    """All members over h, in pieces of about one unit."""
    pieces = max(math.ceil(h - 0.5), 1)
    for d in range(len(table)):
        if h > LONGEST:
            fresh(x, d, ANGLE_CAP, table)
        else:
            for _ in range(pieces):
                drift(x, d, h / pieces, table, m)


@jit
def score(x: Any, z: Any, r: float, table: Any, m: Any) -> float:
    """Log evidence of all members for Z; innovations and new weights stay in the scratch.

    Densities are with respect to volume on the group. A member that cannot be used any more
    (a variance not positive, half a turn per unit) starts anew first.
    """
    top = -1e300
    for d in range(len(table)):
        p = at.DENSE + at.BLOCK * d
        cov = p + at.COV
        sound = True
        for a in range(12):
            sound = sound and 0.0 <= x[spot(p, a, a)] < 1e12
        for a in range(3):
            sound = sound and abs(x[p + at.MOTION + a]) < math.pi
        if not sound:
            fresh(x, d, r, table)
        s = STASH + 16 * d  # Log(Q^T Z), S^-1 Log, S^-1, weight
        half = 0.5 * between(x, p, z, 0, m, s)
        s00 = x[cov] + r
        s01 = x[cov + 1]
        s11 = x[cov + 2] + r
        s02 = x[cov + 3]
        s12 = x[cov + 4]
        s22 = x[cov + 5] + r
        m[s + 6] = s11 * s22 - s12 * s12
        m[s + 7] = s02 * s12 - s01 * s22
        m[s + 8] = s01 * s12 - s02 * s11
        m[s + 10] = s00 * s22 - s02 * s02
        m[s + 11] = s01 * s02 - s00 * s12
        m[s + 14] = s00 * s11 - s01 * s01
        det = s00 * m[s + 6] + s01 * m[s + 7] + s02 * m[s + 8]
        m[s + 9] = m[s + 7]
        m[s + 12] = m[s + 8]
        m[s + 13] = m[s + 11]
        nis = 0.0
        for a in range(3):
            m[s + 3 + a] = 0.0
            for b in range(3):
                m[s + 6 + 3 * a + b] /= det
                m[s + 3 + a] += m[s + 6 + 3 * a + b] * m[s + b]
            nis += m[s + a] * m[s + 3 + a]
        value = -1e12
        if det > 0.0:
            value = -0.5 * (3.0 * LOG_2PI + math.log(det) + nis)
            if half > 1e-6:
                value -= 2.0 * math.log(math.sin(half) / half)
        if not value > -1e12:  # NaN too
            value = -1e12
        m[s + 15] = value
        top = max(top, value)
    total = 0.0
    for d in range(len(table)):
        s = STASH + 16 * d + 15
        w = (1.0 - SWITCHING) * x[at.DENSE + at.BLOCK * d + at.SHARE]
        w += SWITCHING * table[d, at.PRIOR]
        m[s] = w * math.exp(m[s] - top)
        total += m[s]
    for d in range(len(table)):
        m[STASH + 16 * d + 15] /= total
    return top + math.log(total)


@jit
def take(x: Any, r: float, table: Any, m: Any) -> None:
    """Kalman corrections from what `score` left in the scratch.

    A member whose past weighs less than what the sharing grants it anyway starts anew.
    """
    for d in range(len(table)):
        p = at.DENSE + at.BLOCK * d
        s = STASH + 16 * d
        x[p + at.SHARE] = m[s + 15]
        x[p + at.AGE] += 1.0
        unpack(x, p, m)
        for k in range(12):  # gains S^-1 P to A, the step to N
            m[N + k] = 0.0
            for a in range(3):
                m[N + k] += m[B + 12 * a + k] * m[s + 3 + a]
                m[A + 12 * a + k] = 0.0
                for b in range(3):
                    m[A + 12 * a + k] += m[s + 6 + 3 * a + b] * m[B + 12 * b + k]
        for i in range(12):
            for j in range(i + 1):
                if j < 3:  # P - K S K^T is r S^-1 P here, without cancellation
                    x[spot(p, i, j)] = r * m[A + 12 * j + i]
                else:
                    for a in range(3):
                        x[spot(p, i, j)] -= m[B + 12 * a + i] * m[A + 12 * a + j]
        turn(x, p, m[N], m[N + 1], m[N + 2])
        for k in range(9):
            x[p + at.MOTION + k] += m[N + 3 + k]
        for k in range(6, 9):
            x[p + at.MOTION + k] = min(max(x[p + at.MOTION + k], LOWEST), HIGHEST)
        share = x[p + at.SHARE] * x[at.EXPERTS + 2]
        if x[p + at.AGE] > 30.0 and share < 1e-3 * SWITCHING * table[d, at.PRIOR]:
            fresh(x, d, r, table)
