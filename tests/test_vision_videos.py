"""Readers: OpenCV and PyAV give the same frames, and what cannot be read is named."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from kgmrf.vision.clip import render_clip
from kgmrf.vision.videos import open_video, read_image, read_video

cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed: no video")
av = pytest.importorskip("av", reason="PyAV is not installed: no second reader")

N = 8
READERS = ("opencv", "av")


@pytest.fixture(scope="module")
def frames() -> np.ndarray:
    return render_clip(N).frames


@pytest.fixture(scope="module")
def folder(frames: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("videos")
    for name, code in (("clip.avi", "MJPG"), ("clip.mp4", "mp4v"), ("clip.mkv", "XVID")):
        writer = cv2.VideoWriter(
            str(folder / name), cv2.VideoWriter.fourcc(*code), 20.0, (160, 120)
        )
        for frame in frames:
            writer.write(frame)
        writer.release()
    return folder


def lossless(path: Path, frames: np.ndarray, pixels: str = "bgr0") -> None:
    with av.open(str(path), "w") as container:
        stream = container.add_stream("ffv1", rate=20)
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = pixels
        for frame in frames:
            picture = av.VideoFrame.from_ndarray(frame, "bgr24" if frame.ndim == 3 else "gray")
            container.mux(stream.encode(picture))
        container.mux(stream.encode(None))


@pytest.mark.parametrize("name", ["clip.avi", "clip.mp4", "clip.mkv"])
def test_both_readers_give_the_same_frames(folder: Path, frames: np.ndarray, name: str) -> None:
    one, two = (np.array(list(read_video(folder / name, reader=r))) for r in READERS)
    assert one.shape == two.shape == frames.shape
    # decoders may round differently, by one or two levels
    assert np.abs(one.astype(int) - two).max() <= 3
    error = np.abs(one.astype(int) - frames)
    assert error.mean() < 8
    # blue, green, red: the other order is far from what was drawn
    assert np.abs(one[..., ::-1].astype(int) - frames).mean() > 2 * error.mean()
    for reader in READERS:
        assert open_video(folder / name, reader=reader).rate == pytest.approx(20)


@pytest.mark.parametrize("reader", READERS)
def test_odd_sizes_and_grey_come_back_exactly(tmp_path: Path, reader: str) -> None:
    odd = render_clip(3, height=67, width=91).frames
    lossless(tmp_path / "odd.mkv", odd)
    np.testing.assert_array_equal(list(read_video(tmp_path / "odd.mkv", reader=reader)), odd)
    lossless(tmp_path / "grey.mkv", odd[..., 1], "gray")
    grey = np.array(list(read_video(tmp_path / "grey.mkv", reader=reader)))
    np.testing.assert_array_equal(grey, np.repeat(odd[..., 1:2], 3, axis=3))


TURNS = {1: (0, -1, 1, 0), 2: (-1, 0, 0, -1), 3: (0, 1, -1, 0)}
"""Quarter turns, anticlockwise, and the matrix a telephone writes into the file for them."""


def _matrix(a: int, b: int, c: int, d: int) -> bytes:
    """[[a, b, 0], [c, d, 0], [0, 0, 1]] as the header of a track keeps it."""
    words = (a << 16, b << 16, 0, c << 16, d << 16, 0, 0, 0, 1 << 30)
    return b"".join(word.to_bytes(4, "big", signed=True) for word in words)


@pytest.mark.parametrize("turns", TURNS)
def test_a_video_taken_sideways_is_turned_upright(folder: Path, tmp_path: Path, turns: int) -> None:
    plain = (folder / "clip.mp4").read_bytes()
    flat = list(read_video(folder / "clip.mp4"))
    upright = _matrix(1, 0, 0, 1)
    place = plain.index(upright, plain.index(b"tkhd"))
    turned = plain[:place] + _matrix(*TURNS[turns]) + plain[place + len(upright) :]
    (tmp_path / "turned.mp4").write_bytes(turned)
    for reader in READERS:
        got = list(read_video(tmp_path / "turned.mp4", reader=reader))
        assert len(got) == N
        np.testing.assert_allclose(got[3], np.rot90(flat[3], turns), atol=3)


@pytest.mark.parametrize("reader", READERS)
def test_a_file_that_was_cut_says_how_much_is_left(
    folder: Path, tmp_path: Path, reader: str
) -> None:
    whole = (folder / "clip.avi").read_bytes()
    (tmp_path / "cut.avi").write_bytes(whole[: len(whole) * 3 // 5])
    with pytest.warns(UserWarning, match=rf"announces {N} frames, \d could be read"):
        got = list(read_video(tmp_path / "cut.avi", reader=reader))
    assert 0 < len(got) < N
    # the index of an mp4 is at its end: without it there is nothing to read
    whole = (folder / "clip.mp4").read_bytes()
    (tmp_path / "cut.mp4").write_bytes(whole[: len(whole) * 3 // 5])
    with pytest.raises(
        OSError, match=r"cut\.mp4 is not a video that .* can read, or it is damaged"
    ):
        read_video(tmp_path / "cut.mp4", reader=reader)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(list(read_video(folder / "clip.avi", reader=reader))) == N


@pytest.mark.parametrize("reader", ["auto", *READERS])
def test_what_cannot_be_opened_is_named_at_once(tmp_path: Path, reader: str) -> None:
    with pytest.raises(FileNotFoundError, match=r"no\.avi"):
        read_video(tmp_path / "no.avi", reader=reader)
    for content in (b"", b"a letter to a friend\n" * 50):
        (tmp_path / "text.mp4").write_bytes(content)
        with pytest.raises(OSError, match=r"text\.mp4 is not a video"):
            read_video(tmp_path / "text.mp4", reader=reader)
    with pytest.raises(OSError, match="no camera 999"):
        read_video(999, reader=reader)
    with pytest.raises(FileNotFoundError, match="no images"):
        read_video(tmp_path, reader=reader)
    (tmp_path / "1.png").write_bytes(b"no picture")
    with pytest.raises(OSError, match=r"1\.png is not an image"):
        read_image(tmp_path / "1.png", reader=reader)


def test_a_sound_without_pictures_is_no_video(tmp_path: Path) -> None:
    with av.open(str(tmp_path / "sound.wav"), "w") as container:
        stream = container.add_stream("pcm_s16le", rate=8000, layout="mono")
        sound = av.AudioFrame.from_ndarray(np.zeros((1, 800), np.int16), "s16", "mono")
        sound.sample_rate = 8000
        container.mux(stream.encode(sound))
    with pytest.raises(OSError, match="not a video"):
        read_video(tmp_path / "sound.wav")


def test_folders_of_images_by_either_reader(tmp_path: Path, frames: np.ndarray) -> None:
    for k in (9, 10, 2):
        cv2.imwrite(str(tmp_path / f"{k}.png"), frames[k % N])
    expected = [frames[2], frames[1], frames[2]]
    for reader in READERS:
        np.testing.assert_array_equal(list(read_video(tmp_path, reader=reader)), expected)
        assert open_video(tmp_path, reader=reader).n_frames == 3


def test_auto_takes_what_is_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_video(folder / "clip.avi").reader == "opencv"
    with monkeypatch.context() as patch:
        patch.setattr(cv2, "VideoCapture", lambda source: _Shut())
        assert open_video(folder / "clip.avi").reader == "av"
        patch.setitem(sys.modules, "av", None)
        with pytest.raises(OSError, match=r"kgmrf\[av\]"):
            open_video(folder / "clip.avi")
    monkeypatch.setitem(sys.modules, "cv2", None)
    assert open_video(folder / "clip.avi").reader == "av"
    with pytest.raises(OSError, match="cameras need OpenCV"):
        open_video(0)
    with pytest.raises(ModuleNotFoundError):
        open_video(folder / "clip.avi", reader="opencv")
    with pytest.raises(ValueError, match="reader is one of"):
        open_video(folder / "clip.avi", reader="ffmpeg")


class _Shut:
    def isOpened(self) -> bool:
        return False

    def release(self) -> None:
        pass
