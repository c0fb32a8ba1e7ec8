"""Looking back with the rotation engine: what the past and what the future say, joined.

What the future says of a step is what the same engine, run from the end, forecasts for it. Both
ways know the angle and the velocity of every axis and how sure they are, so that the two join as
two Gaussians do: m = m_f + P_f (P_f + P_b)^-1 (m_b - m_f), P = P_f - P_f (P_f + P_b)^-1 P_f.
What the next observation showed to be an outlier is a gap for both.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kgmrf._types import Mask, Numbers
from kgmrf.constants import REFUSED, STALE
from kgmrf.engines import Lines
from kgmrf.engines import rotation_row as at
from kgmrf.engines.rotation_row import field, part
from kgmrf.engines.rotations import Rotations

CHUNK = 512
"""Windows of a fixed lag that are run side by side."""

BESIDE = 15
"""Numbers of a step beside its record: matrix, count, interval, rate and its deviation."""


def smooth(
    engine: Rotations,
    seen: Numbers,
    counts: Numbers,
    dt: Numbers,
    start: float,
    lag: int | None = None,
    rates: Numbers | None = None,
) -> Numbers:
    """Records ``(T, n, record_size)`` given the whole sequence, or ``lag`` steps ahead.

    seen ``(T, n, 3, 3)``; counts, 0 where nothing is seen, and dt ``(T, n)``; start: time of the
    first step; rates ``(T, n, 4)``: see `Rotations.advance`. The future of a step is run with the
    noise and the unit of time that were known at its end.

    >>> z = np.tile(np.eye(3), (5, 1, 1, 1))
    >>> smooth(Rotations(noise_std=0.1), z, np.ones((5, 1)), np.ones((5, 1)), 0.0).shape
    (5, 1, 69)
    """
    if rates is None:
        rates = np.full((*counts.shape, 4), np.nan)
    past, last = _run(engine, seen, counts, dt, start, rates), len(seen) - 1
    stale = field(past, "status") == STALE
    counts = np.where(stale, 0.0, counts)
    if lag is not None and lag < last:
        ends = past[np.minimum(np.arange(last + 1) + lag, last)]
        return _late(engine, past, ends, (seen, counts, dt, rates), lag)
    found = outliers(past, counts)
    if found.later.any():  # what was shown at the time was in doubt
        again = _run(engine, seen, np.where(found.later, 0.0, counts), dt, start, rates)
        field(again, "outlier_probability")[:] = field(past, "outlier_probability")
        past = again
        field(past, "status")[stale] = STALE
    field(past, "status")[found.later] = REFUSED
    # Every step comes twice: unseen, which shows its forecast, and then seen.
    back, again = np.repeat(np.arange(last, -1, -1), 2), np.arange(2 * last + 2)[:, None] % 2
    gaps = np.append(dt[1:], 0.0 * dt[:1], axis=0)[back] * (1 - again)
    there, turns = np.where(found.later, 0.0, counts)[back] * again, _backwards(rates[back])
    turns[1::2] = np.nan
    future = _run(_alike(engine, past[-1]), seen[back], there, gaps, 0.0, turns)[0::2][::-1]
    return joined(past, future)


class Outliers(NamedTuple):
    """Which observations ``(T, n)`` are outliers: at their own time, and by the next one."""

    own: Mask
    later: Mask
    following: Numbers  # the step of the next one

    def known(self, steps: Any, now: Any) -> Mask:
        """Of some steps, as known at steps ``now``."""
        decided = self.following[steps] <= now
        return np.asarray(np.where(decided, self.later[steps], self.own[steps]))


def outliers(records: Numbers, counts: Numbers) -> Outliers:
    """The record of the next observation tells what became of one that was open."""
    steps, status, before = len(records), field(records, "status"), field(records, "before")
    seen = (counts > 0.0) & (status > 0.0) & (status != STALE)
    following = np.full(status.shape, steps)
    for t in range(steps - 2, -1, -1):
        following[t] = np.where(seen[t + 1], t + 1, following[t + 1])
    later = np.take_along_axis(before, np.minimum(following, steps - 1), axis=0)
    later = np.where((following < steps) & (later > 0.0), later, status)
    return Outliers(seen & (status == REFUSED), seen & (later == REFUSED), following)


def lagged(engine: Rotations, window: Numbers, lag: int) -> Numbers:
    """Records ``(T, n, record_size)`` of steps, each with ``lag`` later ones.

    window: ``(T + lag, n, BESIDE + record_size)``: what is beside the record of every step.
    """
    seen, records = window[..., :9].reshape(*window.shape[:2], 3, 3), window[..., BESIDE:]
    counts = np.where(field(records, "status") == STALE, 0.0, window[..., 9])
    steps = seen, counts, window[..., 10], window[..., 11:15]
    return _late(engine, records, records[lag:], steps, lag)


def joined(past: Numbers, future: Numbers) -> Numbers:
    """Records ``(..., record_size)`` of the past with those of a run from the end.

    What comes before the first observation stays unknown. As far as the past shows an observation
    itself, because noise so small may be motion, so does what is joined.

    >>> both = np.full((2, at.RECORD_SIZE), np.nan)
    >>> bool(np.isnan(joined(both[0], both[1])).all())
    True
    """
    from scipy.spatial.transform import Rotation  # slow to import

    known = ~np.isnan(future[..., 0]) & ~np.isnan(past[..., 0])
    out = np.array(past)
    if not known.any():
        return out
    f, b, new = past[known], future[known], past[known]
    here, there = (Rotation.from_quat(field(r, "quaternion"), scalar_first=True) for r in (f, b))
    pf, pb = _covariance(f, 1.0), _covariance(b, -1.0)
    gap = np.stack(
        [(here.inv() * there).as_rotvec(), -field(b, "velocity") - field(f, "velocity")], axis=-1
    )
    gain = pf @ np.linalg.inv(pf + pb)
    step = (gain @ gap[..., None])[..., 0]
    left = pf - gain @ pf
    turned = here * Rotation.from_rotvec((1.0 - field(f, "shown")[:, None]) * step[..., 0])
    field(new, "quaternion")[:] = turned.as_quat(scalar_first=True)
    field(new, "velocity")[:] += step[..., 1]
    shrink = np.sqrt(left[..., 0, 0] / pf[..., 0, 0])
    field(new, "angle")[:] = left[..., 0, 0]
    field(new, "cross")[:] = left[..., 0, 1]
    field(new, "rate")[:] = left[..., 1, 1]
    field(new, "off")[:] *= np.roll(shrink, -1, axis=1) * np.roll(shrink, -2, axis=1)
    field(new, "noise_std")[:] = field(b, "noise_std")
    out[known] = new
    return out


def _covariance(records: Numbers, sign: float) -> Numbers:
    """Of (angle, velocity), per axis ``(n, 3, 2, 2)``; backwards in time velocities change sign."""
    p00, p01, p11 = (field(records, name) for name in ("angle", "cross", "rate"))
    rows = [np.stack([p00, sign * p01], -1), np.stack([sign * p01, p11], -1)]
    return np.stack(rows, axis=-2)


def _late(
    engine: Rotations, past: Numbers, ends: Numbers, steps: tuple[Numbers, ...], lag: int
) -> Numbers:
    """The first len(ends) steps with ``lag`` later ones; with what these show of outliers."""
    future, now = _windows(engine, ends, past, steps, lag), np.arange(len(ends))
    here = past[: len(ends)].copy()
    wild = outliers(past, steps[1]).known(now, (now + lag)[:, None])
    field(here, "status")[wild] = REFUSED
    field(here, "shown")[wild] = 0.0
    return joined(here, future)


def _windows(
    engine: Rotations, ends: Numbers, past: Numbers, steps: tuple[Numbers, ...], lag: int
) -> Numbers:
    """What ``lag`` steps after each forecast for it, backwards in time; ends: their last records.

    steps: matrices, counts, intervals and rates. Records ``(T, n, record_size)`` of the first
    T = len(ends) steps.
    """
    seen, counts, dt, rates = steps
    future, time, last = np.empty_like(ends), np.cumsum(dt, axis=0), len(seen) - 1
    wild = outliers(past, counts)
    ahead = np.arange(lag, -1, -1)[:, None]  # from the newest of a window to its own step
    for begin in range(0, len(ends), CHUNK):
        at_step = np.arange(begin, min(begin + CHUNK, len(ends)))
        which = np.minimum(at_step + ahead, last)
        there = counts[which] * ((at_step + ahead <= last) & (ahead > 0))[..., None]
        there = there * ~wild.known(which, (at_step + lag)[:, None])
        gaps = np.diff(-time[which], axis=0, prepend=-time[which[:1]])
        own = ends[at_step].reshape(-1, at.RECORD_SIZE)
        tracks = (lag + 1, len(own))
        windows = seen[which].reshape(*tracks, 3, 3), there.reshape(tracks), gaps.reshape(tracks)
        turns = _backwards(rates[which]).reshape(*tracks, 4)
        found = _run(_alike(engine, own), *windows, 0.0, turns)[-1]
        future[at_step] = found.reshape(len(at_step), -1, at.RECORD_SIZE)
    return future


def _backwards(rates: Numbers) -> Numbers:
    """Rates as they are when time runs back."""
    return rates * [-1.0, -1.0, -1.0, 1.0]


def _alike(engine: Rotations, records: Numbers) -> Rotations:
    """An engine whose track k has the noise and the unit of time of record k."""
    alike = Rotations(noise_std=1.0, rated=engine.rated, repeats="taken")
    alike.settings = np.repeat(alike.settings, len(records), axis=0)
    alike.settings[:, at.UNIT] = field(records, "unit")
    alike.settings[:, at.FIRST_LEVEL] = field(records, "noise_std") ** 2
    return alike


def _run(
    engine: Rotations,
    seen: Numbers,
    counts: Numbers,
    dt: Numbers,
    start: float,
    rates: Numbers,
) -> Numbers:
    """Records ``(T, n, record_size)`` of new tracks."""
    steps, n = counts.shape
    rows = engine.init(n)
    part(rows, "time")[:] = start
    which = np.tile(np.arange(n), steps)
    lines = Lines(which, seen.reshape(-1, 3, 3).copy(), counts.flatten(), dt.flatten())
    found = engine.advance(rows, lines, None, None, rates.reshape(-1, 4).copy())[1]
    return found.reshape(steps, n, -1)
