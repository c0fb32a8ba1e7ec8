"""NPY, NPZ, HDF5: arrays with time as their first axis, read in slices."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from kgmrf import _npz
from kgmrf._types import Numbers
from kgmrf.io import source as src
from kgmrf.io.columns import quaternions
from kgmrf.io.source import Chunk, DataError, Kind, Source

VALUE_NAMES = ("observations", "samples", "covariances", "covariance", "rotations", "rotation")
TIME_NAMES = ("times", "time", "timestamps", "t")
MOST_HELD = 256_000_000
"""Bytes of a single row, or of an array that has to be read in one go, that are still accepted."""


def open_npy(path: Path, *, kind: Kind | None = None) -> Source:
    """One array in a .npy file."""

    with src.told(path), open(path, "rb") as file:
        header = _npz.read_header(file)
    return _source(path, _stored(path, header, lambda: open(path, "rb")), None, kind, ())


def open_npz(
    path: Path, *, kind: Kind | None = None, time: str | None = None, key: str | None = None
) -> Source:
    """An array in an .npz file, streamed out of the archive, compressed or not."""
    headers = {}
    n_samples = None
    with src.told(path), zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ValueError(f"{entry.filename} is compressed in a way numpy does not write")
            if not entry.filename.endswith(".npy"):
                continue
            name = entry.filename.removesuffix(".npy")
            with archive.open(entry) as stream:
                headers[name] = _npz.read_header(stream)
                plain = headers[name].dtype.kind in "fiu" and headers[name].shape == ()
                if name == "n_samples" and plain:
                    data = stream.read(headers[name].n_bytes)
                    number = float(np.frombuffer(data, headers[name].dtype)[0])
                    n_samples = number if 0 < number < math.inf else None
    shapes = {name: header.shape for name, header in headers.items()}
    key, times = _choose(path, shapes, key, time)

    def member(name: str) -> _Array:
        @contextmanager
        def stream() -> Iterator[IO[bytes]]:
            with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as inside:
                yield inside

        return _stored(path, headers[name], stream)

    clock = None if times is None else member(times)
    return _source(path, member(key), clock, kind, tuple(shapes), key, n_samples)


def open_hdf5(
    path: Path, *, kind: Kind | None = None, time: str | None = None, key: str | None = None
) -> Source:
    """A dataset in an HDF5 file, read slice by slice."""
    import h5py

    shapes: dict[str, tuple[int, ...]] = {}

    def note(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and item.shape and item.dtype.kind in "fiu":
            shapes[name] = item.shape

    with src.told(path), h5py.File(path, "r") as file:
        file.visititems(note)
    key, times = _choose(path, shapes, key and key.strip("/"), time)
    clock = None if times is None else _dataset(path, times, shapes[times])
    return _source(path, _dataset(path, key, shapes[key]), clock, kind, tuple(shapes), key)


class _Array(NamedTuple):
    """What is read slice by slice: so many rows at a time."""

    shape: tuple[int, ...]
    slices: Callable[[int], Iterator[Numbers]]


def _stored(path: Path, header: _npz.Header, stream: Callable[[], Any]) -> _Array:
    """An array in npy format behind a stream that is read from front to back."""
    shape, dtype = header.shape, header.dtype
    if dtype.kind not in "fiu":
        raise DataError(f"{path} holds {dtype}, not numbers")

    def numbers(file: IO[bytes], count: int, row: int) -> Numbers:
        data = file.read(count * dtype.itemsize)
        if len(data) < count * dtype.itemsize:
            raise DataError(f"{path} ends after row {row}: it should have {shape[0]} rows")
        return np.frombuffer(data, dtype=dtype).astype(float)

    def slices(rows: int) -> Iterator[Numbers]:
        whole, width = None, math.prod(shape[1:])
        with src.told(path), stream() as file:
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

    return _Array(shape, slices)


def _dataset(path: Path, key: str, shape: tuple[int, ...]) -> _Array:
    """A dataset of an HDF5 file."""

    def slices(rows: int) -> Iterator[Numbers]:
        import h5py

        with src.told(path), h5py.File(path, "r") as file:
            for first in range(0, shape[0], rows):
                yield np.asarray(file[key][first : first + rows], dtype=float)

    return _Array(shape, slices)


def _source(
    path: Path,
    values: _Array,
    clock: _Array | None,
    kind: Kind | None,
    beside: Sequence[str],
    key: str = "",
    n_samples: float | None = None,
) -> Source:
    shape = values.shape
    if len(shape) not in (2, 3) or 0 in shape:
        raise DataError(
            f"{path}: {key or 'the array'} has shape {shape}; expected samples (T, d), blocks of "
            "samples (T, m, d) or matrices (T, d, d), time first"
        )
    if math.prod(shape[1:]) * 8 > MOST_HELD or shape[-1] > src.MOST_CHANNELS:
        raise DataError(
            f"{path}: {key or 'the array'} has shape {shape}: too many channels to track"
        )
    if clock is not None and clock.shape != shape[:1]:
        raise DataError(f"{path}: times have shape {clock.shape}, the values {shape}")
    kind = kind or _guess(shape, key, beside)
    d, turns = shape[-1], kind == "rotation" and shape[1:] == (4,)
    if turns:
        d = 3
    elif kind != "samples" and (len(shape) != 3 or shape[1] != shape[2]):
        raise DataError(f"{path}: {kind} matrices have shape (T, d, d), this is {shape}")

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
    made = [quaternions] if turns else []
    return src.source_of(
        path, kind, names, pieces, lambda *at: f", at {list(at)}", *made, n_samples=n_samples
    )


def _guess(shape: tuple[int, ...], key: str, beside: Sequence[str]) -> Kind:
    """(T, d, d) are covariances, unless the file speaks of rotations."""
    if len(shape) == 2 or shape[1] != shape[2] or key == "samples":
        return "samples"
    return "rotation" if "rotation" in (key, *beside) or key == "rotations" else "covariance"


def _choose(
    path: Path, shapes: dict[str, tuple[int, ...]], key: str | None, time: str | None
) -> tuple[str, str | None]:
    """The names of the array of values, and of that of its times."""
    for name in (key, time):
        if name is not None and name not in shapes:
            raise DataError(f"{path} has no array {name!r}; it has {_some(shapes)}")
    large = [name for name, shape in shapes.items() if len(shape) in (2, 3)]
    usual = [name for name in VALUE_NAMES if name in large]
    if key is None:
        if not usual and len(large) != 1:
            raise DataError(f"{path}: which array? Choose one with --key: {_some(shapes)}")
        key = (usual or large)[0]
    folder = key.rpartition("/")[0]
    for name in TIME_NAMES:
        full = f"{folder}/{name}" if folder else name
        if time is None and shapes.get(full) == shapes[key][:1]:
            time = full
    return key, time


def _some(shapes: dict[str, tuple[int, ...]]) -> str:
    listed = [f"{name} {shape}" for name, shape in list(shapes.items())[:8]]
    return ", ".join(listed) or "no array of numbers"
