"""The engines in numpy, to be read beside their formulas: one track, one step at a time.

Each class has the name, the constructor and the ``run`` of its compiled twin in `kgmrf._core`, and
gives the same numbers, some hundred times slower. ``KGMRF_ENGINE=readable`` runs every tracker on
them (see :mod:`kgmrf.engines.core`); tests compare the two part by part.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

MODULES = {
    "Ensemble": "ensemble",
    "Law": "law",
    "LowRank": "low_rank",
    "Rotations": "rotations",
}


def __getattr__(name: str) -> Any:
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{MODULES[name]}"), name)
