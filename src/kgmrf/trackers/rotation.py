"""The tracker of rotations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from kgmrf import _check
from kgmrf._check import OnInvalid
from kgmrf._time import duration, stamps
from kgmrf._types import Mask, Numbers
from kgmrf.engines.rotation_smoother import smooth
from kgmrf.engines.rotations import Rotations
from kgmrf.gains import FixedGains, Gains
from kgmrf.geometry import so
from kgmrf.results import Estimate, Result, Values
from kgmrf.step import Model, State, Surprise, cold_state, rotation_step
from kgmrf.trackers._contract import Tracker
from kgmrf.trackers._engine import EngineTracker
from kgmrf.trackers._kinetic import KineticTracker, as_gains
from kgmrf.trackers._rotations import RotationInput
from kgmrf.trackers._smooth import SmoothRotation, check_lag, recording
from kgmrf.trackers._view import rotation_view


class RotationTracker(EngineTracker, RotationInput, SmoothRotation, KineticTracker):
    """Follow a rotation R whose observations are R Exp(noise), through gaps and without lag.

    Nothing has to be set: the default learns the noise and how the rotation moves, rejects gross
    outliers, follows a jump at the second observation that agrees with it, and takes time stamps in
    any unit.

    d: dimension, 3 for orientations in space.
    noise_std: standard deviation of the noise in every plane, radians; ``n_samples`` of an update
    divides its variance. None: learned. Single laws do not learn it; those with fixed gains can do
    without it and then tell no likelihood.
    noise_std_guess: where learning starts.
    gains: "auto" (default; in dimensions other than 3 the same as "information"), or a single law:
    "information", "zero_lag", "printed", or one from :mod:`kgmrf.gains`.
    oscillations: of the default: be ready for regular swinging (camera shake, gait, vibration).
    time_unit: of the default: the usual time between observations in units of ``times``. None takes
    the median of the first eight intervals. Velocities are per unit of ``times``, for dates per
    second.
    on_invalid: what to do with a matrix that is no rotation: "raise", "skip" (treat as missing) or
    "repair" (nearest rotation).

    Observations are matrices ``(..., d, d)`` or, for d = 3, ``scipy.spatial.transform.Rotation``
    objects; make one of quaternions with ``Rotation.from_quat``. Estimates of the default also have
    ``covariance`` (3 x 3, of the error in the body frame), ``noise_std``, ``status`` (0 missing, 1
    taken in, 3 rejected as an outlier, 4 started again there), ``weights`` and ``half_life``.

    >>> import numpy as np
    >>> from kgmrf import RotationTracker
    >>> from kgmrf.geometry import so
    >>> turns = so.exp(so.hat(np.linspace(0, 1, 50)[:, None] * np.asarray([0.0, 0.0, 1.0])))
    >>> result = RotationTracker().filter(turns, times=np.arange(50) / 30)
    >>> result.angular_velocity[-1].round(2) + 0.0
    array([0.  , 0.  , 0.61])
    """

    def __init__(
        self,
        d: int = 3,
        *,
        noise_std: float | None = None,
        noise_std_guess: float | None = None,
        gains: str | Gains | dict[str, Any] = "auto",
        oscillations: bool = True,
        time_unit: float | None = None,
        n_samples: float | None = None,
        on_invalid: OnInvalid = "raise",
    ) -> None:
        super().__init__(d, n_samples, on_invalid)
        if d == 1:
            raise ValueError("d = 1 has no rotations; d must be 2 or more")
        for name, value in (
            ("noise_std", noise_std),
            ("noise_std_guess", noise_std_guess),
            ("time_unit", time_unit),
        ):
            if value is not None:
                _check.in_range(value, name, 0.0, np.inf, open_low=True)
        self.noise_std, self.noise_std_guess = noise_std, noise_std_guess
        self.oscillations, self.time_unit = bool(oscillations), time_unit
        auto = isinstance(gains, str) and gains == "auto"
        if auto and d == 3:
            if noise_std is not None and noise_std_guess is not None:
                raise ValueError("give noise_std, which fixes the noise, or noise_std_guess")
            self.gains: Any = "auto"
            self._engine = Rotations(
                noise_std=noise_std,
                noise_std_guess=noise_std_guess,
                oscillations=self.oscillations,
                time_unit=time_unit,
            )
            return
        if time_unit is not None or noise_std_guess is not None:
            raise ValueError(
                "time_unit and noise_std_guess belong to gains='auto' in three dimensions; a "
                "single law takes noise_std, and counts time in its own unit"
            )
        self.gains = self._single_law("information" if auto else gains)

    def _single_law(self, gains: str | Gains | dict[str, Any]) -> Gains:
        law = as_gains(gains)
        if isinstance(law, FixedGains):
            # A rotation is seen directly: no gap divides, so no ridge is needed.
            return replace(law, ridge=0.0)
        if self.noise_std is None:
            raise ValueError(
                "information gains need noise_std, the standard deviation of the observed "
                "rotations in radians, e.g. RotationTracker(noise_std=0.05)"
            )
        return law

    # ------------------------------------------------------------------ time

    def filter(
        self,
        sequence: Any,
        *,
        times: Any = None,
        mask: Any = None,
        n_samples: float | Numbers | None = None,
    ) -> Result:
        """Run `update` over a whole sequence and return all estimates, time first.

        sequence: ``(T, ..., d, d)``; frames that are None or all NaN have no observation.
        times: ``(T,)`` time stamps that do not decrease; default: one unit per frame. The default
        tracker takes any unit, and dates (then time counts in seconds).
        mask: ``(T, ...)``, True where there is an observation; others are ignored unseen.
        n_samples: a number, or one per frame ``(T, ...)``.

        Filtering a sequence in chunks gives what filtering it whole gives. Everything is checked
        before the first frame is taken in, so an error leaves the tracker as it was.
        """
        if self._engine is not None:
            times = stamps(times)
        return super().filter(sequence, times=times, mask=mask, n_samples=n_samples)

    def forecast(self, steps: float = 1.0) -> Estimate:
        """The estimate ``steps`` units of time ahead if no observation came; changes nothing."""
        return super().forecast(duration(steps))

    # ------------------------------------------------------------------ looking back

    def smooth(
        self,
        sequence: Any,
        *,
        times: Any = None,
        mask: Any = None,
        n_samples: float | Numbers | None = None,
        lag: int | None = None,
    ) -> Result:
        """p(R_t | Z_1..Z_T), or with ``lag`` p(R_t | Z_1..Z_{t+lag}): a recording, looked back at.

        Arguments as for `filter`. The default joins what the past and what the future say of each
        frame; a single law (information gains only) solves its chain. ``nis`` and
        ``log_likelihood`` are NaN. The tracker itself is not changed.

        >>> from kgmrf import RotationTracker, metrics, simulate
        >>> scene = simulate.steady_camera(1, 0.1)
        >>> tracker = RotationTracker()
        >>> runs = tracker.filter(scene.observations), tracker.smooth(scene.observations)
        >>> late, early = (metrics.geodesic_error(r.rotation, scene.rotation).mean() for r in runs)
        >>> bool(early < 0.7 * late)
        True
        """
        if self._engine is None:
            return super().smooth(sequence, times=times, mask=mask, n_samples=n_samples, lag=lag)
        check_lag(lag)
        fresh = type(self)(**self.settings())
        record = recording(fresh, sequence, stamps(times), mask, n_samples)
        shape = record.observed.shape
        flat = (shape[0], int(np.prod(shape[1:])))
        records = smooth(
            self._engine,
            record.seen.reshape(*flat, 3, 3),
            record.observed.reshape(flat),
            np.repeat(record.dt[:, None], flat[1], axis=1),
            1.0 / np.reshape(record.counts, flat),
            record.start,
            lag,
        ).reshape(*shape, -1)
        nan = np.full(shape, np.nan)
        view = self._engine.view(records)
        return Result({**view, "nis": nan, "log_likelihood": nan.copy()})

    # ------------------------------------------------------------------ single laws

    def _begin(self, shape: tuple[int, ...]) -> None:
        if self._engine is not None:
            return super()._begin(shape)
        self.model = Model(gains=self.gains)
        state = cold_state(np.zeros(shape), self.gains)
        self._hold(state._replace(spectrum=np.ones(shape[:-1])))
        return None

    def _step(
        self, state: State, seen: Numbers, observed: Mask, counts: Numbers, dt: Numbers
    ) -> tuple[State, Surprise]:
        return rotation_step(state, self.model, seen, self._strength(counts), dt, observed)

    def _strength(self, counts: Any) -> Any:
        """The noise variance in every plane."""
        return (np.nan if self.noise_std is None else self.noise_std**2) / counts

    def _tidied(self, sequence: Numbers) -> Numbers:
        # Off the group by no more than the check allows: two Newton steps are a projection.
        return so.polish(so.polish(sequence))

    def _checked_sequence(self, sequence: Any, mask: Any) -> tuple[Numbers, Mask]:
        if self._engine is not None:  # the single laws look with loops of their own
            return Tracker._checked_sequence(self, sequence, mask)
        return super()._checked_sequence(sequence, mask)

    def _view(self, state: State, surprise: Surprise) -> Values:
        return rotation_view(state, surprise, self.gains)
