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
    names = list(dict.fromkeys([*fields, "p_value"]))
    some = np.unique(lines.tracks)
    before = _Snapshot(home, some)
    found, heard, _ = _advance(home, alarm, lines, names)
    share = np.full((len(lines.tracks), home.bank.d), np.nan)
    loud = np.unique(lines.tracks[_in_alarm(heard)])
    if not loud.size:
        return Watched(found, heard, share)
    # Alarms are rare: their tracks go back, and through these lines once more, one at a time.
    after = _Snapshot(home, loud) if adapt == "yes" else None
    before.part(np.isin(some, loud)).restore(home)
    again = np.flatnonzero(np.isin(lines.tracks, loud))
    for these in (again[part] for part in rounds(lines.tracks[again])):
        line = lines.part(these)
        fresh = _Snapshot(home, line.tracks)
        told, now, centred = _advance(home, alarm, line, names)
        held = _in_alarm(now)
        for k in np.flatnonzero(held).tolist():
            ahead = fresh.bank.forecast(float(line.dt[k]), tracks=[k])
            share[these[k]] = shares(ahead, centred[k], float(line.counts[k]))
        if adapt != "yes":
            for name, array in told.items():
                found[name][these] = array
            for old, new in zip(heard, now, strict=True):
                old[these] = new
            if adapt == "slow":
                held &= now.since % SLOW != 0.0
            if held.any():
                fresh.part(held).restore(home, alarms=False)
                still = line.part(held)
                nothing = np.full_like(still.values, np.nan)
                home.bank.take(still.tracks, nothing, dt=still.dt, n_samples=still.counts)
    if after is not None:
        after.restore(home)
    return Watched(found, heard, share)


def _advance(
    home: Home, alarm: Alarm, lines: Observed, names: list[str]
) -> tuple[dict[str, Numbers], Heard, Numbers]:
    centred = home.centred(lines.tracks, lines.values)
    found = home.bank.take(lines.tracks, centred, dt=lines.dt, n_samples=lines.counts, fields=names)
    heard = alarm.take(home.columns["alarm"], lines.tracks, found["p_value"])
    return found, heard, centred


def _in_alarm(heard: Heard) -> Mask:
    return np.asarray((heard.status == ALARM_BEGINS) | (heard.status == ALARM_LASTS))


def shares(ahead: Any, seen: Numbers, m: float) -> Numbers:
    """Contributions ``(d,)`` of the channels of a sample, or of a matrix of m samples, under the
    forecast of one track; NaN for rotations."""
    if "rotation" in ahead.fields():
        return np.full(seen.shape[-1], np.nan)
    density = ahead.density
    if seen.ndim == 1:
        return np.asarray(density.contribution(seen[None])[0])
    scale = density.scale[0]
    return np.asarray(m * np.diagonal(np.linalg.solve(scale, seen)))


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
