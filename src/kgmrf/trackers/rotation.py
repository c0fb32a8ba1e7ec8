"""The kinetic tracker of rotations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from kgmrf import _check
from kgmrf._check import OnInvalid
from kgmrf._types import Mask, Numbers
from kgmrf.gains import FixedGains, Gains
from kgmrf.geometry import so
from kgmrf.results import Values
from kgmrf.step import Model, State, Surprise, cold_state, rotation_step
from kgmrf.trackers._files import load
from kgmrf.trackers._kinetic import KineticTracker, as_gains
from kgmrf.trackers._rotations import RotationInput
from kgmrf.trackers._smooth import SmoothRotation
from kgmrf.trackers._view import rotation_view


class RotationTracker(RotationInput, SmoothRotation, KineticTracker):
    """Follow a rotation R whose observations are R Exp(noise), through gaps and without lag.

    d: dimension, 3 for orientations in space.
    noise_std: standard deviation of the noise in every plane, radians; ``n_samples`` of an update
    divides its variance. Fixed-gain laws can do without it and then tell no likelihood.
    gains: "auto" (default) is the self-tuning `AutoRotation`, which takes the settings of that
    class (for d = 3; in other dimensions "information"). A single law is "information",
    "zero_lag", "printed", or one from :mod:`kgmrf.gains`.
    on_invalid: what to do with a matrix that is no rotation: "raise", "skip" (treat as missing) or
    "repair" (nearest rotation).

    Observations are matrices ``(..., d, d)`` or, for d = 3, ``scipy.spatial.transform.Rotation``
    objects; make one of quaternions with ``Rotation.from_quat``.

    >>> import numpy as np
    >>> from kgmrf import RotationTracker
    >>> from kgmrf.geometry import so
    >>> turns = so.exp(so.hat(np.linspace(0, 1, 50)[:, None] * np.asarray([0.0, 0.0, 1.0])))
    >>> result = RotationTracker(noise_std=0.01, gains="information").filter(turns)
    >>> result.velocity[-1, 1, 0].round(3).item()
    0.02
    """

    def __new__(cls, d: int = 3, *, gains: Any = "auto", **settings: Any) -> Any:
        """The tracker of these settings; the self-tuning one is an `AutoRotation`."""
        if cls is RotationTracker and d == 3 and isinstance(gains, str) and gains == "auto":
            from kgmrf.trackers.auto_rotation import AutoRotation

            return AutoRotation(d, **settings)
        return super().__new__(cls)

    def __getnewargs_ex__(self) -> tuple[tuple[int | None], dict[str, Any]]:
        return (self.d,), {"gains": self.gains}  # a copy is of the same class

    @classmethod
    def load(cls, path: str | Path) -> Any:
        """Read a tracker of rotations that `save` wrote, self-tuning or not."""
        tracker = load(path)
        if not isinstance(tracker, RotationInput):
            raise ValueError(f"{path} holds a {type(tracker).__name__}, not a {cls.__name__}")
        return tracker

    def __init__(
        self,
        d: int = 3,
        *,
        noise_std: float | None = None,
        gains: str | Gains = "auto",
        n_samples: float | None = None,
        on_invalid: OnInvalid = "raise",
    ) -> None:
        super().__init__(d, n_samples, on_invalid)
        if d == 1:
            raise ValueError("d = 1 has no rotations; d must be 2 or more")
        law = as_gains("information" if isinstance(gains, str) and gains == "auto" else gains)
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

    def _begin(self, shape: tuple[int, ...]) -> None:
        self.model = Model(gains=self.gains)
        state = cold_state(np.zeros(shape), self.gains)
        self._hold(state._replace(spectrum=np.ones(shape[:-1])))

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

    def _view(self, state: State, surprise: Surprise) -> Values:
        return rotation_view(state, surprise, self.gains)
