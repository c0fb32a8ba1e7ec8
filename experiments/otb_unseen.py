"""(C) Beyond one pass over six targets: other starts, other boxes, other films, drawn videos.

Five groups, always with the same setting:

    unseen    whole videos of OTB on which nothing was chosen or looked at; ours, CSRT and KCF, and
              reported once per state of the tracker
    starts    temporal robustness: the six targets from four places of each video, 45 frames
    boxes     spatial robustness: first boxes shifted by 10 % or scaled to 90 and 110 %, 45 frames
    changed   the six videos backwards, at a third of the frame rate, in grey, with noise; 45 frames
    drawn     24 videos drawn by ourselves, two of each kind of :mod:`experiments.drawn_videos`

Frames in which a drawn target cannot be seen are not scored. A failed update repeats the last box.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments import drawn_videos, otb, store
from experiments.store import NotAvailable, Unit

GROUPS = ("unseen", "starts", "boxes", "changed", "drawn")
METHODS = (otb.OURS, "CSRT", "KCF", "KCF-0", "MIL", "MOSSE")
LENGTH = 45
STARTS = 4
SHIFTS = {
    "left": (-0.1, 0.0, 1.0),
    "down": (0.0, 0.1, 1.0),
    "smaller": (0.0, 0.0, 0.9),
    "larger": (0.0, 0.0, 1.1),
}
CHANGES = ("reversed", "third rate", "grey", "noise")

Frames = list[NDArray[np.uint8]]
Case = tuple[str, Frames, NDArray[np.float64], NDArray[np.float64]]
"""Name, frames, true boxes, first box."""


def units(quick: bool) -> list[Unit]:
    """One unit per tracker and group; a smoke test is ours on one drawn video."""
    if quick:
        return [Unit("otb_unseen", "kgmrf.drawn", "otb_unseen:follow",
                     {"method": otb.OURS, "group": "drawn", "n_cases": 1})]  # fmt: skip
    return [
        Unit("otb_unseen", f"{method}.{group}", "otb_unseen:follow",
             {"method": method, "group": group})
        for group, method in product(GROUPS, METHODS)
        if group != "unseen" or method in METHODS[:3]
    ]  # fmt: skip


def follow(method: str, group: str, n_cases: int | None = None) -> dict[str, Any]:
    """One tracker over all videos of a group."""
    try:
        import cv2
    except ImportError:
        raise NotAvailable('no OpenCV: pip install "kgmrf[vision]"') from None
    from experiments.evaluation import box_iou, run_tracker

    cv2.setNumThreads(1)
    rows = []
    for number, (name, frames, truth, first) in enumerate(cases(group)):
        if number == n_cases:
            break
        run = run_tracker(otb.tracker(method), frames, first)
        seen = np.isfinite(truth).all(-1)
        iou = box_iou(run.boxes[seen], truth[seen])
        rows.append(
            {
                "case": name,
                "mean_iou": float(iou.mean()),
                "success_rate": float((iou > 0.5).mean()),
                "last_iou": float(iou[-10:].mean()),
                "n_frames": len(frames),
                "seconds": float(run.seconds.sum()),
            }
        )
    return {
        "method": method,
        "group": group,
        "mean_iou": float(np.mean([r["mean_iou"] for r in rows])),
        "success_rate": float(np.mean([r["success_rate"] for r in rows])),
        "cases": rows,
        "opencv": cv2.__version__,
    }


def cases(group: str) -> Iterator[Case]:
    """The videos of a group, one in memory at a time."""
    if group == "drawn":
        for kind, seed in product(drawn_videos.KINDS, range(2)):
            video = _drawn(kind, seed)
            yield f"{kind} {seed}", list(video.frames), video.boxes, video.boxes[0]
        return
    if group == "unseen":
        for target in otb.targets(folder="otb_unseen"):
            yield target.name, list(target.frames()), target.boxes, target.boxes[0]
        return
    for target in otb.targets():
        make = {"starts": _starts, "boxes": _boxes, "changed": _changed}[group]
        yield from make(target)


_drawn = cache(drawn_videos.draw)  # all trackers of a process see the same videos


def _read(target: Any, which: range) -> Frames:
    from kgmrf.vision.videos import read_image

    return [read_image(target.files[k]) for k in which]


def _starts(target: Any) -> Iterator[Case]:
    last = len(target.boxes) - LENGTH
    for k in range(STARTS):
        start = round(last * k / (STARTS - 1))
        which = range(start, start + LENGTH)
        truth = target.boxes[which]
        yield f"{target.name} from {start}", _read(target, which), truth, truth[0]


def _boxes(target: Any) -> Iterator[Case]:
    which = range(LENGTH)
    frames, truth = _read(target, which), target.boxes[which]
    x, y, w, h = truth[0]
    for name, (dx, dy, scale) in SHIFTS.items():
        size = np.array([w, h]) * scale
        middle = np.array([x + w / 2 + dx * w, y + h / 2 + dy * h])
        yield f"{target.name} {name}", frames, truth, np.concatenate([middle - size / 2, size])


def _changed(target: Any) -> Iterator[Case]:
    n = len(target.boxes)
    for change in CHANGES:
        step = 3 if change == "third rate" else 1
        which = range(n - 1, n - 1 - LENGTH, -1) if change == "reversed" else range(0, n, step)
        which = which[:LENGTH]
        frames, truth = _read(target, which), target.boxes[list(which)]
        if change == "grey":
            frames = [f.mean(-1).round().astype(np.uint8) for f in frames]
        elif change == "noise":
            rng = np.random.default_rng(0)
            frames = [
                np.clip(f + 15 * rng.standard_normal(f.shape, np.float32), 0, 255).astype(np.uint8)
                for f in frames
            ]
        yield f"{target.name} {change}", frames, truth, truth[0]


def table(results: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """group -> method -> record, for what has been run."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for group, method in product(GROUPS, METHODS):
        record = store.load(results / "otb_unseen" / f"{method}.{group}.json") or {}
        if isinstance(record.get("data"), dict):
            found.setdefault(group, {})[method] = record["data"]
    return found
