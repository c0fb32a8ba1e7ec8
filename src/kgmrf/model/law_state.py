"""What a single law remembers of a track, the settings of its step, and where a track starts."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from array_api_compat import array_namespace, device

from kgmrf._types import Array
from kgmrf.constants import SMALLEST_SPECTRUM as SMALLEST_SPECTRUM
from kgmrf.model.gains import FixedGains, Gains, as_array

INTEGRATORS = ("exponential", "cayley", "cayley_neumann")
"""Maps from a turn W to the rotation that drifts the frame; the last with three terms.

The Cayley maps turn each plane by 2 arctan(w/2) instead of w, and Cayley-Neumann is a rotation only
up to the next polish: they are the paper's, for comparison.
"""


class State(NamedTuple):
    """What a tracker remembers. Shapes: ``...`` are batch axes, ``d`` the dimension.

    ========================  ===============  ==================================================
    frame                     (..., d, d)      orthonormal eigenframe Q, det +1 (or the rotation)
    spectrum                  (..., d)         eigenvalues of M, in the order of the frame's columns
    velocity                  (..., d, d)      angular velocity W in the body frame, skew
    uncertainty               (..., 3, d, d)   var(angle), cov(angle, velocity), var(velocity)
    spectrum_var              (..., d)         variance of the log of the observed eigenvalues
    log_scale                 (...)            s in S = e^s Q diag(spectrum) Q^T (scale clock)
    scale_var                 (...)            variance of log_scale
    pool                      (..., d, d)      mean of the observations pooled at the cold start
    pooled_samples              (...)            how many samples that mean holds
    pooled_steps               (...)            how many frames it holds
    time                      (...)            time of the last drift
    seen                      (...)            time of the last observation, NaN before the first
    steps                     (...)            number of drifts (for polishing)
    ========================  ===============  ==================================================
    """

    frame: Array
    spectrum: Array
    velocity: Array
    uncertainty: Array
    spectrum_var: Array
    log_scale: Array
    scale_var: Array
    pool: Array
    pooled_samples: Array
    pooled_steps: Array
    time: Array
    seen: Array
    steps: Array


class Model(NamedTuple):
    """The settings of a step: a gain law and the clocks beside it.

    ``noise_floor`` is sigma^2 of the observation model M + sigma^2 I. ``spectrum_rate`` is the
    variance that the log eigenvalues gain per unit time (0: the paper's fixed spectrum).
    ``scale_rate`` does the same for the log scale (0: no scale clock); ``scale_retention`` pulls
    the log scale back to 0 per unit time. The cold start pools until ``pool_samples`` samples or
    ``pool_steps`` frames are in, and takes the eigenvalues from ``known_spectrum`` if given.
    ``turn_bound`` (radians per frame) promises about how far a frame turns at most, so that no
    branch looks at the data and the step can be traced into a graph; faster turns stay rotations
    but lose digits. ``integrator``: one of `INTEGRATORS`, the map of the drift. "split"
    drifts as a rigid body does, of the inertia (G^2 + ridge) / (d_i d_j B) with which a kick is a
    torque; fixed gains only. ``limit`` shrinks an observation whose sum of C~_ii / d_i is more than
    that many times d (an outlier, a change of units); ``rate_limit`` bounds var(velocity) in a
    drift.
    """

    gains: Gains
    noise_floor: float = 0.0
    spectrum_rate: Array = 0.0
    scale_rate: float = 0.0
    scale_retention: float = 1.0
    pool_samples: float = 0.0
    pool_steps: float = 0.0
    known_spectrum: Array | None = None
    turn_bound: float | None = None
    integrator: str = "exponential"
    limit: float = math.inf
    rate_limit: float = math.inf


class Surprise(NamedTuple):
    """How an observation compares with its prediction; NaN where there was nothing to compare."""

    nis: Array
    log_likelihood: Array


def initial_state(frame: Array, spectrum: Array, gains: Gains) -> State:
    """A state at time 0 that stands still at ``frame`` and ``spectrum`` and is not warming up.

    Shapes: frame ``(..., d, d)``, spectrum ``(..., d)``.
    """
    xp = array_namespace(frame, spectrum)
    batch = spectrum[..., 0]
    return State(
        frame=frame,
        spectrum=spectrum,
        velocity=xp.zeros_like(frame),
        uncertainty=prior_uncertainty(frame, gains),
        spectrum_var=xp.zeros_like(spectrum),
        log_scale=xp.zeros_like(batch),
        scale_var=xp.zeros_like(batch),
        pool=xp.zeros_like(frame),
        pooled_samples=xp.full_like(batch, math.inf),
        pooled_steps=xp.full_like(batch, math.inf),
        time=xp.zeros_like(batch),
        seen=xp.full_like(batch, math.nan),
        steps=xp.zeros_like(batch),
    )


def cold_state(like: Array, gains: Gains) -> State:
    """A state that knows nothing yet and will pool its first observations.

    Shapes: ``like`` is any array ``(..., d, d)`` of the wanted shape, dtype and namespace.
    """
    xp = array_namespace(like)
    eye = 1.0 - off_diagonal(xp, like) + xp.zeros_like(like)
    state = initial_state(eye, xp.full_like(like[..., 0], math.nan), gains)
    none = xp.zeros_like(state.time)
    return state._replace(pooled_samples=none, pooled_steps=none)


def prior_uncertainty(frame: Array, gains: Gains) -> Array:
    """P at the start of every plane, ``(..., 3, d, d)``: priors of angle and rate, uncorrelated."""
    xp = array_namespace(frame)
    zero = xp.zeros_like(frame)
    if isinstance(gains, FixedGains):
        return xp.stack([zero, zero, zero], axis=-3)
    off = off_diagonal(xp, frame)
    angle = spread(xp, gains.angle_prior, frame) * off + zero
    rate = spread(xp, gains.rate_prior, frame) * off + zero
    return xp.stack([angle, zero, rate], axis=-3)


def off_diagonal(xp: Array, like: Array) -> Array:
    """1 - I, in the dtype of ``like``."""
    index = xp.arange(like.shape[-1], device=device(like))
    return xp.astype(index[:, None] != index, like.dtype)


def spread(xp: Array, number: Array, like: Array) -> Array:
    """A law's number as an array that broadcasts over planes: batch-shaped numbers get two axes."""
    value = as_array(xp, number, like)
    if value.ndim >= 2 and value.shape[-2:] == like.shape[-2:]:
        return value
    return value[..., None, None]


def warming(state: State, model: Model) -> Array:
    """Whether the state still pools its first observations, ``(...)``."""
    return (state.pooled_samples < model.pool_samples) & (state.pooled_steps < model.pool_steps)


def support(state: State) -> Array:
    """How many samples the estimated eigenvalues are worth, ``(...)``, from .01 to 1e9.

    The log of an eigenvalue seen through n samples has variance 2 / n. Even known eigenvalues are
    not worth more: a regression needs a trace of doubt where channels are copies of one another.
    """
    xp = array_namespace(state.spectrum_var)
    variance = xp.mean(state.spectrum_var, axis=-1)
    known = (variance > 0) & xp.isfinite(variance)
    n = 2.0 / xp.where(known, variance, xp.ones_like(variance))
    n = xp.where(known, n, xp.where(variance == 0, xp.full_like(n, 1e9), xp.zeros_like(n)))
    return xp.clip(n, 0.01, 1e9)


def select(condition: Array, yes: Any, no: Any) -> Any:
    """Item by item of the batch: the state ``yes`` where ``condition`` holds, else ``no``.

    States are named tuples of arrays that begin with the axes of the condition.
    """
    xp = array_namespace(yes[0])

    def choose(new: Array, old: Array) -> Array:
        if new is old:
            return old
        extra = new.ndim - condition.ndim
        return xp.where(xp.reshape(condition, condition.shape + (1,) * extra), new, old)

    return type(yes)(*(choose(new, old) for new, old in zip(yes, no, strict=True)))
