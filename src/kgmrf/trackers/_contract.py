"""The contract that every tracker keeps: update, forecast, filter, save, load, copy.

A tracker remembers; the mathematics is in free functions. Checks, time, missing data, files and
locks are here. A subclass says what it remembers (`_begin`, `_memory`, `_remember`) and implements
the state protocol below, which is public: trackers that hold other trackers, banks and smoothers
use nothing else of them.

    checked(value), blocks(value)       input as arrays, or an error that says what is wrong
    recording(sequence, ...)            a whole sequence, checked, with its counted intervals
    begin(shape)                        allocate, at the first observation
    advance(seen, observed, n, dt)      take in one checked step
    look(), ahead(dt)                   the fields now, and dt from now
    memory(), restore(memory)           everything remembered, clock included
    anew(**changes)                     a fresh tracker with the same settings
    told(result)                        fields with time in units of the stamps

Time: the first step of a track is at time 0 (or at the first of ``times``); every later step
comes ``dt`` after the one before. Nothing drifts before the first observation. Stamps may be in any
unit, or dates: :mod:`kgmrf._time` counts them in the usual interval. The state protocol is in
counted time; `update`, `filter`, `forecast` and estimates are in that of the stamps.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from kgmrf import _check, _npz
from kgmrf._check import ObservationError
from kgmrf._time import duration, stamps
from kgmrf._types import Mask, Numbers
from kgmrf.results import FIELDS, Estimate, Result, Values, stack
from kgmrf.trackers._input import Input


class Tracker(Input):
    """Common behaviour of all trackers; see the module's docstring for the contract.

    Several threads may share a tracker: their calls wait for one another, and none is lost.
    """

    _shows: ClassVar[type[Estimate]] = Estimate
    """The kind of its estimates."""

    stays_positive: ClassVar[bool] = True
    """Whether every estimate of a covariance is positive semidefinite, by construction."""

    channels: tuple[str, ...] | None = None
    """Names of the channels, if a table or a recording with names was followed."""

    _wanted: tuple[str, ...] | None = None
    """Fields that the sequence in hand is filtered for; None: all."""

    # ------------------------------------------------------------------ for subclasses

    def advance(self, seen: Numbers, observed: Mask, n_samples: Numbers, dt: Numbers) -> None:
        """Take in one step: checked observations, where they are, their counts, the time."""
        raise NotImplementedError

    def _update_at_once(
        self, observation: Any, dt: Any, n_samples: Any, assume_valid: bool
    ) -> Estimate | None:
        """`update` in one compiled call, where that can be done; None where it cannot."""
        return None

    def look(self) -> Values:
        """All fields of an `Estimate` as they stand now."""
        raise NotImplementedError

    def ahead(self, dt: float) -> Values:
        """All fields of an `Estimate` as predicted ``dt`` of counted time from now."""
        raise NotImplementedError

    def _memory(self) -> dict[str, Numbers]:
        """Everything that is remembered, by name; the inverse of `_remember`."""
        raise NotImplementedError

    def _remember(self, memory: dict[str, Numbers]) -> None:
        raise NotImplementedError

    def check_memory(self) -> None:
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
        """Take in the observation of one frame and return the filtered estimate at its time.

        observation: ``(..., d, d)``, or None for none; items of a batch that are NaN have none.
        dt: time since the frame before, in units of the stamps (ignored at the very first frame).
        n_samples: how many samples are behind the matrix (or set at construction).
        assume_valid: skip the checks, for hot loops with float64 arrays of the right shape.
        """
        found = self._update_at_once(observation, dt, n_samples, assume_valid)
        if found is not None:
            return found
        if assume_valid and observation is not None and self.batch_shape is not None:
            seen, observed = self._trusted(observation)
        else:
            seen, observed = self.checked(observation)
        counts = self._counts(n_samples, observed)
        step = self._interval(dt, observed.shape)
        self.begin(seen.shape)
        self.advance(seen, observed, counts, step)
        return self.told(self._estimate())

    def estimate(self) -> Estimate:
        """The filtered estimate at the time of the last step, once more."""
        if self.batch_shape is None:
            raise ObservationError("nothing to estimate yet: call update(observation) first")
        return self.told(self._estimate())

    def forecast(self, steps: float = 1.0) -> Estimate:
        """The estimate ``steps`` units of time ahead if no observation came; changes nothing."""
        plain = type(steps) in (int, float) and 0.0 <= steps < np.inf
        number = steps if plain else _check.ahead(duration(steps))
        if self.batch_shape is None:
            raise ObservationError("nothing to forecast yet: call update(observation) first")
        ahead = self._shows(self.ahead(number / self.clock.unit))
        return self.told(ahead.named(self.channels))

    def filter(
        self,
        sequence: Any,
        *,
        times: Any = None,
        mask: Any = None,
        n_samples: float | Numbers | None = None,
        fields: Any = None,
    ) -> Result:
        """Run `update` over a whole sequence and return all estimates, time first.

        sequence: ``(T, ..., d, d)``; frames that are None or all NaN have no observation.
        times: ``(T,)`` time stamps that do not decrease, in any unit, or dates (then time counts in
        seconds); default: one unit per frame.
        mask: ``(T, ...)``, True where there is an observation; others are ignored unseen.
        n_samples: a number, or one per frame ``(T, ...)``.
        fields: the names of the fields to keep, to save memory; default all.

        Filtering a sequence in chunks gives what filtering it whole gives. Everything is checked
        before the first frame is taken in, so an error leaves the tracker as it was.
        """
        with self._keeping(fields):
            record = self.recording(sequence, times=times, mask=mask, n_samples=n_samples)
            return self.told(self._run(*record), times).only(fields)

    @contextmanager
    def _keeping(self, fields: Any) -> Iterator[None]:
        """While a sequence is filtered: keep no more than these fields."""
        names = None if fields is None else (fields,) if isinstance(fields, str) else tuple(fields)
        for name in names or ():
            _check.choice(name, FIELDS, "every one of fields")
        self._wanted = names
        try:
            yield
        finally:
            self._wanted = None

    def fit(self, sequence: Any, **options: Any) -> Self:
        """Fit the settings to a recording (see :func:`kgmrf.learn.fit`); starts afresh."""
        from kgmrf.learn import fit_in_place

        return fit_in_place(self, sequence, **options)

    def anew(self, **changes: Any) -> Self:
        """A fresh tracker with the same settings, but for ``changes``."""
        return type(self)(**{**self.settings(), **changes})

    def copy(self) -> Self:
        """An independent tracker in the same state."""
        return copy.deepcopy(self)

    def __copy__(self) -> Self:
        return self.copy()  # a shallow one would move when the original does

    def save(self, path: str | Path) -> None:
        """Write settings and state to one file, all or nothing; nothing in it is executable."""
        header = {
            "tracker": type(self).__name__,
            "settings": self.settings(),
            "d": self.d,
            "batch_shape": self.batch_shape,
            **({} if self.channels is None else {"channels": list(self.channels)}),
        }
        _npz.write(path, header, self.memory())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a tracker that `save` wrote. A file from a stranger can never run code."""
        from kgmrf.trackers._files import load

        tracker = load(path, cls)
        if not isinstance(tracker, cls):
            raise ValueError(f"{path} holds a {type(tracker).__name__}, not a {cls.__name__}")
        return tracker

    def settings(self) -> dict[str, Any]:
        """The arguments that build this tracker anew, as plain numbers, words and lists."""
        return {name: _plain(getattr(self, name)) for name in _arguments(type(self))}

    def __repr__(self) -> str:
        words = ", ".join(f"{k}={v!r}" for k, v in self.settings().items() if v is not None)
        return f"{type(self).__name__}({words})"

    def told(self, what: Any, times: Any = None) -> Any:
        """An estimate or result with its times in units of the stamps."""
        if self.clock.plain:
            return what
        time = None
        if times is not None:
            time = np.asarray(stamps(times), dtype=float)
            shape = (len(time), *(self.batch_shape or ()))
            time = np.broadcast_to(time.reshape(-1, *(1,) * (len(shape) - 1)), shape).copy()
        told = type(what)(self.clock.told(what._values, time))
        return told.named(what.channels, what.index)

    def prepare(self, memory: dict[str, Numbers]) -> None:
        """What has to be known of a file before `begin`."""

    def memory(self) -> dict[str, Numbers]:
        """Everything remembered, by name; nothing before the first step. See `restore`."""
        if self.batch_shape is None:
            return {}
        return {**self._memory(), "clock": self.clock.numbers()}

    def restore(self, memory: dict[str, Numbers]) -> None:
        """Take over what `memory` gave, in a tracker that has begun with the same shape."""
        self.clock.restore(memory["clock"])
        self._remember({name: value for name, value in memory.items() if name != "clock"})

    def _estimate(self) -> Estimate:
        return Estimate(self.look()).named(self.channels)

    def _run(self, seen: Numbers, observed: Mask, counts: Numbers, dt: Numbers) -> Result:
        batch = observed.shape[1:]
        estimates = []
        for k in range(seen.shape[0]):
            self.advance(seen[k], observed[k], counts[k], np.broadcast_to(dt[k], batch))
            estimates.append(self._estimate())
        return stack(estimates)


def _plain(value: Any) -> Any:
    """A setting as JSON can hold it."""
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


def under(
    name: str, memory: dict[str, Numbers], without: tuple[str, ...] = ()
) -> dict[str, Numbers]:
    """The memory of a part, each name with that of the part before it; see `part_of`."""
    return {f"{name}.{key}": value for key, value in memory.items() if key not in without}


def part_of(name: str, memory: dict[str, Numbers]) -> dict[str, Numbers]:
    """What `under` put into a memory."""
    head = f"{name}."
    return {k.removeprefix(head): v for k, v in memory.items() if k.startswith(head)}
