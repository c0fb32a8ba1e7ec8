"""The clocks of all tracks: which lines are late, which jump, and which tracks are idle."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from kgmrf._types import Mask, Numbers
from kgmrf.stream.settings import Counts, Settings

OK, LATE, JUMP = 0, 1, 2


class Columns:
    """One row per track in arrays by name; ``blank`` is what a new track begins with."""

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
    """n: lines that were looked at. verdict: OK, LATE or JUMP for each. reasons: why lines jump.
    stale: a track that is to be forgotten before any of these lines is looked at; then n is 0."""

    n: int
    verdict: Numbers
    reasons: dict[int, str]
    stale: int | None = None


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
        now = self._of("last", tracks)
        unit = self.settings.time_unit
        for k, track in enumerate(tracks.tolist()):
            if math.isnan(times[k]):
                times[k] = 0.0 if math.isnan(now[track]) else now[track] + unit
            now[track] = times[k] if math.isnan(now[track]) else max(now[track], times[k])
        return times

    # ------------------------------------------------------------------ arrival

    def admit(self, tracks: Numbers, times: Numbers) -> Admitted:
        """Look at lines as they arrive, as many as can be judged by the tracks as they are now."""
        gap, horizon = self.settings.gap, self.settings.forget_after
        n, stale = len(tracks), None
        verdict = np.zeros(n, dtype=np.int64)
        reasons: dict[int, str] = {}
        if horizon is None and np.isnan(self.arrays["aside"][tracks]).all():
            order, before = self._before("newest", tracks, times)
            step = times[order] - before
            if (np.isnan(before) | ((step >= 0.0) & (step <= gap))).all():  # as nearly always
                self.arrays["lone"][tracks[order]] = np.isnan(before)
                self.arrays["newest"][tracks] = times
                return Admitted(n, verdict, reasons)
        newest, aside, lone = (self._of(name, tracks) for name in ("newest", "aside", "lone"))
        for k, (track, time) in enumerate(zip(tracks.tolist(), times.tolist(), strict=True)):
            now, mark = newest[track], self.watermark
            if horizon is not None and mark - now > horizon:
                n, stale = k, track if k == 0 else None
                break
            known = now if not math.isnan(now) or horizon is None else mark
            back = lone[track] and now - time > gap
            if time - known > gap or back:
                if not 0.0 <= time - aside[track] <= gap:
                    aside[track] = time
                    verdict[k], reasons[k] = JUMP, self._jump(time - known)
                    continue
                # A second line says the same: the jump is real.
                if back:
                    if k:
                        n = k
                        break
                    self.last[track] = now = aside[track]
            elif horizon is not None and time < mark - horizon:
                verdict[k] = LATE
                continue
            aside[track] = math.nan
            lone[track] = float(math.isnan(now))
            newest[track] = time if math.isnan(now) else max(now, time)
            if horizon is not None:
                self.watermark = time if math.isnan(mark) else max(mark, time)
        for name, values in (("newest", newest), ("aside", aside), ("lone", lone)):
            self.arrays[name][list(values)] = list(values.values())
        return Admitted(n, verdict[:n], reasons, stale)

    def _of(self, name: str, tracks: Numbers) -> dict[int, float]:
        """The times of these tracks by number: much faster to go through than arrays."""
        return dict(zip(tracks.tolist(), self.arrays[name][tracks].tolist(), strict=True))

    def _before(self, name: str, tracks: Numbers, times: Numbers) -> tuple[Numbers, Numbers]:
        """Lines sorted by track, and the time before each: of the line before, or of the array."""
        order = np.argsort(tracks, kind="stable")
        which = tracks[order]
        follows = np.diff(which, prepend=-1) == 0
        return order, np.where(follows, np.roll(times[order], 1), self.arrays[name][which])

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
        strictly = self.settings.same_time == "drop"
        order, previous = self._before("last", tracks, times)
        later = times[order] > previous if strictly else times[order] >= previous
        if (np.isnan(previous) | later).all():  # as nearly always
            return np.ones(len(order), dtype=bool), previous[np.argsort(order)]
        now = self._of("last", tracks)
        keep, before = [], []
        for track, time in zip(tracks.tolist(), times.tolist(), strict=True):
            latest = now[track]
            before.append(latest)
            if time > latest or math.isnan(latest) or (time == latest and not strictly):
                now[track] = time
                keep.append(True)
                continue
            keep.append(False)
            if time < latest:
                counts.late += 1
            else:
                counts.duplicate += 1
        return np.array(keep, dtype=bool), np.array(before, dtype=float)
