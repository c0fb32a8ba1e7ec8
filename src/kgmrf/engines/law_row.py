"""Where the numbers of a single law's track lie in its row; the only place that knows.

============  ===========  =======================================================================
clocks        (9,)         time, seen, steps, pooled_samples, pooled_steps, log_scale, scale_var,
                           nis, log_likelihood
frame         (d d)
spectrum      (d)
spectrum_var  (d)
velocity      (planes)     the planes i > j of W
P             (3, planes)  information gains only: var(angle), cov(angle, velocity), var(velocity)
pool          (pairs)      lower triangle, row by row; zero once the cold start is over
============  ===========  =======================================================================

A record is the beginning of a row, up to var(angle). The core is handed `places`; a model as arrays
(`plan`) is what its loop is made from.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from kgmrf._types import Numbers
from kgmrf.constants import STRUCTS
from kgmrf.model.gains import FixedGains, Gains, Transition, transition
from kgmrf.model.law_state import Model, State, Surprise

HEAD = STRUCTS["LawHead"]
TIME, SEEN, STEPS, POOL_SAMPLES, POOL_FRAMES, LOG_SCALE, SCALE_VAR, NIS, LIKELIHOOD = range(9)
CLOCKS = HEAD[:NIS]
N_STEP = len(STRUCTS["LawStep"])


@lru_cache(maxsize=64)
def slices(d: int, information: bool) -> dict[str, slice]:
    """Where the parts of a row are, by name."""
    planes = d * (d - 1) // 2
    sizes = {"clocks": len(HEAD), "frame": d * d, "spectrum": d, "spectrum_var": d}
    sizes["velocity"] = planes
    if information:
        sizes |= dict.fromkeys(("p11", "p12", "p22"), planes)
    sizes["pool"] = d * (d + 1) // 2
    ends = accumulate(sizes.values())
    return {name: slice(end - sizes[name], end) for name, end in zip(sizes, ends, strict=True)}


def places(d: int, information: bool) -> dict[str, int]:
    """Where the parts of a row begin, and where it ends, as the core needs it."""
    every = slices(d, information)
    return {name: part.start for name, part in every.items()} | {"end": every["pool"].stop}


def row_size(d: int, information: bool) -> int:
    """How many numbers a track is.

    >>> row_size(7, True)
    184
    """
    return int(slices(d, information)["pool"].stop)


def record_size(d: int, information: bool) -> int:
    """How many numbers of a row an estimate needs."""
    return int(slices(d, information)["p11" if information else "velocity"].stop)


def parts(rows: Numbers, d: int, information: bool) -> dict[str, Numbers]:
    """The parts of rows or records by name, as views; planes and pool as they lie."""
    return {name: rows[..., at] for name, at in slices(d, information).items()}


def state_of(rows: Numbers, d: int, information: bool) -> tuple[State, Surprise]:
    """What rows ``(..., row_size)`` hold, in full matrices."""
    part, batch = parts(rows, d, information), rows.shape[:-1]
    zero = np.zeros((*batch, d, d))
    names = ("p11", "p12", "p22")
    spread = [folded(part[name], d, 1.0) if information else zero for name in names]
    low, high = np.tril_indices(d)
    pool = zero.copy()
    pool[..., low, high] = pool[..., high, low] = part["pool"]
    clocks = part["clocks"]
    state = State(
        frame=part["frame"].reshape(*batch, d, d),
        spectrum=part["spectrum"],
        velocity=folded(part["velocity"], d, -1.0),
        uncertainty=np.stack(spread, axis=-3),
        spectrum_var=part["spectrum_var"],
        pool=pool,
        **{name: clocks[..., k] for k, name in enumerate(CLOCKS)},
    )
    return state, Surprise(clocks[..., NIS], clocks[..., LIKELIHOOD])


def rows_of(state: State, surprise: Surprise, information: bool) -> Numbers:
    """The inverse of `state_of`."""
    d, batch = state.frame.shape[-1], state.time.shape
    lower, low = np.tril_indices(d, -1), np.tril_indices(d)
    numbers = [getattr(state, name) for name in CLOCKS] + list(surprise)
    pieces = [np.stack(numbers, axis=-1), state.frame.reshape(*batch, d * d)]
    pieces += [state.spectrum, state.spectrum_var, state.velocity[..., lower[0], lower[1]]]
    if information:
        pieces += [state.uncertainty[..., k, lower[0], lower[1]] for k in range(3)]
    return np.concatenate([*pieces, state.pool[..., low[0], low[1]]], axis=-1)


def folded(planes: Numbers, d: int, sign: float) -> Numbers:
    """Numbers of the planes i > j as matrices, times ``sign`` above the diagonal.

    >>> folded(np.array([2.0]), 2, -1.0).tolist()
    [[0.0, -2.0], [2.0, 0.0]]
    """
    nothing = np.zeros((*planes.shape[:-1], 1))
    both = np.concatenate([planes, sign * planes, nothing], axis=-1)
    return both.take(_plane_index(d), axis=-1)


@lru_cache(maxsize=64)
def _plane_index(d: int) -> np.ndarray[Any, Any]:
    """Where each entry of a matrix is found in its lower planes, its upper planes and one zero."""
    rows, columns = np.tril_indices(d, -1)
    index = np.full((d, d), 2 * rows.size)
    index[rows, columns] = np.arange(rows.size)
    index[columns, rows] = rows.size + index[rows, columns]
    return index


# --------------------------------------------------------------------------- laws


class Plan(NamedTuple):
    """A model as arrays: settings, the numbers of a ``LawSettings``; tables ``(k, 2, d, d)``, the
    gains A and B, one pair for all tracks or one each; known ``(k, d)``, the given spectrum."""

    settings: Numbers
    tables: Numbers
    known: Numbers


def plan(model: Model, d: int, batch: tuple[int, ...], *, rotation: bool) -> Plan | None:
    """The model for the core; None if its numbers differ where the core cannot follow.

    Gains may differ between planes and between the items of a batch, the other numbers of a law
    between items only; ridge and spectrum_rate are the same for all.
    """
    gains = model.gains
    fixed = isinstance(gains, FixedGains)
    names = ["coast_retention", "retention"]
    if not fixed:
        names += ["acceleration", "angle_noise"]
    ridge = getattr(gains, "ridge", None)
    if np.ndim(model.spectrum_rate) or np.ndim(ridge or 0.0):
        return None
    for name in names:
        shape = np.shape(getattr(gains, name))
        if _differs_in_planes(shape, d) or not _fits(shape, batch):
            return None
    numbers = {
        "information": not fixed,
        "ridge": np.nan if ridge is None else ridge,
        "known": model.known_spectrum is not None,
        "rotation": rotation,
    }
    settings = [numbers.get(name, getattr(model, name, None)) for name in STRUCTS["LawSettings"]]
    tables = np.zeros((1, 2, d, d))
    if isinstance(gains, FixedGains):
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
            known = np.broadcast_to(known, (*batch, d))
        known = known.reshape(-1, d)
    arrays = (np.array(settings, dtype=float), tables, known)
    return Plan(*(np.ascontiguousarray(part, dtype=float) for part in arrays))


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
