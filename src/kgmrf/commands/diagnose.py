"""``kgmrf diagnose``."""

from __future__ import annotations

from typing import Any

import numpy as np
import typer

from kgmrf.commands._given import ON_A_FILE, FileOptions
from kgmrf.commands._options import takes
from kgmrf.commands._run import progress
from kgmrf.diagnosis import diagnose as examine
from kgmrf.results import join


@takes(
    ON_A_FILE,
    "Options:\n  --frames, -n >=30  Steps to use, from the first.\n",
    given=FileOptions,
    without=["gyroscope"],
)
def diagnose(given: FileOptions, frames: int = 20_000) -> None:
    """Track a file and report what is wrong with the run: evidence, verdict, remedy.

    The exit code is 1 if a fault was found. A note is about the data and is not a fault.
    """
    run = given.follow(poses=False, most=frames)
    results, seen = [], []
    with progress(given.file.name, shown=given.talk) as advance:
        for chunk, result in run:
            results.append(result)
            seen.append(chunk.values)
            advance(chunk.done)
    settings: dict[str, Any] = {"noise_floor": given.noise_floor}
    if run.source.kind == "rotation":
        settings = {"noise_std": run.noise_std}
    elif run.source.kind == "covariance":
        settings["n_samples"] = run.tracker.n_samples
    report = examine(join(results), np.concatenate(seen), **settings)
    given.say(report.to_dict(), [f"{given.file}: {report}"])
    if not report.healthy:
        raise typer.Exit(1)
