"""``kgmrf warmup`` and ``kgmrf bench``."""

from __future__ import annotations

import json
import time as clock
from typing import Annotated

import numpy as np
import typer

from kgmrf import KGMRF, RotationTracker
from kgmrf._types import Numbers
from kgmrf.commands import _options as opt
from kgmrf.kernels.engine import warmup as compile_all

LAWS = ("information", "auto")


def warmup(
    quiet: opt.Quiet = False,
) -> None:
    """Compile all loops now, so that later runs start at once."""
    began = clock.perf_counter()
    compile_all()
    if not quiet:
        typer.echo(f"ready after {clock.perf_counter() - began:.1f} s")


def bench(
    dimensions: Annotated[
        str, typer.Option("--dimensions", "-d", metavar="D,D,...", help="Values of d.")
    ] = "2,3,7,16,32",
    as_json: opt.AsJson = False,
) -> None:
    """Measure the trackers on this machine: microseconds per step."""
    rows = []
    for word in dimensions.split(","):
        if not word.strip().isdecimal() or not 1 <= int(word) <= 256:
            raise ValueError(f"--dimensions takes numbers from 1 to 256, got {word!r}")
        for gains in LAWS:
            found = _covariances(int(word), gains)
            rows.append({"tracker": "KGMRF", "gains": gains, "d": int(word), **found})
    for gains in LAWS:
        rows.append({"tracker": "RotationTracker", "gains": gains, "d": 3, **_rotations(gains)})
    if as_json:
        typer.echo(json.dumps(rows))
        return
    head = f"{'tracker':18s}{'gains':14s}{'d':>4s}{'update':>12s}{'filter':>12s}"
    typer.echo(f"{head}   microseconds per step")
    for row in rows:
        numbers = f"{row['d']:4d}{row['update']:12.2f}{row['filter']:12.2f}"
        typer.echo(f"{row['tracker']:18s}{row['gains']:14s}{numbers}")


def _covariances(d: int, gains: str) -> dict[str, float]:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(2000, d + 1, d)) * np.arange(d, 0, -1)
    seen = np.swapaxes(rows, -1, -2) @ rows / (d + 1)
    return _timed(KGMRF(d, n_samples=d + 1, gains=gains), seen)


def _rotations(gains: str) -> dict[str, float]:
    tracker = RotationTracker(noise_std=0.05, gains=gains)
    return _timed(tracker, np.tile(np.eye(3), (2000, 1, 1)))


def _timed(tracker: KGMRF | RotationTracker, seen: Numbers) -> dict[str, float]:
    """The best of three rounds, after one that does not count."""
    best = {"update": np.inf, "filter": np.inf}
    for k in range(4):
        began = clock.perf_counter()
        for frame in seen[:500]:
            tracker.update(frame)
        middle = clock.perf_counter()
        tracker.filter(seen)
        if k:
            best["update"] = min(best["update"], (middle - began) / 500)
            best["filter"] = min(best["filter"], (clock.perf_counter() - middle) / len(seen))
    return {name: round(1e6 * float(seconds), 3) for name, seconds in best.items()}
