"""The clocks of all tracks: which lines are late, which jump, and which tracks are idle."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from kgmrf._types import Mask, Numbers
from kgmrf.stream.settings import Counts, Settings

OK, LATE, JUMP = 0, 1, 2


class Columns:
    """One row per track in arrays by name; what a new track begins with.

    >>> columns = Columns(last=np.nan)
    >>> columns.make_room(3)
    >>> columns.keep(np.array([True, False, True]))
    >>> columns.arrays["last"].tolist()
    [nan, nan]
    """

    def __init__(self, **blank: float | Numbers) -> None:
        self.blank = {name: np.asarray(value, dtype=float) for name, value in blank.items()}
        self.arrays = {name: np.zeros((0, *b.shape)) for name, b in self.blank.items()}

    def make_room(self, n: int) -> None:
        """For n tracks. Room doubles, so that adding tracks one by one stays cheap."""
        for name, array in self.arrays.items():
            if n > len(array):
                more = max(n - len(array), len(array), 16 if len(array) else n)
                new = np.broadcast_to(self.blank[name], (more, *self.blank[name].shape))
                self.arrays[name] = np.concatenate([array, new])

    def keep(self, which: Mask) -> None:
        """Those tracks alone, in their order."""
        for name, array in self.arrays.items():
            self.arrays[name] = array[: len(which)][which]

    def restore(self, arrays: dict[str, Numbers], n: int) -> None:
        """Take over the rows of n tracks from a file; ValueError if these are none."""
        if set(arrays) != set(self.arrays):
            raise ValueError("its arrays do not fit its tracks")
        for name, array in self.arrays.items():
            found = arrays[name]
            if found.shape != (n, *array.shape[1:]) or found.dtype != array.dtype:
                raise ValueError(f"{name} has shape {found.shape} and type {found.dtype}")
            if np.isinf(found).any():
                raise ValueError(f"{name} is infinite")
            array[:n] = found


class Admitted(NamedTuple):
    """n: how many lines were looked at. verdict: OK, LATE or JUMP for each. stale: tracks that are
    to be forgotten before any of these lines is looked at; then n is 0. reasons: why lines jump."""

    n: int
    verdict: Numbers
    stale: Numbers
    reasons: dict[int, str]


class Clocks(Columns):
    """Times per track: ``last`` taken in, ``newest`` that arrived, ``aside``: of a line that jumped
    too far to be believed, and ``lone``: 1 after the first line of all, whose time nothing has
    confirmed yet."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(last=np.nan, newest=np.nan, aside=np.nan, lone=0.0)
        self.settings = settings
        self.watermark = math.nan
        """The newest time of the stream, if tracks are forgotten."""

    @property
    def last(self) -> Numbers:
        """Time of the last line that was taken in; NaN: none."""
        return self.arrays["last"]

    def numbered(self, tracks: Numbers, times: Numbers) -> Numbers:
        """A line without a time comes one unit after the line before of its track."""
        if not np.isnan(times).any():
            return times
        times = times.copy()
        now = dict(zip(tracks.tolist(), self.last[tracks].tolist(), strict=True))
        unit = self.settings.time_unit
        for k, track in enumerate(tracks.tolist()):
            if math.isnan(times[k]):
                times[k] = 0.0 if math.isnan(now[track]) else now[track] + unit
            now[track] = times[k] if math.isnan(now[track]) else max(now[track], times[k])
        return times

    # ------------------------------------------------------------------ arrival

    def admit(self, tracks: Numbers, times: Numbers) -> Admitted:
        """Look at lines as they arrive, as many as can be judged by the tracks as they are now."""
        quick = self._all_well(tracks, times)
        return self._one_by_one(tracks, times) if quick is None else quick

    def _all_well(self, tracks: Numbers, times: Numbers) -> Admitted | None:
        """If every line is later than the one before of its track, and not by too much."""
        newest = self.arrays["newest"]
        order, first, before = _before(tracks, times, newest)
        step = np.where(np.isnan(before), 0.0, times[order] - before)
        if not ((step >= 0) & (step <= self.settings.gap)).all():
            return None
        if not np.isnan(self.arrays["aside"][tracks]).all():
            return None
        n, none = len(tracks), np.zeros(0, dtype=np.int64)
        horizon = self.settings.forget_after
        if horizon is not None and n:
            mark = np.fmax.accumulate(np.append(self.watermark, times))
            ahead = times > np.where(np.isnan(mark[:-1]), np.inf, mark[:-1] + self.settings.gap)
            if ahead.any() or (times < mark[:-1] - horizon).any():
                return None
            idle = (mark[:-1][order] - before) > horizon
            if (idle & first).any():
                return Admitted(0, none, np.unique(tracks[order][idle & first]), {})
            if idle.any():
                # Idle within this block: what comes before is taken in first.
                n = int(order[idle].min())
                return self.admit(tracks[:n], times[:n])
            self.watermark = float(mark[-1])
        # The last line of a track wins, and it is the latest.
        self.arrays["lone"][tracks[order]] = np.isnan(before)
        newest[tracks] = times
        return Admitted(n, np.zeros(n, dtype=np.int64), none, {})

    def _one_by_one(self, tracks: Numbers, times: Numbers) -> Admitted:
        newest, aside, lone = (self.arrays[name] for name in ("newest", "aside", "lone"))
        gap, horizon = self.settings.gap, self.settings.forget_after
        verdict = np.zeros(len(tracks), dtype=np.int64)
        reasons: dict[int, str] = {}
        for k, (track, time) in enumerate(zip(tracks.tolist(), times.tolist(), strict=True)):
            now, mark = float(newest[track]), self.watermark
            if horizon is not None and mark - now > horizon:
                stale = np.array([track] if k == 0 else [], dtype=np.int64)
                return Admitted(k, verdict[:k], stale, reasons)
            known = now if not math.isnan(now) or horizon is None else mark
            back = bool(lone[track]) and now - time > gap
            if time - known > gap or back:
                if not 0.0 <= time - float(aside[track]) <= gap:
                    aside[track] = time
                    verdict[k], reasons[k] = JUMP, self._jump(time - known)
                    continue
                # A second line says the same: the jump is real.
                if back:
                    if k:
                        return Admitted(k, verdict[:k], np.zeros(0, dtype=np.int64), reasons)
                    self.last[track] = aside[track]
                    newest[track] = aside[track]
                    now = float(aside[track])
            elif horizon is not None and time < mark - horizon:
                verdict[k] = LATE
                continue
            aside[track] = math.nan
            lone[track] = float(math.isnan(now))
            newest[track] = time if math.isnan(now) else max(now, time)
            if horizon is not None:
                self.watermark = time if math.isnan(mark) else max(mark, time)
        return Admitted(len(tracks), verdict, np.zeros(0, dtype=np.int64), reasons)

    def _jump(self, step: float) -> str:
        return (
            f"its time is {step:+.6g} from the line before of its track, more than --max-gap "
            f"{self.settings.gap:g}; a jump is believed when the next line of the track agrees. "
            "If this is the usual step, give --time-unit"
        )

    def idle(self, n: int) -> Mask:
        """Which of n tracks are to be forgotten."""
        if self.settings.forget_after is None:
            return np.zeros(n, dtype=bool)
        newest = self.arrays["newest"][:n]
        return np.asarray(self.watermark - newest > self.settings.forget_after)

    # ------------------------------------------------------------------ order

    def in_order(self, tracks: Numbers, times: Numbers, counts: Counts) -> tuple[Mask, Numbers]:
        """Which lines are later than all before of their track, and the time of the line before.

        What is not is counted as late or duplicate.
        """
        last = self.last
        order, _, previous = _before(tracks, times, last)
        strictly = self.settings.same_time == "drop"
        later = times[order] > previous if strictly else times[order] >= previous
        keep, before = np.empty(len(order), dtype=bool), np.empty(len(order))
        if (np.isnan(previous) | later).all():
            keep[order], before[order] = True, previous
            return keep, before
        now: dict[int, float] = {}
        for k, (track, time) in enumerate(zip(tracks.tolist(), times.tolist(), strict=True)):
            latest = now.get(track, float(last[track]))
            before[k] = latest
            late = time < latest
            keep[k] = not (late or (strictly and time == latest))
            if keep[k]:
                now[track] = time
            elif late:
                counts.late += 1
            else:
                counts.duplicate += 1
        return keep, before


def _before(tracks: Numbers, times: Numbers, known: Numbers) -> tuple[Numbers, Mask, Numbers]:
    """Lines sorted by track: their order, which is the first of its track, the time before each.

    known: the time of every track before these lines.
    """
    order = np.argsort(tracks, kind="stable")
    which = tracks[order]
    first = np.ones(len(order), dtype=bool)
    first[1:] = which[1:] != which[:-1]
    return order, first, np.where(first, known[which], np.append(np.nan, times[order][:-1]))
