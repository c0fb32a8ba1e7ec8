"""The compiled loop backwards: gradients of a sequence of covariance steps.

For a loss that depends on what `unroll` wrote, `pull_back` walks the frames from the last to the
first and turns the derivatives by a state into those by the state before. It needs nothing but the
states: what a frame computed in between is computed again. ``bar`` after a name means the
derivative of the loss by it. That by a frame Q is taken along the rotations: the skew Z with dL =
sum Z_ij (Q^T dQ)_ij, which a polish does not change. The scale clock and pooling are not covered.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types

from kgmrf.gains import ANGLE_VARIANCE_LIMIT
from kgmrf.kernels.compile import compiled, jit
from kgmrf.kernels.compile import jit_views as views
from kgmrf.kernels.lanes import fma, load, spread, store
from kgmrf.kernels.layout import (
    BODY,
    FRAME,
    INFORMATION,
    N_MATRICES,
    NOISE_FLOOR,
    RIDGE,
    SCRATCH_A,
    SCRATCH_B,
    SEEN_MATRIX,
    SPECTRUM_RATE,
    TURNING,
)
from kgmrf.kernels.plane import MOST_CORRELATED
from kgmrf.kernels.products import multiply, multiply_transposed, transpose, turn_frame
from kgmrf.state import SMALLEST_SPECTRUM

# Columns of an interval, as in layout.steps.
_TURN, _KEEP, _COAST, _ANGLE, _CROSS, _RATE, _DT = range(7)
# Matrices behind those of `layout`; w holds all of them, m is the same as (slots, s, s).
X, X_BAR, Z, TERM, SUM, BODY_BAR, SLOTS = range(N_MATRICES, N_MATRICES + 7)

# ----------------------------------------------------------------------- turns


@jit
def bracket(w: Any, a: int, b: int, c: int, total: int, share: float, d: int, s: int) -> None:
    """C = share (A B - B A) for A, B both skew or both symmetric; TOTAL += C."""
    n = s * s
    multiply(w, a * n, b * n, SCRATCH_A * n, a * n, 0.0, d, s)
    transpose(w, SCRATCH_A * n, SCRATCH_B * n, d, s)
    for at in range(0, d * s, 8):
        v = load(w, SCRATCH_A * n + at) - load(w, SCRATCH_B * n + at)
        store(w, c * n + at, spread(share) * v)
        store(w, total * n + at, fma(spread(share), v, load(w, total * n + at)))


@views
def unturn(w: Any, m: Any, d: int, s: int) -> None:
    """Back through Q Exp(X): X_BAR = phi(ad_X) Z, then Z <- Exp(X) Z Exp(X)^T; X is used up.

    d Exp(X) = Exp(X) phi(-ad_X) dX with phi(z) = (e^z - 1) / z. X is taken in n small parts:
    phi(n z) = (1 + e^z + ... + e^((n - 1) z)) phi(z) / n, and e^z = 1 + z phi(z).
    """
    squares = 0.0
    for i in range(d):
        for j in range(i):
            squares += m[X, i, j] ** 2
    size = math.sqrt(squares)  # at least the largest plane angle; |ad_X| is at most twice that
    n = int(min(size, 2000.0)) + 1 if size < math.inf else 1
    m[X] *= 1.0 / n
    m[X_BAR] = 0.0
    for _ in range(n):
        m[TERM] = m[Z]
        m[SUM] = m[Z]
        k, left = 1, 1.0
        while left > 1e-17 and k < 25:
            k += 1
            left *= 2.0 * size / (n * k)
            bracket(w, X, TERM, TERM, SUM, 1.0 / k, d, s)
        m[X_BAR] += m[SUM] / n
        bracket(w, X, SUM, TERM, Z, 1.0, d, s)


# ----------------------------------------------------------------------- one plane


@jit
def widened(p11: float, p12: float, p22: float, decay: float, step: Any) -> Any:
    """P after a drift; p11 and p12 brought within the circle; what p12 was shrunk by, twice."""
    turn = step[_TURN]
    p11 += 2.0 * turn * p12 + turn * turn * p22 + step[_ANGLE]
    p12 = decay * (p12 + turn * p22) + step[_CROSS]
    p22 = decay * decay * p22 + step[_RATE]
    share = back = 1.0
    if p11 > ANGLE_VARIANCE_LIMIT:
        share = math.sqrt(ANGLE_VARIANCE_LIMIT / p11)
    near11, near12 = min(p11, ANGLE_VARIANCE_LIMIT), share * p12
    most = MOST_CORRELATED * near11 * p22
    if near12 * near12 > most:
        back = math.sqrt(most / (near12 * near12))
    return p11, p12, p22, near11, back * near12, share, back


@jit
def unwiden(p11: float, p12: float, p22: float, decay: float, step: Any, bars: Any) -> Any:
    """Derivatives by the noise of a drift (that by p11 is the first), p12, p22, turn and decay."""
    b11, b12, b22 = bars
    turn, reach = step[_TURN], p12 + step[_TURN] * p22
    w11, w12, w22, near11, near12, share, back = widened(p11, p12, p22, decay, step)
    if back < 1.0:  # near12 is +- sqrt(most)
        b11 += 0.5 * b12 * near12 / near11
        b22 += 0.5 * b12 * near12 / w22 if w22 > 0.0 else 0.0
        b12 = 0.0
    if share < 1.0:
        b11 = -0.5 * b12 * share * w12 / w11
        b12 *= share
    old12 = 2.0 * turn * b11 + decay * b12
    old22 = turn * turn * b11 + decay * turn * b12 + decay * decay * b22
    turn_bar = 2.0 * b11 * reach + b12 * decay * p22
    return b11, b12, b22, old12, old22, turn_bar, b12 * reach + 2.0 * b22 * decay * p22


@jit
def uncorrect(
    p: Any,
    gap: float,
    noise: float,
    r: float,
    x_bar: float,
    kick_bar: float,
    nis_bar: float,
    b: Any,
) -> Any:
    """Back through information gains: derivatives by p11, p12, gap, noise and the residual r."""
    p11, p12 = p
    b11, b12, b22 = b
    weight = gap / noise
    information = gap * weight
    rest = 1.0 / (1.0 + p11 * information)
    b11, b12 = b11 + x_bar * r * weight, b12 + kick_bar * r * weight
    rest_bar = b11 * p11 + b12 * p12 - b22 * p12 * p12 * information
    rest_bar += 0.5 * nis_bar * r * r / noise
    predicted_bar = -rest_bar * rest * rest
    information_bar = predicted_bar * p11 - b22 * p12 * p12 * rest
    pull_bar = (x_bar * p11 + kick_bar * p12) * rest
    weight_bar = pull_bar * r + information_bar * gap
    surprise = nis_bar * r * rest / noise
    return (
        b11 * rest + predicted_bar * information,
        (b12 - 2.0 * b22 * p12 * information) * rest,
        information_bar * weight + weight_bar / noise,
        -(weight_bar * weight + 0.5 * r * surprise) / noise,
        pull_bar * weight + surprise,
    )


# ----------------------------------------------------------------------- the spectrum


@views
def unadapt(
    level: Any, power: Any, var: Any, m: float, floor: float, bars: Any, power_bar: Any
) -> float:
    """Back through the spectrum clock; bars are those by spectrum, spectrum_var and level.

    On return the first is spent: the level carries it on. Returns the derivative by m.
    """
    noise = 2.0 / m
    new = np.empty(level.size)
    for i in range(level.size):
        new[i] = level[i] + var[i] / (var[i] + noise) * (power[i] - level[i])
    top = new.argmax()
    kept = 0.0
    for i in range(level.size):
        if new[i] - floor < SMALLEST_SPECTRUM * new[top]:
            kept += SMALLEST_SPECTRUM * bars[0, i]
            bars[0, i] = 0.0
    bars[0, top] += kept
    noise_bar = 0.0
    for i in range(level.size):
        whole = var[i] + noise
        gain = var[i] / whole
        new_bar, var_bar = bars[0, i], bars[1, i]
        gain_bar = new_bar * (power[i] - level[i]) - var_bar * var[i]
        bars[0, i] = 0.0
        bars[1, i] = (1.0 - gain) * var_bar + gain_bar * noise / (whole * whole)
        bars[2, i] += (1.0 - gain) * new_bar
        power_bar[i] += gain * new_bar
        noise_bar -= gain_bar * var[i] / (whole * whole)
    return -noise_bar * noise / m


# ----------------------------------------------------------------------- all frames

_FLAGS: Any = types.Array(types.boolean, 2, "C")


def _arrays(*ranks: int) -> Any:
    return types.Tuple([types.Array(types.float64, rank, "C") for rank in ranks])


@compiled(
    types.void(
        *(_FLAGS, _FLAGS, _arrays(4, 4, 5, 4), _arrays(4, 2, 3, 1, 4)),
        *(_arrays(4, 4, 4, 4, 3), _arrays(4, 2, 3, 3, 1)),
    )
)
def pull_back(moving: Any, observed: Any, states: Any, inputs: Any, bars: Any, found: Any) -> None:
    """Derivatives by everything `unroll` was given, from those by its states ``(T + 1, n, ...)``.

    states: frame, velocity, P, and spectrum with spectrum_var. inputs: observations, counts,
    intervals, head and tables of the law. bars: those by the states (by P of the last frame) and
    ``(T, n, 2)`` by nis and log_likelihood; their entries 0 end as the derivatives by the start,
    the others are used up. found: zeros of the shapes of the inputs (tables: of one item), tables
    before head, to which their derivatives are added.
    """
    frames, velocities, spreads, vectors = states
    sequence, counts, steps, head, tables = inputs
    frame_bars, velocity_bars, spread_bars, vectors_bars, surprise_bars = bars
    sequence_bar, counts_bar, steps_bar, tables_bar, head_bar = found
    n_frames, n, d = sequence.shape[0], sequence.shape[1], sequence.shape[2]
    s = -(-d // 8) * 8
    size = s * s
    information, floor = head[INFORMATION] != 0.0, head[NOISE_FLOOR]
    turns, n_planes = SLOTS * size, d * (d - 1) // 2
    w = np.zeros(turns + n_planes)
    m = w[:turns].reshape(SLOTS, s, s)
    planes = np.zeros((3, d, d))
    level, power, power_bar, vector_bars = np.zeros(d), np.zeros(d), np.zeros(d), np.zeros((3, d))
    body, body_bar, x_bar = m[BODY], m[BODY_BAR], m[X_BAR]
    for i in range(n):
        table = tables[min(i, tables.shape[0] - 1)]
        p_bar = spread_bars[i]
        for t in range(n_frames - 1, -1, -1):
            a, b = min(t, steps.shape[0] - 1), min(i, steps.shape[1] - 1)
            step, step_bar = steps[a, b], steps_bar[a, b]
            here, count = observed[t, i], counts[t, i]
            velocity, velocity_bar, old = velocities[t, i], velocity_bars[t + 1, i], spreads[t, i]
            lam, lam_bar, level_bar = vectors[t, i, 0], vector_bars[0], vector_bars[2]
            vector_bars[:2] = vectors_bars[t + 1, i]
            vector_bars[2] = 0.0
            m[Z, :d, :d] = frame_bars[t + 1, i]
            m[FRAME, :d, :d] = frames[t, i]
            decay = step[_KEEP] if here else step[_COAST]
            # Forwards once more, as far as the way back needs it.
            planes[:] = old
            wider = 0.0
            if moving[t, i]:
                p = turns
                for k in range(d):
                    for j in range(k):
                        w[p] = velocity[k, j]
                        p += 1
                turn_frame(w, turns, step[_TURN], n_planes, d, s)
                wider = head[SPECTRUM_RATE] * step[_DT]
                if information:
                    for k in range(d):
                        for j in range(d):
                            if j != k:
                                wide = widened(
                                    old[0, k, j], old[1, k, j], old[2, k, j], decay, step
                                )
                                planes[0, k, j], planes[1, k, j] = wide[3], wide[4]
            if here:
                m[SEEN_MATRIX, :d, :d] = sequence[t, i]
                at, frame, flipped = SCRATCH_A * size, FRAME * size, TURNING * size
                multiply(w, SEEN_MATRIX * size, frame, at, at, 0.0, d, s)
                multiply_transposed(w, frame, at, BODY * size, d, s)
                m_bar = 0.0
                for k in range(d):
                    level[k], power[k], power_bar[k] = lam[k] + floor, body[k, k], 0.0
                # And back: first what looks at the diagonal alone.
                if head[SPECTRUM_RATE] != 0.0:
                    var = vectors[t, i, 1] + wider
                    m_bar += unadapt(level, power, var, count, floor, vector_bars, power_bar)
                share = -0.5 * surprise_bars[t, i, 1]
                if share != 0.0:
                    for k in range(d):
                        ratio = power[k] / level[k]
                        power_bar[k] += share * count / level[k]
                        level_bar[k] += share * count * (1.0 - ratio) / level[k]
                        m_bar += share * (math.log(2.0 * math.pi * level[k]) + ratio)
                for k in range(d):
                    for j in range(d):
                        gap, gain = lam[k] - lam[j], table[0, k, j]
                        weight = gap / (gap * gap + head[RIDGE])
                        if information:
                            weight = gap * count / (level[k] * level[j])
                            gain = planes[0, k, j] / (1.0 + planes[0, k, j] * gap * weight)
                        m[X, k, j] = -gain * weight * body[k, j] if k != j else 0.0
                unturn(w, m, d, s)
                for k in range(d):
                    for j in range(d):
                        if k == j:
                            continue
                        gap, r = lam[k] - lam[j], -body[k, j]
                        pull, kick = x_bar[k, j], velocity_bar[k, j]
                        if information:
                            noise = level[k] * level[j] / count
                            p_bar[0, k, j], p_bar[1, k, j], gap_bar, noise_bar, r_bar = uncorrect(
                                (planes[0, k, j], planes[1, k, j]),
                                *(gap, noise, r, pull, kick, surprise_bars[t, i, 0]),
                                (p_bar[0, k, j], p_bar[1, k, j], p_bar[2, k, j]),
                            )
                            level_bar[k] += noise_bar * level[j] / count
                            level_bar[j] += noise_bar * level[k] / count
                            m_bar -= noise_bar * noise / count
                        else:
                            stiffness = gap * gap + head[RIDGE]
                            weight = gap / stiffness
                            tables_bar[0, k, j] += pull * r * weight
                            tables_bar[1, k, j] += kick * r * weight
                            weight_bar = pull * table[0, k, j] + kick * table[1, k, j]
                            r_bar = weight_bar * weight
                            head_bar[RIDGE] -= r_bar * r / stiffness
                            gap_bar = weight_bar * r / stiffness - 2.0 * r_bar * r * weight
                        lam_bar[k] += gap_bar
                        lam_bar[j] -= gap_bar
                        body_bar[k, j] = -r_bar
                counts_bar[t, i] += m_bar
                for k in range(d):
                    lam_bar[k] += level_bar[k]
                    body_bar[k, k] = power_bar[k]
                    for j in range(k):
                        mean = 0.5 * (body_bar[k, j] + body_bar[j, k])
                        body_bar[k, j] = body_bar[j, k] = mean
                # BODY = Q^T C Q.
                bracket(w, BODY, BODY_BAR, TERM, Z, 1.0, d, s)
                transpose(w, frame, flipped, d, s)
                multiply(w, BODY_BAR * size, flipped, at, at, 0.0, d, s)
                multiply_transposed(w, flipped, at, SEEN_MATRIX * size, d, s)
                sequence_bar[t, i] = m[SEEN_MATRIX, :d, :d]
            if moving[t, i]:
                m[X, :d, :d] = step[_TURN] * velocity
                unturn(w, m, d, s)
                decay_bar = 0.0
                for k in range(d):
                    for j in range(d):
                        decay_bar += velocity_bar[k, j] * velocity[k, j]
                        step_bar[_TURN] += x_bar[k, j] * velocity[k, j]
                        velocity_bar[k, j] = decay * velocity_bar[k, j] + step[_TURN] * x_bar[k, j]
                        if information and j != k:
                            bar = (p_bar[0, k, j], p_bar[1, k, j], p_bar[2, k, j])
                            b11, b12, b22, old12, old22, turned, kept = unwiden(
                                old[0, k, j], old[1, k, j], old[2, k, j], decay, step, bar
                            )
                            p_bar[0, k, j], p_bar[1, k, j], p_bar[2, k, j] = b11, old12, old22
                            step_bar[_TURN] += turned
                            step_bar[_ANGLE] += b11
                            step_bar[_CROSS] += b12
                            step_bar[_RATE] += b22
                            decay_bar += kept
                step_bar[_KEEP if here else _COAST] += decay_bar
                head_bar[SPECTRUM_RATE] += step[_DT] * vector_bars[1].sum()
                step_bar[_DT] += head[SPECTRUM_RATE] * vector_bars[1].sum()
            frame_bars[t, i] += m[Z, :d, :d]
            velocity_bars[t, i] += velocity_bar
            vectors_bars[t, i] += vector_bars[:2]
