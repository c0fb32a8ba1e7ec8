"""The stability domain, measured: does a small error die out, over a grid of gains?"""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.store import Unit
from kgmrf import KGMRF, gains, metrics, simulate, theory
from kgmrf.geometry import orbit, so

SPECTRUM = np.array([2.0, 0.5])
START = 1e-6


def run(law: str, size: int) -> dict[str, Any]:
    """What becomes of an error of 1e-6 rad within 300 frames over ``size`` x ``size`` gains, and
    the prediction.

        printed: velocity gain eta (x) against damping gamma (y), position gain 0.
        zero_lag: velocity gain (x) against position gain (y), no damping.
    """
    x = np.linspace(0.02, 4.2, size)
    # The package takes no retention below -1: at damping 2 the printed domain ends anyway.
    y = np.linspace(0.02, 2.0 if law == "printed" else 2.2, size)
    horizontal, vertical = np.meshgrid(x, y)
    zero = np.zeros_like(horizontal)
    if law == "printed":
        position, velocity, retention = zero, horizontal, 1.0 - vertical
        predicted = theory.printed_domain(horizontal, vertical)
    else:
        position, velocity, retention = vertical, horizontal, zero + 1.0
        predicted = theory.stable(position, velocity)
    n_frames = 300
    target = simulate.ellipse(0.0, n_frames=n_frames, n_samples=None, noise_floor=0.0)
    start = orbit.compose(so.exp(so.hat(np.array([START]))), SPECTRUM)
    tracker = KGMRF(
        # Negative retention (damping above 1) is part of the printed domain.
        gains=gains.FixedGains(position, velocity, retention, np.clip(retention, 0.0, 1.0), 0.0),
        n_samples=8,
        spectrum=SPECTRUM,
        initial=start,
    )
    shape = (n_frames, size, size, 2, 2)
    seen = np.broadcast_to(target.observations[:, None, None], shape)
    truth = np.broadcast_to(target.covariance[:, None, None], shape)
    angle = metrics.angular_error(tracker.filter(seen).covariance, truth)
    # What is left of the error at the end, against what it was: orders of magnitude.
    left = angle[-12:].max(axis=0)
    growth = np.log10(np.maximum(left, 1e-15) / START)
    stable = growth < 0
    radius = theory.stability_radius(position, velocity, retention)
    clear = np.abs(radius - 1) > 0.02
    return {
        "x": x,
        "y": y,
        "growth": np.round(growth, 2),
        "stable": stable,
        "predicted": predicted,
        "agree": float((stable == predicted).mean()),
        "agree_off_boundary": float((stable == predicted)[clear].mean()),
    }


def units(quick: bool) -> list[Unit]:
    """Two maps."""
    size = 12 if quick else 45
    return [
        Unit("stability", law, "stability:run", {"law": law, "size": size})
        for law in ("printed", "zero_lag")
    ]
