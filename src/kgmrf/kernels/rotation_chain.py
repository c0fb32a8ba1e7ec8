"""One motion model on SO(3), compiled: drift and correct, for the smoother of a single law.

A member's state: ``frame`` (3, 3); ``motion`` (9,) = velocity, quadrature, log frequency; ``cov``
(12, 12) of (angle error, velocity, quadrature, log frequency), all in the body frame. Members that
do not oscillate use the leading 6 x 6 block only. ``law`` (12,) is its motion model, ``work``
(6, 12, 12) is scratch.
"""

from __future__ import annotations

import math
from typing import Any

from kgmrf.kernels.compile import jit
from kgmrf.kernels.rotation3 import (
    exp3,
    polish3,
    relative_log3,
    right_jacobian3,
    turn3,
)

# A law, in order: frequency (3), prior of its logarithm, prior of the velocity (3), and rates.
FREQUENCY, FREQUENCY_STD, RATE_PRIOR = 0, 3, 4
DECAY, ACCELERATION, JITTER, FREQUENCY_NOISE, LOG_PRIOR = 7, 8, 9, 10, 11

LOG_2PI = math.log(2.0 * math.pi)
ANGLE_CAP = math.pi**2 / 3.0  # variance of an angle about which nothing is known
MAX_SUBSTEPS = 64
LOWEST = math.log(2.0 * math.pi / 1e5)  # guards only: a period of 1e5 frames ...
HIGHEST = math.log(0.95 * math.pi)  # ... and Nyquist


@jit
def size_of(law: Any) -> int:
    """How many states the member has: 12 if any axis oscillates, else 6."""
    return 12 if law[0] > 0.0 or law[1] > 0.0 or law[2] > 0.0 else 6


@jit
def substeps(dt: float) -> int:
    """Pieces of about one frame at most; a little more than a frame is one still."""
    return int(min(math.ceil(dt - 1e-6), MAX_SUBSTEPS)) if dt > 1e-6 else 1


# --------------------------------------------------------------------------- drift


@jit
def axis_transition(w: float, decay: float, dt: float, c: Any) -> None:
    """c[:6] = Re, -Im of z^dt, of g = (1 - z^dt)/(1 - z) and of dg/dlog(w); z = exp(-decay - i w).

    Short arguments by series, because the closed form divides by 1 - z.
    """
    rho = math.exp(-decay * dt)
    c[0] = rho * math.cos(w * dt)
    c[1] = rho * math.sin(w * dt)
    if abs(dt - 1.0) < 1e-9:  # rounding of a division by the frame interval included
        c[2] = 1.0
        c[3] = 0.0
        c[4] = 0.0
        c[5] = 0.0
        return
    s = complex(decay, w)
    if abs(s) * max(dt, 1.0) < 1e-4:
        first = (dt - 1.0) / 2.0
        second = (dt - 1.0) * (2.0 * dt - 1.0) / 6.0
        g = dt * (1.0 - s * first + s * s * second / 2.0)
        dg = dt * (-first + s * second)
    else:
        z = math.exp(-decay) * complex(math.cos(w), -math.sin(w))
        zd = complex(c[0], -c[1])
        g = (1.0 - zd) / (1.0 - z)
        dg = (dt * zd - g * z) / (1.0 - z)
    dl = dg * complex(0.0, w)
    c[2] = g.real
    c[3] = -g.imag
    c[4] = dl.real
    c[5] = -dl.imag


@jit
def advance(frame: Any, motion: Any, law: Any, dt: float, work: Any) -> None:
    """Q <- Q Exp(phi), phi = Re[g (v + i u)]; v + i u <- z^dt (v + i u). Mean only.

    Leaves the transition in ``work``: [0] = Exp(-phi), [1] = Jr(phi), [2] = per axis the six
    numbers of ``axis_transition``, then d(phi, v, u)/d(log frequency), phi and w dt.
    """
    e = work[0]
    c = work[2]
    for a in range(3):
        v = motion[a]
        u = motion[3 + a]
        w = math.exp(motion[6 + a]) if law[a] > 0.0 else 0.0
        axis_transition(w, law[DECAY], dt, c[a])
        v_new = c[a, 0] * v + c[a, 1] * u
        u_new = c[a, 0] * u - c[a, 1] * v
        c[a, 6] = c[a, 4] * v + c[a, 5] * u
        c[a, 7] = w * dt * u_new
        c[a, 8] = -w * dt * v_new
        c[a, 9] = c[a, 2] * v + c[a, 3] * u
        c[a, 10] = w * dt
        motion[a] = v_new
        motion[3 + a] = u_new
    x = c[0, 9]
    y = c[1, 9]
    z = c[2, 9]
    exp3(x, y, z, e)
    turn3(frame, e, work[3])
    exp3(-x, -y, -z, e)
    right_jacobian3(x, y, z, work[1])


@jit
def carry(n: int, work: Any, src: Any, out: Any) -> None:
    """out = F src for the transition left in ``work``.

    F = [[Exp(-phi), Jr diag(a), Jr diag(b), Jr diag(dphi/dl)],
         [0,         turn and decay of (v, u),       d(v, u)/dl],
         [0,         0,          0,                  I]].
    """
    e = work[0]
    c = work[2]
    for a in range(3):
        keep = c[a, 0]
        if n == 12:
            cross, on_v, on_u = c[a, 1], c[a, 7], c[a, 8]
            for k in range(n):
                v = src[3 + a, k]
                u = src[6 + a, k]
                lf = src[9 + a, k]
                out[3 + a, k] = keep * v + cross * u + on_v * lf
                out[6 + a, k] = keep * u - cross * v + on_u * lf
                out[9 + a, k] = lf
        else:
            for k in range(n):
                out[3 + a, k] = keep * src[3 + a, k]
    for i in range(3):
        e0, e1, e2 = e[i, 0], e[i, 1], e[i, 2]
        j0, j1, j2 = work[1, i, 0], work[1, i, 1], work[1, i, 2]
        v0, v1, v2 = j0 * c[0, 2], j1 * c[1, 2], j2 * c[2, 2]
        for k in range(n):
            out[i, k] = (
                e0 * src[0, k]
                + e1 * src[1, k]
                + e2 * src[2, k]
                + v0 * src[3, k]
                + v1 * src[4, k]
                + v2 * src[5, k]
            )
        if n == 12 and (c[0, 3] != 0.0 or c[1, 3] != 0.0 or c[2, 3] != 0.0):
            # over exactly one frame the angle moves by v, whatever u and the frequency are
            u0, u1, u2 = j0 * c[0, 3], j1 * c[1, 3], j2 * c[2, 3]
            l0, l1, l2 = j0 * c[0, 6], j1 * c[1, 6], j2 * c[2, 6]
            for k in range(n):
                out[i, k] += (
                    u0 * src[6, k]
                    + u1 * src[7, k]
                    + u2 * src[8, k]
                    + l0 * src[9, k]
                    + l1 * src[10, k]
                    + l2 * src[11, k]
                )


@jit
def conjugate(n: int, work: Any, p: Any, half: Any, turned: Any) -> None:
    """p <- F p F^T for the transition left in ``work``."""
    carry(n, work, p, half)
    for i in range(n):
        for j in range(n):
            turned[j, i] = half[i, j]
    carry(n, work, turned, p)


@jit
def velocity_noise(decay: float, dt: float) -> tuple[float, float, float]:
    """Variance of angle, covariance, variance of velocity for unit acceleration over dt.

    The exact integrals of the decaying velocity, as in :func:`kgmrf.gains.transition`.
    """
    if decay == 0.0:
        return dt * dt * dt / 3.0, dt * dt / 2.0, dt
    scale = -decay / math.expm1(-decay)
    x = decay * dt
    if x < 0.02:
        rate = 1.0 - x * (1.0 - x * (2.0 / 3.0 - x * (1.0 / 3.0 - x * 2.0 / 15.0)))
        cross = 0.5 - x * (0.5 - x * (7.0 / 24.0 - x * (0.125 - x * 31.0 / 720.0)))
        angle = 1.0 / 3.0 - x * (0.25 - x * (7.0 / 60.0 - x * (1.0 / 24.0 - x * 31.0 / 2520.0)))
    else:
        u = math.exp(-x)
        rate = (1.0 - u * u) / (2.0 * x)
        cross = (1.0 - u) * (1.0 - u) / (2.0 * x * x)
        angle = (1.0 - 2.0 * (1.0 - u) / x + (1.0 - u * u) / (2.0 * x)) / (x * x)
    return scale * scale * dt * dt * dt * angle, scale * dt * dt * cross, dt * rate


@jit
def add_process_noise(n: int, law: Any, dt: float, cov: Any) -> None:
    """cov += integrated white acceleration, angle jitter, log-frequency walk."""
    on_angle, on_both, on_velocity = 0.0, 0.0, 0.0
    if law[ACCELERATION] > 0.0:
        on_angle, on_both, on_velocity = velocity_noise(law[DECAY], dt)
        on_angle *= law[ACCELERATION]
        on_both *= law[ACCELERATION]
        on_velocity *= law[ACCELERATION]
    for a in range(3):
        cov[a, a] += on_angle + law[JITTER] * dt
        cov[a, 3 + a] += on_both
        cov[3 + a, a] += on_both
        cov[3 + a, 3 + a] += on_velocity
        if n == 12 and law[a] > 0.0:
            cov[6 + a, 6 + a] += on_velocity
            cov[9 + a, 9 + a] += law[FREQUENCY_NOISE] * dt


@jit
def drift_member(frame: Any, motion: Any, cov: Any, n: int, law: Any, dt: float, work: Any) -> None:
    """Mean and covariance over one (sub)step: ``advance``, F P F^T + noise, second-order terms.

    The frequency multiplies the amplitude. While both are uncertain a first-order step would be far
    too sure of the phase, so the mean takes its second-order term and the covariance a diffusion
    w dt var(log w) var(amplitude): the error of the frequency is coherent over about one radian.
    """
    advance(frame, motion, law, dt, work)
    c = work[2]
    if n == 12:
        for a in range(3):
            wd = c[a, 10]  # zero on an axis that does not oscillate
            pv = cov[3 + a, 9 + a]
            pu = cov[6 + a, 9 + a]
            motion[a] += wd * (c[a, 0] * pu - c[a, 1] * pv)
            motion[3 + a] -= wd * (c[a, 0] * pv + c[a, 1] * pu)
            spread = wd * cov[9 + a, 9 + a]
            work[4, 0, a] = spread * cov[6 + a, 6 + a]
            work[4, 1, a] = spread * cov[3 + a, 3 + a]
    conjugate(n, work, cov, work[5], work[3])
    add_process_noise(n, law, dt, cov)
    if n == 12:
        for a in range(3):
            cov[3 + a, 3 + a] += work[4, 0, a]
            cov[6 + a, 6 + a] += work[4, 1, a]
    for a in range(3):
        if cov[a, a] > ANGLE_CAP:  # scale row and column: clipping alone would break definiteness
            f = math.sqrt(ANGLE_CAP / cov[a, a])
            for k in range(n):
                cov[a, k] *= f
            for k in range(n):
                cov[k, a] *= f


# --------------------------------------------------------------------------- correct


@jit
def correct_member(
    frame: Any,
    motion: Any,
    cov: Any,
    n: int,
    law: Any,
    observation: Any,
    noise_var: float,
    work: Any,
) -> tuple[float, float]:
    """Kalman correction by w = Log(Q^T Z); returns (log density of Z, normalised innovation^2).

    The density is with respect to volume on the group: the Gaussian of the innovation divided by
    det Jr(w), so that members which expected Z in different places are compared on equal terms.
    """
    w = work[3, 0]
    theta = relative_log3(frame, observation, w)
    s00 = cov[0, 0] + noise_var
    s11 = cov[1, 1] + noise_var
    s22 = cov[2, 2] + noise_var
    s01 = cov[0, 1]
    s02 = cov[0, 2]
    s12 = cov[1, 2]
    i00 = s11 * s22 - s12 * s12
    i01 = s02 * s12 - s01 * s22
    i02 = s01 * s12 - s02 * s11
    i11 = s00 * s22 - s02 * s02
    i12 = s01 * s02 - s00 * s12
    i22 = s00 * s11 - s01 * s01
    det = s00 * i00 + s01 * i01 + s02 * i02
    f = 1.0 / det
    i00 *= f
    i01 *= f
    i02 *= f
    i11 *= f
    i12 *= f
    i22 *= f
    w0, w1, w2 = w[0], w[1], w[2]
    y0 = i00 * w0 + i01 * w1 + i02 * w2
    y1 = i01 * w0 + i11 * w1 + i12 * w2
    y2 = i02 * w0 + i12 * w1 + i22 * w2
    nis = w0 * y0 + w1 * y1 + w2 * y2
    half = 0.5 * theta
    log_volume = 2.0 * math.log(math.sin(half) / half) if half > 1e-6 else 0.0
    ll = -0.5 * (3.0 * LOG_2PI + math.log(det) + nis) - log_volume
    gain = work[1]
    step = work[4, 0]
    for k in range(n):
        p0 = cov[0, k]
        p1 = cov[1, k]
        p2 = cov[2, k]
        gain[0, k] = i00 * p0 + i01 * p1 + i02 * p2
        gain[1, k] = i01 * p0 + i11 * p1 + i12 * p2
        gain[2, k] = i02 * p0 + i12 * p1 + i22 * p2
        step[k] = p0 * y0 + p1 * y1 + p2 * y2
    # P - K S K^T; the angle rows are noise_var K^T exactly, without cancellation
    for k in range(3, n):
        g0, g1, g2 = gain[0, k], gain[1, k], gain[2, k]
        for m in range(k, n):
            cov[k, m] -= g0 * cov[0, m] + g1 * cov[1, m] + g2 * cov[2, m]
    # the error is now counted from the corrected frame: half the turn, to second order
    exp3(-0.5 * step[0], -0.5 * step[1], -0.5 * step[2], work[0])
    for a in range(3):
        t0 = noise_var * work[0, a, 0]
        t1 = noise_var * work[0, a, 1]
        t2 = noise_var * work[0, a, 2]
        for k in range(n):
            cov[a, k] = t0 * gain[0, k] + t1 * gain[1, k] + t2 * gain[2, k]
    for a in range(3):
        p0, p1, p2 = cov[a, 0], cov[a, 1], cov[a, 2]
        for b in range(3):
            cov[a, b] = work[0, b, 0] * p0 + work[0, b, 1] * p1 + work[0, b, 2] * p2
    for k in range(n):
        for m in range(k):
            cov[k, m] = cov[m, k]
    exp3(step[0], step[1], step[2], work[0])
    turn3(frame, work[0], work[2])
    polish3(frame, work[0], work[2])
    for k in range(3, min(n, 9)):
        motion[k - 3] += step[k]
    if n == 12:
        for a in range(3):
            if law[a] > 0.0:
                motion[6 + a] = min(max(motion[6 + a] + step[9 + a], LOWEST), HIGHEST)
    return ll, nis


# --------------------------------------------------------------------------- the start


@jit
def start_members(
    observation: Any, noise_var: float, laws: Any, frames: Any, motions: Any, covs: Any
) -> None:
    """Every member starts at the first observation, at rest, with its own prior."""
    covs[:] = 0.0
    motions[:] = 0.0
    for k in range(len(frames)):
        frames[k] = observation
        for a in range(3):
            covs[k, a, a] = noise_var
            covs[k, 3 + a, 3 + a] = laws[k, RATE_PRIOR + a]
            if laws[k, a] > 0.0:
                motions[k, 6 + a] = math.log(laws[k, a])
                covs[k, 6 + a, 6 + a] = laws[k, RATE_PRIOR + a]
                covs[k, 9 + a, 9 + a] = laws[k, FREQUENCY_STD] ** 2
