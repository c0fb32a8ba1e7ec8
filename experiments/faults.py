"""What goes wrong with real sensors, and what the default does then.

    python -m experiments run faults

Zeros before and inside a stream, one row 10^8 times too large, units that differ by 10^9, a stuck
channel, coarse rounding, bursts, missing cells. Scores are log-densities of the one-step-ahead
forecast in nats per row. `ewma` beside them is an average of x x^T.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.store import Unit, unit
from experiments.streams import data, rivals, scores
from kgmrf import KGMRF
from kgmrf._types import Numbers

COLUMNS = (0, 2, 4, 8, 11)
UNITS = np.array([1.0, 1e9, 1.0, 1e-9, 1.0])
AFTER = {"row 0": (0, 1), "rows 1-2": (1, 3), "rows 3-9": (3, 10), "rows 10-49": (10, 50)}
QUIET, LOUD_FIRST = 1e-3, 300
HALF_LIVES = (1, 2, 4, 16, 64, 256, 1024)


def normal_rows() -> Numbers:
    """default_rng(0), 2,000 standard normal rows of 5 channels."""
    return np.random.default_rng(0).normal(size=(2000, 5))


def after(score: Numbers, row: int) -> dict[str, float]:
    """Mean score in ranges of rows that follow ``row``."""
    return {name: float(score[row + a : row + b].mean()) for name, (a, b) in AFTER.items()}


def ewma_score(x: Numbers, half_life: float = 16.0) -> Numbers:
    """Gaussian score of an EWMA; NaN for rows before it has rank."""
    first = 5 * x.shape[1]
    held = rivals.average(x[:, :, None] * x[:, None, :], half_life)
    found = scores.gaussian(scores.reach(x[first:], held[first - 1 : -1]))
    return np.concatenate([np.full(first, np.nan), found])


def zeros_first() -> dict[str, Any]:
    """25 rows of zeros, then 2,000 ordinary ones: the trace at the end (true value 5)."""
    x = np.vstack([np.zeros((25, 5)), normal_rows()])
    result = KGMRF().filter(x)
    return {
        "trace": float(np.trace(result.covariance[-1])),
        "score": float(result.log_likelihood[525:].mean()),
        "oracle": float(_standard(x[525:]).mean()),
    }


def _standard(x: Numbers) -> Numbers:
    return -0.5 * (x.shape[1] * np.log(2 * np.pi) + (x**2).sum(axis=1))


def zeros_inside(n_zeros: int) -> dict[str, Any]:
    """Rows of zeros after row 1,000; scores of the rows that follow."""
    x = np.insert(normal_rows(), np.full(n_zeros, 1000), 0.0, axis=0)
    row = 1000 + n_zeros
    mine = KGMRF().filter(x).log_likelihood
    return {"ours": after(mine, row), "oracle": after(_standard(x), row)}


def outlier() -> dict[str, Any]:
    """Row 1,000 of five ETFs times 10^8: trace over the trace without it, afterwards."""
    x = data.load("etf18").samples[:1201, COLUMNS]
    spoiled = x.copy()
    spoiled[1000] *= 1e8
    clean, hit = (KGMRF().filter(rows).covariance for rows in (x, spoiled))
    ratio = np.trace(hit, axis1=1, axis2=2) / np.trace(clean, axis1=1, axis2=2)
    return {f"after {n} rows": float(ratio[1000 + n]) for n in (1, 10, 100)}


def units_differ() -> dict[str, Any]:
    """Five ETFs, two channels in units 10^9 larger and smaller: change of the score, in nats."""
    x = data.load("etf18").samples[:, COLUMNS]
    plain = KGMRF().filter(x).log_likelihood
    changed = KGMRF().filter(x * UNITS).log_likelihood + np.log(UNITS).sum()
    return {
        "mean_difference": float((changed - plain)[500:].mean()),
        "largest_difference": float(np.abs(changed - plain)[500:].max()),
    }


def stuck_channel(n_stuck: int) -> dict[str, Any]:
    """One of five channels reads zero for some rows after row 1,000, then comes back."""
    x = normal_rows()
    x[1000 : 1000 + n_stuck, 2] = 0.0
    row = 1000 + n_stuck
    result = KGMRF().filter(x)
    mine = result.log_likelihood
    return {
        "while_stuck": float(mine[1050:row].mean()),
        "ours": after(mine, row),
        "oracle": after(_standard(x), row),
        "trace": float(np.trace(result.covariance[-1])),
    }


def rounded() -> dict[str, Any]:
    """Ordinary rows rounded to one standard deviation: score from row 500."""
    x = np.round(normal_rows())
    mine = KGMRF().filter(x).log_likelihood
    return {
        "ours": float(mine[500:].mean()),
        "ewma": float(ewma_score(x)[500:].mean()),
        "ewma_half_life_64": float(ewma_score(x, 64.0)[500:].mean()),
    }


def burst_rows(d: int, seed: int, n_rows: int = 3000) -> tuple[Numbers, Any, Numbers]:
    """Normal rows whose standard deviation falls to 1/1,000 for 50-300 rows, again and again.

    Samples, whether each row is loud, and the log-density of the true Gaussian. The first 300 rows
    are loud.
    """
    rng = np.random.default_rng(seed)
    mix = rng.normal(size=(d, d)) / np.sqrt(d) + np.eye(d)
    x = rng.normal(size=(n_rows, d)) @ mix.T
    loud = np.ones(n_rows, dtype=bool)
    t = LOUD_FIRST
    while t < n_rows:
        quiet = rng.integers(50, 301)
        loud[t : t + quiet] = False
        t += quiet + rng.integers(50, 301)
    size = np.where(loud, 1.0, QUIET)
    x = x * size[:, None]
    truth = (mix @ mix.T) * size[:, None, None] ** 2
    return x, loud, scores.gaussian(scores.reach(x, truth))


def best_ewma(x: Numbers, first: int) -> Numbers:
    """Row scores of the EWMA with half-life, degrees of freedom and scale best in hindsight."""
    found = []
    for half_life in HALF_LIVES:
        held = rivals.average(x[:, :, None] * x[:, None, :], half_life)
        found.append(scores.best_student(scores.reach(x[first:], held[first - 1 : -1]))[0])
    best = max(found, key=lambda score: float(score.mean()))
    return np.concatenate([np.full(first, np.nan), best])


def bursts(d: int, n_seeds: int) -> dict[str, Any]:
    """Loss against the true Gaussian in nats per dimension, by rows since the last switch.

    `ewma` is the best in hindsight, as a Student-t.
    """
    table: dict[str, dict[str, list[float]]] = {"ours": {}, "ewma": {}}
    for seed in range(n_seeds):
        x, loud, oracle = burst_rows(d, seed)
        switch = np.flatnonzero(np.diff(loud.astype(int))) + 1
        rows = np.arange(len(x))
        age = rows - np.concatenate([[0], switch])[np.searchsorted(switch, rows, side="right")]
        tested = rows >= LOUD_FIRST
        spans = {**AFTER, "rows 50-": (50, len(x))}
        held = {"ours": KGMRF().filter(x).log_likelihood, "ewma": best_ewma(x, LOUD_FIRST)}
        for name, score in held.items():
            loss = (oracle - score) / d
            found = table[name]
            found.setdefault("all", []).append(float(loss[tested].mean()))
            for word, which in (("loud", loud), ("quiet", ~loud)):
                for span, (a, b) in spans.items():
                    chosen = tested & which & (age >= a) & (age < b)
                    found.setdefault(f"{word}, {span}", []).append(float(loss[chosen].mean()))
    return {name: {k: np.mean(v) for k, v in rows.items()} for name, rows in table.items()}


def missing_cells(stream: str, share: float = 0.1) -> dict[str, Any]:
    """A tenth of the cells missing at random: the score of the rows that are complete anyway.

    All three trackers are scored on the same rows; they differ in what they saw of the others:
    every cell, the cells that are left, or nothing.
    """
    if stream == "simulated":
        x, first = drifting_rows(), 500
    else:
        x, first = data.load(stream)
        x = x[:4000]
    rng = np.random.default_rng(0)
    hidden = rng.random(x.shape) < share
    complete = ~hidden.any(axis=1)
    complete[:first] = False
    holes = np.where(hidden, np.nan, x)
    dropped = np.where(hidden.any(axis=1)[:, None], np.nan, x)
    means = {
        name: float(KGMRF().filter(rows).log_likelihood[complete].mean())
        for name, rows in (("every cell", x), ("cells missing", holes), ("rows dropped", dropped))
    }
    inside = means["rows dropped"] <= means["cells missing"] <= means["every cell"]
    return {**means, "rows_scored": int(complete.sum()), "between": inside}


def drifting_rows(d: int = 8, n_rows: int = 4000) -> Numbers:
    """Normal rows of a covariance whose channels' sizes drift slowly."""
    rng = np.random.default_rng(7)
    mix = rng.normal(size=(d, d)) / np.sqrt(d) + np.eye(d)
    size = np.exp(np.cumsum(0.03 * rng.normal(size=(n_rows, d)), axis=0))
    return rng.normal(size=(n_rows, d)) @ mix.T * size


def units(quick: bool) -> list[Unit]:
    """One unit per fault."""
    found = [
        unit("faults", "zeros_first", zeros_first),
        unit("faults", "zeros_inside_20", zeros_inside, n_zeros=20),
        unit("faults", "stuck_channel_200", stuck_channel, n_stuck=200),
        unit("faults", "rounded", rounded),
        unit("faults", "bursts_3", bursts, d=3, n_seeds=1 if quick else 5),
        unit("faults", "missing_simulated", missing_cells, stream="simulated"),
    ]
    if quick:
        return found
    return [
        *found,
        unit("faults", "zeros_inside_200", zeros_inside, n_zeros=200),
        unit("faults", "outlier", outlier),
        unit("faults", "units", units_differ),
        unit("faults", "bursts_9", bursts, d=9, n_seeds=5),
        unit("faults", "missing_etf18", missing_cells, stream="etf18"),
        unit("faults", "missing_factors8", missing_cells, stream="factors8"),
    ]
