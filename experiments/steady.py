"""(B) What the camera table is for: shaky video in, steady video out, beside other stabilisers.

Shake is the mean acceleration of the background from image to image, in pixels: of the true camera
on drawn clips, of dense optical flow outside the target's box on OTB (a measure that none of the
stabilisers uses). Each rival runs at its own settings; ours then runs with ``keep`` at the share of
the image that the rival's largest steady rectangle keeps, so that both are compared at equal crop:
as a recording, and live where the rival is live. Shake is that of the part that is kept.
Milliseconds are processor time per image on one thread: motion, path and warp, no coding.
"""

from __future__ import annotations

import time
from collections import deque
from functools import cache
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments import otb, shaky
from experiments.reading import Results
from experiments.steady_rivals import RIVALS, recorded
from experiments.store import NotAvailable, Unit
from kgmrf.trackers import VectorTracker
from kgmrf.vision.camera import Similarity, apply
from kgmrf.vision.clip import paste
from kgmrf.vision.crowd import BoxesTracker
from kgmrf.vision.live import corners
from kgmrf.vision.regions import box_iou
from kgmrf.vision.scenery import street, van
from kgmrf.vision.steady import Rectangle, Stabilizer, steady_rectangle
from kgmrf.vision.tracker import BoxTracker

Array = NDArray[np.float64]
SEED = 1000
"""Of the clips that are reported; others were looked at while this was written."""

SEQUENCES = ("BlurBody", "BlurCar1", "BlurCar2", "CarScale", "Jogging-1")
SMOOTHNESS = 30.0
KALMAN = "Kalman filter"
"""The plain live rival: a constant-velocity filter of the path that ours has measured."""

SMALLEST = 0.2
"""Share of width and height below which a central crop is no video any more."""

LAGS = (0, 5, 15)
LIVE = {"vidgear": (25,), "vidgear, Kalman": LAGS, KALMAN: LAGS}
"""Lags at which our live version meets a rival at its crop; vidgear's average is 25 images late."""


def units(quick: bool) -> list[Unit]:
    """Every clip, every sequence, and the cost of several boxes."""
    if quick:
        return [Unit("steady", "clip.hand", "steady:clip", {"kind": "hand", "n_images": 45})]
    clips = [
        Unit("steady", f"clip.{kind}", "steady:clip", {"kind": kind, "n_images": shaky.N_IMAGES})
        for kind in shaky.KINDS
    ]
    real = [
        Unit("steady", f"otb.{name}", "steady:sequence", {"name": name, "n_images": 240})
        for name in SEQUENCES
    ]
    return [*clips, *real, Unit("steady", "crowd", "steady:crowd", {"n_images": 60})]


def clip(kind: str, n_images: int) -> dict[str, Any]:
    """All stabilisers on one drawn clip."""
    drawn = shaky.draw(kind, SEED, n_images)
    steps = drawn.cameras[1:] @ np.linalg.inv(drawn.cameras[:-1])
    return compared(drawn.images, steps, keep_path=kind == "hand")


def sequence(name: str, n_images: int) -> dict[str, Any]:
    """All stabilisers on one sequence of OTB."""
    found = otb.target(name)
    images = np.stack(list(islice(found.frames(), n_images)))
    return compared(images, _flow_steps(images, found.boxes))


def _flow_steps(images: NDArray[np.uint8], boxes: Array) -> Array:
    """The motion of the background from each image to the next, by dense flow: (n - 1, 3, 3)."""
    import cv2

    flow: Any = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_MEDIUM)
    grey = [cv2.cvtColor(image, cv2.COLOR_BGR2GRAY) for image in images]
    rows, cols = grey[0].shape
    y, x = np.mgrid[8:rows:12, 8:cols:12].reshape(2, -1)
    steps = []
    for k in range(len(images) - 1):
        flowed = flow.calc(grey[k], grey[k + 1], None)
        left, top, width, height = boxes[k]
        outside = (x < left) | (x > left + width) | (y < top) | (y > top + height)
        before = np.stack([x, y], 1)[outside].astype(np.float32)
        after = before + flowed[y[outside], x[outside]]
        matrix, _ = cv2.estimateAffinePartial2D(before, after, ransacReprojThreshold=2.0)
        steps.append(np.vstack([matrix, [0, 0, 1]]))
    return np.stack(steps)


def compared(images: NDArray[np.uint8], steps: Array, *, keep_path: bool = False) -> dict[str, Any]:
    """Shake, crop, distortion and time of every stabiliser, and ours at the crop of each rival."""
    import cv2

    cv2.setNumThreads(1)
    size = (images.shape[2], images.shape[1])
    still = {k: np.eye(3) for k in range(len(images))}
    rows: dict[str, Any] = {}
    out: dict[str, Any] = {"raw": shake(still, steps, size), "rows": rows, "equal": {}}
    for name, lag in (("kgmrf", None), *((f"kgmrf, lag {lag}", lag) for lag in reversed(LAGS))):
        made, spent = _ours(images, 0.8, lag)
        warps = dict(enumerate(made.warps))
        rows[name] = {**_scores(warps, steps, size), "milliseconds": spent}
        if lag is None:
            path = made.path
        if keep_path and lag is None:
            _, out["path"], out["steady"] = made.numbers()
            out["warps"] = made.warps[:, :2].reshape(-1, 6)
            out["rectangle"] = list(made.rectangle)
    for name, run in (*RIVALS.items(), (KALMAN, None)):
        try:
            began = time.process_time()
            if run is None:
                found = dict(enumerate(_kalman(path, size)))
            else:
                with recorded(images) as found:
                    run(images)
        except NotAvailable as reason:
            rows[name] = {"absent": str(reason)}
            continue
        spent = 1000 * (time.process_time() - began) / len(images)
        rows[name] = {**_scores(found, steps, size), "milliseconds": spent if run else None}
        keep = min(rows[name]["crop"], 0.99)
        if name == KALMAN:
            out["central"] = _at_central_crop(images, np.stack(list(found.values())), steps, size)
        for lag in (None, *LIVE.get(name, ())):
            made, _ = _ours(images, keep, lag)
            met = name if lag is None else f"{name}, lag {lag}"
            out["equal"][met] = _scores({k: made.warps[k] for k in found}, steps, size)
    return out


def _kalman(path: Array, size: tuple[int, int]) -> Array:
    """The warps (n, 3, 3) of a Kalman filter of the same smoothness; in gaps it coasts."""
    tracker = VectorTracker(4, noise_std=1.0, acceleration=SMOOTHNESS**-4, rate_prior=1e-3)
    filtered = tracker.filter(path).position
    return Similarity(size).warp(np.where(np.isnan(path), filtered, path), filtered)


def _at_central_crop(
    images: NDArray[np.uint8], theirs: Array, steps: Array, size: tuple[int, int]
) -> dict[str, float] | None:
    """A rival and ours without a lag where both keep the central part that every image fills.

    Who is live cannot know which part that will be, unlike `steady_rectangle`. None where the rival
    fills less than `SMALLEST` of width and height.
    """
    keep = _central_crop(theirs, size)
    if keep < SMALLEST:
        return None
    made, _ = _ours(images, min(keep, 0.99), 0)
    part = Rectangle(*(0.5 * (1 - keep) * (v - 1) for v in size), *(keep * (v - 1) for v in size))
    both = (dict(enumerate(warps)) for warps in (theirs, made.warps))
    rival, ours = (shake(warps, steps, size, part) for warps in both)
    return {"crop": keep, "rival": rival, "kgmrf": ours}


def _central_crop(warps: Array, size: tuple[int, int]) -> float:
    """Largest share of width and height of a central rectangle that all steady images fill."""
    back, low, high = np.linalg.inv(warps), 0.0, 1.0
    for _ in range(20):
        share = 0.5 * (low + high)
        at = apply(back, corners(size, share))
        filled = (at >= -1e-6).all() and (at <= np.array(size) - 1 + 1e-6).all()
        low, high = (share, high) if filled else (low, share)
    return low


def _ours(images: NDArray[np.uint8], keep: float, lag: int | None) -> tuple[Stabilizer, float]:
    """Our stabiliser after all images, and milliseconds per image."""
    made = Stabilizer(SMOOTHNESS, keep=keep, lag=lag)
    began = time.process_time()
    if lag is None:
        deque(made.stabilize(images), maxlen=0)
    else:
        for image in images:
            made.update(image)
        deque(made.finish(), maxlen=0)
    spent = 1000 * (time.process_time() - began) / len(images)
    made.numbers()
    return made, spent


def _scores(warps: dict[int, Array], steps: Array, size: tuple[int, int]) -> dict[str, float]:
    matrices = np.stack(list(warps.values()))
    singular = np.linalg.svd(matrices[:, :2, :2], compute_uv=False)
    rectangle = steady_rectangle(matrices, size)
    return {
        "shake": shake(warps, steps, size, rectangle),
        "crop": rectangle.width / (size[0] - 1),
        "distortion": float((singular[:, 1] / singular[:, 0]).min()),
        "images": len(warps),
    }


def shake(
    warps: dict[int, Array], steps: Array, size: tuple[int, int], part: Rectangle | None = None
) -> float:
    """Mean |x_{t+1} - 2 x_t + x_{t-1}| of background points x as the steady video shows them.

    Points of the ``part`` that is kept: what is cut off, nobody sees shake.
    """
    left, top, width, height = part or (0, 0, *size)
    across, down = (np.linspace(0.15, 0.85, count) for count in (5, 4))
    x, y = np.meshgrid(left + across * width, top + down * height)
    points = np.stack([x.ravel(), y.ravel(), np.ones(x.size)])
    found = []
    for t in warps:
        if t - 1 not in warps or t + 1 not in warps:
            continue
        here = np.linalg.solve(warps[t], points)
        before = warps[t - 1] @ np.linalg.solve(steps[t - 1], here)
        after = warps[t + 1] @ steps[t] @ here
        bend = after[:2] / after[2] - 2 * points[:2] + before[:2] / before[2]
        found.append(np.hypot(*bend).mean())
    return float(np.mean(found))


# ------------------------------------------------------------------------ several boxes


@cache
def traffic(n_images: int, count: int = 10) -> tuple[NDArray[np.uint8], Array]:
    """Vans of many colours on a street of 640 x 480: images and boxes (n, count, 4)."""
    rng = np.random.default_rng(SEED)
    scene, (body, cover) = street(480, 640, SEED), van(96, 144)
    orders = [(0, 1, 2), (2, 1, 0), (1, 2, 0), (2, 0, 1), (1, 0, 2)]
    sprites = [
        np.clip(body[..., list(orders[k % 5])] + 60 * (k // 5), 0, 255) for k in range(count)
    ]
    start = np.stack([60 + 110 * (np.arange(count) % 5), 40 + 45 * np.arange(count)], 1)
    speed = rng.uniform(0.5, 2.0, count) * rng.choice([-1, 1], count)
    width = rng.uniform(60, 110, count)
    images, boxes = [], []
    for t in range(n_images):
        image = scene.copy()
        now = []
        for k in range(count):
            x = start[k, 0] + speed[k] * t
            now.append([x, start[k, 1] * 0.9, width[k], width[k] / 1.5])
            paste(image, sprites[k], cover, np.array(now[-1]))
        image += rng.normal(0, 2, image.shape)
        images.append(np.clip(np.rint(image), 0, 255).astype(np.uint8))
        boxes.append(now)
    return np.stack(images), np.array(boxes)


def crowd(n_images: int) -> dict[str, Any]:
    """Ten boxes at once beside one: processor time in turns, and overlap with the truth."""
    images, boxes = traffic(n_images)
    one_time, ten_time, alone_iou, ten_iou = [], [], [], []
    for k in range(-1, boxes.shape[1]):  # the first round is for the compiler
        one, ten = BoxTracker(), BoxesTracker()
        one.init(images[0], boxes[0, k])
        ten.init(images[0], boxes[0])
        for image, true in zip(images[1:], boxes[1:], strict=True):
            began = time.process_time()
            one.update(image)
            middle = time.process_time()
            found = ten.update(image)
            if k >= 0:
                one_time.append(middle - began)
                ten_time.append(time.process_time() - middle)
                alone_iou.append(float(box_iou(one.box, true[k])))
                if k == 0:
                    ten_iou += box_iou(np.array([f.box for f in found]), true).tolist()
    return {
        "one_milliseconds": 1000 * float(np.mean(one_time)),
        "ten_milliseconds": 1000 * float(np.mean(ten_time)),
        "ratio": float(np.mean(ten_time) / np.mean(one_time)),
        "one_iou": float(np.mean(alone_iou)),
        "ten_iou": float(np.mean(ten_iou)),
    }


# ----------------------------------------------------------------------------- reading


def table(results: Results) -> dict[str, dict[str, Any]]:
    """Results by clip, drawn ones first."""
    names = [f"clip.{kind}" for kind in shaky.KINDS] + [f"otb.{name}" for name in SEQUENCES]
    found = {name: results.data("steady", name) for name in names}
    return {name: data for name, data in found.items() if data is not None}
