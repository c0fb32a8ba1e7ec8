"""Looking back: a recording through the filter and back. It starts afresh with the settings of a
tracker; what the tracker remembers does not matter and does not change.

A single law goes back plane by plane. A mixture of averages and kinetic laws has no backward pass
of its own. But what the future says about a frame is what the same tracker, run from the end,
forecasts for it; and both ways tell how unsure they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kgmrf._time import stamps
from kgmrf._types import Numbers
from kgmrf.geometry import orbit
from kgmrf.model.gains import InformationGains
from kgmrf.model.wishart import second_moments
from kgmrf.results import Result, Values
from kgmrf.smoothing.law import smooth_planes, smooth_warmup
from kgmrf.trackers._input import Recording


def check_lag(lag: int | None) -> None:
    """Refuse what is no number of frames."""
    if lag is not None and (not isinstance(lag, (int, np.integer)) or lag < 0):
        raise ValueError(f"lag must be None or a whole number of frames, 0 or more, got {lag!r}")


def smooth_law(tracker: Any, sequence: Any, lag: int | None, **given: Any) -> Result:
    """p(M_t | C_1..C_T), or with ``lag`` p(M_t | C_1..C_{t+lag}); lag 0 is `filter`.

    given: as for `Tracker.filter`. Each plane has its own backward pass (Rauch, Tung and Striebel),
    and so have the log eigenvalues and the scale. The steps of the cold start are smoothed too,
    except with a lag.
    """
    check_lag(lag)
    if not isinstance(tracker.gains, InformationGains):
        raise ValueError(
            "smoothing needs to know how sure the filter was: it must have information gains, "
            f"not {tracker.gains!r}"
        )
    fresh = tracker.with_settings()
    record = fresh.prepare_sequence(sequence, whole=True, **given)
    seen, observed, counts, dt = record[:4]
    engine = fresh.engine(fresh.batch_shape)
    filtered = engine.state(fresh.rows_after(record))[0]
    smoothed = smooth_planes(filtered, engine.model, dt, observed, lag)
    if fresh.kind == "covariance" and (lag is None or lag >= len(dt) - 1):
        if record.samples:  # the cold start looks at whole samples only
            whole = ~np.isnan(seen).any(axis=-1, keepdims=True)
            seen, counts = second_moments(np.where(whole, seen, np.nan))
            observed, counts = counts > 0, np.maximum(counts, 1.0)
        seen = np.where(observed[..., None, None], seen, np.nan)
        smoothed = smooth_warmup(smoothed, engine.model, seen, counts, dt)
    found = fresh.in_stamp_units(Result(engine.view_state(smoothed)), record.times)
    return found.with_labels(record.channels, record.index)


def smooth_both_ways(tracker: Callable[[], Any], record: Recording) -> Result:
    """S_t = (1 - a) S_t|past + a S_t|future, a in proportion to how sure the future is.

    tracker: gives a fresh tracker. record: covariances ``(T, ..., d, d)`` or samples
    ``(T, ..., m, d)``.
    """
    raw, n_samples = record.samples, None if record.samples else record.counts
    values = np.where(record.observed[..., None, None], record.seen, np.nan)
    times = np.arange(len(values), dtype=float)
    if record.times is not None:
        times = np.asarray(stamps(record.times), dtype=float)
    past = tracker().filter(values, times=times, n_samples=n_samples, samples=raw)
    # Backward every frame comes twice: unseen, which shows its forecast, and then seen.
    unseen = np.full_like(values, np.nan)
    doubled = np.stack([unseen, values], axis=1).reshape(2 * len(values), *values.shape[1:])
    order = np.arange(len(doubled)).reshape(-1, 2)[::-1].reshape(-1)
    counts = None if n_samples is None else np.repeat(n_samples, 2, axis=0)[order]
    ago = np.repeat(times[-1] - times[::-1], 2)
    back = tracker().filter(doubled[order], times=ago, n_samples=counts, samples=raw)
    later = back[0::2]
    future = later[::-1]
    first, second = (np.isfinite(side.covariance).all(axis=(-2, -1)) for side in (past, future))
    sure = np.where(first, _precision(past), 0.0)
    other = np.where(second, _precision(later)[::-1], 0.0)
    total = sure + other
    # Before either is sure of anything the one that knows something speaks, the past first.
    share = np.where(total > 0, other / np.where(total > 0, total, 1.0), second & ~first)
    share, first, second = (part[..., None, None] for part in (share, first, second))
    covariance = (1 - share) * np.where(first, past.covariance, 0.0)
    covariance += share * np.where(second, future.covariance, 0.0)
    turning = (1 - share) * np.where(first, _in_space(past), 0.0)
    turning -= share * np.where(second, _in_space(future), 0.0)
    covariance = np.where(first | second, covariance, np.nan)
    nan = np.full(past.time.shape, np.nan)
    return Result(
        {
            "time": past.time,
            "age": past.age,
            "covariance": covariance,
            **_moving(covariance, turning),
            "angle_std": _joined(past.angle_std, future.angle_std, first, second),
            "nis": nan,
            "p_value": nan.copy(),
            "log_likelihood": nan.copy(),
        }
    )


def _precision(side: Result) -> Numbers:
    """One number for how sure a step is: the mean over the planes, or the memory if d = 1."""
    angle_std, half_life = side.angle_std, side.half_life
    d = angle_std.shape[-1]
    if d == 1:
        memory = np.minimum(half_life, np.cumsum(np.ones_like(half_life), axis=0))
        return np.where(np.isfinite(memory), memory, 0.0)
    planes = np.triu_indices(d, 1)
    variance = np.mean(angle_std[..., planes[0], planes[1]] ** 2, axis=-1)
    there = np.isfinite(variance) & (variance > 0)
    return np.where(there, 1.0 / np.where(there, variance, 1.0), 0.0)


def _in_space(side: Result) -> Numbers:
    """The velocity in the coordinates of the channels."""
    return side.frame @ side.velocity @ np.swapaxes(side.frame, -1, -2)


def _moving(covariance: Numbers, turning: Numbers) -> Values:
    """Frame, spectrum and the velocity seen from that frame; NaN where nothing is known."""
    frame, spectrum = orbit.decompose(covariance)
    velocity = np.swapaxes(frame, -1, -2) @ turning @ frame
    return {
        "frame": frame,
        "spectrum": spectrum,
        "velocity": 0.5 * (velocity - np.swapaxes(velocity, -1, -2)),
    }


def _joined(past: Numbers, future: Numbers, first: Numbers, second: Numbers) -> Numbers:
    """Two independent opinions about an angle: their precisions add up."""
    there = (second & (future > 0), first & (past > 0))
    with np.errstate(invalid="ignore"):
        both = past * future / np.hypot(past, future)
    return np.where(there[0] & there[1], both, np.where(there[0], future, past))
