"""Sequences of the ensemble as an operator of PyTorch: forwards and backwards in the compiled core.

An operator (`torch.library`) is opaque to `torch.export` and `torch.compile`: what they trace stays
small, for any batch and any number of steps.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from kgmrf._types import Numbers
from kgmrf.engines import core
from kgmrf.engines import layout as at
from kgmrf.engines.ensemble import Ensemble

TRACKS_PER_THREAD = 4


class Steps(NamedTuple):
    """What the operator returns, ``(n, T, ...)``; matrices as packed lower triangles."""

    forecast: Tensor  # covariance before each observation
    scale: Tensor
    tails: Tensor
    size_std: Tensor
    log_prob: Tensor
    covariance: Tensor  # after it
    roots: Tensor
    rows: Tensor  # (n, T + 1, size), before each step and after the last; without derivatives


def plan_of(d: int, table: Tensor) -> at.Layout:
    """The layout of tracks with this table of members."""
    return at.places_of(d, table.detach().numpy().astype(np.float64))


def _loop(d: int, table: Tensor, learning: Tensor) -> tuple[Any, at.Layout]:
    plan = plan_of(d, table)
    settings = np.ascontiguousarray(learning.detach().numpy(), dtype=np.float64)
    return core.module().Ensemble(d, np.ascontiguousarray(plan.table), plan.places, settings), plan


def _numbers(value: Tensor) -> Numbers:
    return np.require(value.detach().numpy(), np.float64, ["C", "A", "W"])


def _in_threads(work: Any, n: int) -> None:
    """``work(part)`` of all n tracks, several parts at once."""
    threads = min(torch.get_num_threads(), max(1, n // TRACKS_PER_THREAD))
    edges = np.linspace(0, n, threads + 1).astype(int)
    parts = [slice(a, b) for a, b in pairwise(edges)]
    if threads == 1:
        work(parts[0])
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, parts))


@torch.library.custom_op("kgmrf::sequences", mutates_args=(), device_types="cpu")
def sequences(
    values: Tensor, counts: Tensor, dt: Tensor, table: Tensor, learning: Tensor, start: Tensor,
    matrix: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """All steps of n tracks; everything in double precision.

    values: ``(n, T, m, d)`` samples, or with ``matrix`` ``(n, T, d, d)``. counts, dt: ``(n, T)``.
    table, learning: as `kgmrf.engines.layout`. start: rows ``(n, size)``.
    """
    n, T, _, d = values.shape
    loop, plan = _loop(d, table, learning)
    engine = Ensemble(d, members_of(plan.table))
    rows = np.empty((n, T + 1, plan.size))
    rows[:, 0] = start.detach().numpy()
    before, after = np.empty((n, T, engine.record_size)), np.empty((n, T, engine.record_size))
    seen, weights, times = _numbers(values), _numbers(counts), _numbers(dt)
    none = _nothing()

    def work(part: slice) -> None:
        given = (rows[part], seen[part], weights[part], times[part], matrix)
        loop.unroll(False, *given, before[part], after[part], *none[:7], *none[7:])

    _in_threads(work, n)
    early, late = engine.read(before), engine.read(after)
    pairs = [np.ascontiguousarray(v) for v in (before[..., engine.dense :],)]
    low = np.tril_indices(d)
    square = (*before.shape[:-1], d, d)
    forecast, covariance = (
        r[..., engine.small : engine.dense].reshape(square)[..., low[0], low[1]]
        for r in (before, after)
    )
    parts = (forecast, pairs[0], early.tails, early.size_std, late.log_likelihood, covariance)
    tensors = [torch.from_numpy(np.array(v, order="C")) for v in (*parts, late.roots, rows)]
    return tuple(tensors)  # type: ignore[return-value]


def _nothing() -> list[Numbers]:
    shapes = (3, 3, 3, 2, 2, 3, 3, 4, 2, 2, 1)
    return [np.empty((0,) * k) for k in shapes]
