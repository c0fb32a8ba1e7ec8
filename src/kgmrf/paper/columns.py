"""The recursions behind the columns of the paper's tables, where no other tracker is the same.

What was run differs from what was printed; the page "The paper, checked" says how the readings were
found.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kgmrf import _check
from kgmrf._types import Numbers
from kgmrf.baselines._contract import Arrays, BaselineTracker
from kgmrf.baselines.filters import AlphaBeta, TangentKalman
from kgmrf.geometry import orbit, so, spd


class KineticEllipse(BaselineTracker):
    """Q <- Q Exp(v);  e = Log(Q^T U);  Q <- Q Exp(alpha e);  v <- v + beta e.

    The column "K-GMRF" of the ellipse tables as it was run. U are the eigenvectors of the
    observation, with the order and signs nearest to Q, so that for d = 2 the innovation e is the
    angle between the axes modulo half a turn. Not Algorithm 1: the innovation is a logarithm, the
    position is corrected too, and nothing damps the velocity while there are data. Without data
    v <- retention v after the drift; the paper's gamma = .95 is this number.

    Parameters
    ----------
    d : int, default None
        Dimension; None takes it from the first observation.
    position_gain : float, default 0.1
        alpha, the share of the innovation that turns the estimate; as it was run.
    velocity_gain : float, default 0.05
        beta, the share that changes the velocity; as it was run.
    coast_retention : float, default 0.95
        Share of the velocity that is kept per step without data; the paper's gamma.
    spectrum : default None
        The eigenvalues, largest first; None takes those of the first observation. They never
        change.
    **options
        Settings of :class:`kgmrf.baselines.BaselineTracker`, such as n_samples and on_invalid.

    Examples
    --------
    >>> tracker = KineticEllipse()
    >>> _ = tracker.update(np.diag([2.0, 0.5]))
    >>> turned = so.exp(so.hat(np.asarray([0.2])))
    >>> found = tracker.update(turned @ np.diag([2.0, 0.5]) @ turned.T)
    >>> (found.covariance[0, 1] / 1.5).round(3).item()  # turned by a tenth of .2
    0.02
    """

    kinds = ("covariance",)

    def __init__(
        self,
        d: int | None = None,
        *,
        position_gain: float = 0.1,
        velocity_gain: float = 0.05,
        coast_retention: float = 0.95,
        spectrum: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(d, **options)
        self.position_gain = _check.in_range(position_gain, "position_gain", 0.0, 2.0)
        self.velocity_gain = _check.in_range(velocity_gain, "velocity_gain", 0.0, 4.0)
        self.coast_retention = _check.in_range(coast_retention, "coast_retention", 0.0, 1.0)
        self.spectrum = None if spectrum is None else np.sort(np.asarray(spectrum, float))[::-1]

    def _fresh_arrays(self, shape: tuple[int, ...]) -> Arrays:
        nan = np.full(shape, np.nan)
        return {"axes": nan, "rate": np.zeros(shape), "levels": nan[..., :1, :].copy()}

    def _first(self, arrays: Arrays, seen: Numbers) -> Arrays:
        axes, levels = orbit.decompose(seen)
        if self.spectrum is not None:
            levels = np.broadcast_to(self.spectrum, levels.shape)
        return {"axes": axes, "rate": np.zeros_like(seen), "levels": levels[..., None, :]}

    def _predict(self, arrays: Arrays, dt: Numbers) -> Arrays:
        turn = _turning_time(self.coast_retention, dt) * arrays["rate"]
        return {**arrays, "axes": arrays["axes"] @ so.exp(turn)}

    def _coast(self, arrays: Arrays, predicted: Arrays, dt: Numbers) -> Arrays:
        return {**predicted, "rate": self.coast_retention**dt * predicted["rate"]}

    def _correct(self, arrays: Arrays, seen: Numbers, dt: Numbers) -> Arrays:
        axes, rate = arrays["axes"], arrays["rate"]
        error = so.log(_nearest(axes.swapaxes(-1, -2) @ orbit.decompose(seen)[0]))
        # With data only the time beyond one unit is without data.
        kept = self.coast_retention ** np.maximum(dt - 1.0, 0.0)
        return {
            "axes": axes @ so.exp(self.position_gain * error),
            "rate": kept * rate + self.velocity_gain * error,
            "levels": arrays["levels"],
        }

    def _matrix(self, arrays: Arrays) -> Numbers:
        return np.asarray(orbit.compose(arrays["axes"], arrays["levels"][..., 0, :]))

    def _velocity(self, arrays: Arrays) -> Numbers:
        return arrays["rate"]


def _nearest(turn: Numbers) -> Numbers:
    """Column signs that make a rotation of Q^T U, with overlaps that are not negative."""
    overlap = np.diagonal(turn, axis1=-2, axis2=-1)
    signs = np.where(overlap < 0, -1.0, 1.0)
    improper = np.linalg.det(turn) * signs.prod(axis=-1) < 0
    least = np.arange(turn.shape[-1]) == np.abs(overlap).argmin(axis=-1)[..., None]
    signs = np.where(improper[..., None] & least, -signs, signs)
    return turn * signs[..., None, :]


class KineticRotation(BaselineTracker):
    """e = Log(S^T Z);  v <- retention v + beta e;  S <- S Exp(v + alpha e).

    The column "K-GMRF" of the camera table as it was run: the innovation is taken before the drift.
    Without data e = 0, so that v decays and S keeps turning. With ``retention=1`` and alpha - beta
    in place of alpha this is the column "Alpha-Beta", S <- S Exp(v + alpha e), v <- v + beta e: the
    two differ in the retention and by .05 in one gain, nothing else.

    Parameters
    ----------
    d : int, default None
        Dimension; None takes it from the first observation.
    position_gain : float, default 0.5
        alpha, the share of the innovation that turns the estimate; as it was run.
    velocity_gain : float, default 0.05
        beta, the share that changes the velocity; as it was run.
    retention : float, default 0.98
        Share of the velocity that is kept per step; as it was run.
    **options
        Settings of :class:`kgmrf.baselines.BaselineTracker`, such as n_samples and on_invalid.

    Examples
    --------
    >>> tracker = KineticRotation()
    >>> _ = tracker.update(np.eye(3))
    >>> found = tracker.update(so.exp(so.hat(np.asarray([0.0, 0.0, 0.2]))))
    >>> so.vee(so.log(found.rotation))[2].round(3).item()  # .55 of the way
    0.11
    """

    kinds = ("rotation",)

    def __init__(
        self,
        d: int | None = None,
        *,
        position_gain: float = 0.5,
        velocity_gain: float = 0.05,
        retention: float = 0.98,
        **options: Any,
    ) -> None:
        super().__init__(d, **options)
        self.position_gain = _check.in_range(position_gain, "position_gain", 0.0, 2.0)
        self.velocity_gain = _check.in_range(velocity_gain, "velocity_gain", 0.0, 4.0)
        self.retention = _check.in_range(retention, "retention", 0.0, 1.0)

    def _fresh_arrays(self, shape: tuple[int, ...]) -> Arrays:
        nan, zero = np.full(shape, np.nan), np.zeros(shape)
        return {"matrix": nan, "rate": zero, "before": nan.copy(), "turn": zero.copy()}

    def _first(self, arrays: Arrays, seen: Numbers) -> Arrays:
        zero = np.zeros_like(seen)
        return {"matrix": seen, "rate": zero, "before": seen, "turn": zero}

    def _predict(self, arrays: Arrays, dt: Numbers) -> Arrays:
        here, rate = arrays["matrix"], arrays["rate"]
        turn = self.retention * _turning_time(self.retention, dt) * rate
        return {
            "matrix": here @ so.exp(turn),
            "rate": self.retention**dt * rate,
            "before": here,  # what the observation is compared with
            "turn": turn,
        }

    def _correct(self, arrays: Arrays, seen: Numbers, dt: Numbers) -> Arrays:
        before = arrays["before"]
        error = so.log(before.swapaxes(-1, -2) @ seen)
        turn = arrays["turn"] + (self.position_gain + self.velocity_gain) * error
        rate = arrays["rate"] + self.velocity_gain * error
        return {**arrays, "matrix": before @ so.exp(turn), "rate": rate}

    def _velocity(self, arrays: Arrays) -> Numbers:
        return arrays["rate"]


class PrintedAlphaBeta(AlphaBeta):
    """x <- x + alpha (z - x) + v;  v <- v + beta (z - x), both from the old x: the printed order.

    Works on the entries of a covariance; the estimate may leave the cone of positive definite
    matrices. `AlphaBeta` is the order that was run: predict, then correct.

    >>> tracker = PrintedAlphaBeta(position_gain=0.4, velocity_gain=0.1)
    >>> _ = tracker.update([[2.0, 0.0], [0.0, 1.0]])
    >>> tracker.update([[3.0, 0.0], [0.0, 1.0]]).covariance[0, 0].round(3).item()
    2.4
    """

    kinds = ("covariance",)

    def _fresh_arrays(self, shape: tuple[int, ...]) -> Arrays:
        return {**super()._fresh_arrays(shape), "before": np.full(shape, np.nan)}

    def _first(self, arrays: Arrays, seen: Numbers) -> Arrays:
        return {**arrays, "matrix": seen, "before": seen}

    def _predict(self, arrays: Arrays, dt: Numbers) -> Arrays:
        return {**super()._predict(arrays, dt), "before": arrays["matrix"]}

    def _correct(self, arrays: Arrays, seen: Numbers, dt: Numbers) -> Arrays:
        error = seen - arrays["before"]
        kick = self.velocity_gain / np.where(dt > 0, dt, np.inf)
        return {
            "matrix": arrays["matrix"] + self.position_gain * error,
            "rate": self.retention * arrays["rate"] + kick * error,
            "before": arrays["before"],
        }


class LocalTangentKalman(TangentKalman):
    """A constant-velocity Kalman filter in the tangent space at the estimate M = L L^T.

    L <- L exp(v/2);  e = log(L^{-1} C L^{-T});  L <- L exp(k_1 e/2);  v <- v + k_2 e. The paper's
    words "linearized Kalman filter in tangent space T_M SPD(d)"; its numbers fit `TangentKalman`,
    whose tangent space is at the identity. The gains come from one 2 x 2 uncertainty that all
    entries share.

    position_noise, velocity_noise: variances gained per unit time. noise_std: standard deviation of
    an observed entry of the logarithm.

    >>> tracker = LocalTangentKalman()
    >>> _ = tracker.update([[1.0, 0.0], [0.0, 1.0]])
    >>> tracker.update([[1.0, 0.0], [0.0, 1.0]]).covariance.round(6)[0, 0].item()
    1.0
    """

    kinds = ("covariance",)

    def _fresh_arrays(self, shape: tuple[int, ...]) -> Arrays:
        spread = np.zeros((*shape[:-2], 3, 1, 1))
        spread[..., 0, :, :], spread[..., 2, :, :] = self.noise_std**2, self.velocity_noise
        return {"root": np.full(shape, np.nan), "rate": np.zeros(shape), "spread": spread}

    def _first(self, arrays: Arrays, seen: Numbers) -> Arrays:
        return {**arrays, "root": np.linalg.cholesky(seen)}

    def _predict(self, arrays: Arrays, dt: Numbers) -> Arrays:
        predicted = super()._predict({**arrays, "position": 0.0 * arrays["rate"]}, dt)
        root = arrays["root"] @ spd.exp(0.5 * dt * arrays["rate"])
        return {"root": root, "rate": arrays["rate"], "spread": predicted["spread"]}

    def _correct(self, arrays: Arrays, seen: Numbers, dt: Numbers) -> Arrays:
        p11, p12, p22 = (arrays["spread"][..., k, :, :] for k in range(3))
        total = p11 + self.noise_std**2
        left = self.noise_std**2 / total
        there = np.isfinite(arrays["root"]).all(axis=(-2, -1), keepdims=True)
        root = np.where(there, arrays["root"], np.eye(seen.shape[-1]))
        back = np.linalg.inv(root)
        white = back @ seen @ back.swapaxes(-1, -2)
        error = spd.log(0.5 * (white + white.swapaxes(-1, -2)))
        return {
            "root": root @ spd.exp(0.5 * p11 / total * error),
            "rate": arrays["rate"] + p12 / total * error,
            "spread": np.stack([left * p11, left * p12, p22 - p12**2 / total], axis=-3),
        }

    def _matrix(self, arrays: Arrays) -> Numbers:
        root = np.where(np.isnan(arrays["root"]), 0.0, arrays["root"])
        return root @ root.swapaxes(-1, -2)


def _turning_time(retention: float, dt: Numbers) -> Numbers:
    """(1 - rho^dt) / (1 - rho): steps' worth of turning while the velocity decays."""
    return dt if retention == 1.0 else (1.0 - retention**dt) / (1.0 - retention)
