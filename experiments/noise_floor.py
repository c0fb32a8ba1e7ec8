"""A wrong sigma^2: how much it costs the information law, and that it costs fixed gains nothing.

The noise floor cancels in the paper's step. In the information law it does not: it decides how much
an observation is believed, R_ij = d_i d_j / (m (lam_i - lam_j)^2), d_i = lam_i + sigma^2.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.store import Unit, unit
from kgmrf import KGMRF, gains, metrics, simulate
from kgmrf._types import Numbers

SPECTRUM = np.array([2.0, 0.5])
ASSUMED = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


def run(true_floor: float, rate: float, n_seeds: int) -> dict[str, Any]:
    """Mean angle error against the assumed noise floor: known spectrum, and one that is learned."""
    seeds = range(10, 10 + n_seeds)
    scenes = [simulate.ellipse(rate, noise_floor=true_floor, rng=seed) for seed in seeds]
    seen = np.stack([s.observations for s in scenes], 1)
    truth = np.stack([s.covariance for s in scenes], 1)
    start: dict[str, Any] = {"spectrum": SPECTRUM, "initial": truth[0, 0]}
    laws: dict[str, Any] = {
        "information, spectrum known": ("information", start),
        "information, spectrum learned": ("information", {}),
        "zero-lag, spectrum known": (gains.zero_lag(0.1, 0.005), start),
    }
    lines: dict[str, list[list[float]]] = {name: [[], []] for name in laws}
    for floor in ASSUMED:
        for name, (law, setup) in laws.items():
            tracker = KGMRF(gains=law, n_samples=8, noise_floor=floor, **setup)
            errors = _errors(tracker, seen, truth)
            lines[name][0].append(float(errors.mean()))
            lines[name][1].append(float(1.96 * errors.std(ddof=1) / np.sqrt(n_seeds)))
    return {"true": true_floor, "rate": rate, "assumed": ASSUMED, "lines": lines}


def _errors(tracker: Any, seen: Numbers, truth: Numbers) -> Numbers:
    found = tracker.filter(seen).covariance
    return metrics.angular_error(found, truth, degrees=True)[50:].mean(axis=0)


def units(quick: bool) -> list[Unit]:
    """Two true noise floors."""
    return [
        unit(
            "noise_floor",
            f"true_{true:g}",
            run,
            true_floor=true,
            rate=0.08,
            n_seeds=3 if quick else 40,
        )
        for true in (0.1, 1.0)
    ]
