"""A street and a van, drawn with plain numpy: what demonstrations, pictures and studies look at."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["street", "van"]

Picture = NDArray[np.float32]
Colour = tuple[float, float, float]
"""Blue, green, red, 0-255."""


class _Canvas:
    """Shapes in units of the picture's height, drawn twice as fine as they are shown."""

    def __init__(self, height: int, width: int) -> None:
        self.scale = 2.0 * height
        self.pixels = np.zeros((2 * height, 2 * width, 3), np.float32)

    def _part(self, x: float, y: float, width: float, height: float) -> tuple[Any, Any, Any]:
        """The pixels of a rectangle, their y (rows, 1) and their x (columns,)."""
        rows, cols = self.pixels.shape[:2]
        top, bottom = np.clip(np.rint(np.array([y, y + height]) * self.scale), 0, rows).astype(int)
        left, right = np.clip(np.rint(np.array([x, x + width]) * self.scale), 0, cols).astype(int)
        down, across = np.arange(top, bottom)[:, None], np.arange(left, right)
        return self.pixels[top:bottom, left:right], down / self.scale, across / self.scale

    def box(self, x: float, y: float, width: float, height: float, colour: Colour) -> None:
        self._part(x, y, width, height)[0][:] = colour

    def fade(self, y0: float, y1: float, top: Colour, bottom: Colour) -> None:
        pixels = self._part(0, y0, 1e9, y1 - y0)[0]
        share = np.linspace(0, 1, len(pixels), dtype=np.float32)[:, None, None]
        first, last = np.array(top, np.float32), np.array(bottom, np.float32)
        pixels[:] = (1 - share) * first + share * last

    def disc(self, x: float, y: float, a: float, b: float, colour: Colour) -> None:
        pixels, i, j = self._part(x - a, y - b, 2 * a, 2 * b)
        pixels[((j - x) / a) ** 2 + ((i - y) / b) ** 2 < 1] = colour

    def below(self, line: NDArray[np.float64], until: float, colour: Colour) -> None:
        """Everything between a skyline (one height per column) and ``until``."""
        pixels, i, _ = self._part(0, 0, 1e9, until)
        pixels[i > line] = colour

    def roof(self, x: float, y: float, width: float, height: float, colour: Colour) -> None:
        pixels, i, j = self._part(x, y - height, width, height)
        pixels[np.abs(j - x - width / 2) * 2 / width < 1 - (y - i) / height] = colour


def _halved(pixels: Picture) -> Picture:
    rows, cols = pixels.shape[:2]
    return pixels.reshape(rows // 2, 2, cols // 2, 2, -1).mean((1, 3), dtype=np.float32)


def _mixed(rng: np.random.Generator, colours: list[Colour], spread: float = 8.0) -> Colour:
    b, g, r = np.clip(np.array(colours[rng.integers(len(colours))]) + rng.normal(0, spread), 0, 255)
    return float(b), float(g), float(r)


WALLS: list[Colour] = [(150, 190, 215), (120, 150, 200), (170, 175, 180), (105, 130, 170)]
ROOFS: list[Colour] = [(60, 70, 130), (75, 70, 75), (60, 60, 100)]
DOORS: list[Colour] = [(40, 60, 90), (90, 60, 40)]
LEAVES: list[Colour] = [(55, 110, 70), (45, 90, 55), (70, 130, 95)]


def street(height: int, width: int, seed: int = 0) -> Picture:
    """Sky, hills, houses, trees, lamps and a road: (height, width, 3), blue, green, red, 0-255."""
    rng = np.random.default_rng(seed)
    canvas = _Canvas(height, width)
    length = width / height
    canvas.fade(0, 0.62, (225, 170, 110), (235, 225, 205))
    for _ in range(int(4 * length)):
        x, y = rng.uniform(0, length), rng.uniform(0.04, 0.22)
        for _ in range(5):
            size = rng.uniform(0.02, 0.05)
            at = x + rng.normal(0, 0.05), y + rng.normal(0, 0.01)
            canvas.disc(*at, 2 * size, size, (245, 243, 240))
    across = np.linspace(0, length, 2 * width)
    for k, colour in enumerate([(150, 150, 120), (95, 125, 90)]):
        waves = [
            np.sin(across * f + rng.uniform(0, 7)) * a
            for f, a in ((3, 0.03), (7, 0.015), (19, 0.005))
        ]
        canvas.below(0.36 + 0.06 * k + sum(waves), 0.72, colour)  # type: ignore[arg-type]
    x = rng.uniform(-0.2, 0)
    while x < length:
        x = _house(canvas, rng, x) if rng.random() < 0.8 else _tree(canvas, rng, x)
    canvas.box(0, 0.70, length, 0.05, (165, 168, 170))
    canvas.fade(0.75, 1.0, (95, 92, 90), (70, 68, 66))
    for x in np.arange(rng.uniform(0, 0.2), length, 0.26):
        canvas.box(x, 0.865, 0.13, 0.014, (215, 225, 225))
    for x in np.arange(rng.uniform(0, 0.3), length, 0.55):
        canvas.box(x, 0.40, 0.009, 0.32, (60, 62, 60))
        canvas.box(x - 0.035, 0.40, 0.05, 0.009, (60, 62, 60))
        canvas.disc(x - 0.03, 0.413, 0.014, 0.009, (190, 235, 250))
    for x in np.arange(rng.uniform(0, 0.1), length, 0.085):
        canvas.box(x, 0.725, 0.006, 0.03, (110, 112, 110))
    grain = rng.normal(0, 4, (height, width, 1)).astype(np.float32)
    return np.clip(_halved(canvas.pixels) + grain, 0, 255)


def _house(canvas: _Canvas, rng: np.random.Generator, x: float) -> float:
    width, top = rng.uniform(0.22, 0.36), rng.uniform(0.36, 0.48)
    wall, dark = _mixed(rng, WALLS), (70.0, 60.0, 55.0)
    canvas.box(x, top, width, 0.72 - top, wall)
    canvas.roof(x - 0.015, top, width + 0.03, rng.uniform(0.06, 0.12), _mixed(rng, ROOFS))
    n = int(rng.integers(2, 5))
    for y in np.arange(top + 0.035, 0.60, 0.095):
        for k in range(n):
            left = x + width * (k + 0.5) / n - 0.02
            canvas.box(left - 0.004, y - 0.004, 0.048, 0.063, (235, 238, 240))
            canvas.box(left, y, 0.04, 0.055, _mixed(rng, [dark, (150, 130, 110)], 15))
            canvas.box(left + 0.0185, y, 0.003, 0.055, (235, 238, 240))
    canvas.box(x + width * 0.5 - 0.022, 0.625, 0.044, 0.095, _mixed(rng, DOORS))
    return x + width + rng.uniform(0.0, 0.03)


def _tree(canvas: _Canvas, rng: np.random.Generator, x: float) -> float:
    canvas.box(x + 0.07, 0.55, 0.016, 0.17, (45, 65, 85))
    for _ in range(14):
        size = rng.uniform(0.025, 0.05)
        at = x + 0.08 + rng.normal(0, 0.035), 0.48 + rng.normal(0, 0.04)
        canvas.disc(*at, size, size, _mixed(rng, LEAVES, 10))
    return x + 0.16


def van(height: int = 96, width: int = 144) -> tuple[Picture, Picture]:
    """A delivery van that fills its box, and how much of each pixel it covers, 0-1."""
    canvas, length = _Canvas(height, width), width / height
    canvas.box(0, 0, 0.68 * length, 0.86, (50, 70, 205))
    canvas.box(0.66 * length, 0.18, 0.34 * length, 0.68, (55, 80, 225))
    canvas.box(0.74 * length, 0.26, 0.20 * length, 0.24, (120, 95, 70))
    for x in (0.2 * length, 0.8 * length):
        canvas.disc(x, 0.84, 0.16, 0.16, (30, 30, 30))
        canvas.disc(x, 0.84, 0.07, 0.07, (170, 170, 170))
    canvas.box(0.06 * length, 0.16, 0.52 * length, 0.34, (235, 240, 240))
    canvas.box(0.12 * length, 0.24, 0.40 * length, 0.05, (60, 140, 50))
    canvas.box(0.12 * length, 0.34, 0.28 * length, 0.05, (60, 140, 50))
    canvas.box(0.0, 0.62, length, 0.04, (35, 45, 140))
    canvas.box(0.955 * length, 0.56, 0.045 * length, 0.08, (180, 240, 250))
    canvas.box(0.0, 0.70, 0.02 * length, 0.1, (40, 40, 160))
    cover = np.asarray(canvas.pixels.any(axis=2), dtype=np.float32)
    return _halved(canvas.pixels), _halved(cover)[..., 0]
