"""What the two second-order trackers share: a state that `kgmrf.step` moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kgmrf._check import in_range
from kgmrf._types import Array, Mask, Numbers
from kgmrf.gains import LAWS, FixedGains, Gains, InformationGains
from kgmrf.results import Estimate, Result, Values
from kgmrf.step import Model, State, Surprise, drift, select
from kgmrf.trackers._contract import Tracker


class KineticTracker(Tracker):
    """Remembers a `State` and the surprise of the last frame; moves by one step per frame."""

    model: Model
    _state: State
    _surprise: Surprise
    _fresh = True

    def _step(
        self, state: State, seen: Numbers, observed: Mask, counts: Numbers, dt: Numbers
    ) -> tuple[State, Surprise]:
        """One frame: `covariance_step` or `rotation_step` of :mod:`kgmrf.step`."""
        raise NotImplementedError

    def _view(self, state: State, surprise: Surprise) -> Values:
        """`covariance_view` or `rotation_view`."""
        raise NotImplementedError

    def _advance(self, seen: Numbers, observed: Mask, n_samples: Numbers, dt: Numbers) -> None:
        self._state, self._surprise = self._step(self._state, seen, observed, n_samples, dt)
        self._fresh = False

    def _look(self) -> Values:
        return self._view(self._state, self._surprise)

    def _estimate(self) -> Estimate:
        return Estimate(self._later(self._state, self._surprise))

    def _later(self, state: State, surprise: Surprise) -> Callable[[], Values]:
        return lambda: self._view(state, surprise)

    def _ahead(self, steps: float) -> Values:
        state, nan = self._state, np.full_like(self._state.time, np.nan)
        dt = np.full_like(state.time, steps)
        if not self._idle().all():
            later = drift(state, self.model, dt, np.zeros(dt.shape, dtype=bool))
            state = select(self._idle(), state._replace(time=later.time), later)
        return self._view(state, Surprise(nan, nan))

    def _idle(self) -> Mask:
        """Items that do not move yet."""
        return np.isnan(self._state.seen)

    def _run(self, seen: Numbers, observed: Mask, counts: Numbers, dt: Numbers) -> Result:
        states, surprises = [], []
        for k in range(seen.shape[0]):
            step = np.broadcast_to(dt[k], observed.shape[1:])
            self._advance(seen[k], observed[k], counts[k], step)
            states.append(self._state)
            surprises.append(self._surprise)
        state = State(*(np.stack(parts) for parts in zip(*states, strict=True)))
        surprise = Surprise(*(np.stack(parts) for parts in zip(*surprises, strict=True)))
        return Result(self._later(state, surprise))

    def _memory(self) -> dict[str, Numbers]:
        return {
            **self._state._asdict(),
            **self._surprise._asdict(),
            "fresh": np.asarray(float(self._fresh)),
        }

    def _remember(self, memory: dict[str, Numbers]) -> None:
        self._state = State(**{name: memory[name] for name in State._fields})
        self._surprise = Surprise(**{name: memory[name] for name in Surprise._fields})
        self._fresh = bool(memory["fresh"])

    @property
    def _now(self) -> float | None:
        if self.batch_shape is None or self._fresh:
            return None
        return float(np.max(self._state.time))

    def _set_clock(self, time: float) -> None:
        self._state = self._state._replace(time=np.full_like(self._state.time, time))

    def _blank(self, batch: tuple[int, ...]) -> Surprise:
        return Surprise(np.full(batch, np.nan), np.full(batch, np.nan))


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
