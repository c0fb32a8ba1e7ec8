"""Videos drawn by ourselves, each with one difficulty of tracking and exact boxes.

Scenes are "dead leaves": overlapping ellipses of all sizes, whose edges and flat parts resemble
photographs more than noise does. They are not wholly unseen: that the tracker tries a second step
of scale was decided on "zoom", and other changes were refused where these videos spoke against
them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

HEIGHT, WIDTH = 240, 320

KINDS = (
    "fast",
    "blur",
    "hidden",
    "bars",
    "light",
    "zoom",
    "turning",
    "small",
    "grey",
    "doubles",
    "leaving",
    "changing",
)
"""Fast motion, motion blur, full and partial occlusion, change of light, of scale and of angle,
low resolution, no colour, look-alikes nearby, leaving the view, slow change of looks."""


class Video(NamedTuple):
    """Frames (n, H, W[, 3]) uint8 and boxes (n, 4), NaN while the target cannot be seen."""

    frames: NDArray[np.uint8]
    boxes: NDArray[np.float64]


class _Pose(NamedTuple):
    x: float
    y: float
    width: float
    height: float
    angle: float = 0.0


def _leaves(
    rng: np.random.Generator, height: int, width: int, smallest: float, palette: Any
) -> NDArray[np.float32]:
    """Ellipses over ellipses, many small and few large, each with its own grain."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    out = np.full((height, width, 3), palette[0], np.float32)
    largest = 0.5 * min(height, width)
    for _ in range(200):
        # uniform in 1 / size^2: the density that makes the scene look alike at every scale
        u = rng.random()
        size = 1 / np.sqrt(u / smallest**2 + (1 - u) / largest**2)
        cx, cy = rng.uniform(0, width), rng.uniform(0, height)
        a, b = size * rng.uniform(0.5, 1.5, 2)
        t = rng.uniform(0, np.pi)
        p = ((x - cx) * np.cos(t) + (y - cy) * np.sin(t)) / a
        q = ((y - cy) * np.cos(t) - (x - cx) * np.sin(t)) / b
        inside = p * p + q * q < 1
        colour = palette[rng.integers(len(palette))] + rng.normal(0, 18, 3)
        shade = 1 + rng.uniform(-0.3, 0.3) * p + rng.uniform(-0.3, 0.3) * q
        out[inside] = (colour * shade[..., None])[inside]
    out += rng.normal(0, 5, out.shape)
    return np.clip(out, 0, 255).astype(np.float32)


def _palette(rng: np.random.Generator) -> NDArray[np.float64]:
    return rng.uniform(35, 220, (6, 1)) + rng.normal(0, 25, (6, 3))


def _put(
    frame: NDArray[np.float32], sprite: NDArray[np.float32], mask: NDArray[np.float32], pose: _Pose
) -> None:
    import cv2

    n, m = mask.shape
    c, s = np.cos(pose.angle), np.sin(pose.angle)
    linear = np.array([[c, -s], [s, c]]) @ np.diag([pose.width / m, pose.height / n])
    shift = np.array([pose.x, pose.y]) - linear @ [m / 2, n / 2] + 0.5 * (linear.sum(1) - 1)
    affine = np.hstack([linear, shift[:, None]])
    size = (frame.shape[1], frame.shape[0])
    alpha = cv2.warpAffine(mask, affine, size)[..., None]
    colour = cv2.warpAffine(sprite, affine, size, borderMode=cv2.BORDER_REPLICATE)
    frame += alpha * (colour - frame)


def _extent(pose: _Pose) -> NDArray[np.float64]:
    """The upright box around the ellipse inscribed in a turned rectangle."""
    c, s = np.cos(pose.angle), np.sin(pose.angle)
    w = np.hypot(pose.width * c, pose.height * s)
    h = np.hypot(pose.width * s, pose.height * c)
    return np.array([pose.x - w / 2, pose.y - h / 2, w, h])


def draw(kind: str, seed: int, n_frames: int = 60) -> Video:
    """One video of a kind; the seed draws scene, target, path and pace."""
    if kind not in KINDS:
        raise ValueError(f"{kind!r} is none of {', '.join(KINDS)}")
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    scene = _leaves(rng, HEIGHT, WIDTH, 4, _palette(rng))
    palette = _palette(rng)
    sprite = _leaves(rng, 96, 96, 6, palette)
    other = _leaves(rng, 96, 96, 6, palette)
    v, u = np.mgrid[-1:1:96j, -1:1:96j]
    mask = np.clip((1 - np.hypot(u, v)) * 24, 0, 1).astype(np.float32)
    size = {"small": 16.0, "zoom": 36.0}.get(kind, float(rng.uniform(36, 56)))
    ratio = float(rng.uniform(0.6, 1.6))
    pace = {"fast": 11.0, "blur": 8.0, "small": 1.5, "leaving": 9.0}.get(kind, 3.0)
    path = _path(rng, pace, 0.75 if kind == "leaving" else 0.34)

    def pose(t: float) -> _Pose:
        grow = {"zoom": np.exp(0.7 * np.sin(2 * np.pi * t / n_frames))}.get(kind, 1.0)
        angle = 0.9 * np.sin(2 * np.pi * t / 60) if kind == "turning" else 0.05 * np.sin(t / 9)
        x, y = path(t)
        side = size * grow
        return _Pose(x, y, side * np.sqrt(ratio), side / np.sqrt(ratio), angle)

    exposure = np.linspace(-0.4, 0.4, 7) if kind in ("fast", "blur") else np.zeros(1)
    frames, boxes = [], []
    for t in range(n_frames):
        looks = sprite
        if kind == "changing":
            mix = np.float32(0.5 - 0.5 * np.cos(np.pi * min(t / (0.8 * n_frames), 1)))
            looks = (1 - 0.7 * mix) * sprite + 0.7 * mix * other
        light = np.zeros_like(scene)
        for s in exposure:
            frame = scene.copy()
            if kind == "doubles":
                for k in (-1, 1):
                    p = pose(t + 13.0 * k)
                    _put(frame, other, mask, p._replace(x=p.x + 1.3 * k * p.width))
            _put(frame, looks, mask, pose(t + s))
            light += frame / np.float32(len(exposure))
        box = _extent(pose(t))
        box = _overlay(kind, t, light, box, pose(t), other)
        light += 3 * rng.standard_normal(light.shape, dtype=np.float32)
        image = np.clip(np.rint(light), 0, 255).astype(np.uint8)
        frames.append(image.mean(-1).astype(np.uint8) if kind == "grey" else image)
        boxes.append(box)
    return Video(np.stack(frames), np.stack(boxes))


def _path(
    rng: np.random.Generator, pace: float, reach: float
) -> Callable[[float], NDArray[np.float64]]:
    """A smooth path about the middle, at most about ``pace`` pixels per frame."""
    extent = reach * np.array([WIDTH, HEIGHT])
    rate = pace / np.hypot(*extent) * rng.uniform(0.7, 1.3, 2)
    phase = rng.uniform(0, 2 * np.pi, 2)
    if reach > 0.5:
        phase = np.zeros(2)  # starts in view
    middle = np.array([WIDTH, HEIGHT]) / 2
    wobble = rng.uniform(0.2, 0.5, 2)

    def at(t: float) -> NDArray[np.float64]:
        swing = np.sin(rate * t + phase)
        return middle + extent * swing + 0.25 * pace * np.sin(wobble * t + phase[::-1])

    return at


def _overlay(
    kind: str,
    t: int,
    light: NDArray[np.float32],
    box: NDArray[np.float64],
    pose: _Pose,
    other: NDArray[np.float32],
) -> NDArray[np.float64]:
    """What comes between target and camera; returns the box, NaN while nothing can be seen."""
    if kind == "hidden" and 25 <= t < 37:
        full = np.ones(other.shape[:2], np.float32)
        panel = np.full_like(other, 110) + 0.2 * other[::-1]
        _put(light, panel, full, _Pose(pose.x, pose.y, 1.5 * box[2], 1.5 * box[3]))
        return np.full(4, np.nan)
    if kind == "bars":
        for x in range(20, WIDTH, 90):
            light[:, x : x + 16] = (60, 70, 80)
    if kind == "light":
        gain = 1 + 0.55 * np.sin(2 * np.pi * t / 70)
        light *= np.float32(gain)
    if kind == "leaving":
        low = np.maximum(box[:2], 0)
        high = np.minimum(box[:2] + box[2:], [WIDTH, HEIGHT])
        shown = np.maximum(high - low, 0)
        if shown.prod() < 0.3 * box[2:].prod():
            return np.full(4, np.nan)
    return box
