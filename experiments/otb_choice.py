"""(C) How the visual tracker's settings were chosen: one left out at a time, on the six targets.

One unit per target: our tracker as it is, and with one setting changed at a time, all fed with the
same frames. From these, for every video left out, the value that is best on the others is scored
on the one left out; the two Jogging targets share a video and are left out together. If that loses
little against the value that we chose with all six in view, the choice was not fitted to them.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from experiments import otb, store
from experiments.store import Unit

TRIED: dict[str, tuple[Any, ...]] = {
    "kinetics": ("never", "coast", "always"),
    "model_gain": (0.01, 0.02, 0.05),
    "anchor_weight": (0.15, 0.25, 0.4),
    "n_cells": (25, 36, 49),
    "softness": (0.2, 0.4, 0.8),
    "prior_weight": (0.02, 0.04, 0.08),
    "push": (0.01, 0.02, 0.05),
    "size_noise": (0.01, 0.02, 0.04),
    "scale_reach": (1, 2),
    "alternate_cells": (False, True),
}
"""Values tried of each setting of tracker, search and motion; one of each is the default."""

TARGETS = tuple(t for t in otb.TARGETS if t != "BlurFace")


def defaults() -> dict[str, Any]:
    """The tracker's own value of every setting tried."""
    from inspect import signature

    from kgmrf.vision import BoxTracker, MotionSettings, SearchSettings

    own = {k: p.default for k, p in signature(BoxTracker).parameters.items()}
    for kind in (SearchSettings, MotionSettings):
        own |= {name: field.default for name, field in kind.__dataclass_fields__.items()}
    return {name: own[name] for name in TRIED}


def changes() -> dict[str, dict[str, Any]]:
    """name -> what is changed: nothing, then every other value of every setting."""
    own = defaults()
    return {"default": {}} | {
        f"{name}={value}": {name: value}
        for name, values in TRIED.items()
        for value in values
        if value != own[name]
    }


def units(quick: bool) -> list[Unit]:
    """All settings on each target; a smoke test is a few frames of one."""
    if quick:
        settings = {"sequence": "CarScale", "n_frames": 5}
        return [Unit("otb_choice", "CarScale", "otb_choice:follow", settings)]
    return [Unit("otb_choice", t, "otb_choice:follow", {"sequence": t}) for t in TARGETS]


def build(change: dict[str, Any]) -> Any:
    """Our tracker with some settings of its own, of its search or of its motion changed."""
    from kgmrf.vision import BoxTracker, MotionSettings, SearchSettings

    search = {k: v for k, v in change.items() if k in SearchSettings.__dataclass_fields__}
    motion = {k: v for k, v in change.items() if k in MotionSettings.__dataclass_fields__}
    other = {k: v for k, v in change.items() if k not in search and k not in motion}
    return BoxTracker(settings=SearchSettings(**search), motion=MotionSettings(**motion), **other)


def follow(sequence: str, n_frames: int | None = None) -> dict[str, Any]:
    """Mean overlap and success of every change on one target."""
    from experiments.evaluation import summary

    target = otb.target(sequence)
    truth = target.boxes[:n_frames]
    trackers = {name: build(change) for name, change in changes().items()}
    boxes: dict[str, list[Any]] = {name: [truth[0]] for name in trackers}
    for k, frame in enumerate(islice(target.frames(), len(truth))):
        for name, tracker in trackers.items():
            if k == 0:
                tracker.init(frame, truth[0])
            else:
                boxes[name].append(tracker.update(frame)[1])
    numbers = {name: summary(found, truth) for name, found in boxes.items()}
    keys = ("mean_iou", "success_rate")
    return {
        "sequence": sequence,
        "changes": {name: {key: row[key] for key in keys} for name, row in numbers.items()},
    }


def load(results: Path) -> dict[str, dict[Any, dict[str, float]]]:
    """setting -> value -> target -> mean overlap, of settings that were run on every target."""
    own = defaults()
    runs = {}
    for target in TARGETS:
        record = store.load(results / "otb_choice" / f"{target}.json") or {}
        if isinstance(record.get("data"), dict):
            runs[target] = record["data"]["changes"]
    found: dict[str, dict[Any, dict[str, float]]] = {}
    for name, values in TRIED.items():
        keys = {v: "default" if v == own[name] else f"{name}={v}" for v in values}
        if runs and all(key in run for key in keys.values() for run in runs.values()):
            found[name] = {
                v: {target: run[key]["mean_iou"] for target, run in runs.items()}
                for v, key in keys.items()
            }
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
