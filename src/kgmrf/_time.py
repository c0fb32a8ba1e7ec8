"""Time stamps in any unit, and dates: as numbers, and the unit that a tracker counts in.

One convention for all trackers: a tracker counts time in its unit, the usual interval between
observations, so that its settings mean the same at 30 frames a second and once a day. The unit is
``time_unit``, or, where that is None, the median of the first eight positive intervals, then
frozen. While fewer are known it is the median of those, so that a stream, a sequence and its chunks
give the same. All that counts time (time, age, velocity, half-life) is in units of the stamps;
dates count in seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from kgmrf._check import ObservationError, _shown, real_array
from kgmrf._types import Numbers
from kgmrf.constants import LONGEST

FIRST = 8
"""How many intervals decide."""


def stamps(times: Any) -> Any:
    """Time stamps as numbers; dates (numpy, pandas, datetime) as seconds since 1970.

    >>> stamps(np.array(["1970-01-01T00:00:01", "1970-01-01T00:00:02.5"], "datetime64[ms]"))
    array([1. , 2.5])
    >>> stamps([3, 4])
    [3, 4]
    """
    try:
        found = np.asarray(times)
    except (ValueError, TypeError, RuntimeError):
        return times  # the check says what is wrong with it
    if found.dtype == object and found.size:
        first = found.flat[0]
        if type(first).__module__.partition(".")[0] not in ("datetime", "pandas"):
            return times
        if getattr(first, "tzinfo", None) is not None:
            return np.array([moment.timestamp() for moment in found.flat]).reshape(found.shape)
        found = found.astype(
            "timedelta64[ns]" if hasattr(first, "total_seconds") else "datetime64[ns]"
        )
    if found.dtype.kind not in "mM":
        return times
    if np.isnat(found).any():
        raise ObservationError("times has missing dates (NaT); every frame needs a time stamp")
    if found.dtype.kind == "m":
        return np.asarray(found / np.timedelta64(1, "ns")) * 1e-9
    ticks = found.astype("datetime64[ns]")
    whole = ticks.astype("datetime64[s]")
    rest = (ticks - whole).astype(np.int64)
    return np.asarray(whole.astype(np.int64) + 1e-9 * rest)


def duration(steps: Any) -> Any:
    """A time span as a number; numpy's and Python's time differences in seconds."""
    if isinstance(steps, np.timedelta64):
        return float(steps / np.timedelta64(1, "ns")) * 1e-9
    if hasattr(steps, "total_seconds"):
        return float(steps.total_seconds())
    return steps


def within_reach(counted: Any, unit: float, name: str) -> Any:
    """Refuses steps longer than float64 can follow; ``counted`` in units of time."""
    longest = counted if type(counted) is float else np.max(counted, initial=0.0)
    if not longest <= LONGEST:
        raise ObservationError(
            f"{name} is {longest * unit:g}, more than {LONGEST:g} times the usual interval "
            f"{unit:g}; after such a gap start a new tracker, or give time_unit"
        )
    return counted


def interval(dt: Any) -> Numbers:
    """``dt`` as an array of times that do not run backwards."""
    array = real_array(dt, "dt")
    if not ((array >= 0) & np.isfinite(array)).all():
        raise ObservationError(
            f"dt must be finite and 0 or more, got {_shown(dt)}: time cannot run backwards; "
            "sort the observations"
        )
    return array


def horizon(steps: Any) -> float:
    """``steps`` as the one time, 0 or more, that a forecast looks ahead."""
    array = interval(steps)
    if array.ndim:
        raise ObservationError(
            f"a forecast looks one time ahead, got steps of shape {array.shape}; for several, "
            "forecast each: [tracker.forecast(step) for step in steps]"
        )
    return float(array)


def timeline(times: Any, n_frames: int, now: float | None, unit: float = 1.0) -> Numbers:
    """Time stamps as intervals ``(n_frames,)`` since the frame before (0 for the very first).

    now: where the tracker stands, as exactly as its unit of time lets it know.
    """
    stamps = real_array(times, "times")
    if stamps.shape != (n_frames,):
        raise ObservationError(
            f"times has shape {stamps.shape}, but the sequence has {n_frames} frames; "
            f"give one time stamp per frame, shape ({n_frames},)"
        )
    if not np.isfinite(stamps).all():
        k = int(np.argmin(np.isfinite(stamps)))
        raise ObservationError(f"times is {stamps[k]} at frame {k}; every frame needs a time stamp")
    if now is not None and abs(stamps[0] - now) <= max(1e-9 * unit, 1e-15 * abs(now)):
        now = float(stamps[0])
    before = np.concatenate([[stamps[0] if now is None else now], stamps[:-1]])
    steps = stamps - before
    if (steps < 0).any():
        k = int(np.argmax(steps < 0))
        if k == 0 and now is not None:
            raise ObservationError(
                f"times begin at {float(stamps[0])!r}, but the last time stamp is "
                f"{now!r}: it has taken in earlier frames; go on from there, or use a new tracker"
            )
        raise ObservationError(
            f"times run backwards at frame {k}: {float(stamps[k])!r} after {float(before[k])!r}; "
            "sort the sequence by time"
        )
    return steps


def unit_of(intervals: Numbers) -> float:
    """The unit of time of a track from all its intervals so far; 1 while none is positive."""
    first = np.asarray(intervals, dtype=float)
    first = first[first > 0][:FIRST]
    return float(np.median(first)) if first.size else 1.0


class Clock:
    """Between stamps and the time that a tracker counts: from 0, in units of the usual interval.

    ``marks`` are where the unit changed: (counted time, stamp, unit from there on), in columns.

    >>> clock = Clock()
    >>> clock.begin(1.7e9)
    >>> clock.counted(np.array([0.0, 0.5, 0.5, 1.0])).tolist()
    [0.0, 1.0, 1.0, 2.0]
    >>> clock.stamp(np.array(4.0)).item() - 1.7e9, clock.unit
    (2.0, 0.5)
    """

    def __init__(self, unit: float | None = None) -> None:
        self.unit = 1.0 if unit is None else float(unit)
        self.frozen = unit is not None
        self.first: list[float] = []
        self.at = (0.0, 0.0)
        self._mark(np.array([[0.0], [0.0], [self.unit]]))

    def begin(self, stamp: float) -> None:
        """The counted time 0 is this stamp."""
        self.at = (0.0, stamp)
        self._mark(np.array([[0.0], [stamp], [self.unit]]))

    def _mark(self, marks: Numbers) -> None:
        self.marks = marks
        self.plain = marks.tolist() == [[0.0], [0.0], [1.0]]  # stamps are counted times

    def counted(self, steps: Numbers) -> Numbers:
        """Intervals ``(T,)`` between stamps, as counted; learns the unit from the first of them."""
        out = np.array(steps, dtype=float)
        for k, dt in enumerate(steps):
            if self.frozen:
                out[k:] /= self.unit
                break
            out[k] = self.count(dt)
        return out

    def count(self, dt: Numbers, *, at_once: bool = False) -> Numbers:
        """The next interval as counted: a number, or one for each item of a batch.

        at_once: the first interval alone decides, for tracks that do not start together.
        """
        if not self.frozen:
            self._learn(np.asarray(dt, dtype=float), at_once)
        return dt / self.unit

    def _learn(self, dt: Numbers, at_once: bool) -> None:
        positive = dt[dt > 0]
        if not positive.size:
            return
        usual = float(np.median(positive))
        self.first.append(usual)
        unit = float(np.median(self.first))
        if unit != self.unit:
            self.unit = unit
            mark = np.array([[self.at[0]], [self.at[1]], [unit]])
            self._mark(np.concatenate([self.marks, mark], axis=1))
        self.at = (self.at[0] + usual / unit, self.at[1] + usual)
        # Items with clocks of their own cannot change their unit together: the first decides.
        uneven = dt.size > 1 and float(np.ptp(dt)) > 0.0
        self.frozen = uneven or at_once or len(self.first) >= FIRST

    def _segment(self, counted: Numbers) -> Numbers:
        return np.maximum(np.searchsorted(self.marks[0], counted, side="left") - 1, 0)

    def stamp(self, counted: Numbers) -> Numbers:
        """Counted times as stamps."""
        start, stamp, unit = self.marks[:, self._segment(counted)]
        return np.asarray(stamp + (counted - start) * unit)

    def in_stamp_units(self, values: Any, time: Numbers | None = None) -> Any:
        """Fields by name with time, age, velocity and half-life in units of the stamps."""
        return values if self.plain else InStampUnits(values, self.copy(), time)

    def copy(self) -> Clock:
        """An independent clock that shows the same."""
        twin = Clock.__new__(Clock)
        twin.__dict__.update(self.__dict__)  # marks are replaced, never written to
        twin.first = self.first.copy()
        return twin

    # ------------------------------------------------------------------ files

    def numbers(self) -> Numbers:
        """All that is remembered, as an array of fixed size."""
        out = np.zeros(4 + FIRST)
        out[:4] = self.unit, self.frozen, len(self.first), self.marks[1, 0]
        out[4 : 4 + len(self.first)] = self.first
        return out

    def restore(self, numbers: Numbers) -> None:
        """Take over what `numbers` gave; ValueError if it cannot be a clock."""
        if numbers.shape != (4 + FIRST,) or not np.isfinite(numbers).all():
            raise ValueError("invalid clock")
        unit, frozen, n, start = numbers[:4].tolist()
        first = numbers[4 : 4 + int(n)]
        if not (0 <= n <= FIRST and unit > 0 and (first > 0).all()):
            raise ValueError("invalid clock")
        self.__dict__.update(Clock(unit if frozen and not n else None).__dict__)
        self.begin(start)
        for usual in first:  # the marks are where these put them
            self._learn(np.array([usual]), at_once=False)
        self.frozen = self.frozen or bool(frozen)


class InStampUnits(Mapping[str, Numbers]):
    """Fields that count time, in units of the stamps when they are asked for.

    time: the stamps themselves, if known.
    """

    def __init__(
        self, values: Mapping[str, Numbers], clock: Clock, time: Numbers | None = None
    ) -> None:
        self._values, self._clock, self._time = values, clock, time
        self._made: dict[str, Numbers] = {}

    def __getitem__(self, name: str) -> Numbers:
        if name not in ("time", "age", "velocity", "half_life"):
            return self._values[name]
        if name not in self._made:
            self._made[name] = self._make(name, self._values[name])
        return self._made[name]

    def at(self, frame: int | slice) -> InStampUnits:
        """The fields of some steps alone."""
        values: Any = self._values
        time = self._time
        later = hasattr(values, "at")
        part = values.at(frame) if later else {k: v[frame] for k, v in values.items()}
        return InStampUnits(part, self._clock, None if time is None else time[frame])

    def _make(self, name: str, value: Numbers) -> Numbers:
        clock, time = self._clock, self._values["time"]
        if name == "time":
            return clock.stamp(time) if self._time is None else self._time
        if name == "age":
            seen = np.where(np.isnan(value), time, time - value)
            return np.where(np.isnan(value), np.nan, clock.stamp(time) - clock.stamp(seen))
        unit = clock.marks[2, clock._segment(time)]
        if name == "half_life":
            return np.asarray(value * unit)
        return np.asarray(value / unit.reshape(unit.shape + (1,) * (value.ndim - unit.ndim)))

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)
