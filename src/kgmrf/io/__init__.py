"""Files in, files out: sequences larger than memory, results that appear when complete.

`open_source` finds out what a file holds and goes through it in chunks; `Writer` takes the results
of the chunks. Nothing in a file is ever executed, and a damaged file is one `DataError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kgmrf.io.source import KINDS, Chunk, DataError, Kind, Source
from kgmrf.io.write import FIELDS, Writer, check_output, columns_of

__all__ = [
    "FIELDS",
    "KINDS",
    "SUFFIXES",
    "Chunk",
    "DataError",
    "Kind",
    "Source",
    "Writer",
    "check_output",
    "columns_of",
    "open_source",
]

TEXT = (".csv", ".tsv", ".txt", ".tum", ".dat")
ARRAYS = (".npy", ".npz", ".h5", ".hdf5")
SUFFIXES = (*TEXT, ".parquet", *ARRAYS)
"""Endings of the files that can be read; those of text also with .gz behind them."""
_PIPES = ("-", "/dev/stdin")


def open_source(
    path: str | Path,
    *,
    kind: Kind | None = None,
    time: str | None = None,
    columns: Sequence[str] | None = None,
    key: str | None = None,
) -> Source:
    """A file of samples, covariances or rotations, as a sequence of chunks.

    The ending of ``path`` says the format: .csv .tsv .txt .dat .tum (also packed: .csv.gz),
    .parquet, .npy .npz, .h5 .hdf5.

    kind: "samples", "covariance" or "rotation"; None asks the file. In tables, columns
    ``covariance_i_j`` or ``rotation_i_j`` are entries of matrices (a triangle of a covariance is
    enough), ``qx qy qz qw`` (or ``q_RS_x ...``) are quaternions, ``truth_...`` is ignored,
    everything else is a channel. Units in brackets are no part of a name. Text without a header
    and with eight columns between white space is a TUM trajectory.
    Arrays ``(T, d, d)`` are covariances, unless the file speaks of rotations.
    time: the column or array of time stamps, numbers or dates (which become seconds); default: one
    that is called time, timestamp, t, date; in tables otherwise a first column without a name, or
    a column of dates.
    columns: the channels to use, in tables. key: which array, in .npz and HDF5 files.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "samples.csv"
    >>> _ = path.write_text("time,a,b\\n0,1.0,2.0\\n1,,0.5\\n")
    >>> source = open_source(path)
    >>> source.kind, source.names, [chunk.values.tolist() for chunk in source]
    ('samples', ('a', 'b'), [[[1.0, 2.0], [nan, 0.5]]])
    """
    path = Path(path)
    if str(path) in _PIPES or path.is_fifo() or path.is_char_device():
        raise DataError(
            f"{path}: a pipe cannot be gone through twice; save it in a file first, or give its "
            "lines to kgmrf stream"
        )
    suffix = path.suffix.lower()
    if suffix == ".gz" and Path(path.stem).suffix.lower() in TEXT:
        suffix = Path(path.stem).suffix.lower()
    if suffix not in SUFFIXES:
        raise DataError(
            f"{path}: what is this? Files to read end in {' '.join(SUFFIXES)}, text also in .gz"
        )
    given: dict[str, Any] = {"kind": kind}
    if suffix in TEXT or suffix == ".parquet":
        if key is not None:
            raise DataError(f"{path} is a table and has no arrays; choose columns instead of a key")
        given |= {"time": time, "columns": columns}
        if suffix in TEXT:
            from kgmrf.io.text import open_text

            return open_text(path, **given)
        from kgmrf.io.parquet import open_parquet

        return open_parquet(path, **given)
    if columns is not None:
        raise DataError(f"{path} holds arrays, not columns; choose an array with a key")
    if suffix == ".npy":
        from kgmrf.io.arrays import open_npy

        if key is not None or time is not None:
            raise DataError(f"{path} holds one array and nothing else")
        return open_npy(path, **given)
    given |= {"time": time, "key": key}
    if suffix == ".npz":
        from kgmrf.io.arrays import open_npz

        return open_npz(path, **given)
    from kgmrf.io.arrays import open_hdf5

    return open_hdf5(path, **given)
