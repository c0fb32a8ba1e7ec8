"""Smoothing on SO(3) under one motion model: fixed interval and fixed lag."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kgmrf import _check
from kgmrf._types import Mask, Numbers
from kgmrf.kernels.engine import loops
from kgmrf.motion import MotionModels, compiled_models, decaying_velocity


class SmoothResult(NamedTuple):
    """Smoothed estimates, time first; rows before the first observation are NaN."""

    rotation: Numbers  # (T, 3, 3)
    velocity: Numbers  # (T, 3) body frame, rad per unit time
    covariance: Numbers  # (T, 6, 6) of (angle, velocity), body frame
    passes: int  # Gauss-Newton passes of the fixed-interval solve


class _Chain(NamedTuple):
    """One model's chain from the first observation on, as the compiled loops take it."""

    observations: Numbers
    present: Mask
    noise_var: Numbers
    dt: Numbers
    law: Numbers


def smooth_rotations(
    observations: Any,
    noise_std: Any,
    *,
    model: MotionModels | None = None,
    dt: Any = 1.0,
    present: Any = None,
    lag: int | None = None,
    n_iterations: int = 10,
    tolerance: float = 1e-9,
    importance: Any = None,
) -> SmoothResult:
    """argmax p(R_0..R_T, motion | Z_0..Z_T) under one motion model, or given Z_0..Z_{t+lag}.

    Gauss-Newton on the group, each pass a Kalman filter and a Rauch-Tung-Striebel pass. ``model``
    is a ``MotionModels`` of one model (default: constant velocity). Missing rows: NaN, or
    ``present`` False. ``lag`` None uses the whole interval; lag 0 is the filter. With
    ``importance`` (per row), a smoothed track whose residuals exceed the noise on the rows that
    count gives way to the filtered one: that is how a bank uses members that hold for part of a
    recording only.

    >>> z = np.tile(np.eye(3), (5, 1, 1))
    >>> bool(np.allclose(smooth_rotations(z, 0.05).rotation, z))
    True
    """
    model = decaying_velocity(0.0) if model is None else model
    if model.n_models != 1:
        raise ValueError(f"one model expected, got {model.n_models}")
    z = np.array(_check.unmasked(observations), dtype=float, order="C")
    size = len(z)
    seen = ~np.isnan(z).any(axis=(1, 2))
    if present is not None:
        seen &= np.asarray(present, dtype=bool)
    rotation = np.full((size, 3, 3), np.nan)
    velocity = np.full((size, 3), np.nan)
    covariance = np.full((size, 6, 6), np.nan)
    if not seen.any():
        return SmoothResult(rotation, velocity, covariance, 0)
    first = int(np.argmax(seen))
    chain = _Chain(
        z[first:],
        seen[first:],
        _spread(np.asarray(noise_std, dtype=float) ** 2, size)[first:],
        _spread(dt, size)[first:],
        compiled_models(model)[0].copy(),
    )
    m, n = size - first, 12 if model.frequency.any() else 6
    frames, motions, covs = np.empty((m, 3, 3)), np.zeros((m, 9)), np.zeros((m, 12, 12))
    extra = np.zeros((m, 6))
    loops("rotation_smoother").track_member(n, frames, motions, covs, *chain, extra)
    passes = 1
    if lag is None:
        count = None if importance is None else _spread(importance, size)[first:]
        frames, motions, covs, passes = _whole(
            n, frames, motions, covs, chain, extra, count, n_iterations, tolerance
        )
    else:
        out = np.empty_like(frames), np.empty_like(motions), np.empty_like(covs)
        loops("rotation_smoother").smooth_lagged(
            n, frames, motions, covs, *chain, extra, lag, n_iterations, tolerance, *out
        )
        frames, motions, covs = out
    rotation[first:] = frames
    velocity[first:] = motions[:, :3]
    covariance[first:] = covs[:, :6, :6]
    return SmoothResult(rotation, velocity, covariance, passes)


def _whole(
    n: int,
    frames: Numbers,
    motions: Numbers,
    covs: Numbers,
    chain: _Chain,
    extra: Numbers,
    count: Numbers | None,
    n_iterations: int,
    tolerance: float,
) -> tuple[Numbers, Numbers, Numbers, int]:
    """The fixed-interval solve about the filtered track; gives it back where it fails.

    An oscillator is tried as the regular one it claims to be, started from what its last frame
    knows of the frequency; if that misses the data, with the slack that its filter needed.
    """
    prior = frames[0].copy(), motions[0].copy(), covs[0].copy()
    attempts = [(motions, extra)]
    if n == 12:
        attempts.insert(0, (_retrace(motions, chain), 0.0 * extra))
    passes = 0
    for nominal, slack in attempts:
        track = frames.copy(), nominal.copy(), np.zeros_like(covs)
        passes += loops("rotation_smoother").smooth_window(
            n, *track[:2], *prior, *chain, slack, n_iterations, tolerance, track[2]
        )
        last = slack is extra
        weight = np.ones(len(frames)) if count is None else count
        if (last and count is None) or _plausible(track[0], chain, weight):
            return *track, passes
    return frames, motions, covs, passes


def _retrace(motions: Numbers, chain: _Chain) -> Numbers:
    """Velocities run backwards from the last filtered state, undamped."""
    back = motions.copy()
    w = np.where(chain.law[:3] > 0, np.exp(motions[-1, 6:]), 0.0)
    elapsed = np.concatenate([np.cumsum(chain.dt[:0:-1])[::-1], [0.0]])[:, None]
    z = (motions[-1, :3] + 1j * motions[-1, 3:6]) * np.exp(1j * w * elapsed)
    back[:, :3], back[:, 3:6], back[:, 6:] = z.real, z.imag, motions[-1, 6:]
    return back


def _plausible(frames: Numbers, chain: _Chain, count: Numbers) -> bool:
    """Residuals of a smoothed track are no larger than the noise (4 sigma of their chi-square)."""
    rows = chain.present & (count > 0)
    if not np.isfinite(frames).all():
        return False
    if not rows.any():
        return True
    trace = np.einsum("tij,tij->t", frames[rows], chain.observations[rows])
    square = np.arccos(np.clip((trace - 1) / 2, -1, 1)) ** 2 / chain.noise_var[rows]
    w = count[rows] / count[rows].sum()
    return bool(w @ square < 3 + 4 * np.sqrt(6 * (w @ w)))


def _spread(numbers: Any, size: int) -> Numbers:
    return np.broadcast_to(np.asarray(numbers, dtype=float), (size,)).copy()
