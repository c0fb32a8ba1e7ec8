"""CSV, TSV, TUM: text tables in chunks.

What separates cells and what the columns are called is found in the first lines. A block of plain
numbers is read in one go. Any other block is read line by line: missing values, quotes and dates
are understood there, and a cell that is not a number is named with its line.
"""

from __future__ import annotations

import csv
import gzip
import math
import os
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import numpy as np
import orjson

from kgmrf import _npz
from kgmrf._types import Numbers
from kgmrf.io import dates
from kgmrf.io.columns import TUM, infer_columns, quaternion_of, tidy
from kgmrf.io.dates import number
from kgmrf.io.source import GLANCE, Chunk, DataError, Kind, Meaning, Source, source_of, suffix

BLOCK = 4_000_000
"""Bytes of text that are parsed at a time."""
LONGEST_LINE = 16_000_000
GLANCE_BYTES = 4_000_000
_EMPTY = re.compile(rb"(?<=[,\[])(?=[,\]])")
DECIMAL_COMMA = re.compile(r"\s*[+-]?\d*,\d+(?:[eE][+-]?\d+)?\s*")


def open_text(path: Path, *, kind: Kind | None = None, **said: Any) -> Source:
    """A text table: delimiter and header are found by looking at its first lines."""
    top = look(path)
    delimiter = delimiter_of(top.first, path)
    rows = [split(raw, delimiter) for raw in (top.first, *top.rows)]
    cells = rows[0]
    comma = decimal_comma(rows, delimiter)
    header, index = commented(top, cells, delimiter, comma)
    start, line = top.start, top.line
    named = bool(header) or not is_data(cells, comma)
    tum = not named and len(cells) == 8 and delimiter is None
    if header:
        pass
    elif named:
        header, index = tidy(cells)
        start, line, rows = start + len(top.first), line + 1, rows[1:]
        if not rows:
            raise DataError(f"{path} has a header and no data")
    elif (tum or suffix(path) == ".tum") and kind in (None, "rotation"):
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
    what = infer_columns(header, rows, str(path), kind=kind, **words, **said)
    if tum and what.time is not None:
        what = what._replace(per_second=1.0)
    if comma:
        remark = "numbers such as 1,5 are read with a decimal comma"
        what = what._replace(remarks=(*what.remarks, remark))
    lines = _Table(path, header, delimiter, what, start, line, comma)
    return source_of(path, what, lines.pieces, "line")


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
        with opened(self.path) as (file, packed):
            file.seek(self.start)
            while block := file.read(BLOCK):
                block = blank + block + file.readline(LONGEST_LINE)
                if len(block) >= BLOCK + LONGEST_LINE:
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
        table = plain_table(text.replace(b"\r\n", b"\n"))
        if table is None or table.shape[1:] != (len(self.header),):
            return None
        times = what.times(lambda k: table[:, k])
        if times is not None and what.by_day and np.isnan(times).any():
            return None
        return times, table[:, list(what.used)], line + np.arange(len(table))

    def _exact(self, text: bytes, line: int) -> tuple[Numbers | None, Numbers, Numbers]:
        stamps, rows, places = [], [], []
        what, width = self.what, len(self.header)
        for place, raw in enumerate(text.split(b"\n"), line):
            # In a table of one column a blank line is a gap.
            if is_comment(raw) or (width > 1 and not raw.strip()):
                continue
            cells = split(raw, self.delimiter) if raw.strip() else [""]
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


# ---------------------------------------------------------------------- the first lines


class Top(NamedTuple):
    """The first line that is neither empty nor a comment, where it starts, its number; the comments
    before it, and some lines with data after it."""

    first: bytes
    start: int
    line: int
    comments: list[bytes]
    rows: list[bytes]


@contextmanager
def opened(path: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
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
            raise DataError(
                f"{path} cannot be unpacked, it may be damaged: {_npz.reason_of(error)}"
            ) from error


def look(path: Path) -> Top:
    """Read the first lines; refuse what is no text."""
    above: list[bytes] = []
    rows: list[bytes] = []
    size = 0
    with opened(path) as (file, _):
        lines = iter(partial(file.readline, LONGEST_LINE), b"")
        for first in lines:
            where = f"{path}, line {len(above) + 1}"
            if len(first) == LONGEST_LINE:
                raise DataError(f"{where}: the line is too long; is this a text file?")
            if b"\0" in first:
                raise DataError(
                    f"{where}: contains a zero byte; this is not a text file, or it is UTF-16: "
                    "save it again as UTF-8"
                )
            if first.strip() and not is_comment(first):
                break
            above.append(first)
        else:
            raise DataError(f"{path} is empty")
        for line in lines:
            size += len(line)
            rows += [line] if line.strip() and not is_comment(line) else []
            if len(rows) == GLANCE or (rows and size >= GLANCE_BYTES):
                break
    comments = [line for line in above if line.strip()]
    return Top(first, sum(map(len, above)), len(above) + 1, comments, rows)


def is_comment(line: bytes) -> bool:
    """Whether a line begins with # or %."""
    return line.lstrip().removeprefix(b"\xef\xbb\xbf").startswith((b"#", b"%"))


def delimiter_of(line: bytes, path: Path) -> bytes | None:
    """Tab, semicolon or comma, whichever is there outside quotes; otherwise white space (None)."""
    if suffix(path) == ".tsv":
        return b"\t"
    bare = re.sub(rb'"[^"]*"', b"", line)
    for candidate in (b"\t", b";", b","):
        if candidate in bare:
            return candidate
    return None


def split(line: bytes, delimiter: bytes | None) -> list[str]:
    """The cells of a line."""
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


def decimal_comma(rows: list[list[str]], delimiter: bytes | None) -> bool:
    """Whether a comma stands where others have a point: cells look like 1,5 and commas are free."""
    if delimiter not in (b";", b"\t"):
        return False
    return any(DECIMAL_COMMA.fullmatch(cell) for row in rows for cell in row)


def plain_table(text: bytes) -> Numbers | None:
    """Lines of numbers between commas as a table, quickly; None if there is anything else.

    Empty cells and nan are NaN.
    """
    if text.replace(b"nan", b"").translate(None, b"0123456789+-.eE,\n"):
        return None
    # These are rows of JSON but for their brackets and gaps.
    text = b"[[" + text.replace(b"nan", b"null").replace(b"\n", b"],[") + b"]]"
    try:
        with suppress(orjson.JSONDecodeError):
            return np.array(orjson.loads(text), dtype=float)
        return np.array(orjson.loads(_EMPTY.sub(b"null", text)), dtype=float)
    except ValueError:  # not JSON, or rows of different lengths
        return None


def is_data(cells: list[str], comma: bool) -> bool:
    """Whether a first line is a row of numbers and dates already, and no header."""
    if len(cells) > 1 and cells[0] == "" and cells[1:] == [str(k) for k in range(len(cells) - 1)]:
        return False  # the header of a data frame with numbered columns
    return all(number(cell, comma) is not None or dates.seconds(cell) is not None for cell in cells)


def commented(
    top: Top, cells: list[str], delimiter: bytes | None, comma: bool
) -> tuple[list[str], int | None]:
    """The header, if a comment above the first row of numbers is one; otherwise nothing."""
    if not any(number(cell, comma) is not None and cell.strip() for cell in cells):
        return [], None
    for line in reversed(top.comments):
        words = line.lstrip().removeprefix(b"\xef\xbb\xbf").lstrip(b"#% ")
        found = split(words, delimiter)
        if len(found) != len(cells) or all(number(cell, comma) is not None for cell in found):
            continue
        header, index = tidy(found)
        # Eight words of prose above a TUM trajectory are not its header.
        prose = delimiter is None and len(cells) == 8 and not quaternion_of(header)
        if len(set(header)) == len(header) and not prose:
            return header, index
    return [], None
