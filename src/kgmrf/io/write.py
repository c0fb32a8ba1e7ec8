"""Results to files, piece by piece; a file appears when it is complete."""

from __future__ import annotations

import csv
import io
import json
import math
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, Self

import numpy as np

from kgmrf import _npz
from kgmrf._names import as_columns
from kgmrf._types import Numbers
from kgmrf.io import dates as calendar
from kgmrf.io.source import DataError
from kgmrf.results import Result

FIELDS = (
    *("age", "nis", "p_value", "surprise", "log_likelihood", "half_life"),
    *("mean", "covariance", "correlation", "volatility"),
    *("rotation", "position", "spectrum", "velocity", "angle_std"),
)
"""What can be written beside the time, in the order of the columns."""

EXTRA = ("p_value", "surprise", "spectrum", "correlation", "volatility")
"""What is written only if asked for."""

DEFAULT = tuple(f for f in FIELDS if f not in EXTRA)


def arrays_of(result: Result, fields: Sequence[str] = DEFAULT) -> dict[str, Numbers]:
    """The time and these fields of a result, in the order of the columns."""
    known = {*result.fields()}
    if "loadings" in known and tuple(fields) != DEFAULT:  # of many channels only if asked for
        known |= {"covariance", "spectrum"}
    known |= {"surprise"} if "p_value" in known else set()
    if "covariance" in known and "rotation" not in known:
        known |= {"correlation", "volatility"}
    chosen = [name for name in FIELDS if name in fields and name in known]
    return {name: getattr(result, name) for name in ("time", *chosen)}


def columns_of(
    result: Result, fields: Sequence[str] = DEFAULT, channels: Sequence[str] | None = None
) -> dict[str, Any]:
    """A result as columns of numbers, one row per step; `Result.to_frame` without pandas."""
    arrays = arrays_of(result, fields)
    place = arrays.pop("position", None)
    if "rotation" in result.fields() and "covariance" in arrays:
        # The file is about the rotation, not about a covariance.
        arrays = {"error_covariance" if k == "covariance" else k: v for k, v in arrays.items()}
    columns = as_columns(arrays, 1, channels or result.channels)
    if place is not None:
        columns |= {f"t{axis}": place[:, i] for i, axis in enumerate("xyz")}
    return columns


def check_output(path: Path) -> None:
    """Refuse what cannot be written, before any work is done.

    Parameters
    ----------
    path : Path
        File that is to be written.
    """
    _format(path)
    if not path.parent.is_dir():
        raise DataError(f"the folder {str(path.parent)!r} for the results does not exist")
    if path.suffix.lower() == ".parquet":
        import pyarrow  # noqa: F401


class Writer:
    """Write the results of successive chunks; the file is there when the ``with`` block is left.

    Parameters
    ----------
    path : Path
        File to write; its ending says the format.
    fields : Sequence[str], default DEFAULT
        Which of `FIELDS`.
    channels : Sequence[str], default ()
        Their names, which NPZ files keep as an array ``channels`` and Parquet files in the metadata
        of the schema.
    dates : str, default ""
        How times are written in tables, if as dates (`Source.dates`).
    per_second : float, default None
        Units of time in a second, for trajectories (.tum counts in seconds, .euroc.csv in
        nanoseconds).

    Examples
    --------
    >>> import tempfile
    >>> from kgmrf import KGMRF
    >>> result = KGMRF(n_samples=8).filter(np.tile(np.diag([2.0, 0.5]), (5, 1, 1)))
    >>> path = Path(tempfile.mkdtemp()) / "result.csv"
    >>> with Writer(path) as writer:
    ...     writer.write(result)
    >>> len(path.read_text().splitlines())
    6
    """

    def __init__(
        self,
        path: Path,
        fields: Sequence[str] = DEFAULT,
        *,
        channels: Sequence[str] = (),
        dates: str = "",
        per_second: float | None = None,
    ) -> None:
        check_output(path)
        self.path, self.fields, self.channels = path, tuple(fields), tuple(channels)
        self.dates, self.per_second = dates, per_second or 1.0

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            file = stack.enter_context(_npz.replacing(self.path))
            self._write = stack.enter_context(_format(self.path)(file, self))
            self._stack = stack.pop_all()
        return self

    def write(self, result: Result) -> None:
        """Append the steps of a result."""
        self._write(result)

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)


# Every format is a context: it gives a function that takes results, and ends the file.
_Format = Iterator[Callable[[Result], None]]


@contextmanager
def _csv(file: IO[bytes], about: Writer) -> _Format:
    def write(result: Result) -> None:
        columns = columns_of(result, about.fields, about.channels)
        write_rows(file, columns, about.dates)

    yield write


def write_rows(file: IO[bytes], columns: dict[str, Numbers], dates: str = "") -> None:
    """Columns as CSV, the first of them dates if they have a style, below a header at the start.

    The shortest decimal numbers that read back as the same bits; NaN is an empty cell.
    """
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    if file.tell() == 0:
        table.writerow(columns)
    cells = [["" if math.isnan(v) else repr(v) for v in c.tolist()] for c in columns.values()]
    if dates:
        cells[0] = calendar.words(columns["time"], dates)
    table.writerows(zip(*cells, strict=True))
    file.write(text.getvalue().encode())


@contextmanager
def _parquet(file: IO[bytes], about: Writer) -> _Format:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with ExitStack() as stack:
        writer: Any = None

        def write(result: Result) -> None:
            nonlocal writer
            columns = columns_of(result, about.fields, about.channels)
            if about.dates:
                zone = "UTC" if about.dates.endswith("Z") else None
                stamps = calendar.instants(columns["time"]).astype(np.int64)
                columns["time"] = pa.array(stamps).cast(pa.timestamp("us", tz=zone))
            table = pa.table(columns)
            if about.channels:
                table = table.replace_schema_metadata({"channels": json.dumps(about.channels)})
            if writer is None:
                writer = stack.enter_context(pq.ParquetWriter(file, table.schema))
            writer.write_table(table)

        yield write


@contextmanager
def _arrays(file: IO[bytes], about: Writer) -> _Format:
    """Whole arrays under the names of the fields; each grows in a file of its own until the end."""
    parts: dict[str, IO[bytes]] = {}
    shapes: dict[str, tuple[int, ...]] = {}

    def write(result: Result) -> None:
        for name, values in arrays_of(result, about.fields).items():
            array = np.ascontiguousarray(values, dtype="<f8")
            if name not in parts:
                parts[name] = tempfile.TemporaryFile(dir=about.path.parent)  # noqa: SIM115
            parts[name].write(array.tobytes())
            shapes[name] = (shapes.get(name, (0,))[0] + len(array), *array.shape[1:])

    yield write
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, part in parts.items():
            header = {"descr": "<f8", "fortran_order": False, "shape": shapes[name]}
            with part, archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array_header_1_0(member, header)
                part.seek(0)
                shutil.copyfileobj(part, member, 1 << 20)
        if about.channels:
            with archive.open("channels.npy", "w") as member:
                names = np.array(about.channels)
                np.lib.format.write_array(member, names, allow_pickle=False)


@contextmanager
def _trajectory(file: IO[bytes], about: Writer) -> _Format:
    """Time, position and quaternion, one line per step that has a rotation."""
    euroc = about.path.name.lower().endswith(".euroc.csv")

    def write(result: Result) -> None:
        if "rotation" not in result.fields():
            raise DataError("a trajectory holds rotations; write covariances to .csv")
        if file.tell() == 0:
            file.write(EUROC if euroc else b"# time tx ty tz qx qy qz qw\n")
        turns = result.quaternion
        places = np.zeros((len(result), 3))
        if "position" in result.fields():
            places = np.nan_to_num(result.position)
        for k in np.flatnonzero(~np.isnan(turns).any(axis=-1)):
            seconds = float(result.time[k] / about.per_second)
            q = np.roll(turns[k], 1) if euroc else turns[k]  # w first
            cells = [f"{seconds:.9f}", *(f"{v:.9g}" for v in (*places[k], *q))]
            if euroc:
                whole = int(seconds)
                cells[0] = str(whole * 10**9 + round((seconds - whole) * 1e9))
            file.write(("," if euroc else " ").join(cells).encode() + b"\n")

    yield write


EUROC = (
    b"#timestamp [ns],p_RS_R_x [m],p_RS_R_y [m],p_RS_R_z [m],"
    b"q_RS_w [],q_RS_x [],q_RS_y [],q_RS_z []\n"
)

_FORMATS: dict[str, Any] = {
    ".csv": _csv,
    ".parquet": _parquet,
    ".npz": _arrays,
    ".tum": _trajectory,
    ".euroc.csv": _trajectory,
}


def _format(path: Path) -> Any:
    """What writes a file of this name."""
    for ending in reversed(_FORMATS):  # .euroc.csv before .csv
        if path.name.lower().endswith(ending):
            return _FORMATS[ending]
    raise DataError(f"results end in {', '.join(_FORMATS)}, got {str(path)!r}")
