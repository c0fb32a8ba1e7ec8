"""Rows of Arrow's tables, a record batch at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson

from kgmrf._names import nanoseconds_of
from kgmrf._types import Numbers
from kgmrf.io.parquet import is_date, is_number, numbers_of
from kgmrf.stream import records as rec
from kgmrf.stream.csv_lines import CsvReader
from kgmrf.stream.keys import Coded
from kgmrf.stream.records import NAMES, Parsed
from kgmrf.stream.settings import LineError

_WORDS = ("string", "large_string", "string_view")


class TableReader(CsvReader):
    """Columns by name as in CSV: key, time, and the channels, which hold numbers.

    Or a column of lists that is called as the field of a JSON line: x, covariance, rotation,
    quaternion; and rate beside the last two, or columns w_x, w_y, w_z. Keys are words or whole
    numbers, times numbers or dates; null and NaN: not seen.
    """

    lasting = ("what", "d", "style", "channels", "key_kind", "rated")

    def __init__(self, what: str | None = None, d: int = 0, **options: Any) -> None:
        super().__init__(**options)
        self.key_kind: str | None = None
        self._known = (what, d) if d else None
        if d:
            self.what, self.d = what, d
        self._rate_list: int | None = None  # the column of lists that holds rates
        self._schema: Any = None
        self._lists: int | None = None  # the column of lists, if observations are in one

    def parse(self, lines: Any) -> Parsed:
        """All rows of a record batch that can be used, and what is wrong with the others."""
        none = np.zeros(0)
        nothing = Parsed([], none, np.zeros((0, 1)), none, none.astype(np.int64), {})
        if not len(lines):
            return nothing
        try:
            if self._schema is None or not lines.schema.equals(self._schema):
                self._take_schema(lines.schema)
            wrong: dict[int, str] = {}
            fresh = not self.d
            if self._lists is not None:
                values = self._from_lists(lines.column(self._lists), wrong)
            else:
                columns = [lines.column(k) if k >= 0 else None for k in self.used]
                values = _side_by_side(columns, len(lines))
            if not self.d:  # before the first observation of all nothing is known
                return nothing
            times = self._times(lines)
            keys = _keys(None if self.key_at is None else lines.column(self.key_at), len(lines))
            counts = np.full(len(lines), np.nan)
            if "n_samples" in self.header:
                counts = numbers_of(lines.column(self.header.index("n_samples")))
            rates = self._rates(lines, wrong) if self.rated else None
        except LineError:
            raise
        except ValueError as error:  # Arrow's own are among them
            raise LineError(0, " ".join(str(error).split())[:200]) from error
        wrong |= dict.fromkeys(np.flatnonzero(np.isinf(times)).tolist(), "its time is infinite")
        places = np.arange(len(lines))
        parsed = Parsed(keys, times, values, counts, places, {}, rates).refuse(wrong)
        if fresh and self._lists is not None:
            there = ~np.isnan(parsed.values.reshape(len(parsed.rows), -1)).all(axis=1)
            if parsed.rates is not None:
                there |= ~np.isnan(parsed.rates).all(axis=1)
            parsed = parsed.part(slice(int(np.argmax(there)), None))
        return self._checked(parsed) if len(parsed.keys) else parsed

    def text(self, block: Any, row: int) -> bytes:
        """A row as JSON."""
        return orjson.dumps(block.slice(row, 1).to_pylist()[0], default=str)

    # ------------------------------------------------------------------ columns

    def _take_schema(self, schema: Any) -> None:
        """Find out what the columns are, by their names and types."""
        names, types = [name.strip() for name in schema.names], schema.types
        if not names:
            raise LineError(0, "the table has no columns")
        lists = [k for k, name in enumerate(names) if name in NAMES and _is_list(types[k])]
        rate = [k for k in lists if names[k] == "rate"]
        self._rate_list, lists = rate[0] if rate else None, [k for k in lists if k not in rate]
        self._lists = lists[0] if lists and self.columns is None else None
        if self._lists is None:
            self._take_names(names, 0)
        else:
            self._take_lists(names, names[self._lists])
        known = self._known or (self.what, self.d)
        if known[0] != self.what or (self.d and known[1] != self.d):
            raise LineError(
                0,
                f"has {self.what!r}, d = {self.d}, where rows before had {known[0]!r}, {known[1]}",
            )
        if self.key_at is not None:
            self._take_key(types[self.key_at])
        if self.time_at is not None:
            self._take_time(types[self.time_at])
        for k in (*self.used, *(self.rate_at if self._rate_list is None else ())):
            if k >= 0 and not is_number(types[k]):
                hint = f"; if it names the track, give --key {names[k]}" * (self.key_at is None)
                raise LineError(
                    0,
                    f"the column {names[k]!r} holds {types[k]}, not numbers; choose the channels "
                    f"with --columns{hint}",
                )
        self._schema = schema

    def _take_lists(self, names: list[str], name: str) -> None:
        if self.channels is not None:
            raise LineError(0, f"has lists {name!r}, where rows before had columns by name")
        key, time = (
            rec.find_key(names, self.requested[0], 0),
            rec.find_time(names, self.requested[1], 0),
        )
        self.key_at = None if key is None else names.index(key)
        self.time_at = None if time is None else names.index(time)
        self.rest_at = None if time is None else nanoseconds_of(names, time)
        self.key, self.time = key or "key", time or "time"
        self.what, self.used, self.header = name, [], names
        self.d = 3 if name == "quaternion" else self._known[1] if self._known else self.d
        self._take_rates(names, 0)
        if self.rated and name == "rotation":
            self.d = 3

    def _rate_columns(self, names: list[str]) -> list[tuple[int, ...]]:
        return [(self._rate_list,)] if self._rate_list is not None else super()._rate_columns(names)

    def _apart(self, names: list[str]) -> tuple[int, ...]:
        return tuple(k for k, name in enumerate(names) if name == "n_samples")

    def _take_key(self, type_: Any) -> None:
        type_ = getattr(type_, "value_type", type_)  # of a dictionary
        whole = str(type_).startswith(("int", "uint"))
        if not whole and str(type_) not in _WORDS:
            raise LineError(0, f"the key {self.key!r} holds {type_}, not words or whole numbers")
        kind = "numbers" if whole else "words"
        if self.key_kind not in (None, kind):
            raise LineError(
                0, f"the key {self.key!r} holds {kind}, where the keys before were {self.key_kind}"
            )
        self.key_kind = kind

    def _take_time(self, type_: Any) -> None:
        if not (is_number(type_) or is_date(type_)):
            raise LineError(0, f"the time {self.time!r} holds {type_}, not numbers or dates")
        style = ""
        if is_date(type_):
            zone = "Z" if getattr(type_, "tz", None) else ""
            style = f"us{zone}" if str(type_).startswith("timestamp") else "D"
        if self.style not in (None, style):
            raise LineError(
                0,
                f"the time {self.time!r} holds {'dates' if style else 'numbers'}, where rows "
                f"before had {'dates' if self.style else 'numbers'}",
            )
        self.style = style

    # ------------------------------------------------------------------ values

    def _times(self, lines: Any) -> Numbers:
        if self.time_at is None:
            return np.full(len(lines), np.nan)
        times = numbers_of(lines.column(self.time_at))
        if self.rest_at is not None:
            times = times + 1e-9 * numbers_of(lines.column(self.rest_at))
        return times

    def _rates(self, lines: Any, wrong: dict[int, str]) -> Numbers:
        """Measured rates ``(n, 3)``; lists of another length are wrong."""
        if self._rate_list is None:
            columns = [lines.column(k) for k in self.rate_at] or [None] * 3
            return _side_by_side(columns, len(lines))
        rates, good = _arrays(lines.column(self._rate_list), (3,))
        why = f"'rate' {rec.RATE_SHAPE}"
        wrong |= dict.fromkeys(np.flatnonzero(~good).tolist(), why)
        return rates

    def _from_lists(self, column: Any, wrong: dict[int, str]) -> Numbers:
        """Observations ``(n, ...)`` of a column of lists; those of another shape are wrong."""
        import pyarrow.compute as pc

        if not self.d:
            d = next((len(row) for row in column.drop_null().slice(0, 1).to_pylist()), 0)
            if not d:
                return np.zeros((len(column), 1))
            if d > rec.LARGEST_D:
                raise LineError(0, f"d = {d} is more than {rec.LARGEST_D}")
            self.d = d
        values, good = _arrays(column, self.shape)
        for k in np.flatnonzero(~good).tolist():
            found = column[k].as_py()
            sizes: tuple[int, ...] = (len(found),)
            if len(self.shape) == 2 and found and found[0] is not None:
                sizes += (len(found[0]),)
            wrong[k] = rec.other_width(self.what or "x", sizes, self.shape)
        missing = pc.is_null(column).to_numpy(zero_copy_only=False)
        values[missing] = np.nan
        return values


def _is_list(type_: Any) -> bool:
    return str(type_).startswith(("list", "fixed_size_list", "large_list"))


def _arrays(column: Any, shape: tuple[int, ...]) -> tuple[Numbers, Numbers]:
    """Lists as arrays ``(n, *shape)``, NaN where there is none; and which have this shape."""
    import pyarrow.compute as pc

    if not shape:
        if not is_number(column.type):
            raise LineError(0, f"a list holds {column.type}, not numbers")
        return numbers_of(column), np.ones(len(column), dtype=bool)
    if not _is_list(column.type):
        raise LineError(0, f"{column.type} is no list, where {shape} is expected")
    length = numbers_of(pc.list_value_length(column))
    fits = length == shape[0]
    inner, ok = _arrays(pc.list_flatten(column.filter(_truth(fits))), shape[1:])
    values, good = np.full((len(column), *shape), np.nan), fits | np.isnan(length)
    values[fits] = inner.reshape(-1, *shape)
    good[fits] = ok.reshape(-1, shape[0]).all(axis=1)
    return values, good


def _truth(mask: Numbers) -> Any:
    import pyarrow as pa

    return pa.array(mask)


def _side_by_side(columns: list[Any], n: int) -> Numbers:
    """Columns of numbers as rows; None: not seen."""
    found = np.empty((n, len(columns)))
    for k, column in enumerate(columns):
        found[:, k] = np.nan if column is None else numbers_of(column)
    return found


def _keys(column: Any, n: int) -> Coded:
    """A column of keys; null is the track without a name."""
    if column is None:
        return Coded([""], np.zeros(n, dtype=np.int64))
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type) and len(column.dictionary) > n:
        column = column.cast(column.type.value_type)  # few of its words are here
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    words = [str(word) for word in column.dictionary.to_pylist()]
    codes = column.indices
    if codes.null_count:
        codes = pc.fill_null(codes.cast("int64"), len(words))
        words.append("")
    return Coded(words, codes.to_numpy(zero_copy_only=False).astype(np.int64))
