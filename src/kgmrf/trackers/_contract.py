"""The contract that every tracker keeps: update, forecast, filter, save, load, copy.

A tracker remembers; the mathematics is in free functions. A subclass says what it remembers
(`_memory`), how one frame changes it (`_advance`), how it looks from outside (`_look`), and how
far ahead it sees (`_ahead`). Checking, time keeping, missing data and files are done here, once.

Time: the first frame of a track is at time 0 (or at the first of ``times``); every later frame
comes ``dt`` after the one before. Nothing drifts before the first observation. Stamps may be in any
unit, or dates: :mod:`kgmrf._time` counts them in the usual interval. `_advance`, `_ahead` and what
is remembered are in counted time; `update`, `filter`, `forecast` and estimates in that of the
stamps.
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
from kgmrf._check import ObservationError, OnInvalid
from kgmrf._time import Clock, duration, stamps, unit_of
from kgmrf._types import Mask, Numbers
from kgmrf.results import FIELDS, Estimate, Result, Values, stack


class Tracker:
    """Common behaviour of all trackers; see the module's docstring for the contract."""

    kind: ClassVar[str] = "covariance"
    """What is tracked: "covariance" or "rotation"."""

    registry: ClassVar[dict[str, type[Tracker]]] = {}
    """Trackers by class name, for `load`."""

    _needs_samples: ClassVar[bool] = False
    """Whether `update` must know how many samples are behind a matrix."""

    _axes: ClassVar[int] = 2
    """Trailing axes of one observation: 2 for matrices ``(..., d, d)``, 1 for vectors."""

    _shows: ClassVar[type[Estimate]] = Estimate
    """The kind of its estimates."""

    _stays_positive: ClassVar[bool] = True
    """Whether every estimate of a covariance is positive semidefinite, by construction."""

    channels: tuple[str, ...] | None = None
    """Names of the channels, if a table or a recording with names was followed."""

    _wanted: tuple[str, ...] | None = None
    """Fields that the sequence in hand is filtered for; None: all."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not cls.__name__.startswith("_"):
            Tracker.registry[cls.__name__] = cls

    def __init__(
        self,
        d: int | None,
        n_samples: float | None,
        on_invalid: OnInvalid,
        time_unit: float | None = None,
    ) -> None:
        if d is not None and (not isinstance(d, (int, np.integer)) or d < 1):
            raise ValueError(f"d must be a whole number of at least 1, got {d!r}")
        _check.choice(on_invalid, ("raise", "skip", "repair"), "on_invalid")
        if n_samples is not None:
            _check.positive(n_samples, "n_samples", "it counts the samples behind each matrix")
        self.n_samples = n_samples
        self.on_invalid = on_invalid
        self.d = None if d is None else int(d)
        self.batch_shape: tuple[int, ...] | None = None
        if time_unit is not None:
            _check.in_range(time_unit, "time_unit", 0.0, np.inf, open_low=True)
        self.time_unit = time_unit
        self._clock = Clock(time_unit)

    # ------------------------------------------------------------------ for subclasses

    def _begin(self, shape: tuple[int, ...]) -> None:
        """Allocate the memory for observations of ``shape`` (..., d, d)."""
        raise NotImplementedError

    def _advance(self, seen: Numbers, observed: Mask, n_samples: Numbers, dt: Numbers) -> None:
        """Take in one frame: checked matrices, where they are present, their counts, the time."""
        raise NotImplementedError

    def _update_at_once(
        self, observation: Any, dt: Any, n_samples: Any, assume_valid: bool
    ) -> Estimate | None:
        """`update` in one compiled call, where that can be done; None where it cannot."""
        return None

    def _look(self) -> Values:
        """All fields of an `Estimate` as they stand now."""
        raise NotImplementedError

    def _ahead(self, steps: float) -> Values:
        """All fields of an `Estimate` as predicted ``steps`` units of time from now."""
        raise NotImplementedError

    def _memory(self) -> dict[str, Numbers]:
        """Everything that is remembered, by name; the inverse of `_remember`."""
        raise NotImplementedError

    def _remember(self, memory: dict[str, Numbers]) -> None:
        raise NotImplementedError

    def _check_memory(self) -> None:
        """Raise ValueError if what is remembered, as from a file, cannot be; see `load`."""

    @property
    def _now(self) -> float | None:
        """Counted time of the last frame; None before the first."""
        raise NotImplementedError

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
            seen, observed = self._checked(observation)
        counts = self._counts(n_samples, observed)
        step = self._interval(dt, observed.shape)
        self._start(seen.shape)
        self._advance(seen, observed, counts, step)
        return self._told(self._estimate())

    def estimate(self) -> Estimate:
        """The filtered estimate at the time of the last step, once more."""
        if self.batch_shape is None:
            raise ObservationError("nothing to estimate yet: call update(observation) first")
        return self._told(self._estimate())

    def forecast(self, steps: float = 1.0) -> Estimate:
        """The estimate ``steps`` units of time ahead if no observation came; changes nothing."""
        number = _check.ahead(duration(steps))
        if self.batch_shape is None:
            raise ObservationError("nothing to forecast yet: call update(observation) first")
        ahead = self._shows(self._ahead(number / self._clock.unit))
        return self._told(ahead.named(self.channels))

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
            seen, observed = self._checked_sequence(sequence, mask)
            counts = self._counts(n_samples, observed)
            dt = self._intervals(times, seen.shape[0])
            self._start(seen.shape[1:])
            return self._told(self._run(seen, observed, counts, dt), times).only(fields)

    @contextmanager
    def _keeping(self, fields: Any) -> Iterator[None]:
        """While a sequence is filtered: keep no more than these fields."""
        names = None if fields is None else (fields,) if isinstance(fields, str) else tuple(fields)
        for name in names or ():
            _check.choice(name, tuple(FIELDS), "every one of fields")
        self._wanted = names
        try:
            yield
        finally:
            self._wanted = None

    def fit(self, sequence: Any, **options: Any) -> Self:
        """Fit the settings to a recording (see :func:`kgmrf.learn.fit`); starts afresh."""
        from kgmrf.learn import fit_in_place

        return fit_in_place(self, sequence, **options)

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
        _npz.write(path, header, {} if self.batch_shape is None else self._kept())

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
        names = inspect.signature(type(self).__init__).parameters
        return {name: _plain(getattr(self, name)) for name in names if name != "self"}

    def __repr__(self) -> str:
        words = ", ".join(f"{k}={v!r}" for k, v in self.settings().items() if v is not None)
        return f"{type(self).__name__}({words})"

    # ------------------------------------------------------------------ checks

    def _unwrapped(self, value: Any) -> Any:
        """Objects that stand for matrices, as matrices."""
        return value

    def _matrices(self, value: Any, name: str, mask: Any = None) -> tuple[Numbers, Mask, bool]:
        """``(..., d, d)`` as numbers, where they are present, and whether they came in float32."""
        rough = getattr(value, "dtype", None) == np.float32
        array = _check.real_array(value, name)
        _check.square(array, name, self.d)
        if mask is not None:
            used = _as_mask(mask, array.shape[:-2])
            array = np.where(used[..., None, None], array, np.nan)
        if self.on_invalid != "raise":
            broken: Mask = np.any(np.abs(array) > _check.LARGEST, axis=(-2, -1))
            array = np.where(broken[..., None, None], np.nan, array)
        _check.finite(array, name)
        return array, _check.present(array, name), rough

    def _validated(
        self, array: Numbers, observed: Mask, rough: bool, name: str
    ) -> tuple[Numbers, Mask]:
        """Checked for what the tracker follows: covariances here, rotations in a subclass."""
        return _check.covariances(array, observed, name, self.on_invalid, rough)

    def _checked(self, observation: Any) -> tuple[Numbers, Mask]:
        if observation is None:
            if self.d is None:
                raise ObservationError(
                    "the first observation is None and d is unknown; "
                    "give d at construction, e.g. d=3, or start with an observation"
                )
            batch = self.batch_shape or ()
            shape = (*batch, *(self.d,) * self._axes)
            return np.full(shape, np.nan), np.zeros(batch, dtype=bool)
        array, observed, rough = self._matrices(self._unwrapped(observation), "observation")
        self._same_batch(array.shape[: -self._axes])
        return self._validated(array, observed, rough, "observation")

    def _checked_sequence(self, sequence: Any, mask: Any) -> tuple[Numbers, Mask]:
        _check.some_frames(sequence)
        frames = _fill_gaps(self._unwrapped(sequence), self.d, self._axes)
        array, observed, rough = self._matrices(frames, "sequence", mask)
        if array.ndim <= self._axes:
            frame = ", ".join("d" * self._axes)
            raise ObservationError(
                f"sequence must have shape (T, ..., {frame}), got {array.shape}; "
                "for one observation call update(observation)"
            )
        self._same_batch(array.shape[1 : -self._axes])
        return self._validated(array, observed, rough, "sequence")

    def _trusted(self, observation: Any) -> tuple[Numbers, Mask]:
        return observation, ~np.isnan(observation[..., 0, 0])

    def _same_batch(self, batch: tuple[int, ...]) -> None:
        if self.batch_shape is not None and batch != self.batch_shape:
            raise ObservationError(
                f"observation has batch shape {batch}, but this tracker follows "
                f"{self.batch_shape}; use a new tracker for another batch"
            )

    def _counts(self, n_samples: float | Numbers | None, observed: Mask) -> Numbers:
        """The number of samples behind every matrix, in the shape of ``observed``."""
        value = self.n_samples if n_samples is None else n_samples
        if value is None:
            if self._needs_samples and observed.any():
                raise ObservationError(
                    "how many samples are behind each matrix? Give n_samples to this call or at "
                    "construction; or pass raw samples to partial_fit, which count themselves"
                )
            value = 1.0
        counts = _check.positive(
            value, "n_samples", "it counts the samples behind each matrix, 1 or more"
        )
        if counts.ndim == 1 and observed.ndim > 1 and counts.shape[0] == observed.shape[0]:
            counts = counts.reshape(-1, *(1,) * (observed.ndim - 1))
        try:
            return np.broadcast_to(counts, observed.shape)
        except ValueError:
            raise ObservationError(
                f"n_samples has shape {counts.shape}, which does not fit the frames "
                f"{observed.shape}"
            ) from None

    # ------------------------------------------------------------------ time

    def _interval(self, dt: float | Numbers, batch: tuple[int, ...]) -> Numbers:
        """The time since the frame before, checked and counted."""
        step = _check.interval(duration(dt))
        if self._now is None:
            step = np.zeros(())
        try:
            np.broadcast_to(step, batch)
        except ValueError:
            raise ObservationError(
                f"dt has shape {step.shape}, but the tracker follows a batch of {batch}"
            ) from None
        return np.broadcast_to(self._clock.count(step), batch)

    def _intervals(self, times: Any, n_frames: int) -> Numbers:
        """The times between frames, checked and counted; the first frame of all sets the clock."""
        now = self.now
        if times is None:
            steps = np.ones(n_frames)
            steps[0] = now is not None
        else:
            times = stamps(times)
            steps = _check.timeline(times, n_frames, now, self._clock.unit)
            if now is None:
                self._begin_at(float(np.asarray(times, dtype=float)[0]))
        return self._clock.counted(steps)

    def _know_unit(self, times: Any) -> None:
        """The unit of time of a whole recording, before its first frame is taken in."""
        if times is not None and not self._clock.frozen:
            found = _check.real_array(stamps(times), "times")
            self._clock = Clock(unit_of(np.diff(found.reshape(-1))))

    @property
    def now(self) -> float | None:
        """Time of the last frame, in units of the stamps; None before the first."""
        counted = self._now
        return None if counted is None else float(self._clock.stamp(np.asarray(counted)))

    def _begin_at(self, stamp: float) -> None:
        """The first frame comes at this stamp."""
        self._clock.begin(stamp)

    def _told(self, what: Any, times: Any = None) -> Any:
        """An estimate or result with its times in units of the stamps."""
        if self._clock.plain:
            return what
        time = None
        if times is not None:
            time = np.asarray(stamps(times), dtype=float)
            shape = (len(time), *(self.batch_shape or ()))
            time = np.broadcast_to(time.reshape(-1, *(1,) * (len(shape) - 1)), shape).copy()
        told = type(what)(self._clock.told(what._values, time))
        return told.named(what.channels, what.index)

    def _prepare(self, memory: dict[str, Numbers]) -> None:
        """What has to be known of a file before `_start`."""

    def _kept(self) -> dict[str, Numbers]:
        """What is remembered, with the clock; the inverse of `_keep`."""
        return {**self._memory(), "clock": self._clock.numbers()}

    def _keep(self, memory: dict[str, Numbers]) -> None:
        self._clock.restore(memory["clock"])
        self._remember({name: value for name, value in memory.items() if name != "clock"})

    # ------------------------------------------------------------------ machinery

    def _start(self, shape: tuple[int, ...]) -> None:
        if self.batch_shape is None:
            self.d = int(shape[-1])
            self.batch_shape = tuple(shape[: -self._axes])
            self._begin(shape)

    def _set_clock(self, time: float) -> None:
        raise NotImplementedError

    def _estimate(self) -> Estimate:
        return Estimate(self._look()).named(self.channels)

    def _run(self, seen: Numbers, observed: Mask, counts: Numbers, dt: Numbers) -> Result:
        batch = observed.shape[1:]
        estimates = []
        for k in range(seen.shape[0]):
            self._advance(seen[k], observed[k], counts[k], np.broadcast_to(dt[k], batch))
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


def _fill_gaps(sequence: Any, d: int | None, axes: int) -> Any:
    """A list with None for missing frames becomes one with NaN in their place."""
    if not isinstance(sequence, (list, tuple)) or not any(frame is None for frame in sequence):
        return sequence
    shapes = [np.shape(frame) for frame in sequence if frame is not None]
    if not shapes and d is None:
        raise ObservationError(
            f"all {len(sequence)} frames are None and d is unknown; give d at construction"
        )
    shape = shapes[0] if shapes else (d,) * axes
    return [np.full(shape, np.nan) if frame is None else frame for frame in sequence]


def _as_mask(mask: Any, shape: tuple[int, ...]) -> Mask:
    array = np.asarray(mask)
    if array.dtype != bool:
        raise ObservationError(f"mask must hold True and False, got dtype {array.dtype}")
    if array.ndim < len(shape):
        array = array.reshape(array.shape + (1,) * (len(shape) - array.ndim))
    try:
        return np.broadcast_to(array, shape)
    except ValueError:
        raise ObservationError(
            f"mask has shape {np.shape(mask)}, but the sequence has frames of shape {shape}"
        ) from None
