"""Many keyed tracks, each with a state and a time of its own, advanced a block of lines at a time.

The tracks are those of a `kgmrf.TrackerBank`. Which lines come together in a block makes no
difference to any track: none at all with the default, rounding with a single law.
"""

from __future__ import annotations

import math
from itertools import compress
from typing import Any, NamedTuple

import numpy as np

from kgmrf._types import Mask, Numbers
from kgmrf.alerts.alarm import WIDTH
from kgmrf.bank import TrackerBank
from kgmrf.bank.capacity import extend, more_room
from kgmrf.io.source import Kind
from kgmrf.linear_mean import LAGS, blank_rows, check_rows, take_off
from kgmrf.model.centring import RunningMean, off_the_mean
from kgmrf.stream.keys import distinct
from kgmrf.stream.settings import LONGEST_GAP, Settings
from kgmrf.stream.unit import Unit

OK, LATE, DUPLICATE, JUMP = range(4)

USUAL = 10.0
"""Steps that differ less than this factor may both be the usual one."""

SWEEPS = 8
"""Idle tracks are looked for this often in the time after which they are forgotten."""


class Admitted(NamedTuple):
    """What becomes of lines as they arrive: OK, LATE, DUPLICATE or JUMP for each; their times, and
    the time of the line before; why lines jump. As many lines as can be judged by the tracks as
    they are: where there is none, the track of the first line is to be forgotten before."""

    verdict: Numbers
    times: Numbers
    before: Numbers
    jumps: dict[int, str]


class Pool:
    """Tracks by key: a `TrackerBank`, the number of every key, and ``columns`` with a row per track
    (the bank and the columns have room for more).

    ``last`` is the time of the last line that was taken in, ``aside`` that of a line that jumped
    too far to be believed; ``unconfirmed_first`` is 1 after the first line of all, whose time
    nothing has confirmed yet; ``sums`` are those of the running mean, ``alarm`` those of
    `kgmrf.alerts`. Where rotations have measured rates, the ``rated``, every track counts in stamps
    and learns its own unit of time, as a `kgmrf.RotationTracker` does.
    """

    def __init__(self, kind: Kind, d: int, settings: Settings, *, rated: bool = False) -> None:
        self.d, self.settings, self.rated = d, settings, rated
        follows = "rotation" if kind == "rotation" else "covariance"
        tracker = dict(settings.tracker)
        if rated:
            tracker |= {"gyroscope": True, "time_unit": settings.time_unit}
        self.bank = TrackerBank(0, d, kind=follows, n_threads=1, **tracker)
        self.number: dict[str, int] = {}
        self.blank: dict[str, Any] = {"last": math.nan, "aside": math.nan, "lone": 0.0}
        if settings.mean == "linear":
            self.blank["sums"] = blank_rows(1, d, LAGS)[0]
        elif settings.mean != "zero":
            self.blank["sums"] = np.zeros((3, d))
            self.keep_mean = RunningMean(settings.mean).keep
        if settings.alert is not None:
            self.blank["alarm"] = np.zeros(WIDTH)
        self.columns = {name: np.zeros((0, *np.shape(b))) for name, b in self.blank.items()}
        self.unit = Unit(settings.time_unit)
        self.watermark = math.nan  # the newest time of the stream, if tracks are forgotten
        self.swept = -math.inf

    def __len__(self) -> int:
        return len(self.number)

    @property
    def names(self) -> list[str]:
        """The keys, in the order in which they came."""
        return list(self.number)

    def numbers(self, keys: Any) -> Numbers:
        """The number of the track of every key; unknown keys become new tracks."""
        known = self.number
        words, codes = distinct(keys)
        for key in words if codes is not None else dict.fromkeys(words):
            known.setdefault(key, len(known))
        short, room = len(known) - len(self.bank), len(self.bank)
        if short > 0:
            more = more_room(room, short)
            self.bank.add(more)
            for name, blank in self.blank.items():
                extend(self.columns, name, more, blank)
        found = np.fromiter(map(known.__getitem__, words), dtype=np.int64, count=len(words))
        return found if codes is None else found[codes]

    # ------------------------------------------------------------------ time

    @property
    def gap(self) -> float:
        """The longest gap on the lines' clock."""
        max_gap = self.settings.max_gap
        return LONGEST_GAP * self.unit.value if max_gap is None else max_gap

    def counted(self, steps: Numbers, units: Numbers) -> Numbers:
        """Intervals in units of time, of rated tracks in stamps; none longer than the longest
        gap."""
        max_gap = self.settings.max_gap
        if self.rated:
            return np.minimum(steps, LONGEST_GAP * units if max_gap is None else max_gap)
        return np.minimum(steps / units, LONGEST_GAP if max_gap is None else max_gap / units)

    def piece(self, tracks: Numbers, times: Numbers) -> int:
        """How many lines there are up to the next that may tell the unit of time."""
        if self.unit.frozen:
            return len(times)
        self.unit.look(times)
        order, which, before, follows = self._in_order(tracks, times)
        step = times[order] - before
        again = follows | ~np.isnan(self.columns["last"][which])
        tells = order[(step > 0.0) | (np.isnan(step) & again)]
        return int(tells.min(initial=len(times) - 1)) + 1

    def _in_order(self, tracks: Numbers, times: Numbers) -> tuple[Numbers, Numbers, Numbers, Mask]:
        """Lines by track: their places, their tracks, the time of the line before each, and whether
        that is in the same block."""
        order = np.argsort(tracks, kind="stable")
        which = tracks[order]
        follows = np.diff(which, prepend=-1) == 0
        before = np.where(follows, np.roll(times[order], 1), self.columns["last"][which])
        return order, which, before, follows

    def admit(self, tracks: Numbers, times: Numbers) -> Admitted:
        """Look at lines as they arrive; a line without a time comes one unit after the last."""
        last, aside = self.columns["last"], self.columns["aside"]
        if self.settings.forget_after is not None or not np.isnan(aside[tracks]).all():
            return self._one_by_one(tracks, times)
        order, which, before, _ = self._in_order(tracks, times)
        step = times[order] - before
        later = step >= 0.0 if self.settings.same_time == "use" else step > 0.0
        first = np.isnan(before) & ~np.isnan(times[order])
        if not (first | (later & (step <= self.gap))).all():
            return self._one_by_one(tracks, times)
        # As nearly always. The last line of a track wins, and it is the latest.
        self.columns["lone"][which] = first
        last[which] = times[order]
        before[order] = before.copy()
        return Admitted(np.zeros(len(times), dtype=np.int64), times, before, {})

    def _one_by_one(self, tracks: Numbers, times: Numbers) -> Admitted:
        settings, horizon, gap = self.settings, self.settings.forget_after, self.gap
        # While the unit is learned, a jump may be the usual step.
        factor = 0.0 if self.unit.frozen or settings.max_gap is not None else USUAL
        some = tracks.tolist()
        # By number: much faster to go through than arrays.
        columns = {
            name: dict(zip(some, self.columns[name][tracks].tolist(), strict=True))
            for name in ("last", "aside", "lone")
        }
        last, aside, unconfirmed_first = columns.values()
        verdict, seen, before = [], [], []
        jumps: dict[int, str] = {}
        for k, (track, stamp) in enumerate(zip(some, times.tolist(), strict=True)):
            now, mark, time = last[track], self.watermark, stamp
            fresh = math.isnan(now)
            if horizon is not None and mark - now > horizon:
                break
            if math.isnan(time):
                time = 0.0 if fresh else now + self.unit.value
            known = mark if fresh and horizon is not None else now
            back = unconfirmed_first[track] and now - time > gap
            jumped = time - known > gap or back
            seen.append(time)
            before.append(now)
            far = max(gap, factor * (aside[track] - now)) if factor else gap
            if jumped and not 0.0 <= time - aside[track] <= far:
                aside[track] = time
                jumps[k] = _jump(time - known, gap)
                verdict.append(JUMP)
                if settings.on_error == "stop":
                    break
                continue
            if horizon is not None and not jumped and time < mark - horizon:
                verdict.append(LATE)
                continue
            if back:  # a second line says the same: the first was wrong
                last[track] = now = before[-1] = aside[track]
            aside[track], unconfirmed_first[track] = math.nan, float(fresh)
            if time < now:
                verdict.append(LATE)
            elif time == now and settings.same_time == "drop":
                verdict.append(DUPLICATE)
            else:
                verdict.append(OK)
                last[track] = time
                if horizon is not None:
                    self.watermark = time if math.isnan(mark) else max(mark, time)
        for name, values in columns.items():
            self.columns[name][list(values)] = list(values.values())
        return Admitted(np.array(verdict, dtype=np.int64), np.array(seen), np.array(before), jumps)

    # ------------------------------------------------------------------ forgetting

    def sweep(self) -> int:
        """Forget idle tracks, every now and then; how many."""
        horizon = self.settings.forget_after
        if horizon is None or not self.watermark >= self.swept + horizon / SWEEPS:
            return 0
        self.swept = self.watermark
        return self.forget(horizon)

    def forget(self, horizon: float) -> int:
        """Forget the tracks that are further behind than this; how many."""
        idle: Mask = np.asarray(self.watermark - self.columns["last"][: len(self)] > horizon)
        if idle.any():
            kept = np.flatnonzero(~idle)
            names = compress(self.number, ~idle)
            self.number = {name: k for k, name in enumerate(names)}
            self.bank = self.bank.select(kept)
            self.columns = {name: array[kept] for name, array in self.columns.items()}
        return int(idle.sum())

    # ------------------------------------------------------------------ mean

    def centred(self, tracks: Numbers, values: Numbers) -> Numbers:
        """Samples off the mean of their track; tracks with equally many go together."""
        if self.settings.mean == "zero":
            return values
        if self.settings.mean == "linear":
            if values.ndim != 2:
                raise ValueError(f"mean=linear follows single rows, not blocks of {values.shape}")
            return values - take_off(self.columns["sums"], tracks, values, LAGS)
        order = np.argsort(tracks, kind="stable")
        names, starts, lengths = np.unique(tracks[order], return_index=True, return_counts=True)
        known, centred = self.columns["sums"], np.empty_like(values)
        for length in np.unique(lengths):
            these = np.flatnonzero(lengths == length)
            rows = order[starts[these] + np.arange(length)[:, None]]
            which = names[these]
            sums = np.moveaxis(known[which], 1, 0)
            centred[rows], sums = off_the_mean(values[rows], sums, self.keep_mean)
            known[which] = np.moveaxis(sums, 0, 1)
        return centred

    # ------------------------------------------------------------------ state

    def state_dict(self) -> dict[str, Numbers]:
        """All that is remembered of the tracks but their keys, as arrays, to be written at once."""
        n = len(self)
        columns = {f"column_{name}": array[:n] for name, array in self.columns.items()}
        return columns | self.bank.state_dict(slice(n), copy=False)

    def load_state_dict(self, keys: list[str], arrays: dict[str, Numbers]) -> None:
        """Put what `memory` gave into a pool without tracks; ValueError if it cannot be that."""
        n = len(keys)
        self.number = dict(zip(keys, range(n), strict=True))
        if "alarm" not in self.columns:
            arrays.pop("column_alarm", None)  # alarms may be switched on and off
        if len(self) != n:
            raise ValueError("it has a key twice")
        for name, array in self.columns.items():
            fresh = {f"column_{name}": np.zeros((n, WIDTH))} if name == "alarm" else {}
            found = {**fresh, **arrays}[f"column_{name}"]
            arrays.pop(f"column_{name}", None)
            if found.shape != (n, *array.shape[1:]) or found.dtype != array.dtype:
                raise ValueError(f"{name} has shape {found.shape} and type {found.dtype}")
            if np.isinf(found).any():
                raise ValueError(f"{name} is infinite")
            if name == "alarm" and not (found >= 0.0).all():
                raise ValueError("its alarms hold what is no count and no evidence")
            if name == "sums" and self.settings.mean == "linear":
                check_rows(found, self.d, LAGS)
            self.columns[name] = found
        if any(len(array) != n for array in arrays.values()):
            raise ValueError("its tracks are not as many as its keys")
        if n:
            self.bank.load_state_dict(arrays)


def _jump(step: float, gap: float) -> str:
    return (
        f"its time is {step:+.6g} from the line before of its track, more than --max-gap {gap:g}; "
        "a jump is believed when the next line of the track agrees. If this is the usual step, "
        "give --time-unit"
    )
