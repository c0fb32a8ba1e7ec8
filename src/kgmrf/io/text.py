"""CSV, TSV, TUM: text tables in chunks.

A block of plain numbers is read in one go. Any other block is read line by line: missing values,
quotes and dates are understood there, and a cell that is not a number is named with its line.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kgmrf._types import Numbers
from kgmrf.io import dates
from kgmrf.io import header as top_of
from kgmrf.io.columns import TUM, Meaning, meaning, table_of, tidy
from kgmrf.io.dates import number
from kgmrf.io.source import Chunk, DataError, Kind, Source

BLOCK = 4_000_000
"""Bytes of text that are parsed at a time."""


def open_text(path: Path, *, kind: Kind | None = None, **said: Any) -> Source:
    """A text table: delimiter and header are found by looking at its first lines."""
    top = top_of.look(path)
    delimiter = top_of.delimiter_of(top.first, path)
    rows = [top_of.split(raw, delimiter) for raw in (top.first, *top.rows)]
    cells = rows[0]
    comma = top_of.decimal_comma(rows, delimiter)
    header, index = top_of.commented(top, cells, delimiter, comma)
    start, line = top.start, top.line
    named = bool(header) or not top_of.is_data(cells, comma)
    tum = not named and len(cells) == 8 and delimiter is None
    if header:
        pass
    elif named:
        header, index = tidy(cells)
        start, line, rows = start + len(top.first), line + 1, rows[1:]
        if not rows:
            raise DataError(f"{path} has a header and no data")
    elif (tum or top_of.suffix(path) == ".tum") and kind in (None, "rotation"):
        if len(cells) != 8:
            raise DataError(
                f"{path}, line {line}: a TUM file has 8 columns (time, position, quaternion "
                f"x y z w), this has {len(cells)}"
            )
        header, named = list(TUM), True
    else:
        header = [str(k) for k in range(len(cells))]
    rows = [row for row in rows if len(row) == len(header)]
    head = b" ".join([*top.comments, top.first]).decode("latin-1")
    words: dict[str, Any] = {"index": index, "named": named, "comma": comma, "head": head}
    what = meaning(header, rows, str(path), kind=kind, **words, **said)
    if tum and what.time is not None:
        what.about["per_second"] = 1.0
    if comma:
        what.about["remarks"] += ("numbers such as 1,5 are read with a decimal comma",)
    lines = _Table(path, header, delimiter, what, start, line, comma)
    return table_of(path, header, what, lines.pieces, "line")


@dataclass(frozen=True)
class _Table:
    """One pass over the lines of a file per call of `pieces`."""

    path: Path
    header: list[str]
    delimiter: bytes | None
    what: Meaning
    start: int
    line: int
    comma: bool

    def pieces(self) -> Iterator[Chunk]:
        size = max(os.path.getsize(self.path), 1)
        line, blank = self.line, b""
        with top_of.opened(self.path) as (file, packed):
            file.seek(self.start)
            while block := file.read(BLOCK):
                block = blank + block + file.readline(top_of.LONGEST_LINE)
                if len(block) >= BLOCK + top_of.LONGEST_LINE:
                    raise DataError(f"{self.path}: a line beyond line {line} has no end")
                # Blank lines at the end wait for what follows them.
                text = block.rstrip(b" \r\n")
                blank = block[len(text) :].partition(b"\n")[2] if text else block
                if not text:
                    continue
                found = self._plain(text, line)
                times, values, places = self._exact(text, line) if found is None else found
                line += text.count(b"\n") + 1
                if len(values):
                    yield Chunk(values, times, places, min(1.0, packed.tell() / size))

    def _plain(self, text: bytes, line: int) -> tuple[Numbers | None, Numbers, Numbers] | None:
        """The numbers of a block in which there is nothing else; None for any other block."""
        what = self.what
        if self.comma:
            if b"." in text:
                return None
            text = text.replace(b",", b".")
        elif self.delimiter != b"," and b"," in text:
            return None  # part of a cell
        if self.delimiter is None:
            text = b"\n".join(b",".join(row.split()) for row in text.split(b"\n"))
        elif self.delimiter != b",":
            text = text.replace(self.delimiter, b",")
        table = top_of.plain_table(text.replace(b"\r\n", b"\n"))
        if table is None or table.shape[1:] != (len(self.header),):
            return None
        times = None if what.time is None else table[:, what.time]
        if times is not None and what.rest is not None:
            times = times + 1e-9 * table[:, what.rest]
        if times is not None and what.by_day:
            times = dates.days(times)
            if np.isnan(times).any():
                return None
        return times, table[:, list(what.used)], line + np.arange(len(table))

    def _exact(self, text: bytes, line: int) -> tuple[Numbers | None, Numbers, Numbers]:
        stamps, rows, places = [], [], []
        what, width = self.what, len(self.header)
        for place, raw in enumerate(text.split(b"\n"), line):
            # In a table of one column a blank line is a gap.
            if top_of.is_comment(raw) or (width > 1 and not raw.strip()):
                continue
            cells = top_of.split(raw, self.delimiter) if raw.strip() else [""]
            if len(cells) != width:
                raise DataError(
                    f"{self.path}, line {place}: {len(cells)} cells where the table has "
                    f"{width} columns"
                )
            if what.time is not None:
                stamp = self._time(cells[what.time], place)
                if what.rest is not None:
                    stamp += 1e-9 * self._number(cells[what.rest], place, what.rest)
                stamps.append(stamp)
            rows.append([self._number(cells[k], place, k) for k in what.used])
            places.append(place)
        values = np.asarray(rows, dtype=float).reshape(len(rows), len(what.used))
        times = None if what.time is None else np.asarray(stamps, dtype=float)
        return times, values, np.asarray(places, dtype=int)

    def _number(self, cell: str, line: int, column: int) -> float:
        found = number(cell, self.comma)
        if found is None:
            also = " (others here have a decimal comma)" if self.comma and "." in cell else ""
            raise DataError(
                f"{self.path}, line {line}, column {self.header[column]!r}: {_shown(cell)!r} is "
                f"not a number{also}; choose other columns with --columns, or leave the cell empty "
                "if it is missing"
            )
        return found

    def _time(self, cell: str, line: int) -> float:
        where, shown = f"{self.path}, line {line}", _shown(cell)
        stamp = number(cell, self.comma)
        if stamp is None:
            stamp = dates.seconds(cell)
            if stamp is None:
                raise DataError(
                    f"{where}: the time {shown!r} is neither a number nor a date such as "
                    "2024-01-31 or 2024-01-31T10:00:00; choose another clock with --time"
                )
        elif self.what.by_day:
            stamp = float(dates.days(np.asarray([stamp]))[0])
            if math.isnan(stamp):
                raise DataError(
                    f"{where}: {shown!r} is not a day such as 20240131, as in the rows above"
                )
        return stamp


def _shown(cell: str) -> str:
    return cell if len(cell) <= 40 else cell[:37] + "..."
