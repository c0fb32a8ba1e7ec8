"""The self-tuned ensemble as an engine: rows of tracks, lines of observations, records.

A record is what an estimate needs of one step: head, tails and weights of the row, and the lower
triangle of the blend S. `kgmrf.engines.ensemble_step` tells the formulas.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kgmrf._check import FASTEST, LARGEST
from kgmrf._types import Numbers
from kgmrf.engines import INVALID, MISSING, OBSERVED, TRUST, ensemble_step, inspected
from kgmrf.engines import layout as at
from kgmrf.engines.details import half_life
from kgmrf.engines.ensemble_view import NAMES, SMALL, EnsembleView
from kgmrf.engines.layout import Layout, blend_weights, layout, pack, track, turned, unpack
from kgmrf.engines.members import as_members
from kgmrf.kernels import engine
from kgmrf.kernels.ensemble_places import work

LARGEST_LOG = 345.0
"""The logarithm of a size is between minus this and this: e^345 is the largest observation."""


def _of_head(index: int) -> Any:
    return property(lambda record: record.head[..., index])


@dataclass(frozen=True)
class Record:
    """The parts of records ``(..., size)``, as views."""

    head: Numbers
    tails: Numbers
    before: Numbers  # tails before the observation
    roots: Numbers
    packed: Numbers  # lower triangle of S; empty in small records

    time = _of_head(at.TIME)
    seen = _of_head(at.SEEN)  # time of the last observation; NaN before the first
    observations = _of_head(at.COUNT)
    samples = _of_head(at.SAMPLES)
    kappa = _of_head(at.KAPPA)  # log of the factor between S and the scale of the density
    log_likelihood = _of_head(at.LIKELIHOOD)
    distance = _of_head(at.DISTANCE)  # m z, squared, of the observation from its forecast
    values = _of_head(at.VALUES)  # number of observed values m d

    @property
    def weights(self) -> Numbers:
        """Weight of each member in the forecast."""
        return blend_weights(self.roots, False)


class Ensemble:
    """Many laws for one track, blended by the gradient of their likelihood.

    >>> import numpy as np
    >>> engine = Ensemble(2)
    >>> rows = engine.init(1)
    >>> x = np.random.default_rng(0).normal(size=(50, 1, 2))
    >>> line = np.zeros(50, dtype=int)
    >>> records = engine.advance(rows, line, x, np.ones(50), np.ones(50))[1]
    >>> engine.read(records).weights.shape
    (50, 11)
    """

    kept = 0
    from_rows = ("velocity", "angle_std")

    def __init__(
        self, d: int, members: Iterable[Any] | None = None, noise_floor: float = 0.0
    ) -> None:
        self.d, self.noise_floor = int(d), noise_floor
        self.names = NAMES
        self.members = as_members(members, self.d)
        self.plan: Layout = layout(self.d, self.members)
        self.size = self.plan.size
        self.small = at.N_HEAD + 2 * at.N_TAILS + len(self.members)
        self.record_size = self.small + self.d * (self.d + 1) // 2
        # With the compiler switched off the readable step is the quicker one.
        self._compiled = engine.compiles(1, rotation=False) and not engine.switched_off()
        self._work = threading.local()  # banks of several threads may share an engine

    def __deepcopy__(self, memo: Any) -> Ensemble:
        return Ensemble(
            self.d, self.members, self.noise_floor
        )  # nothing of a track is in an engine

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_work"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _work=threading.local())

    # ------------------------------------------------------------------ three verbs

    def init(self, n_tracks: int) -> Numbers:
        """Rows ``(n, size)`` of tracks that have seen nothing."""
        rows = np.zeros((n_tracks, self.size))
        parts = track(rows, self.plan)
        parts.tails[:] = 1.0 / at.N_TAILS
        parts.roots[:] = self.plan.table[:, at.ROOT]
        parts.head[:, [at.SEEN, at.LIKELIHOOD, at.DISTANCE, at.VALUES]] = np.nan
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
        tolerance: float = TRUST,
        room: int | None = None,
    ) -> tuple[Numbers, Numbers]:
        """Take in lines; see :mod:`kgmrf.engines`."""
        n = len(which)
        size = self.record_size if room is None else room
        records = np.empty((n if size else 0, size))
        status = np.zeros(n, dtype=np.int8)
        lines = (rows, which, seen, counts, dt, matrix, tolerance)
        if self._compiled:
            self._loop()(*lines, *self._work.places, records, status)
        else:
            self._readable(lines, records, status)
        return status, records

    def _loop(self) -> Any:
        """The compiled loop; this thread has a work space from then on."""
        work_space = self._work
        if not hasattr(work_space, "loop"):
            work_space.places = self.plan.table, *work(self.plan)
            work_space.loop = engine.loops("ensemble").run
        return work_space.loop

    def ahead(self, rows: Numbers, dt: float | Numbers) -> tuple[Numbers, Numbers]:
        """Rows and records after a time dt without observations; the given rows stay."""
        later = rows.copy()
        return later, self._still(later, 0.0, dt)

    def look(self, rows: Numbers) -> Numbers:
        """Records ``(n, record_size)`` of rows as they stand; rows stay."""
        return self._still(rows.copy(), -1.0, 0.0)

    def _still(self, rows: Numbers, count: float, dt: float | Numbers) -> Numbers:
        n, line = len(rows), getattr(self._work, "line", None)
        if line is None or len(line[0]) != n:
            line = np.arange(n), np.zeros((n, 1, self.d)), np.empty(n), np.empty(n)
            if n == 1:  # of one track they are at hand for the next forecast
                self._work.line = line
        line[2][:], line[3][:] = count, dt
        return self.advance(rows, *line)[1]

    def _readable(self, lines: Any, records: Numbers, status: Numbers) -> None:
        rows, which, seen, counts, dt, matrix, tolerance = lines
        found = inspected(seen, counts, tolerance) if matrix else None
        for k, row in enumerate(which):
            m, parts = float(counts[k]), track(rows[row], self.plan)
            if found is not None and m > 0 and found[k] != OBSERVED:
                m = 0.0 if found[k] == MISSING else -1.0
            if m > 0 and not matrix:
                m = float((~np.isnan(seen[k]).all(axis=-1)).sum())
            if m >= 0:
                ensemble_step.step(parts, self.plan, seen[k], m, float(dt[k]), matrix=matrix)
            status[k] = OBSERVED if m > 0 else MISSING
            if found is not None and found[k] == INVALID:
                status[k] = INVALID
            if len(records):
                records[k, : self.small] = rows[row, : self.small][: records.shape[1]]
                if records.shape[1] > self.small:
                    weights = blend_weights(parts.roots, ~np.isnan(parts.head[at.VALUES]))
                    blend = np.tensordot(weights, ensemble_step.hold(parts, self.plan), 1)
                    there = ensemble_step.present(parts)
                    blend = np.where(there[:, None] & there, blend, np.nan)
                    records[k, self.small :] = pack(blend)

    # ------------------------------------------------------------------ what is in a record

    def read(self, records: Numbers) -> Record:
        """The parts of records ``(..., size)``."""
        a, b, c = at.N_HEAD, at.N_HEAD + at.N_TAILS, at.N_HEAD + 2 * at.N_TAILS
        return Record(
            records[..., :a],
            records[..., a:b],
            records[..., b:c],
            records[..., c : self.small],
            records[..., self.small :],
        )

    def blend(self, records: Numbers) -> Numbers:
        """S ``(..., d, d)`` of records with the matrix; NaN for channels that are absent."""
        return unpack(records[..., self.small :], self.d)

    def room(self, names: tuple[str, ...]) -> int:
        """Numbers of a record that these fields need."""
        return self.small if all(name in SMALL for name in names) else self.record_size

    def view(
        self, records: Numbers, rows: Any = None, names: tuple[str, ...] | None = None
    ) -> EnsembleView:
        """The fields of records by name.

        rows: those that the records belong to, or a function that hands them out, for `from_rows`
        (and for the matrix, where records have none).
        """
        return EnsembleView(self, records, rows, self.names if names is None else names)

    def support(self, rows: Numbers) -> Numbers:
        """How many samples the present estimates are worth."""
        memory = 2.0 * half_life(self.plan, self.read(rows).weights) / np.log(2.0)
        samples = rows[..., at.SAMPLES]
        lasting = np.where(np.isnan(memory), samples, np.minimum(samples, memory))
        return np.clip(lasting, 0.01, 1e9)

    # ------------------------------------------------------------------ files

    def check(self, rows: Numbers) -> None:
        """Raise ValueError unless these rows could have come from this engine."""
        if rows.ndim != 2 or rows.shape[1] != self.size or rows.dtype != np.float64:
            raise ValueError(f"rows are {rows.dtype} of shape {rows.shape}, not (n, {self.size})")
        parts = track(rows, self.plan)
        loose = np.ones(self.size, dtype=bool)
        loose[[at.SEEN, at.LIKELIHOOD, at.DISTANCE, at.VALUES]] = False
        if not np.isfinite(rows[:, loose]).all() or np.isinf(rows).any():
            raise ValueError("a row holds numbers that are not finite")
        # Observations reach LARGEST, and what is remembered of them hardly more.
        large = np.abs(rows) > 1e3 * LARGEST
        if large.any() or (np.abs(parts.size) > LARGEST_LOG).any():
            raise ValueError("a row holds numbers that are too large to square")
        head = parts.head
        positive = [parts.tails, parts.roots, parts.level, parts.mass, head[:, at.COUNT : at.KAPPA]]
        if any((part < 0.0).any() for part in positive) or (parts.deviation < 0.0).any():
            raise ValueError("a row holds a negative weight, count or variance")
        for part in (parts.tails[:, : at.N_TAILS], parts.tails[:, at.N_TAILS :], parts.roots):
            if (np.abs(part.sum(axis=-1) - 1.0) > 1e-9).any():
                raise ValueError("weights of a row do not sum to 1")
        if ((parts.level == 0.0)[:, None] & (parts.deviation > 0.0)).any():
            raise ValueError("a row has a channel that was never seen, and its deviation")
        started = head[:, at.COUNT] > 0.0
        if (started != (parts.level > 0.0).any(axis=-1)).any() or (head[:, at.POOLED] < -1.0).any():
            raise ValueError("a row has observations but no channel, or a channel without any")
        pooling = head[:, at.POOLED] >= 0.0
        self._check_turning(parts.turning[started & ~pooling])
        if (parts.units[started & ~pooling] <= 0.0).any():
            raise ValueError("a row holds a unit that is not positive")
        self._check_averages(parts.body[started])
        pairs = self.d * (self.d + 1) // 2
        self._check_averages(parts.turning[started & pooling][..., :pairs])

    def _check_averages(self, packed: Numbers) -> None:
        if (
            packed.size
            and np.linalg.eigvalsh(unpack(packed, self.d)).min() < -1e-6 * np.abs(packed).max()
        ):
            raise ValueError("an average of a row is not positive semidefinite")

    def _check_turning(self, numbers: Numbers) -> None:
        if not numbers.size:
            return
        own = turned(numbers, self.d)
        defect = np.swapaxes(own.frame, -1, -2) @ own.frame - np.eye(self.d)
        if np.abs(defect).max() > 1e-6:
            raise ValueError("an eigenframe of a row is not orthonormal")
        variances = (own.p11, own.p22, own.spectrum, own.spectrum_var)
        if any((part < 0.0).any() for part in variances):
            raise ValueError("a row holds a negative variance")
        if (np.abs(own.velocity) > FASTEST).any():
            raise ValueError("a row turns too fast")
        if (own.p12**2 > own.p11 * own.p22 * (1.0 + 1e-6) + 1e-30).any():
            raise ValueError("an angle and its velocity are correlated by more than 1")
