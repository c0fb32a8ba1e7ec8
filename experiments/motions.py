"""Covariances that a real motion carries.

    python -m experiments run motions

M_t = R_t diag(lam) R_t^T with R_t from motion capture, seen through Wishart noise of 8 samples; the
score is the angle between eigenframes. Rivals with settings get those that turn out best on the
very frames they are scored on; ours has none. Riemannian averages need matrices of full rank: they
enter here, where there are 8 samples.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from experiments.store import NotAvailable, Unit
from experiments.streams.data import find
from experiments.streams.scores import interval
from experiments.streams.study import N_TURNING
from kgmrf import KGMRF, AlphaBeta, EuclideanEMA, metrics
from kgmrf import gains as laws
from kgmrf._types import Numbers
from kgmrf.geometry import so

LAM, FLOOR, SAMPLES = np.array([4.0, 2.0, 0.5]), 0.1, 8
MOTION_FRAMES, MOTION_RATE, MOTION_FROM = 1500, 30.0, 50
GAINS = (0.02, 0.05, 0.1, 0.2, 0.4)
RECORDINGS = (
    "euroc_v1_02",
    "fr1_xyz",
    "kaist_rotation_fast",
    "tumvi_room1",
    "uzhfpv_forward5",
    "broad_06",
)


def motion(name: str) -> Numbers:
    """Rotations ``(T, 3, 3)`` of a motion capture, at 30 frames per second."""
    if name.startswith("broad"):
        path = find("rotation", "broad", "06_undisturbed_fast_rotation_A.mat")
    else:
        path = find("rotation", "tum", f"{name}.txt")
    if path is None:
        raise NotAvailable(f"no file of {name}; set KGMRF_DATA to the folder of the data")
    if path.suffix == ".txt":
        rows = np.loadtxt(path)
        stamps, first = np.unique(rows[:, 0] - rows[0, 0], return_index=True)
        return _at_rate(stamps, rows[first, 4:8])
    from scipy.io import loadmat

    record = loadmat(path)
    quaternions = record["opt_quat"][:, [1, 2, 3, 0]]
    seen = np.isfinite(quaternions).all(axis=1) & (record["movement"].ravel() > 0)
    stamps = np.arange(len(quaternions)) / float(record["sampling_rate"].item())
    return _at_rate(stamps[seen] - stamps[seen][0], quaternions[seen])


def _at_rate(stamps: Numbers, quaternions: Numbers) -> Numbers:
    wanted = np.arange(0.0, stamps[-1], 1.0 / MOTION_RATE)
    chosen = np.unique(np.searchsorted(stamps, wanted).clip(0, len(stamps) - 1))
    return Rotation.from_quat(quaternions[chosen][:MOTION_FRAMES]).as_matrix()


def geodesic_ema(C: Numbers, gain: float) -> Numbers:
    """M <- M #_gain C on the cone (pyRiemann)."""
    try:
        from pyriemann.geometry.geodesic import geodesic_riemann
    except ImportError:  # before 0.12
        from pyriemann.utils.geodesic import geodesic_riemann

    out = [C[0]]
    for seen in C[1:]:
        out.append(geodesic_riemann(out[-1], seen, gain))
    return np.array(out)


def run_carried(recording: str) -> dict[str, Any]:
    """Covariances that a real motion turns."""
    R = motion(recording)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(len(R), SAMPLES, 3)) * np.sqrt(LAM + FLOOR)
    x = np.einsum("tij,tmj->tmi", R, x)
    C = np.einsum("tmi,tmj->tij", x, x) / SAMPLES
    truth = np.einsum("tij,j,tkj->tik", R, LAM, R)

    def error(covariance: Numbers) -> Numbers:
        return metrics.orbit_error(covariance[MOTION_FROM:], truth[MOTION_FROM:], degrees=True)

    ours = KGMRF(n_samples=SAMPLES).filter(C)
    mine = error(ours.covariance)
    tried: dict[str, dict[str, Numbers]] = {
        "hold last": {"": error(C)},
        "EMA": {f"gain {g}": error(EuclideanEMA(gain=g).filter(C).covariance) for g in GAINS},
        "alpha-beta": {
            f"gains {a}, {b}": error(
                AlphaBeta(position_gain=a, velocity_gain=b).filter(C).covariance
            )
            for a in (0.1, 0.2, 0.4)
            for b in (0.005, 0.02, 0.1)
        },
        "KGMRF information": {
            f"acceleration {q}": error(
                KGMRF(gains=laws.information(q), n_samples=SAMPLES).filter(C).covariance
            )
            for q in (1e-8, 1e-7, 1e-6, 1e-5, 1e-4)
        },
    }
    try:
        tried["pyRiemann geodesic EMA"] = {
            f"gain {g}": error(geodesic_ema(C, g)) for g in GAINS[1:4]
        }
    except ImportError:
        tried["pyRiemann geodesic EMA"] = {}
    return {
        "frames": len(R),
        "speed": float(np.degrees(so.distance(R[1:], R[:-1])).mean()),
        "weight_with_velocity": ours.weights[MOTION_FROM:, -N_TURNING:].sum(axis=1).mean(),
        "rows": _against("KGMRF()", mine, tried),
    }


def _against(name: str, mine: Numbers, tried: dict[str, dict[str, Numbers]]) -> dict[str, Any]:
    """Mean errors; rivals with the best of their settings and how far ours is ahead."""
    rows: dict[str, Any] = {name: {"score": mine.mean()}}
    for rival, found in tried.items():
        if not found:
            rows[rival] = {"skipped": "package not installed"}
            continue
        best = min(found, key=lambda k: found[k].mean())
        rows[rival] = {
            "score": found[best].mean(),
            "settings": best,
            "ours_ahead": (found[best] - mine).mean(),
            "interval": interval(found[best] - mine),
        }
    return rows


def units(quick: bool) -> list[Unit]:
    """One unit per recording."""
    return [
        Unit("motions", f"carried.{name}", "motions:run_carried", {"recording": name})
        for name in (RECORDINGS[:1] if quick else RECORDINGS)
    ]
