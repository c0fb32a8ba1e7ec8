"""Raw samples as observations: what every covariance tracker shares beyond the contract."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgmrf import _check
from kgmrf._align import places_of
from kgmrf._check import ObservationError
from kgmrf._mask import as_mask
from kgmrf._types import Mask, Numbers
from kgmrf.model import wishart
from kgmrf.results import Estimate
from kgmrf.trackers._contract import Tracker
from kgmrf.trackers._input import Recording


class CovarianceTracker(Tracker):
    """A tracker of covariances: takes matrices, or raw zero-mean samples, of which n_samples is
    inferred."""

    _raw = False  # whether its first observation was one of raw samples

    def update(
        self,
        observation: Any,
        *,
        dt: float | Numbers = 1.0,
        n_samples: float | Numbers | None = None,
        assume_valid: bool = False,
    ) -> Estimate:
        """Take in the matrix ``(..., d, d)``, or the raw sample ``(d,)``, of one step.

        A sample counts itself, as in `partial_fit`; the rest is as for every tracker.
        """
        if self.kind == "covariance" and _is_row(observation):
            if n_samples is not None:
                raise ObservationError("a raw sample counts itself; leave out n_samples")
            return self.partial_fit(observation, dt=dt)
        return super().update(
            self._matrix_table(observation),
            dt=dt,
            n_samples=n_samples,
            assume_valid=assume_valid,
        )

    def _matrix_table(self, value: Any) -> Any:
        """A covariance with names for its rows and columns, in the order of the known channels."""
        columns, index = getattr(value, "columns", None), getattr(value, "index", None)
        if columns is None or index is None or list(columns) != list(index):
            return value
        names = tuple(map(str, columns))
        places = places_of(names, self.channels, set(self.channels or ()))
        if -1 in places:
            raise ObservationError(
                f"the covariance lacks a channel of {', '.join(self.channels or ())}; give all of "
                "them, or raw samples with gaps"
            )
        self.channels = self.channels or names
        return value.to_numpy(dtype=float)[np.ix_(places, places)]

    def partial_fit(self, samples: Any, *, dt: float | Numbers = 1.0) -> Estimate:
        """Take in the raw samples of one step: ``(d,)`` or ``(..., m, d)``, zero mean.

        C = (1/m) sum x x^T and m counts the samples. One that is all NaN does not count; one with
        some entries NaN enters as E[x x^T | observed entries] under the current estimate.
        """
        with self.transaction():
            block = self.blocks(self._one_row(samples))
            step = self._interval(dt, block.shape[:-2])
            self._begin_with(block)
            self._advance_samples(self._centred(block[None])[0], step)
        return self._estimate_of_values(self.current_values())

    def prepare_sequence(self, sequence: Any, **given: Any) -> Recording:
        """As for every tracker; what has names are samples, each epoch a block of them."""
        if hasattr(sequence, "ch_names") and hasattr(sequence, "events"):
            given["samples"] = True
        elif getattr(sequence, "columns", None) is not None:
            given.setdefault("layout", "channels_last")  # however few rows
        return super().prepare_sequence(sequence, **given)

    def _recorded(
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
        """A sequence without names, checked; raw samples are centred."""
        if not _check.are_samples(sequence, samples):
            return super()._recorded(sequence, times=times, mask=mask, whole=whole, **given)
        if given.get("n_samples") is not None:
            raise ObservationError("n_samples is inferred for raw samples: leave it out")
        sequence = _check.oriented(sequence, layout)
        if layout is None and self.d is None:
            _check.refuse_transposed(sequence, "sequence")
        blocks = self.blocks(sequence, sequence=True)
        if mask is not None:
            used = as_mask(mask, blocks.shape[:-2])
            blocks = np.where(used[..., None, None], blocks, np.nan)
        dt = self._intervals(times, blocks.shape[:-2], whole)
        self._begin_with(blocks[0])
        blocks = self._centred(blocks)
        observed: Mask = ~np.all(np.isnan(blocks), axis=(-2, -1))
        return Recording(blocks, observed, np.ones(observed.shape), dt, times, True)

    def _begin_with(self, block: Numbers) -> None:
        self._raw = self._raw or self.batch_shape is None
        self.allocate((*block.shape[:-2], block.shape[-1], block.shape[-1]))

    def _centred(self, blocks: Numbers) -> Numbers:
        """Checked samples ``(T, ..., m, d)`` without their mean, where the tracker follows one."""
        return blocks

    def forecast_total(self, steps: int) -> Estimate:
        """Cov(x_{t+1} + ... + x_{t+h}) = sum over k of the covariance forecast k steps ahead.

        steps: h, such as the 10 days of a holding period. Samples of different steps count as
        uncorrelated, as returns nearly are; where they are not, regions are too small or too large.
        Only `time` and `covariance` (with `correlation` and `volatility`) are filled, and of the
        self-tuned tracker the `density` of the sum, with all that comes with it.

        >>> from kgmrf import EuclideanEMA
        >>> tracker = EuclideanEMA(gain=0.1)
        >>> _ = tracker.filter([[1.0, 0.0], [0.0, 1.0]])
        >>> total = tracker.forecast_total(10).covariance
        >>> np.allclose(total, 10 * tracker.forecast(1).covariance)
        True
        """
        h, unit = _check.whole(steps, "steps"), self.clock.unit
        ahead = [self.forecast((k + 1) * unit) for k in range(h)]
        if "mean" in ahead[0].fields():
            raise ValueError(
                "rows that predict the next ones, as a linear mean has it, are correlated: their "
                'total is none of steps; use a tracker with mean="zero", or fit sums of rows'
            )
        names = ("covariance", "scale") if "tails" in ahead[0].fields() else ("covariance",)
        found = {name: np.sum([getattr(one, name) for one in ahead], axis=0) for name in names}
        if "scale" in found:
            # The sum wanders as the mean of its size does: as a single observation a third as far.
            third = self.forecast((1.0 + (h - 1.0) / 3.0) * unit)
            found |= {"tails": ahead[0].tails, "size_std": third.size_std, "doubt": third.doubt}
            found["steps"] = np.full_like(third.size_std, h)
        return Estimate({"time": ahead[-1].time, **found}).with_labels(self.channels)

    def _advance_samples(self, block: Numbers, dt: Numbers) -> None:
        nan = np.isnan(block)
        outer = None
        if (nan.any(axis=-1) & ~nan.all(axis=-1)).any():
            prior, support = wishart.plain_guess(block), np.asarray(1.0)
            if self.now is not None:
                known = self.forecast_scatter(float(np.max(dt)))
                prior, support = np.where(np.isnan(known), prior, known), np.asarray(self.support())
            outer = wishart.expected_outer(block, prior[..., None, :, :], support[..., None])
        seen, counts = wishart.second_moments(block, outer)
        self.advance(seen, counts > 0, np.maximum(counts, 1.0), dt)

    def support(self) -> Numbers:
        """How many samples the present estimate is worth, ``(...)``."""
        raise NotImplementedError

    def forecast_scatter(self, dt: float) -> Numbers:
        """The covariance of the next samples, noise floor included; NaN where nothing is known."""
        return Estimate(self.predicted_values(dt)).covariance

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


def _is_row(value: Any) -> bool:
    """Whether this is one sample ``(d,)``: an array, a list of numbers, a pandas Series."""
    if type(value) is np.ndarray:
        return value.ndim == 1
    if isinstance(value, (list, tuple)):
        return bool(value) and all(isinstance(x, (int, float, type(None))) for x in value)
    return getattr(value, "ndim", 0) == 1
