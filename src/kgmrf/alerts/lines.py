"""Tracks that are watched: p-values, alarms, which channels, and what is learned meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from kgmrf._types import Mask, Numbers
from kgmrf.alerts.alarm import Alarm, Heard
from kgmrf.bank import TrackerBank
from kgmrf.constants import ALARM_BEGINS, ALARM_LASTS
from kgmrf.engines import rounds

ADAPT = ("yes", "slow", "no")
"""What is learned from rows in an alarm: all of them, one in `SLOW`, none."""

SLOW = 10

MOST = 256
"""Lines of a track that are taken in together: with an alarm among them some come twice."""


class Home(Protocol):
    """Tracks with columns: "alarm" ``(n, WIDTH)``, and "sums" where samples have a mean."""

    bank: TrackerBank
    columns: dict[str, Numbers]

    def centred(self, tracks: Numbers, values: Numbers) -> Numbers:
        """Samples off the mean of their track, which learns from them."""


class Observed(NamedTuple):
    """Lines of tracks: positions, samples ``(N, d)`` or matrices ``(N, d, d)``, dt, counts."""

    tracks: Numbers
    values: Numbers
    dt: Numbers
    counts: Numbers

    def part(self, these: Any) -> Observed:
        """Some of the lines."""
        return Observed(*(array[these] for array in self))


class Watched(NamedTuple):
    """What lines became: fields of the estimates, alarms, and contributions ``(N, d)`` of the
    channels to the squared distance; NaN outside alarms."""

    fields: dict[str, Numbers]
    heard: Heard
    contribution: Numbers


def take_watched(
    home: Home, alarm: Alarm, adapt: str, lines: Observed, fields: Sequence[str]
) -> Watched:
    """Take in lines; which of them come in one call changes nothing.

    While a track is in an alarm and ``adapt`` is not "yes", its covariance and its mean do not
    learn: the row is scored, and the track goes on as if it had not been seen.
    """
    step = _Step(home, alarm, adapt, lines, list(dict.fromkeys([*fields, "p_value"])))
    each = rounds(lines.tracks)
    for k in range(0, len(each), MOST):
        rows = np.sort(np.concatenate(each[k : k + MOST]))
        while rows.size:
            rows = step.one_by_one(step.at_once(rows))
    return Watched(step.found, Heard(*step.heard), step.contribution)


class _Step:
    """Lines on their way into their tracks, by position, and what became of them so far."""

    def __init__(
        self, home: Home, alarm: Alarm, adapt: str, lines: Observed, names: list[str]
    ) -> None:
        self.home, self.alarm, self.adapt, self.lines = home, alarm, adapt, lines
        self.names = names
        self.found: dict[str, Numbers] = {}
        self.heard: list[Numbers] = []
        self.contribution = np.full((len(lines.tracks), home.bank.d), np.nan)

    def at_once(self, rows: Numbers) -> Numbers:
        """Take in lines, of each track those before its first alarm; returns the others."""
        tracks = self.lines.tracks[rows]
        names, code = np.unique(tracks, return_inverse=True)
        before = _Snapshot(self.home, names)
        held, _ = self._advance(rows)
        if not held.any():
            return rows[:0]
        first, place = np.full(len(names), len(rows)), np.arange(len(rows))
        np.minimum.at(first, code[held], place[held])
        loud, late = (first < len(rows))[code], place >= first[code]
        before.part(first < len(rows)).restore(self.home)
        if (loud & ~late).any():
            self._advance(rows[loud & ~late])
        return rows[late]

    def one_by_one(self, rows: Numbers) -> Numbers:
        """Take in lines, of each track one at a time until its alarm is over; returns the rest."""
        names, code = np.unique(self.lines.tracks[rows], return_inverse=True)
        over, rest = np.zeros(len(names), dtype=bool), np.zeros(len(rows), dtype=bool)
        for these in rounds(code):
            rest[these] = over[code[these]]
            these = these[~over[code[these]]]
            if these.size:
                over[code[these]] = ~self._one(rows[these])
        return rows[rest]

    def _one(self, rows: Numbers) -> Mask:
        """Take in one line of each of some tracks; which are in an alarm."""
        line, home = self.lines.part(rows), self.home
        fresh = _Snapshot(home, line.tracks)
        held, centred = self._advance(rows)
        for dt in np.unique(line.dt[held]):
            some = np.flatnonzero(held & (line.dt == dt))
            ahead = fresh.bank.forecast(float(dt), tracks=some)
            self.contribution[rows[some]] = shares(ahead, centred[some], line.counts[some])
        ignored = held & (self.adapt != "yes")
        if self.adapt == "slow":
            ignored &= self.heard[Heard._fields.index("since")][rows] % SLOW != 0.0
        if ignored.any():
            fresh.part(ignored).restore(home, alarms=False)
            still = line.part(ignored)
            nothing = np.full_like(still.values, np.nan)
            home.bank.feed(still.tracks, nothing, dt=still.dt, n_samples=still.counts)
        return held

    def _advance(self, rows: Numbers) -> tuple[Mask, Numbers]:
        """Move the tracks of lines; which lines are in an alarm, and their samples off the mean."""
        line, home = self.lines.part(rows), self.home
        centred = home.centred(line.tracks, line.values)
        fields = home.bank.feed(
            line.tracks, centred, dt=line.dt, n_samples=line.counts, fields=self.names
        )
        now = self.alarm.take(home.columns["alarm"], line.tracks, fields["p_value"])
        n = len(self.lines.tracks)
        if not self.heard:
            self.found = {name: np.empty((n, *a.shape[1:]), a.dtype) for name, a in fields.items()}
            self.heard = [np.empty(n, part.dtype) for part in now]
        for name, array in fields.items():
            self.found[name][rows] = array
        for whole, part in zip(self.heard, now, strict=True):
            whole[rows] = part
        return (now.status == ALARM_BEGINS) | (now.status == ALARM_LASTS), centred


def shares(ahead: Any, seen: Numbers, counts: Numbers) -> Numbers:
    """Contributions ``(n, d)`` of the channels of samples, or of matrices of so many samples, under
    the forecasts of their tracks; NaN for rotations."""
    if "rotation" in ahead.fields():
        return np.full(seen.shape[:2], np.nan)
    density = ahead.density
    if seen.ndim == 2:
        return np.asarray(density.contribution(seen))
    ratio = np.linalg.solve(density.scale, seen)
    return counts[:, None] * np.diagonal(ratio, axis1=-2, axis2=-1)


class _Snapshot:
    """Some tracks as they were."""

    def __init__(self, home: Home, tracks: Numbers) -> None:
        self.tracks = tracks
        self.bank = home.bank.select(tracks)
        names = [name for name in ("alarm", "sums") if name in home.columns]
        self.columns = {name: home.columns[name][tracks].copy() for name in names}

    def part(self, these: Mask) -> _Snapshot:
        twin = _Snapshot.__new__(_Snapshot)
        twin.tracks, twin.bank = self.tracks[these], self.bank.select(these)
        twin.columns = {name: array[these] for name, array in self.columns.items()}
        return twin

    def restore(self, home: Home, *, alarms: bool = True) -> None:
        home.bank.put(self.tracks, self.bank)
        for name, array in self.columns.items():
            if alarms or name != "alarm":
                home.columns[name][self.tracks] = array
