"""``kgmrf demo``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from kgmrf.demo import QUICK, RUNS, Scene, print_demo, run_demo
from kgmrf.plots import check_path


def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The figure: .png, .svg or .pdf.")
    ] = Path("kgmrf-demo.png"),
    quick: Annotated[
        bool, typer.Option("--quick", metavar="", help="Fewer frames and seeds.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", metavar="", help="Print the numbers as JSON.")
    ] = False,
) -> None:
    """Compare KGMRF with moving averages and filters on a rotating ellipse with an occlusion."""
    check_path(output)
    # Progress goes to stderr, so that what is on stdout can be piped.
    columns = (TextColumn("{task.description:16s}"), BarColumn(), TaskProgressColumn())
    with Progress(*columns, console=Console(stderr=True), disable=as_json) as progress:
        task = progress.add_task("", total=RUNS)
        found = run_demo(
            output,
            scene=QUICK if quick else Scene(),
            advance=lambda name: progress.update(task, advance=1, description=name),
        )
    if as_json:
        typer.echo(json.dumps(found.as_dict(), indent=2))
    else:
        print_demo(found, Console())
