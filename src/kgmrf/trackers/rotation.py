"""The tracker of rotations."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, Literal, Unpack

import numpy as np

from kgmrf import _check
from kgmrf._check import OnInvalid
from kgmrf._time import Clock
from kgmrf._types import Numbers
from kgmrf.constants import (
    FIRST_REPEATS,
    FREQUENT_REPEATS,
    LONGEST_REPEAT,
    ROTATION_TOLERANCE,
    STALE,
)
from kgmrf.engines import TIME
from kgmrf.engines.law import SingleLaw
from kgmrf.engines.rotation_row import RECORD_SIZE, REPEATS, STATUS, part
from kgmrf.engines.rotation_smoother import BESIDE, lagged, smooth
from kgmrf.engines.rotations import Rotations, skew
from kgmrf.model.gains import FixedGains, Gains, as_gains
from kgmrf.model.law_state import Model, cold_state
from kgmrf.results import Estimate, Result
from kgmrf.smoothing import rotations as turning
from kgmrf.trackers._input import Recording, SequenceOptions
from kgmrf.trackers._rates import checked_rates, shaped_rates
from kgmrf.trackers._replay import Replay
from kgmrf.trackers._smooth import check_lag, smooth_law


class RotationTracker(Replay):
    """Follow a rotation R whose observations are R Exp(noise), through gaps and without lag.

    Nothing has to be set: the default learns the noise and how the rotation moves, leaves out
    outliers, follows a jump at the second or third observation that agrees with it, and takes time
    stamps in any unit. Observations are matrices ``(..., d, d)`` or, for d = 3,
    ``scipy.spatial.transform.Rotation`` (``Rotation.from_quat`` makes one). Estimates of the
    default also have ``covariance`` (3 x 3, of the error in the body frame), ``noise_std``,
    ``status`` (0 missing, 1 taken in, 3 an outlier, 4 started again there, 5 a stale repeat),
    ``outlier_probability``, ``weights`` and ``half_life``.

    Parameters
    ----------
    d : int, default 3
        Dimension, 3 for orientations in space.
    noise_std : float, default None
        Standard deviation of the noise in every plane, radians. None: learned. Single laws do not
        learn it; those with fixed gains can do without it and then have no likelihood.
    noise_std_guess : float, default None
        Where learning starts. None: fluctuations below about 2.5e-3 rad are taken for motion,
        unless smoothing gains much.
    gains : str, Gains or dict, default "auto"
        "auto" (in dimensions other than 3 the same as "information"), or a single law:
        "information", "zero_lag", "printed", or one from :mod:`kgmrf.model.gains`.
    oscillations : bool, default True
        Of the default: be ready for regular swinging (camera shake, gait, vibration).
    time_unit : float, default None
        The usual time between observations in units of ``times``; None takes the median of the
        first eight intervals. Velocities are per unit of ``times``, for dates per second.
    lag : int, default None
        Of the default: `update` and `filter` give the frame ``lag`` frames ago, smoothed with all
        that came since; NaN for the first ``lag`` frames. None: the present frame.
    gyroscope : bool, default None
        Of the default: whether angular rates are measured too, ``rate`` of `update`, ``rates`` of
        `filter`; None: if the first call has some. Their bias and noise are learned.
    repeats : {"auto", "taken", "missing"}, default "auto"
        Of the default: exact repeats of a pose, as from a source slower than its stamps, are taken
        in or missing (at most three in a row); "auto": missing while frequent and in short runs.
    late, late_steps : default "raise" and 50
        A step before the newest one: "raise", or "replay": of the default, it is put in its place
        among the last ``late_steps``, which are run again; ``dt`` counts from the newest step.
    n_samples : float, default None
        Divides the variance of the noise of each observation; None is 1.
    on_invalid : {"raise", "skip", "repair"}, default "raise"
        A matrix that is no rotation: an error, missing, or replaced by the nearest rotation.

    Examples
    --------
    >>> import numpy as np
    >>> from kgmrf import RotationTracker
    >>> from kgmrf.geometry import so
    >>> turns = so.exp(so.hat(np.linspace(0, 1, 50)[:, None] * np.asarray([0.0, 0.0, 1.0])))
    >>> result = RotationTracker().filter(turns, times=np.arange(50) / 30)
    >>> result.angular_velocity[-1].round(2) + 0.0
    array([0.  , 0.  , 0.61])
    """

    kind = "rotation"
    _tolerance = ROTATION_TOLERANCE
    _state_attributes = (*Replay._state_attributes, "_window")
    _window: Numbers
    _began = 0.0  # the stamp of the first step
    _warned = False  # of repeated poses

    def __init__(
        self,
        d: int = 3,
        *,
        noise_std: float | None = None,
        noise_std_guess: float | None = None,
        gains: str | Gains | dict[str, Any] = "auto",
        oscillations: bool = True,
        time_unit: float | None = None,
        lag: int | None = None,
        gyroscope: bool | None = None,
        repeats: Literal["auto", "taken", "missing"] = "auto",
        late: Literal["raise", "replay"] = "raise",
        late_steps: int = 50,
        n_samples: float | None = None,
        on_invalid: OnInvalid = "raise",
    ) -> None:
        super().__init__(d, n_samples, on_invalid, time_unit)
        if d == 1:
            raise ValueError("d = 1 has no rotations; d must be 2 or more")
        for name, value in (("noise_std", noise_std), ("noise_std_guess", noise_std_guess)):
            if value is not None:
                _check.in_range(value, name, 0.0, np.inf, open_low=True)
                if name == "noise_std" and value > np.pi:
                    raise ValueError(f"{name} is in radians, at most pi, got {value:g}; degrees?")
        self.noise_std, self.noise_std_guess = noise_std, noise_std_guess
        check_lag(lag)
        _check.choice(repeats, tuple(REPEATS), "repeats")
        self.repeats = repeats
        self.oscillations, self.lag, self.gyroscope = bool(oscillations), lag, gyroscope
        auto = isinstance(gains, str) and gains == "auto"
        self._set_late(late, late_steps, possible=auto and d == 3 and not lag)
        if auto and d == 3:
            if noise_std is not None and noise_std_guess is not None:
                raise ValueError("give noise_std, which fixes the noise, or noise_std_guess")
            self.gains = "auto"
            self.clock = Clock(1.0)  # the engine counts time itself, for each track of a batch
            return
        if noise_std_guess is not None or lag is not None or gyroscope:
            raise ValueError(
                "noise_std_guess, lag and gyroscope need gains='auto' in three dimensions; a "
                "single law takes noise_std"
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

    # ------------------------------------------------------------------ a gyroscope beside it

    def update(
        self,
        observation: Any,
        *,
        dt: float | Numbers = 1.0,
        n_samples: float | Numbers | None = None,
        assume_valid: bool = False,
        rate: Any = None,
        rate_std: float | None = None,
    ) -> Estimate:
        """Take in one step: an observation, a measured rate, both or neither; see `Tracker.update`.

        rate: angular rate in the body frame at the time of the step ``(..., 3)``, radians per unit
        of the stamps (per second after dates), as a gyroscope says it. Between two steps their mean
        counts; a step without a rate holds the last one. rate_std: standard deviation of its noise,
        which is learned otherwise.

        >>> tracker = RotationTracker(noise_std=0.01)
        >>> for k in range(10):
        ...     seen = np.eye(3) if k == 0 else None
        ...     estimate = tracker.update(seen, dt=0.1, rate=[0.0, 0.0, 0.5])
        >>> float(estimate.as_rotation().magnitude().round(3))
        0.45
        """
        if self.late == "replay":
            found = self._update_late(observation, dt, n_samples, rate, rate_std)
            self._warn_of_repeats()
            return found
        if rate is None:
            return super().update(
                observation, dt=dt, n_samples=n_samples, assume_valid=assume_valid
            )
        rates = checked_rates(np.asarray(rate, dtype=float)[None], rate_std, 1)
        with self.transaction():
            self._need_gyroscope()
            seen, observed = self.validate(observation)
            counts = self.counts(n_samples, observed, 3)
            step = self._interval(dt, observed.shape)
            self.allocate(seen.shape)
            record = Recording(seen[None], observed[None], counts[None], step[None])
            self._advance_records(
                record._replace(rates=shaped_rates(rates, record.observed.shape)), None
            )
        return self._estimate_of_values(self.current_values())

    def filter(
        self,
        sequence: Any,
        *,
        fields: Any = None,
        rates: Any = None,
        rate_std: float | None = None,
        **given: Unpack[SequenceOptions],
    ) -> Result:
        """Run `update` over a whole sequence; see `Tracker.filter`.

        rates: measured rates ``(T, 3)``, or ``(T, ..., 3)`` of a batch, NaN where there is none;
        rate_std: as for `update`. At steps that only have a rate the sequence is None.
        """
        if self.late == "replay":
            result = self._filter_late(sequence, rates, rate_std, **given).select(fields)
            self._warn_of_repeats()
            return result
        more: Any = {} if rates is None else {"rates": rates, "rate_std": rate_std}
        return super().filter(sequence, fields=fields, **given, **more)

    def prepare_sequence(
        self, sequence: Any, *, rates: Any = None, rate_std: float | None = None, **given: Any
    ) -> Recording:
        """A sequence as `filter` takes it, checked; see `Tracker`."""
        if rates is None:
            return super().prepare_sequence(sequence, **given)
        self._need_gyroscope()
        record = super().prepare_sequence(sequence, **given)
        found = checked_rates(np.asarray(rates, dtype=float), rate_std, len(record.seen))
        return record._replace(rates=shaped_rates(found, record.observed.shape))

    # ------------------------------------------------------------------ looking back

    def smooth(
        self,
        sequence: Any,
        *,
        lag: int | None = None,
        rates: Any = None,
        rate_std: float | None = None,
        **given: Unpack[SequenceOptions],
    ) -> Result:
        """p(R_t | Z_1..Z_T), or with ``lag`` p(R_t | Z_1..Z_{t+lag}): a recording, looked back at.

        Arguments as for `filter`. The default joins what the past and what the future say of each
        frame; what the future shows to be an outlier is a gap. A single law (information gains
        only) goes back from its last frame: for d = 3 with the joint covariance of all angles and
        velocities, so that lag 0 is close to `filter` and a little sharper; otherwise plane by
        plane, where lag 0 is `filter`. ``nis`` and ``log_likelihood`` are NaN. The tracker itself
        is not changed.

        >>> from kgmrf import RotationTracker, metrics, simulate
        >>> scene = simulate.steady_camera(1, 0.1)
        >>> tracker = RotationTracker()
        >>> runs = tracker.filter(scene.observations), tracker.smooth(scene.observations)
        >>> late, early = (metrics.geodesic_error(r.rotation, scene.rotation).mean() for r in runs)
        >>> bool(early < 0.7 * late)
        True
        """
        if not self.automatic:
            if rates is not None:
                self._need_gyroscope()
            return self._smooth_law(sequence, lag, given)
        check_lag(lag)
        fresh = self.with_settings(lag=None, late="raise")
        record = fresh.prepare_sequence(sequence, rates=rates, rate_std=rate_std, **given)
        shape = record.observed.shape
        flat = (shape[0], int(np.prod(shape[1:])))
        engine = fresh.engine()
        records = smooth(
            engine,
            record.seen.reshape(*flat, 3, 3),
            np.where(record.observed, record.counts, 0.0).reshape(flat),
            record.dt.reshape(flat),
            fresh._began,
            lag,
            None if record.rates is None else record.rates.reshape(*flat, 4),
        ).reshape(*shape, -1)
        nan = np.full(shape, np.nan)
        view = engine.view(records)
        nothing = {name: nan.copy() for name in ("nis", "p_value", "log_likelihood")}
        return Result({**view, **nothing})

    # ------------------------------------------------------------------ the engine

    def engine(self, batch: tuple[int, ...] = ()) -> Any:
        """The engine that the settings describe, for tracks with these batch axes."""
        if self.automatic:
            return Rotations(
                noise_std=self.noise_std,
                noise_std_guess=self.noise_std_guess,
                oscillations=self.oscillations,
                time_unit=self.time_unit,
                rated=bool(self.gyroscope),
                repeats=self.repeats,
            )
        d = self.d
        start = cold_state(np.zeros((*batch, d, d)), self.gains)
        start = start._replace(spectrum=np.ones((*batch, d)))
        noise_var = np.nan if self.noise_std is None else self.noise_std**2
        return SingleLaw(Model(gains=self.gains), start, noise_var=noise_var)

    def _smooth_law(self, sequence: Any, lag: int | None, given: Any) -> Result:
        law = self.gains
        numbers = ("acceleration", "retention", "rate_prior", "angle_noise")
        if self.d != 3 or any(np.ndim(getattr(law, name, [])) for name in numbers):
            return smooth_law(self, sequence, lag, **given)
        check_lag(lag)
        fresh = self.with_settings()
        record = fresh.prepare_sequence(sequence, whole=True, **given)
        noise = (np.nan if self.noise_std is None else self.noise_std**2) / record.counts
        found = turning.smooth(law, record.seen, record.observed, record.dt, noise, lag)
        std = np.sqrt(np.diagonal(found.covariance, axis1=-2, axis2=-1)[..., :3])
        nan = np.full(record.observed.shape, np.nan)
        values = {
            **fresh._run(record, None),
            "nis": nan,
            "p_value": nan.copy(),
            "log_likelihood": nan.copy(),
            "rotation": found.rotation,
            "velocity": skew(found.velocity),
            "angle_std": np.abs(skew(std)),
            "covariance": found.covariance[..., :3, :3],
        }
        return fresh.in_stamp_units(Result(values), record.times)

    def _allocate(self, shape: tuple[int, ...]) -> None:
        if self.automatic and self.gyroscope is None:
            self.gyroscope = False
        super()._allocate(shape)
        self._rows[:, TIME] = self._began
        self._begin_replay()
        self._window = np.full((self.lag or 0, len(self._rows), BESIDE + RECORD_SIZE), np.nan)
        self._window[..., :BESIDE] = 0.0

    def set_start_time(self, stamp: float) -> None:
        """The first step comes at this stamp."""
        if not self.automatic:
            super().set_start_time(stamp)
            return
        self._began = stamp  # the engine counts in stamps: each track has its own unit of time
        if self.batch_shape is not None:
            self._rows[:, TIME] = stamp

    def _update_fast_path(
        self, observation: Any, dt: Any, n_samples: Any, assume_valid: bool
    ) -> Estimate | None:
        if self.lag:
            return None
        found = super()._update_fast_path(observation, dt, n_samples, assume_valid)
        if found is not None and self.automatic and self._records[0, STATUS] == STALE:
            self._warn_of_repeats()
        return found

    def _warn_of_repeats(self) -> None:
        """Says once that poses repeat."""
        if self.repeats != "auto" or self._warned or not self.automatic:
            return
        enough = part(self._rows, "observed") >= FIRST_REPEATS
        short = part(self._rows, "longest") <= LONGEST_REPEAT
        if (enough & short & (part(self._rows, "repeated") > FREQUENT_REPEATS)).any():
            self._warned = True
            warnings.warn(
                "poses repeat exactly, a few in a row: a source slower than its stamps? Repeats "
                "are treated as missing (status 5); repeats='taken' takes them in",
                UserWarning,
                stacklevel=4,
            )

    def _advance_records(self, record: Recording, record_width: int | None) -> Numbers:
        records = self._advance_all_records(record, record_width)
        self._warn_of_repeats()
        return records

    def _advance_all_records(self, record: Recording, record_width: int | None) -> Numbers:
        if not self.gyroscope and not self.lag:
            return super()._advance_records(record, record_width)
        lines, rows, engine = self._to_lines(record), self._rows.copy(), self._engine
        assert isinstance(engine, Rotations)
        rates = np.full((len(lines.track_index), 4), np.nan)
        if record.rates is not None:
            rates = np.ascontiguousarray(record.rates, dtype=float).reshape(-1, 4)
        records = engine.advance(rows, lines, None, rates=rates)[1]
        self._rows, self._fresh = rows, False
        if not self.lag:
            self._records = records[len(records) - len(rows) :].copy()
            return records
        new = np.column_stack([lines.values.reshape(-1, 9), lines.counts, lines.dt, rates, records])
        new = new.reshape(len(record.seen), len(self._rows), BESIDE + RECORD_SIZE)
        window = np.concatenate([self._window, new])
        self._window = window[len(new) :].copy()
        late = lagged(engine, window, self.lag)
        self._records = late[-1].copy()
        return late.reshape(records.shape)
