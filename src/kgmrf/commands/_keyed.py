"""``kgmrf track --by KEY``: a table of many tracks, a block of rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kgmrf._check import ObservationError
from kgmrf._extras import optional
from kgmrf._names import clocks_among
from kgmrf.bank import TrackerBank
from kgmrf.commands._run import progress
from kgmrf.io import DataError

if TYPE_CHECKING:
    from kgmrf.commands._given import FileOptions

TEXT = {".csv": ",", ".tsv": "\t"}
TABLES = (*TEXT, ".csv.gz", ".tsv.gz", ".parquet", ".arrow", ".feather")
WRITES = (".csv", ".parquet")
ROWS = 1 << 16
"""Rows that are taken in together."""
DEFAULT = ("covariance", "log_likelihood")


def check_keyed(given: FileOptions, output: Path | None, **files: Path | None) -> None:
    """Refuse what cannot be done track by track, before any work is done."""
    used = [name for name, value in files.items() if value is not None]
    used += ["window"] * (given.window > 1) + ["mean"] * (given.mean not in ("zero", "linear"))
    used += [
        name
        for name in ("paper", "key", "n_samples", "noise_std", "gyroscope")
        if getattr(given, name)
    ]
    used += ["kind"] * (given.kind not in (None, "samples"))
    if used:
        raise ValueError(
            f"--by tracks the samples of many tracks; it has no --{used[0].replace('_', '-')}"
        )
    if not given.file.name.lower().endswith(TABLES):
        raise ValueError(f"{given.file}: --by reads tables: {', '.join(TABLES)}")
    if output is not None and output.suffix.lower() not in WRITES:
        raise ValueError(f"{output}: --by writes {' and '.join(WRITES)}")


def track_by_key(
    given: FileOptions, by: str, output: Path | None, fields: tuple[str, ...] | None
) -> tuple[dict[str, Any], list[str]]:
    """Follow every track of a file; what there is to say about it, as JSON and in words."""
    bank: Any = None
    rows, score, scored = 0, 0.0, 0
    named = tuple(dict.fromkeys((*(fields or DEFAULT), "log_likelihood")))
    with (
        ExitStack() as stack,
        progress(given.file.name, shown=given.talk) as advance,
    ):
        write = None
        for table, done in _tables(given, by):
            if bank is None:
                bank = TrackerBank(
                    0,
                    _channels(table, given, by),
                    gains=given.gains,
                    time_unit=given.time_unit,
                    noise_floor=given.noise_floor,
                    mean=given.mean,
                )
            try:
                found = bank.feed_table(table, key=by, time=given.time, fields=named)
            except ObservationError as error:
                raise DataError(f"{given.file}, rows from {rows + 1} on: {error}") from error
            scores = found["log_likelihood"].to_numpy()
            known = scores[np.isfinite(scores)]
            rows, score, scored = rows + len(scores), score + known.sum(), scored + known.size
            if fields is not None and "log_likelihood" not in fields:
                found = found.drop_columns(["log_likelihood"])
            if output is not None:
                write = write or stack.enter_context(_writer(output, found.schema))
                write.write_table(found)
            advance(done)
    if bank is None:
        raise DataError(f"{given.file} holds no rows")
    about = {
        "kind": "samples",
        "by": by,
        "rows": rows,
        "tracks": len(bank),
        "channels": list(bank.channels),
        "time_unit": bank._clock.unit,
        "mean_log_likelihood": float(score / scored) if scored else None,
    }
    words = [
        f"{given.file}: {rows} rows of {len(bank)} tracks by {by!r}, d = {bank.d}",
        f"  {'time unit':18s}{bank._clock.unit:.6g}",
    ]
    if scored:
        words.append(f"  {'log-likelihood':18s}{score / scored:.4f} per row")
    return about, words


def _channels(table: Any, given: FileOptions, by: str) -> int:
    names = table.column_names
    clocks = {names[k] for k in clocks_among(names)} | {given.time}
    return len([name for name in names if name != by and name not in clocks])


def _tables(given: FileOptions, by: str) -> Iterator[tuple[Any, float]]:
    """The file as tables of Arrow, and how much of it is done."""
    with optional():
        import pyarrow as pa
    path = given.file
    size = max(path.stat().st_size, 1)
    chosen = None
    if given.columns is not None:
        chosen = [word.strip() for word in given.columns.split(",")]
    try:
        for batch, done in _batches(path, by, chosen, given.time, size):
            names = _known_names(path, batch.schema.names, by, chosen)
            if chosen is not None:
                clocks = [given.time] if given.time else [names[k] for k in clocks_among(names)]
                batch = batch.select([by, *clocks[:1], *chosen])
            if len(batch):
                yield pa.Table.from_batches([batch]), done
    except pa.ArrowException as error:
        raise DataError(f"{path}: {' '.join(str(error).split())[:200]}") from error


def _known_names(path: Path, names: list[str], by: str, chosen: list[str] | None) -> list[str]:
    """The names of the columns, among which are those that were asked for."""
    for name in (by, *(chosen or ())):
        if name not in names:
            raise DataError(f"{path} has no column {name!r}; it has {', '.join(names[:12])}")
    return names


def _batches(
    path: Path, by: str, chosen: list[str] | None, time: str | None, size: int
) -> Iterator[tuple[Any, float]]:
    import pyarrow as pa

    name = path.name.lower()
    if name.endswith(".parquet"):
        import pyarrow.parquet as pq

        with pq.ParquetFile(path) as file:
            total, done = max(file.metadata.num_rows, 1), 0
            for batch in file.iter_batches(ROWS, use_threads=False):
                done += len(batch)
                yield batch, done / total
        return
    if name.endswith((".arrow", ".feather")):
        with pa.memory_map(str(path)) as source:
            reader = pa.ipc.open_file(source)
            for k in range(reader.num_record_batches):
                yield reader.get_batch(k), (k + 1) / reader.num_record_batches
        return
    import pyarrow.csv as text

    mark = TEXT[Path(name.removesuffix(".gz")).suffix]
    with pa.input_stream(str(path)) as source:
        head = source.read(1 << 16).partition(b"\n")[0].decode("utf-8-sig", "replace")
    names = [word.strip().strip('"') for word in head.rstrip("\r").split(mark)]
    _known_names(path, names, by, chosen)
    clocks = {names[k] for k in clocks_among(names)} | {by, time}
    channels = [word for word in names if word not in clocks] if chosen is None else chosen
    # Else the first block decides, and a column of whole numbers has no fractions later.
    numbers = dict.fromkeys(channels, pa.float64())
    convert = text.ConvertOptions(column_types=numbers, strings_can_be_null=True)
    parse, done = text.ParseOptions(delimiter=mark), 0
    with text.open_csv(path, parse_options=parse, convert_options=convert) as reader:
        for batch in reader:
            done += batch.nbytes
            yield batch, min(1.0, done / size)


def _writer(output: Path, schema: Any) -> Any:
    if output.suffix.lower() == ".parquet":
        import pyarrow.parquet as pq

        return pq.ParquetWriter(output, schema)
    import pyarrow.csv as text

    return text.CSVWriter(output, schema)
