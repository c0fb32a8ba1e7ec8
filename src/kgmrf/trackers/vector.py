"""The kinetic tracker of plain vectors: positions, sizes, means."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kgmrf import _check
from kgmrf._check import ObservationError, OnInvalid
from kgmrf._extras import optional
from kgmrf._types import Mask, Numbers
from kgmrf.gains import InformationGains, Transition, transition
from kgmrf.results import Estimate, Result, Values
from kgmrf.trackers._contract import Tracker, _as_mask

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

RELATIVE_ACCELERATION = 1e-2
"""Default acceleration as a share of the noise variance: an observation moves half the way."""


class VectorState(NamedTuple):
    """What is remembered of a vector. Shapes: ``...`` are batch axes, ``d`` the dimension.

    ============  ===============  ===============================================================
    position      (..., d)         the estimate
    velocity      (..., d)         per unit time
    uncertainty   (..., 3, d, d)   cov(position), cov(position, velocity), cov(velocity)
    known         (..., d)         1 for the components that have been seen
    time          (...)            time of the last drift
    seen          (...)            time of the last observation, NaN before the first
    ============  ===============  ===============================================================

    >>> initial_state((4, 2), np.eye(2)).position.shape
    (4, 2)
    """

    position: Numbers
    velocity: Numbers
    uncertainty: Numbers
    known: Numbers
    time: Numbers
    seen: Numbers


def initial_state(shape: tuple[int, ...], rate_prior: Numbers) -> VectorState:
    """A state at rest in which nothing is known but the spread of velocities, ``(..., d, d)``.

    >>> initial_state((2,), np.eye(2)).uncertainty[2, 0, 0].item()
    1.0
    """
    d, batch = shape[-1], shape[:-1]
    uncertainty = np.zeros((*batch, 3, d, d))
    uncertainty[..., 2, :, :] = rate_prior
    return VectorState(
        np.zeros(shape),
        np.zeros(shape),
        uncertainty,
        np.zeros(shape),
        np.zeros(batch),
        np.full(batch, np.nan),
    )


def passage(retention: float, dt: Numbers) -> Transition:
    """What a time ``dt`` (...) does to a velocity that accelerates with unit density.

    >>> passage(1.0, np.asarray(3.0)).angle
    array([9.])
    """
    return transition(InformationGains(acceleration=1.0, retention=retention), dt[..., None])


def drift(
    state: VectorState,
    dt: Numbers,
    acceleration: Numbers,
    position_noise: Numbers,
    retention: float,
    over: Transition | None = None,
) -> VectorState:
    """x <- x + turn v, v <- keep v, P <- F P F^T + noise: what a time ``dt`` (...) does.

    ``acceleration`` and ``position_noise`` are densities of covariance, ``(..., d, d)``. The noise
    of the velocity is integrated as for the angles of a frame (:func:`kgmrf.gains.transition`);
    ``over`` is the `passage` of ``dt``, if it is known already. Components that were never seen
    stay as they are.

    >>> still = initial_state((1,), np.eye(1))._replace(known=np.ones(1))
    >>> drift(still, np.asarray(3.0), np.zeros((1, 1)), np.zeros((1, 1)), 1.0).uncertainty[0].item()
    9.0
    """
    over = passage(retention, dt) if over is None else over
    turn = over.turn * state.known
    keep = 1.0 - (1.0 - over.keep) * state.known
    both = state.known[..., :, None] * state.known[..., None, :]
    walk = both * acceleration
    p11, p12, p22 = (state.uncertainty[..., k, :, :] for k in range(3))
    p12_turned = p12 * turn[..., None, :]
    turned = p12 + turn[..., :, None] * p22
    new = np.empty_like(state.uncertainty)
    new[..., 0, :, :] = (
        p11
        + p12_turned
        + np.swapaxes(p12_turned, -1, -2)
        + turn[..., :, None] * p22 * turn[..., None, :]
        + over.angle[..., None] * walk
        + dt[..., None, None] * both * position_noise
    )
    new[..., 1, :, :] = turned * keep[..., None, :] + over.cross[..., None] * walk
    new[..., 2, :, :] = keep[..., :, None] * p22 * keep[..., None, :] + over.rate[..., None] * walk
    return state._replace(
        position=state.position + turn * state.velocity,
        velocity=keep * state.velocity,
        uncertainty=new,
        time=state.time + dt,
    )


def correct(
    state: VectorState, seen: Numbers, noise: Numbers
) -> tuple[VectorState, Numbers, Numbers]:
    """x <- x + P H^T (H P H^T + R)^{-1} (y - H x), H the components of y that are not NaN.

    Shapes: seen ``(..., d)``, noise R ``(..., d, d)``. A component that is seen for the first time
    takes the value seen, less what its noise shares with the others' surprise (the limit of an
    endlessly wide prior). Returns the state, the normalised innovation squared (chi-squared with
    as many degrees of freedom as known components were seen) and the log-likelihood; both are NaN
    where no known component was seen.

    >>> state, nis, _ = correct(initial_state((2,), np.eye(2)), np.asarray([1.0, 2.0]), np.eye(2))
    >>> state.position, nis.item()
    (array([1., 2.]), nan)
    """
    d = seen.shape[-1]
    there = ~np.isnan(seen)
    known = state.known > 0
    old, new = there & known, there & ~known
    o, n = old.astype(float), new.astype(float)
    p11, p12, p22 = (state.uncertainty[..., k, :, :] for k in range(3))
    error = np.where(old, seen - state.position, 0.0)
    # Rows and columns of what is not seen become those of the identity: one solve for all patterns.
    spread = (p11 + noise) * o[..., :, None] * o[..., None, :] + np.eye(d) * (1 - o)[..., None, :]
    a, b = o[..., :, None] * p11, o[..., :, None] * p12
    c = o[..., :, None] * noise * n[..., None, :]
    at, bt, ct = (np.swapaxes(m, -1, -2) for m in (a, b, c))
    solved = np.linalg.solve(spread, np.concatenate([a, b, c, error[..., None]], axis=-1))
    sa, sb, sc, weight = (
        solved[..., :d],
        solved[..., d : 2 * d],
        solved[..., 2 * d : 3 * d],
        solved[..., 3 * d :],
    )
    position = state.position + (at @ weight)[..., 0]
    position = np.where(new, np.where(there, seen, 0.0) - (ct @ weight)[..., 0], position)
    block = n[..., :, None] * noise * n[..., None, :]
    cross = ct @ sa
    uncertainty = np.stack(
        [
            _symmetric(p11 - at @ sa + block - ct @ sc) + cross + np.swapaxes(cross, -1, -2),
            p12 - at @ sb + ct @ sb,
            _symmetric(p22 - bt @ sb),
        ],
        axis=-3,
    )
    count = o.sum(axis=-1)
    nis = (error[..., None, :] @ weight)[..., 0, 0]
    log_det = np.linalg.slogdet(spread)[1]
    log_likelihood = -0.5 * (count * math.log(2.0 * math.pi) + log_det + nis)
    none = count == 0
    state = state._replace(
        position=position,
        velocity=state.velocity + (bt @ weight)[..., 0],
        uncertainty=uncertainty,
        known=np.maximum(state.known, n),
        seen=np.where(there.any(axis=-1), state.time, state.seen),
    )
    return state, np.where(none, np.nan, nis), np.where(none, np.nan, log_likelihood)


def _symmetric(matrix: Numbers) -> Numbers:
    return 0.5 * (matrix + np.swapaxes(matrix, -1, -2))


class _VectorFields:
    """The fields that a vector has and a matrix has not."""

    if TYPE_CHECKING:

        def _field(self, name: str) -> Any: ...

    @property
    def position(self) -> Numbers:
        """The estimate, (..., d); NaN for components that were never seen."""
        return self._field("position")

    @property
    def std(self) -> Numbers:
        """Standard deviation of every component, (..., d)."""
        return self._field("std")

    @property
    def position_covariance(self) -> Numbers:
        """Covariance of the estimate's error, (..., d, d)."""
        return self._field("position_covariance")


class VectorEstimate(_VectorFields, Estimate):
    """What a tracker knows of a vector: position, velocity (..., d), std, nis, log_likelihood.

    >>> VectorTracker(noise_std=1.0).update([3.0, 4.0])
    VectorEstimate(position (2,), time=0, age=0)
    """

    def __repr__(self) -> str:
        plain = Estimate({**self._all(), "covariance": self.position})
        return repr(plain).replace("Estimate(covariance", "VectorEstimate(position", 1)

    def _all(self) -> Values:
        return {name: self._field(name) for name in self.fields()}


class VectorResult(_VectorFields, Result):
    """What a tracker knew of a vector at every time of a sequence: `VectorEstimate`, time first.

    >>> len(VectorTracker(noise_std=1.0).filter([[0.0, 1.0]] * 5))
    5
    """

    def __getitem__(self, frame: int | slice) -> VectorEstimate | VectorResult:
        kind = VectorResult if isinstance(frame, slice) else VectorEstimate
        return kind({name: self._field(name)[frame] for name in self.fields()})

    def __repr__(self) -> str:
        return f"Vector{super().__repr__()}"

    def to_frame(self) -> pandas.DataFrame:
        """A pandas table: one row per frame (and item), columns such as ``position_0``.

        >>> list(VectorTracker(noise_std=1.0).filter([[0.0]] * 3).to_frame())[:2]
        ['time', 'age']
        """
        with optional():
            import pandas as pd

        columns: dict[str, Numbers] = {}
        if self.time.ndim > 1:
            index = np.indices(self.time.shape).reshape(self.time.ndim, -1)
            columns["frame_number"] = index[0]
            columns |= {f"item_{k}": axis for k, axis in enumerate(index[1:])}
        for name in ("time", "age", "nis", "log_likelihood"):
            columns[name] = np.reshape(self._field(name), -1)
        for name in ("position", "velocity", "std"):
            rows = np.reshape(self._field(name), (-1, self._field(name).shape[-1]))
            columns |= {f"{name}_{k}": rows[:, k] for k in range(rows.shape[-1])}
        return pd.DataFrame(columns)

    def plot(self, path: str | Path | None = None) -> Figure:
        """Draw every component with a band of two standard deviations along time.

        Returns the matplotlib figure; with ``path`` also writes it (PNG, SVG or PDF by its ending).
        """
        from kgmrf.plots import COLOURS, CYCLE, new_figure, style, write_figure

        if self.time.ndim > 1:
            raise ValueError(f"only one track can be drawn, this result has {self.time.shape[1:]}")
        with style():
            figure = new_figure(2.4)
            axes = figure.add_subplot()
            for k in range(self.position.shape[-1]):
                centre, half = self.position[:, k], 2.0 * self.std[:, k]
                colour = CYCLE[k % len(CYCLE)]
                axes.plot(self.time, centre, color=colour, label=f"component {k}")
                axes.fill_between(
                    self.time, centre - half, centre + half, color=colour, alpha=0.2, lw=0
                )
            axes.set_xlabel("time")
            axes.set_title("position, ± 2 standard deviations", color=COLOURS["truth"])
            axes.legend(frameon=False)
            if path is not None:
                write_figure(figure, path)
        return figure


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
    _axes = 1

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
    ) -> None:
        super().__init__(d, n_samples, on_invalid)
        if noise_std is not None and noise_covariance is not None:
            raise ValueError("give noise_std or noise_covariance, not both")
        self.noise_std = _spreads(noise_std, "noise_std", positive=True)
        self.noise_covariance = _spreads(noise_covariance, "noise_covariance", positive=True)
        if self.noise_covariance is not None and np.ndim(self.noise_covariance) != 2:
            raise ValueError(
                f"noise_covariance must be a (d, d) matrix, got {noise_covariance!r}; "
                "for one number per component use noise_std"
            )
        self.acceleration = _spreads(acceleration, "acceleration")
        self.position_noise = _spreads(position_noise, "position_noise")
        self.retention = _check.in_range(retention, "retention", 1e-6, 1.0)
        self.rate_prior = _spreads(rate_prior, "rate_prior", positive=True)
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
            and self._hurried(observation, float(dt))
        ):
            return self._estimate()
        self._given = self._noise_of(noise_covariance)
        try:
            plain = super().update(
                observation, dt=dt, n_samples=n_samples, assume_valid=assume_valid
            )
        finally:
            self._given = None
        return VectorEstimate(plain._values)

    def forecast(self, steps: float = 1.0) -> VectorEstimate:
        """The estimate ``steps`` units of time ahead if no observation came; changes nothing."""
        if self._whole and type(steps) in (int, float) and 0 <= steps < math.inf:
            frame = self._compiled(None, float(steps))
            if frame is not None:
                return VectorEstimate(partial(_view, *frame))
        return VectorEstimate(super().forecast(steps)._values)

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
        self._given = self._noise_of(noise_covariance)
        try:
            plain = super().filter(
                sequence, times=times, mask=mask, n_samples=n_samples, fields=fields
            )
        finally:
            self._given = None
        return VectorResult(plain._values)

    def smooth(
        self,
        sequence: Any,
        *,
        times: Any = None,
        mask: Any = None,
        n_samples: float | Numbers | None = None,
        lag: int | None = None,
        fields: Any = None,
    ) -> VectorResult:
        """p(x_t | y_1..y_T), or with ``lag`` p(x_t | y_1..y_{t+lag}): a recording, looked back at.

        Arguments as for `filter`; lag 0 is `filter`. Every component is a Gauss-Markov random field
        of its own (:mod:`kgmrf.smoothing.gmrf`), so noise, acceleration, position noise and rate
        prior must be numbers or one number per component, and the acceleration above 0. ``nis``
        and ``log_likelihood`` are NaN. The tracker itself is not changed.

        >>> import numpy as np
        >>> t = np.arange(60.0)[:, None]
        >>> seen = np.sin(t / 10) + 0.1 * np.cos(2 * t)
        >>> result = VectorTracker(noise_std=0.1, acceleration=1e-5).smooth(seen)
        >>> bool(np.abs(np.diff(result.position[:, 0], 2)).max() < 0.02)
        True
        """
        from kgmrf.trackers._smooth import check_lag, recording, timeline
        from kgmrf.trackers._smooth_vector import diagonal, smooth_components

        check_lag(lag)
        fresh = type(self)(**self.settings())
        record = recording(fresh, sequence, times, mask, n_samples)
        position, velocity, variance = smooth_components(
            record,
            diagonal(fresh._noise, "noise_covariance"),
            diagonal(fresh._walk, "acceleration"),
            diagonal(fresh._wander, "position_noise"),
            diagonal(fresh._matrix_of(self.rate_prior, 1.0, record.seen.shape[-1]), "rate_prior"),
            self.retention,
            lag,
            spreads=fields is None or bool({"std", "position_covariance"} & set(fields)),
        )
        values = {
            **timeline(record),
            "position": position,
            "velocity": velocity,
            "std": np.sqrt(variance),
            "position_covariance": variance[..., None] * np.eye(position.shape[-1]),
        }
        return VectorResult(VectorResult(values).only(fields)._values)

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
            array = np.where(_as_mask(mask, array.shape[:-1])[..., None], array, np.nan)
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
        return _as_matrix(value if noise is None else otherwise * noise, d)

    def _begin(self, shape: tuple[int, ...]) -> None:
        d = shape[-1]
        self._state = initial_state(shape, self._matrix_of(self.rate_prior, 1.0, d))
        self._walk = self._matrix_of(self.acceleration, RELATIVE_ACCELERATION, d)
        self._wander = self._matrix_of(self.position_noise, 0.0, d)
        noise = self._own_noise()
        self._noise = np.eye(d) if noise is None else _as_matrix(noise, d)
        self._nis = np.full(shape[:-1], np.nan)
        self._log_likelihood = np.full(shape[:-1], np.nan)
        self._fresh, self._all_known, self._desk = True, None, None

    @property
    def _whole(self) -> bool:
        """One vector under way, every component of which is known: the compiled frame can go on."""
        if self._all_known is None and self.batch_shape is not None:
            self._all_known = self.batch_shape == () and bool((self._state.known > 0).all())
        return bool(self._all_known) and not self._fresh

    def _compiled(
        self, seen: Numbers | None, dt: float
    ) -> tuple[VectorState, Numbers, Numbers] | None:
        """The state and its surprise after one frame; None where only a part was seen."""
        from kgmrf.kernels.vector import COASTED, PARTLY, vector_frame

        if self._desk is None:
            own = self.n_samples or 1.0
            model = np.stack([self._noise / own, self._walk, self._wander])
            self._desk = (model, np.full(self._state.position.shape, np.nan), {})
        model, nothing, intervals = self._desk
        key = (dt, self.retention)
        if key not in intervals:
            over = passage(self.retention, np.asarray(dt))
            numbers = (over.turn, over.keep, over.angle, over.cross, over.rate)
            if len(intervals) > 8:  # times that never repeat must not pile up
                intervals.clear()
            intervals[key] = np.array([dt, *(float(v[0]) for v in numbers)])
        old = self._state
        position, velocity, surprise = (
            np.empty_like(old.position),
            np.empty_like(old.velocity),
            np.empty(2),
        )
        uncertainty = np.empty_like(old.uncertainty)
        status = vector_frame(
            old.position,
            old.velocity,
            old.uncertainty,
            nothing if seen is None else seen,
            model,
            intervals[key],
            position,
            velocity,
            uncertainty,
            surprise,
        )
        if status == PARTLY:
            return None
        time = old.time + dt
        state = VectorState(
            position,
            velocity,
            uncertainty,
            old.known,
            time,
            old.seen if status == COASTED else time,
        )
        return state, surprise[0], surprise[1]

    def _hurried(self, observation: Any, dt: float) -> bool:
        """Take in a whole vector, or none, by the compiled frame; False where it cannot."""
        plain = observation is None or (
            type(observation) is np.ndarray
            and observation.dtype == np.float64
            and observation.shape == self._state.position.shape
            and observation.flags.c_contiguous
        )
        frame = self._compiled(observation, dt) if plain and 0 <= dt < math.inf else None
        if frame is None:
            return False
        self._state, self._nis, self._log_likelihood = frame
        return True

    _all_known: bool | None = None
    _desk: tuple[Numbers, Numbers, dict[tuple[float, float], Numbers]] | None = None

    def _advance(self, seen: Numbers, observed: Mask, n_samples: Numbers, dt: Numbers) -> None:
        noise = self._noise if self._given is None else self._given
        state = self._drifted(dt)
        hidden = np.where(observed[..., None], seen, np.nan)
        self._state, self._nis, self._log_likelihood = correct(
            state, hidden, noise / n_samples[..., None, None]
        )
        self._fresh, self._all_known = False, None

    def _drifted(self, dt: Numbers) -> VectorState:
        # Frames mostly come at equal intervals: what the last one did is kept.
        key = (self.retention, dt.shape, dt.tobytes())
        if self._passage is None or self._passage[0] != key:
            self._passage = (key, passage(self.retention, dt))
        over = self._passage[1]
        return drift(self._state, dt, self._walk, self._wander, self.retention, over)

    _passage: tuple[Any, Transition] | None = None

    def _run(self, seen: Numbers, observed: Mask, counts: Numbers, dt: Numbers) -> VectorResult:
        given, looks = self._given, []
        for k in range(seen.shape[0]):
            if given is not None:
                self._given = given[k]
            self._advance(
                seen[k], observed[k], counts[k], np.broadcast_to(dt[k], observed.shape[1:])
            )
            looks.append((self._state, self._nis, self._log_likelihood))
        states, nis, likelihood = zip(*looks, strict=True)
        state = VectorState(*(np.stack(parts) for parts in zip(*states, strict=True)))
        return VectorResult(_view(state, np.stack(nis), np.stack(likelihood)))

    def _look(self) -> Values:
        return _view(self._state, self._nis, self._log_likelihood)

    def _estimate(self) -> VectorEstimate:
        return VectorEstimate(partial(_view, self._state, self._nis, self._log_likelihood))

    def _ahead(self, steps: float) -> Values:
        dt = np.full_like(self._state.time, steps)
        state = self._drifted(dt)
        nan = np.full_like(state.time, np.nan)
        return _view(state, nan, nan)

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
    def _now(self) -> float | None:
        if self.batch_shape is None or self._fresh:
            return None
        return float(np.max(self._state.time))

    def _set_clock(self, time: float) -> None:
        self._state = self._state._replace(time=np.full_like(self._state.time, time))


def _view(state: VectorState, nis: Numbers, log_likelihood: Numbers) -> Values:
    position, velocity, spread = state.position, state.velocity, state.uncertainty[..., 0, :, :]
    if not state.known.all():
        unknown = state.known == 0
        position, velocity = (np.where(unknown, np.nan, v) for v in (position, velocity))
        spread = np.where(unknown[..., :, None] | unknown[..., None, :], np.nan, spread)
    variance = np.diagonal(spread, axis1=-2, axis2=-1)
    return {
        "time": state.time,
        "age": state.time - state.seen,
        "position": position,
        "velocity": velocity,
        "std": np.sqrt(np.maximum(variance, 0.0)),
        "position_covariance": spread,
        "nis": nis,
        "log_likelihood": log_likelihood,
    }


def _spreads(value: Any, name: str, positive: bool = False) -> Any:
    """A setting that is a number, d numbers or a (d, d) matrix; None stays None."""
    if value is None:
        return None
    array = np.asarray(value, dtype=float)
    word = "positive" if positive else "0 or more"
    if array.ndim == 2 and array.shape[0] == array.shape[1]:
        lowest = np.linalg.eigvalsh(array).min() if np.isfinite(array).all() else np.nan
        good = lowest > 0 if positive else lowest >= -1e-12 * np.abs(array).max()
        good = bool(good) and bool(np.allclose(array, array.T))
    else:
        good = array.ndim < 2 and bool(np.isfinite(array).all())
        good = good and bool((array > 0).all() if positive else (array >= 0).all())
    if not good:
        raise ValueError(
            f"{name} must be a number, one per component, or a symmetric (d, d) matrix, "
            f"and {word}; got {value!r}"
        )
    return float(array) if array.ndim == 0 else array


def _as_matrix(value: Any, d: int) -> Numbers:
    array = np.asarray(value, dtype=float)
    return array if array.ndim == 2 else np.eye(d) * array
