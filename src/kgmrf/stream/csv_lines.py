"""CSV rows of a stream, read a block at a time."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kgmrf._names import is_clock
from kgmrf.io.columns import quaternion_of, tidy
from kgmrf.kernels.engine import loops
from kgmrf.stream.pool import Kind
from kgmrf.stream.records import (
    LARGEST_D,
    Clock,
    Parsed,
    as_parsed,
    find_key,
    find_time,
    nothing,
    room,
    too_large,
    turned,
)
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
        numbers = sum(_is_cell(name) for name in names)
        plain = any(name.lower() == "key" or is_clock(name) for name in names)
        if numbers == len(names) or (not plain and not any(self.wish) and 2 * numbers > len(names)):
            raise LineError(
                row, "is data, not a header; the first line names the columns: key,time,a,b"
            )
        if len(set(names)) < len(names):
            raise LineError(row, "the header has a column twice")
        key, time = find_key(names, self.wish[0], row), find_time(names, self.wish[1], row)
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
        if not self.used or len(self.used) > LARGEST_D:
            raise LineError(row, f"the header has {len(self.used)} channels")
        self.header = names

    def parse(self, lines: list[bytes], *, stop: bool = False) -> Parsed:
        """All rows that can be used, and what is wrong with the others."""
        first = 0
        if not self.header:
            while first < len(lines) and not lines[first].strip():
                first += 1
            if first == len(lines):
                return nothing({})
            self._learn(_cells(lines[first]), first)
            first += 1
        elif lines and [cell.strip() for cell in _cells(lines[0])] == self.header:
            first = 1  # the same header again, after a restart
        quick = self._quickly(lines, first)
        if quick is not None:
            return quick
        keys, times, values, rows = [], [], [], []
        faults: dict[int, str] = {}
        width, key, time, used = len(self.header), self.key, self.time, self.used
        dated = bool(self.clock.style)
        for row in range(first, len(lines)):
            line = lines[row].rstrip(b"\r")
            if not line or line.isspace():
                continue
            cells = line.split(b",") if b'"' not in line and not dated else None
            try:
                if cells is None or len(cells) != width:
                    raise ValueError
                numbers = [float(cells[k]) for k in used]
                stamp = math.nan if time is None else self.clock.of(float(cells[time]))
                name = "" if key is None else cells[key].decode()
            except ValueError:
                try:
                    name, stamp, numbers = self._slowly(line)
                except ValueError as error:
                    faults[row] = str(error)
                    dated = bool(self.clock.style)
                    continue
                dated = bool(self.clock.style)
            keys.append(name)
            times.append(stamp)
            values.append(numbers)
            rows.append(row)
        table = np.array(values, dtype=float).reshape(len(rows), len(used))
        wrong = too_large(table)
        if self.quaternion:
            table, zero = turned(np.where(np.isinf(table), 0.0, table))
            wrong = {**zero, **wrong}
        counts = np.full(len(rows), math.nan)
        stamps, where = np.array(times, dtype=float), np.array(rows, dtype=np.int64)
        parsed = Parsed(keys, stamps, table, counts, where, faults)
        if wrong:
            faults.update({rows[k]: reason for k, reason in wrong.items()})
            keep = np.ones(len(rows), dtype=bool)
            keep[list(wrong)] = False
            parsed = parsed.select(np.flatnonzero(keep))
        return parsed

    def _quickly(self, lines: list[bytes], first: int) -> Parsed | None:
        """Rows of plain numbers with a key and a time; None if there is anything else."""
        if self.key is None or self.time is None or self.quaternion or first == len(lines):
            return None
        if self.clock.style:
            return None
        loop = loops("text")
        columns = np.full(len(self.header), loop.IGNORED, dtype=np.int64)
        columns[self.used] = np.arange(len(self.used))
        columns[[self.key, self.time]] = loop.KEY, loop.TIME
        text = b"\n".join(lines[first:])
        found = room(len(lines) - first, len(self.used))
        buffer = np.frombuffer(bytearray(text), dtype=np.uint8)
        n = loop.take_csv(buffer, columns, loop.POWERS, *found)
        if n != len(lines) - first:
            return None
        self.clock.style = ""
        return as_parsed(text, found, first)

    def _slowly(self, line: bytes) -> tuple[str, float, list[float]]:
        cells = _cells(line)
        if len(cells) != len(self.header):
            raise ValueError(f"{len(cells)} cells where the header has {len(self.header)}")
        stamp = math.nan if self.time is None else self._stamp(cells[self.time])
        numbers = [self._cell(cells[k], self.header[k]) for k in self.used]
        return "" if self.key is None else cells[self.key], stamp, numbers

    def _stamp(self, cell: str) -> float:
        name = self.header[self.time or 0] or "time"
        try:
            return self.clock.of(float(cell) if _is_cell(cell) else cell)
        except ValueError as error:
            raise ValueError(f"column {name!r}: {error}") from None

    def _cell(self, cell: str, name: str) -> float:
        try:
            return float(cell)
        except ValueError:
            if cell.strip().lower() in GAPS:
                return math.nan
            hint = f"; if it names the track, give --key {name}" if self.key is None else ""
            raise ValueError(f"column {name!r}: {cell[:40]!r} is not a number{hint}") from None


def _cells(line: bytes) -> list[str]:
    text = line.decode("utf-8-sig", errors="replace").rstrip("\r\n")
    try:
        return next(csv.reader([text]), [])
    except csv.Error:
        return text.split(",")


def _is_cell(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
