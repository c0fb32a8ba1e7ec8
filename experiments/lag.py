"""The law of first-order lag: measured on the ellipse without noise, against what theory says."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.store import Unit, unit
from kgmrf import KGMRF, EuclideanEMA, RiemannianEMA, gains, metrics, simulate, theory

GAINS = (0.1, 0.2, 0.4, 0.8)


def run(n_rates: int) -> dict[str, Any]:
    """Steady lag in degrees against the rate, for averages of four gains and for Algorithm 1."""
    rates = np.linspace(0.005, 0.25, n_rates)
    scenes = [simulate.ellipse(r, n_samples=None, n_frames=300) for r in rates]
    seen = np.stack([s.observations for s in scenes], 1)
    truth = np.stack([s.covariance for s in scenes], 1)

    def lag(tracker: Any) -> Any:
        found = tracker.filter(seen).covariance
        return metrics.angular_error(found, truth, degrees=True)[200:].mean(axis=0)

    lines: dict[str, Any] = {}
    for gain in GAINS:
        lines[f"euclidean_{gain:g}"] = {
            "measured": lag(EuclideanEMA(gain=gain)),
            "theory": np.degrees(theory.first_order_lag(rates, gain)),
        }
        lines[f"riemannian_{gain:g}"] = {"measured": lag(RiemannianEMA(gain=gain))}
    known: dict[str, Any] = {
        "n_samples": 1000.0,
        "noise_floor": 0.1,
        "spectrum": np.array([2.0, 0.5]),
    }
    for eta, gamma in ((0.05, 0.95), (0.5, 0.95), (0.5, 0.5)):
        lines[f"printed_{eta:g}_{gamma:g}"] = {
            "measured": lag(KGMRF(gains=gains.printed(eta, gamma), **known)),
            "theory": np.degrees(theory.printed_lag(rates, eta, gamma)),
            "lock_limit": theory.lock_limit(0.0, eta, 1 - gamma),
        }
    lines["zero_lag"] = {"measured": lag(KGMRF(gains=gains.zero_lag(0.1, 0.05), **known))}
    return {
        "rates": rates,
        "lines": lines,
        "bound_text": np.degrees(rates / 4),
        "bound_appendix": np.degrees(rates / 2),
        "growth": float(theory.first_order_lag(0.20, 0.2) / theory.first_order_lag(0.03, 0.2)),
    }


def units(quick: bool) -> list[Unit]:
    """One unit."""
    return [unit("lag", "lines", run, n_rates=8 if quick else 50)]
