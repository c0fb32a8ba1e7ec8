"""The compiled core or the readable engines: the one place that chooses.

Both are found by the name of the engine and made from the same plan; both have ``run(rows,
track_index, values, counts, dt, matrix, tolerance, records, status)``: lines go in, rows change in
place (see `kgmrf.engines.Lines`). ``KGMRF_ENGINE=readable`` in the environment chooses the readable
ones; ``KGMRF_LEVEL=base`` (v3, v4) other loops of the core than the best of this processor:
``_core.levels`` has their names.
"""

from __future__ import annotations

import importlib
import os
import warnings
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from kgmrf import constants
from kgmrf._types import Numbers
from kgmrf.constants import SYMMETRY_TOLERANCE


@cache
def module() -> Any:
    """`kgmrf._core`, or None with one warning where it was not built."""
    try:
        core = importlib.import_module("kgmrf._core")
    except ImportError as error:
        warnings.warn(
            f"kgmrf runs without its compiled core ({error}): the same numbers, some hundred times "
            "slower. Install a wheel, or build it: `pip install .`, in a checkout `make core`",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    _require_same_sources(core)
    return core


def _require_same_sources(core: Any) -> None:
    """Refuse a core whose constants and layouts of rows are not those of these Python files."""
    try:
        text = Path(constants.__file__).read_text(encoding="utf-8")
    except OSError:  # installed without sources
        return
    if getattr(core, "checksum", None) != zlib.crc32(text.encode()):
        raise ImportError(
            f"{core.__file__} was built from another version of kgmrf than the Python files beside "
            "it: build it again (in a checkout `make core`, elsewhere `pip install .`), or set "
            "KGMRF_ENGINE=readable to run without it"
        )


def compiled() -> Any:
    """The compiled core; None where the readable engines are to be used."""
    return None if os.environ.get("KGMRF_ENGINE") == "readable" else module()


def loop(name: str, *plan: Any) -> Any:
    """The loop of an engine, such as ``"Ensemble"``, for a plan."""
    # Arrays of an engine from another process may begin anywhere in a buffer.
    plan = tuple(np.require(p, None, ["C", "A"]) if isinstance(p, np.ndarray) else p for p in plan)
    core = compiled()
    return readable(name)(*plan) if core is None else getattr(core, name)(*plan)


def readable(name: str) -> Any:
    """What makes the readable loop of this name."""
    made = getattr(importlib.import_module("kgmrf.readable"), name)
    return lambda *plan, **more: Whole(made(*plan, **more))


class Whole:
    """A readable loop that moves all rows or none: an error leaves them as they were."""

    def __init__(self, loop: Any) -> None:
        self._loop = loop

    def run(self, rows: Numbers, *lines: Any) -> None:
        """As the loop does it."""
        before = rows.copy()
        try:
            self._loop.run(rows, *lines)
        except BaseException:
            rows[:] = before
            raise


def functions(name: str) -> Any:
    """What has the functions of ``kgmrf.readable.NAME``, compiled or not."""
    core = compiled()
    return importlib.import_module(f"kgmrf.readable.{name}") if core is None else core


def inspect_covariances(matrices: Numbers, tolerance: float = SYMMETRY_TOLERANCE) -> Numbers:
    """OBSERVED, MISSING or INVALID for every matrix of ``(..., d, d)``.

    >>> inspect_covariances(np.stack([np.eye(2), -np.eye(2), np.full((2, 2), np.nan)])).tolist()
    [1, 2, 0]
    """
    batch, d = matrices.shape[:-2], matrices.shape[-1]
    flat = np.require(matrices, np.float64, ["C", "A"]).reshape(-1, d, d)
    status = np.empty(len(flat), dtype=np.int8)
    functions("observe").inspect(flat, tolerance, status)
    return status.reshape(batch)
