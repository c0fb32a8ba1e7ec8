"""How strongly to believe an observation: the gain laws.

All laws drive the same step (see :mod:`kgmrf.model.step`). A law says how far the frame turns
(position gain) and how much the velocity is kicked (velocity gain) by an innovation, and which
share of the velocity survives a unit of time (retention).

A bare gamma never appears here, because the paper uses it in two opposite senses: as damping in
its Algorithm 1 and as retention in its experiments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from array_api_compat import array_namespace, device

from kgmrf._check import in_range
from kgmrf._types import Array
from kgmrf.constants import ANGLE_VARIANCE_LIMIT as ANGLE_VARIANCE_LIMIT
from kgmrf.constants import RATE_VARIANCE_LIMIT as RATE_VARIANCE_LIMIT


@dataclass(frozen=True)
class FixedGains:
    """W <- retention W + velocity_gain w;  Q <- Q Exp(position_gain w).

    Parameters
    ----------
    position_gain : float or array
        Share of an innovation that turns the frame; a number or an array that broadcasts to
        ``(..., d, d)``.
    velocity_gain : float or array
        Share that changes the velocity, of the same shapes.
    retention : float or array, default 1.0
        Share of the velocity that is kept per unit time in frames with data; 1 has no lag.
    coast_retention : float or array, default 1.0
        The same in frames without data.
    ridge : float or array, default None
        The paper's epsilon in ``G / (G^2 + ridge)``; None means 1e-9 of the largest squared gap.

    Examples
    --------
    >>> FixedGains(position_gain=0.1, velocity_gain=0.005).retention
    1.0
    """

    position_gain: Array
    velocity_gain: Array
    retention: Array = 1.0
    coast_retention: Array = 1.0
    ridge: Array | None = None


@dataclass(frozen=True)
class InformationGains:
    """One two-state (angle, velocity) Kalman filter in every plane, in the body frame.

    Parameters
    ----------
    acceleration : float or array, default 1e-6
        Spectral density of the white acceleration, rad^2 per unit time^3.
    angle_noise : float or array, default 0.0
        That of a direct random walk of the angle, rad^2 per unit time; 0: the velocity does it all.
    retention : float or array, default 1.0
        Share of the velocity kept per unit time; below 1 it is an Ornstein-Uhlenbeck process.
    rate_prior : float or array, default 4e-4
        Variance of the velocity at the start, rad^2 per unit time^2; .02 rad per step is usual.
    angle_prior : float or array, default 0.25
        Variance of the angle at the start; the default is that of an unknown angle.

    Examples
    --------
    >>> InformationGains().rate_prior
    0.0004
    """

    acceleration: Array = 1e-6
    angle_noise: Array = 0.0
    retention: Array = 1.0
    rate_prior: Array = 4e-4
    angle_prior: Array = ANGLE_VARIANCE_LIMIT

    @property
    def coast_retention(self) -> Array:
        """Without data the velocity decays as it does with data."""
        return self.retention


Gains: TypeAlias = FixedGains | InformationGains


def printed(
    velocity_gain: Array = 0.05, damping: Array = 0.95, ridge: Array | None = None
) -> FixedGains:
    """W <- (1 - damping) W + velocity_gain w: the paper's Algorithm 1 as printed.

    Its steady lag under a constant rate omega is not zero: in two dimensions it is
    ``asin(2 damping omega / velocity_gain) / 2`` (see :func:`kgmrf.theory.printed_lag`).

    Parameters
    ----------
    velocity_gain, damping, ridge : float or array, default 0.05, 0.95 and None
        The paper's eta, gamma and epsilon. With ``spectrum="fixed"`` and ``initial=M_0`` a `KGMRF`
        with this law is :class:`kgmrf.paper.Algorithm1`.

    Examples
    --------
    >>> printed(0.05, 0.95).position_gain
    0.0
    """
    return FixedGains(0.0, velocity_gain, 1.0 - damping, 1.0 - damping, ridge)


def zero_lag(
    position_gain: Array = 0.1, velocity_gain: Array = 0.005, coast_retention: Array = 1.0
) -> FixedGains:
    """Q <- Q Exp(position_gain w), W <- W + velocity_gain w: no steady error at constant velocity.

    This is what the paper's zero-lag proof needs and what its tables used (there with
    ``position_gain=.1, velocity_gain=.05, coast_retention=.95``): with data the velocity is not
    damped at all.

    Parameters
    ----------
    position_gain : float or array, default 0.1
        A, share of an innovation that turns the frame.
    velocity_gain : float or array, default 0.005
        B, share that changes the velocity.
    coast_retention : float or array, default 1.0
        Share of the velocity kept per unit time without data; 1 keeps it.

    Examples
    --------
    >>> zero_lag().retention
    1.0
    """
    return FixedGains(position_gain, velocity_gain, 1.0, coast_retention)


information = InformationGains
"""K = P H / (H P H + R) in every plane: gains from the Fisher information, nothing to tune."""

LAWS = {"printed": printed, "zero_lag": zero_lag, "information": information}
"""The laws by name, at their default settings."""


class Transition(NamedTuple):
    """What a drift over a time ``dt`` does, apart from the state it acts on.

    Parameters
    ----------
    turn : array
        The angle turns by ``turn * W``.
    keep : array
        Share of the velocity that is kept where there is data at the end.
    coast : array
        Share that is kept where there is none.
    angle, cross, rate : array
        Process noise that the interval adds to var(angle), cov(angle, velocity) and var(velocity).
    """

    turn: Array
    keep: Array
    coast: Array
    angle: Array
    cross: Array
    rate: Array


def transition(gains: Gains, dt: Array) -> Transition:
    """Integrate the velocity's decay and noise over ``dt`` exactly, so that drifts compose.

    One transition over ``2 dt`` equals two over ``dt``; coasting equals forecasting. With
    retention 1 the noise is ``q dt^3/3, q dt^2/2, q dt``. With a retention below 1 it is that of
    ``dW = log(retention) W dt + sqrt(q) dB``, scaled so that one unit of time turns by exactly W.

    Shapes: ``dt`` and the law's numbers broadcast together.

    Parameters
    ----------
    gains : Gains
        The law.
    dt : float or array
        Time of the step.

    Examples
    --------
    >>> import numpy as np
    >>> transition(InformationGains(acceleration=3.0), np.asarray(2.0)).angle.item()
    8.0
    """
    xp = array_namespace(dt)
    rho = as_array(xp, gains.coast_retention, dt)
    coast = _decay(xp, rho, dt)
    turn = _turning_time(xp, rho, coast, dt)
    if isinstance(gains, FixedGains):
        # With data, only the time beyond one unit since the last frame counts as coasting.
        with_data = as_array(xp, gains.retention, dt)
        one = xp.ones_like(dt)
        keep = _decay(xp, with_data, xp.minimum(dt, one)) * _decay(
            xp, rho, xp.maximum(dt - one, xp.zeros_like(dt))
        )
        zero = xp.zeros_like(turn)
        return Transition(turn, keep, coast, zero, zero, zero)
    q = as_array(xp, gains.acceleration, dt)
    wander = as_array(xp, gains.angle_noise, dt)
    angle, cross, rate = _velocity_noise(xp, rho, coast, dt)
    return Transition(turn, coast, coast, q * angle + wander * dt, q * cross, q * rate)


def as_array(xp: Array, number: Array, like: Array) -> Array:
    """A law's number in the type and on the device of ``like``; a tensor keeps its gradient.

    Parameters
    ----------
    xp : array
        Namespace of the arrays.
    number : array
        A law's number.
    like : array
        An array of the wanted type and device.

    Examples
    --------
    >>> import numpy as np
    >>> as_array(np, 2, np.ones(3, dtype=np.float32)).dtype
    dtype('float32')
    """
    if hasattr(number, "detach"):  # asarray would cut the graph in older versions of torch
        return xp.astype(number, like.dtype, copy=False)
    return xp.asarray(number, dtype=like.dtype, device=device(like))


def _decay(xp: Array, rho: Array, dt: Array) -> Array:
    """``rho ** dt``; 0 ** 0 is 1, and a negative retention needs whole-numbered times."""
    return xp.pow(rho + xp.zeros_like(dt), dt + xp.zeros_like(rho))


def _turning_time(xp: Array, rho: Array, decay: Array, dt: Array) -> Array:
    """(1 - rho^dt) / (1 - rho), which is dt for rho = 1."""
    still = (1.0 - rho) < 1e-9
    gap = xp.where(still, xp.ones_like(rho), 1.0 - rho)
    return xp.where(still, dt, (1.0 - decay) / gap)


def _velocity_noise(xp: Array, rho: Array, decay: Array, dt: Array) -> tuple[Array, Array, Array]:
    """Integrated noise of the Ornstein-Uhlenbeck velocity for unit density.

    With a = -log rho, u = rho^dt and the turning scale c = a / (1 - rho):
    rate = (1 - u^2) / 2a, cross = c (1 - u)^2 / 2a^2,
    angle = (c/a)^2 (dt - 2 (1 - u)/a + (1 - u^2)/2a); small a dt by series.
    """
    still = (1.0 - rho) < 1e-9
    a = -xp.log(xp.where(still | (rho < 1e-9), xp.full_like(rho, 0.5), rho))
    scale = xp.where(still, xp.ones_like(rho), a / xp.where(still, xp.ones_like(rho), 1.0 - rho))
    x = xp.where(still, xp.zeros_like(dt), a * dt)
    tiny = x < 0.02
    big = xp.where(tiny, xp.ones_like(x), x)
    u = xp.exp(-big)
    rate = _alternating(x, 1.0, 1.0, 2 / 3, 1 / 3, 2 / 15, 2 / 45, 4 / 315)
    rate = xp.where(tiny, rate, (1.0 - u * u) / (2.0 * big))
    cross = _alternating(x, 0.5, 0.5, 7 / 24, 1 / 8, 31 / 720, 1 / 80, 127 / 40320)
    cross = xp.where(tiny, cross, (1.0 - u) ** 2 / (2.0 * big**2))
    angle = _alternating(x, 1 / 3, 1 / 4, 7 / 60, 1 / 24, 31 / 2520, 1 / 320, 127 / 181440)
    exact = (1.0 - 2.0 * (1.0 - u) / big + (1.0 - u * u) / (2.0 * big)) / big**2
    angle = xp.where(tiny, angle, exact)
    return scale**2 * dt**3 * angle, scale * dt**2 * cross, dt * rate


def _alternating(x: Array, *coefficients: float) -> Array:
    """c_0 - c_1 x + c_2 x^2 - ..."""
    total: Array = coefficients[-1]
    for number in reversed(coefficients[:-1]):
        total = number - x * total
    return total


def as_gains(gains: str | Gains | dict[str, Any]) -> Gains:
    """A gain law from its name, from a law with its settings, or from a saved file's table.

    Parameters
    ----------
    gains : str or Gains or dict[str, Any]
        A law, its name, or a table of its numbers.

    Examples
    --------
    >>> as_gains("information") == InformationGains()
    True
    """
    if isinstance(gains, (FixedGains, InformationGains)):
        law: Gains = gains
    elif isinstance(gains, dict):
        table = dict(gains)
        kinds: dict[str, Any] = {k.__name__: k for k in (FixedGains, InformationGains)}
        law = kinds[table.pop("law")](**table)
    elif gains in LAWS:
        law = LAWS[gains]()  # type: ignore[operator]
    else:
        raise ValueError(
            f"gains must be one of {', '.join(map(repr, LAWS))} or a law such as "
            f"kgmrf.model.gains.information(acceleration=1e-6), got {gains!r}"
        )
    for name, limits in RANGES[type(law)].items():
        for value in np.ravel(np.asarray(getattr(law, name), dtype=float)):
            in_range(value, name, *limits)
    return law


RANGES: dict[type, dict[str, tuple[float, float, bool]]] = {
    InformationGains: {
        "acceleration": (0.0, np.inf, False),
        "angle_noise": (0.0, np.inf, False),
        "rate_prior": (0.0, np.inf, True),
        "angle_prior": (0.0, np.inf, True),
        "retention": (1e-6, 1.0, False),
    },
    FixedGains: {
        "retention": (-1.0, 1.0, False),
        "coast_retention": (-1.0, 1.0, False),
        "position_gain": (-np.inf, np.inf, False),
        "velocity_gain": (-np.inf, np.inf, False),
    },
}
"""Least and largest value of every setting, and whether the least is left out."""
