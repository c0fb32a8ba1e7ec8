"""How loops are compiled, and how a compiled one is found again.

Machine code is kept on disk beside the sources, or in a folder of the user's if that cannot be
written. Numba looks only at the file of the function itself when it decides whether the code is
still good; so every name carries a fingerprint of all the sources that code can be made from.
Where nothing can be written at all, code is made in memory, once per process.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numba

njit: Any = numba.njit  # its types do not know options that come as a table

TESTED = ("0.68",)
"""Releases of Numba that :mod:`kgmrf.kernels.quick` was tested with; others compile plainly."""

quick: Any = None
if os.environ.get("KGMRF_COMPILER") != "plain" and numba.__version__.startswith(TESTED):
    quick = importlib.import_module("kgmrf.kernels.quick")

# "contract" allows fused multiply-add; nothing may assume that NaN does not occur.
MEANING: Any = dict(error_model="numpy", fastmath={"contract"})
MAKERS = {"arange", "empty", "full", "ones", "reshape", "zeros"}
INNER: Any = dict(no_cpython_wrapper=True, no_cfunc_wrapper=True)


def jit(function: Any) -> Any:
    """A helper of compiled loops. One that makes no arrays counts no references to them."""
    return _helper(function, not MAKERS.isdisjoint(function.__code__.co_names))


def jit_views(function: Any) -> Any:
    """A helper that takes rows or slices of arrays, so that references are counted."""
    return _helper(function, True)


def _helper(function: Any, counts: bool) -> Any:
    how = {} if quick is None else {"_nrt": counts, "pipeline_class": quick.Helper}
    return njit(**how, **INNER, **MEANING)(function)


CONSTANTS = (
    "_check.py",
    "constants.py",
    "density.py",
    "factors.py",
    "gains.py",
    "motion.py",
    "state.py",
    "step.py",
    "geometry/orbit.py",
    "vision/cells.py",
    "vision/resample.py",
    "engines/layout.py",
    "engines/members.py",
    "engines/low_rank_step.py",
)
"""Files outside this folder whose numbers are compiled in."""


def sources(package: Path) -> list[Path]:
    """Every file that machine code can be made from."""
    found = [*package.glob("kernels/*.py")]
    for pattern in CONSTANTS:
        found += package.glob(pattern)
    return sorted(found)


def fingerprint(package: Path) -> str:
    """Changes with every file that machine code can be made from.

    >>> len(fingerprint(Path(__file__).parent.parent))
    12
    """
    text = hashlib.sha256()
    for path in sources(package):
        text.update(path.name.encode())
        text.update(path.read_bytes())
    return text.hexdigest()[:12]


FINGERPRINT = fingerprint(Path(__file__).parent.parent)
_told = False


def compiled(signature: Any = None, **options: Any) -> Any:
    """Compile a function for Python to call, or find it in the cache; at once with a signature.

    Loops let go of the interpreter's lock, so that threads run beside each other.
    """

    def wrap(function: Any) -> Any:
        function.__qualname__ = f"{function.__name__}-{FINGERPRINT}"
        given: Any = () if signature is None else (signature,)
        how: Any = {"nogil": True, **MEANING, **options}
        if quick is not None:
            how["pipeline_class"] = quick.Loop
        with nullcontext() if quick is None else quick.quickly():
            try:
                return njit(*given, cache=True, **how)(function)
            except RuntimeError as error:
                if "cannot cache" not in str(error):
                    raise
                _tell_uncached()
                return njit(*given, **how)(function)

    return wrap


def _tell_uncached() -> None:
    """Say once that every process will compile anew, and what to do about it."""
    global _told
    if not _told:
        _told = True
        sys.stderr.write(
            "kgmrf: no folder to keep compiled code in; compiling in memory. "
            "Set NUMBA_CACHE_DIR to a folder that can be written to keep it.\n"
        )
