"""CSV, TSV, TUM: text tables in chunks, quick where all is well, exact where it is not.

A block of lines goes through numpy's reader. If that stumbles, or the block holds anything but
plain numbers, the same lines are read again one by one: gaps in other words, quotes and dates are
understood there, and a cell that is no number is named with its line.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import os
import re
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import IO, NamedTuple, cast

import numpy as np

from kgmrf._types import Numbers
from kgmrf.io import dates
from kgmrf.io.columns import TUM, Meaning, meaning, quaternion_of, tidy
from kgmrf.io.source import Chunk, DataError, Kind, Source

GAPS = {"", "nan", "na", "n/a", "null", "none", "-"}
"""What a missing value may be called, in any case."""
TRUTH = {"true": 1.0, "false": 0.0}
LONGEST_LINE = 16_000_000
BLOCK = 4_000_000
"""Bytes of text that are parsed at a time."""
GLANCE = 200
"""Rows that are looked at before it is said what the columns are."""
_DECIMAL_COMMA = re.compile(r"\s*[+-]?\d*,\d+(?:[eE][+-]?\d+)?\s*")


def open_text(
    path: Path,
    *,
    kind: Kind | None = None,
    time: str | None = None,
    columns: Sequence[str] | None = None,
) -> Source:
    """A text table: delimiter and header are found by looking at its first lines."""
    top = _look(path)
    delimiter = _delimiter(top.first, path)
    cells = _split(top.first, delimiter)
    comma = _decimal_comma(top, delimiter)
    header, index = _commented(top, cells, delimiter, comma)
    start, line = top.start, top.line
    named = bool(header) or not _is_data(cells, comma)
    rows = [_split(raw, delimiter) for raw in (top.first, *top.rows)]
    tum = not named and len(cells) == 8 and delimiter is None
    if header:
        pass
    elif named:
        header, index = tidy(cells)
        start, line, rows = start + len(top.first), line + 1, rows[1:]
        if not rows:
            raise DataError(f"{path} has a header and no data")
    elif (tum or _suffix(path) == ".tum") and kind in (None, "rotation"):
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
        grows=lambda k: _grows([row[k] for row in rows]),
        dated=_dated(rows),
    )
    clock = [] if what.time is None else [row[what.time] for row in rows]
    by_day = what.time is not None and dates.are_days(header[what.time], clock)
    style = "D" if by_day else ""
    if clock and dates.seconds(clock[0]) is not None:
        style = dates.style(clock)
    remarks = what.remarks
    if comma:
        remarks = (*remarks, "numbers such as 1,5 are read with a decimal comma")
    if not _is_utf8(top.first):
        remarks = (*remarks, "the header is not UTF-8: read as Latin-1; save it as UTF-8")
    table = _Table(path, header, delimiter, what, start, line, comma=comma, by_day=by_day)
    second = 1.0 if style or tum or what.rest is not None else None
    if second is None and clock:
        head = b" ".join([*top.comments, top.first]).decode("latin-1")
        try:
            stamp = float(clock[0].replace(",", ".") if comma else clock[0])
        except ValueError:
            stamp = 0.0
        second = dates.per_second(head, stamp)
    return Source(
        path,
        what.kind,
        what.names,
        table.chunks,
        word="line",
        remarks=remarks,
        dates=style,
        per_second=second,
    )


# ---------------------------------------------------------------------- the first lines


class _Top(NamedTuple):
    """The first line that is neither empty nor a comment, where it starts, its number; the comments
    before it, and some lines with data after it."""

    first: bytes
    start: int
    line: int
    comments: list[bytes]
    rows: list[bytes]


def _suffix(path: Path) -> str:
    return Path(path.stem if path.suffix.lower() == ".gz" else path.name).suffix.lower()


@contextmanager
def _opened(path: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """The text of a file, unpacked if need be, and the file itself."""
    with open(path, "rb") as file:
        if file.read(2) != b"\x1f\x8b":
            file.seek(0)
            yield file, file
            return
        file.seek(0)
        try:
            with gzip.GzipFile(fileobj=file) as unpacked:
                yield cast(IO[bytes], unpacked), file
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            detail = " ".join(str(error).split())[:160]
            raise DataError(f"{path} cannot be unpacked, it may be damaged: {detail}") from error


def _look(path: Path) -> _Top:
    number, start = 1, 0
    comments: list[bytes] = []
    with _opened(path) as (file, _):
        while True:
            line = file.readline(LONGEST_LINE)
            if not line:
                raise DataError(f"{path} is empty")
            if len(line) == LONGEST_LINE:
                raise DataError(f"{path}, line {number}: longer than any table has, is this text?")
            if number == 1 and line.startswith((b"\xff\xfe", b"\xfe\xff")):
                raise DataError(f"{path} is UTF-16 text; save it again as UTF-8")
            if b"\0" in line:
                raise DataError(f"{path}, line {number}: holds a zero byte, so this is no text")
            if line.strip() and not _is_comment(line):
                break
            if line.strip():
                comments.append(line)
            start += len(line)
            number += 1
        rows: list[bytes] = []
        size = 0
        while len(rows) < GLANCE and (not rows or size < BLOCK):
            raw = file.readline(LONGEST_LINE)
            if not raw:
                break
            size += len(raw)
            if raw.strip() and not _is_comment(raw):
                rows.append(raw)
    return _Top(line, start, number, comments, rows)


def _is_comment(line: bytes) -> bool:
    return line.lstrip().removeprefix(b"\xef\xbb\xbf").startswith((b"#", b"%"))


def _delimiter(line: bytes, path: Path) -> bytes | None:
    """Tab, semicolon or comma, whichever is there outside quotes; otherwise white space (None)."""
    if _suffix(path) == ".tsv":
        return b"\t"
    bare = re.sub(rb'"[^"]*"', b"", line)
    for candidate in (b"\t", b";", b","):
        if candidate in bare:
            return candidate
    return None


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _split(line: bytes, delimiter: bytes | None) -> list[str]:
    try:
        text = line.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError:
        text = line.decode("latin-1").rstrip("\r\n")
    if delimiter is None and '"' in text:
        delimiter, text = b" ", " ".join(text.split())
    if delimiter is None:
        return text.split()
    try:
        return next(csv.reader([text], delimiter=delimiter.decode()), [])
    except csv.Error:
        return text.split(delimiter.decode())


def _decimal_comma(top: _Top, delimiter: bytes | None) -> bool:
    """Whether a comma stands where others have a point: cells look like 1,5 and commas are free."""
    if delimiter not in (b";", b"\t"):
        return False
    rows = [_split(raw, delimiter) for raw in (top.first, *top.rows)]
    return any(_DECIMAL_COMMA.fullmatch(cell) for row in rows for cell in row)


def _is_number(cell: str, comma: bool = False) -> bool:
    try:
        float(cell)
    except ValueError:
        word = cell.strip().lower()
        return word in GAPS or word in TRUTH or (comma and bool(_DECIMAL_COMMA.fullmatch(cell)))
    return True


def _is_data(cells: list[str], comma: bool) -> bool:
    """Whether a first line is a row of numbers and dates already, and no header."""
    if len(cells) > 1 and cells[0] == "" and cells[1:] == [str(k) for k in range(len(cells) - 1)]:
        return False  # the header of a data frame with numbered columns
    return all(_is_number(cell, comma) or dates.seconds(cell) is not None for cell in cells)


def _commented(
    top: _Top, cells: list[str], delimiter: bytes | None, comma: bool
) -> tuple[list[str], int | None]:
    """The header, if a comment above the first row of numbers is one; otherwise nothing."""
    if not any(_is_number(cell, comma) and cell.strip() for cell in cells):
        return [], None
    for line in reversed(top.comments):
        words = line.lstrip().removeprefix(b"\xef\xbb\xbf").lstrip(b"#% ")
        found = _split(words, delimiter)
        if len(found) != len(cells) or all(_is_number(cell, comma) for cell in found):
            continue
        header, index = tidy(found)
        # Eight words of prose above a TUM trajectory are not its header.
        prose = delimiter is None and len(cells) == 8 and not quaternion_of(header)
        if len(set(header)) == len(header) and not prose:
            return header, index
    return [], None


def _dated(rows: list[list[str]]) -> int | None:
    """The first column of dates."""
    for k, cell in enumerate(rows[0] if rows else []):
        if dates.seconds(cell) is not None:
            return k
    return None


def _grows(cells: list[str]) -> bool:
    """Whether these could be times: numbers or dates, each later than the one before."""
    found = []
    for cell in cells:
        try:
            found.append(float(cell))
        except ValueError:
            stamp = dates.seconds(cell)
            if stamp is None:
                return False
            found.append(stamp)
    return bool(found) and all(a < b for a, b in pairwise(found)) and math.isfinite(found[0])


# ---------------------------------------------------------------------- all lines


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
        *,
        comma: bool,
        by_day: bool,
    ) -> None:
        self.path = path
        self.header = header
        self.delimiter = delimiter
        self.what = what
        self.start = start
        self.line = line
        self.comma = comma
        self.by_day = by_day

    def chunks(self) -> Iterator[Chunk]:
        size = max(os.path.getsize(self.path), 1)
        line, last = self.line, -math.inf
        blank: list[int] = []
        with _opened(self.path) as (file, packed):
            file.seek(self.start)
            while block := file.read(BLOCK):
                block += file.readline(LONGEST_LINE)
                if len(block) >= BLOCK + LONGEST_LINE:
                    raise DataError(f"{self.path}: a line beyond line {line} has no end")
                found = self._quick(block, line)
                times, values, places = self._exact(block, line) if found is None else found
                line += block.count(b"\n") + (not block.endswith(b"\n"))
                if len(self.header) == 1:
                    values, places, blank = _blanks(values, places, block, line, blank)
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
                    done = min(1.0, packed.tell() / size)
                    place = values[:, -3:] if self.what.positions else None
                    yield Chunk(matrices, times, places, done, place)

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
            if not raw.strip() or _is_comment(raw):
                continue
            cells = _split(raw, self.delimiter)
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
        try:
            if "_" in cell:
                raise ValueError
            if self.comma and "," in cell:
                if not _DECIMAL_COMMA.fullmatch(cell):
                    raise ValueError
                return float(cell.replace(",", "."))
            if self.comma and "." in cell:
                raise ValueError
            return float(cell)
        except ValueError:
            word = cell.strip().lower()
            if word in GAPS:
                return math.nan
            if word in TRUTH:
                return TRUTH[word]
            raise DataError(
                f"{self.path}, line {line}, column {self.header[column]!r}: {_shown(cell)!r} is "
                f"not a number; {self._remedy(word)}"
            ) from None

    def _remedy(self, word: str) -> str:
        """What a cell that is no number looks like, and what helps."""
        if re.fullmatch(r"[+-]?[\d.,]+\s*%", word):
            return "it looks like a percentage: write 0.05 for 5 %"
        if self.comma and "." in word:
            return "other cells have a decimal comma: use one kind of number, without thousands"
        if re.fullmatch(r"[+-]?\d{1,3}(?:[,' \u00a0]\d{3})+(?:\.\d*)?", word):
            return "it looks like thousands apart: write 1234.5 for 1,234.5"
        if _DECIMAL_COMMA.fullmatch(word):
            return "a decimal comma? Write 1.5 for 1,5"
        if word[0] in "$€£¥" or word[-1] in "$€£¥":
            return "it looks like money: write the number alone"
        if dates.seconds(word) is not None:
            return "it is a date: choose channels with --columns, or the clock with --time"
        return "choose other columns with --columns, or leave the cell empty if it is missing"

    def _time(self, cell: str, line: int) -> float:
        shown = _shown(cell)
        try:
            number = float(cell.replace(",", ".") if self.comma else cell)
        except ValueError:
            stamp = dates.seconds(cell)
            if stamp is not None:
                return stamp
            raise DataError(
                f"{self.path}, line {line}: the time {shown!r} is neither a number nor a date such "
                "as 2024-01-31 or 2024-01-31T10:00:00; choose another clock with --time"
            ) from None
        if self.by_day:
            number = float(dates.days(np.asarray([number]))[0])
            if math.isnan(number):
                raise DataError(
                    f"{self.path}, line {line}: {shown!r} is no day such as 20240131, as the rows "
                    "above have them"
                )
        return number

    def _check(self, times: Numbers | None, values: Numbers, places: Numbers, last: float) -> None:
        where = f"{self.path}, line"
        if np.isinf(values).any():
            i, j = np.argwhere(np.isinf(values))[0]
            name = self.header[self.what.used[j]]
            raise DataError(f"{where} {places[i]}, column {name!r}: infinite")
        if times is None:
            return
        check_times(times, places, last, where)


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
