"""Videos that the commands write: H.264 with the sound of the input where PyAV is, or by OpenCV."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

__all__ = ["CODECS", "sound_note", "writing"]

Image: TypeAlias = Any
CODECS = {".mp4": "mp4v", ".m4v": "mp4v", ".mov": "mp4v", ".mkv": "XVID", ".avi": "MJPG"}
"""Extensions of videos to write, and the codec that every OpenCV can write them with."""

CONTAINERS = {".mp4": "mp4", ".m4v": "mp4", ".mov": "mov", ".mkv": "matroska"}
"""Extensions that PyAV writes as H.264, and FFmpeg's name of the format."""

SOUNDS = {"aac", "mp3", "ac3", "eac3", "alac", "opus"}
"""Codecs of sound that fit into every one of them; Matroska takes all."""


def sound_note(path: Path | None, source: str | None) -> str | None:
    """What the written video lacks, in one sentence; ``source``: the video file with the sound."""
    if path is None:
        return None
    kind = path.suffix.lower()
    if find_spec("av") is None:
        if kind not in CONTAINERS:
            return f"{path.name} has no sound" if source else None
        lacks = "has no sound and " if source else ""
        return (
            f"{path.name} {lacks}is MPEG-4 Part 2, which browsers do not play; "
            'pip install "kgmrf[av]" for H.264 and sound'
        )
    name = _sound_codec(source)
    if name is None or _fits(name, kind):
        return None
    return f"{path.name} has no sound: {name} does not fit into {kind}, .mkv takes it"


@contextmanager
def writing(path: Path | None, rate: float, source: str | None = None) -> Iterator[Any]:
    """A function that adds an image (H, W, 3) to a video; None where there is no path.

    The first image says the size; the video appears when the block is left without an error.
    ``source`` is the file whose sound is copied, as long as there are images.
    """
    if path is None:
        yield None
        return
    # the extension stays, because it chooses the container
    part = path.with_name(f".part-{path.name}")
    modern = path.suffix.lower() in CONTAINERS and find_spec("av") is not None
    film: Any = _Modern(part, rate, source) if modern else _Plain(part, path.name, rate)
    shape: tuple[int, ...] = ()
    count = 0

    def write(image: Image) -> None:
        nonlocal shape, count
        if count == 0:
            shape = image.shape
            film.begin(shape[1], shape[0])
        if image.shape != shape:
            raise ValueError(
                f"frame {count} has shape {image.shape}, the first one had {shape}: a video cannot "
                "hold both, leave --output out"
            )
        film.add(image)
        count += 1

    try:
        yield write
        film.close()
        os.replace(part, path)
    finally:
        film.release()
        part.unlink(missing_ok=True)


class _Plain:
    """OpenCV: no sound, and codecs that every build of it has."""

    def __init__(self, part: Path, name: str, rate: float) -> None:
        import cv2

        self.part, self.name, self.rate = part, name, rate
        self.writer = cv2.VideoWriter()

    def begin(self, width: int, height: int) -> None:
        import cv2

        code = cv2.VideoWriter.fourcc(*CODECS[self.part.suffix.lower()])
        if not self.writer.open(str(self.part), code, self.rate, (width, height)):
            raise OSError(f"this OpenCV cannot write {self.name}; try another extension")

    def add(self, image: Image) -> None:
        self.writer.write(image)

    def close(self) -> None:
        self.writer.release()

    def release(self) -> None:
        self.writer.release()


class _Modern:
    """PyAV: H.264 (4:2:0, which every browser plays) and packets of sound as they are."""

    def __init__(self, part: Path, rate: float, source: str | None) -> None:
        import av

        self.av: Any = av
        self.kind = part.suffix.lower()
        self.rate = Fraction(rate).limit_denominator(100_000)
        faststart = {} if self.kind == ".mkv" else {"movflags": "+faststart"}
        self.out: Any = av.open(str(part), "w", format=CONTAINERS[self.kind], options=faststart)
        self.count = 0
        self.sound: Iterator[Any] | None = None
        self.waiting: tuple[float, Any] | None = None
        self.heard: Any = None
        name = _sound_codec(source)
        if name is not None and _fits(name, self.kind):
            self.heard = av.open(str(source))

    def begin(self, width: int, height: int) -> None:
        """Streams must be there before the first packet; 4:2:0 takes even sizes alone."""
        self.odd = height % 2, width % 2
        self.video = self.out.add_stream("libx264", rate=self.rate)
        self.video.width, self.video.height = width + self.odd[1], height + self.odd[0]
        self.video.pix_fmt = "yuv420p"
        self.video.options = {"crf": "18", "preset": "veryfast"}
        if self.heard is not None:
            self.copied = self.out.add_stream_from_template(self.heard.streams.audio[0])
            self.sound = self._packets()

    def add(self, image: Image) -> None:
        padded = np.pad(image, ((0, self.odd[0]), (0, self.odd[1]), (0, 0)), mode="edge")
        frame = self.av.VideoFrame.from_ndarray(np.ascontiguousarray(padded), format="bgr24")
        self.out.mux(self.video.encode(frame))
        self.count += 1
        self._listen()

    def _packets(self) -> Iterator[Any]:
        """Packets of sound with the time in seconds at which they are heard."""
        audio, seen = self.heard.streams.audio[0], self.heard.streams.video[0]
        begins = float((seen.start_time or 0) * seen.time_base)
        shift = round(begins / audio.time_base)
        for packet in self.heard.demux(audio):
            if packet.dts is None:  # the end
                continue
            packet.pts, packet.dts = packet.pts - shift, packet.dts - shift
            packet.stream = self.copied
            yield float(packet.pts * audio.time_base), packet

    def _listen(self) -> None:
        """Copy the sound until the end of the last image."""
        end = float(self.count / self.rate)
        while self.sound is not None:
            self.waiting = self.waiting or next(self.sound, None)
            if self.waiting is None:
                self.sound = None
            elif self.waiting[0] >= end:
                return
            else:
                self.out.mux(self.waiting[1])
                self.waiting = None

    def close(self) -> None:
        if self.count:
            self.out.mux(self.video.encode())
        self.out.close()

    def release(self) -> None:
        self.out.close()
        if self.heard is not None:
            self.heard.close()


def _fits(codec: str, kind: str) -> bool:
    return kind == ".mkv" or (kind in CONTAINERS and codec in SOUNDS)


def _sound_codec(source: str | None) -> str | None:
    """The codec of a file's sound; None where there is none."""
    if source is None:
        return None
    import av

    try:
        with av.open(str(source)) as container:
            heard = container.streams.audio
            return heard[0].codec_context.name if heard and container.streams.video else None
    except av.error.FFmpegError:
        return None
