"""A clip drawn by ourselves: motion blur, zoom and an occlusion, with exact boxes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import affine_transform

from kgmrf.vision.scenery import street, van

__all__ = ["Clip", "demo_clip", "paste", "render_clip"]


class Clip(NamedTuple):
    """Frames (n, H, W, 3) uint8, true boxes (n, 4), and whether the target is hidden (n,)."""

    frames: NDArray[np.uint8]
    boxes: NDArray[np.float64]
    hidden: NDArray[np.bool_]


def paste(
    frame: NDArray[np.float32],
    sprite: NDArray[np.float32],
    cover: NDArray[np.float32],
    box: NDArray[np.float64],
) -> None:
    """Draw a sprite (n, m, 3) that covers ``cover`` (n, m) of each pixel, stretched over a box."""
    x, y, w, h = box
    rows, cols = frame.shape[:2]
    top, bottom = max(int(np.floor(y)), 0), min(int(np.ceil(y + h)), rows)
    left, right = max(int(np.floor(x)), 0), min(int(np.ceil(x + w)), cols)
    if top >= bottom or left >= right:
        return
    i, j = np.arange(top, bottom), np.arange(left, right)
    # pixels on the border of the box are covered in part
    share_y = np.clip(np.minimum(i + 1, y + h) - np.maximum(i, y), 0, 1)
    share_x = np.clip(np.minimum(j + 1, x + w) - np.maximum(j, x), 0, 1)
    n, m = cover.shape
    both = np.concatenate([sprite, cover[..., None]], axis=2)
    first = (top + 0.5 - y) / h * n - 0.5, (left + 0.5 - x) / w * m - 0.5, 0
    patch = affine_transform(
        both, (n / h, m / w, 1), first, (len(i), len(j), 4), order=1, mode="nearest"
    )
    alpha = (share_y[:, None] * share_x[None, :])[:, :, None] * patch[..., 3:]
    part = frame[top:bottom, left:right]
    part += (alpha * (patch[..., :3] - part)).astype(np.float32)


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
    """A van that drives to and fro on a street, averaged over the exposure.

    ``speed`` is the largest speed in pixels per frame, ``exposure`` the share of the frame interval
    over which the light is summed (0: no blur), ``occlusion`` (first, last) frames in which a
    hoarding hides the van. Boxes are those at mid-exposure, exact to rounding.

    >>> clip = render_clip(3)
    >>> clip.frames.shape, clip.boxes.shape
    ((3, 120, 160, 3), (3, 4))
    """
    rng = np.random.default_rng(seed)
    background = street(height, width, seed)
    target, cover = van(48, 72)
    panel = np.full((8, 8, 3), (96, 118, 104), np.float32)
    panel[::2] -= 10
    reach = np.array([0.32 * width, 0.07 * height])
    rate = speed / np.hypot(*reach) / np.array([1.0, 1.4])

    def box(t: float) -> NDArray[np.float64]:
        middle = np.array([0.5 * width, 0.78 * height])
        centre = middle + reach * np.sin(rate * t + np.array([0.0, 0.7]))
        size = np.array([0.39, 0.26]) * height * np.exp(0.15 * np.sin(0.05 * t))
        return np.concatenate([centre - size / 2, size])

    frames = np.empty((n_frames, height, width, 3), np.uint8)
    hidden = np.zeros(n_frames, dtype=np.bool_)
    boxes = np.array([box(t) for t in range(n_frames)])
    instants = np.linspace(-0.5, 0.5, 9) * exposure if exposure > 0 else np.zeros(1)
    for t in range(n_frames):
        light = np.zeros((height, width, 3), np.float32)
        for s in instants:
            frame = background.copy()
            paste(frame, target, cover, box(t + s))
            light += frame / len(instants)
        if occlusion is not None and occlusion[0] <= t <= occlusion[1]:
            hidden[t] = True
            x, y, w, h = boxes[t]
            paste(
                light, panel, np.ones((8, 8), np.float32), np.array([x - 8, y - 8, w + 16, h + 16])
            )
        light += rng.normal(0, noise_std, light.shape).astype(np.float32)
        frames[t] = np.clip(np.rint(light), 0, 255)
    return Clip(frames, boxes, hidden)


def demo_clip(n_frames: int = 120) -> Clip:
    """The clip of ``kgmrf video --demo``: fast, blurred, and hidden around image 73."""
    return render_clip(n_frames, height=180, width=240, speed=6.0, occlusion=(70, 76))
