"""The baselines: moving averages and Kalman filters that everybody knows."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgmrf import _check
from kgmrf._types import Numbers
from kgmrf.baselines._contract import Arrays, BaselineTracker, gain_over
from kgmrf.geometry import so, spd
from kgmrf.model import wishart
from kgmrf.model.gains import InformationGains, transition
from kgmrf.results import Values
from kgmrf.smoothing.rotations import RotationState, correct, predict, start
from kgmrf.trackers._input import Recording


class HoldLast(BaselineTracker):
    """M <- C: no memory, no noise reduction, no lag; freezes when data stop.

    >>> HoldLast().update([[2.0, 0.1], [0.1, 0.5]]).covariance[0, 0].item()
    2.0
    """

    def _correct(self, arrays: Arrays, seen: Numbers, dt: Numbers) -> Arrays:
        return {"matrix": seen}


class _Average(BaselineTracker):
    """A baseline with a gain."""

    def __init__(self, d: int | None = None, *, gain: float = 0.1, **options: Any) -> None:
        super().__init__(d, **options)
        self.gain = _check.in_range(gain, "gain", 0.0, 1.0)


class EuclideanEMA(_Average):
    """M <- (1 - gain) M + gain C; rotations are projected back to the group.

    >>> tracker = EuclideanEMA(gain=0.2)
    >>> _ = tracker.update([[2.0, 0.0], [0.0, 1.0]])
    >>> tracker.update([[3.0, 0.0], [0.0, 1.0]]).covariance[0, 0].round(3).item()
    2.2

    Parameters
    ----------
    gain : float, default 0.1
        Weight of a new observation after one unit of time; a half-life h is 1 - 2**(-1/h).
    """

    def _correct(self, arrays: Arrays, seen: Numbers, dt: Numbers) -> Arrays:
        gain = gain_over(self.gain, dt)
        blend = (1.0 - gain) * arrays["matrix"] + gain * seen
        return {"matrix": so.project(blend) if self.kind == "rotation" else blend}

    def _run(self, record: Recording, names: tuple[str, ...] | None) -> Values:
        """All steps of covariances at once: only the average itself has to go step by step."""
        seen, counts, observed = record.seen, record.counts, record.observed
        if record.samples:
            nan = np.isnan(seen)
            if (nan.any(axis=-1) & ~nan.all(axis=-1)).any():
                return super()._run(record, names)  # holes are filled by the estimate before them
            seen, counts = wishart.second_moments(seen)
            observed, counts = counts > 0, np.maximum(counts, 1.0)
        if self.kind == "rotation":
            return super()._run(record, names)
        known = ~np.isnan(self._seen)
        started = np.concatenate([known[None], known | np.logical_or.accumulate(observed)[:-1]])
        gain = gain_over(self.gain, record.dt)
        share = np.where(observed, np.where(started, gain, 1.0), 0.0)[..., None, None]
        safe = np.where(observed[..., None, None], seen, np.eye(seen.shape[-1]))
        matrices = np.empty((len(safe) + 1, *safe.shape[1:]))
        matrices[0] = np.where(known[..., None, None], self._arrays["matrix"], 0.0)
        for before, after, keep, new in zip(
            matrices[:-1], matrices[1:], 1.0 - share, share * safe, strict=True
        ):
            np.multiply(keep, before, out=after)
            after += new
        likelihood = self._predictive({"matrix": matrices[:-1]}, safe, counts, observed & started)
        time = np.cumsum(np.concatenate([self._time[None], record.dt]), axis=0)[1:]
        last = np.where(observed, time, -np.inf)
        before = np.where(known, self._seen, -np.inf)[None]
        last = np.maximum.accumulate(np.concatenate([before, last]))[1:]
        last = np.where(np.isinf(last), np.nan, last)
        found = self._values({"matrix": matrices[1:]}, time, likelihood, last)
        self._arrays, self._time = {"matrix": found[self.kind][-1].copy()}, time[-1].copy()
        self._seen, self._log_likelihood = last[-1].copy(), likelihood[-1].copy()
        self._fresh = False
        return found


class LogEuclideanEMA(_Average):
    """log M <- (1 - gain) log M + gain log C; needs observations of full rank.

    >>> tracker = LogEuclideanEMA(gain=0.5)
    >>> _ = tracker.update([[1.0, 0.0], [0.0, 1.0]])
    >>> tracker.update([[4.0, 0.0], [0.0, 1.0]]).covariance[0, 0].round(3).item()
    2.0

    Parameters
    ----------
    gain : float, default 0.1
        Weight of a new observation after one unit of time; a half-life h is 1 - 2**(-1/h).
    """

    kinds = ("covariance",)
    _takes_logarithms = True

    def _correct(self, arrays: Arrays, seen: Numbers, dt: Numbers) -> Arrays:
        gain = gain_over(self.gain, dt)
        return {"matrix": spd.exp((1.0 - gain) * spd.log(arrays["matrix"]) + gain * spd.log(seen))}


class RiemannianEMA(_Average):
    """M <- the point at ``gain`` of the geodesic from M to C (affine-invariant, or on SO(d)).

    It needs covariances of full rank.

    >>> tracker = RiemannianEMA(gain=0.5)
    >>> _ = tracker.update([[1.0, 0.0], [0.0, 1.0]])
    >>> tracker.update([[4.0, 0.0], [0.0, 1.0]]).covariance[0, 0].round(3).item()
    2.0

    Parameters
    ----------
    gain : float, default 0.1
        Weight of a new observation after one unit of time; a half-life h is 1 - 2**(-1/h).
    """

    _takes_logarithms = True

    def _correct(self, arrays: Arrays, seen: Numbers, dt: Numbers) -> Arrays:
        here, gain = arrays["matrix"], gain_over(self.gain, dt)
        if self.kind == "rotation":
            return {"matrix": here @ so.exp(gain * so.log(here.swapaxes(-1, -2) @ seen))}
        return {"matrix": spd.geodesic(here, seen, gain[..., 0, 0])}


class AlphaBeta(BaselineTracker):
    """x <- x + dt v; r = z - x; x <- x + position_gain r; v <- retention v + velocity_gain r / dt.

    On covariances it works on the entries, and its estimate may leave the cone of positive
    definite matrices (its likelihood is NaN then). On rotations x is on the group, r = Log(x^T z)
    and the velocity is an angular one.

    >>> tracker = AlphaBeta(position_gain=0.4, velocity_gain=0.1)
    >>> _ = tracker.update([[2.0, 0.0], [0.0, 1.0]])
    >>> tracker.update([[3.0, 0.0], [0.0, 1.0]]).covariance[0, 0].round(3).item()
    2.4

    Parameters
    ----------
    position_gain, velocity_gain, retention : float, default 0.4, 0.1 and 1.0
        Shares of r that correct x and v, and share of v that is kept: all, so that there is no lag.
    """

    always_psd = False

    def __init__(
        self,
        d: int | None = None,
        *,
        position_gain: float = 0.4,
        velocity_gain: float = 0.1,
        retention: float = 1.0,
        **options: Any,
    ) -> None:
        super().__init__(d, **options)
        self.position_gain = _check.in_range(position_gain, "position_gain", 0.0, 2.0)
        self.velocity_gain = _check.in_range(velocity_gain, "velocity_gain", 0.0, 4.0)
        self.retention = _check.in_range(retention, "retention", 0.0, 1.0)

    def _fresh_arrays(self, shape: tuple[int, ...]) -> Arrays:
        return {"matrix": np.full(shape, np.nan), "rate": np.zeros(shape)}

    def _predict(self, arrays: Arrays, dt: Numbers) -> Arrays:
        here, rate = arrays["matrix"], arrays["rate"]
        if self.kind == "rotation":
            skew = 0.5 * (rate - rate.swapaxes(-1, -2))
            return {"matrix": here @ so.exp(dt * skew), "rate": skew}
        return {"matrix": here + dt * rate, "rate": rate}

    def _correct(self, arrays: Arrays, seen: Numbers, dt: Numbers) -> Arrays:
        here, rate = arrays["matrix"], self.retention * arrays["rate"]
        kick = self.velocity_gain / np.where(dt > 0, dt, np.inf)
        if self.kind == "rotation":
            error = so.log(here.swapaxes(-1, -2) @ seen)
            return {
                "matrix": here @ so.exp(self.position_gain * error),
                "rate": rate + kick * error,
            }
        error = seen - here
        return {"matrix": here + self.position_gain * error, "rate": rate + kick * error}

    def _velocity(self, arrays: Arrays) -> Numbers:
        return arrays["rate"] if self.kind == "rotation" else super()._velocity(arrays)


class TangentKalman(BaselineTracker):
    """Constant-velocity Kalman filter on every entry of log C (or of Log R at the identity).

    All entries share one 2 x 2 uncertainty, because they share their noise.

    >>> tracker = TangentKalman()
    >>> _ = tracker.update([[1.0, 0.0], [0.0, 1.0]])
    >>> tracker.update([[1.0, 0.0], [0.0, 1.0]]).covariance.round(6)[0, 0].item()
    1.0

    Parameters
    ----------
    position_noise, velocity_noise : float, default 0.0 and 0.005
        Variances that position and velocity gain per unit time.
    noise_std, prior_var : float, default 0.1 and 0.01
        Standard deviation of an observed entry; variance of position and velocity at the first.
    coast : bool, default True
        Keep predicting while there are no data (True) or freeze (False).
    """

    _takes_logarithms = True

    def __init__(
        self,
        d: int | None = None,
        *,
        position_noise: float = 0.0,
        velocity_noise: float = 0.005,
        noise_std: float = 0.1,
        prior_var: float = 0.01,
        coast: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(d, **options)
        self.position_noise = _check.in_range(position_noise, "position_noise", 0.0, np.inf)
        self.velocity_noise = _check.in_range(velocity_noise, "velocity_noise", 0.0, np.inf)
        self.noise_std = _check.in_range(noise_std, "noise_std", 0.0, np.inf, open_low=True)
        self.prior_var = _check.in_range(prior_var, "prior_var", 0.0, np.inf)
        self.coast = bool(coast)

    def _fresh_arrays(self, shape: tuple[int, ...]) -> Arrays:
        spread = np.zeros((*shape[:-2], 3, 1, 1))
        spread[..., 0, :, :] = spread[..., 2, :, :] = self.prior_var
        return {"position": np.full(shape, np.nan), "rate": np.zeros(shape), "spread": spread}

    def _first(self, arrays: Arrays, seen: Numbers) -> Arrays:
        return {**arrays, "position": self._log(seen)}

    def _predict(self, arrays: Arrays, dt: Numbers) -> Arrays:
        p11, p12, p22 = (arrays["spread"][..., k, :, :] for k in range(3))
        p11 = p11 + 2.0 * dt * p12 + dt**2 * p22 + self.position_noise * dt
        p12 = p12 + dt * p22
        p22 = p22 + self.velocity_noise * dt
        spread = np.stack([p11, p12, p22], axis=-3)
        return {
            "position": arrays["position"] + dt * arrays["rate"],
            "rate": arrays["rate"],
            "spread": spread,
        }

    def _coast(self, arrays: Arrays, predicted: Arrays, dt: Numbers) -> Arrays:
        return predicted if self.coast else arrays

    def _correct(self, arrays: Arrays, seen: Numbers, dt: Numbers) -> Arrays:
        p11, p12, p22 = (arrays["spread"][..., k, :, :] for k in range(3))
        total = p11 + self.noise_std**2
        error = self._log(seen) - arrays["position"]
        left = self.noise_std**2 / total
        return {
            "position": arrays["position"] + p11 / total * error,
            "rate": arrays["rate"] + p12 / total * error,
            "spread": np.stack([left * p11, left * p12, p22 - p12**2 / total], axis=-3),
        }

    def _log(self, matrices: Numbers) -> Numbers:
        return so.log(matrices) if self.kind == "rotation" else spd.log(matrices)

    def _matrix(self, arrays: Arrays) -> Numbers:
        position = np.where(np.isnan(arrays["position"]), 0.0, arrays["position"])
        return so.exp(position) if self.kind == "rotation" else spd.exp(position)


class OneEuro(BaselineTracker):
    """x <- x Exp(a Log(x^T z)), a = 1/(1 + 1/(2 pi f dt)), f = min_cutoff + slope |speed|.

    A moving average on the group that follows faster when the rotation is fast (Casiez, Roussel and
    Vogel, 1 Euro filter, CHI 2012). dt counts from the last observation; it holds through gaps.

    >>> tracker = OneEuro(min_cutoff=0.1, slope=0.0)
    >>> _ = tracker.update(np.eye(3))
    >>> turned = tracker.update(so.exp(so.hat(np.array([0.0, 0.0, 0.1]))))
    >>> so.vee(so.log(turned.rotation)).round(4)[2].item()
    0.0386

    Parameters
    ----------
    min_cutoff, slope, speed_cutoff : float, default 0.1, 1.0 and 0.1
        Frequencies: cutoff at rest, its growth with the speed, cutoff of the average of the speed.
    """

    kinds = ("rotation",)

    def __init__(
        self,
        d: int | None = None,
        *,
        min_cutoff: float = 0.1,
        slope: float = 1.0,
        speed_cutoff: float = 0.1,
        **options: Any,
    ) -> None:
        super().__init__(d, **options)
        self.min_cutoff = _check.in_range(min_cutoff, "min_cutoff", 0.0, np.inf, open_low=True)
        self.slope = _check.in_range(slope, "slope", 0.0, np.inf)
        self.speed_cutoff = _check.in_range(
            speed_cutoff, "speed_cutoff", 0.0, np.inf, open_low=True
        )

    def _fresh_arrays(self, shape: tuple[int, ...]) -> Arrays:
        nan, zero = np.full(shape, np.nan), np.zeros(shape)
        return {"matrix": nan, "last": nan.copy(), "speed": zero, "waited": zero[..., :1, :1]}

    def _first(self, arrays: Arrays, seen: Numbers) -> Arrays:
        return {**arrays, "matrix": seen, "last": seen}

    def _predict(self, arrays: Arrays, dt: Numbers) -> Arrays:
        return {**arrays, "waited": arrays["waited"] + dt}

    def _correct(self, arrays: Arrays, seen: Numbers, dt: Numbers) -> Arrays:
        here, last, waited = arrays["matrix"], arrays["last"], arrays["waited"]
        speed = so.log(last.swapaxes(-1, -2) @ seen) / np.where(waited > 0, waited, np.inf)
        mean = arrays["speed"] + _share(self.speed_cutoff, waited) * (speed - arrays["speed"])
        size = np.linalg.norm(mean, axis=(-2, -1), keepdims=True) / np.sqrt(2.0)
        share = _share(self.min_cutoff + self.slope * size, waited)
        turn = so.exp(share * so.log(here.swapaxes(-1, -2) @ seen))
        zero = np.zeros_like(waited)
        return {"matrix": here @ turn, "last": seen, "speed": mean, "waited": zero}


def _share(cutoff: Numbers | float, dt: Numbers) -> Numbers:
    """Weight of the new value in a low-pass filter: dt / (dt + 1 / (2 pi f))."""
    step = 2.0 * np.pi * cutoff * dt
    return np.asarray(step / (1.0 + step))


class ErrorStateKalman(BaselineTracker):
    """Constant velocity with white acceleration on the group: e = Log(R^T Z), R <- R Exp(K1 e).

    The Lie-group extended Kalman filter of robotics: the error (angle, velocity) lives in the body
    frame with a dense 6 x 6 covariance (:mod:`kgmrf.smoothing.rotations`). All settings are fixed.

    >>> tracker = ErrorStateKalman(noise_std=0.01)
    >>> turns = so.exp(so.hat(np.linspace(0, 1, 50)[:, None] * np.asarray([0.0, 0.0, 1.0])))
    >>> tracker.filter(turns).velocity[-1, 1, 0].round(3).item()
    0.02

    Parameters
    ----------
    noise_std, acceleration, rate_prior : float, default 0.05, 1e-4 and 1e-2
        Of observations; density of the acceleration, rad^2 / time^3; variance of the velocity.
    """

    kinds = ("rotation",)

    def __init__(
        self,
        d: int = 3,
        *,
        noise_std: float = 0.05,
        acceleration: float = 1e-4,
        rate_prior: float = 1e-2,
        **options: Any,
    ) -> None:
        super().__init__(d, **options)
        if d != 3:
            raise ValueError(f"the error-state filter is that of space: d must be 3, got {d!r}")
        self.noise_std = _check.in_range(noise_std, "noise_std", 0.0, np.inf, open_low=True)
        self.acceleration = _check.in_range(acceleration, "acceleration", 0.0, np.inf)
        self.rate_prior = _check.in_range(rate_prior, "rate_prior", 0.0, np.inf, open_low=True)

    def _fresh_arrays(self, shape: tuple[int, ...]) -> Arrays:
        return _arrays(start(np.full(shape, np.nan), self.noise_std**2, self.rate_prior))

    def _predict(self, arrays: Arrays, dt: Numbers) -> Arrays:
        law = InformationGains(acceleration=self.acceleration)
        return _arrays(predict(_state(arrays), transition(law, dt[..., 0, 0]))[0])

    def _correct(self, arrays: Arrays, seen: Numbers, dt: Numbers) -> Arrays:
        return _arrays(correct(_state(arrays), seen, self.noise_std**2))

    def _velocity(self, arrays: Arrays) -> Numbers:
        return arrays["rate"]


def _state(arrays: Arrays) -> RotationState:
    return RotationState(arrays["matrix"], so.vee(arrays["rate"]), arrays["cov"])


def _arrays(state: RotationState) -> Arrays:
    return {"matrix": state.rotation, "rate": so.hat(state.velocity), "cov": state.covariance}
