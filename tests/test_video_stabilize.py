"""``kgmrf stabilize`` and several boxes in ``kgmrf video``: files in, files out."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("typer", reason="typer is not installed: no command line")
pytest.importorskip("rich", reason="rich is not installed: no command line")
pytest.importorskip("cv2", reason="OpenCV is not installed: no video")

import cv2

from kgmrf.cli import main
from kgmrf.vision import videos
from kgmrf.vision.annotate import annotated
from kgmrf.vision.crowd import Followed
from kgmrf.vision.scenery import street
from kgmrf.vision.videos import read_video

Capture = pytest.CaptureFixture[str]
N, RATE = 30, 20.0


@pytest.fixture(scope="module")
def shaky(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A video of a street from a trembling hand."""
    folder = tmp_path_factory.mktemp("shaky")
    rng = np.random.default_rng(0)
    scene = street(200, 300, 2).astype(np.uint8)
    file = folder / "shaky.avi"
    writer = cv2.VideoWriter(str(file), cv2.VideoWriter.fourcc(*"MJPG"), RATE, (160, 120))
    for x, y in np.cumsum(rng.normal(0, 1.5, (N, 2)), axis=0):
        left, top = (int(v) for v in np.clip([70 + x, 40 + y], 0, [140, 80]))
        writer.write(np.ascontiguousarray(scene[top : top + 120, left : left + 160]))
    writer.release()
    return file


def test_a_video_comes_back_steady(shaky: Path, tmp_path: Path, capsys: Capture) -> None:
    names = {"-o": "out.mp4", "--path": "path.csv"}
    words = [w for option, name in names.items() for w in (option, str(tmp_path / name))]
    assert main(["stabilize", str(shaky), *words, "--smooth", "0.5", "--json"]) == 0
    about = json.loads(capsys.readouterr().out)
    assert (about["frames"], about["size"], about["gaps"]) == (N, [160, 120], 0)
    images = list(read_video(tmp_path / "out.mp4"))
    assert len(images) == N
    assert [images[0].shape[1], images[0].shape[0]] == about["steady_size"]
    assert 0.8 * 160 - 2 <= images[0].shape[1] < 160
    with open(tmp_path / "path.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    seen, steady = (
        np.array([[float(row[p + name]) for name in ("x", "y")] for row in rows])
        for p in ("", "steady_")
    )
    assert np.abs(np.diff(steady, 2, axis=0)).mean() < 0.1 * np.abs(np.diff(seen, 2, axis=0)).mean()
    assert all((tmp_path / name).exists() for name in names.values())
    assert not list(tmp_path.glob(".part*"))


@pytest.mark.parametrize("words", [["--lag", "0"], ["--lag", "5", "--border", "reflect"]])
def test_live_video(shaky: Path, tmp_path: Path, capsys: Capture, words: list[str]) -> None:
    out = tmp_path / "out.avi"
    assert main(["stabilize", str(shaky), "-o", str(out), "--keep", "0.9", *words]) == 0
    assert f"{N} images of 160 x 120" in capsys.readouterr().out
    images = list(read_video(out))
    wanted = (120, 160, 3) if "reflect" in words else (108, 144, 3)
    assert (len(images), images[0].shape) == (N, wanted)


def test_a_camera_ends_by_an_interrupt(
    shaky: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = list(read_video(shaky))[:6]

    def interrupted(source: object) -> videos.Video:
        def frames() -> Iterator[np.ndarray]:
            yield from images
            raise KeyboardInterrupt

        return videos.Video(frames(), None, None, "opencv")

    monkeypatch.setattr(videos, "open_video", interrupted)
    out = tmp_path / "out.avi"
    for lag in ("0", "2"):
        assert main(["stabilize", "7", "-o", str(out), "--lag", lag, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["frames"] == 6
    assert main(["stabilize", "7", "-o", str(out)]) == 2
    assert "give --lag" in capsys.readouterr().err
    assert main(["stabilize", str(shaky), "-o", str(out), "--lag", "0"]) == 130


@pytest.mark.parametrize("kind", ["gyroscope", "trajectory"])
def test_motion_from_a_file(shaky: Path, tmp_path: Path, capsys: Capture, kind: str) -> None:
    times = np.arange(0, N / RATE + 0.5, 0.02)
    angle = 0.02 * np.sin(12 * times)
    if kind == "gyroscope":
        file, names = tmp_path / "gyro.csv", "time,gx,gy,gz"
        rows = np.stack([times, 0 * times, 0 * times, np.gradient(angle, times)], axis=1)
    else:
        file, names = tmp_path / "poses.tum", ""
        zero = 0 * times
        rows = np.stack(
            [times, zero, zero, zero, zero, zero, np.sin(angle / 2), np.cos(angle / 2)], 1
        )
    np.savetxt(file, rows, delimiter="," if names else " ", header=names, comments="")
    words = ["stabilize", str(shaky), "-o", str(tmp_path / "o.avi"), "--motion", str(file)]
    assert main([*words, "--path", str(tmp_path / "p.csv"), "--focal", "150", "-q"]) == 0
    with open(tmp_path / "p.csv", newline="") as table:
        found = np.array([float(row["turn_z"]) for row in csv.DictReader(table)])
    wanted = 0.02 * np.sin(12 * np.arange(N) / RATE)
    np.testing.assert_allclose(found, wanted, atol=1e-3)
    assert main([*words, "--focal", "150", "--offset", "-0.4"]) == 0
    assert "8 of 30 images are outside the times of" in capsys.readouterr().err
    assert main([*words, "--focal", "150", "--offset", "100"]) == 2
    assert "no image falls into the motion" in capsys.readouterr().err
    assert main(words) == 2
    assert "give --focal" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nowhere.mp4", "-o", "{}/o.mp4"], "No such file"),
        (["{}/shaky.avi", "-o", "{}/o.txt"], "--output ends in"),
        (["{}/shaky.avi", "-o", "{}/o.mp4", "--path", "p.json"], "--path ends in .csv"),
        (["{}/shaky.avi", "-o", "{}/shaky.avi"], "overwrite the input"),
        (["{}/shaky.avi", "-o", "{}/o.mp4", "--keep", "2"], "--keep"),
    ],
)
def test_what_cannot_be_done_is_said(
    shaky: Path, words: list[str], says: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["stabilize", *(w.format(shaky.parent) for w in words)]) == 2
    told = [line for line in capfd.readouterr().err.splitlines() if line.startswith("kgmrf: ")]
    assert len(told) == 1
    assert says in told[0]


def test_several_boxes_and_mot(shaky: Path, tmp_path: Path, capsys: Capture) -> None:
    boxes = tmp_path / "boxes.txt"
    boxes.write_text("20,30,40,40\n90 40 40 50\n")
    words = ["video", str(shaky), "--boxes", str(boxes), "--box", "60,20,30,30", "-q"]
    assert main([*words, "-t", str(tmp_path / "out.txt"), "-o", str(tmp_path / "out.avi")]) == 0
    assert main([*words, "-t", str(tmp_path / "out.csv")]) == 0
    mot = np.loadtxt(tmp_path / "out.txt", delimiter=",")
    assert mot.shape == (3 * N, 10)
    assert mot[:4, :2].tolist() == [[1, 1], [1, 2], [1, 3], [2, 1]]
    assert mot[0, 2:6].tolist() == [61, 21, 30, 30]  # MOT counts pixels from 1
    with open(tmp_path / "out.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(int(row["frame"]) + 1, int(row["id"])) for row in rows] == [
        (int(a), int(b)) for a, b in mot[:, :2]
    ]
    assert main([*words[:-1], "--json"]) == 0
    about = json.loads(capsys.readouterr().out)
    assert (about["targets"], sorted(about["boxes"])) == (3, ["1", "2", "3"])


@pytest.mark.parametrize("height", [60, 240, 1080])
def test_words_are_legible_at_any_size(height: int) -> None:
    image = np.full((height, height * 4 // 3, 3), 127, np.uint8)
    box = (0.3 * height, 0.3 * height, 0.4 * height, 0.4 * height)
    found = [Followed(1, box, 0.1, False, False, 0.9), Followed(2, box, 0.9, True, False, 0.1)]
    picture = annotated(image, found, number=7)
    changed = np.argwhere((picture != image).any(axis=2))
    words = changed[changed[:, 0] < box[1] - 2]
    # letters are a readable share of the image, outlined: dark pixels beside bright ones
    high = np.ptp(words[:, 0])
    assert max(7, 0.025 * height) < high < 0.25 * height
    part = picture[words[:, 0].min() : words[:, 0].max() + 1]
    assert part.min() < 40
    assert part.max() > 190
    assert (image == 127).all()
