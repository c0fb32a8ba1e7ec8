"""How the truth moves: angular velocities, and the frames they carry."""

from __future__ import annotations

import numpy as np

from kgmrf._types import Numbers
from kgmrf.geometry import so


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
    acceleration_std: float = 0.0,
) -> Numbers:
    """W_t = rate * unit + a random walk whose steps are N(0, acceleration_std^2) in every plane.

    Body-frame angular velocities of shape (n_frames, d, d). ``acceleration_std`` squared is the
    information law's q; 0 keeps the velocity constant and draws nothing.

    >>> velocities(direction(2, 0), 0.1, 3, 0)[:, 1, 0]
    array([0.1, 0.1, 0.1])
    """
    d = unit.shape[-1]
    base: Numbers = np.broadcast_to(rate * unit, (n_frames, d, d)).copy()
    if not acceleration_std or d == 1:
        return base
    kicks = np.random.default_rng(rng).standard_normal((n_frames, d * (d - 1) // 2))
    kicks[0] = 0.0
    return base + so.hat(acceleration_std * np.cumsum(kicks, axis=0))


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
