"""Pictures of an evaluation: the curves are the numbers, the sheets show what they say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kgmrf.vision.evaluation import Evaluation, Run, box_iou, summary
from kgmrf.vision.figures import (
    iou_curves,
    key_frame_sheet,
    key_frames,
    precision_plot,
    success_plot,
)

pytest.importorskip("matplotlib", reason="matplotlib is not installed: no pictures")

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


def labels(figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].get_legend().get_texts()]


def test_curves_are_the_means_of_the_sequences(tmp_path: Path) -> None:
    pair = [scene(0), scene(1, 25)]
    numbers = [{name: summary(r.boxes, e.truth) for name, r in e.runs.items()} for e in pair]
    for draw, key in (
        (success_plot, "success_auc"),
        (precision_plot, "precision"),
        (lambda e: precision_plot(e, normalised=True), "normalised_precision"),
    ):
        figure = draw(pair)
        expected = {n: np.mean([row[n][key] for row in numbers]) for n in ("kgmrf", "KCF")}
        best = sorted(expected, key=lambda n: -expected[n])
        assert labels(figure) == [f"{expected[n]:.2f} {n}" for n in best]
        drawn = {line.get_label(): np.array(line.get_ydata()) for line in figure.axes[0].lines}
        for name, value in expected.items():
            area = drawn[name][20] if key == "precision" else drawn[name].mean()
            assert area == pytest.approx(value, abs=1e-12)
    success_plot(pair, tmp_path / "success.svg")
    assert (tmp_path / "success.svg").stat().st_size > 1000


def test_overlap_along_time_leaves_out_what_has_no_truth() -> None:
    one = scene(2)
    figure = iou_curves([one, scene(3, 10)])
    assert [axes.get_title("left") for axes in figure.axes] == ["scene 2", "scene 3"]
    lines = [line for line in figure.axes[0].lines if len(line.get_xdata()) == N]
    drawn = np.array(lines[-1].get_ydata())
    assert np.isnan(drawn[5:8]).all()
    keep = one.scored
    np.testing.assert_allclose(drawn[keep], box_iou(one.runs["kgmrf"].boxes[keep], one.truth[keep]))
    marks = [line for line in figure.axes[0].lines if line.get_marker() == "|"]
    assert [list(line.get_xdata()) for line in marks] == [list(range(20, 30))]
    assert labels(iou_curves(one))[0].endswith("kgmrf")


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
    alone = Evaluation("x", truth, {"b": run(bad)})
    assert key_frames(alone, 6) == chosen
    assert max(np.diff(chosen)) <= 38  # no long stretch without a picture
    agreed = Evaluation("x", truth, {"a": run(good), "b": run(good)})
    assert key_frames(agreed, 5) == [0, 24, 49, 74, 99]
    gone = Evaluation("x", truth, {"a": run(good, slice(80, 85)), "b": run(bad)})
    assert {0, 99, 61, 37, 82} <= set(key_frames(gone, 6))
    assert key_frames(one, 1) == [0]
    assert key_frames(one, 200) == list(range(100))
    for n in (2, 5, 60, 99):
        assert len(set(key_frames(one, n))) == n
    with pytest.raises(ValueError, match="at least one"):
        key_frames(one, 0)


@pytest.mark.parametrize("grey", [False, True])
def test_a_sheet_holds_the_frames_the_right_way_round(grey: bool, tmp_path: Path) -> None:
    one = scene(4)
    frames = np.zeros((N, 30, 50) if grey else (N, 30, 50, 3), np.uint8)
    for k in range(N):
        frames[k, ..., 0] = 5 * k  # blue, or the left column
    figure = key_frame_sheet(one, iter(frames), tmp_path / "sheet.png", at=[3, 6, 25])
    assert (tmp_path / "sheet.png").exists()
    shown = [axes for axes in figure.axes if axes.images]
    words = [[text.get_text() for text in axes.texts] for axes in shown]
    assert words == [["3"], ["6  no target"], ["25", "lost: KCF"]]
    # two trackers and the truth, where there is one
    assert [len(axes.patches) for axes in shown] == [3, 2, 3]
    red, green, blue = shown[2].images[0].get_array()[10, 0]
    assert (red, green, blue) == ((125,) * 3 if grey else (0, 0, 125))
    box = shown[0].patches[-1]  # the truth is on top
    np.testing.assert_allclose([*box.get_xy(), box.get_width(), box.get_height()], one.truth[3])
    assert box.get_linestyle() != "-"


def test_a_sheet_with_one_row_per_tracker() -> None:
    one = scene(5)
    frames = np.zeros((N, 30, 50, 3), np.uint8)
    figure = key_frame_sheet(one, frames, n_frames=3, apart=True)
    assert len(figure.axes) == 6
    shown = key_frames(one, 3)
    overlap = box_iou(one.runs["KCF"].boxes[shown[1]], one.truth[shown[1]])
    assert [t.get_text() for t in figure.axes[4].texts][-1] == f"{overlap:.2f}"
    assert len(key_frame_sheet(one, frames, n_frames=7, n_columns=3).axes) == 9


def test_what_cannot_be_drawn_is_said() -> None:
    one = scene(6)
    frames = np.zeros((N, 30, 50, 3), np.uint8)
    with pytest.raises(ValueError, match="nothing to draw"):
        success_plot([])
    with pytest.raises(ValueError, match="nothing to draw"):
        iou_curves(Evaluation("x", one.truth, {}))
    other = Evaluation("x", one.truth, {"MIL": one.runs["KCF"]})
    with pytest.raises(ValueError, match="no tracker ran on all"):
        precision_plot([one, other])
    with pytest.raises(ValueError, match="not all among the 40"):
        key_frame_sheet(one, frames, at=[2, 40])
    with pytest.raises(ValueError, match="has no frame 10"):
        key_frame_sheet(one, frames[:10], at=[2, 10])


def test_unknown_trackers_are_told_apart() -> None:
    one = scene(7)
    many = {f"tracker {k}": one.runs["kgmrf"] for k in range(14)}
    figure = success_plot([Evaluation("x", one.truth, {"kgmrf": one.runs["KCF"], **many})])
    looks = {(line.get_color(), str(line.get_linestyle())) for line in figure.axes[0].lines}
    dashes = {(line.get_color(), str(line._dash_pattern)) for line in figure.axes[0].lines}
    assert len(dashes) == 15
    assert len(looks) >= 6
