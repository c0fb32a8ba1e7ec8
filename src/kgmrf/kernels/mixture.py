"""The compiled loop of the self-tuning bank: members drift, forecast and learn, and are weighed.

A member is a row of parameters (see :mod:`kgmrf.kernels.members`) and a slice of the state:

================  =========================  ========================  ====================
part              average (EMA)              information               kinetic average
================  =========================  ========================  ====================
``frame[k]``      factor R, R^T R = B        Q                         Q
``matrix[k]``     the average B itself       velocity W                velocity W
``spectrum[k]``   channel deviations D       eigenvalues d_i           eigenvalues d_i
``planes[k]``                                per-plane covariance P
================  =========================  ========================  ====================

It forecasts e^s D B D, or e^s Q diag(d) Q^T. The equations are told in :mod:`kgmrf.mixture`.
"""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

from kgmrf._check import LARGEST, SMALLEST
from kgmrf.gains import ANGLE_VARIANCE_LIMIT
from kgmrf.kernels.members import (
    ACCELERATION,
    ALLOWANCE,
    ANGLE_NOISE,
    BAYES,
    BLEND_RATE,
    CHANNEL_DECAY,
    CLIP,
    COUNT,
    DECAY,
    DENSITY,
    DT,
    EMA,
    FORGETTING,
    INFORMATION,
    KIND,
    LAST_SAMPLES,
    MIXTURE,
    N_NUMBERS,
    NIS,
    OBSERVED,
    R_SEEN,
    R_TIME,
    RETENTION,
    SAMPLES,
    SCALE_GAIN,
    SCALE_RETENTION,
    SEEN,
    SHARE,
    SPECTRUM_RATE,
    SURPRISE_LIMIT,
    TIME,
    TOP_SHARE,
    VELOCITY_GAIN,
)
from kgmrf.kernels.small_linalg import (
    MEANING,
    cholesky,
    cholesky_add,
    congruence,
    invert,
    jacobi,
    jit,
    multiply,
    multiply_transposed,
    polish,
    recompose,
    rotate,
    solve,
    trace_solve,
    turn,
)
from kgmrf.step import POLISH_EVERY

RATE_LIMIT = 0.04  # a velocity prior wider than .2 rad per unit time would alias
GROSS = 30.0  # a frame this many times larger than forecast is a gross outlier
ABSURD = 1e60  # nobody learns from a frame this many times larger than forecast
ONE_SAMPLE = 1e-26  # squared relative error up to which a matrix is the square of one sample
NEGLIGIBLE = 1e-3  # weight of a member that does not enter the spread of the angles
LOG_2PI = math.log(2.0 * math.pi)


def _fingerprint() -> str:
    """Changes with every file and number that the machine code is made from."""
    texts = [Path(__file__).with_name(f"{name}.py") for name in ("members", "small_linalg")]
    text = b"".join(file.read_bytes() for file in texts)
    numbers = repr((ANGLE_VARIANCE_LIMIT, POLISH_EVERY, LARGEST, SMALLEST)).encode()
    return hashlib.sha256(text + numbers).hexdigest()[:12]


FINGERPRINT = _fingerprint()


def compiled(signature: str) -> Any:
    """Compile for Python to call, at once, or find it in the cache: as in `kernels.machine`."""

    def wrap(function: Any) -> Any:
        function.__qualname__ = f"{function.__name__}-{FINGERPRINT}"
        return njit(signature, cache=True, nogil=True, **MEANING)(function)

    return wrap


# ----------------------------------------------------------------------- one member


@jit
def drift(
    p: Any, dt: float, frame: Any, matrix: Any, spectrum_var: Any, planes: Any, work: Any
) -> None:
    """Q <- Q Exp(tau W), P <- F P F^T + noise, tau = (1 - rho^dt)/(1 - rho); an average stays."""
    d = frame.shape[0]
    rho = p[RETENTION]
    keep, tau = 1.0, dt
    angle, cross, rate = dt * dt * dt / 3.0, 0.5 * dt * dt, dt
    if rho < 1.0:
        keep = rho**dt
        tau = (1.0 - keep) / (1.0 - rho)
        # Noise of the decaying velocity, as in `kgmrf.gains.transition`.
        a = -math.log(rho)
        x = a * dt
        c = a / (1.0 - rho) * dt
        if x < 0.02:
            angle = c * c * dt * (1.0 / 3.0 - x * (0.25 - x * (7.0 / 60.0 - x / 24.0)))
            cross = c * dt * (0.5 - x * (0.5 - x * (7.0 / 24.0 - x / 8.0)))
            rate = dt * (1.0 - x * (1.0 - x * (2.0 / 3.0 - x / 3.0)))
        else:
            both = 0.5 * (1.0 - keep * keep) / x
            angle = c * c * dt * (1.0 - 2.0 * (1.0 - keep) / x + both) / (x * x)
            cross = 0.5 * c * dt * (1.0 - keep) * (1.0 - keep) / (x * x)
            rate = dt * both
    turn(frame, matrix, tau, work[0], work[1], work[2])
    for i in range(d):
        for j in range(d):
            matrix[i, j] *= keep
    if p[KIND] != INFORMATION:
        return
    q = p[ACCELERATION]
    angle = q * angle + p[ANGLE_NOISE] * dt
    for i in range(d):
        spectrum_var[i] += p[SPECTRUM_RATE] * dt
        for j in range(d):
            p12 = planes[1, i, j]
            p22 = planes[2, i, j]
            p11 = planes[0, i, j] + 2.0 * tau * p12 + tau * tau * p22 + angle
            p12 = keep * (p12 + tau * p22) + q * cross
            p22 = keep * keep * p22 + q * rate
            # Shrink the pair together: clipping a variance alone would make P indefinite.
            if p11 > ANGLE_VARIANCE_LIMIT:
                p12 *= math.sqrt(ANGLE_VARIANCE_LIMIT / p11)
                p11 = ANGLE_VARIANCE_LIMIT
            if p22 > RATE_LIMIT:
                p12 *= math.sqrt(RATE_LIMIT / p22)
                p22 = RATE_LIMIT
            planes[0, i, j] = p11
            planes[1, i, j] = p12
            planes[2, i, j] = p22


@jit
def hold(p: Any, frame: Any, matrix: Any, spectrum: Any, scale: float, row: Any, out: Any) -> None:
    """out = the covariance that a member holds now."""
    d = frame.shape[0]
    size = math.exp(scale)
    if p[KIND] != EMA:
        recompose(frame, spectrum, size, row, out)
        return
    for i in range(d):
        v = size * spectrum[i]
        for j in range(d):
            out[i, j] = v * spectrum[j] * matrix[i, j]


@jit
def gain_of(p: Any, mass: float, m: float, d: int) -> float:
    """1 / mass, but after a long gap one poor sample must not become the whole estimate."""
    return min(1.0 / (mass + 1.0), max(-math.expm1(p[DECAY]), m / (m + 2.0 * d)))


@jit
def learn_average(
    p: Any,
    x: Any,
    c: Any,
    single: bool,
    m: float,
    floor: Any,
    at: int,
    factor: Any,
    matrix: Any,
    deviation: Any,
    k: int,
    scale: Any,
    mass: Any,
    vec: Any,
    work: Any,
) -> float:
    """B <- B + (C e^{-s} - B)/V with mass V <- 1 + retention V; returns the log-likelihood.

    Of one sample x the factor of B takes O(d^2). Channel deviations read the sample after the new
    size, B after the new deviations.
    """
    d = factor.shape[0]
    channels = p[CHANNEL_DECAY] != 0.0
    s = scale[k]
    log_det = d * s
    for i in range(d):
        log_det += 2.0 * math.log(factor[i, i] * deviation[i])
    size = math.exp(-s)
    u = work[0, 0]
    body = work[1]
    if single:
        for i in range(d):
            u[i] = x[i] / deviation[i]
        trace = size * solve(factor, u, vec)
    else:
        for i in range(d):
            for j in range(d):
                body[i, j] = c[i, j] / (deviation[i] * deviation[j])
        trace = size * trace_solve(factor, body, work[2])
    likelihood = -0.5 * m * (d * LOG_2PI + log_det + trace)
    z = trace / d
    if not z < ABSURD:
        return likelihood
    if p[SCALE_GAIN] > 0.0:
        s += math.log1p(p[SCALE_GAIN] * (z - 1.0))
        scale[k] = s
    if channels:
        size = math.exp(-s)
        gain = -math.expm1(p[CHANNEL_DECAY])
        for i in range(d):
            zi = size * c[i, i] / (deviation[i] * deviation[i])
            grown = deviation[i] * math.sqrt(1.0 + gain * (zi - 1.0))
            deviation[i] = max(grown, math.sqrt(floor[i]))
    if z > p[SURPRISE_LIMIT]:
        size *= p[SURPRISE_LIMIT] / z
    gain = gain_of(p, mass[k], m, d)
    mass[k] = 1.0 / gain
    keep = 1.0 - gain
    # A ridge on one channel per frame keeps dead channels and poor starts positive.
    ridge = gain * d * floor[at] / (deviation[at] * deviation[at])
    if single:
        root = math.sqrt(keep)
        amplitude = math.sqrt(gain * size)
        for i in range(d):
            u[i] = amplitude * x[i] / deviation[i]
            for j in range(i, d):
                factor[i, j] *= root
        for i in range(d):
            v = u[i]
            for j in range(d):
                matrix[i, j] = keep * matrix[i, j] + v * u[j]
        matrix[at, at] += ridge
        cholesky_add(factor, u, 0)
        for i in range(d):
            u[i] = 0.0
        u[at] = math.sqrt(ridge)
        cholesky_add(factor, u, at)
    else:
        amplitude = gain * size
        for i in range(d):
            v = amplitude / deviation[i]
            for j in range(d):
                matrix[i, j] = keep * matrix[i, j] + v * c[i, j] / deviation[j]
        matrix[at, at] += ridge
        if not cholesky(matrix, factor):
            for i in range(d):
                matrix[i, i] += floor[i] / (deviation[i] * deviation[i])
            cholesky(matrix, factor)
    return likelihood


@jit
def learn_turning(
    p: Any,
    x: Any,
    c: Any,
    single: bool,
    m: float,
    lowest: float,
    frame: Any,
    velocity: Any,
    spectrum: Any,
    spectrum_var: Any,
    planes: Any,
    k: int,
    scale: Any,
    mass: Any,
    vec: Any,
    work: Any,
) -> float:
    """Score an observation in the body frame, then learn from it; returns the log-likelihood."""
    d = frame.shape[0]
    body = work[3]
    if single:
        for i in range(d):
            vec[i] = 0.0
        for r in range(d):
            v = x[r]
            for i in range(d):
                vec[i] += frame[r, i] * v
        for i in range(d):
            v = vec[i]
            for j in range(d):
                body[i, j] = v * vec[j]
    else:
        congruence(frame, c, work[0], body)
    log_det = d * scale[k]
    trace = 0.0
    for i in range(d):
        log_det += math.log(spectrum[i])
        trace += body[i, i] / spectrum[i]
    size = math.exp(-scale[k])
    trace *= size
    likelihood = -0.5 * m * (d * LOG_2PI + log_det + trace)
    z = trace / d
    if not z < ABSURD:
        return likelihood
    if z > p[SURPRISE_LIMIT]:
        size *= p[SURPRISE_LIMIT] / z
    for i in range(d):
        for j in range(d):
            body[i, j] *= size
    right = work[4]
    if p[KIND] == INFORMATION:
        information(body, m, lowest, velocity, spectrum, spectrum_var, planes, right)
        turn(frame, right, 1.0, work[0], work[1], work[2])
    else:
        gain = gain_of(p, mass[k], m, d)
        mass[k] = 1.0 / gain
        kinetic(p[VELOCITY_GAIN], gain, body, m, lowest, velocity, spectrum, right, work)
        rotate(frame, right, work[0, 0])
    if p[SCALE_GAIN] > 0.0:
        scale[k] += math.log1p(p[SCALE_GAIN] * (z - 1.0))
    return likelihood


@jit
def information(
    body: Any,
    m: float,
    lowest: float,
    velocity: Any,
    spectrum: Any,
    spectrum_var: Any,
    planes: Any,
    angle: Any,
) -> None:
    """One angle-velocity Kalman step per plane, one random-walk step per log eigenvalue."""
    d = body.shape[0]
    for i in range(d):
        angle[i, i] = 0.0
        for j in range(i):
            gap = spectrum[i] - spectrum[j]
            y = -body[i, j] * gap
            p11 = planes[0, i, j]
            p12 = planes[1, i, j]
            inverse = 1.0 / (p11 * gap * gap + spectrum[i] * spectrum[j] / m)
            w = p11 * inverse * y
            angle[i, j] = w
            angle[j, i] = -w
            kick = p12 * inverse * y
            velocity[i, j] += kick
            velocity[j, i] -= kick
            share = gap * gap * inverse
            p22 = planes[2, i, j] - p12 * p12 * share
            keep = 1.0 - p11 * share
            planes[0, i, j] = keep * p11
            planes[0, j, i] = keep * p11
            planes[1, i, j] = keep * p12
            planes[1, j, i] = keep * p12
            planes[2, i, j] = p22
            planes[2, j, i] = p22
    for i in range(d):
        gain = spectrum_var[i] / (spectrum_var[i] + 2.0 / m)
        # C~_ii as measured before the correction
        spectrum[i] = max(spectrum[i] + gain * (body[i, i] - spectrum[i]), lowest)
        spectrum_var[i] *= 1.0 - gain


@jit
def kinetic(
    velocity_gain: float,
    gain: float,
    body: Any,
    m: float,
    lowest: float,
    velocity: Any,
    spectrum: Any,
    rotation: Any,
    work: Any,
) -> None:
    """K = (1 - a) diag(lam) + a C~ = J diag(lam) J^T; kick the velocity with log(J)/a."""
    d = body.shape[0]
    for i in range(d):
        for j in range(d):
            body[i, j] *= gain
        body[i, i] += (1.0 - gain) * spectrum[i]
    jacobi(body, rotation, 1e-12)
    for i in range(d):
        spectrum[i] = max(body[i, i], lowest)
    if velocity_gain == 0.0:
        return
    # The spatial velocity is kept: W <- J^T W J.
    congruence(rotation, velocity, work[0], work[1])
    for i in range(d):
        for j in range(i):
            gap2 = (spectrum[i] - spectrum[j]) ** 2
            # Planes whose angle the average itself cannot see must not kick.
            trust = gap2 / (gap2 + 0.5 * gain / m * spectrum[i] * spectrum[j] + 1e-300)
            kick = 0.5 * (rotation[i, j] - rotation[j, i]) / gain
            v = work[1, i, j] + velocity_gain * trust * kick
            velocity[i, j] = v
            velocity[j, i] = -v


# ----------------------------------------------------------------------- weighing


@jit
def softmax(log_w: Any, out: Any) -> None:
    """out = w / sum w."""
    n = log_w.shape[0]
    top = -np.inf
    for k in range(n):
        top = max(top, log_w[k])
    total = 0.0
    for k in range(n):
        out[k] = math.exp(log_w[k] - top)
        total += out[k]
    for k in range(n):
        out[k] /= total


@jit
def log_mean(log_w: Any, value: Any, n: int) -> float:
    """log (sum_k w_k exp(value_k) / sum_k w_k).

    From log weights: one that underflows must still count, for the next frame may favour its
    member by 1e5 nats.
    """
    low = -np.inf
    high = -np.inf
    for k in range(n):
        low = max(low, log_w[k])
        high = max(high, log_w[k] + value[k])
    if not high > -np.inf:
        return -np.inf
    before = 0.0
    after = 0.0
    for k in range(n):
        before += math.exp(log_w[k] - low)
        after += math.exp(log_w[k] + value[k] - high)
    return high - low + math.log(after / before)


@jit
def blend(weights: Any, parts: Any, out: Any) -> None:
    """out = sum_k w_k S_k."""
    n, d, _ = parts.shape
    for i in range(d):
        for j in range(d):
            out[i, j] = 0.0
    for k in range(n):
        w = weights[k]
        if w > 1e-15:
            for i in range(d):
                for j in range(d):
                    out[i, j] += w * parts[k, i, j]


@jit
def quadratic(x: Any, c: Any, single: bool, factor: Any, vec: Any, work: Any) -> float:
    """tr(S^{-1} C) with S = R^T R."""
    if single:
        return solve(factor, x, vec)
    d = factor.shape[0]
    for i in range(d):
        for j in range(d):
            work[0, i, j] = c[i, j]
    return trace_solve(factor, work[0], work[1])


@jit
def log_determinant(factor: Any) -> float:
    """log det R^T R."""
    total = 0.0
    for i in range(factor.shape[0]):
        total += 2.0 * math.log(factor[i, i])
    return total


@jit
def learn_blend(
    settings: Any,
    x: Any,
    c: Any,
    single: bool,
    m: float,
    factor: Any,
    parts: Any,
    log_blend: Any,
    weights: Any,
    gradient: Any,
    vec: Any,
    work: Any,
) -> None:
    """log w_k += rate/d clip(g_k - sum_j w_j g_j), g_k = (m/2) <S^{-1} C S^{-1} - S^{-1}, S_k>."""
    n, d, _ = parts.shape
    precision = work[1]
    outer = work[2]
    invert(factor, work[0], precision)
    if single:
        for i in range(d):
            acc = 0.0
            for j in range(d):
                acc += precision[i, j] * x[j]
            vec[i] = acc
        for i in range(d):
            for j in range(d):
                outer[i, j] = vec[i] * vec[j] - precision[i, j]
    else:
        congruence(precision, c, work[0], outer)
        for i in range(d):
            for j in range(d):
                outer[i, j] -= precision[i, j]
    centre = 0.0
    for k in range(n):
        acc = 0.0
        for i in range(d):
            for j in range(d):
                acc += outer[i, j] * parts[k, i, j]
        gradient[k] = 0.5 * m * acc
        centre += weights[k] * gradient[k]
    if not math.isfinite(centre):
        return
    rate = settings[BLEND_RATE] / d
    clip = settings[CLIP]
    for k in range(n):
        log_blend[k] += rate * min(max(gradient[k] - centre, -clip), clip)
    softmax(log_blend, weights)
    share = settings[SHARE]
    for k in range(n):
        log_blend[k] = math.log((1.0 - share) * weights[k] + share / n)


@jit
def learn_top(log_top: Any, first: float, second: float, share: float) -> None:
    """Bayes between two, with a share spread evenly so that neither is ever dead."""
    if first == -np.inf and second == -np.inf:
        return
    log_top[0] += first
    log_top[1] += second
    top = max(log_top[0], log_top[1])
    a = math.exp(log_top[0] - top)
    b = math.exp(log_top[1] - top)
    if share > 0.0:
        log_top[0] = math.log((1.0 - share) * a / (a + b) + 0.5 * share)
        log_top[1] = math.log((1.0 - share) * b / (a + b) + 0.5 * share)
    else:
        # Kept as logarithms: a mixture far behind must be able to come back.
        log_top[0] -= top
        log_top[1] -= top


@jit
def allowance_of(gross: Any) -> float:
    """1 + mean size of past gross outliers, as far as it would have paid to allow for them."""
    odds = gross[2]
    trust = 1.0 / (1.0 + math.exp(-odds)) if odds > -700.0 else 0.0
    return 1.0 + trust * gross[0] / (gross[1] + 1.0)


@jit
def learn_gross(gross: Any, trace: float, m: float, d: int) -> None:
    """Remember how large a frame was; whether widening by the full mean would have paid."""
    wide = 1.0 + gross[0] / (gross[1] + 1.0)
    if wide > 1.0:
        gross[2] += -0.5 * m * (d * math.log(wide) + trace * (1.0 / wide - 1.0))
    gross[1] += 1.0
    if trace > GROSS * d:
        gross[0] += trace / d


# ----------------------------------------------------------------------- how sure it is


@jit
def spread(
    table: Any,
    weights: Any,
    parts: Any,
    total: Any,
    m: float,
    frame: Any,
    planes: Any,
    mass: Any,
    reference: Any,
    values: Any,
    out: Any,
    row: Any,
    work: Any,
    across: Any,
) -> None:
    """Eigenframe (in reference), eigenvalues d_i, and out = G_ij^2 var(angle_ij) of a blend.

    var = sum_k w_k (var_k + offset_k^2): what member k itself does not know, and how far its frame
    is from the blend's, offset_k = -(Q^T S_k Q)_ij / G_ij. Nothing is divided by a gap.
    """
    n, d, _ = parts.shape
    temp = work[1]
    congruence(reference, total, temp, work[0])
    jacobi(work[0], work[2], 1e-13)
    rotate(reference, work[2], row)
    for i in range(d):
        values[i] = work[0, i, i]
        for j in range(d):
            out[i, j] = 0.0

    # (Q^T S_k Q)_ij of all members at once: the members lie side by side.
    seen, line, entry = across[:d], across[d], across[d + 1]
    for i in range(d):
        for b in range(d):
            for k in range(n):
                seen[b, k] = 0.0
        for r in range(d):
            q = reference[r, i]
            for b in range(d):
                for k in range(n):
                    seen[b, k] += q * across[d + 2 + r * d + b, k]
        for j in range(i):
            for k in range(n):
                line[k] = 0.0
            for b in range(d):
                q = reference[b, j]
                for k in range(n):
                    line[k] += q * seen[b, k]
            acc = 0.0
            for k in range(n):
                acc += entry[k] * line[k] * line[k]
            out[i, j] = acc

    own = 0.0
    slot = -1
    for k in range(n):
        w = entry[k]
        if table[k, KIND] != INFORMATION:
            # Effective number of frames: V^2 / sum of squared weights, from the mass V alone.
            a = -math.expm1(table[k, DECAY])
            u = max(1.0 - mass[k] * a, 0.0)
            own += w * (1.0 - u * u) / (mass[k] * mass[k] * a * (2.0 - a) * m)
            continue
        slot += 1
        if w == 0.0:
            continue
        # Variances of the member's planes, seen in the planes of the blend.
        known = work[3]
        multiply_transposed(frame[k], reference, temp)
        for i in range(d):
            mean = 0.0
            for j in range(d):
                temp[i, j] *= temp[i, j]
                known[i, j] = planes[slot, 0, i, j]
                if i != j:
                    mean += known[i, j]
            known[i, i] = mean / max(d - 1, 1)
        congruence(temp, known, work[4], work[2])
        for i in range(d):
            for j in range(i):
                gap = values[i] - values[j]
                out[i, j] += w * work[2, i, j] * gap * gap
    for i in range(d):
        for j in range(i):
            gap = values[i] - values[j]
            v = min(out[i, j] + own * values[i] * values[j], ANGLE_VARIANCE_LIMIT * gap * gap)
            out[i, j] = v
            out[j, i] = v


@jit
def lay_across(weights: Any, parts: Any, across: Any) -> None:
    """For `spread`: weights without the negligible ones, and the members' entries side by side."""
    n, d, _ = parts.shape
    total = 0.0
    for k in range(n):
        w = weights[k] if weights[k] > NEGLIGIBLE else 0.0
        across[d + 1, k] = w
        total += w
        for i in range(d):
            for j in range(d):
                across[d + 2 + i * d + j, k] = parts[k, i, j]
    for k in range(n):
        across[d + 1, k] /= total


@jit
def note_details(
    table: Any,
    weights: Any,
    frame: Any,
    matrix: Any,
    values: Any,
    variance: Any,
    record: Any,
    first: int,
    work: Any,
) -> None:
    """Variance of the angles by descending eigenvalue, and Omega = sum_k w_k Q_k W_k Q_k^T."""
    n, d = table.shape[0], frame.shape[1]
    order = np.empty(d, dtype=np.int64)
    for i in range(d):
        j = i
        while j > 0 and values[order[j - 1]] < values[i]:
            order[j] = order[j - 1]
            j -= 1
        order[j] = i
    for i in range(d):
        for j in range(d):
            gap = values[order[i]] - values[order[j]]
            known = gap * gap > 0.0
            v = variance[order[i], order[j]] / (gap * gap) if known else ANGLE_VARIANCE_LIMIT
            record[first + i * d + j] = v if i != j else 0.0
    second = first + d * d
    for i in range(d * d):
        record[second + i] = 0.0
    for k in range(n):
        if table[k, KIND] == EMA:
            continue
        multiply(frame[k], matrix[k], work[0])
        for i in range(d):
            for j in range(i):
                acc = 0.0
                for r in range(d):
                    acc += work[0, i, r] * frame[k, j, r]
                record[second + i * d + j] += weights[k] * acc
                record[second + j * d + i] -= weights[k] * acc


# ----------------------------------------------------------------------- the loop


@jit
def one_sample(c: Any, x: Any) -> bool:
    """Whether c = x x^T for some x, which is filled in."""
    d = x.shape[0]
    top = 0
    for i in range(d):
        if c[i, i] > c[top, top]:
            top = i
    root = math.sqrt(c[top, top])
    for i in range(d):
        x[i] = c[i, top] / root
    for i in range(d):
        for j in range(i + 1):
            if not (c[i, j] - x[i] * x[j]) ** 2 <= ONE_SAMPLE * c[i, i] * c[j, j]:
                return False
    return True


@compiled(
    "void(float64[::1], int64[::1], float64[:, ::1], float64[::1], float64[:, :, ::1],"
    " float64[:, ::1], float64[:, ::1])"
)
def run(
    row: Any, offsets: Any, table: Any, settings: Any, sequence: Any, brought: Any, records: Any
) -> None:
    """Take one track, as a row of numbers, through the frames ``(T, d, d)`` of a sequence.

    brought ``(T, 3)``: interval, samples, whether observed. records ``(T, size)`` are written, in
    full where they have room for it. The pool must be full.
    """
    o = offsets
    n, d = table.shape[0], sequence.shape[1]
    head = row[o[0] : o[1]]
    floor = row[o[1] : o[2]]
    reference = row[o[3] : o[4]].reshape((d, d))
    log_posterior = row[o[4] : o[5]]
    log_robust = row[o[5] : o[6]]
    log_blend = row[o[6] : o[7]]
    log_top = row[o[7] : o[8]].reshape((2, 2))
    gross = row[o[8] : o[9]]
    scale = row[o[9] : o[10]]
    mass = row[o[10] : o[11]]
    spectrum = row[o[11] : o[12]].reshape((n, d))
    spectrum_var = row[o[12] : o[13]].reshape((n, d))
    frame = row[o[13] : o[14]].reshape((n, d, d))
    matrix = row[o[14] : o[15]].reshape((n, d, d))
    planes = row[o[15] : o[16]].reshape(((o[16] - o[15]) // (3 * d * d), 3, d, d))

    work = np.zeros((9, d, d))
    parts = np.empty((n, d, d))
    c, total, second, factor = work[5], work[6], work[7], work[8]
    lines = np.zeros((8, max(n, d, 2)))
    x, vec, values, line = lines[0][:d], lines[1][:d], lines[2][:d], lines[3][:d]
    robust, blended, gradient, two = lines[4][:n], lines[5][:n], lines[6], lines[7]
    first_matrix = N_NUMBERS + 2 * n
    detailed = records.shape[1] > first_matrix + d * d
    across = np.empty((d + 2 + d * d if detailed else 0, n))
    lowest = np.inf
    for i in range(d):
        lowest = min(lowest, floor[i])

    for t in range(brought.shape[0]):
        record = records[t]
        weights = record[N_NUMBERS : N_NUMBERS + n]
        members = record[N_NUMBERS + n : first_matrix]
        dt = brought[t, DT]
        seen = brought[t, OBSERVED] != 0.0
        head[TIME] += dt
        at = int(head[COUNT]) % d
        head[COUNT] += 1.0
        if int(head[COUNT]) % POLISH_EVERY == 0:
            polish(reference, work[0], line)
            for k in range(n):
                if table[k, KIND] != EMA:
                    polish(frame[k], work[0], line)

        # drift
        slot = -1
        for k in range(n):
            p = table[k]
            scale[k] *= p[SCALE_RETENTION] ** dt
            mass[k] *= math.exp(p[DECAY] * dt)
            if p[KIND] != EMA:
                if p[KIND] == INFORMATION:
                    slot += 1
                drift(p, dt, frame[k], matrix[k], spectrum_var[k], planes[max(slot, 0)], work)
            hold(p, frame[k], matrix[k], spectrum[k], scale[k], line, parts[k])
        softmax(log_robust, robust)
        softmax(log_blend, blended)
        use_blend = settings[BLEND_RATE] > 0.0
        top = 1.0 / (1.0 + math.exp(log_top[0, 1] - log_top[0, 0])) if use_blend else 0.0
        for k in range(n):
            weights[k] = robust[k] + top * (blended[k] - robust[k])
            members[k] = np.nan
        for i in range(R_SEEN, N_NUMBERS):
            record[i] = np.nan
        record[ALLOWANCE] = allowance_of(gross)

        if seen:
            m = brought[t, SAMPLES]
            head[LAST_SAMPLES] = m
            head[SEEN] = head[TIME]
            for i in range(d):
                for j in range(d):
                    c[i, j] = 0.5 * (sequence[t, i, j] + sequence[t, j, i])
            single = one_sample(c, x)
            if detailed:
                blend(weights, parts, total)
                lay_across(weights, parts, across)
                spread(
                    table,
                    weights,
                    parts,
                    total,
                    m,
                    frame,
                    planes,
                    mass,
                    reference,
                    values,
                    second,
                    line,
                    work,
                    across,
                )
                congruence(reference, c, work[0], work[1])
                nis = 0.0
                for i in range(d):
                    for j in range(i):
                        den = values[i] * values[j] / m + second[i, j]
                        nis += work[1, i, j] * work[1, i, j] / den
                record[NIS] = nis

            # Score and learn: the members first, then the two blends and their mixture.
            slot = -1
            best = -np.inf
            for k in range(n):
                p = table[k]
                if p[KIND] == EMA:
                    members[k] = learn_average(
                        p,
                        x,
                        c,
                        single,
                        m,
                        floor,
                        at,
                        frame[k],
                        matrix[k],
                        spectrum[k],
                        k,
                        scale,
                        mass,
                        vec,
                        work,
                    )
                else:
                    if p[KIND] == INFORMATION:
                        slot += 1
                    members[k] = learn_turning(
                        p,
                        x,
                        c,
                        single,
                        m,
                        lowest,
                        frame[k],
                        matrix[k],
                        spectrum[k],
                        spectrum_var[k],
                        planes[max(slot, 0)],
                        k,
                        scale,
                        mass,
                        vec,
                        work,
                    )
                best = max(best, members[k])
            f_robust = log_mean(log_posterior, members, n)
            f_blend = log_mean(log_blend, members, n)
            two[0] = f_blend
            two[1] = f_robust
            record[BAYES] = f_robust
            record[MIXTURE] = log_mean(log_top[1], two, 2) if use_blend else f_robust
            two[0] = -np.inf
            two[1] = -np.inf
            for which in range(3 if use_blend else 1):
                if which == 0:
                    blend(robust, parts, total)
                elif which == 1:
                    blend(blended, parts, total)
                else:
                    blend(weights, parts, total)
                likelihood = -np.inf
                if cholesky(total, factor):
                    log_det = log_determinant(factor)
                    trace = quadratic(x, c, single, factor, vec, work)
                    likelihood = -0.5 * m * (d * LOG_2PI + log_det + trace)
                    if which == 1:
                        learn_blend(
                            settings,
                            x,
                            c,
                            single,
                            m,
                            factor,
                            parts,
                            log_blend,
                            blended,
                            gradient,
                            vec,
                            work,
                        )
                    if which == 2 or not use_blend:
                        a = record[ALLOWANCE]
                        record[DENSITY] = (
                            -0.5 * m * (d * (LOG_2PI + math.log(a)) + log_det + trace / a)
                        )
                        learn_gross(gross, trace, m, d)
                if which == 0:
                    two[1] = likelihood
                elif which == 1:
                    two[0] = likelihood
            if use_blend:
                learn_top(log_top[0], two[0], two[1], settings[TOP_SHARE])
                learn_top(log_top[1], f_blend, f_robust, 0.0)
            high = -np.inf
            for k in range(n if best > -np.inf else 0):
                log_posterior[k] = settings[FORGETTING] * log_posterior[k] + members[k]
                high = max(high, log_posterior[k])
                # One frame may cost a member no more than clip: a gross outlier decides nothing.
                loss = max(members[k] - best, -settings[CLIP])
                log_robust[k] = settings[FORGETTING] * log_robust[k] + loss
            for k in range(n if high > -np.inf else 0):
                log_posterior[k] -= high
            softmax(log_robust, robust)
            softmax(log_blend, blended)
            top = 1.0 / (1.0 + math.exp(log_top[0, 1] - log_top[0, 0])) if use_blend else 0.0
            for k in range(n):
                weights[k] = robust[k] + top * (blended[k] - robust[k])
                hold(table[k], frame[k], matrix[k], spectrum[k], scale[k], line, parts[k])

        # Report.
        record[R_TIME] = head[TIME]
        record[R_SEEN] = head[SEEN]
        blend(weights, parts, total)
        for i in range(d):
            for j in range(i + 1):
                record[first_matrix + i * d + j] = total[i, j]
                record[first_matrix + j * d + i] = total[i, j]
        if detailed:
            lay_across(weights, parts, across)
            spread(
                table,
                weights,
                parts,
                total,
                head[LAST_SAMPLES],
                frame,
                planes,
                mass,
                reference,
                values,
                second,
                line,
                work,
                across,
            )
            after = first_matrix + d * d
            note_details(table, weights, frame, matrix, values, second, record, after, work)


@compiled("void(float64[:, :, ::1], float64, int64[::1])")
def inspect(matrices: Any, tolerance: float, status: Any) -> None:
    """Which matrices are observed (1), missing (0: all NaN), or need a closer look (2).

    As `kgmrf.kernels.core.take_covariance`: asymmetry and negative eigenvalues up to ``tolerance``
    times the largest entry pass.
    """
    d = matrices.shape[1]
    work = np.empty((2, d, d))
    for t in range(matrices.shape[0]):
        a = matrices[t]
        size = 0.0
        skewness = 0.0
        missing = 0
        for i in range(d):
            for j in range(d):
                v = abs(a[i, j])
                if math.isnan(v):
                    missing += 1
                size = max(size, v)
                skewness = max(skewness, abs(a[i, j] - a[j, i]))
                work[0, i, j] = 0.5 * (a[i, j] + a[j, i])
        for i in range(d):
            work[0, i, i] += tolerance * size
        if missing > 0:
            status[t] = 0 if missing == d * d else 2
        elif not SMALLEST <= size <= LARGEST or skewness > tolerance * size:
            status[t] = 2
        else:
            status[t] = 1 if cholesky(work[0], work[1]) else 2
