"""The self-tuned ensemble as an engine: rows of tracks, lines of observations, records.

A record is what an estimate needs of one step: head, tails and weights of the row, the covariance,
and the lower triangle of the scale. `kgmrf.readable.ensemble` tells the formulas.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from kgmrf._check import FASTEST, LARGEST
from kgmrf._types import Numbers
from kgmrf.constants import BIAS_LIMIT, MOST_SAMPLES
from kgmrf.engines import Lines, core
from kgmrf.engines import layout as at
from kgmrf.engines.ensemble_view import NAMES, SMALL
from kgmrf.engines.layout import Layout, layout, track, turned, unpack
from kgmrf.engines.self_tuned import UNKNOWN, Record, SelfTuned
from kgmrf.members import as_members
from kgmrf.youth import doubt_of

LARGEST_LOG = 345.0
"""The logarithm of a size is between minus this and this: e^345 is the largest observation."""


class Ensemble(SelfTuned):
    """Many laws for one track, blended by the gradient of their likelihood.

    >>> import numpy as np
    >>> engine = Ensemble(2)
    >>> rows = engine.init(1)
    >>> x = np.random.default_rng(0).normal(size=(50, 1, 2))
    >>> lines = Lines(np.zeros(50, dtype=int), x, np.ones(50), np.ones(50), matrix=False)
    >>> records = engine.advance(rows, lines)[1]
    >>> engine.weights(engine.read(records)).shape
    (50, 11)
    """

    names: tuple[str, ...] = NAMES
    from_rows = ("velocity", "angle_std")

    def __init__(
        self,
        d: int,
        members: Iterable[Any] | None = None,
        noise_floor: float = 0.0,
        *,
        learns_samples: bool = False,
    ) -> None:
        self.d, self.noise_floor = int(d), noise_floor
        self.members = as_members(members, self.d)
        self.plan: Layout = layout(self.d, self.members, learns_samples=learns_samples)
        self.size, self.start_up = self.plan.size, 2 * self.d
        super().__init__(len(self.members))
        # Numbers of a record with its covariance, and with its scale.
        self.dense = self.small + self.d**2
        self.record_size = self.scaled = self.dense + self.d * (self.d + 1) // 2
        if learns_samples:
            self.record_size += 1
            self.names = (*NAMES, "effective_samples")

    def init(self, n_tracks: int) -> Numbers:
        """Rows ``(n, size)`` of new tracks."""
        rows = super().init(n_tracks)
        top = track(rows, self.plan).top
        top[:, : self.d], top[:, self.d] = self.d**-0.5, 1.0
        return rows

    def _make_loop(self) -> Any:
        plan = self.plan
        return core.loop("Ensemble", self.d, plan.table, plan.places, np.array(plan.learning))

    def advance(
        self, rows: Numbers, lines: Lines, record_width: int | None = None
    ) -> tuple[Numbers, Numbers]:
        """Take in lines; see :mod:`kgmrf.engines`."""
        status, records = self._answers(len(lines.track_index), record_width)
        self.loop.run(rows, *lines[:4], bool(lines.matrix), lines.tolerance, records, status)
        return status, records

    # ------------------------------------------------------------------ what is in a record

    def record_width(self, names: tuple[str, ...]) -> int:
        """Numbers of a record that these fields need."""
        if all(name in SMALL for name in names):
            return self.small
        whole = {"scale", "effective_samples"} & set(names)
        return self.record_size if whole else self.dense

    def doubt(self, record: Record) -> Numbers:
        """What is open of a forecast because the track is young; see `kgmrf.youth`."""
        return doubt_of(record.samples, self.d)

    def half_life(self, weights: Numbers) -> Numbers:
        """exp(sum_k w_k log h_k / sum_k w_k) over the averages; NaN if they have no weight.

        >>> from kgmrf.members import Average, Rotating
        >>> engine = Ensemble(2, (Average(4.0), Average(16.0), Rotating(1e-6)))
        >>> engine.half_life(np.array([0.4, 0.4, 0.2])).round(9).item()
        8.0
        """
        average = self.plan.table[:, at.KIND] == at.AVERAGE
        mine = weights[..., average]
        total = mine.sum(axis=-1)
        there = total > 0
        mean = mine @ np.log(self.plan.table[average, at.HALF_LIFE]) / np.where(there, total, 1.0)
        return np.where(there, np.exp(mean), np.nan)

    # ------------------------------------------------------------------ files

    def check(self, rows: Numbers) -> None:
        """Raise ValueError unless these rows could have come from this engine."""
        super().check(rows)
        parts = track(rows, self.plan)
        # Observations reach LARGEST, and what is remembered of them hardly more.
        large = np.abs(np.delete(rows, UNKNOWN, axis=1)) > 1e3 * LARGEST
        if large.any() or (np.abs(parts.size) > LARGEST_LOG).any():
            raise ValueError("a row holds numbers that are too large to square")
        head = parts.head
        if (parts.top[:, self.d : self.d + 2] < 0.0).any():
            raise ValueError("a row holds a negative variance of its top direction")
        if (np.abs(parts.bias) > BIAS_LIMIT).any():
            raise ValueError("a row holds an impossible bias of its sizes")
        if (parts.scatter < 0.0).any() or (parts.scatter[:, at.WORTH :] > MOST_SAMPLES).any():
            raise ValueError("a row holds an impossible number of effective samples")
        if (parts.entry < 0.0).any() or (parts.entry[:, 0][parts.level > 0.0] < 1.0).any():
            raise ValueError("a row has a channel of an impossible age")
        if any((part < 0.0).any() for part in (parts.level, parts.mass, parts.deviation)):
            raise ValueError("a row holds a negative variance")
        if ((parts.level == 0.0)[:, None] & (parts.deviation > 0.0)).any():
            raise ValueError("a row has a channel that was never seen, and its deviation")
        started = head[:, at.COUNT] > 0.0
        if (started != (parts.level > 0.0).any(axis=-1)).any() or (head[:, at.POOLED] < -1.0).any():
            raise ValueError("a row has observations but no channel, or a channel without any")
        pooling = head[:, at.POOLED] >= 0.0
        self._check_turning(parts.turning[started & ~pooling])
        if (parts.units[started & ~pooling] <= 0.0).any():
            raise ValueError("a row holds a unit that is not positive")
        self._check_averages(parts.body[started])
        pairs = self.d * (self.d + 1) // 2
        self._check_averages(parts.turning[started & pooling][..., :pairs])

    def _check_averages(self, packed: Numbers) -> None:
        if (
            packed.size
            and np.linalg.eigvalsh(unpack(packed, self.d)).min() < -1e-6 * np.abs(packed).max()
        ):
            raise ValueError("an average of a row is not positive semidefinite")

    def _check_turning(self, numbers: Numbers) -> None:
        if not numbers.size:
            return
        own = turned(numbers, self.d)
        defect = np.swapaxes(own.frame, -1, -2) @ own.frame - np.eye(self.d)
        if np.abs(defect).max() > 1e-6:
            raise ValueError("an eigenframe of a row is not orthonormal")
        variances = (own.p11, own.p22, own.spectrum, own.spectrum_var)
        if any((part < 0.0).any() for part in variances):
            raise ValueError("a row holds a negative variance")
        if (np.abs(own.velocity) > FASTEST).any():
            raise ValueError("a row turns too fast")
        if (own.p12**2 > own.p11 * own.p22 * (1.0 + 1e-6) + 1e-30).any():
            raise ValueError("an angle and its velocity are correlated by more than 1")
