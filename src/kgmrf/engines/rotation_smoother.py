"""Looking back with the rotation engine: what the past and what the future say, joined.

What the future says of a step is what the same engine, run from the end, forecasts for it. Both
ways know the angle and the velocity of every axis and how sure they are, so that the two join as
two Gaussians do: m = m_f + P_f (P_f + P_b)^-1 (m_b - m_f), P = P_f - P_f (P_f + P_b)^-1 P_f.
"""

from __future__ import annotations

import numpy as np

from kgmrf._types import Mask, Numbers
from kgmrf.engines.rotations import Rotations
from kgmrf.kernels import rotation_rows as at

CHUNK = 512
"""Windows of a fixed lag that are run side by side."""


def smooth(
    engine: Rotations,
    seen: Numbers,
    observed: Mask,
    dt: Numbers,
    noise: Numbers,
    start: float,
    lag: int | None = None,
) -> Numbers:
    """Records ``(T, n, record_size)`` given the whole sequence, or ``lag`` steps ahead.

    Arguments as for `Rotations.steps`; start: time of the first step. The future is run with the
    noise and the unit of time that the past ended with.

    >>> z = np.tile(np.eye(3), (5, 1, 1, 1))
    >>> ones = np.ones((5, 1))
    >>> smooth(Rotations(noise_std=0.1), z, ones > 0, ones, ones, 0.0).shape
    (5, 1, 63)
    """
    rows = engine.init(observed.shape[1])
    rows[:, at.TIME] = start
    past = engine.steps(rows, seen, observed, dt, noise)
    out = past.copy()
    for i in range(observed.shape[1]):
        one = (seen[:, i], observed[:, i], dt[:, i], noise[:, i])
        out[:, i] = joined(past[:, i], _future(past[-1, i], *one, lag))
    return out


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
        seen, observed = one[:, :9].reshape(-1, 3, 3), one[:, 9] > 0
        future = _future(one[-1, 12:], seen, observed, one[:, 10], one[:, 11], lag, len(out))
        out[:, i] = joined(one[: len(out), 12:], future[: len(out)])
    return out


def packed(seen: Numbers, observed: Mask, dt: Numbers, noise: Numbers, records: Numbers) -> Numbers:
    """Steps and their records side by side, ``(T, n, 12 + record_size)``, for `lagged`."""
    flat = (*observed.shape, -1)
    numbers = (np.where(observed[..., None], seen.reshape(flat), 0.0), observed[..., None])
    return np.concatenate([*numbers, dt[..., None], noise[..., None], records], axis=-1)


def _future(
    last: Numbers,
    seen: Numbers,
    observed: Mask,
    dt: Numbers,
    noise: Numbers,
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
        back = np.repeat(np.arange(n)[::-1], 2)
        there = observed[back] & (np.arange(2 * n) % 2 == 1)
        gaps = np.append(dt[1:], 0.0)[back] * (np.arange(2 * n) % 2 == 0)
        records = engine.steps(
            engine.init(1), seen[back][:, None], there[:, None], gaps[:, None], noise[back][:, None]
        )
        future[:] = records[0::2, 0][::-1]
        return future
    time = np.cumsum(dt)
    steps = np.arange(lag, -1, -1)[:, None]  # from the newest of a window to its own step
    asked = n if count is None else count
    for begin in range(0, asked, CHUNK):
        at_step = np.arange(begin, min(begin + CHUNK, asked))
        which = np.minimum(at_step + steps, n - 1)
        there = observed[which] & (at_step + steps < n) & (steps > 0)
        gaps = np.diff(-time[which], axis=0, prepend=-time[which[:1]])
        records = engine.steps(engine.init(len(at_step)), seen[which], there, gaps, noise[which])
        future[at_step] = records[-1]
    return future


def _covariance(records: Numbers, sign: float) -> Numbers:
    """Of (angle, velocity), per axis ``(n, 3, 2, 2)``; backwards in time velocities change sign."""
    p00, p01, p11 = (records[:, k : k + 3] for k in (at.R_ANGLE, at.R_CROSS, at.R_RATE))
    rows = [np.stack([p00, sign * p01], -1), np.stack([sign * p01, p11], -1)]
    return np.stack(rows, axis=-2)
