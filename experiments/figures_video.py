"""Figures of videos: overlap along time, key frames with boxes, images before and after."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from experiments.evaluation import Evaluation
from kgmrf import plots
from kgmrf._types import Numbers

DASHED, DOTTED, TRUTH = (0, (4, 2)), (0, (1, 1.5)), (0, (3, 3))
LOOK: dict[str, tuple[str, Any]] = {
    "kgmrf": ("ours", "-"),
    "K-GMRF": ("ours", "-"),
    "CSRT": ("vermillion", "-"),
    "Riemannian EMA": ("vermillion", "-"),
    "Euclidean EMA": ("sky", "-"),
    "Tangent KF": ("orange", "-"),
    "KCF": ("green", "-"),
    "Alpha-Beta": ("green", "-"),
    "KCF-0": ("green", DASHED),
    "MIL": ("purple", "-"),
    "MOSSE": ("orange", "-"),
}
"""Colour and line of the trackers that are shown."""


def _look(name: str) -> dict[str, Any]:
    colour, dash = LOOK[name]
    return {"color": plots.COLOURS[colour], "linestyle": dash}


def iou_curves(evaluation: Evaluation, path: Path) -> None:
    """IoU frame by frame; the number is its mean.

    Ticks below the axis mark frames in which a tracker says that it has lost its target; grey is
    where there is no true box.
    """
    step = 0.06  # between the rows of marks, in units of the overlap
    times = np.arange(len(evaluation.truth), dtype=float)
    with plots.style():
        figure = plots.new_figure(height=2.25)
        axes = figure.add_subplot()
        plots.shade_gaps(axes, times, ~evaluation.scored)
        means, lowest = {}, -step / 2
        for name, run in reversed(evaluation.runs.items()):
            iou = np.where(evaluation.scored, evaluation.overlap(name), np.nan)
            means[name] = float(np.nanmean(iou))
            axes.plot(times, iou, linewidth=1.0, **_look(name))
            if len(lost := times[~run.found]):
                lowest -= step
                marks = {"color": _look(name)["color"], "markersize": 3, "clip_on": False}
                axes.plot(lost, np.full(len(lost), lowest), "|", **marks)
        axes.set_ylim(lowest - step if lowest < -step else 0.0, 1.02)
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1], labels=["0", "", "0.5", "", "1"])
        axes.set(xlim=(0, max(len(times) - 1, 1)), xlabel="frame", ylabel="overlap")
        axes.set_title(evaluation.sequence)
        best = sorted(means, key=means.__getitem__, reverse=True)
        axes.legend(
            [Line2D([], [], **_look(name)) for name in best],
            [f"{means[name]:.2f} {name}" for name in best],
            loc="upper left",
            bbox_to_anchor=(1.0, 1.02),
            handlelength=1.8,
        )
        plots.write_figure(figure, path)


def key_frames(evaluation: Evaluation, n_frames: int) -> list[int]:
    """Frames worth looking at: the ends, a third where trackers differ most, the rest in between.

    If the first tracker says that it has lost the target, the middle of the first such stretch is
    shown too. Trackers differ by their largest minus their smallest overlap with the truth; frames
    near to one that is taken are passed over, and what is left of the ``n_frames`` goes one by one
    into the widest gap.
    """
    n = len(evaluation.truth)
    if n <= n_frames:
        return list(range(n))
    chosen = [0, n - 1]
    overlaps = np.array([evaluation.overlap(name) for name in evaluation.runs])
    spread = np.where(evaluation.scored, np.ptp(overlaps, axis=0), 0.0)
    distance = np.abs(np.arange(n) - np.array(chosen)[:, None]).min(0)

    def take(k: int) -> None:
        chosen.append(k)
        np.minimum(distance, np.abs(np.arange(n) - k), out=distance)

    lost = np.flatnonzero(~next(iter(evaluation.runs.values())).found)
    if len(lost):
        stretch = lost[lost - lost[0] == np.arange(len(lost))]
        take(int(stretch[len(stretch) // 2]))
    for _ in range(min(n_frames // 3, n_frames - len(chosen))):
        apart = np.where(distance > n // (3 * n_frames), spread, 0.0)
        if apart.max() > 0:
            take(int(apart.argmax()))
    while len(chosen) < n_frames:
        take(int(distance.argmax()))
    return sorted(chosen)


def key_frame_sheet(
    evaluation: Evaluation, frames: Iterable[Any], path: Path, *, n_frames: int, n_columns: int
) -> None:
    """Key frames with every tracker's box.

    frames: the images of the sequence in order, (H, W, 3) blue, green, red, or (H, W) grey.
    The true box is dashed in white. A tracker that says it lost the target is named in the picture,
    and its last box is dotted.
    """
    names = list(evaluation.runs)
    shown = key_frames(evaluation, n_frames)
    images = {k: image for k, image in enumerate(frames) if k in shown}
    with plots.style():
        rows = -(-len(shown) // n_columns)
        figure, grid = _image_grid(rows, n_columns, images[shown[0]])
        for axes, k in zip(grid.ravel(), shown, strict=False):
            _picture(axes, images[k], evaluation, k)
        handles = [Line2D([], [], **_look(name)) for name in names]
        handles.append(Line2D([], [], color="#555555", linestyle=TRUTH, linewidth=0.9))
        figure.legend(
            handles,
            [*names, "truth (white)"],
            loc="outside lower center",
            ncols=len(handles),
            handlelength=1.8,
            columnspacing=1.2,
            borderpad=0.1,
        )
        plots.write_figure(figure, path)


def _picture(axes: Axes, image: Any, evaluation: Evaluation, k: int) -> None:
    visible, lost = bool(evaluation.scored[k]), 0
    _show(axes, image)
    for name, run in reversed(evaluation.runs.items()):  # the first tracker on top
        look = _look(name) | {"linewidth": 1.4}
        if not run.found[k]:
            _write(axes, f"lost: {name}", 0.015, 0.02 + 0.085 * lost, look["color"])
            look |= {"linewidth": 1.0, "linestyle": DOTTED}
            lost += 1
        _box(axes, run.boxes[k], look)
    if visible:  # thin and last: boxes that agree with it stay in sight
        _box(axes, evaluation.truth[k], {"color": "white", "linestyle": TRUTH, "linewidth": 0.9})
    _write(axes, f"{k}" if visible else f"{k}  no target", 0.015, 0.98)


def _box(axes: Axes, box: Numbers, look: dict[str, Any]) -> None:
    axes.add_patch(Rectangle((box[0], box[1]), box[2], box[3], fill=False, **look))


def before_after(before: Sequence[Any], after: Sequence[Any], first: int) -> Figure:
    """Three images of a stretch before and after, and the mean of all of them: shake blurs it.

    ``before`` and ``after`` are as many images (H, W, 3), blue, green, red; ``first`` is the number
    of the first one in its video.
    """
    at = np.linspace(0, len(before) - 1, 3).round().astype(int)
    titles = [*(f"image {first + k}" for k in at), f"mean of {len(before)} images"]
    with plots.style():
        figure, grid = _image_grid(2, 4, before[0])
        for row, word, images in zip(grid, ("before", "after"), (before, after), strict=True):
            mean = np.mean([np.asarray(image, dtype=np.float32) for image in images], axis=0)
            shown = [*(images[k] for k in at), np.rint(mean).astype(np.uint8)]
            for axes, image in zip(row, shown, strict=True):
                _show(axes, image)
                # a line that stays: what moves against it shakes
                axes.axhline(image.shape[0] / 2, color="white", linewidth=0.5, alpha=0.8)
                axes.axvline(image.shape[1] / 2, color="white", linewidth=0.5, alpha=0.8)
            _write(row[0], word, 0.03, 0.95, size=8.0)
        for axes, title in zip(grid[0], titles, strict=True):
            axes.set_title(title, loc="center")
    return figure


def _image_grid(rows: int, columns: int, first: Any) -> tuple[Figure, Any]:
    """Panels without axes, as high as the first image asks for."""
    height, width = first.shape[:2]
    side = max(plots.WIDTH / columns, 1.3)
    figure = plots.new_figure(height=rows * side * height / width + 0.25, width=side * columns)
    engine: Any = figure.get_layout_engine()
    engine.set(h_pad=0.015, w_pad=0.015, hspace=0.0, wspace=0.0)
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.ravel():
        axes.set_axis_off()
    return figure, grid


def _show(axes: Axes, image: Any) -> None:
    """An image, blue, green, red or grey; pixel k covers [k, k + 1)."""
    height, width = image.shape[:2]
    colour = image[..., ::-1] if image.ndim == 3 else np.repeat(image[..., None], 3, 2)
    axes.imshow(colour, extent=(0, width, height, 0), interpolation="antialiased")
    axes.set(xlim=(0, width), ylim=(height, 0))


def _write(
    axes: Axes, words: str, x: float, y: float, colour: str = "white", size: float = 6.0
) -> None:
    """Words on the left of an image, at a place in shares of it."""
    axes.text(
        x,
        y,
        words,
        transform=axes.transAxes,
        ha="left",
        va="bottom" if y < 0.5 else "top",
        color=colour,
        fontsize=size,
        fontweight="bold",
        bbox={
            "facecolor": "black" if colour == "white" else "white",
            "alpha": 0.65,
            "pad": 0.8,
            "linewidth": 0,
        },
    )
