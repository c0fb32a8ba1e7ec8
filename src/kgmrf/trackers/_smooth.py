"""Looking back: how trackers hand a recording to the smoothers and show what comes out.

Smoothing starts afresh with the tracker's settings; what the tracker remembers does not matter and
does not change.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kgmrf import _check
from kgmrf._types import Mask, Numbers
from kgmrf.gains import InformationGains
from kgmrf.geometry import so
from kgmrf.motion import decaying_velocity
from kgmrf.results import Result, Values
from kgmrf.rotation_smoother import smooth_rotations
from kgmrf.smoother import smooth_planes, smooth_warmup
from kgmrf.step import State
from kgmrf.trackers._samples import _second_moments


class Recording(NamedTuple):
    """A checked sequence: time first, then batch axes."""

    seen: Numbers
    observed: Mask
    counts: Numbers
    dt: Numbers
    start: float


def smooth_covariances(
    tracker: Any,
    sequence: Any,
    times: Any,
    mask: Any,
    n_samples: float | Numbers | None,
    samples: bool | None,
    lag: int | None,
) -> Result:
    """p(M_t | C_1..C_T), or with ``lag`` p(M_t | C_1..C_{t+lag}), for a single law.

    Each plane has its own backward pass (Rauch, Tung and Striebel), and so have the log eigenvalues
    and the scale. The frames of the cold start are smoothed too, except with a lag.
    """
    check_lag(lag)
    fresh: Any = _fresh(tracker)
    if _check.are_samples(sequence, samples):
        return _smooth_samples(fresh, sequence, times, mask, lag)
    record = recording(fresh, sequence, times, mask, n_samples)
    return _show(fresh, _filtered(fresh, record), record, lag)


def smooth_law_of_rotations(
    tracker: Any,
    sequence: Any,
    times: Any,
    mask: Any,
    n_samples: float | Numbers | None,
    lag: int | None,
) -> Result:
    """p(R_t | Z_1..Z_T), or with ``lag`` p(R_t | Z_1..Z_{t+lag}), for a single law.

    For d = 3 the joint covariance of all angles and velocities is used and the chain is solved by
    Gauss-Newton, so that lag 0 is close to `filter` and a little sharper; other dimensions go plane
    by plane, where lag 0 is `filter`.
    """
    fresh: Any = _fresh(tracker)
    record = recording(fresh, sequence, times, mask, n_samples)
    law = fresh.gains
    numbers = (law.acceleration, law.retention, law.rate_prior, law.angle_noise)
    if fresh.d == 3 and all(np.ndim(number) == 0 for number in numbers):
        q, retention, rate, wander = (float(number) for number in numbers)
        model = decaying_velocity(q, retention=retention, rate_prior=rate, jitter=wander)
        return _smooth_space(fresh, record, model, lag)
    return _show(fresh, _filtered(fresh, record), record, lag)


def recording(
    fresh: Any, sequence: Any, times: Any, mask: Any, n_samples: float | Numbers | None
) -> Recording:
    """The sequence, checked as `filter` checks it, for a tracker that has seen nothing."""
    seen, observed = fresh._checked_sequence(sequence, mask)
    counts = fresh._counts(n_samples, observed)
    dt = fresh._intervals(times, seen.shape[0])
    fresh._start(seen.shape[1:])
    start = 0.0 if times is None else float(np.asarray(times, dtype=float)[0])
    fresh._set_clock(start)
    return Recording(seen, observed, counts, dt, start)


def timeline(record: Recording) -> Values:
    """The fields time and age of a recording, and the surprises that a smoother does not have."""
    shape = record.observed.shape
    time = np.cumsum(np.concatenate([[record.start + record.dt[0]], record.dt[1:]]))
    time = np.broadcast_to(time.reshape((-1,) + (1,) * (len(shape) - 1)), shape).copy()
    seen = np.maximum.accumulate(np.where(record.observed, time, -np.inf), axis=0)
    nan = np.full(shape, np.nan)
    return {
        "time": time,
        "age": np.where(np.isinf(seen), np.nan, time - seen),
        "nis": nan,
        "log_likelihood": nan.copy(),
    }


def in_planes(vectors: Numbers) -> Numbers:
    """One number per axis of space ``(..., 3)`` as one per plane ``(..., 3, 3)``."""
    planes: Numbers = np.abs(so.hat(vectors))
    return np.where(np.isnan(vectors[..., :1, None]), np.nan, planes)


def turning(vectors: Numbers) -> Numbers:
    """Velocities ``(..., 3)`` as skew matrices; NaN throughout where unknown."""
    skew: Numbers = so.hat(vectors)
    return np.where(np.isnan(vectors[..., :1, None]), np.nan, skew)


def _fresh(tracker: Any) -> Any:
    if not isinstance(tracker.gains, InformationGains):
        raise ValueError(
            "smoothing needs to know how sure the filter was: it must have information gains, "
            f"not {tracker.gains!r}"
        )
    return type(tracker)(**tracker.settings())


def check_lag(lag: int | None) -> None:
    """Refuse what is no number of frames."""
    if lag is not None and (not isinstance(lag, (int, np.integer)) or lag < 0):
        raise ValueError(f"lag must be None or a whole number of frames, 0 or more, got {lag!r}")


def _filtered(fresh: Any, record: Recording) -> Numbers:
    """The rows of a tracker after every frame of a recording, ``(T, ..., size)``."""
    safe = np.where(record.observed[..., None, None], record.seen, 0.0)
    counts = np.where(record.observed, record.counts, 0.0)
    return fresh._moved(safe, counts, record.dt, True, fresh._engine.size)


def _smooth_samples(fresh: Any, sequence: Any, times: Any, mask: Any, lag: int | None) -> Result:
    """Raw samples: the filter completes partial ones, the cold start looks at whole ones only."""
    blocks = fresh._frames(sequence, mask)
    dt = fresh._intervals(times, blocks.shape[0])
    fresh._start((*blocks.shape[1:-2], blocks.shape[-1], blocks.shape[-1]))
    start = 0.0 if times is None else float(np.asarray(times, dtype=float)[0])
    fresh._set_clock(start)
    rows = fresh._moved(blocks, np.ones(blocks.shape[:-2]), dt, False, fresh._engine.size)
    partial = np.isnan(blocks).any(axis=-1) & ~np.isnan(blocks).all(axis=-1)
    whole = np.where(partial[..., None], np.nan, blocks)
    seen, counts = _second_moments(whole, None)
    observed = ~np.isnan(blocks).all(axis=(-2, -1))
    seen = np.where((counts > 0)[..., None, None], seen, np.nan)
    return _show(fresh, rows, Recording(seen, observed, np.maximum(counts, 1.0), dt, start), lag)


def _show(fresh: Any, rows: Numbers, record: Recording, lag: int | None) -> Result:
    engine = fresh._engine
    filtered: State = engine.state(rows)[0]
    smoothed = smooth_planes(filtered, engine.model, record.dt, record.observed, lag)
    whole = lag is None or lag >= len(rows) - 1
    if whole and fresh.kind == "covariance":
        seen = np.where(record.observed[..., None, None], record.seen, np.nan)
        smoothed = smooth_warmup(smoothed, engine.model, seen, record.counts, record.dt)
    return Result(engine.view_state(smoothed))


def _smooth_space(fresh: Any, record: Recording, model: Any, lag: int | None) -> Result:
    shape = record.observed.shape
    noise_std = np.sqrt(fresh.noise_std**2 / record.counts)
    rotation = np.empty((*shape, 3, 3))
    velocity, angle_std = np.empty((*shape, 3)), np.empty((*shape, 3))
    for item in np.ndindex(shape[1:]):
        at = (slice(None), *item)
        track = smooth_rotations(
            record.seen[at],
            noise_std[at],
            model=model,
            dt=record.dt,
            present=record.observed[at],
            lag=lag,
        )
        rotation[at], velocity[at] = track.rotation, track.velocity
        angle_std[at] = np.sqrt(np.diagonal(track.covariance, axis1=-2, axis2=-1)[:, :3])
    return Result(
        {
            **timeline(record),
            "rotation": rotation,
            "velocity": turning(velocity),
            "angle_std": in_planes(angle_std),
        }
    )
