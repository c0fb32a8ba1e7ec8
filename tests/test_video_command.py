"""``kgmrf video``: what it writes is what the tracker found; what it refuses, it explains."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("typer", reason="typer is not installed: no command line")
pytest.importorskip("rich", reason="rich is not installed: no command line")
pytest.importorskip("cv2", reason="OpenCV is not installed: no video")

import cv2

from kgmrf.cli import main
from kgmrf.commands import _run
from kgmrf.vision import BoxTracker, videos
from kgmrf.vision.clip import Clip, render_clip
from kgmrf.vision.regions import box_iou
from kgmrf.vision.videos import read_video

Capture = pytest.CaptureFixture[str]
WORDS = ("x", "y", "width", "height")
N = 14


@pytest.fixture(scope="module")
def clip() -> Clip:
    return render_clip(N)


@pytest.fixture(scope="module")
def folder(clip: Clip, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The clip as a video, as lossless images, and a file that is no video."""
    folder = tmp_path_factory.mktemp("video")
    writer = cv2.VideoWriter(
        str(folder / "clip.avi"), cv2.VideoWriter.fourcc(*"MJPG"), 20.0, (160, 120)
    )
    (folder / "images").mkdir()
    for k, frame in enumerate(clip.frames):
        writer.write(frame)
        cv2.imwrite(str(folder / "images" / f"{k + 1}.png"), frame)
    writer.release()
    (folder / "folder.csv").mkdir()
    (folder / "noise.mp4").write_bytes(b"no video at all" * 40)
    return folder


def start(clip: Clip) -> str:
    return ",".join(str(v) for v in clip.boxes[0])


def process(*words: object, path: str = "") -> subprocess.CompletedProcess[str]:
    source = str(Path(__file__).parents[1] / "src")
    environment = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY")}
    environment["PYTHONPATH"] = os.pathsep.join([p for p in (path, source) if p])
    return subprocess.run(
        [sys.executable, "-m", "kgmrf", "video", *map(str, words)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
        check=False,
    )


def table(path: Path) -> tuple[np.ndarray, list[dict[str, str]]]:
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    return np.array([[float(row[w]) for w in WORDS] for row in rows]), rows


def test_a_video_comes_back_annotated_with_its_boxes(
    clip: Clip, folder: Path, tmp_path: Path
) -> None:
    movie, boxes = tmp_path / "out.mp4", tmp_path / "out.csv"
    words = (folder / "clip.avi", "--box", start(clip), "-o", movie, "--table", boxes, "--json")
    done = process(*words)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    about = json.loads(done.stdout)
    assert (about["frames"], about["lost"], about["size"]) == (N, 0, [160, 120])
    found, rows = table(boxes)
    assert [int(row["frame"]) for row in rows] == list(range(N))
    assert {row["lost"] for row in rows} == {"0"}
    assert box_iou(found, clip.boxes).min() > 0.8
    frames = list(read_video(movie))
    assert len(frames) == N
    assert frames[0].shape == clip.frames[0].shape
    x, y, width, _ = (round(v) for v in found[-1])
    edge = frames[-1][y, x + 4 : x + width - 4].astype(int)
    # the green line along the top of the box, blurred by the codec
    assert (edge[:, 1] - edge[:, 2]).mean() > 40
    assert not list(tmp_path.glob(".part*"))


@pytest.mark.parametrize("model", ["anchor+ema", "static"])
def test_the_table_is_what_the_tracker_says(
    clip: Clip, folder: Path, tmp_path: Path, capsys: Capture, model: str
) -> None:
    out = tmp_path / "out.json"
    words = ["video", folder / "images", "--box", start(clip), "-t", out, "--model", model, "-q"]
    assert main([str(w) for w in words]) == 0
    assert capsys.readouterr().out == ""
    tracker = BoxTracker(model)  # type: ignore[arg-type]
    tracker.init(clip.frames[0], clip.boxes[0])
    record = json.loads(out.read_text())
    assert record["model"] == model
    assert len(record["rows"]) == N
    for k, row in enumerate(record["rows"]):
        if k:
            tracker.update(clip.frames[k])
        assert [row[w] for w in WORDS] == pytest.approx(list(tracker.box), abs=1e-4)
        assert row["score"] == pytest.approx(tracker.score, abs=1e-4)
        assert row["lost"] == tracker.lost


def test_the_demo_knows_the_truth_and_survives_the_hiding(tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "demo.csv"
    assert main(["video", "--demo", "--table", str(out), "-n", "90", "--json"]) == 0
    about = json.loads(capsys.readouterr().out)
    _, rows = table(out)
    hidden = [k for k, row in enumerate(rows) if row["iou"] == ""]
    assert [k for k, row in enumerate(rows) if row["lost"] == "1"] == hidden
    assert about["lost"] == len(hidden) > 0
    assert about["reacquired"] == 1
    iou = np.array([float(row["iou"]) for row in rows if row["iou"]])
    assert about["mean_iou"] == pytest.approx(iou.mean(), abs=1e-3)
    assert iou.mean() > 0.9
    assert about["success_rate"] == 1.0


def hide(folder: Path, *modules: str) -> str:
    """A folder whose modules of these names cannot be imported."""
    hiding = folder / f"without_{'_'.join(modules)}"
    hiding.mkdir(exist_ok=True)
    for name in modules:
        (hiding / f"{name}.py").write_text(
            f"raise ModuleNotFoundError('No module', name={name!r})\n"
        )
    return str(hiding)


def test_the_demo_needs_no_opencv_but_a_video_needs_a_reader(clip: Clip, folder: Path) -> None:
    neither = hide(folder, "cv2", "av")
    done = process("--demo", "--frames", 3, "--json", path=neither)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["frames"] == 3
    done = process(folder / "clip.avi", "--box", start(clip), path=neither)
    assert done.returncode == 2
    assert done.stderr.splitlines() == ['kgmrf: this needs cv2: pip install "kgmrf[vision]"']


def test_without_opencv_pyav_reads_the_same_boxes(clip: Clip, folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("av")
    words = (folder / "clip.avi", "--box", start(clip), "-q", "-t")
    done = process(*words, tmp_path / "av.csv", path=hide(folder, "cv2"))
    assert done.returncode == 0, done.stderr
    assert main(["video", *map(str, words), str(tmp_path / "cv.csv")]) == 0
    assert (tmp_path / "av.csv").read_bytes() == (tmp_path / "cv.csv").read_bytes()


def test_a_cut_file_is_remarked(clip: Clip, folder: Path, tmp_path: Path, capsys: Capture) -> None:
    whole = (folder / "clip.avi").read_bytes()
    cut = tmp_path / "cut.avi"
    cut.write_bytes(whole[: len(whole) * 3 // 5])
    assert main(["video", str(cut), "--box", start(clip)]) == 0
    heard = capsys.readouterr()
    assert f"announces {N} frames" in heard.err
    assert "frames of 160 x 120" in heard.out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nowhere.mp4", "--box", "1,1,9,9"], "No such file"),
        (["{}/noise.mp4", "--box", "1,1,9,9"], "not a video that OpenCV"),
        (["{}/clip.avi", "--box", "500,1,9,9"], "100 % outside the 160 x 120 image"),
        (["{}/clip.avi", "--box", "60,40,400,300"], "a box is left, top, width, height"),
        (["{}/clip.avi", "--box", "1,1,30,30", "--box", "-8,1,9,9"], "box -8,1,9,9 lies 89 %"),
        (["{}/clip.avi", "--box", "1,1,0,9"], "at least one pixel"),
        (["{}/clip.avi", "--box", "1,1,9"], "four numbers"),
        (["{}/clip.avi"], "--box x,y,w,h"),
        (["{}/clip.avi", "--box", "1,1,9,9", "-o", "out.txt"], "--output ends in"),
        (["{}/clip.avi", "--box", "1,1,9,9", "-t", "{}/no/out.csv"], "No such folder"),
        (["{}/clip.avi", "--box", "1,1,9,9", "-t", "{}/folder.csv"], "A folder has this name"),
        (["{}/clip.avi", "--box", "1,1,9,9", "-o", "{}/clip.avi"], "overwrite the input"),
        (["{}/clip.avi", "--demo"], "leave INPUT, --box and --boxes out"),
        (["999", "--box", "1,1,9,9"], "no camera 999"),
        (["{}", "--box", "1,1,9,9"], "no images in"),
        (["", "--box", "1,1,9,9"], "give INPUT, or --demo"),
        ([], "give INPUT, or --demo"),
    ],
)
def test_what_cannot_be_followed_is_said_in_one_line(
    folder: Path,
    words: list[str],
    says: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    before = (folder / "clip.avi").read_bytes()
    assert main(["video", *(w.format(folder) for w in words)]) == 2
    heard = capfd.readouterr()
    assert heard.out == ""
    told = [line for line in heard.err.splitlines() if line.startswith("kgmrf: ")]
    assert len(told) == 1
    assert says in told[0]
    assert (folder / "clip.avi").read_bytes() == before


def test_the_bar_tells_frames_per_second(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(_run, "PATIENCE", 0.0)
    assert main(["video", "--demo", "-n", "6"]) == 0
    heard = capsys.readouterr()
    assert "6/6" in heard.err
    assert "fps" in heard.err
    assert heard.out.startswith("demo: 6 frames of 240 x 180, lost in 0; ")
    assert main(["video", "--demo", "-n", "6", "--json"]) == 0
    assert capsys.readouterr().err == ""


def test_a_camera_ends_by_an_interrupt_and_a_file_does_not(
    clip: Clip, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(source: object) -> videos.Video:
        def frames() -> Iterator[np.ndarray]:
            yield from clip.frames[:5]
            raise KeyboardInterrupt

        return videos.Video(frames(), None, None, "opencv")

    monkeypatch.setattr(videos, "open_video", interrupted)
    out = tmp_path / "boxes.csv"
    words = ["--box", start(clip), "--table", str(out), "--json"]
    assert main(["video", "clip.mp4", *words]) == 130
    assert not list(tmp_path.iterdir())
    assert main(["video", "7", *words]) == 0
    heard = capsys.readouterr()
    assert json.loads(heard.out)["input"] == "camera 7"
    assert len(table(out)[1]) == 5


def test_a_run_that_fails_leaves_no_files(clip: Clip, folder: Path, tmp_path: Path) -> None:
    """Frames of two sizes cannot share a video; what was written until then goes away."""
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    for k in range(4):
        cv2.imwrite(str(mixed / f"{k}.png"), clip.frames[k][: 120 - 2 * (k == 3)])
    out = tmp_path / "out.mp4"
    words = ["video", str(mixed), "--box", start(clip), "-o", str(out), "-q"]
    assert main(words) == 2
    assert [p.name for p in tmp_path.iterdir()] == ["mixed"]
    assert main(words[:-3] + ["-q"]) == 0


def test_a_box_is_drawn_with_the_mouse(
    folder: Path, clip: Clip, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = []

    def drawn(window: str, image: np.ndarray, showCrosshair: bool) -> np.ndarray:
        shown.append(image)
        return np.round(clip.boxes[:1]).astype(int)

    monkeypatch.setattr(cv2, "selectROIs", drawn)
    monkeypatch.setattr(cv2, "destroyWindow", lambda window: None)
    table = tmp_path / "boxes.csv"
    words = [str(folder / "images"), "--box", "select", "-t", str(table)]
    assert main(["video", *words]) == 0
    np.testing.assert_array_equal(shown, clip.frames[:1])
    with open(table, newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == N
    assert [float(rows[0][word]) for word in WORDS] == np.round(clip.boxes[0]).tolist()
    assert all(0 <= float(row["confidence"]) <= 1 for row in rows)
    monkeypatch.setattr(cv2, "selectROIs", lambda *_, **__: [])
    assert main(["video", *words]) == 2
    assert "no box was drawn" in capsys.readouterr().err

    def no_screen(*_: object, **__: object) -> None:
        raise cv2.error("no window system")

    monkeypatch.setattr(cv2, "selectROIs", no_screen)
    assert main(["video", *words]) == 2
    assert "needs a screen and an OpenCV with windows" in capsys.readouterr().err
