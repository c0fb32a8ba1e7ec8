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
from kgmrf.results import Result
from kgmrf.smoother import smooth_planes, smooth_warmup
from kgmrf.step import State
from kgmrf.trackers._samples import _second_moments


class Recording(NamedTuple):
    """A checked sequence: time first, then batch axes; dt as counted by the tracker."""

    seen: Numbers
    observed: Mask
    counts: Numbers
    dt: Numbers


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
    if not _check.are_samples(sequence, samples):
        return smooth_law(tracker, sequence, times, mask, n_samples, lag)
    check_lag(lag)
    return _smooth_samples(_fresh(tracker), sequence, times, mask, lag)


def recording(
    fresh: Any, sequence: Any, times: Any, mask: Any, n_samples: float | Numbers | None
) -> Recording:
    """The sequence, checked as `filter` checks it, for a tracker that has seen nothing."""
    seen, observed = fresh._checked_sequence(sequence, mask)
    counts = fresh._counts(n_samples, observed)
    fresh._know_unit(times)
    dt = fresh._intervals(times, seen.shape[0])
    fresh._start(seen.shape[1:])
    return Recording(seen, observed, counts, dt)


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


def smooth_law(tracker: Any, sequence: Any, times: Any, mask: Any, counts: Any, lag: Any) -> Result:
    """A recording through a single law and back, plane by plane; lag 0 is `filter`."""
    check_lag(lag)
    fresh = _fresh(tracker)
    record = recording(fresh, sequence, times, mask, counts)
    return _show(fresh, _filtered(fresh, record), record, lag, times)


def _filtered(fresh: Any, record: Recording) -> Numbers:
    """The rows of a tracker after every frame of a recording, ``(T, ..., size)``."""
    safe = np.where(record.observed[..., None, None], record.seen, 0.0)
    counts = np.where(record.observed, record.counts, 0.0)
    return fresh._moved(safe, counts, record.dt, True, fresh._engine.size)


def _smooth_samples(fresh: Any, sequence: Any, times: Any, mask: Any, lag: int | None) -> Result:
    """Raw samples: the filter completes partial ones, the cold start looks at whole ones only."""
    blocks = fresh._frames(sequence, mask)
    fresh._know_unit(times)
    dt = fresh._intervals(times, blocks.shape[0])
    fresh._start((*blocks.shape[1:-2], blocks.shape[-1], blocks.shape[-1]))
    rows = fresh._moved(blocks, np.ones(blocks.shape[:-2]), dt, False, fresh._engine.size)
    partial = np.isnan(blocks).any(axis=-1) & ~np.isnan(blocks).all(axis=-1)
    whole = np.where(partial[..., None], np.nan, blocks)
    seen, counts = _second_moments(whole, None)
    observed = ~np.isnan(blocks).all(axis=(-2, -1))
    seen = np.where((counts > 0)[..., None, None], seen, np.nan)
    record = Recording(seen, observed, np.maximum(counts, 1.0), dt)
    return _show(fresh, rows, record, lag, times)


def _show(fresh: Any, rows: Numbers, record: Recording, lag: int | None, times: Any) -> Result:
    engine = fresh._engine
    filtered: State = engine.state(rows)[0]
    smoothed = smooth_planes(filtered, engine.model, record.dt, record.observed, lag)
    whole = lag is None or lag >= len(rows) - 1
    if whole and fresh.kind == "covariance":
        seen = np.where(record.observed[..., None, None], record.seen, np.nan)
        smoothed = smooth_warmup(smoothed, engine.model, seen, record.counts, record.dt)
    return fresh._told(Result(engine.view_state(smoothed)), times)
