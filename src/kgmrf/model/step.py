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

from array_api_compat import array_namespace

from kgmrf._types import Array
from kgmrf.geometry import orbit, so
from kgmrf.model.gains import ANGLE_VARIANCE_LIMIT, FixedGains, Gains, InformationGains, Transition
from kgmrf.model.law_motion import branches, drift, planes, stiffness, ticks
from kgmrf.model.law_state import (
    SMALLEST_SPECTRUM,
    Model,
    State,
    Surprise,
    off_diagonal,
    prior_uncertainty,
    select,
    spread,
    warming,
)


class Measurement(NamedTuple):
    """One scalar measurement in every plane: residual = sensitivity * angle + noise."""

    residual: Array
    sensitivity: Array
    noise: Array


# --------------------------------------------------------------------------- measure


def measure_covariance(
    state: State, seen: Array, n_samples: Array, noise_floor: float
) -> Measurement:
    """residual -C~_ij, sensitivity G_ij = lam_i - lam_j, noise d_i d_j / m.

    ``seen`` is the observation in the body frame, C~ = Q^T C Q, ``(..., d, d)``.

    >>> import numpy as np
    >>> from kgmrf.model.law_state import initial_state
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
    >>> from kgmrf.model.law_state import initial_state
    >>> state = initial_state(np.eye(2), np.ones(2), InformationGains())
    >>> measure_rotation(state, np.eye(2), np.asarray(0.01)).residual.any().item()
    False
    """
    xp = array_namespace(state.frame)
    residual = so.log(xp.matrix_transpose(state.frame) @ seen)
    off = off_diagonal(xp, residual)
    return Measurement(residual, off + 0.0 * residual, noise_var[..., None, None] + 0.0 * residual)


# --------------------------------------------------------------------------- correct and kick


def correct_and_kick(
    state: State, gains: Gains, seen: Measurement, turn_bound: float | None = None
) -> tuple[State, Array]:
    """Q <- Q Exp(A w), W <- W + B w; with information gains also P. Returns the state and nis.

    nis = sum over planes of residual^2 / its predicted variance: chi-squared with d(d-1)/2 degrees
    of freedom when the model is right; NaN for fixed gains, which predict no variance.

    >>> import numpy as np
    >>> from kgmrf.model.law_state import initial_state
    >>> state = initial_state(np.eye(2), np.asarray([2.0, 0.5]), zero := FixedGains(0.1, 0.0))
    >>> tilted = np.asarray([[1.9, 0.3], [0.3, 0.6]])
    >>> seen = measure_covariance(state, tilted, np.asarray(8.0), 0.0)
    >>> correct_and_kick(state, zero, seen)[0].frame[1, 0].round(4).item()
    0.02
    """
    xp = array_namespace(state.frame)
    if isinstance(gains, FixedGains):
        pull = seen.residual * seen.sensitivity
        innovation = pull / stiffness(xp, seen.sensitivity**2, gains)
        angle = spread(xp, gains.position_gain, pull) * innovation
        turned = state.frame @ so.exp(angle, norm_bound=turn_bound)
        kicked = state.velocity + spread(xp, gains.velocity_gain, pull) * innovation
        nis = xp.full_like(state.time, math.nan)
        return state._replace(frame=turned, velocity=kicked), nis
    p11, p12, p22 = planes(state.uncertainty)
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
    squares = seen.residual / seen.noise * seen.residual / predicted * off_diagonal(xp, pull)
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


def _pool(xp: Array, state: State, model: Model, observation: Array, n_samples: Array) -> State:
    """Cold start: the eigendecomposition of the mean of all samples so far, with a wide prior."""
    total = state.pooled_samples + n_samples
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
        pooled_samples=total,
        pooled_steps=state.pooled_steps + 1.0,
    )


# --------------------------------------------------------------------------- whole steps


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
    >>> from kgmrf.model.law_state import initial_state
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

    pools = model.pool_samples > 0 and model.pool_steps > 0
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
    if ticks(model.scale_rate):
        live = _adapt_scale(xp, live, power, n_samples)
    if ticks(model.spectrum_rate):
        live = _adapt_spectrum(xp, live, model, power, n_samples)
    updating = observed & ~pooling
    new = select(updating, live, state)
    if pools and branches(xp, pooling & observed, model):
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
    >>> from kgmrf.model.law_state import cold_state
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
    variance = measured.noise
    if isinstance(model.gains, InformationGains):
        variance = variance + planes(state.uncertainty)[0]
    off = off_diagonal(xp, variance)
    terms = xp.log(2.0 * math.pi * variance) + measured.residual**2 / variance
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
    _, p12, p22 = planes(prior)
    off = off_diagonal(xp, state.frame)
    limited = xp.minimum(noise_var, xp.full_like(noise_var, ANGLE_VARIANCE_LIMIT))
    return xp.stack([limited[..., None, None] * off + p12, p12, p22], axis=-3)
