"""``kgmrf simulate``."""

from __future__ import annotations

import csv
import inspect
import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, get_args

import numpy as np
import typer

from kgmrf import simulate as scenes
from kgmrf.simulate import CovarianceScene, RotationScene

SceneName: TypeAlias = Literal[
    "ellipse", "rotating-covariance", "rotating-frame", "camera-shake", "steady-camera"
]
"""Scenes by the name of their function in :mod:`kgmrf.simulate`."""


def simulate(
    scene: Annotated[
        SceneName, typer.Argument(metavar="SCENE", help=f"One of {', '.join(get_args(SceneName))}.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write: .npz or .csv.")],
    seed: Annotated[int, typer.Option(help="Seed of the random numbers.", min=0, metavar="N")] = 0,
    frames: Annotated[int | None, typer.Option(help="Number of steps.", min=1, metavar="N")] = None,
    dimension: Annotated[
        int | None,
        typer.Option("--dimension", "-d", help="Number of channels.", min=1, metavar="D"),
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="Angular velocity, radians per step.", metavar="RAD")
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(
            "--n-samples",
            "--samples",
            help="Number of samples behind each observed covariance.",
            min=1,
            metavar="M",
        ),
    ] = None,
    noise_std: Annotated[
        float | None,
        typer.Option(help="Noise of observed rotations, in radians.", min=0.0, metavar="RAD"),
    ] = None,
    dropout: Annotated[
        float,
        typer.Option(
            help="Probability that an observation is missing.", min=0.0, max=1.0, metavar="P"
        ),
    ] = 0.0,
) -> None:
    """Write a simulated scene, truth and observations, to a file."""
    writers = {".npz": _write_npz, ".csv": _write_csv}
    if output.suffix.lower() not in writers:
        raise ValueError(f"--output ends in .npz or .csv, got {str(output)!r}")
    make: Callable[..., Any] = getattr(scenes, scene.replace("-", "_"))
    given = {"n_frames": frames, "d": dimension, "rate": rate, "n_samples": samples}
    settings: dict[str, Any] = {
        k: v for k, v in {**given, "noise_std": noise_std}.items() if v is not None
    }
    known = inspect.signature(make).parameters
    for name in settings:
        if name not in known:
            option = {"n_frames": "frames", "d": "dimension"}.get(name, name.replace("_", "-"))
            raise ValueError(f"the scene {scene} has no --{option}")
    if "seed" in known:
        settings |= {"seed": seed, "dropout_probability": dropout}
    else:
        length = settings.get("n_frames", known["n_frames"].default)
        # The mask has a generator of its own: the motion is the same at every dropout.
        observed = scenes.iid(length, dropout, np.random.default_rng([seed, 1]))
        settings |= {"rng": seed, "observed": observed}
    made = make(**settings)
    writers[output.suffix.lower()](made, output)
    lost = int((~made.observed).sum())
    typer.echo(f"{output}: {len(made.times)} steps, {lost} without observation")


def _write_npz(scene: CovarianceScene | RotationScene, path: Path) -> None:
    """Every field of the scene under its own name; an absent number is NaN."""
    fields: dict[str, Any] = {
        name: np.nan if v is None else v for name, v in scene._asdict().items()
    }
    with open(path, "wb") as file:
        np.savez(file, **fields)


def _write_csv(scene: CovarianceScene | RotationScene, path: Path) -> None:
    """time, observed entries (empty where nothing was seen), n_samples, true entries.

    Of covariances the upper triangle is enough.
    """
    covariance = isinstance(scene, CovarianceScene)
    kind = "covariance" if covariance else "rotation"
    truth = getattr(scene, kind)
    d = truth.shape[-1]
    pairs = [(i, j) for i in range(d) for j in range(i if covariance else 0, d)]
    rows, columns = zip(*pairs, strict=True)
    known = getattr(scene, "n_samples", None)
    parts = [scene.times[:, None], scene.observations[:, rows, columns]]
    parts += [] if known is None else [np.full((len(truth), 1), known)]
    names = [f"{kind}_{i}_{j}" for i, j in pairs] + ["n_samples"] * (known is not None)
    table = np.hstack([*parts, truth[:, rows, columns]]).tolist()
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["time", *names, *(f"truth_{i}_{j}" for i, j in pairs)])
        writer.writerows([["" if math.isnan(v) else repr(v) for v in row] for row in table])
