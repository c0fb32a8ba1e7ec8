"""The first lines of a text table: what separates cells, what the columns are called."""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple, cast

import numpy as np
import orjson

from kgmrf import _npz
from kgmrf._types import Numbers
from kgmrf.io import dates
from kgmrf.io.columns import quaternion_of, tidy
from kgmrf.io.dates import number
from kgmrf.io.source import DataError

LONGEST_LINE = 16_000_000
GLANCE = 200
"""Rows that are looked at before it is said what the columns are."""
GLANCE_BYTES = 4_000_000
_EMPTY = re.compile(rb"(?<=[,\[])(?=[,\]])")
DECIMAL_COMMA = re.compile(r"\s*[+-]?\d*,\d+(?:[eE][+-]?\d+)?\s*")


class Top(NamedTuple):
    """The first line that is neither empty nor a comment, where it starts, its number; the comments
    before it, and some lines with data after it."""

    first: bytes
    start: int
    line: int
    comments: list[bytes]
    rows: list[bytes]


def suffix(path: Path) -> str:
    """The ending of a name, that of the text if it is packed."""
    return Path(path.stem if path.suffix.lower() == ".gz" else path.name).suffix.lower()


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
                f"{path} cannot be unpacked, it may be damaged: {_npz.told(error)}"
            ) from error


def look(path: Path) -> Top:
    """Read the first lines; refuse what is no text."""
    count, start = 1, 0
    comments: list[bytes] = []
    with opened(path) as (file, _):
        while True:
            line = file.readline(LONGEST_LINE)
            if not line:
                raise DataError(f"{path} is empty")
            if len(line) == LONGEST_LINE:
                raise DataError(f"{path}, line {count}: the line is too long; is this a text file?")
            if b"\0" in line:
                raise DataError(
                    f"{path}, line {count}: contains a zero byte; this is not a text file, or it "
                    "is UTF-16: save it again as UTF-8"
                )
            if line.strip() and not is_comment(line):
                break
            if line.strip():
                comments.append(line)
            start += len(line)
            count += 1
        rows: list[bytes] = []
        size = 0
        while len(rows) < GLANCE and (not rows or size < GLANCE_BYTES):
            raw = file.readline(LONGEST_LINE)
            if not raw:
                break
            size += len(raw)
            if raw.strip() and not is_comment(raw):
                rows.append(raw)
    return Top(line, start, count, comments, rows)


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
