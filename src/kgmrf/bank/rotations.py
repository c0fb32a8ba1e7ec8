"""Tracks of the rotation engine as rows: the store of the self-tuned bank of rotations."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgmrf import _check
from kgmrf._check import ObservationError, OnInvalid
from kgmrf._types import Mask, Numbers
from kgmrf.bank.shared import Taken, in_parts, rounds
from kgmrf.engines.rotations import Rotations
from kgmrf.geometry import so
from kgmrf.kernels import rotation_rows as at
from kgmrf.results import Estimate


class RotationRows:
    """n tracks of the rotation engine; ``records`` shows each as its last step left it."""

    kind = "rotation"

    def __init__(self, pattern: Any, n_threads: int) -> None:
        self.engine: Rotations = pattern._engine
        self.n_threads = n_threads
        self.rows = self.engine.init(0)
        self.records = np.zeros((0, self.engine.record_size))
        self.fresh = np.ones(0, dtype=bool)

    def __len__(self) -> int:
        return len(self.rows)

    def add(self, n_tracks: int) -> None:
        """Append fresh tracks."""
        new = self.engine.init(n_tracks)
        self.rows = np.concatenate([self.rows, new])
        shown = self.engine.ahead(new, 0.0) if n_tracks else self.records[:0]
        self.records = np.concatenate([self.records, shown])
        self.fresh = np.concatenate([self.fresh, np.ones(n_tracks, dtype=bool)])

    def kept(self, tracks: Any) -> RotationRows:
        """Tracks of their own: some of these."""
        twin = self.copy()
        which = np.arange(len(self))[np.asarray(tracks)]
        for name in ("rows", "records", "fresh"):
            setattr(twin, name, getattr(self, name)[which])
        return twin

    def copy(self) -> RotationRows:
        """Independent tracks in the same state."""
        twin = RotationRows.__new__(RotationRows)
        twin.__dict__.update(self.__dict__)
        for name in ("rows", "records", "fresh"):
            setattr(twin, name, getattr(self, name).copy())
        return twin

    def memory(self) -> dict[str, Numbers]:
        """All that is remembered, one array per name with the tracks first."""
        return {"rows": self.rows, "records": self.records, "fresh": self.fresh}

    def restore(self, arrays: dict[str, Numbers], n: int) -> None:
        """Take over arrays from a file, checked."""
        rows, records, fresh = arrays["rows"], arrays["records"], arrays["fresh"]
        if rows.shape != (n, self.engine.size) or rows.dtype != np.float64:
            raise ValueError(f"rows are {rows.dtype} of shape {rows.shape}")
        if records.shape != (n, self.engine.record_size) or fresh.shape != (n,):
            raise ValueError(f"records have shape {records.shape}")
        if fresh.dtype != bool or records.dtype != np.float64:
            raise ValueError("records are not numbers")
        self.engine.check(rows)
        self.rows, self.fresh = np.ascontiguousarray(rows), fresh.copy()
        self.records = records.copy()
        with np.errstate(all="ignore"):
            ahead = self.engine.ahead(self.rows.copy(), 1.0)
            for shown in (self.records, ahead):
                matrices = self.engine.view(shown)["rotation"]
                there = np.asarray(~np.isnan(matrices).any(axis=(-2, -1)))
                _check.rotations(matrices, there, "its estimate", "raise", True)

    # ------------------------------------------------------------------ steps

    def update(
        self,
        seen: Numbers,
        there: Mask,
        counts: Numbers,
        intervals: Numbers,
        on_invalid: OnInvalid,
    ) -> Taken:
        """Take in one step of every track: rotations ``(n, 3, 3)``."""
        n = len(self)
        matrices = np.array(seen, dtype=float, order="C")
        observed = np.asarray(there & ~np.isnan(matrices).all(axis=(-2, -1)))
        finite = np.asarray(np.isfinite(matrices).all(axis=(-2, -1)))
        broken = observed & ~finite
        if broken.any() and on_invalid == "raise":
            first = int(np.argmax(broken))
            raise ObservationError(
                f"observations[{first}] is not finite or partly NaN; a missing one is all NaN"
            )
        matrices[~finite] = np.eye(3)
        matrices, used = _check.rotations(matrices, observed & finite, "observations", on_invalid)
        matrices = np.ascontiguousarray(np.where(used[:, None, None], so.project(matrices), 0.0))
        dt = np.where(self.fresh, 0.0, np.broadcast_to(intervals, (n,)))
        noise = 1.0 / np.broadcast_to(counts, (n,))

        def part(begin: int, end: int) -> None:
            these = slice(begin, end)
            self.records[these] = self.engine.advance(
                self.rows[these], matrices[None, these], used[None, these], dt[these], noise[these]
            )[0]

        in_parts(part, n, n, self.n_threads)
        self.fresh[:] = False
        return Taken(used, observed & ~used)

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
        """Take in lines of any tracks in order; the fields after each of them."""
        found = np.empty((len(which), self.engine.record_size))
        for these in rounds(which):
            tracks = which[these]
            part = self.kept(tracks)
            part.fresh[:] = False  # a line brings its own interval
            part.update(
                seen[these], np.ones(len(these), dtype=bool), counts[these], dt[these], "skip"
            )
            self.rows[tracks], self.records[tracks] = part.rows, part.records
            self.fresh[tracks] = False
            found[these] = part.records
        shown = self.engine.view(found)
        return {name: np.asarray(shown[name], dtype=float) for name in fields}

    # ------------------------------------------------------------------ what is known

    def estimate(self, tracks: Any = None) -> Estimate:
        """All fields of an `Estimate`, for all tracks or some."""
        return Estimate(self.engine.view(self._some(self.records, tracks)))

    def forecast(self, steps: float, tracks: Any = None) -> Estimate:
        """The estimates ``steps`` units of time ahead; changes nothing."""
        return Estimate(self.engine.view(self.engine.ahead(self._some(self.rows, tracks), steps)))

    def _some(self, array: Numbers, tracks: Any) -> Numbers:
        if tracks is None:
            return array.copy()
        return np.atleast_2d(array[np.arange(len(self))[np.asarray(tracks)]])

    @property
    def time(self) -> Numbers:
        """Time of every track, (n,)."""
        return self.rows[:, at.TIME]

    @property
    def age(self) -> Numbers:
        """Time since the last observation, NaN before the first, (n,)."""
        return self.rows[:, at.TIME] - self.rows[:, at.SEEN]

    @property
    def log_likelihood(self) -> Numbers:
        """One-step-ahead log-likelihood of every track at the last step, (n,)."""
        return self.estimate().log_likelihood

    @property
    def nis(self) -> Numbers:
        """How surprising the last observation of every track was, (n,)."""
        return self.estimate().nis

    @property
    def rotation(self) -> Numbers:
        """Rotation of every track, (n, 3, 3)."""
        return self.estimate().rotation

    @property
    def covariance(self) -> Numbers:
        """Error covariance of every track in the body frame, (n, 3, 3)."""
        return self.estimate().covariance

    @property
    def nbytes(self) -> int:
        """Memory of the state of all tracks."""
        return int(self.rows.nbytes + self.records.nbytes + self.fresh.nbytes)
