"""Tracks of an engine as rows: the store of the self-tuned bank, and of a stream."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgmrf import _check
from kgmrf._check import ObservationError, OnInvalid
from kgmrf._types import Mask, Numbers
from kgmrf.bank.shared import Taken, in_parts
from kgmrf.engines.ensemble import INVALID, OBSERVED, TRUST
from kgmrf.engines.layout import LIKELIHOOD, SEEN, TIME
from kgmrf.kernels import engine as loops
from kgmrf.results import Estimate
from kgmrf.trackers._ensemble import SMALL, shown


class Rows:
    """n tracks of an ensemble; ``rows`` holds all that is remembered of them."""

    kind = "covariance"

    def __init__(self, pattern: Any, n_threads: int) -> None:
        self._pattern = pattern
        self.engine = pattern.engine(pattern.d, raw=pattern.n_samples is None)
        self.noise_floor, self.n_threads = pattern.noise_floor, n_threads
        self.rows, self.fresh = self.engine.init(0), np.ones(0, dtype=bool)

    def __len__(self) -> int:
        return len(self.rows)

    def add(self, n_tracks: int) -> None:
        """Append fresh tracks."""
        self.rows = np.concatenate([self.rows, self.engine.init(n_tracks)])
        self.fresh = np.concatenate([self.fresh, np.ones(n_tracks, dtype=bool)])

    def kept(self, tracks: Any) -> Rows:
        """Tracks of their own: some of these."""
        twin = self.copy()
        which = np.arange(len(self))[np.asarray(tracks)]
        twin.rows, twin.fresh = self.rows[which], self.fresh[which]
        return twin

    def copy(self) -> Rows:
        """Independent tracks in the same state."""
        twin = Rows.__new__(Rows)
        twin.__dict__.update(self.__dict__)
        twin.rows, twin.fresh = self.rows.copy(), self.fresh.copy()
        return twin

    def memory(self) -> dict[str, Numbers]:
        """All that is remembered, one array per name with the tracks first."""
        return {"rows": self.rows, "fresh": self.fresh}

    def restore(self, arrays: dict[str, Numbers], n: int) -> None:
        """Take over arrays from a file, checked."""
        rows, fresh = np.ascontiguousarray(arrays["rows"]), arrays["fresh"]
        if fresh.shape != (n,) or fresh.dtype != bool or len(rows) != n:
            raise ValueError(f"{len(rows)} rows and {fresh.shape} flags for {n} tracks")
        for raw in (True, False):  # the tracks decide, as when they began
            engine = self._pattern.engine(self.engine.d, raw=raw)
            if rows.ndim == 2 and rows.shape[1] == engine.size:
                self.engine = engine
                break
        self.engine.check(rows)
        self.rows, self.fresh = rows, fresh.copy()

    def _take_kind(self, matrix: bool) -> None:
        """The first observations of all tracks decide whether they are samples or matrices."""
        if self.fresh.all():
            engine = self._pattern.engine(self.engine.d, raw=not matrix)
            if engine.size != self.engine.size:
                self.engine, self.rows = engine, engine.init(len(self))

    # ------------------------------------------------------------------ steps

    def update(
        self,
        seen: Numbers,
        there: Mask,
        counts: Numbers,
        intervals: Numbers,
        on_invalid: OnInvalid,
        *,
        matrix: bool,
    ) -> Taken:
        """Take in one step of every track: ``(n, r, d)`` samples or ``(n, d, d)`` matrices."""
        self._take_kind(matrix)
        n = len(self)
        seen = np.array(seen, dtype=float, order="C")
        m = np.where(there, np.broadcast_to(counts, (n,)), 0.0)
        dt = np.where(self.fresh, 0.0, np.broadcast_to(intervals, (n,)))
        invalid = np.zeros(n, dtype=bool)
        if matrix:
            status = self._inspected(seen)
            m = np.where(status == loops.MISSING, 0.0, m)
            invalid = (status == INVALID) & (m > 0)
        else:
            with np.errstate(over="ignore", invalid="ignore"):
                invalid = (m > 0) & ~((seen * seen <= _check.LARGEST) | np.isnan(seen)).all(
                    (-2, -1)
                )
        if invalid.any():
            if on_invalid != "skip":
                self._mend(seen, invalid, on_invalid, matrix)
            else:
                m[invalid] = 0.0
        which, status = np.arange(n), np.zeros(n, dtype=np.int8)
        several = self.n_threads > 1

        def part(begin: int, end: int) -> None:
            these = slice(begin, end)
            status[these] = self.engine.advance(
                self.rows,
                which[these],
                seen[these],
                m[these],
                dt[these],
                matrix=matrix,
                tolerance=TRUST,
                room=0,
                own_work=several,
            )[0]

        in_parts(part, n, n, self.n_threads)
        self.fresh[:] = False
        return Taken(status == OBSERVED, invalid & (m == 0))

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
        """Take in lines of any tracks in order; the fields after each of them.

        seen: ``(N, d)`` samples or ``(N, d, d)`` matrices, NaN where there are none.
        """
        self._take_kind(matrix)
        block = np.array(seen if matrix else seen[:, None, :], dtype=float, order="C")
        m = np.array(counts if matrix else np.ones(len(which)), dtype=float)
        if matrix:
            m[np.isnan(block[:, 0, 0])] = 0.0
        if {"velocity", "angle_std"} & set(fields):
            return self._lines_one_by_one(
                which, block, m, np.asarray(dt, dtype=float), fields, matrix
            )
        room = None if any(name not in SMALL for name in fields) else self.engine.small
        steps = np.array(dt, dtype=float)
        records = self.engine.advance(self.rows, which, block, m, steps, matrix=matrix, room=room)[
            1
        ]
        self.fresh[which] = False
        found = shown(self.engine, records, self.noise_floor, None)
        return {name: np.asarray(found[name], dtype=float) for name in fields}

    def _lines_one_by_one(
        self,
        which: Numbers,
        seen: Numbers,
        counts: Numbers,
        dt: Numbers,
        fields: list[str],
        matrix: bool,
    ) -> dict[str, Numbers]:
        """As `lines`, for fields that are worked out from whole rows."""
        records = np.empty((len(which), self.engine.record_size))
        rows = np.empty((len(which), self.engine.size))
        for k in range(len(which)):
            one = slice(k, k + 1)
            records[one] = self.engine.advance(
                self.rows, which[one], seen[one], counts[one], dt[one], matrix=matrix
            )[1]
            rows[k] = self.rows[which[k]]
        self.fresh[which] = False
        found = shown(self.engine, records, self.noise_floor, rows)
        return {name: np.asarray(found[name], dtype=float) for name in fields}

    def _inspected(self, matrices: Numbers) -> Numbers:
        status = loops.inspect_covariances(matrices)
        if status is not None:
            return status
        there = np.asarray(~np.isnan(matrices).all(axis=(-2, -1)))
        finite = np.asarray(np.isfinite(matrices).all(axis=(-2, -1)))
        used = _check.covariances(matrices, there & finite, "observations", "skip")[1]
        return np.where(used, OBSERVED, np.where(there, INVALID, loops.MISSING)).astype(np.int8)

    def _mend(self, seen: Numbers, invalid: Mask, on_invalid: OnInvalid, matrix: bool) -> None:
        """Repair what can be, in place, or say what is wrong with the first."""
        first = int(np.argmax(invalid))
        name = f"observations[{first}] (and {int(invalid.sum()) - 1} others)"
        finite = np.asarray(np.isfinite(seen).all(axis=(-2, -1)))
        if not matrix or not finite[first]:
            raise ObservationError(
                f"{name} is not finite, partly NaN or too large to square; a missing observation "
                "is all NaN"
            )
        if on_invalid == "raise":
            _check.covariances(seen[first], np.asarray(True), name, "raise")
            raise ObservationError(f"{name} cannot be used")  # at the edge of a tolerance
        seen[invalid] = _check.covariances(seen[invalid], finite[invalid], name, "repair")[0]

    # ------------------------------------------------------------------ what is known

    def estimate(self, tracks: Any = None) -> Estimate:
        """All fields of an `Estimate`, for all tracks or some."""
        rows = self._some(tracks)
        return Estimate(shown(self.engine, self.engine.look(rows), self.noise_floor, rows))

    def forecast(self, steps: float, tracks: Any = None) -> Estimate:
        """The estimates ``steps`` units of time ahead; changes nothing."""
        rows, records = self.engine.coasted(self._some(tracks), steps)
        return Estimate(shown(self.engine, records, self.noise_floor, rows))

    def _some(self, tracks: Any) -> Numbers:
        if tracks is None:
            return self.rows.copy()
        return np.atleast_2d(self.rows[np.arange(len(self))[np.asarray(tracks)]])

    @property
    def time(self) -> Numbers:
        """Time of every track, (n,)."""
        return self.rows[:, TIME]

    @property
    def age(self) -> Numbers:
        """Time since the last observation, NaN before the first, (n,)."""
        return self.rows[:, TIME] - self.rows[:, SEEN]

    @property
    def log_likelihood(self) -> Numbers:
        """One-step-ahead log-likelihood of every track at the last step, (n,)."""
        return self.rows[:, LIKELIHOOD]

    @property
    def nis(self) -> Numbers:
        """How surprising the last observation of every track was, (n,)."""
        return np.asarray(shown(self.engine, self.rows[:, : self.engine.small], 0.0, None)["nis"])

    @property
    def covariance(self) -> Numbers:
        """Covariance of every track, (n, d, d)."""
        return self.estimate().covariance

    @property
    def rotation(self) -> Numbers:
        """Not for covariances."""
        raise AttributeError("this bank follows covariances and has no rotation")

    @property
    def nbytes(self) -> int:
        """Memory of the state of all tracks."""
        return int(self.rows.nbytes + self.fresh.nbytes)
