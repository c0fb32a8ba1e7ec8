"""One plane of an eigenframe: the two-state (angle, velocity) Kalman filter, eight at a time.

Lanes are planes of one track or tracks of one plane; the formulas are the same and stand only here
and, for arrays, in :mod:`kgmrf.step`.
"""

from __future__ import annotations

from typing import Any

from kgmrf.gains import ANGLE_VARIANCE_LIMIT, RATE_VARIANCE_LIMIT
from kgmrf.kernels.compile import jit
from kgmrf.kernels.lanes import above, any_above, div, fma, root, spread


@jit
def widen(
    p11: Any, p12: Any, p22: Any, turn: Any, keep: Any, angle: Any, cross: Any, rate: Any
) -> Any:
    """P <- F P F^T + noise with F = [[1, turn], [0, keep]]."""
    reach = fma(turn, p22, p12)
    return (
        p11 + turn * (p12 + reach) + angle,
        keep * reach + cross,
        keep * keep * p22 + rate,
    )


@jit
def limit(p: Any, p12: Any, most: float) -> Any:
    """p <= most, p12 shrunk alike: clipping a variance alone would make P indefinite."""
    top = spread(most)
    if any_above(p, top):
        p12 = root(div(top, above(p, top, p, top))) * p12
        p = above(p, top, top, p)
    return p, p12


@jit
def within_circle(p11: Any, p12: Any, p22: Any) -> Any:
    """An angle prior no wider than the circle, a velocity prior that does not alias."""
    p11, p12 = limit(p11, p12, ANGLE_VARIANCE_LIMIT)
    p22, p12 = limit(p22, p12, RATE_VARIANCE_LIMIT)
    return p11, p12, p22


@jit
def correct(p11: Any, p12: Any, p22: Any, pull: Any, information: Any, noise: Any) -> Any:
    """Gains p11/den and p12/den of ``pull``, den = p11 information + noise; P after them.

    Returns the angle to turn by, the kick of the velocity, p11, p12, p22 and 1/den.
    """
    inverse = div(spread(1.0), fma(p11, information, noise))
    scaled, rest = pull * inverse, noise * inverse
    p22 = p22 - p12 * p12 * information * inverse
    return p11 * scaled, p12 * scaled, p11 * rest, p12 * rest, p22, inverse
