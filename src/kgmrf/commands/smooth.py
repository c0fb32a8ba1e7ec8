"""``kgmrf smooth``: a recording, looked back at."""

from __future__ import annotations

import json
from typing import Annotated

import numpy as np
import typer

from kgmrf.commands import _options as opt
from kgmrf.commands._given import Given, on_a_file, split_fields
from kgmrf.commands._run import located, progress
from kgmrf.io import Chunk, DataError, check_output, dates
from kgmrf.plots import check_path


@on_a_file(without=["gains", "tracker"])
def smooth(
    given: Given,
    output: opt.Output = None,
    plot: opt.Plot = None,
    fields: opt.FieldsOption = None,
    frames: Annotated[
        int, typer.Option("--frames", "-n", help="Most frames that are held in memory.", min=2)
    ] = 200_000,
    lag: Annotated[
        int | None,
        typer.Option(
            "--lag", metavar="FRAMES", min=0, help="Look back this far only. Default: all the way."
        ),
    ] = None,
) -> None:
    """Estimate every frame of a recording from all of it, past and future.

    The whole recording is held in memory.
    """
    chosen = split_fields(fields)
    if output is not None:
        check_output(output)
    if plot is not None:
        check_path(plot)
    source = given.open()
    lagged = lag is not None and source.kind != "rotation"
    run = given.follow(source, gains="information" if lagged else "auto")
    chunks: list[Chunk] = []
    with progress(given.file.name, shown=given.talk) as advance:
        for chunk in run.chunks():
            chunks.append(chunk)
            if sum(len(c.values) for c in chunks) > frames:
                raise DataError(
                    f"{given.file} has more than {frames} frames; allow more with --frames, "
                    "or use track"
                )
            advance(0.1 * chunk.done)
        whole = _joined(chunks)
        with located(source, whole):
            result = run.per_time(run.through(run.tracker.smooth, whole, lag=lag))
        if source.dates:
            result = result.named(source.names, dates.instants(result.time))
    if output is not None:
        with given.writer(output, chosen, source) as writer:
            writer.write(result)
    if plot is not None:
        result.plot(plot)
    about = {
        "file": str(given.file),
        "kind": source.kind,
        "frames": len(result),
        "output": None if output is None else str(output),
        "figure": None if plot is None else str(plot),
    }
    if given.as_json:
        typer.echo(json.dumps(about))
    elif not given.quiet:
        typer.echo(f"{given.file}: {len(result)} frames smoothed")
        for name in ("output", "figure"):
            if about[name]:
                typer.echo(f"  {name:18s}{about[name]}")


def _joined(chunks: list[Chunk]) -> Chunk:
    stamps = [chunk.times for chunk in chunks if chunk.times is not None]
    places = [chunk.positions for chunk in chunks if chunk.positions is not None]
    return Chunk(
        np.concatenate([chunk.values for chunk in chunks]),
        np.concatenate(stamps) if stamps else None,
        np.concatenate([chunk.places for chunk in chunks]),
        1.0,
        np.concatenate(places) if places else None,
    )
