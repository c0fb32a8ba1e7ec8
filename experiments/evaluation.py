"""One pass of a box tracker over a video with true boxes: overlap, precision, processor time."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kgmrf._types import Numbers
from kgmrf.vision.regions import box_iou

THRESHOLDS = np.linspace(0, 1, 21)
"""Of the overlap, as OTB takes them."""


class Run(NamedTuple):
    """Boxes (n, 4), found or not (n,), CPU seconds (n,) of one pass; frame 0 is the given box."""

    boxes: Numbers
    found: NDArray[np.bool_]
    seconds: Numbers


class Evaluation(NamedTuple):
    """One sequence, its true boxes (n, 4; NaN where absent), and the run of every tracker."""

    sequence: str
    truth: Numbers
    runs: dict[str, Run]

    @property
    def scored(self) -> NDArray[np.bool_]:
        """Frames (n,) whose truth is a box."""
        return scored(self.truth)

    def overlap(self, name: str) -> Numbers:
        """IoU (n,) of a tracker's boxes with the truth; meaningless where that is no box."""
        return box_iou(self.runs[name].boxes, np.where(self.scored[:, None], self.truth, 1.0))


def scored(truth: Numbers) -> NDArray[np.bool_]:
    """Which rows (n, 4) are boxes."""
    return np.asarray(np.isfinite(truth).all(-1) & (truth[:, 2:] > 0).all(-1))


def centre_errors(boxes: Numbers, truth: Numbers) -> Numbers:
    """|centre - true centre| in pixels, as OTB counts them: a width w ends at its w-th pixel."""
    # one centre at a time, so that equal boxes are exactly 0 apart
    first, second = (b[..., :2] + (b[..., 2:] - 1) / 2 for b in (boxes, truth))
    return np.hypot(*np.moveaxis(first - second, -1, 0))


def normalised_errors(boxes: Numbers, truth: Numbers) -> Numbers:
    """|(centre - true centre) / true size|, each axis by its own extent."""
    first, second = (b[..., :2] + b[..., 2:] / 2 for b in (boxes, truth))
    return np.hypot(*np.moveaxis((first - second) / truth[..., 2:], -1, 0))


def success_curve(iou: ArrayLike) -> Numbers:
    """Share of frames with IoU > t for t = 0, .05, ..., 1 (strictly)."""
    return (np.asarray(iou, np.float64)[:, None] > THRESHOLDS).mean(0)


def precision_curve(errors: Numbers, thresholds: Numbers) -> Numbers:
    """Share of frames with error <= t."""
    return (errors[:, None] <= thresholds).mean(0)


def summary(boxes: ArrayLike, truth: ArrayLike) -> dict[str, float]:
    """The usual numbers of one pass over frames with ground truth; frame 0 counts, as in OTB.

    ``mean_iou``; ``success_auc`` mean of the success curve; ``success_rate`` share with IoU > .5;
    ``precision`` share within 20 pixels; ``normalised_precision`` mean of its curve over
    thresholds 0 ... .5.
    """
    a, b = np.asarray(boxes, np.float64), np.asarray(truth, np.float64)
    n = min(len(a), len(b))
    keep = scored(b[:n])
    if not keep.any():
        raise ValueError("no frame has ground truth")
    a, b = a[:n][keep], b[:n][keep]
    iou = box_iou(a, b)
    near = precision_curve(normalised_errors(a, b), np.linspace(0, 0.5, 51))
    return {
        "mean_iou": float(iou.mean()),
        "success_auc": float(success_curve(iou).mean()),
        "success_rate": float((iou > 0.5).mean()),
        "precision": float((centre_errors(a, b) <= 20).mean()),
        "normalised_precision": float(near.mean()),
    }


def run_tracker(tracker: Any, frames: Iterable[NDArray[np.uint8]], box: ArrayLike) -> Run:
    """``init`` on the first frame, ``update`` on the others; a failed update repeats the last box.

    Seconds are CPU time of this process spent inside the tracker; decoding is not counted.
    """
    boxes, found, seconds = [], [], []
    last, ok = np.asarray(box, np.float64).reshape(4), True
    for k, frame in enumerate(frames):
        start = time.process_time()
        if k == 0:
            tracker.init(frame, tuple(last.tolist()))
        else:
            ok, new = tracker.update(frame)
            candidate = np.asarray(new, np.float64).reshape(4)
            # a tracker of ours coasts while it is lost; OpenCV's return zeros
            if (candidate[2:] > 0).all():
                last = candidate
        seconds.append(time.process_time() - start)
        boxes.append(last)
        found.append(bool(ok))
    return Run(np.array(boxes), np.array(found), np.array(seconds))
