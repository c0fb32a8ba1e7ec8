"""The kinetic tracker of rotations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from kgmrf import _check
from kgmrf._check import ObservationError, OnInvalid
from kgmrf._types import Mask, Numbers
from kgmrf.gains import FixedGains, Gains
from kgmrf.geometry import so
from kgmrf.results import Values
from kgmrf.step import Model, State, Surprise, cold_state, rotation_step
from kgmrf.trackers._kinetic import KineticTracker, as_gains
from kgmrf.trackers._view import rotation_view


class RotationTracker(KineticTracker):
    """Follow a rotation R whose observations are R Exp(noise), through gaps and without lag.

    d: dimension, 3 for orientations in space.
    noise_std: standard deviation of the noise in every plane, radians; ``n_samples`` of an update
    divides its variance. Fixed-gain laws can do without it and then tell no likelihood.
    gains: "information" (default), "zero_lag", "printed", or a law from :mod:`kgmrf.gains`.
    on_invalid: what to do with a matrix that is no rotation: "raise", "skip" (treat as missing) or
    "repair" (nearest rotation).

    Observations are matrices ``(..., d, d)`` or, for d = 3, ``scipy.spatial.transform.Rotation``
    objects; make one of quaternions with ``Rotation.from_quat``.

    >>> import numpy as np
    >>> from kgmrf import RotationTracker
    >>> from kgmrf.geometry import so
    >>> turns = so.exp(so.hat(np.linspace(0, 1, 50)[:, None] * np.asarray([0.0, 0.0, 1.0])))
    >>> result = RotationTracker(noise_std=0.01).filter(turns)
    >>> result.velocity[-1, 1, 0].round(3).item()
    0.02
    """

    kind = "rotation"

    def __init__(
        self,
        d: int = 3,
        *,
        noise_std: float | None = None,
        gains: str | Gains = "information",
        n_samples: float | None = None,
        on_invalid: OnInvalid = "raise",
    ) -> None:
        super().__init__(d, n_samples, on_invalid)
        if d == 1:
            raise ValueError("d = 1 has no rotations; d must be 2 or more")
        law = as_gains(gains)
        if isinstance(law, FixedGains):
            # A rotation is seen directly: no gap divides, so no ridge is needed.
            law = replace(law, ridge=0.0)
        elif noise_std is None:
            raise ValueError(
                "information gains need noise_std, the standard deviation of the observed "
                "rotations in radians, e.g. RotationTracker(noise_std=0.05)"
            )
        self.gains: Gains = law
        self.noise_std = noise_std
        if noise_std is not None:
            self.noise_std = _check.in_range(noise_std, "noise_std", 0.0, np.inf, open_low=True)

    def _unwrapped(self, value: Any) -> Any:
        if hasattr(value, "as_matrix"):
            return value.as_matrix()
        if isinstance(value, (list, tuple)):
            return [f.as_matrix() if hasattr(f, "as_matrix") else f for f in value]
        return value

    def _matrices(self, value: Any, name: str, mask: Any = None) -> tuple[Numbers, Mask, bool]:
        shape = _check.real_array(value, name).shape
        if self.d == 3 and shape[-1:] == (4,) and shape[-2:] != (4, 4):
            raise ObservationError(
                f"{name} has shape {shape}: quaternions? Wrap them with "
                "scipy.spatial.transform.Rotation.from_quat(...), which fixes their order"
            )
        return super()._matrices(value, name, mask)

    def _validated(
        self, array: Numbers, observed: Mask, rough: bool, name: str
    ) -> tuple[Numbers, Mask]:
        matrices, observed = _check.rotations(array, observed, name, self.on_invalid, rough)
        return so.project(matrices), observed

    def _begin(self, shape: tuple[int, ...]) -> None:
        self.model = Model(gains=self.gains)
        state = cold_state(np.zeros(shape), self.gains)
        self._state = state._replace(spectrum=np.ones(shape[:-1]))
        self._surprise = self._blank(shape[:-2])

    def _step(
        self, state: State, seen: Numbers, observed: Mask, counts: Numbers, dt: Numbers
    ) -> tuple[State, Surprise]:
        variance = np.nan if self.noise_std is None else self.noise_std**2
        return rotation_step(state, self.model, seen, variance / counts, dt, observed)

    def _view(self, state: State, surprise: Surprise) -> Values:
        return rotation_view(state, surprise, self.gains)
