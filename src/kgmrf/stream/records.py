"""What JSON and CSV lines have in common: names of fields, times, numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from kgmrf import _check
from kgmrf._names import is_clock
from kgmrf._types import Numbers
from kgmrf.io import dates
from kgmrf.io.columns import quaternions
from kgmrf.io.source import Kind
from kgmrf.stream.settings import LineError

LARGEST_D = 1024

NAMES: dict[str, Kind] = {
    "x": "samples",
    "covariance": "covariance",
    "rotation": "rotation",
    "quaternion": "rotation",
}
"""The field of a line that is the observation, and what it is."""

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


def find_key(names: Sequence[str], wish: str | None, row: int) -> str | None:
    """The name that holds the key, or None."""
    lower = {name.lower(): name for name in reversed(names)}
    if "key" in lower and wish is None:
        return lower["key"]
    return _find(names, wish, [lower[n] for n in KEY_NAMES if n in lower], "key", row)


def find_time(names: Sequence[str], wish: str | None, row: int) -> str | None:
    """The name that holds the time, or None."""
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


def stamped(value: Any) -> bool:
    """Whether this is a header of ROS, which holds the time."""
    return type(value) is dict and "stamp" in value


def _seconds(value: Any) -> Any:
    """The time of a header or stamp of ROS, 1 or 2, in seconds; anything else as it is."""
    stamp = value["stamp"] if stamped(value) else value
    for whole, parts in (("secs", "nsecs"), ("sec", "nanosec")):
        if type(stamp) is dict and whole in stamp:
            return number_of(stamp[whole]) + 1e-9 * number_of(stamp.get(parts, 0))
    return stamp


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


class Reader:
    """What both formats share. ``what`` the lines hold and its ``d`` are told by the first of them,
    as are the names of the fields with key, time and nanoseconds (``rest``), and the ``style`` of
    times: None, not known yet; "", numbers; otherwise how dates are written."""

    format = ""

    def __init__(
        self, *, key: str | None = None, time: str | None = None, style: str | None = None
    ) -> None:
        self.wish = (key, time)
        self.what: str | None = None
        self.d = 0
        self.key, self.time, self.rest = key or "key", time or "time", ""
        self.style = style

    @property
    def kind(self) -> Kind:
        """What the lines hold."""
        return NAMES[self.what or "x"]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the observation in a line."""
        if self.what == "x":
            return (self.d,)
        return (4,) if self.what == "quaternion" else (self.d, self.d)

    def settings(self) -> dict[str, Any]:
        """What the first lines told, to go on in another process."""
        names = ("format", "what", "d", "key", "time", "rest")
        return {name: getattr(self, name) for name in names} | {"dates": self.style}

    def parse(self, lines: list[bytes], *, stop: bool = False) -> Parsed:
        """All lines that can be used, and what is wrong with the others.

        stop: what comes behind a line that cannot be used does not matter.
        """
        faults: dict[int, str] = {}
        items, rows = self._items(lines, faults, stop)
        found = self._plain(items) if rows else None
        if found is None:
            keys, times, values, counts, used = [], [], [], [], []
            for item, row in zip(items, rows, strict=True):
                try:
                    key, time, value, count = self._read(item)
                except ValueError as error:
                    faults[row] = str(error)
                    continue
                keys.append(key)
                times.append(time)
                values.append(value)
                counts.append(count)
                used.append(row)
            if not used:
                none = np.zeros(0)
                return Parsed([], none, np.zeros((0, 1)), none, none.astype(np.int64), faults)
            found, rows = (keys, times, values, counts), used
        a, b, c = (np.array(column, dtype=float) for column in found[1:])
        return self._checked(Parsed(found[0], a, b, c, np.array(rows), faults))

    def _checked(self, parsed: Parsed) -> Parsed:
        """Without the lines whose numbers are too large or no quaternion, which become faults."""
        values = parsed.values
        wrong = too_large(values)
        if self.what != "x":  # a matrix with a hole was not seen
            values[np.isnan(values).reshape(len(values), -1).any(axis=1)] = math.nan
        if self.what == "quaternion":
            values[list(wrong)] = math.nan
            with np.errstate(invalid="ignore"):
                values = quaternions(values)
            zero = np.flatnonzero(np.isinf(values[:, 0, 0])).tolist()
            wrong |= dict.fromkeys(zero, "a quaternion of length zero")
            parsed = parsed._replace(values=values)
        if not wrong:
            return parsed
        what = f"{self.what!r}: " if self.format == "json" else ""
        parsed.faults.update({int(parsed.rows[k]): what + reason for k, reason in wrong.items()})
        return parsed.without(wrong)

    def _stamp(self, value: object, rest: object = None) -> float:
        """The time of a line; None is NaN."""
        if type(value) is float and self.style == "" and rest is None and math.isfinite(value):
            return value  # as nearly always
        try:
            if rest is not None:
                value = number_of(value) + 1e-9 * number_of(rest)
            return self._time(_seconds(value))
        except ValueError as error:
            raise ValueError(f"{self.time!r} {error}") from None

    def _time(self, value: object) -> float:
        """A number, or a date as seconds since 1970; the first one decides which."""
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

    def _items(
        self, lines: list[bytes], faults: dict[int, str], stop: bool
    ) -> tuple[list[Any], list[int]]:
        """The lines that may hold an observation, and their rows; learns what they hold."""
        raise NotImplementedError

    def _plain(self, items: list[Any]) -> tuple[Any, ...] | None:
        """All at once, if every line is as usual: numbers where numbers are expected."""
        raise NotImplementedError

    def _read(self, item: Any) -> tuple[str, float, Any, float]:
        """Key, time, value and number of samples of any line; ValueError says what is wrong."""
        raise NotImplementedError
