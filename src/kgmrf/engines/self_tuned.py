"""What the self-tuned engines have in common: many laws for one track, weighed by likelihood.

The row of a track begins with the head, the tails and the roots of :mod:`kgmrf.engines.layout`, and
so does its record.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from kgmrf._types import Numbers
from kgmrf.engines import Engine, Lines, horizon
from kgmrf.engines import layout as at
from kgmrf.engines.ensemble_view import EnsembleView

UNKNOWN = [at.SEEN, at.LIKELIHOOD, at.DISTANCE, at.VALUES]
"""Numbers of the head that are NaN before the first observation."""


def _of_head(index: int) -> Any:
    return property(lambda record: record.head[..., index])


@dataclass(frozen=True)
class Record:
    """The parts of records ``(..., size)``, as views."""

    head: Numbers
    tails: Numbers
    before: Numbers  # tails before the observation
    wander: Numbers  # averages of the log size, then its variances about them
    roots: Numbers

    time = _of_head(at.TIME)
    seen = _of_head(at.SEEN)  # time of the last observation; NaN before the first
    observations = _of_head(at.COUNT)
    samples = _of_head(at.SAMPLES)
    kappa = _of_head(at.KAPPA)  # log of the factor between S and the scale of the density
    log_likelihood = _of_head(at.LIKELIHOOD)
    distance = _of_head(at.DISTANCE)  # m z, squared, of the observation from its forecast
    values = _of_head(at.VALUES)  # number of observed values m d
    seen_size_std = _of_head(at.SIZE_STD)  # of the forecast of that observation
    seen_doubt = _of_head(at.DOUBT)  # likewise

    @property
    def beyond(self) -> Numbers:
        """Time beyond one unit since the last observation; see `kgmrf.engines.horizon`."""
        return horizon.beyond(self.time - self.seen)

    @property
    def size_std(self) -> Numbers:
        """Standard deviation of the log size at this time."""
        return horizon.size_std(self.wander[..., horizon.N_LAGS :], self.beyond)


class SelfTuned(Engine):
    """An engine whose rows begin with head, tails and roots; `advance` and `_make_loop` differ."""

    shows = EnsembleView
    plan: Any  # with ``table``, the members
    # Columns of that table: the roots of the start, horizons and heirs.
    root_column: int = at.ROOT
    horizon_columns: tuple[int, int] = (at.HORIZON, at.HEIR)
    start_up: int  # samples before which an estimate is `is_initial`

    def __init__(self, n_members: int) -> None:
        self.small = at.N_HEAD + 2 * at.N_TAILS + 2 * horizon.N_LAGS + n_members
        self._local = threading.local()  # banks of several threads may share an engine

    def __getstate__(self) -> dict[str, Any]:
        return {
            name: value for name, value in self.__dict__.items() if name not in ("_local", "loop")
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _local=threading.local())

    def _make_loop(self) -> Any:
        """What takes in lines; see `kgmrf.engines.core`."""
        raise NotImplementedError

    @cached_property
    def loop(self) -> Any:
        """The loop over lines, made when it is first used."""
        return self._make_loop()

    def init(self, n_tracks: int) -> Numbers:
        """Rows ``(n, size)`` of new tracks."""
        rows = np.zeros((n_tracks, self.size))
        record = self.read(rows)
        record.tails[:] = record.before[:] = 1.0 / at.N_TAILS
        record.roots[:] = self.plan.table[:, self.root_column]
        rows[:, UNKNOWN] = np.nan
        return rows

    def doubt(self, record: Record) -> Numbers:
        """What is open of a forecast because the track is young (`kgmrf.youth`): nothing."""
        return np.zeros(np.shape(record.samples))

    def half_life(self, weights: Numbers) -> Numbers:
        """Time after which half of an observation is forgotten, under weights ``(..., K)``."""
        raise NotImplementedError

    def ahead(self, rows: Numbers, dt: float) -> tuple[Numbers, Numbers]:
        """Rows and records after a time dt without observations; the given rows stay."""
        later = rows.copy()
        return later, self.advance(later, self._still(len(rows), 0.0, dt))[1]

    def records_of(self, rows: Numbers) -> Numbers:
        """Records ``(n, record_size)`` of rows as they stand; rows stay."""
        return self.advance(rows.copy(), self._still(len(rows), -1.0, 0.0))[1]

    def _still(self, n: int, count: float, dt: float) -> Lines:
        """A line without an observation for each of n tracks."""
        lines: Any = getattr(self._local, "lines", None)
        if lines is None or len(lines.track_index) != n:
            zero = np.zeros((n, 1, self.d))
            lines = Lines(np.arange(n), zero, np.empty(n), np.empty(n), matrix=False)
            if n == 1:  # of one track they are at hand for the next forecast
                self._local.lines = lines
        lines.counts.fill(count)
        lines.dt.fill(dt)
        return lines

    def read(self, records: Numbers) -> Record:
        """The parts of records, or of rows, ``(..., size)``."""
        sizes = (at.N_HEAD, at.N_TAILS, at.N_TAILS, 2 * horizon.N_LAGS, len(self.plan.table))
        edges = np.cumsum([0, *sizes])
        return Record(*(records[..., a:b] for a, b in pairwise(edges)))

    def weights(self, record: Record, sharp: Any = False) -> Numbers:
        """Weight of each member at the time of a record; ``sharp``: `layout.blend_weights`."""
        now, g = at.blend_weights(record.roots, sharp), record.beyond
        if not (g > 0.0).any():
            return now
        lasts, heir = (self.plan.table[:, k] for k in self.horizon_columns)
        later = horizon.carry(now, horizon.keeps(lasts, heir, g))
        return np.where((g > 0.0)[..., None], later, now)

    def support(self, rows: Numbers) -> Numbers:
        """How many samples the present estimates are worth."""
        memory = 2.0 * self.half_life(self.weights(self.read(rows))) / np.log(2.0)
        samples = rows[..., at.SAMPLES]
        lasting = np.where(np.isnan(memory), samples, np.minimum(samples, memory))
        return np.clip(lasting, 0.01, 1e9)

    def check(self, rows: Numbers) -> None:
        """Raise ValueError unless rows begin as those of this engine do, and are finite."""
        super().check(rows)
        if not np.isfinite(np.delete(rows, UNKNOWN, axis=1)).all() or np.isinf(rows).any():
            raise ValueError("a row holds numbers that are not finite")
        start = self.read(rows)
        if (rows[:, at.COUNT : at.KAPPA] < 0.0).any():
            raise ValueError("a row holds a negative count")
        for shares in (start.tails, start.before, start.roots):
            if (shares < 0.0).any():
                raise ValueError("a row holds a negative weight")
            if (np.abs(shares.sum(axis=-1) - 1.0) > 1e-9).any():
                raise ValueError("weights of a row do not sum to 1")
        if (start.wander[:, horizon.N_LAGS :] < 0.0).any() or (start.seen_size_std < 0.0).any():
            raise ValueError("a row holds a negative variance of its size")
        began = start.observations > 0.0
        if not (start.seen[began] <= start.time[began]).all():
            raise ValueError("a row was observed, but at no time up to its own")
