"""Looking back with the rotation engine: what the past and what the future say, joined.

What the future says of a step is what the same engine, run from the end, forecasts for it. Both
ways know the angle and the velocity of every axis and how sure they are, so that the two join as
two Gaussians do: m = m_f + P_f (P_f + P_b)^-1 (m_b - m_f), P = P_f - P_f (P_f + P_b)^-1 P_f.
"""

from __future__ import annotations

import numpy as np

from kgmrf._types import Numbers
from kgmrf.engines import Lines
from kgmrf.engines.rotations import Rotations
from kgmrf.kernels import rotation_rows as at

CHUNK = 512
"""Windows of a fixed lag that are run side by side."""

BESIDE = 11
"""Numbers of a step that are kept beside its record."""


def smooth(
    engine: Rotations,
    seen: Numbers,
    counts: Numbers,
    dt: Numbers,
    start: float,
    lag: int | None = None,
) -> Numbers:
    """Records ``(T, n, record_size)`` given the whole sequence, or ``lag`` steps ahead.

    seen ``(T, n, 3, 3)``; counts, 0 where nothing is seen, and dt ``(T, n)``; start: time of the
    first step. The future is run with the noise and the unit of time that the past ended with.

    >>> z = np.tile(np.eye(3), (5, 1, 1, 1))
    >>> smooth(Rotations(noise_std=0.1), z, np.ones((5, 1)), np.ones((5, 1)), 0.0).shape
    (5, 1, 63)
    """
    past = _run(engine, seen, counts, dt, start)
    out = past.copy()
    for i in range(counts.shape[1]):
        future = _future(past[-1, i], seen[:, i], counts[:, i], dt[:, i], lag)
        out[:, i] = joined(past[:, i], future)
    return out


def _run(
    engine: Rotations, seen: Numbers, counts: Numbers, dt: Numbers, start: float = 0.0
) -> Numbers:
    """Records ``(T, n, record_size)`` of new tracks."""
    steps, n = counts.shape
    rows = engine.init(n)
    rows[:, at.TIME] = start
    which = np.tile(np.arange(n), steps)
    lines = Lines(which, seen.reshape(-1, 3, 3).copy(), counts.flatten(), dt.flatten())
    return engine.advance(rows, lines)[1].reshape(steps, n, -1)


def joined(past: Numbers, future: Numbers) -> Numbers:
    """Records ``(..., record_size)`` of the past with those of a run from the end.

    What comes before the first observation stays unknown.

    >>> both = np.full((2, at.RECORD), np.nan)
    >>> bool(np.isnan(joined(both[0], both[1])).all())
    True
    """
    from scipy.spatial.transform import Rotation  # slow to import

    known = ~np.isnan(future[..., 0]) & ~np.isnan(past[..., 0])
    out = np.array(past)
    if not known.any():
        return out
    f, b = past[known], future[known]
    here, there = (Rotation.from_quat(np.roll(r[:, :4], -1, axis=1)) for r in (f, b))
    pf, pb = _covariance(f, 1.0), _covariance(b, -1.0)
    gap = np.stack([(here.inv() * there).as_rotvec(), -b[:, 4:7] - f[:, 4:7]], axis=-1)
    gain = pf @ np.linalg.inv(pf + pb)
    step = (gain @ gap[..., None])[..., 0]
    left = pf - gain @ pf
    new = f.copy()
    turned = here * Rotation.from_rotvec(step[..., 0])
    new[:, :4] = np.roll(turned.as_quat(), 1, axis=1)
    new[:, 4:7] = f[:, 4:7] + step[..., 1]
    shrink = np.sqrt(left[..., 0, 0] / pf[..., 0, 0])
    for a in range(3):
        new[:, at.R_ANGLE + a] = left[:, a, 0, 0]
        new[:, at.R_CROSS + a] = left[:, a, 0, 1]
        new[:, at.R_RATE + a] = left[:, a, 1, 1]
        new[:, at.R_OFF + a] *= shrink[:, (a + 1) % 3] * shrink[:, (a + 2) % 3]
    new[:, at.R_NOISE] = b[:, at.R_NOISE]
    out[known] = new
    return out


def lagged(window: Numbers, lag: int) -> Numbers:
    """Records ``(T, n, record_size)`` of steps, each with ``lag`` later ones, of `packed` steps.

    window: ``(T + lag, n, ...)``.
    """
    out = np.empty((len(window) - lag, window.shape[1], at.RECORD))
    for i in range(out.shape[1]):
        one = window[:, i]
        seen = one[:, :9].reshape(-1, 3, 3)
        future = _future(one[-1, BESIDE:], seen, one[:, 9], one[:, 10], lag, len(out))
        out[:, i] = joined(one[: len(out), BESIDE:], future[: len(out)])
    return out


def packed(seen: Numbers, counts: Numbers, dt: Numbers, records: Numbers) -> Numbers:
    """Steps and their records side by side, ``(T, n, BESIDE + record_size)``, for `lagged`."""
    flat = np.where(counts[..., None] > 0.0, seen.reshape(*counts.shape, 9), 0.0)
    return np.concatenate([flat, counts[..., None], dt[..., None], records], axis=-1)


def _future(
    last: Numbers,
    seen: Numbers,
    counts: Numbers,
    dt: Numbers,
    lag: int | None,
    count: int | None = None,
) -> Numbers:
    """What the observations after each step forecast for it, backwards in time ``(T, record)``.

    count: how many of the steps are asked for, with a lag.
    """
    n = len(seen)
    future = np.full((n, at.RECORD), np.nan)
    if n < 2 or np.isnan(last[0]) or lag == 0:
        return future
    engine = Rotations(noise_std=float(last[at.R_NOISE]), time_unit=float(last[at.R_UNIT]))
    if lag is None or (count is None and lag >= n - 1):
        # Every step comes twice: unseen, which shows its forecast, and then seen.
        back, again = np.repeat(np.arange(n)[::-1], 2)[:, None], np.arange(2 * n)[:, None] % 2
        gaps = np.append(dt[1:], 0.0)[back] * (1 - again)
        records = _run(engine, seen[back], counts[back] * again, gaps)
        future[:] = records[0::2, 0][::-1]
        return future
    time = np.cumsum(dt)
    steps = np.arange(lag, -1, -1)[:, None]  # from the newest of a window to its own step
    asked = n if count is None else count
    for begin in range(0, asked, CHUNK):
        at_step = np.arange(begin, min(begin + CHUNK, asked))
        which = np.minimum(at_step + steps, n - 1)
        there = counts[which] * ((at_step + steps < n) & (steps > 0))
        gaps = np.diff(-time[which], axis=0, prepend=-time[which[:1]])
        future[at_step] = _run(engine, seen[which], there, gaps)[-1]
    return future


def _covariance(records: Numbers, sign: float) -> Numbers:
    """Of (angle, velocity), per axis ``(n, 3, 2, 2)``; backwards in time velocities change sign."""
    p00, p01, p11 = (records[:, k : k + 3] for k in (at.R_ANGLE, at.R_CROSS, at.R_RATE))
    rows = [np.stack([p00, sign * p01], -1), np.stack([sign * p01, p11], -1)]
    return np.stack(rows, axis=-2)
