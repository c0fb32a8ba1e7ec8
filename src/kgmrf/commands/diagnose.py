"""``kgmrf diagnose``."""

from __future__ import annotations

import json
from typing import Annotated, Any

import numpy as np
import typer

from kgmrf.commands import _options as opt
from kgmrf.commands._given import Given, on_a_file
from kgmrf.commands._run import progress
from kgmrf.diagnosis import diagnose as examine
from kgmrf.plots import check_path
from kgmrf.results import Result, join


@on_a_file()
def diagnose(
    given: Given,
    frames: Annotated[
        int, typer.Option("--frames", "-n", help="Steps to use, from the first.", min=30)
    ] = 20_000,
    plot: opt.Plot = None,
) -> None:
    """Track a file and report what is wrong with the run: evidence, verdict, remedy.

    The exit code is 1 if a fault was found. A note is about the data and is not a fault.
    """
    if plot is not None:
        check_path(plot)
    source = given.open()
    run = given.follow(source, poses=False)
    results: list[Result] = []
    seen, done = [], 0
    with progress(given.file.name, shown=given.talk) as advance:
        for chunk, result in run:
            part = result[: frames - done]
            assert isinstance(part, Result)
            results.append(part)
            seen.append(chunk.values[: len(part)])
            done += len(part)
            advance(done / frames)
            if done >= frames:
                break
    settings: dict[str, Any] = {"noise_floor": given.noise_floor}
    if source.kind == "rotation":
        settings = {"noise_std": run.noise_std}
    elif source.kind == "covariance":
        settings["n_samples"] = run.tracker.n_samples
    report = examine(join(results), np.concatenate(seen), **settings)
    if plot is not None:
        report.plot(plot)
    if given.as_json:
        typer.echo(json.dumps({"file": str(given.file), **report.to_dict()}))
    elif not given.quiet:
        typer.echo(f"{given.file}: {report}")
        if plot is not None:
            typer.echo(f"figure: {plot}")
    if not report.healthy:
        raise typer.Exit(1)
