"""A stream of samples whose mean drifts while their covariance turns: mean x covariance."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgmrf import _check, wishart
from kgmrf._check import ObservationError
from kgmrf._time import Clock
from kgmrf._types import Mask, Numbers
from kgmrf.results import Estimate, Result, stacked
from kgmrf.trackers import _vector_step as vector
from kgmrf.trackers._contract import Tracker
from kgmrf.trackers._files import rebuilt
from kgmrf.trackers._gaussian import (
    GaussianEstimate,
    GaussianResult,
    Start,
    block_mean,
    moments,
    regular,
    shrunk,
    transport,
    within_log_likelihood,
)
from kgmrf.trackers._input import as_mask
from kgmrf.trackers._samples import CovarianceTracker
from kgmrf.trackers.kgmrf import KGMRF
from kgmrf.trackers.product import Composite
from kgmrf.trackers.vector import VectorTracker


class KineticGaussian(Composite):
    """x ~ N(mu_t, S_t): follow a drifting mean and a turning covariance from the samples alone.

    covariance: a tracker of covariances, default ``KGMRF(d)``.
    mean_acceleration, mean_noise, mean_rate_prior: of the mean as in `VectorTracker`, but in units
    of the covariance itself, so that nothing depends on the units of the samples.
    mean_retention: share of the mean's velocity that survives a unit of time.
    time_unit: the usual time between frames in units of ``times``, as for every tracker; None takes
    that of ``covariance``, or the median of the first eight intervals.

    Of a frame of m samples the block mean corrects mu (its noise is S/m), and the scatter corrects
    S: that within the block, plus the surprise e of the block mean. Since e has covariance S/m + P,
    with P the uncertainty of the predicted mean, it enters as A e with A (S/m + P) A^T = S/m: what
    is not known of the mean is never taken for covariance. In the first 2 d frames or 5 d samples,
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
    _kept = ("components", "_start")
    _start: Start

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
        for name, value in (("mean_acceleration", mean_acceleration), ("mean_noise", mean_noise)):
            _check.in_range(value, name, 0.0, np.inf)
        _check.in_range(mean_rate_prior, "mean_rate_prior", 0.0, np.inf, open_low=True)
        self._mean = mean = VectorTracker(
            self.d,
            noise_std=1.0,
            acceleration=mean_acceleration,
            position_noise=mean_noise,
            retention=mean_retention,
            rate_prior=mean_rate_prior,
        )
        self.covariance = self._cov = part
        part.clock = Clock(1.0)  # it gets its time counted already
        part.d = self.d
        self.components = {"mean": mean, "covariance": part}
        self.mean_acceleration, self.mean_noise = mean.acceleration, mean.position_noise
        self.mean_retention, self.mean_rate_prior = mean.retention, mean.rate_prior

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
        return self._mean.look(), self._cov.look(), self._start.joint

    def ahead(self, dt: float) -> Any:
        """The same ``dt`` of counted time from now."""
        state = self._drifted(self._mean.state, dt, self._unit(regular(self._scatter(0.0))))
        nan = np.full(state.time.shape, np.nan)
        return vector.view(state, nan, nan), self._cov.ahead(dt), nan

    # ------------------------------------------------------------------ one frame

    def advance(self, seen: Numbers, observed: Mask, n_samples: Numbers, dt: Numbers) -> None:
        """Take in one step; an error, such as a covariance tracker may raise, changes nothing."""
        before = self.memory()  # references: arrays are replaced, never written to
        try:
            self._step(seen, float(dt.flat[0]) if dt.size else 0.0)
        except Exception:
            self.restore(before)
            raise

    def _step(self, block: Numbers, dt: float) -> None:
        d, batch, start = block.shape[-1], block.shape[:-2], self._start
        whole: Mask = ~np.any(np.isnan(block), axis=-1)
        step = np.full(batch, dt if self.counted_now is not None else 0.0)
        early = (start.samples < 5 * d) & (start.frames < 2 * d)

        centre, within, count = moments(block, whole)
        known = ~np.isnan(start.before[..., 0])
        jump = np.where((known & (count > 0))[..., None], centre - start.before, 0.0)
        share = np.where(known, 1.0 / np.maximum(count, 1.0) + 1.0 / start.before_count, 1.0)
        rough = within + jump[..., :, None] * jump[..., None, :] / share[..., None, None]
        freedom = np.where(count > 0, count - 1.0 + known, 0.0)
        rough = rough / np.maximum(freedom, 1.0)[..., None, None]

        scatter = self._scatter(dt if self.counted_now is not None else 0.0)
        unseen = np.isnan(scatter).any(axis=(-2, -1)) & (freedom > 0)
        scatter = np.where(unseen[..., None, None], rough, scatter)
        scatter = shrunk(scatter, np.where(early, np.maximum(start.samples, freedom), np.inf))
        scatter = regular(scatter)
        usable: Mask = ~np.any(np.isnan(scatter), axis=(-2, -1))
        unit = self._unit(scatter)

        state = self._settled(self._mean.state, unit, usable)
        predicted = self._drifted(state, step, unit)
        begins = np.isnan(predicted.seen) & (count > 0)
        follows = ~np.isnan(predicted.seen) & usable & (self._start.owed == 0)
        seen, noise, complete = block_mean(block, early, unit, follows)
        state, nis, ahead = vector.correct(predicted, seen, noise)
        state = self._begun(state, begins, centre, count)
        state = self._settled(state, unit, usable)
        self._mean.take_over(state, nis, ahead)

        seen_c, counts = self._scatter_of(block, centre, within, count, predicted, unit)
        late = follows & ~early
        seen_c = np.where(late[..., None, None], seen_c, rough)
        counts = np.where(late, counts, freedom)
        self._cov.advance(
            np.where((counts > 0)[..., None, None], seen_c, np.eye(d)),
            counts > 0,
            np.maximum(counts, 1.0),
            step,
        )
        inside = within_log_likelihood(within, count, unit)
        # A start counts from where something varies.
        varies = usable | (np.trace(rough, axis1=-2, axis2=-1) > _check.SMALLEST)
        self._start = self._start._replace(
            before=np.where((count > 0)[..., None], centre, start.before),
            before_count=np.where(count > 0, count, start.before_count),
            samples=start.samples + np.where(varies, np.where(late, counts, freedom), 0.0),
            frames=start.frames + ((count > 0) & varies),
            joint=np.where(late & complete, ahead + inside, np.nan),
        )

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
        spread = predicted.spread
        m = np.maximum(count, 1.0)
        error = np.where((count > 0)[..., None], centre - predicted.position, 0.0)
        fair = unit / m[..., None, None]
        error = (transport(fair + spread, fair) @ error[..., None])[..., 0]
        total = within / m[..., None, None] + error[..., :, None] * error[..., None, :]
        there = ~np.isnan(block)
        present: Mask = np.any(there, axis=-1)
        if (present & ~there.all(axis=-1)).any():
            # Sample by sample: the observed part is freed alone, the rest is expected.
            both = there[..., :, None] & there[..., None, :]
            pad = np.eye(block.shape[-1]) * ~there[..., None, :]
            wide = np.where(both, (unit + spread)[..., None, :, :], 0.0) + pad
            plain = np.where(both, unit[..., None, :, :], 0.0) + pad
            rest = np.where(there, block - predicted.position[..., None, :], 0.0)
            rest = (transport(wide, plain) @ rest[..., None])[..., 0]
            partial = np.where(there, rest, np.nan)
            n = np.asarray(self._cov.support())[..., None]
            outer = wishart.expected_outer(partial, unit[..., None, :, :], n)
            number = present.sum(axis=-1).astype(float)
            mixed = np.where(present[..., None, None], outer, 0.0).sum(axis=-3)
            mixed = mixed / np.maximum(number, 1.0)[..., None, None]
            partly: Mask = np.any(present & ~there.all(axis=-1), axis=-1)
            total = np.where(partly[..., None, None], mixed, total)
            count = np.where(partly, number, count)
        return total, count

    def _begun(
        self, state: vector.VectorState, begins: Mask, centre: Numbers, count: Numbers
    ) -> vector.VectorState:
        """The first block mean is the first position; its variance S/m is owed until S is known."""
        self._start = self._start._replace(
            owed=np.where(begins, 1.0 / np.maximum(count, 1.0), self._start.owed),
            since=np.where(begins, state.time, self._start.since),
        )
        wide = begins[..., None]
        moved = np.concatenate([np.where(wide, centre, state.position), state.velocity], axis=-1)
        return state._replace(
            mean=moved,
            known=np.where(wide, 1.0, state.known),
            seen=np.where(begins, state.time, state.seen),
        )

    def _settled(
        self, state: vector.VectorState, unit: Numbers, usable: Mask
    ) -> vector.VectorState:
        """Pay the variance that is owed since the start: exact, for nothing was corrected yet."""
        pays = usable & (self._start.owed > 0)
        if not pays.any():
            return state
        owed = self._start.owed[..., None, None]
        batch = state.time.shape
        start = vector.joined(batch, owed * unit, 0.0, self.mean_rate_prior * unit)
        still = np.concatenate([state.position, np.zeros_like(state.velocity)], axis=-1)
        at_start = state._replace(covariance=start, mean=still)
        elapsed = np.where(pays, state.time - self._start.since, 0.0)
        now = self._drifted(at_start, elapsed, unit).covariance
        self._start = self._start._replace(owed=np.where(pays, 0.0, self._start.owed))
        return state._replace(covariance=np.where(pays[..., None, None], now, state.covariance))

    def _drifted(
        self, state: vector.VectorState, dt: float | Numbers, unit: Numbers
    ) -> vector.VectorState:
        step = np.broadcast_to(np.asarray(dt, dtype=float), state.time.shape)
        idle = np.isnan(state.seen)
        walk, wander = self.mean_acceleration * unit, self.mean_noise * unit
        over = vector.motion(self.mean_retention, step, state.known, walk, wander)
        later = vector.drift(state, step, over)
        return later._replace(
            covariance=np.where(idle[..., None, None], state.covariance, later.covariance)
        )

    def _scatter(self, dt: float) -> Numbers:
        if self.counted_now is None:
            return np.full((*(self.batch_shape or ()), self.d or 1, self.d or 1), np.nan)
        return self._cov.scatter_ahead(dt)

    def _unit(self, scatter: Numbers) -> Numbers:
        """The covariance, or the identity where it is not known yet and nothing depends on it."""
        unknown = np.isnan(scatter).any(axis=(-2, -1), keepdims=True)
        return np.where(unknown, np.eye(scatter.shape[-1]), scatter)

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
        self._cov.d, self._cov.batch_shape = self.d, self.batch_shape
        blocks = self._cov.blocks(value, sequence=sequence)
        if mask is not None:
            used = as_mask(np.asarray(mask, dtype=bool), blocks.shape[:-2])
            blocks = np.where(used[..., None, None], blocks, np.nan)
        return blocks, np.asarray(~np.isnan(blocks).all(axis=(-2, -1)))

    def _trusted(self, observation: Any) -> tuple[Numbers, Mask]:
        return self.checked(observation)

    def _interval(self, dt: Any, batch: tuple[int, ...]) -> Numbers:
        return np.broadcast_to(super()._interval(dt, ()), batch)  # one number for all items

    def begin(self, shape: tuple[int, ...]) -> None:
        """Allocate for blocks of this shape, unless that is done."""
        if self.batch_shape is not None:
            return
        self.d = self._mean.d = self._cov.d = int(shape[-1])
        self._cov.batch_shape = None
        batch = tuple(shape[:-2])
        super().begin(batch)
        zero, nan = np.zeros(batch), np.full(batch, np.nan)
        before = np.full((*batch, self.d), np.nan)
        self._start = Start(before, np.ones(batch), zero, zero, zero, zero, nan)

    def check_memory(self) -> None:
        """Raise ValueError if what is remembered, as from a file, cannot be."""
        state = self._mean.state
        known = (state.known > 0) & ~np.isnan(state.seen)[..., None]
        if np.isnan(state.position[known]).any() or np.isnan(state.velocity[known]).any():
            raise ValueError("its mean is not a number")
        if np.isnan(state.covariance).any() or np.isnan(state.time).any():
            raise ValueError("the uncertainty of its mean is not a number")
        for name in ("before_count", "owed", "samples", "frames"):
            if not (getattr(self._start, name) >= 0).all():
                raise ValueError(f"start.{name} is no count")
