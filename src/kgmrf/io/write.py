"""Results to files, piece by piece; a file appears when it is complete."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, NamedTuple, Protocol, Self

import numpy as np

from kgmrf._names import as_columns
from kgmrf._types import Numbers
from kgmrf.io import dates as calendar
from kgmrf.io.source import DataError
from kgmrf.results import Result

FIELDS = (
    "age",
    "nis",
    "log_likelihood",
    "half_life",
    "covariance",
    "correlation",
    "volatility",
    "rotation",
    "position",
    "spectrum",
    "velocity",
    "angle_std",
)
"""What can be written beside the time, in the order of the columns."""

DEFAULT = tuple(f for f in FIELDS if f not in ("spectrum", "correlation", "volatility"))


def arrays_of(result: Result, fields: Sequence[str] = DEFAULT) -> dict[str, Numbers]:
    """The time and these fields of a result, in the order of the columns."""
    known = {*result.fields()}
    if "loadings" in known and tuple(fields) != DEFAULT:  # of many channels only if asked for
        known |= {"covariance", "spectrum"}
    if "covariance" in known and "rotation" not in known:
        known |= {"correlation", "volatility"}
    chosen = [name for name in FIELDS if name in fields and name in known]
    made = {name: getattr(result, name) for name in ("time", *chosen) if name != "position"}
    return made | ({"position": result._field("position")} if "position" in chosen else {})


def columns_of(
    result: Result, fields: Sequence[str] = DEFAULT, channels: Sequence[str] | None = None
) -> dict[str, Numbers]:
    """A result as columns of numbers, one row per step; `Result.to_frame` without pandas.

    >>> from kgmrf import KGMRF
    >>> result = KGMRF(n_samples=8).filter(np.tile(np.diag([2.0, 0.5]), (5, 1, 1)))
    >>> list(columns_of(result, ["covariance"], ["x", "y"]))
    ['time', 'covariance_x_x', 'covariance_x_y', 'covariance_y_y']
    """
    arrays = arrays_of(result, fields)
    place = arrays.pop("position", None)
    if "rotation" in result.fields() and "covariance" in arrays:
        # The file is about the rotation, not about a covariance.
        arrays = {"error_covariance" if k == "covariance" else k: v for k, v in arrays.items()}
    columns = as_columns(arrays, 1, channels or result.channels)
    if place is not None:
        columns |= {f"t{axis}": place[:, i] for i, axis in enumerate("xyz")}
    return columns


class _About(NamedTuple):
    """What is written: the fields, the names of the channels, and how dates look."""

    fields: tuple[str, ...]
    channels: tuple[str, ...]
    dates: str
    per_second: float


class _Sink(Protocol):
    def write(self, result: Result) -> None: ...

    def close(self) -> None: ...


def check_output(path: Path) -> None:
    """Refuse what cannot be written, before any work is done."""
    _sink(path)
    if not path.parent.is_dir():
        raise DataError(f"the folder {str(path.parent)!r} for the results does not exist")
    if path.suffix.lower() == ".parquet":
        import pyarrow  # noqa: F401


class Writer:
    """Write the results of successive chunks; the file is there when the ``with`` block is left.

    fields: which of `FIELDS`. channels: their names, which NPZ files keep as an array ``channels``
    and Parquet files in the metadata of the schema. dates: how times are written in tables, if as
    dates (`Source.dates`). per_second: units of time in a second, for trajectories (.tum counts in
    seconds, .euroc.csv in nanoseconds).

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
        self.path = path
        self.about = _About(tuple(fields), tuple(channels), dates, per_second or 1.0)

    def __enter__(self) -> Self:
        # Beside its destination, so that the last step is a rename within one file system.
        handle, name = tempfile.mkstemp(
            prefix=f".{self.path.name}.", suffix=".part", dir=self.path.parent
        )
        os.close(handle)
        self._part = Path(name)
        self._sink = _sink(self.path)(self._part, self.about)
        return self

    def write(self, result: Result) -> None:
        """Append the frames of a result."""
        self._sink.write(result)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._sink.close()
            if kind is None:
                mask = os.umask(0)
                os.umask(mask)
                self._part.chmod(0o666 & ~mask)
                self._part.replace(self.path)
        finally:
            self._part.unlink(missing_ok=True)


class _Csv:
    """Shortest decimal numbers that read back as the same bits; NaN is an empty cell."""

    def __init__(self, path: Path, about: _About) -> None:
        self.about = about
        self.file = path.open("w", newline="", encoding="utf-8")
        self.empty = True

    def write(self, result: Result) -> None:
        columns = columns_of(result, self.about.fields, self.about.channels)
        if self.empty:
            self.file.write(",".join(map(_cell, columns)) + "\n")
            self.empty = False
        rows = np.column_stack(list(columns.values()))
        lines = []
        for row, gaps in zip(rows.tolist(), np.isnan(rows).any(axis=1).tolist(), strict=True):
            cells = [repr(number) for number in row]
            if gaps:
                cells = ["" if cell == "nan" else cell for cell in cells]
            lines.append(",".join(cells))
        if self.about.dates:
            stamps = calendar.words(columns["time"], self.about.dates)
            lines = [
                stamp + line[len(line.partition(",")[0]) :]
                for stamp, line in zip(stamps, lines, strict=True)
            ]
        self.file.write("\n".join(lines) + "\n")

    def close(self) -> None:
        self.file.close()


def _cell(word: str) -> str:
    """A name as a cell of a table."""
    return '"' + word.replace('"', '""') + '"' if set(word) & set(',"\r\n') else word


class _Parquet:
    def __init__(self, path: Path, about: _About) -> None:
        self.path, self.about = path, about
        self.writer: Any = None

    def write(self, result: Result) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns: dict[str, Any]
        columns = {**columns_of(result, self.about.fields, self.about.channels)}
        if self.about.dates:
            zone = "UTC" if self.about.dates.endswith("Z") else None
            stamps = calendar.instants(columns["time"]).astype(np.int64)
            columns["time"] = pa.array(stamps).cast(pa.timestamp("us", tz=zone))
        table = pa.table(columns)
        if self.about.channels:
            table = table.replace_schema_metadata({"channels": json.dumps(self.about.channels)})
        if self.writer is None:
            self.writer = pq.ParquetWriter(self.path, table.schema)
        self.writer.write_table(table)

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()


class _Npz:
    """Whole arrays under the names of the fields; each grows in a file of its own until the end."""

    def __init__(self, path: Path, about: _About) -> None:
        self.path, self.about = path, about
        self.folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
        self.files: dict[str, IO[bytes]] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}

    def write(self, result: Result) -> None:
        for name, values in arrays_of(result, self.about.fields).items():
            array = np.ascontiguousarray(values, dtype="<f8")
            if name not in self.files:
                self.files[name] = (self.folder / name).open("wb")
                self.shapes[name] = (0, *array.shape[1:])
            self.files[name].write(array.tobytes())
            self.shapes[name] = (self.shapes[name][0] + len(array), *array.shape[1:])

    def close(self) -> None:
        try:
            with zipfile.ZipFile(self.path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
                for name, file in self.files.items():
                    file.close()
                    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                        header = {
                            "descr": "<f8",
                            "fortran_order": False,
                            "shape": self.shapes[name],
                        }
                        np.lib.format.write_array_header_1_0(member, header)
                        with open(self.folder / name, "rb") as stored:
                            shutil.copyfileobj(stored, member, 1 << 20)
                if self.about.channels:
                    with archive.open("channels.npy", "w") as member:
                        np.lib.format.write_array(
                            member, np.array(self.about.channels), allow_pickle=False
                        )
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)


class _Trajectory:
    """Time, position and quaternion, one line per frame that has a rotation."""

    def __init__(self, path: Path, about: _About) -> None:
        self.about = about
        self.file = path.open("w", newline="")
        self.file.write(self.head)

    head = "# time tx ty tz qx qy qz qw\n"

    def write(self, result: Result) -> None:
        if "rotation" not in result.fields():
            raise DataError("a trajectory holds rotations; write covariances to .csv")
        turns = result.quaternion
        known = ~np.isnan(turns).any(axis=-1)
        place = np.zeros((len(result), 3))
        if "position" in result.fields():
            place = np.nan_to_num(result._field("position"))
        seconds = result.time / self.about.per_second
        for k in np.flatnonzero(known):
            self.file.write(self.line(float(seconds[k]), place[k], turns[k]))

    def line(self, seconds: float, place: Numbers, q: Numbers) -> str:
        return " ".join([f"{seconds:.9f}", *(f"{v:.9g}" for v in (*place, *q))]) + "\n"

    def close(self) -> None:
        self.file.close()


class _Euroc(_Trajectory):
    head = (
        "#timestamp [ns],p_RS_R_x [m],p_RS_R_y [m],p_RS_R_z [m],"
        "q_RS_w [],q_RS_x [],q_RS_y [],q_RS_z []\n"
    )

    def line(self, seconds: float, place: Numbers, q: Numbers) -> str:
        whole = int(seconds)
        stamp = str(whole * 10**9 + round((seconds - whole) * 1e9))
        return ",".join([stamp, *(f"{v:.9g}" for v in (*place, q[3], *q[:3]))]) + "\n"


_SINKS: dict[str, Any] = {
    ".csv": _Csv,
    ".parquet": _Parquet,
    ".npz": _Npz,
    ".tum": _Trajectory,
    ".euroc.csv": _Euroc,
}


def _sink(path: Path) -> Any:
    """What writes a file of this name."""
    name = path.name.lower()
    for ending in sorted(_SINKS, key=len, reverse=True):
        if name.endswith(ending):
            return _SINKS[ending]
    raise DataError(f"results end in {', '.join(_SINKS)}, got {str(path)!r}")
