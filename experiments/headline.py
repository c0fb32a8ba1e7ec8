"""The README's table: one figure per field, beside the best rival of that field."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from experiments import otb
from experiments.markup import markdown
from experiments.reading import read
from experiments.streams import data, rivals
from experiments.tables_series import best_rival

BENCHMARK = Path(__file__).resolve().parent.parent / "benchmarks" / "results" / "default.json"
DROPOUT = 3  # the fourth of the six dropout rates, 30 %
CAMERA = {
    "auto_learned": "**RotationTracker()**",
    "tuned_error_state_kalman": "error-state Kalman filter, tuned",
    "tuned_alpha_beta_decay": "alpha-beta with decay, tuned",
    "tuned_one_euro": "One Euro filter, tuned",
    "tuned_riemannian_ema": "geodesic moving average, tuned",
    "hold_last": "last observation",
    "printed_kgmrf": "K-GMRF with the paper's gains",
}


def headline(results: Path) -> str:
    """One line per field: what was measured, ours, the best rival."""
    rows = [
        _stream(results, "etf18", "Daily returns of 18 funds: log-density of the next day"),
        _ahead(results, "etf18", "The same funds, the day 20 days ahead: log-density"),
        _stream(results, "ssvep8", "EEG, 8 channels: log-density of the next sample"),
        _simulated_camera(results),
        _recorded_motion(results),
        _video(results),
        _speed(),
    ]
    head = ["what", "kgmrf, defaults", "best rival, tuned in hindsight"]
    return markdown(head, [row for row in rows if row])


def camera(results: Path) -> str:
    """Mean error in degrees by dropout rate, 100 seeds, protocol as printed."""
    rows = []
    for unit, name in CAMERA.items():
        found = read(results, "camera", f"as_printed.{unit}")
        if found:
            rows.append([name, *[f"{v:.2f}" for v in np.mean(found["further"], axis=1)]])
    return markdown(["dropout", *[f"{10 * k} %" for k in range(6)]], rows)


def _stream(results: Path, name: str, words: str) -> list[str]:
    own = read(results, "streams", f"{name}.ours")
    found = {r: read(results, "streams", f"{name}.{r}") for r in rivals.RIVALS}
    done = {r: f["t"]["score"] for r, f in found.items() if f and f["t"]["score"] is not None}
    if not own or not done or name not in data.STREAMS:
        return []
    best = max(done, key=lambda r: done[r])
    return [f"{words}, nats", f"{own['t']:.2f}", f"{done[best]:.2f} ({rivals.NAMES[best]})"]


def _ahead(results: Path, name: str, words: str) -> list[str]:
    found = read(results, "horizons", f"{name}.ahead")
    if not found:
        return []
    at = found["by_horizon"]["20"]
    rival, one = best_rival(at)
    return [f"{words}, nats", f"{at['t']:.2f}", f"{one['score']:.2f} ({rivals.NAMES[rival]})"]


def _simulated_camera(results: Path) -> list[str]:
    errors = {}
    for unit in CAMERA:
        found = read(results, "camera", f"as_printed.{unit}")
        if found:
            errors[unit] = float(np.mean(found["further"][DROPOUT]))
    own = errors.pop("auto_learned", None)
    if own is None or not errors:
        return []
    best = min(errors, key=lambda unit: errors[unit])
    words = "Simulated camera shake, 30 % of the images missing: mean error, degrees"
    return [words, f"{own:.2f}", f"{errors[best]:.2f} ({CAMERA[best]})"]


def _recorded_motion(results: Path) -> list[str]:
    found = read(results, "rotations", "real")
    if not found:
        return []
    ratio = found["summary"]["learned"]["over error_state, noise at least 1e-2"]
    words = "Recorded camera and robot motion, noise of .01 and .05 rad: error over the rival's"
    return [words, f"{ratio:.2f}", "1 (error-state Kalman filter, tuned)"]


def _video(results: Path) -> list[str]:
    rows = otb.averages(otb.load(results))
    if otb.OURS not in rows or "CSRT" not in rows:
        return []
    own, rival = (rows[m]["mean_iou"] for m in (otb.OURS, "CSRT"))
    words = "Six blurred videos, on which our settings were chosen: mean overlap (IoU)"
    return [words, f"{own:.3f}", f"{rival:.3f} (OpenCV CSRT)"]


def _speed() -> list[str]:
    if not BENCHMARK.exists():
        return []
    table = json.loads(BENCHMARK.read_text())["results"]["default: one step"]["8"]
    own, rival = (table[n]["median"] for n in ("kgmrf partial_fit", "pyRiemann geodesic"))
    words = "One row of 8 channels, from Python: processor time, microseconds"
    return [words, f"{1e6 * own:.0f}", f"{1e6 * rival:.0f} (one step of pyRiemann's mean)"]
