"""Pictures of an evaluation: success, precision, overlap along time, sheets of key frames.

All take what :func:`kgmrf.vision.evaluation.evaluate` returns and give a plain matplotlib figure;
with a path they also write it. matplotlib is loaded when something is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kgmrf._types import Numbers
from kgmrf.vision.evaluation import (
    Evaluation,
    box_iou,
    centre_errors,
    normalised_errors,
    precision_curve,
    success_curve,
)
from kgmrf.vision.figures_steady import finished, image_grid, show, write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["iou_curves", "key_frame_sheet", "key_frames", "precision_plot", "success_plot"]

DASHED, DOTTED, TRUTH = (0, (4, 2)), (0, (1, 1.5)), (0, (3, 3))
_LOOK: dict[str, tuple[str, Any]] = {
    "kgmrf": ("ours", "-"),
    "CSRT": ("vermillion", "-"),
    "KCF": ("green", "-"),
    "KCF-0": ("green", DASHED),
    "MIL": ("purple", "-"),
    "MOSSE": ("orange", "-"),
}
"""Colour and line of the trackers that are usually compared; others take what is left."""


def _looks(evaluations: Sequence[Evaluation]) -> dict[str, dict[str, Any]]:
    """Colour and line of every tracker; refuses to draw nothing."""
    from kgmrf import plots

    if not evaluations or not all(e.runs for e in evaluations):
        raise ValueError("there is nothing to draw: evaluate at least one tracker first")
    names = list(dict.fromkeys(name for e in evaluations for name in e.runs))
    taken = {plots.COLOURS[_LOOK[name][0]] for name in names if name in _LOOK}
    left = [c for c in plots.CYCLE if c not in taken] or list(plots.CYCLE)
    # every colour once solid, then once more dashed, then dotted
    others = ((colour, dash) for dash in ("-", DASHED, DOTTED) for colour in left)
    out = {}
    for name in names:
        word, dash = _LOOK.get(name, ("", "-"))
        colour, dash = (plots.COLOURS[word], dash) if word else next(others)
        out[name] = {"color": colour, "linestyle": dash}
    return out


# ------------------------------------------------------------------------------- curves


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
    return _curves(
        evaluations,
        np.linspace(0, 1, 21),
        lambda boxes, truth: success_curve(box_iou(boxes, truth)),
        lambda curve: float(curve.mean()),
        ("success", "overlap threshold"),
        path,
    )


def precision_plot(
    evaluations: Sequence[Evaluation], path: str | Path | None = None, *, normalised: bool = False
) -> Figure:
    """Share of frames whose centre is within t pixels against t, mean over sequences.

    The number is the share within 20 pixels. ``normalised``: distances are in units of the true
    box, t runs to a half, and the number is the mean of the curve.
    """
    at = np.linspace(0, 0.5, 51) if normalised else np.arange(51.0)
    error = normalised_errors if normalised else centre_errors
    return _curves(
        evaluations,
        at,
        lambda boxes, truth: precision_curve(error(boxes, truth), at),
        lambda curve: float(curve.mean() if normalised else curve[20]),
        ("normalised precision", "centre error, share of the true box")
        if normalised
        else ("precision", "centre error, pixels"),
        path,
    )


def _curves(
    evaluations: Sequence[Evaluation],
    at: Numbers,
    curve: Callable[[Numbers, Numbers], Numbers],
    score: Callable[[Numbers], float],
    words: tuple[str, str],
    path: str | Path | None,
) -> Figure:
    """The mean curve of every tracker that ran on all sequences; each sequence counts once."""
    from kgmrf import plots

    looks = _looks(evaluations)
    lines = {
        name: np.mean(
            [curve(e.runs[name].boxes[e.scored], e.truth[e.scored]) for e in evaluations], axis=0
        )
        for name in looks
        if all(name in e.runs for e in evaluations)
    }
    if not lines:
        raise ValueError("no tracker ran on all sequences")
    scores = {name: score(values) for name, values in lines.items()}
    with plots.style():
        figure = plots.new_figure(height=2.6, width=4.6)
        axes = figure.add_subplot()
        # the best on top, of equals the first
        for name in sorted(lines, key=scores.__getitem__, reverse=True)[::-1]:
            axes.plot(at, lines[name], label=name, **looks[name])
        axes.set(xlim=(at[0], at[-1]), ylim=(0, 1.02), xlabel=words[1], ylabel="share of frames")
        axes.set_title(words[0])
        _legend(axes, scores, looks)
        return finished(figure, path)


def iou_curves(
    evaluations: Evaluation | Sequence[Evaluation], path: str | Path | None = None
) -> Figure:
    """IoU frame by frame, one panel per sequence; the number is its mean.

    Ticks below the axis mark frames in which a tracker says that it has lost its target; grey is
    where there is no true box.
    """
    from kgmrf import plots

    chosen = [evaluations] if isinstance(evaluations, Evaluation) else list(evaluations)
    looks = _looks(chosen)
    with plots.style():
        figure = plots.new_figure(height=0.5 + 1.75 * len(chosen))
        grid = figure.subplots(len(chosen), 1, squeeze=False)[:, 0]
        for axes, evaluation in zip(grid, chosen, strict=True):
            _overlaps(axes, evaluation, looks)
            axes.set_title(evaluation.sequence)
        grid[-1].set_xlabel("frame")
        return finished(figure, path)


def _overlaps(axes: Axes, evaluation: Evaluation, looks: dict[str, dict[str, Any]]) -> None:
    from kgmrf import plots

    step = 0.06  # between the rows of marks, in units of the overlap
    times = np.arange(len(evaluation.truth), dtype=float)
    plots.shade_gaps(axes, times, ~evaluation.scored)
    means = {}
    lowest = -step / 2
    for name, run in reversed(evaluation.runs.items()):
        iou = np.where(evaluation.scored, evaluation.overlap(name), np.nan)
        means[name] = float(np.nanmean(iou))
        axes.plot(times, iou, linewidth=1.0, **looks[name])
        if len(lost := times[~run.found]):
            lowest -= step
            marks = {"color": looks[name]["color"], "markersize": 3, "clip_on": False}
            axes.plot(lost, np.full(len(lost), lowest), "|", **marks)
    axes.set_ylim(lowest - step if lowest < -step else 0.0, 1.02)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1], labels=["0", "", "0.5", "", "1"])
    axes.set_xlim(0, max(len(times) - 1, 1))
    axes.set_ylabel("overlap")
    _legend(axes, means, looks)


def _legend(axes: Axes, scores: dict[str, float], looks: dict[str, dict[str, Any]]) -> None:
    """Number and name beside the axes, the best first."""
    from matplotlib.lines import Line2D

    best = sorted(scores, key=scores.__getitem__, reverse=True)
    axes.legend(
        [Line2D([], [], **looks[name]) for name in best],
        [f"{scores[name]:.2f} {name}" for name in best],
        loc="upper left",
        bbox_to_anchor=(1.0, 1.02),
        handlelength=1.8,
        borderaxespad=0.4,
        labelspacing=0.35,
    )


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
    overlaps = np.array([evaluation.overlap(name) for name in evaluation.runs])
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
    frames: Iterable[Any],
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
    from matplotlib.lines import Line2D

    from kgmrf import plots

    looks, names = _looks([evaluation]), list(evaluation.runs)
    n = len(evaluation.truth)
    shown = key_frames(evaluation, n_frames) if at is None else sorted(set(at))
    if not shown or shown[0] < 0 or shown[-1] >= n:
        raise ValueError(f"frames {shown} are not all among the {n} of {evaluation.sequence}")
    images = {k: image for k, image in zip(range(shown[-1] + 1), frames) if k in shown}  # noqa: B905
    if missing := set(shown) - set(images):
        raise ValueError(f"{evaluation.sequence} has no frame {min(missing)}")
    cells = [(k, [name]) for name in names for k in shown] if apart else [(k, names) for k in shown]
    columns = len(shown) if apart else min(n_columns, len(shown))
    with plots.style():
        figure, grid = image_grid(
            -(-len(cells) // columns), columns, images[shown[0]], max(plots.WIDTH / columns, 1.3)
        )
        for axes, (k, group) in zip(grid.ravel(), cells, strict=False):
            _picture(axes, images[k], evaluation, k, group, looks)
        handles = [Line2D([], [], **looks[name]) for name in names]
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
        return finished(figure, path)


def _picture(
    axes: Axes,
    image: Any,
    evaluation: Evaluation,
    k: int,
    group: Sequence[str],
    looks: dict[str, dict[str, Any]],
) -> None:
    visible = bool(evaluation.scored[k])
    show(axes, image)
    for name in reversed(group):  # the first tracker on top
        run = evaluation.runs[name]
        look = {"linewidth": 1.4} if run.found[k] else {"linewidth": 1.0, "linestyle": DOTTED}
        _box(axes, run.boxes[k], {**looks[name], **look})
    if visible:  # thin and last: boxes that agree with it stay in sight
        _box(axes, evaluation.truth[k], {"color": "white", "linestyle": TRUTH, "linewidth": 0.9})
    write(axes, f"{k}" if visible else f"{k}  no target", 0.015, 0.98)
    lost = [name for name in reversed(group) if not evaluation.runs[name].found[k]]
    for row, name in enumerate(lost):
        write(axes, f"lost: {name}", 0.015, 0.02 + 0.085 * row, looks[name]["color"])
    if len(group) == 1 and visible:
        write(axes, f"{evaluation.overlap(group[0])[k]:.2f}", 0.985, 0.98)


def _box(axes: Axes, box: Numbers, look: dict[str, Any]) -> None:
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((box[0], box[1]), box[2], box[3], fill=False, **look))
