"""``kgmrf info`` and ``kgmrf warmup``."""

from __future__ import annotations

import json
import platform
from importlib.metadata import PackageNotFoundError, version

import typer

from kgmrf import __version__
from kgmrf._extras import EXTRAS
from kgmrf.commands._options import JSON, QUIET, takes

REQUIRED = ("numpy", "scipy", "array-api-compat", "orjson")
PACKAGES = {"cv2": "opencv-contrib-python-headless", "sklearn": "scikit-learn"}
"""Packages that are not called like their module."""


@takes(JSON)
def info(json_: bool = False) -> None:
    """Show the versions of kgmrf, Python and all packages that kgmrf can use."""
    about = {
        "kgmrf": __version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
    }
    extras = {PACKAGES.get(module, module): extra for module, extra in EXTRAS.items()}
    packages = {name: _version(name) for name in (*REQUIRED, *extras)}
    if json_:
        typer.echo(json.dumps({**about, "packages": packages}, indent=2))
        return
    for name, found in {**about, **packages}.items():
        missing = f'not installed: pip install "kgmrf[{extras.get(name, "")}]"'
        typer.echo(f"{name:32s}{found or missing}")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@takes(QUIET)
def warmup(quiet: bool = False) -> None:
    """Do nothing: the loops are compiled when kgmrf is built. Goes in the next release."""
    if not quiet:
        typer.echo("nothing to do: the loops are compiled when kgmrf is built", err=True)
