"""A clip drawn by ourselves: motion blur, zoom and an occlusion, with exact boxes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Clip", "render_clip"]


class Clip(NamedTuple):
    """Frames (n, H, W, 3) uint8, true boxes (n, 4), and whether the target is hidden (n,)."""

    frames: NDArray[np.uint8]
    boxes: NDArray[np.float64]
    hidden: NDArray[np.bool_]


def _texture(rng: np.random.Generator, height: int, width: int, waves: int) -> NDArray[np.float32]:
    """Smooth colour noise on a torus: a sum of random plane waves, 0-255."""
    y, x = np.mgrid[0:height, 0:width]
    out = np.zeros((height, width, 3), np.float32)
    for _ in range(waves):
        fx, fy = rng.integers(-9, 10, 2)
        phase = 2 * np.pi * (fx * x / width + fy * y / height + rng.random())
        out += np.cos(phase)[:, :, None] * rng.normal(0, 1, 3) / np.hypot(1.5, np.hypot(fx, fy))
    return np.clip(128 + 42 * out / out.std(), 0, 255).astype(np.float32)


def _paste(
    frame: NDArray[np.float32], texture: NDArray[np.float32], box: NDArray[np.float64]
) -> None:
    """Draw ``texture`` stretched over ``box``; pixels on its border are covered in part."""
    x, y, w, h = box
    rows, cols = frame.shape[:2]
    top, bottom = max(int(np.floor(y)), 0), min(int(np.ceil(y + h)), rows)
    left, right = max(int(np.floor(x)), 0), min(int(np.ceil(x + w)), cols)
    if top >= bottom or left >= right:
        return
    i, j = np.arange(top, bottom), np.arange(left, right)
    cover_y = np.clip(np.minimum(i + 1, y + h) - np.maximum(i, y), 0, 1)
    cover_x = np.clip(np.minimum(j + 1, x + w) - np.maximum(j, x), 0, 1)
    n, m = texture.shape[:2]
    v = np.clip((i + 0.5 - y) / h * n - 0.5, 0, n - 1)
    u = np.clip((j + 0.5 - x) / w * m - 0.5, 0, m - 1)
    a, b = np.minimum(v.astype(int), n - 2), np.minimum(u.astype(int), m - 2)
    p, q = (v - a)[:, None, None], (u - b)[None, :, None]
    patch = (1 - p) * ((1 - q) * texture[a][:, b] + q * texture[a][:, b + 1]) + p * (
        (1 - q) * texture[a + 1][:, b] + q * texture[a + 1][:, b + 1]
    )
    alpha = (cover_y[:, None] * cover_x[None, :])[:, :, None]
    part = frame[top:bottom, left:right]
    part += (alpha * (patch - part)).astype(np.float32)


def render_clip(
    n_frames: int = 60,
    *,
    height: int = 120,
    width: int = 160,
    speed: float = 4.0,
    exposure: float = 0.6,
    occlusion: tuple[int, int] | None = None,
    noise_std: float = 2.0,
    seed: int = 0,
) -> Clip:
    """A textured box that swings and breathes over a background, averaged over the exposure.

    ``speed`` is the largest speed in pixels per frame, ``exposure`` the share of the frame interval
    over which the light is summed (0: no blur), ``occlusion`` (first, last) frames in which a grey
    panel hides the target. Boxes are those at mid-exposure, exact to rounding.

    >>> clip = render_clip(3)
    >>> clip.frames.shape, clip.boxes.shape
    ((3, 120, 160, 3), (3, 4))
    """
    rng = np.random.default_rng(seed)
    background = _texture(rng, height, width, 30)
    target = _texture(rng, 48, 48, 24)
    panel = np.full((4, 4, 3), 128, np.float32)
    reach = np.array([0.28 * width, 0.22 * height])
    rate = speed / np.hypot(*reach) / np.array([1.0, 1.4])

    def box(t: float) -> NDArray[np.float64]:
        centre = np.array([width, height]) / 2 + reach * np.sin(rate * t + np.array([0.0, 0.7]))
        size = np.array([0.22 * width, 0.25 * height]) * np.exp(0.15 * np.sin(0.05 * t))
        return np.concatenate([centre - size / 2, size])

    frames = np.empty((n_frames, height, width, 3), np.uint8)
    hidden = np.zeros(n_frames, dtype=np.bool_)
    boxes = np.array([box(t) for t in range(n_frames)])
    instants = np.linspace(-0.5, 0.5, 9) * exposure if exposure > 0 else np.zeros(1)
    for t in range(n_frames):
        light = np.zeros((height, width, 3), np.float32)
        for s in instants:
            frame = background.copy()
            _paste(frame, target, box(t + s))
            light += frame / len(instants)
        if occlusion is not None and occlusion[0] <= t <= occlusion[1]:
            hidden[t] = True
            x, y, w, h = boxes[t]
            _paste(light, panel, np.array([x - 8, y - 8, w + 16, h + 16]))
        light += rng.normal(0, noise_std, light.shape).astype(np.float32)
        frames[t] = np.clip(np.rint(light), 0, 255)
    return Clip(frames, boxes, hidden)
