"""What JSON and CSV lines have in common: names of fields, times, numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from kgmrf import _check
from kgmrf._names import clocks_among, gives_way, is_stamp
from kgmrf._types import Mask, Numbers
from kgmrf.geometry import so
from kgmrf.io import dates
from kgmrf.io.columns import quaternions
from kgmrf.io.source import Kind
from kgmrf.stream.keys import Coded
from kgmrf.stream.settings import LineError

LARGEST_D = 1024

NAMES: dict[str, Kind] = {
    "x": "samples",
    "covariance": "covariance",
    "rotation": "rotation",
    "quaternion": "rotation",
    "rate": "rotation",  # alone, or beside one of the two before
}
"""The field of a line that is the observation, and what it is."""

RATE_SHAPE = (
    "is not three numbers [wx, wy, wz], a rate in radians per unit of the stamps in the body frame"
)

KEY_NAMES = (
    *("id", "sensor", "device", "series", "symbol", "ticker", "station", "node", "host"),
    *("asset", "instrument", "name", "sensor_id", "device_id", "series_id", "station_id"),
    *("node_id", "track_id", "asset_id"),
)
"""What names a track where nothing is called ``key``."""


class Parsed(NamedTuple):
    """A block of lines: keys, times (NaN: none), values, samples behind each (NaN: not known), the
    row of the block that each came from; the rows that cannot be used, with the reason; and the
    measured rates ``(n, 3)`` beside rotations (NaN: not measured; None: the stream has none)."""

    keys: Any  # a list of words, or Coded
    times: Numbers
    values: Numbers
    counts: Numbers
    rows: Numbers
    errors: dict[int, str]
    rates: Numbers | None = None

    def part(self, which: Any) -> Parsed:
        """Some of the lines, by position, mask or slice."""
        _, times, values, counts, rows, errors, rates = self
        coded = isinstance(self.keys, Coded)
        places: Any = which if coded else np.arange(len(rows))[which].tolist()
        keys = self.keys[places] if coded else [self.keys[k] for k in places]
        rates = None if rates is None else rates[which]
        return Parsed(keys, times[which], values[which], counts[which], rows[which], errors, rates)

    def refuse(self, wrong: dict[int, str]) -> Parsed:
        """All but these lines, by position, which become errors."""
        if not wrong:
            return self
        self.errors.update({int(self.rows[k]): reason for k, reason in wrong.items()})
        return self.part(np.delete(np.arange(len(self.keys)), list(wrong)))


def is_key(name: str) -> bool:
    """Whether a field of this name may name the track."""
    return name.lower() == "key" or name.lower() in KEY_NAMES


def find_key(names: Sequence[str], requested: str | None, row: int) -> str | None:
    """The name that holds the key, or None."""
    lower = {name.lower(): name for name in reversed(names)}
    if "key" in lower and requested is None:
        return lower["key"]
    return _find(names, requested, [lower[n] for n in KEY_NAMES if n in lower], "key", row)


def find_time(names: Sequence[str], requested: str | None, row: int) -> str | None:
    """The name that holds the time, or None; a stamp of ROS if there is no other."""
    clocks = sorted((names[k] for k in clocks_among(names)), key=is_stamp)
    usual = [name for name in clocks if not (is_stamp(name) or gives_way(name))]
    if usual and requested is None:
        return usual[0]
    return _find(names, requested, [n for n in clocks if gives_way(n)] or clocks[:1], "time", row)


def _find(
    names: Sequence[str], requested: str | None, usual: list[str], what: str, row: int
) -> str | None:
    if requested is not None:
        if requested not in names:
            shown = ", ".join(map(repr, names[:12]))
            raise LineError(row, f"has no {requested!r} (--{what}); it has {shown}")
        return requested
    if len(usual) > 1:
        raise LineError(
            row, f"{usual[0]!r} or {usual[1]!r} may be the {what}; choose with --{what} NAME"
        )
    return usual[0] if usual else None


def stamped(value: Any) -> bool:
    """Whether this is a header of ROS, which holds the time."""
    return type(value) is dict and "stamp" in value


def seconds_of(stamp: dict[str, Any], name: str) -> Any:
    """A stamp of ROS, 1 or 2, in seconds; anything else as it is."""
    if stamped(stamp):
        stamp, name = stamp["stamp"], f"{name}.stamp"
    for whole, part in (("secs", "nsecs"), ("sec", "nanosec")):
        if type(stamp) is dict and (whole in stamp or part in stamp):
            return in_parts(
                stamp.get(whole), stamp.get(part, 0), f"{name}.{whole}", f"{name}.{part}"
            )
    return stamp


def in_parts(seconds: Any, nanoseconds: Any, name: str, part: str) -> float:
    """A time in two parts; ValueError with the reason if one is none."""
    if seconds is None:
        raise ValueError(f"has nanoseconds, {part!r}, without seconds; give {name!r}")
    return number_of(seconds, name) + 1e-9 * number_of(nanoseconds, part)


def other_width(what: str, found: tuple[int, ...], shape: tuple[int, ...]) -> str:
    """What to say of an observation of another size than those before."""
    text = (
        f"{what!r} has shape {found}, expected {shape}: all keys of a stream have as many channels"
    )
    if what == "x":
        text += '; name them, {"x": {"a": 0.1}}, and those that are missing are gaps,'
    return f"{text} or run one stream for each number of channels"


def number_of(value: object, name: str) -> float:
    """A finite number; ValueError with the reason if it is none. Words and truth are none."""
    if type(value) is not float and type(value) is not int:
        kinds = {bool: "true or false", list: "an array", dict: "an object", type(None): "null"}
        shown = kinds.get(type(value), repr(value)[:40])
        raise ValueError(f"{name!r} is {shown}, not a number")
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{name!r} is infinite or not a number")
    return number


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


def bad_rates(rates: Numbers) -> dict[int, str]:
    """Rates ``(n, 3)`` that cannot be used, by row, with the reason."""
    missing = np.isnan(rates)
    some: Mask = np.asarray(missing.any(axis=1) & ~missing.all(axis=1))
    large: Mask = np.asarray((np.abs(rates) > _check.FASTEST).any(axis=1))
    why = f"a rate must be finite, at most {_check.FASTEST:g} radians per unit of the stamps"
    wrong = dict.fromkeys(np.flatnonzero(large).tolist(), why)
    why = "a rate that lacks some axes; give all three, or leave it out"
    return wrong | dict.fromkeys(np.flatnonzero(some).tolist(), why)


class Reader:
    """What both formats share. ``what`` the lines hold and its ``d`` come from the first of them,
    as are the names of the fields with key and time, those of the ``channels`` if lines have some,
    and the ``style`` of times: None, not known yet; "", numbers; otherwise how dates are written.
    ``columns`` are the channels that the user chose; ``rated`` says whether rotations have measured
    rates beside them (None: not known yet)."""

    def __init__(
        self,
        *,
        key: str | None = None,
        time: str | None = None,
        columns: Sequence[str] | None = None,
        style: str | None = None,
        rated: bool | None = None,
    ) -> None:
        self.requested = (key, time)
        self.rated = rated
        self.columns = None if columns is None else tuple(columns)
        self.channels = self.columns  # names, if the lines have some
        self.remarks: list[str] = []  # to be said on stderr, once
        self.missing: set[str] = set()  # channels of which that was said
        self.what: str | None = None
        self.d = 0
        self.key, self.time = key or "key", time or "time"
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

    def parse(self, lines: list[bytes]) -> Parsed:
        """All lines that can be used, and what is wrong with the others."""
        errors: dict[int, str] = {}
        items, rows = self._items(lines, errors)
        found = self._plain(items) if rows else None
        if found is None:
            read: list[Any] = []
            used = []
            for item, row in zip(items, rows, strict=True):
                try:
                    read.append(self._read(item))
                except ValueError as error:
                    errors[row] = str(error)
                else:
                    used.append(row)
            if not used:
                none = np.zeros(0)
                return Parsed([], none, np.zeros((0, 1)), none, none.astype(np.int64), errors)
            found, rows = [*map(list, zip(*read, strict=True))], used
        times, values, counts, *more = (np.array(column, dtype=float) for column in found[1:])
        rates = more[0] if more else None
        return self._checked(Parsed(found[0], times, values, counts, np.array(rows), errors, rates))

    def text(self, block: Any, row: int) -> bytes:
        """A line of a block as text."""
        return bytes(block[row])

    def _checked(self, parsed: Parsed) -> Parsed:
        """Without the lines whose numbers are too large or no such matrix, which become errors."""
        values = parsed.values
        wrong = too_large(values)
        if self.what != "x":  # a matrix with a hole was not seen
            hidden = np.array(np.isnan(values).reshape(len(values), -1).any(axis=1))
            hidden[list(wrong)] = True
            values[hidden] = math.nan
            if self.what == "quaternion":
                with np.errstate(invalid="ignore"):
                    values = quaternions(values)
                zero = np.isinf(values[:, 0, 0])
                wrong |= dict.fromkeys(np.flatnonzero(zero).tolist(), "a quaternion of length zero")
                hidden |= zero
            observed: Mask = np.asarray(~hidden)
            check = _check.rotations if self.kind == "rotation" else _check.covariances
            values, used = check(values, observed, "line", "skip")
            none = np.flatnonzero(observed & ~used).tolist()
            wrong |= dict.fromkeys(none, f"this is not a valid {self.kind} matrix")
            if self.kind == "rotation":
                values = so.project(values)
            values = np.where(used[:, None, None], values, math.nan)
        what = f"{self.what!r}: " if self.named else ""
        reasons = {k: what + reason for k, reason in wrong.items()}
        if parsed.rates is not None:
            what = "'rate': " if self.named else ""
            reasons |= {k: what + reason for k, reason in bad_rates(parsed.rates).items()}
        return parsed._replace(values=values).refuse(reasons)

    def _stamp(self, value: Any) -> float:
        """The time of a line: a number, or a date as seconds since 1970; the first one decides
        which. None is NaN."""
        if type(value) is float and self.style == "" and math.isfinite(value):
            return value  # as nearly always
        if value is None:
            return math.nan
        if type(value) is dict:
            value = seconds_of(value, self.time)
        if type(value) is str:
            found = dates.seconds(value)
            if found is None:
                why = "not a number and not an ISO 8601 date"
                raise ValueError(f"{self.time!r} is {value[:40]!r}, {why}")
            if self.style is None:
                self.style = dates.style([value])
            if not self.style:
                raise ValueError(f"{self.time!r} is {value[:40]!r}, where lines before had numbers")
            return found
        if self.style:
            raise ValueError(f"{self.time!r} is {str(value)[:40]}, where lines before had dates")
        number = number_of(value, self.time)
        self.style = ""
        return number

    def _without(self, names: Iterable[str]) -> None:
        """Say once that channels are missing."""
        new = [name for name in names if name not in self.missing]
        self.missing.update(new)
        if new:
            self.remarks.append(
                f"channels without a value count as not observed: {', '.join(map(repr, new))}"
            )

    named = True
    """Whether reasons name the field of the observation."""

    lasting: tuple[str, ...]
    """What the first lines said, and another process needs to go on."""

    def _items(self, lines: list[bytes], errors: dict[int, str]) -> tuple[list[Any], list[int]]:
        """The lines that may hold an observation, and their rows; learns what they hold."""
        raise NotImplementedError

    def _plain(self, items: list[Any]) -> Sequence[Any] | None:
        """All at once, as `_read`, if every line is as usual: numbers where they are expected."""
        raise NotImplementedError

    def _read(self, item: Any) -> tuple[Any, ...]:
        """Key, time, value and number of samples of any line, and the rate if the stream has rates;
        ValueError says what is wrong."""
        raise NotImplementedError
