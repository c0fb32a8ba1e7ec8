"""The contract that every tracker keeps: update, forecast, filter, save, load, copy.

A tracker remembers; the mathematics is in free functions. Checks, time, missing data, files and
locks are here and in :mod:`kgmrf.trackers._input`. A subclass says what it remembers (`_allocate`,
`_state_attributes`) and implements the state protocol, which is public: trackers that hold other
trackers, banks and smoothers use nothing else of them. It is `validate`, `blocks`,
`prepare_sequence`, `allocate`, `advance`, `current_values`, `predicted_values`, `state_dict`,
`load_state_dict`, `with_settings`, `transaction` and `in_stamp_units`.

Time: the first step of a track is at time 0 (or at the first of ``times``); every later step
comes ``dt`` after the one before. Nothing drifts before the first observation. Stamps may be in any
unit, or dates: :mod:`kgmrf._time` counts them in the usual interval. The state protocol is in
counted time; `update`, `filter`, `forecast` and estimates are in that of the stamps.
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Self, Unpack

import numpy as np

from kgmrf import _check, _deprecated, _npz, _time
from kgmrf._align import NothingNewError
from kgmrf._check import ObservationError
from kgmrf._time import duration, stamps
from kgmrf._types import Mask, Numbers
from kgmrf.results import FIELDS, Estimate, Result, Values, stacked
from kgmrf.trackers._input import Input, Recording, SequenceOptions


class Tracker(Input):
    """Common behaviour of all trackers; see the module's docstring for the contract.

    Several threads may share a tracker: their calls wait for one another, and none is lost.

    Parameters
    ----------
    d : int, default None
        Dimension; None takes it from the first observation.
    n_samples : float, default None
        Samples behind each observation, where that is always the same number; None: an argument of
        `update` says it, or the observations are samples.
    on_invalid : {"raise", "skip", "repair"}, default "raise"
        What to do with an invalid observation: an error, as nothing is lost in silence; treat it as
        missing; or take the nearest valid one.
    time_unit : float, default None
        The usual time between observations in units of ``times``; None takes the median of the
        first eight intervals.
    """

    always_psd: ClassVar[bool] = True
    """Whether every estimate of a covariance is positive semidefinite, by construction."""

    # ------------------------------------------------------------------ for subclasses

    def advance(self, seen: Numbers, observed: Mask, n_samples: Numbers, dt: Numbers) -> None:
        """Take in one step: checked observations, where they are, their counts, the time."""
        raise NotImplementedError

    def _advance_samples(self, block: Numbers, dt: Numbers) -> None:
        """Take in the samples ``(..., m, d)`` of one step."""
        raise NotImplementedError

    def _update_fast_path(
        self, observation: Any, dt: Any, n_samples: Any, assume_valid: bool
    ) -> Estimate | None:
        """`update` in one compiled call, where that can be done; None where it cannot."""
        return None

    def current_values(self) -> Values:
        """All fields of an `Estimate` as they stand now."""
        raise NotImplementedError

    def predicted_values(self, dt: float) -> Values:
        """All fields of an `Estimate` as predicted ``dt`` of counted time from now."""
        raise NotImplementedError

    _state_attributes: ClassVar[tuple[str, ...]] = ()
    """Attributes that hold everything remembered: arrays, numbers, trackers, or tables of those."""

    def check_state(self) -> None:
        """Raise ValueError if what is remembered, as from a file, cannot be; see `load`."""

    # ------------------------------------------------------------------ the public contract

    def update(
        self,
        observation: Any,
        *,
        dt: float | Numbers = 1.0,
        n_samples: float | Numbers | None = None,
        assume_valid: bool = False,
    ) -> Estimate:
        """Take in the observation of one step and return the filtered estimate at its time.

        observation: ``(..., d, d)``, or None for none; items of a batch that are NaN have none.
        dt: time since the step before, in units of the stamps (ignored at the very first step).
        n_samples: how many samples are behind the matrix (or set at construction).
        assume_valid: skip the checks, for hot loops with float64 arrays of the right shape.
        """
        found = self._update_fast_path(observation, dt, n_samples, assume_valid)
        if found is not None:
            return found
        if assume_valid and observation is not None and self.batch_shape is not None:
            seen, observed = self._trusted(observation)
        else:
            seen, observed = self.validate(observation)
        counts = self.counts(n_samples, observed, seen.shape[-1])
        step = self._interval(dt, observed.shape)
        self.allocate(seen.shape)
        self.advance(seen, observed, counts, step)
        return self._estimate_of_values(self.current_values())

    def _estimate_of_values(self, values: Any) -> Any:
        """The estimate of these fields."""
        found = Estimate(values)
        if self.channels is not None:
            found.channels = self.channels
        return found if self.clock.plain else self.in_stamp_units(found)

    def estimate(self) -> Estimate:
        """The filtered estimate at the time of the last step, once more."""
        if self.batch_shape is None:
            raise ObservationError("nothing to estimate yet: call update(observation) first")
        return self._estimate_of_values(self.current_values())

    def forecast(self, steps: float = 1.0) -> Estimate:
        """The estimate ``steps`` units of time ahead if no observation came; changes nothing.

        A unit is that of the stamps: after dates one second, otherwise one step if there were none.
        A time difference such as ``np.timedelta64(1, "D")`` says its own.
        """
        if type(steps) not in (int, float) or not 0.0 <= steps < math.inf:
            steps = _time.horizon(duration(steps))
        if self.batch_shape is None:
            raise ObservationError("nothing to forecast yet: call update(observation) first")
        counted = _time.within_reach(steps / self.clock.unit, self.clock.unit, "steps")
        return self._estimate_of_values(self.predicted_values(counted))

    def filter(
        self, sequence: Any, *, fields: Any = None, **given: Unpack[SequenceOptions]
    ) -> Result:
        """Run `update` over a whole sequence and return all estimates, time first.

        sequence: ``(T, ..., d, d)``; frames that are None or all NaN have no observation.
        times: ``(T,)`` time stamps that do not decrease, in any unit, or dates (then time counts in
        seconds); default: one unit per frame.
        mask: ``(T, ...)``, True where there is an observation; others are ignored unseen.
        n_samples: a number, or one per frame ``(T, ...)``.
        fields: the names of the fields to keep, to save memory; default all.

        Trackers of covariances also take raw samples: ``(T, d)``, one per step, or with
        ``samples=True`` blocks ``(T, ..., m, d)``; ``layout="channels_first"`` if they are
        ``(d, T)`` or ``(T, ..., d, m)``. A table (pandas, polars) or a recording of MNE (Raw,
        Epochs) names the channels of the result; a column of times is not followed. The next one is
        put in the order of these channels: missing ones are gaps, unknown ones raise. Recordings
        count time in seconds; samples annotated as BAD are gaps.
        on_overlap: "raise" where rows of a table with dates, or of a recording, are not later than
        those before, "skip" them, or "use" them again. With ``times``, "skip" goes by these.

        Filtering a sequence in chunks gives what filtering it whole gives. Everything is checked
        before the first frame is taken in, so an error leaves the tracker as it was.
        """
        names = None if fields is None else (fields,) if isinstance(fields, str) else tuple(fields)
        for name in names or ():
            _check.choice(name, FIELDS, "every one of fields")
        try:
            record = self.prepare_sequence(sequence, **given)
        except NothingNewError:
            none = {
                name: np.asarray(value)[None][:0] for name, value in self.current_values().items()
            }
            return Result(none).select(names).with_labels(self.channels)
        self.channels = record.channels or self.channels
        self.until = self.until if record.until is None else record.until
        found = Result(self._run(record, names))
        return (
            self.in_stamp_units(found, record.times)
            .select(names)
            .with_labels(self.channels, record.index)
        )

    def with_settings(self, **changes: Any) -> Self:
        """A fresh tracker with the same settings, but for ``changes``."""
        return type(self)(**{**self.settings(), **changes})

    def copy(self) -> Self:
        """An independent tracker in the same state."""
        return copy.deepcopy(self)

    def save(self, path: str | Path) -> None:
        """Write settings and state to one file, all or nothing; nothing in it is executable."""
        names = {"channels": self.channels, "until": self.until}
        header = {**_plain(self), "batch_shape": self.batch_shape, **names}
        _npz.write(path, header, self.state_dict())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a tracker that `save` wrote. An untrusted file can never run code."""
        from kgmrf.trackers._files import load

        tracker = load(path, cls)
        if not isinstance(tracker, cls):
            raise ValueError(f"{path} holds a {type(tracker).__name__}, not a {cls.__name__}")
        return tracker

    def settings(self) -> dict[str, Any]:
        """The arguments that build this tracker again, as plain numbers, words and lists."""
        return {name: _plain(getattr(self, name)) for name in _arguments(type(self))}

    def __repr__(self) -> str:
        words = ", ".join(f"{k}={v!r}" for k, v in self.settings().items() if v is not None)
        return f"{type(self).__name__}({words})"

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """What raises an error within changes nothing: memory is replaced, never written to."""
        before = {**vars(self), "clock": self.clock.copy()}
        try:
            yield
        except Exception:
            vars(self).clear()
            vars(self).update(before)
            raise

    def in_stamp_units(self, what: Any, times: Any = None) -> Any:
        """An estimate or result with its times in units of the stamps."""
        if self.clock.plain:
            return what
        time = None
        if times is not None:
            time = np.asarray(stamps(times), dtype=float)
            shape = (len(time), *(self.batch_shape or ()))
            time = np.broadcast_to(time.reshape(-1, *(1,) * (len(shape) - 1)), shape).copy()
        converted = type(what)(self.clock.in_stamp_units(what._values, time))
        return converted.with_labels(what.channels, what.index)

    def prepare(self, state: dict[str, Numbers]) -> None:
        """What has to be known of a file before `allocate`."""

    def state_dict(self) -> dict[str, Numbers]:
        """Everything remembered, by name; nothing before the first step. See `load_state_dict`."""
        if self.batch_shape is None:
            return {}
        kept = {name.strip("_"): getattr(self, name) for name in self._state_attributes}
        return flat({**kept, "clock": self.clock.numbers()})

    def load_state_dict(self, state: dict[str, Numbers]) -> None:
        """Take over what `state_dict` gave, in a tracker that has begun with the same shape."""
        self.clock.restore(state["clock"])
        for name in self._state_attributes:
            setattr(self, name, _like(getattr(self, name), name.strip("_"), state))

    def _run(self, record: Recording, names: tuple[str, ...] | None) -> Values:
        """The fields after every step of a recording; with ``names`` those are enough."""
        return stacked([self.current_values() for _ in self._steps(record)])

    def _steps(self, record: Recording) -> Iterator[None]:
        """Take in a recording, one step after the other."""
        for seen, observed, counts, dt in zip(*record[:4], strict=True):
            if record.samples:
                self._advance_samples(seen, dt)
            else:
                self.advance(seen, observed, counts, dt)
            yield


_deprecated.methods(
    Tracker,
    {
        "anew": "with_settings",
        "look": "current_values",
        "ahead": "predicted_values",
        "memory": "state_dict",
        "restore": "load_state_dict",
        "told": "in_stamp_units",
        "checked": "validate",
        "recording": "prepare_sequence",
        "begin": "allocate",
        "begin_at": "set_start_time",
        "all_or_nothing": "transaction",
    },
)


def _plain(value: Any) -> Any:
    """A setting as JSON can hold it."""
    if isinstance(value, Tracker):
        return {"tracker": type(value).__name__, "settings": value.settings(), "d": value.d}
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if hasattr(value, "__dataclass_fields__"):
        fields = {k: _plain(getattr(value, k)) for k in value.__dataclass_fields__}
        return {"law": type(value).__name__, **fields}
    return value


def _arguments(kind: type) -> list[str]:
    """What the constructor takes; what it passes on as ``**options`` to the class above, too."""
    names: list[str] = []
    for base in kind.__mro__:
        if "__init__" in vars(base):
            found = list(inspect.signature(vars(base)["__init__"]).parameters.values())[1:]
            names += [p.name for p in found if p.kind is not p.VAR_KEYWORD and p.name not in names]
            if not any(p.kind is p.VAR_KEYWORD for p in found):
                break
    return names


def flat(table: Mapping[str, Any]) -> dict[str, Numbers]:
    """A table of arrays; what is in tables, tuples and trackers as ``name.part``."""
    out: dict[str, Numbers] = {}
    for name, value in table.items():
        inner = value.state_dict() if isinstance(value, Tracker) else value
        inner = inner._asdict() if hasattr(inner, "_asdict") else inner
        if isinstance(inner, dict):
            out |= {f"{name}.{key}": part for key, part in flat(inner).items()}
        else:
            out[name] = inner if isinstance(inner, np.ndarray) else np.asarray(float(inner))
    return out


def part_of(name: str, state: dict[str, Numbers]) -> dict[str, Numbers]:
    """What `flat` made of the entry of this name."""
    head = f"{name}."
    return {k.removeprefix(head): v for k, v in state.items() if k.startswith(head)}


def _like(old: Any, name: str, state: dict[str, Numbers]) -> Any:
    """What has the place of ``old`` in a memory that `flat` made."""
    if isinstance(old, Tracker):
        old.load_state_dict(part_of(name, state))
        return old
    if isinstance(old, dict):
        return {key: _like(part, f"{name}.{key}", state) for key, part in old.items()}
    if hasattr(old, "_asdict"):
        return type(old)(**_like(old._asdict(), name, state))
    return type(old)(state[name]) if isinstance(old, (bool, int, float)) else state[name]
