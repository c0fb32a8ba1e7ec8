"""What both stores of a bank share: the outcome of a step, and threads."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from kgmrf._types import Mask, Numbers

ALONE = 512
"""A thread is not worth its while for fewer tracks than this."""


class Taken(NamedTuple):
    """What became of the observations of one step, one truth value per track."""

    observed: Mask
    invalid: Mask


def processors() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def in_parts(work: Callable[[int, int], None], size: int, n_tracks: int, n_threads: int) -> None:
    """work(begin, end) over 0..size, shared out among threads if there are enough tracks."""
    threads = max(1, min(n_threads, n_tracks // ALONE))
    if threads == 1:
        work(0, size)
        return
    edges = np.linspace(0, size, threads + 1).astype(int)
    list(_pool(threads, os.getpid()).map(work, edges[:-1].tolist(), edges[1:].tolist()))


@lru_cache(maxsize=4)
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    """Threads that stay, for starting them takes longer than many an update.

    A process that was forked has none of its parent's threads, so it gets a pool of its own.
    """
    return ThreadPoolExecutor(threads, thread_name_prefix="kgmrf-bank")


def rounds(which: Numbers) -> list[Numbers]:
    """Lines that can be taken in together: the first of every track, then the second, ..."""
    order = np.argsort(which, kind="stable")
    ordered = which[order]
    first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    place = np.arange(len(order)) - np.repeat(first, np.diff(np.append(first, len(order))))
    by_place = np.argsort(place, kind="stable")
    edges = np.cumsum(np.bincount(place))[:-1]
    return [np.sort(part) for part in np.split(order[by_place], edges)]
