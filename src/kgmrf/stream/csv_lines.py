"""CSV rows of a stream, read a block at a time."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kgmrf._names import is_clock
from kgmrf._types import Numbers
from kgmrf.io.columns import quaternion_of, tidy
from kgmrf.io.header import plain_table
from kgmrf.stream import records as rec
from kgmrf.stream.pool import Kind
from kgmrf.stream.records import Clock, Parsed
from kgmrf.stream.settings import LineError

GAPS = {"", "nan", "na", "null", "none"}


class CsvReader:
    """A header, then rows: key and time by name, all other columns are channels.

    A first column without a name is the time, if no other is. Columns qx, qy, qz, qw are a
    quaternion instead. Empty cells were not seen.

    >>> reader = CsvReader()
    >>> parsed = reader.parse([b"sensor,ts,a,b", b"k1,2024-03-01,1,", b"k1,soon,1,2"])
    >>> parsed.keys, parsed.times.tolist(), parsed.values.tolist()
    (['k1'], [1709251200.0], [[1.0, nan]])
    >>> parsed.faults
    {2: "column 'ts': is 'soon', not a number and not an ISO 8601 date"}
    """

    format = "csv"

    def __init__(
        self,
        header: Sequence[str] | None = None,
        *,
        key: str | None = None,
        time: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.header: list[str] = []
        self.wish = (key, time)
        self.clock = clock or Clock()
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
        key, time = self.wish
        return {
            "format": self.format,
            "header": self.header,
            "key": key,
            "time": time,
            "dates": self.clock.style,
        }

    def _learn(self, header: list[str], row: int) -> None:
        names = [str(name).strip() for name in header]
        numbers = sum(_number(name) is not None for name in names)
        plain = any(name.lower() == "key" or is_clock(name) for name in names)
        if numbers == len(names) or (not plain and not any(self.wish) and 2 * numbers > len(names)):
            raise LineError(
                row, "is data, not a header; the first line names the columns: key,time,a,b"
            )
        if len(set(names)) < len(names):
            raise LineError(row, "the header has a column twice")
        key, time = rec.find_key(names, self.wish[0], row), rec.find_time(names, self.wish[1], row)
        self.key = None if key is None else names.index(key)
        # A first column without a name is the index of a data frame.
        index = tidy(names)[1]
        self.time = index if time is None else names.index(time)
        self.used = [k for k in range(len(names)) if k not in (self.key, self.time, index)]
        turns = quaternion_of(names)
        self.quaternion = bool(turns)
        if len(turns) > 1:
            raise LineError(row, "the header has more than one quaternion")
        if self.quaternion:
            self.used = list(turns[0])
        if not self.used or len(self.used) > rec.LARGEST_D:
            raise LineError(row, f"the header has {len(self.used)} channels")
        self.header = names

    def parse(self, lines: list[bytes], *, stop: bool = False) -> Parsed:
        """All rows that can be used, and what is wrong with the others."""
        first = 0
        if not self.header:
            while first < len(lines) and not lines[first].strip():
                first += 1
            if first == len(lines):
                return rec.nothing({})
            try:
                self._learn(_cells(lines[first]), first)
            except LineError:
                raise
            except ValueError as error:
                raise LineError(first, str(error)) from None
            first += 1
        elif lines and self._is_header(lines[0]):
            first = 1  # the same header again, after a restart
        faults: dict[int, str] = {}
        plain = self._plain(lines[first:])
        if plain is not None:
            keys, stamps, table = plain
            where = np.arange(first, len(lines))
        else:
            keys, times, values, rows = [], [], [], []
            for row in range(first, len(lines)):
                try:
                    if lines[row].strip():
                        name, stamp, numbers = self._row(lines[row])
                        keys.append(name)
                        times.append(stamp)
                        values.append(numbers)
                        rows.append(row)
                except ValueError as error:
                    faults[row] = str(error)
            table = np.array(values, dtype=float).reshape(len(rows), len(self.used))
            stamps, where = np.array(times, dtype=float), np.array(rows, dtype=np.int64)
        counts = np.full(len(keys), math.nan)
        parsed = Parsed(keys, stamps, table, counts, where, faults)
        return rec.gathered(parsed, quaternion=self.quaternion)

    def _plain(self, lines: list[bytes]) -> tuple[list[str], Numbers, Numbers] | None:
        """Keys, times and values of rows in which all but the key are plain numbers, or None."""
        text = b"\n".join(lines)
        if self.clock.style or b'"' in text:
            return None
        if b"\r" in text:
            lines = [line.rstrip(b"\r") for line in lines]
        keys, key, columns = [""] * len(lines), self.key, list(range(len(self.header)))
        try:
            if key is not None:
                cells = [line.split(b",", key + 1) for line in lines]
                keys = [row.pop(key).decode() for row in cells]
                lines = [b",".join(row) for row in cells]
                del columns[key]
            table = plain_table(b"\n".join(lines))
        except (UnicodeDecodeError, IndexError):
            return None
        if table is None or table.shape != (len(keys), len(columns)):
            return None
        stamps = np.full(len(keys), math.nan)
        if self.time is not None:
            stamps = table[:, columns.index(self.time)]
            if not np.isfinite(stamps).all():
                return None
            self.clock.style = ""
        return keys, stamps, table[:, [columns.index(k) for k in self.used]]

    def _is_header(self, line: bytes) -> bool:
        try:
            return [cell.strip() for cell in _cells(line)] == self.header
        except ValueError:
            return False

    def _row(self, line: bytes) -> tuple[str, float, list[float]]:
        cells = _cells(line)
        if len(cells) != len(self.header):
            raise ValueError(f"{len(cells)} cells where the header has {len(self.header)}")
        stamp = math.nan if self.time is None else self._stamp(cells[self.time])
        numbers = [self._cell(cells[k], self.header[k]) for k in self.used]
        return "" if self.key is None else cells[self.key], stamp, numbers

    def _stamp(self, cell: str) -> float:
        name = self.header[self.time or 0] or "time"
        number = _number(cell)
        try:
            return self.clock.of(cell if number is None else number)
        except ValueError as error:
            raise ValueError(f"column {name!r}: {error}") from None

    def _cell(self, cell: str, name: str) -> float:
        number = _number(cell)
        if number is not None:
            return number
        if cell.strip().lower() in GAPS:
            return math.nan
        hint = f"; if it names the track, give --key {name}" if self.key is None else ""
        raise ValueError(f"column {name!r}: {cell[:40]!r} is not a number{hint}")


def _cells(line: bytes) -> list[str]:
    """The cells of one row; ValueError if it is none."""
    try:
        return next(csv.reader([line.decode().rstrip("\r\n")], strict=True), [])
    except UnicodeDecodeError:
        raise ValueError("not UTF-8") from None
    except csv.Error as error:
        raise ValueError(f"not CSV: {error}") from None


def _number(cell: str) -> float | None:
    """A number as other programs write it: Python's own also takes 1_000 and digits of any script.

    >>> _number("1e3"), _number("1_000")
    (1000.0, None)
    """
    try:
        return float(cell) if cell.isascii() and "_" not in cell else None
    except ValueError:
        return None
