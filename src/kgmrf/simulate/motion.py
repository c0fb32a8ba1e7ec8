"""How the truth moves: angular velocities, the frames they carry, and spectra that change."""

from __future__ import annotations

from typing import Literal

import numpy as np

from kgmrf._types import Numbers
from kgmrf.geometry import so

Velocity = Literal["constant", "drifting", "reversing"]
SpectrumChange = Literal["fixed", "random_walk", "oscillating", "crossing", "scale"]


def direction(d: int, rng: np.random.Generator | int) -> Numbers:
    """N / (|N|_F / sqrt 2), N a Gaussian skew matrix: a random unit rate, uniform over the planes.

    Shape (d, d); zero for d = 1, where nothing can turn.

    >>> round(float(np.linalg.norm(direction(4, 0)) / 2**0.5), 12)
    1.0
    """
    v = np.random.default_rng(rng).standard_normal(d * (d - 1) // 2)
    return so.hat(v / np.linalg.norm(v)) if v.size else np.zeros((d, d))


def velocities(
    unit: Numbers,
    rate: float,
    n_frames: int,
    rng: np.random.Generator | int,
    kind: Velocity = "constant",
    acceleration_std: float = 1e-3,
    period: int = 100,
) -> Numbers:
    """W_t = rate * unit, plus a random walk (drifting), or times (-1)^floor(t/period) (reversing).

    Body-frame angular velocities of shape (n_frames, d, d). ``acceleration_std`` is the standard
    deviation of the change of velocity per frame and plane: the root of the information law's q.

    >>> velocities(direction(2, 0), 0.1, 4, 0, "reversing", period=2)[:, 1, 0]
    array([ 0.1,  0.1, -0.1, -0.1])
    """
    base: Numbers = np.broadcast_to(rate * unit, (n_frames, *unit.shape)).copy()
    if kind == "constant":
        return base
    if kind == "drifting":
        d = unit.shape[-1]
        kicks = np.random.default_rng(rng).standard_normal((n_frames, d * (d - 1) // 2))
        kicks[0] = 0.0
        return base + so.hat(acceleration_std * np.cumsum(kicks, axis=0)) if d > 1 else base
    if kind == "reversing":
        if period < 1:
            raise ValueError(f"period must be at least 1, got {period}")
        sign = 1.0 - 2.0 * (np.arange(n_frames) // period % 2)
        return base * sign[:, None, None]
    raise ValueError(f'velocity is "constant", "drifting" or "reversing", not {kind!r}')


def frames(velocity: Numbers, start: Numbers | None = None) -> Numbers:
    """Q_{t+1} = Q_t Exp(W_t), Q_0 = start (identity): integrate body-frame velocities exactly.

    ``velocity`` of shape (T, d, d) gives frames of shape (T, d, d); the last velocity is not used.

    >>> frames(np.zeros((3, 2, 2))).shape
    (3, 2, 2)
    """
    n, d = velocity.shape[0], velocity.shape[-1]
    turns = so.exp(velocity)
    q = np.empty((n, d, d))
    q[0] = np.eye(d) if start is None else start
    for t in range(n - 1):
        q[t + 1] = q[t] @ turns[t]
    return q


def spectra(
    spectrum: Numbers,
    n_frames: int,
    rng: np.random.Generator | int,
    change: SpectrumChange = "fixed",
    amount: float = 0.01,
    period: int = 200,
) -> Numbers:
    """log lam_i(t) = log lam_i + c_i(t): eigenvalues along time, shape (n_frames, d).

    ``"random_walk"``: each log eigenvalue steps by ``amount`` N(0, 1) per frame. ``"scale"``: one
    such walk for all. ``"oscillating"``: ``amount`` sin(2 pi t / period + phase_i). ``"crossing"``:
    the eigenvalues move geometrically to the reversed order over the run, meeting half way. Columns
    keep their frame vectors: nothing is re-sorted.

    >>> spectra(np.array([4.0, 1.0]), 3, 0, change="crossing")
    array([[4., 1.],
           [2., 2.],
           [1., 4.]])
    """
    lam = np.asarray(spectrum, dtype=np.float64)
    d = lam.shape[-1]
    r = np.random.default_rng(rng)
    t = np.arange(n_frames)[:, None]
    if change == "fixed":
        return np.broadcast_to(lam, (n_frames, d)).copy()
    if change in ("random_walk", "scale"):
        steps = amount * r.standard_normal((n_frames, d if change == "random_walk" else 1))
        steps[0] = 0.0
        return lam * np.exp(np.cumsum(steps, axis=0))
    if change == "oscillating":
        phase = r.uniform(0.0, 2 * np.pi, d)
        return lam * np.exp(amount * np.sin(2 * np.pi * t / period + phase))
    if change == "crossing":
        share = t / max(n_frames - 1, 1)
        return np.asarray(lam ** (1 - share) * lam[::-1] ** share)
    raise ValueError(
        'spectrum_change is "fixed", "random_walk", "oscillating", "crossing" or "scale", '
        f"not {change!r}"
    )
