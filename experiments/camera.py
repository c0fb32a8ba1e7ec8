"""(B) Camera stabilisation on SO(3): the sweep of dropout probabilities.

as_printed  oscillating camera, frames lost independently, error = angle.
as_run      constant rate, gaps of nine frames that *start* with the stated probability,
            error = |Log|_F = sqrt 2 angle: the only reading found that gives the printed table.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from experiments import tuning
from experiments.recursions import alpha_beta_gamma_rotation
from experiments.store import Unit
from experiments.tuning import Method, Settings
from kgmrf import (
    ErrorStateKalman,
    EuclideanEMA,
    HoldLast,
    OneEuro,
    RiemannianEMA,
    RotationTracker,
    gains,
    metrics,
    simulate,
)
from kgmrf._types import Numbers

PROBABILITIES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
NOISE_STD = 0.05
N_FRAMES = 200
SPREAD_SEEDS = tuple(range(10, 610))


@functools.lru_cache(maxsize=6)
def scenes(reading: str, seeds: tuple[int, ...]) -> tuple[Numbers, Numbers]:
    """Observations (T, cells, seeds, 3, 3), NaN where dropped, and truth (T, 1, seeds, 3, 3)."""
    seen = np.empty((N_FRAMES, len(PROBABILITIES), len(seeds), 3, 3))
    truth = np.empty((N_FRAMES, 1, len(seeds), 3, 3))
    for j, seed in enumerate(seeds):
        if reading == "as_run":
            # The motion does not depend on the dropout: simulate it once, mask it six times.
            whole = simulate.steady_camera(seed, 0.0)
            truth[:, 0, j] = whole.rotation
            for i, p in enumerate(PROBABILITIES):
                mask = simulate.bursts(N_FRAMES, p, [seed, round(100 * p)])
                seen[:, i, j] = np.where(mask[:, None, None], whole.observations, np.nan)
        else:
            for i, p in enumerate(PROBABILITIES):
                scene = simulate.camera_shake(seed, p)
                seen[:, i, j] = scene.observations
                truth[:, 0, j] = scene.rotation
    return seen, truth


# ------------------------------------------------------------------------------- methods


def _tracker(kind: Any) -> Any:
    return _rotation_only(kind, kind="rotation")


def _rotation_only(maker: Any, **fixed: Any) -> Any:
    def run(seen: Numbers, **settings: Any) -> Numbers:
        return maker(**fixed, **settings).filter(seen).rotation

    return run


def _kinetic(law: Any) -> Any:
    def run(seen: Numbers, **settings: Any) -> Numbers:
        return RotationTracker(noise_std=NOISE_STD, gains=law(**settings)).filter(seen).rotation

    return run


def _decaying(position_gain: float, velocity_gain: float, retention: float) -> gains.FixedGains:
    return gains.FixedGains(position_gain, velocity_gain, retention, retention)


_GAINS = {"position_gain": (0.05, 1.2, "log"), "velocity_gain": (1e-3, 1.0, "log")}

AS_RUN = {
    "kgmrf": "K-GMRF, paper",
    "riemannian_ema": "Riemannian EMA, paper",
    "euclidean_ema": "Euclidean EMA, paper",
    "tangent_kalman": "Tangent KF, paper",
    "alpha_beta": "Alpha-beta, paper",
}
AS_PRINTED = {
    "kgmrf": "K-GMRF, paper's gains, predict-correct",
    "riemannian_ema": "Riemannian EMA as printed (gain .8)",
    "euclidean_ema": "Euclidean EMA as printed (gain .8)",
    "tangent_kalman": "Tangent KF as printed",
    "alpha_beta": "Alpha-beta, paper's gains, predict-correct",
}

METHODS: tuple[Method, ...] = (
    *tuning.columns("so3", AS_RUN, _rotation_only),
    *tuning.columns("printed_so3", AS_PRINTED, _rotation_only),
    Method("hold_last", "Hold last", _tracker(HoldLast)),
    *tuning.tuned_averages(
        _tracker,
        {
            "riemannian_ema": ("Riemannian EMA", RiemannianEMA),
            "euclidean_ema": ("Euclidean EMA", EuclideanEMA),
        },
    ),
    tuning.tuned_tangent_kalman(_tracker, noise_std=(0.01, 1.0)),
    tuning.tuned_alpha_beta(_tracker, _GAINS),
    tuning.tuned(
        "alpha_beta_decay",
        "Alpha-beta with decay",
        _kinetic(_decaying),
        {**_GAINS, "retention": (1e-4, 0.3, "below_one")},
        order=2,
    ),
    tuning.tuned_alpha_beta_gamma(alpha_beta_gamma_rotation),
    tuning.tuned(
        "one_euro",
        "One Euro",
        _rotation_only(OneEuro),
        {
            "min_cutoff": (1e-3, 3.0, "log"),
            "slope": (1e-2, 1e2, "log"),
            "speed_cutoff": (1e-2, 3.0, "log"),
        },
    ),
    tuning.tuned(
        "error_state_kalman",
        "Error-state Kalman",
        _rotation_only(ErrorStateKalman),
        {"acceleration": (1e-10, 1e-1, "log"), "rate_prior": (1e-5, 1e-1, "log")},
        order=2,
    ),
    tuning.tuned("zero_lag", "K-GMRF zero-lag", _kinetic(gains.zero_lag), _GAINS, order=2),
    tuning.ours("information", "K-GMRF information, default", _kinetic(gains.information)),
    tuning.ours(
        "information_one",
        "K-GMRF information, one setting",
        _kinetic(gains.information),
        {
            "acceleration": (1e-10, 1e-2, "log"),
            "retention": (1e-5, 0.3, "below_one"),
            "rate_prior": (1e-5, 1e-1, "log"),
        },
    ),
    tuning.ours(
        "auto", "RotationTracker, noise given", _rotation_only(RotationTracker, noise_std=NOISE_STD)
    ),
    tuning.ours("auto_learned", "RotationTracker()", _rotation_only(RotationTracker)),
)


def errors(reading: str, estimates: Numbers, truth: Numbers) -> Numbers:
    """Mean error over all frames, degrees; (T, ..., 3, 3) -> (...)."""
    norm: Any = "frobenius" if reading == "as_run" else "angle"
    together = np.broadcast_to(truth, estimates.shape)
    return metrics.geodesic_error(estimates, together, degrees=True, norm=norm).mean(axis=0)


def run_method(reading: str, method: str, n_trials: int, n_further: int) -> dict[str, Any]:
    """One method on every dropout probability of one reading."""
    chosen = next(m for m in METHODS if m.name == method)

    def score(m: Method, settings: Settings, seeds: tuple[int, ...], cells: list[int]) -> Numbers:
        seen, truth = scenes(reading, seeds)
        with np.errstate(all="ignore"):
            return errors(reading, m.run(seen[:, cells], **settings), truth)

    further = tuning.FURTHER_SEEDS[:n_further]
    result = tuning.evaluate(chosen, score, len(PROBABILITIES), n_trials, further)
    return {"cells": [f"{p:.1f}" for p in PROBABILITIES], **result}


def run_spread(method: str, n_seeds: int) -> dict[str, Any]:
    """One of the paper's columns as recovered on many seeds: how much do five-seed means
    scatter?"""
    chosen = next(m for m in METHODS if m.name == method)
    seeds = SPREAD_SEEDS[:n_seeds]
    seen, truth = scenes("as_run", seeds)
    found = errors("as_run", chosen.run(seen, **chosen.settings), truth)
    means = found.reshape(len(PROBABILITIES), -1, 5).mean(axis=-1)
    return {
        "label": chosen.label,
        "cells": [f"{p:.1f}" for p in PROBABILITIES],
        "seeds": [seeds[0], seeds[-1]],
        "mean": found.mean(axis=1),
        "five_seed_means": {
            "lowest": means.min(axis=1),
            "low_95": np.quantile(means, 0.025, axis=1),
            "high_95": np.quantile(means, 0.975, axis=1),
            "highest": means.max(axis=1),
        },
    }


def units(quick: bool) -> list[Unit]:
    """One unit per reading and method, and the spread of the paper's columns."""
    spread = [
        Unit(
            "camera",
            f"spread.{method.name}",
            "camera:run_spread",
            {"method": method.name, "n_seeds": 10 if quick else len(SPREAD_SEEDS)},
        )
        for method in METHODS
        if method.family == "paper"
    ]
    return spread + tuning.units("camera", ("as_run", "as_printed"), METHODS, quick)
