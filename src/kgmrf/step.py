"""How things move: one step, four verbs, written once.

    drift    Q <- Q Exp(turn W);  P <- F P F^T + process noise
    measure  residual, sensitivity and noise of every plane
    correct  Q <- Q Exp(A w)
    kick     W <- W + B w

A covariance observation and a rotation observation differ only in `measure`; a gain law differs
only in A and B. Everything is batched over leading axes and written in the array API standard, so
the same lines run on numpy and, with gradients, on torch.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from array_api_compat import array_namespace, device

from kgmrf._types import Array
from kgmrf.gains import (
    ANGLE_VARIANCE_LIMIT,
    FixedGains,
    Gains,
    InformationGains,
    Transition,
    as_array,
    transition,
)
from kgmrf.geometry import orbit, so
from kgmrf.geometry.orbit import RELATIVE_RIDGE
from kgmrf.geometry.split import free_turn

POLISH_EVERY = 16
"""Steps between two Newton-Schulz polishes of the frame: keeps |Q^T Q - I| at rounding level."""

CORRELATION_LIMIT = 1.0 - 1e-6
"""Largest correlation of angle and velocity that the uncertainty may hold."""

INTEGRATORS = ("exponential", "cayley", "cayley_neumann")
"""Maps from a turn W to the rotation that drifts the frame; the last with three terms.

The Cayley maps turn each plane by 2 arctan(w/2) instead of w, and Cayley-Neumann is a rotation only
up to the next polish: they are the paper's, for comparison.
"""

SMALLEST_SPECTRUM = 1e-12
"""Eigenvalues are kept above this share of the largest, so that logarithms exist.

In single precision the share is 16 times the rounding unit: less is noise, and its square nothing.
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
    pool_samples              (...)            how many samples that mean holds
    pool_frames               (...)            how many frames it holds
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
    pool_samples: Array
    pool_frames: Array
    time: Array
    seen: Array
    steps: Array


class Model(NamedTuple):
    """The settings of a step: a gain law and the clocks beside it.

    ``noise_floor`` is sigma^2 of the observation model M + sigma^2 I. ``spectrum_rate`` is the
    variance that the log eigenvalues gain per unit time (0: the paper's fixed spectrum).
    ``scale_rate`` does the same for the log scale (0: no scale clock); ``scale_retention`` pulls
    the log scale back to 0 per unit time. The cold start pools until ``warmup_samples`` samples or
    ``warmup_frames`` frames are in, and takes the eigenvalues from ``known_spectrum`` if given.
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
    warmup_samples: float = 0.0
    warmup_frames: float = 0.0
    known_spectrum: Array | None = None
    turn_bound: float | None = None
    integrator: str = "exponential"
    limit: float = math.inf
    rate_limit: float = math.inf


class Measurement(NamedTuple):
    """One scalar measurement in every plane: residual = sensitivity * angle + noise."""

    residual: Array
    sensitivity: Array
    noise: Array


class Surprise(NamedTuple):
    """How an observation compares with its prediction; NaN where there was nothing to compare."""

    nis: Array
    log_likelihood: Array


def initial_state(frame: Array, spectrum: Array, gains: Gains) -> State:
    """A state at time 0 that stands still at ``frame`` and ``spectrum`` and is not warming up.

    Shapes: frame ``(..., d, d)``, spectrum ``(..., d)``.

    >>> import numpy as np
    >>> initial_state(np.eye(2), np.asarray([2.0, 0.5]), InformationGains()).velocity.shape
    (2, 2)
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
        pool_samples=xp.full_like(batch, math.inf),
        pool_frames=xp.full_like(batch, math.inf),
        time=xp.zeros_like(batch),
        seen=xp.full_like(batch, math.nan),
        steps=xp.zeros_like(batch),
    )


def cold_state(like: Array, gains: Gains) -> State:
    """A state that knows nothing yet and will pool its first observations.

    Shapes: ``like`` is any array ``(..., d, d)`` of the wanted shape, dtype and namespace.

    >>> import numpy as np
    >>> cold_state(np.zeros((3, 3)), InformationGains()).pool_samples.item()
    0.0
    """
    xp = array_namespace(like)
    eye = 1.0 - _off_diagonal(xp, like) + xp.zeros_like(like)
    state = initial_state(eye, xp.full_like(like[..., 0], math.nan), gains)
    none = xp.zeros_like(state.time)
    return state._replace(pool_samples=none, pool_frames=none)


def prior_uncertainty(frame: Array, gains: Gains) -> Array:
    """P at the start: angle prior, no correlation, rate prior, in every plane; ``(..., 3, d, d)``.

    >>> import numpy as np
    >>> float(prior_uncertainty(np.eye(2), InformationGains())[2, 0, 1])
    0.0004
    """
    xp = array_namespace(frame)
    zero = xp.zeros_like(frame)
    if isinstance(gains, FixedGains):
        return xp.stack([zero, zero, zero], axis=-3)
    off = _off_diagonal(xp, frame)
    angle = _spread(xp, gains.angle_prior, frame) * off + zero
    rate = _spread(xp, gains.rate_prior, frame) * off + zero
    return xp.stack([angle, zero, rate], axis=-3)


def _off_diagonal(xp: Array, like: Array) -> Array:
    index = xp.arange(like.shape[-1], device=device(like))
    return xp.astype(index[:, None] != index, like.dtype)


def _spread(xp: Array, number: Array, like: Array) -> Array:
    """A law's number as an array that broadcasts over planes: batch-shaped numbers get two axes."""
    value = as_array(xp, number, like)
    if value.ndim >= 2 and value.shape[-2:] == like.shape[-2:]:
        return value
    return value[..., None, None]


# --------------------------------------------------------------------------- drift


def passage(gains: Gains, dt: Array, like: Array) -> Transition:
    """What a time ``dt`` does in every plane: :func:`kgmrf.gains.transition`, ready for `drift`.

    Shapes: dt ``(...)``, like ``(..., d, d)`` -> ``(..., 1, 1)``, or ``(..., d, d)`` for a law with
    a number per plane.

    >>> import numpy as np
    >>> passage(InformationGains(acceleration=3.0), np.asarray(2.0), np.eye(2)).angle
    array([[8.]])
    """
    xp = array_namespace(like)

    def spread(number: Array) -> Array:
        return _spread(xp, number, like)

    if isinstance(gains, FixedGains):
        law: Gains = FixedGains(
            gains.position_gain,
            gains.velocity_gain,
            spread(gains.retention),
            spread(gains.coast_retention),
        )
    else:
        law = InformationGains(
            spread(gains.acceleration), spread(gains.angle_noise), spread(gains.retention)
        )
    return transition(law, dt[..., None, None])


def drift(
    state: State, model: Model, dt: Array, observed: Array, over: Transition | None = None
) -> State:
    """Q <- Q Exp(turn W), P <- F P F^T + noise, W <- retention W; clocks widen.

    Shapes: ``dt`` and ``observed`` broadcast to the batch shape. ``observed`` says whether data
    wait at the end of the interval: the fixed-gain laws keep the velocity there and lose some of
    it while coasting. ``over`` is the `passage` of ``dt``, if it is known already.

    >>> import numpy as np
    >>> still = initial_state(np.eye(2), np.asarray([2.0, 0.5]), InformationGains())
    >>> later = drift(still, Model(InformationGains()), np.asarray(3.0), np.asarray(False))
    >>> later.time.item(), bool(later.uncertainty[0, 0, 1] == 0.25)
    (3.0, True)
    """
    xp = array_namespace(state.frame)
    step = passage(model.gains, dt, state.frame) if over is None else over
    turn, decay = step.turn, xp.where(observed[..., None, None], step.keep, step.coast)
    steps = state.steps + xp.astype(dt > 0, dt.dtype)
    frame, velocity = turned(state.frame, state.velocity, state.spectrum, model, turn)
    due = (steps % POLISH_EVERY == 0) & (dt > 0)
    if _branch(xp, due, model):
        frame = xp.where(due[..., None, None], so.polish(frame), frame)
    state = state._replace(
        frame=frame, velocity=decay * velocity, steps=steps, time=state.time + dt
    )
    if isinstance(model.gains, InformationGains):
        p11, p12, p22 = _planes(state.uncertainty)
        off = _off_diagonal(xp, frame)
        p11 = p11 + 2.0 * turn * p12 + turn**2 * p22 + step.angle * off
        p12 = decay * (p12 + turn * p22) + step.cross * off
        p22 = decay**2 * p22 + step.rate * off
        state = state._replace(uncertainty=_within_circle(xp, p11, p12, p22, model))
    if _ticks(model.spectrum_rate):
        wider = state.spectrum_var + model.spectrum_rate * dt[..., None]
        state = state._replace(spectrum_var=wider)
    if _ticks(model.scale_rate):
        keep_scale = xp.pow(xp.full_like(dt, model.scale_retention), dt)
        state = state._replace(
            log_scale=keep_scale * state.log_scale,
            scale_var=keep_scale**2 * state.scale_var + model.scale_rate * dt,
        )
    return state


def _rotation(W: Array, model: Model) -> Array:
    if model.integrator == "exponential":
        return so.exp(W, norm_bound=model.turn_bound)
    return so.cayley(W) if model.integrator == "cayley" else so.cayley_neumann(W)


def turned(
    frame: Array, velocity: Array, spectrum: Array, model: Model, turn: Array
) -> tuple[Array, Array]:
    """Q Exp(turn W), and W as it is; "split" moves both as those of a rigid body.

    >>> import numpy as np
    >>> W, lam, model = so.hat(np.asarray([0.1])), np.asarray([2.0, 0.5]), Model(InformationGains())
    >>> turned(np.eye(2), W, lam, model, np.asarray(2.0))[0][1, 0].round(4).item()
    0.1987
    """
    if model.integrator != "split":
        return frame @ _rotation(turn * velocity, model), velocity
    assert isinstance(model.gains, FixedGains)
    xp = array_namespace(frame)
    known = xp.where(xp.isnan(spectrum), xp.ones_like(spectrum), spectrum)
    level = known + model.noise_floor
    stiffness = _stiffness(xp, orbit.gaps(known) ** 2, model.gains)
    gain = _spread(xp, model.gains.velocity_gain, velocity)
    inertia = stiffness / (level[..., :, None] * level[..., None, :] * gain)
    frame, momentum = free_turn(frame, inertia * velocity, turn / inertia)
    return frame, momentum / inertia


def _stiffness(xp: Array, information: Array, gains: FixedGains) -> Array:
    """G^2 + ridge, with 1 in place of 0."""
    ridge = gains.ridge
    if ridge is None:
        ridge = RELATIVE_RIDGE * xp.max(information, axis=(-2, -1), keepdims=True)
    stiffness = information + ridge
    return xp.where(stiffness > 0, stiffness, xp.ones_like(stiffness))


def _planes(uncertainty: Array) -> tuple[Array, Array, Array]:
    return uncertainty[..., 0, :, :], uncertainty[..., 1, :, :], uncertainty[..., 2, :, :]


def _within_circle(xp: Array, p11: Array, p12: Array, p22: Array, model: Model) -> Array:
    """An angle prior is never wider than the circle, nor a velocity prior than its limit.

    Shrinking p12 alike keeps P definite. Without acceleration noise an endless coast drives the
    correlation of angle and velocity to exactly 1, where rounding decides about definiteness; so it
    stops just short of it.
    """
    p11, p12 = _limited(xp, p11, p12, ANGLE_VARIANCE_LIMIT)
    if model.rate_limit < math.inf:
        p22, p12 = _limited(xp, p22, p12, model.rate_limit)
    most = CORRELATION_LIMIT**2 * p11 * p22
    tight = p12**2 > most
    one = xp.ones_like(p12)
    back = xp.sqrt(xp.where(tight, most, one) / xp.where(tight, p12**2, one))
    return xp.stack([p11, xp.where(tight, p12 * back, p12), p22], axis=-3)


def _limited(xp: Array, p: Array, p12: Array, most: float) -> tuple[Array, Array]:
    wide = p > most
    share = xp.sqrt(most / xp.where(wide, p, xp.ones_like(p)))
    return xp.where(wide, xp.full_like(p, most), p), xp.where(wide, p12 * share, p12)


# --------------------------------------------------------------------------- measure


def measure_covariance(
    state: State, seen: Array, n_samples: Array, noise_floor: float
) -> Measurement:
    """residual -C~_ij, sensitivity G_ij = lam_i - lam_j, noise d_i d_j / m.

    ``seen`` is the observation in the body frame, C~ = Q^T C Q, ``(..., d, d)``.

    >>> import numpy as np
    >>> state = initial_state(np.eye(2), np.asarray([2.0, 0.5]), InformationGains())
    >>> measure_covariance(state, np.eye(2), np.asarray(8.0), 0.1).noise[0, 1].item()
    0.1575
    """
    observed_spectrum = state.spectrum + noise_floor
    outer = observed_spectrum[..., :, None] * observed_spectrum[..., None, :]
    return Measurement(-seen, orbit.gaps(state.spectrum), outer / n_samples[..., None, None])


def measure_rotation(state: State, seen: Array, noise_var: Array) -> Measurement:
    """residual Log(Q^T R), sensitivity 1, noise noise_var in every plane.

    >>> import numpy as np
    >>> state = initial_state(np.eye(2), np.ones(2), InformationGains())
    >>> measure_rotation(state, np.eye(2), np.asarray(0.01)).residual.any().item()
    False
    """
    xp = array_namespace(state.frame)
    residual = so.log(xp.matrix_transpose(state.frame) @ seen)
    off = _off_diagonal(xp, residual)
    return Measurement(residual, off + 0.0 * residual, noise_var[..., None, None] + 0.0 * residual)


# --------------------------------------------------------------------------- correct and kick


def correct_and_kick(
    state: State, gains: Gains, seen: Measurement, turn_bound: float | None = None
) -> tuple[State, Array]:
    """Q <- Q Exp(A w), W <- W + B w; with information gains also P. Returns the state and nis.

    nis = sum over planes of residual^2 / its predicted variance: chi-squared with d(d-1)/2 degrees
    of freedom when the model is right; NaN for fixed gains, which predict no variance.

    >>> import numpy as np
    >>> state = initial_state(np.eye(2), np.asarray([2.0, 0.5]), zero := FixedGains(0.1, 0.0))
    >>> tilted = np.asarray([[1.9, 0.3], [0.3, 0.6]])
    >>> seen = measure_covariance(state, tilted, np.asarray(8.0), 0.0)
    >>> correct_and_kick(state, zero, seen)[0].frame[1, 0].round(4).item()
    0.02
    """
    xp = array_namespace(state.frame)
    if isinstance(gains, FixedGains):
        pull = seen.residual * seen.sensitivity
        innovation = pull / _stiffness(xp, seen.sensitivity**2, gains)
        angle = _spread(xp, gains.position_gain, pull) * innovation
        turned = state.frame @ so.exp(angle, norm_bound=turn_bound)
        kicked = state.velocity + _spread(xp, gains.velocity_gain, pull) * innovation
        nis = xp.full_like(state.time, math.nan)
        return state._replace(frame=turned, velocity=kicked), nis
    p11, p12, p22 = _planes(state.uncertainty)
    # In units of the noise: squares of covariances leave the range of single precision.
    weight = seen.sensitivity / seen.noise
    pull, information = seen.residual * weight, seen.sensitivity * weight
    predicted = 1.0 + p11 * information
    turned = state.frame @ so.exp(p11 / predicted * pull, norm_bound=turn_bound)
    kicked = state.velocity + p12 / predicted * pull
    remaining = 1.0 / predicted  # 1 - k, without cancellation
    left = p22 - p12**2 * information / predicted
    left = xp.where(left > 0, left, xp.zeros_like(left))  # below by rounding only
    uncertainty = xp.stack([p11 * remaining, p12 * remaining, left], axis=-3)
    squares = seen.residual / seen.noise * seen.residual / predicted * _off_diagonal(xp, pull)
    nis = 0.5 * xp.sum(xp.sum(squares, axis=-1), axis=-1)
    return state._replace(frame=turned, velocity=kicked, uncertainty=uncertainty), nis


# --------------------------------------------------------------------------- the clocks


def _adapt_spectrum(xp: Array, state: State, model: Model, power: Array, n_samples: Array) -> State:
    """log d_i += log1p(k (C~_ii / d_i - 1)): a scalar Kalman filter per eigenvalue.

    ``power`` is the diagonal C~_ii as measured before the correction: measured afterwards it is
    biased upwards, badly so at m = 1.
    """
    level = state.spectrum + model.noise_floor
    gain = state.spectrum_var / (state.spectrum_var + 2.0 / n_samples[..., None])
    level = level * (1.0 + gain * (power / level - 1.0))
    floor = _smallest(xp, level) * xp.max(level, axis=-1, keepdims=True)
    spectrum = xp.maximum(level - model.noise_floor, floor)
    return state._replace(spectrum=spectrum, spectrum_var=(1.0 - gain) * state.spectrum_var)


def _adapt_scale(xp: Array, state: State, power: Array, n_samples: Array) -> State:
    """s += log1p(k (mean C~_ii / (e^s lam_i) - 1)): one clock for the overall size."""
    d = power.shape[-1]
    surprise = xp.mean(power / state.spectrum, axis=-1) - 1.0
    gain = state.scale_var / (state.scale_var + 2.0 / (n_samples * d))
    return state._replace(
        log_scale=state.log_scale + xp.log1p(gain * surprise),
        scale_var=(1.0 - gain) * state.scale_var,
    )


def _smallest(xp: Array, like: Array) -> float:
    return max(SMALLEST_SPECTRUM, 16.0 * float(xp.finfo(like.dtype).eps))


def warming(state: State, model: Model) -> Array:
    """Whether the state still pools its first observations, ``(...)``.

    >>> import numpy as np
    >>> model = Model(InformationGains(), warmup_samples=10.0, warmup_frames=4.0)
    >>> bool(warming(cold_state(np.zeros((2, 2)), model.gains), model))
    True
    """
    return (state.pool_samples < model.warmup_samples) & (state.pool_frames < model.warmup_frames)


def support(state: State) -> Array:
    """How many samples the estimated eigenvalues are worth, ``(...)``, from .01 to 1e9.

    The log of an eigenvalue seen through n samples has variance 2 / n. Even known eigenvalues are
    not worth more: a regression needs a trace of doubt where channels are copies of one another.

    >>> import numpy as np
    >>> state = cold_state(np.zeros((2, 2)), InformationGains())
    >>> float(support(state._replace(spectrum_var=np.array([0.1, 0.3]))))
    10.0
    """
    xp = array_namespace(state.spectrum_var)
    variance = xp.mean(state.spectrum_var, axis=-1)
    known = (variance > 0) & xp.isfinite(variance)
    n = 2.0 / xp.where(known, variance, xp.ones_like(variance))
    n = xp.where(known, n, xp.where(variance == 0, xp.full_like(n, 1e9), xp.zeros_like(n)))
    return xp.clip(n, 0.01, 1e9)


def _pool(xp: Array, state: State, model: Model, observation: Array, n_samples: Array) -> State:
    """Cold start: the eigendecomposition of the mean of all samples so far, with a wide prior."""
    total = state.pool_samples + n_samples
    pool = state.pool + (n_samples / total)[..., None, None] * (observation - state.pool)
    frame, level = orbit.decompose(pool)
    floor = _smallest(xp, level) * level[..., :1]
    spectrum = xp.maximum(level - model.noise_floor, floor)
    if model.known_spectrum is not None:
        spectrum = model.known_spectrum + xp.zeros_like(level)
    return state._replace(
        frame=frame,
        spectrum=spectrum,
        spectrum_var=xp.zeros_like(level) + (2.0 / total)[..., None],
        pool=pool,
        pool_samples=total,
        pool_frames=state.pool_frames + 1.0,
    )


# --------------------------------------------------------------------------- whole steps


def select(condition: Array, yes: State, no: State) -> State:
    """Item by item of the batch: the state ``yes`` where ``condition`` holds, else ``no``.

    >>> import numpy as np
    >>> a = initial_state(np.eye(2), np.asarray([2.0, 0.5]), InformationGains())
    >>> select(np.asarray(False), a._replace(time=np.asarray(9.0)), a).time.item()
    0.0
    """
    xp = array_namespace(yes.frame)

    def choose(new: Array, old: Array) -> Array:
        if new is old:
            return old
        extra = new.ndim - condition.ndim
        return xp.where(xp.reshape(condition, condition.shape + (1,) * extra), new, old)

    return State(*(choose(new, old) for new, old in zip(yes, no, strict=True)))


def covariance_step(
    state: State,
    model: Model,
    observation: Array,
    n_samples: Array,
    dt: Array,
    observed: Array,
    over: Transition | None = None,
) -> tuple[State, Surprise]:
    """Drift to the time of the observation, measure, correct, kick; coast where there is none.

    Shapes: observation ``(..., d, d)`` (ignored where not ``observed``), the rest ``(...)``;
    ``over`` as in `drift`.

    >>> import numpy as np
    >>> model = Model(InformationGains())
    >>> state = initial_state(np.eye(2), np.asarray([2.0, 0.5]), model.gains)
    >>> C = np.asarray([[1.9, 0.3], [0.3, 0.6]])
    >>> one = np.asarray(1.0)
    >>> state, surprise = covariance_step(state, model, C, 8 * one, 0 * one, np.asarray(True))
    >>> state.frame[1, 0].round(3).item()
    0.163
    """
    xp = array_namespace(state.frame)
    nan = xp.full_like(state.time, math.nan)
    pooling = warming(state, model)
    moving = ~xp.isnan(state.seen) & ~pooling
    later = drift(state, model, dt, observed, over)
    state = select(moving, later, state._replace(time=later.time))

    any_wait = _pools(model) and _branch(xp, pooling & observed, model)
    safe = xp.where(observed[..., None, None], observation, xp.ones_like(observation))
    known = xp.where(pooling[..., None], xp.ones_like(state.spectrum), state.spectrum)
    live = state._replace(spectrum=known)
    size = xp.exp(live.log_scale)
    seen = xp.matrix_transpose(live.frame) @ safe @ live.frame / size[..., None, None]
    power = xp.linalg.diagonal(seen)
    level = (known + model.noise_floor) * size[..., None]
    log_likelihood = (
        -0.5
        * n_samples
        * xp.sum(
            math.log(2.0 * math.pi) + xp.log(level) + power / (known + model.noise_floor), axis=-1
        )
    )
    if model.limit < math.inf:
        z = xp.sum(power / (known + model.noise_floor), axis=-1)
        most = model.limit * power.shape[-1]
        u = xp.where(z > most, most / xp.where(z > most, z, xp.ones_like(z)), xp.ones_like(z))
        seen, power = u[..., None, None] * seen, u[..., None] * power
    measured = measure_covariance(live, seen, n_samples, model.noise_floor)
    live, nis = correct_and_kick(live, model.gains, measured, model.turn_bound)
    if _ticks(model.scale_rate):
        live = _adapt_scale(xp, live, power, n_samples)
    if _ticks(model.spectrum_rate):
        live = _adapt_spectrum(xp, live, model, power, n_samples)
    updating = observed & ~pooling
    new = select(updating, live, state)
    if any_wait:
        new = select(observed & pooling, _pool(xp, state, model, safe, n_samples), new)
    new = new._replace(seen=xp.where(observed, new.time, new.seen))
    return new, Surprise(xp.where(updating, nis, nan), xp.where(updating, log_likelihood, nan))


def rotation_step(
    state: State,
    model: Model,
    observation: Array,
    noise_var: Array,
    dt: Array,
    observed: Array,
    over: Transition | None = None,
) -> tuple[State, Surprise]:
    """The same step for an observed rotation R = Q Exp(noise), noise_var per plane.

    Shapes: observation ``(..., d, d)`` (ignored where not ``observed``), the rest ``(...)``;
    ``over`` as in `drift`.
    The first observation starts the track.

    >>> import numpy as np
    >>> model = Model(InformationGains())
    >>> state, one = cold_state(np.eye(3), model.gains), np.asarray(1.0)
    >>> quarter = np.asarray([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    >>> state, _ = rotation_step(state, model, quarter, 0.01 * one, one, np.asarray(True))
    >>> bool(np.allclose(state.frame, quarter))
    True
    """
    xp = array_namespace(state.frame)
    nan = xp.full_like(state.time, math.nan)
    started = ~xp.isnan(state.seen)
    later = drift(state, model, dt, observed, over)
    state = select(started, later, state._replace(time=later.time))
    safe = xp.where((observed & started)[..., None, None], observation, state.frame)
    measured = measure_rotation(state, safe, noise_var)
    live, nis = correct_and_kick(state, model.gains, measured, model.turn_bound)
    spread = measured.noise
    if isinstance(model.gains, InformationGains):
        spread = spread + _planes(state.uncertainty)[0]
    off = _off_diagonal(xp, spread)
    terms = xp.log(2.0 * math.pi * spread) + measured.residual**2 / spread
    log_likelihood = -0.25 * xp.sum(xp.sum(off * terms, axis=-1), axis=-1)
    first = state._replace(frame=observation, uncertainty=_first_sight(xp, state, model, noise_var))
    new = select(observed & started, live, select(observed & ~started, first, state))
    new = new._replace(seen=xp.where(observed, new.time, new.seen))
    updating = observed & started
    return new, Surprise(xp.where(updating, nis, nan), xp.where(updating, log_likelihood, nan))


def _first_sight(xp: Array, state: State, model: Model, noise_var: Array) -> Array:
    """After the first rotation the angle is as uncertain as that observation."""
    if isinstance(model.gains, FixedGains):
        return state.uncertainty
    prior = prior_uncertainty(state.frame, model.gains)
    _, p12, p22 = _planes(prior)
    off = _off_diagonal(xp, state.frame)
    limited = xp.minimum(noise_var, xp.full_like(noise_var, ANGLE_VARIANCE_LIMIT))
    return xp.stack([limited[..., None, None] * off + p12, p12, p22], axis=-3)


def _branch(xp: Array, condition: Array, model: Model) -> bool:
    """Whether any item needs what is too dear to run always (polish, eigendecomposition).

    With a turn bound nobody looks: the dear thing is computed and chosen item by item.
    """
    return model.turn_bound is not None or bool(xp.any(condition))


def _pools(model: Model) -> bool:
    """Whether the model has a cold start at all, known without looking at a state."""
    return model.warmup_samples > 0 and model.warmup_frames > 0


def _ticks(rate: Array) -> bool:
    """Whether a clock runs: a number of 0 stops it, a learned rate never does."""
    return not isinstance(rate, (int, float)) or rate != 0
