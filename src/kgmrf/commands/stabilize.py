"""``kgmrf stabilize``: a shaky video in, a steady one out."""

from __future__ import annotations

import csv
import json
import time as clock
from collections.abc import Callable, Iterator
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from kgmrf._types import Numbers
from kgmrf.commands import _options as opt
from kgmrf.commands._run import note
from kgmrf.commands._video import (
    CODECS,
    Footage,
    ReaderName,
    VideoOut,
    appearing,
    bar,
    check_files,
    opened,
)

if TYPE_CHECKING:
    from kgmrf.vision import Stabilizer
    from kgmrf.vision.camera import RecordedMotion

PICTURES = (".png", ".svg", ".pdf")
STRETCH = 40
"""Images in the picture before and after."""


class BorderName(StrEnum):
    """What becomes of the borders."""

    CROP = "crop"
    BLACK = "black"
    REPLICATE = "replicate"
    REFLECT = "reflect"


def stabilize(
    source: Annotated[
        str,
        typer.Argument(metavar="INPUT", help="Video file, folder of images, or camera number."),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help=f"Steady video: {' '.join(CODECS)}.")
    ],
    smooth: Annotated[
        float,
        typer.Option(
            "--smooth",
            metavar="SECONDS",
            help="Time constant of the steady camera: faster motion is shake.",
            min=0.01,
        ),
    ] = 1.0,
    lag: Annotated[
        int | None,
        typer.Option(
            help="Work live, so many images behind the camera (0: at once). Default: look at the "
            "whole video first.",
            min=0,
            show_default=False,
        ),
    ] = None,
    keep: Annotated[
        float,
        typer.Option(help="Least share of width and height to keep.", min=0.1, max=0.99),
    ] = 0.8,
    border: Annotated[
        BorderName,
        typer.Option(help="Crop to the largest steady rectangle, or fill what is missing."),
    ] = BorderName.CROP,
    focal: Annotated[
        float | None,
        typer.Option(
            metavar="PIXELS",
            help="Focal length: the camera turns in space. Default: shift, turn and zoom in the "
            "image plane.",
            min=1.0,
            show_default=False,
        ),
    ] = None,
    motion: Annotated[
        Path | None,
        typer.Option(
            help="Take the camera's motion from a file, not from features: a gyroscope (time and "
            "three rates, rad/s) or a trajectory (TUM, or CSV with qx qy qz qw). Needs --focal.",
            show_default=False,
        ),
    ] = None,
    offset: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="Time of the first image after the file's first row."),
    ] = 0.0,
    path: Annotated[
        Path | None,
        typer.Option("--path", help="The camera's and the steady path: .csv.", show_default=False),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", help="Draw both paths: .png, .svg or .pdf.", show_default=False),
    ] = None,
    strip: Annotated[
        Path | None,
        typer.Option(
            "--strip", help="Images before and after: .png, .svg, .pdf.", show_default=False
        ),
    ] = None,
    frames: Annotated[
        int | None, typer.Option("--frames", "-n", help="Stop after so many images.", min=1)
    ] = None,
    reader: Annotated[
        ReaderName,
        typer.Option(help="Who decodes: auto is OpenCV, then PyAV for what OpenCV cannot read."),
    ] = ReaderName.AUTO,
    as_json: opt.AsJson = False,
    quiet: opt.Quiet = False,
) -> None:
    """Take the shake out of a video.

    The motion between images is measured with features, smoothed by our
    trackers and taken out by a warp; borders are cropped to the largest
    rectangle that every image fills. Without --lag the video is read twice
    and nothing lags; with it a camera can be steadied while it runs. Images
    without enough features are coasted through.
    """
    check_files(
        source,
        output=(output, CODECS),
        path=(path, (".csv",)),
        plot=(plot, PICTURES),
        strip=(strip, PICTURES),
    )
    if motion is not None and focal is None:
        raise ValueError("--motion turns the camera in space: give --focal, in pixels, as well")
    footage = opened(source, reader.value)
    if footage.live and lag is None:
        raise ValueError(f"{footage.name} has no end: give --lag, 0 or more")
    from kgmrf.vision import Stabilizer

    steady = Stabilizer(
        max(1.0, smooth * footage.rate),
        lag=lag,
        keep=keep,
        border=border.value,
        focal=focal,
        motion=None if motion is None else _recorded(motion, footage, offset, frames),
    )
    talk = not (quiet or as_json)
    began, cpu = clock.perf_counter(), clock.process_time()
    with appearing(output, path) as (movie, table), bar(footage, frames, talk) as advance:
        assert movie is not None
        out = VideoOut(movie, footage.rate)
        kept = _Kept(footage.total if frames is None else frames)
        try:
            run = _live if lag is not None else _recording
            run(steady, footage, source, reader, frames, out, kept, advance)
        finally:
            out.close()
        spent = clock.process_time() - cpu
        columns, raw, smoothed = steady.numbers()
        if table is not None:
            _write_path(table, columns, raw, smoothed)
    about = {
        "input": footage.name,
        "frames": len(raw),
        "size": list(kept.sizes[0]),
        "steady_size": list(kept.sizes[1]),
        "gaps": int(np.isnan(raw[:, 0]).sum()),
        "milliseconds": round(1000 * spent / len(raw), 3),
        "seconds": round(clock.perf_counter() - began, 3),
        "output": str(output),
    }
    if plot is not None or strip is not None:
        from kgmrf.vision.figures_steady import before_after, path_plot

        if plot is not None:
            path_plot(columns, raw, smoothed, plot)
        if strip is not None:
            before_after(kept.before, kept.after, strip)
    about |= {
        word: str(file)
        for word, file in (("path", path), ("plot", plot), ("strip", strip))
        if file is not None
    }
    _tell(about, as_json, quiet)


class _Kept:
    """A stretch of images from the middle of the video, before and after."""

    def __init__(self, total: int | None) -> None:
        self.first = max(0, ((total or STRETCH) - STRETCH) // 2)
        self.before: list[Any] = []
        self.after: list[Any] = []
        self.sizes: list[tuple[int, int]] = []

    def add(self, k: int, before: Any, after: Any) -> None:
        if k == 0:
            self.sizes = [(image.shape[1], image.shape[0]) for image in (before, after)]
        if self.first <= k < self.first + STRETCH:
            self.before.append(before)
            self.after.append(after)


def _recording(
    steady: Stabilizer,
    footage: Footage,
    source: str,
    reader: ReaderName,
    most: int | None,
    out: VideoOut,
    kept: _Kept,
    advance: Callable[[int, str], None],
) -> None:
    """Through the video twice: once to follow the camera, once to warp."""
    for k, image in enumerate(islice(footage.frames, most)):
        steady.watch([image])
        advance(k + 1, "following the camera")
    steady.plan()
    for k, image in enumerate(islice(opened(source, reader.value).frames, len(steady.path))):
        made = steady.steady(image, k)
        out.write(made)
        kept.add(k, image, made)
        advance(k + 1, "writing")


def _live(
    steady: Stabilizer,
    footage: Footage,
    source: str,
    reader: ReaderName,
    most: int | None,
    out: VideoOut,
    kept: _Kept,
    advance: Callable[[int, str], None],
) -> None:
    """Through the video once; a camera ends by Ctrl-C."""
    waiting: list[Any] = []

    def pieces() -> Iterator[Any]:
        try:
            for k, image in enumerate(islice(footage.frames, most)):
                waiting.append(image)
                advance(k + 1, "live")
                yield steady.update(image)
        except KeyboardInterrupt:
            if not (footage.live and waiting):
                raise
        yield from steady.finish()

    done = 0
    for made in pieces():
        if made is not None:
            out.write(made)
            kept.add(done, waiting.pop(0), made)
            done += 1


def _recorded(path: Path, footage: Footage, offset: float, most: int | None) -> RecordedMotion:
    """The camera's orientation at every image, from a trajectory or a gyroscope."""
    from kgmrf.io import open_source
    from kgmrf.vision.camera import RecordedMotion

    if footage.total is None:
        raise ValueError(f"{footage.name} does not say how many images it has: --motion needs that")
    source = open_source(path)
    chunks = list(source)
    if not chunks or chunks[0].times is None:
        raise ValueError(f"{path} has no time stamps; it needs a column time, in seconds")
    values = np.concatenate([chunk.values for chunk in chunks])
    stamps = np.concatenate([np.asarray(chunk.times, dtype=float) for chunk in chunks])
    if source.kind == "samples":
        if values.shape[1] != 3:
            raise ValueError(
                f"{path} has the columns {', '.join(source.names)}; a gyroscope has three rates "
                "(rad/s), a trajectory qx qy qz qw"
            )
        values = RecordedMotion.integrated(values, stamps)
    elif source.kind != "rotation":
        raise ValueError(f"{path} holds {source.kind} matrices; expected rates or orientations")
    good = ~np.isnan(values[:, 0, 0])
    n = footage.total if most is None else min(most, footage.total)
    times = stamps[0] + offset + np.arange(n) / footage.rate
    return RecordedMotion.sampled(values[good], stamps[good], times)


def _write_path(path: Path, columns: tuple[str, ...], raw: Numbers, steady: Numbers) -> None:
    """frame, the camera's pose (empty in gaps), the steady one."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["frame", *columns, *(f"steady_{name}" for name in columns)])
        for k, row in enumerate(np.hstack([raw, steady])):
            table.writerow([k, *("" if np.isnan(v) else round(float(v), 6) for v in row)])


def _tell(about: dict[str, Any], as_json: bool, quiet: bool) -> None:
    if about["gaps"]:
        note(
            f"{about['gaps']} of {about['frames']} images had too few features and were coasted "
            "through",
            shown=not quiet,
        )
    if as_json:
        typer.echo(json.dumps(about))
    elif not quiet:
        (w, h), (u, v) = about["size"], about["steady_size"]
        typer.echo(
            f"{about['input']}: {about['frames']} images of {w} x {h}, steady at {u} x {v}; "
            f"{about['milliseconds']:.1f} ms per image"
        )
        for word in ("output", "path", "plot", "strip"):
            if word in about:
                typer.echo(f"{word}: {about[word]}")
