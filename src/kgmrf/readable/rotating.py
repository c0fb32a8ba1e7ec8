"""Members with an eigenframe that turns: one Kalman filter of angle and velocity per plane."""

from __future__ import annotations

import numpy as np

from kgmrf._types import Numbers
from kgmrf.constants import (
    ANGLE_VARIANCE_LIMIT,
    CORRELATION_LIMIT,
    FLOOR,
    POLISH_EVERY,
    POOL_SAMPLES,
    RATE_VARIANCE_LIMIT,
    UNLIKE,
)
from kgmrf.engines import layout as at
from kgmrf.engines.layout import (
    Layout,
    Track,
    Turned,
    folded,
    pack,
    pooling,
    present,
    turned,
    unpack,
)
from kgmrf.geometry import so


def drift_turning(track: Track, plan: Layout, dt: float) -> None:
    """Q <- Q Exp(dt W), P <- F P F^T + noise; the eigenvalues widen."""
    laws = plan.table[plan.table[:, at.KIND] == at.TURNING]
    for law, numbers in zip(laws, track.turning, strict=True):
        own = turned(numbers, plan.d)
        own.frame[:] = own.frame @ so.exp(dt * folded(own.velocity, plan.d, -1.0))
        q = law[at.ACCELERATION]
        own.p11[:] += 2.0 * dt * own.p12 + dt**2 * own.p22 + q * dt**3 / 3.0
        own.p12[:] += dt * own.p22 + q * dt**2 / 2.0
        own.p22[:] += q * dt
        for p, limit in ((own.p11, ANGLE_VARIANCE_LIMIT), (own.p22, RATE_VARIANCE_LIMIT)):
            # Shrink the pair together: clipping a variance alone would make P indefinite.
            own.p12[:] *= np.sqrt(np.minimum(1.0, limit / p))
            p[:] = np.minimum(p, limit)
        most = CORRELATION_LIMIT * np.sqrt(own.p11 * own.p22)
        own.p12[:] = np.clip(own.p12, -most, most)
        own.spectrum_var[:] += law[at.SPECTRUM_RATE] * dt


def hold_turning(track: Track, plan: Layout, index: int) -> Numbers:
    """E Q diag(lam) Q^T E, or the pooled covariance with its off-diagonal times n/(n + 1)."""
    d, numbers, n = plan.d, track.turning[index], track.head[at.POOLED]
    if pooling(track):
        pooled = unpack(numbers[: d * (d + 1) // 2], d)
        return pooled * np.where(np.eye(d) > 0, 1.0, n / (n + 1.0))
    own = turned(numbers, d)
    whole = (own.frame * own.spectrum) @ own.frame.T
    return track.units[:, None] * whole * track.units


def learn_turning(track: Track, plan: Layout, seen: Numbers, m: float) -> None:
    """One angle-velocity Kalman step per plane, one random-walk step per log eigenvalue."""
    d = plan.d
    if pooling(track):
        track.head[at.POOLED] += 1.0
        n = track.head[at.POOLED]
        for numbers in track.turning:
            pooled = turned(numbers, d).frame.reshape(-1)[: d * (d + 1) // 2]
            pooled += (pack(seen) - pooled) / n
        if n * m >= POOL_SAMPLES * present(track).sum():
            start_turning(track, plan, m)
        return
    for numbers in track.turning:
        own = turned(numbers, d)
        body = own.frame.T @ (seen / track.units[:, None] / track.units) @ own.frame
        low, high = np.tril_indices(d, -1)
        gap = own.spectrum[low] - own.spectrum[high]
        pull = -body[low, high] * gap
        noise = own.spectrum[low] * own.spectrum[high] / m
        inverse = 1.0 / (own.p11 * gap**2 + noise)
        angle = own.p11 * inverse * pull
        own.velocity[:] += own.p12 * inverse * pull
        own.p22[:] = np.maximum(own.p22 - own.p12**2 * gap**2 * inverse, 0.0)
        own.p12[:] *= noise * inverse
        own.p11[:] *= noise * inverse
        gain = own.spectrum_var / (own.spectrum_var + 2.0 / m)
        # the diagonal as measured before the correction
        own.spectrum[:] += gain * (np.diag(body) - own.spectrum)
        own.spectrum_var[:] *= 1.0 - gain
        own.spectrum[:] = np.maximum(own.spectrum, smallest(own, track))
        own.frame[:] = own.frame @ so.exp(folded(angle, d, -1.0))
        if track.head[at.COUNT] % POLISH_EVERY == 0:
            own.frame[:] = so.polish(own.frame)


def smallest(own: Turned, track: Track) -> float:
    """Eigenvalues stay above phi^2 times the largest, and times the long-run level."""
    return FLOOR**2 * max(own.spectrum.max(), float(np.max(track.level / track.units**2)))


def start_turning(track: Track, plan: Layout, m: float) -> None:
    """One eigendecomposition of the pooled covariance; the first member sets the units of all."""
    there = present(track)
    laws = plan.table[plan.table[:, at.KIND] == at.TURNING]
    pooled = [hold_turning(track, plan, k) for k in range(len(laws))]
    n = track.head[at.POOLED]
    variances = np.diag(pooled[0])[there]
    track.units[:] = 1.0
    if variances.max() > UNLIKE * variances.min():
        track.units[there] = np.sqrt(variances)
    for law, numbers, whole in zip(laws, track.turning, pooled, strict=True):
        own = turned(numbers, plan.d)
        values, vectors = np.linalg.eigh(whole / track.units[:, None] / track.units)
        own.spectrum[:], own.frame[:] = values[::-1], vectors[:, ::-1]
        if np.linalg.det(own.frame) < 0:
            own.frame[:, -1] *= -1.0
        own.velocity[:] = own.p12[:] = 0.0
        own.p11[:], own.p22[:] = ANGLE_VARIANCE_LIMIT, law[at.RATE_PRIOR]
        own.spectrum_var[:] = 2.0 / (n * m)
        own.spectrum[:] = np.maximum(own.spectrum, smallest(own, track))
    track.head[at.POOLED] = -1.0
