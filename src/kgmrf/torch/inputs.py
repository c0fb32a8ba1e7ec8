"""Input of the layers: what cannot be used is refused, with the value and the remedy.

Shapes and kinds are always checked. Values are looked at where that is cheap, on the CPU and not
while a graph is traced, by the compiled check of the numpy trackers: one pass over the sequence.
Symmetry is asked for less strictly than there (1e-4): the layers use the symmetric part, and
numerical derivatives move one entry at a time.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kgmrf import _check, _time
from kgmrf._check import ObservationError
from kgmrf._types import Mask, Numbers
from kgmrf.constants import INVALID
from kgmrf.engines.core import inspect_covariances
from kgmrf.torch.compiled import plain, reachable, traced

LARGEST_SINGLE = 1e18
"""Samples in float32 up to here have second moments in float32."""


def tensor(value: Any, name: str, flags: bool = False) -> Tensor:
    """``value``, if it is a tensor of real numbers; or, for ``flags``, any tensor."""
    if not isinstance(value, Tensor):
        raise TypeError(
            f"{name} must be a torch tensor, got {type(value).__name__} of shape "
            f"{np.shape(value)}; convert it with torch.as_tensor(...)"
        )
    if not flags and (value.is_complex() or value.dtype == torch.bool):
        raise ObservationError(
            f"{name} has dtype {value.dtype}, expected real numbers; convert it with .float()"
        )
    return value


def frames(values: Tensor, name: str) -> None:
    """Refuses a sequence ``(..., time, :, :)`` without frames."""
    if values.ndim >= 3 and values.shape[-3] == 0:
        raise ObservationError(
            f"{name} of shape {tuple(values.shape)} has no frames; give at least 1"
        )


def fits(value: Any, name: str, shape: torch.Size) -> None:
    """Refuses what is neither one number nor one per frame."""
    if not isinstance(value, (Tensor, np.ndarray)) or value.ndim == 0:
        return
    try:
        fitting = np.broadcast_shapes(tuple(value.shape), tuple(shape)) == tuple(shape)
    except ValueError:
        fitting = False
    if not fitting:
        raise ObservationError(
            f"{name} has shape {tuple(value.shape)}, but the frames are {tuple(shape)}; give one "
            "number, or one per frame (..., time)"
        )


def gaps(mask: Any, shape: torch.Size) -> None:
    """Refuses a mask that is no tensor, or not one truth value per frame."""
    if mask is not None:
        fits(tensor(mask, "mask", flags=True), "mask", shape)


def times(dt: Any) -> None:
    """Refuses intervals that run backwards or are no numbers."""
    for end in _extremes(dt, "dt"):
        _time.interval(end)


def counts(n_samples: Any) -> None:
    """Refuses numbers of samples that are not positive; NaN may stand where there is no frame."""
    for end in _extremes(n_samples, "n_samples"):
        if not np.isnan(end):
            _check.sample_counts(end)


def finite(values: Tensor, name: str, mask: Tensor | None) -> None:
    """Refuses infinities and what is too large to square, where there is an observation.

    ``mask`` has two axes fewer than the values.
    """
    if not _looks(values):
        return
    limit = _check.LARGEST_SAMPLE if values.dtype == torch.float64 else LARGEST_SINGLE
    seen = values.detach()
    if float(torch.linalg.vector_norm(seen, math.inf)) <= limit:
        return  # not so if there is a NaN
    there = torch.isnan(seen).logical_not()
    if mask is not None:
        there &= mask.to(dtype=torch.bool).expand(seen.shape[:-2])[..., None, None]
    _check.finite(np.where(there.numpy(), seen.numpy(), 0.0), name, limit)


def matrices(values: Tensor, mask: Tensor | None, *, rotation: bool) -> None:
    """Refuses matrices ``(..., time, d, d)`` that are observed and no covariances, or rotations."""
    if not _looks(values):
        return
    tolerance = 1e-3 if rotation else 1e-4
    if values.dtype in (torch.float16, torch.bfloat16):
        tolerance = 2e-2
    seen: Numbers = values.detach().double().numpy()
    invalid: Mask = np.ones(seen.shape[:-2], bool)
    if not rotation:
        invalid = inspect_covariances(seen, tolerance) == INVALID
    if not invalid.any():
        return
    # A frame with a NaN has no observation, and what is masked is not looked at.
    invalid &= ~np.isnan(seen).any(axis=(-2, -1))
    if mask is not None:
        invalid &= mask.to(dtype=torch.bool).expand(values.shape[:-2]).numpy()
    if not invalid.any():
        return
    check = _check.rotations if rotation else _check.covariances
    # In the message the place counts, so all are given, the good ones as missing.
    suspects = np.where(invalid[..., None, None], seen, np.nan)
    _check.finite(suspects, "observations")
    check(suspects, invalid, "observations", "raise", tolerance=tolerance)


def _looks(value: Any) -> bool:
    """Whether values may be looked at."""
    return reachable(value.device) if isinstance(value, Tensor) else not traced()


def _extremes(value: Any, name: str) -> tuple[float, ...]:
    """The smallest and the largest of some numbers; nothing where nobody may look."""
    if value is None or not _looks(value):
        return ()
    array = _check.real_array(plain(value), name)
    return tuple(float(end.reduce(array, axis=None)) for end in (np.fmin, np.fmax) if array.size)
