"""``kgmrf simulate``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias, get_args

import numpy as np
import typer

from kgmrf import simulate as scenes
from kgmrf._check import in_range
from kgmrf._names import as_columns
from kgmrf.commands._options import takes
from kgmrf.io.write import write_rows
from kgmrf.simulate import CovarianceScene, RotationScene

SceneName: TypeAlias = Literal[
    "ellipse", "rotating-covariance", "rotating-frame", "camera-shake", "steady-camera"
]
"""Scenes by the name of their function in :mod:`kgmrf.simulate`."""

OPTIONS = f"""
SCENE  One of {", ".join(get_args(SceneName))}.
Options:
  --output, -o  File to write: .npz or .csv.
  --seed N >=0  Seed of the random numbers.
  --frames N >=1  Number of steps.
  --dimension, -d D >=1  Number of channels.
  --rate RAD  Angular velocity, radians per step.
  --n-samples, --samples M >=1  Number of samples behind each observed covariance.
  --noise-std RAD >=0.0  Noise of observed rotations, in radians.
  --dropout P >=0.0 <=1.0  Probability that an observation is missing.
"""


@takes(OPTIONS)
def simulate(
    scene: SceneName,
    output: Path,
    seed: int = 0,
    frames: int | None = None,
    dimension: int | None = None,
    rate: float | None = None,
    n_samples: int | None = None,
    noise_std: float | None = None,
    dropout: float = 0.0,
) -> None:
    """Write a simulated scene, truth and observations, to a file."""
    writers = {".npz": _write_npz, ".csv": _write_csv}
    if output.suffix.lower() not in writers:
        raise ValueError(f"--output ends in .npz or .csv, got {str(output)!r}")
    make: Callable[..., Any] = getattr(scenes, scene.replace("-", "_"))
    given = {"n_frames": frames, "d": dimension, "rate": rate, "n_samples": n_samples}
    given["noise_std"] = noise_std
    settings: dict[str, Any] = {name: v for name, v in given.items() if v is not None}
    for name in ("rate", "noise_std"):  # far beyond, angles have no digits left
        in_range(settings.get(name, 0.0), f"--{name.replace('_', '-')}", -1000.0, 1000.0)
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
    with open(output, "wb") as file:
        writers[output.suffix.lower()](made, file)
    lost = int((~made.observed).sum())
    typer.echo(f"{output}: {len(made.times)} steps, {lost} without observation")


def _write_npz(scene: CovarianceScene | RotationScene, file: IO[bytes]) -> None:
    """Every field of the scene under its own name; an absent number is NaN."""
    fields: Any = {name: np.nan if v is None else v for name, v in scene._asdict().items()}
    np.savez(file, **fields)


def _write_csv(scene: CovarianceScene | RotationScene, file: IO[bytes]) -> None:
    """time, observed entries (empty where nothing was seen), n_samples, true entries."""
    kind = "covariance" if isinstance(scene, CovarianceScene) else "rotation"
    columns = as_columns({"time": scene.times, kind: scene.observations}, 1)
    n_samples = getattr(scene, "n_samples", None)
    if n_samples is not None:
        columns["n_samples"] = np.full(len(scene.times), float(n_samples))
    truth = as_columns({kind: getattr(scene, kind)}, 1)
    columns |= {name.replace(kind, "truth"): values for name, values in truth.items()}
    write_rows(file, columns)
