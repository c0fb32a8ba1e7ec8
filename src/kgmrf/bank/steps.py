"""One step of many tracks: observations that are checked before anything moves, and threads."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from kgmrf import _check
from kgmrf._check import ObservationError, OnInvalid
from kgmrf._mask import as_mask
from kgmrf._types import Mask, Numbers
from kgmrf.constants import ROTATION_TOLERANCE
from kgmrf.engines import INVALID, OBSERVED, Lines
from kgmrf.engines.core import inspect_covariances
from kgmrf.geometry import so
from kgmrf.trackers import _rates

TOLERANCES = {
    "covariance": (_check.SYMMETRY_TOLERANCE, 1e-4),
    "rotation": (ROTATION_TOLERANCE, 1e-3),
}
"""How far matrices may be off, in double and in single precision."""

ALONE = 512
"""A thread is not worth its while for fewer tracks than this."""


class UpdateStatus(NamedTuple):
    """What became of the observations of one step, one truth value per track.

    Parameters
    ----------
    observed : array of bool
        ``(n,)``: where an observation was used.
    invalid : array of bool
        ``(n,)``: where there was one that cannot be used.
    """

    observed: Mask
    invalid: Mask


def one_law(law: Any, d: int) -> None:
    """ValueError if the numbers of a law differ between tracks."""
    for name, value in () if isinstance(law, str) else vars(law).items():
        if np.ndim(value) and np.shape(value) != (d, d):
            raise ValueError(
                "a bank has one gain law for all tracks, with numbers, not arrays; "
                f"{name} has shape {np.shape(value)}"
            )


def checked(
    observations: Any, mask: Any, n: int, d: int, kind: str, raw: bool
) -> tuple[Numbers, Mask]:
    """Observations ``(n, r, d)`` of any real type, and where there are any."""
    seen = np.asarray(_check.fill_masked(observations))
    if raw and kind == "rotation":
        raise ObservationError("this bank follows rotations; samples make covariances")
    if raw and seen.ndim == 2:
        seen = seen[:, None, :]
    fits = seen.ndim == 3 and seen.shape[0] == n and seen.shape[-1] == d
    if not raw:
        fits = fits and seen.shape[1] == d
    if seen.dtype.kind not in "fiub" or not fits:
        wanted = f"({n}, {d}, {d})" + ("" if kind == "rotation" else f" or ({n}, {d})")
        raise ObservationError(
            f"observations must be real numbers of shape {wanted}, got {seen.dtype} of "
            f"shape {np.shape(observations)}; mark missing ones with NaN or mask=False"
        )
    if mask is None:
        return seen, np.ones(n, dtype=bool)
    if np.shape(mask) != (n,):
        raise ObservationError(f"mask must hold {n} truth values, got shape {np.shape(mask)}")
    return seen, as_mask(mask, (n,)).copy()


def checked_lines(
    tracks: Any, observations: Any, dt: Any, n_samples: Any, n_tracks: int, d: int
) -> Lines:
    """The lines of `TrackerBank.feed`, of arrays of their own."""
    which, seen = np.asarray(tracks), np.array(observations, dtype=float, order="C")
    n, matrix = len(which), seen.ndim == 3
    if which.dtype.kind not in "iu" or which.ndim != 1:
        raise IndexError(f"tracks must be positions (N,), got {which.dtype} of {which.shape}")
    if n and not (which.min() >= 0 and which.max() < n_tracks):
        raise IndexError(f"tracks must be positions 0 to {n_tracks - 1}, got {which}")
    if seen.shape != ((n, d, d) if matrix else (n, d)):
        raise ObservationError(
            f"{n} lines need observations ({n}, {d}) or ({n}, {d}, {d}), got {seen.shape}"
        )
    large = np.abs(seen) > _check.LARGEST_SAMPLE ** (1 + matrix)
    if large.any():
        refuse(seen, large.reshape(n, -1).any(axis=-1), "not finite or too large to square")
    counts, steps = np.empty(n), np.empty(n)
    counts[:], steps[:] = 1.0 if n_samples is None else n_samples, dt
    if not ((steps >= 0.0) & (steps < np.inf)).all():
        raise ObservationError(
            "dt must be at least 0 and finite, a number or one per line; got dt "
            f"from {steps.min()} to {steps.max()}"
        )
    if (counts != 0.0).any():  # 0: no observation
        _check.sample_counts(counts[counts != 0.0])
    if matrix:
        counts[np.isnan(seen[:, 0, 0])] = 0.0
    else:
        seen, counts = seen[:, None, :], np.ones(n)
    return Lines(which.astype(np.int64), seen, counts, steps, matrix)


def checked_rates(rates: Any, rate_std: float | None, n: int) -> Numbers | None:
    """Rates ``(n, 3)``, or ``(3,)`` for all, with their deviation ``(n, 4)``; None: there are none.

    >>> checked_rates([0.0, 0.0, 1.0], None, 2).tolist()
    [[0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 1.0, 0.0]]
    """
    if rates is None:
        return None
    array = np.asarray(rates, dtype=float)
    found = _rates.checked_rates(
        np.broadcast_to(array, (n, 3)) if array.shape == (3,) else array, rate_std, n
    )
    return np.ascontiguousarray(_rates.shaped_rates(found, (n,)))


def too_large(seen: Numbers, m: Numbers) -> Mask:
    """Which samples cannot be squared."""
    # The largest of all first: one pass, and nothing to keep.
    most = max(np.fmax.reduce(seen, None), -np.fmin.reduce(seen, None)) if seen.size else 0.0
    if most <= _check.LARGEST_SAMPLE:
        return np.zeros(len(seen), dtype=bool)
    return np.asarray((m > 0) & (np.abs(seen) > _check.LARGEST_SAMPLE).any(axis=(-2, -1)))


def repaired(
    kind: str, seen: Numbers, m: Numbers, on_invalid: OnInvalid, is_float32: bool
) -> tuple[Numbers, Numbers]:
    """Matrices that can be used, or an error that says what is wrong with the first."""
    rotation = kind == "rotation"
    if not rotation:
        status = inspect_covariances(seen, TOLERANCES[kind][is_float32])
        if not ((status == INVALID) & (m > 0)).any():
            return seen, np.where(status == OBSERVED, m, 0.0)
    there = (m > 0) & ~np.isnan(seen).all(axis=(-2, -1))
    finite = np.asarray(np.isfinite(seen).all(axis=(-2, -1)))
    if (there & ~finite).any():
        refuse(seen, there & ~finite, "not finite or partly NaN")
    check = _check.rotations if rotation else _check.covariances
    seen, used = check(seen, there, "observations", on_invalid, is_float32)
    if rotation:
        seen = np.ascontiguousarray(so.project(seen))
    return seen, np.where(used, m, 0.0)


def refuse(seen: Numbers, invalid: Mask, what: str) -> None:
    """Raise an ObservationError that names the first of the invalid observations."""
    first = int(np.argmax(invalid))
    raise ObservationError(
        f"observations[{first}] (and {int(invalid.sum()) - 1} others) is {what}; a missing "
        f"observation is all NaN; got {seen[first].tolist()!s:.80}"
    )


def processors() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def in_parts(work: Callable[[int, int], None], n_tracks: int, n_threads: int) -> None:
    """work(begin, end) over all tracks, shared out among threads if there are enough of them."""
    threads = max(1, min(n_threads, n_tracks // ALONE))
    if threads == 1:
        work(0, n_tracks)
        return
    edges = np.linspace(0, n_tracks, threads + 1).astype(int)
    list(_pool(threads, os.getpid()).map(work, edges[:-1].tolist(), edges[1:].tolist()))


@lru_cache(maxsize=4)
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    """Threads that stay, for starting them takes longer than many an update.

    A process that was forked has none of its parent's threads, so it gets a pool of its own.
    """
    return ThreadPoolExecutor(threads, thread_name_prefix="kgmrf-bank")
