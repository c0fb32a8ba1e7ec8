"""The Kalman filter of a vector and its velocity: drift, correction, and the way back."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from kgmrf._types import Numbers
from kgmrf.model.gains import InformationGains, transition
from kgmrf.model.tail import chi_squared_tail
from kgmrf.results import Values
from kgmrf.smoothing.law import walk_back


class VectorState(NamedTuple):
    """What is remembered of a vector. Shapes: ``...`` are batch axes, ``d`` the dimension.

    ============  ================  ==============================================================
    mean          (..., 2 d)        position, then velocity per unit time
    covariance    (..., 2 d, 2 d)   of the errors of both
    known         (..., d)          1 for the components that have been seen
    time          (...)             time of the last drift
    seen          (...)             time of the last observation, NaN before the first
    ============  ================  ==============================================================
    """

    mean: Numbers
    covariance: Numbers
    known: Numbers
    time: Numbers
    seen: Numbers

    @property
    def position(self) -> Numbers:
        """The estimate, (..., d)."""
        return self.mean[..., : self.known.shape[-1]]

    @property
    def velocity(self) -> Numbers:
        """Per unit time, (..., d)."""
        return self.mean[..., self.known.shape[-1] :]

    @property
    def spread(self) -> Numbers:
        """Covariance of the position, (..., d, d)."""
        d = self.known.shape[-1]
        return self.covariance[..., :d, :d]


def initial_state(shape: tuple[int, ...], rate_prior: Numbers) -> VectorState:
    """A state at rest in which nothing is known but the spread of velocities, ``(..., d, d)``."""
    d, batch = shape[-1], shape[:-1]
    mean, nan = np.zeros((*batch, 2 * d)), np.full(batch, np.nan)
    joint = joined(batch, np.zeros((d, d)), 0.0, rate_prior)
    return VectorState(mean, joint, np.zeros(shape), np.zeros(batch), nan)


def joined(batch: tuple[int, ...], first: Numbers, cross: Any, last: Any) -> Numbers:
    """[[first, cross], [cross^T, last]], ``(..., 2 d, 2 d)``, of symmetric (d, d) blocks."""
    d = first.shape[-1]
    out = np.empty((*batch, 2 * d, 2 * d))
    out[..., :d, :d], out[..., :d, d:] = first, cross
    out[..., d:, :d], out[..., d:, d:] = cross, last
    return out


def motion(
    retention: float, dt: Numbers, known: Numbers, acceleration: Numbers, position_noise: Numbers
) -> tuple[Numbers, Numbers]:
    """What a time ``dt`` (...) does: x <- push x, P <- push P push^T + noise, ``(..., 2 d, 2 d)``.

    Push is [[1, turn], [0, keep]]. ``acceleration`` and ``position_noise`` are densities of
    covariance, ``(..., d, d)``. The noise of the velocity is integrated as for the angles of a
    frame (:func:`kgmrf.model.gains.transition`). Components that are not ``known`` (..., d) stay as
    they are.
    """
    over = transition(InformationGains(acceleration=1.0, retention=retention), dt[..., None])
    batch, d = dt.shape, known.shape[-1]
    eye, both = np.eye(d), known[..., :, None] * known[..., None, :]
    keep = 1.0 - (1.0 - over.keep) * known
    push = joined(batch, eye, (over.turn * known)[..., None] * eye, keep[..., None] * eye)
    push[..., d:, :d] = 0.0
    walk = both * acceleration
    angle, cross, rate = (part[..., None] * walk for part in (over.angle, over.cross, over.rate))
    angle = angle + dt[..., None, None] * both * position_noise
    return push, joined(batch, angle, cross, rate)


def drift(state: VectorState, dt: Numbers, over: tuple[Numbers, Numbers]) -> VectorState:
    """The state after a time ``dt`` (...), whose `motion` is ``over``."""
    push, noise = over
    return state._replace(
        mean=(push @ state.mean[..., None])[..., 0],
        covariance=push @ state.covariance @ np.swapaxes(push, -1, -2) + noise,
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
    """
    d, there = seen.shape[-1], ~np.isnan(seen)
    old = (there & (state.known > 0)).astype(float)
    new = there - old
    mean, covariance = state.mean.copy(), state.covariance.copy()
    mean[..., :d] = np.where(new > 0, seen, state.position)
    covariance[..., :d, :d] += new[..., :, None] * noise * new[..., None, :]
    # Covariance of the state with what is seen: x_new is y_new less its noise.
    shared = state.covariance[..., :d] * old[..., None, :]
    shared[..., :d, :] -= new[..., :, None] * noise * old[..., None, :]
    # Rows and columns of what is not seen become those of the identity: one solve for all patterns.
    spread = (state.spread + noise) * old[..., :, None] * old[..., None, :]
    spread = spread + np.eye(d) * (1.0 - old)[..., None, :]
    error = np.where(old > 0, seen - state.position, 0.0)[..., None]
    back = np.swapaxes(shared, -1, -2)
    solved = np.linalg.solve(spread, np.concatenate([back, error], axis=-1))
    nis = (np.swapaxes(error, -1, -2) @ solved[..., -1:])[..., 0, 0]
    count = old.sum(axis=-1)
    log_det = np.linalg.slogdet(spread)[1]
    log_likelihood = -0.5 * (count * math.log(2.0 * math.pi) + log_det + nis)
    state = state._replace(
        mean=mean + (shared @ solved[..., -1:])[..., 0],
        covariance=_symmetric(covariance - shared @ solved[..., :-1]),
        known=np.maximum(state.known, new),
        seen=np.where(there.any(axis=-1), state.time, state.seen),
    )
    none = count == 0
    return state, np.where(none, np.nan, nis), np.where(none, np.nan, log_likelihood)


def _symmetric(matrix: Numbers) -> Numbers:
    return 0.5 * (matrix + np.swapaxes(matrix, -1, -2))


def smooth_vectors(
    filtered: VectorState,
    dt: Numbers,
    acceleration: Numbers,
    position_noise: Numbers,
    retention: float,
    lag: int | None = None,
) -> VectorState:
    """x += C (x_later - x_predicted), C = P F^T P_predicted^{-1}: Rauch, Tung and Striebel.

    filtered: the states of a run, time first; dt ``(T, ...)``: the interval before each. With
    ``lag``, state t knows the frames up to t + lag. Components stay as they are before they are
    first seen.
    """

    def backward(frames: slice, later: VectorState) -> VectorState:
        here = VectorState(*(field[frames] for field in filtered))
        step = dt[frames.start + 1 : frames.stop + 1]
        over = motion(retention, step, here.known, acceleration, position_noise)
        ahead = drift(here, step, over)
        known = np.concatenate([here.known, here.known], axis=-1)
        both = known[..., :, None] * known[..., None, :]
        size = np.diagonal(ahead.covariance, axis1=-2, axis2=-1)
        # The rows of what is not known yet come from the identity.
        safe = (
            both * ahead.covariance
            + np.eye(known.shape[-1]) * ((1.0 - known + 1e-14 * size)[..., None, :])
        )
        gain = np.swapaxes(np.linalg.solve(safe, both * (over[0] @ here.covariance)), -1, -2)
        change = both * (later.covariance - ahead.covariance)
        return here._replace(
            mean=here.mean + (gain @ (known * (later.mean - ahead.mean))[..., None])[..., 0],
            covariance=_symmetric(here.covariance + gain @ change @ np.swapaxes(gain, -1, -2)),
        )

    return walk_back(filtered, backward, lag)


def view(
    state: VectorState, nis: Numbers, log_likelihood: Numbers, values: Numbers | float = 0.0
) -> Values:
    """All fields of an estimate of a vector; values: how many numbers `nis` is the sum of."""
    position, velocity, spread = state.position, state.velocity, state.spread
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
        "p_value": chi_squared_tail(nis, values),
        "log_likelihood": log_likelihood,
    }


def spreads(value: Any, name: str, positive: bool = False) -> Any:
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


def as_matrix(value: Any, d: int) -> Numbers:
    """A setting as a (d, d) matrix."""
    array = np.asarray(value, dtype=float)
    return array if array.ndim >= 2 else np.eye(d) * array
