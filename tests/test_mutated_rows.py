"""Rows with damage, past their check: refused, or stepped without leaving any array.

`make test-sanitized` runs this with 100,000 rows under AddressSanitizer, which sees the bounds.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kgmrf import gains
from kgmrf.engines import INVALID, Engine, Lines
from kgmrf.engines.ensemble import Ensemble
from kgmrf.engines.law import SingleLaw
from kgmrf.engines.low_rank import LowRank
from kgmrf.engines.rotations import Rotations
from kgmrf.geometry import so
from kgmrf.model.law_state import Model, cold_state

N_MUTANTS = int(os.environ.get("KGMRF_MUTANTS", "150"))
HOSTILE = (np.nan, np.inf, -np.inf, -1.0, 0.0, 1.0, 0.5, 3.0, 1e9, 1e18, 1e300, -1e300, 5e-324)


def samples(g: Any, n: int, d: int) -> np.ndarray:
    return g.normal(size=(n, 1, d))


def matrices(g: Any, n: int, d: int) -> np.ndarray:
    x = g.normal(size=(n, 2 * d, d))
    return np.swapaxes(x, 1, 2) @ x / (2 * d)


def poses(g: Any, n: int, d: int) -> np.ndarray:
    skew = g.normal(size=(n, d, d)) * 0.3
    return so.exp(skew - np.swapaxes(skew, 1, 2))


def law() -> Engine:
    model = Model(gains.information(), pool_samples=25.0, pool_steps=10.0)
    return SingleLaw(model, cold_state(np.zeros((5, 5)), model.gains))


ENGINES: dict[str, tuple[Callable[[], Engine], Callable[..., np.ndarray], int]] = {
    "ensemble": (lambda: Ensemble(3), samples, 3),
    "ensemble of matrices": (lambda: Ensemble(9), matrices, 9),
    "matrices of unknown worth": (lambda: Ensemble(4, learns_samples=True), matrices, 4),
    "law": (law, matrices, 5),
    "rotations": (lambda: Rotations(), poses, 3),
    "rotations without oscillators": (lambda: Rotations(oscillations=False), poses, 3),
    "low rank": (lambda: LowRank(20, 3), samples, 20),
}


@pytest.mark.parametrize("name", ENGINES)
def test_damaged_rows_are_refused_or_do_no_harm(name: str) -> None:
    make, draw, d = ENGINES[name]
    engine, g = make(), np.random.default_rng(0)
    matrix = draw is not samples

    def lines(n: int) -> Lines:
        counts = np.full(n, 2.0 * d if draw is matrices else 1.0)
        counts[n // 2] = 0.0
        which, dt = np.zeros(n, np.int64), np.append(0.0, g.choice([0.5, 1.0, 30.0], n - 1))
        return Lines(which, draw(g, n, d), counts, dt, matrix, 1e-6)

    good = [engine.init(1) for _ in range(4)]
    for k, rows in enumerate(good):
        engine.advance(rows, lines(3 * 4**k))
        engine.check(rows)
    refused, few = 0, lines(4)
    with np.errstate(all="ignore"):
        for _ in range(N_MUTANTS):
            rows = good[g.integers(len(good))].copy()
            # Half of the damage to the head: there stand the counts that loops run to.
            end = 40 if g.random() < 0.5 else rows.size
            for place in g.integers(0, end, size=g.integers(1, 4)):
                rows[0, place] = (
                    HOSTILE[g.integers(len(HOSTILE))]
                    if g.random() < 0.7
                    else rows[0, place] * g.normal()
                )
            try:
                engine.check(rows)
            except ValueError:
                refused += 1
                continue
            status, _ = engine.advance(rows, few)
            assert not (status == INVALID).any()
            engine.records_of(rows)
            engine.ahead(rows, 3.0)
    assert 0.1 * N_MUTANTS < refused < N_MUTANTS
