"""The kinetic tracker of plain vectors: positions, sizes, means."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np

from kgmrf import _check
from kgmrf._check import ObservationError, OnInvalid
from kgmrf._types import Mask, Numbers
from kgmrf.results import Result, Values
from kgmrf.trackers import _vector_step as on
from kgmrf.trackers._contract import Tracker
from kgmrf.trackers._input import Recording, SequenceOptions
from kgmrf.trackers._smooth import check_lag
from kgmrf.trackers._vector_step import VectorState

RELATIVE_ACCELERATION = 1e-2
"""Default acceleration as a share of the noise variance: an observation moves half the way."""


class VectorTracker(Tracker):
    """x <- x + dt v, v decaying or constant, seen with Gaussian noise: a Kalman filter.

    Observations are ``(..., d)``. A component that is NaN was not seen: the others still count.

    Parameters
    ----------
    d : int, default None
        Dimension; None takes it from the first observation.
    noise_std : default None
        Standard deviation of an observation, a number or one per component.
    noise_covariance : default None
        The whole matrix, instead of ``noise_std``.
    acceleration : default None
        Spectral density of the white acceleration (units^2 per time^3): a number, one per
        component, or a matrix. Default: 1 % of the noise variance.
    position_noise : default 0.0
        The same for a direct random walk of the position (units^2 per time).
    retention : float, default 1.0
        Share of the velocity that survives a unit of time (below 1: Ornstein-Uhlenbeck).
    rate_prior : default None
        Variance of the velocity at the start; default: the noise variance.
    n_samples : float, default None
        Samples of which each observation is the mean: it divides the noise variance. None is 1.
    on_invalid : {"raise", "skip", "repair"}, default "raise"
        What to do with an infinite component: "raise", or treat it as missing ("skip", "repair").
    time_unit : float, default None
        The usual time between observations in units of ``times``; None takes the median of the
        first eight intervals. The settings above are per this unit; with ``time_unit=1`` they are
        per unit of ``times``. Velocities are per unit of ``times`` always.

    Examples
    --------
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
    _state_attributes = ("_state", "_nis", "_log_likelihood", "_values", "_fresh")

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
        if (noise_std is None) == (noise_covariance is None):
            raise ValueError("noise_std or noise_covariance is required: give one of them")
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
        for name in ("noise_std", "noise_covariance", "acceleration", "rate_prior"):
            size = np.shape(getattr(self, name))[-1:]
            if size and self.d is None:
                self.d = size[0]
            if size and size != (self.d,):
                raise ValueError(f"{name} is for d = {size[0]}, but d = {self.d}")

    def smooth(
        self,
        sequence: Any,
        *,
        lag: int | None = None,
        fields: Any = None,
        **given: Unpack[SequenceOptions],
    ) -> Result:
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
        fresh = self.with_settings()
        record = fresh.prepare_sequence(sequence, whole=True, **given)
        states = fresh._states(record)[0]
        model = (fresh._walk, fresh._wander, fresh.retention)
        nan = np.full(states.time.shape, np.nan)
        found = on.view(on.smooth_vectors(states, record.dt, *model, lag), nan, nan.copy())
        result: Result = fresh.in_stamp_units(Result(found), record.times)
        return result.select(fields)

    # ------------------------------------------------------------------ checks

    def _check_shape(self, array: Numbers, name: str) -> None:
        if array.ndim < 1 or array.shape[-1] == 0:
            raise ObservationError(
                f"{name} must be vectors of shape (..., d), got shape {array.shape}"
            )
        _check.dimension(array, name, self.d)

    def _validated(
        self, array: Numbers, observed: Mask, is_float32: bool, name: str
    ) -> tuple[Numbers, Mask]:
        return array, observed

    def _trusted(self, observation: Any) -> tuple[Numbers, Mask]:
        return observation, ~np.all(np.isnan(observation), axis=-1)

    def counts(self, n_samples: Any, observed: Mask, d: int) -> Numbers:
        """The covariance of the noise of every observation, ``(..., d, d)``."""
        counts = super().counts(n_samples, observed, d)
        return on.as_matrix(self._noise(), d) / counts[..., None, None]

    # ------------------------------------------------------------------ machinery

    def _noise(self) -> Numbers:
        return np.square(self.noise_std) if self.noise_std is not None else self.noise_covariance

    def _matrix_of(self, value: Any, otherwise: float, d: int) -> Numbers:
        """A setting as a (d, d) matrix; None means a share of the noise variance."""
        return on.as_matrix(otherwise * self._noise() if value is None else value, d)

    def _allocate(self, shape: tuple[int, ...]) -> None:
        d, nan = shape[-1], np.full(shape[:-1], np.nan)
        self._walk = self._matrix_of(self.acceleration, RELATIVE_ACCELERATION, d)
        self._wander = self._matrix_of(self.position_noise, 0.0, d)
        self._state = on.initial_state(shape, self._matrix_of(self.rate_prior, 1.0, d))
        self._nis = self._log_likelihood = nan
        self._values = np.zeros(shape[:-1])  # how many numbers of the last step were expected
        self._fresh, self._motion = True, None

    _motion: Any = None

    def advance(self, seen: Numbers, observed: Mask, n_samples: Numbers, dt: Numbers) -> None:
        """Take in one step of checked vectors; ``n_samples`` is the covariance of their noise."""
        hidden = np.where(observed[..., None], seen, np.nan)
        expected: Mask = ~np.isnan(hidden) & (self._state.known > 0)
        self._values = expected.sum(axis=-1, dtype=float)
        found = on.correct(self._drifted(dt), hidden, n_samples)
        self._state, self._nis, self._log_likelihood = found
        self._fresh = False

    def _drifted(self, dt: Numbers) -> VectorState:
        # Frames mostly come at equal intervals: what the last one did is kept.
        known = self._state.known
        key = (self.retention, dt.tobytes(), known.tobytes())
        if self._motion is None or self._motion[0] != key:
            over = on.motion(self.retention, dt, known, self._walk, self._wander)
            self._motion = key, over
        return on.drift(self._state, dt, self._motion[1])

    def _run(self, record: Recording, names: tuple[str, ...] | None) -> Values:
        return on.view(*self._states(record))

    def _states(self, record: Recording) -> tuple[VectorState, Numbers, Numbers, Numbers]:
        """The states of a sequence, time first, and what is known of their observations."""
        looks = [(self._state, *self._scores()) for _ in self._steps(record)]
        states, *scores = zip(*looks, strict=True)
        state = VectorState(*(np.stack(parts) for parts in zip(*states, strict=True)))
        nis, likelihood, values = map(np.stack, scores)
        return state, nis, likelihood, values

    def _scores(self) -> tuple[Numbers, Numbers, Numbers]:
        return self._nis, self._log_likelihood, self._values

    def current_values(self) -> Values:
        """All fields as they stand now."""
        return on.view(self._state, *self._scores())

    def predicted_values(self, dt: float) -> Values:
        """All fields as predicted ``dt`` from now."""
        state = self._drifted(np.full_like(self._state.time, dt))
        nan = np.full_like(state.time, np.nan)
        return on.view(state, nan, nan)

    def _clocks(self) -> Numbers:
        return self._state.time

    def check_state(self) -> None:
        """Raise ValueError if what is remembered, as from a file, cannot be."""
        state, known = self._state, self._state.known > 0
        numbers = (state.position[known], state.velocity[known], state.covariance, state.time)
        if not all(np.isfinite(array).all() for array in numbers):
            raise ValueError("its state is not finite")
