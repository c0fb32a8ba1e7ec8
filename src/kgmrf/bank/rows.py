"""Tracks of an engine as rows: the store of a bank, and of a stream."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, NamedTuple, Self

import numpy as np

from kgmrf import _check
from kgmrf._check import ObservationError, OnInvalid
from kgmrf._types import Mask, Numbers
from kgmrf.engines import INVALID, OBSERVED, TRUST, Engine, Lines, View, rounds
from kgmrf.geometry import so
from kgmrf.kernels.engine import ROTATION_TOLERANCE, inspect_covariances

_TOLERANCES = {
    "covariance": (_check.SYMMETRY_TOLERANCE, 1e-4),
    "rotation": (ROTATION_TOLERANCE, 1e-3),
}
"""How far matrices may be off, in double and in single precision."""

TRIED = 1 << 18
"""Numbers of the matrices of tracks from a file that are tried out at a time."""

ALONE = 512
"""A thread is not worth its while for fewer tracks than this."""


class Taken(NamedTuple):
    """What became of the observations of one step, one truth value per track."""

    observed: Mask
    invalid: Mask


class Rows:
    """n tracks of an engine: ``rows`` holds all that is remembered of them, ``records`` what the
    last observation said, where the rows do not."""

    def __init__(self, engine: Engine, kind: str) -> None:
        self.engine, self.kind = engine, kind
        self.rows, self.fresh = engine.init(0), np.ones(0, dtype=bool)
        self.records = np.zeros((0, engine.kept))

    def __len__(self) -> int:
        return len(self.rows)

    def add(self, n_tracks: int) -> None:
        """Append fresh tracks."""
        engine, new = self.engine, self.engine.init(n_tracks)
        shown = engine.look(new) if engine.kept and n_tracks else np.zeros((n_tracks, engine.kept))
        self.rows = np.concatenate([self.rows, new])
        self.records = np.concatenate([self.records, shown])
        self.fresh = np.concatenate([self.fresh, np.ones(n_tracks, dtype=bool)])

    def positions(self, tracks: Any) -> Numbers:
        """Positions ``(k,)`` of tracks that are given by position, mask or slice; None: all."""
        if tracks is None:
            tracks = slice(None)
        some = tracks if isinstance(tracks, slice) else np.asarray(tracks)
        return np.atleast_1d(np.arange(len(self))[some])

    def kept(self, tracks: Any) -> Self:
        """Tracks of their own: some of these, by position or mask."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        which = self.positions(tracks)
        for name in ("rows", "records", "fresh"):
            setattr(twin, name, getattr(self, name)[which])  # positions: a copy
        return twin

    def memory(self) -> dict[str, Numbers]:
        """All that is remembered, one array per name with the tracks first."""
        return {"rows": self.rows, "records": self.records, "fresh": self.fresh}

    def restore(self, arrays: dict[str, Numbers]) -> None:
        """Take over what `memory` gave, checked."""
        if set(arrays) != {"rows", "records", "fresh"}:
            raise ValueError(f"it holds {', '.join(sorted(arrays))[:80]}")
        n = len(arrays["rows"])
        rows, fresh = np.array(arrays["rows"], order="C"), arrays["fresh"]
        records = np.array(arrays["records"], order="C")
        if fresh.shape != (n,) or fresh.dtype != bool:
            raise ValueError(f"{n} rows and {fresh.shape} flags")
        if records.shape != (n, self.engine.kept) or records.dtype != np.float64:
            raise ValueError(f"records are {records.dtype} of shape {records.shape}")
        self.engine.check(rows)
        if self.kind == "rotation" and n and records.size:
            matrices = self.engine.view(records)["rotation"]
            there = np.asarray(~np.isnan(matrices).any(axis=(-2, -1)))
            _check.rotations(matrices, there, "its estimate", "raise", True)
        self.rows, self.records, self.fresh = rows, records, fresh.copy()
        step = max(1, TRIED // self.engine.d**2)
        for begin in range(0, n, step):
            self.kept(slice(begin, begin + step))._try_out()

    def _try_out(self) -> None:
        """ValueError unless a forecast, and observations like it, leave an estimate. For tracks
        that are not needed any more."""
        n, turns = len(self), self.kind == "rotation"
        with np.errstate(all="ignore"):
            ahead = np.asarray(self.forecast(1.0)[self.kind])
            if turns:
                seen = np.where(np.isnan(ahead), np.eye(self.engine.d), ahead)
                _check.rotations(seen, np.ones(n, dtype=bool), "its estimate", "raise", True)
            else:
                variance = np.diagonal(ahead, axis1=-2, axis2=-1)
                seen = np.sqrt(np.where(variance > 0.0, variance, 1.0))
            one = np.ones(n)
            for _ in range(3):  # some faults show only later
                after = self.lines(np.arange(n), seen, one, one, [self.kind], matrix=turns)
        if not np.isfinite(after[self.kind]).all():
            raise ValueError("a row gives no estimate")

    # ------------------------------------------------------------------ steps

    def update(
        self,
        seen: Numbers,
        there: Mask,
        counts: Numbers,
        intervals: Numbers,
        on_invalid: OnInvalid,
        n_threads: int,
        *,
        matrix: bool,
    ) -> Taken:
        """Take in one step of every track: ``(n, r, d)`` samples or ``(n, d, d)`` matrices."""
        n = len(self)
        rough = seen.dtype == np.float32
        seen = np.require(seen, float, ["C", "W"])
        m = np.where(there, np.broadcast_to(counts, (n,)), 0.0)
        dt = np.where(self.fresh, 0.0, np.broadcast_to(intervals, (n,)))
        tolerance, invalid = TRUST, np.zeros(n, dtype=bool)
        if not matrix:
            # The largest of all first: one pass, and nothing to keep.
            most = (
                max(np.fmax.reduce(seen, None), -np.fmin.reduce(seen, None)) if seen.size else 0.0
            )
            if not most <= _check.LARGEST_SAMPLE:
                invalid = (m > 0) & (np.abs(seen) > _check.LARGEST_SAMPLE).any(axis=(-2, -1))
            if invalid.any() and on_invalid != "skip":
                refuse(seen, invalid, "not finite or too large to square")
            m[invalid] = 0.0
        elif on_invalid == "skip":
            tolerance = _TOLERANCES[self.kind][rough]
        else:
            seen, m = self._mended(seen, m, on_invalid, rough)
        which, status = np.arange(n), np.zeros(n, dtype=np.int8)

        def part(begin: int, end: int) -> None:
            these = slice(begin, end)
            lines = Lines(which[these], seen[these], m[these], dt[these], matrix, tolerance)
            found, records = self.engine.advance(self.rows, lines, self.engine.kept)
            status[these] = found
            if self.engine.kept:
                self.records[these] = records
            bad = which[these][found == INVALID]
            if bad.size:  # what cannot be used counts as missing
                none = np.zeros(bad.size)
                self._take(bad, seen[bad], none, dt[bad], True, self.engine.kept)

        in_parts(part, n, n_threads)
        self.fresh[:] = False
        return Taken(status == OBSERVED, invalid | (status == INVALID))

    def _mended(
        self, seen: Numbers, m: Numbers, on_invalid: OnInvalid, rough: bool
    ) -> tuple[Numbers, Numbers]:
        """Observations that can be used, or an error that says what is wrong with the first."""
        rotation = self.kind == "rotation"
        status = None if rotation else inspect_covariances(seen, _TOLERANCES[self.kind][rough])
        if status is not None and not ((status == INVALID) & (m > 0)).any():
            return seen, np.where(status == OBSERVED, m, 0.0)
        there = (m > 0) & ~np.isnan(seen).all(axis=(-2, -1))
        finite = np.asarray(np.isfinite(seen).all(axis=(-2, -1)))
        if (there & ~finite).any():
            refuse(seen, there & ~finite, "not finite or partly NaN")
        check = _check.rotations if rotation else _check.covariances
        seen, used = check(seen, there, "observations", on_invalid, rough)
        if rotation:
            seen = np.ascontiguousarray(so.project(seen))
        return seen, np.where(used, m, 0.0)

    def _take(
        self,
        which: Numbers,
        seen: Numbers,
        counts: Numbers,
        dt: Numbers,
        matrix: bool,
        room: int | None,
    ) -> Numbers:
        """Lines of any tracks, trusted; their records."""
        lines = Lines(which, seen, counts, dt, matrix)
        found = self.engine.advance(self.rows, lines, room)[1]
        if self.engine.kept:
            self.records[which] = found  # of lines of one track the last counts
        return found

    def lines(
        self,
        which: Numbers,
        seen: Numbers,
        counts: Numbers,
        dt: Numbers,
        fields: list[str],
        *,
        matrix: bool,
    ) -> dict[str, Numbers]:
        """As `TrackerBank.take`; which lines come in one call changes nothing."""
        engine = self.engine
        block = np.array(seen if matrix else seen[:, None, :], dtype=float, order="C")
        m = np.array(counts if matrix else np.ones(len(which)), dtype=float)
        if matrix:
            m[np.isnan(block[:, 0, 0])] = 0.0
        step, rows = np.array(dt, dtype=float), None
        if set(engine.from_rows) & set(fields):
            records = np.empty((len(which), engine.record_size))
            rows = np.empty((len(which), engine.size))
            for these in rounds(which):
                part = (which[these], block[these], m[these], step[these])
                records[these] = self._take(*part, matrix, None)
                rows[these] = self.rows[which[these]]
        else:
            room = engine.room(tuple(fields))
            records = self._take(which, block, m, step, matrix, room)
        self.fresh[which] = False
        shown = engine.view(records, rows)
        return {name: np.asarray(shown[name], dtype=float) for name in fields}

    # ------------------------------------------------------------------ what is known

    def shown(self, tracks: Any = None) -> View:
        """All fields of all tracks or some."""
        some = self.kept(tracks)
        records = some.records if self.engine.kept else some.rows[:, : self.engine.small]
        return self.engine.view(records, some.rows)

    def forecast(self, steps: float, tracks: Any = None) -> View:
        """All fields ``steps`` units of time ahead; changes nothing."""
        later, records = self.engine.ahead(self.rows[self.positions(tracks)], steps)
        return self.engine.view(records, later)


def refuse(seen: Numbers, invalid: Mask, what: str) -> None:
    """Raise an ObservationError that names the first of the invalid observations."""
    first = int(np.argmax(invalid))
    raise ObservationError(
        f"observations[{first}] (and {int(invalid.sum()) - 1} others) is {what}; a missing "
        f"observation is all NaN; got {seen[first].tolist()!s:.80}"
    )


def processors() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def in_parts(work: Callable[[int, int], None], n_tracks: int, n_threads: int) -> None:
    """work(begin, end) over all tracks, shared out among threads if there are enough of them."""
    threads = max(1, min(n_threads, n_tracks // ALONE))
    if threads == 1:
        work(0, n_tracks)
        return
    edges = np.linspace(0, n_tracks, threads + 1).astype(int)
    list(_pool(threads, os.getpid()).map(work, edges[:-1].tolist(), edges[1:].tolist()))


@lru_cache(maxsize=4)
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    """Threads that stay, for starting them takes longer than many an update.

    A process that was forked has none of its parent's threads, so it gets a pool of its own.
    """
    return ThreadPoolExecutor(threads, thread_name_prefix="kgmrf-bank")
