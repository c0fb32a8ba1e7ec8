"""What the layer of the ensemble returns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from kgmrf.geometry import spd
from kgmrf.torch.density import StudentTMixture
from kgmrf.torch.law_layer import upper


@dataclass(frozen=True)
class Forecasts:
    """What a `KGMRFLayer` returns, ``(batch, time, ...)``.

    ==============  ==========  =================================================================
    covariance      (d, d)      after each observation, as `kgmrf.KGMRF` reports it
    forecast        (d, d)      covariance before each observation
    scale           (d, d)      scale of the density before each observation
    log_prob        ()          of each observation before it was used; NaN where none was scored
    weights         (K,)        of the members, after each observation
    density         ()          before each observation: a distribution, see `StudentTMixture`
    scale_tril      (d, d)      Cholesky factor of the forecast covariance
    tangent         d(d+1)/2    log of the covariance, off-diagonal entries times sqrt 2
    whitened        as samples  inverse of scale_tril times (samples - mean); missing cells are 0
    mean            (d,)        of each sample before it was used; None without ``lags``
    state                       pass it to the next call
    ==============  ==========  =================================================================

    Channels that were never seen are independent, of variance 1.

    Parameters
    ----------
    lower_covariance : Tensor
        Lower triangle of the covariance, in double precision on the CPU.
    lower_forecast : Tensor
        That of the forecast.
    lower_scale : Tensor
        That of the scale of the density.
    tails : Tensor
        Weights of the degrees of freedom of the density.
    size_std : Tensor
        Uncertainty of the log size.
    doubt, wide : Tensor
        Doubt about a young track, and what that widens its density by.
    log_prob : Tensor
        Log-density of each observation before it was used.
    weights : Tensor
        Weights of the members.
    state : Tensor
        To go on from.
    samples : Tensor
        The samples, less their mean; None for matrices.
    mean : Tensor
        Mean of each sample before it was used; None without ``lags``.
    """

    lower_covariance: Tensor  # lower triangles, in double precision on the CPU
    lower_forecast: Tensor
    lower_scale: Tensor
    tails: Tensor
    size_std: Tensor
    doubt: Tensor  # of a young track (`kgmrf.youth`), and what that widens its density by
    wide: Tensor
    log_prob: Tensor
    weights: Tensor
    state: Tensor
    samples: Tensor | None  # less their mean
    mean: Tensor | None

    @cached_property
    def covariance(self) -> Tensor:
        """After each observation, as `kgmrf.KGMRF` reports it."""
        return _whole(self.lower_covariance).to(self.log_prob)

    @cached_property
    def forecast(self) -> Tensor:
        """The covariance before each observation."""
        return _whole(self.lower_forecast).to(self.log_prob)

    @cached_property
    def scale(self) -> Tensor:
        """Of the density before each observation."""
        return _whole(self.lower_scale).to(self.log_prob)

    @property
    def scored(self) -> Tensor:
        """Where there is a log_prob."""
        return ~torch.isnan(self.log_prob)

    @cached_property
    def scale_tril(self) -> Tensor:
        """Lower Cholesky factor of the forecast, for `torch.distributions.MultivariateNormal`."""
        return _cholesky(self.forecast)

    @cached_property
    def density(self) -> StudentTMixture:
        """The density of the next sample, before it is observed."""
        factor = _cholesky(self.scale)
        return StudentTMixture.of_forecast(
            factor, self.tails, self.size_std, self.doubt, self.wide, self.mean
        )

    @cached_property
    def tangent(self) -> Tensor:
        """Upper triangle of log(covariance), row by row; |vector| = |log C|_F."""
        return upper(spd.log(_whole(self.lower_covariance))).to(self.log_prob)

    @cached_property
    def whitened(self) -> Tensor:
        """L^-1 x of the samples x, L L^T the forecast: unit covariance where it is right."""
        if self.samples is None:
            raise AttributeError("matrices have no samples to whiten; give samples to the layer")
        known = torch.nan_to_num(self.samples.double())
        several = known if known.ndim == 4 else known[..., None, :]
        white = torch.linalg.solve_triangular(self.scale_tril.double(), several.mT, upper=False)
        return white.mT.reshape(known.shape).to(self.covariance.dtype)

    def __repr__(self) -> str:
        names = ("covariance", "forecast", "log_prob", "weights", "state")
        parts = (f"{name} {tuple(getattr(self, name).shape)}" for name in names)
        kind = str(self.covariance.dtype).removeprefix("torch.")
        return f"Forecasts of {kind}: {', '.join(parts)}"


def _whole(packed: Tensor) -> Tensor:
    """Symmetric matrices of their lower triangles, row by row."""
    d = math.isqrt(2 * packed.shape[-1])
    row, column = torch.tril_indices(d, d, device=packed.device)
    place = torch.empty(d, d, dtype=torch.int64, device=packed.device)
    place[row, column] = place[column, row] = torch.arange(len(row), device=packed.device)
    return packed.index_select(-1, place.flatten()).reshape(*packed.shape[:-1], d, d)


torch.export.register_dataclass(Forecasts, serialized_type_name="kgmrf.torch.Forecasts")


def _cholesky(matrices: Tensor) -> Tensor:
    """The lower Cholesky factor, in double precision; no error where rounding made it singular.

    Where it fails, 1e-10 times the mean variance is added to the diagonal.
    """
    whole = matrices.double()
    _factor, failed = torch.linalg.cholesky_ex(whole)
    d = whole.shape[-1]
    mean = whole.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
    ridge = 1e-10 * mean * torch.eye(d, dtype=whole.dtype, device=whole.device)
    bad = failed.ne(0)[..., None, None]
    safe = torch.where(bad, whole + ridge, whole)
    return torch.linalg.cholesky(safe).to(matrices.dtype)
