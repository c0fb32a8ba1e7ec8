"""The spectral-gap phase transition: Lambda = diag(1 + delta, 1), sigma^2 = 4, m = 8.

The paper does not say how fast the target turns, and its printed whitened gaps do not follow from
its definition. We run the printed noise at rest and at the main table's rate, and show the smallest
error that any filter could reach (from the Fisher information) beside it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.store import Unit
from kgmrf import KGMRF, EuclideanEMA, gains, metrics, simulate
from kgmrf._types import Numbers
from kgmrf.geometry import orbit

DELTAS = (0.01, 0.05, 0.10, 0.30, 0.50, 1.00)
FINE_DELTAS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0)
NOISE_FLOOR, N_SAMPLES, N_FRAMES, BURN_IN = 4.0, 8, 400, 50


def run(rate: float, deltas: list[float], n_samples: int, n_seeds: int) -> dict[str, Any]:
    """Mean angle error against the gap: paper's law, EMA, ours, and the floor."""
    seeds = range(10, 10 + n_seeds)
    table: dict[str, list[list[float]]] = {}
    for delta in deltas:
        for name, per_seed in _one_gap(rate, delta, n_samples, seeds).items():
            half = 1.96 * per_seed.std(ddof=1) / np.sqrt(n_seeds)
            means, halves = table.setdefault(name, [[], []])
            means.append(float(per_seed.mean()))
            halves.append(float(half))
    spectra = np.stack([1.0 + np.asarray(deltas), np.ones(len(deltas))], -1)
    return {
        "deltas": deltas,
        "rate": rate,
        "n_samples": n_samples,
        "whitened_gap": orbit.whitened_gap(spectra, NOISE_FLOOR),
        "identifiability": orbit.identifiability(spectra, NOISE_FLOOR),
        "floor": [_floor(d, n_samples) for d in deltas],
        "errors": table,
        "seeds": [seeds[0], seeds[-1]],
    }


def _one_gap(rate: float, delta: float, n_samples: int, seeds: range) -> dict[str, Numbers]:
    """Mean angle error of every tracker and seed; all start at the truth."""
    spectrum = (1.0 + delta, 1.0)
    scenes = [
        simulate.ellipse(
            rate,
            n_frames=N_FRAMES,
            spectrum=spectrum,
            n_samples=n_samples,
            noise_floor=NOISE_FLOOR,
            rng=seed,
        )
        for seed in seeds
    ]
    seen = np.stack([s.observations for s in scenes], 1)
    truth = np.stack([s.covariance for s in scenes], 1)
    # Known eigenvalues for all, as the paper's isospectral orbit has them.
    setup: dict[str, Any] = {
        "n_samples": n_samples,
        "noise_floor": NOISE_FLOOR,
        "spectrum": np.array(spectrum),
        "initial": truth[0, 0],
    }
    trackers = {
        "kgmrf_paper": KGMRF(gains=gains.zero_lag(0.1, 0.05, 0.95), **setup),
        "kgmrf_printed": KGMRF(gains=gains.printed(0.05, 0.95), **setup),
        "ours": KGMRF(gains=gains.information(1e-7), **setup),
        "ema": EuclideanEMA(gain=0.2),
        "ema_slow": EuclideanEMA(gain=0.02),
    }
    return {
        name: metrics.angular_error(tracker.filter(seen).covariance, truth, degrees=True)[
            BURN_IN:
        ].mean(axis=0)
        for name, tracker in trackers.items()
    }


def _floor(delta: float, n_samples: int) -> float:
    """Mean |angle| of an ideal filter at constant rate from a known start, degrees.

    Covariance of (angle, rate) by exact information filtering with rate prior 4e-4 and no process
    noise; E|x| = sqrt(2/pi) std, and never more than 45 degrees, the mean of a blind guess.
    """
    variance = (1 + delta + NOISE_FLOOR) * (1 + NOISE_FLOOR) / (n_samples * delta**2)
    p = np.array([[0.0, 0.0], [0.0, 4e-4]])
    drift = np.array([[1.0, 1.0], [0.0, 1.0]])
    total = []
    for t in range(N_FRAMES):
        p = drift @ p @ drift.T if t else p
        p = p - np.outer(p[:, 0], p[0]) / (p[0, 0] + variance)
        total.append(min(np.degrees(np.sqrt(2 / np.pi * p[0, 0])), 45.0))
    return float(np.mean(total[BURN_IN:]))


def units(quick: bool) -> list[Unit]:
    """At rest and turning, with the printed noise and with much less."""
    n_seeds = 3 if quick else 40
    deltas = list(DELTAS if quick else FINE_DELTAS)
    return [
        Unit(
            "spectral_gap",
            f"rate_{rate:g}.samples_{n_samples}",
            "spectral_gap:run",
            {"rate": rate, "deltas": deltas, "n_samples": n_samples, "n_seeds": n_seeds},
        )
        for rate in (0.0, 0.08)
        for n_samples in (8, 800)
    ]
