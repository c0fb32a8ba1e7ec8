"""Single runs to look at: the ellipse through occlusions, the camera through dropouts."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.store import Unit, unit
from kgmrf import (
    KGMRF,
    AlphaBeta,
    EuclideanEMA,
    RiemannianEMA,
    RotationTracker,
    metrics,
    paper,
    simulate,
)
from kgmrf._types import Numbers

SEED = 5


def run_ellipse(n_samples: int, n_frames: int) -> dict[str, Any]:
    """One ellipse with three occlusions: matrices as (xx, xy, yy), angle errors in degrees."""
    scene = simulate.ellipse(
        0.08,
        n_frames=n_frames,
        n_samples=n_samples,
        observed=simulate.occlusions(n_frames),
        rng=SEED,
    )
    seen = scene.observations
    found = {
        "ours": KGMRF(n_samples=n_samples).filter(seen).covariance,
        "paper": paper.kgmrf_ellipse().filter(seen).covariance,
        "ema": RiemannianEMA(gain=0.2).filter(seen).covariance,
        "alpha_beta": AlphaBeta(position_gain=0.4, velocity_gain=0.1).filter(seen).covariance,
    }
    return {
        "n_samples": n_samples,
        "seed": SEED,
        "observed": scene.observed.astype(int),
        "truth": _entries(scene.covariance),
        "seen": _entries(seen),
        "tracks": {name: _entries(m) for name, m in found.items()},
        "errors": {
            name: np.round(metrics.angular_error(m, scene.covariance, degrees=True), 3)
            for name, m in found.items()
        },
    }


def _entries(matrices: Numbers) -> Numbers:
    return np.round(np.stack([matrices[:, 0, 0], matrices[:, 0, 1], matrices[:, 1, 1]], axis=-1), 3)


def run_camera(reading: str, probability: float, n_frames: int) -> dict[str, Any]:
    """One camera with dropouts: roll, pitch, yaw and the angle error, degrees."""
    camera = simulate.camera_shake if reading == "as_printed" else simulate.steady_camera
    scene = camera(SEED, probability, n_frames=n_frames)
    seen = scene.observations
    found = {
        "ours": RotationTracker(noise_std=scene.noise_std).filter(seen).rotation,
        "paper": paper.kgmrf_so3().filter(seen).rotation,
        "ema": EuclideanEMA(gain=0.2, kind="rotation").filter(seen).rotation,
    }
    return {
        "reading": reading,
        "probability": probability,
        "seed": SEED,
        "observed": scene.observed.astype(int),
        "truth": _angles(scene.rotation),
        "tracks": {name: _angles(r) for name, r in found.items()},
        "errors": {
            name: np.round(metrics.geodesic_error(r, scene.rotation, degrees=True), 2)
            for name, r in found.items()
        },
    }


def _angles(rotation: Numbers) -> Numbers:
    """Roll, pitch, yaw (x, y, z turned in the order z y x), unwrapped along time, degrees."""
    roll = np.arctan2(rotation[:, 2, 1], rotation[:, 2, 2])
    pitch = -np.arcsin(np.clip(rotation[:, 2, 0], -1.0, 1.0))
    yaw = np.arctan2(rotation[:, 1, 0], rotation[:, 0, 0])
    return np.round(np.degrees(np.stack([np.unwrap(roll), pitch, np.unwrap(yaw)], -1)), 2)


def units(quick: bool) -> list[Unit]:
    """Two ellipses, two cameras."""
    n_frames = 400
    del quick  # these are single runs: nothing to shorten
    return [
        *[
            unit("scenes", f"ellipse.samples_{m}", run_ellipse, n_samples=m, n_frames=n_frames)
            for m in (8, 1280)
        ],
        *[
            unit(
                "scenes",
                f"camera.{reading}",
                run_camera,
                reading=reading,
                probability=p,
                n_frames=n_frames,
            )
            for reading, p in (("as_printed", 0.2), ("as_run", 0.1))
        ],
    ]
