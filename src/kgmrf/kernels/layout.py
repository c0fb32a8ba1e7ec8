"""Where everything lies: one row of numbers per track, one desk of numbers per tracker.

A row holds a whole `State` and the last `Surprise`; `rows` and `views` are the only places that
know the order. A desk is what the compiled loops work on: the settings of the step first, then
the state of one track spread out with rows padded to a multiple of eight, then scratch space.
Nothing here needs the compiler.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from kgmrf._types import Numbers
from kgmrf.gains import FixedGains, Gains, Transition, transition
from kgmrf.step import Model, State, Surprise

LANES = 8

# The matrices, vectors and numbers of a row, in order.
MATRICES = ("frame", "velocity", "uncertainty", "pool")
VECTORS = ("spectrum", "spectrum_var")
SCALARS = ("log_scale", "scale_var", "pool_samples", "pool_frames", "time", "seen", "steps")
SURPRISES = ("nis", "log_likelihood")

# Numbers at the head of a desk: settings ...
INFORMATION, NOISE_FLOOR, SPECTRUM_RATE, SCALE_RATE, SCALE_RETENTION = range(5)
WARMUP_SAMPLES, WARMUP_FRAMES, RIDGE, KNOWN, ROTATION = range(5, 10)
# ... what the interval does (gains.Transition), and its length ...
TURN, KEEP, COAST, ANGLE, CROSS, RATE, DT = range(10, 17)
# ... and the numbers of the track, in the order of SCALARS and SURPRISES.
LOG_SCALE, SCALE_VAR, POOL_SAMPLES, POOL_FRAMES, TIME, SEEN, STEPS, NIS, LIKELIHOOD = range(17, 26)
HEAD = 32

# Vectors of a desk, each of `stride` numbers ...
MASK, SPECTRUM, SPECTRUM_VAR, LEVEL, POWER, KNOWN_SPECTRUM, ORDER = range(7)
N_VECTORS = 8  # one to spare: matrices begin on a cache line
# ... and its matrices, each of stride x stride numbers.
(FRAME, VELOCITY, P11, P12, P22, POOL, SEEN_MATRIX, BODY, TURNING, POSITION, KICK) = range(11)
SCRATCH_A, SCRATCH_B, SCRATCH_C, SCRATCH_D, PLANES = range(11, 16)
N_MATRICES = 16


def stride(d: int) -> int:
    """Length of a padded matrix row: d rounded up to a multiple of eight."""
    return -(-d // LANES) * LANES


def row_size(d: int) -> int:
    """How many numbers a track of dimension d is."""
    return 6 * d * d + 2 * d + len(SCALARS) + len(SURPRISES)


def rows(state: State, surprise: Surprise) -> Numbers:
    """A state and its surprise as rows ``(..., row_size(d))``."""
    batch = state.time.shape
    parts = [np.reshape(getattr(state, name), (*batch, -1)) for name in MATRICES + VECTORS]
    parts += [getattr(state, name)[..., None] for name in SCALARS]
    parts += [part[..., None] for part in surprise]
    return np.concatenate(parts, axis=-1)


def views(row: Numbers, d: int) -> tuple[State, Surprise]:
    """The state and the surprise in rows ``(..., row_size(d))``, without copying."""
    batch = row.shape[:-1]
    fields: dict[str, Numbers] = {}
    at = 0
    for name in MATRICES + VECTORS + SCALARS + SURPRISES:
        shape: tuple[int, ...] = ()
        if name in MATRICES:
            shape = (3, d, d) if name == "uncertainty" else (d, d)
        elif name in VECTORS:
            shape = (d,)
        size = int(np.prod(shape))
        fields[name] = row[..., at : at + size].reshape((*batch, *shape))
        at += size
    surprise = Surprise(*(fields.pop(name) for name in SURPRISES))
    return State(**fields), surprise


def record_size(d: int, information: bool) -> int:
    """How many numbers an estimate needs of one frame: a third of a row."""
    planes = d * (d - 1) // 2
    return d * d + d + (1 + information) * planes + 4


class Record:
    """What an estimate shows, in records ``(..., record_size)``, sorted by descending eigenvalue.

    The frame, the spectrum, the planes i < j of the velocity and, with information gains, of
    var(angle), then time, seen, nis and log-likelihood. Matrices are made when asked for.
    """

    def __init__(self, numbers: Numbers, d: int, information: bool) -> None:
        self.numbers, self.d, self.information = numbers, d, information

    @property
    def frame(self) -> Numbers:
        """Eigenframe, ``(..., d, d)``."""
        d = self.d
        return self.numbers[..., : d * d].reshape((*self.numbers.shape[:-1], d, d))

    @property
    def spectrum(self) -> Numbers:
        """Eigenvalues, ``(..., d)``."""
        return self.numbers[..., self.d**2 : self.d**2 + self.d]

    @property
    def velocity(self) -> Numbers:
        """Angular velocity, skew, ``(..., d, d)``."""
        return self._planes(0, -1.0)

    @property
    def angle_var(self) -> Numbers:
        """Variance of the angle in every plane, NaN without information, ``(..., d, d)``."""
        if self.information:
            return self._planes(1, 1.0)
        return np.full((*self.numbers.shape[:-1], self.d, self.d), np.nan)

    def clock(self, name: str) -> Numbers:
        """time, seen, nis or log_likelihood, ``(...)``."""
        return self.numbers[..., ("time", "seen", *SURPRISES).index(name) - 4]

    def _planes(self, k: int, sign: float) -> Numbers:
        d = self.d
        n = d * (d - 1) // 2
        at = d * d + d + k * n
        planes = self.numbers[..., at : at + n]
        nothing = np.zeros((*planes.shape[:-1], 1))
        both = np.concatenate([planes, sign * planes, nothing], axis=-1)
        return both.take(_plane_index(d), axis=-1)


@lru_cache(maxsize=64)
def _plane_index(d: int) -> np.ndarray[Any, Any]:
    """Where each entry of a matrix is found in its upper planes, its lower planes and one zero."""
    rows, columns = np.triu_indices(d, 1)
    index = np.full((d, d), 2 * rows.size)
    index[rows, columns] = np.arange(rows.size)
    index[columns, rows] = rows.size + index[rows, columns]
    return index


class Law(NamedTuple):
    """A model as arrays: head ``(HEAD,)``; gains ``(k, 2, d, d)``, one table or one per item."""

    head: Numbers
    tables: Numbers
    known: Numbers


def law(model: Model, d: int, batch: tuple[int, ...], *, rotation: bool) -> Law | None:
    """The model for the compiled loops; None if its numbers differ where those cannot follow.

    Gains may differ between planes and between the items of a batch, the other numbers of a law
    between items only; ridge and spectrum_rate are the same for all.
    """
    gains = model.gains
    names = ["coast_retention", "retention"]
    if not isinstance(gains, FixedGains):
        names += ["acceleration", "angle_noise"]
    if np.ndim(model.spectrum_rate) or np.ndim(getattr(gains, "ridge", None) or 0.0):
        return None
    for name in names:
        shape = np.shape(getattr(gains, name))
        if _differs_in_planes(shape, d) or not _fits(shape, batch):
            return None
    head = np.zeros(HEAD)
    head[INFORMATION] = not isinstance(gains, FixedGains)
    head[NOISE_FLOOR] = model.noise_floor
    head[SPECTRUM_RATE] = model.spectrum_rate
    head[SCALE_RATE] = model.scale_rate
    head[SCALE_RETENTION] = model.scale_retention
    head[WARMUP_SAMPLES] = model.warmup_samples
    head[WARMUP_FRAMES] = model.warmup_frames
    head[KNOWN] = model.known_spectrum is not None
    head[ROTATION] = rotation
    tables = np.zeros((1, 2, d, d))
    if isinstance(gains, FixedGains):
        head[RIDGE] = np.nan if gains.ridge is None else gains.ridge
        both = [_planes(v, d) for v in (gains.position_gain, gains.velocity_gain)]
        if any(v.ndim > 2 and not _fits(v.shape[:-2], batch) for v in both):
            return None
        shared = all(v.ndim == 2 or v.shape[:-2] == (1,) * (v.ndim - 2) for v in both)
        shape = (1, d, d) if shared else (*batch, d, d)
        parts = [np.broadcast_to(v, shape).reshape(-1, d, d) for v in both]
        tables = np.stack(parts, axis=1)
    known = np.zeros((1, d))
    if model.known_spectrum is not None:
        known = np.asarray(model.known_spectrum, dtype=float)
        if known.ndim > 1:
            known = np.broadcast_to(known, (*batch, d)).copy()  # the loops want it writeable
        known = known.reshape(-1, d)
    return Law(head, np.ascontiguousarray(tables), np.ascontiguousarray(known))


def _differs_in_planes(shape: tuple[int, ...], d: int) -> bool:
    return len(shape) >= 2 and shape[-2:] == (d, d)


def _fits(shape: tuple[int, ...], batch: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(shape, batch) == batch
    except ValueError:
        return False


def _planes(number: object, d: int) -> Numbers:
    value = np.asarray(number, dtype=float)
    if not _differs_in_planes(value.shape, d):
        value = value[..., None, None]
    return np.broadcast_to(value, (*value.shape[:-2], d, d))


def steps(gains: Gains, dt: Numbers) -> Numbers:
    """What intervals ``dt`` do, ``(..., 7)``: the numbers of `Transition`, then dt itself."""
    numbers: Transition = transition(gains, np.asarray(dt, dtype=float))
    shape = np.broadcast_shapes(*(np.shape(v) for v in numbers))
    columns = [np.broadcast_to(v, shape) for v in (*numbers, dt)]
    return np.ascontiguousarray(np.stack(columns, axis=-1))


def desk_size(d: int) -> int:
    """How many numbers a desk has."""
    s = stride(d)
    return HEAD + N_VECTORS * s + N_MATRICES * s * s


def blank_desk(d: int) -> Numbers:
    """A desk without a law; starts on a cache line."""
    size = desk_size(d)
    room = np.zeros(size + LANES)
    shift = (-room.ctypes.data // 8) % LANES
    table = room[shift : shift + size]
    at = HEAD + MASK * stride(d)
    table[at : at + d] = 1.0
    return table


def desk(model: Law, d: int) -> Numbers:
    """A desk for one track under the first of the model's tables."""
    table = blank_desk(d)
    table[:HEAD] = model.head
    s = stride(d)
    vector = HEAD + np.arange(N_VECTORS) * s
    matrix = HEAD + N_VECTORS * s + np.arange(N_MATRICES) * s * s
    table[vector[LEVEL] : vector[LEVEL] + s] = 1.0
    planes = table[matrix[PLANES] : matrix[PLANES] + s * s].reshape(s, s)
    planes[:d, :d] = 1.0 - np.eye(d)
    table[vector[KNOWN_SPECTRUM] : vector[KNOWN_SPECTRUM] + d] = model.known[0]
    for slot, gain in zip((POSITION, KICK), model.tables[0], strict=True):
        table[matrix[slot] : matrix[slot] + s * s].reshape(s, s)[:d, :d] = gain
    return table
