"""``kgmrf video``: one box or several through a video, image after image."""

from __future__ import annotations

import json
import time as clock
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from kgmrf._npz import replacing
from kgmrf.commands import _video as shared
from kgmrf.commands._options import JSON, QUIET, takes
from kgmrf.commands._run import note, say
from kgmrf.commands._video_out import CODECS, sound_note, writing
from kgmrf.vision.annotate import annotated
from kgmrf.vision.clip import demo_clip
from kgmrf.vision.crowd import BoxesTracker
from kgmrf.vision.regions import box_iou

TABLES = (".csv", ".json", ".txt")
Box: TypeAlias = tuple[float, float, float, float]
Model: TypeAlias = Literal["anchor+ema", "static"]
WORDS = ("x", "y", "width", "height")
OPTIONS = f"""
Options:
  --box X,Y,W,H  Left, top, width, height of a box in the first image, in pixels; repeat for several
    targets. `select`: draw it with the mouse, where there is a screen and an OpenCV with windows.
  --boxes  File of boxes in the first image, one X,Y,W,H per line.
  --output, -o  Annotated video: {" ".join(CODECS)}.
  --table, -t  Boxes, confidence, scores and lost flags of every image: .csv, .json, or .txt for the
    format of the MOT challenge.
  --model  Compare with the first image and a slow average, or with the first image only.
  --demo  Track a van in a drawn clip with motion blur, an occlusion and true boxes.
"""


@takes(shared.OPTIONS, OPTIONS, JSON, QUIET)
def video(
    input_: str | None = None,
    box: list[str] | None = None,
    boxes: Path | None = None,
    output: Path | None = None,
    table: Path | None = None,
    model: Model = "anchor+ema",
    frames: int | None = None,
    demo: bool = False,
    json_: bool = False,
    quiet: bool = False,
) -> None:
    """Follow one box or several through a video by region covariances.

    The number at a box is the probability that it is on its target. Below
    50 % the target is lost: its box coasts and the search widens; it keeps
    its number. A camera is followed until Ctrl-C.
    """
    if demo and (input_ is not None or box or boxes is not None):
        raise ValueError("--demo draws its own video and box: leave INPUT, --box and --boxes out")
    if not demo and not input_:
        raise ValueError("a video is missing: give INPUT, or --demo for a drawn one")
    drawn = "select" in (box or [])
    start = [_parse(word, "--box") for word in box or [] if word != "select"]
    if boxes is not None:
        lines = boxes.read_text(encoding="utf-8-sig").splitlines()
        start += [_parse(s, f"{boxes}, line {k}:") for k, s in enumerate(lines, 1) if s.strip()]
    if not demo and not start and not drawn:
        raise ValueError("give the box in the first image with --box x,y,w,h, or a file of --boxes")
    files = shared.check_files(input_, output=(output, CODECS), table=(table, TABLES))
    footage = _drawn(frames or 120) if demo else shared.opened(str(input_), frames)
    if drawn:
        frames_left = iter(footage.frames)
        first = next(frames_left, None)
        if first is None:
            raise OSError(f"{footage.name} holds no frames that can be read")
        start += _selected(first)
        footage = replace(footage, frames=chain([first], frames_left))
    began = clock.perf_counter()
    with (
        shared.bar(footage, not (quiet or json_)) as advance,
        writing(output, footage.rate, footage.sound) as write,
    ):
        rows, seconds, size = _follow(footage, start, model, write, advance)
        about = _summary(footage, rows, seconds)
        about |= {"model": model, "size": size, "seconds": round(clock.perf_counter() - began, 3)}
        if table is not None:
            _write(table, about, rows)
    shared.tell_cut(footage, about["frames"], quiet)
    if lacks := sound_note(output, footage.sound):
        note(lacks, shown=not quiet)
    say(about, _words(about), json_, quiet, **files)


# ---------------------------------------------------------------------- the first boxes


def _parse(words: str, where: str) -> Box:
    """The box in "x,y,w,h"; whether it lies in the image is seen when there is one."""
    numbers = words.translate(str.maketrans(";,\t", "   ")).split()
    try:
        x, y, width, height = map(float, numbers)
    except ValueError:
        raise ValueError(f"{where} takes four numbers x,y,w,h, got {words!r}") from None
    return x, y, width, height


def _selected(image: shared.Image) -> list[Box]:
    """Boxes drawn with the mouse on the first image."""
    import cv2

    window = "Draw each box and press Enter; Esc ends"
    try:
        boxes: Any = cv2.selectROIs(window, image, showCrosshair=False)
        cv2.destroyWindow(window)
    except cv2.error:
        raise ValueError(
            "--box select needs a screen and an OpenCV with windows: pip install "
            "opencv-contrib-python instead of opencv-contrib-python-headless; or give --box x,y,w,h"
        ) from None
    if not len(boxes):
        raise ValueError("no box was drawn")
    return [(float(x), float(y), float(w), float(h)) for x, y, w, h in boxes]


def _check_inside(box: Box, size: tuple[int, int]) -> None:
    """Refuse a box that is mostly outside: most likely two corners, not a corner and a size."""
    x, y, width, height = box
    across = max(min(x + width, size[0]) - max(x, 0.0), 0.0)
    down = max(min(y + height, size[1]) - max(y, 0.0), 0.0)
    if across * down < 0.5 * width * height:
        share = 100 * (1 - across * down / (width * height))
        raise ValueError(
            f"box {x:g},{y:g},{width:g},{height:g} lies {share:.0f} % outside the {size[0]} x "
            f"{size[1]} image; a box is left, top, width, height in pixels"
        )


# ---------------------------------------------------------------------------- the loop


def _drawn(n_frames: int) -> shared.Footage:
    clip = demo_clip(n_frames)
    truth = np.where(clip.hidden[:, None], np.nan, clip.boxes)
    return shared.Footage("demo", clip.frames, n_frames, truth=truth)


def _follow(
    footage: shared.Footage,
    boxes: list[Box],
    model: Model,
    write: Callable[[shared.Image], None] | None,
    advance: shared.Advance,
) -> tuple[list[dict[str, Any]], list[float], tuple[int, int]]:
    """One row per target and image, the tracker's seconds per image, and the size of images."""
    tracker = BoxesTracker(model)
    rows: list[dict[str, Any]] = []
    seconds: list[float] = []
    size = (0, 0)
    try:
        for k, frame in enumerate(footage.frames):
            true = None if footage.truth is None else footage.truth[k]
            start = clock.perf_counter()
            if k == 0:
                size = (frame.shape[1], frame.shape[0])
                boxes = boxes if true is None else [true]
                for box in boxes:
                    _check_inside(box, size)
                tracker.init(frame, np.array(boxes))
                found = tracker.present()
            else:
                found = tracker.update(frame)
            seconds.append(clock.perf_counter() - start)
            for one in found:
                row: dict[str, Any] = {
                    "frame": k,
                    "id": one.identity,
                    **dict(zip(WORDS, one.box, strict=True)),
                    "confidence": one.confidence,
                    "score": one.score,
                    "lost": one.lost,
                    "reacquired": one.reacquired,
                }
                if true is not None:
                    row["iou"] = float(box_iou(one.box, true)) if np.isfinite(true).all() else None
                rows.append(row)
            if write is not None:
                write(annotated(frame, found, number=k, truth=true))
            lost = sum(one.lost for one in found)
            advance(k + 1, f"[dark_orange]lost {lost}" if lost else "[green]found")
    except KeyboardInterrupt:
        # The usual end of a camera; a file that was not finished is not a result.
        if not (footage.live and rows):
            raise
    if not rows:
        raise OSError(f"{footage.name} holds no frames that can be read")
    return rows, seconds, size


def _summary(
    footage: shared.Footage, rows: list[dict[str, Any]], seconds: list[float]
) -> dict[str, Any]:
    last = [row for row in rows if row["frame"] == rows[-1]["frame"]]
    # the first update may have to wait for the compiler: the median does not see it
    typical = float(np.median(seconds[1:] or seconds))
    about: dict[str, Any] = {
        "input": footage.name,
        "frames": rows[-1]["frame"] + 1,
        "targets": len(last),
        "lost": sum(row["lost"] for row in rows),
        "reacquired": sum(row["reacquired"] for row in rows),
        "boxes": {str(row["id"]): [row[word] for word in WORDS] for row in last},
        "tracker_milliseconds": round(1000 * typical, 3),
        "tracker_fps": round(1 / max(typical, 1e-9), 1),
    }
    if footage.truth is not None:
        iou = np.array([row["iou"] for row in rows if row["iou"] is not None])
        about["mean_iou"] = round(float(iou.mean()), 4)
        about["success_rate"] = round(float((iou > 0.5).mean()), 4)
    return about


def _words(about: dict[str, Any]) -> list[str]:
    width, height = about["size"]
    n = about["reacquired"]
    again = f", found again {'once' if n == 1 else f'{n} times'}" if n else ""
    many = f", {about['targets']} targets" if about["targets"] > 1 else ""
    lines = [
        f"{about['input']}: {about['frames']} frames of {width} x {height}{many}, "
        f"lost in {about['lost']}{again}; {about['tracker_milliseconds']:.1f} ms per frame "
        f"({about['tracker_fps']:.0f} fps)"
    ]
    if "mean_iou" in about:
        lines.append(
            f"mean overlap with the true boxes {about['mean_iou']:.2f}, "
            f"above .5 in {100 * about['success_rate']:.0f} % of the frames where it is visible"
        )
    return lines


def _write(path: Path, about: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """The table in the format of its extension."""
    entries = [
        {name: round(v, 4) if isinstance(v, float) else v for name, v in row.items()}
        for row in rows
    ]
    kind = path.suffix.lower()
    if kind == ".json":  # the summary, and one object per target and image
        with replacing(path) as file:
            file.write(json.dumps({**about, "rows": entries}, allow_nan=False).encode() + b"\n")
    elif kind == ".txt":
        shared.write_table(path, map(_mot, entries))
    else:
        shared.write_table(path, [entries[0], *(row.values() for row in entries)])


def _mot(row: dict[str, Any]) -> list[Any]:
    """MOT: frame, id, left, top, width, height, confidence, -1, -1, -1; it counts from 1."""
    place = round(row["x"] + 1, 4), round(row["y"] + 1, 4), row["width"], row["height"]
    return [row["frame"] + 1, row["id"], *place, row["confidence"], -1, -1, -1]
