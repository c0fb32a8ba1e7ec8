"""Algorithm 1 of the paper, line by line, in plain numpy.

The paper carries M itself and works in fixed coordinates; so does this file. `KGMRF` with
``gains=gains.printed(eta, gamma), spectrum="fixed"`` is the same law on the eigenframe, and a test
holds the two together.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kgmrf import _check
from kgmrf._types import Mask, Numbers
from kgmrf.baselines._contract import Arrays, BaselineTracker
from kgmrf.geometry import orbit, so
from kgmrf.model import wishart

RELATIVE_EPSILON = 1e-9
"""epsilon of the inertia inverse, in squares of the largest gap, where the user gives none."""

RELATIVE_NOISE = 1e-3
"""sigma^2, in means of the eigenvalues, where the user gives none."""

EQUAL = 1e-12
"""Eigenvalues nearer than this share of the largest are equal: their plane does not turn."""


class Algorithm1(BaselineTracker):
    """Omega <- (1 - gamma) Omega + eta I_M^{-1}(tau);  M <- exp(Omega) M exp(Omega)^T.

    With S = M + sigma^2 I, M = U diag(lam) U^T and d_i = lam_i + sigma^2::

        tau          = S^{-1} (C M - M C) S^{-1}                      torque; 0 without data
        I_M^{-1}(tau) = U [d_i d_j / ((lam_i - lam_j)^2 + epsilon) * (U^T tau U)_ij] U^T

    The eigenvalues of M never change. The estimate after `update(C_t)` is M_t, made from the
    observations before C_t, as the paper's loop has it; ``forecast(1)`` is M_{t+1}. The one
    departure from the text is the rotation back by U, which its formula for the inertia inverse
    omits.

    Parameters
    ----------
    eta, gamma : float, default 0.05 and 0.95
        Step size and damping, of the paper's best settings.
    d : int, default None
        Dimension; None takes it from the first observation.
    spectrum : default None
        The eigenvalues Lambda, largest first; None takes those of M_0.
    initial : default "first"
        M_0 ``(..., d, d)``, or "first" for the first observation.
    noise_floor : float, default None
        sigma^2. It cancels from the step; None takes a thousandth of the mean eigenvalue.
    epsilon : float, default None
        The paper prints no value; None takes 1e-9 of the largest squared gap.
    **options
        Settings of :class:`kgmrf.baselines.BaselineTracker`, such as n_samples and on_invalid.

    Examples
    --------
    >>> tracker = Algorithm1(0.05, 0.95, initial=[[2.0, 0.0], [0.0, 0.5]])
    >>> tracker.update([[1.9, 0.3], [0.3, 0.6]]).covariance[0, 1].item()
    0.0
    >>> tracker.forecast(1).covariance[0, 1].round(4).item()
    0.015
    """

    kinds = ("covariance",)

    def __init__(
        self,
        eta: float = 0.05,
        gamma: float = 0.95,
        d: int | None = None,
        *,
        spectrum: Any = None,
        initial: Any = "first",
        noise_floor: float | None = None,
        epsilon: float | None = None,
        **options: Any,
    ) -> None:
        super().__init__(d, **options)
        self.eta = _check.in_range(eta, "eta", 0.0, np.inf)
        self.gamma = _check.in_range(gamma, "gamma", 0.0, 1.0)
        self.spectrum = None if spectrum is None else _descending(spectrum)
        self.initial = initial if isinstance(initial, str) else self._matrix_of(initial)
        if isinstance(initial, str):
            _check.choice(initial, ("first",), "initial")
        self.noise_floor = noise_floor
        if noise_floor is not None:
            self.noise_floor = _check.in_range(
                noise_floor, "noise_floor", 0.0, np.inf, open_low=True
            )
        self.epsilon = epsilon
        if epsilon is not None:
            self.epsilon = _check.in_range(epsilon, "epsilon", 0.0, np.inf)

    def _matrix_of(self, initial: Any) -> Numbers:
        array, observed, is_float32 = self._matrices(initial, "initial")
        return self._validated(array, observed, is_float32, "initial")[0]

    # ------------------------------------------------------------------ the algorithm

    def _correct(self, arrays: Arrays, seen: Numbers, dt: Numbers) -> Arrays:
        """Measure and kick: the torque of C_t changes the velocity, M_t stays."""
        M, Omega, C = arrays["matrix"], arrays["rate"], seen
        lam, U = np.linalg.eigh(M)
        floor = self._floor(M)
        S_inverse = np.linalg.inv(M + floor * np.eye(M.shape[-1]))
        tau = S_inverse @ (C @ M - M @ C) @ S_inverse
        kick = self._inertia_inverse(tau, lam, U, floor)
        return {"matrix": M, "rate": (1.0 - self.gamma) ** dt * Omega + self.eta * kick}

    def _coast(self, arrays: Arrays, predicted: Arrays, dt: Numbers) -> Arrays:
        """Without an observation the torque is 0."""
        return {**predicted, "rate": (1.0 - self.gamma) ** dt * predicted["rate"]}

    def _predict(self, arrays: Arrays, dt: Numbers) -> Arrays:
        """Drift. Over ``dt`` steps the damped velocity turns by (1 - (1 - gamma)^dt) / gamma."""
        M, Omega = arrays["matrix"], arrays["rate"]
        steps = dt if self.gamma == 0.0 else (1.0 - (1.0 - self.gamma) ** dt) / self.gamma
        R = so.exp(steps * Omega)
        return {"matrix": _symmetric(R @ M @ R.swapaxes(-1, -2)), "rate": Omega}

    def _inertia_inverse(self, tau: Numbers, lam: Numbers, U: Numbers, floor: Numbers) -> Numbers:
        gap = lam[..., :, None] - lam[..., None, :]
        d = lam + floor[..., 0]
        epsilon = self.epsilon
        if epsilon is None:
            epsilon = RELATIVE_EPSILON * (gap**2).max(axis=(-2, -1), keepdims=True)
        turns = np.abs(gap) > EQUAL * np.abs(lam).max(axis=-1)[..., None, None]
        divisor = np.where(turns, gap**2 + epsilon, 1.0)
        weight = np.where(turns, d[..., :, None] * d[..., None, :] / divisor, 0.0)
        body = weight * (U.swapaxes(-1, -2) @ tau @ U)
        kick = U @ body @ U.swapaxes(-1, -2)
        return 0.5 * (kick - kick.swapaxes(-1, -2))

    def _floor(self, M: Numbers) -> Numbers:
        """sigma^2, ``(..., 1, 1)``; relative to the trace, which no rotation changes."""
        if self.noise_floor is not None:
            return np.full((*M.shape[:-2], 1, 1), self.noise_floor)
        mean = np.trace(M, axis1=-2, axis2=-1)[..., None, None] / M.shape[-1]
        return RELATIVE_NOISE * np.where(mean > 0, mean, 1.0)

    # ------------------------------------------------------------------ start and fields

    def _fresh_arrays(self, shape: tuple[int, ...]) -> Arrays:
        return {"matrix": np.full(shape, np.nan), "rate": np.zeros(shape)}

    def _first(self, arrays: Arrays, seen: Numbers) -> Arrays:
        """M_0, Omega_0 = 0, and the torque of the first observation."""
        M = seen if isinstance(self.initial, str) else np.broadcast_to(self.initial, seen.shape)
        if self.spectrum is not None:
            frame, _ = orbit.decompose(M)
            M = orbit.compose(frame, np.broadcast_to(self.spectrum, seen.shape[:-1]))
        start = {"matrix": _symmetric(M), "rate": np.zeros_like(seen)}
        return self._correct(start, seen, np.ones((*seen.shape[:-2], 1, 1)))

    def _velocity(self, arrays: Arrays) -> Numbers:
        """In the body frame, as of all trackers; Omega itself is in fixed coordinates."""
        frame, _ = orbit.decompose(arrays["matrix"])
        return frame.swapaxes(-1, -2) @ arrays["rate"] @ frame

    def _predictive(
        self, predicted: Arrays, seen: Numbers, n_samples: Numbers, valid: Mask
    ) -> Numbers:
        """Log-likelihood of the samples under M + sigma^2 I."""
        M = np.where(valid[..., None, None], predicted["matrix"], np.eye(seen.shape[-1]))
        S = M + self._floor(M) * np.eye(M.shape[-1])
        found = wishart.predictive_log_likelihood(S, seen, n_samples)
        return np.where(valid, found, np.nan)


def _symmetric(M: Numbers) -> Numbers:
    return 0.5 * (M + np.swapaxes(M, -1, -2))


def _descending(spectrum: Any) -> Numbers:
    values = np.asarray(spectrum, dtype=float)
    if values.ndim != 1 or not (np.isfinite(values) & (values > 0)).all():
        raise ValueError(
            f"spectrum must be a list of positive eigenvalues, got {spectrum!r}; "
            "leave it out for those of the initial matrix"
        )
    return np.sort(values)[::-1].copy()
