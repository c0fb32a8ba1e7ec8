"""What the two second-order trackers share: a state that `kgmrf.step` moves."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy import empty, ndarray

from kgmrf._check import in_range
from kgmrf._types import Array, Mask, Numbers
from kgmrf.gains import LAWS, FixedGains, Gains, InformationGains
from kgmrf.kernels.engine import INVALID, OBSERVED, Online, compiled_law, inspect, run
from kgmrf.kernels.layout import Law, Record, rows, views
from kgmrf.results import Estimate, Result, Values
from kgmrf.step import Model, State, Surprise, drift, select
from kgmrf.trackers._contract import Tracker
from kgmrf.trackers._view import RecordView

FLOAT64 = np.dtype(np.float64)


class KineticTracker(Tracker):
    """Remembers a `State` and the surprise of the last frame; moves by one step per frame.

    The state is kept as rows of numbers (see :mod:`kgmrf.kernels.layout`), or, for a single track
    under way, on the desk of the compiled update.
    """

    model: Model
    gains: Gains
    _rows: Numbers
    _record: Numbers | None = None
    _online: Online | None = None
    _law: Law | None = None
    _fresh = True

    def _step(
        self, state: State, seen: Numbers, observed: Mask, counts: Numbers, dt: Numbers
    ) -> tuple[State, Surprise]:
        """One frame: `covariance_step` or `rotation_step` of :mod:`kgmrf.step`."""
        raise NotImplementedError

    def _view(self, state: State, surprise: Surprise) -> Values:
        """`covariance_view` or `rotation_view`."""
        raise NotImplementedError

    def _strength(self, counts: Any) -> Any:
        """What the compiled step wants to know of the samples behind a matrix."""
        return counts

    # ------------------------------------------------------------------ the state

    def _hold(self, state: State) -> None:
        """Begin with this state; decides between the compiled and the readable step."""
        self._state = state
        assert self.d is not None
        assert self.batch_shape is not None
        self._law = compiled_law(
            self.model, self.d, self.batch_shape, rotation=self.kind == "rotation"
        )

    def _row(self) -> Numbers:
        return self._rows if self._online is None else self._online.row()

    @property
    def _state(self) -> State:
        return views(self._row(), self.d or 1)[0]

    @_state.setter
    def _state(self, state: State) -> None:
        self._put(state, self._blank(state.time.shape))

    @property
    def _surprise(self) -> Surprise:
        return views(self._row(), self.d or 1)[1]

    def _put(self, state: State, surprise: Surprise) -> None:
        self._rows, self._online, self._record = rows(state, surprise), None, None

    def _blank(self, batch: tuple[int, ...]) -> Surprise:
        return Surprise(np.full(batch, np.nan), np.full(batch, np.nan))

    # ------------------------------------------------------------------ frames

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
        n_samples: how many samples are behind the matrix (or set at construction).
        assume_valid: skip the checks, for hot loops with float64 arrays of the right shape.
        """
        # One track under way and a plain float64 matrix: one compiled call, checks included.
        # Whatever else it is, and whatever is wrong with it, the contract's way says so.
        online, clock = self._online, self._clock
        if (
            online is not None
            and clock.frozen
            and type(observation) is ndarray
            and observation.dtype is FLOAT64
        ):
            advance, desk, shape, size, strength, tolerance = online.kit
            if n_samples is not None:
                strength = self._own_strength(n_samples)
            if (
                observation.shape == shape
                and strength is not None
                and type(dt) in (int, float)
                and (dt / clock.unit == online.dt or online.take_interval(dt / clock.unit))
            ):
                if not observation.flags.carray:
                    observation = observation.copy()
                if assume_valid:
                    tolerance = -1.0
                record = empty(size)
                if advance(desk, observation, record, strength, tolerance) != INVALID:
                    self._record = record
                    return self._told(Estimate(partial(_shown, self, record)))
        return super().update(observation, dt=dt, n_samples=n_samples, assume_valid=assume_valid)

    def _own_strength(self, n_samples: Any) -> float | None:
        if type(n_samples) in (int, float) and 0 < n_samples < np.inf:
            return float(self._strength(n_samples))
        return None

    def _advance(self, seen: Numbers, observed: Mask, n_samples: Numbers, dt: Numbers) -> None:
        self._fresh = False
        if self._law is None:
            self._put(*self._step(self._state, seen, observed, n_samples, dt))
        elif self.batch_shape:
            inputs = (seen[None], observed[None], self._strength(n_samples)[None], dt[None])
            self._rows, records = run(self._law, self.model.gains, self._rows, *inputs)
            self._record = records[0]
        else:
            if self._online is None:
                self._online = Online(self._law, self.model.gains, self._rows, self._default())
            online, there = self._online, bool(observed)
            online.take_interval(float(dt))
            strength = float(self._strength(n_samples))
            self._record = online.step(seen if there else None, strength)

    def _default(self) -> float | None:
        """The strength of an observation whose number of samples is not told."""
        if self.n_samples is None and self._needs_samples:
            return None
        return float(self._strength(1.0 if self.n_samples is None else self.n_samples))

    def _run(self, seen: Numbers, observed: Mask, counts: Numbers, dt: Numbers) -> Result:
        if self._law is not None:
            strength = self._strength(counts)
            self._rows, records = run(
                self._law, self.model.gains, self._row(), seen, observed, strength, dt
            )
            self._record = records[-1]
            self._online, self._fresh = None, False
            return Result(partial(_shown, self, records))
        stages = []
        for k in range(seen.shape[0]):
            step = np.broadcast_to(dt[k], observed.shape[1:])
            self._advance(seen[k], observed[k], counts[k], step)
            stages.append(self._rows)
        whole = views(np.stack(stages), self.d or 1)
        return Result(lambda: self._view(*whole))

    def _checked_sequence(self, sequence: Any, mask: Any) -> tuple[Numbers, Mask]:
        d = self.d
        if (
            mask is None
            and type(sequence) is ndarray
            and sequence.dtype is FLOAT64
            and sequence.ndim > 2
            and sequence.size
            and sequence.shape[-1] == sequence.shape[-2]
            and sequence.shape[-1] == (d or sequence.shape[-1])
            and self.batch_shape in (None, sequence.shape[1:-2])
        ):
            status = self._inspected(sequence)
            if status is not None and not (status == INVALID).any():
                return self._tidied(sequence), status == OBSERVED
        return super()._checked_sequence(sequence, mask)

    def _inspected(self, matrices: Numbers) -> Numbers | None:
        """OBSERVED, MISSING or INVALID for each matrix; None where no compiled check is at hand."""
        return inspect(matrices, rotation=self.kind == "rotation")

    def _tidied(self, sequence: Numbers) -> Numbers:
        """Checked observations as the step wants them."""
        return sequence

    # ------------------------------------------------------------------ what is seen of it

    def _look(self) -> Values:
        return self._view(*views(self._row(), self.d or 1))

    def _estimate(self) -> Estimate:
        if self._record is not None:
            return Estimate(partial(_shown, self, self._record))
        now = views(self._rows, self.d or 1)
        return Estimate(lambda: self._view(*now))

    def _ahead(self, steps: float) -> Values:
        state = self._state
        nan = np.full_like(state.time, np.nan)
        dt = np.full_like(state.time, steps)
        if not self._idle().all():
            later = drift(state, self.model, dt, np.zeros(dt.shape, dtype=bool))
            state = select(self._idle(), state._replace(time=later.time), later)
        return self._view(state, Surprise(nan, nan))

    def _idle(self) -> Mask:
        """Items that do not move yet."""
        return np.isnan(self._state.seen)

    def _memory(self) -> dict[str, Numbers]:
        return {
            **self._state._asdict(),
            **self._surprise._asdict(),
            "fresh": np.asarray(float(self._fresh)),
        }

    def _remember(self, memory: dict[str, Numbers]) -> None:
        state = State(**{name: memory[name] for name in State._fields})
        self._put(state, Surprise(**{name: memory[name] for name in Surprise._fields}))
        self._fresh = bool(memory["fresh"])

    @property
    def _now(self) -> float | None:
        if self.batch_shape is None or self._fresh:
            return None
        return float(np.max(self._state.time))

    def _set_clock(self, time: float) -> None:
        self._state = self._state._replace(time=np.full_like(self._state.time, time))


def _shown(tracker: KineticTracker, numbers: Numbers) -> Any:
    """The fields of estimates from their records: a mapping that makes them when asked."""
    record = Record(numbers, tracker.d or 1, isinstance(tracker.gains, InformationGains))
    return RecordView(record, rotation=tracker.kind == "rotation")


def as_gains(gains: str | Gains | dict[str, Any]) -> Gains:
    """A gain law from its name, from a law with its settings, or from a saved file's table."""
    if isinstance(gains, (FixedGains, InformationGains)):
        law: Gains = gains
    elif isinstance(gains, dict):
        table = dict(gains)
        kinds: dict[str, Any] = {k.__name__: k for k in (FixedGains, InformationGains)}
        law = kinds[table.pop("law")](**table)
    elif gains in LAWS:
        law = LAWS[gains]()  # type: ignore[operator]
    else:
        raise ValueError(
            f"gains must be one of {', '.join(map(repr, LAWS))} or a law such as "
            f"kgmrf.gains.information(acceleration=1e-6), got {gains!r}"
        )
    _check_law(law)
    return law


def _check_law(law: Gains) -> None:
    def numbers(name: str) -> list[float]:
        return list(np.ravel(np.asarray(getattr(law, name), dtype=float)))

    if isinstance(law, InformationGains):
        for name in ("acceleration", "angle_noise"):
            [in_range(v, name, 0.0, np.inf) for v in numbers(name)]
        for name in ("rate_prior", "angle_prior"):
            [in_range(v, name, 0.0, np.inf, open_low=True) for v in numbers(name)]
        [in_range(v, "retention", 1e-6, 1.0) for v in numbers("retention")]
        return
    for name in ("retention", "coast_retention"):
        [in_range(v, name, -1.0, 1.0) for v in numbers(name)]
    for name in ("position_gain", "velocity_gain"):
        [in_range(v, name, -np.inf, np.inf) for v in numbers(name)]


def as_batch(array: Array, shape: tuple[int, ...]) -> Numbers:
    """A copy of ``array`` for every item of the batch."""
    return np.broadcast_to(np.asarray(array, dtype=float), shape).copy()
