"""The One Euro filter on rotations."""

from __future__ import annotations

from typing import Unpack

import numpy as np

from kgmrf import _check
from kgmrf._types import Numbers
from kgmrf.geometry import so
from kgmrf.trackers._baseline import Arrays, BaselineTracker, Common


class OneEuro(BaselineTracker):
    """x <- x Exp(a Log(x^T z)), a = 1/(1 + 1/(2 pi f dt)), f = min_cutoff + slope |speed|.

    A moving average on the group that follows faster when the rotation is fast (Casiez, Roussel and
    Vogel, 2012). The speed is that of the observations, averaged with the cutoff ``speed_cutoff``.
    Frequencies are per unit of time; dt counts from the last observation. It has no velocity of its
    own and holds its value through gaps.

    >>> tracker = OneEuro(min_cutoff=0.1, slope=0.0)
    >>> _ = tracker.update(np.eye(3))
    >>> turned = tracker.update(so.exp(so.hat(np.array([0.0, 0.0, 0.1]))))
    >>> so.vee(so.log(turned.rotation)).round(4)[2].item()
    0.0386
    """

    kinds = ("rotation",)

    def __init__(
        self,
        d: int | None = None,
        *,
        min_cutoff: float = 0.1,
        slope: float = 1.0,
        speed_cutoff: float = 0.1,
        **options: Unpack[Common],
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
