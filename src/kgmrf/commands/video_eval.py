"""``kgmrf video-eval``: our tracker beside OpenCV's on sequences with true boxes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
import typer

from kgmrf._types import Numbers
from kgmrf.commands import _options as opt
from kgmrf.commands._run import note, progress

if TYPE_CHECKING:
    from kgmrf.vision.evaluation import Evaluation

OURS = ("kgmrf", "kgmrf-static")
COLUMNS = {
    "mean_iou": "mean IoU",
    "success_auc": "success",
    "success_rate": "IoU > .5",
    "precision": "20 px",
    "normalised_precision": "norm.",
    "ao": "AO",
    "milliseconds": "ms / frame",
}


class Scene(NamedTuple):
    """A sequence that can be started again and again, and its true boxes."""

    name: str
    frames: Callable[[], Iterator[Any]]
    truth: Numbers


HELP = {
    "folders": "Sequences of OTB, VOT or GOT-10k, or folders of them. Default: a clip drawn on the "
    "spot.",
    "output": "Folder for results and pictures.",
    "trackers": "Of kgmrf, kgmrf-static, CSRT, KCF, KCF-0, MIL, MOSSE. Default: all that are "
    "there, but kgmrf-static.",
    "frames": "Use so many frames of each sequence.",
    "key_frames": "Frames on each sheet; 0: no sheets.",
    "apart": "Sheets with one row per tracker.",
}


def video_eval(
    folders: Annotated[
        list[Path] | None, typer.Argument(metavar="FOLDER", help=HELP["folders"])
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help=HELP["output"])] = Path(
        "video-eval"
    ),
    trackers: Annotated[str | None, typer.Option(metavar="A,B,...", help=HELP["trackers"])] = None,
    frames: Annotated[
        int | None, typer.Option("--frames", "-n", help=HELP["frames"], min=2)
    ] = None,
    key_frames: Annotated[int, typer.Option(help=HELP["key_frames"], min=0)] = 8,
    apart: Annotated[bool, typer.Option("--apart", help=HELP["apart"])] = False,
    as_json: opt.AsJson = False,
    quiet: opt.Quiet = False,
) -> None:
    """Compare our video tracker with OpenCV's on sequences with true boxes.

    The first box is given; all see the same frames in this process, on one
    thread. The folder receives result files as GOT-10k writes them,
    summary.json, success and precision plots, the overlap frame by frame and
    a sheet of key frames for each sequence. KCF-0 is KCF that never gives up.
    """
    os.environ.setdefault("OPENCV_LOG_LEVEL", "SILENT")
    entrants, left_out = _entrants(trackers)
    scenes = _scenes(folders or [], frames)
    output.mkdir(parents=True, exist_ok=True)
    talk = not (quiet or as_json)
    for name, why in left_out.items():
        note(f"{name} is left out: {why}", shown=not quiet)
    evaluations, sizes = _run(scenes, entrants, output, talk)
    about = _summary(evaluations, sizes, left_out)
    files = _pictures(evaluations, scenes, output, key_frames, apart)
    about |= {"output": str(output), "pictures": [str(f) for f in files]}
    (output / "summary.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    if as_json:
        typer.echo(json.dumps(about))
    elif not quiet:
        _tell(about)


def _entrants(wanted: str | None) -> tuple[dict[str, Callable[[], Any]], dict[str, str]]:
    """What makes each tracker, and why the others of the usual ones are not there."""
    from kgmrf.vision import RegionCovarianceTracker
    from kgmrf.vision.rivals import RIVALS, OpenCVTracker

    known = (*OURS, *RIVALS)
    names = [OURS[0], *RIVALS] if wanted is None else [w.strip() for w in wanted.split(",")]
    for name in names:
        if name not in known:
            raise ValueError(f"--trackers: {name!r} is none of {', '.join(known)}")
    makers: dict[str, Callable[[], Any]] = {}
    left_out: dict[str, str] = {}
    for name in dict.fromkeys(names):
        if name in OURS:
            model: Any = "static" if name == OURS[1] else "anchor+ema"
            makers[name] = partial(RegionCovarianceTracker, model)
            continue
        try:
            OpenCVTracker(name)
        except ImportError as error:
            if wanted is not None:
                raise
            missing = isinstance(error, ModuleNotFoundError)
            left_out[name] = "OpenCV is not installed" if missing else str(error)
            continue
        makers[name] = partial(OpenCVTracker, name)
    return makers, left_out


def _scenes(folders: list[Path], most: int | None) -> list[Scene]:
    from kgmrf.vision.clip import render_clip
    from kgmrf.vision.sequences import find_sequences

    if not folders:
        clip = render_clip(most or 120, height=180, width=240, speed=6.0, occlusion=(70, 76))
        truth = np.where(clip.hidden[:, None], np.nan, clip.boxes)
        return [Scene("drawn", lambda: iter(clip.frames), truth)]
    scenes: dict[str, Scene] = {}
    for sequence in (s for folder in folders for s in find_sequences(folder)):
        if sequence.name in scenes:
            raise ValueError(f"two sequences are called {sequence.name}: evaluate them one by one")
        scenes[sequence.name] = Scene(sequence.name, sequence.frames, sequence.boxes[:most])
    return list(scenes.values())


def _run(
    scenes: list[Scene], entrants: dict[str, Callable[[], Any]], output: Path, talk: bool
) -> tuple[list[Evaluation], dict[str, tuple[int, int]]]:
    """Every tracker over every scene, its result files, and the size of the images."""
    from kgmrf.vision.clip import render_clip
    from kgmrf.vision.evaluation import evaluate, run_tracker, write_run

    if any(name in OURS for name in entrants):
        clip = render_clip(3)  # compiled here, so that the clock does not see it
        run_tracker(entrants[next(n for n in entrants if n in OURS)](), clip.frames, clip.boxes[0])
    total = sum(len(scene.truth) for scene in scenes) * len(entrants)
    done = 0
    found: list[Evaluation] = []
    sizes: dict[str, tuple[int, int]] = {}
    with progress("evaluating", shown=talk) as advance:

        def counted(scene: Scene) -> Iterator[Any]:
            nonlocal done
            for frame in islice(scene.frames(), len(scene.truth)):
                sizes.setdefault(scene.name, (frame.shape[1], frame.shape[0]))
                yield frame
                done += 1
                advance(done / total)

        for scene in scenes:
            evaluation = evaluate(scene.name, partial(counted, scene), scene.truth, entrants)
            for name, run in evaluation.runs.items():
                write_run(output / "results", name, scene.name, run)
            found.append(evaluation)
    return found, sizes


def _summary(
    evaluations: list[Evaluation], sizes: dict[str, tuple[int, int]], left_out: dict[str, str]
) -> dict[str, Any]:
    from kgmrf import __version__
    from kgmrf.vision.evaluation import average, summary

    rows: dict[str, dict[str, dict[str, float]]] = {}
    for e in evaluations:
        rows[e.sequence] = {
            name: {
                **summary(run.boxes, e.truth, image_size=sizes[e.sequence]),
                "milliseconds": 1000 * float(run.seconds.mean()),
                "frames": len(run.boxes),
                "lost": int((~run.found).sum()),
            }
            for name, run in e.runs.items()
        }
    names = list(evaluations[0].runs)
    means = {name: average(by[name] for by in rows.values()) for name in names}
    for row in (*means.values(), *(r for by in rows.values() for r in by.values())):
        row.update({key: round(value, 4) for key, value in row.items()})
    opencv = getattr(sys.modules.get("cv2"), "__version__", None)
    return {
        "kgmrf": __version__,
        "opencv": opencv,
        "frames": sum(len(e.truth) for e in evaluations),
        "trackers": {
            name: {key: means[name][key] for key in COLUMNS}
            for name in sorted(names, key=lambda n: -means[n]["success_auc"])
        },
        "sequences": rows,
        "left_out": left_out,
    }


def _pictures(
    evaluations: list[Evaluation], scenes: list[Scene], output: Path, n_frames: int, apart: bool
) -> list[Path]:
    from kgmrf.vision import figures

    files = [output / f"{name}.png" for name in ("success", "precision", "normalised_precision")]
    figures.success_plot(evaluations, files[0])
    figures.precision_plot(evaluations, files[1])
    figures.precision_plot(evaluations, files[2], normalised=True)
    for folder in ("overlap", "sheets") if n_frames else ("overlap",):
        (output / folder).mkdir(exist_ok=True)
    for evaluation, scene in zip(evaluations, scenes, strict=True):
        files.append(output / "overlap" / f"{scene.name}.png")
        figures.iou_curves(evaluation, files[-1])
        if n_frames:
            files.append(output / "sheets" / f"{scene.name}.png")
            figures.key_frame_sheet(
                evaluation, scene.frames(), files[-1], n_frames=n_frames, apart=apart
            )
    return files


def _tell(about: dict[str, Any]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("tracker", no_wrap=True)
    for words in COLUMNS.values():
        table.add_column(words, justify="right")
    for name, row in about["trackers"].items():
        cells = [f"{row[k]:.1f}" if k == "milliseconds" else f"{row[k]:.3f}" for k in COLUMNS]
        table.add_row(name, *cells, style="bold cyan" if name in OURS else "")
    console = Console()
    n = len(about["sequences"])
    what = next(iter(about["sequences"])) if n == 1 else f"{n} sequences, each counting once"
    console.print(f"{what}: {about['frames']} frames", highlight=False, markup=False)
    console.print(table)
    console.print(
        f"{len(about['pictures'])} pictures, result files and summary.json: {about['output']}",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
