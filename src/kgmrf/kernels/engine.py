"""From trackers to compiled loops: arrays brought into shape, loops imported when first used.

Numba is not loaded before the first call here. Set ``KGMRF_ENGINE=readable`` in the environment to
keep to the readable step of :mod:`kgmrf.step`, of which the compiled loops are a twin.
"""

from __future__ import annotations

import importlib
import math
import os
import sys
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kgmrf._check import SYMMETRY_TOLERANCE
from kgmrf._types import Mask, Numbers
from kgmrf.gains import Gains
from kgmrf.kernels import layout
from kgmrf.kernels.layout import Law
from kgmrf.step import Model

if TYPE_CHECKING:
    from collections.abc import Iterator

MISSING, OBSERVED, INVALID = 0, 1, 2
LARGEST = 64
"""Up to this d the compiled loops win; above, the readable step with its BLAS products does."""
LARGEST_ROTATION = 3
"""The compiled logarithm is in closed form; larger rotations take the readable step."""

ROTATION_TOLERANCE = 1e-6
"""How far R^T R may be from I, as in `kgmrf._check.rotations`."""

EVERY = (
    "ensemble",
    "low_rank",
    "inspect",
    "rotations",
    "rotations_ahead",
    "rotation_chain",
    "rotation_smoother",
    "online",
    "sequence",
    "adjoint",
    "vector",
)
"""Modules whose loops are compiled when they are imported."""

_told = False
_loaded: dict[str, Any] = {}


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


def switched_off() -> bool:
    """Whether Numba compiles nothing (NUMBA_DISABLE_JIT=1)."""
    return os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")


def loops(name: str) -> Any:
    """The module ``online``, ``sequence`` or ``many`` of this package, compiled on first use."""
    module = _loaded.get(name)
    if module is None:
        # Threads that come here together wait for the import; in sys.modules they would find it
        # before it is complete.
        with _announced():
            module = _loaded[name] = importlib.import_module(f"kgmrf.kernels.{name}")
    return module


@contextmanager
def _announced() -> Iterator[None]:
    """Say once, on stderr, that compiling takes a while; say nothing if the cache has it."""
    from numba.core import event

    class Teller(event.Listener):
        def on_start(self, event: Any) -> None:
            global _told
            if not _told:
                _told = True
                sys.stderr.write("kgmrf: compiling for this machine, once (a minute or two) ...\n")
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
    for number in ("float64", "float32"):
        step_many(number)


@lru_cache(maxsize=2)
def step_many(number: str) -> Any:
    """The loop over many tracks for "float64" or "float32" numbers."""
    module = loops("many")
    with _announced():
        return module.step(number)


class Online:
    """One track on a desk of its own, ready for the next observation.

    strength: what `online.advance` calls m, for observations that do not tell it themselves.
    """

    def __init__(self, law: Law, gains: Gains, row: Numbers, strength: float | None) -> None:
        loop = loops("online")
        d = law.known.shape[-1]
        self.gains = gains
        self.shape = (d, d)
        self.dt = math.nan
        self.desk = layout.desk(law, d)
        loop.move_state(self.desk, np.array(row, order="C"), d, True)
        size = layout.record_size(d, bool(law.head[layout.INFORMATION]))
        rotation = bool(law.head[layout.ROTATION])
        tolerance = ROTATION_TOLERANCE if rotation else SYMMETRY_TOLERANCE
        # What an update needs, in one place: looking things up one by one would take longer.
        self.kit = (loop.advance, self.desk, self.shape, size, strength, tolerance)

    def step(self, matrix: Numbers | None, strength: float) -> Numbers:
        """Take in a checked matrix, or none; returns the record."""
        record = np.empty(self.kit[3])
        if matrix is None:
            self.kit[0](self.desk, np.zeros(self.shape), record, strength, -2.0)
        else:
            own = np.array(matrix, dtype=np.float64, order="C")
            self.kit[0](self.desk, own, record, strength, -1.0)
        return record

    def take_interval(self, dt: Any) -> bool:
        """Put the numbers of an interval on the desk; False if it is no plain number of time."""
        if dt == self.dt:
            return True
        if type(dt) not in (int, float) or not 0.0 <= dt < math.inf:
            return False
        numbers = layout.steps(self.gains, np.asarray(dt, dtype=float))
        self.desk[layout.TURN : layout.DT + 1] = numbers
        self.dt = dt
        return True

    def row(self) -> Numbers:
        """The state as it stands, as a row of its own."""
        d = self.shape[0]
        row = np.empty(layout.row_size(d))
        loops("online").move_state(self.desk, row, d, False)
        return row

    def __deepcopy__(self, memo: Any) -> Online:
        twin = object.__new__(Online)
        twin.__dict__.update(self.__dict__)
        twin.desk = self.desk.copy()
        twin.kit = (self.kit[0], twin.desk, *self.kit[2:])
        return twin


def run(
    law: Law,
    gains: Gains,
    rows: Numbers,
    sequence: Numbers,
    observed: Mask,
    counts: Numbers,
    dt: Numbers,
) -> tuple[Numbers, Numbers]:
    """Rows ``(..., size)`` after a sequence ``(T, ..., d, d)``, and the records of its frames.

    observed, counts and dt: ``(T, ...)``, or for dt ``(T,)``.
    """
    n_frames, d = sequence.shape[0], sequence.shape[-1]
    batch = rows.shape[:-1]
    n = int(np.prod(batch))
    after = np.array(rows, order="C").reshape(n, -1)
    steps, which = _intervals(gains, dt, n_frames, batch)
    size = layout.record_size(d, bool(law.head[layout.INFORMATION]))
    records = np.empty(n_frames * n * size)
    loops("sequence").run(
        after,
        _own(sequence, (n_frames, n, d, d), np.float64),
        _own(observed, (n_frames, n), np.bool_),
        _own(counts, (n_frames, n), np.float64),
        steps,
        which,
        law.head,
        law.tables,
        law.known,
        records,
    )
    return after.reshape(rows.shape), records.reshape((n_frames, *batch, -1))


def unroll(
    law: Law,
    rows: Numbers,
    sequence: Numbers,
    observed: Mask,
    counts: Numbers,
    steps: Numbers,
) -> Numbers:
    """All states of a sequence ``(T, n, d, d)`` from rows ``(n, size)``: ``(T + 1, n, size)``.

    Covariances after the warm-up only; steps ``(1 or T, 1 or n, 7)`` as `layout.steps`.
    """
    states = np.empty((sequence.shape[0] + 1, *rows.shape))
    states[0] = rows
    loops("adjoint").unroll(
        states, sequence, observed, counts, steps, law.head, law.tables, law.known
    )
    return states


class Slopes(NamedTuple):
    """Derivatives by what `unroll` was given; ``head`` and ``tables`` as in `Law`."""

    rows: Numbers
    sequence: Numbers
    counts: Numbers
    steps: Numbers
    tables: Numbers
    head: Numbers


def pull_back(
    law: Law,
    states: Numbers,
    sequence: Numbers,
    observed: Mask,
    counts: Numbers,
    steps: Numbers,
    bars: Numbers,
) -> Slopes:
    """The derivatives of a loss, from those by the states that `unroll` returned (used up)."""
    slopes = Slopes(
        rows=bars[0],
        sequence=np.zeros_like(sequence),
        counts=np.zeros_like(counts),
        steps=np.zeros_like(steps),
        tables=np.zeros_like(law.tables[0]),
        head=np.zeros_like(law.head),
    )
    loops("adjoint").pull_back(
        states, sequence, observed, counts, steps, law.head, law.tables, bars, *slopes[1:]
    )
    return slopes


def _intervals(
    gains: Gains, dt: Numbers, n_frames: int, batch: tuple[int, ...]
) -> tuple[Numbers, Numbers]:
    """What each distinct interval does ``(K, 1 or n, 7)``, and which one leads to a frame."""
    n = int(np.prod(batch))
    numbers = ("retention", "coast_retention", "acceleration", "angle_noise")
    shared = all(np.ndim(getattr(gains, name, 0.0)) == 0 for name in numbers)
    if shared:
        distinct, which = np.unique(dt, return_inverse=True)
        which = which.reshape(n_frames, -1)
        return layout.steps(gains, distinct)[:, None, :], np.ascontiguousarray(which)
    spread = dt.reshape(dt.shape + (1,) * (len(batch) + 1 - dt.ndim))
    full = np.broadcast_to(spread, (n_frames, *batch))
    steps = layout.steps(gains, full).reshape(n_frames, n, -1)
    return steps, np.arange(n_frames)[:, None].copy()


def inspect(matrices: Numbers, *, rotation: bool, tolerance: float | None = None) -> Numbers | None:
    """OBSERVED, MISSING or INVALID for every matrix of ``(..., d, d)``; None if not compiled."""
    batch, d = matrices.shape[:-2], matrices.shape[-1]
    if not compiles(d, rotation):
        return None
    status = np.empty(int(np.prod(batch)), dtype=np.int8)
    flat = _own(matrices, (status.size, d, d), np.float64)
    present = np.ones(status.size, dtype=bool)
    if tolerance is None:
        tolerance = ROTATION_TOLERANCE if rotation else SYMMETRY_TOLERANCE
    with np.errstate(invalid="ignore"):  # for when the compiler is switched off
        loops("sequence").inspect(flat, present, tolerance, rotation, status)
    return status.reshape(batch)


def inspect_covariances(matrices: Numbers) -> Numbers | None:
    """OBSERVED, MISSING or INVALID for every matrix of ``(..., d, d)``; None if not compiled."""
    batch, d = matrices.shape[:-2], matrices.shape[-1]
    if not compiles(1, False):
        return None
    status = np.empty(int(np.prod(batch)), dtype=np.int8)
    desk = layout.blank_desk(d)
    flat = _own(matrices, (status.size, d, d), np.float64)
    loops("inspect").inspect(flat, SYMMETRY_TOLERANCE, desk, status)
    return status.reshape(batch)


def compose(records: Numbers, d: int) -> Numbers:
    """M = Q diag(lam) Q^T, ``(..., d, d)``, of all records."""
    batch, size = records.shape[:-1], records.shape[-1]
    out = np.empty((int(np.prod(batch)), d, d))
    loops("sequence").compose(_own(records, (out.shape[0], size), np.float64), d, out)
    return out.reshape((*batch, d, d))


def _own(array: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """The array in a shape, contiguous and writeable as the compiled signatures ask."""
    array = np.asarray(array, dtype=dtype, order="C").reshape(shape)
    return array if array.flags.carray else array.copy()
