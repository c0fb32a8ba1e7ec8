"""(C) How the visual tracker's settings were chosen: one left out at a time, on the six targets.

One unit per setting and value: our tracker over all six targets with that one value changed. From
these, for every video left out, the value that is best on the others is scored on the one left
out; the two Jogging targets share a video and are left out together. If that loses little against
the value that we chose with all six in view, the choice was not fitted to them.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from experiments import otb, store
from experiments.store import NotAvailable, Unit

TRIED: dict[str, tuple[Any, ...]] = {
    "kinetics": ("never", "coast", "always"),
    "model_gain": (0.01, 0.02, 0.05),
    "anchor_weight": (0.25, 0.4, 0.6),
    "n_cells": (25, 36, 49),
    "softness": (0.2, 0.4, 0.8),
    "prior_weight": (0.02, 0.04, 0.08),
    "push": (0.01, 0.02, 0.05),
    "size_noise": (0.01, 0.02, 0.04),
    "scale_reach": (1, 2),
}
"""Values tried of each setting of tracker, search and motion; one of each is the default."""

TARGETS = tuple(t for t in otb.TARGETS if t != "BlurFace")


def defaults() -> dict[str, Any]:
    """The tracker's own value of every setting tried."""
    from inspect import signature

    from kgmrf.vision import MotionSettings, RegionCovarianceTracker, SearchSettings

    own = {k: p.default for k, p in signature(RegionCovarianceTracker).parameters.items()}
    for kind in (SearchSettings, MotionSettings):
        own |= {name: field.default for name, field in kind.__dataclass_fields__.items()}
    return {name: own[name] for name in TRIED}


def units(quick: bool) -> list[Unit]:
    """The default once, and every other value of every setting; a smoke test is the default."""
    base = Unit("otb_choice", "default", "otb_choice:follow", {"change": {}})
    if quick:
        settings = {"change": {}, "targets": ["CarScale"], "n_frames": 20}
        return [Unit("otb_choice", "default", "otb_choice:follow", settings)]
    own = defaults()
    return [base] + [
        Unit("otb_choice", f"{name}.{value}", "otb_choice:follow", {"change": {name: value}})
        for name, values in TRIED.items()
        for value in values
        if value != own[name]
    ]


def follow(
    change: dict[str, Any], targets: list[str] | None = None, n_frames: int | None = None
) -> dict[str, Any]:
    """Our tracker with one setting changed over the targets: mean overlap and success of each."""
    from kgmrf.vision import MotionSettings, RegionCovarianceTracker, SearchSettings
    from kgmrf.vision.evaluation import run_tracker, summary
    from kgmrf.vision.sequences import find_data, read_otb

    search = {k: v for k, v in change.items() if k in SearchSettings.__dataclass_fields__}
    motion = {k: v for k, v in change.items() if k in MotionSettings.__dataclass_fields__}
    other = {k: v for k, v in change.items() if k not in search and k not in motion}
    rows = {}
    for name in targets or TARGETS:
        folder = find_data("otb", name.partition("-")[0])
        if folder is None:
            raise NotAvailable(f"no frames of {name}: set KGMRF_DATA to the folder with otb/")
        target = next(t for t in read_otb(folder) if t.name == name)
        tracker = RegionCovarianceTracker(
            settings=SearchSettings(**search), motion=MotionSettings(**motion), **other
        )
        truth = target.boxes[:n_frames]
        run = run_tracker(tracker, islice(target.frames(), len(truth)), truth[0])
        numbers = summary(run.boxes, truth)
        rows[name] = {key: numbers[key] for key in ("mean_iou", "success_rate")}
    return {"change": change, "targets": rows}


def load(results: Path) -> dict[str, dict[Any, dict[str, float]]]:
    """setting -> value -> target -> mean overlap, for settings of which all values were run."""
    own = defaults()

    def overlaps(unit: str) -> dict[str, float] | None:
        record = store.load(results / "otb_choice" / f"{unit}.json") or {}
        rows = (record.get("data") or {}).get("targets", {})
        return {k: v["mean_iou"] for k, v in rows.items()} or None

    base = overlaps("default")
    found: dict[str, dict[Any, dict[str, float]]] = {}
    for name, values in TRIED.items():
        rows = {v: base if v == own[name] else overlaps(f"{name}.{v}") for v in values}
        if base and all(r is not None and r.keys() == base.keys() for r in rows.values()):
            found[name] = {v: r for v, r in rows.items() if r is not None}
    return found


def left_out(values: dict[Any, dict[str, float]]) -> tuple[float, list[Any]]:
    """Mean overlap on videos left out, each by the value best on the others; and those values.

    >>> left_out({1: {"a": 0.9, "b": 0.5}, 2: {"a": 0.6, "b": 0.6}})[0]
    0.55
    """
    targets = list(next(iter(values.values())))
    videos = list(dict.fromkeys(t.partition("-")[0] for t in targets))
    scores, chosen = [], []
    for video in videos:
        held = [t for t in targets if t.partition("-")[0] == video]
        rest = [t for t in targets if t not in held]
        best = max(values, key=lambda v: float(np.mean([values[v][t] for t in rest])))
        scores += [values[best][t] for t in held]
        chosen.append(best)
    return float(np.mean(scores)), chosen
