"""A loss with heavy tails: the density that the self-tuned trackers forecast."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from kgmrf import _check
from kgmrf._check import ObservationError
from kgmrf.model.density import TAILS
from kgmrf.torch import inputs
from kgmrf.torch.compiled import reachable
from kgmrf.torch.laws import bounded
from kgmrf.torch.loop import full_precision

KAPPA_LIMIT = 0.7
"""A learned log scale stays between minus and plus this, as in the trackers."""


class StudentTLoss(nn.Module):
    """-log sum_j pi_j t_{nu_j}(x; e^kappa scale): the ensemble's density as a loss.

    The m samples of a step share one t of m d dimensions, as in :class:`kgmrf.KGMRF`. NaN cells of
    samples are integrated out. The arithmetic is in double precision.

    Parameters
    ----------
    dofs : Sequence[float], default TAILS
        Degrees of freedom nu_j of the mixed Student-t densities.
    tails : Sequence[float], default None
        Their weights pi_j (default: equal).
    learned : bool, default True
        Train the weights and kappa, which corrects the size of the scale, at first 0.
    reduction : {"mean", "sum", "none"}, default "mean"
        "mean" or "sum" over the steps with an observation, or "none".

    Examples
    --------
    >>> loss = StudentTLoss()
    >>> scale = torch.eye(2).expand(5, 2, 2)
    >>> round(loss(scale, torch.zeros(5, 1, 2), samples=True).item(), 4)
    1.8379
    """

    def __init__(
        self,
        dofs: Sequence[float] = TAILS,
        *,
        tails: Sequence[float] | None = None,
        learned: bool = True,
        reduction: Literal["mean", "sum", "none"] = "mean",
    ) -> None:
        super().__init__()
        _check.choice(reduction, ("mean", "sum", "none"), "reduction")
        weights = [1.0 / len(dofs)] * len(dofs) if tails is None else list(tails)
        if len(weights) != len(dofs) or not all(v > 0 for v in (*dofs, *weights)):
            raise ValueError(
                f"give a positive weight for each of the positive dofs, got tails {tails!r} for "
                f"dofs {tuple(dofs)!r}"
            )
        self.reduction = reduction
        self.dofs: Tensor
        self.register_buffer("dofs", torch.tensor(dofs, dtype=torch.float64), persistent=False)
        self.free_tails = nn.Parameter(torch.log(torch.tensor(weights)), requires_grad=learned)
        self.free_kappa = nn.Parameter(torch.zeros(()), requires_grad=learned)

    def tails(self) -> Tensor:
        """The weights pi_j, ``(J,)``."""
        return torch.softmax(self.free_tails.double(), -1)

    def kappa(self) -> Tensor:
        """Logarithm of the factor on the scale."""
        return bounded(self.free_kappa.double(), KAPPA_LIMIT)

    def forward(self, scale: Tensor, observations: Tensor, **options: Any) -> Tensor:
        """The loss; arguments as in `log_density`."""
        each = -self.log_density(scale, observations, **options)
        if self.reduction == "none":
            return each
        return each.nanmean() if self.reduction == "mean" else each.nansum()

    def log_density(
        self,
        scale: Tensor,
        observations: Tensor,
        *,
        n_samples: float | Tensor | None = None,
        samples: bool = False,
        mask: Tensor | None = None,
    ) -> Tensor:
        """log p of every step ``(...)``; NaN where there is no observation or no scale.

        scale: matrices ``(..., d, d)``, usually the ``forecast`` of a layer. observations:
        covariances ``(..., d, d)`` of ``n_samples`` samples each, or with ``samples=True`` samples
        ``(..., m, d)``. mask: ``(...)``, True where to score.
        """
        inputs.tensor(scale, "scale")
        with full_precision(inputs.tensor(observations, "samples" if samples else "observations")):
            S, seen = scale.double(), observations.double()
            d = S.shape[-1] if S.ndim else 0
            if S.ndim < 2 or S.shape[-2] != d or seen.ndim < 2 or seen.shape[-1] != d:
                raise ObservationError(
                    f"scale must be (..., d, d) and observations (..., "
                    f"{'m' if samples else 'd'}, d), got {tuple(S.shape)} and {tuple(seen.shape)}"
                )
            if not samples:
                if n_samples is None:
                    raise ValueError("say how many samples are behind each matrix: n_samples=...")
                inputs.counts(n_samples)
            usable = ~torch.isnan(S).flatten(-2).any(-1)
            steps = np.broadcast_shapes(usable.shape, seen.shape[:-2])
            inputs.gaps(mask, torch.Size(steps))
            if mask is not None:
                usable = usable & mask.to(torch.bool)
            eye = torch.eye(d, dtype=S.dtype, device=S.device)
            S = torch.where(usable[..., None, None], (S + S.mT) / 2, eye) * torch.exp(self.kappa())
            if samples:
                distance, log_det, n = _of_samples(S, seen, eye)
            else:
                distance, log_det, n = _of_moments(S, seen, n_samples)
            dofs, q, k = self.dofs, distance[..., None], n[..., None]
            each = torch.lgamma(0.5 * (dofs + k)) - torch.lgamma(0.5 * dofs)
            each = each - 0.5 * k * torch.log(math.pi * dofs) - 0.5 * log_det[..., None]
            each = each - 0.5 * (dofs + k) * torch.log1p(q / dofs)
            found = torch.logsumexp(torch.log(self.tails()) + each, -1)
            found = torch.where(usable & (n > 0), found, math.nan)
            return found.to(torch.promote_types(scale.dtype, observations.dtype))


def _factor(S: Tensor) -> Tensor:
    """Cholesky's factor; `ObservationError` names the first scale that has none."""
    if not reachable(S.device):
        return torch.linalg.cholesky(S)
    factor, wrong = torch.linalg.cholesky_ex(S)
    if bool(wrong.any()):
        first = tuple(torch.nonzero(wrong)[0].tolist())
        least, most = (float(v) for v in torch.linalg.eigvalsh(S[first].detach())[[0, -1]])
        raise ObservationError(
            f"scale{list(first)} is not positive definite: its eigenvalues reach from {least:.3g} "
            f"to {most:.3g} ({int((wrong > 0).sum())} of {wrong.numel()} are not). The first rows "
            "of a sequence have no full rank yet: leave them out with mask=, or add a small "
            "multiple of the identity"
        )
    return factor


def _of_samples(S: Tensor, x: Tensor, eye: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """sum x^T S^-1 x, sum log det S and how many numbers, over the cells that are there."""
    there = ~torch.isnan(x)
    both = there[..., :, None] & there[..., None, :]
    # Missing channels become independent of variance 1 and value 0: they add nothing to any sum.
    factor = _factor(torch.where(both, S[..., None, :, :], eye))
    known = torch.where(there, x, torch.zeros_like(x))
    white = torch.linalg.solve_triangular(factor, known[..., None], upper=False)
    log_det = 2.0 * torch.log(factor.diagonal(dim1=-2, dim2=-1)).sum((-2, -1))
    return white.square().sum((-3, -2, -1)), log_det, there.double().sum((-2, -1))


def _of_moments(S: Tensor, C: Tensor, m: float | Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """m tr(S^-1 C), m log det S and m d; n = 0 where C has a NaN."""
    there = ~torch.isnan(C).flatten(-2).any(-1)
    count = torch.as_tensor(m, dtype=S.dtype, device=S.device).expand(there.shape)
    count = torch.where(there, count, torch.zeros_like(count))
    seen = torch.where(there[..., None, None], C, torch.zeros_like(C))
    factor = _factor(S)
    trace = torch.cholesky_solve(seen, factor).diagonal(dim1=-2, dim2=-1).sum(-1)
    log_det = 2.0 * torch.log(factor.diagonal(dim1=-2, dim2=-1)).sum(-1)
    return count * trace, count * log_det, count * S.shape[-1]
