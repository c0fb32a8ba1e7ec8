"""Pictures of an evaluation: success, precision, overlap along time, sheets of key frames.

All take what :func:`kgmrf.vision.evaluation.evaluate` returns and give a plain matplotlib figure;
with a path they also write it. matplotlib is loaded when something is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kgmrf.vision.evaluation import (
    Evaluation,
    box_iou,
    centre_errors,
    normalised_errors,
    precision_curve,
    success_curve,
)
from kgmrf.vision.figure_parts import Line, Numbers, check, finished, looks
from kgmrf.vision.figure_sheets import key_frame_sheet, key_frames

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["iou_curves", "key_frame_sheet", "key_frames", "precision_plot", "success_plot"]


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
    check(chosen)
    names = list(dict.fromkeys(name for e in chosen for name in e.runs))
    look = looks(names)
    with plots.style():
        figure = plots.new_figure(height=0.5 + 1.75 * len(chosen))
        grid = figure.subplots(len(chosen), 1, squeeze=False)[:, 0]
        for axes, evaluation in zip(grid, chosen, strict=True):
            _overlaps(axes, evaluation, look)
            axes.set_title(evaluation.sequence)
        grid[-1].set_xlabel("frame")
        return finished(figure, path)


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
    check(evaluations)
    names = [n for n in evaluations[0].runs if all(n in e.runs for e in evaluations)]
    if not names:
        raise ValueError("no tracker ran on all sequences")
    return {
        name: np.mean(
            [curve(e.runs[name].boxes[e.scored], e.truth[e.scored]) for e in evaluations], 0
        )
        for name in names
    }


def _curves(
    at: Numbers,
    lines: dict[str, Numbers],
    scores: dict[str, float],
    title: str,
    label: str,
    path: str | Path | None,
) -> Figure:
    from kgmrf import plots

    look = looks(list(lines))
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
        return finished(figure, path)


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
