"""What every reader gives: pieces of a sequence that fit into memory, and where they stand."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from kgmrf import _npz
from kgmrf._types import Numbers
from kgmrf.io.dates import days

Kind: TypeAlias = Literal["samples", "covariance", "rotation"]

MOST_CHANNELS = 4096
"""Wider tables are refused: a state of this d is a gigabyte already."""
GLANCE = 200
"""Rows that are looked at before it is said what the columns of a table are."""
CHUNK_BYTES = 16_000_000
"""How much of a file is in memory at a time, about."""


class DataError(ValueError):
    """A file that cannot be used; the message names the file and the place in it."""


class Chunk(NamedTuple):
    """Successive frames of a file.

    Parameters
    ----------
    values : array
        Samples ``(n, d)`` or ``(n, m, d)``, or matrices ``(n, d, d)``; NaN where nothing was seen.
    times : array
        ``(n,)`` or None.
    places : array
        Number of the line (or row) of every frame.
    done : float
        Share of the file that has been read, 0 to 1.
    positions : array, default None
        ``(n, 3)`` beside rotations, or None.
    rates : array, default None
        Measured angular rates beside rotations, ``(n, 3)``, per unit of the times, or None.
    """

    values: Numbers
    times: Numbers | None
    places: Numbers
    done: float
    positions: Numbers | None = None
    rates: Numbers | None = None

    def cut(self, first: int, last: int) -> Chunk:
        """The steps from first up to last."""
        return self._replace(**{name: array[first:last] for name, array in self._arrays().items()})

    def _arrays(self) -> dict[str, Any]:
        return {name: a for name, a in self._asdict().items() if isinstance(a, np.ndarray)}


@dataclass(frozen=True)
class Source:
    """A file as a sequence: what it holds, and a way to go through it in chunks, again and again.

    Parameters
    ----------
    path : Path
        The file.
    kind : Kind
        "samples", "covariance" or "rotation".
    names : tuple[str, ...]
        The channels.
    read : Callable[[], Iterator[Chunk]]
        Starts again at the beginning and gives the chunks.
    n_samples : float, default None
        Samples behind each covariance, if the file says.
    word : str, default "row"
        What a place in the file is called, "line" or "row".
    remarks : tuple[str, ...], default ()
        What was assumed and might be wrong.
    dates : str, default ""
        How its times are written, if as dates (see `kgmrf.io.dates.style`); they are read as
        seconds since 1970.
    per_second : float, default None
        How many units of its time make a second, if that is known.
    """

    path: Path
    kind: Kind
    names: tuple[str, ...]
    read: Callable[[], Iterator[Chunk]] = field(repr=False)
    n_samples: float | None = None
    word: str = "row"
    remarks: tuple[str, ...] = ()
    dates: str = ""
    per_second: float | None = None

    def __iter__(self) -> Iterator[Chunk]:
        return self.read()

    @property
    def d(self) -> int:
        """Number of channels."""
        return len(self.names)

    def windows(self, size: int) -> Source:
        """Samples gathered into frames of ``size``, ``(n, size, d)``; the last is filled with NaN.

        The time of a frame is that of its last sample, its place that of its first.
        """
        if self.kind != "samples":
            raise DataError(f"{self.path} holds {self.kind} matrices: only samples have a window")
        return self if size == 1 else replace(self, read=lambda: _windows(self, size))


def _windows(source: Source, size: int) -> Iterator[Chunk]:
    kept: list[Chunk] = []
    for chunk in source:
        if chunk.values.ndim != 2:
            raise DataError(f"{source.path} holds blocks of samples already: leave out the window")
        both = joined([*kept, chunk])
        n = len(both.values) // size * size
        if n:
            yield _frames(both.cut(0, n), size)
        kept = [both.cut(n, len(both.values))]
    for rest in kept:
        missing = -len(rest.values) % size
        if missing:
            last = rest.cut(-1, len(rest.values))
            filler = last._replace(values=np.full((1, source.d), np.nan))
            yield _frames(joined([rest, *[filler] * missing]), size)


def _frames(chunk: Chunk, size: int) -> Chunk:
    blocks = chunk.values.reshape(-1, size, chunk.values.shape[-1])
    times = None if chunk.times is None else chunk.times[size - 1 :: size]
    return chunk._replace(values=blocks, times=times, places=chunk.places[::size])


def suffix(path: Path) -> str:
    """The ending of a name, that of the text if it is packed."""
    return Path(path.stem if path.suffix.lower() == ".gz" else path.name).suffix.lower()


def joined(chunks: Sequence[Chunk]) -> Chunk:
    """Successive chunks as one."""
    names = chunks[0]._arrays()
    whole: Any = {name: np.concatenate([getattr(c, name) for c in chunks]) for name in names}
    return chunks[-1]._replace(**whole)


def rows_per_chunk(bytes_per_row: int) -> int:
    """How many rows are read at a time."""
    return max(1, min(65_536, CHUNK_BYTES // max(bytes_per_row, 1)))


class Meaning(NamedTuple):
    """What the numbers of a file are.

    kind, names, n_samples, remarks, dates, per_second: as in `Source`. used, columns: numbers and
    names of the columns of values, in a table. assemble: from their values ``(n, len(used))`` to
    samples or matrices. positions: whether the last three of them are a position. time: number of
    the time column, or None; rest: that of its nanoseconds. by_day: whether times are days,
    20240131.
    """

    kind: Kind
    names: tuple[str, ...]
    used: tuple[int, ...] = ()
    assemble: Callable[[Numbers], Numbers] = lambda values: values
    columns: tuple[str, ...] = ()
    positions: bool = False
    time: int | None = None
    rest: int | None = None
    by_day: bool = False
    n_samples: float | None = None
    remarks: tuple[str, ...] = ()
    dates: str = ""
    per_second: float | None = None

    def times(self, numbers: Callable[[int], Numbers]) -> Numbers | None:
        """The times of rows, from the numbers in their columns; NaN for what is no day."""
        if self.time is None:
            return None
        times = numbers(self.time)
        if self.rest is not None:
            times = times + 1e-9 * numbers(self.rest)
        return days(times) if self.by_day else times


def source_of(
    path: Path, what: Meaning, pieces: Callable[[], Iterable[Chunk]], word: str = "row"
) -> Source:
    """A source whose chunks are pieces of a file, checked: finite numbers, in order of time."""
    where = f"{path}, {word}"

    def read() -> Iterator[Chunk]:
        last = -math.inf
        for piece in pieces():
            values, times, places = piece[:3]
            if np.isinf(values).any():
                first, *at = np.argwhere(np.isinf(values))[0].tolist()
                named = f"column {what.columns[at[0]]!r}" if what.columns else f"at {at}"
                raise DataError(f"{where} {places[first]}, {named}: infinite")
            if times is not None:
                _check_times(times, places, last, where)
                last = float(times[-1])
            made = what.assemble(values)
            if np.isinf(made).any():
                k = int(np.argwhere(np.isinf(made))[0, 0])
                raise DataError(
                    f"{where} {places[k]}: a quaternion of length zero; leave its cells empty if "
                    "nothing was observed"
                )
            yield piece._replace(values=made, positions=values[:, -3:] if what.positions else None)

    about = (what.n_samples, word, what.remarks, what.dates, what.per_second)
    return Source(path, what.kind, what.names, read, *about)


def _check_times(times: Numbers, places: Numbers, last: float, where: str) -> None:
    if not np.isfinite(times).all():
        k = int(np.argmin(np.isfinite(times)))
        raise DataError(f"{where} {places[k]}: no time; every row needs one")
    before = np.append(last, times[:-1])
    if (times < before).any():
        k = int(np.argmax(times < before))
        raise DataError(
            f"{where} {places[k]}: the time {times[k]:.15g} lies before the {before[k]:.15g} above "
            "it; sort the file by time"
        )


@contextmanager
def as_data_error(path: Path, *more: type[Exception]) -> Iterator[None]:
    """Whatever a damaged file makes its library say, in one sentence with the file's name."""
    damage: tuple[type[Exception], ...] = (*_npz.DAMAGE, *more)
    try:
        yield
    except (DataError, *_npz.ABSENT):
        raise
    except damage as error:
        raise DataError(
            f"{path} cannot be read, it may be damaged: {_npz.reason_of(error)}"
        ) from error
