"""Free motion of a rigid body in d dimensions, split into turns of single planes."""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device

from kgmrf._types import Array

__all__ = ["free_turn"]


def free_turn(frame: Array, momentum: Array, rate: Array) -> tuple[Array, Array]:
    """Q <- Q R, Pi <- R^T Pi R plane by plane, then in reverse; R turns by rate_ij Pi_ji / 2.

    Shapes: frame, momentum `(..., d, d)`; rate broadcasts to them: time over the inertia a_ij of
    each plane, symmetric. The kinetic energy sum Pi_ij^2 / 2 a_ij splits into planes; the motion of
    each summand is a rotation that carries the momentum along, so that every part is exact, and the
    whole explicit, symplectic and of second order. The spatial momentum Q Pi Q^T is kept.

    >>> import numpy as np
    >>> turn, momentum = free_turn(np.eye(2), np.array([[0.0, -0.3], [0.3, 0.0]]), np.ones((2, 2)))
    >>> round(float(np.arcsin(turn[1, 0])), 12)
    0.3
    """
    xp = array_namespace(frame, momentum)
    pairs = list(combinations(range(frame.shape[-1]), 2))
    rate = rate + xp.zeros_like(momentum)
    like = {"dtype": momentum.dtype, "device": device(momentum)}
    eye, planes, turns = (xp.asarray(v, **like) for v in _bases(frame.shape[-1]))
    for k in [*range(len(pairs)), *reversed(range(len(pairs)))]:
        i, j = pairs[k]
        angle = (0.5 * rate[..., j, i] * momentum[..., j, i])[..., None, None]
        R = eye + (xp.cos(angle) - 1.0) * planes[k] + xp.sin(angle) * turns[k]
        frame, momentum = frame @ R, xp.matrix_transpose(R) @ momentum @ R
    return frame, momentum


@lru_cache(maxsize=64)
def _bases(d: int) -> tuple[Any, Any, Any]:
    """Identity, projector and generator of every plane i < j."""
    eye = np.eye(d)
    pairs = list(combinations(range(d), 2))
    planes = [np.diag(eye[i] + eye[j]) for i, j in pairs]
    turns = [np.outer(eye[j], eye[i]) - np.outer(eye[i], eye[j]) for i, j in pairs]
    return eye, np.reshape(planes, (-1, d, d)), np.reshape(turns, (-1, d, d))
