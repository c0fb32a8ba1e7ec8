"""More tracks than one process holds: the trackers on dask, block by block of tracks.

Tracks never meet, so a block of them is a chain of tasks of its own: time goes on inside it, chunk
after chunk, with the state carried over.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from kgmrf import _check, _time
from kgmrf._check import ObservationError
from kgmrf._extras import optional
from kgmrf._time import stamps
from kgmrf._types import Numbers
from kgmrf.bank import TrackerBank
from kgmrf.trackers import Tracker
from kgmrf.trackers._samples import CovarianceTracker

__all__ = ["filter_array"]


_Looks: TypeAlias = dict[str, tuple[tuple[int, ...], np.dtype[Any]]]
"""Shape and type of each field, for one track at one time."""


class _Plan(NamedTuple):
    """What a block needs to know besides its frames."""

    pattern: Any  # a new tracker, or a bank without tracks
    fields: tuple[str, ...]  # none: all
    words: dict[str, Any]  # samples or n_samples
    times: Numbers | None = None  # (T,) of the whole sequence
    steps: Numbers | None = None  # (T,) time since the frame before


def filter_array(
    tracker: Any,
    frames: Any,
    *,
    fields: str | Sequence[str] | None = None,
    samples: bool = False,
    n_samples: float | None = None,
    times: Any = None,
    start: Sequence[Any] | None = None,
) -> dict[str, Any]:
    """The estimates of every track at every time, as dask arrays ``(time, ..., *field)`` by name.

    The chunks of the result are those of the frames. In a chunk of tracks the state goes from one
    chunk of time to the next, so neither all tracks nor all times need be in memory. Blocks of
    tracks that are multiples of 8 give what one bank gives, bit by bit; others to rounding.

    Parameters
    ----------
    tracker
        The pattern of all tracks: a bank without any, ``TrackerBank(0, d, ...)``, which is fastest,
        or a new tracker, such as ``KGMRF(d)``, which tunes itself.
    frames
        Dask array ``(time, ..., d, d)`` of covariances or rotations, or with ``samples=True``
        ``(time, ..., m, d)``, or rows ``(time, key, d)``, one sample of each track at each time;
        one or more axes of tracks; NaN: no observation.
    fields : str or Sequence[str], default None
        Which of `kgmrf.results.FIELDS`; default the covariance or the rotation. "state" is a list:
        one delayed bank or tracker for each chunk of tracks, as the last frame left it.
    samples : bool, default False
        Dask array of samples, time along its first axis.
    n_samples : float, default None
        Samples behind each matrix, unless the tracker knows.
    times : default None
        ``(time,)`` time stamps or dates that do not decrease; default one unit per frame.
    start : Sequence[Any], default None
        Go on from such a list of states, computed or not. Then ``times`` has one stamp more, in
        front: that of the last frame before.

    Examples
    --------
    >>> import dask.array as da
    >>> from kgmrf import TrackerBank
    >>> frames = da.tile(da.from_array(np.diag([2.0, 0.5])), (30, 16, 1, 1)).rechunk((10, 8, 2, 2))
    >>> found = filter_array(TrackerBank(0, 2, n_samples=8), frames, fields=["velocity", "age"])
    >>> found["age"].chunks
    ((10, 10, 10), (8, 8))
    >>> found["velocity"].compute().shape
    (30, 16, 2, 2)
    """
    with optional():
        import dask.array
        from dask.delayed import delayed

    da: Any = dask.array  # half of it has no types
    frames = da.asarray(frames)
    if samples and frames.ndim == 3:  # a sample per track and time
        frames = frames[:, :, None, :]
    names = (fields,) if isinstance(fields, str) else None if fields is None else tuple(fields)
    arrays = None if names is None else tuple(name for name in names if name != "state")
    going_on = start is not None
    plan, looks = _planned(tracker, frames.shape, arrays, samples, n_samples, times, going_on)
    frames = frames.rechunk({frames.ndim - 2: -1, frames.ndim - 1: -1})
    blocks = frames.to_delayed()[..., 0, 0]
    places = list(np.ndindex(blocks.shape[1:]))
    states = [None] * len(places) if start is None else list(start)
    if len(states) != len(places):
        raise ValueError(
            f"start has {len(states)} states for {len(places)} chunks of tracks; rechunk the "
            "frames as they were when the states were made"
        )
    chunks = frames.chunks[:-2]
    for state, place in zip(states, places, strict=True):
        if isinstance(state, (Tracker, TrackerBank)):  # others are not computed yet
            _fit(state, tuple(axis[i] for axis, i in zip(chunks[1:], place, strict=True)))
    starts = np.concatenate([[0], np.cumsum(chunks[0])])
    shared_plan = delayed(plan, traverse=False)
    step = delayed(_advance, nout=2)
    grids = {name: np.empty(blocks.shape, dtype=object) for name in plan.fields}
    for j, place in enumerate(places):
        for k in range(blocks.shape[0]):
            at = (k, *place)
            states[j], found = step(shared_plan, states[j], blocks[at], int(starts[k]))
            size = tuple(axis[i] for axis, i in zip(chunks, at, strict=True))
            for name, (shape, dtype) in looks.items():
                grids[name][at] = da.from_delayed(found[name], (*size, *shape), dtype)
    for name, (shape, _) in looks.items():  # one block along every axis of the field itself
        grids[name] = grids[name].reshape(*blocks.shape, *[1] * len(shape))
    made = {name: da.block(grid.tolist()) for name, grid in grids.items()}
    return made | ({"state": states} if "state" in (names or ()) else {})


def _planned(
    tracker: Any,
    shape: tuple[int, ...],
    fields: tuple[str, ...] | None,
    samples: bool,
    n_samples: float | None,
    times: Any,
    going_on: bool,
) -> tuple[_Plan, _Looks]:
    """Everything checked before the first task is made; and what every field will look like."""
    if not isinstance(tracker, (Tracker, TrackerBank)) or getattr(tracker, "axes", 2) != 2:
        raise TypeError(
            f"the pattern of all tracks is a tracker of matrices, such as KGMRF(n_samples=8), or "
            f"a bank without tracks, TrackerBank(0, d, n_samples=8); got {tracker!r}"
        )
    begun = len(tracker) if isinstance(tracker, TrackerBank) else tracker.batch_shape is not None
    if begun:
        raise ValueError(
            "the pattern of all tracks must not have tracks of its own: give "
            "TrackerBank(0, d, ...), or a new tracker"
        )
    d = tracker.d or shape[-1]
    wanted = "(time, ..., m, d) or (time, key, d)" if samples else "(time, ..., d, d)"
    if len(shape) < 4 or 0 in shape or shape[-1] != d or (not samples and shape[-2] != d):
        raise ObservationError(
            f"the frames of these tracks, d = {d}, must have shape {wanted} with at least one axis "
            f"of tracks and nothing empty, got {shape}"
            + "; rows (time, key, d) need samples=True"
            * (len(shape) == 3 and not samples)
        )
    if samples and (
        n_samples is not None
        or not (isinstance(tracker, CovarianceTracker) or tracker.kind == "covariance")
    ):
        raise ValueError("raw samples are for covariances, and n_samples is inferred: leave it out")
    plan = _Plan(tracker, (), {"samples": True} if samples else {"n_samples": n_samples})
    available = _looks(plan, shape)
    if fields is None:
        fields = ("rotation" if "rotation" in available else "covariance",)
    for name in fields:
        _check.choice(name, tuple(available), "every one of fields")
    if times is not None:
        times = np.asarray(stamps(times), dtype=float)
        if going_on and times.shape == shape[:1]:
            raise ObservationError(
                f"times has shape {times.shape}, one stamp for each frame; with start= it has one "
                f"more, in front, ({shape[0] + 1},): that of the last frame before"
            )
        _time.timeline(times, shape[0] + going_on, None)
        steps = np.diff(times) if going_on else np.diff(times, prepend=times[0])
        plan = plan._replace(times=times[int(going_on) :], steps=steps)
    return plan._replace(fields=fields), {name: available[name] for name in fields}


def _looks(plan: _Plan, shape: tuple[int, ...]) -> _Looks:
    """The fields of a tracker, from a trial on one frame of one track."""
    m, d = shape[-2:]
    frame = np.resize(np.eye(d), (m, d))
    fields = _advance(plan, None, frame[None, None], 0)[1]
    looks = {name: (value.shape[2:], value.dtype) for name, value in fields.items()}
    if "loadings" in looks:  # many channels: matrices are made of the factors when asked for
        looks["covariance"] = (d, d), looks["noise"][1]
    return looks


def _fit(state: Any, batch: tuple[int, ...]) -> None:
    """ValueError unless this is the state of a chunk of such tracks."""
    bank = isinstance(state, TrackerBank)
    known = (len(state),) if bank else state.batch_shape
    if known != ((math.prod(batch),) if bank else batch):
        raise ValueError(
            f"start has a state of {known} tracks for a chunk of {batch}; rechunk the frames as "
            "they were when the states were made"
        )


def _advance(
    plan: _Plan, state: Any, frames: Numbers, first: int
) -> tuple[Any, dict[str, Numbers]]:
    """The state after ``frames`` (T, ..., d, d), which begin at number ``first``; and the fields.

    state: None before the first frame. It is left as it was: a task may be run twice.
    """
    batch, these = frames.shape[1:-2], slice(first, first + len(frames))
    updated = (plan.pattern if state is None else state).copy()
    if state is not None:
        _fit(state, batch)
    try:
        if isinstance(updated, TrackerBank):
            if state is None:
                updated.add(math.prod(batch))
            steps = np.ones(len(frames)) if plan.steps is None else plan.steps[these]
            return updated, _through_bank(updated, plan.fields, frames, steps, plan.words)
        times = None if plan.times is None else plan.times[these]
        result = updated.filter(frames, times=times, **plan.words)
    except ObservationError as error:
        error.add_note(f"in a block of tracks {batch}, frames {first} to {these.stop - 1}")
        raise
    return updated, {name: getattr(result, name) for name in plan.fields or result.fields()}


def _through_bank(
    bank: TrackerBank, fields: tuple[str, ...], frames: Numbers, steps: Numbers, words: Any
) -> dict[str, Numbers]:
    bank.n_threads = 1  # the processors are shared out by dask
    found: dict[str, list[Numbers]] = {}
    for frame, dt in zip(frames, steps, strict=True):
        bank.update(np.reshape(frame, (-1, *frame.shape[-2:])), dt=dt, **words)
        shown = bank.estimate()
        for name in fields or shown.fields():
            found.setdefault(name, []).append(getattr(shown, name))
    stacked = {name: np.stack(parts) for name, parts in found.items()}
    return {k: v.reshape(*frames.shape[:-2], *v.shape[2:]) for k, v in stacked.items()}
