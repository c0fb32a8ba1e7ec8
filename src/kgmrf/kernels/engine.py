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

from kgmrf._check import SYMMETRY_TOLERANCE
from kgmrf._types import Mask, Numbers
from kgmrf.gains import Gains
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

EVERY = ("ensemble", "low_rank", "inspect", "rotations", "adjoint")
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


def run(
    law: Law,
    gains: Gains,
    states: Numbers,
    sequence: Numbers,
    observed: Mask,
    counts: Numbers,
    dt: Numbers,
    room: int | None = None,
) -> tuple[Numbers, Numbers]:
    """Rows ``(..., size)`` after a sequence ``(T, ..., d, d)``, and the records of its frames.

    observed and counts (samples, or noise variances): ``(T, ...)``; dt ``(T,)`` or ``(T, ...)``.
    """
    n_frames, batch = sequence.shape[0], states.shape[:-1]
    n = int(np.prod(batch))
    spread = dt.reshape(dt.shape + (1,) * (len(batch) + 1 - dt.ndim))
    full = np.broadcast_to(spread, (n_frames, *batch))
    numbers = ("retention", "coast_retention", "acceleration", "angle_noise")
    if all(np.ndim(getattr(gains, name, 0.0)) == 0 for name in numbers):
        distinct, which = np.unique(full, return_inverse=True)
        steps = layout.steps(gains, distinct)
    else:
        steps, which = layout.steps(gains, full), np.arange(full.size)
    after = np.array(states, order="C").reshape(n, -1)
    inputs = (sequence, observed, counts, steps.reshape(-1, 7), which.reshape(-1))
    records = _lines(law, after, *inputs, room)
    return after.reshape(states.shape), records.reshape((n_frames, *batch, -1))


def _lines(
    law: Law,
    rows: Numbers,
    sequence: Numbers,
    observed: Mask,
    counts: Numbers,
    steps: Numbers,
    which: Numbers,
    room: int | None,
) -> Numbers:
    """Every row through its frames; the records."""
    d, n, lines = sequence.shape[-1], len(rows), observed.size
    if room is None:
        room = layout.record_size(d, bool(law.head[layout.INFORMATION]))
    records = np.empty((lines, room))
    law_loop(bool(law.head[layout.ROTATION]))(
        rows,
        np.tile(np.arange(n), lines // max(n, 1)),
        _own(sequence, (lines, d, d), np.float64),
        _own(observed, (lines,), np.int8),
        _own(counts, (lines,), np.float64),
        _own(steps, steps.shape, np.float64),
        _own(which, (lines,), np.int64),
        *(_own(part, part.shape, np.float64) for part in (law.head, law.tables, law.known)),
        -1.0,
        records,
        np.empty(lines, dtype=np.int8),
    )
    return records


def unroll(
    law: Law, start: State, sequence: Numbers, observed: Mask, counts: Numbers, steps: Numbers
) -> tuple[State, Surprise]:
    """All states ``(T + 1, n, ...)`` of a sequence ``(T, n, d, d)``, and its surprises ``(T, n)``.

    Covariances after the warm-up only; steps ``(1 or T, 1 or n, 7)`` as `layout.steps`.
    """
    n_frames, n, d = sequence.shape[:3]
    information = bool(law.head[layout.INFORMATION])
    full = np.broadcast_to(steps, (n_frames, n, 7)).reshape(-1, 7)
    first = layout.rows_of(start, Surprise(start.time, start.time), information)
    inputs = (sequence, observed, counts, np.ascontiguousarray(full), np.arange(len(full)))
    records = _lines(law, first, *inputs, layout.row_size(d, information))
    after, surprise = layout.state_of(records.reshape(n_frames, n, -1), d, information)
    pairs = zip(start, after, strict=True)
    return State(*(np.concatenate([one[None], more]) for one, more in pairs)), surprise


def inspect_covariances(matrices: Numbers, tolerance: float = SYMMETRY_TOLERANCE) -> Numbers | None:
    """OBSERVED, MISSING or INVALID for every matrix of ``(..., d, d)``; None if not compiled."""
    batch, d = matrices.shape[:-2], matrices.shape[-1]
    if not compiles(1, False):
        return None
    status = np.empty(int(np.prod(batch)), dtype=np.int8)
    flat = _own(matrices, (status.size, d, d), np.float64)
    loops("inspect").inspect(flat, tolerance, layout.aligned(layout.work_size(d)), status)
    return status.reshape(batch)


def _own(array: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """The array in a shape, contiguous and writeable as the compiled signatures ask."""
    array = np.asarray(array, dtype=dtype, order="C").reshape(shape)
    return array if array.flags.carray else array.copy()
