"""The tracker of covariances: one class, which holds the engine of its law."""

from __future__ import annotations

import inspect
from typing import Any, Unpack

import numpy as np

from kgmrf import _check, _deprecated
from kgmrf._check import SYMMETRY_TOLERANCE, OnInvalid
from kgmrf._types import Mask, Numbers
from kgmrf.constants import MOST_SAMPLES
from kgmrf.engines import TRUST
from kgmrf.engines.ensemble import Ensemble
from kgmrf.engines.law import SingleLaw, guarded
from kgmrf.engines.low_rank import CROSSOVER, LowRank
from kgmrf.engines.time_scale import TimeScale
from kgmrf.geometry import orbit
from kgmrf.linear_mean import LAGS, blank_rows, predicted
from kgmrf.members import as_members, plain
from kgmrf.model.centring import MEANS, RunningMean
from kgmrf.model.gains import Gains, as_gains
from kgmrf.model.law_state import INTEGRATORS, Model, cold_state, initial_state
from kgmrf.results import Estimate, Result
from kgmrf.trackers._engine import EngineTracker
from kgmrf.trackers._input import Recording, SequenceOptions
from kgmrf.trackers._linear_mean import LinearMeanTracker
from kgmrf.trackers._samples import CovarianceTracker
from kgmrf.trackers._settings import (
    RENAMED,
    checked_rank,
    known_spectrum,
    refuse_one_channel,
    refuse_single_law,
)
from kgmrf.trackers._signals import SignalTracker, checked_time_scale
from kgmrf.trackers._smooth import smooth_both_ways, smooth_law

LEARNED = "learned"


class KGMRF(LinearMeanTracker, SignalTracker, EngineTracker, CovarianceTracker):
    """Follow a covariance M = Q diag(lam) Q^T whose eigenframe turns: no lag, coasts through gaps.

    spectrum, spectrum_rate, scale_rate, scale_retention, integrator, initial, pool_samples and
    pool_steps are of a single law only.

    Parameters
    ----------
    d : int, default None
        Dimension; None takes it from the first observation.
    gains : str or Gains, default "auto"
        "auto" weighs an ensemble of laws by how well they forecast; a single law is "information",
        "zero_lag", "printed", or one from :mod:`kgmrf.model.gains`.
    members : default None
        Of the ensemble ("auto" only), from :mod:`kgmrf.members`; None takes the default eleven.
    rank : int or str, default "auto"
        Factors of a covariance of many channels, whose state and cost grow with d rather than d^2;
        raw samples only. "auto" takes 10 from d = 64 on, None never. See `loadings`.
    rotating_axes : bool, default False
        With a rank, add laws whose axes keep turning the way they did; pays only where a direction
        of turning lasts for tens of rows.
    spectrum : default "adaptive"
        "adaptive" follows the eigenvalues too, "fixed" keeps those of the start (the paper's
        isospectral orbit), an array gives them.
    spectrum_rate : float, default 1e-4
        Variance that the log eigenvalues gain per unit time ("adaptive").
    scale_rate : float, default 0.0
        The same for an overall scale with a clock of its own; 0 switches it off.
    scale_retention : float, default 0.98
        How much of the log scale is kept per unit time.
    integrator : str, default "exponential"
        How the frame drifts: "exponential" (exact), "cayley" or "cayley_neumann" (the paper's
        three-term series). The last two run in plain numpy, for comparison.
    noise_floor : float, default 0.0
        Measurement-noise variance to subtract; observations scatter about M + sigma^2 I.
    n_samples : float or str, default None
        Samples behind each matrix, if it is always the same number. "learned" finds out how many
        independent ones a matrix, or a block of raw samples, is worth by how it scatters about its
        forecast, never more than are said of it: windows of a signal scatter more than their number
        of samples promises. See `effective_samples` of an estimate; for two channels or more.
    initial : default None
        Covariance ``(..., d, d)`` to start from; None pools the first observations.
    pool_samples, pool_steps : float, default None
        When the pooling ends; default 5 d samples or 2 d steps.
    on_invalid : {"raise", "skip", "repair"}, default "raise"
        What to do with an invalid matrix: "raise", "skip" (treat as missing) or "repair" (nearest
        positive semidefinite matrix).
    time_unit : float, default None
        The usual time between observations in units of ``times``; None takes the median of the
        first eight intervals. All rates of the laws are per this unit; what is shown (velocity,
        age, half-life) is per unit of ``times``, for dates in seconds.
    mean : str, default "zero"
        Of raw samples: "zero", "expanding" subtracts the mean of all samples before each, "ewm" one
        that forgets with a half-life of 200 samples; see `location`. "linear" forecasts each row
        from the last ones, as sensors allow: the covariance is then that of what is left, and
        `mean` of an estimate what was forecast for the row, of ``forecast(h)`` what is for the one
        h rows ahead. Single rows; lags are the last rows, however long ago.
    lags : int, default 2
        How many rows the linear mean looks back.
    time_scale : float or str, default None
        Of raw rows that predict each other, as the samples of a signal do: how many rows ahead
        `covariance` is judged. 1 is one row, as of returns; a number of rows; or "auto", which
        measures it (1 where the integrated time tau is below 4, otherwise 2 tau). None is "auto"
        for a Raw of MNE and 1 for everything else. Forecasts, likelihood and surprise are of the
        next row whatever it is. One track of single rows; see `time_scale` and `effective_samples`
        of an estimate, and `integrated_time` of a result.
    **unknown
        Old names of settings, with a warning; anything else is an error.

    Examples
    --------
    >>> import numpy as np
    >>> from kgmrf import KGMRF, simulate
    >>> scene = simulate.ellipse(0.08, n_samples=8, rng=1)
    >>> result = KGMRF(n_samples=8).filter(scene.observations)
    >>> result.covariance.shape
    (400, 2, 2)
    >>> abs(result.velocity[-1, 1, 0]).round(2).item()
    0.08
    """

    _state_attributes = (*EngineTracker._state_attributes, "_raw", "_sums", "_scaled")
    needs_samples = True
    _tolerance = SYMMETRY_TOLERANCE
    _engine: Any

    def __init__(
        self,
        d: int | None = None,
        *,
        gains: str | Gains = "auto",
        members: Any = None,
        rank: int | str | None = "auto",
        rotating_axes: bool = False,
        spectrum: Any = "adaptive",
        spectrum_rate: float = 1e-4,
        scale_rate: float = 0.0,
        scale_retention: float = 0.98,
        integrator: str = "exponential",
        noise_floor: float = 0.0,
        n_samples: float | str | None = None,
        initial: Any = None,
        pool_samples: float | None = None,
        pool_steps: float | None = None,
        on_invalid: OnInvalid = "raise",
        time_unit: float | None = None,
        mean: str = "zero",
        lags: int = LAGS,
        time_scale: float | str | None = None,
        **unknown: Any,
    ) -> None:
        for name in unknown.keys() - RENAMED.keys():
            hint = '; the mean of raw samples is mean="expanding", "ewm" or "linear"' * (
                "cent" in name
            )
            raise TypeError(f"KGMRF has no setting {name!r}{hint}")
        old = _deprecated.settings(unknown, RENAMED, "KGMRF")
        rotating_axes = old.get("rotating_axes", rotating_axes)
        pool_samples, pool_steps = (
            old.get("pool_samples", pool_samples),
            old.get("pool_steps", pool_steps),
        )
        mean = _deprecated.word(mean, _deprecated.MEANS, "mean")
        learns = isinstance(n_samples, str) and n_samples == LEARNED
        if isinstance(n_samples, str) and not learns:
            raise ValueError(f'n_samples must be a number or "learned", got {n_samples!r}')
        super().__init__(
            d, None if isinstance(n_samples, str) else n_samples, on_invalid, time_unit
        )
        self.n_samples: Any = n_samples
        if learns and not (isinstance(gains, str) and gains == "auto"):
            raise ValueError(f'n_samples="learned" needs gains="auto", not {gains!r}')
        if learns and isinstance(rank, int):
            raise ValueError(
                f'n_samples="learned" follows no factors, got rank={rank!r}; leave rank out'
            )
        if learns:
            refuse_one_channel(d)
        self.mean = _check.choice(mean, (*MEANS, "linear"), "mean")
        self.lags = _check.whole(lags, "lags")
        self._sums = np.zeros((3, 0))  # of a `RunningMean`; of a linear mean a row for each track
        self.automatic = isinstance(gains, str) and gains == "auto"
        self.gains: Any = gains if self.automatic else as_gains(gains)
        if self.automatic:
            refuse_single_law(locals(), inspect.signature(KGMRF.__init__).parameters)
        elif members is not None:
            raise ValueError(f'members need gains="auto", not {gains!r}')
        self.members = None if members is None else plain(as_members(members, self.d or 2))
        self.rank = checked_rank(
            rank, self.automatic and members is None and noise_floor == 0.0, self.d
        )
        self.rotating_axes = bool(rotating_axes)
        if self.rotating_axes and not isinstance(self.rank, int):
            raise ValueError(f"rotating_axes=True needs a number of factors, got rank={rank!r}")
        if isinstance(spectrum, str):
            self.spectrum: Any = _check.choice(spectrum, ("adaptive", "fixed"), "spectrum")
        else:
            self.spectrum = known_spectrum(spectrum, self.d)
            self.d = int(self.spectrum.shape[-1])
        usual = self.automatic and noise_floor == 0.0 and not isinstance(self.rank, int)
        self.time_scale = checked_time_scale(time_scale, usual)
        self.spectrum_rate = _check.in_range(spectrum_rate, "spectrum_rate", 0.0, np.inf)
        self.scale_rate = _check.in_range(scale_rate, "scale_rate", 0.0, np.inf)
        self.scale_retention = _check.in_range(scale_retention, "scale_retention", 0.0, 1.0)
        self.integrator = _check.choice(integrator, INTEGRATORS, "integrator")
        self.noise_floor = _check.in_range(noise_floor, "noise_floor", 0.0, np.inf)
        if self.scale_rate and self.noise_floor:
            raise ValueError(
                f"the scale clock (scale_rate={scale_rate!r}) multiplies the whole observed "
                f"covariance and needs noise_floor=0, got {noise_floor!r}"
            )
        self.initial = None if initial is None else self._start_matrix(initial)
        self.pool_samples = pool_samples
        self.pool_steps = pool_steps

    def _start_matrix(self, initial: Any) -> Numbers:
        array, observed, is_float32 = self._matrices(initial, "initial")
        matrix, _ = self._validated(array, observed, is_float32, "initial")
        self.d = int(matrix.shape[-1])
        lowest = np.linalg.eigvalsh(matrix).min()
        if not lowest > 0:
            raise ValueError(
                f"initial must be positive definite, its smallest eigenvalue is {lowest:.3g}; "
                "add a small multiple of the identity"
            )
        return matrix

    def _allocate(self, shape: tuple[int, ...]) -> None:
        if self.mean == "linear":
            self._sums = blank_rows(int(np.prod(shape[:-2])), shape[-1], self.lags)
        elif self.mean != "zero":
            self._sums = np.zeros((3, *shape[:-1]))
        super()._allocate(shape)

    def engine(self, batch: tuple[int, ...] = (), *, raw: bool | None = None) -> Any:
        """The engine that the settings describe, for tracks with these batch axes.

        raw: whether the first observation is of raw samples; None: as it was.
        """
        d, raw = self.d, self._raw if raw is None else raw
        assert d is not None
        if isinstance(self.rank, int):
            return LowRank(d, self.rank, rotating_axes=self.rotating_axes)
        if self.automatic:
            if self._scaled:
                scale = "auto" if self.time_scale is None else self.time_scale
                return TimeScale(d, self.members, scale)
            usual = self.members is None and self.noise_floor == 0.0
            learns = self.n_samples == LEARNED
            if learns:
                refuse_one_channel(d)
            if self.rank == "auto" and usual and raw and d >= CROSSOVER:
                if learns:
                    raise _check.ObservationError(
                        f'n_samples="learned" of raw samples of {d} channels needs rank=None, '
                        "which follows them without factors"
                    )
                return LowRank(d)
            return Ensemble(d, self.members, self.noise_floor, learns_samples=learns)
        known = None if isinstance(self.spectrum, str) else self.spectrum
        adaptive = known is None and self.spectrum == "adaptive"
        model = Model(
            gains=self.gains,
            noise_floor=self.noise_floor,
            spectrum_rate=self.spectrum_rate if adaptive else 0.0,
            scale_rate=self.scale_rate,
            scale_retention=self.scale_retention,
            pool_samples=5.0 * d if self.pool_samples is None else self.pool_samples,
            pool_steps=2.0 * d if self.pool_steps is None else self.pool_steps,
            known_spectrum=known,
            integrator=self.integrator,
        )
        if self.initial is None:
            start = cold_state(np.zeros((*batch, d, d)), self.gains)
        else:
            frame, spectrum = orbit.decompose(np.broadcast_to(self.initial, (*batch, d, d)))
            spectrum = spectrum if known is None else np.broadcast_to(known, (*batch, d))
            start = initial_state(frame, spectrum, self.gains)
        return SingleLaw(guarded(model), start)

    @property
    def location(self) -> Numbers:
        """The mean of the samples now, ``(..., d)``: zero unless ``mean`` says otherwise; of a
        linear mean that of the next row."""
        if self.mean == "zero" or (self.mean == "linear" and self.batch_shape is None):
            return np.zeros((*(self.batch_shape or ()), self.d or 0))
        if self.mean == "linear":
            return predicted(self._mean_rows(), self.d or 1, self.lags, 1)
        return RunningMean(self.mean, self._sums).location

    def _centred(self, blocks: Numbers) -> Numbers:
        if self.mean == "zero":
            return blocks
        if self.mean == "linear":
            return self._off_linear_mean(blocks)
        mean = RunningMean(self.mean, self._sums)
        rows = np.moveaxis(blocks, -2, 1)  # (T, m, ..., d): the samples one after the other
        centred = mean.centre(rows.reshape(-1, *rows.shape[2:])).reshape(rows.shape)
        self._sums = mean.sums
        return np.ascontiguousarray(np.moveaxis(centred, 1, -2))

    def _matrices(self, value: Any, name: str, mask: Any = None) -> tuple[Numbers, Mask, bool]:
        if self.mean != "zero" and name != "initial":
            raise _check.ObservationError(
                f"mean={self.mean!r} is for raw samples, and {name} of shape {np.shape(value)} is "
                "taken as matrices; give samples to partial_fit or filter, or leave out mean"
            )
        return super()._matrices(value, name, mask)

    def counts(self, n_samples: Any, observed: Mask, d: int) -> Numbers:
        """As for every tracker; where their number is learned, none need be said."""
        if n_samples is None and self.n_samples == LEARNED:
            n_samples = MOST_SAMPLES
        return super().counts(n_samples, observed, d)

    # ------------------------------------------------------------------ one step

    def partial_fit(self, samples: Any, *, dt: float | Numbers = 1.0) -> Estimate:
        """Take in the raw samples of one step: ``(d,)`` or ``(..., m, d)``, zero mean.

        n_samples is inferred: m. One that is all NaN does not count; one with some entries
        NaN is scored by the others, and its missing entries are expected from the forecast.
        """
        if self.mean == "zero":
            found = self._fast_path(samples, 1, dt, 1.0, TRUST)
            if found is not None:
                return found
        return super().partial_fit(samples, dt=dt)

    def _advance_samples(self, block: Numbers, dt: Numbers) -> None:
        one = np.ones((1, *dt.shape))
        step = Recording(block[None], one > 0, one, dt[None], samples=True)
        self._advance_records(step, self._engine.kept)

    def smooth(
        self, sequence: Any, *, lag: int | None = None, **given: Unpack[SequenceOptions]
    ) -> Result:
        """E[M_t | C_1..C_T]: a recording, looked back at.

        Arguments as for `filter`. The ensemble runs forward and backward and joins both; a single
        law (information gains) has a backward pass of its own and can look back a fixed ``lag``.
        ``nis`` and ``log_likelihood`` are NaN: they belong to forecasts. The tracker itself is not
        changed.

        >>> from kgmrf import KGMRF, metrics, simulate
        >>> scene = simulate.ellipse(0.08, n_samples=8, rng=1)
        >>> tracker = KGMRF(n_samples=8)
        >>> runs = tracker.filter(scene.observations), tracker.smooth(scene.observations)
        >>> late, early = (metrics.orbit_error(r.covariance, scene.covariance).mean() for r in runs)
        >>> bool(early < 0.8 * late)
        True
        """
        if self.mean != "zero":
            centred = self.with_settings().prepare_sequence(sequence, **given)
            zero = self.with_settings(mean="zero", time_scale=1)
            found = zero.smooth(centred.seen, times=centred.times, samples=True, lag=lag)
            return found.with_labels(centred.channels, centred.index)
        if not self.automatic:
            return smooth_law(self, sequence, lag, **given)
        if lag is not None:
            raise ValueError(
                f"lag={lag!r}: the self-tuned tracker looks back all the way; a fixed lag needs "
                'gains="information"'
            )
        if isinstance(self.rank, int):
            raise ValueError(
                f"rank={self.rank!r}: a covariance of factors has no smoother; leave out rank to "
                "smooth with the engine for few channels"
            )
        fresh = self.with_settings(rank=None, time_scale=1)
        record = fresh.prepare_sequence(sequence, whole=True, **given)
        return smooth_both_ways(
            lambda: self.with_settings(rank=None, time_scale=1, time_unit=fresh.clock.unit), record
        ).with_labels(record.channels, record.index)

    def forecast_scatter(self, dt: float) -> Numbers:
        """The covariance of the next samples, noise floor included."""
        return super().forecast_scatter(dt) + self.noise_floor * np.eye(self.d or 1)

    def support(self) -> Numbers:
        """How many samples the present estimate is worth, ``(...)``."""
        return self._engine.support(self._rows).reshape(self.batch_shape or ())

    # ------------------------------------------------------------------ files

    def prepare(self, state: dict[str, Numbers]) -> None:
        """What has to be known of a file before `allocate`."""
        self._raw = bool(state["raw"])  # these decide between the engines
        self._scaled = bool(state["scaled"])
