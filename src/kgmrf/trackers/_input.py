"""What goes into a tracker: its common settings, checked observations, counted time."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple, TypedDict

import numpy as np

from kgmrf import _check, _time
from kgmrf._align import OnOverlap, aligned, new_rows
from kgmrf._check import ObservationError, OnInvalid
from kgmrf._mask import as_mask
from kgmrf._names import Named, from_labels, from_names
from kgmrf._threads import OneAtATime
from kgmrf._time import Clock, duration, stamps, unit_of
from kgmrf._types import Mask, Numbers
from kgmrf.geometry import so


class SequenceOptions(TypedDict, total=False):
    """What may come with a sequence; `Tracker.filter` says what each word means."""

    times: Any
    mask: Any
    n_samples: Any
    samples: bool | None
    layout: str | None
    on_overlap: OnOverlap


class Recording(NamedTuple):
    """Checked input, steps first, and the names that came with it."""

    seen: Numbers
    observed: Mask
    counts: Numbers  # samples behind each matrix; of vectors the covariance of the noise
    dt: Numbers  # counted intervals, of the shape of ``observed``
    times: Any = None  # stamps as they were given
    samples: bool = False  # whether ``seen`` holds raw samples
    channels: tuple[str, ...] | None = None
    index: Any = None
    until: float | None = None  # stamp of the last row
    rates: Any = None  # of rotations: measured rates and their deviation, ``(T, ..., 4)``


class Input(OneAtATime):
    """Dimension, batch and clock of a tracker, and the checks of whatever it is given."""

    kind: ClassVar[str] = "covariance"
    """What is tracked: "covariance" or "rotation"."""

    needs_samples: ClassVar[bool] = False
    """Whether `update` must know how many samples are behind a matrix."""

    axes: ClassVar[int] = 2
    """Trailing axes of one observation: 2 for matrices ``(..., d, d)``, 1 for vectors."""

    channels: tuple[str, ...] | None = None
    """Names of the channels, if a table or a recording with names was followed."""

    until: float | None = None
    """Date of the last row that was taken in, in nanoseconds since 1970, or the last second of a
    recording; None if rows had neither."""

    def __init__(
        self,
        d: int | None = None,
        n_samples: float | None = None,
        on_invalid: OnInvalid = "raise",
        time_unit: float | None = None,
    ) -> None:
        _check.choice(on_invalid, ("raise", "skip", "repair"), "on_invalid")
        if n_samples is not None:
            _check.sample_counts(n_samples)
        self.n_samples = n_samples
        self.on_invalid = on_invalid
        self.d = None if d is None else _check.whole(d, "d")
        self.batch_shape: tuple[int, ...] | None = None
        if time_unit is not None:
            _check.in_range(time_unit, "time_unit", 0.0, 1e300, open_low=True)
        self.time_unit = time_unit
        self.clock = Clock(time_unit)
        self._missing: set[str] = set()  # channels of which a warning was given

    def _allocate(self, shape: tuple[int, ...]) -> None:
        """Allocate the memory for observations of ``shape`` (..., d, d)."""
        raise NotImplementedError

    def allocate(self, shape: tuple[int, ...]) -> None:
        """Allocate for observations of this shape, unless that is done."""
        if self.batch_shape is None:
            self.d = int(shape[-1])
            self.batch_shape = tuple(shape[: -self.axes])
            self._allocate(shape)

    # ------------------------------------------------------------------ names

    def _in_order(
        self, sequence: Any, on_overlap: str, given: dict[str, Any]
    ) -> tuple[Named, dict[str, Any], float | None]:
        """A sequence in the order of the known channels, without rows that are skipped; what came
        with it, cut likewise; and the stamp of its last row."""
        found = aligned(from_names(sequence), self.channels, self._missing)
        dates, times = found.stamps, given.get("times")
        if times is None:
            given = {**given, "times": found.seconds}
        elif found.seconds is not None:
            dates = None  # the user knows better
        if dates is None and times is not None and on_overlap == "skip":
            dates = np.asarray(stamps(times), dtype=float)
        kept = new_rows(dates, self.until, on_overlap)
        if kept is not None:
            n = len(kept)
            index = None if found.index is None else found.index[kept]
            found = found._replace(values=np.asarray(found.values)[kept], index=index)
            given = {
                k: v if np.ndim(v) == 0 or len(v) != n else np.asarray(v)[kept]
                for k, v in given.items()
            }
        latest = None if dates is None else np.nanmax(dates).item()
        return found, given, latest

    def _one_row(self, value: Any) -> Any:
        """One sample, or a table that is the block of one step, in the order of the known channels;
        learns their names."""
        if type(value) is np.ndarray:
            return value
        found = from_names(value)
        found = aligned(
            found if found.channels else from_labels(value), self.channels, self._missing
        )
        if found.channels is not None:
            new_rows(found.stamps, self.until, "raise")
            self.channels = found.channels
            self.until = self.until if found.stamps is None else found.stamps.max().item()
        return found.values

    # ------------------------------------------------------------------ observations

    def _unwrapped(self, value: Any) -> Any:
        """scipy's Rotation objects as matrices."""
        if isinstance(value, (list, tuple)):
            return [f.as_matrix() if hasattr(f, "as_matrix") else f for f in value]
        return value.as_matrix() if hasattr(value, "as_matrix") else value

    def _check_shape(self, array: Numbers, name: str) -> None:
        """Refuse what are no observations of this dimension."""
        shape = array.shape
        if self.kind == "rotation" and self.d == 3 and shape[-1:] == (4,) and shape[-2:] != (4, 4):
            raise ObservationError(
                f"{name} has shape {shape}: quaternions? Wrap them with "
                "scipy.spatial.transform.Rotation.from_quat(...), which fixes their order"
            )
        if self.kind == "rotation" and (array.ndim < 2 or shape[-1] != shape[-2]):
            raise ObservationError(
                f"{name} must be square rotation matrices of shape (..., d, d), got shape {shape}; "
                "use scipy.spatial.transform.Rotation.from_euler, from_rotvec or from_quat"
            )
        _check.square(array, name, self.d)

    def _matrices(self, value: Any, name: str, mask: Any = None) -> tuple[Numbers, Mask, bool]:
        """Observations as numbers, where they are present, and whether they came in float32."""
        is_float32 = getattr(value, "dtype", None) == np.float32
        array = _check.real_array(value, name)
        self._check_shape(array, name)
        if mask is not None:
            used = as_mask(mask, array.shape[: -self.axes])
            array = np.where(used[(..., *[None] * self.axes)], array, np.nan)
        if self.on_invalid != "raise":
            broken = np.abs(array) > _check.LARGEST
            if self.axes == 2:  # of a vector the other components count
                broken = np.any(broken, axis=(-2, -1), keepdims=True)
            array = np.where(broken, np.nan, array)
        _check.finite(array, name)
        if self.axes == 1:
            return array, ~np.all(np.isnan(array), axis=-1), is_float32
        return array, _check.present(array, name), is_float32

    def _validated(
        self, array: Numbers, observed: Mask, is_float32: bool, name: str
    ) -> tuple[Numbers, Mask]:
        """Checked for what the tracker follows: covariances, or rotations, projected."""
        if self.kind != "rotation":
            return _check.covariances(array, observed, name, self.on_invalid, is_float32)
        matrices, observed = _check.rotations(array, observed, name, self.on_invalid, is_float32)
        return so.project(matrices), observed

    def validate(
        self, value: Any, mask: Any = None, *, sequence: bool = False
    ) -> tuple[Numbers, Mask]:
        """An observation, or with ``sequence`` many, as numbers, and where there are any."""
        name = "sequence" if sequence else "observation"
        if sequence:
            _check.some_frames(value)
        if self.axes == 1 and not sequence:
            value = self._one_row(value)
        frames = value if sequence else [value]
        if isinstance(frames, (list, tuple)) and all(frame is None for frame in frames):
            if self.d is None:
                which = f"all {len(frames)} frames are" if sequence else "the first observation is"
                raise ObservationError(
                    f"{which} None and d is unknown; "
                    "give d at construction, e.g. d=3, or start with an observation"
                )
            lead = (len(frames), *(self.batch_shape or ())) if sequence else self.batch_shape or ()
            value = np.full((*lead, *(self.d,) * self.axes), np.nan)
        array, observed, is_float32 = self._matrices(self._unwrapped(value), name, mask)
        if sequence and array.ndim <= self.axes:
            frame = ", ".join("d" * self.axes)
            raise ObservationError(
                f"sequence must have shape (T, ..., {frame}), got {array.shape}; "
                "for one observation call update(observation)"
            )
        self._same_batch(array.shape[sequence : -self.axes])
        return self._validated(array, observed, is_float32, name)

    def _trusted(self, observation: Any) -> tuple[Numbers, Mask]:
        return observation, ~np.isnan(observation[..., 0, 0])

    def _same_batch(self, batch: tuple[int, ...]) -> None:
        if self.batch_shape is not None and batch != self.batch_shape:
            raise ObservationError(
                f"observation has batch shape {batch}, but this tracker follows "
                f"{self.batch_shape}; use a new tracker for another batch"
            )

    def counts(self, n_samples: Any, observed: Mask, d: int) -> Numbers:
        """The number of samples behind every matrix, in the shape of ``observed``."""
        value = self.n_samples if n_samples is None else n_samples
        if value is None:
            if self.needs_samples and observed.any():
                raise ObservationError(
                    "how many samples are behind each matrix? Give n_samples to this call or at "
                    "construction; or pass raw samples to partial_fit"
                )
            value = 1.0
        counts = _check.sample_counts(value)
        if counts.ndim == 1 and observed.ndim > 1 and counts.shape[0] == observed.shape[0]:
            counts = counts.reshape(-1, *(1,) * (observed.ndim - 1))
        try:
            return np.broadcast_to(counts, observed.shape)
        except ValueError:
            raise ObservationError(
                f"n_samples has shape {counts.shape}, which does not fit the frames "
                f"{observed.shape}"
            ) from None

    def prepare_sequence(
        self,
        sequence: Any,
        *,
        on_overlap: OnOverlap = "raise",
        whole: bool = False,
        **given: Any,
    ) -> Recording:
        """A sequence as `filter` takes it, checked; the tracker begins with it.

        whole: take the unit of time from all stamps, for a recording that is looked back at.
        """
        found, given, until = self._in_order(sequence, on_overlap, given)
        record = self._recorded(found.values, whole=whole, **given)
        return record._replace(channels=found.channels, index=found.index, until=until)

    def _recorded(
        self,
        sequence: Any,
        *,
        times: Any = None,
        mask: Any = None,
        n_samples: float | Numbers | None = None,
        whole: bool = False,
        **more: Any,
    ) -> Recording:
        """A sequence without names, checked."""
        seen, observed = self.validate(sequence, mask, sequence=True)
        counts = self.counts(n_samples, observed, seen.shape[-1], **more)
        dt = self._intervals(times, observed.shape, whole)
        self.allocate(seen.shape[1:])
        return Recording(seen, observed, counts, dt, times)

    # ------------------------------------------------------------------ time

    _fresh = True  # whether there was no step yet

    def _clocks(self) -> Numbers:
        """Counted time of every item of the batch."""
        raise NotImplementedError

    @property
    def counted_now(self) -> float | None:
        """Counted time of the last frame; None before the first."""
        if self.batch_shape is None or self._fresh:
            return None
        clocks = self._clocks()
        return float(np.max(clocks)) if clocks.size else None

    def _interval(self, dt: float | Numbers, batch: tuple[int, ...]) -> Numbers:
        """The time since the frame before, checked and counted."""
        step = _time.interval(duration(dt))
        if step.ndim and step.shape != batch:
            raise ObservationError(
                f"dt has shape {step.shape}, but the tracker follows a batch of {batch}"
            )
        if self.counted_now is None:
            step = np.zeros(())
        clock = self.clock.copy()  # an error changes nothing
        counted = _time.within_reach(clock.count(step), clock.unit, "dt")
        self.clock = clock
        return np.broadcast_to(counted, batch)

    def _intervals(self, times: Any, shape: tuple[int, ...], whole: bool = False) -> Numbers:
        """The times between steps, checked and counted; the first step of all sets the clock.

        shape: ``(T, ...)``, that of the result.
        whole: learn the unit of time from all stamps before the first step is counted.
        """
        now = self.now
        if whole and times is not None and not self.clock.frozen:
            found = _check.real_array(stamps(times), "times")
            self.clock = Clock(unit_of(np.diff(found.reshape(-1))))
        if times is None:
            steps = np.ones(shape[0])
            steps[0] = now is not None
        else:
            times = stamps(times)
            steps = _time.timeline(times, shape[0], now, self.clock.unit)
            if now is None:
                self.set_start_time(float(np.asarray(times, dtype=float)[0]))
        clock = self.clock.copy()
        counted = _time.within_reach(clock.counted(steps), clock.unit, "a step of times")
        self.clock = clock
        return np.broadcast_to(counted.reshape(-1, *(1,) * (len(shape) - 1)), shape)

    @property
    def now(self) -> float | None:
        """Time of the last frame, in units of the stamps; None before the first."""
        counted = self.counted_now
        return None if counted is None else float(self.clock.stamp(np.asarray(counted)))

    def set_start_time(self, stamp: float) -> None:
        """The first frame comes at this stamp."""
        self.clock.begin(stamp)
