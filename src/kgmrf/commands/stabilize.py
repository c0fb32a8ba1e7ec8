"""``kgmrf stabilize``: a shaky video in, a steady one out."""

from __future__ import annotations

import time as clock
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from kgmrf.commands import _video as video
from kgmrf.commands._options import JSON, QUIET, takes
from kgmrf.commands._run import note, say
from kgmrf.commands._video_out import CODECS, sound_note, writing
from kgmrf.io import open_source
from kgmrf.io.source import joined
from kgmrf.vision.camera import RecordedMotion
from kgmrf.vision.steady import Border, Stabilizer

OPTIONS = f"""
Options:
  --output, -o  Steady video: {" ".join(CODECS)}.
  --smooth SECONDS >=0.01  Time constant of the steady camera: faster motion is shake.
  --lag >=0  Work live, this many images behind the camera (0: no delay). Default: look at the whole
    video first.
  --keep >=0.1 <=0.99  Least share of width and height to keep.
  --border  Crop to the largest steady rectangle, or fill what is missing.
  --focal PIXELS >=1.0  Focal length: the camera turns in space. Default: shift, turn and zoom in
    the image plane.
  --motion  Take the camera's motion from a file, not from features: a gyroscope (time and three
    rates, rad/s) or a trajectory (TUM, or CSV with qx qy qz qw). Needs --focal.
  --offset SECONDS  Time of the first image after the file's first row.
  --path  The camera's and the steady path: .csv.
"""


@takes(video.OPTIONS, OPTIONS, JSON, QUIET)
def stabilize(
    input_: str,
    output: Path,
    smooth: float = 1.0,
    lag: int | None = None,
    keep: float = 0.8,
    border: Border = "crop",
    focal: float | None = None,
    motion: Path | None = None,
    offset: float = 0.0,
    path: Path | None = None,
    frames: int | None = None,
    json_: bool = False,
    quiet: bool = False,
) -> None:
    """Take the shake out of a video.

    The motion between images is measured with features, smoothed and removed
    by a warp. Borders are cropped to the largest rectangle that every image
    fills. Without --lag the video is read twice; with --lag a camera can be
    stabilised while it runs. Images without enough features are gaps, which
    the path bridges.
    """
    files = video.check_files(input_, output=(output, CODECS), path=(path, (".csv",)))
    if motion is not None and focal is None:
        raise ValueError("--motion turns the camera in space: give --focal, in pixels, as well")
    footage = video.opened(input_, frames)
    if footage.live and lag is None:
        raise ValueError(f"{footage.name} has no end: give --lag, 0 or more")
    steady = Stabilizer(
        max(1.0, smooth * footage.rate),
        lag=lag,
        keep=keep,
        border=border,
        focal=focal,
        motion=None if motion is None else _recorded(motion, footage, offset),
    )
    began, cpu = clock.perf_counter(), clock.process_time()
    with (
        video.bar(footage, not (quiet or json_)) as advance,
        writing(output, footage.rate, footage.sound) as write,
    ):
        again = None if lag is not None else video.opened(input_, frames)
        for image in _steadied(steady, footage, again, advance):
            write(image)
        spent = clock.process_time() - cpu
        columns, raw, smoothed = steady.numbers()
        if path is not None:
            names = ["frame", *columns, *(f"steady_{name}" for name in columns)]
            table = np.hstack([raw, smoothed]).round(6).tolist()
            video.write_table(path, [names, *([k, *row] for k, row in enumerate(table))])
    n, gaps = len(raw), int(np.isnan(raw[:, 0]).sum())
    (w, h), (v, u) = steady.size, image.shape[:2]
    about = {
        "input": footage.name,
        "frames": n,
        "size": [w, h],
        "steady_size": [u, v],
        "gaps": gaps,
        "milliseconds": round(1000 * spent / n, 3),
        "seconds": round(clock.perf_counter() - began, 3),
    }
    video.tell_cut(footage, n, quiet)
    if lacks := sound_note(output, footage.sound):
        note(lacks, shown=not quiet)
    if gaps:
        why = "had too few features" if motion is None else f"are outside the times of {motion}"
        note(f"{gaps} of {n} images {why} and were bridged", shown=not quiet)
    words = f"{footage.name}: {n} images of {w} x {h}, steady at {u} x {v}; "
    words += f"{about['milliseconds']:.1f} ms per image"
    say(about, [words], json_, quiet, **files)


def _steadied(
    steady: Stabilizer, footage: video.Footage, again: video.Footage | None, advance: video.Advance
) -> Iterator[Any]:
    """Through a video twice: to follow the camera, and to warp; or once, a camera until Ctrl-C."""
    k = 0
    try:
        for k, image in enumerate(footage.frames, 1):
            advance(k, "live" if again is None else "following the camera")
            if again is not None:
                steady.watch([image])
            elif (made := steady.update(image)) is not None:
                yield made
    except KeyboardInterrupt:
        if not footage.live or not k:
            raise
    if again is None:
        yield from steady.finish()
        return
    steady.plan()
    for k, image in enumerate(islice(again.frames, len(steady.path)), 1):
        yield steady.steady(image, k - 1)
        advance(k, "writing")


def _recorded(path: Path, footage: video.Footage, offset: float) -> RecordedMotion:
    """The camera's orientation at every image, from a trajectory or a gyroscope."""
    if footage.total is None:
        raise ValueError(f"{footage.name} does not say how many images it has: --motion needs that")
    source = open_source(path)
    chunks = list(source)
    whole = joined(chunks) if chunks else None
    if whole is None or whole.times is None:
        raise ValueError(f"{path} has no time stamps; it needs a column time, in seconds")
    values, stamps = whole.values, whole.times
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
    times = stamps[0] + offset + np.arange(footage.total) / footage.rate
    return RecordedMotion.sampled(values[good], stamps[good], times)
