"""Raw samples as observations: what every covariance tracker shares beyond the contract."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgmrf import _check, wishart
from kgmrf._check import ObservationError
from kgmrf._names import from_names
from kgmrf._types import Mask, Numbers
from kgmrf.results import Estimate, Result, join
from kgmrf.trackers._contract import Tracker, _as_mask


class CovarianceTracker(Tracker):
    """A tracker of covariances: takes matrices, or raw zero-mean samples that count themselves."""

    def partial_fit(self, samples: Any, *, dt: float | Numbers = 1.0) -> Estimate:
        """Take in the raw samples of one frame: ``(d,)`` or ``(..., m, d)``, zero mean.

        C = (1/m) sum x x^T and m counts the samples. A sample that is all NaN does not count; one
        with some entries NaN enters as E[x x^T | observed entries] under the current estimate
        (before there is one: as if the missing entries were uncorrelated and as large as the
        others).
        """
        block = self._blocks(samples, "samples", time_first=False)
        step = self._interval(dt, block.shape[:-2])
        block = self._centred(block[None])[0]
        partly = np.isnan(block).any(axis=-1) & ~np.isnan(block).all(axis=-1)
        guess = self._expected(block, float(np.max(step))) if partly.any() else None
        seen, counts = _second_moments(block, guess)
        self._start(seen.shape)
        self._advance(seen, counts > 0, np.maximum(counts, 1.0), step)
        return self._told(self._estimate())

    def filter(
        self,
        sequence: Any,
        *,
        times: Any = None,
        mask: Any = None,
        n_samples: float | Numbers | None = None,
        samples: bool | None = None,
        layout: str | None = None,
        fields: Any = None,
    ) -> Result:
        """Run over a whole sequence and return all estimates, time first.

        sequence: covariances ``(T, ..., d, d)``, or samples: ``(T, d)``, one per frame, or with
        ``samples=True`` blocks ``(T, ..., m, d)``. NaN or None: no observation. A table (pandas,
        polars) or a recording of MNE (Raw, Epochs) names the channels of the result; a column of
        times is not followed.
        times: ``(T,)`` time stamps that do not decrease, in any unit, or dates (then time counts in
        seconds); default: one unit per frame.
        mask: ``(T, ...)``, True where there is an observation; others are ignored unseen.
        n_samples: samples behind each matrix: a number, or one per frame ``(T, ...)``.
        layout: "channels_first" for samples ``(d, T)`` or blocks ``(T, ..., d, m)``; default
        "channels_last".
        fields: the names of the fields to keep, to save memory; default all.

        Filtering a sequence in chunks gives what filtering it whole gives. Everything is checked
        before the first frame is taken in, so an error leaves the tracker as it was.
        """
        sequence, names, index, blockwise = from_names(sequence)
        samples = _check.are_samples(sequence, blockwise or samples)
        if not samples:
            return super().filter(
                sequence, times=times, mask=mask, n_samples=n_samples, fields=fields
            )
        if n_samples is not None:
            raise ObservationError("raw samples count themselves; leave out n_samples")
        sequence = _check.oriented(sequence, layout)
        if layout is None and self.d is None:
            _check.upright(sequence, "sequence")
        blocks = self._frames(sequence, None if mask is None else np.asarray(mask, dtype=bool))
        with self._keeping(fields):
            dt = self._intervals(times, blocks.shape[0])
            self._start((*blocks.shape[1:-2], blocks.shape[-1], blocks.shape[-1]))
            if names:
                self.channels = names
            found = self._told(self._run_blocks(self._centred(blocks), dt), times)
            return found.only(fields).named(self.channels, index)

    def _centred(self, blocks: Numbers) -> Numbers:
        """Checked samples ``(T, ..., m, d)`` without their mean, where the tracker follows one."""
        return blocks

    def forecast_total(self, steps: int) -> Estimate:
        """Cov(x_{t+1} + ... + x_{t+h}) = sum over k of the covariance forecast k steps ahead.

        steps: h, such as the 10 days of a holding period. Samples of different steps count as
        uncorrelated, as returns nearly are. Only `time` and `covariance` (with `correlation` and
        `volatility`) are told.

        >>> from kgmrf import EuclideanEMA
        >>> tracker = EuclideanEMA(gain=0.1)
        >>> _ = tracker.filter([[1.0, 0.0], [0.0, 1.0]])
        >>> total = tracker.forecast_total(10).covariance
        >>> np.allclose(total, 10 * tracker.forecast(1).covariance)
        True
        """
        if not isinstance(steps, (int, np.integer)) or steps < 1:
            raise ValueError(f"steps must be a whole number of at least 1, got {steps!r}")
        ahead = [self.forecast((k + 1) * self._clock.unit) for k in range(steps)]
        total = np.sum([estimate.covariance for estimate in ahead], axis=0)
        return Estimate({"time": ahead[-1].time, "covariance": total}).named(self.channels)

    def _run_blocks(self, blocks: Numbers, dt: Numbers) -> Result:
        """Frames with complete samples in one go; others one by one, for they need a prediction."""
        nan = np.isnan(blocks)
        mixed = nan.any(axis=-1) & ~nan.all(axis=-1)
        partly: Mask = np.any(mixed.reshape(blocks.shape[0], -1), axis=-1)
        edges = np.flatnonzero(np.diff(partly.astype(int))) + 1
        results = []
        for piece in np.split(np.arange(blocks.shape[0]), edges):
            if partly[piece[0]]:
                for k in piece:
                    seen, counts = _second_moments(blocks[k], self._expected(blocks[k], dt[k]))
                    results.append(
                        self._run(seen[None], counts[None] > 0, counts[None], dt[k : k + 1])
                    )
            else:
                seen, counts = _second_moments(blocks[piece], None)
                observed = counts > 0
                results.append(self._run(seen, observed, np.maximum(counts, 1.0), dt[piece]))
        return join(results)

    def _expected(self, block: Numbers, dt: float) -> Numbers:
        """E[x x^T | observed part] of every sample under the prediction for its time."""
        prior, support = wishart.plain_guess(block), np.asarray(1.0)
        if self.batch_shape is not None:
            known = self._predicted_scatter(float(dt))
            prior, support = np.where(np.isnan(known), prior, known), np.asarray(self._support())
        return wishart.expected_outer(block, prior[..., None, :, :], support[..., None])

    def _support(self) -> Numbers:
        """How many samples the present estimate is worth, ``(...)``."""
        raise NotImplementedError

    def _predicted_scatter(self, dt: float) -> Numbers:
        """The covariance of the next samples, noise floor included; NaN where nothing is known."""
        return self._ahead(dt)["covariance"]

    def _frames(self, sequence: Any, mask: Any) -> Numbers:
        """A sequence of samples as ``(T, ..., m, d)``, NaN where the mask is False."""
        blocks = self._blocks(sequence, "sequence", time_first=True)
        if mask is None:
            return blocks
        return np.where(_as_mask(mask, blocks.shape[:-2])[..., None, None], blocks, np.nan)

    def _blocks(self, value: Any, name: str, *, time_first: bool) -> Numbers:
        """Samples as ``(..., m, d)``, checked."""
        array = _check.real_array(value, name)
        _check.sample_sizes(array, name, whole=time_first)
        if array.ndim == (2 if time_first else 1):
            array = array[..., None, :]
        if array.ndim < (3 if time_first else 2) or 0 in array.shape:
            shape = "(T, d) or (T, ..., m, d)" if time_first else "(d,) or (..., m, d)"
            raise ObservationError(f"{name} must have shape {shape}, got {np.shape(value)}")
        if self.d is not None and array.shape[-1] != self.d:
            raise ObservationError(
                f"{name} has {array.shape[-1]} channels (shape {np.shape(value)}), "
                f"but this tracker has d = {self.d}"
            )
        self._same_batch(array.shape[1:-2] if time_first else array.shape[:-2])
        return array


def _second_moments(block: Numbers, outer: Numbers | None) -> tuple[Numbers, Numbers]:
    """C = (1/m) sum x x^T over the samples that are there, and their number m."""
    there: Mask = ~np.all(np.isnan(block), axis=-1)
    counts = there.sum(axis=-1).astype(float)
    if outer is None:
        rows = np.where(there[..., None], block, 0.0)
        total = np.swapaxes(rows, -1, -2) @ rows
    else:
        total = np.where(there[..., None, None], outer, 0.0).sum(axis=-3)
    return total / np.maximum(counts, 1.0)[..., None, None], counts
