"""Looking back with a single law: a recording through the filter and back, plane by plane.

Smoothing starts afresh with the tracker's settings; what the tracker remembers does not matter and
does not change.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kgmrf.gains import InformationGains
from kgmrf.results import Result
from kgmrf.smoother import smooth_planes, smooth_warmup
from kgmrf.trackers._samples import second_moments


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
    fresh = tracker.anew()
    record = fresh.recording(sequence, whole=True, **given)
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
    found = fresh.told(Result(engine.view_state(smoothed)), record.times)
    return found.named(record.channels, record.index)
