"""Sequences of the ensemble as an operator of PyTorch: forwards and backwards in the compiled core.

An operator (`torch.library`) is opaque to `torch.export` and `torch.compile`: what they trace stays
small, for any batch and any number of steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from kgmrf._types import Numbers
from kgmrf.engines import core
from kgmrf.engines import layout as at

TRACKS_PER_THREAD = 4


class Steps(NamedTuple):
    """What the operator returns, ``(n, T, ...)``; symmetric matrices as lower triangles."""

    forecast: Tensor  # covariance before each observation
    scale: Tensor  # of its density
    tails: Tensor
    size_std: Tensor
    log_prob: Tensor
    covariance: Tensor  # after the observation
    weights: Tensor  # of the members, after it
    youth: Tensor  # delta and c of the forecast (`kgmrf.youth`); without derivatives
    rows: Tensor  # before each step, and after the last (n, T + 1, size); or the last (n, 1, size)


def _widths(d: int, members: int) -> tuple[int | None, ...]:
    """Of the `Steps` but for their rows; None: one number a step."""
    pairs = d * (d + 1) // 2
    return pairs, pairs, at.N_TAILS, None, None, pairs, members, 2


def _numbers(value: Tensor) -> Numbers:
    return np.require(value.detach().numpy(), np.float64, ["C", "A", "W"])


def _nothing(axes: int) -> Numbers:
    return np.empty((0,) * axes)


def _loop(d: int, table: Tensor, learning: Tensor) -> tuple[Any, at.Layout]:
    """The loop of these members; they and how they learn may change with every call."""
    plan = at.placed(d, _numbers(table), at.Learning(*learning.tolist()))
    if core.compiled() is None:
        raise RuntimeError(
            "LawLayer runs in the compiled core, which is not built here or switched off by "
            "KGMRF_ENGINE=readable; install a wheel, or use LawLayer"
        )
    made = core.loop("Ensemble", d, plan.table, plan.places, np.array(plan.learning))
    return made, plan


def _in_threads(work: Callable[[int, slice], None], n: int) -> None:
    """``work(number, part)`` of all n tracks, several parts at once."""
    threads = min(torch.get_num_threads(), max(1, n // TRACKS_PER_THREAD))
    edges = np.linspace(0, n, threads + 1).astype(int)
    parts = [slice(a, b) for a, b in pairwise(edges)]
    if threads == 1:
        work(0, parts[0])
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(threads), parts))


@torch.library.custom_op("kgmrf::sequences", mutates_args=(), device_types="cpu")
def sequences(
    values: Tensor,
    counts: Tensor,
    dt: Tensor,
    table: Tensor,
    learning: Tensor,
    start: Tensor,
    matrix: bool,
    keep: bool,
    reach: int,
) -> list[Tensor]:
    """The `Steps` of n tracks; everything in double precision.

    values: ``(n, T, m, d)`` samples, or with ``matrix`` ``(n, T, d, d)``. counts, dt: ``(n, T)``;
    counts 0: no observation. table, learning: see `kgmrf.engines.layout`. start: ``(n, size)``.
    keep: all rows, which the way back needs. reach: derivatives do not pass back through every
    reach-th step.
    """
    n, T, _, d = values.shape
    loop, plan = _loop(d, table, learning)
    rows = np.empty((n, T + 1 if keep else 1, plan.size))
    rows[:, 0] = _numbers(start)
    seen = [_numbers(part) for part in (values, counts, dt)]
    widths = _widths(d, len(plan.table))
    found = [np.empty((n, T) if width is None else (n, T, width)) for width in widths]

    def work(_: int, part: slice) -> None:
        lines = (line[part] for line in seen)
        loop.forwards(rows[part], *lines, matrix, *(one[part] for one in found))

    _in_threads(work, n)
    return [torch.from_numpy(one) for one in (*found, rows)]


@sequences.register_fake
def _shapes(
    values: Tensor,
    counts: Tensor,
    dt: Tensor,
    table: Tensor,
    learning: Tensor,
    start: Tensor,
    matrix: bool,
    keep: bool,
    reach: int,
) -> list[Tensor]:
    n, T, _, d = values.shape
    widths = _widths(d, table.shape[0])
    shapes = [(n, T) if width is None else (n, T, width) for width in widths]
    rows = (n, T + 1 if keep else 1, start.shape[-1])
    return [values.new_empty(shape) for shape in (*shapes, rows)]


@torch.library.custom_op("kgmrf::sequences_back", mutates_args=(), device_types="cpu")
def sequences_back(
    values: Tensor,
    counts: Tensor,
    dt: Tensor,
    table: Tensor,
    learning: Tensor,
    rows: Tensor,
    slopes: Sequence[Tensor],
    matrix: bool,
    reach: int,
) -> list[Tensor]:
    """Derivatives by values, table, learning and start from those by the first seven `Steps`.

    An empty slope: none.
    """
    n, _, _, d = values.shape
    loop, plan = _loop(d, table, learning)
    lines = [_numbers(part) for part in (rows, values, counts, dt)]
    axes = [2 if width is None else 3 for width in _widths(d, len(plan.table))[:7]]
    bars = [_numbers(s) if s.numel() else _nothing(k) for s, k in zip(slopes, axes, strict=True)]
    values_bar, start_bar = np.zeros(values.shape), np.empty((n, plan.size))
    threads = max(1, torch.get_num_threads())
    tables = np.zeros((threads, *plan.table.shape))
    settings = np.zeros((threads, len(plan.learning)))

    def work(number: int, part: slice) -> None:
        own = (line[part] for line in lines)
        cut = (bar[part] if bar.size else bar for bar in bars)
        found = (values_bar[part], start_bar[part], tables[number], settings[number])
        loop.backwards(*own, matrix, *cut, *found, reach)

    _in_threads(work, n)
    total = (values_bar, tables.sum(axis=0), settings.sum(axis=0), start_bar)
    return [torch.from_numpy(part) for part in total]


@sequences_back.register_fake
def _back_shapes(
    values: Tensor,
    counts: Tensor,
    dt: Tensor,
    table: Tensor,
    learning: Tensor,
    rows: Tensor,
    slopes: Sequence[Tensor],
    matrix: bool,
    reach: int,
) -> list[Tensor]:
    like = (values, table, learning, rows[:, 0])
    return [torch.empty(part.shape, dtype=part.dtype) for part in like]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    *given, _, ctx.matrix, _, ctx.reach = inputs
    ctx.set_materialize_grads(False)  # zeros of what a loss does not look at would be passed back
    ctx.save_for_backward(*given, output[-1])


def _back(ctx: Any, slopes: list[Tensor | None]) -> tuple[Any, ...]:
    *given, rows = ctx.saved_tensors
    none = rows.new_empty(0)
    bars = [none if s is None else s.contiguous() for s in slopes[:7]]
    values, table, learning, start = sequences_back(*given, rows, bars, ctx.matrix, ctx.reach)
    return values, None, None, table, learning, start, None, None, None


sequences.register_autograd(_back, setup_context=_keep)
