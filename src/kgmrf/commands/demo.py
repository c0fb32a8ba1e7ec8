"""``kgmrf demo``."""

from __future__ import annotations

import json
from pathlib import Path

import typer
from rich.console import Console

from kgmrf.commands._options import takes
from kgmrf.commands._run import progress
from kgmrf.demo import QUICK, RUNS, Scene, print_demo, run_demo
from kgmrf.plots import check_path

OPTIONS = """
Options:
  --output, -o  The figure: .png, .svg or .pdf.
  --quick  Fewer frames and seeds.
  --json  Print the numbers as JSON.
"""


@takes(OPTIONS)
def demo(output: Path = Path("kgmrf-demo.png"), quick: bool = False, json_: bool = False) -> None:
    """Compare KGMRF with moving averages and filters on a rotating ellipse with an occlusion."""
    check_path(output)
    scene = QUICK if quick else Scene()
    with progress("comparing", shown=not json_, total=RUNS) as advance:
        found = run_demo(output, scene=scene, advance=advance)
    if json_:
        typer.echo(json.dumps(found, indent=2))
    else:
        print_demo(found, Console())
