"""What a tracker of covariances does where rows predict each other, as the samples of a signal."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np

from kgmrf import _check
from kgmrf._types import Numbers
from kgmrf.engines.low_rank import CROSSOVER, LowRank
from kgmrf.model.integrated_time import LONGEST, THRESHOLD, integrated_time, warn_of
from kgmrf.results import Result
from kgmrf.trackers._input import Recording, SequenceOptions
from kgmrf.trackers._samples import CovarianceTracker


def checked_time_scale(value: Any, usual: bool) -> float | str | None:
    """A checked time scale: None, "auto" or a number of rows."""
    if value is None or (isinstance(value, str) and value == "auto"):
        return value
    if isinstance(value, (bool, str)):
        raise ValueError(f'time_scale must be "auto", 1 or a number of rows, got {value!r}')
    rows = _check.in_range(value, "time_scale", 1.0, 1e9)
    if rows > 1.0 and not usual:
        raise ValueError(
            f'time_scale={value!r} needs gains="auto", noise_floor=0 and no rank; leave out '
            "time_scale or the others"
        )
    return rows


class SignalTracker(CovarianceTracker):
    """Decides whether the covariance has a time scale, and warns where it should have one."""

    automatic: bool
    time_scale: float | str | None
    noise_floor: float
    members: Any
    rank: Any
    _engine: Any
    _scaled = False  # whether the covariance has a time scale
    _signal = False  # whether the first observation is of a recording
    _tau: float = np.nan  # integrated time of the first rows that were filtered

    def prepare_sequence(self, sequence: Any, **given: Any) -> Recording:
        """As for every tracker of covariances; a Raw of MNE is a signal."""
        if self.batch_shape is None:
            self._signal = hasattr(sequence, "ch_names") and not hasattr(sequence, "events")
        return super().prepare_sequence(sequence, **given)

    def _begin_with(self, block: Numbers) -> None:
        if self.batch_shape is None:
            self._scaled = self._wants_time_scale(block.shape)
        super()._begin_with(block)

    def _wants_time_scale(self, shape: tuple[int, ...]) -> bool:
        """Whether observations of this shape, the first is ``(..., m, d)``, get a time scale."""
        usual = self.automatic and self.noise_floor == 0.0 and not isinstance(self.rank, int)
        wanted = self.time_scale
        if wanted is None:
            wanted = "auto" if self._signal else 1.0
        if wanted == 1.0 or not usual:
            return False
        many = self.rank == "auto" and self.members is None and shape[-1] >= CROSSOVER
        single = len(shape) == 2 and shape[0] == 1
        if wanted == "auto":
            return single and not many
        if not single:
            raise _check.ObservationError(
                f"time_scale={self.time_scale!r} follows single rows (T, d) of one track, and the "
                f"first step has shape {shape}; use time_scale=1"
            )
        if many:
            raise _check.ObservationError(
                f"time_scale={self.time_scale!r} with {shape[-1]} channels needs rank=None, which "
                "follows them without factors"
            )
        return True

    def filter(
        self, sequence: Any, *, fields: Any = None, **given: Unpack[SequenceOptions]
    ) -> Result:
        """As for every tracker of covariances; ``integrated_time`` of the result is measured on the
        rows of the first call, with a warning where they predict each other and nothing is done."""
        self._tau = np.nan
        found = super().filter(sequence, fields=fields, **given)
        found.integrated_time = tau = self._tau
        asked = self.time_scale is not None or self._scaled
        if tau >= THRESHOLD and self.automatic and not asked:
            many = isinstance(self._engine, LowRank)
            remedy = "rank=None, " * many + 'time_scale="auto"'
            warn_of(tau, f"use KGMRF({remedy}), or time_scale=1 if that is what you want")
        return found

    def _recorded(self, sequence: Any, **given: Any) -> Recording:
        fresh = self.batch_shape is None
        record = super()._recorded(sequence, **given)
        if fresh and record.samples and record.seen.ndim == 3 and record.seen.shape[1] == 1:
            self._tau = integrated_time(record.seen[:LONGEST, 0])
        return record
