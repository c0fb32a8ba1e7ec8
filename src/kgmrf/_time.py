"""Time stamps in any unit, and dates: as numbers, and the unit that they are counted in.

The unit of time of a track is the median of its first eight positive intervals, then frozen. While
fewer are known it is the median of those, so that a stream and a whole sequence give the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kgmrf._types import Numbers

FIRST = 8
"""How many intervals decide."""


def stamps(times: Any) -> Any:
    """Time stamps as numbers; dates (numpy, pandas, datetime) as seconds since 1970.

    >>> stamps(np.array(["1970-01-01T00:00:01", "1970-01-01T00:00:02.5"], "datetime64[ms]"))
    array([1. , 2.5])
    >>> stamps([3, 4])
    [3, 4]
    """
    found = np.asarray(times)
    if found.dtype == object and found.size and hasattr(found.flat[0], "timestamp"):
        if found.flat[0].tzinfo is not None:
            return np.array([moment.timestamp() for moment in found.flat]).reshape(found.shape)
        found = found.astype("datetime64[ns]")
    if found.dtype.kind == "M":
        ticks = found.astype("datetime64[ns]")
        if np.isnat(ticks).any():
            raise ValueError("times has missing dates (NaT); every frame needs a time stamp")
        whole = ticks.astype("datetime64[s]")
        rest = (ticks - whole).astype(np.int64)
        return np.asarray(whole.astype(np.int64) + 1e-9 * rest)
    return times


def duration(steps: Any) -> Any:
    """A time span as a number; numpy's and Python's time differences in seconds.

    >>> duration(np.timedelta64(1500, "ms")), duration(0.05)
    (1.5, 0.05)
    """
    if isinstance(steps, np.timedelta64):
        return float(steps / np.timedelta64(1, "ns")) * 1e-9
    if hasattr(steps, "total_seconds"):
        return float(steps.total_seconds())
    return steps


def unit_of(intervals: Numbers) -> float:
    """The unit of time of a track from all its intervals so far; 1 while none is positive.

    >>> unit_of(np.array([0.0, 0.1, 0.3, 0.1, 5.0]))
    0.2
    """
    first = np.asarray(intervals, dtype=float)
    first = first[first > 0][:FIRST]
    return float(np.median(first)) if first.size else 1.0
