"""What is seen of the truth: noise, then gaps. Missing observations are NaN."""

from __future__ import annotations

import numpy as np

from kgmrf import wishart
from kgmrf._types import Mask, Numbers
from kgmrf.geometry import so

__all__ = ["covariances", "hide", "rotations"]


def hide(observations: Numbers, observed: Mask | None) -> tuple[Numbers, Mask]:
    """C_t or NaN: blank out unseen frames; returns (observations, mask), both new.

    Observations (T, ...) and a mask (T,); None means all is seen.

    >>> hide(np.ones((2, 1, 1)), np.array([True, False]))[0].ravel()
    array([ 1., nan])
    """
    n = observations.shape[0]
    mask = np.ones(n, dtype=np.bool_) if observed is None else np.array(observed, dtype=np.bool_)
    if mask.shape != (n,):
        raise ValueError(f"observed must have shape ({n},), one entry per frame; got {mask.shape}")
    shape = (n,) + (1,) * (observations.ndim - 1)
    return np.where(mask.reshape(shape), observations, np.nan), mask


def covariances(
    truth: Numbers,
    n_samples: int | None,
    rng: np.random.Generator | int,
    *,
    noise_floor: float = 0.0,
) -> Numbers:
    """m C_t ~ Wishart(m, M_t + sigma^2 I); C_t = M_t + sigma^2 I where ``n_samples`` is None.

    Truth (T, d, d) gives observations (T, d, d).

    >>> covariances(np.eye(2)[None], None, 0, noise_floor=0.5)
    array([[[1.5, 0. ],
            [0. , 1.5]]])
    """
    if n_samples is None:
        return truth + noise_floor * np.eye(truth.shape[-1])
    drawn: Numbers = wishart.sample(
        truth, n_samples, np.random.default_rng(rng), noise_floor=noise_floor
    )
    return drawn


def rotations(truth: Numbers, noise: Numbers) -> Numbers:
    """Z_t = R_t Exp(hat(eps_t)): truth (T, d, d) and noise vectors (T, d (d-1) / 2).

    >>> rotations(np.eye(3)[None], np.zeros((1, 3)))[0].diagonal()
    array([1., 1., 1.])
    """
    seen: Numbers = truth @ so.exp(so.hat(noise))
    return seen
