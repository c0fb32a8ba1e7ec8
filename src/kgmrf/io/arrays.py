"""NPY, NPZ, HDF5: arrays with time as their first axis, read in slices."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from kgmrf import _npz
from kgmrf._names import TIME_NAMES
from kgmrf._types import Numbers
from kgmrf.io import source as src
from kgmrf.io.columns import quaternions
from kgmrf.io.source import Chunk, DataError, Kind, Meaning, Source

VALUE_NAMES = ("observations", "samples", "covariances", "covariance", "rotations", "rotation")
MOST_HELD = 256_000_000
"""Bytes of a single row, or of an array that has to be read in one go, that are still accepted."""


class _Array(NamedTuple):
    """slices: so many rows at a time."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    slices: Callable[[int], Iterator[Numbers]]


def open_arrays(
    path: Path, *, kind: Kind | None = None, time: str | None = None, key: str | None = None
) -> Source:
    """An array of a file, streamed out of it, with another as its times."""
    arrays, n_samples = _found(path)
    key, time = _choose(path, arrays, key and key.strip("/"), time)
    values, clock = arrays[key], None if time is None else arrays[time]
    shape, name = values.shape, key or "the array"
    for array in (values, clock):
        if array is not None and array.dtype.kind not in "fiu":
            raise DataError(f"{path} holds {array.dtype}, not numbers")
    if len(shape) not in (2, 3) or 0 in shape:
        raise DataError(
            f"{path}: {name} has shape {shape}; expected samples (T, d), blocks of "
            "samples (T, m, d) or matrices (T, d, d), time first"
        )
    if math.prod(shape[1:]) * 8 > MOST_HELD or shape[-1] > src.MOST_CHANNELS:
        raise DataError(f"{path}: {name} has shape {shape}: too many channels to track")
    if clock is not None and clock.shape != shape[:1]:
        raise DataError(f"{path}: times have shape {clock.shape}, the values {shape}")
    square = len(shape) == 3 and shape[1] == shape[2]
    if kind is None:
        turning = key == "rotations" or "rotation" in arrays
        kind = "samples" if not square or key == "samples" else "covariance"
        kind = "rotation" if kind == "covariance" and turning else kind
    turns = kind == "rotation" and shape[1:] == (4,)
    if kind != "samples" and not turns and not square:
        raise DataError(f"{path}: {kind} matrices have shape (T, d, d), this is {shape}")
    d = 3 if turns else shape[-1]

    def pieces() -> Iterator[Chunk]:
        # Room for d x d matrices beside the samples, and for the result.
        rows = src.rows_per_chunk(16 * max(math.prod(shape[1:]), d * d))
        times = None if clock is None else iter(clock.slices(rows))
        first = 0
        for part in values.slices(rows):
            places = first + np.arange(len(part))
            first += len(part)
            yield Chunk(part, None if times is None else next(times), places, first / shape[0])

    names = tuple(str(k) for k in range(d))
    what = Meaning(kind, names, n_samples=n_samples)
    return src.source_of(path, what._replace(assemble=quaternions) if turns else what, pieces)


def _found(path: Path) -> tuple[dict[str, _Array], float | None]:
    """The arrays of a file by name, and the number of samples behind each, if it says."""
    if path.suffix.lower() == ".npz":
        return _archive(path)
    if path.suffix.lower() == ".npy":
        with src.as_data_error(path), open(path, "rb") as file:
            header = _npz.read_header(file)
        return {"": _stored(path, header, lambda: open(path, "rb"))}, None
    import h5py

    arrays: dict[str, _Array] = {}

    def note(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and item.shape and item.dtype.kind in "fiu":
            arrays[name] = _dataset(path, name, item)

    with src.as_data_error(path), h5py.File(path, "r") as file:
        file.visititems(note)
    return arrays, None


def _archive(path: Path) -> tuple[dict[str, _Array], float | None]:
    """The arrays of an .npz file, compressed or not."""
    arrays: dict[str, _Array] = {}
    n_samples = None

    def member(name: str) -> Callable[[], Any]:
        @contextmanager
        def stream() -> Iterator[IO[bytes]]:
            with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as inside:
                yield inside

        return stream

    with src.as_data_error(path), zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ValueError(f"{entry.filename} is compressed in a way numpy does not write")
            if not entry.filename.endswith(".npy"):
                continue
            name = entry.filename.removesuffix(".npy")
            with archive.open(entry) as stream:
                header = _npz.read_header(stream)
                if name == "n_samples" and header.dtype.kind in "fiu" and header.shape == ():
                    data = stream.read(header.n_bytes)
                    number = float(np.frombuffer(data, header.dtype)[0])
                    n_samples = number if 0 < number < math.inf else None
            arrays[name] = _stored(path, header, member(name))
    return arrays, n_samples


def _stored(path: Path, header: _npz.Header, stream: Callable[[], Any]) -> _Array:
    """An array in npy format behind a stream that is read from front to back."""
    shape, dtype = header.shape, header.dtype

    def numbers(file: IO[bytes], count: int, row: int) -> Numbers:
        data = file.read(count * dtype.itemsize)
        if len(data) < count * dtype.itemsize:
            raise DataError(f"{path} ends after row {row}: it should have {shape[0]} rows")
        return np.frombuffer(data, dtype=dtype).astype(float)

    def slices(rows: int) -> Iterator[Numbers]:
        whole, width = None, math.prod(shape[1:])
        with src.as_data_error(path), stream() as file:
            _npz.read_header(file)
            if header.fortran and len(shape) > 1:
                # Columns first: the whole array has to be there before its first row is complete.
                if header.n_bytes > MOST_HELD:
                    raise DataError(
                        f"{path} is stored column by column and too large to be turned; save "
                        "it again after numpy.ascontiguousarray"
                    )
                whole = numbers(file, math.prod(shape), 0).reshape(shape, order="F")
            for first in range(0, shape[0], rows):
                n = min(rows, shape[0] - first)
                if whole is not None:
                    yield whole[first : first + n]
                else:
                    yield numbers(file, n * width, first).reshape(n, *shape[1:])

    return _Array(shape, dtype, slices)


def _dataset(path: Path, name: str, item: Any) -> _Array:
    """A dataset of an HDF5 file."""

    def slices(rows: int) -> Iterator[Numbers]:
        import h5py

        with src.as_data_error(path), h5py.File(path, "r") as file:
            for first in range(0, len(file[name]), rows):
                yield np.asarray(file[name][first : first + rows], dtype=float)

    return _Array(item.shape, item.dtype, slices)


def _choose(
    path: Path, arrays: dict[str, _Array], key: str | None, time: str | None
) -> tuple[str, str | None]:
    """The names of the array of values, and of that of its times."""
    listed = ", ".join(f"{name} {array.shape}" for name, array in list(arrays.items())[:8])
    listed = listed or "no array of numbers"
    for name in (key, time):
        if name is not None and name not in arrays:
            raise DataError(f"{path} has no array {name!r}; it has {listed}")
    if key is None:
        large = [name for name, array in arrays.items() if len(array.shape) in (2, 3)]
        usual = [name for name in VALUE_NAMES if name in large]
        if "" in arrays:
            usual = [""]
        elif not usual and len(large) != 1:
            raise DataError(f"{path}: which array? Choose one with --key: {listed}")
        key = (usual or large)[0]
    for name in TIME_NAMES:
        full = "/".join([*key.split("/")[:-1], name])
        if time is None and full in arrays and arrays[full].shape == arrays[key].shape[:1]:
            time = full
    return key, time
