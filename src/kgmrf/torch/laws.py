"""Gain laws with learned numbers, inside their stability domain by construction."""

from __future__ import annotations

import math
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from kgmrf.model import gains
from kgmrf.model.gains import FixedGains, InformationGains

Share: TypeAlias = Literal["layer", "plane"]

NOISE = (1e-14, 1e1)
"""Between these lie learned noise densities and priors of angles and rates."""
RIDGE = (1e-8, 1e8)
INERTIA_LIMIT = 7.0
"""Log inertias differ by less than this from their mean."""

_MARGIN = 1e-6  # how far inside its open interval a learned number stays


def _inside(free: Tensor, low: float = 0.0, high: float = 1.0) -> Tensor:
    """A free number as one strictly inside an interval."""
    share = _MARGIN + (1.0 - 2.0 * _MARGIN) * torch.sigmoid(free)
    return low + (high - low) * share


def _outside(value: float, low: float = 0.0, high: float = 1.0) -> float:
    """The free number of a value: the inverse of `_inside`."""
    share = ((value - low) / (high - low) - _MARGIN) / (1.0 - 2.0 * _MARGIN)
    if not 0.0 < share < 1.0:
        raise ValueError(f"{value!r} is not inside ({low}, {high}); learned numbers must be")
    return math.log(share / (1.0 - share))


def bounded(free: Tensor, limit: float) -> Tensor:
    """limit tanh(free / limit): a free number that no training step can throw out of range."""
    return limit * torch.tanh(free / limit)


def positive(free: Tensor, low: float, high: float) -> Tensor:
    """A free number as a positive one between low and high; near the middle its logarithm."""
    middle, half = _middle(low, high)
    return torch.exp(middle + bounded(free, half))


def free_positive(value: float, low: float, high: float) -> float:
    """The free number of a positive value: the inverse of `positive`."""
    if not low < value < high:
        raise ValueError(f"{value!r} is not inside ({low}, {high}); learned numbers must be")
    middle, half = _middle(low, high)
    return half * math.atanh((math.log(value) - middle) / half)


def _middle(low: float, high: float) -> tuple[float, float]:
    a, b = math.log(low), math.log(high)
    return (a + b) / 2, (b - a) / 2


class Law(nn.Module):
    """Numbers of a gain law, one for all planes or one per plane, in double precision."""

    table: Tensor

    def __init__(self, d: int, per: Share, inertia: bool) -> None:
        super().__init__()
        if per not in ("layer", "plane"):
            raise ValueError(f'per must be "layer" or "plane", got {per!r}')
        self.d, self.per = d, per
        table = torch.zeros((d, d), dtype=torch.int64)
        for k, (i, j) in enumerate(torch.combinations(torch.arange(d)).tolist()):
            table[i, j] = table[j, i] = k
        self.register_buffer("table", table, persistent=False)
        self.n_planes = max(1, d * (d - 1) // 2)
        self.log_inertia = nn.Parameter(torch.zeros(self.n_planes)) if inertia else None

    def _new(self, free: float) -> nn.Parameter:
        shape = (self.n_planes,) if self.per == "plane" else ()
        return nn.Parameter(torch.full(shape, free))

    def _planes(self, numbers: Tensor) -> Tensor:
        """One number, or one per plane as a symmetric table ``(d, d)``."""
        return numbers[self.table] if numbers.ndim else numbers

    def _number(self, free: Tensor | None, edge: float, within: Any) -> Tensor:
        """What a free number stands for; without one the edge of the range, which is kept."""
        if free is None:
            return torch.full((), edge, dtype=torch.float64, device=self.table.device)
        value: Tensor = within(self._planes(free.double()))
        return value

    def _log_inertia(self) -> Tensor | float:
        """Relative inertias: only their ratios count, since the gains carry their size."""
        if self.log_inertia is None:
            return 0.0
        free = bounded(self.log_inertia.double(), INERTIA_LIMIT)
        return self._planes(free - free.mean())

    def inertia(self) -> Tensor:
        """Relative inertia of every plane ``(d, d)``, geometric mean 1: heavy planes keep going."""
        free = torch.as_tensor(self._log_inertia(), dtype=torch.float64, device=self.table.device)
        return torch.exp(free).expand(self.d, self.d)


class FixedLaw(Law):
    """Fixed gains, learned: |rho (1-A)| < 1, B + A (1-rho) > 0, B < (2-A)(1+rho) by construction.

    ``position_gain=0`` is the paper's Kick-Drift-Measure, which never turns the frame towards an
    observation but kicks the velocity. With ``inertia``, B is divided by that of the plane, as far
    as stability allows. Gradients need the ``ridge`` where eigenvalues are nearly equal, and it is
    learned too.

    Parameters
    ----------
    d : int
        Dimension.
    position_gain : float, default 0.1
        A, in (0, 2); exactly 0 stays 0 and needs a retention below 1.
    velocity_gain : float, default 0.005
        B, where learning starts.
    retention : float, default 1.0
        rho; exactly 1 stays 1 (the zero-lag law), one below 1 is learned.
    coast_retention : float, default 1.0
        Retention in steps without data.
    ridge : float, default 1e-2
        In units of the squared gap: softens the response where eigenvalues are nearly equal.
    per : Share, default "layer"
        "layer": one law for all planes; "plane": one for every pair of eigenvectors.
    inertia : bool, default False
        Let the planes differ in how hard their velocity is to change.
    longest_step : float, default 1.0
        Intervals up to this one are kept stable.

    Examples
    --------
    >>> law = FixedLaw(3, position_gain=0.1, velocity_gain=0.005)
    >>> round(law().position_gain.item(), 6), round(law().velocity_gain.item(), 6)
    (0.1, 0.005)
    """

    def __init__(
        self,
        d: int,
        *,
        position_gain: float = 0.1,
        velocity_gain: float = 0.005,
        retention: float = 1.0,
        coast_retention: float = 1.0,
        ridge: float = 1e-2,
        per: Share = "layer",
        inertia: bool = False,
        longest_step: float = 1.0,
    ) -> None:
        super().__init__(d, per, inertia)
        if not longest_step >= 1.0:
            raise ValueError(f"longest_step must be at least 1, got {longest_step!r}")
        if position_gain == 0.0 and retention == 1.0:
            raise ValueError(
                "position_gain=0 with retention=1 swings for ever, |rho (1-A)| = 1; give a "
                "retention below 1, or a position gain above 0"
            )
        self.longest_step = longest_step
        self.free_position = self._new(_outside(position_gain, 0.0, 2.0)) if position_gain else None
        self.free_retention = None if retention == 1.0 else self._new(_outside(retention))
        self.free_coast = None if coast_retention == 1.0 else self._new(_outside(coast_retention))
        kept = retention * coast_retention ** (longest_step - 1.0)
        most = (2.0 - position_gain) * (1.0 + kept) / longest_step
        self.free_velocity = self._new(_outside(velocity_gain / most))
        self.free_ridge = nn.Parameter(torch.tensor(free_positive(ridge, *RIDGE)))

    @property
    def kicks(self) -> bool:
        """Whether observations only kick, and all planes are damped alike."""
        dampings = (self.free_retention, self.free_coast)
        return self.free_position is None and all(v is None or v.ndim == 0 for v in dampings)

    def forward(self) -> FixedGains:
        """The law these parameters stand for, ``(d, d)`` or a number each."""
        position = self._number(self.free_position, 0.0, lambda free: _inside(free, 0.0, 2.0))
        keep = self._number(self.free_retention, 1.0, _inside)
        coast = self._number(self.free_coast, 1.0, _inside)
        kept = keep * coast ** (self.longest_step - 1.0)
        most = (2.0 - position) * (1.0 + kept) / self.longest_step
        velocity = most * _inside(self._planes(self.free_velocity.double()) - self._log_inertia())
        ridge = positive(self.free_ridge.double(), *RIDGE)
        return FixedGains(position, velocity, keep, coast, ridge)


class InformationLaw(Law):
    """Per-plane Kalman gains whose process noise is learned; stable for every positive noise.

    Numbers at the edge of their range (``angle_noise=0``, ``retention=1``) stay there, the others
    are learned. ``per="plane"`` learns them for every pair of eigenvectors, in their order at the
    start. ``inertia`` makes a white torque act on planes of different inertia J: the acceleration
    noise of a plane is ``acceleration / J^2``.

    Parameters
    ----------
    d : int
        Dimension.
    acceleration : float, default 1e-6
        Spectral density of the acceleration, rad^2 per unit time^3, where learning starts.
    angle_noise : float, default 0.0
        That of a random walk of the angle, rad^2 per unit time; exactly 0 stays 0.
    retention : float, default 1.0
        Share of the velocity kept per unit time.
    rate_prior : float, default 4e-4
        Variance of the velocity at the start.
    per : Share, default "layer"
        "layer": one law for all planes; "plane": one for every pair of eigenvectors.
    inertia : bool, default False
        Let the planes differ in how hard their velocity is to change.

    Examples
    --------
    >>> law = InformationLaw(3, acceleration=1e-6, retention=0.9)
    >>> round(law().acceleration.item(), 12), round(law().retention.item(), 6)
    (1e-06, 0.9)
    """

    def __init__(
        self,
        d: int,
        *,
        acceleration: float = 1e-6,
        angle_noise: float = 0.0,
        retention: float = 1.0,
        rate_prior: float = 4e-4,
        per: Share = "layer",
        inertia: bool = False,
    ) -> None:
        super().__init__(d, per, inertia)
        self.free_acceleration = self._new(free_positive(acceleration, *NOISE))
        self.free_rate_prior = self._new(free_positive(rate_prior, *NOISE))
        self.free_angle_noise = (
            self._new(free_positive(angle_noise, *NOISE)) if angle_noise else None
        )
        self.free_retention = None if retention == 1.0 else self._new(_outside(retention))

    def forward(self) -> InformationGains:
        """The law these parameters stand for, ``(d, d)`` or a number each."""

        def noise(free: Tensor) -> Tensor:
            return positive(free, *NOISE)

        inertia = self._log_inertia()
        return InformationGains(
            self._number(self.free_acceleration, 0.0, lambda free: noise(free - 2.0 * inertia)),
            self._number(self.free_angle_noise, 0.0, noise),
            self._number(self.free_retention, 1.0, _inside),
            self._number(self.free_rate_prior, 0.0, noise),
            self._number(None, InformationGains.angle_prior, noise),
        )


def as_law(law: str | Law, d: int) -> Law:
    """A law from its name, or a law, checked."""
    if isinstance(law, Law):
        if law.d != d:
            raise ValueError(f"the gain law is made for d = {law.d}, the layer for d = {d}")
        return law
    if law == "information":
        return InformationLaw(d)
    if law == "fixed":
        return FixedLaw(d)
    if law == "printed":  # Algorithm 1: its M_{t+1} is the layer's forecast after C_t
        numbers = vars(gains.printed())
        return FixedLaw(d, **{name: v for name, v in numbers.items() if name != "ridge"})
    raise ValueError(f"gains must be 'information', 'fixed', 'printed' or a law, got {law!r}")


def cast(law: Any, dtype: torch.dtype) -> Any:
    """The same law, or tuple of tensors, in another precision."""
    if isinstance(law, (FixedGains, InformationGains)):
        return type(law)(**{name: number.to(dtype) for name, number in vars(law).items()})
    return type(law)(*(number.to(dtype) for number in law))
