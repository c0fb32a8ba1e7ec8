"""Fair clocks: contenders take turns, and only the processor time they use is counted.

On a quiet machine that is the time that passes; on a busy one it leaves out the time during which
others had the processor. What runs on several threads is timed by the wall clock instead.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Contender:
    """Something to time: a call of ``run`` does ``units`` units of work."""

    name: str
    run: Callable[[], object]
    units: float = 1.0
    clock: Callable[[], float] = time.process_time
    seconds: list[float] = field(default_factory=list)

    def take_turn(self) -> None:
        """One call, on the clock."""
        start = self.clock()
        self.run()
        self.seconds.append((self.clock() - start) / self.units)


def race(contenders: list[Contender], rounds: int = 15) -> dict[str, dict[str, float]]:
    """Median, least and tenth-percentile seconds per unit of every contender, taking turns."""
    for contender in contenders:
        contender.run()  # compile, fill caches
    for _ in range(rounds):
        for contender in contenders:
            contender.take_turn()
    return {
        c.name: {
            "median": statistics.median(c.seconds),
            "least": min(c.seconds),
            "tenth": sorted(c.seconds)[len(c.seconds) // 10],
            "rounds": rounds,
        }
        for c in contenders
    }
