"""The Gauss-Markov random field of a plane: all its angles and velocities as one sparse Gaussian.

The states x_t = (angle, velocity) of a run obey x_{t+1} = F_t x_t + noise of covariance Q_t, and an
observation y_t of the angle has variance R_t. Their joint density is exp(-x^T J x / 2 + b^T x) with
a precision J that couples neighbours in time only:

    J_tt = [t=0] P0^-1 + [t<n-1] F_t^T Q_t^-1 F_t + [t>0] Q_{t-1}^-1 + H^T H / R_t,
    J_{t,t+1} = -F_t^T Q_t^-1,    b_t = H^T y_t / R_t  (+ P0^-1 x_0 at t = 0),    H = (1, 0).

Zeros elsewhere mean: given its neighbours, a frame is independent of all others. That is what
"Gauss-Markov random field" says. J = L L^T costs O(n), and L has the same band. The solution is the
Rauch-Tung-Striebel smoother's, the blocks of the inverse are its covariances, and the last frame
of a shorter run is the filter's.

All functions take any number of planes at once: time comes first, then the planes.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kgmrf.model.gains import InformationGains, transition

__all__ = ["Chain", "Precision", "chain", "log_evidence", "marginals", "precision", "solve"]

Array = NDArray[np.float64]
IMPROPER = "the field is improper: give it a prior, or observe at least two frames"


class Chain(NamedTuple):
    """The model of n frames: F and Q (n-1, ..., 2, 2), R (n, ...), P0 (..., 2, 2) or None.

    R is infinite where nothing is observed. P0 None leaves the start free: an improper prior.
    """

    transition: Array
    noise: Array
    variance: Array
    prior: Array | None = None


class Precision(NamedTuple):
    """J, block tridiagonal: blocks J_tt (n, ..., 2, 2) and J_{t+1,t} (n-1, ..., 2, 2)."""

    diagonal: Array
    below: Array

    def dense(self) -> Array:
        """All of J, (..., 2n, 2n): to look at, not to compute with.

        >>> precision(chain(InformationGains(1.0), np.ones(3))).dense().shape
        (6, 6)
        """
        n = len(self.diagonal)
        full = np.zeros((*self.diagonal.shape[1:-2], n, 2, n, 2))
        for t in range(n):
            full[..., t, :, t, :] = self.diagonal[t]
            if t + 1 < n:
                full[..., t + 1, :, t, :] = self.below[t]
                full[..., t, :, t + 1, :] = np.swapaxes(self.below[t], -1, -2)
        return full.reshape(*full.shape[:-4], 2 * n, 2 * n)


def chain(
    law: InformationGains,
    variance: ArrayLike,
    *,
    dt: ArrayLike = 1.0,
    proper: bool = True,
) -> Chain:
    """F = [[1, turn], [0, retention]], Q = [[angle, cross], [cross, rate]]: a law as a field.

    variance: (n, ...) R_t of the observed angle, d_i d_j / (m (lam_i - lam_j)^2) for the plane (i,
    j) of a covariance; inf where there is none. dt: a number, or (n-1,) for the intervals between
    frames. proper: begin with the law's priors of angle and velocity; False leaves the start free.

    >>> model = chain(InformationGains(acceleration=3.0), [0.1, 0.1, np.inf])
    >>> model.noise[0]
    array([[1. , 1.5],
           [1.5, 3. ]])
    """
    r = np.asarray(variance, dtype=np.float64)
    if r.ndim < 1 or not (r > 0).all():
        raise ValueError(f"variance must be positive with time first, got shape {r.shape}")
    steps = np.broadcast_to(np.asarray(dt, dtype=np.float64), (len(r) - 1,))
    over = transition(law, steps)
    shape = (len(r) - 1, *(1,) * (r.ndim - 1), 2, 2)
    full = (len(r) - 1, *r.shape[1:], 2, 2)

    def blocks(*entries: Any) -> Array:
        table = np.stack([x + 0.0 * steps for x in entries], -1)
        return np.broadcast_to(table.reshape(shape), full)

    noise = blocks(over.angle, over.cross, over.cross, over.rate)
    if not (np.linalg.det(noise) > 0).all():
        raise ValueError("the noise of a step is singular: the law needs an acceleration above 0")
    prior = np.diag(np.array([law.angle_prior, law.rate_prior], dtype=np.float64))
    return Chain(
        blocks(1.0, over.turn, 0.0, over.keep),
        noise,
        r,
        np.broadcast_to(prior, (*r.shape[1:], 2, 2)) if proper else None,
    )


def precision(model: Chain, *, observed: bool = True) -> Precision:
    """J of the module's formula; ``observed=False`` leaves out the observations: the prior's.

    >>> J = precision(chain(InformationGains(1.0, retention=0.9), np.full(4, 0.5)))
    >>> (np.abs(J.dense()) > 0).astype(int)
    array([[1, 1, 1, 1, 0, 0, 0, 0],
           [1, 1, 1, 1, 0, 0, 0, 0],
           [1, 1, 1, 1, 1, 1, 0, 0],
           [1, 1, 1, 1, 1, 1, 0, 0],
           [0, 0, 1, 1, 1, 1, 1, 1],
           [0, 0, 1, 1, 1, 1, 1, 1],
           [0, 0, 0, 0, 1, 1, 1, 1],
           [0, 0, 0, 0, 1, 1, 1, 1]])
    """
    inverse = np.linalg.inv(model.noise)
    diagonal = np.zeros((*model.variance.shape, 2, 2))
    if observed:
        diagonal[..., 0, 0] = 1.0 / model.variance
    weighted = inverse @ model.transition
    diagonal[:-1] += np.swapaxes(model.transition, -1, -2) @ weighted
    diagonal[1:] += inverse
    if model.prior is not None:
        diagonal[0] += np.linalg.inv(model.prior)
    diagonal = 0.5 * (diagonal + np.swapaxes(diagonal, -1, -2))
    return Precision(diagonal, -weighted)


def _factor(J: Precision) -> Precision:
    """L with J = L L^T, in blocks: lower triangles (n, ..., 2, 2) and what is below them."""
    try:
        triangles, below = [np.linalg.cholesky(J.diagonal[0])], []
        for t in range(1, len(J.diagonal)):
            # L_{t,t-1} = J_{t,t-1} L_{t-1,t-1}^{-T}
            part = np.swapaxes(
                np.linalg.solve(triangles[-1], np.swapaxes(J.below[t - 1], -1, -2)), -1, -2
            )
            rest = J.diagonal[t] - part @ np.swapaxes(part, -1, -2)
            triangles.append(np.linalg.cholesky(rest))
            below.append(part)
    except np.linalg.LinAlgError:
        raise ValueError(IMPROPER) from None
    return Precision(np.stack(triangles), np.stack(below) if below else J.below)


def _solve(J: Precision, b: Array) -> Array:
    """J^-1 b for b (n, ..., 2): down with L, up with L^T."""
    L = _factor(J)
    down: list[Array] = []
    for t, right in enumerate(b[..., None]):
        rest = right - L.below[t - 1] @ down[-1] if down else right
        down.append(np.linalg.solve(L.diagonal[t], rest))
    up: list[Array] = []
    for t in range(len(b) - 1, -1, -1):
        rest = down[t] - np.swapaxes(L.below[t], -1, -2) @ up[-1] if up else down[t]
        up.append(np.linalg.solve(np.swapaxes(L.diagonal[t], -1, -2), rest))
    return np.stack(up[::-1])[..., 0]


def _seen(model: Chain, observations: ArrayLike) -> tuple[Array, Array]:
    """The angles with 0 where there is none, and 1/R with 0 there."""
    y = np.asarray(observations, dtype=np.float64)
    if y.shape != model.variance.shape:
        raise ValueError(f"observations of shape {y.shape} for a chain of {model.variance.shape}")
    there = ~np.isnan(y) & np.isfinite(model.variance)
    if (np.isnan(y) & np.isfinite(model.variance)).any():
        raise ValueError("an observation is NaN where its variance is finite; make it inf there")
    return np.where(there, y, 0.0), np.where(there, 1.0 / model.variance, 0.0)


def solve(model: Chain, observations: ArrayLike, start: ArrayLike | None = None) -> Array:
    """x = J^-1 b: the smoothed angles and velocities, (n, ..., 2), from angles y (n, ...).

    ``start`` (..., 2) is the prior's mean, zero by default. With a proper prior this is the
    Rauch-Tung-Striebel smoother; without one, least squares.

    >>> model = chain(InformationGains(acceleration=1e-4), np.full(5, 0.01), proper=False)
    >>> solve(model, 0.1 * np.arange(5)).round(6)[:, 1]
    array([0.1, 0.1, 0.1, 0.1, 0.1])
    """
    y, information = _seen(model, observations)
    b = np.zeros((*y.shape, 2))
    b[..., 0] = y * information
    if start is not None:
        if model.prior is None:
            raise ValueError("a chain without a prior has no start")
        mean = np.broadcast_to(np.asarray(start, dtype=np.float64), b.shape[1:])
        b[0] += (np.linalg.inv(model.prior) @ mean[..., None])[..., 0]
    return _solve(precision(model), b)


def marginals(model: Chain) -> Array:
    """(J^-1)_tt: the covariance of angle and velocity in every frame, (n, ..., 2, 2).

    From the last frame back, S_tt = L_tt^-T (I + E^T S_{t+1,t+1} E) L_tt^-1 with E = L_{t+1,t}: the
    rest of the inverse, which is full, is never formed.

    >>> marginals(chain(InformationGains(acceleration=1e-4), np.full(3, 0.01))).shape
    (3, 2, 2)
    """
    L = _factor(precision(model))
    found: list[Array] = []
    eye = np.eye(2)
    for t in range(len(L.diagonal) - 1, -1, -1):
        middle = eye
        if found:
            E = L.below[t]
            middle = eye + np.swapaxes(E, -1, -2) @ found[-1] @ E
        inverse = np.linalg.inv(L.diagonal[t])
        found.append(np.swapaxes(inverse, -1, -2) @ middle @ inverse)
    return np.stack(found[::-1])


def log_evidence(model: Chain, observations: ArrayLike, start: ArrayLike | None = None) -> Any:
    """log p(y) = -(1/2) [sum log 2 pi R_t + log|J| - log|J_prior| + residuals], for each plane.

    The residuals are sum (y_t - H x_t)^2 / R_t + |x_{t+1} - F x_t|^2_{Q^-1} + |x_0 -
    start|^2_{P0^-1} at the solution x. The shorter y^T R^-1 y - b^T J^-1 b is the same number as
    the difference of two large ones, and loses half its digits.

    Shapes: y (n, ...) -> (...). Needs a proper prior.

    >>> law = InformationGains(acceleration=1e-4)
    >>> round(float(log_evidence(chain(law, [0.25]), [0.0])), 6)  # N(0; 0, 0.25 + 0.25)
    -0.572365
    """
    if model.prior is None:
        raise ValueError("evidence needs a proper prior")
    y, information = _seen(model, observations)
    x = solve(model, observations, start)
    total = (information * (y - x[..., 0]) ** 2).sum(0)
    there = information > 0
    total = total - np.log(np.where(there, information, 1.0)).sum(0)
    total = total + there.sum(0) * math.log(2 * math.pi)
    steps = x[1:] - (model.transition @ x[:-1][..., None])[..., 0]
    total = total + (steps * np.linalg.solve(model.noise, steps[..., None])[..., 0]).sum((0, -1))
    first = x[0] - (0.0 if start is None else np.asarray(start, dtype=np.float64))
    total = total + (first * np.linalg.solve(model.prior, first[..., None])[..., 0]).sum(-1)
    # |J_prior| is the product of |P0^-1| and all |Q_t^-1|: no second factorisation is needed.
    L = _factor(precision(model)).diagonal
    diagonal = np.diagonal(L, axis1=-2, axis2=-1)
    total = total + 2 * np.log(diagonal).sum((0, -1))
    total = total + np.log(np.linalg.det(model.noise)).sum(0) + np.log(np.linalg.det(model.prior))
    return -0.5 * total
