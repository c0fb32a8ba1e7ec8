"""The backward pass over the Gauss-Markov chain of a finished recording, any dimension.

The online filter carries a 2 x 2 covariance of (angle, velocity) per plane and one number per log
eigenvalue; so does its smoother (Rauch, Tung and Striebel): nothing is larger than a state.
Rotations in space have a sharper one, see :mod:`kgmrf.smoothing.rotations`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kgmrf._types import Mask, Numbers
from kgmrf.geometry import so
from kgmrf.model.law_motion import drift, passage
from kgmrf.model.law_state import Model, State, select, warming
from kgmrf.model.step import covariance_step

_FIELDS = (
    *("frame", "velocity", "uncertainty", "spectrum", "spectrum_var"),
    *("log_scale", "scale_var"),
)
"""The fields of a `State` that looking back changes."""


def smooth_planes(
    filtered: State, model: Model, dt: Numbers, observed: Mask, lag: int | None = None
) -> State:
    """The filtered states ``(T, ...)`` of a run, each with what came after taken into account.

    ``dt`` and ``observed`` ``(T, ...)``: as the filter had them, interval before each frame. With
    ``lag``, state t takes into account the frames up to t + lag; lag 0 returns ``filtered``. States
    before the first observation, and those that still pool (see `smooth_warmup`), stay as they are.
    """

    def backward(frames: slice, later: State) -> State:
        after = slice(frames.start + 1, frames.stop + 1)
        return _backward(_at(filtered, frames), model, dt[after], observed[after], later)

    return walk_back(filtered, backward, lag)


def walk_back(filtered: Any, backward: Callable[[slice, Any], Any], lag: int | None) -> Any:
    """The states of a run, a named tuple of arrays ``(T, ...)``, each with the later ones known.

    backward: ``(frames, states one frame later)`` to smoothed states of these frames. With ``lag``,
    state t knows of those up to t + lag.
    """
    kind, n = type(filtered), len(filtered[0])
    if n == 1 or lag == 0:
        return filtered
    if lag is None or lag >= n - 1:
        states = [_at(filtered, slice(n - 1, n))]
        for t in range(n - 2, -1, -1):
            states.append(backward(slice(t, t + 1), states[-1]))
        return kind(*(np.concatenate(field[::-1]) for field in zip(*states, strict=True)))
    # All windows at once: window t begins at the end of its lag and walks back to t.
    windows = _at(filtered, np.minimum(np.arange(n) + lag, n - 1))
    for j in range(lag, 0, -1):
        live = slice(0, n - j)  # windows that walk from t + j to t + j - 1
        stepped = backward(slice(j - 1, n - 1), _at(windows, live))
        windows = kind(
            *(np.concatenate([a, b[n - j :]]) for a, b in zip(stepped, windows, strict=True))
        )
    return windows


def smooth_warmup(
    smoothed: State, model: Model, observations: Numbers, n_samples: Numbers, dt: Numbers
) -> State:
    """The frames of a cold start, by running the filter backwards from where pooling ended.

    Pooling finds where to begin but leaves the prior wide, so that the pooled observations have
    not been counted yet. A recording that ends while pooling gets the last pool throughout.
    Shapes: observations ``(T, ..., d, d)`` (NaN where missing), the rest ``(T, ...)``.
    """
    n, shape = smoothed.time.shape[0], smoothed.time.shape
    waiting: Mask = np.asarray(warming(smoothed, model)) & ~np.isnan(smoothed.seen)
    if not waiting.any():
        return smoothed
    rank = np.arange(1, n + 1).reshape((n,) + (1,) * (len(shape) - 1))
    ends = np.max(np.where(waiting, rank, 0), axis=0)  # of pooling; 0: there was none
    out = State(*(np.array(field) for field in smoothed))
    present = ~np.isnan(observations[..., 0, 0])
    state = _reversed(_at(smoothed, n - 1))
    for t in range(int(ends.max()) - 1, -1, -1):
        if t + 1 < n:
            state = select(ends == t + 1, _reversed(_at(smoothed, t + 1)), state)
            live = waiting[t] & (ends < n)
            here = present[t] & live
            seen = np.where(here[..., None, None], observations[t], np.eye(out.frame.shape[-1]))
            stepped, _ = covariance_step(state, model, seen, n_samples[t], dt[t + 1], here)
            state = select(live, stepped, state)
        chosen = select(waiting[t], _reversed(state), _at(out, t))
        for name in _FIELDS:
            getattr(out, name)[t] = getattr(chosen, name)
    return out


def _reversed(state: State) -> State:
    """The same state with time running the other way."""
    p = state.uncertainty * np.array([1.0, -1.0, 1.0])[:, None, None]
    return state._replace(velocity=-state.velocity, uncertainty=p)


def _backward(here: State, model: Model, dt: Numbers, observed: Mask, later: State) -> State:
    """One step of Rauch, Tung and Striebel, in every plane and for every eigenvalue.

    dt, observed: of the frames after those of ``here``, whose states ``later`` are known.

    P F^T = [[s (a11 + h a12), r a12], [s (a12 + h a22), r a22]] with h the turning time, r the
    retention of the velocity, and s below 1 where an angle was kept within the circle; errors are
    Log(Q_predicted^T Q_later), in the body frame.
    """
    advanced = ~np.isnan(here.seen) & ~np.asarray(warming(here, model))
    over = passage(model.gains, dt, here.frame)
    still = here._replace(spectrum=np.where(np.isnan(here.spectrum), 1.0, here.spectrum))
    ahead, h = drift(still, model, dt, observed, over), over.turn
    r = np.where(observed[..., None, None], np.asarray(over.keep), np.asarray(over.coast))
    a11, a12, a22 = (here.uncertainty[..., k, :, :] for k in range(3))
    b11, b12, b22 = (ahead.uncertainty[..., k, :, :] for k in range(3))
    det = b11 * b22 - b12**2
    ok = det > 0
    safe = np.where(ok, det, 1.0)
    wide = a11 + 2.0 * h * a12 + h**2 * a22 + over.angle
    s = np.sqrt(np.minimum(_ratio(b11, wide), 1.0))
    u11, u12, u21, u22 = s * (a11 + h * a12), r * a12, s * (a12 + h * a22), r * a22
    c11 = np.where(ok, (u11 * b22 - u12 * b12) / safe, 0.0)
    c12 = np.where(ok, (u12 * b11 - u11 * b12) / safe, 0.0)
    c21 = np.where(ok, (u21 * b22 - u22 * b12) / safe, 0.0)
    c22 = np.where(ok, (u22 * b11 - u21 * b12) / safe, 0.0)
    moves = advanced[..., None, None]
    gap = np.swapaxes(ahead.frame, -1, -2) @ later.frame
    angle = so.log(np.where(moves, gap, np.eye(gap.shape[-1])))
    speed = later.velocity - ahead.velocity
    d11, d12, d22 = (
        later.uncertainty[..., k, :, :] - ahead.uncertainty[..., k, :, :] for k in range(3)
    )
    p = [
        np.maximum(a11 + c11 * (c11 * d11 + c12 * d12) + c12 * (c11 * d12 + c12 * d22), 0.0),
        a12 + c11 * (c21 * d11 + c22 * d12) + c12 * (c21 * d12 + c22 * d22),
        np.maximum(a22 + c21 * (c21 * d11 + c22 * d12) + c22 * (c21 * d12 + c22 * d22), 0.0),
    ]
    smoothed = here._replace(
        frame=so.polish(here.frame @ so.exp(c11 * angle + c12 * speed)),
        velocity=here.velocity + c21 * angle + c22 * speed,
        uncertainty=np.stack(p, axis=-3),
    )
    # The clocks beside the frame: random walks of the log eigenvalues, a decaying log scale.
    level = here.spectrum + model.noise_floor
    gain = _ratio(here.spectrum_var, ahead.spectrum_var)
    log_later = np.log(later.spectrum + model.noise_floor)
    level = level * np.exp(gain * (log_later - np.log(level)))
    spectrum = np.maximum(level - model.noise_floor, 1e-12 * level.max(axis=-1, keepdims=True))
    pull = model.scale_retention**dt * _ratio(here.scale_var, ahead.scale_var)
    smoothed = smoothed._replace(
        spectrum=np.where(gain > 0, spectrum, here.spectrum),
        spectrum_var=here.spectrum_var + gain**2 * (later.spectrum_var - ahead.spectrum_var),
        log_scale=here.log_scale + pull * (later.log_scale - ahead.log_scale),
        scale_var=here.scale_var + pull**2 * (later.scale_var - ahead.scale_var),
    )
    return select(advanced, smoothed, here)


def _ratio(part: Numbers, whole: Numbers) -> Numbers:
    return np.where(whole > 0, part / np.where(whole > 0, whole, 1.0), 0.0)


def _at(state: Any, frames: Any) -> Any:
    return type(state)(*(field[frames] for field in state))
