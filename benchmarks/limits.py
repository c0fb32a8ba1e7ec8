"""What the machine can do at best: multiply-adds, copying, and calling a method."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from benchmarks.measure import Contender
from kgmrf.kernels.lanes import fma, load, spread, store

CHAINS = 12
TURNS = 4000
COPY = 32 * 1024 * 1024


@njit(cache=True)
def _multiply_add(w: Any, turns: int) -> None:
    x, y = load(w, 0), spread(1e-9)
    a = b = c = d = e = f = g = h = i = j = k = m = x
    for _ in range(turns):
        a = fma(a, y, x)
        b = fma(b, y, x)
        c = fma(c, y, x)
        d = fma(d, y, x)
        e = fma(e, y, x)
        f = fma(f, y, x)
        g = fma(g, y, x)
        h = fma(h, y, x)
        i = fma(i, y, x)
        j = fma(j, y, x)
        k = fma(k, y, x)
        m = fma(m, y, x)
    store(w, 0, a + b + c + d + e + f + g + h + i + j + k + m)


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
    """Seconds per multiply-add of one core, eight to an instruction."""
    w = np.ones(64)
    return Contender("FMA", lambda: _multiply_add(w, TURNS), units=CHAINS * 8.0 * TURNS)


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
