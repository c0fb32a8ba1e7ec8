"""``kgmrf smooth``: a recording, looked back at."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from kgmrf.commands import _options as opt
from kgmrf.commands._given import Given, files_written, on_a_file, split_fields
from kgmrf.commands._run import located, progress
from kgmrf.io import Chunk, DataError, dates
from kgmrf.io.source import joined


@on_a_file(without=["gains"])
def smooth(
    given: Given,
    output: opt.Output = None,
    plot: opt.Plot = None,
    fields: opt.FieldsOption = None,
    frames: Annotated[
        int, opt.option(opt.MODEL, "Refuse a longer recording.", "--frames", "-n", min=2)
    ] = 200_000,
    lag: Annotated[
        int | None,
        opt.option(opt.MODEL, "Use only so many steps of the future. Default: all.", min=0),
    ] = None,
) -> None:
    """Estimate every step of a recording from all of it, past and future.

    The whole recording is held in memory.
    """
    chosen = split_fields(fields)
    source = given.open()
    lagged = lag is not None and source.kind != "rotation"
    run = replace(given, gains="information" if lagged else "auto").follow(source)
    chunks: list[Chunk] = []
    with progress(given.file.name, shown=given.talk) as advance:
        for chunk in run.chunks():
            chunks.append(chunk)
            if sum(len(c.values) for c in chunks) > frames:
                raise DataError(
                    f"{given.file} has more than {frames} steps; allow more with --frames, "
                    "or use track"
                )
            advance(0.1 * chunk.done)
        whole = joined(chunks)
        with located(source, whole):
            result = run.per_time(run.through(run.tracker.smooth, whole, lag=lag))
        if source.dates:
            result = result.named(source.names, dates.instants(result.time))
    if output is not None:
        with given.writer(output, chosen, source) as writer:
            writer.write(result)
    if plot is not None:
        result.plot(plot)
    files = files_written(output=output, figure=plot)
    about = {"file": str(given.file), "kind": source.kind, "frames": len(result), **files}
    words = [f"  {name:18s}{path}" for name, path in files.items() if path]
    given.say(about, [f"{given.file}: {len(result)} steps smoothed", *words])
