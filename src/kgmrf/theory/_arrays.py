"""Helpers of the theory: numbers in mean numbers out; Stein equations of 2x2 maps."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def floats(*values: ArrayLike) -> tuple[Array, ...]:
    """The values as float arrays of their common shape."""
    return tuple(np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in values)))


def number(value: Any) -> Any:
    """Return a plain number for 0-d results, so that scalars in means scalars out."""
    return value.item() if np.ndim(value) == 0 else value


def stein(maps: Array, sources: Array) -> Array:
    """Solve X = F X F^T + N for symmetric 2x2 X, batched; inf where F is not a contraction."""
    f, n = np.broadcast_arrays(maps, sources)
    kron = f[..., :, None, :, None] * f[..., None, :, None, :]
    kron = kron.reshape(f.shape[:-2] + (4, 4))
    ok = np.abs(np.linalg.eigvals(f)).max(-1) < 1 - 1e-12
    kron = np.where(ok[..., None, None], kron, 0.0)
    x = np.linalg.solve(np.eye(4) - kron, n.reshape(n.shape[:-2] + (4, 1)))
    x = x.reshape(n.shape)
    x = 0.5 * (x + np.swapaxes(x, -1, -2))
    return np.where(ok[..., None, None], x, np.inf)
