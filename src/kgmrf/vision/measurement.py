"""What a measurement of a box is asked, and what it answers."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kgmrf._types import Numbers

__all__ = ["Expected", "Measurement", "Sighting"]


class Expected(NamedTuple):
    """Where the motion expects the box.

    centre, size: (2,) in pixels. scale: sqrt(width height). variance: that of the centre per axis,
    in units of scale squared. reach: how far from the centre to look, along each axis, in pixels.
    """

    centre: Numbers
    size: Numbers
    scale: float
    variance: float
    reach: float


class Sighting(NamedTuple):
    """The best place in one image.

    centre: (2,) in pixels. cost: 0 like the target, 1 like its surroundings. log_odds: of the box
    being on its target, from this image alone. usual: what the cost of the target usually is, where
    that is known.
    """

    centre: Numbers
    cost: float
    log_odds: float
    usual: float = 1.0


class Measurement(Protocol):
    """One image after the other: `look`, then `take` what was seen or `rest`."""

    def start(self, pixels: NDArray[np.generic], centre: Numbers, size: Numbers) -> None:
        """Learn the target from its box in the first image."""

    def look(self, pixels: NDArray[np.generic], expected: Expected) -> Sighting:
        """The best place in the next image."""

    def take(self) -> tuple[Numbers, Numbers]:
        """What was seen last is the target: its centre and size."""

    def rest(self) -> None:
        """What was seen last is not the target: learn nothing from it."""
