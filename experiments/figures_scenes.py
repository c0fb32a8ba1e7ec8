"""Drawn scenes: tensors along a fibre, and what a stabilised camera would show."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from experiments.chart_parts import tint
from experiments.reading import Results
from kgmrf import plots
from kgmrf._types import Numbers
from kgmrf.geometry import so


def matrices(entries: list[list[float | None]]) -> Any:
    """2 x 2 matrices from rows (xx, xy, yy); NaN where there is none."""
    e = np.array([[np.nan if v is None else v for v in row] for row in entries], dtype=float)
    return np.stack([np.stack([e[:, 0], e[:, 1]], -1), np.stack([e[:, 1], e[:, 2]], -1)], -2)


FIBRE_ROWS = (
    ("fitted tensor alone", "fitted tensor alone", plots.COLOURS["quiet"]),
    ("Euclidean average, gain .2", "average, gain .2", tint("paper_euclidean_ema")),
    ("K-GMRF", "K-GMRF", tint("ours")),
)


def fibre(results: Results) -> Any:
    """Diffusion tensors along a bending fibre, seen from above: truth under each estimate."""
    data = results.data("tensors", "fibre.snr_10")
    if data is None:
        return None
    turn = np.linspace(0, 2 * np.pi, 60)
    circle = np.stack([np.cos(turn), np.sin(turn)])
    position = np.array(data["position"])[:, :2]
    figure = plots.new_figure(height=2.7)
    panels = figure.subplots(1, len(FIBRE_ROWS), sharex=True, sharey=True)
    truth = matrices(data["tensors"]["truth"])
    for axes, (key, name, colour) in zip(panels, FIBRE_ROWS, strict=True):
        found = matrices(data["tensors"][key])
        for k in range(8, len(position), 7):
            for matrix, look in (
                (truth[k], {"facecolor": "#C9C9C9", "edgecolor": "none"}),
                (found[k], {"facecolor": "none", "edgecolor": colour, "linewidth": 1.3}),
            ):
                values, vectors = np.linalg.eigh(matrix)
                outline = vectors @ (2.3 * np.maximum(values, 0)[:, None] * circle)
                axes.fill(*(position[k][:, None] + outline), **look)
        axes.set_title(name, color=colour, loc="center")
        axes.set_aspect("equal")
        axes.axis("off")
    return figure


CAMERA_ROWS = (
    ("seen", "not stabilised", plots.COLOURS["quiet"]),
    ("ema", "EMA .2", tint("paper_euclidean_ema")),
    ("paper", "K-GMRF, paper", tint("paper_kgmrf")),
    ("ours", "ours", tint("ours")),
)


def camera_frames(results: Results) -> Any:
    """A checkerboard through the camera at five frames: as filmed, and turned back by estimates.

    The board stands still in front of the first frame. A perfect estimate shows it upright and in
    the middle; what is left is the error of the estimate.
    """
    data = results.data("scenes", "camera.as_printed")
    if data is None:
        return None
    hidden = [t for t, seen in enumerate(data["observed"]) if not seen and t > 60]
    frames = [hidden[k] for k in np.linspace(0, len(hidden) - 1, 5).astype(int)]
    figure = plots.new_figure(height=4.2)
    grid = figure.subplots(len(CAMERA_ROWS), len(frames), squeeze=False)
    truth = rotations(data["truth"])
    for row, (key, name, colour) in enumerate(CAMERA_ROWS):
        found = None if key == "seen" else rotations(data["tracks"][key])
        for axes, t in zip(grid[row], frames, strict=True):
            back = np.eye(3) if found is None else found[t]
            _board(axes, truth[t].T @ back, colour)
            if row == 0:
                axes.set_title(f"frame {t}", loc="center")
        grid[row][0].set_ylabel(name, color=colour)
    return figure


VIDEO_ROWS = {
    "K-GMRF": tint("ours"),
    "Riemannian EMA": tint("paper_kgmrf"),
    "Euclidean EMA": tint("paper_euclidean_ema"),
    "Tangent KF": tint("tuned_zero_lag"),
    "Alpha-Beta": tint("paper_tangent_kalman"),
}
DASH = 1.6
"""Length of a dash of a box, in widths of its line."""


def video_row(figure: Any, place: Any, data: dict[str, Any], count: int = 5) -> None:
    """Boxes of truth (grey) and the paper's methods at key frames; the images belong to others.

    Key frames are spread evenly, each shifted to where the methods differ most nearby.
    """
    wanted = key_frames(data, count)
    grid = place.subgridspec(1, len(wanted) + 1)
    width, height = data["image"]
    rows = {name: look for name, look in VIDEO_ROWS.items() if "boxes" in data["rows"][name]}
    for k, t in enumerate(wanted):
        axes = figure.add_subplot(grid[0, k])
        left, top, w, h = data["truth"][t]
        axes.fill([left, left + w, left + w, left], [top, top, top + h, top + h], color="#BDBDBD")
        for turn, (name, colour) in enumerate(rows.items()):
            # Dashes take turns: where boxes coincide, the colours of all alternate.
            dashes = (DASH * turn, (DASH, DASH * (len(rows) - 1)))
            box = outline(data["rows"][name]["boxes"][t])
            axes.plot(*box, color=colour, linewidth=1.8, linestyle=dashes, dash_capstyle="butt")
        everyone = [data["truth"][t], *(data["rows"][name]["boxes"][t] for name in rows)]
        _bare(axes, *_around(np.array(everyone, dtype=float), width / height))
        axes.set_title(f"{data['sequence']}, {t}" if k == 0 else str(t), loc="center")
    axes = figure.add_subplot(grid[0, -1])
    for k, (name, colour) in enumerate({"truth": "#8C8C8C", **rows}.items()):
        axes.text(0.0, 0.92 - 0.17 * k, name, color=colour, va="center")
    axes.axis("off")


def _around(boxes: Numbers, ratio: float) -> tuple[tuple[float, float], tuple[float, float]]:
    """Limits of a view in the shape of the image that holds all boxes; y grows downwards."""
    low, high = boxes[:, :2].min(axis=0), (boxes[:, :2] + boxes[:, 2:]).max(axis=0)
    middle, size = (low + high) / 2, 1.25 * (high - low)
    half = max(size[0], size[1] * ratio) / 2
    x, y = middle
    return (x - half, x + half), (y + half / ratio, y - half / ratio)


def key_frames(data: dict[str, Any], count: int) -> list[int]:
    """Frames to show of a video."""
    iou = np.array([data["rows"][name]["iou"] for name in VIDEO_ROWS], dtype=float)
    spread = iou.std(axis=0)
    edges = np.linspace(1, iou.shape[1], count + 1).astype(int)
    return [int(a + np.argmax(spread[a:b])) for a, b in pairwise(edges) if b > a]


def outline(box: Any) -> tuple[list[float], list[float]]:
    """x and y of the corners of a box (left, top, width, height), closed."""
    left, top, width, height = box
    right, bottom = left + width, top + height
    return [left, right, right, left, left], [top, top, bottom, bottom, top]


def rotations(angles: list[list[float]]) -> Numbers:
    """Roll, pitch, yaw in degrees (T, 3) -> (T, 3, 3), turned in the order z y x."""
    around_x, around_y, around_z = np.radians(np.array(angles, dtype=float)).T[..., None]
    x, y, z = np.eye(3)
    return (
        so.exp(so.hat(around_z * z)) @ so.exp(so.hat(around_y * y)) @ so.exp(so.hat(around_x * x))
    )


BOARD = (0.75, 0.56)
"""Half the width and height of the picture, at distance 1."""


def _board(axes: Any, view: Numbers, colour: str) -> None:
    """Squares of a board at distance 1, seen after turning by ``view``; nothing behind the lens."""
    side, seen = 0.12, False
    for i in range(-4, 4):
        for j in range(-3, 3):
            corners = np.array([(i, j), (i + 1, j), (i + 1, j + 1), (i, j + 1)]) * side
            points = np.column_stack([corners, np.ones(4)]) @ view.T
            if (points[:, 2] < 0.1).any():
                continue
            flat = points[:, :2] / points[:, 2:]
            seen |= bool((np.abs(flat) < BOARD).all(axis=1).any())
            shade = colour if (i + j) % 2 else "#E8E8E8"
            axes.fill(*flat.T, color=shade, linewidth=0)
    if not seen:
        axes.text(0.0, 0.0, "board not in view", color=colour, ha="center", va="center")
    _bare(axes, (-BOARD[0], BOARD[0]), (-BOARD[1], BOARD[1]))


def _bare(axes: Any, x: tuple[float, float], y: tuple[float, float]) -> None:
    """A picture's frame: no ticks, all four sides."""
    axes.set_xlim(*x)
    axes.set_ylim(*y)
    axes.set_aspect("equal")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(False)
    for spine in axes.spines.values():
        spine.set_visible(True)
