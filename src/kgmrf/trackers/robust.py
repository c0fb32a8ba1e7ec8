"""Any single-track tracker, protected against garbage and able to find its target again."""

from __future__ import annotations

import math
from collections import ChainMap
from statistics import NormalDist
from typing import Any

import numpy as np

from kgmrf import _check
from kgmrf._check import ObservationError
from kgmrf._types import Mask, Numbers
from kgmrf.geometry import so
from kgmrf.results import Values
from kgmrf.trackers._contract import Tracker
from kgmrf.trackers._files import rebuilt
from kgmrf.trackers._samples import CovarianceTracker

SIZE_ALLOWANCE = 2.0
"""A frame may be this many times larger than predicted at the edge of the gate."""

SCORE_GAIN = 0.3
"""Weight of the newest frame in the score."""


MISSING = np.zeros((), dtype=bool)

MOST_PATIENCE = 10_000
"""Refused observations are kept, so that their number is limited."""


class RobustTracker(CovarianceTracker):
    """Weigh each observation by how plausible it is; refuse the impossible; start anew when lost.

    tracker: the tracker to protect, of covariances or rotations, following one track.
    dof: degrees of freedom of Student's t: an observation with normalised innovation x^2 over n
    numbers counts as (dof + n) / (dof + x^2) of its samples, at most as all of them.
    gate: probability under the tracker's own prediction below which an observation is not used at
    all: the track coasts over it, and is not moved.
    patience: after this many refused observations in a row it is the tracker that is wrong: it is
    started anew from those observations. Fewer in a row are outliers.

    The estimate has one more field, ``score``: 0 where all is well, near 1 where the track is lost.
    Before the tracker can predict (while it warms up) nothing is refused.

    >>> import numpy as np
    >>> from kgmrf import KGMRF, RobustTracker
    >>> tracker = RobustTracker(KGMRF(gains="information", n_samples=20))
    >>> _ = tracker.filter(np.tile(np.diag([2.0, 0.5]), (30, 1, 1)))
    >>> garbage = tracker.update([[900.0, 0.0], [0.0, 700.0]])
    >>> garbage.covariance.round(2)[0, 0].item(), garbage.score.item()
    (2.0, 0.3)
    """

    _strikes: int
    _score: float
    _predicts: bool
    _kept = ("tracker", "_refused", "_refused_at", "_strikes", "_score", "_predicts")

    def __init__(
        self,
        tracker: Tracker | dict[str, Any],
        *,
        dof: float = 5.0,
        gate: float = 1e-6,
        patience: int = 3,
    ) -> None:
        inner = rebuilt(tracker) if isinstance(tracker, dict) else tracker
        if not isinstance(inner, Tracker) or inner.axes != 2 or inner.now is not None:
            raise ValueError(f"tracker must be a fresh tracker of matrices, got {tracker!r}")
        super().__init__(inner.d, inner.n_samples, inner.on_invalid, inner.time_unit)
        self.clock = inner.clock  # the tracker within gets its time counted already
        self.kind = inner.kind  # type: ignore[misc]
        self.needs_samples = inner.needs_samples  # type: ignore[misc]
        self.tracker = inner
        self.dof = _check.in_range(dof, "dof", 0.0, np.inf, open_low=True)
        self.gate = _check.in_range(gate, "gate", 0.0, 0.1, open_low=True)
        if not isinstance(patience, (int, np.integer)) or not 1 <= patience <= MOST_PATIENCE:
            raise ValueError(
                f"patience must be a whole number from 1 to {MOST_PATIENCE}, got {patience!r}"
            )
        self.patience = int(patience)
        self._tail = NormalDist().inv_cdf(1.0 - self.gate)

    # ------------------------------------------------------------------ one frame

    def advance(self, seen: Numbers, observed: Mask, n_samples: Numbers, dt: Numbers) -> None:
        """Take in one step: an observation, as much of it as is plausible."""
        weight = 1.0
        if observed and self._predicts:
            weight = self._weight(seen, float(n_samples), float(dt))
        if weight > 0.0:
            self.tracker.advance(seen, observed, n_samples * weight, dt)
            self._strikes = self._strikes if not observed else 0
        else:
            self.tracker.advance(np.full_like(seen, np.nan), MISSING, n_samples, dt)
            self._refused[self._strikes] = seen
            self._refused_at[self._strikes] = (self.counted_now, n_samples)
            self._strikes += 1
            if self._strikes == self.patience:
                self._start_anew()
        if observed:
            self._score += SCORE_GAIN * (1.0 - weight - self._score)
            self._predicts |= bool(np.isfinite(self.tracker.look()["log_likelihood"]))

    def _weight(self, seen: Numbers, m: float, dt: float) -> float:
        """Share of its samples that an observation counts as; 0 beyond the gate."""
        predicted = self.tracker.ahead(dt)
        rotation = self.kind == "rotation"
        parts = self._turned(predicted, seen, m) if rotation else self._shaped(predicted, seen, m)
        weight = 1.0
        for square, n, limit in parts:
            if not square <= limit:
                return 0.0
            weight = min(weight, (self.dof + n) / (self.dof + square))
        return weight

    def _turned(self, predicted: Values, seen: Numbers, m: float) -> list[tuple[float, int, float]]:
        """(normalised innovation squared, its size n, the gate) of an observed rotation."""
        noise = getattr(self.tracker, "noise_std", None)
        if noise is None:
            raise ObservationError("a robust rotation tracker needs noise_std of its tracker")
        error = so.log(np.swapaxes(predicted["rotation"], -1, -2) @ seen)
        upper = np.triu_indices(seen.shape[-1], 1)
        spread = np.nan_to_num(predicted["angle_std"][upper]) ** 2 + noise**2 / m
        n = upper[0].size
        return [(float(np.sum(error[upper] ** 2 / spread)), n, self._quantile(n))]

    def _shaped(self, predicted: Values, seen: Numbers, m: float) -> list[tuple[float, int, float]]:
        """The same for the size and for the angles of an observed covariance.

        The size is tr(S^-1 C) per sample, chi-squared; the angles are Gaussian for many samples
        only, so their gate widens by 1 + 8/m.
        """
        d = seen.shape[-1]
        level = predicted["spectrum"] + getattr(self.tracker, "noise_floor", 0.0)
        body = predicted["frame"].T @ seen @ predicted["frame"]
        size = float(np.sum(np.diagonal(body) / level))
        limit = SIZE_ALLOWANCE * self._quantile(m * d) / m
        parts = [(size, d, limit)]
        if d > 1:
            i, j = np.triu_indices(d, 1)
            gap = level[i] - level[j]
            spread = level[i] * level[j] / m
            spread = spread + (np.nan_to_num(predicted["angle_std"][i, j]) * gap) ** 2
            square = float(np.sum(body[i, j] ** 2 / spread))
            parts.append((square, i.size, (1.0 + 8.0 / m) * self._quantile(i.size)))
        return parts

    def _quantile(self, n: float) -> float:
        """Upper ``gate`` quantile of chi-squared with n degrees of freedom (Wilson-Hilferty)."""
        return n * (1.0 - 2.0 / (9.0 * n) + self._tail * math.sqrt(2.0 / (9.0 * n))) ** 3

    def _start_anew(self) -> None:
        """A fresh tracker that knows the refused observations only, at the times they had."""
        fresh = self.tracker.anew()
        fresh.clock = self.clock
        fresh.begin(self._refused.shape[1:])
        times, counts = self._refused_at.T
        fresh.advance(np.full_like(self._refused[0], np.nan), MISSING, counts[0], times[0])
        for seen, m, dt in zip(
            self._refused, counts, np.diff(times, prepend=times[0]), strict=True
        ):
            fresh.advance(seen.copy(), ~MISSING, m, dt)
        self.tracker, self._strikes, self._predicts = fresh, 0, False

    # ------------------------------------------------------------------ the contract

    def checked(
        self, value: Any, mask: Any = None, *, sequence: bool = False
    ) -> tuple[Numbers, Mask]:
        """As the protected tracker checks it."""
        self.tracker.on_invalid = self.on_invalid
        return self.tracker.checked(value, mask, sequence=sequence)

    def blocks(self, value: Any, *, sequence: bool = False) -> Numbers:
        """As the protected tracker checks samples."""
        return self._of_covariances().blocks(value, sequence=sequence)

    def scatter_ahead(self, dt: float) -> Numbers:
        """The covariance of the next samples."""
        return self._of_covariances().scatter_ahead(dt)

    def support(self) -> Numbers:
        """How many samples the present estimate is worth."""
        return self._of_covariances().support()

    def _of_covariances(self) -> CovarianceTracker:
        if not isinstance(self.tracker, CovarianceTracker):
            raise ObservationError("this tracker follows rotations; samples make covariances")
        return self.tracker

    def _begin(self, shape: tuple[int, ...]) -> None:
        if shape[:-2]:
            self.batch_shape = None
            raise ObservationError(
                f"a robust tracker follows one track, got a batch of {shape[:-2]}; "
                "use one RobustTracker per track"
            )
        self.tracker.begin(shape)
        self._refused = np.full((self.patience, *shape), np.nan)
        self._refused_at = np.full((self.patience, 2), np.nan)
        self._strikes, self._score, self._predicts = 0, 0.0, False

    def look(self) -> Values:
        """All fields as they stand now."""
        return ChainMap({"score": np.asarray(self._score)}, self.tracker.look())  # type: ignore[arg-type]

    def ahead(self, dt: float) -> Values:
        """All fields as predicted ``dt`` from now."""
        return ChainMap({"score": np.asarray(self._score)}, self.tracker.ahead(dt))  # type: ignore[arg-type]

    def check_memory(self) -> None:
        """Raise ValueError if what is remembered, as from a file, cannot be."""
        self.tracker.check_memory()
        kept = self._refused_at[: self._strikes]
        if not (0 <= self._strikes < self.patience and 0.0 <= self._score <= 1.0):
            raise ValueError("its counters are none")
        if self._predicts and np.isnan(self.tracker.ahead(0.0)[self.kind]).any():
            raise ValueError("it cannot predict")
        if not (
            np.isfinite(kept).all() and (np.diff(kept[:, 0]) >= 0).all() and (kept[:, 1] > 0).all()
        ):
            raise ValueError("the times of what it refused are none")
        if self._strikes:
            _, used = self.tracker.checked(self._refused[: self._strikes], sequence=True)
            if not used.all():
                raise ValueError("what it refused was no observation")

    @property
    def counted_now(self) -> float | None:
        """Counted time of the last step; None before the first."""
        return None if self.batch_shape is None else self.tracker.counted_now

    def begin_at(self, stamp: float) -> None:
        """The first step comes at this stamp."""
        self.tracker.begin_at(stamp)
