"""Results to files, piece by piece; a file appears when it is complete."""

from __future__ import annotations

import csv
import io
import json
import math
import shutil
import tempfile
import zipfile
from collections.abc import Sequence
from contextlib import ExitStack
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
    *("age", "nis", "log_likelihood", "half_life", "covariance", "correlation", "volatility"),
    *("rotation", "position", "spectrum", "velocity", "angle_std"),
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
    return made | ({"position": result.position} if "position" in chosen else {})


def columns_of(
    result: Result, fields: Sequence[str] = DEFAULT, channels: Sequence[str] | None = None
) -> dict[str, Numbers]:
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
        self.path, self.fields, self.channels = path, tuple(fields), tuple(channels)
        self.dates, self.per_second = dates, per_second or 1.0

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            file = stack.enter_context(_npz.replacing(self.path))
            self._sink = _sink(self.path)(file, self)
            stack.callback(self._sink.close)
            self._stack = stack.pop_all()
        return self

    def write(self, result: Result) -> None:
        """Append the steps of a result."""
        self._sink.write(result)

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)


class _Sink:
    """What writes one format to an open file."""

    def __init__(self, file: IO[bytes], about: Writer) -> None:
        self.file, self.about = file, about
        self.begun = False

    def write(self, result: Result) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """What comes at the end."""

    def columns(self, result: Result) -> dict[str, Any]:
        return {**columns_of(result, self.about.fields, self.about.channels)}


class _Csv(_Sink):
    """Shortest decimal numbers that read back as the same bits; NaN is an empty cell."""

    def write(self, result: Result) -> None:
        columns = self.columns(result)
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        if not self.begun:
            table.writerow(columns)
            self.begun = True
        cells = [["" if math.isnan(v) else repr(v) for v in c.tolist()] for c in columns.values()]
        if self.about.dates:
            cells[0] = calendar.words(columns["time"], self.about.dates)
        table.writerows(zip(*cells, strict=True))
        self.file.write(text.getvalue().encode())


class _Parquet(_Sink):
    writer: Any = None

    def write(self, result: Result) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns = self.columns(result)
        if self.about.dates:
            zone = "UTC" if self.about.dates.endswith("Z") else None
            stamps = calendar.instants(columns["time"]).astype(np.int64)
            columns["time"] = pa.array(stamps).cast(pa.timestamp("us", tz=zone))
        table = pa.table(columns)
        if self.about.channels:
            table = table.replace_schema_metadata({"channels": json.dumps(self.about.channels)})
        if self.writer is None:
            self.writer = pq.ParquetWriter(self.file, table.schema)
        self.writer.write_table(table)

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()


class _Npz(_Sink):
    """Whole arrays under the names of the fields; each grows in a file of its own until the end."""

    def __init__(self, file: IO[bytes], about: Writer) -> None:
        super().__init__(file, about)
        self.parts: dict[str, IO[bytes]] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}

    def write(self, result: Result) -> None:
        for name, values in arrays_of(result, self.about.fields).items():
            array = np.ascontiguousarray(values, dtype="<f8")
            if name not in self.parts:
                self.parts[name] = tempfile.TemporaryFile(dir=self.about.path.parent)  # noqa: SIM115
                self.shapes[name] = (0, *array.shape[1:])
            self.parts[name].write(array.tobytes())
            self.shapes[name] = (self.shapes[name][0] + len(array), *array.shape[1:])

    def close(self) -> None:
        with zipfile.ZipFile(self.file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            for name, part in self.parts.items():
                header = {"descr": "<f8", "fortran_order": False, "shape": self.shapes[name]}
                with part, archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array_header_1_0(member, header)
                    part.seek(0)
                    shutil.copyfileobj(part, member, 1 << 20)
            if self.about.channels:
                with archive.open("channels.npy", "w") as member:
                    names = np.array(self.about.channels)
                    np.lib.format.write_array(member, names, allow_pickle=False)


class _Trajectory(_Sink):
    """Time, position and quaternion, one line per step that has a rotation."""

    head = "# time tx ty tz qx qy qz qw\n"

    def write(self, result: Result) -> None:
        if "rotation" not in result.fields():
            raise DataError("a trajectory holds rotations; write covariances to .csv")
        if not self.begun:
            self.file.write(self.head.encode())
            self.begun = True
        turns = result.quaternion
        place = np.zeros((len(result), 3))
        if "position" in result.fields():
            place = np.nan_to_num(result.position)
        seconds = result.time / self.about.per_second
        for k in np.flatnonzero(~np.isnan(turns).any(axis=-1)):
            self.file.write(self.line(float(seconds[k]), place[k], turns[k]).encode())

    def line(self, seconds: float, place: Numbers, q: Numbers) -> str:
        return " ".join([f"{seconds:.9f}", *(f"{v:.9g}" for v in (*place, *q))]) + "\n"


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
