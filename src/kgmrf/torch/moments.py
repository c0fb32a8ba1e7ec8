"""Raw samples as observations: second moments, with entries missing or not."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from kgmrf import wishart


def checked(samples: Tensor, d: int, mask: Tensor | None) -> Tensor:
    """Samples ``(..., time, m, d)`` with NaN for all that is not there.

    >>> checked(torch.zeros(2, 1, 3), 3, torch.tensor([True, False])).isnan().any((-2, -1))
    tensor([False,  True])
    """
    if samples.ndim < 3 or samples.shape[-1] != d:
        shape = tuple(samples.shape)
        raise ValueError(f"samples must be (..., time, m, d) with d = {d}, got {shape}")
    there = torch.isfinite(samples)
    if mask is not None:
        there = there & mask.to(device=samples.device, dtype=torch.bool)[..., None, None]
    return torch.where(there, samples, math.nan)


def pieces(rows: Tensor) -> Iterator[tuple[slice, bool]]:
    """Runs of frames without partly missing samples, and single frames with some.

    >>> rows = torch.zeros(4, 1, 2)
    >>> rows[1, 0, 0] = math.nan
    >>> [(part.start, part.stop, partly) for part, partly in pieces(rows)]
    [(0, 1, False), (1, 2, True), (2, 4, False)]
    """
    nan = torch.isnan(rows)
    mixed = nan.any(-1) & ~nan.all(-1)
    partly = mixed.any(-1).flatten(0, -2).any(0) if mixed.ndim > 2 else mixed.any(-1)
    edges = [0]
    for k, now in enumerate(partly.tolist()):
        if k and (now or partly[k - 1]):
            edges.append(k)
    for start, stop in zip(edges, [*edges[1:], len(partly)], strict=True):
        yield slice(start, stop), bool(partly[start])


def of_complete(rows: Tensor) -> tuple[Tensor, Tensor]:
    """C = (1/m) sum x x^T over the complete samples, and m; NaN where there are none.

    >>> of_complete(torch.tensor([[[1.0, 0.0], [math.nan, 1.0]]]))[1]
    tensor([1.])
    """
    there = ~torch.isnan(rows).any(-1)
    known = torch.where(there[..., None], rows, torch.zeros_like(rows))
    return _mean(known.mT @ known, there)


def of_expected(rows: Tensor, covariance: Tensor, support: Tensor) -> tuple[Tensor, Tensor]:
    """The same over all samples with something in them, E[x x^T | what is there] for each.

    Shapes: rows ``(..., time, m, d)``, covariance ``(..., d, d)``, the same for all times, and
    support ``(...)``, how many samples it is worth.

    >>> of_expected(torch.tensor([[[1.0, math.nan]]]), torch.eye(2), torch.tensor(1.0))[0]
    tensor([[[1., 0.],
             [0., 1.]]])
    """
    there = ~torch.isnan(rows).all(-1)
    worth = support[..., None, None]
    outer = wishart.expected_outer(rows, covariance[..., None, None, :, :], worth)
    outer = torch.where(there[..., None, None], outer, torch.zeros_like(outer))
    return _mean(outer.sum(-3), there)


def _mean(total: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
    count = there.to(total.dtype).sum(-1)
    known = torch.where(count > 0, count, torch.ones_like(count))
    C = total / known[..., None, None]
    return torch.where((count > 0)[..., None, None], C, math.nan), known
