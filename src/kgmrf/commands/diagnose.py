"""``kgmrf diagnose``: what is wrong with a run on your file, and what helps."""

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


@on_a_file(without=["tracker"])
def diagnose(
    given: Given,
    frames: Annotated[
        int, typer.Option("--frames", "-n", help="Frames to use, from the first.", min=30)
    ] = 20_000,
    plot: opt.Plot = None,
) -> None:
    """Follow a file and say what is wrong with the run: evidence, verdict, remedy.

    The exit code is 1 if a fault was found.
    """
    if plot is not None:
        check_path(plot)
    source = given.open()
    run = given.follow(source)
    results: list[Result] = []
    seen, counts, done = [], [], 0
    with progress(given.file.name, shown=given.talk) as advance:
        for chunk, result in run:
            n = min(frames - done, len(result))
            part = result[:n]
            assert isinstance(part, Result)
            matrices, number = _observed(chunk.values[:n], source.kind)
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


def _observed(values: Any, kind: str) -> tuple[Any, Any]:
    """Samples as covariances with their counts; a frame with a hole in it counts as a gap."""
    if kind != "samples":
        return values, np.zeros(len(values))
    blocks = values[:, None, :] if values.ndim == 2 else values
    empty = np.isnan(blocks).all(axis=-1)
    holes = (np.isnan(blocks).any(axis=-1) & ~empty).any(axis=-1)
    number = (~empty).sum(axis=-1).astype(float)
    rows = np.where(np.isnan(blocks), 0.0, blocks)
    total = np.swapaxes(rows, -1, -2) @ rows / np.maximum(number, 1.0)[:, None, None]
    there = (number > 0) & ~holes
    return np.where(there[:, None, None], total, np.nan), np.maximum(number, 1.0)
