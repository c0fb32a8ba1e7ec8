"""The moving averages of risk systems: with a fast scale, and with volatilities of their own."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgmrf import _check
from kgmrf._types import Numbers
from kgmrf.baselines._contract import Arrays, BaselineTracker

SCALE_RETENTION = 0.98  # of the logarithm of the scale, per unit of time
FARTHEST = 20.0  # times the forecast size: the scale learns from no more
RIDGE = 1e-9  # of the mean variance: an average of few samples has no inverse


class _WeightedAverage(BaselineTracker):
    """Averages whose weights sum to 1 from the first observation on."""

    kinds = ("covariance",)

    def support(self) -> Numbers:
        """How many samples the present estimate is worth."""
        return np.asarray(max(2.0 / np.log(2.0) * self._memory, 1.0))

    _memory: float


class ScaledEMA(_WeightedAverage):
    """S = e^s B: B an average of e^-s C, s <- .98^dt s + log(1 + scale_gain (z/d - 1)).

    z = tr(S^-1 C), at most 20 d: the scale follows the overall size at once, the average the shape.

    Parameters
    ----------
    d : int, default None
        Dimension; None takes it from the first observation.
    half_life : float, default 64.0
        Half-life of B, in units of time.
    scale_gain : float, default 0.3
        Gain of the scale; 0 is an ordinary moving average.
    **options
        Settings of :class:`kgmrf.baselines.BaselineTracker`, such as n_samples and on_invalid.

    Examples
    --------
    >>> rows = np.random.default_rng(0).normal(size=(400, 2)) * np.repeat([1.0, 9.0], 200)[:, None]
    >>> slow, fast = (ScaledEMA(scale_gain=gain).filter(rows) for gain in (0.0, 0.3))
    >>> bool(slow.spectrum[205].mean() < 0.5 * fast.spectrum[205].mean())
    True
    """

    def __init__(
        self,
        d: int | None = None,
        *,
        half_life: float = 64.0,
        scale_gain: float = 0.3,
        **options: Any,
    ) -> None:
        super().__init__(d, **options)
        self.half_life = _check.in_range(half_life, "half_life", 0.0, 1e9, open_low=True)
        self.scale_gain = _check.in_range(scale_gain, "scale_gain", 0.0, 1.0)
        self._memory = self.half_life

    def _fresh_arrays(self, shape: tuple[int, ...]) -> Arrays:
        number = np.full((*shape[:-2], 1, 1), np.nan)
        known = {"mass": number, "count": number.copy(), "scale": number.copy()}
        return {**super()._fresh_arrays(shape), **known}

    def _first(self, arrays: Arrays, seen: Numbers) -> Arrays:
        one = np.ones_like(arrays["mass"])
        return {"matrix": seen, "mass": one, "count": one.copy(), "scale": np.zeros_like(one)}

    def _predict(self, arrays: Arrays, dt: Numbers) -> Arrays:
        mass = arrays["mass"] * 2.0 ** (-dt / self.half_life)
        return {**arrays, "mass": mass, "scale": arrays["scale"] * SCALE_RETENTION**dt}

    def _correct(self, arrays: Arrays, seen: Numbers, dt: Numbers) -> Arrays:
        B, s, d = arrays["matrix"], arrays["scale"], seen.shape[-1]
        mass, count = arrays["mass"] + 1.0, arrays["count"] + 1.0
        z = np.trace(np.linalg.solve(_lifted(self._matrix(arrays)), seen), axis1=-2, axis2=-1)
        step = np.log1p(self.scale_gain * (np.minimum(z / d, FARTHEST) - 1.0))[..., None, None]
        # Before B has full rank by far, z says nothing of the size.
        s = s + np.where(count > 2 * d, step, 0.0)
        B = B + (np.exp(-s) * seen - B) / mass
        return {"matrix": B, "mass": mass, "count": count, "scale": s}

    def _matrix(self, arrays: Arrays) -> Numbers:
        return np.exp(arrays["scale"]) * arrays["matrix"]


class IteratedEMA(_WeightedAverage):
    """S = D R D: D^2 an average of C_ii, R the correlations in an average of D^-1 C D^-1.

    The iterated EWMA of risk systems (Engle 2002): volatilities with a short memory, correlations
    with a long one.

    Parameters
    ----------
    d : int, default None
        Dimension; None takes it from the first observation.
    volatility : float, default 21.0
        Half-life of the variances, in units of time; about a month of trading days.
    correlation : float, default 63.0
        Half-life of the correlations, in units of time; longer, for they are harder to learn.
    **options
        Settings of :class:`kgmrf.baselines.BaselineTracker`, such as n_samples and on_invalid.

    References
    ----------
    Engle (2002), Dynamic conditional correlation, J. Business & Economic Statistics 20(3).

    Examples
    --------
    >>> tracker = IteratedEMA(volatility=10.0, correlation=21.0)
    >>> rows = np.random.default_rng(0).normal(size=(400, 2))
    >>> tracker.filter(rows).covariance[-1].shape
    (2, 2)
    """

    def __init__(
        self,
        d: int | None = None,
        *,
        volatility: float = 21.0,
        correlation: float = 63.0,
        **options: Any,
    ) -> None:
        super().__init__(d, **options)
        self.volatility = _check.in_range(volatility, "volatility", 0.0, 1e9, open_low=True)
        self.correlation = _check.in_range(correlation, "correlation", 0.0, 1e9, open_low=True)
        self._memory = self.volatility

    def _fresh_arrays(self, shape: tuple[int, ...]) -> Arrays:
        names = ("masses", "variance")  # two masses: of the variances, of the correlations
        sizes = ((1, 2), (1, shape[-1]))
        known = {n: np.full((*shape[:-2], *s), np.nan) for n, s in zip(names, sizes, strict=True)}
        return {**super()._fresh_arrays(shape), **known}

    def _first(self, arrays: Arrays, seen: Numbers) -> Arrays:
        variance = _diagonal(seen)
        return {
            "matrix": _between(seen, variance),
            "masses": np.ones_like(arrays["masses"]),
            "variance": variance,
        }

    def _predict(self, arrays: Arrays, dt: Numbers) -> Arrays:
        lives = np.array([self.volatility, self.correlation])
        return {**arrays, "masses": arrays["masses"] * 2.0 ** (-dt / lives)}

    def _correct(self, arrays: Arrays, seen: Numbers, dt: Numbers) -> Arrays:
        masses = arrays["masses"] + 1.0
        v, R = arrays["variance"], arrays["matrix"]
        v = v + (_diagonal(seen) - v) / masses[..., :1]
        R = R + (_between(seen, v) - R) / masses[..., 1:]
        return {"matrix": R, "masses": masses, "variance": v}

    def _matrix(self, arrays: Arrays) -> Numbers:
        size = _diagonal(arrays["matrix"])
        ratio = np.sqrt(arrays["variance"] / np.where(size > 0.0, size, 1.0))
        return np.swapaxes(ratio, -1, -2) * arrays["matrix"] * ratio


def _diagonal(matrices: Numbers) -> Numbers:
    """``(..., 1, d)``"""
    return np.diagonal(matrices, axis1=-2, axis2=-1)[..., None, :]


def _between(matrices: Numbers, variance: Numbers) -> Numbers:
    """D^-1 C D^-1; channels that were never other than zero stay zero."""
    inverse = 1.0 / np.sqrt(np.where(variance > 0.0, variance, 1.0))
    return np.swapaxes(inverse, -1, -2) * matrices * inverse


def _lifted(matrices: Numbers) -> Numbers:
    """With a ridge, so that there is an inverse."""
    d = matrices.shape[-1]
    mean = np.trace(matrices, axis1=-2, axis2=-1) / d
    return matrices + (RIDGE * np.where(mean > 0.0, mean, 1.0))[..., None, None] * np.eye(d)
