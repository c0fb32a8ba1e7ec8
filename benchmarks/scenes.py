"""Observations to be timed on: a turning covariance seen through few samples, a turning body."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgmrf.geometry import so

N_SAMPLES = 8


def turning_covariances(n_frames: int, d: int, seed: int = 0) -> Any:
    """``(n_frames, d, d)``: eigenvalues 16 to 1/4, .02 rad per frame, at least 8 samples."""
    rng = np.random.default_rng(seed)
    scale = np.sqrt(np.geomspace(16.0, 0.25, d))
    W = rng.standard_normal((d, d))
    W = W - W.T
    norm = np.sqrt((W**2).sum() / 2)
    turn = so.exp(0.02 * W / (norm if norm > 0 else 1.0))
    frame = np.eye(d)
    frames = np.empty((n_frames, d, d))
    m = max(N_SAMPLES, d + 1)
    for k in range(n_frames):
        x = (rng.standard_normal((m, d)) * scale) @ frame.T
        frames[k] = x.T @ x / m
        frame = frame @ turn
    return frames


def many_covariances(n: int, d: int, seed: int = 0) -> Any:
    """``(n, d, d)``: observations of n still tracks that share a diagonal truth."""
    rng = np.random.default_rng(seed)
    scale = np.sqrt(np.geomspace(16.0, 0.25, d))
    out = np.empty((n, d, d))
    for first in range(0, n, 10_000):
        size = min(10_000, n - first)
        x = rng.standard_normal((size, max(N_SAMPLES, d + 1), d)) * scale
        out[first : first + size] = np.swapaxes(x, -1, -2) @ x / x.shape[-2]
    return out


def many_rotations(n: int, seed: int = 0) -> Any:
    """``(n, 3, 3)``: rotations .05 rad off the identity in every axis."""
    rng = np.random.default_rng(seed)
    return so.exp(so.hat(0.05 * rng.standard_normal((n, 3))))
