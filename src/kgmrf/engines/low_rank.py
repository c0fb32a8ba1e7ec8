"""Many channels as an engine: rows of tracks, lines of samples, records.

A record is what an estimate needs of one step: head, tails and weights of the row, and where there
is room the loadings ``(d, k)`` and the noise ``(d,)`` of the blend S = F F^T + diag N; no d x d
array. `kgmrf.engines.low_rank_step` tells the formulas.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import numpy as np

from kgmrf._types import Numbers
from kgmrf.engines import low_rank_step
from kgmrf.engines.ensemble import Record
from kgmrf.engines.layout import (
    COUNT,
    DISTANCE,
    KAPPA,
    LIKELIHOOD,
    N_HEAD,
    N_TAILS,
    SAMPLES,
    SEEN,
    VALUES,
)
from kgmrf.engines.low_rank_layout import (
    BUFFERED,
    SIZE,
    Factors,
    Layout,
    default_members,
    layout,
    stages,
    track,
)
from kgmrf.engines.low_rank_view import FROM_ROWS, NAMES, LowRankView
from kgmrf.kernels import engine
from kgmrf.kernels.low_rank_places import work

MISSING, OBSERVED, INVALID = engine.MISSING, engine.OBSERVED, engine.INVALID
CROSSOVER = 64
"""Channels from which factors beat the small ensemble in accuracy and in speed."""

FEW = 4
"""Lines for which a work space is kept at hand."""

LARGEST_LOG = 350.0
"""Of a ratio of sizes: values beyond 1e75 are no observations."""


class LowRank:
    """Six laws of few factors plus a diagonal, blended by the gradient of their likelihood.

    rank: factors of most members; one has a third, one twice as many. None: min(10, d // 3).
    members: `Factors` in place of these.

    >>> engine = LowRank(100, rank=4)
    >>> rows = engine.init(1)
    >>> x = np.random.default_rng(0).normal(size=(50, 1, 100))
    >>> records = engine.advance(rows, np.zeros(50, dtype=int), x, np.ones(50), np.ones(50))[1]
    >>> loadings, noise = engine.factors(records)
    >>> loadings.shape, noise.shape
    ((50, 100, 25), (50, 100))
    """

    kept = 0
    names = NAMES
    from_rows = FROM_ROWS
    told = FROM_ROWS  # by whole records as well

    def __init__(
        self, d: int, rank: int | None = None, members: Iterable[Factors] | None = None
    ) -> None:
        self.d, self.rank = int(d), rank
        self.members = default_members(self.d, rank) if members is None else tuple(members)
        for member in self.members:
            if not 1 <= member.rank <= self.d:
                raise ValueError(f"rank must be between 1 and d = {d}, got {member.rank!r}")
        self.plan: Layout = layout(self.d, self.members)
        self.size = self.plan.size
        self.small = N_HEAD + 2 * N_TAILS + len(self.members)
        self.record_size = self.small + self.d * (self.plan.columns + 1)
        self._compiled = engine.compiles(1, rotation=False) and not engine.switched_off()
        self._work = threading.local()  # banks of several threads may share an engine

    def __deepcopy__(self, memo: Any) -> LowRank:
        return LowRank(self.d, self.rank, self.members)  # nothing of a track is in an engine

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_work"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _work=threading.local())

    # ------------------------------------------------------------------ three verbs

    def init(self, n_tracks: int) -> Numbers:
        """Rows ``(n, size)`` of tracks that have seen nothing."""
        rows = np.zeros((n_tracks, self.size))
        parts = track(rows, self.plan)
        parts.tails[:] = 1.0 / N_TAILS
        parts.roots[:] = self.plan.prior
        parts.head[:, [SEEN, LIKELIHOOD, DISTANCE, VALUES]] = np.nan
        return rows

    def advance(
        self,
        rows: Numbers,
        which: Numbers,
        seen: Numbers,
        counts: Numbers,
        dt: Numbers,
        *,
        matrix: bool = False,
        tolerance: float = -1.0,
        room: int | None = None,
    ) -> tuple[Numbers, Numbers]:
        """Take in lines ``(N, m, d)`` in order; line l belongs to row which[l]. Rows change.

        seen: m samples of each line, NaN where a cell is missing. counts[l] = 0: no observation;
        below 0: no step at all, only a record. dt: time since the line before of the same track.
        room: numbers of each record that are kept, default all, 0 none. A matrix has no samples to
        take one by one and is refused.

        Returns the status of every line and the records ``(N, room)``.
        """
        if matrix:
            raise ValueError(
                f"factors of {self.d} channels are followed from raw samples, not from matrices; "
                "pass samples (m, d), or rank=None for the engine that takes matrices"
            )
        n = len(which)
        size = self.record_size if room is None else room
        records = np.empty((n if size else 0, size))
        status = np.zeros(n, dtype=np.int8)
        if not self._compiled:
            self._readable(rows, which, seen, counts, dt, records, status)
            return status, records
        places: Any
        if n > FEW:
            places = work(self.plan)
        else:
            places = getattr(self._work, "places", None)
            if places is None:
                places = self._work.places = work(self.plan)
        flat = rows.reshape(-1)
        loop = engine.loops("low_rank")
        loop.run(flat, which, seen, counts, dt, self.plan.table, *places, records, status)
        return status, records

    def look(self, rows: Numbers) -> Numbers:
        """Records ``(n, record_size)`` of rows as they stand; rows stay."""
        return self._still(rows.copy(), -1.0, 0.0)

    def ahead(self, rows: Numbers, dt: float | Numbers) -> tuple[Numbers, Numbers]:
        """Rows and records after a time dt without observations; the given rows stay."""
        later = rows.copy()
        return later, self._still(later, 0.0, dt)

    def _still(self, rows: Numbers, count: float, dt: float | Numbers) -> Numbers:
        n = len(rows)
        counts, steps = np.full(n, count), np.empty(n)
        steps[:] = dt
        return self.advance(rows, np.arange(n), np.zeros((n, 1, self.d)), counts, steps)[1]

    def _readable(
        self,
        rows: Numbers,
        which: Numbers,
        seen: Numbers,
        counts: Numbers,
        dt: Numbers,
        records: Numbers,
        status: Numbers,
    ) -> None:
        for k, row in enumerate(which):
            parts = track(rows[row], self.plan)
            samples = seen[k] if counts[k] > 0 else seen[k][:0]
            samples = samples[~np.isnan(samples).all(axis=-1)]
            if counts[k] >= 0:
                low_rank_step.step(parts, self.plan, samples, float(dt[k]))
            status[k] = OBSERVED if len(samples) else MISSING
            if not len(records):
                continue
            records[k, : self.small] = rows[row, : self.small][: records.shape[1]]
            if records.shape[1] > self.small:
                sharp = not np.isnan(parts.head[VALUES])
                whole = low_rank_step.blend(parts, self.plan, sharp=sharp)
                there = low_rank_step.present(parts)
                loadings = np.where(there[:, None], whole.factors, np.nan)
                noise = np.where(there, whole.noise, np.nan)
                records[k, self.small :] = np.concatenate([loadings.reshape(-1), noise])

    # ------------------------------------------------------------------ what is in a record

    def read(self, records: Numbers) -> Record:
        """The parts of records ``(..., size)``."""
        a, b, c = N_HEAD, N_HEAD + N_TAILS, N_HEAD + 2 * N_TAILS
        parts = (records[..., :a], records[..., a:b], records[..., b:c])
        return Record(*parts, records[..., c : self.small], records[..., self.small :])

    def factors(self, records: Numbers) -> tuple[Numbers, Numbers]:
        """Loadings ``(..., d, k)`` and noise ``(..., d)`` of S; NaN for channels never seen."""
        d, k = self.d, self.plan.columns
        loadings = records[..., self.small : self.small + d * k]
        return loadings.reshape(*records.shape[:-1], d, k), records[..., self.small + d * k :]

    def room(self, names: tuple[str, ...]) -> int:
        """Numbers of a record that these fields need; factors are worked out from the rows."""
        return self.small

    def view(
        self, records: Numbers, rows: Any = None, names: tuple[str, ...] | None = None
    ) -> LowRankView:
        """The fields of records by name; see :mod:`kgmrf.engines.low_rank_view`."""
        return LowRankView(self, records, rows, self.names if names is None else names)

    def support(self, rows: Numbers) -> Numbers:
        """How many samples the present estimates are worth."""
        lives = np.array([law.noise_half_life for law in self.members])
        memory = 2.0 * np.exp(self.read(rows).weights @ np.log(lives)) / np.log(2.0)
        return np.clip(np.minimum(rows[..., SAMPLES], memory), 0.01, 1e9)

    # ------------------------------------------------------------------ files

    def check(self, rows: Numbers) -> None:
        """Raise ValueError unless these rows could have come from this engine."""
        if rows.ndim != 2 or rows.shape[1] != self.size or rows.dtype != np.float64:
            raise ValueError(f"rows are {rows.dtype} of shape {rows.shape}, not (n, {self.size})")
        loose = np.ones(self.size, dtype=bool)
        loose[[SEEN, LIKELIHOOD, DISTANCE, VALUES]] = False
        if not np.isfinite(rows[:, loose]).all() or np.isinf(rows).any():
            raise ValueError("a row holds numbers that are not finite")
        parts = track(rows, self.plan)
        head, buffered = parts.head, parts.head[:, BUFFERED]
        positive = [parts.tails, parts.roots, parts.level, parts.counts, parts.first]
        positive += [head[:, COUNT:KAPPA], buffered]
        positive += [array for part in parts.parts for array in (part.noise, part.metric)]
        positive += [part.numbers[:, 1:] for part in parts.parts]
        if any((array < 0.0).any() for array in positive):
            raise ValueError("a row holds a negative weight, count or variance")
        for shares in (parts.tails[:, :N_TAILS], parts.tails[:, N_TAILS:], parts.roots):
            if (np.abs(shares.sum(axis=-1) - 1.0) > 1e-9).any():
                raise ValueError("weights of a row do not sum to 1")
        if (buffered != np.floor(buffered)).any() or (buffered > self.plan.rows).any():
            raise ValueError("a row counts more first rows than it holds")
        sizes = [head[:, KAPPA], *(part.numbers[:, SIZE] for part in parts.parts)]
        if any((np.abs(size) > LARGEST_LOG).any() for size in sizes):
            raise ValueError("a row holds a size that is not possible")
        started = head[:, COUNT] > 0.0
        there = parts.level > 0.0
        if (started & ~there.any(axis=-1)).any():
            raise ValueError("a row has observations but no channel")
        for law, part in zip(self.members, parts.parts, strict=True):
            if (there & ~((part.noise > 0.0) & (part.metric > 0.0))).any():
                raise ValueError("a channel of a row has no variance")
            live = buffered >= stages(law.rank)[0]
            for matrix, name in ((part.angle_var, "angles"), (part.spectrum, "factors")):
                own = matrix[live]
                skew = np.abs(own - np.swapaxes(own, -1, -2))
                if own.size and (
                    skew.max() > 1e-6 * np.abs(own).max()
                    or np.linalg.eigvalsh(own).min() < -1e-6 * np.abs(own).max()
                ):
                    raise ValueError(f"the covariance of the {name} of a row is not positive")
            axes = part.axes[live & (there.sum(axis=-1) >= law.rank)]
            defect = axes @ np.swapaxes(axes, -1, -2) - np.eye(law.rank)
            if axes.size and np.abs(defect).max() > 1e-6:
                raise ValueError("axes of a row are not orthonormal")
