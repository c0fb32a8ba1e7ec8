"""Pictures of an evaluation: success, precision, overlap along time, sheets of key frames.

All take what :func:`kgmrf.vision.evaluation.evaluate` returns and give a plain matplotlib figure;
with a path they also write it. matplotlib is loaded when something is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kgmrf.vision.evaluation import (
    Evaluation,
    Run,
    box_iou,
    centre_errors,
    normalised_errors,
    precision_curve,
    success_curve,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["iou_curves", "key_frame_sheet", "key_frames", "precision_plot", "success_plot"]

Numbers = NDArray[np.float64]
Line = tuple[str, Any]

_DASHED, _DOTTED, _TRUTH = (0, (4, 2)), (0, (1, 1.5)), (0, (3, 3))
_LOOK: dict[str, tuple[str, Any]] = {
    "kgmrf": ("ours", "-"),
    "CSRT": ("vermillion", "-"),
    "KCF": ("green", "-"),
    "KCF-0": ("green", _DASHED),
    "MIL": ("purple", "-"),
    "MOSSE": ("orange", "-"),
}
"""Colour and line of the trackers that are usually compared; others take what is left."""


def success_plot(evaluations: Sequence[Evaluation], path: str | Path | None = None) -> Figure:
    """Share of frames with IoU > t against t, mean over sequences; the number is the area below.

    >>> from kgmrf.vision import RegionCovarianceTracker
    >>> from kgmrf.vision.clip import render_clip
    >>> from kgmrf.vision.evaluation import evaluate
    >>> clip = render_clip(5)
    >>> ours = {"kgmrf": RegionCovarianceTracker}
    >>> result = evaluate("clip", lambda: clip.frames, clip.boxes, ours)
    >>> success_plot([result]).axes[0].get_xlabel()
    'overlap threshold'
    """
    at = np.linspace(0, 1, 21)

    def curve(boxes: Numbers, truth: Numbers) -> Numbers:
        return success_curve(box_iou(boxes, truth))

    lines = _averaged(evaluations, curve)
    scores = {name: float(values.mean()) for name, values in lines.items()}
    return _curves(at, lines, scores, "success", "overlap threshold", path)


def precision_plot(
    evaluations: Sequence[Evaluation], path: str | Path | None = None, *, normalised: bool = False
) -> Figure:
    """Share of frames whose centre is within t pixels against t, mean over sequences.

    The number is the share within 20 pixels. ``normalised``: distances are in units of the true
    box, t runs to a half, and the number is the mean of the curve.
    """
    at = np.linspace(0, 0.5, 51) if normalised else np.arange(51.0)
    error = normalised_errors if normalised else centre_errors

    def curve(boxes: Numbers, truth: Numbers) -> Numbers:
        return precision_curve(error(boxes, truth), at)

    lines = _averaged(evaluations, curve)
    scores = {k: float(v.mean() if normalised else v[20]) for k, v in lines.items()}
    if normalised:
        title, label = "normalised precision", "centre error, share of the true box"
    else:
        title, label = "precision", "centre error, pixels"
    return _curves(at, lines, scores, title, label, path)


def iou_curves(
    evaluations: Evaluation | Sequence[Evaluation], path: str | Path | None = None
) -> Figure:
    """IoU frame by frame, one panel per sequence; the number is its mean.

    Ticks below the axis mark frames in which a tracker says that it has lost its target; grey is
    where there is no true box.
    """
    from kgmrf import plots

    chosen = [evaluations] if isinstance(evaluations, Evaluation) else list(evaluations)
    _check(chosen)
    names = list(dict.fromkeys(name for e in chosen for name in e.runs))
    look = _looks(names)
    with plots.style():
        figure = plots.new_figure(height=0.5 + 1.75 * len(chosen))
        grid = figure.subplots(len(chosen), 1, squeeze=False)[:, 0]
        for axes, evaluation in zip(grid, chosen, strict=True):
            _overlaps(axes, evaluation, look)
            axes.set_title(evaluation.sequence)
        grid[-1].set_xlabel("frame")
        return _finished(figure, path)


def _overlaps(axes: Axes, evaluation: Evaluation, look: dict[str, Line]) -> None:
    from kgmrf import plots

    step = 0.06  # between the rows of marks, in units of the overlap
    n = len(evaluation.truth)
    times = np.arange(n, dtype=float)
    plots.shade_gaps(axes, times, ~evaluation.scored)
    truth = np.where(evaluation.scored[:, None], evaluation.truth, 1.0)
    means = {}
    lowest = -step / 2
    for name, run in reversed(evaluation.runs.items()):
        colour, dash = look[name]
        iou = np.where(evaluation.scored, box_iou(run.boxes, truth), np.nan)
        means[name] = float(np.nanmean(iou))
        axes.plot(times, iou, color=colour, linestyle=dash, linewidth=1.0)
        lost = times[~run.found]
        if len(lost):
            lowest -= step
            axes.plot(
                lost, np.full(len(lost), lowest), "|", color=colour, markersize=3, clip_on=False
            )
    axes.set_ylim(lowest - step if lowest < -step else 0.0, 1.02)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1], labels=["0", "", "0.5", "", "1"])
    axes.set_xlim(0, max(n - 1, 1))
    axes.set_ylabel("overlap")
    _legend(axes, means, look)


# ------------------------------------------------------------------------------- curves


def _averaged(
    evaluations: Sequence[Evaluation], curve: Callable[[Numbers, Numbers], Numbers]
) -> dict[str, Numbers]:
    """The mean curve of every tracker that ran on all sequences; each sequence counts once."""
    _check(evaluations)
    names = [n for n in evaluations[0].runs if all(n in e.runs for e in evaluations)]
    if not names:
        raise ValueError("no tracker ran on all sequences")
    return {
        name: np.mean(
            [curve(e.runs[name].boxes[e.scored], e.truth[e.scored]) for e in evaluations], 0
        )
        for name in names
    }


def _check(evaluations: Sequence[Evaluation]) -> None:
    if not evaluations or not all(e.runs for e in evaluations):
        raise ValueError("there is nothing to draw: evaluate at least one tracker first")


def _curves(
    at: Numbers,
    lines: dict[str, Numbers],
    scores: dict[str, float],
    title: str,
    label: str,
    path: str | Path | None,
) -> Figure:
    from kgmrf import plots

    look = _looks(list(lines))
    with plots.style():
        figure = plots.new_figure(height=2.6, width=4.6)
        axes = figure.add_subplot()
        # the best on top, of equals the first
        for name in sorted(lines, key=scores.__getitem__, reverse=True)[::-1]:
            colour, dash = look[name]
            axes.plot(at, lines[name], color=colour, linestyle=dash, label=name)
        axes.set_xlim(at[0], at[-1])
        axes.set_ylim(0, 1.02)
        axes.set_xlabel(label)
        axes.set_ylabel("share of frames")
        axes.set_title(title)
        _legend(axes, scores, look)
        return _finished(figure, path)


def _legend(axes: Axes, scores: dict[str, float], look: dict[str, Line]) -> None:
    """Number and name beside the axes, the best first."""
    from matplotlib.lines import Line2D

    best = sorted(scores, key=scores.__getitem__, reverse=True)
    axes.legend(
        [Line2D([], [], color=look[name][0], linestyle=look[name][1]) for name in best],
        [f"{scores[name]:.2f} {name}" for name in best],
        loc="upper left",
        bbox_to_anchor=(1.0, 1.02),
        handlelength=1.8,
        borderaxespad=0.4,
        labelspacing=0.35,
    )


def _looks(names: Sequence[str]) -> dict[str, Line]:
    from kgmrf import plots

    known = {name: _LOOK[name] for name in names if name in _LOOK}
    left = [c for c in plots.CYCLE if c not in {plots.COLOURS[word] for word, _ in known.values()}]
    left = left or list(plots.CYCLE)
    out: dict[str, Line] = {}
    others = 0
    for name in names:
        if name in known:
            word, dash = known[name]
            out[name] = (plots.COLOURS[word], dash)
        else:
            # every colour once solid, then once more dashed, then dotted
            dash = ("-", _DASHED, _DOTTED)[others // len(left) % 3]
            out[name] = (left[others % len(left)], dash)
            others += 1
    return out


def _finished(figure: Figure, path: str | Path | None) -> Figure:
    from kgmrf import plots

    if path is not None:
        plots.write_figure(figure, path)
    return figure


# ------------------------------------------------------------------------------- sheets


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

    _check([evaluation])
    n = len(evaluation.truth)
    shown = key_frames(evaluation, n_frames) if at is None else sorted(set(at))
    if not shown or shown[0] < 0 or shown[-1] >= n:
        raise ValueError(f"frames {shown} are not all among the {n} of {evaluation.sequence}")
    images = _picked(frames, shown, evaluation.sequence)
    look = _looks(list(evaluation.runs))
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
        return _finished(figure, path)


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
            _box(axes, run.boxes[k], colour, _DOTTED, 1.0)
            lost.append(name)
    if visible:  # thin and last: boxes that agree with it stay in sight
        _box(axes, evaluation.truth[k], "white", _TRUTH, 0.9)
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
    handles.append(Line2D([], [], color="#555555", linestyle=_TRUTH, linewidth=0.9))
    figure.legend(
        handles,
        [*look, "truth (white)"],
        loc="outside lower center",
        ncols=len(handles),
        handlelength=1.8,
        columnspacing=1.2,
        borderpad=0.1,
    )
