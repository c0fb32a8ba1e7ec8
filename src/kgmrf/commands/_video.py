"""What the commands on videos share: images in, a video out, a progress bar, checks of the call."""

from __future__ import annotations

import csv
import errno
import io
import os
import time as clock
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

from kgmrf._npz import replacing
from kgmrf._types import Numbers
from kgmrf.commands._run import note, progress, spare
from kgmrf.vision import videos

OPTIONS = """
INPUT  Video file, folder of images, or camera number.
Options:
  --frames, -n >=1  Stop after this many images.
"""
Image: TypeAlias = Any
Advance: TypeAlias = Callable[[int, str], None]


@dataclass(frozen=True)
class Footage:
    """Images one after another, how many there should be, and how fast they were taken.

    ``sound`` is the file that may hold sound: no folder, no camera and no stream does.
    """

    name: str
    frames: Iterable[Image]
    total: int | None = None
    rate: float = 25.0
    truth: Numbers | None = None
    live: bool = False
    sound: str | None = None


def opened(source: str, most: int | None) -> Footage:
    """A video file, a folder of images, a camera or a stream; ``most`` images of it."""
    # Said by us in one line, where OpenCV and FFmpeg would say it in many.
    os.environ.setdefault("OPENCV_LOG_LEVEL", "SILENT")
    os.environ.setdefault("OPENCV_FFMPEG_LOGLEVEL", "-8")
    path = Path(source)
    camera = source.isdecimal() and not path.exists()
    if path.is_dir() and (path / "img").is_dir():
        path = path / "img"  # OTB keeps its images one level down
    live = camera or "://" in source
    video = videos.open_video(int(source) if camera else source if live else path)
    name, rate = (f"camera {source}", 30.0) if camera else (source, 25.0)
    known = [n for n in (None if live else video.n_frames, most) if n is not None]
    frames = islice(video.frames, most)
    sound = None if live or path.is_dir() or "%" in source else str(path)
    total = min(known, default=None)
    return Footage(name, frames, total, video.rate or rate, live=live, sound=sound)


def check_files(source: str | None, **files: tuple[Path | None, Iterable[str]]) -> dict[str, Path]:
    """Refuse names that cannot be written: wrong extension, no folder, or the input itself.

    Takes the file of each option with its extensions; returns those that were given.
    """
    for option, (path, known) in files.items():
        if path is None:
            continue
        if path.suffix.lower() not in known:
            raise ValueError(f"--{option} ends in {' '.join(known)}, got {str(path)!r}")
        if not path.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, "No such folder", str(path.parent))
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "A folder has this name", str(path))
        if source is not None:
            spare(Path(source), path)
    return {option: path for option, (path, _) in files.items() if path is not None}


def tell_cut(footage: Footage, n: int, quiet: bool) -> None:
    """Remark on a file that ends before the images it announces."""
    if footage.total is not None and not footage.live and n < footage.total:
        note(f"{footage.name} announces {footage.total} frames, {n} could be read", shown=not quiet)


def write_table(path: Path, rows: Iterable[Iterable[Any]]) -> None:
    """Rows as CSV; flags are 0 and 1, None and NaN are empty."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    for row in rows:
        lines.writerow("" if v != v else int(v) if isinstance(v, bool) else v for v in row)
    with replacing(path) as file:
        file.write(text.getvalue().encode())


@contextmanager
def bar(footage: Footage, shown: bool) -> Iterator[Advance]:
    """A progress bar with the images per second, and a word on each image."""
    total, began = footage.total, clock.monotonic()
    with progress(footage.name, shown=shown, total=total) as draw:

        def advance(done: int, state: str) -> None:
            rate = done / max(clock.monotonic() - began, 1e-6)
            draw(done, f"{done}/{total or '?'} {rate:4.0f} fps  {state}")

        yield advance
