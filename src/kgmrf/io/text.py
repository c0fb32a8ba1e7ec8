"""CSV, TSV, TUM: text tables in chunks, quick where all is well, exact where it is not.

A block of lines goes through numpy's reader. If that stumbles, or the block holds anything but
plain numbers, the same lines are read again one by one: gaps in other words, quotes and dates are
understood there, and a cell that is no number is named with its line.
"""

from __future__ import annotations

import io
import math
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kgmrf._types import Numbers
from kgmrf.io import dates
from kgmrf.io import header as top_of
from kgmrf.io.columns import TUM, Meaning, meaning, tidy
from kgmrf.io.source import Chunk, DataError, Kind, Piece, Source, checked

BLOCK = 4_000_000
"""Bytes of text that are parsed at a time."""


def open_text(
    path: Path,
    *,
    kind: Kind | None = None,
    time: str | None = None,
    columns: Sequence[str] | None = None,
) -> Source:
    """A text table: delimiter and header are found by looking at its first lines."""
    top = top_of.look(path)
    delimiter = top_of.delimiter_of(top.first, path)
    cells = top_of.split(top.first, delimiter)
    comma = top_of.decimal_comma(top, delimiter)
    header, index = top_of.commented(top, cells, delimiter, comma)
    start, line = top.start, top.line
    named = bool(header) or not top_of.is_data(cells, comma)
    rows = [top_of.split(raw, delimiter) for raw in (top.first, *top.rows)]
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
    what = meaning(
        header,
        named=named,
        kind=kind,
        time=time,
        columns=columns,
        where=str(path),
        index=index,
        grows=lambda k: top_of.grows([row[k] for row in rows]),
        dated=top_of.dated(rows),
    )
    clock = [] if what.time is None else [row[what.time] for row in rows]
    by_day = what.time is not None and dates.are_days(header[what.time], clock)
    style = "D" if by_day else ""
    if clock and dates.seconds(clock[0]) is not None:
        style = dates.style(clock)
    remarks = what.remarks
    if comma:
        remarks = (*remarks, "numbers such as 1,5 are read with a decimal comma")
    try:
        top.first.decode("utf-8")
    except UnicodeDecodeError:
        remarks = (*remarks, "the header is not UTF-8: read as Latin-1; save it as UTF-8")
    table = _Table(path, header, delimiter, what, start, line, comma, by_day)
    second = 1.0 if style or tum or what.rest is not None else None
    if second is None and clock:
        head = b" ".join([*top.comments, top.first]).decode("latin-1")
        second = dates.per_second(head, top_of.number(clock[0], comma) or 0.0)
    about: dict[str, Any] = {"remarks": remarks, "dates": style, "per_second": second}
    if what.kind == "covariance" and "n_samples" in header and rows:
        count = top_of.number(rows[0][header.index("n_samples")], comma) or math.nan
        about["n_samples"] = count if 0 < count < math.inf else None
    return Source(path, what.kind, what.names, table.chunks, word="line", **about)


@dataclass(frozen=True)
class _Table:
    """One pass over the lines of a file per call of `chunks`."""

    path: Path
    header: list[str]
    delimiter: bytes | None
    what: Meaning
    start: int
    line: int
    comma: bool
    by_day: bool

    def chunks(self) -> Iterator[Chunk]:
        what = self.what
        column = lambda j: f", column {self.header[what.used[j]]!r}"  # noqa: E731
        where = f"{self.path}, line"
        return checked(self._pieces(), where, column, what.assemble, positions=what.positions)

    def _pieces(self) -> Iterator[Piece]:
        size = max(os.path.getsize(self.path), 1)
        line = self.line
        blank: list[int] = []
        with top_of.opened(self.path) as (file, packed):
            file.seek(self.start)
            while block := file.read(BLOCK):
                block += file.readline(top_of.LONGEST_LINE)
                if len(block) >= BLOCK + top_of.LONGEST_LINE:
                    raise DataError(f"{self.path}: a line beyond line {line} has no end")
                found = self._quick(block, line)
                times, values, places = self._exact(block, line) if found is None else found
                line += block.count(b"\n") + (not block.endswith(b"\n"))
                if len(self.header) == 1:
                    values, places, blank = _blanks(values, places, block, line, blank)
                if len(values):
                    yield Piece(values, times, places, min(1.0, packed.tell() / size))

    def _quick(self, block: bytes, line: int) -> tuple[Numbers | None, Numbers, Numbers] | None:
        """The block through numpy's reader; None if it is not plain numbers and single newlines."""
        if b'"' in block or b"#" in block or b"\n\n" in block or b"\n\r" in block:
            return None
        if block.startswith((b"\n", b"\r")) or b"_" in block or b"\0" in block or b"%" in block:
            return None
        what, comma = self.what, self.delimiter
        if self.comma:
            if b"." in block:
                return None
            block = block.replace(b",", b".")
        if comma not in (None, b"\t"):
            assert comma is not None
            if comma * 2 in block or comma + b"\n" in block or b"\n" + comma in block:
                nan = comma + b"nan"
                for _ in range(2):
                    block = block.replace(comma * 2, nan + comma)
                block = block.replace(comma + b"\n", nan + b"\n")
                block = block.replace(b"\n" + comma, b"\nnan" + comma)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                table = np.loadtxt(
                    io.BytesIO(block),
                    delimiter=None if comma is None else comma.decode(),
                    comments=None,
                    ndmin=2,
                    encoding="latin-1",
                )
        except (ValueError, UserWarning):
            return None
        if table.shape[1] != len(self.header):
            return None
        places = line + np.arange(len(table))
        times = None if what.time is None else table[:, what.time]
        if times is not None and what.rest is not None:
            times = times + 1e-9 * table[:, what.rest]
        if times is not None and self.by_day:
            times = dates.days(times)
            if np.isnan(times).any():
                return None
        return times, table[:, list(what.used)], places

    def _exact(self, block: bytes, line: int) -> tuple[Numbers | None, Numbers, Numbers]:
        stamps, rows, places = [], [], []
        what = self.what
        for number, raw in enumerate(block.split(b"\n"), line):
            if not raw.strip() or top_of.is_comment(raw):
                continue
            cells = top_of.split(raw, self.delimiter)
            if len(cells) != len(self.header):
                raise DataError(
                    f"{self.path}, line {number}: {len(cells)} cells where the table has "
                    f"{len(self.header)} columns"
                )
            if what.time is not None:
                stamp = self._time(cells[what.time], number)
                if what.rest is not None:
                    stamp += 1e-9 * self._number(cells[what.rest], number, what.rest)
                stamps.append(stamp)
            rows.append([self._number(cells[k], number, k) for k in what.used])
            places.append(number)
        values = np.asarray(rows, dtype=float).reshape(len(rows), len(what.used))
        times = None if what.time is None else np.asarray(stamps, dtype=float)
        return times, values, np.asarray(places, dtype=int)

    def _number(self, cell: str, line: int, column: int) -> float:
        found = top_of.number(cell, self.comma)
        if found is None:
            raise DataError(
                f"{self.path}, line {line}, column {self.header[column]!r}: {_shown(cell)!r} is "
                f"not a number; {self._remedy(cell.strip().lower())}"
            )
        return found

    def _remedy(self, word: str) -> str:
        """What a cell that is no number looks like, and what helps."""
        if re.fullmatch(r"[+-]?[\d.,]+\s*%", word):
            return "it looks like a percentage: write 0.05 for 5 %"
        if self.comma and "." in word:
            return "other cells have a decimal comma: use one kind of number, without thousands"
        if re.fullmatch(r"[+-]?\d{1,3}(?:[,' \u00a0]\d{3})+(?:\.\d*)?", word):
            return "it looks like thousands apart: write 1234.5 for 1,234.5"
        if top_of.DECIMAL_COMMA.fullmatch(word):
            return "a decimal comma? Write 1.5 for 1,5"
        if word[0] in "$€£¥" or word[-1] in "$€£¥":
            return "it looks like money: write the number alone"
        if dates.seconds(word) is not None:
            return "it is a date: choose channels with --columns, or the clock with --time"
        return "choose other columns with --columns, or leave the cell empty if it is missing"

    def _time(self, cell: str, line: int) -> float:
        where, shown = f"{self.path}, line {line}", _shown(cell)
        stamp = top_of.number(cell, self.comma)
        if stamp is None:
            stamp = dates.seconds(cell)
            if stamp is None:
                raise DataError(
                    f"{where}: the time {shown!r} is neither a number nor a date such as "
                    "2024-01-31 or 2024-01-31T10:00:00; choose another clock with --time"
                )
        elif self.by_day:
            stamp = float(dates.days(np.asarray([stamp]))[0])
            if math.isnan(stamp):
                raise DataError(
                    f"{where}: {shown!r} is no day such as 20240131, as the rows above have them"
                )
        return stamp


def _shown(cell: str) -> str:
    return cell if len(cell) <= 40 else cell[:37] + "..."


def _blanks(
    values: Numbers, places: Numbers, block: bytes, after: int, before: list[int]
) -> tuple[Numbers, Numbers, list[int]]:
    """In a table of one column a blank line is a gap, unless nothing follows.

    after: number of the line behind the block. before: blank lines at the end of the block before.
    Returns the values and places with the gaps, and the blank lines at the end of this block.
    """
    lines = block.split(b"\n")
    if not lines[-1]:
        lines.pop()
    first = after - len(lines)
    blank = before + [first + k for k, raw in enumerate(lines) if not raw.strip()]
    if not blank:
        return values, places, []
    last = int(places[-1]) if len(places) else -1
    inside = [place for place in blank if place < last]
    every = np.append(np.asarray(inside, dtype=int), places)
    gaps = np.full((len(inside), values.shape[1]), np.nan)
    order = np.argsort(every, kind="stable")
    return np.vstack([gaps, values])[order], every[order], blank[len(inside) :]
