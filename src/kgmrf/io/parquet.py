"""Parquet: columns as in a CSV file, one row group after the other."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kgmrf._types import Numbers
from kgmrf.io.columns import meaning
from kgmrf.io.source import Chunk, DataError, Kind, Source, rows_per_chunk
from kgmrf.io.text import check_times


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

    with _told(path), pq.ParquetFile(path) as file:
        schema = file.schema_arrow
    header = list(schema.names)
    what = meaning(header, named=True, kind=kind, time=time, columns=columns, where=str(path))
    for k in what.used:
        if not (pa.types.is_floating(schema.types[k]) or pa.types.is_integer(schema.types[k])):
            raise DataError(
                f"{path}: the column {header[k]!r} holds {schema.types[k]}, not numbers; "
                "choose other columns"
            )
    wanted = [header[k] for k in what.used]
    names = wanted if what.time is None else [header[what.time], *wanted]

    def chunks() -> Iterator[Chunk]:
        d = len(what.names)
        rows = rows_per_chunk(16 * max(len(wanted), d * d))
        first, last = 0, -math.inf
        with _told(path), pq.ParquetFile(path) as file:
            total = max(file.metadata.num_rows, 1)
            for batch in file.iter_batches(batch_size=rows, columns=names, use_threads=False):
                values = np.column_stack([_numbers(batch.column(name)) for name in wanted])
                places = first + np.arange(len(values))
                if np.isinf(values).any():
                    i, j = np.argwhere(np.isinf(values))[0]
                    raise DataError(f"{path}, row {places[i]}, column {wanted[j]!r}: infinite")
                stamps = None
                if what.time is not None:
                    stamps = _stamps(batch.column(names[0]))
                    check_times(stamps, places, last, f"{path}, row")
                    last = float(stamps[-1])
                first += len(values)
                yield Chunk(what.assemble(values), stamps, places, min(1.0, first / total))

    return Source(path, what.kind, what.names, chunks)


def _numbers(column: Any) -> Numbers:
    import pyarrow as pa

    plain = column.cast(pa.float64())
    return np.asarray(plain.to_numpy(zero_copy_only=False), dtype=float)


def _stamps(column: Any) -> Numbers:
    """Numbers as they are, dates as seconds."""
    import pyarrow as pa

    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        stamps = column.cast(pa.timestamp("ns")).to_numpy(zero_copy_only=False)
        seconds = stamps.astype("datetime64[ns]").astype(np.int64) * 1e-9
        return np.where(np.isnat(stamps), np.nan, seconds)
    return _numbers(column)


class _told:
    """Arrow's errors in one sentence with the file's name."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        import pyarrow as pa

        if isinstance(error, (DataError, FileNotFoundError, IsADirectoryError, PermissionError)):
            return
        if isinstance(error, (pa.ArrowException, OSError, ValueError, KeyError, MemoryError)):
            detail = " ".join(str(error).split())[:160]
            raise DataError(f"{self.path} cannot be read, it may be damaged: {detail}") from error
