"""What a newcomer meets first: a light import, typed, and documented."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import subprocess
import sys

import pytest

import kgmrf

HEAVY = {"scipy", "pandas", "torch", "matplotlib", "sklearn", "cv2", "typer", "rich"}
HEAVY |= {"dask", "distributed", "xarray", "zarr"}


def test_import_loads_nothing_heavy() -> None:
    code = "import sys, kgmrf; print(' '.join(m for m in sys.modules if '.' not in m))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "kgmrf" in loaded
    assert not HEAVY & set(loaded)


def test_a_star_import_needs_no_extra() -> None:
    """It failed in the plain install."""
    blocked = ("sklearn", "pandas", "torch", "typer", "xarray", "mne", "pyarrow")
    code = f"""
import sys
for name in {blocked!r}:
    sys.modules[name] = None
from kgmrf import *
print(KGMRF().update([1.0, 2.0]).covariance.shape, track_table.__name__)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "(2, 2) track_table\n", done.stderr
    assert "KineticCovariance" in dir(kgmrf)


def test_every_public_name_exists_and_explains_itself() -> None:
    for name in kgmrf.__all__:
        assert hasattr(kgmrf, name), name
        thing = getattr(kgmrf, name)
        if name != "__version__":
            assert inspect.getdoc(thing), name


MODULES = [
    "kgmrf.model.gains",
    "kgmrf.model.step",
    "kgmrf.model.wishart",
    "kgmrf.metrics",
    "kgmrf.theory",
] + [
    f"kgmrf.{package}.{module.name}"
    for package in ("geometry", "simulate", "trackers")
    for module in pkgutil.iter_modules(importlib.import_module(f"kgmrf.{package}").__path__)
    if not module.name.startswith("_")
]


@pytest.mark.parametrize("module", MODULES)
def test_every_public_function_shows_an_example(module: str) -> None:
    loaded = importlib.import_module(module)
    for name, thing in vars(loaded).items():
        public = not name.startswith("_") and getattr(thing, "__module__", None) == module
        if public and inspect.isfunction(thing):
            assert ">>>" in (inspect.getdoc(thing) or ""), f"{module}.{name} has no doctest"
        if public and inspect.isclass(thing) and module.startswith("kgmrf.trackers"):
            assert ">>>" in (inspect.getdoc(thing) or ""), f"{module}.{name} has no doctest"
