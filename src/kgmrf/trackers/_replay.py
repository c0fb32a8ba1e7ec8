"""Late observations of rotations: the last steps are kept and run once more in order of time."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from kgmrf import _check
from kgmrf._check import ObservationError
from kgmrf._time import duration, stamps
from kgmrf._types import Mask, Numbers
from kgmrf.engines import TIME, Lines
from kgmrf.engines.rotations import Rotations
from kgmrf.results import Estimate, Result
from kgmrf.trackers._rates import checked_rates, shaped_rates
from kgmrf.trackers._rotation_times import AnyTime

WIDTH = 15
"""Numbers of a step: matrix, count, stamp, rate and its deviation."""
COUNT, STAMP = 9, 10


class Replay(AnyTime):
    """A tracker that takes steps in any order, each at most ``late_steps`` steps late.

    Kept are the rows before the last steps, and those steps: at most ``2 late_steps`` of them.
    """

    late: str
    late_steps: int
    _base: Numbers  # rows before the steps that are kept
    _base_stamp: Numbers  # time of the step before them; NaN: they are the first
    _last: Numbers  # (k, n, WIDTH), in order of time

    gyroscope: bool | None
    gains: Any
    _state_attributes: ClassVar[tuple[str, ...]] = (
        *AnyTime._state_attributes,
        "_base",
        "_base_stamp",
        "_last",
    )

    def _set_late(self, late: str, late_steps: int, *, possible: bool) -> None:
        _check.choice(late, ("raise", "replay"), "late")
        self.late, self.late_steps = late, _check.whole(late_steps, "late_steps")
        if late == "replay" and not possible:
            raise ValueError(
                "late='replay' needs gains='auto' in three dimensions, without lag: what is kept "
                "are steps of that filter"
            )

    @property
    def automatic(self) -> bool:
        """Whether the tracker tunes itself."""
        return isinstance(self.gains, str)

    def _begin_replay(self) -> None:
        rows = self._rows if self.late == "replay" else self._rows[:0]
        self._base, self._base_stamp = rows.copy(), np.array(np.nan)
        self._last = np.empty((0, len(self._rows), WIDTH))

    @property
    def _newest(self) -> float | None:
        """Stamp of the newest step; None before the first."""
        if self.batch_shape is None or not len(self._last):
            return None
        return float(self._last[-1, 0, STAMP])

    def _update_late(
        self, observation: Any, dt: Any, n_samples: Any, rate: Any, rate_std: float | None
    ) -> Estimate:
        """`update`; ``dt`` counts from the newest step and may be negative."""
        step = np.asarray(duration(dt), dtype=float)
        if step.ndim or not abs(step) <= _check.LARGEST:
            raise ObservationError(f"with late='replay' dt must be one finite number, got {dt!r}")
        with self.transaction():
            seen, observed = self.validate(observation)
            counts = self.counts(n_samples, observed, 3)
            rates = None if rate is None else np.asarray(rate, dtype=float)[None]
            measured = self._measured(rates, rate_std, (1, *observed.shape))
            self.allocate(seen.shape)
            newest = self._newest
            stamp = 0.0 if newest is None else newest + float(step)
            self._records = self._insert(stamp, seen, observed, counts, measured[0])
        return self._estimate_of_values(self.current_values())

    def _filter_late(
        self,
        sequence: Any,
        rates: Any = None,
        rate_std: float | None = None,
        times: Any = None,
        mask: Any = None,
        n_samples: Any = None,
        **other: Any,
    ) -> Result:
        """`filter` of steps in the order in which they came; estimates are at the newest stamp."""
        if other:
            raise ObservationError(f"late='replay' takes no {', '.join(other)}")
        with self.transaction():
            seen, observed = self.validate(sequence, mask, sequence=True)
            counts = self.counts(n_samples, observed, 3)
            values = None if rates is None else np.asarray(rates, dtype=float)
            measured = self._measured(values, rate_std, observed.shape)
            newest = self._newest
            begin = 0.0 if newest is None else newest + 1.0
            at = np.asarray(begin + np.arange(len(seen)) if times is None else stamps(times), float)
            if at.shape != (len(seen),) or not np.isfinite(at).all():
                raise ObservationError(
                    f"times must be {len(seen)} finite stamps, got shape {at.shape}"
                )
            self.allocate(seen.shape[1:])
            found = []
            for k, stamp in enumerate(at.tolist()):
                step = (seen[k], observed[k], counts[k], measured[k])
                self._records = self._insert(stamp, *step)
                found.append(self._records)
        return Result(self._engine.view(np.stack(found).reshape(*observed.shape, -1)))

    def _measured(self, rates: Numbers | None, std: float | None, shape: Any) -> Numbers:
        if rates is None:
            return np.full((*shape, 4), np.nan)
        self._need_gyroscope()
        return shaped_rates(checked_rates(rates, std, shape[0]), shape)

    def _need_gyroscope(self) -> None:
        if not self.automatic or self.d != 3:
            raise ObservationError("rates need gains='auto' in three dimensions")
        if self.gyroscope is None and self.batch_shape is None:
            self.gyroscope = True
        if not self.gyroscope:
            raise ObservationError(
                "this tracker began without rates: give some with the first step, or construct "
                "RotationTracker(gyroscope=True)"
            )

    def _insert(
        self, stamp: float, seen: Numbers, observed: Mask, counts: Numbers, rates: Numbers
    ) -> Numbers:
        """Take in one step at its place in time; the records of the newest step."""
        n, old = len(self._rows), self._last
        place = int(np.searchsorted(old[:, 0, STAMP], stamp, side="right"))
        behind = len(old) - place
        if behind > self.late_steps or (place == 0 and stamp < self._base_stamp):
            raise ObservationError(
                f"an observation at {stamp:.15g} is {behind} steps late or more; late_steps = "
                f"{self.late_steps} are kept. Leave it out, or construct the tracker with more"
            )
        new = np.empty((n, WIDTH))
        new[:, :COUNT] = np.where(observed[..., None, None], seen, 0.0).reshape(n, 9)
        new[:, COUNT] = np.where(observed, counts, 0.0).reshape(n)
        new[:, STAMP] = stamp
        new[:, STAMP + 1 :] = rates.reshape(n, 4)
        steps = np.insert(old, place, new, axis=0)
        if behind or not len(old):
            rows, before, run = self._base.copy(), float(self._base_stamp), steps
        else:
            rows, before, run = self._rows.copy(), float(old[-1, 0, STAMP]), steps[-1:]
        records = self._through(rows, run, before)
        if len(steps) > 2 * self.late_steps:
            base, first = self._base.copy(), steps[: self.late_steps]
            self._through(base, first, float(self._base_stamp))
            self._base, self._base_stamp = base, np.array(first[-1, 0, STAMP])
            steps = steps[self.late_steps :].copy()
        self._rows, self._last, self._fresh = rows, steps, False
        return records

    def _through(self, rows: Numbers, steps: Numbers, before: float) -> Numbers:
        """Take steps into rows, after a step at ``before``; the records of the last."""
        n, engine = len(rows), self._engine
        assert isinstance(engine, Rotations)
        if np.isnan(before):  # a track begins at its first step
            before = float(steps[0, 0, STAMP])
            rows[:, TIME] = before
        dt = np.diff(steps[:, :, STAMP], axis=0, prepend=np.full((1, n), before))
        lines = Lines(
            np.tile(np.arange(n), len(steps)),
            steps[..., :COUNT].reshape(-1, 3, 3).copy(),
            steps[..., COUNT].flatten(),
            dt.flatten(),
        )
        rates = steps[..., STAMP + 1 :].reshape(-1, 4).copy()
        more = {"rates": rates} if engine.rated else {}
        return engine.advance(rows, lines, None, **more)[1][-n:].copy()

    def state_dict(self) -> dict[str, Numbers]:
        """Everything remembered; steps in an array of fixed size, NaN where there is none."""
        found = super().state_dict()
        if found and self.late == "replay":
            more = 2 * self.late_steps - len(self._last)
            found["last"] = np.pad(self._last, [(0, more), (0, 0), (0, 0)], constant_values=np.nan)
        return found

    def load_state_dict(self, state: dict[str, Numbers]) -> None:
        """Take over what `state_dict` gave."""
        super().load_state_dict(state)
        self._last = self._last[~np.isnan(self._last[:, :1, STAMP]).any(axis=1)].copy()

    def check_state(self) -> None:
        """ValueError unless the steps of a file can be run again."""
        super().check_state()
        if self.late != "replay":
            return
        steps, n = self._last, len(self._rows)
        if steps.shape[1:] != (n, WIDTH) or len(steps) > 2 * self.late_steps:
            raise ValueError(f"it keeps steps of shape {steps.shape}")
        at = steps[:, :, STAMP]
        if not np.isfinite(steps[..., : STAMP + 1]).all() or (np.diff(at, axis=0) < 0.0).any():
            raise ValueError("it keeps steps that are not finite or not in order")
        if self._base.shape != self._rows.shape or self._base_stamp.shape:
            raise ValueError("the rows before its steps are none")
        self._engine.check(self._base)
