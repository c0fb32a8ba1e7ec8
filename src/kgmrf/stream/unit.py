"""The unit of time of a stream: what its user says, or the usual interval of its tracks."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgmrf._time import FIRST
from kgmrf._types import Numbers
from kgmrf.io.dates import per_second


class Unit:
    """The median of the first eight positive intervals of all tracks together, then frozen.

    While fewer are known it is the median of those. Before the first it is a second, if stamps tell
    by their size what that is, or 1. How lines are cut into blocks makes no difference.

    >>> unit = Unit()
    >>> unit.counted(np.array([0.0, 500.0, 1500.0])).tolist(), unit.value
    ([0.0, 1.0, 1.5], 1000.0)
    """

    def __init__(self, given: float | None = None) -> None:
        self.value = 1.0 if given is None else given
        self.given = given is not None
        self.first: list[float] = []
        self.looked = False

    @property
    def frozen(self) -> bool:
        """Whether it changes no more."""
        return self.given or len(self.first) >= FIRST

    def look(self, times: Numbers) -> None:
        """Take the size of a first stamp for what a second is, while nothing else is known."""
        known = times[~np.isnan(times)]
        if not (self.given or self.looked) and known.size:
            self.looked = True
            self.value = per_second("", float(known[0])) or 1.0

    def of(self, steps: Numbers) -> Numbers:
        """The unit at each of these intervals, from which it is learned, in order."""
        units = np.full(len(steps), self.value)
        if self.frozen:
            return units
        tell = np.flatnonzero(steps > 0.0).tolist()
        for k in tell[: FIRST - len(self.first)]:
            self.first.append(float(steps[k]))
            self.value = float(np.median(self.first))
            units[k:] = self.value
        return units

    def counted(self, steps: Numbers) -> Numbers:
        """Intervals in units, which are learned from them."""
        return steps / self.of(steps)

    def words(self) -> str:
        """What it is, and why."""
        which = "the first eight" if self.frozen else f"{len(self.first)}"
        return f"time unit {self.value:.6g}, the median of {which} intervals; --time-unit fixes it"

    def restore(self, first: Any) -> None:
        """Go on from the intervals of a state."""
        known = [float(step) for step in first]
        if len(known) > FIRST or not all(0.0 < step < np.inf for step in known):
            raise ValueError("its intervals are none")
        if known and not self.given:
            self.looked = True
            self.of(np.array(known))
