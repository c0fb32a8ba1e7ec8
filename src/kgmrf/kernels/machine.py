"""How the loops are compiled, and how a compiled one is found again."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from numba import njit

from kgmrf._check import LARGEST, SMALLEST
from kgmrf.gains import ANGLE_VARIANCE_LIMIT
from kgmrf.geometry.orbit import RELATIVE_RIDGE
from kgmrf.step import CORRELATION_LIMIT, POLISH_EVERY, SMALLEST_SPECTRUM

# "contract" allows fused multiply-add; nothing may assume that NaN does not occur.
MEANING: Any = dict(error_model="numpy", fastmath={"contract"})
INNER: Any = dict(no_cpython_wrapper=True, no_cfunc_wrapper=True)
jit = njit(**INNER, **MEANING)


FILES = (
    "lanes",
    "layout",
    "machine",
    "products",
    "rows",
    "door",
    "core",
    "blocks",
    "online",
    "sequence",
    "many",
    "adjoint",
)
NUMBERS = (
    ANGLE_VARIANCE_LIMIT,
    CORRELATION_LIMIT,
    LARGEST,
    POLISH_EVERY,
    RELATIVE_RIDGE,
    SMALLEST,
    SMALLEST_SPECTRUM,
)


def _fingerprint() -> str:
    """Changes with every file and number that the machine code is made from."""
    home = Path(__file__).parent
    texts = [(home / f"{name}.py").read_bytes() for name in FILES]
    return hashlib.sha256(b"".join(texts) + repr(NUMBERS).encode()).hexdigest()[:12]


FINGERPRINT = _fingerprint()


def compiled(signature: str, **options: Any) -> Any:
    """Compile a function for Python to call, at once, or find it in the cache on disk.

    The cache only looks at the file of the function itself; with the fingerprint in its name it
    cannot mistake an older version of the files beside it.
    """

    def wrap(function: Any) -> Any:
        function.__qualname__ = f"{function.__name__}-{FINGERPRINT}"
        return njit(signature, cache=True, **MEANING, **options)(function)

    return wrap
