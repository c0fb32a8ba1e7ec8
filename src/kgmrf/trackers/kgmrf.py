"""The kinetic tracker of covariances."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from kgmrf import _check
from kgmrf._check import OnInvalid
from kgmrf._types import Mask, Numbers
from kgmrf.gains import Gains
from kgmrf.geometry import orbit
from kgmrf.results import Values
from kgmrf.step import (
    Model,
    State,
    Surprise,
    cold_state,
    covariance_step,
    initial_state,
    support,
    warming,
)
from kgmrf.trackers._kinetic import KineticTracker, as_batch, as_gains
from kgmrf.trackers._samples import CovarianceTracker
from kgmrf.trackers._smooth import SmoothCovariance
from kgmrf.trackers._view import covariance_view


class KGMRF(SmoothCovariance, KineticTracker, CovarianceTracker):
    """Follow a covariance M = Q diag(lam) Q^T whose eigenframe turns: no lag, coasts through gaps.

    d: dimension; None takes it from the first observation.
    gains: "auto" (default) tunes itself, see :class:`kgmrf.trackers.auto.AutoKGMRF`; a single law
    is "information", "zero_lag", "printed", or one from :mod:`kgmrf.gains`.
    noise_floor: sigma^2 where observations scatter about M + sigma^2 I; 0 tracks what is observed.
    n_samples: samples behind each matrix, if it is always the same number.
    forgetting: "auto" only, 1 forgets nothing and keeps its guarantee.
    on_invalid: what to do with an observation that is no covariance: "raise", "skip" (treat as
    missing) or "repair" (nearest positive semidefinite matrix).

    For a single law only:

    spectrum: "adaptive" follows the eigenvalues too, "fixed" keeps those of the start (the paper's
    isospectral orbit), an array gives them.
    spectrum_rate: variance that the log eigenvalues gain per unit time ("adaptive").
    scale_rate: the same for an overall scale with a clock of its own; 0 switches it off.
    scale_retention: how much of the log scale is kept per unit time.
    initial: covariance ``(..., d, d)`` to start from; None pools the first observations.
    warmup_samples, warmup_frames: when the pooling ends; default 5 d samples or 2 d frames.

    >>> import numpy as np
    >>> from kgmrf import KGMRF, simulate
    >>> scene = simulate.ellipse(0.08, n_samples=8, rng=1)
    >>> result = KGMRF(n_samples=8).filter(scene.observations)
    >>> result.covariance.shape
    (400, 2, 2)
    >>> abs(result.velocity[-1, 1, 0]).round(2).item()
    0.08
    """

    _needs_samples = True

    def __new__(cls, *args: Any, gains: Any = "auto", **settings: Any) -> Self:
        """The tracker of these settings; the self-tuning one is of a class of its own."""
        if cls is KGMRF and isinstance(gains, str) and gains == "auto":
            from kgmrf.trackers.auto import AutoKGMRF

            cls = AutoKGMRF  # type: ignore[assignment]
        return super().__new__(cls)

    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, Any]]:
        return (), {"gains": self.gains}  # a copy is of the same class

    def __init__(
        self,
        d: int | None = None,
        *,
        gains: str | Gains = "auto",
        spectrum: Any = "adaptive",
        spectrum_rate: float = 1e-4,
        scale_rate: float = 0.0,
        scale_retention: float = 0.98,
        noise_floor: float = 0.0,
        n_samples: float | None = None,
        initial: Any = None,
        warmup_samples: float | None = None,
        warmup_frames: float | None = None,
        forgetting: float = 1.0,
        on_invalid: OnInvalid = "raise",
    ) -> None:
        super().__init__(d, n_samples, on_invalid)
        if forgetting != 1.0:
            raise ValueError(f'forgetting={forgetting!r} needs gains="auto", not {gains!r}')
        self.forgetting = 1.0
        self.gains = as_gains(gains)
        if isinstance(spectrum, str):
            self.spectrum: Any = _check.choice(spectrum, ("adaptive", "fixed"), "spectrum")
        else:
            self.spectrum = _known_spectrum(spectrum, self.d)
            self.d = int(self.spectrum.shape[-1])
        self.spectrum_rate = _check.in_range(spectrum_rate, "spectrum_rate", 0.0, np.inf)
        self.scale_rate = _check.in_range(scale_rate, "scale_rate", 0.0, np.inf)
        self.scale_retention = _check.in_range(scale_retention, "scale_retention", 0.0, 1.0)
        self.noise_floor = _check.in_range(noise_floor, "noise_floor", 0.0, np.inf)
        if self.scale_rate and self.noise_floor:
            raise ValueError(
                f"the scale clock (scale_rate={scale_rate!r}) multiplies the whole observed "
                f"covariance and needs noise_floor=0, got {noise_floor!r}"
            )
        self.initial = None if initial is None else self._start_matrix(initial)
        self.warmup_samples = warmup_samples
        self.warmup_frames = warmup_frames

    def _start_matrix(self, initial: Any) -> Numbers:
        array, observed, rough = self._matrices(initial, "initial")
        matrix, _ = self._validated(array, observed, rough, "initial")
        self.d = int(matrix.shape[-1])
        lowest = np.linalg.eigvalsh(matrix).min()
        if not lowest > 0:
            raise ValueError(
                f"initial must be positive definite, its smallest eigenvalue is {lowest:.3g}; "
                "add a small multiple of the identity"
            )
        return matrix

    def _begin(self, shape: tuple[int, ...]) -> None:
        d = shape[-1]
        known = None if isinstance(self.spectrum, str) else self.spectrum
        self.model = Model(
            gains=self.gains,
            noise_floor=self.noise_floor,
            spectrum_rate=self.spectrum_rate if _is(self.spectrum, "adaptive") else 0.0,
            scale_rate=self.scale_rate,
            scale_retention=self.scale_retention,
            warmup_samples=5.0 * d if self.warmup_samples is None else self.warmup_samples,
            warmup_frames=2.0 * d if self.warmup_frames is None else self.warmup_frames,
            known_spectrum=known,
        )
        if self.initial is None:
            self._hold(cold_state(np.zeros(shape), self.gains))
        else:
            frame, spectrum = orbit.decompose(as_batch(self.initial, shape))
            spectrum = spectrum if known is None else as_batch(known, shape[:-1])
            self._hold(initial_state(frame, spectrum, self.gains))

    def _step(
        self, state: State, seen: Numbers, observed: Mask, counts: Numbers, dt: Numbers
    ) -> tuple[State, Surprise]:
        return covariance_step(state, self.model, seen, counts, dt, observed)

    def _view(self, state: State, surprise: Surprise) -> Values:
        return covariance_view(state, surprise, self.gains)

    def _idle(self) -> Mask:
        return super()._idle() | np.asarray(warming(self._state, self.model))

    def _predicted_scatter(self, dt: float) -> Numbers:
        return super()._predicted_scatter(dt) + self.noise_floor * np.eye(self.d or 1)

    def _support(self) -> Numbers:
        return np.asarray(support(self._state))


def _is(value: Any, word: str) -> bool:
    return isinstance(value, str) and value == word


def _known_spectrum(spectrum: Any, d: int | None) -> Numbers:
    values = np.asarray(spectrum, dtype=float)
    if values.ndim < 1 or (d is not None and values.shape[-1] != d):
        raise ValueError(f"spectrum must be a word or d eigenvalues, got shape {values.shape}")
    if not ((values > 0) & np.isfinite(values)).all():
        raise ValueError(f"spectrum must hold positive eigenvalues, got {spectrum!r}")
    return np.flip(np.sort(values, axis=-1), axis=-1).copy()
