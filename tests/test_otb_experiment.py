"""The OTB units: skipped with a reason, or numbers that follow from the boxes."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    # The experiments are not part of the installed package.
    sys.path.insert(0, str(ROOT))

from experiments import charts, otb, store  # noqa: E402
from experiments.verdicts import Results  # noqa: E402

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
            assert store.execute(unit, tmp_path)["status"] == "not available"
    assert otb.load(tmp_path) == []
    why = otb.missing(tmp_path)
    assert why.keys() == {"BlurFace", "CarScale"}
    assert all("KGMRF_DATA" in reason for reason in why.values())
    assert "no public copy" in why["BlurFace"]
    assert charts.otb_success(Results(tmp_path)) is None


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
        assert store.execute(unit, tmp_path)["status"] == "done"
    rows = otb.load(tmp_path)
    assert [r["method"] for r in rows] == [otb.OURS, "MOSSE"]
    ours = rows[0]
    assert ours["partial"]
    assert len(ours["iou"]) == ours["n_frames"] == 8
    assert ours["mean_iou"] == pytest.approx(np.mean(ours["iou"]), abs=1e-3)
    assert ours["success_rate"] == np.mean(np.array(ours["iou"]) > 0.5)
    assert min(ours["iou"]) > 0.8
    assert otb.table(rows)["CarScale"][otb.OURS]["mean_iou"] == ours["mean_iou"]
    figure = charts.otb_success(Results(tmp_path))
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
