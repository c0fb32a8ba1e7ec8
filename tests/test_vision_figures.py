"""Pictures of an evaluation: the curves are the numbers, the sheets show what they say."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="matplotlib is not installed: no pictures")

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    # The experiments are not part of the installed package.
    sys.path.insert(0, str(ROOT))

from experiments import figures_video  # noqa: E402
from experiments.evaluation import Evaluation, Run  # noqa: E402
from experiments.figures_video import before_after, iou_curves, key_frame_sheet, key_frames  # noqa: E402

from kgmrf import plots  # noqa: E402
from kgmrf.vision.regions import box_iou  # noqa: E402

N = 40


def run(boxes: np.ndarray, lost: slice | None = None) -> Run:
    found = np.ones(len(boxes), bool)
    if lost is not None:
        found[lost] = False
    return Run(boxes, found, np.full(len(boxes), 0.01))


def scene(seed: int, n: int = N) -> Evaluation:
    rng = np.random.default_rng(seed)
    truth = np.concatenate([rng.uniform(0, 30, (n, 2)), rng.uniform(10, 20, (n, 2))], 1)
    near = truth + rng.normal(0, 1, truth.shape)
    far = truth + rng.normal(0, 9, truth.shape).clip(-8)
    truth[5:8] = np.nan
    return Evaluation(f"scene {seed}", truth, {"kgmrf": run(near), "KCF": run(far, slice(20, 30))})


@pytest.fixture
def figures(monkeypatch):
    """The figures that are written, in order."""
    kept = []
    monkeypatch.setattr(plots, "write_figure", lambda figure, path: kept.append(figure))
    return kept


def test_overlap_along_time_leaves_out_what_has_no_truth(figures) -> None:
    one = scene(2)
    iou_curves(one, Path("unused.png"))
    (axes,) = figures[0].axes
    assert axes.get_title("left") == "scene 2"
    lines = [line for line in axes.lines if len(line.get_xdata()) == N]
    drawn = np.array(lines[-1].get_ydata())
    assert np.isnan(drawn[5:8]).all()
    keep = one.scored
    np.testing.assert_allclose(drawn[keep], box_iou(one.runs["kgmrf"].boxes[keep], one.truth[keep]))
    marks = [line for line in axes.lines if line.get_marker() == "|"]
    assert [list(line.get_xdata()) for line in marks] == [list(range(20, 30))]
    best = axes.get_legend().get_texts()[0].get_text()
    assert best == f"{np.nanmean(drawn):.2f} kgmrf"


def test_key_frames_show_the_ends_and_the_largest_difference() -> None:
    truth = np.tile([10.0, 10, 20, 20], (100, 1))
    good, bad = truth.copy(), truth.copy()
    bad[61, 0] += 19
    bad[37, 0] += 12
    bad[62, 0] += 18  # as different, but it would be the same picture again
    one = Evaluation("x", truth, {"a": run(good), "b": run(bad)})
    chosen = key_frames(one, 6)
    assert len(chosen) == 6
    assert {0, 99, 61, 37} <= set(chosen)
    assert max(np.diff(chosen)) <= 38  # no long stretch without a picture
    agreed = Evaluation("x", truth, {"a": run(good), "b": run(good)})
    assert key_frames(agreed, 5) == [0, 24, 49, 74, 99]
    gone = Evaluation("x", truth, {"a": run(good, slice(80, 85)), "b": run(bad)})
    assert {0, 99, 61, 37, 82} <= set(key_frames(gone, 6))
    assert key_frames(one, 200) == list(range(100))
    for n in (2, 5, 60, 99):
        assert len(set(key_frames(one, n))) == n


@pytest.mark.parametrize("grey", [False, True])
def test_a_sheet_holds_the_frames_the_right_way_round(grey: bool, figures, monkeypatch) -> None:
    one = scene(4)
    frames = np.zeros((N, 30, 50) if grey else (N, 30, 50, 3), np.uint8)
    for k in range(N):
        frames[k, ..., 0] = 5 * k  # blue, or the left column
    monkeypatch.setattr(figures_video, "key_frames", lambda evaluation, n: [3, 6, 25])
    key_frame_sheet(one, iter(frames), Path("unused.png"), n_frames=3, n_columns=2)
    shown = [axes for axes in figures[0].axes if axes.images]
    assert (len(figures[0].axes), len(shown)) == (4, 3)
    words = [{text.get_text() for text in axes.texts} for axes in shown]
    assert words == [{"3"}, {"6  no target"}, {"25", "lost: KCF"}]
    # two trackers and the truth, where there is one
    assert [len(axes.patches) for axes in shown] == [3, 2, 3]
    red, green, blue = shown[2].images[0].get_array()[10, 0]
    assert (red, green, blue) == ((125,) * 3 if grey else (0, 0, 125))
    box = shown[0].patches[-1]  # the truth is on top
    np.testing.assert_allclose([*box.get_xy(), box.get_width(), box.get_height()], one.truth[3])
    assert box.get_linestyle() != "-"


def test_the_mean_before_and_after_is_that_of_all_images() -> None:
    before = [np.full((20, 30, 3), 10 * k, np.uint8) for k in range(5)]
    figure = before_after(before, before[::-1], 7)
    titles = [axes.get_title("center") for axes in figure.axes[:4]]
    assert titles == ["image 7", "image 9", "image 11", "mean of 5 images"]
    values = [int(axes.images[0].get_array()[0, 0, 0]) for axes in figure.axes]
    assert values == [0, 20, 40, 20, 40, 20, 0, 20]
