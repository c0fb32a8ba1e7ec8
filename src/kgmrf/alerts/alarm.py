"""Events, not rows: when a run of p-values is an alarm, where it began and when it is over."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np

from kgmrf import _check
from kgmrf._types import Numbers
from kgmrf.alerts.thresholds import Bets, bets
from kgmrf.constants import ALARM_BEGINS, ALARM_ENDS, STRUCTS
from kgmrf.engines import core

WIDTH = len(STRUCTS["AlarmRow"])
SECONDS = {"second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86400.0, "week": 604800.0}


class Heard(NamedTuple):
    """What became of lines, ``(N,)``.

    Parameters
    ----------
    status : array
        0 quiet, 1 an alarm begins, 2 it lasts, 3 it ends.
    evidence : array
        1 raises an alarm.
    since : array
        Lines since the onset of the alarm that is on or was last.
    quiet : array
        Lines since its last evidence.
    """

    status: Numbers
    evidence: Numbers
    since: Numbers
    quiet: Numbers


class Event(NamedTuple):
    """One alarm, in rows of the recording.

    Parameters
    ----------
    onset : int
        Row where the evidence began to grow.
    begin : int
        Row where the alarm was raised.
    end : int
        Last row that spoke for it; None while it lasts.
    peak : int
        Row with the smallest p-value.
    surprise : float
        Its -log10 p.
    """

    onset: int
    begin: int
    end: int | None
    peak: int
    surprise: float


class Alarm:
    """An alarm on p-values with a stated rate of false ones: S_t = max(0, S_{t-1} - log p_t - r).

    The rate holds for rows that depend on each other in any way, as long as the p-values are valid
    given the past, P(p_t <= u | past) <= u, which is what a calibrated forecast means: each sum is
    an e-detector, and its average run length is known exactly; see
    :mod:`kgmrf.alerts.thresholds`. What no p-value shows, such as a fault that the tracker has
    learned as normal, no alarm shows either: see ``adapt`` of :func:`kgmrf.alerts.watch`.

    Parameters
    ----------
    rate : float or str, default 1e-4
        False alarms per row, at most, such as 1e-4; or "1/day" (second, minute, hour, day, week)
        with ``interval``.
    memory : float, default 100
        Rows that evidence may take to gather: smaller changes are found with a longer memory, which
        costs 1 of K in the rate of each. Three sums share the rate, for changes that show within 1,
        sqrt(memory) and memory rows; with memory=1 an alarm is a p-value below about ``rate``.
    warm_up : float, default 100
        Rows of a track before its first alarm; what is normal must be known first.
    interval : float, default None
        Seconds between two rows; for a rate such as "1/day" only.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> p = rng.random(1000)
    >>> p[600:650] **= 2.0  # small p-values become more frequent
    >>> [(event.onset, event.begin) for event in Alarm(1e-4).find(p)]
    [(600, 608)]
    """

    def __init__(
        self,
        rate: float | str = 1e-4,
        memory: float = 100,
        *,
        warm_up: float = 100,
        interval: float | None = None,
    ) -> None:
        self.rate = per_row(rate, interval)
        self.memory = _check.in_range(memory, "memory", 1.0, 1e6)
        self.warm_up = _check.in_range(warm_up, "warm_up", 0.0, 1e15)
        self.interval = interval
        self._rows = self.init(0)

    def __repr__(self) -> str:
        return f"Alarm(rate={self.rate:g}, memory={self.memory:g})"

    @property
    def bets(self) -> Bets:
        """References and thresholds of its sums."""
        return bets(self.rate, self.memory)

    # ------------------------------------------------------------------ many tracks

    def init(self, n_tracks: int) -> Numbers:
        """Rows ``(n, size)`` of tracks without evidence."""
        return np.zeros((n_tracks, WIDTH))

    def take(self, rows: Numbers, tracks: Any, p_values: Any) -> Heard:
        """Take in p-values of lines, each of one track, in order; rows change in place.

        NaN is a line without an observation: nothing changes but the count of lines.
        """
        which = np.ascontiguousarray(tracks, dtype=np.int64)
        p = as_p_values(p_values)
        status, records = np.empty(len(p), np.int8), np.empty((len(p), 3))
        loop = core.functions("alarm").follow_alarms
        loop(rows, which, p, np.array(self.bets), self.warm_up, records, status)
        return Heard(status, *records.T)

    # ------------------------------------------------------------------ one sequence

    def update(self, p_value: float) -> Heard:
        """Take in the p-value of the next row of one track."""
        if not len(self._rows):
            self._rows = self.init(1)
        found = self.take(self._rows, [0], [p_value])
        return Heard(*(part[0] for part in found))

    def find(self, p_values: Any) -> list[Event]:
        """The alarms of a sequence of p-values ``(T,)``; what `update` remembers stays as it is."""
        p = as_p_values(p_values)
        return events(self.take(self.init(1), np.zeros(len(p), np.int64), p), p)


def events(heard: Heard, p_values: Numbers) -> list[Event]:
    """The alarms of one track, of what became of its rows ``(T,)``."""
    out, status = [], heard.status
    begins = np.flatnonzero(status == ALARM_BEGINS).tolist()
    ends = np.flatnonzero(status == ALARM_ENDS).tolist()
    for k, begin in enumerate(begins):
        # The first line of a piece may lie inside an alarm that began before it.
        stop = next((row for row in ends if row > begin), None)
        onset = max(0, begin - int(heard.since[begin]))
        last = len(status) if stop is None else stop + 1 - int(heard.quiet[stop])
        inside = np.where(np.isnan(p_values[onset:last]), 1.0, p_values[onset:last])
        peak = onset + int(inside.argmin())
        least = max(float(p_values[peak]), 1e-300)
        end = None if stop is None else last - 1
        out.append(Event(onset, begins[k], end, peak, -float(np.log10(least))))
    return out


def as_p_values(values: Any) -> Numbers:
    """Numbers between 0 and 1, or NaN, ``(N,)``."""
    p = np.ascontiguousarray(values, dtype=float)
    wrong = ~(np.isnan(p) | ((p >= 0.0) & (p <= 1.0)))
    if p.ndim != 1 or wrong.any():
        shown = f", such as {p[wrong][0]:g}" if wrong.any() else ""
        raise ValueError(f"p-values are numbers from 0 to 1 of shape (N,), got {p.shape}{shown}")
    return p


def per_row(rate: float | str, interval: float | None) -> float:
    """False alarms per row, of a number or of words such as "1/day".

    >>> per_row("1/day", 60.0) == 60.0 / 86400.0
    True
    """
    if isinstance(rate, str) and "/" in rate:
        found = re.fullmatch(r"\s*([0-9.eE+-]+)\s*/\s*([a-z]+?)s?\s*", rate)
        if found is None or found[2] not in SECONDS:
            raise ValueError(
                f'rate is false alarms per row, such as 1e-4, or in words "1/day" '
                f"({', '.join(SECONDS)}); got {rate!r}"
            )
        if interval is None:
            raise ValueError(f"rate={rate!r} needs interval=, the seconds between two rows")
        seconds = _check.in_range(interval, "interval", 0.0, np.inf, open_low=True)
        rate = float(found[1]) * seconds / SECONDS[found[2]]
    number: Any = rate
    return _check.in_range(number, "rate", 1e-15, 0.1)
