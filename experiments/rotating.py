"""Simulated rotations: the angle of the default's eigenframe, from a cold start.

    python -m experiments run rotating

M_t = Q_t diag(lam) Q_t^T, Q_{t+1} = Q_t Exp(W), W constant with |W|_F / sqrt 2 = omega, Q_0 random,
seen as the mean of x x^T over m = 8 samples of covariance M_t + .1 I. Mean angle between the true
and the filtered eigenframe in degrees, frames 50-399. Beside ours: the previous default (b00c79c,
figures recorded when it was replaced, same frames) and the Euclidean EMA with the best gain in
hindsight.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.store import Unit, unit
from kgmrf import KGMRF, EuclideanEMA, metrics, simulate
from kgmrf._types import Numbers

SPECTRA = {2: (2.0, 0.5), 3: (4.0, 2.0, 0.5), 7: tuple(2.0 ** (4 - np.arange(7)))}
RATES = (0.0, 0.02, 0.08)
SAMPLES, FIRST, FRAMES = 8, 50, 400
GAINS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4)
PREVIOUS_COMMIT = "b00c79c"
PREVIOUS = {
    (2, 0.0): 1.043,
    (2, 0.02): 2.299,
    (2, 0.08): 2.440,
    (3, 0.0): 2.491,
    (3, 0.02): 5.191,
    (3, 0.08): 7.694,
    (7, 0.0): 7.073,
    (7, 0.02): 15.797,
    (7, 0.08): 18.974,
}
"""Degrees of the previous default, seeds 0-9, by (d, omega)."""


def start(d: int, seed: int) -> Numbers:
    """A random orientation; with the axes as a start, a diagonal law would win by luck."""
    q, r = np.linalg.qr(np.random.default_rng(1000 + seed).normal(size=(d, d)))
    q = q * np.sign(np.diag(r))
    if np.linalg.det(q) < 0:
        q[:, 0] *= -1
    return q


def scene(d: int, rate: float, seed: int) -> simulate.CovarianceScene:
    """Truth and observations of one seed."""
    return simulate.rotating_covariance(
        d,
        rate=rate,
        spectrum=SPECTRA[d],
        n_samples=SAMPLES,
        n_frames=FRAMES,
        start=start(d, seed),
        rng=seed,
    )


def run(d: int, rate: float, n_seeds: int) -> dict[str, Any]:
    """Mean angle by seed: ours and the EMA of every gain."""
    scenes = [scene(d, rate, seed) for seed in range(n_seeds)]
    seen = np.stack([s.observations for s in scenes], axis=1)
    truth = np.stack([s.covariance for s in scenes], axis=1)

    def errors(covariance: Numbers) -> Numbers:
        found = metrics.orbit_error(covariance[FIRST:], truth[FIRST:], degrees=True)
        return np.asarray(found).mean(axis=0)

    tracked = [KGMRF(n_samples=SAMPLES).filter(s.observations).covariance for s in scenes]
    mine = errors(np.stack(tracked, axis=1))
    averages = {g: errors(EuclideanEMA(gain=g).filter(seen).covariance).mean() for g in GAINS}
    best = min(averages, key=lambda g: float(averages[g]))
    recorded = PREVIOUS[d, rate]
    return {
        "ours": mine.mean(),
        "by_seed": mine,
        "previous": recorded,
        "previous_commit": PREVIOUS_COMMIT,
        "ratio": mine.mean() / recorded,
        "ema": averages[best],
        "ema_gain": best,
    }


def units(quick: bool) -> list[Unit]:
    """One unit per dimension and rate."""
    return [
        unit("rotating", f"d{d}_rate_{rate:g}", run, d=d, rate=rate, n_seeds=1 if quick else 10)
        for d in ((2,) if quick else SPECTRA)
        for rate in RATES
    ]
