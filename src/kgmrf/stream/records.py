"""What JSON and CSV lines have in common: names of fields, times, numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from kgmrf import _check
from kgmrf._names import is_clock
from kgmrf._types import Numbers
from kgmrf.io import dates
from kgmrf.io.columns import quaternions
from kgmrf.stream.settings import LineError

LARGEST_D = 1024

KEY_NAMES = (
    *("id", "sensor", "device", "series", "symbol", "ticker", "station", "node", "host"),
    *("asset", "instrument", "name", "sensor_id", "device_id", "series_id", "station_id"),
    *("node_id", "track_id", "asset_id"),
)
"""What names a track where nothing is called ``key``."""

CLOCK_NAMES = ("ts", "stamp", "epoch", "event_time", "unixtime", "created_at", "recorded_at")
"""What is the time where nothing is called ``time``, beside the names that files may have."""


class Parsed(NamedTuple):
    """A block of lines: keys, times (NaN: none), values, samples behind each (NaN: not told), the
    row of the block that each came from; and the rows that cannot be used, with the reason."""

    keys: list[str]
    times: Numbers
    values: Numbers
    counts: Numbers
    rows: Numbers
    faults: dict[int, str]

    def select(self, which: Numbers) -> Parsed:
        """Those lines alone."""
        return self._replace(
            keys=[self.keys[k] for k in which.tolist()],
            times=self.times[which],
            values=self.values[which],
            counts=self.counts[which],
            rows=self.rows[which],
        )

    def without(self, which: Iterable[int]) -> Parsed:
        """All but those lines."""
        keep = np.ones(len(self.keys), dtype=bool)
        keep[list(which)] = False
        return self.select(np.flatnonzero(keep))


def nothing(faults: dict[int, str]) -> Parsed:
    """No line that can be used."""
    none = np.zeros(0)
    return Parsed([], none, np.zeros((0, 1)), none, np.zeros(0, dtype=np.int64), faults)


def find_key(names: Sequence[str], wish: str | None, row: int) -> str | None:
    """The name that holds the key, or None.

    >>> find_key(["sensor", "ts", "a"], None, 0), find_key(["a", "b"], None, 0)
    ('sensor', None)
    """
    lower = {name.lower(): name for name in reversed(names)}
    if "key" in lower and wish is None:
        return lower["key"]
    return _find(names, wish, [lower[n] for n in KEY_NAMES if n in lower], "key", row)


def find_time(names: Sequence[str], wish: str | None, row: int) -> str | None:
    """The name that holds the time, or None.

    >>> find_time(["sensor", "ts", "a"], None, 0), find_time(["a", "Time [s]"], None, 0)
    ('ts', 'Time [s]')
    """
    clocks = [name for name in names if is_clock(name)]
    if clocks and wish is None:
        return clocks[0]
    others = [name for name in names if name.lower() in CLOCK_NAMES]
    return _find(names, wish, others, "time", row)


def _find(
    names: Sequence[str], wish: str | None, usual: list[str], what: str, row: int
) -> str | None:
    if wish is not None:
        if wish not in names:
            shown = ", ".join(map(repr, names[:12]))
            raise LineError(row, f"has no {wish!r} (--{what}); it has {shown}")
        return wish
    if len(usual) > 1:
        raise LineError(
            row, f"{usual[0]!r} or {usual[1]!r} may be the {what}; choose with --{what} NAME"
        )
    return usual[0] if usual else None


class Clock:
    """Times as numbers, or dates as seconds since 1970; the first one decides which.

    >>> clock = Clock()
    >>> clock.of("1970-01-02T00:00:00Z"), clock.style
    (86400.0, 'sZ')
    """

    def __init__(self, style: str | None = None) -> None:
        self.style = style
        """None: not known yet; "": numbers; otherwise how dates are written."""

    def of(self, value: object) -> float:
        """The time; ValueError with the reason if it is none. None is NaN."""
        if type(value) is float and self.style == "" and math.isfinite(value):
            return value  # as nearly always
        if value is None:
            return math.nan
        if type(value) is str:
            found = dates.seconds(value)
            if found is None:
                raise ValueError(f"is {value[:40]!r}, not a number and not an ISO 8601 date")
            if self.style is None:
                self.style = dates.style([value])
            if not self.style:
                raise ValueError(f"is {value[:40]!r}, where lines before had numbers")
            return found
        if self.style:
            raise ValueError(f"is {str(value)[:40]}, where lines before had dates")
        number = number_of(value)
        self.style = ""
        return number

    def words(self, times: Numbers) -> list[str]:
        """Times as dates in their style, finer where needed."""
        assert self.style
        found = [""] * len(times)
        # Line by line the same, however many come together: each by the unit that it needs.
        whole = np.round(times * 1e6) % 1e6 == 0
        day = whole & (np.round(times) % 86400 == 0)
        for which in (np.flatnonzero(day), np.flatnonzero(whole & ~day), np.flatnonzero(~whole)):
            if which.size:
                for k, word in zip(which, dates.words(times[which], self.style), strict=True):
                    found[k] = word
        return found


def number_of(value: object) -> float:
    """A finite number; ValueError with the reason if it is none. Words and truth are none."""
    if type(value) is not float and type(value) is not int:
        raise ValueError(f"is {_shown(value)}, not a number")
    number = float(value)
    if not math.isfinite(number):
        raise ValueError("is infinite or not a number")
    return number


def _shown(value: object) -> str:
    kinds = {bool: "true or false", list: "an array", dict: "an object", type(None): "null"}
    return kinds.get(type(value), repr(value)[:40])


def gathered(parsed: Parsed, *, quaternion: bool, what: str = "") -> Parsed:
    """Without the lines whose numbers are too large or no quaternion, which become faults.

    what: the name of the field, for the reason.
    """
    wrong = too_large(parsed.values)
    if quaternion:
        matrices, none = turned(np.where(np.isinf(parsed.values), 0.0, parsed.values))
        parsed, wrong = parsed._replace(values=matrices), {**none, **wrong}
    if not wrong:
        return parsed
    parsed.faults.update({int(parsed.rows[k]): what + reason for k, reason in wrong.items()})
    return parsed.without(wrong)


def too_large(values: Numbers) -> dict[int, str]:
    """Samples ``(n, d)`` or matrices ``(n, d, d)`` with a number that is infinite or beyond what
    can be squared (or used), by row, with the reason."""
    limit = _check.LARGEST_SAMPLE if values.ndim == 2 else _check.LARGEST
    size = np.where(np.isnan(values), 0.0, np.abs(values))
    size = size.max(axis=tuple(range(1, values.ndim)), initial=0.0)
    reason = f"is beyond the {limit:g} that can be squared safely; use larger units"
    return {
        k: "infinite" if math.isinf(size[k]) else f"{size[k]:.3g} {reason}"
        for k in np.flatnonzero(size > limit).tolist()
    }


def turned(values: Numbers) -> tuple[Numbers, dict[int, str]]:
    """Rotations of quaternions ``(n, 4)``, and the rows that are none."""
    size = np.abs(values).max(axis=-1, initial=0.0)
    bad = ~((size > 0.0) & (size < 1e150)) & ~np.isnan(size)
    safe = np.where(bad[:, None], [0.0, 0.0, 0.0, 1.0], values)
    with np.errstate(invalid="ignore"):
        matrices = quaternions(safe)
    reasons = {
        k: "a quaternion of length zero"
        if size[k] == 0
        else "a quaternion whose numbers are too large"
        for k in np.flatnonzero(bad).tolist()
    }
    return matrices, reasons
