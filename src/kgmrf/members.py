"""The members of the ensemble: named laws, and which of them are the default.

Every member forecasts a covariance S_k from its own memory:

    Average     S = e^s D B D        B a moving average, s a size clock, D channel clocks
    Diagonal    S = D^2              variances only
    Rotating    S = Q diag(lam) Q^T  the information law: an eigenframe with a velocity
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from kgmrf import _deprecated
from kgmrf.constants import FLOOR as FLOOR
from kgmrf.constants import LEVEL_MEMORY as LEVEL_MEMORY
from kgmrf.constants import SIZE_RETENTION as SIZE_RETENTION

MOST = 1e30
"""Largest number of a member: its products with the longest step can still be squared."""


@dataclass(frozen=True)
class Average:
    """S = e^s D B D, B <- B + (e^-s D^-1 C D^-1 - B)/V, V <- 1 + 2^(-dt/half_life) V.

    Parameters
    ----------
    half_life : float
        Time after which an observation weighs half in B.
    size_gain : float, default 0.0
        Gain of the size clock, s <- s + log(1 + size_gain (z/d - 1)); 0 leaves it out.
    channel_half_life : float, default None
        Half-life of the channel clocks D; None leaves them out.
    clip_outliers : bool, default False
        Weigh an outlier by min(1, 20 d/z) instead of by the forecast's Student-t weight.
    prior : float, default 1.0
        Weight at the start, relative to the other members.

    Examples
    --------
    >>> Average(64.0, size_gain=0.6).prior
    1.0
    """

    half_life: float
    size_gain: float = 0.0
    channel_half_life: float | None = None
    clip_outliers: bool = False
    prior: float = 1.0


@dataclass(frozen=True)
class Diagonal:
    """S = D^2 with D_i^2 <- D_i^2 + gamma (C_ii - D_i^2), gamma = max(1 - 2^(-dt/half_life), 1/n).

    Parameters
    ----------
    half_life : float
        Time after which an observation weighs half.
    prior : float, default 1.0
        Weight at the start, relative to the other members.

    Examples
    --------
    >>> Diagonal(1024.0).half_life
    1024.0
    """

    half_life: float
    prior: float = 1.0


@dataclass(frozen=True)
class Rotating:
    """S = Q diag(lam) Q^T: the information law with these numbers (see :mod:`kgmrf.model.gains`).

    Parameters
    ----------
    acceleration : float
        Spectral density of the acceleration of the frame, rad^2 per unit time^3.
    spectrum_rate : float, default 1e-4
        Variance that the log eigenvalues gain per unit time.
    rate_prior : float, default 4e-4
        Variance of the velocity at the start: .02 rad per step is usual.
    prior : float, default 1.0
        Weight at the start, relative to the other members.

    Examples
    --------
    >>> Rotating(1e-6).rate_prior
    0.0004
    """

    acceleration: float
    spectrum_rate: float = 1e-4
    rate_prior: float = 4e-4
    prior: float = 1.0


Member: TypeAlias = Average | Diagonal | Rotating
KINDS: dict[str, Any] = {kind.__name__: kind for kind in (Average, Diagonal, Rotating)}


def default_members(d: int) -> tuple[Member, ...]:
    """The eleven members of the default ensemble; nine for d = 1, where nothing can turn.

    Long half-lives grow with d, for a matrix has more to learn than a number; the correlations of
    the average whose variances follow each channel are as quick for many channels as for few.

    Parameters
    ----------
    d : int
        Dimension; it scales the long half-lives.

    Examples
    --------
    >>> len(default_members(3)), len(default_members(1))
    (11, 9)
    """
    long = max(1.0, d / 16.0)
    members: list[Member] = [
        Average(1.0, clip_outliers=True),
        Average(4.0),
        Average(16.0),
        Average(256.0, channel_half_life=16.0),
        Average(1024.0 * long, prior=4.0),
        Average(64.0 * long, size_gain=0.6, clip_outliers=True),
        Average(1024.0 * long, size_gain=0.1),
        Average(256.0 * long, size_gain=0.3, channel_half_life=16.0),
        Diagonal(1024.0),
    ]
    if d > 1:
        members += [Rotating(1e-8), Rotating(1e-6)]
    return tuple(members)


def as_members(members: Iterable[Any] | None, d: int) -> tuple[Member, ...]:
    """Members in the order of the engine: averages, diagonals, turning ones; checked.

    Accepts the named objects, or the tables that `plain` makes of them.

    Parameters
    ----------
    members : Iterable[Any]
        Members, or tables of them; None is `default_members`.
    d : int
        Dimension; for 1 there are no rotating members.

    Examples
    --------
    >>> as_members([Rotating(1e-6), Average(8.0)], 2)[0]
    Average(half_life=8.0, size_gain=0.0, channel_half_life=None, clip_outliers=False, prior=1.0)
    """
    if members is None:
        return default_members(d)
    found = [_as_member(member) for member in members]
    if not found:
        raise ValueError("members must hold at least one member, such as Average(64.0)")
    if d == 1 and any(isinstance(member, Rotating) for member in found):
        raise ValueError(
            "one channel has no plane to turn in; leave out Rotating members for d = 1"
        )
    order = (Average, Diagonal, Rotating)
    return tuple(sorted(found, key=lambda member: order.index(type(member))))


def plain(members: Iterable[Member]) -> list[dict[str, Any]]:
    """Members as tables of plain numbers and words, for state files.

    Parameters
    ----------
    members : Iterable[Member]
        Members to write down.

    Examples
    --------
    >>> plain([Diagonal(8.0)])
    [{'member': 'Diagonal', 'half_life': 8.0, 'prior': 1.0}]
    """
    return [{"member": type(member).__name__, **asdict(member)} for member in members]


def _as_member(member: Any) -> Member:
    if isinstance(member, dict):
        table = dict(member)
        name = table.pop("member", None)
        kind = KINDS.get("Rotating" if name == "Turning" else name)  # of older state files
        if kind is None:
            raise ValueError(f"member must be one of {', '.join(KINDS)}, got {member!r}")
        if "limited" in table:
            table["clip_outliers"] = table.pop("limited")
        member = kind(**table)
    if not isinstance(member, (Average, Diagonal, Rotating)):
        raise TypeError(f"members are kgmrf.members objects such as Average(64.0), got {member!r}")
    for name, value in asdict(member).items():
        if name == "clip_outliers" or value is None:
            continue
        least = 0.0 if name in ("size_gain", "acceleration", "spectrum_rate") else math.ulp(0.0)
        if not (isinstance(value, (int, float)) and least <= value <= MOST):
            raise ValueError(
                f"{name} of {type(member).__name__} must be positive and at most {MOST:g}, "
                f"got {value!r}"
            )
    if isinstance(member, Average) and member.size_gain >= 1.0:
        raise ValueError(f"size_gain must be below 1, got {member.size_gain!r}")
    return member


__getattr__ = _deprecated.names(__name__, {"Turning": (__name__, "Rotating")})
