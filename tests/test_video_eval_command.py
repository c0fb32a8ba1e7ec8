"""``kgmrf video-eval``: its table, its files and its pictures tell the same story."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from kgmrf.cli import main
from kgmrf.vision.clip import render_clip
from kgmrf.vision.evaluation import summary

pytest.importorskip("typer", reason="typer is not installed: no command line")
pytest.importorskip("rich", reason="rich is not installed: no command line")
pytest.importorskip("matplotlib", reason="matplotlib is not installed: no pictures")
cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed: no rivals")
if not hasattr(cv2, "TrackerCSRT_create"):
    pytest.skip("OpenCV without contrib", allow_module_level=True)

Capture = pytest.CaptureFixture[str]
N = 8


def sequence(folder: Path, *, truth: str, start: int = 1, seed: int = 0) -> np.ndarray:
    """A drawn clip as a folder of OTB (boxes from 1) or VOT (polygons)."""
    clip = render_clip(N, seed=seed)
    images = folder / ("img" if "rect" in truth else "color")
    images.mkdir(parents=True)
    for k, frame in enumerate(clip.frames):
        cv2.imwrite(str(images / f"{start + k:04d}.png"), frame)
    rows = []
    for x, y, w, h in clip.boxes:
        corners = (x, y, x + w, y, x + w, y + h, x, y + h)
        row = (x + 1, y + 1, w, h) if "rect" in truth else corners
        rows.append(",".join(str(float(v)) for v in row))
    (folder / truth).write_text("\n".join(rows))
    return clip.boxes


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sequences")
    sequence(folder / "Car", truth="groundtruth_rect.txt", start=247)
    sequence(folder / "bag", truth="groundtruth.txt", seed=1)
    (folder / "notes").mkdir()
    return folder


def test_a_folder_of_sequences(folder: Path, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "out"
    words = ["video-eval", str(folder), "-o", str(out), "--trackers", "MIL,kgmrf,KCF-0"]
    assert main([*words, "--json", "--key-frames", "4"]) == 0
    heard = capsys.readouterr()
    assert heard.err == ""
    about = json.loads(heard.out)
    assert about == json.loads((out / "summary.json").read_text())
    assert list(about["sequences"]) == ["Car", "bag"]
    assert about["frames"] == 2 * N
    assert about["left_out"] == {}
    assert set(about["trackers"]) == {"MIL", "kgmrf", "KCF-0"}
    scores = [row["success_auc"] for row in about["trackers"].values()]
    assert scores == sorted(scores, reverse=True)
    assert about["trackers"]["kgmrf"]["mean_iou"] > 0.8
    for name, seed in (("Car", 0), ("bag", 1)):
        for tracker, row in about["trackers"].items():
            file = out / "results" / tracker / name / f"{name}_001.txt"
            found = np.loadtxt(file, delimiter=",")
            told = about["sequences"][name][tracker]
            expected = summary(found, render_clip(N, seed=seed).boxes)
            assert told["mean_iou"] == pytest.approx(expected["mean_iou"], abs=2e-4)
            assert row["milliseconds"] > 0
    both = [about["sequences"][name]["MIL"]["mean_iou"] for name in ("Car", "bag")]
    assert about["trackers"]["MIL"]["mean_iou"] == pytest.approx(np.mean(both), abs=1e-4)
    pictures = {Path(p).relative_to(out).as_posix() for p in about["pictures"]}
    assert pictures == {
        *(f"{name}.png" for name in ("success", "precision", "normalised_precision")),
        *(f"{kind}/{name}.png" for kind in ("overlap", "sheets") for name in ("Car", "bag")),
    }
    assert pictures == {p.relative_to(out).as_posix() for p in out.rglob("*.png")}


def test_the_drawn_clip_and_a_table_for_people(tmp_path: Path, capsys: Capture) -> None:
    words = ["video-eval", "-n", "4", "-o", str(tmp_path), "--key-frames", "0"]
    assert main(words) == 0
    told = capsys.readouterr().out
    assert told.startswith("drawn: 4 frames\n")
    for name in ("kgmrf", "CSRT", "KCF", "KCF-0", "MIL", "MOSSE"):
        assert f"\n{name} " in told
    assert not (tmp_path / "sheets").exists()
    assert main([*words, "--trackers", "kgmrf-static", "-q"]) == 0
    assert capsys.readouterr() == ("", "")


def test_without_opencv_ours_runs_alone(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)
    words = ["video-eval", "-n", "3", "-o", str(tmp_path), "--json"]
    assert main(words) == 0
    heard = capsys.readouterr()
    assert "CSRT is left out: OpenCV is not installed" in heard.err
    assert list(json.loads(heard.out)["trackers"]) == ["kgmrf"]
    assert main([*words, "--trackers", "CSRT"]) == 2
    assert "kgmrf[vision]" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["{}/nowhere"], "No such folder"),
        (["{}/notes"], "no groundtruth_rect.txt (OTB) or groundtruth.txt"),
        (["{}/Car", "{}/Car"], "two sequences are called Car"),
        (["--trackers", "TLD"], "'TLD' is none of"),
        (["--frames", "1"], "--frames"),
        (["-o", "{}/Car/groundtruth_rect.txt"], "File exists"),
    ],
)
def test_wrong_calls_are_said_in_one_line(
    folder: Path,
    words: list[str],
    says: str,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["video-eval", *(w.format(folder) for w in words)]) == 2
    heard = capsys.readouterr()
    assert heard.out == ""
    assert len(heard.err.splitlines()) == 1
    assert says in heard.err
    assert not list(tmp_path.iterdir())
