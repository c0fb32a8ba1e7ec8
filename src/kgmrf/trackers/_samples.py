"""Raw samples as observations: what every covariance tracker shares beyond the contract."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgmrf import _check, wishart
from kgmrf._check import ObservationError
from kgmrf._names import from_names
from kgmrf._types import Mask, Numbers
from kgmrf.results import Estimate
from kgmrf.trackers._contract import Tracker
from kgmrf.trackers._input import Recording, as_mask


class CovarianceTracker(Tracker):
    """A tracker of covariances: takes matrices, or raw zero-mean samples that count themselves."""

    _raw = False  # whether its first observation was one of raw samples

    def partial_fit(self, samples: Any, *, dt: float | Numbers = 1.0) -> Estimate:
        """Take in the raw samples of one step: ``(d,)`` or ``(..., m, d)``, zero mean.

        C = (1/m) sum x x^T and m counts the samples. One that is all NaN does not count; one with
        some entries NaN enters as E[x x^T | observed entries] under the current estimate.
        """
        block = self.blocks(samples)
        with self.all_or_nothing():
            step = self._interval(dt, block.shape[:-2])
            self._begin_with(block)
            self._advance_samples(self._centred(block[None])[0], step)
        return self._told_of(self.look())

    def recording(
        self,
        sequence: Any,
        *,
        samples: bool | None = None,
        layout: str | None = None,
        times: Any = None,
        mask: Any = None,
        whole: bool = False,
        **given: Any,
    ) -> Recording:
        """As for every tracker; raw samples are centred."""
        sequence, names, index, blockwise = from_names(sequence)
        if not _check.are_samples(sequence, blockwise or samples):
            record = super().recording(sequence, times=times, mask=mask, whole=whole, **given)
            return record._replace(channels=names, index=index)
        if given.get("n_samples") is not None:
            raise ObservationError("raw samples count themselves; leave out n_samples")
        sequence = _check.oriented(sequence, layout)
        if layout is None and self.d is None:
            _check.upright(sequence, "sequence")
        blocks = self.blocks(sequence, sequence=True)
        if mask is not None:
            used = as_mask(np.asarray(mask, dtype=bool), blocks.shape[:-2])
            blocks = np.where(used[..., None, None], blocks, np.nan)
        dt = self._intervals(times, blocks.shape[:-2], whole)
        self._begin_with(blocks[0])
        blocks = self._centred(blocks)
        observed: Mask = ~np.all(np.isnan(blocks), axis=(-2, -1))
        return Recording(blocks, observed, np.ones(observed.shape), dt, times, True, names, index)

    def _begin_with(self, block: Numbers) -> None:
        self._raw = self._raw or self.batch_shape is None
        self.begin((*block.shape[:-2], block.shape[-1], block.shape[-1]))

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
        ahead = [
            self.forecast((k + 1) * self.clock.unit) for k in range(_check.whole(steps, "steps"))
        ]
        total = np.sum([estimate.covariance for estimate in ahead], axis=0)
        return Estimate({"time": ahead[-1].time, "covariance": total}).named(self.channels)

    def _advance_samples(self, block: Numbers, dt: Numbers) -> None:
        nan = np.isnan(block)
        outer = None
        if (nan.any(axis=-1) & ~nan.all(axis=-1)).any():
            prior, support = wishart.plain_guess(block), np.asarray(1.0)
            if self.now is not None:
                known = self.scatter_ahead(float(np.max(dt)))
                prior, support = np.where(np.isnan(known), prior, known), np.asarray(self.support())
            outer = wishart.expected_outer(block, prior[..., None, :, :], support[..., None])
        seen, counts = wishart.second_moments(block, outer)
        self.advance(seen, counts > 0, np.maximum(counts, 1.0), dt)

    def support(self) -> Numbers:
        """How many samples the present estimate is worth, ``(...)``."""
        raise NotImplementedError

    def scatter_ahead(self, dt: float) -> Numbers:
        """The covariance of the next samples, noise floor included; NaN where nothing is known."""
        return Estimate(self.ahead(dt)).covariance

    def blocks(self, value: Any, *, sequence: bool = False) -> Numbers:
        """Samples as ``(..., m, d)``, checked; with ``sequence`` the steps come first."""
        name = "sequence" if sequence else "samples"
        array = _check.real_array(value, name)
        _check.sample_sizes(array, name, whole=sequence)
        if array.ndim == 1 + sequence:
            array = array[..., None, :]
        if array.ndim < 2 + sequence or 0 in array.shape:
            shape = "(T, d) or (T, ..., m, d)" if sequence else "(d,) or (..., m, d)"
            raise ObservationError(f"{name} must have shape {shape}, got {np.shape(value)}")
        if self.d is not None and array.shape[-1] != self.d:
            raise ObservationError(
                f"{name} has {array.shape[-1]} channels (shape {np.shape(value)}), "
                f"but this tracker has d = {self.d}"
            )
        self._same_batch(array.shape[sequence:-2])
        return array
