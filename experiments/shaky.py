"""Shaky clips of a drawn street, with the true camera: what the stabilisers are measured on."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kgmrf.vision.scenery import street, van

HEIGHT, WIDTH, N_IMAGES = 480, 640, 240
KINDS = ("hand", "pan", "walk", "zoom", "roll", "traffic")
"""Standing with trembling hands, panning, walking, zooming in, rolling from side to side, and a van
that passes close by while the camera is held by hand."""


class ShakyClip(NamedTuple):
    """Images (n, H, W, 3) uint8 and the true matrices (n, 3, 3) from the street to each image."""

    images: NDArray[np.uint8]
    cameras: NDArray[np.float64]


def _shake(rng: np.random.Generator, n: int, period: float, size: float) -> NDArray[np.float64]:
    """Random motion with most of its power near ``period`` images, of standard deviation ``size``."""
    frequency = np.fft.rfftfreq(4 * n)
    band = np.exp(-0.5 * (np.log(np.maximum(frequency, 1e-6) * period) / 0.5) ** 2)
    noise = np.fft.irfft(np.fft.rfft(rng.standard_normal(4 * n)) * band)[:n]
    return size * noise / noise.std()


def cameras(kind: str, seed: int, n: int = N_IMAGES) -> NDArray[np.float64]:
    """Where the camera looks: x, y on the street, angle (radians), log zoom; (n, 4)."""
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    t = np.arange(n)
    meant = np.zeros((n, 4))
    meant[:, 0], meant[:, 1] = 1300.0, 460.0
    shake = np.stack(
        [
            _shake(rng, n, 9, 4.0) + _shake(rng, n, 25, 5.0),
            _shake(rng, n, 8, 4.0) + _shake(rng, n, 22, 5.0),
            _shake(rng, n, 12, 0.006),
            np.zeros(n),
        ],
        axis=1,
    )
    if kind == "pan":
        meant[:, 0] = 700.0 + 5.0 * t
    elif kind == "walk":
        meant[:, 0] = 1000.0 + 1.5 * t
        meant[:, 3] = 0.0006 * t
        step = 2 * np.pi * t / 15 + 0.4 * np.sin(t / 31)
        shake[:, 1] += 9.0 * np.abs(np.sin(step))
        shake[:, 0] += 7.0 * np.sin(step / 2)
        shake[:, 2] += 0.012 * np.sin(step / 2 + 0.5)
    elif kind == "zoom":
        meant[:, 3] = 0.45 * (1 - np.cos(np.pi * t / n)) / 2
        shake[:, 3] = _shake(rng, n, 14, 0.006)
    elif kind == "roll":
        shake[:, 2] = _shake(rng, n, 16, 0.03)
        meant[:, 0] = 1300.0 + 2.0 * t
    return meant + shake


def matrices(poses: NDArray[np.float64]) -> NDArray[np.float64]:
    """Street to image for every pose."""
    out = np.zeros((len(poses), 3, 3))
    for k, (x, y, angle, zoom) in enumerate(poses):
        c, s = np.exp(zoom) * np.cos(angle), np.exp(zoom) * np.sin(angle)
        linear = np.array([[c, -s], [s, c]])
        out[k, :2, :2] = linear
        out[k, :2, 2] = np.array([(WIDTH - 1) / 2, (HEIGHT - 1) / 2]) - linear @ [x, y]
        out[k, 2, 2] = 1
    return out


def draw(kind: str, seed: int, n: int = N_IMAGES) -> ShakyClip:
    """One clip; every image is blurred by what the camera does while the shutter is open."""
    import cv2

    rng = np.random.default_rng([seed, KINDS.index(kind), 1])
    scene = street(900, 2600, seed)
    body, cover = van(330, 500)
    poses = cameras(kind, seed, n)
    open_for = 0.4
    rates = np.gradient(poses, axis=0)
    images = np.empty((n, HEIGHT, WIDTH, 3), np.uint8)
    for k in range(n):
        shown = scene
        if kind == "traffic":
            shown = scene.copy()
            left = int(700 + 5 * k)
            part = shown[520:850, left : left + 500]
            part += cover[:, : part.shape[1], None] * (body[:, : part.shape[1]] - part)
        light = np.zeros((HEIGHT, WIDTH, 3), np.float32)
        for instant in (-0.5, 0.0, 0.5):
            pose = poses[k] + instant * open_for * rates[k]
            view = matrices(pose[None])[0, :2]
            light += cv2.warpAffine(shown, view, (WIDTH, HEIGHT), flags=cv2.INTER_LINEAR) / 3
        light += rng.normal(0, 2, light.shape).astype(np.float32)
        images[k] = np.clip(np.rint(light), 0, 255)
    return ShakyClip(images, matrices(poses))
