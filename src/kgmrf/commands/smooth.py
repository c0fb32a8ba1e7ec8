"""``kgmrf smooth``: a recording, looked back at."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from kgmrf.commands._given import Given, on_a_file
from kgmrf.commands._run import located, progress
from kgmrf.commands.track import listed
from kgmrf.io import Chunk, DataError
from kgmrf.io.source import joined

OPTIONS = """
Tracker:
  --frames, -n >=2  Refuse a longer recording.
  --lag >=0  Use only so many steps of the future. Default: all.
"""


@on_a_file(OPTIONS, without=["gains"])
def smooth(
    given: Given,
    output: Path | None = None,
    plot: Path | None = None,
    fields: Any = None,
    frames: int = 200_000,
    lag: int | None = None,
) -> None:
    """Estimate every step of a recording from all of it, past and future.

    The whole recording is held in memory.
    """
    lagged = lag is not None and given.open().kind != "rotation"
    run = replace(given, gains="information" if lagged else "auto").follow()
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
        with located(run.source, whole):
            result = run.named(run.per_time(run.through(run.tracker.smooth, whole, lag=lag)))
    if output is not None:
        with run.writer(output, fields) as writer:
            writer.write(result)
    if plot is not None:
        result.plot(plot)
    files = {"output": None if output is None else str(output)}
    files["figure"] = None if plot is None else str(plot)
    about = {"kind": run.source.kind, "frames": len(result), **files}
    given.say(about, [f"{given.file}: {len(result)} steps smoothed", *listed(files)])
