"""One block of tracks through one stretch of time: what every task does."""

from __future__ import annotations

import importlib
import math
from typing import Any, NamedTuple

import numpy as np

from kgmrf import _check
from kgmrf._check import ObservationError
from kgmrf._types import Numbers
from kgmrf.bank import TrackerBank
from kgmrf.trackers import Tracker
from kgmrf.trackers._samples import CovarianceTracker

ALONE = ("covariance", "rotation", "time", "age", "nis", "log_likelihood")
"""What a bank tells without working out all of an estimate."""


class Plan(NamedTuple):
    """What a block needs to know besides its frames."""

    pattern: Any  # a tracker that has seen nothing, or a bank without tracks
    fields: tuple[str, ...]
    samples: bool
    n_samples: float | None
    times: Numbers | None  # (T,) of the whole sequence


class Kind(NamedTuple):
    """How a field looks for one track at one time."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def needed(name: str) -> Any:
    """A module of the extra, or an error that says how to get it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise ImportError(f"kgmrf.dask needs {package}: pip install 'kgmrf[dask]'") from error


def planned(
    tracker: Any,
    shape: tuple[int, ...],
    fields: Any,
    samples: bool,
    n_samples: float | None,
    times: Any,
) -> tuple[Plan, dict[str, Kind]]:
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
            "TrackerBank(0, d, ...), or a tracker that has seen nothing"
        )
    d = tracker.d or shape[-1]
    wanted = "(time, ..., m, d)" if samples else "(time, ..., d, d)"
    if len(shape) < 4 or 0 in shape or shape[-1] != d or (not samples and shape[-2] != d):
        raise ObservationError(
            f"the frames of these tracks, d = {d}, must have shape {wanted} with at least one axis "
            f"of tracks and nothing empty, got {shape}"
        )
    if samples and (
        n_samples is not None
        or not (isinstance(tracker, CovarianceTracker) or tracker.kind == "covariance")
    ):
        raise ValueError("raw samples are for covariances, and count themselves: no n_samples")
    if times is not None:
        times = np.asarray(times, dtype=float)
        _check.timeline(times, shape[0], None)
    plan = Plan(tracker, (), samples, n_samples, times)
    available = _kinds(plan, shape)
    if fields is None:
        fields = ("rotation" if "rotation" in available else "covariance",)
    fields = (fields,) if isinstance(fields, str) else tuple(fields)
    for name in fields:
        _check.choice(name, tuple(available), "every one of fields")
    return plan._replace(fields=fields), {name: available[name] for name in fields}


def advance(plan: Plan, state: Any, frames: Numbers, first: int) -> tuple[Any, dict[str, Numbers]]:
    """The state after ``frames`` (T, ..., d, d), which begin at number ``first``; and the fields.

    state: None before the first frame. It is left as it was: a task may be run twice.
    """
    batch = frames.shape[1:-2]
    try:
        if isinstance(plan.pattern, TrackerBank):
            return _advance_bank(plan, state, frames, first, batch)
        tracker = (plan.pattern if state is None else state).copy()
        stamps = None if plan.times is None else plan.times[first : first + len(frames)]
        words: dict[str, Any] = {"samples": True} if plan.samples else {"n_samples": plan.n_samples}
        result = tracker.filter(frames, times=stamps, **words)
    except ObservationError as error:
        error.add_note(f"in a block of tracks {batch}, frames {first} to {first + len(frames) - 1}")
        raise
    return tracker, {name: getattr(result, name) for name in plan.fields or result.fields()}


def _advance_bank(
    plan: Plan, state: Any, frames: Numbers, first: int, batch: tuple[int, ...]
) -> tuple[TrackerBank, dict[str, Numbers]]:
    n_frames, n = len(frames), math.prod(batch)
    bank: TrackerBank = (plan.pattern if state is None else state).copy()
    bank.n_threads = 1  # the processors are shared out by dask
    if state is None:
        bank.add(n)
    steps = np.ones(n_frames)
    if plan.times is not None:
        steps = np.diff(plan.times, prepend=plan.times[0])[first : first + n_frames]
    found: dict[str, list[Numbers]] = {}
    for frame, dt in zip(frames, steps, strict=True):
        seen = np.asarray(frame).reshape(n, *frames.shape[-2:])
        told: Any = {"samples": True} if plan.samples else {"n_samples": plan.n_samples}
        bank.update(seen, dt=dt, **told)
        quick = bool(plan.fields) and set(plan.fields) <= set(ALONE)
        shown = bank if quick else bank.estimate()
        for name in plan.fields or bank.estimate().fields():
            # A copy: what a bank tells of its clocks is a view.
            found.setdefault(name, []).append(np.array(getattr(shown, name)))
    stacked = {name: np.stack(parts) for name, parts in found.items()}
    return bank, {k: v.reshape(n_frames, *batch, *v.shape[2:]) for k, v in stacked.items()}


def _kinds(plan: Plan, shape: tuple[int, ...]) -> dict[str, Kind]:
    """The fields of a tracker, from a trial on one frame of one track."""
    m, d = shape[-2:]
    frame = np.resize(np.eye(d), (m, d)) if plan.samples else np.eye(d)
    once = plan._replace(times=None)
    fields = advance(once, None, frame[None, None], 0)[1]
    kinds = {name: Kind(value.shape[2:], value.dtype) for name, value in fields.items()}
    if "loadings" in kinds:  # many channels: matrices are made of the factors when asked for
        kinds["covariance"] = Kind((d, d), kinds["noise"].dtype)
    return kinds
