"""Lines in, lines out: JSON or CSV text of a stream, parsed and written a block at a time."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from kgmrf._types import Numbers
from kgmrf.io.columns import is_clock, quaternion_of, quaternions, tidy
from kgmrf.kernels.engine import loops
from kgmrf.stream.pool import Kind

NAMES: dict[str, Kind] = {
    "x": "samples",
    "covariance": "covariance",
    "rotation": "rotation",
    "quaternion": "rotation",
}
"""The field of a JSON line that is the observation, and what it is."""

BESIDE = ("key", "time", "n_samples")
"""The other fields of a JSON line that mean something; more are allowed beside an observation."""

GAPS = {"", "nan", "na", "null", "none"}
LARGEST_D = 1024


class LineError(ValueError):
    """A line that cannot be used: ``row`` of the block, counted from 0, and what is wrong."""

    def __init__(self, row: int, fault: str) -> None:
        super().__init__(fault)
        self.row = row
        self.fault = fault


class Parsed(NamedTuple):
    """A block of lines: keys, times (NaN: none), values, samples behind each (NaN: not told), and
    the row of the block that each came from."""

    keys: list[str]
    times: Numbers
    values: Numbers
    counts: Numbers
    rows: Numbers


_NOTHING = Parsed([], np.zeros(0), np.zeros((0, 1)), np.zeros(0), np.zeros(0, dtype=int))


class JsonReader:
    """``{"key": ..., "time": ..., "x": [...]}``, or covariance, rotation, quaternion instead of x.

    The first line that has an observation decides what all lines hold.
    """

    format = "json"

    def __init__(self, what: str | None = None, d: int = 0) -> None:
        self.what = what
        self.d = d

    @property
    def kind(self) -> Kind:
        """What the lines hold."""
        return NAMES[self.what or "x"]

    def settings(self) -> dict[str, Any]:
        """What the first lines told, to go on in another process."""
        return {"format": self.format, "what": self.what, "d": self.d}

    def parse(self, lines: list[bytes]) -> Parsed:
        """All lines; raises `LineError` at the first that cannot be read."""
        quick = self._quickly(lines)
        if quick is not None:
            return quick
        rows = [k for k, line in enumerate(lines) if line and not line.isspace()]
        try:
            records = json.loads(b"[" + b",".join([lines[k] for k in rows]) + b"]")
            if len(records) != len(rows):
                raise ValueError
        except (ValueError, RecursionError):
            records = [_record(lines[k], k) for k in rows]
        if self.what is None:
            # Before the first observation of all nothing is known, not even d.
            first = self._learn(records, rows)
            records, rows = records[first:], rows[first:]
        if not rows:
            return _NOTHING
        try:
            # Nearly always every line has everything, and then this is all there is to do.
            keys = [record["key"] for record in records]
            times = np.array([record["time"] for record in records], dtype=float)
            values = np.array([record[self.what] for record in records], dtype=float)
            if self.what == "x" and self.d == 1 and values.ndim == 1:
                values = values[:, None]  # numbers alone
            plain = all(type(key) is str for key in keys) and not any(
                type(record["time"]) is str for record in records[:1]
            )
            right = values.shape == (len(rows), *self._shape()) and np.isfinite(values).all()
            if not (plain and right and np.isfinite(times).all()):
                raise ValueError
            counts = np.array([r.get("n_samples", math.nan) for r in records], dtype=float)
        except (ValueError, TypeError, KeyError, OverflowError):
            return self._one_by_one(records, rows)
        return self._done(keys, times, values, counts, rows)

    def _quickly(self, lines: list[bytes]) -> Parsed | None:
        """Lines that all have key, time and x in the order of the first; None if one has not."""
        if self.what != "x" or not lines:
            return None
        try:
            names = list(json.loads(lines[0]))
        except (ValueError, RecursionError, TypeError):
            return None
        loop = loops("text")
        roles = {"key": loop.KEY, "time": loop.TIME, "x": loop.CHANNELS}
        if sorted(map(str, names)) != sorted(roles):
            return None
        words = [name.encode() for name in names]
        text = b"\n".join(lines)
        found = _room(len(lines), self.d)
        n = loop.take_json(
            np.frombuffer(bytearray(text), dtype=np.uint8),
            np.array([roles[name] for name in names], dtype=np.int64),
            _bytes(b"".join(words)),
            np.cumsum(np.array([len(word) for word in words], dtype=np.int64)),
            loop.POWERS,
            *found,
        )
        return _as_parsed(text, found, 0) if n == len(lines) else None

    def _shape(self) -> tuple[int, ...]:
        if self.what == "quaternion":
            return (4,)
        return (self.d,) if self.what == "x" else (self.d, self.d)

    def _learn(self, records: list[Any], rows: list[int]) -> int:
        """Find out what the lines hold; returns how many come before the first observation."""
        for k, (record, row) in enumerate(zip(records, rows, strict=True)):
            if not isinstance(record, dict):
                raise LineError(row, "not a JSON object")
            for name in NAMES:
                value = record.get(name)
                if value is None:
                    continue
                if name == "x" and _is_number(value):
                    value = [value]
                if not isinstance(value, list) or not value:
                    raise LineError(row, f"{name!r} is not an array of numbers")
                d = 3 if name == "quaternion" else len(value)
                if d > LARGEST_D:
                    raise LineError(row, f"d = {d} is more than {LARGEST_D}")
                self.what, self.d = name, d
                return k
            _refuse_unknown(record, row)
        return len(rows)

    def _one_by_one(self, records: list[Any], rows: list[int]) -> Parsed:
        shape = self._shape()
        keys, times, values, counts = [], [], [], []
        for record, row in zip(records, rows, strict=True):
            if not isinstance(record, dict):
                raise LineError(row, "not a JSON object")
            key = record.get("key", "")
            keys.append(key if isinstance(key, str) else json.dumps(key))
            times.append(_number(record.get("time"), row, "time"))
            counts.append(_number(record.get("n_samples"), row, "n_samples"))
            value = record.get(self.what)
            if value is None:
                others = [name for name in NAMES if record.get(name) is not None]
                if others:
                    raise LineError(row, f"has {others[0]!r} where lines before had {self.what!r}")
                _refuse_unknown(record, row)
                values.append(np.full(shape, math.nan))
                continue
            if self.what == "x" and self.d == 1 and _is_number(value):
                value = [value]
            try:
                array = np.array(value, dtype=float)
            except (ValueError, TypeError, OverflowError):
                raise LineError(row, f"{self.what!r} is not an array of numbers") from None
            if array.shape != shape:
                raise LineError(row, f"{self.what!r} has shape {array.shape}, expected {shape}")
            if np.isinf(array).any():
                raise LineError(row, f"{self.what!r} is infinite")
            if len(shape) == 2 and np.isnan(array).any():
                array = np.full(shape, math.nan)
            values.append(array)
        stacked = np.array(values, dtype=float).reshape(len(rows), *shape)
        return self._done(keys, np.array(times), stacked, np.array(counts), rows)

    def _done(
        self, keys: list[str], times: Numbers, values: Numbers, counts: Numbers, rows: list[int]
    ) -> Parsed:
        if self.what == "quaternion":
            values = _turned(values, rows)
        return Parsed(keys, times, values, counts, np.array(rows, dtype=np.int64))


class CsvReader:
    """A header, then rows: ``key`` and ``time`` by name, all other columns are channels.

    A first column without a name is the time, if no other is. Columns qx, qy, qz, qw are a
    quaternion instead. Empty cells were not seen.
    """

    format = "csv"

    def __init__(self, header: Sequence[str] | None = None) -> None:
        self.header: list[str] = []
        if header is not None:
            self._learn(list(header), 0)

    @property
    def kind(self) -> Kind:
        """What the rows hold."""
        return "rotation" if self.quaternion else "samples"

    @property
    def d(self) -> int:
        """Number of channels."""
        return 3 if self.quaternion else len(self.used)

    def settings(self) -> dict[str, Any]:
        """What the header told, to go on in another process."""
        return {"format": self.format, "header": self.header}

    def _learn(self, header: list[str], row: int) -> None:
        names = [str(name).strip() for name in header]
        lower = [name.lower() for name in names]
        self.key = lower.index("key") if "key" in lower else None
        clocks = [k for k, name in enumerate(names) if is_clock(name)]
        numbers = sum(_is_cell(name) for name in names)
        if numbers == len(names) or (self.key is None and not clocks and 2 * numbers > len(names)):
            raise LineError(
                row, "is data, not a header; the first line names the columns: key,time,a,b"
            )
        if len(set(names)) < len(names):
            raise LineError(row, "the header has a column twice")
        # A first column without a name is the index of a data frame.
        index = tidy(names)[1]
        self.time = clocks[0] if clocks else index
        self.used = [k for k in range(len(names)) if k not in (self.key, self.time, index)]
        turns = quaternion_of(names)
        self.quaternion = bool(turns)
        if len(turns) > 1:
            raise LineError(row, "the header has more than one quaternion")
        if self.quaternion:
            self.used = list(turns[0])
        if not self.used or len(self.used) > LARGEST_D:
            raise LineError(row, f"the header has {len(self.used)} channels")
        self.header = names

    def parse(self, lines: list[bytes]) -> Parsed:
        """All rows; raises `LineError` at the first that cannot be read."""
        first = 0
        if not self.header:
            while first < len(lines) and not lines[first].strip():
                first += 1
            if first == len(lines):
                return _NOTHING
            self._learn(_cells(lines[first]), first)
            first += 1
        elif lines and _cells(lines[0]) == self.header:
            first = 1  # the same header again, after a restart
        quick = self._quickly(lines, first)
        if quick is not None:
            return quick
        keys, times, values, rows = [], [], [], []
        width, key, time, used = len(self.header), self.key, self.time, self.used
        for row in range(first, len(lines)):
            line = lines[row]
            if not line or line.isspace():
                continue
            cells = line.split(b",") if b'"' not in line else None
            try:
                if cells is None or len(cells) != width:
                    raise ValueError
                numbers = [float(cells[k]) for k in used]
                stamp = math.nan if time is None else float(cells[time])
                name = "" if key is None else cells[key].decode()
            except ValueError:
                name, stamp, numbers = self._slowly(line, row)
            keys.append(name)
            times.append(stamp)
            values.append(numbers)
            rows.append(row)
        table = np.array(values, dtype=float).reshape(len(rows), len(used))
        if np.isinf(table).any() or np.isinf(times).any():
            bad = np.isinf(table).any(axis=-1) | np.isinf(times)
            raise LineError(rows[int(np.argmax(bad))], "infinite")
        if self.quaternion:
            table = _turned(table, rows)
        counts = np.full(len(rows), math.nan)
        return Parsed(keys, np.array(times, dtype=float), table, counts, np.array(rows, dtype=int))

    def _quickly(self, lines: list[bytes], first: int) -> Parsed | None:
        """Rows of plain numbers with a key and a time; None if there is anything else."""
        if self.key is None or self.time is None or self.quaternion or first == len(lines):
            return None
        loop = loops("text")
        columns = np.full(len(self.header), loop.IGNORED, dtype=np.int64)
        columns[self.used] = np.arange(len(self.used))
        columns[[self.key, self.time]] = loop.KEY, loop.TIME
        text = b"\n".join(lines[first:])
        found = _room(len(lines) - first, len(self.used))
        buffer = np.frombuffer(bytearray(text), dtype=np.uint8)
        n = loop.take_csv(buffer, columns, loop.POWERS, *found)
        return _as_parsed(text, found, first) if n == len(lines) - first else None

    def _slowly(self, line: bytes, row: int) -> tuple[str, float, list[float]]:
        cells = _cells(line)
        if len(cells) != len(self.header):
            raise LineError(row, f"{len(cells)} cells where the header has {len(self.header)}")
        stamp = math.nan if self.time is None else _cell(cells[self.time], row, "time")
        numbers = [_cell(cells[k], row, self.header[k]) for k in self.used]
        return "" if self.key is None else cells[self.key], stamp, numbers


_Room: TypeAlias = tuple[Numbers, Numbers, Numbers]


def _room(n: int, d: int) -> _Room:
    """For what the compiled loops find: ends of keys, times, values."""
    return np.empty((n, 2), dtype=np.int64), np.empty(n), np.empty((n, d))


def _as_parsed(text: bytes, found: _Room, first: int) -> Parsed:
    spans, times, values = found
    # Latin-1 keeps every byte where it is; the loops found only plain ASCII in the keys.
    letters = text.decode("latin-1")
    keys = [letters[begin:end] for begin, end in spans.tolist()]
    rows = np.arange(first, first + len(times))
    return Parsed(keys, times, values, np.full(len(times), math.nan), rows)


def reader_from(settings: dict[str, Any]) -> JsonReader | CsvReader:
    """The reader whose settings these are."""
    if settings["format"] == "csv":
        return CsvReader(settings["header"])
    what = settings["what"]
    if what not in NAMES or not isinstance(settings["d"], int):
        raise ValueError(f"unknown observation {what!r}")
    return JsonReader(what, settings["d"])


def _record(line: bytes, row: int) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        detail = str(error) if isinstance(error, json.JSONDecodeError) else "nested too deeply"
        raise LineError(row, f"not JSON: {detail}") from None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _refuse_unknown(record: dict[str, Any], row: int) -> None:
    """A line without observation moves its track on; one with a field of another name does not."""
    if any(name in record for name in NAMES):
        return
    for name in record:
        if name not in BESIDE:
            raise LineError(
                row,
                f"has a field {name[:40]!r} and no observation, which is called {', '.join(NAMES)}",
            )


def _number(value: Any, row: int, name: str) -> float:
    if value is None:
        return math.nan
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.inf
    if isinstance(value, (str, bool)) or not math.isfinite(number):
        raise LineError(row, f"{name!r} is {json.dumps(value)[:40]}, not a number")
    return number


def _cells(line: bytes) -> list[str]:
    text = line.decode("utf-8-sig", errors="replace").rstrip("\r\n")
    try:
        return next(csv.reader([text]), [])
    except csv.Error:
        return text.split(",")


def _cell(cell: str, row: int, name: str) -> float:
    try:
        return float(cell)
    except ValueError:
        if cell.strip().lower() in GAPS and name != "time":
            return math.nan
        raise LineError(row, f"column {name!r}: {cell[:40]!r} is not a number") from None


def _is_cell(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _turned(values: Numbers, rows: list[int]) -> Numbers:
    zero = (values == 0).all(axis=-1)
    if zero.any():
        raise LineError(rows[int(np.argmax(zero))], "a quaternion of length zero")
    return quaternions(values)


# ---------------------------------------------------------------------- lines out


class LineWriter:
    """Estimates as JSON lines or CSV rows: key, time, and the fields, to some digits.

    digits: significant digits; 16 and more write every bit, slowly.
    """

    def __init__(self, format_: str, fields: dict[str, tuple[int, ...]], digits: int) -> None:
        self.json = format_ == "json"
        self.fields = fields
        self.digits = digits
        self.words = self._json_words() if self.json else self._csv_words()
        self.twins = self._twins()

    def header(self) -> bytes:
        """The first line of CSV output."""
        if self.json:
            return b""
        names = []
        for name, shape in self.fields.items():
            names += [f"{name}{''.join(f'_{k}' for k in index)}" for index in np.ndindex(*shape)]
        return ",".join(["key", "time", *names]).encode() + b"\n"

    def _twins(self) -> Numbers:
        """Covariances are symmetric: what stands above the diagonal is copied below it."""
        twins: list[int] = []
        for name, shape in self.fields.items():
            places = len(twins) + np.arange(math.prod(shape)).reshape(shape)
            twins += (
                (np.minimum(places, places.T) if name == "covariance" else places).ravel().tolist()
            )
        return np.array(twins, dtype=np.int64)

    def _json_words(self) -> list[str]:
        """The words before, between and behind the numbers."""
        text = ""
        for name, shape in self.fields.items():
            text += f',"{name}":' + _nested(shape)
        return (text + "}\n").split("#")

    def _csv_words(self) -> list[str]:
        n = sum(math.prod(shape) for shape in self.fields.values())
        return [",", *[","] * (n - 1), "\n"]

    def text(self, keys: list[str], times: Numbers, found: dict[str, Numbers]) -> bytes:
        """The lines of all estimates."""
        n = len(keys)
        if n == 0:
            return b""
        flat = np.concatenate([found[name].reshape(n, -1) for name in self.fields], axis=1)
        quoted = {key: self._quoted(key) for key in set(keys)}
        pairs = zip(keys, times.tolist(), strict=True)
        if self.json:
            heads = [f'{{"key":{quoted[k]},"time":{t!r}' for k, t in pairs]
        else:
            heads = [f"{quoted[k]},{t!r}" for k, t in pairs]
        if self.digits > 15:
            return self._exactly(heads, flat)
        return self._quickly(heads, flat)

    def _quoted(self, key: str) -> str:
        if self.json:
            return json.dumps(key)
        if any(mark in key for mark in ',"\r\n'):
            return '"' + key.replace('"', '""') + '"'
        return key

    def _exactly(self, heads: list[str], flat: Numbers) -> bytes:
        nothing = "null" if self.json else ""
        lines = []
        for head, row in zip(heads, flat.tolist(), strict=True):
            cells = [repr(v) if math.isfinite(v) else nothing for v in row]
            pairs = zip(self.words, cells, strict=False)
            lines.append(head + "".join(w + c for w, c in pairs) + self.words[-1])
        return "".join(lines).encode()

    def _quickly(self, heads: list[str], flat: Numbers) -> bytes:
        loop = loops("text")
        letters = "".join(heads)
        joined = letters.encode()
        starts = heads if letters.isascii() else [head.encode() for head in heads]
        words = [word.encode() for word in self.words]
        # A number has at most a sign, 15 digits or 16 before the point, a point, and e-308.
        room = len(joined) + len(heads) * sum(map(len, words)) + flat.size * 26
        out = np.empty(room, dtype=np.uint8)
        length = loop.put_lines(
            out,
            _bytes(joined),
            np.cumsum(np.fromiter(map(len, starts), dtype=np.int64, count=len(heads))),
            np.ascontiguousarray(flat),
            self.twins,
            _bytes(b"".join(words)),
            np.cumsum(np.array([len(w) for w in words], dtype=np.int64)),
            self.digits,
            loop.POWERS,
            _bytes(b"null" if self.json else b""),
        )
        return out[:length].tobytes()


def _bytes(text: bytes) -> Numbers:
    return np.frombuffer(bytearray(text), dtype=np.uint8)


def _nested(shape: tuple[int, ...]) -> str:
    if not shape:
        return "#"
    return "[" + ",".join([_nested(shape[1:])] * shape[0]) + "]"
