"""JSON lines of a stream, read a block at a time."""

from __future__ import annotations

import math
from contextlib import suppress
from itertools import chain
from typing import Any

import numpy as np
import orjson

from kgmrf.stream import records as rec
from kgmrf.stream.pool import Kind
from kgmrf.stream.records import Clock, Parsed

NAMES: dict[str, Kind] = {
    "x": "samples",
    "covariance": "covariance",
    "rotation": "rotation",
    "quaternion": "rotation",
}
"""The field of a line that is the observation, and what it is."""

_NUMBERS = frozenset({int, float, type(None)})
_WHOLE = 2.0**63
"""Whole numbers beyond 64 bits are read as rounded ones."""


class JsonReader:
    """``{"key": ..., "time": ..., "x": [...]}``, or covariance, rotation, quaternion instead of x.

    The first line that has an observation decides what all lines hold, and what the fields are
    called that hold key and time (or ``{"header": {"stamp": {"secs": ..., "nsecs": ...}}}``, as in
    ROS). Every line is one JSON object of its own.

    >>> reader = JsonReader()
    >>> parsed = reader.parse([b'{"key": "a", "time": 3, "x": [1, null]}', b'{"x": ["1", 2]}'])
    >>> parsed.keys, parsed.times.tolist(), parsed.values.tolist(), parsed.faults
    (['a'], [3.0], [[1.0, nan]], {1: "'x' is not an array of numbers"})
    """

    format = "json"

    def __init__(
        self,
        what: str | None = None,
        d: int = 0,
        *,
        key: str | None = None,
        time: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.what, self.d = what, d
        self.wish = (key, time)
        self.key, self.time = key or "key", time or "time"
        self.clock = clock or Clock()

    @property
    def kind(self) -> Kind:
        """What the lines hold."""
        return NAMES[self.what or "x"]

    def settings(self) -> dict[str, Any]:
        """What the first lines told, to go on in another process."""
        return {
            "format": self.format,
            "what": self.what,
            "d": self.d,
            "key": self.key,
            "time": self.time,
            "dates": self.clock.style,
        }

    def parse(self, lines: list[bytes], *, stop: bool = False) -> Parsed:
        """All lines that can be used, and what is wrong with the others.

        stop: what comes behind a line that cannot be used does not matter.
        """
        faults: dict[int, str] = {}
        records, rows = _records(lines, faults, stop)
        if self.what is None:
            # Before the first observation of all nothing is known, not even d.
            begin = self._learn(records, rows, faults, stop)
            records, rows = records[begin:], rows[begin:]
        return self._taken(records, rows, faults) if rows else rec.nothing(faults)

    def _learn(
        self, records: list[dict[str, Any]], rows: list[int], faults: dict[int, str], stop: bool
    ) -> int:
        """Find out what the lines hold; returns how many come before the first observation."""
        for k, (record, row) in enumerate(zip(records, rows, strict=True)):
            found = next((name for name in NAMES if record.get(name) is not None), None)
            fault = self._unknown(record) if found is None else None
            if found is not None:
                value = record[found]
                if found == "x" and type(value) in (int, float):
                    value = [value]
                d = 3 if found == "quaternion" else len(value) if type(value) is list else 0
                if d < 1:
                    fault = f"{found!r} is not an array of numbers"
                elif d > rec.LARGEST_D:
                    fault = f"d = {d} is more than {rec.LARGEST_D}"
                else:
                    names = list(record)
                    self.key = rec.find_key(names, self.wish[0], row) or "key"
                    stamped = "header" if _stamped(record.get("header")) else "time"
                    self.time = rec.find_time(names, self.wish[1], row) or stamped
                    self.what, self.d = found, d
                    return k
            if fault is not None:
                faults[row] = fault
                if stop:
                    break
        return len(rows)

    def _taken(
        self, records: list[dict[str, Any]], rows: list[int], faults: dict[int, str]
    ) -> Parsed:
        what = self.what or "x"
        shape = {"x": (self.d,), "quaternion": (4,)}.get(what, (self.d, self.d))
        parsed = self._plain(records, rows, faults) if what == "x" else None
        if parsed is not None:
            return rec.gathered(parsed, quaternion=False, what=f"{what!r}: ")
        keys, times, values, counts, used = [], [], [], [], []
        for record, row in zip(records, rows, strict=True):
            name = self.time
            try:
                time = self.clock.of(_seconds(record.get(name)))
                name = "n_samples"
                count = record.get(name)
                number = math.nan if count is None else rec.number_of(count)
                name = self.key
                key = _key(record.get(name))
                name = ""
                value = self._value(record, shape)
            except ValueError as error:
                faults[row] = f"{name!r} {error}" if name else str(error)
                continue
            keys.append(key)
            times.append(time)
            counts.append(number)
            values.append(value)
            used.append(row)
        stacked = np.array(values, dtype=float).reshape(len(used), *shape)
        if what != "x":  # a matrix with a hole was not seen
            holes = np.isnan(stacked).reshape(len(used), -1).any(axis=1)
            stacked[holes] = math.nan
        stamps, where = np.array(times), np.array(used, dtype=np.int64)
        parsed = Parsed(keys, stamps, stacked, np.array(counts), where, faults)
        return rec.gathered(parsed, quaternion=what == "quaternion", what=f"{what!r}: ")

    def _plain(
        self, records: list[dict[str, Any]], rows: list[int], faults: dict[int, str]
    ) -> Parsed | None:
        """Lines that are all as usual: a word, a number and a list of d numbers; otherwise None."""
        keys: list[Any] = [record.get(self.key) for record in records]
        times: list[Any] = [record.get(self.time) for record in records]
        values: list[Any] = [record.get("x") for record in records]
        if (
            self.clock.style
            or any("n_samples" in record for record in records)
            or {*map(type, keys)} != {str}
            or not {*map(type, times)} <= {int, float}
            or {*map(type, values)} != {list}
            or {*map(len, values)} != {self.d}
            or not _NUMBERS.issuperset(map(type, chain.from_iterable(values)))
        ):
            return None
        stamps = np.array(times, dtype=float)
        self.clock.style = ""
        counts = np.full(len(keys), math.nan)
        where = np.array(rows, dtype=np.int64)
        return Parsed(keys, stamps, np.array(values, dtype=float), counts, where, faults)

    def _value(self, record: dict[str, Any], shape: tuple[int, ...]) -> Any:
        value = record.get(self.what or "x")
        if value is None:
            other = next((name for name in NAMES if record.get(name) is not None), None)
            fault = self._unknown(record)
            if other is not None:
                fault = f"has {other!r} where lines before had {self.what!r}"
            if fault is not None:
                raise ValueError(fault)
            return np.full(shape, math.nan)
        if shape == (1,) and type(value) in (int, float):
            return [value]
        rows = value if len(shape) == 2 else [value]
        if type(value) in (int, float):
            raise ValueError(f"{self.what!r} has shape (), expected {shape}")
        if type(value) is not list or not all(
            type(row) is list and _NUMBERS.issuperset(map(type, row)) for row in rows
        ):
            raise ValueError(f"{self.what!r} is not an array of numbers")
        lengths = {len(row) for row in rows}
        if (*(len(value),) * (len(shape) - 1), *lengths) != shape:
            found = (*(len(value),) * (len(shape) - 1), *sorted(lengths))
            raise ValueError(f"{self.what!r} has shape {found}, expected {shape}")
        return value

    def _unknown(self, record: dict[str, Any]) -> str | None:
        """A line without observation moves its track on; one with a field of another name does
        not: what is wrong with it."""
        if any(name in record for name in NAMES):
            return None
        beside = {"key", "time", "n_samples", self.key, self.time}
        if self.what is None:
            names = list(record)
            beside |= {
                rec.find_key(names, None, 0) or "key",
                rec.find_time(names, None, 0) or "time",
            }
            beside |= {"header"} if _stamped(record.get("header")) else set()
        for name in record:
            if name not in beside:
                called = ", ".join(NAMES)
                return f"has a field {name[:40]!r} and no observation, which is called {called}"
        return None


def _stamped(value: Any) -> bool:
    """Whether this is a header of ROS, which holds the time."""
    return type(value) is dict and "stamp" in value


def _seconds(value: Any) -> Any:
    """The time of a header or stamp of ROS, 1 or 2, in seconds; anything else as it is.

    >>> _seconds({"seq": 3, "stamp": {"secs": 12, "nsecs": 500000000}}), _seconds(7)
    (12.5, 7)
    """
    stamp = value["stamp"] if _stamped(value) else value
    for whole, parts in (("secs", "nsecs"), ("sec", "nanosec")):
        if type(stamp) is dict and whole in stamp:
            return rec.number_of(stamp[whole]) + 1e-9 * rec.number_of(stamp.get(parts, 0))
    return stamp


def _records(
    lines: list[bytes], faults: dict[int, str], stop: bool
) -> tuple[list[dict[str, Any]], list[int]]:
    """The lines that are JSON objects; the others are faults."""
    with suppress(orjson.JSONDecodeError):
        every = list(map(orjson.loads, lines))
        if {*map(type, every)} == {dict}:  # as nearly always
            return every, list(range(len(lines)))
    records, rows = [], []
    for row, line in enumerate(lines):
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            if line.isspace() or not line:
                continue
            faults[row] = f"not JSON: {error}"
        else:
            if type(record) is dict:
                records.append(record)
                rows.append(row)
                continue
            faults[row] = "not a JSON object"
        if stop:
            break
    return records, rows


def _key(value: Any) -> str:
    if type(value) is str:
        return value
    if value is None:
        return ""
    if type(value) is int:
        return str(value)
    if type(value) is float and abs(value) < _WHOLE:
        return repr(value)
    raise ValueError("is not a word or a number of at most 64 bits")
