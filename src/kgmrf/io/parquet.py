"""Parquet: columns as in a CSV file, one row group after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kgmrf._types import Numbers
from kgmrf.io import dates
from kgmrf.io import source as src
from kgmrf.io.columns import meaning, tidy
from kgmrf.io.header import GLANCE
from kgmrf.io.source import Chunk, DataError, Kind, Piece, Source


def open_parquet(
    path: Path,
    *,
    kind: Kind | None = None,
    time: str | None = None,
    columns: Sequence[str] | None = None,
) -> Source:
    """A table of samples, or of entries of matrices; nulls are gaps."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with src.told(path, pa.ArrowException), pq.ParquetFile(path) as file:
        schema = file.schema_arrow
    stored = list(schema.names)
    if not stored:
        raise DataError(f"{path} has no columns")
    header, index = tidy(stored)

    def glance(k: int) -> Any:
        with src.told(path, pa.ArrowException), pq.ParquetFile(path) as file:
            batches = file.iter_batches(GLANCE, columns=[stored[k]], use_threads=False)
            batch = next(batches, None)
            return None if batch is None else batch.column(0)

    def grows(k: int) -> bool:
        if not (_is_date(schema.types[k]) or _is_number(schema.types[k])):
            return False
        column = glance(k)
        return column is not None and bool(np.all(np.diff(_stamps(column)) > 0))

    dated = next((k for k, type_ in enumerate(schema.types) if _is_date(type_)), None)
    what = meaning(
        header,
        named=True,
        kind=kind,
        time=time,
        columns=columns,
        where=str(path),
        index=index,
        grows=grows,
        dated=dated,
    )
    for k in what.used:
        if not _is_number(schema.types[k]):
            raise DataError(
                f"{path}: the column {header[k]!r} holds {schema.types[k]}, not numbers; "
                "choose other columns with --columns"
            )
    wanted = [stored[k] for k in what.used]
    names, style, by_day = wanted, "", False
    if what.time is not None:
        names = [stored[what.time], *wanted]
        type_ = schema.types[what.time]
        if _is_date(type_):
            style = "D" if pa.types.is_date(type_) else "us" + "Z" * (type_.tz is not None)
        elif _is_number(type_):
            column = glance(what.time)
            cells = [] if column is None else [f"{v:.0f}" for v in _numbers(column).tolist()]
            by_day = dates.are_days(header[what.time], cells)
            style = "D" if by_day else ""
        else:
            raise DataError(
                f"{path}: the time {header[what.time]!r} holds {type_}, neither numbers nor dates; "
                "choose another with --time"
            )

    def pieces() -> Iterator[Piece]:
        d = len(what.names)
        rows, first = src.rows_per_chunk(16 * max(len(wanted), d * d)), 0
        with src.told(path, pa.ArrowException), pq.ParquetFile(path) as file:
            total = max(file.metadata.num_rows, 1)
            for batch in file.iter_batches(batch_size=rows, columns=names, use_threads=False):
                values = np.column_stack([_numbers(batch.column(name)) for name in wanted])
                stamps = None
                if what.time is not None:
                    stamps = _stamps(batch.column(names[0]))
                    stamps = dates.days(stamps) if by_day else stamps
                places = first + np.arange(len(values))
                first += len(values)
                yield Piece(values, stamps, places, min(1.0, first / total))

    def chunks() -> Iterator[Chunk]:
        column = lambda j: f", column {wanted[j]!r}"  # noqa: E731
        return src.checked(
            pieces(), f"{path}, row", column, what.assemble, positions=what.positions
        )

    second = 1.0 if style else None
    if second is None and what.time is not None:
        second = dates.per_second(stored[what.time], 0.0)
    about: dict[str, Any] = {"remarks": what.remarks, "dates": style, "per_second": second}
    return Source(path, what.kind, what.names, chunks, **about)


def _is_number(type_: Any) -> bool:
    import pyarrow as pa

    kinds = (pa.types.is_floating, pa.types.is_integer, pa.types.is_boolean)
    return any(kind(type_) for kind in kinds)


def _is_date(type_: Any) -> bool:
    import pyarrow as pa

    return pa.types.is_timestamp(type_) or pa.types.is_date(type_)


def _numbers(column: Any) -> Numbers:
    import pyarrow as pa

    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    plain = column.cast(pa.float64())
    return np.asarray(plain.to_numpy(zero_copy_only=False), dtype=float)


def _stamps(column: Any) -> Numbers:
    """Numbers as they are, dates as seconds."""
    import pyarrow as pa

    if _is_date(column.type):
        stamps = column.cast(pa.timestamp("ns")).to_numpy(zero_copy_only=False)
        seconds = stamps.astype("datetime64[ns]").astype(np.int64) * 1e-9
        return np.where(np.isnat(stamps), np.nan, seconds)
    return _numbers(column)
