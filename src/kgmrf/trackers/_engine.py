"""A tracker that holds an engine: rows of numbers, moved and shown by it."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy import ndarray

from kgmrf._types import Mask, Numbers
from kgmrf.engines.rotation_smoother import lagged, packed
from kgmrf.engines.rotations import Rotations
from kgmrf.kernels import rotation_rows as at
from kgmrf.results import Estimate, Result, Values
from kgmrf.trackers._contract import Tracker

FLOAT64 = np.dtype(np.float64)


class EngineTracker(Tracker):
    """Remembers the rows of an engine, one per track; without an engine the next class works."""

    _engine: Rotations | None = None
    _rows: Numbers
    _records: Numbers | None = None
    _fresh = True
    _began = 0.0
    lag: int | None = None
    _window: Numbers

    def update(
        self,
        observation: Any,
        *,
        dt: float | Numbers = 1.0,
        n_samples: float | Numbers | None = None,
        assume_valid: bool = False,
    ) -> Estimate:
        """Take in the observation of one frame and return the filtered estimate at its time.

        observation: ``(..., d, d)``, or None for none; items of a batch that are NaN have none.
        dt: time since the frame before (ignored at the very first frame).
        n_samples: divides the noise variance (or set at construction).
        assume_valid: skip the checks, for hot loops with float64 arrays of the right shape.
        """
        # One track under way and a plain float64 matrix: one compiled call, checks included.
        # Whatever else it is, and whatever is wrong with it, the contract's way says so.
        engine = self._engine
        if (
            engine is not None
            and not self._fresh
            and not self.lag
            and self.batch_shape == ()
            and type(observation) is ndarray
            and observation.dtype is FLOAT64
            and observation.shape == (3, 3)
            and type(dt) in (int, float)
            and 0.0 <= dt < np.inf
        ):
            count = self.n_samples if n_samples is None else n_samples
            count = 1.0 if count is None else count
            if type(count) in (int, float) and 0.0 < count < np.inf:
                seen = observation.reshape(1, 1, 3, 3)
                if not seen.flags.carray:
                    seen = seen.copy()
                step, noise = np.array([[dt]], dtype=float), np.array([[1.0 / count]])
                status, record = engine.one(self._rows, seen, _THERE, step, noise, not assume_valid)
                if status != at.INVALID:
                    self._records = record
                    return Estimate(partial(engine.view, record))
        return super().update(observation, dt=dt, n_samples=n_samples, assume_valid=assume_valid)

    def _begin(self, shape: tuple[int, ...]) -> None:
        if self._engine is None:
            return super()._begin(shape)
        self._rows = self._engine.init(int(np.prod(shape[:-2])))
        self._rows[:, at.TIME] = self._began
        self._window = np.full((self.lag or 0, len(self._rows), 12 + at.RECORD), np.nan)
        self._window[..., :12] = 0.0
        self._records, self._fresh = None, True
        return None

    def _advance(self, seen: Numbers, observed: Mask, n_samples: Numbers, dt: Numbers) -> None:
        if self._engine is None:
            return super()._advance(seen, observed, n_samples, dt)
        self._records = self._moved(seen[None], observed[None], n_samples[None], dt[None])[0]
        return None

    def _run(self, seen: Numbers, observed: Mask, counts: Numbers, dt: Numbers) -> Result:
        if self._engine is None:
            return super()._run(seen, observed, counts, dt)
        steps = dt.reshape(-1, *(1,) * (observed.ndim - 1))
        records = self._moved(seen, observed, counts, steps)
        self._records = records[-1].copy()
        return Result(partial(self._engine.view, records))

    def _moved(self, seen: Numbers, observed: Mask, counts: Numbers, dt: Numbers) -> Numbers:
        """Records ``(T, ..., size)`` of steps with any batch axes."""
        assert self._engine is not None
        self._fresh = False
        flat = (len(seen), len(self._rows))
        steps = (
            np.reshape(seen, (*flat, 3, 3)),
            np.reshape(observed, flat),
            np.reshape(np.broadcast_to(dt, observed.shape), flat),
            1.0 / np.reshape(counts, flat),
        )
        records = self._engine.advance(self._rows, *steps)
        if self.lag:
            window = np.concatenate([self._window, packed(*steps, records)])
            self._window = window[len(seen) :].copy()
            records = lagged(window, self.lag)
        return records.reshape(*observed.shape, -1)

    def _look(self) -> Values:
        if self._engine is None:
            return super()._look()
        if self._records is None:
            return self._ahead(0.0)
        return dict(self._engine.view(self._records))

    def _estimate(self) -> Estimate:
        if self._engine is None:
            return super()._estimate()
        records = self._records
        return Estimate(self._look if records is None else partial(self._engine.view, records))

    def _ahead(self, steps: float) -> Values:
        if self._engine is None:
            return super()._ahead(steps)
        records = self._engine.ahead(self._rows, steps)
        return dict(self._engine.view(records.reshape(*(self.batch_shape or ()), -1)))

    def _memory(self) -> dict[str, Numbers]:
        if self._engine is None:
            return super()._memory()
        batch = self.batch_shape or ()
        records = np.full((*batch, at.RECORD), np.nan) if self._records is None else self._records
        fresh = np.asarray(float(self._fresh))
        memory = {"rows": self._rows.reshape(*batch, -1), "records": records, "fresh": fresh}
        return {**memory, "window": self._window} if self.lag else memory

    def _remember(self, memory: dict[str, Numbers]) -> None:
        if self._engine is None:
            return super()._remember(memory)
        rows = np.array(memory["rows"], dtype=float, order="C")
        self._engine.check(rows)
        self._rows = rows.reshape(-1, self._engine.size)
        if self.lag:
            self._window = np.array(memory["window"])
        self._fresh = bool(memory["fresh"])
        self._records = None if self._fresh else np.array(memory["records"])
        return None

    @property
    def _now(self) -> float | None:
        if self._engine is None:
            return super()._now
        if self.batch_shape is None or self._fresh or not len(self._rows):
            return None
        return float(np.max(self._rows[:, at.TIME]))

    def _begin_at(self, stamp: float) -> None:
        # The engine counts in stamps: each of its tracks has its own unit of time.
        if self._engine is None:
            return super()._begin_at(stamp)
        self._began = stamp
        if self.batch_shape is not None:
            self._rows[:, at.TIME] = stamp
        return None

    def _set_clock(self, time: float) -> None:
        if self._engine is None:
            return super()._set_clock(time)
        self._rows[:, at.TIME] = time
        return None


_THERE = np.ones((1, 1), dtype=bool)
