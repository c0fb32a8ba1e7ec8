"""Artefacts in EEG: which windows are not as usual?

    python -m experiments run artefacts

Real EEG of nine sessions (`experiments.ssvep`), 1-40 Hz, in windows of one second. Simulated
artefacts are added to 15 % of the windows, each kind in turn: a blink (a slow bump, with a weight
on every electrode), muscle (noise of 20-40 Hz) and a pop (one electrode jumps and comes back), at
two to four times the deviation of the channels. Scores of windows, without labels: the distance
from the reference of `OnlineRecenter`, pyRiemann's ``Potato``, and `nis` of `KGMRF` on the windows.
What comes first calibrates: 5 windows, or 40. The number is the area under the ROC curve.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments import ssvep
from experiments.store import Unit, unit
from kgmrf._types import Numbers

SHARE, FIRST = 0.15, 40
KINDS = ("blink", "muscle", "pop")
SIZES = (2.0, 4.0)


def artefact(kind: str, d: int, rng: Any) -> Numbers:
    """One artefact ``(d, length)`` in deviations of the channels."""
    length, size = ssvep.RATE, rng.uniform(*SIZES)
    seconds = np.arange(length) / length
    where = rng.uniform(0.3, 0.7)
    if kind == "pop":
        out = np.zeros((d, length))
        out[rng.integers(d)] = size * np.exp(-np.maximum(seconds - where, 0.0) / 0.1)
        out[:, seconds < where] = 0.0
        return out
    weights = rng.uniform(0.0, 1.0, d)[:, None]
    if kind == "blink":
        return size * weights * np.exp(-0.5 * ((seconds - where) / 0.08) ** 2)
    noise = ssvep.band(rng.standard_normal((4 * length, d)), 20.0, 40.0)[length : 2 * length].T
    return 0.5 * size * weights * noise / noise.std()


def scores(clean: Numbers, C: Numbers, first: int) -> dict[str, Numbers]:
    """How far every covariance of C is from the usual, after ``first`` of the clean ones."""
    from pyriemann.artifact_detection import Potato

    from kgmrf import KGMRF
    from kgmrf.sklearn.recentring import OnlineRecenter

    known = clean[FIRST - first :]
    tracker = KGMRF(n_samples=ssvep.RATE)
    tracker.filter(known)
    return {
        "artefact_score": OnlineRecenter().fit(known).artefact_score(C),
        "Potato": Potato().fit(known).transform(C),
        "nis": tracker.filter(C, fields=["nis"]).nis,
    }


def run(session: str, n_seeds: int) -> dict[str, Any]:
    """Mean area under the curve of every score, by number of windows that calibrate."""
    from pyriemann.estimation import Covariances
    from sklearn.metrics import roc_auc_score

    rows = ssvep.session(session, "wide").rows
    n = len(rows) // ssvep.RATE
    windows = rows[: n * ssvep.RATE].reshape(n, ssvep.RATE, -1).swapaxes(1, 2)
    deviation = np.median(np.abs(rows), axis=0)[:, None] / 0.6745  # that of a Gaussian
    found: dict[str, list[float]] = {}
    for seed in range(n_seeds):
        for kind in KINDS:
            rng = np.random.default_rng([seed, KINDS.index(kind)])
            shown = windows.copy()
            truth = np.arange(n) >= FIRST
            truth &= rng.random(n) < SHARE
            for k in np.flatnonzero(truth):
                shown[k] += deviation * artefact(kind, shown.shape[1], rng)
            C = Covariances("lwf").transform(shown)
            for first in (5, FIRST):
                for score, values in scores(C[:FIRST], C[FIRST:], first).items():
                    area = float(roc_auc_score(truth[FIRST:], values))
                    found.setdefault(f"{score}, {first} windows first", []).append(area)
    return {"rows": {key: float(np.mean(v)) for key, v in found.items()}, "n_seeds": n_seeds}


def units(quick: bool) -> list[Unit]:
    """One unit per session."""
    return [
        unit("artefacts", name, run, session=name, n_seeds=1 if quick else 3)
        for name in ssvep.everyone()[: 1 if quick else None]
    ]
