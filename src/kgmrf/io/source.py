"""What every reader gives: pieces of a sequence that fit into memory, and where they stand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from kgmrf._types import Numbers

Kind: TypeAlias = Literal["samples", "covariance", "rotation"]

KINDS: tuple[Kind, ...] = ("samples", "covariance", "rotation")
MOST_CHANNELS = 4096
"""Wider tables are taken for a mistake: a state of this d is a gigabyte already."""
CHUNK_BYTES = 16_000_000
"""How much of a file is in memory at a time, about."""


class DataError(ValueError):
    """A file that cannot be used; the message names the file and the place in it."""


class Chunk(NamedTuple):
    """Successive frames of a file.

    values: samples ``(n, d)`` or ``(n, m, d)``, or matrices ``(n, d, d)``; NaN where nothing was
    seen. times: ``(n,)`` or None. places: number of the line (or row) of every frame. done: share
    of the file that has been read, 0 to 1. positions: ``(n, 3)`` beside rotations, or None.
    """

    values: Numbers
    times: Numbers | None
    places: Numbers
    done: float
    positions: Numbers | None = None


@dataclass(frozen=True)
class Source:
    """A file as a sequence: what it holds, and a way to go through it in chunks, again and again.

    kind: "samples", "covariance" or "rotation". names: the channels. n_samples: samples behind
    each covariance, if the file says. word: what a place in the file is called, "line" or "row".
    remarks: what was assumed and might be wrong. dates: how its times are written, if as dates (see
    `kgmrf.io.dates.style`); they are read as seconds since 1970. per_second: how many units of its
    time make a second, if that is known.
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
    kept: Chunk | None = None
    for chunk in source:
        if chunk.values.ndim != 2:
            raise DataError(f"{source.path} holds blocks of samples already: leave out the window")
        both = chunk if kept is None else _join(kept, chunk)
        n = len(both.values) // size * size
        if n:
            yield _frames(_cut(both, 0, n), size)
        kept = _cut(both, n, len(both.values))
    if kept is not None and len(kept.values):
        missing = np.full((size - len(kept.values), source.d), np.nan)
        times = kept.times
        if times is not None:
            times = np.append(times, np.full(len(missing), times[-1]))
        places = np.append(kept.places, np.full(len(missing), kept.places[-1]))
        yield _frames(Chunk(np.vstack([kept.values, missing]), times, places, 1.0), size)


def _frames(chunk: Chunk, size: int) -> Chunk:
    blocks = chunk.values.reshape(-1, size, chunk.values.shape[-1])
    times = None if chunk.times is None else chunk.times[size - 1 :: size]
    return Chunk(blocks, times, chunk.places[::size], chunk.done)


def _cut(chunk: Chunk, first: int, last: int) -> Chunk:
    times = None if chunk.times is None else chunk.times[first:last]
    return Chunk(chunk.values[first:last], times, chunk.places[first:last], chunk.done)


def _join(a: Chunk, b: Chunk) -> Chunk:
    times = None
    if a.times is not None and b.times is not None:
        times = np.append(a.times, b.times)
    return Chunk(np.concatenate([a.values, b.values]), times, np.append(a.places, b.places), b.done)


def rows_per_chunk(bytes_per_row: int) -> int:
    """How many rows are read at a time."""
    return max(1, min(65_536, CHUNK_BYTES // max(bytes_per_row, 1)))
