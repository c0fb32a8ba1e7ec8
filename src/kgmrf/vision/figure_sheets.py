"""Sheets of key frames with the boxes of every tracker."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kgmrf.vision.evaluation import Evaluation, Run, box_iou
from kgmrf.vision.figure_parts import DOTTED, TRUTH, Line, Numbers, check, finished, looks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["key_frame_sheet", "key_frames"]


def key_frames(evaluation: Evaluation, n_frames: int = 8) -> list[int]:
    """Frames worth looking at: the ends, a third where trackers differ most, the rest in between.

    If the first tracker says that it has lost the target, the middle of the first such stretch is
    shown too.
    Trackers differ by their largest minus their smallest overlap with the truth; a single tracker
    by what it misses. The largest comes first, those near to a frame that is taken are passed over,
    and what is left of the ``n_frames`` goes one by one into the widest gap.
    """
    if n_frames < 1:
        raise ValueError(f"a sheet has at least one frame, got {n_frames}")
    n = len(evaluation.truth)
    if n <= n_frames:
        return list(range(n))
    chosen = [0, n - 1][:n_frames]
    truth = np.where(evaluation.scored[:, None], evaluation.truth, 1.0)
    overlaps = np.array([box_iou(run.boxes, truth) for run in evaluation.runs.values()])
    spread = np.ptp(overlaps, axis=0) if len(overlaps) > 1 else 1.0 - overlaps[0]
    spread = np.where(evaluation.scored, spread, 0.0)
    distance = np.abs(np.arange(n) - np.array(chosen)[:, None]).min(0)

    def take(k: int) -> None:
        chosen.append(k)
        np.minimum(distance, np.abs(np.arange(n) - k), out=distance)

    lost = np.flatnonzero(~next(iter(evaluation.runs.values())).found)
    if len(lost) and n_frames > 3:
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
    evaluation: Evaluation,
    frames: Iterable[NDArray[np.uint8]],
    path: str | Path | None = None,
    *,
    at: Sequence[int] | None = None,
    n_frames: int = 8,
    n_columns: int = 4,
    apart: bool = False,
) -> Figure:
    """Key frames with every tracker's box: all in one picture, or one row per tracker (``apart``).

    frames: the images of the sequence in order, (H, W, 3) blue, green, red, or (H, W) grey.
    at: numbers of the frames to show, by default those of :func:`key_frames`.
    The true box is dashed in white. A tracker that says it lost the target is named in the picture,
    and its last box is dotted.
    """
    from kgmrf import plots

    check([evaluation])
    n = len(evaluation.truth)
    shown = key_frames(evaluation, n_frames) if at is None else sorted(set(at))
    if not shown or shown[0] < 0 or shown[-1] >= n:
        raise ValueError(f"frames {shown} are not all among the {n} of {evaluation.sequence}")
    images = _picked(frames, shown, evaluation.sequence)
    look = looks(list(evaluation.runs))
    groups = [[name] for name in evaluation.runs] if apart else [list(evaluation.runs)]
    columns = len(shown) if apart else min(n_columns, len(shown))
    rows = len(groups) if apart else -(-len(shown) // columns)
    height, width = images[shown[0]].shape[:2]
    with plots.style():
        side = max(plots.WIDTH / columns, 1.3)
        figure = plots.new_figure(
            height=rows * (side - 0.03) * height / width + 0.03 * rows + 0.2, width=side * columns
        )
        engine: Any = figure.get_layout_engine()
        engine.set(h_pad=0.015, w_pad=0.015, hspace=0.0, wspace=0.0)
        grid = figure.subplots(rows, columns, squeeze=False)
        for axes in grid.ravel():
            axes.set_axis_off()
        cells = (
            [(grid[r, c], k, group) for r, group in enumerate(groups) for c, k in enumerate(shown)]
            if apart
            else [(grid.ravel()[c], k, groups[0]) for c, k in enumerate(shown)]
        )
        for axes, k, group in cells:
            _picture(axes, images[k], evaluation, k, group, look)
        _key(figure, look)
        return finished(figure, path)


def _picked(
    frames: Iterable[NDArray[np.uint8]], shown: Sequence[int], name: str
) -> dict[int, NDArray[np.uint8]]:
    wanted = set(shown)
    images = {}
    for k, frame in enumerate(frames):
        if k in wanted:
            colour = frame[..., ::-1] if frame.ndim == 3 else np.repeat(frame[..., None], 3, 2)
            images[k] = np.ascontiguousarray(colour)
        if k >= shown[-1]:
            break
    if missing := wanted - set(images):
        raise ValueError(f"{name} has no frame {min(missing)}")
    return images


def _picture(
    axes: Axes,
    image: NDArray[np.uint8],
    evaluation: Evaluation,
    k: int,
    group: Sequence[str],
    look: dict[str, Line],
) -> None:
    height, width = image.shape[:2]
    axes.imshow(image, extent=(0, width, height, 0), interpolation="antialiased")
    visible = bool(evaluation.scored[k])
    lost = []
    for name in reversed(group):  # the first tracker on top
        run: Run = evaluation.runs[name]
        colour, dash = look[name]
        if run.found[k]:
            _box(axes, run.boxes[k], colour, dash, 1.4)
        else:
            _box(axes, run.boxes[k], colour, DOTTED, 1.0)
            lost.append(name)
    if visible:  # thin and last: boxes that agree with it stay in sight
        _box(axes, evaluation.truth[k], "white", TRUTH, 0.9)
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    word = f"{k}" if visible else f"{k}  no target"
    _write(axes, word, (0.015, 0.98), "white", "top")
    for row, name in enumerate(lost):
        _write(axes, f"lost: {name}", (0.015, 0.02 + 0.085 * row), look[name][0], "bottom")
    if len(group) == 1:
        name = group[0]
        if visible:
            overlap = float(box_iou(evaluation.runs[name].boxes[k], evaluation.truth[k]))
            _write(axes, f"{overlap:.2f}", (0.985, 0.98), "white", "top", "right")


def _box(axes: Axes, box: Numbers, colour: str, dash: Any, thickness: float) -> None:
    from matplotlib.patches import Rectangle

    x, y, width, height = (float(v) for v in box)
    axes.add_patch(
        Rectangle(
            (x, y), width, height, fill=False, color=colour, linestyle=dash, linewidth=thickness
        )
    )


def _write(
    axes: Axes,
    words: str,
    place: tuple[float, float],
    colour: str,
    vertical: str,
    horizontal: str = "left",
) -> None:
    dark = colour == "white"
    axes.text(
        *place,
        words,
        transform=axes.transAxes,
        ha=horizontal,
        va=vertical,
        color=colour,
        fontsize=6.0,
        fontweight="bold",
        bbox={"facecolor": "black" if dark else "white", "alpha": 0.65, "pad": 0.8, "linewidth": 0},
    )


def _key(figure: Figure, look: dict[str, Line]) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=c, linestyle=d) for c, d in look.values()]
    handles.append(Line2D([], [], color="#555555", linestyle=TRUTH, linewidth=0.9))
    figure.legend(
        handles,
        [*look, "truth (white)"],
        loc="outside lower center",
        ncols=len(handles),
        handlelength=1.8,
        columnspacing=1.2,
        borderpad=0.1,
    )
