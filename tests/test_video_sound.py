"""Videos with sound: H.264 and the same packets of sound, or a word about what is missing."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("av", reason="PyAV is not installed: no sound")
pytest.importorskip("typer", reason="typer is not installed: no command line")
pytest.importorskip("rich", reason="rich is not installed: no command line")
pytest.importorskip("cv2", reason="OpenCV is not installed: no video")

import av

from kgmrf.cli import main
from kgmrf.commands import _video_out
from kgmrf.vision.clip import render_clip
from kgmrf.vision.videos import open_video, read_video

Capture = pytest.CaptureFixture[str]
N, RATE, HEARD = 40, 20, 48_000


def _film(path: Path, sound: str | None, width: int = 160) -> Path:
    """A drawn clip of two seconds with a tone."""
    frames = render_clip(N, width=width).frames
    with av.open(str(path), "w") as out:
        video = out.add_stream("mpeg4", rate=RATE)
        video.width, video.height, video.pix_fmt = width, 120, "yuv420p"
        heard = out.add_stream(sound, rate=HEARD, layout="mono") if sound else None
        for image in frames:
            out.mux(video.encode(av.VideoFrame.from_ndarray(image, format="bgr24")))
        out.mux(video.encode())
        if heard is not None:
            tone = np.sin(2 * np.pi * 440 * np.arange(2 * HEARD) / HEARD)
            planar = sound == "aac"
            wave = tone.astype(np.float32) if planar else (9000 * tone).astype(np.int16)
            kind = "fltp" if planar else "s16"
            for at in range(0, len(wave), 1024):
                piece = av.AudioFrame.from_ndarray(
                    wave[None, at : at + 1024], format=kind, layout="mono"
                )
                piece.sample_rate, piece.pts = HEARD, at
                out.mux(heard.encode(piece))
            out.mux(heard.encode())
    return path


def _packets(path: Path) -> list[bytes]:
    with av.open(str(path)) as film:
        return [bytes(p) for p in film.demux(film.streams.audio[0]) if p.size]


def test_sound_is_copied_and_the_video_is_h264(tmp_path: Path, capsys: Capture) -> None:
    film = _film(tmp_path / "in.mp4", "aac")
    out = tmp_path / "out.mp4"
    assert main(["stabilize", str(film), "-o", str(out), "--smooth", "0.5"]) == 0
    assert "sound" not in capsys.readouterr().err
    with av.open(str(out)) as made:
        assert made.streams.video[0].codec_context.name == "h264"
        assert made.streams.video[0].codec_context.pix_fmt == "yuv420p"
        assert float(made.streams.video[0].average_rate) == RATE
    assert _packets(out) == _packets(film)
    assert len(list(read_video(out))) == N
    # half of the images, half of the sound
    words = ["--box", "50,60,40,30", "-o", str(out), "--frames", str(N // 2)]
    assert main(["video", str(film), *words]) == 0
    heard = _packets(out)
    assert heard == _packets(film)[: len(heard)]
    assert abs(len(heard) * 1024 / HEARD - 1.0) < 0.05
    assert not list(tmp_path.glob(".part*"))


def test_an_odd_image_keeps_its_pixels(tmp_path: Path) -> None:
    with _video_out.writing(tmp_path / "odd.mp4", 20.0) as write:
        image = np.full((31, 41, 3), 90, np.uint8)
        image[:, -1] = 200
        for _ in range(3):
            write(image)
    found = next(read_video(tmp_path / "odd.mp4"))
    assert found.shape == (32, 42, 3)
    assert np.abs(found[:31, :40].astype(int) - 90).mean() < 5


@pytest.mark.parametrize(
    ("sound", "name", "words"),
    [
        ("pcm_s16le", "out.mp4", "pcm_s16le does not fit into .mp4, .mkv takes it"),
        ("pcm_s16le", "out.mkv", None),
        ("aac", "out.avi", "aac does not fit into .avi"),
        (None, "out.mp4", None),
    ],
)
def test_what_is_missing_is_said(
    tmp_path: Path, capsys: Capture, sound: str | None, name: str, words: str | None
) -> None:
    film = _film(tmp_path / "in.mkv", sound)
    out = tmp_path / name
    assert main(["stabilize", str(film), "-o", str(out), "--lag", "2"]) == 0
    said = capsys.readouterr().err
    assert "sound" not in said if words is None else words in said
    if sound and words is None:
        assert _packets(out) == _packets(film)


def test_without_pyav_the_lack_is_said(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    film = _film(tmp_path / "in.mp4", "aac")
    monkeypatch.setattr(_video_out, "find_spec", lambda name: None)
    out = tmp_path / "out.mp4"
    assert main(["stabilize", str(film), "-o", str(out)]) == 0
    said = capsys.readouterr().err
    assert "out.mp4 has no sound and is MPEG-4 Part 2, which browsers do not play" in said
    assert 'pip install "kgmrf[av]"' in said
    assert len(list(read_video(out))) == N


def _bottom_up(path: Path, width: int, height: int) -> Path:
    """A raw AVI as Windows writes it, last row first; the image is brighter towards its end."""
    image = np.zeros((height, width, 3), np.uint8)
    image[:] = np.linspace(20, 220, height)[:, None, None]
    with av.open(str(path), "w") as out:
        video = out.add_stream("rawvideo", rate=RATE)
        video.width, video.height, video.pix_fmt = width, height, "bgr24"
        for _ in range(4):
            out.mux(video.encode(av.VideoFrame.from_ndarray(image[::-1].copy(), format="bgr24")))
        out.mux(video.encode())
    data = bytearray(path.read_bytes())
    at = data.index(b"strf") + 16
    data[at : at + 4] = struct.pack("<i", height)  # negative: first row first
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("size", [(161, 121), (160, 120)])
def test_a_raw_avi_from_the_bottom_up_is_read_by_pyav(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    film = _bottom_up(tmp_path / "raw.avi", *size)
    # in a process of its own: OpenCV 5.0 ends it
    code = (
        f"from kgmrf.vision.videos import read_video\nprint(len(list(read_video({str(film)!r}))))"
    )
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (made.returncode, made.stdout.strip()) == (0, "4"), made.stderr
    video = open_video(film)
    assert video.reader == "av"
    rows = next(video.frames).astype(int).mean(axis=(1, 2))
    assert np.abs(rows - np.linspace(20, 220, size[1])).max() < 2
    with pytest.raises(OSError, match=r"from the bottom up.*kgmrf\[av\]"):
        open_video(film, reader="opencv")
