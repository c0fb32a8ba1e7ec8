"""Detectors of faults: one score for each row, the larger the more surprising.

Fitted ones learn from the first rows, which have no fault, and nothing afterwards. Online ones
score each row before they learn it.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from experiments.alerts_data import Labelled
from kgmrf import KGMRF, KineticDetector
from kgmrf._types import Numbers
from kgmrf.alerts import Alarm, Alerts, watch

HALF_LIFE = 200.0
"""Of the exponentially weighted Mahalanobis distance, as of our own drifting mean."""

KEPT = 0.9
"""Share of the variance that principal components keep."""


def watched(part: Labelled, adapt: str, mean: str = "ewm") -> Alerts:
    """Ours, online."""
    return watch(part.rows, Alarm(1e-4), tracker=KGMRF(mean=mean), adapt=adapt)


def kinetic_fit(part: Labelled) -> Numbers:
    """Ours, fitted."""
    model = KineticDetector().fit(part.rows[: part.fit])
    return -model.score_samples(part.rows)


def pyod(name: str, **words: Any) -> Callable[[Labelled], Numbers]:
    """A detector of PyOD with its own settings."""

    def score(part: Labelled) -> Numbers:
        model = getattr(import_module(f"pyod.models.{name.lower()}"), name)(**words)
        model.fit(part.rows[: part.fit])
        return np.asarray(model.decision_function(part.rows))

    return score


def pca_spe(part: Labelled) -> Numbers:
    """Squared prediction error of the principal components with 90 % of the variance."""
    fit = part.rows[: part.fit]
    scaled = (part.rows - fit.mean(axis=0)) / (fit.std(axis=0) + 1e-12)
    values, axes = np.linalg.svd(scaled[: part.fit], full_matrices=False)[1:]
    k = int(np.searchsorted(np.cumsum(values**2), KEPT * (values**2).sum())) + 1
    rest = scaled - scaled @ axes[:k].T @ axes[:k]
    return np.asarray((rest**2).sum(axis=1))


def ewma(part: Labelled) -> Numbers:
    """Mahalanobis distance from an exponentially weighted mean and covariance."""
    gain = 1.0 - 0.5 ** (1.0 / HALF_LIFE)
    mean, scatter = part.rows[: part.fit].mean(axis=0), np.cov(part.rows[: part.fit].T)
    scatter = scatter + 1e-9 * np.diag(np.diag(scatter) + 1e-12)
    out = np.empty(len(part.rows))
    for k, row in enumerate(part.rows):
        off = row - mean
        out[k] = off @ np.linalg.solve(scatter, off)
        mean = mean + gain * off
        scatter = (1.0 - gain) * scatter + gain * np.outer(off, off)
    return out


def half_space_trees(part: Labelled) -> Numbers:
    """river's, with its own settings, on features between 0 and 1 as it wants them."""
    anomaly = import_module("river.anomaly")
    preprocessing = import_module("river.preprocessing")
    model = preprocessing.MinMaxScaler() | anomaly.HalfSpaceTrees(seed=0)
    out = np.empty(len(part.rows))
    for k, row in enumerate(part.rows.tolist()):
        x = dict(enumerate(row))
        out[k] = model.score_one(x)
        model.learn_one(x)
    return out


FITTED: dict[str, Callable[[Labelled], Numbers]] = {
    "KineticDetector": kinetic_fit,
    "PyOD ECOD": pyod("ECOD"),
    "PyOD COPOD": pyod("COPOD"),
    "PyOD IForest": pyod("IForest", random_state=0),
    "PyOD MCD": pyod("MCD", random_state=0),
    "PCA, prediction error": pca_spe,
}
ONLINE: dict[str, Callable[[Labelled], Numbers]] = {
    "watch": lambda part: watched(part, "yes").surprise,
    'watch, adapt="slow"': lambda part: watched(part, "slow").surprise,
    'watch, adapt="no"': lambda part: watched(part, "no").surprise,
    'watch, mean="linear"': lambda part: watched(part, "yes", "linear").surprise,
    "EWMA Mahalanobis": ewma,
    "river HalfSpaceTrees": half_space_trees,
}
