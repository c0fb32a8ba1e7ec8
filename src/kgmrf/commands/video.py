"""``kgmrf video``: a box through a video, frame after frame."""

from __future__ import annotations

import csv
import errno
import json
import os
import sys
import time as clock
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import numpy as np
import typer

from kgmrf._types import Numbers
from kgmrf.commands import _options as opt
from kgmrf.commands._run import note, spare

if TYPE_CHECKING:
    from kgmrf.vision.videos import Reader

CODECS = {".mp4": "mp4v", ".m4v": "mp4v", ".mov": "mp4v", ".mkv": "XVID", ".avi": "MJPG"}
"""Endings of annotated videos, and the codec that every OpenCV can write them with."""

TABLES = (".csv", ".json")
GREEN, ORANGE, WHITE = (80, 200, 60), (0, 140, 255), (255, 255, 255)
"""Found, lost, true: blue, green, red, as OpenCV orders them."""

Image: TypeAlias = Any
Box: TypeAlias = tuple[float, float, float, float]


class ReaderName(StrEnum):
    """Who decodes the video."""

    AUTO = "auto"
    OPENCV = "opencv"
    AV = "av"


class ModelName(StrEnum):
    """What the target is compared with."""

    ANCHOR_EMA = "anchor+ema"
    STATIC = "static"


@dataclass(frozen=True)
class Footage:
    """Frames one after another, how many there should be, and how fast they were taken."""

    name: str
    frames: Iterable[Image]
    total: int | None = None
    rate: float = 25.0
    truth: Numbers | None = None
    live: bool = False


def video(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="INPUT",
            help="Video file, folder of images, or number of a camera.",
            show_default=False,
        ),
    ] = None,
    init: Annotated[
        str | None,
        typer.Option(
            metavar="X,Y,W,H",
            help="Left, top, width, height of the box in the first frame, in pixels. "
            "Default: select it in a window.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help=f"Annotated video: {' '.join(CODECS)}.", show_default=False
        ),
    ] = None,
    boxes: Annotated[
        Path | None,
        typer.Option(
            "--boxes",
            "-b",
            help="Boxes, scores and lost flags, frame by frame: .csv or .json.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        ModelName,
        typer.Option(help="Compare with the first frame and a slow average, or the first only."),
    ] = ModelName.ANCHOR_EMA,
    frames: Annotated[
        int | None, typer.Option("--frames", "-n", help="Stop after so many frames.", min=1)
    ] = None,
    reader: Annotated[
        ReaderName,
        typer.Option(help="Who decodes: auto is OpenCV, then PyAV for what OpenCV cannot read."),
    ] = ReaderName.AUTO,
    demo: Annotated[
        bool,
        typer.Option(
            "--demo", help="A clip drawn on the spot, with motion blur, a hiding and true boxes."
        ),
    ] = False,
    as_json: opt.AsJson = False,
    quiet: opt.Quiet = False,
) -> None:
    """Follow one box through a video by the covariances of its regions.

    A score of 0 is like the target, 1 like its surroundings. While the target
    is lost the box coasts and the search widens. A camera is followed until
    Ctrl-C. How well it does beside OpenCV's trackers: kgmrf video-eval.
    """
    _check_calls(source, init, output, boxes, demo)
    footage = _drawn(frames) if demo else _opened(str(source), reader.value)
    start = _parse(init) if init is not None else None
    talk = not (quiet or as_json)
    began = clock.perf_counter()
    with _files(output, boxes, footage) as (draw, keep), _bar(footage, frames, talk) as advance:
        rows, size = _follow(footage, start, model, frames, draw, advance, not quiet)
        seconds = clock.perf_counter() - began
        about = _summary(footage, model, rows, size, seconds)
        keep(about, rows)
    if footage.total is not None and frames is None and len(rows) < footage.total:
        note(f"{footage.name} announces {footage.total} frames, {len(rows)} could be read",
             shown=not quiet)  # fmt: skip
    if as_json:
        written = {"output": output, "boxes": boxes}
        about |= {word: str(path) for word, path in written.items() if path is not None}
        typer.echo(json.dumps(about))
    elif not quiet:
        _tell(about)
        for word, path in (("video", output), ("boxes", boxes)):
            if path is not None:
                typer.echo(f"{word}: {path}")


# ------------------------------------------------------------------------- at the door


def _check_calls(
    source: str | None, init: str | None, output: Path | None, boxes: Path | None, demo: bool
) -> None:
    if demo and (source is not None or init is not None):
        raise ValueError("--demo draws its own video and box: leave INPUT and --init out")
    if not demo and not source:
        raise ValueError("a video is missing: give INPUT, or --demo for a drawn one")
    for option, path, endings in (("--output", output, tuple(CODECS)), ("--boxes", boxes, TABLES)):
        if path is None:
            continue
        if path.suffix.lower() not in endings:
            raise ValueError(f"{option} ends in {' '.join(endings)}, got {str(path)!r}")
        if not path.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, "No such folder", str(path.parent))
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "A folder has this name", str(path))
        if source is not None:
            spare(Path(source), path)


def _parse(words: str) -> Box:
    """The box in "x,y,w,h"; whether it lies in the image is seen when there is one."""
    try:
        x, y, width, height = (float(word) for word in words.replace(" ", ",").split(",") if word)
    except ValueError:
        raise ValueError(f"--init takes four numbers x,y,w,h, got {words!r}") from None
    return x, y, width, height


def _select(frame: Image) -> Box:
    """The box that the user draws on the first frame."""
    remedy = "give the box in the first frame with --init x,y,w,h"
    shown = sys.platform in ("win32", "darwin")
    if not (shown or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        raise ValueError(f"there is no display to select the box on: {remedy}")
    import cv2

    try:
        # its own notice would go to stdout, among the numbers
        x, y, width, height = cv2.selectROI(
            "select the target, then Enter", frame, printNotice=False
        )
        cv2.destroyAllWindows()
    except cv2.error:
        raise ValueError(f"this OpenCV has no windows to select the box in: {remedy}") from None
    if width < 1 or height < 1:
        raise ValueError(f"no box was selected: {remedy}")
    return float(x), float(y), float(width), float(height)


# ----------------------------------------------------------------------------- footage


def _drawn(frames: int | None) -> Footage:
    from kgmrf.vision.clip import render_clip

    clip = render_clip(frames or 120, height=180, width=240, speed=6.0, occlusion=(70, 76))
    truth = np.where(clip.hidden[:, None], np.nan, clip.boxes)
    return Footage("demo", clip.frames, len(clip.frames), truth=truth)


def _opened(source: str, reader: Reader) -> Footage:
    # Said by us in one line, where OpenCV and FFmpeg would say it in many.
    os.environ.setdefault("OPENCV_LOG_LEVEL", "SILENT")
    os.environ.setdefault("OPENCV_FFMPEG_LOGLEVEL", "-8")
    from kgmrf.vision.videos import open_video

    path = Path(source)
    camera = source.isdecimal() and not path.exists()
    if path.is_dir() and (path / "img").is_dir():
        path = path / "img"  # OTB keeps its images one level down
    opened = open_video(
        int(source) if camera else source if "://" in source else path, reader=reader
    )
    live = camera or "://" in source
    return Footage(
        f"camera {source}" if camera else source,
        opened.frames,
        None if live else opened.n_frames,
        opened.rate or (30.0 if camera else 25.0),
        live=live,
    )


# ---------------------------------------------------------------------------- the loop


def _follow(
    footage: Footage,
    box: Box | None,
    model: ModelName,
    most: int | None,
    draw: Callable[[Image, dict[str, Any]], None],
    advance: Callable[[int, bool], None],
    shown: bool,
) -> tuple[list[dict[str, Any]], tuple[int, int]]:
    """One row per frame, and the size of the image."""
    from kgmrf.vision import RegionCovarianceTracker
    from kgmrf.vision.evaluation import box_iou

    tracker = RegionCovarianceTracker(model.value)
    rows: list[dict[str, Any]] = []
    size = (0, 0)
    try:
        for k, frame in enumerate(footage.frames):
            if k == 0:
                size = (frame.shape[1], frame.shape[0])
                if box is None:
                    box = _select(frame) if footage.truth is None else tuple(footage.truth[0])
                start = clock.perf_counter()
                tracker.init(frame, box)
                _warn_of_corners(box, size, shown)
            else:
                start = clock.perf_counter()
                tracker.update(frame)
            row: dict[str, Any] = {
                "frame": k,
                **dict(zip(("x", "y", "width", "height"), tracker.box, strict=True)),
                "score": tracker.score,
                "lost": tracker.lost,
                "reacquired": tracker.reacquired,
                "seconds": clock.perf_counter() - start,
            }
            if footage.truth is not None:
                true = footage.truth[k]
                row["iou"] = float(box_iou(tracker.box, true)) if np.isfinite(true).all() else None
                row["truth"] = true
            rows.append(row)
            draw(frame, row)
            advance(k + 1, tracker.lost)
            if most is not None and k + 1 >= most:
                break
    except KeyboardInterrupt:
        # The usual end of a camera; a file that was not finished is not a result.
        if not (footage.live and rows):
            raise
    if not rows:
        raise OSError(f"{footage.name} holds no frames that can be read")
    return rows, size


def _warn_of_corners(box: Box, size: tuple[int, int], shown: bool) -> None:
    """Two corners given for a corner and a size make a box that leaves the image."""
    x, y, width, height = box
    across = min(x + width, size[0]) - max(x, 0.0)
    down = min(y + height, size[1]) - max(y, 0.0)
    if across * down < 0.5 * width * height:
        note(
            f"most of the box lies outside the {size[0]} x {size[1]} image; "
            "--init takes left, top, width, height",
            shown=shown,
        )


def _summary(
    footage: Footage,
    model: ModelName,
    rows: list[dict[str, Any]],
    size: tuple[int, int],
    seconds: float,
) -> dict[str, Any]:
    # the first update may have to wait for the compiler: the median does not see it
    typical = float(np.median([row["seconds"] for row in rows[1:] or rows]))
    about: dict[str, Any] = {
        "input": footage.name,
        "model": model.value,
        "frames": len(rows),
        "size": list(size),
        "lost": sum(row["lost"] for row in rows),
        "reacquired": sum(row["reacquired"] for row in rows),
        "box": [rows[-1][word] for word in ("x", "y", "width", "height")],
        "tracker_milliseconds": round(1000 * typical, 3),
        "tracker_fps": round(1 / max(typical, 1e-9), 1),
        "seconds": round(seconds, 3),
    }
    if footage.truth is not None:
        iou = np.array([row["iou"] for row in rows if row["iou"] is not None])
        about["mean_iou"] = round(float(iou.mean()), 4)
        about["success_rate"] = round(float((iou > 0.5).mean()), 4)
    return about


def _tell(about: dict[str, Any]) -> None:
    width, height = about["size"]
    n = about["reacquired"]
    again = f", found again {'once' if n == 1 else f'{n} times'}" if n else ""
    typer.echo(
        f"{about['input']}: {about['frames']} frames of {width} x {height}, "
        f"lost in {about['lost']}{again}; {about['tracker_milliseconds']:.1f} ms per frame "
        f"({about['tracker_fps']:.0f} fps)"
    )
    if "mean_iou" in about:
        typer.echo(
            f"mean overlap with the true boxes {about['mean_iou']:.2f}, "
            f"above .5 in {100 * about['success_rate']:.0f} % of the frames where it is visible"
        )


# --------------------------------------------------------------------------- files out


@contextmanager
def _files(
    output: Path | None, boxes: Path | None, footage: Footage
) -> Iterator[tuple[Callable[..., None], Callable[..., None]]]:
    """Functions that draw a frame and keep the table; files appear when all went well."""
    writer: Any = None
    shape: tuple[int, ...] = ()
    # the ending stays, because OpenCV chooses the container by it
    scratch = None if output is None else output.with_name(f".part-{output.name}")
    part = None if boxes is None else boxes.with_name(f".part-{boxes.name}")

    def draw(frame: Image, row: dict[str, Any]) -> None:
        nonlocal writer, shape
        if output is None:
            return
        import cv2

        if writer is None:
            shape = frame.shape
            code: Any = cv2.VideoWriter.fourcc(*CODECS[output.suffix.lower()])
            size = (shape[1], shape[0])
            writer = cv2.VideoWriter(str(scratch), code, footage.rate, size)
            if not writer.isOpened():
                raise OSError(f"this OpenCV cannot write {output}; another ending may help")
        if frame.shape != shape:
            raise ValueError(
                f"frame {row['frame']} has the shape {frame.shape}, the first one had {shape}: "
                "no video can hold both, leave --output out"
            )
        writer.write(annotated(frame, row))

    def keep(about: dict[str, Any], rows: list[dict[str, Any]]) -> None:
        if boxes is not None and part is not None:
            (_write_csv if boxes.suffix.lower() == ".csv" else _write_json)(part, about, rows)

    try:
        yield draw, keep
        if writer is not None:
            writer.release()
        for made, final in ((scratch, output), (part, boxes)):
            if made is not None and final is not None:
                os.replace(made, final)
    finally:
        if writer is not None:
            writer.release()
        for made in (scratch, part):
            if made is not None:
                made.unlink(missing_ok=True)


def annotated(frame: Image, row: dict[str, Any]) -> Image:
    """A copy of the frame with the box (green found, orange lost, white true) and the score."""
    import cv2

    picture = np.array(frame)
    if (true := row.get("truth")) is not None and np.isfinite(true).all():
        _rectangle(picture, true, WHITE, 1)
    box = [row[word] for word in ("x", "y", "width", "height")]
    colour = ORANGE if row["lost"] else GREEN
    _rectangle(picture, box, colour, 2)
    state = "lost" if row["lost"] else f"score {row['score']:.2f}"
    words = f"{row['frame']}  {state}"
    size = max(0.45, frame.shape[0] / 900)
    place = (6, int(8 + 26 * size))
    for ink, thick in (((0, 0, 0), 3), (colour, 1)):  # dark edge: readable on any ground
        cv2.putText(picture, words, place, cv2.FONT_HERSHEY_SIMPLEX, size, ink, thick, cv2.LINE_AA)
    return picture


def _rectangle(picture: Image, box: Any, colour: tuple[int, int, int], thickness: int) -> None:
    import cv2

    x, y, width, height = (float(v) for v in box)
    first, last = (round(x), round(y)), (round(x + width) - 1, round(y + height) - 1)
    cv2.rectangle(picture, first, last, colour, thickness)


def _write_csv(path: Path, about: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """frame, x, y, width, height, score, lost, reacquired (and iou where there is a truth)."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        entries = [_plain(row) for row in rows]
        table.writerow(entries[0])
        for entry in entries:
            cells = (int(v) if isinstance(v, bool) else v for v in entry.values())
            table.writerow(["" if v is None else v for v in cells])


def _write_json(path: Path, about: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """The summary, and one object per frame under "boxes"."""
    record = {**about, "boxes": [_plain(row) for row in rows]}
    path.write_text(json.dumps(record, allow_nan=False) + "\n", encoding="utf-8")


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {
        name: round(value, 4) if isinstance(value, float) else value
        for name, value in row.items()
        if name not in ("seconds", "truth")
    }


@contextmanager
def _bar(footage: Footage, most: int | None, shown: bool) -> Iterator[Callable[[int, bool], None]]:
    """A bar on stderr with the frames per second of the last moments."""
    if not shown or not sys.stderr.isatty():
        yield lambda done, lost: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    known = [n for n in (footage.total, most) if n is not None]
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]:4.0f} fps"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[state]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        total = min(known) if known else None
        task = progress.add_task(footage.name, total=total, rate=0.0, state="")
        last, rate = clock.perf_counter(), 0.0

        def advance(done: int, lost: bool) -> None:
            nonlocal last, rate
            now = clock.perf_counter()
            fresh = 1 / max(now - last, 1e-6)
            last, rate = now, fresh if done < 3 else 0.9 * rate + 0.1 * fresh
            state = "[dark_orange]lost" if lost else "[green]found"
            progress.update(task, completed=done, rate=rate, state=state)

        yield advance
