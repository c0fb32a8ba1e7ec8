"""CSV, TSV, TUM: text tables in chunks, quick where all is well, exact where it is not.

A block of lines goes through numpy's reader. If that stumbles, or the block holds anything but
plain numbers, the same lines are read again one by one: gaps in other words, quotes and dates are
understood there, and a cell that is no number is named with its line.
"""

from __future__ import annotations

import csv
import io
import math
import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from kgmrf._types import Numbers
from kgmrf.io.columns import TUM, Meaning, meaning
from kgmrf.io.source import Chunk, DataError, Kind, Source

GAPS = {"", "nan", "na", "n/a", "null", "none", "-"}
"""What a missing value may be called, in any case."""
LONGEST_LINE = 16_000_000
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
    with open(path, "rb") as file:
        first, start, line = _first_line(file, path)
        second = file.readline(LONGEST_LINE)
    delimiter = _delimiter(first, path)
    cells = _split(first, delimiter)
    named = not all(_is_number(cell) for cell in cells)
    tum = not named and len(cells) == 8 and delimiter is None
    if named:
        header = [cell.strip() for cell in cells]
        header = [cell or f"column {k + 1}" for k, cell in enumerate(header)]
        start, line = start + len(first), line + 1
        if not second.strip():
            raise DataError(f"{path} has a header and no data")
    elif (tum or path.suffix.lower() == ".tum") and kind in (None, "rotation"):
        if len(cells) != 8:
            raise DataError(
                f"{path}, line {line}: a TUM file has 8 columns (time, position, quaternion "
                f"x y z w), this has {len(cells)}"
            )
        header, named = list(TUM), True
        columns = TUM[4:] if columns is None else columns
    else:
        header = [str(k) for k in range(len(cells))]
    what = meaning(header, named=named, kind=kind, time=time, columns=columns, where=str(path))
    table = _Table(path, header, delimiter, what, start, line)
    return Source(path, what.kind, what.names, table.chunks, word="line")


def _first_line(file: IO[bytes], path: Path) -> tuple[bytes, int, int]:
    """The first line that is neither empty nor a comment, where it starts, and its number."""
    number, start = 1, 0
    while True:
        line = file.readline(LONGEST_LINE)
        if not line:
            raise DataError(f"{path} is empty")
        if len(line) == LONGEST_LINE:
            raise DataError(f"{path}, line {number}: longer than any table has, is this text?")
        if b"\0" in line:
            raise DataError(f"{path}, line {number}: holds a zero byte, so this is no text")
        if line.strip() and not line.lstrip().startswith(b"#"):
            return line, start, number
        start += len(line)
        number += 1


def _delimiter(line: bytes, path: Path) -> bytes | None:
    """Tab, semicolon or comma, whichever is there; otherwise white space (None)."""
    if path.suffix.lower() == ".tsv":
        return b"\t"
    for candidate in (b"\t", b";", b","):
        if candidate in line:
            return candidate
    return None


def _split(line: bytes, delimiter: bytes | None) -> list[str]:
    text = line.decode("utf-8-sig", errors="replace").rstrip("\r\n")
    if delimiter is None:
        return text.split()
    try:
        return next(csv.reader([text], delimiter=delimiter.decode()), [])
    except csv.Error:
        return text.split(delimiter.decode())


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return cell.strip().lower() in GAPS
    return True


class _Table:
    """One pass over the lines of a file per call of `chunks`."""

    def __init__(
        self,
        path: Path,
        header: list[str],
        delimiter: bytes | None,
        what: Meaning,
        start: int,
        line: int,
    ) -> None:
        self.path = path
        self.header = header
        self.delimiter = delimiter
        self.what = what
        self.start = start
        self.line = line

    def chunks(self) -> Iterator[Chunk]:
        size = max(os.path.getsize(self.path), 1)
        line, last = self.line, -math.inf
        with open(self.path, "rb") as file:
            file.seek(self.start)
            while block := file.read(BLOCK):
                block += file.readline(LONGEST_LINE)
                if len(block) >= BLOCK + LONGEST_LINE:
                    raise DataError(f"{self.path}: a line beyond line {line} has no end")
                found = self._quick(block, line)
                times, values, places = self._exact(block, line) if found is None else found
                line += block.count(b"\n") + (not block.endswith(b"\n"))
                if len(values):
                    self._check(times, values, places, last)
                    last = last if times is None else float(times[-1])
                    matrices = self.what.assemble(values)
                    if matrices.ndim > 2 and np.isinf(matrices).any():
                        k = int(np.argmax(np.isinf(matrices).any(axis=(1, 2))))
                        raise DataError(
                            f"{self.path}, line {places[k]}: a quaternion of length zero; "
                            "leave its cells empty where nothing was seen"
                        )
                    yield Chunk(matrices, times, places, min(1.0, file.tell() / size))

    def _quick(self, block: bytes, line: int) -> tuple[Numbers | None, Numbers, Numbers] | None:
        """The block through numpy's reader; None if it is not plain numbers and single newlines."""
        if b'"' in block or b"#" in block or b"\n\n" in block or b"\n\r" in block:
            return None
        if block.startswith((b"\n", b"\r")) or b"_" in block or b"\0" in block:
            return None
        what, comma = self.what, self.delimiter
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
        return times, table[:, list(what.used)], places

    def _exact(self, block: bytes, line: int) -> tuple[Numbers | None, Numbers, Numbers]:
        stamps, rows, places = [], [], []
        what = self.what
        for number, raw in enumerate(block.split(b"\n"), line):
            if not raw.strip() or raw.lstrip().startswith(b"#"):
                continue
            cells = _split(raw, self.delimiter)
            if len(cells) != len(self.header):
                raise DataError(
                    f"{self.path}, line {number}: {len(cells)} cells where the table has "
                    f"{len(self.header)} columns"
                )
            if what.time is not None:
                stamps.append(self._time(cells[what.time], number))
            rows.append([self._number(cells[k], number, k) for k in what.used])
            places.append(number)
        values = np.asarray(rows, dtype=float).reshape(len(rows), len(what.used))
        times = None if what.time is None else np.asarray(stamps, dtype=float)
        return times, values, np.asarray(places, dtype=int)

    def _number(self, cell: str, line: int, column: int) -> float:
        try:
            if "_" in cell:
                raise ValueError
            return float(cell)
        except ValueError:
            if cell.strip().lower() in GAPS:
                return math.nan
            shown = cell if len(cell) <= 40 else cell[:37] + "..."
            raise DataError(
                f"{self.path}, line {line}, column {self.header[column]!r}: {shown!r} is not a "
                "number; choose other columns, or leave the cell empty if it is missing"
            ) from None

    def _time(self, cell: str, line: int) -> float:
        try:
            return float(cell)
        except ValueError:
            pass
        try:
            stamp = np.datetime64(cell.strip().removesuffix("Z"), "ns")
            seconds = float(stamp.astype(np.int64)) * 1e-9
            if not np.isnat(stamp):
                return seconds
        except ValueError:
            pass
        shown = cell if len(cell) <= 40 else cell[:37] + "..."
        raise DataError(
            f"{self.path}, line {line}: the time {shown!r} is neither a number nor a date"
        )

    def _check(self, times: Numbers | None, values: Numbers, places: Numbers, last: float) -> None:
        where = f"{self.path}, line"
        if np.isinf(values).any():
            i, j = np.argwhere(np.isinf(values))[0]
            name = self.header[self.what.used[j]]
            raise DataError(f"{where} {places[i]}, column {name!r}: infinite")
        if times is None:
            return
        check_times(times, places, last, where)


def check_times(times: Numbers, places: Numbers, last: float, where: str) -> None:
    """Every frame has a time, and no time lies before the one above it."""
    if not np.isfinite(times).all():
        k = int(np.argmin(np.isfinite(times)))
        raise DataError(f"{where} {places[k]}: no time; every row needs one")
    before = np.append(last, times[:-1])
    if (times < before).any():
        k = int(np.argmax(times < before))
        raise DataError(
            f"{where} {places[k]}: the time {times[k]:.15g} lies before the {before[k]:.15g} above "
            "it; sort the file by time"
        )
