"""(C) The paper's five methods as appearance models inside one and the same box tracker.

Only what remembers the target's cells differs; search, motion, gates and anchor are those of
`BoxTracker`, one setting for all sequences, first box given. A pixel of the first box
can decide whether a target is lost, so the models are compared by means over five first boxes: the
true one, and shifted by two pixels. Besides, the paper's own protocol: a 7 x 7 region covariance of
(x, y, R, G, B, |Ix|, |Iy|) cut from the *true* box of every frame, and how well each method
predicts the next one (mean affine-invariant distance).
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
    paper,
)
from kgmrf._types import Numbers
from kgmrf.geometry import spd

PAPER = ("K-GMRF", "Riemannian EMA", "Euclidean EMA", "Tangent KF", "Alpha-Beta")
"""The paper's columns."""


def models(n_samples: float | None = None) -> dict[str, Callable[[], Any]]:
    """Name -> a new appearance model; gains as in the paper's tables where it has them.

    By default for cells of our tracker, each a mean over its pixels.
    """
    if n_samples is None:
        from kgmrf.vision import SearchSettings

        n_samples = SearchSettings().cell ** 2
    return {
        "K-GMRF": lambda: KGMRF(n_samples=n_samples, gains="information"),
        "K-GMRF, Algorithm 1": lambda: paper.algorithm1(0.05, 0.95, n_samples=n_samples),
        "K-GMRF, followed spectrum": lambda: KGMRF(n_samples=n_samples, gains=gains.printed()),
        "Riemannian EMA": lambda: RiemannianEMA(gain=0.2),
        "Log-Euclidean EMA": lambda: LogEuclideanEMA(gain=0.2),
        "Euclidean EMA": lambda: EuclideanEMA(gain=0.2),
        "Tangent KF": lambda: TangentKalman(velocity_noise=0.005, noise_std=0.1),
        "Alpha-Beta": lambda: AlphaBeta(position_gain=0.4, velocity_gain=0.1),
    }


NAMES = tuple(models(1.0))
SHOWN = PAPER
"""Whose boxes are kept for the sheets of key images."""

MOVES = ((0, 0), (-2, 0), (2, 0), (0, -2), (0, 2))
"""Pixels by which the first box is shifted."""


def follow(sequence: str, n_frames: int | None = None) -> dict[str, Any]:
    """All models over one target; a model that fails is lost from that frame on."""
    from experiments.evaluation import box_iou, summary

    target = otb.target(sequence)
    truth = target.boxes[:n_frames]
    first = next(iter(target.frames()))
    rows: dict[str, Any] = {}
    for name, build in models().items():
        found, failed = _boxes(build(), target, truth[0], len(truth))
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


def shifted(sequence: str, n_frames: int | None = None) -> dict[str, Any]:
    """Mean overlap of every model, and of the tracker's own, from each of the first boxes."""
    from experiments.evaluation import summary

    target = otb.target(sequence)
    truth = target.boxes[:n_frames]
    moves = [np.array([x, y, 0.0, 0.0]) for x, y in MOVES]
    found = {}
    for name, build in {"tracker's own": lambda: "anchor+ema", **models()}.items():
        runs = [_boxes(build(), target, truth[0] + move, len(truth))[0] for move in moves]
        found[name] = [summary(boxes, truth)["mean_iou"] for boxes in runs]
    return {"sequence": sequence, "moves": [m[:2].tolist() for m in moves], "mean_iou": found}


def _boxes(
    model: Any, target: Any, first: Numbers, n_frames: int
) -> tuple[Numbers, dict[str, Any] | None]:
    """Boxes (n, 4) of our tracker with a model, and why it failed if it did."""
    from kgmrf.vision import BoxTracker

    tracker = BoxTracker(model)
    boxes, failed = [np.asarray(first, dtype=float)], None
    for t, image in enumerate(islice(target.frames(), n_frames)):
        if t == 0:
            tracker.init(image, first)
            continue
        try:
            boxes.append(np.asarray(tracker.update(image)[1], dtype=float))
        except (np.linalg.LinAlgError, ValueError, FloatingPointError) as error:
            failed = {"frame": t, "why": f"{type(error).__name__}: {error}"[:200]}
            boxes += [boxes[-1]] * (n_frames - t)
            break
    return np.stack(boxes), failed


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
    """sequence -> what `follow` ("track"), `from_truth` ("truth") or `shifted` ("shifts") found."""
    found = {}
    for sequence in otb.TARGETS:
        record = store.load(results / "otb_models" / f"{kind}.{sequence}.json") or {}
        if record.get("status") == "done":
            found[sequence] = record["data"]
    return found


KINDS = (("track", "follow"), ("truth", "from_truth"), ("shifts", "shifted"))


def means(results: Path) -> dict[str, dict[str, Any]]:
    """name -> mean overlap of every target over its first boxes, the mean of the targets, and the
    half widths of their 95 % intervals; empty until every target has its further first boxes."""
    found = load(results, "shifts")
    if not found or set(found) != set(load(results)):
        return {}
    table = {}
    for name in next(iter(found.values()))["mean_iou"]:
        runs = np.array([data["mean_iou"][name] for data in found.values()])
        # The boxes are what chance there is: the targets are the same for every model.
        spread = runs.std(axis=1, ddof=1) / np.sqrt(runs.shape[1])
        half = 1.96 * float(np.sqrt((spread**2).sum())) / len(runs)
        each = dict(zip(found, runs.mean(axis=1).tolist(), strict=True))
        halves = dict(zip(found, (1.96 * spread).tolist(), strict=True))
        mean = {"mean": float(runs.mean()), "half_width": half}
        table[name] = {"each": each, "half_widths": halves, **mean}
    return table


def units(quick: bool) -> list[Unit]:
    """Both protocols on every target, and further first boxes."""
    targets = ("CarScale",) if quick else otb.TARGETS
    more = {"n_frames": 40} if quick else {}
    chosen = [(kind, function, name) for name in targets for kind, function in KINDS]
    return [
        Unit("otb_models", f"{kind}.{name}", f"otb_models:{function}", {"sequence": name, **more})
        for kind, function, name in chosen
    ]
