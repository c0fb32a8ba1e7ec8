"""The density of a forecast as a distribution of PyTorch."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from kgmrf.constants import SIZE_NODES, SIZE_SHARES, TAILS


class StudentTMixture(Distribution):
    """p(x) = sum_k pi_k t_{nu_k}(x - loc; f_k L L^T), a mixture of multivariate Student-t.

    Components are summed out in `log_prob`.

    Parameters
    ----------
    scale_tril : Tensor
        L, ``(..., d, d)``.
    weights : Tensor
        pi_k, ``(..., K)``.
    dofs : Tensor
        nu_k, ``(K,)``.
    factors : Tensor or float, default 1.0
        f_k, ``(..., K)``.
    validate_args : bool, default False
        Check the arguments, as for every distribution of torch; it takes time.
    loc : Tensor, default None
        The mean, ``(..., d)``; None is 0.

    Examples
    --------
    >>> import torch
    >>> one = StudentTMixture(torch.eye(2), torch.ones(1), torch.tensor([1e8]))
    >>> round(one.log_prob(torch.zeros(2)).item(), 3), one.covariance_matrix.diagonal().tolist()
    (-1.838, [1.0, 1.0])
    """

    arg_constraints: ClassVar[dict[str, Any]] = {
        "scale_tril": constraints.lower_cholesky,
        "weights": constraints.simplex,
    }
    support = constraints.real_vector
    has_rsample = False

    def __init__(
        self,
        scale_tril: Tensor,
        weights: Tensor,
        dofs: Tensor,
        factors: Tensor | float = 1.0,
        validate_args: bool | None = False,
        *,
        loc: Tensor | None = None,
    ) -> None:
        self.scale_tril, self.weights, self.dofs = scale_tril, weights, dofs
        self.factors = torch.as_tensor(factors, dtype=weights.dtype, device=weights.device)
        self.loc = torch.zeros_like(scale_tril[..., 0]) if loc is None else loc
        super().__init__(scale_tril.shape[:-2], scale_tril.shape[-1:], validate_args)

    @classmethod
    def of_forecast(
        cls,
        scale_tril: Tensor,
        tails: Tensor,
        size_std: Tensor,
        doubt: Tensor,
        wide: Tensor,
        loc: Tensor | None = None,
    ) -> StudentTMixture:
        """The density of an ensemble: its tails, each at three sizes e^(z_i size_std).

        doubt, wide: of a young track, 0 and 1 later; see `kgmrf.youth`.
        """
        like: Any = {"dtype": tails.dtype, "device": tails.device}
        nodes, shares = torch.tensor(SIZE_NODES, **like), torch.tensor(SIZE_SHARES, **like)
        sizes = (torch.exp(size_std[..., None] * nodes) * wide[..., None])[..., None]
        weights = shares[:, None] * tails[..., None, :]
        nu = torch.tensor(TAILS, **like)
        dofs = (nu / (1.0 + doubt[..., None] * nu)).tile(len(SIZE_NODES))
        return cls(
            scale_tril, weights.flatten(-2), dofs, sizes.expand_as(weights).flatten(-2), loc=loc
        )

    def log_prob(self, value: Tensor) -> Tensor:
        """log p(x) of vectors ``(..., d)``; in double precision, for large dofs cancel."""
        d = self.event_shape[0]
        L = self.scale_tril.double()
        batch = np.broadcast_shapes(L.shape[:-2], value.shape[:-1])
        whole = L.expand(*batch, d, d)
        apart = (value.double() - self.loc.double()).expand(*batch, d)
        white = torch.linalg.solve_triangular(whole, apart[..., None], upper=False)
        q = white[..., 0].square().sum(-1)[..., None]
        log_det = 2.0 * torch.log(L.diagonal(dim1=-2, dim2=-1)).sum(-1)
        nu, f = self.dofs.double(), self.factors.double()
        each = torch.lgamma(0.5 * (nu + d)) - torch.lgamma(0.5 * nu)
        each = each - 0.5 * d * torch.log(math.pi * nu * f) - 0.5 * log_det[..., None]
        each = each - 0.5 * (nu + d) * torch.log1p(q / (nu * f))
        found = torch.logsumexp(torch.log(self.weights.double()) + each, -1)
        return found.to(torch.promote_types(value.dtype, self.scale_tril.dtype))

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Vectors drawn from it: a component each, then sqrt(f nu/chi2) L z."""
        shape = torch.Size(sample_shape) + self.batch_shape
        with torch.no_grad():
            weights = self.weights.expand(*shape, self.weights.shape[-1])
            draw: Any = torch.distributions.Categorical(probs=weights)
            which = draw.sample()[..., None]
            nu, f = (
                v.expand_as(weights).gather(-1, which)[..., 0] for v in (self.dofs, self.factors)
            )
            chi2 = 2.0 * torch.distributions.Gamma(0.5 * nu, torch.ones_like(nu)).sample()
            z = torch.randn(*shape, *self.event_shape, dtype=nu.dtype, device=nu.device)
            turned = (self.scale_tril @ z[..., None])[..., 0]
            return self.loc + torch.sqrt(f * nu / chi2)[..., None] * turned

    @property
    def mean(self) -> Tensor:
        """The location."""
        return self.loc

    @property
    def covariance_matrix(self) -> Tensor:
        """L L^T times sum_k pi_k f_k nu_k/(nu_k - 2); infinite for nu <= 2, as of first rows."""
        heavy = torch.where(self.dofs > 2.0, self.dofs / (self.dofs - 2.0), torch.inf)
        heavy = (self.weights * self.factors * heavy).sum(-1)
        return heavy[..., None, None] * (self.scale_tril @ self.scale_tril.mT)

    @property
    def variance(self) -> Tensor:
        """The diagonal of the covariance."""
        return self.covariance_matrix.diagonal(dim1=-2, dim2=-1)
