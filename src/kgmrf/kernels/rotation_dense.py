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
from kgmrf.kernels.rotation_core import LOG_2PI, SWITCHING

ANGLE_CAP = math.pi**2 / 3.0  # variance of an angle about which nothing is known
LONGEST = 64.0  # a gap of more units than this is not integrated: members start anew
LOWEST = math.log(2.0 * math.pi / 1e5)  # guards only: a period of 1e5 units ...
HIGHEST = math.log(0.95 * math.pi)  # ... and Nyquist
F, A, B, C, N = 0, 144, 288, 432, 576  # in the scratch: four matrices, numbers;
STEP, BY_V, BY_U, BY_L, NOISE_V, NOISE_U = range(606, 624, 3)  # of an axis: how far its angle moves
# and how that depends on v, u and l, the noise of v and of u;
STASH = 624  # and from here 16 numbers for every member:
LOG, SCALED, INVERSE, NEW = 0, 3, 6, 15  # Log(Q^T Z), S^-1 Log, S^-1, weight
SCRATCH = STASH + 16 * at.DENSE_MEMBERS


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
    for a in range(3):  # the motion of each axis
        v = x[p + at.MOTION + a]
        u = x[p + at.MOTION + 3 + a]
        w = math.exp(x[p + at.MOTION + 6 + a]) if table[d, at.FREQUENCY + a] > 0.0 else 0.0
        c = math.cos(w * h)
        s = math.sin(w * h)
        # (1 - z^h)/(1 - z) = g - i f, its derivative by the log frequency gl - i fl
        g, f, gl, fl = h, 0.0, 0.0, 0.0
        if abs(h - 1.0) < 1e-5:
            g = 1.0
        elif w > 1e-4:
            z = complex(math.cos(w), -math.sin(w))
            zh = complex(c, -s)
            gz = (1.0 - zh) / (1.0 - z)
            dz = (h * zh - gz * z) / (1.0 - z) * complex(0.0, w)
            g, f, gl, fl = gz.real, -gz.imag, dz.real, -dz.imag
        v2 = c * v + s * u
        u2 = c * u - s * v
        m[STEP + a] = g * v + f * u
        m[BY_V + a] = g
        m[BY_U + a] = f
        m[BY_L + a] = gl * v + fl * u
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
        m[NOISE_V + a] = f * m[B + 13 * (6 + a)] + q * h
        m[NOISE_U + a] = f * m[B + 13 * (3 + a)] + q * h
    f0, f1, f2 = m[STEP], m[STEP + 1], m[STEP + 2]
    turn(x, p, f0, f1, f2)
    for j in range(30):
        m[A + j] = 0.0
    turning(f0, f1, f2, after(m, A))
    for a in range(3):
        for b in range(3):
            jac = m[A + 9 + 3 * a + b]
            m[F + 12 * a + b] = m[A + 3 * b + a]
            m[F + 12 * a + 3 + b] = jac * m[BY_V + b]
            m[F + 12 * a + 6 + b] = jac * m[BY_U + b]
            m[F + 12 * a + 9 + b] = jac * m[BY_L + b]
    product(m, B, A)
    product(m, A, B)
    for a in range(3):
        m[B + 13 * a] += q * h * h * h / 3.0
        m[B + 12 * a + 3 + a] += q * h * h / 2.0
        m[B + 12 * (3 + a) + a] += q * h * h / 2.0
        m[B + 13 * (3 + a)] += m[NOISE_V + a]
        m[B + 13 * (6 + a)] += m[NOISE_U + a]
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
        sound = True
        for a in range(12):
            sound = sound and 0.0 <= x[spot(p, a, a)] < 1e12
        for a in range(3):
            sound = sound and abs(x[p + at.MOTION + a]) < math.pi
        if not sound:
            fresh(x, d, r, table)
        s = STASH + 16 * d
        half = 0.5 * between(x, p, z, 0, m, s)
        for a in range(3):  # P + r I
            for b in range(3):
                v = x[spot(p, max(a, b), min(a, b))]
                m[N + 3 * a + b] = v + r if a == b else v
        for a in range(3):
            b, c = N + 3 * ((a + 1) % 3), N + 3 * ((a + 2) % 3)
            for i in range(3):
                j, k = (i + 1) % 3, (i + 2) % 3
                m[s + INVERSE + 3 * a + i] = m[b + j] * m[c + k] - m[b + k] * m[c + j]
        det = m[N] * m[s + INVERSE] + m[N + 1] * m[s + INVERSE + 1] + m[N + 2] * m[s + INVERSE + 2]
        nis = 0.0
        for a in range(3):
            m[s + SCALED + a] = 0.0
            for b in range(3):
                m[s + INVERSE + 3 * a + b] /= det
                m[s + SCALED + a] += m[s + INVERSE + 3 * a + b] * m[s + b]
            nis += m[s + a] * m[s + SCALED + a]
        value = -1e12
        if det > 0.0:
            value = -0.5 * (3.0 * LOG_2PI + math.log(det) + nis)
            if half > 1e-6:
                value -= 2.0 * math.log(math.sin(half) / half)
        if not value > -1e12:  # NaN too
            value = -1e12
        m[s + NEW] = value
        top = max(top, value)
    total = 0.0
    for d in range(len(table)):
        s = STASH + 16 * d + NEW
        w = (1.0 - SWITCHING) * x[at.DENSE + at.BLOCK * d + at.SHARE]
        w += SWITCHING * table[d, at.PRIOR]
        m[s] = w * math.exp(m[s] - top)
        total += m[s]
    for d in range(len(table)):
        m[STASH + 16 * d + NEW] /= total
    return top + math.log(total)


@jit
def take(x: Any, r: float, table: Any, m: Any) -> None:
    """Kalman corrections from what `score` left in the scratch.

    A member whose past weighs less than what the sharing grants it anyway starts anew.
    """
    for d in range(len(table)):
        p = at.DENSE + at.BLOCK * d
        s = STASH + 16 * d
        x[p + at.SHARE] = m[s + NEW]
        x[p + at.AGE] += 1.0
        unpack(x, p, m)
        for k in range(12):  # gains S^-1 P to A, the step to N
            m[N + k] = 0.0
            for a in range(3):
                m[N + k] += m[B + 12 * a + k] * m[s + SCALED + a]
                m[A + 12 * a + k] = 0.0
                for b in range(3):
                    m[A + 12 * a + k] += m[s + INVERSE + 3 * a + b] * m[B + 12 * b + k]
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
