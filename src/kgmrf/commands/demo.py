"""``kgmrf demo``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from kgmrf.demo import QUICK, Scene, frames_of_work, print_demo, run_demo
from kgmrf.plots import check_path


def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where the figure goes: .png, .svg or .pdf.")
    ] = Path("kgmrf-demo.png"),
    quick: Annotated[bool, typer.Option("--quick", help="Fewer frames and seeds.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", metavar="", help="Print numbers as JSON.")
    ] = False,
) -> None:
    """A rotating ellipse with an occlusion: our tracker beside the baselines."""
    check_path(output)
    scene = QUICK if quick else Scene()
    # Progress goes to stderr, so that what is on stdout can be piped.
    columns = (TextColumn("{task.description:16s}"), BarColumn(), TaskProgressColumn())
    console = Console(stderr=True)
    with Progress(*columns, TimeRemainingColumn(), console=console, disable=as_json) as progress:
        task = progress.add_task("", total=frames_of_work(scene))

        def advance(name: str, frames: int) -> None:
            progress.update(task, advance=frames, description=name)

        found = run_demo(output, scene=scene, advance=advance)
        progress.update(task, description="done")
    if as_json:
        typer.echo(json.dumps(found.as_dict(), indent=2))
    else:
        print_demo(found, Console())
