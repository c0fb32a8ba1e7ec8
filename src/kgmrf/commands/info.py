"""``kgmrf info`` and ``kgmrf warmup``."""

from __future__ import annotations

import json
import platform
import time as clock
from importlib.metadata import PackageNotFoundError, version

import numpy as np
import typer

from kgmrf import __version__
from kgmrf._extras import EXTRAS
from kgmrf.commands._options import JSON, QUIET, takes
from kgmrf.kernels.engine import warmup as compile_all
from kgmrf.vision import RegionCovarianceTracker

REQUIRED = ("numpy", "scipy", "numba", "array-api-compat", "orjson")
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
    """Compile all loops now, so that later runs start at once."""
    began = clock.perf_counter()
    compile_all()
    image = np.random.default_rng(0).integers(0, 255, (96, 96, 3), dtype=np.uint8)
    box = RegionCovarianceTracker()
    box.init(image, (30, 30, 30, 30))
    box.update(image)
    if not quiet:
        typer.echo(f"ready after {clock.perf_counter() - began:.1f} s")
