"""A stream of samples whose mean drifts while their covariance turns: mean x covariance."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kgmrf import _check, wishart
from kgmrf._check import ObservationError
from kgmrf._time import Clock
from kgmrf._types import Mask, Numbers
from kgmrf.results import Estimate, Result, stacked
from kgmrf.trackers import _blocks as sums
from kgmrf.trackers import _vector_step as vector
from kgmrf.trackers._contract import Tracker
from kgmrf.trackers._files import rebuilt
from kgmrf.trackers._input import as_mask
from kgmrf.trackers._samples import CovarianceTracker
from kgmrf.trackers.kgmrf import KGMRF
from kgmrf.trackers.product import Composite, ProductEstimate, ProductResult


class GaussianEstimate(ProductEstimate):
    """What is known of a Gaussian: ``mean``, ``covariance``; ``estimate["mean"]`` has the rest.

    >>> KineticGaussian().update([[1.0, 2.0], [3.0, 2.0]]).mean
    array([2., 2.])
    """

    @property
    def mean(self) -> Numbers:
        """Estimate of the mean, (..., d)."""
        return self["mean"].position

    @property
    def covariance(self) -> Numbers:
        """Estimate of the covariance about the mean, (..., d, d)."""
        return self["covariance"].covariance


class GaussianResult(GaussianEstimate, ProductResult):
    """What was known of a Gaussian at every time; `GaussianEstimate`, time first.

    >>> KineticGaussian().filter([[1.0, 2.0], [3.0, 2.0], [2.0, 1.0]]).mean.shape
    (3, 2)
    """

    _estimate = GaussianEstimate


class _Memory(NamedTuple):
    """What is remembered beside the mean's state and the covariance, all ``(...)``.

    The last block mean and its number; the share of S that the mean's variance still lacks, since
    when; samples and blocks of the start; surprise and likelihood of the last mean; the joint one.
    """

    centre: Numbers  # (..., d)
    number: Numbers
    owed: Numbers
    since: Numbers
    samples: Numbers
    blocks: Numbers
    nis: Numbers
    log_likelihood: Numbers
    joint: Numbers


class KineticGaussian(Composite):
    """x ~ N(mu_t, S_t): follow a drifting mean and a turning covariance from the samples alone.

    covariance: a tracker of covariances, default ``KGMRF(d)``.
    mean_acceleration, mean_noise, mean_rate_prior: of the mean as in `VectorTracker`, but in units
    of the covariance itself, so that nothing depends on the units of the samples.
    mean_retention: share of the mean's velocity that survives a unit of time.
    time_unit: the usual time between steps in units of ``times``, as for every tracker; None takes
    that of ``covariance``, or the median of the first eight intervals.

    Of a block of m samples the mean corrects mu (its noise is S/m), and the scatter corrects S:
    that within the block, plus the surprise e of the block mean. Since e has covariance S/m + P,
    with P the uncertainty of the predicted mean, it enters as A e with A (S/m + P) A^T = S/m: what
    is not known of the mean is never taken for covariance. In the first 2 d blocks or 5 d samples,
    when S is not known yet, differences of successive block means take the place of e.

    Samples are ``(d,)``, or ``(..., m, d)`` for blocks. Missing samples are NaN; a partly missing
    one counts with what is there (once S is known; before that it is left out). The log-likelihood
    is that of the m samples under N(mu, S) with mu ~ N(predicted, P); it is NaN while starting and
    for blocks with partly missing samples.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> drifting = rng.standard_normal((400, 2)) * [3.0, 1.0] + 0.2 * np.arange(400.0)[:, None]
    >>> result = KineticGaussian().filter(drifting)
    >>> bool(np.abs(result.mean[-1] - 0.2 * 399).max() < 2.0)
    True
    >>> result.covariance.shape
    (400, 2, 2)
    """

    kind = "product"
    axes = 2
    _kept = ("components", "_state", "_memo")
    _state: vector.VectorState
    _memo: _Memory

    def __init__(
        self,
        d: int | None = None,
        *,
        covariance: Tracker | dict[str, Any] | None = None,
        mean_acceleration: float = 1e-5,
        mean_noise: float = 0.0,
        mean_retention: float = 1.0,
        mean_rate_prior: float = 1e-2,
        time_unit: float | None = None,
    ) -> None:
        part = KGMRF(d) if covariance is None else covariance
        part = rebuilt(part) if isinstance(part, dict) else part
        if not isinstance(part, CovarianceTracker) or part.now is not None:
            raise ValueError(f"covariance must be a fresh tracker of covariances, got {part!r}")
        if d is not None and part.d not in (None, d):
            raise ValueError(f"covariance has d = {part.d}, but d = {d}")
        unit = part.time_unit if time_unit is None else time_unit
        super().__init__(part.d if d is None else d, None, "raise", unit)
        part.clock = Clock(1.0)  # it gets its time counted already
        part.d = self.d
        self.covariance = part
        self.components = {"covariance": part}
        self.mean_acceleration = _check.in_range(
            mean_acceleration, "mean_acceleration", 0.0, np.inf
        )
        self.mean_noise = _check.in_range(mean_noise, "mean_noise", 0.0, np.inf)
        self.mean_retention = _check.in_range(mean_retention, "mean_retention", 1e-6, 1.0)
        self.mean_rate_prior = _check.in_range(
            mean_rate_prior, "mean_rate_prior", 0.0, np.inf, open_low=True
        )

    # ------------------------------------------------------------------ the public contract

    def partial_fit(self, samples: Any, *, dt: float = 1.0) -> GaussianEstimate:
        """The same as `update`, by the name that covariance trackers use for raw samples."""
        return self.update(samples, dt=dt)  # type: ignore[return-value]

    def filter(  # type: ignore[override]
        self, sequence: Any, *, times: Any = None, mask: Any = None
    ) -> GaussianResult:
        """Run over samples ``(T, d)`` or blocks of them ``(T, ..., m, d)``.

        times: ``(T,)`` time stamps; mask: ``(T, ...)``, True where there is an observation.
        """
        record = self.recording(sequence, times=times, mask=mask)
        looks = [self.look() for _ in self._steps(record)]
        means, covariances, joint = zip(*looks, strict=True)
        parts = {"mean": Result(stacked(means)), "covariance": Result(stacked(covariances))}
        return self.told(GaussianResult(parts, np.stack(joint)), times)

    def told(self, what: Any, times: Any = None) -> Any:
        """An estimate or result with its times in units of the stamps."""
        told = {name: super(KineticGaussian, self).told(part, times) for name, part in what.items()}
        return type(what)(told, what._log_likelihood)

    def _told_of(self, values: Any) -> GaussianEstimate:
        mean, covariance, joint = values
        parts = {"mean": Estimate(mean), "covariance": Estimate(covariance)}
        return self.told(GaussianEstimate(parts, joint))

    def look(self) -> Any:
        """The fields of mean and covariance as they stand now, and the joint likelihood."""
        memo = self._memo
        mean = vector.view(self._state, memo.nis, memo.log_likelihood)
        return mean, self.covariance.look(), memo.joint

    def ahead(self, dt: float) -> Any:
        """The same ``dt`` of counted time from now."""
        unit, _ = sums.usable(self._scatter(0.0))
        state = self._drifted(self._state, np.full(self._state.time.shape, dt), unit)
        nan = np.full(state.time.shape, np.nan)
        return vector.view(state, nan, nan), self.covariance.ahead(dt), nan

    # ------------------------------------------------------------------ one step

    def advance(self, seen: Numbers, observed: Mask, n_samples: Numbers, dt: Numbers) -> None:
        """Take in one step; an error, such as a covariance tracker may raise, changes nothing."""
        with self.all_or_nothing():
            self._step(seen, dt)

    def _step(self, block: Numbers, dt: Numbers) -> None:
        d, memo = block.shape[-1], self._memo
        begun = self.counted_now is not None
        step = np.array(dt) if begun else np.zeros(dt.shape)
        early = (memo.samples < 5 * d) & (memo.blocks < 2 * d)
        late = ~early

        # What the block says of S by itself, and by the jump from the block before.
        centre, within, count = sums.moments(block)
        there = count > 0
        known = ~np.isnan(memo.centre[..., 0])
        jump = np.where((known & there)[..., None], centre - memo.centre, 0.0)
        share = np.where(known, 1.0 / np.maximum(count, 1.0) + 1.0 / memo.number, 1.0)
        freedom = np.where(there, count - 1.0 + known, 0.0)
        rough = (within + sums.outer(jump) / sums.wide(share)) / sums.wide(np.maximum(freedom, 1.0))

        scatter = np.full((*dt.shape, d, d), np.nan)
        if begun:
            scatter = self._scatter(float(step.flat[0]) if step.size else 0.0)
        unseen = np.isnan(scatter).any(axis=(-2, -1)) & (freedom > 0)
        scatter = np.where(sums.wide(unseen), rough, scatter)
        # Few samples: pulled to a ball with the weight of d of its own.
        pull = sums.wide(np.where(late, 0.0, d / (np.maximum(memo.samples, freedom) + d)))
        size = np.trace(scatter, axis1=-2, axis2=-1) / d
        unit, usable = sums.usable((1.0 - pull) * scatter + pull * sums.wide(size) * np.eye(d))

        state, owed = self._settled(self._state, memo.owed, memo.since, unit, usable)
        predicted = self._drifted(state, step, unit)
        begins = np.isnan(predicted.seen) & there
        follows = ~np.isnan(predicted.seen) & usable & (owed == 0)
        seen, noise, complete = sums.block_mean(block, early, unit)
        # The first block mean is the first position; its variance S/m is owed until S is known.
        seen = np.where((begins | follows)[..., None], seen, np.nan)
        noise = np.where(sums.wide(begins), 0.0, noise)
        state, nis, ahead = vector.correct(predicted, seen, noise)
        owed = np.where(begins, 1.0 / np.maximum(count, 1.0), owed)
        since = np.where(begins, state.time, memo.since)
        self._state, owed = self._settled(state, owed, since, unit, usable)

        late = follows & late
        moment, counts = self._scatter_of(block, centre, within, count, predicted, unit)
        moment = np.where(sums.wide(late), moment, rough)
        counts = np.where(late, counts, freedom)
        used = counts > 0
        self.covariance.advance(
            np.where(sums.wide(used), moment, np.eye(d)), used, np.maximum(counts, 1.0), step
        )
        # A start counts from where something varies.
        varies = usable | (np.trace(rough, axis1=-2, axis2=-1) > _check.SMALLEST)
        inside = sums.within_log_likelihood(within, count, unit)
        self._memo = _Memory(
            centre=np.where(there[..., None], centre, memo.centre),
            number=np.where(there, count, memo.number),
            owed=owed,
            since=since,
            samples=memo.samples + np.where(varies, counts, 0.0),
            blocks=memo.blocks + (there & varies),
            nis=nis,
            log_likelihood=ahead,
            joint=np.where(late & complete, ahead + inside, np.nan),
        )

    def _scatter(self, dt: float) -> Numbers:
        """S as predicted; 0 for channels that have not varied beside others that have."""
        scatter = self.covariance.scatter_ahead(dt)
        nothing = np.isnan(scatter).all(axis=(-2, -1))
        return np.where(np.isnan(scatter) & ~sums.wide(nothing), 0.0, scatter)

    def _scatter_of(
        self,
        block: Numbers,
        centre: Numbers,
        within: Numbers,
        count: Numbers,
        predicted: vector.VectorState,
        unit: Numbers,
    ) -> tuple[Numbers, Numbers]:
        """Second moment about the predicted mean, freed of that mean's uncertainty; its count."""
        spread, m = predicted.spread, np.maximum(count, 1.0)
        error = np.where((count > 0)[..., None], centre - predicted.position, 0.0)
        fair = unit / sums.wide(m)
        error = (sums.transport(fair + spread, fair) @ error[..., None])[..., 0]
        total = within / sums.wide(m) + sums.outer(error)
        there = ~np.isnan(block)
        present: Mask = np.any(there, axis=-1)
        partly: Mask = np.any(present & ~there.all(axis=-1), axis=-1)
        if not partly.any():
            return total, count
        # Sample by sample: the observed part is freed alone, the rest is expected.
        both = there[..., :, None] & there[..., None, :]
        pad = np.eye(block.shape[-1]) * ~there[..., None, :]
        wide = np.where(both, (unit + spread)[..., None, :, :], 0.0) + pad
        plain = np.where(both, unit[..., None, :, :], 0.0) + pad
        rest = np.where(there, block - predicted.position[..., None, :], 0.0)
        rest = (sums.transport(wide, plain) @ rest[..., None])[..., 0]
        support = np.asarray(self.covariance.support())[..., None]
        outer = wishart.expected_outer(
            np.where(there, rest, np.nan), unit[..., None, :, :], support
        )
        mixed, number = wishart.second_moments(block, outer)
        return np.where(sums.wide(partly), mixed, total), np.where(partly, number, count)

    def _settled(
        self,
        state: vector.VectorState,
        owed: Numbers,
        since: Numbers,
        unit: Numbers,
        usable: Mask,
    ) -> tuple[vector.VectorState, Numbers]:
        """Pay the variance that is owed since the start: exact, for nothing was corrected yet."""
        pays = usable & (owed > 0)
        if not pays.any():
            return state, owed
        start = vector.joined(pays.shape, sums.wide(owed) * unit, 0.0, self.mean_rate_prior * unit)
        elapsed = np.where(pays, state.time - since, 0.0)
        now = self._drifted(state._replace(covariance=start), elapsed, unit).covariance
        paid = state._replace(covariance=np.where(sums.wide(pays), now, state.covariance))
        return paid, np.where(pays, 0.0, owed)

    def _drifted(
        self, state: vector.VectorState, step: Numbers, unit: Numbers
    ) -> vector.VectorState:
        walk, wander = self.mean_acceleration * unit, self.mean_noise * unit
        over = vector.motion(self.mean_retention, step, state.known, walk, wander)
        later = vector.drift(state, step, over)
        idle = sums.wide(np.isnan(state.seen))
        return later._replace(covariance=np.where(idle, state.covariance, later.covariance))

    # ------------------------------------------------------------------ checks and memory

    def checked(
        self, value: Any, mask: Any = None, *, sequence: bool = False
    ) -> tuple[Numbers, Mask]:
        """Samples as ``(..., m, d)``, NaN where the mask is False, and where there are any."""
        if sequence:
            _check.some_frames(value)
        if value is None:
            if self.d is None:
                raise ObservationError("the first frame is None and d is unknown; give d")
            value = np.full((*(self.batch_shape or ()), 1, self.d), np.nan)
        blocks = self.covariance.blocks(value, sequence=sequence)
        if mask is not None:
            used = as_mask(np.asarray(mask, dtype=bool), blocks.shape[:-2])
            blocks = np.where(sums.wide(used), blocks, np.nan)
        return blocks, np.asarray(~np.isnan(blocks).all(axis=(-2, -1)))

    def _trusted(self, observation: Any) -> tuple[Numbers, Mask]:
        return self.checked(observation)

    def _interval(self, dt: Any, batch: tuple[int, ...]) -> Numbers:
        return np.broadcast_to(super()._interval(dt, ()), batch)  # one number for all items

    def begin(self, shape: tuple[int, ...]) -> None:
        """Allocate for blocks of this shape, unless that is done."""
        if self.batch_shape is not None:
            return
        self.d = self.covariance.d = int(shape[-1])
        batch = tuple(shape[:-2])
        super().begin(batch)
        zero, nan = np.zeros(batch), np.full(batch, np.nan)
        self._state = vector.initial_state((*batch, self.d), self.mean_rate_prior * np.eye(self.d))
        before = np.full((*batch, self.d), np.nan)
        self._memo = _Memory(before, np.ones(batch), zero, zero, zero, zero, nan, nan, nan)

    def check_memory(self) -> None:
        """Raise ValueError if what is remembered, as from a file, cannot be."""
        state = self._state
        known = (state.known > 0) & ~np.isnan(state.seen)[..., None]
        if np.isnan(state.position[known]).any() or np.isnan(state.velocity[known]).any():
            raise ValueError("its mean is not a number")
        if np.isnan(state.covariance).any() or np.isnan(state.time).any():
            raise ValueError("the uncertainty of its mean is not a number")
        for name in ("number", "owed", "samples", "blocks"):
            if not (getattr(self._memo, name) >= 0).all():
                raise ValueError(f"{name} of its start is none")
