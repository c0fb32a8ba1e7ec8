"""The Kalman filter of a vector and its velocity: drift, correction, and the way back."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from kgmrf._types import Numbers
from kgmrf.gains import InformationGains, Transition, transition
from kgmrf.results import Values
from kgmrf.smoother import walk_back


class VectorState(NamedTuple):
    """What is remembered of a vector. Shapes: ``...`` are batch axes, ``d`` the dimension.

    ============  ===============  ===============================================================
    position      (..., d)         the estimate
    velocity      (..., d)         per unit time
    uncertainty   (..., 3, d, d)   cov(position), cov(position, velocity), cov(velocity)
    known         (..., d)         1 for the components that have been seen
    time          (...)            time of the last drift
    seen          (...)            time of the last observation, NaN before the first
    ============  ===============  ===============================================================

    >>> initial_state((4, 2), np.eye(2)).position.shape
    (4, 2)
    """

    position: Numbers
    velocity: Numbers
    uncertainty: Numbers
    known: Numbers
    time: Numbers
    seen: Numbers


def initial_state(shape: tuple[int, ...], rate_prior: Numbers) -> VectorState:
    """A state at rest in which nothing is known but the spread of velocities, ``(..., d, d)``.

    >>> initial_state((2,), np.eye(2)).uncertainty[2, 0, 0].item()
    1.0
    """
    d, batch = shape[-1], shape[:-1]
    uncertainty = np.zeros((*batch, 3, d, d))
    uncertainty[..., 2, :, :] = rate_prior
    return VectorState(
        np.zeros(shape),
        np.zeros(shape),
        uncertainty,
        np.zeros(shape),
        np.zeros(batch),
        np.full(batch, np.nan),
    )


def passage(retention: float, dt: Numbers) -> Transition:
    """What a time ``dt`` (...) does to a velocity that accelerates with unit density.

    >>> passage(1.0, np.asarray(3.0)).angle
    array([9.])
    """
    return transition(InformationGains(acceleration=1.0, retention=retention), dt[..., None])


def drift(
    state: VectorState,
    dt: Numbers,
    acceleration: Numbers,
    position_noise: Numbers,
    retention: float,
    over: Transition | None = None,
) -> VectorState:
    """x <- x + turn v, v <- keep v, P <- F P F^T + noise: what a time ``dt`` (...) does.

    ``acceleration`` and ``position_noise`` are densities of covariance, ``(..., d, d)``. The noise
    of the velocity is integrated as for the angles of a frame (:func:`kgmrf.gains.transition`);
    ``over`` is the `passage` of ``dt``, if it is known already. Components that were never seen
    stay as they are.

    >>> still = initial_state((1,), np.eye(1))._replace(known=np.ones(1))
    >>> drift(still, np.asarray(3.0), np.zeros((1, 1)), np.zeros((1, 1)), 1.0).uncertainty[0].item()
    9.0
    """
    over = passage(retention, dt) if over is None else over
    turn = over.turn * state.known
    keep = 1.0 - (1.0 - over.keep) * state.known
    both = state.known[..., :, None] * state.known[..., None, :]
    walk = both * acceleration
    p11, p12, p22 = (state.uncertainty[..., k, :, :] for k in range(3))
    p12_turned = p12 * turn[..., None, :]
    turned = p12 + turn[..., :, None] * p22
    new = np.empty_like(state.uncertainty)
    new[..., 0, :, :] = (
        p11
        + p12_turned
        + np.swapaxes(p12_turned, -1, -2)
        + turn[..., :, None] * p22 * turn[..., None, :]
        + over.angle[..., None] * walk
        + dt[..., None, None] * both * position_noise
    )
    new[..., 1, :, :] = turned * keep[..., None, :] + over.cross[..., None] * walk
    new[..., 2, :, :] = keep[..., :, None] * p22 * keep[..., None, :] + over.rate[..., None] * walk
    return state._replace(
        position=state.position + turn * state.velocity,
        velocity=keep * state.velocity,
        uncertainty=new,
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

    >>> state, nis, _ = correct(initial_state((2,), np.eye(2)), np.asarray([1.0, 2.0]), np.eye(2))
    >>> state.position, nis.item()
    (array([1., 2.]), nan)
    """
    d = seen.shape[-1]
    there = ~np.isnan(seen)
    known = state.known > 0
    old, new = there & known, there & ~known
    o, n = old.astype(float), new.astype(float)
    p11, p12, p22 = (state.uncertainty[..., k, :, :] for k in range(3))
    error = np.where(old, seen - state.position, 0.0)
    # Rows and columns of what is not seen become those of the identity: one solve for all patterns.
    spread = (p11 + noise) * o[..., :, None] * o[..., None, :] + np.eye(d) * (1 - o)[..., None, :]
    a, b = o[..., :, None] * p11, o[..., :, None] * p12
    c = o[..., :, None] * noise * n[..., None, :]
    at, bt, ct = (np.swapaxes(m, -1, -2) for m in (a, b, c))
    solved = np.linalg.solve(spread, np.concatenate([a, b, c, error[..., None]], axis=-1))
    sa, sb, sc, weight = (
        solved[..., :d],
        solved[..., d : 2 * d],
        solved[..., 2 * d : 3 * d],
        solved[..., 3 * d :],
    )
    position = state.position + (at @ weight)[..., 0]
    position = np.where(new, np.where(there, seen, 0.0) - (ct @ weight)[..., 0], position)
    block = n[..., :, None] * noise * n[..., None, :]
    cross = ct @ sa
    uncertainty = np.stack(
        [
            _symmetric(p11 - at @ sa + block - ct @ sc) + cross + np.swapaxes(cross, -1, -2),
            p12 - at @ sb + ct @ sb,
            _symmetric(p22 - bt @ sb),
        ],
        axis=-3,
    )
    count = o.sum(axis=-1)
    nis = (error[..., None, :] @ weight)[..., 0, 0]
    log_det = np.linalg.slogdet(spread)[1]
    log_likelihood = -0.5 * (count * math.log(2.0 * math.pi) + log_det + nis)
    none = count == 0
    state = state._replace(
        position=position,
        velocity=state.velocity + (bt @ weight)[..., 0],
        uncertainty=uncertainty,
        known=np.maximum(state.known, n),
        seen=np.where(there.any(axis=-1), state.time, state.seen),
    )
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

    >>> run = VectorState(*(np.stack([part] * 3) for part in initial_state((2,), np.eye(2))))
    >>> smooth_vectors(run, np.ones(3), np.eye(2), np.eye(2), 1.0).position.shape
    (3, 2)
    """
    d = filtered.position.shape[-1]

    def backward(frames: slice, later: VectorState) -> VectorState:
        here = VectorState(*(field[frames] for field in filtered))
        step = dt[frames.start + 1 : frames.stop + 1]
        over = passage(retention, step)
        ahead = drift(here, step, acceleration, position_noise, retention, over)
        old, new, last = (_joint(state.uncertainty) for state in (here, ahead, later))
        known = np.concatenate([here.known, here.known], axis=-1)
        seen = known[..., :, None] * known[..., None, :]
        # P F^T, and P_predicted with the rows of what is not known yet from the identity.
        spread = np.concatenate(
            [
                old[..., :, :d] + over.turn[..., None] * old[..., :, d:],
                over.keep[..., None] * old[..., :, d:],
            ],
            axis=-1,
        )
        safe = seen * new + np.eye(2 * d) * (1.0 - known + 1e-14 * _diagonal(new))[..., None, :]
        gain = np.swapaxes(np.linalg.solve(safe, np.swapaxes(seen * spread, -1, -2)), -1, -2)
        moved = np.concatenate(
            [later.position - ahead.position, later.velocity - ahead.velocity], axis=-1
        )
        change = (gain @ (known * moved)[..., None])[..., 0]
        joint = _symmetric(old + gain @ (seen * (last - new)) @ np.swapaxes(gain, -1, -2))
        blocks = [joint[..., :d, :d], joint[..., :d, d:], joint[..., d:, d:]]
        return here._replace(
            position=here.position + change[..., :d],
            velocity=here.velocity + change[..., d:],
            uncertainty=np.stack(blocks, axis=-3),
        )

    return walk_back(filtered, backward, lag)


def _joint(uncertainty: Numbers) -> Numbers:
    """The covariance ``(..., 2 d, 2 d)`` of position and velocity."""
    p11, p12, p22 = (uncertainty[..., k, :, :] for k in range(3))
    top = np.concatenate([p11, p12], axis=-1)
    return np.concatenate([top, np.concatenate([np.swapaxes(p12, -1, -2), p22], axis=-1)], axis=-2)


def _diagonal(matrices: Numbers) -> Numbers:
    return np.diagonal(matrices, axis1=-2, axis2=-1)


def view(state: VectorState, nis: Numbers, log_likelihood: Numbers) -> Values:
    """All fields of an estimate of a vector."""
    position, velocity, spread = state.position, state.velocity, state.uncertainty[..., 0, :, :]
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
        "log_likelihood": log_likelihood,
    }


def compiled_frame(
    old: VectorState,
    seen: Numbers | None,
    dt: float,
    retention: float,
    model: Numbers,
    nothing: Numbers,
    intervals: dict[tuple[float, float], Numbers],
) -> tuple[VectorState, Numbers, Numbers] | None:
    """`drift` and `correct` of one vector, compiled; None where only a part was seen.

    model: noise, acceleration and position noise ``(3, d, d)``; intervals: those met before.
    """
    from kgmrf.kernels.vector import COASTED, PARTLY, vector_frame

    key = (dt, retention)
    if key not in intervals:
        over = passage(retention, np.asarray(dt))
        numbers = (over.turn, over.keep, over.angle, over.cross, over.rate)
        if len(intervals) > 8:  # times that never repeat must not pile up
            intervals.clear()
        intervals[key] = np.array([dt, *(float(v[0]) for v in numbers)])
    position, velocity = np.empty_like(old.position), np.empty_like(old.velocity)
    uncertainty, surprise = np.empty_like(old.uncertainty), np.empty(2)
    status = vector_frame(
        old.position,
        old.velocity,
        old.uncertainty,
        nothing if seen is None else seen,
        model,
        intervals[key],
        position,
        velocity,
        uncertainty,
        surprise,
    )
    if status == PARTLY:
        return None
    time = old.time + dt
    last = old.seen if status == COASTED else time
    state = VectorState(position, velocity, uncertainty, old.known, time, last)
    return state, surprise[0], surprise[1]


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
    return array if array.ndim == 2 else np.eye(d) * array
