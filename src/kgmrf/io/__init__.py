"""Files in, files out: sequences larger than memory, results that appear when complete.

`open_source` finds out what a file holds and goes through it in chunks; `Writer` takes the results
of the chunks. Nothing in a file is ever executed, and a damaged file is one `DataError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kgmrf.io.source import Chunk, DataError, Kind, Source, suffix
from kgmrf.io.write import FIELDS, Writer, check_output

__all__ = [
    "FIELDS",
    "SUFFIXES",
    "Chunk",
    "DataError",
    "Kind",
    "Source",
    "Writer",
    "check_output",
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

    Parameters
    ----------
    path : str or Path
        File to read; its ending says the format.
    kind : Kind, default None
        "samples", "covariance" or "rotation"; None asks the file. In tables, columns
        ``covariance_i_j`` or ``rotation_i_j`` are entries of matrices (a triangle of a covariance
        is enough), ``qx qy qz qw`` (or ``q_RS_x ...``) are quaternions, ``truth_...`` is ignored,
        ``n_samples`` (of the first row) is the number of samples behind each covariance, everything
        else is a channel. Text without a header and with eight columns between white space is a TUM
        trajectory. Arrays ``(T, d, d)`` are covariances, unless the file speaks of rotations.
    time : str, default None
        The column or array of time stamps, numbers or dates (which become seconds).
    columns : Sequence[str], default None
        The channels to use, in tables.
    key : str, default None
        Which array, in .npz and HDF5 files.

    Examples
    --------
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
            f"{path}: a pipe cannot be read twice; save it in a file first, or give its "
            "lines to kgmrf stream"
        )
    ending = suffix(path)
    if ending not in SUFFIXES or (path.suffix.lower() == ".gz" and ending not in TEXT):
        raise DataError(
            f"{path}: unsupported file extension {path.suffix!r}; expected one of "
            f"{' '.join(SUFFIXES)}, text also with .gz"
        )
    if ending not in ARRAYS:
        if key is not None:
            raise DataError(f"{path} is a table and has no arrays; choose columns instead of a key")
        if ending == ".parquet":
            from kgmrf.io.parquet import open_parquet as open_table
        else:
            from kgmrf.io.text import open_text as open_table
        return open_table(path, kind=kind, time=time, columns=columns)
    if columns is not None:
        raise DataError(f"{path} holds arrays, not columns; choose an array with a key")
    if ending == ".npy" and (key is not None or time is not None):
        raise DataError(f"{path} holds one array and nothing else")
    from kgmrf.io.arrays import open_arrays

    return open_arrays(path, kind=kind, time=time, key=key)
