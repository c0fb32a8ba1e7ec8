"""The kinetic tracker of plain vectors: positions, sizes, means."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from kgmrf import _check
from kgmrf._check import ObservationError, OnInvalid
from kgmrf._types import Mask, Numbers
from kgmrf.gains import Transition
from kgmrf.results import Values
from kgmrf.trackers import _vector_step as on
from kgmrf.trackers._contract import Tracker
from kgmrf.trackers._input import as_mask
from kgmrf.trackers._smooth import check_lag
from kgmrf.trackers._vector_fields import VectorEstimate, VectorResult
from kgmrf.trackers._vector_step import VectorState

__all__ = ["VectorEstimate", "VectorResult", "VectorTracker"]

RELATIVE_ACCELERATION = 1e-2
"""Default acceleration as a share of the noise variance: an observation moves half the way."""


class VectorTracker(Tracker):
    """x <- x + dt v, v decaying or constant, seen with Gaussian noise: a Kalman filter.

    d: dimension; None takes it from the first observation.
    noise_std: standard deviation of an observation, a number or one per component;
    noise_covariance: instead of it, the whole matrix. Either may also come with each observation;
    ``n_samples`` of an update divides the variance.
    acceleration: spectral density of the white acceleration (units^2 per time^3): a number, one
    per component, or a matrix. Default: 1 % of the noise variance.
    position_noise: the same for a direct random walk of the position (units^2 per time).
    retention: share of the velocity that survives a unit of time (below 1: Ornstein-Uhlenbeck).
    rate_prior: variance of the velocity at the start; default: the noise variance.
    on_invalid: what to do with an infinite component: "raise", or treat it as missing ("skip",
    "repair").
    time_unit: the usual time between observations in units of ``times``; None takes the median of
    the first eight intervals. The settings above are per this unit; with ``time_unit=1`` they are
    per unit of ``times``. Velocities are told per unit of ``times`` always.

    Observations are ``(..., d)``. A component that is NaN was not seen: the others still count.

    >>> import numpy as np
    >>> seen = np.arange(50.0)[:, None] * [1.0, -0.5]
    >>> result = VectorTracker(noise_std=0.1).filter(seen)
    >>> result.velocity[-1].round(3)
    array([ 1. , -0.5])
    >>> VectorTracker(noise_std=0.1).filter(seen).nis.shape
    (50,)
    """

    kind = "vector"
    axes = 1
    _shows = VectorEstimate

    def __init__(
        self,
        d: int | None = None,
        *,
        noise_std: Any = None,
        noise_covariance: Any = None,
        acceleration: Any = None,
        position_noise: Any = 0.0,
        retention: float = 1.0,
        rate_prior: Any = None,
        n_samples: float | None = None,
        on_invalid: OnInvalid = "raise",
        time_unit: float | None = None,
    ) -> None:
        super().__init__(d, n_samples, on_invalid, time_unit)
        if noise_std is not None and noise_covariance is not None:
            raise ValueError("give noise_std or noise_covariance, not both")
        self.noise_std = on.spreads(noise_std, "noise_std", positive=True)
        self.noise_covariance = on.spreads(noise_covariance, "noise_covariance", positive=True)
        if self.noise_covariance is not None and np.ndim(self.noise_covariance) != 2:
            raise ValueError(
                f"noise_covariance must be a (d, d) matrix, got {noise_covariance!r}; "
                "for one number per component use noise_std"
            )
        self.acceleration = on.spreads(acceleration, "acceleration")
        self.position_noise = on.spreads(position_noise, "position_noise")
        self.retention = _check.in_range(retention, "retention", 1e-6, 1.0)
        self.rate_prior = on.spreads(rate_prior, "rate_prior", positive=True)
        noisy = self.noise_std is not None or self.noise_covariance is not None
        for name, value in (("acceleration", acceleration), ("rate_prior", rate_prior)):
            if value is None and not noisy:
                raise ValueError(
                    f"{name} has no default without noise_std or noise_covariance; "
                    f"give {name} where the noise comes with each observation"
                )
        for name in ("noise_std", "noise_covariance", "acceleration", "rate_prior"):
            size = np.shape(getattr(self, name))[-1:]
            if size and self.d is None:
                self.d = size[0]
            if size and size != (self.d,):
                raise ValueError(f"{name} is for d = {size[0]}, but d = {self.d}")
        self._given: Numbers | None = None

    # ------------------------------------------------------------------ the public contract

    def update(
        self,
        observation: Any,
        *,
        dt: float | Numbers = 1.0,
        n_samples: float | Numbers | None = None,
        noise_covariance: Any = None,
        assume_valid: bool = False,
    ) -> VectorEstimate:
        """Take in the observation of one frame and return the filtered estimate at its time.

        observation: ``(..., d)``, or None for none; components that are NaN were not seen.
        dt: time since the frame before (ignored at the very first frame).
        n_samples: divides the noise covariance (the observation is a mean of so many).
        noise_covariance: ``(..., d, d)`` of this observation, instead of that of the tracker.
        assume_valid: skip the checks, for hot loops with float64 arrays of the right shape.
        """
        if (
            assume_valid
            and self._whole
            and n_samples is None
            and noise_covariance is None
            and type(dt) in (int, float)
            and self._hurried(observation, float(dt) / self.clock.unit)
        ):
            return self.told(self._estimate())
        with self._noise_given(noise_covariance):
            found = super().update(
                observation, dt=dt, n_samples=n_samples, assume_valid=assume_valid
            )
        assert isinstance(found, VectorEstimate)
        return found

    def forecast(self, steps: float = 1.0) -> VectorEstimate:
        """The estimate ``steps`` units of time ahead if no observation came; changes nothing."""
        if self._whole and type(steps) in (int, float) and 0 <= steps < math.inf:
            step = self._compiled(None, steps / self.clock.unit)
            if step is not None:
                return self.told(VectorEstimate(partial(on.view, *step)))
        found = super().forecast(steps)
        assert isinstance(found, VectorEstimate)
        return found

    def filter(
        self,
        sequence: Any,
        *,
        times: Any = None,
        mask: Any = None,
        n_samples: float | Numbers | None = None,
        fields: Any = None,
        noise_covariance: Any = None,
    ) -> VectorResult:
        """Run `update` over a whole sequence and return all estimates, time first.

        sequence: ``(T, ..., d)``; frames that are None or all NaN have no observation.
        times, mask, n_samples, fields: as for every tracker.
        noise_covariance: ``(d, d)`` for all frames or ``(T, ..., d, d)`` one for each.
        """
        with self._noise_given(noise_covariance):
            found = super().filter(
                sequence, times=times, mask=mask, n_samples=n_samples, fields=fields
            )
        assert isinstance(found, VectorResult)
        return found

    def smooth(
        self,
        sequence: Any,
        *,
        times: Any = None,
        mask: Any = None,
        n_samples: float | Numbers | None = None,
        lag: int | None = None,
        fields: Any = None,
        noise_covariance: Any = None,
    ) -> VectorResult:
        """p(x_t | y_1..y_T), or with ``lag`` p(x_t | y_1..y_{t+lag}): a recording, looked back at.

        Arguments as for `filter`; lag 0 is `filter`. ``nis`` and ``log_likelihood`` are NaN: they
        belong to forecasts. The tracker itself is not changed.

        >>> seen = np.arange(50.0)[:, None] + np.random.default_rng(0).normal(size=(50, 1))
        >>> tracker = VectorTracker(noise_std=1.0, acceleration=1e-4)
        >>> late, early = tracker.copy().filter(seen), tracker.smooth(seen)
        >>> bool((early.std <= late.std + 1e-9).all())
        True
        """
        check_lag(lag)
        fresh = self.anew()
        fresh._given = fresh._noise_of(noise_covariance)
        record = fresh.recording(sequence, times=times, mask=mask, n_samples=n_samples, whole=True)
        steps, observed = record.dt, record.observed
        states, _, _ = fresh._states(*record)
        wide = np.broadcast_to(steps.reshape(-1, *(1,) * (observed.ndim - 1)), observed.shape)
        model = (fresh._walk, fresh._wander, fresh.retention)
        nan = np.full(observed.shape, np.nan)
        found = on.view(on.smooth_vectors(states, wide, *model, lag), nan, nan.copy())
        told: VectorResult = fresh.told(VectorResult(found), times)
        return told.only(fields)

    # ------------------------------------------------------------------ checks

    def _matrices(self, value: Any, name: str, mask: Any = None) -> tuple[Numbers, Mask, bool]:
        array = _check.real_array(value, name)
        if array.ndim < 1 or array.shape[-1] == 0:
            raise ObservationError(
                f"{name} must be vectors of shape (..., d), got shape {array.shape}"
            )
        if self.d is not None and array.shape[-1] != self.d:
            raise ObservationError(
                f"{name} has d = {array.shape[-1]} (shape {array.shape}), "
                f"but this tracker has d = {self.d}; use a new tracker for another dimension"
            )
        if mask is not None:
            array = np.where(as_mask(mask, array.shape[:-1])[..., None], array, np.nan)
        if self.on_invalid != "raise":
            array = np.where(np.abs(array) > _check.LARGEST, np.nan, array)
        _check.finite(array, name)
        return array, ~np.all(np.isnan(array), axis=-1), False

    def _validated(
        self, array: Numbers, observed: Mask, rough: bool, name: str
    ) -> tuple[Numbers, Mask]:
        if observed.any() and self._given is None and self._own_noise() is None:
            raise ObservationError(
                "how noisy is it? Give noise_std or noise_covariance at construction, or "
                "noise_covariance with the observation"
            )
        if self._given is not None:
            try:
                d = array.shape[-1]
                self._given = np.broadcast_to(self._given, (*array.shape[:-1], d, d))
            except ValueError:
                raise ObservationError(
                    f"noise_covariance has shape {self._given.shape}, which does not fit the "
                    f"{name} of shape {array.shape}"
                ) from None
        return array, observed

    def _trusted(self, observation: Any) -> tuple[Numbers, Mask]:
        return observation, ~np.all(np.isnan(observation), axis=-1)

    @contextmanager
    def _noise_given(self, noise: Any) -> Iterator[None]:
        """The noise of the observations of one call."""
        self._given = self._noise_of(noise)
        try:
            yield
        finally:
            self._given = None

    def _noise_of(self, noise: Any) -> Numbers | None:
        if noise is None:
            return None
        array = _check.real_array(noise, "noise_covariance")
        _check.square(array, "noise_covariance", self.d)
        if not np.isfinite(array).all() or not (np.linalg.eigvalsh(array) > 0).all():
            raise ObservationError("noise_covariance must be positive definite")
        return array

    # ------------------------------------------------------------------ machinery

    def _own_noise(self) -> Numbers | None:
        if self.noise_covariance is not None:
            return self.noise_covariance
        return None if self.noise_std is None else np.square(self.noise_std)

    def _matrix_of(self, value: Any, otherwise: float, d: int) -> Numbers:
        """A setting as a (d, d) matrix; None means a share of the noise variance."""
        noise = self._own_noise() if value is None else None
        return on.as_matrix(value if noise is None else otherwise * noise, d)

    def _begin(self, shape: tuple[int, ...]) -> None:
        d = shape[-1]
        self._state = on.initial_state(shape, self._matrix_of(self.rate_prior, 1.0, d))
        self._walk = self._matrix_of(self.acceleration, RELATIVE_ACCELERATION, d)
        self._wander = self._matrix_of(self.position_noise, 0.0, d)
        noise = self._own_noise()
        self._noise = np.eye(d) if noise is None else on.as_matrix(noise, d)
        self._nis = np.full(shape[:-1], np.nan)
        self._log_likelihood = np.full(shape[:-1], np.nan)
        self._fresh, self._all_known, self._prepared = True, None, None

    @property
    def _whole(self) -> bool:
        """One vector under way, every component of which is known: the compiled step can go on."""
        if self._all_known is None and self.batch_shape is not None:
            self._all_known = self.batch_shape == () and bool((self._state.known > 0).all())
        return bool(self._all_known) and not self._fresh and self.clock.frozen

    def _compiled(self, seen: Numbers | None, dt: float) -> Any:
        """The state and its surprise after one step; None where only a part was seen."""
        if self._prepared is None:
            own = self.n_samples or 1.0
            model = np.stack([self._noise / own, self._walk, self._wander])
            self._prepared = (model, np.full(self._state.position.shape, np.nan), {})
        return on.compiled_frame(self._state, seen, dt, self.retention, *self._prepared)

    def _hurried(self, observation: Any, dt: float) -> bool:
        """Take in a whole vector, or none, by the compiled step; False where it cannot."""
        like = self._state.position
        if observation is not None:
            same = type(observation) is np.ndarray and observation.dtype == like.dtype
            if not same or observation.shape != like.shape or not observation.flags.c_contiguous:
                return False
        step = self._compiled(observation, dt) if 0 <= dt < math.inf else None
        if step is not None:
            self._state, self._nis, self._log_likelihood = step
        return step is not None

    _all_known: bool | None = None
    _prepared: tuple[Numbers, Numbers, dict[tuple[float, float], Numbers]] | None = None

    def advance(self, seen: Numbers, observed: Mask, n_samples: Numbers, dt: Numbers) -> None:
        """Take in one step of checked vectors."""
        noise = self._noise if self._given is None else self._given
        state = self._drifted(dt)
        hidden = np.where(observed[..., None], seen, np.nan)
        self.take_over(*on.correct(state, hidden, noise / n_samples[..., None, None]))

    def _drifted(self, dt: Numbers) -> VectorState:
        # Frames mostly come at equal intervals: what the last one did is kept.
        key = (self.retention, dt.shape, dt.tobytes())
        if self._passage is None or self._passage[0] != key:
            self._passage = (key, on.passage(self.retention, dt))
        over = self._passage[1]
        return on.drift(self._state, dt, self._walk, self._wander, self.retention, over)

    _passage: tuple[Any, Transition] | None = None

    def _run(self, seen: Numbers, observed: Mask, counts: Numbers, dt: Numbers) -> VectorResult:
        return VectorResult(on.view(*self._states(seen, observed, counts, dt)))

    def _states(
        self, seen: Numbers, observed: Mask, counts: Numbers, dt: Numbers
    ) -> tuple[VectorState, Numbers, Numbers]:
        """The states of a sequence, time first, and their surprises."""
        given, looks = self._given, []
        for k in range(seen.shape[0]):
            if given is not None:
                self._given = given[k]
            self.advance(
                seen[k], observed[k], counts[k], np.broadcast_to(dt[k], observed.shape[1:])
            )
            looks.append((self._state, self._nis, self._log_likelihood))
        states, nis, likelihood = zip(*looks, strict=True)
        state = VectorState(*(np.stack(parts) for parts in zip(*states, strict=True)))
        return state, np.stack(nis), np.stack(likelihood)

    @property
    def state(self) -> VectorState:
        """What is known of the vector now."""
        return self._state

    def take_over(self, state: VectorState, nis: Numbers, log_likelihood: Numbers) -> None:
        """Go on from a state that somebody else has corrected, with its surprise."""
        self._state, self._nis, self._log_likelihood = state, nis, log_likelihood
        self._fresh, self._all_known = False, None

    def look(self) -> Values:
        """All fields as they stand now."""
        return on.view(self._state, self._nis, self._log_likelihood)

    def _estimate(self) -> VectorEstimate:
        return VectorEstimate(partial(on.view, self._state, self._nis, self._log_likelihood))

    def ahead(self, dt: float) -> Values:
        """All fields as predicted ``dt`` from now."""
        state = self._drifted(np.full_like(self._state.time, dt))
        nan = np.full_like(state.time, np.nan)
        return on.view(state, nan, nan)

    def _memory(self) -> dict[str, Numbers]:
        return {
            **self._state._asdict(),
            "nis": self._nis,
            "log_likelihood": self._log_likelihood,
            "fresh": np.asarray(float(self._fresh)),
        }

    def _remember(self, memory: dict[str, Numbers]) -> None:
        self._state = VectorState(**{name: memory[name] for name in VectorState._fields})
        self._nis, self._log_likelihood = memory["nis"], memory["log_likelihood"]
        self._fresh, self._all_known = bool(memory["fresh"]), None

    @property
    def counted_now(self) -> float | None:
        """Counted time of the last step; None before the first."""
        if self.batch_shape is None or self._fresh:
            return None
        return float(np.max(self._state.time))
