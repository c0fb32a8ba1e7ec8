"""How probable it is that a box is on its target."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

__all__ = ["Confidence", "Evidence", "Usual", "log_odds", "surprise"]

BIAS = -3.144
WEIGHTS = (-10.417, -3.63, 16.541, -1.097, 5.917)
"""As `python -m experiments run confidence/fit` finds them."""

MEMORY = 0.3
"""Share of the last image's log odds that is kept."""

RENEWAL = 0.05
"""Share of the usual score that one image renews."""


class Evidence(NamedTuple):
    """What one image says about the best place that was found in it.

    score: cost of the match, 0 like the target and 1 like its surroundings. start: log of its
    divergence from the first image. runner_up: cost of the best place at least half a box away, the
    nearest of the background's covariances. surprise: log(1 + squared distance from the prediction)
    in units of its variance. usual: what scores were so far, where they were good enough to learn
    from (`Usual`).
    """

    score: float
    start: float
    runner_up: float
    surprise: float
    usual: float


class Usual:
    """Mean of the scores so far; of late ones, as soon as there are enough (gain `RENEWAL`)."""

    def __init__(self) -> None:
        self._count, self._mean = 0, 0.0

    def beside(self, score: float) -> float:
        """The usual score; ``score`` itself where there is no other yet."""
        return self._mean if self._count else score

    def take(self, score: float) -> None:
        """One more score."""
        self._count += 1
        self._mean += max(RENEWAL, 1 / self._count) * (score - self._mean)


def surprise(off: Any, variance: float) -> float:
    """log(1 + |off|^2 / (2 variance)) of an error (2,) of the prediction; variance per axis."""
    return math.log1p(0.5 * float(off @ off) / variance)


def log_odds(evidence: Evidence) -> float:
    """BIAS + WEIGHTS . evidence: what one image of region covariances says alone."""
    return BIAS + sum(w * value for w, value in zip(WEIGHTS, evidence, strict=True))


class Confidence:
    """p = 1/(1 + e^-l), l <- MEMORY l + (1 - MEMORY) log odds of the present image."""

    def __init__(self) -> None:
        self._log_odds = 4.0

    def update(self, now: float) -> float:
        """The probability that the box overlaps its target by more than .3 (IoU)."""
        self._log_odds = MEMORY * self._log_odds + (1 - MEMORY) * now
        return self.value

    @property
    def value(self) -> float:
        """The probability after the last image."""
        return 1 / (1 + math.exp(-max(-30.0, min(30.0, self._log_odds))))
