"""Engines: the mathematics of one way to follow something, as functions over arrays of tracks.

The state of a track is one row of float64 numbers; everything that is remembered of the track is
in its row, so a tracker is one row, a bank is n rows, and a stream is rows by key. All of them give
the same numbers. Every engine (`law`, `ensemble`, `rotations`, `low_rank`) keeps `Engine`.

In every row TIME and SEEN are the first two numbers.

Above an engine, trackers and banks only check, remember and show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np

from kgmrf import _check
from kgmrf._types import Numbers
from kgmrf.constants import INVALID as INVALID
from kgmrf.constants import MISSING as MISSING
from kgmrf.constants import OBSERVED as OBSERVED

TIME, SEEN = 0, 1
"""Where every row has its time and the time of its last observation."""

TRUST = -1.0
"""A tolerance that takes matrices as they are."""

NONE = np.empty((0, 0))
INT8 = np.dtype(np.int8)


class Lines(NamedTuple):
    """N observations of any tracks, in the order in which they came.

    Line l belongs to row track_index[l]; tracks may repeat. values is ``(N, r, d)``: with
    ``matrix`` one matrix, otherwise r samples, NaN where a cell is missing. counts[l] is the number
    of samples behind a matrix; 0 means no observation, below 0 no step at all, only a record. dt is
    the time since the line before of the same track. tolerance: how far matrices may be from what
    they should be, TRUST takes them as they are; a line that cannot be used is INVALID and changes
    nothing.
    """

    track_index: Numbers
    values: Numbers
    counts: Numbers
    dt: Numbers
    matrix: bool = True
    tolerance: float = TRUST

    def part(self, these: Any) -> Lines:
        """Some of the lines."""
        track, values, counts, dt = self[:4]
        return self._replace(
            track_index=track[these], values=values[these], counts=counts[these], dt=dt[these]
        )


class View(Mapping[str, Numbers]):
    """The fields of an engine's records ``(..., size)`` by name, each made when it is asked for.

    rows: those that the records belong to, or a function that hands them out in chunks; see
    `Engine.from_rows`.
    """

    def __init__(self, engine: Any, records: Numbers, rows: Any = None) -> None:
        self._engine, self._records, self._rows = engine, records, rows
        self._made: dict[str, Numbers] = {}

    def _make(self, name: str) -> dict[str, Numbers]:
        """The field, and others that come with it."""
        raise NotImplementedError

    def __getitem__(self, name: str) -> Numbers:
        found = self._made.get(name)
        if found is None:
            if name not in self._engine.names:
                raise KeyError(name)
            self._made |= self._make(name)
            found = self._made[name]
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._engine.names)

    def __len__(self) -> int:
        return len(self._engine.names)

    def at(self, frame: int | slice) -> Self:
        """The view of some steps alone; what is made already is not made again."""
        rows = self._rows
        if callable(rows):
            rows = partial(_chosen, rows, np.arange(len(self._records))[frame])
        elif rows is not None:
            rows = rows[frame]
        part = type(self)(self._engine, self._records[frame], rows)
        part._made = {name: value[frame] for name, value in self._made.items()}
        return part

    def _whole(self, rows: Numbers) -> Numbers:
        """The whole records of rows ``(..., size)``."""
        engine = self._engine
        found = engine.records_of(rows.reshape(-1, engine.size))
        return found.reshape(*rows.shape[:-1], engine.record_size)

    def _worked_out(self, work: Callable[..., Any], *shapes: tuple[int, ...]) -> list[Numbers]:
        """Arrays of these shapes: what ``work(rows, at)`` tells of the rows of the steps ``at``."""
        out = [np.empty(shape) for shape in shapes]

        def take(at: Any, rows: Numbers) -> None:
            for array, part in zip(out, work(rows, at), strict=True):
                array[at] = part

        if callable(self._rows):
            self._rows(take)
        else:
            take(..., self._rows)
        return out


def _chosen(rows: Any, frames: Any, take: Any) -> None:
    """Hands out the rows of some steps only, of all that another function hands out."""
    single, wanted = np.ndim(frames) == 0, np.atleast_1d(frames)

    def pick(at: slice, rows: Numbers) -> None:
        inside = (wanted >= at.start) & (wanted < at.stop)
        if inside.any():
            chosen = rows[wanted[inside] - at.start]
            take(... if single else np.flatnonzero(inside), chosen[0] if single else chosen)

    rows(pick)


class Engine:
    """What trackers and banks need. Nothing of a track is in it: copies may be the same object."""

    d: int
    size: int  # numbers of a row
    record_size: int  # numbers of a record
    small: int  # numbers of a record without what is costly: the first of a row, unless ``kept``
    kept: int = 0  # numbers of a record that rows do not hold: 0, or record_size
    names: tuple[str, ...]  # all fields
    from_rows: tuple[str, ...] = ()  # fields that are worked out from the rows
    shows: type[View]

    def __deepcopy__(self, memo: Any) -> Self:
        return self

    def init(self, n_tracks: int) -> Numbers:
        """Rows ``(n, size)`` of new tracks."""
        raise NotImplementedError

    def advance(
        self, rows: Numbers, lines: Lines, record_width: int | None = None
    ) -> tuple[Numbers, Numbers]:
        """Take in lines of observations in order; rows change in place. Status and records.

        record_width: numbers of each record to keep; None keeps all, 0 none.
        """
        raise NotImplementedError

    def _answers(self, n: int, record_width: int | None) -> tuple[Numbers, Numbers]:
        """Arrays for the status and the records of n lines."""
        size = self.record_size if record_width is None else record_width
        return np.zeros(n, INT8), np.empty((n, size)) if size else NONE

    def ahead(self, rows: Numbers, dt: float) -> tuple[Numbers, Numbers]:
        """Rows and records as forecast; the given rows stay."""
        raise NotImplementedError

    def records_of(self, rows: Numbers) -> Numbers:
        """Records of rows as they stand."""
        raise NotImplementedError

    def view(self, records: Numbers, rows: Any = None) -> View:
        """Named fields of records; rows as in `View`."""
        return self.shows(self, records, rows)

    def record_width(self, names: tuple[str, ...]) -> int:
        """Numbers of a record that some fields need."""
        return self.record_size

    def check(self, rows: Numbers) -> None:
        """ValueError unless these rows could have come from this engine."""
        if rows.ndim != 2 or rows.shape[1] != self.size or rows.dtype != np.float64:
            raise ValueError(f"rows are {rows.dtype} of shape {rows.shape}, not (n, {self.size})")


def inspected(seen: Numbers, counts: Numbers, tolerance: float, rotation: bool = False) -> Numbers:
    """What will become of lines of matrices; readable, for engines without a compiled check."""
    there = (counts > 0.0) & ~np.isnan(seen).all(axis=(-2, -1))
    status = np.where(there, OBSERVED, MISSING).astype(np.int8)
    if tolerance >= 0.0 and there.any():
        finite = there & np.isfinite(seen).all(axis=(-2, -1))
        check = _check.rotations if rotation else _check.covariances
        safe = np.where(finite[:, None, None], seen, np.eye(seen.shape[-1]))
        status[there & ~check(safe, finite, "observations", "skip")[1]] = INVALID
    return status


def rounds(which: Numbers) -> list[Numbers]:
    """Lines that can be taken in together: the first of every track, then the second, ...

    >>> [part.tolist() for part in rounds(np.array([3, 5, 3, 3]))]
    [[0, 1], [2], [3]]
    """
    order = np.argsort(which, kind="stable")
    ordered = which[order]
    first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    place = np.arange(len(order)) - np.repeat(first, np.diff(np.append(first, len(order))))
    by_place = np.argsort(place, kind="stable")
    edges = np.cumsum(np.bincount(place))[:-1]
    return [np.sort(part) for part in np.split(order[by_place], edges)]
