"""Frames of anything that moves: video files, folders of images, cameras, streams.

Two libraries can decode: OpenCV and PyAV. Both give the same frames, upright and in the order blue,
green, red; neither is loaded before it is asked.
"""

from __future__ import annotations

import re
import struct
import warnings
from collections.abc import Iterator
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

__all__ = ["Reader", "Video", "image_files", "open_video", "read_image", "read_video"]

IMAGES = {".jpg", ".jpeg", ".png", ".bmp"}
Frame: TypeAlias = NDArray[np.uint8]
Reader: TypeAlias = Literal["auto", "opencv", "av"]
"""Who decodes; "auto" is OpenCV, and PyAV where OpenCV is absent or cannot read the file."""

_MODULES = {"opencv": "cv2", "av": "av"}


class Video(NamedTuple):
    """Frames (H, W, 3) one after another, how many were announced, frames per second, who reads.

    ``n_frames`` and ``rate`` are what the file says of itself, None where it says nothing.
    """

    frames: Iterator[Frame]
    n_frames: int | None
    rate: float | None
    reader: str


def read_video(source: str | Path | int, *, reader: Reader = "auto") -> Iterator[Frame]:
    """Frames of a video file, image pattern, folder of images, stream or camera (a number).

    Each frame is (H, W, 3), uint8, blue, green, red, turned upright where the file says how. A file
    that ends before the frames it announces are read causes a warning.
    """
    video = open_video(source, reader=reader)

    def counted() -> Iterator[Frame]:
        count = 0
        for frame in video.frames:
            yield frame
            count += 1
        if video.n_frames is not None and count < video.n_frames:
            warnings.warn(
                f"{source} announces {video.n_frames} frames, {count} could be read", stacklevel=2
            )

    return counted()


def open_video(source: str | Path | int, *, reader: Reader = "auto") -> Video:
    """The frames of :func:`read_video` and what the file says about them.

    The first frame is decoded at once: what opens can be read.
    """
    if reader not in get_args(Reader):
        raise ValueError(f"reader is one of {', '.join(get_args(Reader))}, got {reader!r}")
    modules = _available(reader)
    if not isinstance(source, int) and Path(source).is_dir():
        files = image_files(source)
        frames = (read_image(file, reader=reader) for file in files)
        return Video(frames, len(files), None, next(iter(modules)))
    # of a stream or a pattern of images no file of this very name has to exist
    named = "://" in str(source) or "%" in str(source)
    if not (isinstance(source, int) or named or Path(source).exists()):
        raise FileNotFoundError(2, "No such file or directory", str(source))
    if "opencv" in modules and _is_bottom_up(source):
        del modules["opencv"]
        if not modules:
            raise OSError(
                f"{source} is a raw AVI stored from the bottom up, on which OpenCV 5.0 ends the "
                'process; pip install "kgmrf[av]" reads it'
            )
    for name, module in modules.items():
        video = _by_opencv(module, source) if name == "opencv" else _by_av(module, source)
        if video is not None:
            return video
    if isinstance(source, int):
        helps = "" if "opencv" in modules else ": cameras need OpenCV"
        raise OSError(f"there is no camera {source} that can be opened{helps}")
    more = '; pip install "kgmrf[av]" reads more' if (reader, len(modules)) == ("auto", 1) else ""
    raise OSError(f"{source} is not a video that {_who(modules)} can read, or it is damaged{more}")


def read_image(file: str | Path, *, reader: Reader = "auto") -> Frame:
    """Decode one image file; a damaged file is named in the error."""
    modules = _available(reader)
    for name, module in modules.items():
        if name == "opencv":
            image = module.imread(str(file), module.IMREAD_COLOR)
            if image is not None:
                return np.asarray(image, dtype=np.uint8)
        elif (video := _by_av(module, file)) is not None:
            return next(video.frames)
    raise OSError(f"{file} is not an image that {_who(modules)} can read")


def image_files(folder: str | Path) -> tuple[Path, ...]:
    """The images of a folder in the order of the last number in their names: 10 after 9."""
    files = [f for f in Path(folder).iterdir() if f.suffix.lower() in IMAGES]
    if not files:
        raise FileNotFoundError(f"no images in {folder}")
    number = {f: int(["0", *re.findall(r"\d+", f.stem)][-1]) for f in files}
    return tuple(sorted(files, key=lambda f: (number[f], f.name)))


def _available(reader: Reader) -> dict[str, Any]:
    """The modules to try, in order; none at all is the error of the first."""
    found, missing = {}, []
    for name in _MODULES if reader == "auto" else (reader,):
        try:
            found[name] = import_module(_MODULES[name])
        except ModuleNotFoundError as error:
            if error.name != _MODULES[name]:
                raise
            missing.append(error)
    if not found:
        raise missing[0]
    return found


def _who(modules: dict[str, Any]) -> str:
    return " and ".join({"opencv": "OpenCV", "av": "PyAV"}[name] for name in modules)


def _is_bottom_up(source: str | Path | int) -> bool:
    """Whether a file is an AVI of raw 24-bit images, last row first."""
    if isinstance(source, int) or not Path(source).is_file():
        return False
    with open(source, "rb") as file:
        head = file.read(4096)
    # the header of the video's format follows that of its stream: RIFF, AVI, ... vids ... strf
    at = head.find(b"strf", max(head.find(b"vids"), 0))
    if head[:4] != b"RIFF" or head[8:12] != b"AVI " or not 0 <= at <= len(head) - 28:
        return False
    height, _, bits, compression = struct.unpack_from("<iHHI", head, at + 16)
    return bool(compression == 0 and bits == 24 and height > 0)


# Both return None where they cannot read; why is known to nobody but the decoder.


def _by_opencv(cv2: Any, source: str | Path | int) -> Video | None:
    capture = cv2.VideoCapture(source if isinstance(source, int) else str(source))
    found, first = capture.read() if capture.isOpened() else (False, None)
    if not found:
        capture.release()
        return None
    total, rate = capture.get(cv2.CAP_PROP_FRAME_COUNT), capture.get(cv2.CAP_PROP_FPS)

    def decoded() -> Iterator[Frame]:
        frame = first
        try:
            while frame is not None:
                yield np.asarray(frame, dtype=np.uint8)
                frame = capture.read()[1]
        finally:
            capture.release()

    return Video(decoded(), int(total) if total > 0 else None, _sane(rate), "opencv")


def _by_av(av: Any, source: str | Path | int) -> Video | None:
    if isinstance(source, int):
        return None  # the name of a camera differs from system to system
    try:
        container = av.open(str(source))
    except av.error.FFmpegError:
        return None

    def decoded() -> Iterator[Frame]:
        try:
            for frame in container.decode(video=0):
                image = frame.to_ndarray(format="bgr24")
                # the file says how far to turn, anticlockwise, before it is shown
                turns = round(getattr(frame, "rotation", 0) / 90) % 4
                yield np.ascontiguousarray(np.rot90(image, turns))
        except av.error.FFmpegError:
            return  # a damaged end: what came before it stands, and the count tells
        finally:
            container.close()

    frames = decoded()
    first = next(frames, None) if container.streams.video else None
    if first is None:
        container.close()
        return None
    stream = container.streams.video[0]
    return Video(chain([first], frames), stream.frames or None, _sane(stream.average_rate), "av")


def _sane(rate: Any) -> float | None:
    value = float(rate or 0)
    return value if np.isfinite(value) and 0 < value <= 1000 else None
