"""From trackers to compiled loops: arrays brought into shape, loops imported when first used.

Numba is not loaded before the first call here. Set ``KGMRF_ENGINE=readable`` in the environment to
keep single laws to the readable step of :mod:`kgmrf.step`, of which their loop is a twin.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from kgmrf._types import Mask, Numbers
from kgmrf.kernels import layout
from kgmrf.kernels.layout import Law
from kgmrf.state import Model, State, Surprise

if TYPE_CHECKING:
    from collections.abc import Iterator

MISSING, OBSERVED, INVALID = 0, 1, 2
LARGEST = 64
"""Up to this d the compiled loops win; above, the readable step with its BLAS products does."""
LARGEST_ROTATION = 3
"""The compiled logarithm is in closed form; larger rotations take the readable step."""

ROTATION_TOLERANCE = 1e-6
"""How far R^T R may be from I, as in `kgmrf._check.rotations`."""

EVERY = ("adjoint",)
"""Modules whose loops are compiled when they are imported."""

_told = False
_loaded: dict[str, Any] = {}
_importing = threading.RLock()


def compiled_law(model: Model, d: int, batch: tuple[int, ...], *, rotation: bool) -> Law | None:
    """The model for the compiled loops, or None where the readable step has to do it.

    >>> from kgmrf.gains import InformationGains
    >>> compiled_law(Model(InformationGains()), 200, (), rotation=False) is None
    True
    """
    if model.integrator != "exponential" or not compiles(d, rotation):
        return None
    return layout.law(model, d, batch, rotation=rotation)


def compiles(d: int, rotation: bool) -> bool:
    """Whether the compiled loops are to be used at all for this dimension."""
    if os.environ.get("KGMRF_ENGINE") == "readable":
        return False
    return d <= (LARGEST_ROTATION if rotation else LARGEST)


def loops(name: str) -> Any:
    """A module of this package with loops, such as ``law``, compiled on first use."""
    module = _loaded.get(name)
    if module is None:
        # Threads that come here together wait: in sys.modules they would find this module, or one
        # of Numba, before it is complete.
        with _importing:
            module = _loaded.get(name)
            if module is None:
                with announced():
                    module = importlib.import_module(f"kgmrf.kernels.{name}")
                _loaded[name] = module
    return module


@contextmanager
def announced() -> Iterator[None]:
    """Say once, on stderr, that compiling takes a while; say nothing if the cache has it."""
    from numba.core import event

    class Teller(event.Listener):
        def on_start(self, event: Any) -> None:
            global _told
            if not _told:
                _told = True
                sys.stderr.write("kgmrf: compiling for this machine, once (some ten seconds) ...\n")
                sys.stderr.flush()

        def on_end(self, event: Any) -> None:
            pass

    with event.install_listener("numba:compile", Teller()):
        yield


def warmup() -> None:
    """Compile everything now, or find it compiled: later first uses do not wait.

    >>> warmup()
    """
    for name in EVERY:
        loops(name)
    for rotation in (False, True):
        law_loop(rotation)


@lru_cache(maxsize=2)
def law_loop(rotation: bool) -> Any:
    """The loop of single laws over lines of tracks: `kgmrf.kernels.law.loop`."""
    module = loops("law")
    with announced():
        return module.loop(rotation)


def unroll(
    law: Law, start: State, sequence: Numbers, observed: Mask, counts: Numbers, steps: Numbers
) -> tuple[State, Surprise]:
    """All states ``(T + 1, n, ...)`` of a sequence ``(T, n, d, d)``, and its surprises ``(T, n)``.

    Covariances after the warm-up only; steps ``(1 or T, 1 or n, 7)`` as `layout.steps`.
    """
    n_frames, n, d = sequence.shape[:3]
    information, lines = bool(law.head[layout.INFORMATION]), n_frames * n
    first = layout.rows_of(start, Surprise(start.time, start.time), information)
    records = np.empty((lines, layout.row_size(d, information)))
    law_loop(bool(law.head[layout.ROTATION]))(
        first,
        np.tile(np.arange(n), n_frames),
        _own(sequence, (lines, d, d), np.float64),
        _own(observed, (lines,), np.int8),
        _own(counts, (lines,), np.float64),
        _own(np.broadcast_to(steps, (n_frames, n, 7)), (lines, 7), np.float64),
        np.arange(lines),
        *(_own(part, part.shape, np.float64) for part in law),
        -1.0,
        records,
        np.empty(lines, dtype=np.int8),
    )
    after, surprise = layout.state_of(records.reshape(n_frames, n, -1), d, information)
    pairs = zip(start, after, strict=True)
    return State(*(np.concatenate([one[None], more]) for one, more in pairs)), surprise


def _own(array: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """The array in a shape, contiguous and writeable as the compiled signatures ask."""
    array = np.asarray(array, dtype=dtype, order="C").reshape(shape)
    return array if array.flags.carray else array.copy()
