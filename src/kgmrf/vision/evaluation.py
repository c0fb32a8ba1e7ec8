"""One-pass evaluation: how well, how often, how fast."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kgmrf._types import Numbers

__all__ = [
    "BoxTracker",
    "Evaluation",
    "Run",
    "average",
    "bounded",
    "box_iou",
    "centre_errors",
    "evaluate",
    "normalised_errors",
    "precision_curve",
    "run_tracker",
    "success_curve",
    "summary",
    "write_run",
]


class BoxTracker(Protocol):
    """OpenCV's two words."""

    def init(self, image: NDArray[np.uint8], box: tuple[float, float, float, float]) -> object:
        """Learn the target."""
        ...

    def update(self, image: NDArray[np.uint8]) -> tuple[bool, ArrayLike]:
        """Find it in the next frame."""
        ...


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
        return _scored(self.truth)

    def overlap(self, name: str) -> Numbers:
        """IoU (n,) of a tracker's boxes with the truth; meaningless where that is no box."""
        return box_iou(self.runs[name].boxes, np.where(self.scored[:, None], self.truth, 1.0))


def _scored(truth: Numbers) -> NDArray[np.bool_]:
    return np.asarray(np.isfinite(truth).all(-1) & (truth[:, 2:] > 0).all(-1))


def box_iou(first: ArrayLike, second: ArrayLike) -> Numbers:
    """|A and B| / |A or B| of boxes (..., 4): left, top, width, height.

    >>> float(box_iou([0, 0, 2, 2], [1, 0, 2, 2]))
    0.3333333333333333
    """
    a, b = np.asarray(first, np.float64), np.asarray(second, np.float64)
    low = np.maximum(a[..., :2], b[..., :2])
    high = np.minimum(a[..., :2] + a[..., 2:], b[..., :2] + b[..., 2:])
    common = np.maximum(high - low, 0).prod(-1)
    union = a[..., 2:].prod(-1) + b[..., 2:].prod(-1) - common
    # rounding may put identical boxes a hair above 1, which no threshold must see
    return np.clip(common / np.where(union > 0, union, 1), 0.0, 1.0)


def bounded(boxes: ArrayLike, image_size: tuple[float, float]) -> Numbers:
    """Boxes (..., 4) pushed into an image (width, height) by the rule of GOT-10k.

    The corner is moved into the image, then the size is cut where it reaches out.

    >>> bounded([-2, 1, 5, 9], (8, 8)).tolist()
    [0.0, 1.0, 5.0, 7.0]
    """
    a, size = np.asarray(boxes, np.float64), np.asarray(image_size, np.float64)
    corner = np.clip(a[..., :2], 0, size)
    return np.concatenate([corner, np.clip(a[..., 2:], 0, size - corner)], axis=-1)


def centre_errors(boxes: ArrayLike, truth: ArrayLike) -> Numbers:
    """|centre - true centre| in pixels.

    >>> float(centre_errors([0, 0, 2, 2], [3, 4, 2, 2]))
    5.0
    """
    a, b = np.asarray(boxes, np.float64), np.asarray(truth, np.float64)
    # OTB's pixel convention: a box of width w ends at its w-th pixel. One centre at a time, so that
    # equal boxes are exactly 0 apart.
    error = (a[..., :2] + (a[..., 2:] - 1) / 2) - (b[..., :2] + (b[..., 2:] - 1) / 2)
    return np.sqrt((error**2).sum(-1))


def normalised_errors(boxes: ArrayLike, truth: ArrayLike) -> Numbers:
    """|(centre - true centre) / true size|, each axis by its own extent.

    >>> float(normalised_errors([0, 0, 2, 2], [1, 0, 2, 2]))
    0.5
    """
    a, b = np.asarray(boxes, np.float64), np.asarray(truth, np.float64)
    error = ((a[..., :2] + a[..., 2:] / 2) - (b[..., :2] + b[..., 2:] / 2)) / b[..., 2:]
    return np.sqrt((error**2).sum(-1))


def success_curve(iou: ArrayLike, n_thresholds: int = 21) -> Numbers:
    """Share of frames with IoU > t for t = 0, .05, ..., 1 (strictly).

    >>> success_curve([0.0, 1.0], 3).tolist()
    [0.5, 0.5, 0.0]
    """
    values = np.asarray(iou, np.float64)
    return (values[:, None] > np.linspace(0, 1, n_thresholds)).mean(0)


def precision_curve(errors: ArrayLike, thresholds: ArrayLike | None = None) -> Numbers:
    """Share of frames with error <= t, for t = 0, 1, ..., 50 pixels unless given.

    >>> precision_curve([0.5, 3.0], [0, 1, 5]).tolist()
    [0.0, 0.5, 1.0]
    """
    at = np.arange(51) if thresholds is None else np.asarray(thresholds)
    return (np.asarray(errors, np.float64)[:, None] <= at).mean(0)


def summary(
    boxes: ArrayLike, truth: ArrayLike, *, image_size: tuple[float, float] | None = None
) -> dict[str, float]:
    """The usual numbers of one pass over frames with ground truth; frame 0 counts, as in OTB.

    ``mean_iou``; ``success_auc`` mean of the 21-point success curve; ``success_rate`` share with
    IoU > .5; ``precision`` share within 20 pixels; ``normalised_precision`` mean of its curve over
    thresholds 0 ... .5; ``ao``, ``sr50``, ``sr75`` as in GOT-10k, where frame 0 is left out, and
    where boxes are :func:`bounded` by the image if its (width, height) is given.

    >>> summary([[0, 0, 4, 4]] * 2, [[0, 0, 4, 4]] * 2)["ao"]
    1.0
    """
    a, b = np.asarray(boxes, np.float64), np.asarray(truth, np.float64)
    n = min(len(a), len(b))
    a, b = a[:n], b[:n]
    scored = _scored(b)
    if not scored.any():
        raise ValueError("no frame has ground truth")
    iou = box_iou(a[scored], b[scored])
    far = centre_errors(a[scored], b[scored])
    near = precision_curve(normalised_errors(a[scored], b[scored]), np.linspace(0, 0.5, 51))
    # the first frame is given; GOT-10k leaves it out, unless there is no other
    later = scored & (np.arange(n) > 0) if scored[1:].any() else scored
    if image_size is not None:
        a, b = bounded(a, image_size), bounded(b, image_size)
    overlap = box_iou(a[later], b[later])
    return {
        "mean_iou": float(iou.mean()),
        "success_auc": float(success_curve(iou).mean()),
        "success_rate": float((iou > 0.5).mean()),
        "precision": float((far <= 20).mean()),
        "normalised_precision": float(near.mean()),
        "ao": float(overlap.mean()),
        "sr50": float((overlap > 0.5).mean()),
        "sr75": float((overlap > 0.75).mean()),
    }


def run_tracker(tracker: BoxTracker, frames: Iterable[NDArray[np.uint8]], box: ArrayLike) -> Run:
    """``init`` on the first frame, ``update`` on the others; a failed update repeats the last box.

    Seconds are CPU time of this process spent inside the tracker; decoding is not counted.
    """
    boxes, found, seconds = [], [], []
    last = tuple(float(v) for v in np.asarray(box, np.float64).reshape(4))
    for k, frame in enumerate(frames):
        start = time.process_time()
        if k == 0:
            tracker.init(frame, (last[0], last[1], last[2], last[3]))
            ok = True
        else:
            ok, new = tracker.update(frame)
            candidate = tuple(float(v) for v in np.asarray(new, np.float64).reshape(4))
            # a tracker of ours coasts while it is lost; OpenCV's return zeros
            if candidate[2] > 0 and candidate[3] > 0:
                last = candidate
        seconds.append(time.process_time() - start)
        boxes.append(last)
        found.append(bool(ok))
    return Run(np.array(boxes), np.array(found), np.array(seconds))


def evaluate(
    sequence: str,
    frames: Callable[[], Iterable[NDArray[np.uint8]]],
    truth: ArrayLike,
    trackers: Mapping[str, Callable[[], BoxTracker]],
    *,
    after: Callable[[str], object] = lambda tracker: None,
) -> Evaluation:
    """One pass of every tracker over the same frames from the first true box.

    ``frames()`` starts the sequence anew, ``trackers`` make a new tracker each. ``after(name)`` is
    called when a tracker is done.

    >>> from kgmrf.vision import RegionCovarianceTracker
    >>> from kgmrf.vision.clip import render_clip
    >>> clip = render_clip(5)
    >>> ours = {"ours": RegionCovarianceTracker}
    >>> result = evaluate("clip", lambda: clip.frames, clip.boxes, ours)
    >>> result.runs["ours"].boxes.shape
    (5, 4)
    """
    boxes = np.asarray(truth, np.float64)
    if boxes.ndim != 2 or boxes.shape[1:] != (4,) or len(boxes) == 0:
        raise ValueError(f"the truth is a table of boxes (n, 4), got shape {boxes.shape}")
    if not (np.isfinite(boxes[0]).all() and (boxes[0, 2:] > 0).all()):
        raise ValueError(f"{sequence}: the first frame has no true box to start from")
    runs = {}
    for name, make in trackers.items():
        runs[name] = run_tracker(make(), islice(frames(), len(boxes)), boxes[0])
        after(name)
    n = min([len(boxes), *(len(run.boxes) for run in runs.values())])
    runs = {name: Run(r.boxes[:n], r.found[:n], r.seconds[:n]) for name, r in runs.items()}
    return Evaluation(sequence, boxes[:n], runs)


def write_run(folder: str | Path, tracker: str, sequence: str, run: Run) -> Path:
    """Write ``folder/tracker/sequence/sequence_001.txt`` and ``sequence_time.txt`` as GOT-10k does.

    Boxes with three decimals, separated by commas; seconds per frame with eight. Returns the file
    of boxes.
    """
    target = Path(folder) / tracker / sequence
    target.mkdir(parents=True, exist_ok=True)
    file = target / f"{sequence}_001.txt"
    np.savetxt(file, run.boxes, fmt="%.3f", delimiter=",")
    np.savetxt(target / f"{sequence}_time.txt", run.seconds, fmt="%.8f", delimiter=",")
    return file


def average(rows: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Mean of each number over sequences, every sequence counting once.

    >>> average([{"ao": 0.0}, {"ao": 1.0}])
    {'ao': 0.5}
    """
    table = list(rows)
    return {key: float(np.mean([row[key] for row in table])) for key in table[0]}
