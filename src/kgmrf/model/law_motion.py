"""Between observations: Q <- Q Exp(turn W), P <- F P F^T + process noise; the clocks widen."""

from __future__ import annotations

import math

from array_api_compat import array_namespace

from kgmrf._types import Array
from kgmrf.constants import CORRELATION_LIMIT as CORRELATION_LIMIT
from kgmrf.constants import POLISH_EVERY as POLISH_EVERY
from kgmrf.geometry import orbit, so
from kgmrf.geometry.orbit import RELATIVE_RIDGE
from kgmrf.model.gains import (
    ANGLE_VARIANCE_LIMIT,
    FixedGains,
    Gains,
    InformationGains,
    Transition,
    transition,
)
from kgmrf.model.law_state import Model, State, off_diagonal, spread


def passage(gains: Gains, dt: Array, like: Array) -> Transition:
    """What a time ``dt`` does in every plane: :func:`kgmrf.model.gains.transition`, ready for
    `drift`.

    Shapes: dt ``(...)``, like ``(..., d, d)`` -> ``(..., 1, 1)``, or ``(..., d, d)`` for a law with
    a number per plane.
    """
    xp = array_namespace(like)

    def plane(number: Array) -> Array:
        return spread(xp, number, like)

    if isinstance(gains, FixedGains):
        law: Gains = FixedGains(
            gains.position_gain,
            gains.velocity_gain,
            plane(gains.retention),
            plane(gains.coast_retention),
        )
    else:
        law = InformationGains(
            plane(gains.acceleration), plane(gains.angle_noise), plane(gains.retention)
        )
    return transition(law, dt[..., None, None])


def drift(
    state: State, model: Model, dt: Array, observed: Array, over: Transition | None = None
) -> State:
    """Q <- Q Exp(turn W), P <- F P F^T + noise, W <- retention W; clocks widen.

    Shapes: ``dt`` and ``observed`` broadcast to the batch shape. ``observed`` says whether data
    wait at the end of the interval: the fixed-gain laws keep the velocity there and lose some of
    it while coasting. ``over`` is the `passage` of ``dt``, if it is known already.
    """
    xp = array_namespace(state.frame)
    step = passage(model.gains, dt, state.frame) if over is None else over
    turn, decay = step.turn, xp.where(observed[..., None, None], step.keep, step.coast)
    steps = state.steps + xp.astype(dt > 0, dt.dtype)
    frame, velocity = turned(state.frame, state.velocity, state.spectrum, model, turn)
    due = (steps % POLISH_EVERY == 0) & (dt > 0)
    if branches(xp, due, model):
        frame = xp.where(due[..., None, None], so.polish(frame), frame)
    state = state._replace(
        frame=frame, velocity=decay * velocity, steps=steps, time=state.time + dt
    )
    if isinstance(model.gains, InformationGains):
        p11, p12, p22 = planes(state.uncertainty)
        off = off_diagonal(xp, frame)
        p11 = p11 + 2.0 * turn * p12 + turn**2 * p22 + step.angle * off
        p12 = decay * (p12 + turn * p22) + step.cross * off
        p22 = decay**2 * p22 + step.rate * off
        state = state._replace(uncertainty=_within_circle(xp, p11, p12, p22, model))
    if ticks(model.spectrum_rate):
        wider = state.spectrum_var + model.spectrum_rate * dt[..., None]
        state = state._replace(spectrum_var=wider)
    if ticks(model.scale_rate):
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
    """Q Exp(turn W), and W as it is; "split" moves both as those of a rigid body."""
    if model.integrator != "split":
        return frame @ _rotation(turn * velocity, model), velocity
    assert isinstance(model.gains, FixedGains)
    xp = array_namespace(frame)
    known = xp.where(xp.isnan(spectrum), xp.ones_like(spectrum), spectrum)
    level = known + model.noise_floor
    rigid = stiffness(xp, orbit.gaps(known) ** 2, model.gains)
    gain = spread(xp, model.gains.velocity_gain, velocity)
    inertia = rigid / (level[..., :, None] * level[..., None, :] * gain)
    frame, momentum = so.free_turn(frame, inertia * velocity, turn / inertia)
    return frame, momentum / inertia


def stiffness(xp: Array, information: Array, gains: FixedGains) -> Array:
    """G^2 + ridge, with 1 in place of 0."""
    ridge = gains.ridge
    if ridge is None:
        ridge = RELATIVE_RIDGE * xp.max(information, axis=(-2, -1), keepdims=True)
    whole = information + ridge
    return xp.where(whole > 0, whole, xp.ones_like(whole))


def planes(uncertainty: Array) -> tuple[Array, Array, Array]:
    """var(angle), cov(angle, velocity), var(velocity), each ``(..., d, d)``."""
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


def branches(xp: Array, condition: Array, model: Model) -> bool:
    """Whether any item needs what costs too much to run always (polish, eigendecomposition).

    With a turn bound nobody looks: the costly part is computed and chosen item by item.
    """
    return model.turn_bound is not None or bool(xp.any(condition))


def ticks(rate: Array) -> bool:
    """Whether a clock runs: a number of 0 stops it, a learned rate never does."""
    return not isinstance(rate, (int, float)) or rate != 0
