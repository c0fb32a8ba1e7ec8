"""JSON lines of a stream, read a block at a time."""

from __future__ import annotations

import math
from contextlib import suppress
from itertools import chain
from typing import Any

import numpy as np
import orjson

from kgmrf._names import is_clock, is_nanoseconds, is_stamp
from kgmrf.stream import records as rec
from kgmrf.stream.records import NAMES, RATE_SHAPE, Reader

_NUMBERS = frozenset({int, float, type(None)})
_WHOLE = 2.0**63
"""Whole numbers beyond 64 bits are read as rounded ones."""


class JsonReader(Reader):
    """``{"key": ..., "time": ..., "x": [...]}``, or covariance, rotation, quaternion instead of x;
    or rate, a measured one, alone or beside a rotation.

    The first line that has an observation decides what all lines hold, and what the fields are
    called that hold key and time (or ``{"header": {"stamp": {"secs": ..., "nsecs": ...}}}``, as in
    ROS). ``x`` may be an object, ``{"a": 0.1, "b": 0.2}``: then channels go by name. Every line is
    one JSON object of its own.
    """

    lasting = ("what", "d", "key", "time", "style", "channels", "key_kind", "rated")

    def __init__(self, what: str | None = None, d: int = 0, **options: Any) -> None:
        super().__init__(**options)
        self.what, self.d = what, d
        self.key_kind: str | None = None
        """Whether keys are words or numbers: 1 and "1" look the same in the output."""

    def _items(self, lines: list[bytes], errors: dict[int, str]) -> tuple[list[Any], list[int]]:
        records, rows = _records(lines, errors)
        if self.what is not None:
            self._look_for_rotations(records)
            return records, rows
        for k, (record, row) in enumerate(zip(records, rows, strict=True)):
            fault = self._learn(record, row)
            if self.d:
                self._look_for_rotations(records[k:])
                return records[k:], rows[k:]
            if fault is not None:
                errors[row] = fault
        return [], []  # before the first observation of all nothing is known, not even d

    def _look_for_rotations(self, records: list[dict[str, Any]]) -> None:
        """After lines with a rate alone the first rotation decides how rotations are written."""
        if self.what == "rate":
            kinds = ("rotation", "quaternion")
            found = (name for r in records for name in kinds if r.get(name) is not None)
            self.what = next(found, "rate")

    def _learn(self, record: dict[str, Any], row: int) -> str | None:
        """Find out what the lines hold, if this one has an observation; else what is wrong."""
        found = next((name for name in NAMES if record.get(name) is not None), None)
        if found is None:
            return self._unknown(record, *_names(record, (None, None), row))
        value = record[found]
        if found == "x" and type(value) in (int, float):
            value = [value]
        named = found == "x" and type(value) is dict
        if named and self.columns is None:
            self.channels = tuple(value)
        chosen = found == "x" and self.columns is not None
        d = (
            len(self.channels or ())
            if named or chosen
            else len(value)
            if type(value) is list
            else 0
        )
        if found == "rate" and d != 3:
            return f"{found!r} {RATE_SHAPE}, got {str(value)[:60]}"
        d = 3 if found == "quaternion" else d
        if d < 1:
            return f"{found!r} is not an array of numbers"
        if d > rec.LARGEST_D:
            return f"d = {d} is more than {rec.LARGEST_D}"
        self.key, self.time = _names(record, self.requested, row)
        self.what, self.d = found, d
        if self.rated is None:
            self.rated = self.kind == "rotation" and "rate" in record
        return None

    def _plain(self, items: list[Any]) -> tuple[Any, ...] | None:
        if self.what != "x" or self.style or is_stamp(self.time):
            return None
        keys: list[Any] = [record.get(self.key) for record in items]
        times: list[Any] = [record.get(self.time) for record in items]
        values: list[Any] = [record.get("x") for record in items]
        if (
            any("n_samples" in record for record in items)
            or {*map(type, keys)} != {str}
            or not {*map(type, times)} <= {int, float}
            or self.key_kind == "numbers"
            or not (values := self._lists(values) or [])
            or {*map(len, values)} != {self.d}
            or not _NUMBERS.issuperset(map(type, chain.from_iterable(values)))
        ):
            return None
        self.style, self.key_kind = "", "words"
        return keys, times, values, np.full(len(keys), math.nan)

    def _lists(self, values: list[Any]) -> list[Any] | None:
        """Samples as lists, if all are lists, or objects with exactly the known channels."""
        kinds, names = {*map(type, values)}, self.channels
        if kinds == {dict} and names is not None:
            known = {*names}
            if all(value.keys() == known for value in values):
                return [[value[name] for name in names] for value in values]
        return values if kinds == {list} else None

    def _read(self, item: Any) -> tuple[Any, ...]:
        time, count, key = item.get(self.time), item.get("n_samples"), item.get(self.key)
        self._same_names(item)
        if time is None or is_stamp(self.time):
            time = self._in_parts(item, time)
        number = math.nan if count is None else rec.number_of(count, "n_samples")
        kind = None if key is None else "words"
        if type(key) is not str:
            whole = type(key) is int or (type(key) is float and abs(key) < _WHOLE)
            if key is not None and not whole:
                raise ValueError(f"{self.key!r} is not a word or a number of at most 64 bits")
            kind = None if key is None else "numbers"
            key = "" if key is None else repr(int(key) if key == int(key) else key)
        if kind is not None and self.key_kind not in (None, kind):
            raise ValueError(
                f"{self.key!r} is {item[self.key]!r}, where the keys before were {self.key_kind}; "
                "write all keys as words"
            )
        rate = self._rate(item)
        found = key, self._stamp(time), self._value(item), number, *rate
        self.key_kind = self.key_kind or kind
        return found

    def _rate(self, record: dict[str, Any]) -> list[Any]:
        """The rate of a line, if the stream has rates."""
        rate = record.get("rate") if self.kind == "rotation" else None
        if not self.rated and rate is not None:
            raise ValueError(
                "has 'rate', and the first line had none, which says that this stream has no "
                'rates; give --rates, or "rate": null there, and another state'
            )
        if not self.rated:
            return []
        if rate is None:
            return [[math.nan] * 3]
        if type(rate) is not list or len(rate) != 3 or not _NUMBERS.issuperset(map(type, rate)):
            raise ValueError(f"'rate' {RATE_SHAPE}, got {str(rate)[:60]}")
        return [rate]

    def _same_names(self, record: dict[str, Any]) -> None:
        """ValueError if key or time are in a field of another name than in the lines before."""
        others: Any = ()
        if self.key not in record:
            others = [("key", self.key, n) for n in record if rec.is_key(n)]
        if not others and self.time not in record:
            clocks = [record_name for record_name in record if is_clock(record_name)]
            others = [("time", self.time, n) for n in clocks if not is_stamp(n)]
        for what, known, name in others:
            raise ValueError(
                f"has {name!r} and no {known!r}, which is the {what} of the lines before; use one "
                f"name, or give --{what} {name}"
            )

    def _in_parts(self, record: dict[str, Any], seconds: Any) -> Any:
        """Seconds with the nanoseconds beside them, which are no time of their own."""
        stamps = [name for name in record if is_stamp(name) and record[name] is not None]
        part = next(filter(is_nanoseconds, stamps), None)
        if part is None or part == self.time or (seconds is None and len(stamps) > 1):
            return seconds
        return rec.in_parts(seconds, record[part], self.time, part)

    def _value(self, record: dict[str, Any]) -> Any:
        what, shape = self.what or "x", self.shape
        value = None if what == "rate" else record.get(what)
        if value is None:
            names = [name for name in NAMES if not (self.rated and name == "rate")]
            other = next((name for name in names if record.get(name) is not None), None)
            fault = self._unknown(record, self.key, self.time)
            if other is not None:
                fault = f"has {other!r} where lines before had {what!r}"
            if fault is not None:
                raise ValueError(fault)
            return np.full(shape, math.nan)
        if what == "x" and type(value) is dict:
            value = self._by_name(value)
        if type(value) in (int, float):
            if shape == (1,):
                return [value]
            raise ValueError(rec.other_width(what, (), shape))
        rows = value if len(shape) == 2 else [value]
        if type(value) is not list or not all(
            type(row) is list and _NUMBERS.issuperset(map(type, row)) for row in rows
        ):
            raise ValueError(f"{what!r} is not an array of numbers")
        lengths = {*map(len, rows)}
        if lengths != {shape[-1]} or (len(shape) == 2 and len(value) != shape[0]):
            found = (*(len(value),) * (len(shape) - 1), *sorted(lengths))
            raise ValueError(rec.other_width(what, found, shape))
        return value

    def _by_name(self, value: dict[str, Any]) -> list[Any]:
        """Values by channel in the order of the channels."""
        if self.channels is None:
            raise ValueError("'x' names its channels, where lines before had arrays")
        unknown = [name for name in value if name not in self.channels]
        if unknown and self.columns is None:
            raise ValueError(
                f"'x' has an unknown channel {unknown[0][:40]!r}; the first line had "
                f"{', '.join(map(repr, self.channels[:8]))}. Choose channels with --columns"
            )
        self._without(name for name in self.channels if name not in value)
        return [value.get(name) for name in self.channels]

    def _unknown(self, record: dict[str, Any], *names: str) -> str | None:
        """A line without observation moves its track on; one with a field of another name does
        not: what is wrong with it."""
        if any(name in record for name in NAMES):
            return None
        for name in record:
            if name not in {"key", "time", "n_samples", *names} and not is_stamp(name):
                called = ", ".join(NAMES)
                return f"has a field {name[:40]!r} and no observation, which is called {called}"
        return None


def _names(
    record: dict[str, Any], requested: tuple[str | None, str | None], row: int
) -> tuple[str, str]:
    """The fields of a record that hold key and time."""
    names, stamped = list(record), "header" if rec.stamped(record.get("header")) else "time"
    key, time = rec.find_key(names, requested[0], row), rec.find_time(names, requested[1], row)
    return key or "key", time or stamped


def _records(lines: list[bytes], errors: dict[int, str]) -> tuple[list[dict[str, Any]], list[int]]:
    """The lines that are JSON objects; the others are errors."""
    with suppress(orjson.JSONDecodeError):
        every = list(map(orjson.loads, lines))
        if {*map(type, every)} == {dict}:  # as nearly always
            return every, list(range(len(lines)))
    records, rows = [], []
    for row, line in enumerate(lines):
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            if line.strip():
                errors[row] = f"not JSON: {error}"
            continue
        if type(record) is dict:
            records.append(record)
            rows.append(row)
        else:
            errors[row] = "not a JSON object"
    return records, rows
