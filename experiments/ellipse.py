"""(A) The rotating ellipse: normal, occluded, and the sweep of angular rates.

Two readings of the protocol:

as_run      nearly noiseless (n_samples 3750 in the sweep, 1280 in the main table), three occlusions
            of 30 frames, errors over frames 50 to 399: what gives the printed numbers.
as_printed  Wishart with 8 samples, each frame lost with probability .2, all 400 frames scored.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from experiments import tuning
from experiments.recursions import alpha_beta_gamma
from experiments.store import Unit
from experiments.tuning import Method, Settings
from kgmrf import (
    KGMRF,
    EuclideanEMA,
    HoldLast,
    LogEuclideanEMA,
    RiemannianEMA,
    gains,
    metrics,
    paper,
    simulate,
)
from kgmrf._types import Mask, Numbers

RATES = (0.03, 0.05, 0.08, 0.10, 0.15, 0.20)
N_FRAMES = 400
SWEEP_SAMPLES, MAIN_SAMPLES, PRINTED_SAMPLES = 3750, 1280, 8
BURN_IN = {"as_run": 50, "as_printed": 0}


class Cell(NamedTuple):
    """One number of the paper's tables: a rate, a noise and a pattern of gaps."""

    name: str
    rate: float
    n_samples: int
    gaps: str


CELLS = {
    "as_run": tuple(Cell(f"{r:.2f}", r, SWEEP_SAMPLES, "none") for r in RATES)
    + (
        Cell("normal", 0.08, MAIN_SAMPLES, "none"),
        Cell("occluded", 0.08, MAIN_SAMPLES, "occlusions"),
    ),
    "as_printed": tuple(Cell(f"{r:.2f}", r, PRINTED_SAMPLES, "none") for r in RATES)
    + (Cell("occluded", 0.08, PRINTED_SAMPLES, "iid"),),
}


def gaps(cell: Cell, seed: int) -> Mask | None:
    """Which frames are seen; None means all."""
    if cell.gaps == "occlusions":
        return simulate.occlusions(N_FRAMES)
    if cell.gaps == "iid":
        return simulate.iid(N_FRAMES, 0.2, np.random.default_rng([seed, 20]))
    return None


@lru_cache(maxsize=8)
def scenes(reading: str, seeds: tuple[int, ...]) -> tuple[Numbers, Numbers, Numbers]:
    """Observations and truth (T, cells, seeds, 2, 2), samples behind each matrix (cells, 1)."""
    cells = CELLS[reading]
    shape = (N_FRAMES, len(cells), len(seeds), 2, 2)
    seen, truth = np.empty(shape), np.empty(shape)
    for i, cell in enumerate(cells):
        for j, seed in enumerate(seeds):
            scene = simulate.ellipse(
                cell.rate,
                n_frames=N_FRAMES,
                n_samples=cell.n_samples,
                observed=gaps(cell, seed),
                rng=seed,
            )
            seen[:, i, j], truth[:, i, j] = scene.observations, scene.covariance
    return seen, truth, np.array([[c.n_samples] for c in cells], dtype=float)


# ------------------------------------------------------------------------------- methods


def _tracker(kind: Any) -> Any:
    def run(seen: Numbers, counts: Numbers, **settings: Any) -> Numbers:
        return kind(**settings).filter(seen).covariance

    return run


def _kinetic(law: Any) -> Any:
    def run(seen: Numbers, counts: Numbers, **settings: Any) -> Numbers:
        tracker = KGMRF(gains=law(**settings))
        return tracker.filter(seen, n_samples=np.broadcast_to(counts, seen.shape[:-2])).covariance

    return run


def _auto(seen: Numbers, counts: Numbers) -> Numbers:
    return KGMRF().filter(seen, n_samples=np.broadcast_to(counts, seen.shape[:-2])).covariance


def _third_order(seen: Numbers, counts: Numbers, **settings: Any) -> Numbers:
    return alpha_beta_gamma(seen, **settings)


START = np.diag([2.0, 0.5])
"""M_0 of Algorithm 1: the truth, whose spectrum it never changes."""

AS_RUN = {
    "kgmrf": "K-GMRF, paper",
    "riemannian_ema": "“Riemannian” EMA, paper (log-Euclidean)",
    "euclidean_ema": "Euclidean EMA, paper",
    "tangent_kalman": "Tangent KF, paper",
    "alpha_beta": "Alpha-beta, paper",
}
AS_PRINTED = {
    "kgmrf": "Algorithm 1 as printed",
    "riemannian_ema": "Riemannian EMA as printed (gain .8)",
    "euclidean_ema": "Euclidean EMA as printed (gain .8)",
    "tangent_kalman": "Tangent KF as printed",
    "alpha_beta": "Alpha-beta as printed",
}

METHODS: tuple[Method, ...] = (
    # The paper's five columns, as its numbers say they were run, and a second reading of one.
    *tuning.columns("ellipse", AS_RUN, _tracker),
    Method(
        "second_tangent_kalman",
        "Tangent KF, tangent space at the estimate",
        _tracker(paper.LocalTangentKalman),
        {"velocity_noise": 0.005, "noise_std": 0.1},
        family="paper",
        order=2,
    ),
    # The same columns, literally as the text and the tables of settings print them.
    *tuning.columns("printed", AS_PRINTED, _tracker, kgmrf={"initial": START}),
    Method(
        "followed_kgmrf",
        "Algorithm 1's gains, spectrum followed",
        _kinetic(gains.printed),
        {"velocity_gain": 0.05, "damping": 0.95},
        family="printed",
        order=2,
    ),
    # Rivals, each tuned cell by cell with the same number of trials.
    Method("hold_last", "Hold last", _tracker(HoldLast)),
    *tuning.tuned_averages(
        _tracker,
        {
            "euclidean_ema": ("Euclidean EMA", EuclideanEMA),
            "log_euclidean_ema": ("Log-Euclidean EMA", LogEuclideanEMA),
            "riemannian_ema": ("Riemannian EMA", RiemannianEMA),
        },
    ),
    tuning.tuned_tangent_kalman(_tracker, noise_std=(0.005, 2.0)),
    tuning.tuned_alpha_beta(
        _tracker, {"position_gain": (0.02, 1.2, "log"), "velocity_gain": (1e-4, 1.0, "log")}
    ),
    tuning.tuned_alpha_beta_gamma(_third_order),
    tuning.tuned(
        "printed",
        "Algorithm 1",
        _tracker(partial(paper.algorithm1, initial=START)),
        {"eta": (0.005, 3.0, "log"), "gamma": (1e-3, 1.0, "log")},
        {"eta": (0.01, 0.05, 0.1), "gamma": (0.9, 0.95, 0.98, 1.0)},
        order=2,
    ),
    tuning.tuned(
        "zero_lag",
        "K-GMRF zero-lag",
        _kinetic(gains.zero_lag),
        {"position_gain": (0.005, 1.0, "log"), "velocity_gain": (1e-5, 0.5, "log")},
        order=2,
    ),
    # Ours: no setting per cell.
    tuning.ours("information", "K-GMRF information, default", _kinetic(gains.information)),
    tuning.ours(
        "information_one",
        "K-GMRF information, one setting",
        _kinetic(gains.information),
        {"acceleration": (1e-12, 1e-4, "log"), "rate_prior": (1e-5, 1e-1, "log")},
    ),
    tuning.ours("auto", "KGMRF()", _auto),
)


def errors(reading: str, estimates: Numbers, truth: Numbers) -> Numbers:
    """Mean angle between the axes over the scored frames, degrees; (T, ..., 2, 2) -> (...)."""
    angles = metrics.angular_error(estimates, truth, degrees=True)
    return angles[BURN_IN[reading] :].mean(axis=0)


def run_method(reading: str, method: str, n_trials: int, n_further: int) -> dict[str, Any]:
    """One method on every cell of one reading."""
    chosen = next(m for m in METHODS if m.name == method)

    def score(m: Method, settings: Settings, seeds: tuple[int, ...], cells: list[int]) -> Numbers:
        seen, truth, counts = scenes(reading, seeds)
        with np.errstate(all="ignore"):
            found = m.run(seen[:, cells], counts[cells], **settings)
            return errors(reading, found, truth[:, cells])

    further = tuning.FURTHER_SEEDS[:n_further]
    result = tuning.evaluate(chosen, score, len(CELLS[reading]), n_trials, further)
    return {"cells": [c.name for c in CELLS[reading]], **result}


def units(quick: bool) -> list[Unit]:
    """One unit per reading and method."""
    return tuning.units("ellipse", CELLS, METHODS, quick)
