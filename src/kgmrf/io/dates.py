"""Cells of tables: numbers; dates, to seconds since 1970 and back, in the words they came in."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

import numpy as np

from kgmrf._types import Numbers

GAPS = {"", "nan", "na", "n/a", "null", "none", "-"}
"""What a missing value may be called, in any case."""
TRUTH = {"true": 1.0, "false": 0.0}

DAY_NAMES = ("date", "day")
"""Columns in which a number of eight digits is a day, 20240131."""

_DATE = re.compile(r"\d{4}-\d\d(?:-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?)?)?")
_OFFSET = re.compile(r"(?<=\d)\s?(?:([zZ])|([+-])(\d\d):?(\d\d))$")


def number(cell: str, comma: bool = False) -> float | None:
    """A cell as a number, NaN if it is a gap, None if it is neither.

    >>> number("1.5"), number("1,5"), number("1,5", comma=True), number("NA"), number("1_000")
    (1.5, None, 1.5, nan, None)
    """
    if comma:
        if "." in cell:
            return None
        cell = cell.replace(",", ".")
    try:  # Python's own numbers have 1_000 and digits of any script
        if "_" not in cell and (cell.isascii() or cell.strip().isascii()):
            return float(cell)
        return None
    except ValueError:
        word = cell.strip().lower()
        return math.nan if word in GAPS else TRUTH.get(word)


def seconds(cell: str) -> float | None:
    """Seconds since 1970 of a date, or None if it is none. Without a zone it is taken as UTC."""
    text, away = cell.strip(), 0
    offset = _OFFSET.search(text) if ":" in text else None
    if offset is not None:
        text = text[: offset.start()]
        if offset[2]:
            away = 60 * (60 * int(offset[3]) + int(offset[4])) * (1 if offset[2] == "+" else -1)
    if not _DATE.fullmatch(text):
        return None
    try:
        stamp = np.datetime64(text, "ns")
    except ValueError:
        return None
    return float(stamp.astype(np.int64)) * 1e-9 - away


def style(cells: Iterable[str]) -> str:
    """How dates are written: the last unit that is given, D, s or us, and Z if they have a zone."""
    words = [cell.strip() for cell in cells]
    if all(":" not in word for word in words):
        return "D"
    zone = "Z" if any(_OFFSET.search(word) for word in words if ":" in word) else ""
    return ("us" if any("." in word for word in words) else "s") + zone


def days(numbers: Numbers) -> Numbers:
    """Seconds of days that are written as numbers, 20240131; NaN where there is no such day."""
    good = (numbers >= 16000101) & (numbers <= 22001231) & (numbers == np.floor(numbers))
    whole = np.where(good, numbers, 19700101).astype(np.int64)
    year, month, day = whole // 10000, whole // 100 % 100, whole % 100
    good &= (month >= 1) & (month <= 12) & (day >= 1)
    months = (12 * (year - 1970) + np.clip(month, 1, 12) - 1).astype("datetime64[M]")
    found = months.astype("datetime64[D]") + (day - 1)
    good &= found.astype("datetime64[M]") == months
    return np.where(good, found.astype("datetime64[s]").astype(float), np.nan)


def are_days(name: str, cells: Iterable[str]) -> bool:
    """Whether a column holds days as numbers: by its name and by its first cells."""
    found = [cell.strip() for cell in cells]
    if name.lower() not in DAY_NAMES or not found:
        return False
    if not all(re.fullmatch(r"\d{8}(?:\.0*)?", cell) for cell in found):
        return False
    return bool(np.isfinite(days(np.array(found, dtype=float))).all())


_PER_SECOND = {"s": 1.0, "sec": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
_STATED = re.compile(r"(?i)\b(?:time\w*|stamp|t)\s*[\[(]\s*(s|sec|ms|us|ns)(?:onds?)?\s*[\])]")


def per_second(header: str, stamp: float) -> float | None:
    """How many units of the time column make a second: as its header says, or by its size.

    Stamps since 1970 tell by their size: seconds have ten digits, nanoseconds nineteen. None if
    neither does.

    >>> per_second("#timestamp [ns],p_x [m]", 5.0), per_second("", 1.7e9), per_second("", 12.5)
    (1000000000.0, 1.0, None)
    """
    found = _STATED.search(header)
    if found is not None:
        return _PER_SECOND[found[1].lower()]
    for units in _PER_SECOND.values():
        if 5e8 <= stamp / units < 5e9:
            return units
    return None


def instants(times: Numbers) -> Numbers:
    """Seconds as datetime64, to the microsecond."""
    return np.round(times * 1e6).astype(np.int64).astype("datetime64[us]")


def words(times: Numbers, style: str) -> list[str]:
    """Dates in a style, each finer where that cannot tell it.

    >>> words(np.array([0.0, 86400.5]), "D"), words(np.array([0.5]), "sZ")
    (['1970-01-01', '1970-01-02T00:00:00.500000'], ['1970-01-01T00:00:00.500000Z'])
    """
    found: list[str] = np.datetime_as_string(instants(times), unit="us").tolist()
    if not style.startswith("us"):
        found = [word.removesuffix(".000000") for word in found]
    if style.startswith("D"):
        found = [word.removesuffix("T00:00:00") for word in found]
    return [f"{word}Z" for word in found] if style.endswith("Z") else found
