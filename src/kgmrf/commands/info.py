"""``kgmrf info``."""

from __future__ import annotations

import json
import platform
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

import typer

from kgmrf import __version__
from kgmrf.commands import _options as opt

REQUIRED = ("numpy", "numba", "array-api-compat")

OPTIONAL = {
    "scipy": "scipy",
    "pandas": "pandas",
    "pyarrow": "files",
    "h5py": "files",
    "xarray": "xarray",
    "matplotlib": "plots",
    "typer": "cli",
    "rich": "cli",
    "torch": "torch",
    "opencv-contrib-python-headless": "vision",
    "scikit-learn": "sklearn",
}
"""The extra that brings each package."""


def info(
    as_json: opt.AsJson = False,
) -> None:
    """Show versions of kgmrf and its dependencies, and which engine runs the loops."""
    engine = "numba" if find_spec("kgmrf.kernels") else "numpy"
    about = {
        "kgmrf": __version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "engine": engine,
    }
    packages = {name: _version(name) for name in (*REQUIRED, *OPTIONAL)}
    if as_json:
        typer.echo(json.dumps({**about, "packages": packages}, indent=2))
        return
    for name, value in about.items():
        typer.echo(f"{name:32s}{value}")
    for name, found in packages.items():
        missing = f'not installed: pip install "kgmrf[{OPTIONAL.get(name, "")}]"'
        typer.echo(f"{name:32s}{found or missing}")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
