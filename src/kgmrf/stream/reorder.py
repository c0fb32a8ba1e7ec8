"""Lines that arrive late are held back for a while and handed on in order of their times.

A line is held until the clock of the stream, the newest time of all its lines, is ``span`` ahead of
it. Which lines come together in a block makes no difference.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kgmrf._types import Numbers
from kgmrf.stream.records import Parsed, bad_rates
from kgmrf.stream.settings import Settings

MOST_BYTES = 1 << 28
"""Bytes of the lines that are held; beyond it the oldest are handed on early."""

KEY_BYTES = 80
"""What the key of a line takes, beside its text; a word of Python and its place."""

FAR = 1000.0
"""A stamp that is so many spans ahead of all others moves the clock only with a second one."""

NAMES = ("times", "values", "counts", "rows")
"""What is held of a line beside its key; ``rows`` are the numbers of lines, from 0. And the rates,
if the stream has some."""


class Reorder:
    """A bounded buffer of lines.

    span: how long a line is held, on the lines' clock.

    >>> lines = Parsed(
    ...     [*"abcd"],
    ...     np.array([1.0, 3.0, 2.0, 9.0]),
    ...     np.zeros((4, 1)),
    ...     np.ones(4),
    ...     np.arange(4),
    ...     {},
    ... )
    >>> buffer = Reorder(2.0)
    >>> buffer.through(lines, 0).keys, len(buffer)
    (['a', 'c', 'b'], 1)
    """

    def __init__(self, span: float, far: float | None = None) -> None:
        self.span, self.far = span, FAR * span if far is None else far
        self.clock, self.aside = math.nan, math.nan
        self.sure = False  # whether a second line agreed with the clock
        self.full = self.reported = False  # whether lines were handed on early, and that was said
        self._sorted: Parsed | None = None
        self._recent: list[Parsed] = []
        self._oldest = math.inf  # of the recent ones

    @classmethod
    def of(cls, settings: Settings) -> Reorder | None:
        """The buffer of a stream, if it is to have one."""
        if settings.reorder is None:
            return None
        if settings.on_error == "stop":
            raise ValueError(
                "--reorder needs --on-error skip: a line is judged when later ones were read "
                "already, so the stream cannot stop at it"
            )
        return cls(settings.reorder, settings.max_gap)

    def __len__(self) -> int:
        return sum(len(part.keys) for part in self._parts())

    def _parts(self) -> list[Parsed]:
        return [*([] if self._sorted is None else [self._sorted]), *self._recent]

    def through(self, parsed: Parsed, first: int) -> Parsed:
        """Take in a block whose first line has the number ``first``; returns the lines that are
        due, in order. Their rows count from the same line: before it they are negative."""
        errors, n = parsed.errors, len(parsed.keys)
        limits = self._limits(parsed.times)
        limit = float(limits[-1]) if n else -math.inf
        # Row k of the block lets go what is not after limits[k].
        due = parsed.times <= limit
        new = parsed._replace(keys=[*parsed.keys], rows=parsed.rows + first, errors={})
        if not due.all():
            kept = new.part(~due)
            self._recent.append(kept)
            self._oldest = min(self._oldest, float(kept.times.min()))
        moments = np.flatnonzero(due)
        found, places = [new.part(moments)], [moments]
        old = self._release(limit)
        if len(old.keys):
            found.insert(0, old)
            places.insert(0, np.zeros(len(old.keys), dtype=np.int64))
        out = joined(found)
        moment = np.maximum(np.concatenate(places), np.searchsorted(limits, out.times))
        out = out.part(np.lexsort((out.rows, out.times, moment)))
        out = self._within_bounds(out)
        return out._replace(rows=out.rows - first, errors=errors)

    def flush(self, first: int) -> Parsed:
        """All lines that are held, in order; their rows count back from the line ``first``."""
        out = self._release(math.inf)
        return out._replace(rows=out.rows - first)

    def remark(self) -> list[str]:
        """What is to be said on stderr, once."""
        if self.reported or not self.full:
            return []
        self.reported = True
        return [
            f"--reorder {self.span:g} is more than {MOST_BYTES >> 20} MB of lines: the oldest are "
            "taken in early; give a smaller one"
        ]

    # ------------------------------------------------------------------ the clock

    def _limits(self, times: Numbers) -> Numbers:
        """Up to which time lines are due after each of these lines."""
        plain = self.sure and not (times > self.clock + self.far).any()
        if plain and math.isnan(self.aside):
            clocks = np.maximum.accumulate(np.append(self.clock, times))[1:]
            self.clock = float(clocks[-1]) if len(times) else self.clock
            return clocks - self.span
        clocks = np.array([self._tick(time) for time in times.tolist()])
        return np.maximum.accumulate(clocks) - self.span if len(times) else clocks

    def _tick(self, time: float) -> float:
        """One line moves the clock, unless its stamp is far from all others."""
        if math.isnan(self.clock):
            self.clock = time
        elif abs(time - self.clock) <= self.far:
            self.sure, self.aside = True, math.nan
            self.clock = max(self.clock, time)
        elif not self.sure:  # of two that differ the earlier one
            self.clock = min(self.clock, time)
        elif time > self.clock:
            if abs(time - self.aside) <= self.far:
                self.clock, self.aside = max(time, self.aside), math.nan
            else:
                self.aside = time
        return self.clock

    # ------------------------------------------------------------------ lines

    def _release(self, limit: float) -> Parsed:
        """Take out the lines up to a time, in order."""
        if self._recent and (self._oldest <= limit or limit == math.inf):
            whole = joined(self._parts())
            self._sorted = whole.part(np.lexsort((whole.rows, whole.times)))
            self._recent, self._oldest = [], math.inf
        if self._sorted is None:
            return nothing()
        at = int(np.searchsorted(self._sorted.times, limit, side="right"))
        out = self._sorted.part(slice(None, at))
        rest = self._sorted.part(slice(at, None)) if at else self._sorted
        self._sorted = rest if len(rest.keys) else None
        return out

    def _within_bounds(self, out: Parsed) -> Parsed:
        """Hand on the oldest lines too, where more are held than there is room for."""
        held = len(self)
        if not held:
            return out
        part = self._parts()[0]
        width = int(np.prod(part.values.shape[1:])) + (0 if part.rates is None else 3)
        most = max(1, MOST_BYTES // (KEY_BYTES + 8 * (3 + width)))
        if held <= most:
            return out
        self.full = True
        oldest = np.sort(np.concatenate([part.times for part in self._parts()]))
        return joined([out, self._release(float(oldest[held - most - 1]))])

    # ------------------------------------------------------------------ state

    def numbers(self) -> list[float | None]:
        """The clock, as JSON can hold it."""
        found = (self.clock, self.aside, float(self.sure))
        return [x if math.isfinite(x) else None for x in found]

    def content(self) -> tuple[list[str], dict[str, Numbers]]:
        """The keys and the numbers of all lines that are held."""
        whole = joined(self._parts())
        names = (*NAMES, *("rates",) * (whole.rates is not None))
        return [*whole.keys], {name: getattr(whole, name) for name in names}

    def restore(
        self,
        clock: Any,
        keys: list[str],
        arrays: dict[str, Numbers],
        shape: tuple[int, ...],
        rated: bool = False,
    ) -> None:
        """Go on from a state; ValueError if it cannot be one."""
        self.clock, self.aside, sure = (math.nan if x is None else float(x) for x in clock)
        self.sure = sure == 1.0
        n = len(keys)
        names = (*NAMES, *("rates",) * rated) if n else ()
        more = {"values": shape, "rates": (3,)}
        for name in names:
            array, kind = arrays[name], np.int64 if name == "rows" else np.float64
            if array.dtype != kind or array.shape != (n, *more.get(name, ())):
                raise ValueError(f"its held {name} are {array.dtype} of shape {array.shape}")
        if not np.isfinite(arrays["times"]).all() or np.isinf(arrays["values"]).any():
            raise ValueError("it holds a line whose numbers are infinite")
        if n and rated and bad_rates(arrays["rates"]):
            raise ValueError("it holds a line whose rate cannot be used")
        if n:
            held = {name: arrays[name] for name in names}
            self._recent = [Parsed(keys, errors={}, **held)]
            self._oldest = float(arrays["times"].min())


def nothing() -> Parsed:
    """No lines."""
    none = np.zeros(0)
    return Parsed([], none, np.zeros((0, 1)), none, none.astype(np.int64), {})


def joined(parts: list[Parsed]) -> Parsed:
    """Several blocks as one."""
    parts = [part for part in parts if len(part.keys)]
    if len(parts) < 2:
        return parts[0] if parts else nothing()
    keys = [key for part in parts for key in part.keys]
    names = NAMES if parts[0].rates is None else (*NAMES, "rates")
    arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    return Parsed(keys, errors={}, **arrays)
