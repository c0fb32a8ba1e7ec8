"""The compiled loop backwards: gradients of a sequence of covariance steps.

For a loss that depends on what `unroll` wrote, `pull_back` walks the frames from the last to the
first and turns the derivatives by a state into those by the state before. It needs nothing but the
states: what a frame computed in between is computed again. ``bar`` after a name means the
derivative of the loss by it. The scale clock and pooling are not covered.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kgmrf.gains import ANGLE_VARIANCE_LIMIT
from kgmrf.kernels import adjoint_turns as at
from kgmrf.kernels.compile import compiled
from kgmrf.kernels.compile import jit_views as jit
from kgmrf.kernels.layout import INFORMATION, NOISE_FLOOR, RIDGE, SPECTRUM_RATE
from kgmrf.kernels.plane import MOST_CORRELATED
from kgmrf.motion import POLISH_EVERY
from kgmrf.state import SMALLEST_SPECTRUM

# Columns of an interval, as in layout.steps.
_TURN, _KEEP, _COAST, _ANGLE, _CROSS, _RATE, _DT = range(7)
# Columns of the clocks.
_SEEN, _STEPS, _LIKELIHOOD = range(3)

# ----------------------------------------------------------------------- one frame


@jit
def widened(old: Any, step: Any, decay: float, raw: Any, planes: Any) -> None:
    """P after a drift ``(3, d, d)``: raw, and brought back within the circle to planes."""
    d = old.shape[1]
    turn = step[_TURN]
    for i in range(d):
        for j in range(d):
            off = 0.0 if i == j else 1.0
            p11, p12, p22 = old[0, i, j], old[1, i, j], old[2, i, j]
            p11 += 2.0 * turn * p12 + turn * turn * p22 + step[_ANGLE] * off
            p12 = decay * (p12 + turn * p22) + step[_CROSS] * off
            p22 = decay * decay * p22 + step[_RATE] * off
            raw[0, i, j], raw[1, i, j], raw[2, i, j] = p11, p12, p22
            if p11 > ANGLE_VARIANCE_LIMIT:
                p12 *= math.sqrt(ANGLE_VARIANCE_LIMIT / p11)
                p11 = ANGLE_VARIANCE_LIMIT
            most = MOST_CORRELATED * p11 * p22
            if p12 * p12 > most:
                p12 *= math.sqrt(most / (p12 * p12))
            planes[0, i, j], planes[1, i, j], planes[2, i, j] = p11, p12, p22


@jit
def unwiden(old: Any, step: Any, decay: float, raw: Any, bar: Any, step_bar: Any) -> float:
    """bar ``(3, d, d)``, the derivative by P after a drift, becomes the one by P before it.

    Returns the derivative by ``decay``; those by the numbers of the interval go to step_bar.
    """
    d = old.shape[1]
    turn = step[_TURN]
    decay_bar = 0.0
    for i in range(d):
        for j in range(d):
            if i == j:
                bar[0, i, j] = bar[1, i, j] = bar[2, i, j] = 0.0
                continue
            b11, b12, b22 = bar[0, i, j], bar[1, i, j], bar[2, i, j]
            p11, p12, p22 = raw[0, i, j], raw[1, i, j], raw[2, i, j]
            wide = p11 > ANGLE_VARIANCE_LIMIT
            share = math.sqrt(ANGLE_VARIANCE_LIMIT / p11) if wide else 1.0
            c11 = ANGLE_VARIANCE_LIMIT if wide else p11
            c12 = share * p12
            most = MOST_CORRELATED * c11 * p22
            if c12 * c12 > most:  # c12 is replaced by +- sqrt(most)
                end = math.copysign(math.sqrt(most), c12)
                b11 += 0.5 * b12 * end / c11
                b22 += 0.5 * b12 * end / p22 if p22 > 0.0 else 0.0
                b12 = 0.0
            if wide:
                b11 = -0.5 * b12 * c12 / p11
                b12 *= share
            o12, o22 = old[1, i, j], old[2, i, j]
            step_bar[_ANGLE] += b11
            step_bar[_CROSS] += b12
            step_bar[_RATE] += b22
            step_bar[_TURN] += 2.0 * b11 * (o12 + turn * o22) + b12 * decay * o22
            decay_bar += b12 * (o12 + turn * o22) + 2.0 * b22 * decay * o22
            bar[0, i, j] = b11
            bar[1, i, j] = 2.0 * turn * b11 + decay * b12
            bar[2, i, j] = turn * turn * b11 + decay * turn * b12 + decay * decay * b22
    return decay_bar


@jit
def response(
    i: int, j: int, lam: Any, level: Any, m: float, planes: Any, head: Any, table: Any
) -> Any:
    """Gains A and B of a plane, and the weight of what is seen in its innovation.

    See `kgmrf.step.correct_and_kick`.
    """
    gap = lam[i] - lam[j]
    if head[INFORMATION] == 0.0:
        return table[0, i, j], table[1, i, j], gap / (gap * gap + head[RIDGE])
    weight = gap * m / (level[i] * level[j])
    rest = 1.0 / (1.0 + planes[0, i, j] * gap * weight)
    return planes[0, i, j] * rest, planes[1, i, j] * rest, weight


@jit
def pulls(
    seen: Any, lam: Any, level: Any, m: float, planes: Any, head: Any, table: Any, x: Any
) -> None:
    """x <- the correction A w."""
    for i in range(lam.shape[0]):
        for j in range(lam.shape[0]):
            a, _, weight = response(i, j, lam, level, m, planes, head, table)
            x[i, j] = -a * seen[i, j] * weight
        x[i, i] = 0.0


@jit
def unpull(
    seen: Any,
    lam: Any,
    level: Any,
    m: float,
    planes: Any,
    head: Any,
    table: Any,
    x_bar: Any,
    velocity_bar: Any,
    nis_bar: float,
    bar: Any,
    seen_bar: Any,
    lam_bar: Any,
    level_bar: Any,
    table_bar: Any,
    head_bar: Any,
) -> float:
    """Back through correct and kick; returns the derivative by m."""
    d = lam.shape[0]
    m_bar = 0.0
    for i in range(d):
        for j in range(d):
            if i == j:
                continue
            a, b, weight = response(i, j, lam, level, m, planes, head, table)
            r, gap = -seen[i, j], lam[i] - lam[j]
            a_bar, b_bar = x_bar[i, j] * r * weight, velocity_bar[i, j] * r * weight
            share = x_bar[i, j] * a + velocity_bar[i, j] * b
            weight_bar = share * r
            seen_bar[i, j] = -share * weight
            if head[INFORMATION] == 0.0:
                table_bar[0, i, j] += a_bar
                table_bar[1, i, j] += b_bar
                stiffness = gap * gap + head[RIDGE]
                stiffness_bar = -weight_bar * weight / stiffness
                head_bar[RIDGE] += stiffness_bar
                gap_bar = weight_bar / stiffness + 2.0 * gap * stiffness_bar
            else:
                p11, p12, noise = planes[0, i, j], planes[1, i, j], level[i] * level[j] / m
                information = gap * weight
                rest = 1.0 / (1.0 + p11 * information)
                b11, b12, b22 = bar[0, i, j], bar[1, i, j], bar[2, i, j]
                rest_bar = (a_bar + b11) * p11 + (b_bar + b12) * p12
                rest_bar += 0.5 * nis_bar * r * r / noise - b22 * p12 * p12 * information
                predicted_bar = -rest_bar * rest * rest
                information_bar = predicted_bar * p11 - b22 * p12 * p12 * rest
                bar[0, i, j] = (a_bar + b11) * rest + predicted_bar * information
                bar[1, i, j] = (b_bar + b12 - 2.0 * b22 * p12 * information) * rest
                weight_bar += information_bar * gap
                gap_bar = information_bar * weight + weight_bar / noise
                surprise = nis_bar * r * rest / noise
                seen_bar[i, j] -= surprise
                noise_bar = -(weight_bar * weight + 0.5 * r * surprise) / noise
                level_bar[i] += noise_bar * level[j] / m
                level_bar[j] += noise_bar * level[i] / m
                m_bar -= noise_bar * noise / m
            lam_bar[i] += gap_bar
            lam_bar[j] -= gap_bar
    return m_bar


@jit
def unadapt(
    level: Any, power: Any, var: Any, m: float, floor: float, bars: Any, power_bar: Any
) -> float:
    """Back through the spectrum clock; bars are those by spectrum, spectrum_var and level.

    On return the first is spent: the level carries it on. Returns the derivative by m.
    """
    d = level.shape[0]
    noise = 2.0 / m
    top, high = 0, -math.inf
    for i in range(d):
        new = level[i] + var[i] / (var[i] + noise) * (power[i] - level[i])
        if new > high:
            top, high = i, new
    lowest = SMALLEST_SPECTRUM * high
    extra = 0.0
    for i in range(d):
        new = level[i] + var[i] / (var[i] + noise) * (power[i] - level[i])
        if new - floor < lowest:
            extra += SMALLEST_SPECTRUM * bars[0, i]
            bars[0, i] = 0.0
    bars[0, top] += extra
    noise_bar = 0.0
    for i in range(d):
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


@jit
def unlikely(
    bar: float, likelihood: float, m: float, level: Any, power: Any, level_bar: Any, power_bar: Any
) -> float:
    """Back through the log-likelihood of a frame; returns the derivative by m."""
    if bar == 0.0:
        return 0.0
    share = -0.5 * m * bar
    for k in range(level.shape[0]):
        power_bar[k] += share / level[k]
        level_bar[k] += share * (1.0 - power[k] / level[k]) / level[k]
    return bar * likelihood / m


# ----------------------------------------------------------------------- all frames


@compiled(
    "void(float64[:, :, :, ::1], float64[:, :, :, ::1], float64[:, :, :, :, ::1],"
    " float64[:, :, :, ::1], float64[:, :, ::1],"
    " float64[:, :, :, ::1], boolean[:, ::1], float64[:, ::1],"
    " float64[:, :, ::1], float64[::1], float64[:, :, :, ::1],"
    " float64[:, :, :, ::1], float64[:, :, :, ::1], float64[:, :, :, ::1],"
    " float64[:, :, :, ::1], float64[:, :, ::1],"
    " float64[:, :, :, ::1], float64[:, ::1],"
    " float64[:, :, ::1], float64[:, :, ::1], float64[::1])",
)
def pull_back(
    frames: Any,
    velocities: Any,
    spreads: Any,
    vectors: Any,
    clocks: Any,
    sequence: Any,
    observed: Any,
    counts: Any,
    steps: Any,
    head: Any,
    tables: Any,
    frame_bars: Any,
    velocity_bars: Any,
    spread_bars: Any,
    vectors_bars: Any,
    surprise_bars: Any,
    sequence_bar: Any,
    counts_bar: Any,
    steps_bar: Any,
    tables_bar: Any,
    head_bar: Any,
) -> None:
    """Derivatives by everything `unroll` was given, from those by its states ``(T + 1, n, ...)``.

    spreads: P; vectors: spectrum and spectrum_var; clocks: seen, steps, log_likelihood. The entries
    0 of ``_bars`` end as the derivatives by the start, the others are used up; spread_bars is that
    of the last frame at first, surprise_bars ``(T, n, 2)`` by nis and log_likelihood. The ``_bar``
    arrays start as zeros of the shape of what they belong to (tables: of one item).
    """
    n_frames, n, d = sequence.shape[0], sequence.shape[1], sequence.shape[2]
    s = -(-d // 8) * 8
    information, floor = head[INFORMATION] != 0.0, head[NOISE_FLOOR]
    w = np.zeros(at.N_MATRICES * s * s)
    w3 = w.reshape(at.N_MATRICES, s, s)
    planes, raw = np.zeros((3, d, d)), np.zeros((3, d, d))
    level, power, power_bar, vector_bars = np.zeros(d), np.zeros(d), np.zeros(d), np.zeros((3, d))
    seen, seen_bar, x_bar, frame_bar = w3[at.SEEN], w3[at.SEEN_BAR], w3[at.X_BAR], w3[at.FRAME_BAR]
    for i in range(n):
        table = tables[min(i, tables.shape[0] - 1)]
        for t in range(n_frames - 1, -1, -1):
            a, b = min(t, steps.shape[0] - 1), min(i, steps.shape[1] - 1)
            step, step_bar = steps[a, b], steps_bar[a, b]
            here, m = observed[t, i], counts[t, i]
            moves = not math.isnan(clocks[t, i, _SEEN])
            velocity, velocity_bar = velocities[t, i], velocity_bars[t + 1, i]
            old, p_bar = spreads[t, i], spread_bars[i]
            lam, old_var = vectors[t, i, 0], vectors[t, i, 1]
            lam_bar, level_bar = vector_bars[0], vector_bars[2]
            vector_bars[:2] = vectors_bars[t + 1, i]
            vector_bars[2] = 0.0
            frame_bar[:d, :d] = frame_bars[t + 1, i]
            w3[at.TURNED, :d, :d] = frames[t, i]
            decay = step[_KEEP] if here else step[_COAST]
            # Forwards once more, as far as the way back needs it.
            if information:
                planes[:] = old
            wider, h1 = 0.0, 0
            if moves:
                w3[at.X1, :d, :d] = step[_TURN] * velocity
                h1 = at.exponential(w, w3, at.X1, at.E1, at.ROOT1, d, s)
                at.product(w, at.TURNED, at.E1, at.SPARE, d, s)
                w3[at.TURNED] = w3[at.SPARE]
                wider = head[SPECTRUM_RATE] * step[_DT]
                if information:
                    widened(old, step, decay, raw, planes)
            if here:
                w3[at.C, :d, :d] = sequence[t, i]
                at.product(w, at.C, at.TURNED, at.HALF, d, s)
                at.product_from_left(w, at.TURNED, at.HALF, at.SEEN, d, s)
                for k in range(d):
                    level[k], power[k], power_bar[k] = lam[k] + floor, seen[k, k], 0.0
                pulls(seen, lam, level, m, planes, head, table, w3[at.X2])
                h2 = at.exponential(w, w3, at.X2, at.E2, at.ROOT2, d, s)
                # And back.
                m_bar = 0.0
                if head[SPECTRUM_RATE] != 0.0:
                    var = old_var + wider
                    m_bar += unadapt(level, power, var, m, floor, vector_bars, power_bar)
                w3[at.AFTER, :d, :d] = frames[t + 1, i]
                at.unturn(w, w3, at.AFTER, at.FRAME_BAR, at.X2, at.E2, at.ROOT2, h2, d, s)
                m_bar += unpull(
                    *(seen, lam, level, m, planes, head, table, x_bar, velocity_bar),
                    *(surprise_bars[t, i, 0], p_bar, seen_bar, lam_bar, level_bar),
                    *(tables_bar, head_bar),
                )
                m_bar += unlikely(
                    *(surprise_bars[t, i, 1], clocks[t + 1, i, _LIKELIHOOD]),
                    *(m, level, power, level_bar, power_bar),
                )
                counts_bar[t, i] += m_bar
                for k in range(d):
                    seen_bar[k, k] = power_bar[k]
                    lam_bar[k] += level_bar[k]
                # SEEN = Q^T C Q.
                at.product(w, at.TURNED, at.SEEN_BAR, at.SPARE, d, s)
                at.product_to_right(w, w3, at.SPARE, at.TURNED, at.SPARE + 1, d, s)
                sequence_bar[t, i] = w3[at.SPARE + 1, :d, :d]
                for k in range(d):
                    for j in range(d):
                        w3[at.SPARE + 1, k, j] = seen_bar[k, j] + seen_bar[j, k]
                at.product(w, at.HALF, at.SPARE + 1, at.SPARE, d, s)
                w3[at.FRAME_BAR] += w3[at.SPARE]
            if moves:
                decay_bar = 0.0
                if step[_DT] > 0.0 and (clocks[t, i, _STEPS] + 1.0) % POLISH_EVERY == 0.0:
                    at.unpolish(w, w3, at.TURNED, at.FRAME_BAR, d, s)
                at.unturn(w, w3, at.TURNED, at.FRAME_BAR, at.X1, at.E1, at.ROOT1, h1, d, s)
                for k in range(d):
                    for j in range(d):
                        v = velocity[k, j]
                        decay_bar += velocity_bar[k, j] * v
                        step_bar[_TURN] += x_bar[k, j] * v
                        velocity_bar[k, j] = decay * velocity_bar[k, j] + step[_TURN] * x_bar[k, j]
                if information:
                    decay_bar += unwiden(old, step, decay, raw, p_bar, step_bar)
                step_bar[_KEEP if here else _COAST] += decay_bar
                for k in range(d):
                    head_bar[SPECTRUM_RATE] += step[_DT] * vector_bars[1, k]
                    step_bar[_DT] += head[SPECTRUM_RATE] * vector_bars[1, k]
            frame_bars[t, i] += frame_bar[:d, :d]
            velocity_bars[t, i] += velocity_bar
            vectors_bars[t, i] += vector_bars[:2]
