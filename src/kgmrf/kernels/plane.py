"""One plane of an eigenframe: the two-state (angle, velocity) Kalman filter, eight at a time.

Lanes are planes of one track or tracks of one plane; the formulas are the same and stand only here
and, for arrays, in :mod:`kgmrf.step`.
"""

from __future__ import annotations

from typing import Any

from kgmrf.gains import ANGLE_VARIANCE_LIMIT
from kgmrf.kernels.compile import jit
from kgmrf.kernels.lanes import above, any_above, div, fma, root, spread
from kgmrf.motion import CORRELATION_LIMIT

MOST_CORRELATED = CORRELATION_LIMIT**2


@jit
def widen(
    p11: Any, p12: Any, p22: Any, turn: Any, keep: Any, angle: Any, cross: Any, rate: Any
) -> Any:
    """P <- F P F^T + noise with F = [[1, turn], [0, keep]]."""
    reach = fma(turn, p22, p12)
    return (p11 + turn * (p12 + reach) + angle, keep * reach + cross, keep * keep * p22 + rate)


@jit
def limit(p: Any, p12: Any, most: float) -> Any:
    """p <= most, p12 shrunk alike: clipping a variance alone would make P indefinite."""
    top = spread(most)
    if any_above(p, top):
        p12 = root(div(top, above(p, top, p, top))) * p12
        p = above(p, top, top, p)
    return p, p12


@jit
def within_circle(p11: Any, p12: Any, p22: Any, rate_limit: float) -> Any:
    """An angle prior no wider than the circle, a velocity prior that does not alias.

    An endless coast drives the correlation of both to 1, where rounding decides about
    definiteness; so it stops just short of it.
    """
    p11, p12 = limit(p11, p12, ANGLE_VARIANCE_LIMIT)
    p22, p12 = limit(p22, p12, rate_limit)
    most, square = spread(MOST_CORRELATED) * p11 * p22, p12 * p12
    if any_above(square, most):
        one = spread(1.0)
        tight = above(square, most, square, one)
        p12 = root(div(above(square, most, most, one), tight)) * p12
    return p11, p12, p22


@jit
def correct(p11: Any, p12: Any, p22: Any, pull: Any, information: Any, noise: Any) -> Any:
    """Gains p11/den and p12/den of ``pull``, den = p11 information + noise; P after them.

    Returns the angle to turn by, the kick of the velocity, p11, p12, p22 and 1/den.
    """
    inverse, zero = div(spread(1.0), fma(p11, information, noise)), spread(0.0)
    scaled, rest = pull * inverse, noise * inverse
    left = p22 - p12 * p12 * information * inverse
    p22 = above(left, zero, left, zero)  # below by rounding only
    return p11 * scaled, p12 * scaled, p11 * rest, p12 * rest, p22, inverse
