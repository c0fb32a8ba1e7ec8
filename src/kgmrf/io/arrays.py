"""NPY, NPZ, HDF5: arrays with time as their first axis, read in slices."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from kgmrf import _npz
from kgmrf._types import Numbers
from kgmrf.io.columns import quaternions
from kgmrf.io.source import MOST_CHANNELS, Chunk, DataError, Kind, Source, rows_per_chunk
from kgmrf.io.text import check_times

VALUE_NAMES = ("observations", "samples", "covariances", "covariance", "rotations", "rotation")
TIME_NAMES = ("times", "time", "timestamps", "t")
MOST_HELD = 256_000_000
"""Bytes of a single row, or of an array that has to be read in one go, that are still accepted."""


def open_npy(path: Path, *, kind: Kind | None = None) -> Source:
    """One array in a .npy file."""

    @contextmanager
    def stream() -> Iterator[IO[bytes]]:
        with open(path, "rb") as file:
            yield file

    with _told(path), stream() as file:
        header = _npz.read_header(file)
    return _source(path, _Stored(path, header, stream), None, kind, ())


def open_npz(
    path: Path, *, kind: Kind | None = None, time: str | None = None, key: str | None = None
) -> Source:
    """An array in an .npz file, streamed out of the archive, compressed or not."""
    headers = {}
    n_samples = None
    with _told(path), _npz.opened(path) as archive:
        for name in _npz.names(archive):
            with archive.open(f"{name}.npy") as stream:
                headers[name] = _npz.read_header(stream)
                plain = headers[name].dtype.kind in "fiu" and headers[name].shape == ()
                if name == "n_samples" and plain:
                    data = stream.read(headers[name].n_bytes)
                    number = float(np.frombuffer(data, headers[name].dtype)[0])
                    n_samples = number if 0 < number < math.inf else None
    shapes = {name: header.shape for name, header in headers.items()}
    key = _choose(path, shapes, key)
    times = _choose_times(path, shapes, key, time)

    def member(name: str) -> _Stored:
        @contextmanager
        def stream() -> Iterator[IO[bytes]]:
            with _npz.opened(path) as archive, archive.open(f"{name}.npy") as inside:
                yield inside

        return _Stored(path, headers[name], stream)

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

    with _told(path), h5py.File(path, "r") as file:
        file.visititems(note)
    if key is not None:
        key = key.strip("/")
    key = _choose(path, shapes, key)
    times = _choose_times(path, shapes, key, time)
    clock = None if times is None else _Dataset(path, times, shapes[times])
    return _source(path, _Dataset(path, key, shapes[key]), clock, kind, tuple(shapes), key)


class _Stored:
    """An array in npy format behind a stream that is read from front to back."""

    def __init__(self, path: Path, header: _npz.Header, stream: Callable[[], Any]) -> None:
        self.path, self.header, self.stream = path, header, stream
        self.shape = header.shape
        if header.dtype.kind not in "fiu":
            raise DataError(f"{path} holds {header.dtype}, not numbers")

    def slices(self, rows: int) -> Iterator[Numbers]:
        header = self.header
        width = math.prod(self.shape[1:])
        if header.fortran and len(self.shape) > 1:
            yield from self._turned(rows)
            return
        with _told(self.path), self.stream() as file:
            _npz.read_header(file)
            for first in range(0, self.shape[0], rows):
                n = min(rows, self.shape[0] - first)
                array = self._numbers(file, n * width, first)
                yield array.reshape(n, *self.shape[1:])

    def _turned(self, rows: int) -> Iterator[Numbers]:
        """Columns first: the whole array has to be there before its first row is complete."""
        if self.header.n_bytes > MOST_HELD:
            raise DataError(
                f"{self.path} is stored column by column and too large to be turned; save it again "
                "after numpy.ascontiguousarray"
            )
        with _told(self.path), self.stream() as file:
            _npz.read_header(file)
            whole = self._numbers(file, math.prod(self.shape), 0)
        whole = whole.reshape(self.shape, order="F")
        for first in range(0, len(whole), rows):
            yield whole[first : first + rows]

    def _numbers(self, file: IO[bytes], count: int, row: int) -> Numbers:
        size = count * self.header.dtype.itemsize
        parts, got = [], 0
        while got < size:
            part = file.read(min(size - got, 1 << 24))
            if not part:
                raise DataError(
                    f"{self.path} ends after row {row}: it should have {self.shape[0]} rows"
                )
            parts.append(part)
            got += len(part)
        return np.frombuffer(b"".join(parts), dtype=self.header.dtype).astype(float)


class _Dataset:
    """A dataset of an HDF5 file."""

    def __init__(self, path: Path, key: str, shape: tuple[int, ...]) -> None:
        self.path, self.key, self.shape = path, key, shape

    def slices(self, rows: int) -> Iterator[Numbers]:
        import h5py

        with _told(self.path), h5py.File(self.path, "r") as file:
            data = file[self.key]
            chunk = data.chunks
            if chunk is not None and math.prod(chunk) * data.dtype.itemsize > MOST_HELD:
                raise DataError(f"{self.path}: {self.key} has chunks of shape {chunk}, too large")
            for first in range(0, self.shape[0], rows):
                yield np.asarray(data[first : first + rows], dtype=float)


def _source(
    path: Path,
    values: _Stored | _Dataset,
    clock: _Stored | _Dataset | None,
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
    if math.prod(shape[1:]) * 8 > MOST_HELD or shape[-1] > MOST_CHANNELS:
        raise DataError(f"{path}: {key or 'the array'} has shape {shape}, too wide to be followed")
    if clock is not None and clock.shape != shape[:1]:
        raise DataError(f"{path}: times have shape {clock.shape}, the values {shape}")
    turned: Callable[[Numbers], Numbers] = _as_is
    if kind is None:
        kind = _guess(shape, key, beside)
    if kind == "rotation" and shape[1:] == (4,):
        turned, d = quaternions, 3
    elif kind != "samples" and (len(shape) != 3 or shape[1] != shape[2]):
        raise DataError(f"{path}: {kind} matrices have shape (T, d, d), this is {shape}")
    else:
        d = shape[-1]

    def chunks() -> Iterator[Chunk]:
        # Room for d x d matrices beside the samples, and for the result.
        rows = rows_per_chunk(16 * max(math.prod(shape[1:]), d * d))
        times = iter(clock.slices(rows)) if clock is not None else None
        first, last = 0, -math.inf
        for part in values.slices(rows):
            places = first + np.arange(len(part))
            stamps = None if times is None else next(times)
            _refuse(path, part, places)
            if stamps is not None:
                check_times(stamps, places, last, f"{path}, row")
                last = float(stamps[-1])
            first += len(part)
            yield Chunk(turned(part), stamps, places, first / shape[0])

    names = tuple(str(k) for k in range(d))
    return Source(path, kind, names, chunks, n_samples)


def _as_is(values: Numbers) -> Numbers:
    return values


def _guess(shape: tuple[int, ...], key: str, beside: Sequence[str]) -> Kind:
    """(T, d, d) are covariances, unless the file speaks of rotations."""
    if len(shape) == 2 or shape[1] != shape[2] or key == "samples":
        return "samples"
    return "rotation" if "rotation" in (key, *beside) or key == "rotations" else "covariance"


def _refuse(path: Path, part: Numbers, places: Numbers) -> None:
    if np.isinf(part).any():
        where = np.argwhere(np.isinf(part))[0]
        raise DataError(f"{path}, row {places[where[0]]}: infinite at {where[1:].tolist()}")


def _choose(path: Path, shapes: dict[str, tuple[int, ...]], key: str | None) -> str:
    if key is not None:
        if key not in shapes:
            raise DataError(f"{path} has no array {key!r}; it has {_some(shapes)}")
        return key
    for name in VALUE_NAMES:
        if name in shapes and len(shapes[name]) > 1:
            return name
    large = [name for name, shape in shapes.items() if len(shape) in (2, 3)]
    if len(large) != 1:
        raise DataError(f"{path}: which array? Choose one with --key: {_some(shapes)}")
    return large[0]


def _choose_times(
    path: Path, shapes: dict[str, tuple[int, ...]], key: str, time: str | None
) -> str | None:
    if time is not None:
        if time not in shapes:
            raise DataError(f"{path} has no array {time!r}; it has {_some(shapes)}")
        return time
    folder = key.rpartition("/")[0]
    for name in TIME_NAMES:
        full = f"{folder}/{name}" if folder else name
        if full in shapes and shapes[full] == shapes[key][:1]:
            return full
    return None


def _some(shapes: dict[str, tuple[int, ...]]) -> str:
    listed = [f"{name} {shape}" for name, shape in list(shapes.items())[:8]]
    return ", ".join(listed) or "no array of numbers"


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Whatever a damaged file makes its library say, in one sentence with the file's name."""
    try:
        yield
    except (DataError, FileNotFoundError, IsADirectoryError, PermissionError, ModuleNotFoundError):
        raise
    except _npz.DAMAGE as error:
        detail = " ".join(str(error).split())[:160] or type(error).__name__
        raise DataError(f"{path} cannot be read, it may be damaged: {detail}") from error
