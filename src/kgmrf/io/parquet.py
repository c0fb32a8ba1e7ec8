"""Parquet: columns as in a CSV file, one row group after the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from kgmrf._types import Numbers
from kgmrf.io import dates
from kgmrf.io import source as src
from kgmrf.io.columns import infer_columns, tidy
from kgmrf.io.source import GLANCE, Chunk, DataError, Source


def open_parquet(path: Path, **said: Any) -> Source:
    """A table of samples, or of entries of matrices; nulls are gaps."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with src.as_data_error(path, pa.ArrowException), pq.ParquetFile(path) as file:
        schema = file.schema_arrow
        first = next(file.iter_batches(GLANCE, use_threads=False), None)
        glance = [] if first is None else [_cells(column) for column in first.columns]
    stored, types = list(schema.names), schema.types
    if not stored:
        raise DataError(f"{path} has no columns")
    header, index = tidy(stored)
    rows = [list(row) for row in zip(*glance, strict=True)]
    what = infer_columns(header, rows, str(path), index=index, head=" ".join(stored), **said)
    for k in what.used:
        if not is_number(types[k]):
            raise DataError(
                f"{path}: the column {header[k]!r} holds {types[k]}, not numbers; "
                "choose other columns with --columns"
            )
    if what.time is not None and not (is_number(types[what.time]) or is_date(types[what.time])):
        raise DataError(
            f"{path}: the time {header[what.time]!r} holds {types[what.time]}, neither numbers nor "
            "dates; choose another with --time"
        )
    wanted = [stored[k] for k in what.used]
    clock = [stored[k] for k in (what.time, what.rest) if k is not None]

    def pieces() -> Iterator[Chunk]:
        rows, first = src.rows_per_chunk(16 * max(len(wanted), len(what.names) ** 2)), 0
        with src.as_data_error(path, pa.ArrowException), pq.ParquetFile(path) as file:
            total = max(file.metadata.num_rows, 1)
            for batch in file.iter_batches(rows, columns=[*clock, *wanted], use_threads=False):
                values = np.column_stack([numbers_of(batch.column(name)) for name in wanted])
                times = what.times(lambda k: numbers_of(batch.column(stored[k])))  # noqa: B023
                places = first + np.arange(len(values))
                first += len(values)
                yield Chunk(values, times, places, min(1.0, first / total))

    return src.source_of(path, what, pieces)


def _cells(column: Any) -> list[str]:
    """A column as text has it; "?" for what is neither a number nor a date."""
    if not (is_number(column.type) or is_date(column.type)):
        return ["?"] * len(column)
    values = numbers_of(column)
    if not is_date(column.type):
        return ["" if np.isnan(v) else repr(v) for v in values.tolist()]
    zone = "Z" if getattr(column.type, "tz", None) else ""
    words = dates.words(np.nan_to_num(values), f"s{zone}" if hasattr(column.type, "unit") else "D")
    return ["" if gap else word for gap, word in zip(np.isnan(values).tolist(), words, strict=True)]


def is_number(type_: Any) -> bool:
    """Whether a column of this type of Arrow holds numbers."""
    kinds = ("float", "halffloat", "double", "int", "uint", "bool", "decimal")
    return str(type_).startswith(kinds)


def is_date(type_: Any) -> bool:
    """Whether it holds dates."""
    return str(type_).startswith(("timestamp", "date"))


def numbers_of(column: Any) -> Numbers:
    """Numbers as they are, dates as seconds."""
    if is_date(column.type):
        stamps = column.cast("timestamp[ns]").to_numpy(zero_copy_only=False)
        seconds = stamps.astype("datetime64[ns]").astype(np.int64) * 1e-9
        return np.where(np.isnat(stamps), np.nan, seconds)
    # Not "safe": nanoseconds since 1970 are no whole numbers of double precision.
    found = column.cast("float64", safe=False)
    return np.asarray(found.to_numpy(zero_copy_only=False), dtype=float)
