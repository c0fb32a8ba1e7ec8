"""Estimates as lines of text, a block at a time."""

from __future__ import annotations

import numpy as np
import orjson

from kgmrf._types import Numbers
from kgmrf.io import dates

EXACT = 22
"""Powers of ten up to this one are exact in double precision."""
_POWERS = 10.0 ** np.arange(EXACT + 1)


def header_of(fields: dict[str, Numbers]) -> bytes:
    """The first line of CSV output: key, time, and the entries of the fields."""
    names = [
        f"{name}{''.join(f'_{k}' for k in index)}"
        for name, array in fields.items()
        for index in np.ndindex(*array.shape[1:])
    ]
    return ",".join(["key", "time", *names]).encode() + b"\n"


def text_of(
    keys: list[str], times: Numbers, fields: dict[str, Numbers], form: str, digits: int, dated: str
) -> bytes:
    """Estimates as lines, "json" or "csv": key, time, and the fields.

    digits: significant digits; 16 and more write every bit. dated: style of dates, "": numbers.
    Fields of Python objects are JSON in bytes, or words and None.
    """
    json = form == "json"
    pattern = "%b,%b" + ",%b" * len(fields)
    if json:
        deep = {name: array.ndim - 1 for name, array in fields.items()}
        parts = [f',"{name}":{"[" * n}%b{"]" * n}' for name, n in deep.items()]
        pattern = '{"key":%b,"time":%b' + "".join(parts) + "}"
    quoted = {key: orjson.dumps(key) if json else _quoted(key) for key in set(keys)}
    mark = '"' if json else ""
    stamps = [f"{mark}{word}{mark}".encode() for word in dates.words(times, dated)] if dated else []
    columns = []
    for array in fields.values():
        if array.dtype == object:  # made already
            columns.append([b"" if w is None else w if json else _quoted(w) for w in array])
            continue
        values = rounded(array, digits)
        if not json and values.ndim > 2:
            values = values.reshape(len(keys), -1)
        columns.append(_pieces(values, nulls=json))
    rows = zip([quoted[key] for key in keys], stamps or _pieces(times), *columns, strict=True)
    return b"".join(map((pattern.encode() + b"\n").__mod__, rows))


def _pieces(values: Numbers, *, nulls: bool = True) -> list[bytes]:
    """The numbers of every row as text, without the brackets about them."""
    deep = values.ndim - 1
    text = orjson.dumps(np.ascontiguousarray(values), option=orjson.OPT_SERIALIZE_NUMPY)
    if not nulls:
        text = text.replace(b"null", b"")
    return text[deep + 1 : -deep - 1].split(b"]" * deep + b"," + b"[" * deep)


def _quoted(key: str) -> bytes:
    if any(mark in key for mark in ',"\r\n'):
        key = '"' + key.replace('"', '""') + '"'
    return key.encode()


def rounded(values: Numbers, digits: int) -> Numbers:
    """The nearest numbers of so many significant digits, so that no more are printed.

    >>> rounded(np.array([1 / 3, -2e-30 / 3, 0.0]), 4).tolist()
    [0.3333, -6.667e-31, 0.0]
    """
    values = np.asarray(values, dtype=float)
    if digits > 15:
        return values
    size = np.abs(values)
    plain = (size > 0.0) & (size < np.inf)
    # Of numbers below 10^k this is k - 1, of any size.
    power = digits - 1 - np.floor(np.log10(size, out=np.zeros_like(size), where=plain))
    power = power.astype(np.int64)
    apart = np.abs(power)
    far = apart > EXACT
    scale = _POWERS[np.where(far, 0, apart)]
    # One exact integer times or over one exact power of ten: rounded once.
    out = np.where(power < 0, np.rint(values / scale) * scale, np.rint(values * scale) / scale)
    for place in np.argwhere(far) if far.any() else ():
        where = tuple(place)
        out[where] = float(f"{values[where]:.{digits - 1}e}")
    return np.where(np.isinf(out), values, out)  # the largest numbers have nothing above them
