"""The compiled check of covariance matrices before any of them is taken in."""

from __future__ import annotations

from typing import Any

from kgmrf.kernels.check import take_covariance
from kgmrf.kernels.compile import compiled
from kgmrf.kernels.lanes import bare


@compiled("void(float64[:, :, ::1], float64, float64[::1], int8[::1])")
def inspect(matrices: Any, tolerance: float, w: Any, status: Any) -> None:
    """Which of the matrices ``(n, d, d)`` are OBSERVED, MISSING or INVALID."""
    n, d = matrices.shape[0], matrices.shape[1]
    s = -(-d // 8) * 8
    desk, numbers = bare(w), bare(matrices)
    for k in range(n):
        status[k] = take_covariance(desk, numbers, k * d * d, d, s, tolerance)
