"""Measured angular rates, checked."""

from __future__ import annotations

import numpy as np

from kgmrf import _check
from kgmrf._check import ObservationError
from kgmrf._types import Numbers


def checked_rates(rates: Numbers, rate_std: float | None, steps: int) -> Numbers:
    """Rates ``(T, ..., 3)`` with their deviation ``(T, ..., 4)``, checked."""
    if rates.ndim < 2 or rates.shape[-1] != 3 or len(rates) != steps:
        raise ObservationError(
            f"rates must be three numbers for each of the {steps} steps, radians per unit of the "
            f"stamps in the body frame, got shape {rates.shape}"
        )
    missing = np.isnan(rates)
    if (missing.any(axis=-1) != missing.all(axis=-1)).any():
        raise ObservationError("a rate is NaN in some axes only; NaN in all three says none")
    if (np.abs(rates[~missing]) > _check.LARGEST).any():
        raise ObservationError(f"rates must be finite, at most {_check.LARGEST:g}")
    std = 0.0 if rate_std is None else _check.in_range(rate_std, "rate_std", 0.0, np.inf)
    deviation = np.where(missing[..., :1], np.nan, std)
    return np.concatenate([rates, deviation], axis=-1)


def shaped_rates(rates: Numbers, batch: tuple[int, ...]) -> Numbers:
    """Rates of a recording whose steps and tracks have this shape."""
    shape = (*batch, 4)
    if rates.ndim == 2:
        rates = rates.reshape(len(rates), *(1,) * (len(shape) - 2), 4)
    try:
        return np.broadcast_to(rates, shape)
    except ValueError:
        raise ObservationError(
            f"rates have shape {rates[..., :3].shape}, which does not fit a sequence of {batch}"
        ) from None
