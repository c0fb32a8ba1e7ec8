"""``kgmrf diagnose``: what is wrong with a run on your file, and what helps."""

from __future__ import annotations

import json
from typing import Annotated, Any

import numpy as np
import typer

from kgmrf.commands import _options as opt
from kgmrf.commands._given import Given, on_a_file
from kgmrf.commands._run import as_matrices, progress
from kgmrf.diagnosis import diagnose as examine
from kgmrf.plots import check_path
from kgmrf.results import Result, join


@on_a_file(without=["tracker"])
def diagnose(
    given: Given,
    frames: Annotated[
        int, typer.Option("--frames", "-n", help="Frames to use, from the first.", min=30)
    ] = 20_000,
    plot: opt.Plot = None,
) -> None:
    """Follow a file and say what is wrong with the run: evidence, verdict, remedy.

    The exit code is 1 if a fault was found; a note, which is about the data, is none.
    """
    if plot is not None:
        check_path(plot)
    source = given.open()
    run = given.follow(source, poses=False)
    results: list[Result] = []
    seen, counts, done = [], [], 0
    with progress(given.file.name, shown=given.talk) as advance:
        for chunk, result in run:
            n = min(frames - done, len(result))
            part = result[:n]
            assert isinstance(part, Result)
            matrices, number = as_matrices(chunk.values[:n], source.kind)
            results.append(part)
            seen.append(matrices)
            counts.append(number)
            done += n
            advance(done / frames)
            if done >= frames:
                break
    settings: dict[str, Any] = {"noise_floor": given.noise_floor}
    if source.kind == "rotation":
        settings = {"noise_std": run.noise_std}
    elif source.kind == "covariance":
        settings["n_samples"] = run.tracker.n_samples
    else:
        settings["n_samples"] = np.concatenate(counts)
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
