"""What the machine can do at best: multiply-adds, copying, and calling a method."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.measure import Contender

SIZE = 512
COPY = 32 * 1024 * 1024


class _Empty:
    def update(
        self,
        observation: Any,
        *,
        dt: float = 1.0,
        n_samples: Any = None,
        assume_valid: bool = False,
    ) -> None:
        """Nothing: the price of calling a method with this signature."""


def multiply_adds() -> Contender:
    """Seconds per multiply-add of one core, in a matrix product that fits the cache."""
    a, out = np.ones((SIZE, SIZE)), np.empty((SIZE, SIZE))
    return Contender("FMA", lambda: np.matmul(a, a, out=out), units=float(SIZE) ** 3)


def stream_copy() -> Contender:
    """Seconds per byte read or written by a copy that does not fit the caches."""
    source, target = np.ones(COPY // 8), np.ones(COPY // 8)
    return Contender("copy", lambda: np.copyto(target, source), units=2.0 * COPY)


def empty_call(observations: list[Any]) -> Contender:
    """Seconds per call of a method that does nothing."""
    update = _Empty().update

    def run() -> None:
        for observation in observations:
            update(observation)

    return Contender("empty method", run, units=len(observations))


def step_multiply_adds(d: int) -> float:
    """Multiply-adds that one covariance step with information gains cannot do without.

    Two exponentials of three products, one of them symmetric, and their application to the frame;
    the observation into the body frame, the second product symmetric; some 25 per plane.
    """
    return 2 * 3.5 * d**3 + 1.5 * d**3 + 25 * d * (d - 1) / 2
