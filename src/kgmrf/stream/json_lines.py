"""JSON lines of a stream, read a block at a time."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from kgmrf import _check
from kgmrf.kernels.engine import loops
from kgmrf.stream.pool import Kind
from kgmrf.stream.records import (
    LARGEST_D,
    Clock,
    Parsed,
    as_bytes,
    as_parsed,
    find_key,
    find_time,
    nothing,
    number_of,
    room,
    too_large,
    turned,
)

NAMES: dict[str, Kind] = {
    "x": "samples",
    "covariance": "covariance",
    "rotation": "rotation",
    "quaternion": "rotation",
}
"""The field of a line that is the observation, and what it is."""

_NUMBERS = {int, float, type(None)}


class JsonReader:
    """``{"key": ..., "time": ..., "x": [...]}``, or covariance, rotation, quaternion instead of x.

    The first line that has an observation decides what all lines hold, and what the fields are
    called that hold key and time. Every line is one JSON object of its own.

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
        quick = self._quickly(lines)
        if quick is not None:
            return quick
        faults: dict[int, str] = {}
        records, rows = self._records(lines, faults)
        if stop and faults:
            first = min(faults)
            rows = [row for row in rows if row < first]
            records = records[: len(rows)]
        if self.what is None:
            # Before the first observation of all nothing is known, not even d.
            begin = self._learn(records, rows, faults, stop)
            records, rows = records[begin:], rows[begin:]
        if not rows:
            return nothing(faults)
        return self._taken(records, rows, faults)

    def _records(
        self, lines: list[bytes], faults: dict[int, str]
    ) -> tuple[list[dict[str, Any]], list[int]]:
        records, rows = [], []
        for row, line in enumerate(lines):
            if not line or line.isspace():
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                told = isinstance(error, json.JSONDecodeError)
                detail = str(error) if told else type(error).__name__
                faults[row] = f"not JSON: {detail}"
                continue
            if type(record) is not dict:
                faults[row] = "not a JSON object"
                continue
            records.append(record)
            rows.append(row)
        return records, rows

    def _quickly(self, lines: list[bytes]) -> Parsed | None:
        """Lines that all have key, time and x in the order of the first; None if one has not."""
        if self.what != "x" or not lines or self.clock.style:
            return None
        try:
            names = list(json.loads(lines[0]))
        except (ValueError, RecursionError, TypeError):
            return None
        loop = loops("text")
        roles = {self.key: loop.KEY, self.time: loop.TIME, "x": loop.CHANNELS}
        if sorted(map(str, names)) != sorted(roles):
            return None
        words = [name.encode() for name in names]
        text = b"\n".join(lines)
        found = room(len(lines), self.d)
        n = loop.take_json(
            np.frombuffer(bytearray(text), dtype=np.uint8),
            np.array([roles[name] for name in names], dtype=np.int64),
            as_bytes(b"".join(words)),
            np.cumsum(np.array([len(word) for word in words], dtype=np.int64)),
            loop.POWERS,
            *found,
        )
        if n != len(lines):
            return None
        self.clock.style = ""
        return as_parsed(text, found, 0)

    def _shape(self) -> tuple[int, ...]:
        if self.what == "quaternion":
            return (4,)
        return (self.d,) if self.what == "x" else (self.d, self.d)

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
                elif d > LARGEST_D:
                    fault = f"d = {d} is more than {LARGEST_D}"
                else:
                    names = [str(name) for name in record]
                    self.key = find_key(names, self.wish[0], row) or "key"
                    self.time = find_time(names, self.wish[1], row) or "time"
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
        shape = self._shape()
        keys, times, values, counts, used = [], [], [], [], []
        name = self.time
        for record, row in zip(records, rows, strict=True):
            try:
                name = self.time
                time = self.clock.of(record.get(name))
                name = "n_samples"
                count = record.get(name)
                number = math.nan if count is None else number_of(count)
                name = self.key
                key = _key(record.get(name))
            except ValueError as error:
                faults[row] = f"{name!r} {error}"
                continue
            try:
                value = self._value(record, shape)
            except (ValueError, OverflowError) as error:
                faults[row] = str(error)
                continue
            keys.append(key)
            times.append(time)
            counts.append(number)
            values.append(value)
            used.append(row)
        stacked = np.array(values, dtype=float).reshape(len(used), *shape)
        parsed = Parsed(
            keys, np.array(times), stacked, np.array(counts), np.array(used, dtype=np.int64), faults
        )
        wrong: dict[int, str] = {}
        if self.what == "quaternion":
            stacked, wrong = turned(stacked)
            parsed = parsed._replace(values=stacked)
        elif self.what == "x":
            wrong = too_large(stacked)
        if wrong:
            faults.update({used[k]: f"{self.what!r}: {reason}" for k, reason in wrong.items()})
            keep = np.ones(len(used), dtype=bool)
            keep[list(wrong)] = False
            parsed = parsed.select(np.flatnonzero(keep))
        return parsed

    def _value(self, record: dict[str, Any], shape: tuple[int, ...]) -> Any:
        value = record.get(self.what or "x")
        if value is None:
            others = [name for name in NAMES if record.get(name) is not None]
            if others:
                raise ValueError(f"has {others[0]!r} where lines before had {self.what!r}")
            fault = self._unknown(record)
            if fault is not None:
                raise ValueError(fault)
            return np.full(shape, math.nan)
        if self.what == "x" and self.d == 1 and type(value) in (int, float):
            value = [value]
        rows = value if len(shape) == 2 else [value]
        if type(value) is not list or not all(
            type(row) is list and set(map(type, row)) <= _NUMBERS for row in rows
        ):
            if type(value) in (int, float):
                raise ValueError(f"{self.what!r} has shape (), expected {shape}")
            raise ValueError(f"{self.what!r} is not an array of numbers")
        if len(rows) != (shape[0] if len(shape) == 2 else 1) or {len(r) for r in rows} != {
            shape[-1]
        }:
            found = (len(value),) if len(shape) == 1 else (len(rows), *{len(r) for r in rows})
            raise ValueError(f"{self.what!r} has shape {found}, expected {shape}")
        try:
            array = np.array(value, dtype=float)
        except OverflowError:
            raise ValueError(f"{self.what!r} is infinite") from None
        if np.isinf(array).any() or (len(shape) == 2 and (np.abs(array) > _check.LARGEST).any()):
            raise ValueError(f"{self.what!r} is infinite or beyond {_check.LARGEST:g}")
        if (len(shape) == 2 or self.what == "quaternion") and np.isnan(array).any():
            return np.full(shape, math.nan)
        return array

    def _unknown(self, record: dict[str, Any]) -> str | None:
        """A line without observation moves its track on; one with a field of another name does
        not: what is wrong with it."""
        if any(name in record for name in NAMES):
            return None
        beside = {"key", "time", "n_samples", self.key, self.time}
        if self.what is None:
            names = [str(name) for name in record]
            beside |= {find_key(names, None, 0) or "key", find_time(names, None, 0) or "time"}
        for name in record:
            if name not in beside:
                called = ", ".join(NAMES)
                return f"has a field {name[:40]!r} and no observation, which is called {called}"
        return None


def _key(value: Any) -> str:
    if type(value) is str:
        return value
    if value is None:
        return ""
    if type(value) in (int, float):
        return json.dumps(value)
    raise ValueError("is not a word or a number")
