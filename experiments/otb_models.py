"""(C) The paper's five methods as appearance models inside one and the same box tracker.

Only what remembers the target's cells differs; search, motion, gates and anchor are those of
`RegionCovarianceTracker`, one setting for all sequences, first box given. Besides, the paper's own
protocol: a 7 x 7 region covariance of (x, y, R, G, B, |Ix|, |Iy|) cut from the *true* box of every
frame, and how well each method predicts the next one (mean affine-invariant distance).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from experiments import otb, store
from experiments.store import Unit
from kgmrf import (
    KGMRF,
    AlphaBeta,
    EuclideanEMA,
    HoldLast,
    LogEuclideanEMA,
    RiemannianEMA,
    TangentKalman,
    gains,
)
from kgmrf._types import Numbers
from kgmrf.geometry import spd

PAPER = ("K-GMRF", "Riemannian EMA", "Euclidean EMA", "Tangent KF", "Alpha-Beta")
"""The paper's columns."""


def models(n_samples: float) -> dict[str, Callable[[], Any]]:
    """Name -> a new appearance model; gains as in the paper's tables where it has them."""
    return {
        "K-GMRF": lambda: KGMRF(n_samples=n_samples, gains="information"),
        "K-GMRF, Algorithm 1": lambda: KGMRF(n_samples=n_samples, gains=gains.printed(0.05, 0.95)),
        "Riemannian EMA": lambda: RiemannianEMA(gain=0.2),
        "Log-Euclidean EMA": lambda: LogEuclideanEMA(gain=0.2),
        "Euclidean EMA": lambda: EuclideanEMA(gain=0.2),
        "Tangent KF": lambda: TangentKalman(velocity_noise=0.005, noise_std=0.1),
        "Alpha-Beta": lambda: AlphaBeta(position_gain=0.4, velocity_gain=0.1),
    }


NAMES = tuple(models(1.0))
SHOWN = ("K-GMRF", "Riemannian EMA", "Alpha-Beta")
"""Whose boxes are kept for the sheets of key images."""


def follow(sequence: str, n_frames: int | None = None) -> dict[str, Any]:
    """All models over one target; a model that fails is lost from that frame on."""
    from kgmrf.vision import RegionCovarianceTracker
    from kgmrf.vision.evaluation import box_iou, summary

    target = otb.target(sequence)
    truth = target.boxes[:n_frames]
    cell = RegionCovarianceTracker()
    frames = target.frames()
    first = next(iter(frames))
    cell.init(first, truth[0])
    rows: dict[str, Any] = {}
    for name, build in models(cell.settings.cell**2).items():
        tracker = RegionCovarianceTracker(build())
        boxes, failed = [np.asarray(truth[0], dtype=float)], None
        for t, image in enumerate(islice(target.frames(), len(truth))):
            if t == 0:
                tracker.init(image, truth[0])
                continue
            if failed is None:
                try:
                    boxes.append(np.asarray(_box(tracker.update(image)), dtype=float))
                    continue
                except (np.linalg.LinAlgError, ValueError, FloatingPointError) as error:
                    failed = {"frame": t, "why": f"{type(error).__name__}: {error}"[:200]}
            boxes.append(boxes[-1])
        found = np.stack(boxes)
        rows[name] = {
            **summary(found, truth),
            "failed": failed,
            "iou": [round(v, 3) for v in box_iou(found, truth).tolist()],
        }
        if name in SHOWN:
            rows[name]["boxes"] = np.round(found).astype(int)
    return {
        "sequence": sequence,
        "n_frames": len(truth),
        "image": [first.shape[1], first.shape[0]],
        "truth": np.round(truth).astype(int),
        "rows": rows,
    }


def _box(answer: Any) -> Any:
    """The box in a tracker's answer: a pair (found, box) as OpenCV's, or a record."""
    if isinstance(answer, tuple) and len(answer) == 2:
        return answer[1]
    return answer.box


def from_truth(sequence: str, n_frames: int | None = None) -> dict[str, Any]:
    """One-step prediction of the region covariance in the true boxes, as the paper observes it."""
    seen = region_covariances(sequence, n_frames)
    distances: dict[str, float] = {}
    trackers = {"hold last": HoldLast, **models(200.0)}
    trackers["K-GMRF, default"] = lambda: KGMRF(n_samples=200.0)
    for name, build in trackers.items():
        live, errors = build(), []
        for t, matrix in enumerate(seen):
            if t >= 20:
                try:
                    ahead = np.asarray(live.forecast(1).covariance)
                    errors.append(float(spd.distance(_positive(ahead), matrix)))
                except (np.linalg.LinAlgError, ValueError):
                    errors.append(np.nan)
            live.update(matrix)
        good = np.array([v for v in errors if np.isfinite(v)])
        distances[name] = float(good.mean()) if len(good) > 0.9 * len(errors) else float("nan")
    steps = np.stack([spd.log(m) for m in seen])
    change = np.diff(steps, axis=0).reshape(len(seen) - 1, -1)
    change = change - change.mean(axis=0)
    lag = float((change[1:] * change[:-1]).sum() / (change**2).sum())
    return {"sequence": sequence, "distance": distances, "increment_autocorrelation": lag}


def _positive(matrix: Numbers) -> Numbers:
    """The nearest usable covariance: an entrywise filter's forecast need not be one."""
    values, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T))
    floor = 1e-6 * max(float(values[-1]), 1e-12)
    return (vectors * np.maximum(values, floor)) @ vectors.T


def region_covariances(sequence: str, n_frames: int | None = None) -> Numbers:
    """(T, 7, 7): covariance of (x, y, R, G, B, |Ix|, |Iy|) over the true box, positions in "
    "boxes."""
    target = otb.target(sequence)
    found = []
    for image, box in zip(target.frames(), target.boxes[:n_frames], strict=False):
        left, top, width, height = (round(float(v)) for v in box)
        h, w = image.shape[:2]
        rows = slice(max(top, 0), min(top + height, h))
        columns = slice(max(left, 0), min(left + width, w))
        patch = np.asarray(image, dtype=float)[rows, columns] / 255.0
        if patch.size == 0:
            continue
        if patch.ndim == 2:
            patch = np.repeat(patch[..., None], 3, axis=2)
        y, x = np.mgrid[0 : patch.shape[0], 0 : patch.shape[1]].astype(float)
        grey = patch.mean(axis=2)
        slope_y, slope_x = np.gradient(grey)
        features = [x / patch.shape[1], y / patch.shape[0], *np.moveaxis(patch[..., :3], 2, 0)]
        features += [np.abs(slope_x), np.abs(slope_y)]
        matrix = np.cov(np.stack([f.ravel() for f in features]))
        found.append(matrix + 1e-6 * np.trace(matrix) * np.eye(7))
    return np.stack(found)


def load(results: Path, kind: str = "track") -> dict[str, dict[str, Any]]:
    """sequence -> what `follow` ("track") or `from_truth` ("truth") found."""
    found = {}
    for sequence in otb.TARGETS:
        record = store.load(results / "otb_models" / f"{kind}.{sequence}.json") or {}
        if record.get("status") == "done":
            found[sequence] = record["data"]
    return found


def units(quick: bool) -> list[Unit]:
    """Both protocols on every target."""
    targets = ("CarScale",) if quick else otb.TARGETS
    more = {"n_frames": 40} if quick else {}
    return [
        Unit("otb_models", f"{kind}.{name}", f"otb_models:{function}", {"sequence": name, **more})
        for name in targets
        for kind, function in (("track", "follow"), ("truth", "from_truth"))
    ]
