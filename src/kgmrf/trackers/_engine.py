"""A tracker that holds an engine: rows of numbers, which it advances and shows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy import ndarray

from kgmrf._types import Mask, Numbers
from kgmrf.constants import FEWEST_SAMPLES, LONGEST, MOST_SAMPLES
from kgmrf.engines import INVALID, TIME, TRUST, Engine, Lines, View
from kgmrf.engines.core import inspect_covariances
from kgmrf.results import Estimate, Values
from kgmrf.trackers._contract import Tracker
from kgmrf.trackers._input import Recording

FLOAT64 = np.dtype(np.float64)
NUMBERS = frozenset((int, float))

ROOM = 2**22
"""Numbers of rows that are kept at a time."""

CHUNK = 256
"""Steps whose rows are kept at a time while fields are worked out from them."""


class EngineTracker(Tracker):
    """Remembers the rows of an engine, one per track, and the records of the last step.

    Rows are replaced, never written to: estimates look at them when somebody asks.
    """

    _state_attributes: ClassVar[tuple[str, ...]] = ("_rows", "_records", "_fresh")
    _tolerance = TRUST
    _engine: Engine
    _rows: Numbers
    _records: Numbers  # (n, engine.kept)

    def engine(self, batch: tuple[int, ...] = ()) -> Engine:
        """The engine that the settings describe, for tracks with these batch axes."""
        raise NotImplementedError

    def _allocate(self, shape: tuple[int, ...]) -> None:
        self._engine = self.engine(shape[:-2])
        self._rows = self._engine.init(int(np.prod(shape[:-2])))
        self._records = np.full((len(self._rows), self._engine.kept), np.nan)
        self._fresh = True
        self._buffers: dict[Any, Lines] = {}  # a line for each kind of online update

    # ------------------------------------------------------------------ one step

    def _fast_path(
        self, array: Any, axes: int, dt: Any, count: Any, tolerance: float
    ) -> Estimate | None:
        """One track under way and a plain float64 array: one compiled call, checks included.

        None for all other input and for errors: `update` then takes the general way, which raises.
        axes: 2 for a matrix, 1 for a sample.
        """
        if (
            self._fresh
            or type(array) is not ndarray
            or array.dtype is not FLOAT64
            or type(dt) not in NUMBERS
            or not 0.0 <= dt <= LONGEST * self.clock.unit
            or type(count) not in NUMBERS
            or not FEWEST_SAMPLES <= count <= MOST_SAMPLES
        ):
            return None
        engine, shape = self._engine, array.shape
        lines = self._buffers.get((shape, tolerance))
        if lines is None:
            if not self.clock.frozen or self.batch_shape != () or shape != (self.d,) * axes:
                return None
            one = np.ones(1)
            seen = np.empty((1, *(1,) * (2 - axes), *shape))
            lines = Lines(np.zeros(1, np.int64), seen, one, one.copy(), axes == 2, tolerance)
            self._buffers[shape, tolerance] = lines
        _, seen, counts, steps, _, _ = lines
        seen[0], counts[0], steps[0] = array, count, dt / self.clock.unit
        rows = self._rows.copy()
        status, records = engine.advance(rows, lines, engine.kept)
        if status[0] == INVALID:
            return None
        self._rows = rows
        if engine.kept:
            self._records = records
        return self._estimate_of_values(self.current_values())

    def _update_fast_path(
        self, observation: Any, dt: Any, n_samples: Any, assume_valid: bool
    ) -> Estimate | None:
        count = self.n_samples if n_samples is None else n_samples
        if count is None and not self.needs_samples:
            count = 1.0
        tolerance = TRUST if assume_valid else self._tolerance
        return self._fast_path(observation, 2, dt, count, tolerance)

    def advance(self, seen: Numbers, observed: Mask, n_samples: Numbers, dt: Numbers) -> None:
        """Take in one step of checked matrices."""
        step = (seen[None], observed[None], n_samples[None], dt[None])
        self._advance_records(Recording(*step), self._engine.kept)

    def _advance_records(self, record: Recording, record_width: int | None) -> Numbers:
        """Take in a recording; the records of its lines."""
        rows = self._rows.copy()
        records = self._engine.advance(rows, self._to_lines(record), record_width)[1]
        self._rows, self._fresh = rows, False
        if self._engine.kept:
            self._records = records[len(records) - len(rows) :].copy()
        return records

    def _to_lines(self, record: Recording) -> Lines:
        """A recording as the lines of `Engine.advance`, the tracks of one step together."""
        seen, observed, counts, dt = record[:4]
        if not record.samples:  # a count of 0 where there is no matrix
            seen = np.where(observed[..., None, None], seen, 0.0)
            counts = np.where(observed, counts, 0.0)
        n = len(self._rows)
        return Lines(
            np.tile(np.arange(n), len(seen)),
            np.array(seen, dtype=float, order="C").reshape(n * len(seen), *seen.shape[-2:]),
            np.array(counts, dtype=float).reshape(-1),
            np.array(dt, dtype=float).reshape(-1),
            not record.samples,
        )

    # ------------------------------------------------------------------ sequences

    def rows_after(self, record: Recording) -> Numbers:
        """Take in a recording; the rows after each step ``(T, ..., size)``, for a smoother."""
        return self._advance_records(record, self._engine.size).reshape(*record.observed.shape, -1)

    def _run(self, record: Recording, names: tuple[str, ...] | None) -> Values:
        engine, shape = self._engine, record.observed.shape
        shown = engine.names if names is None else ("time", *names)
        again: Any = None
        if set(engine.from_rows) & set(shown):
            again = partial(_replay, engine, self._rows, self._to_lines(record), shape[1:])
        records = self._advance_records(record, engine.record_width(shown))
        return engine.view(records.reshape(*shape, -1), again)

    def validate(
        self, value: Any, mask: Any = None, *, sequence: bool = False
    ) -> tuple[Numbers, Mask]:
        """As for every tracker; covariances in compiled code where they are plain and valid."""
        if (
            sequence
            and self.kind == "covariance"
            and mask is None
            and type(value) is ndarray
            and value.dtype is FLOAT64
            and value.ndim > 2
            and value.size
            and value.shape[-1] == value.shape[-2] == (self.d or value.shape[-1])
            and self.batch_shape in (None, value.shape[1:-2])
        ):
            status = inspect_covariances(value)
            if not (status == INVALID).any():
                return value, status > 0
        return super().validate(value, mask, sequence=sequence)

    # ------------------------------------------------------------------ what is seen of it

    def current_values(self) -> Values:
        """All fields as they stand now, each made when it is asked for."""
        return self._shown(self._rows, self._records if self._engine.kept else None)

    def predicted_values(self, dt: float) -> Values:
        """All fields as predicted ``dt`` from now, each made when it is asked for."""
        return self._shown(*self._engine.ahead(self._rows, dt))

    def _shown(self, rows: Numbers, records: Numbers | None) -> View:
        """The fields of tracks ``(n, ...)`` with the batch axes; records None: they are in rows."""
        engine, batch = self._engine, self.batch_shape
        if batch == ():
            row = rows[0]
            return engine.view(row[: engine.small] if records is None else records[0], row)
        assert batch is not None
        records = rows[:, : engine.small] if records is None else records
        return engine.view(records.reshape(*batch, -1), rows.reshape(*batch, -1))

    # ------------------------------------------------------------------ files and clocks

    def load_state_dict(self, state: dict[str, Numbers]) -> None:
        """Take over what `state_dict` gave, if the engine can go on from it."""
        super().load_state_dict(state)
        self._rows = np.require(self._rows, requirements=["C", "A", "W"])
        self._engine.check(self._rows)
        self._buffers = {}

    def _clocks(self) -> Numbers:
        return self._rows[:, TIME]


def _replay(
    engine: Engine,
    before: Numbers,
    lines: Lines,
    batch: tuple[int, ...],
    take: Callable[[Any, Numbers], None],
) -> None:
    """Run a sequence of a batch once more and hand out the rows after its steps, in chunks."""
    rows, n = before.copy(), len(before)
    steps = len(lines.track_index) // n
    chunk = max(1, min(CHUNK, ROOM // rows.size))
    for first in range(0, steps, chunk):
        last = min(first + chunk, steps)
        kept = np.empty((last - first, *rows.shape))
        for t in range(first, last):
            part = slice(t * n, (t + 1) * n)
            engine.advance(rows, lines.part(part), 0)
            kept[t - first] = rows
        take(slice(first, last), kept.reshape(last - first, *batch, -1))
