"""The OTB units: skipped with a reason, or numbers that follow from the boxes."""

from __future__ import annotations

import html
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    # The experiments are not part of the installed package.
    sys.path.insert(0, str(ROOT))

from experiments import (  # noqa: E402
    charts_video,
    comparison,
    drawn_videos,
    intervals,
    otb,
    otb_choice,
    otb_models,
    otb_sheets,
    otb_unseen,
    report_video,
    running,
    store,
    tables,
    verdicts_tasks,
)
from experiments.reading import Results  # noqa: E402

from kgmrf.vision.clip import render_clip  # noqa: E402


def test_every_tracker_has_a_unit_for_every_target():
    units = otb.units(quick=False)
    keys = {u.key for u in units}
    assert len(keys) == len(units) == len(otb.METHODS) * len(otb.TARGETS)
    assert {u.settings["sequence"].partition("-")[0] for u in units} == set(otb.SEQUENCES)
    assert [u.settings["method"] for u in otb.units(quick=True)] == [otb.OURS]


def test_without_data_a_unit_says_so(tmp_path, monkeypatch):
    pytest.importorskip("cv2")
    monkeypatch.setenv("KGMRF_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for unit in otb.units(quick=False):
        if unit.settings["sequence"] in ("BlurFace", "CarScale"):
            assert running.execute(unit, tmp_path)["status"] == "not available"
    assert otb.load(tmp_path) == []
    why = otb.missing(tmp_path)
    assert why.keys() == {"BlurFace", "CarScale"}
    assert all("KGMRF_DATA" in reason for reason in why.values())
    assert "no public copy" in why["BlurFace"]
    assert charts_video.otb_success(Results(tmp_path)) is None


def test_without_opencv_a_unit_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(store.NotAvailable, match=r"kgmrf\[vision\]"):
        otb.follow("CSRT", "BlurBody")


def test_a_unit_follows_its_target_and_its_numbers_reach_the_table(tmp_path, monkeypatch):
    cv2 = pytest.importorskip("cv2")
    clip = render_clip(8)
    images = tmp_path / "data" / "otb" / "CarScale" / "img"
    images.mkdir(parents=True)
    for k, frame in enumerate(clip.frames):
        cv2.imwrite(str(images / f"{k + 1:04d}.png"), frame)
    np.savetxt(images.parent / "groundtruth_rect.txt", clip.boxes + [1, 1, 0, 0], delimiter="\t")
    monkeypatch.setenv("KGMRF_DATA", str(tmp_path / "data"))
    units = [u for u in otb.units(quick=False) if u.settings["sequence"] == "CarScale"]
    chosen = [u for u in units if u.settings["method"] in (otb.OURS, "MOSSE")]
    for unit in chosen:
        assert running.execute(unit, tmp_path)["status"] == "done"
    rows = otb.load(tmp_path)
    assert [r["method"] for r in rows] == [otb.OURS, "MOSSE"]
    ours = rows[0]
    assert ours["partial"]
    assert len(ours["iou"]) == ours["n_frames"] == 8
    assert ours["mean_iou"] == pytest.approx(np.mean(ours["iou"]), abs=1e-3)
    assert ours["success_rate"] == np.mean(np.array(ours["iou"]) > 0.5)
    assert min(ours["iou"]) > 0.8
    assert otb.table(rows)["CarScale"][otb.OURS]["mean_iou"] == ours["mean_iou"]
    figure = charts_video.otb_success(Results(tmp_path))
    assert figure is not None
    assert "CarScale is its first 8 frames" in figure["caption"]
    curve = dict(figure["panels"][0]["series"][0]["points"])
    assert curve[0.5] == ours["success_rate"]


def test_means_are_over_targets_that_all_trackers_saw():
    def row(method: str, sequence: str, iou: float) -> dict[str, object]:
        return {"method": method, "sequence": sequence, "mean_iou": iou, "seconds": 1.0,
                "n_frames": 100}  # fmt: skip

    rows = [row("a", "BlurBody", 0.9), row("b", "BlurBody", 0.5), row("a", "CarScale", 0.1)]
    found = otb.averages(rows)
    assert found["a"]["mean_iou"] == 0.9
    assert found["b"]["mean_iou"] == 0.5
    assert found["a"]["n_targets"] == 1
    assert found["a"]["milliseconds"] == 10.0


# ------------------------------------------------------------------------- beyond one pass


@pytest.fixture
def two_films(tmp_path, monkeypatch):
    """Two short drawn films in the shape of OTB folders."""
    cv2 = pytest.importorskip("cv2")
    for name, seed in (("BlurBody", 0), ("CarScale", 1)):
        clip = render_clip(8, seed=seed)
        images = tmp_path / "data" / "otb" / name / "img"
        images.mkdir(parents=True)
        for k, frame in enumerate(clip.frames):
            cv2.imwrite(str(images / f"{k + 1:04d}.png"), frame)
        np.savetxt(images.parent / "groundtruth_rect.txt", clip.boxes + [1, 1, 0, 0])
    monkeypatch.setenv("KGMRF_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(otb_unseen, "LENGTH", 4)
    return tmp_path


def test_every_case_of_the_real_groups_shows_its_target(two_films):
    for group, per_target in (("starts", 4), ("boxes", 4), ("changed", 4)):
        found = list(otb_unseen.cases(group))
        assert len(found) == 2 * per_target
        assert len({name for name, *_ in found}) == len(found)
        for name, frames, truth, first in found:
            assert len(frames) == len(truth) >= 3
            assert frames[0].dtype == np.uint8
            near = np.abs(first - truth[0]) / truth[0][2]
            assert (near < 0.21).all(), name
            assert (first == truth[0]).all() == (group != "boxes")
            assert (frames[0].ndim == 2) == ("grey" in name)


def test_backwards_ends_where_the_film_begins(two_films):
    whole = [c for c in otb_unseen.cases("changed") if "reversed" in c[0]]
    assert len(whole) == 2
    clip = render_clip(8, seed=0)
    np.testing.assert_array_equal(whole[0][1][0], clip.frames[7])
    np.testing.assert_allclose(whole[0][2][1], clip.boxes[6], atol=1e-9)


def test_the_groups_reach_the_page(two_films):
    results = two_films / "results"
    for group in ("starts", "boxes"):
        for method in (otb.OURS, "MOSSE"):
            settings = {"method": method, "group": group, "n_cases": 2}
            unit = store.Unit("otb_unseen", f"{method}.{group}", "otb_unseen:follow", settings)
            assert running.execute(unit, results)["status"] == "done"
    found = otb_unseen.table(results)
    assert set(found) == {"starts", "boxes"}
    ours = found["starts"][otb.OURS]
    assert len(ours["cases"]) == 2
    assert ours["mean_iou"] == pytest.approx(
        np.mean([c["mean_iou"] for c in ours["cases"]]), rel=1e-3
    )
    assert ours["mean_iou"] > 0.8
    assert "MOSSE" in report_video._otb_unseen(Results(results))
    assert report_video._otb_unseen(Results(two_films / "nothing")) == ""


@pytest.mark.parametrize("kind", ["fast", "hidden", "turning", "grey", "leaving"])
def test_drawn_boxes_hold_the_target(kind):
    pytest.importorskip("cv2")
    video = drawn_videos.draw(kind, 0, n_frames=40 if kind in ("hidden", "leaving") else 6)
    assert len(video.frames) == len(video.boxes)
    assert np.isfinite(video.boxes[0]).all()
    hidden = np.isnan(video.boxes).any(axis=1)
    assert hidden.any() == (kind in ("hidden", "leaving"))
    assert (video.frames.ndim == 3) == (kind == "grey")
    if kind == "turning":  # what differs from frame to frame lies within the two boxes
        change = np.abs(video.frames[1].astype(int) - video.frames[0]).max(-1) > 30
        rows, cols = np.nonzero(change)
        both = video.boxes[:2]
        assert np.percentile(cols, 2) >= both[:, 0].min() - 2
        assert np.percentile(cols, 98) <= (both[:, 0] + both[:, 2]).max() + 2
        assert np.percentile(rows, 2) >= both[:, 1].min() - 2
        assert np.percentile(rows, 98) <= (both[:, 1] + both[:, 3]).max() + 2


def test_drawing_is_repeatable_and_knows_its_kinds():
    pytest.importorskip("cv2")
    one, two = (drawn_videos.draw("bars", 3, n_frames=2) for _ in range(2))
    np.testing.assert_array_equal(one.frames, two.frames)
    with pytest.raises(ValueError, match="none of"):
        drawn_videos.draw("nonsense", 0)


def test_every_value_tried_is_run_and_one_is_the_default(tmp_path, two_films, monkeypatch):
    own = otb_choice.defaults()
    for name, values in otb_choice.TRIED.items():
        assert own[name] in values
        assert len(set(values)) == len(values) > 1
    assert len(otb_choice.changes()) == 1 + sum(len(v) - 1 for v in otb_choice.TRIED.values())
    assert "BlurFace" not in {u.name for u in otb_choice.units(quick=False)}
    few = {key: otb_choice.TRIED[key] for key in ("kinetics", "push", "n_cells")}
    monkeypatch.setattr(otb_choice, "TRIED", few)
    results = two_films / "results"
    for name in ("BlurBody", "CarScale"):
        settings = {"sequence": name, "n_frames": 4}
        unit = store.Unit("otb_choice", name, "otb_choice:follow", settings)
        assert running.execute(unit, results)["status"] == "done"
    found = otb_choice.load(results)
    assert set(found) == set(few)
    assert set(found["push"]) == set(few["push"])
    assert found["push"][own["push"]] == found["kinetics"][own["kinetics"]]
    assert min(found["push"][own["push"]].values()) > 0.8
    page = report_video._otb_choice(Results(results))
    assert "left out" in page
    assert report_video._otb_choice(Results(tmp_path / "nothing")) == ""


def test_a_video_is_never_judged_by_itself():
    # each value is perfect on one video only: chosen without that video, it never helps
    values = {v: {t: float(t.startswith(v)) for t in ("a", "b-1", "b-2")} for v in ("a", "b")}
    score, chosen = otb_choice.left_out(values)
    assert score == 0.0
    assert chosen == ["b", "a"]


def test_the_papers_methods_run_inside_one_tracker(two_films):
    results = two_films / "results"
    for kind, function in (("track", "follow"), ("truth", "from_truth"), ("shifts", "shifted")):
        settings = {"sequence": "CarScale", "n_frames": 25}
        unit = store.Unit("otb_models", f"{kind}.CarScale", f"otb_models:{function}", settings)
        assert running.execute(unit, results)["status"] == "done"
    rows = otb_models.load(results)["CarScale"]["rows"]
    assert tuple(rows) == otb_models.NAMES
    assert set(otb_models.PAPER) <= set(rows)
    assert all(len(row["iou"]) == otb_models.load(results)["CarScale"]["n_frames"]
               for row in rows.values())  # fmt: skip
    assert rows["K-GMRF"]["mean_iou"] > 0.7
    distance = otb_models.load(results, "truth")["CarScale"]["distance"]
    assert {"hold last", *otb_models.NAMES} <= set(distance)
    shifts = otb_models.load(results, "shifts")["CarScale"]["mean_iou"]
    assert set(shifts) == {"tracker's own", *otb_models.NAMES}
    assert all(len(values) == len(otb_models.MOVES) for values in shifts.values())
    # the first is the true box
    assert shifts["K-GMRF"][0] == pytest.approx(rows["K-GMRF"]["mean_iou"], abs=1e-3)
    assert set(otb_models.SHOWN) == {name for name, row in rows.items() if "boxes" in row}
    lead = comparison.otb_lead(results)
    assert lead.half > 0
    means = otb_models.means(results)
    assert means["K-GMRF"]["mean"] == pytest.approx(np.mean(shifts["K-GMRF"]), abs=1e-4)
    told = lead.sentence
    assert told in tables.appearance_models(results)
    judged = verdicts_tasks.otb_models_verdict(Results(results))
    assert told in judged.why
    page = report_video._otb_models(Results(results), [])
    assert "K-GMRF, printed" in page
    assert html.escape(told) in page
    assert charts_video.models(Results(results))["panels"][0]["title"] == "CarScale"
    assert "not run" in report_video._otb_models(Results(two_films / "nothing"), [])
    assert otb_sheets.main(two_films / "sheets", results) == 0
    assert (two_films / "sheets" / "CarScale.png").stat().st_size > 5000


# ------------------------------------------------------------------------- intervals


def test_an_interval_is_that_of_a_mean_over_clips():
    rng = np.random.default_rng(0)
    values = rng.normal(0.6, 0.1, 40)
    apart = {str(k): [float(v)] for k, v in enumerate(values)}
    low, high = intervals.of_mean(apart)
    half = 1.96 * values.std() / np.sqrt(40)
    assert low == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert high == pytest.approx(values.mean() + half, abs=0.1 * half)
    # copies of a clip say nothing new
    assert intervals.of_mean({name: row * 5 for name, row in apart.items()}) == (low, high)
    assert intervals.words({"a": [0.25, 0.75]}) == "0.500 (0.50 to 0.50)"


def test_the_tables_have_intervals(two_films):
    results = two_films / "results"
    for method in (otb.OURS, "CSRT"):
        settings = {"method": method, "group": "starts", "n_cases": 8}
        unit = store.Unit("otb_unseen", f"{method}.starts", "otb_unseen:follow", settings)
        assert running.execute(unit, results)["status"] == "done"
    page = tables.beyond_one_pass(results)
    ours, theirs = (otb_unseen.table(results)["starts"][m] for m in (otb.OURS, "CSRT"))
    lead = ours["mean_iou"] - theirs["mean_iou"]
    assert f"| {ours['mean_iou']:.3f} (" in page
    assert f"| lead over CSRT | {lead:.3f} (" in page
