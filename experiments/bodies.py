"""The integrators of `kgmrf.theory.mechanics`, compiled: the same steps, some fifty times faster.

Each is one undamped step of a body: frame q and momentum p change in place. ``w`` are the inertias,
``lever`` turns the observation ``c`` in the body frame into the torque.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from kgmrf._types import Numbers
from kgmrf.theory import mechanics

_jit: Any = numba.njit(cache=True)


@_jit
def kick(q, p, lever, c, dt):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Pi <- Pi + dt tau(Q)."""
    p += dt * lever * (q.T @ c @ q)


@_jit
def exponential(x):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Exp(X) by its series: X is a step, far below one radian."""
    total = np.eye(len(x))
    term = np.eye(len(x))
    for k in range(1, 19):
        term = term @ x / k
        total += term
    return total


@_jit
def drift(q, p, w, dt):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Q <- Q Exp(dt Pi / w): the paper's drift, which leaves the momentum as it is."""
    q[:] = q @ exponential(dt * p / w)


@_jit
def turn_planes(q, p, w, dt):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Plane by plane and back, Q <- Q R, Pi <- R^T Pi R, R by dt Pi_ji / (2 w_ij)."""
    d = len(q)
    n = d * (d - 1) // 2
    for k in range(2 * n):
        left, i = (k if k < n else 2 * n - 1 - k), 0
        while left >= d - 1 - i:
            left -= d - 1 - i
            i += 1
        j = i + 1 + left
        angle = 0.5 * dt * p[j, i] / w[j, i]
        cos, sin = np.cos(angle), np.sin(angle)
        for m in (q, p):
            for r in range(d):
                a, b = m[r, i], m[r, j]
                m[r, i], m[r, j] = cos * a + sin * b, cos * b - sin * a
        for r in range(d):
            a, b = p[i, r], p[j, r]
            p[i, r], p[j, r] = cos * a + sin * b, cos * b - sin * a


@_jit
def turn_by_cayley(q, p, w, dt):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Solve w o x + [x, w o x]/2 - x (w o x) x/4 = dt Pi by Newton; Q <- Q cay(x), Pi along."""
    d = len(q)
    n = d * (d - 1) // 2
    x = dt * p / w
    size = np.abs(p).max() * dt + 1e-300
    jacobian, right = np.empty((n, n)), np.empty(n)
    settled = False
    while not settled:
        y = w * x
        miss = y + 0.5 * (x @ y - y @ x) - 0.25 * x @ y @ x - dt * p
        settled = np.abs(miss).max() <= 1e-9 * size
        column = 0
        for i in range(d):
            for j in range(i + 1, d):
                e = np.zeros((d, d))
                e[j, i], e[i, j] = 1.0, -1.0
                f = w * e
                slope = f + 0.5 * (e @ y + x @ f - f @ x - y @ e)
                slope -= 0.25 * (e @ y @ x + x @ f @ x + x @ y @ e)
                row = 0
                for k in range(d):
                    for m in range(k + 1, d):
                        jacobian[row, column] = slope[m, k]
                        right[row] = miss[m, k]
                        row += 1
                column += 1
        move = np.linalg.solve(jacobian, right)
        row = 0
        for k in range(d):
            for m in range(k + 1, d):
                x[m, k] -= move[row]
                x[k, m] += move[row]
                row += 1
    eye = np.eye(d)
    turn = np.linalg.solve(eye - 0.5 * x, eye + 0.5 * x)
    q[:] = q @ turn
    p[:] = turn.T @ p @ turn


INTEGRATORS: dict[str, tuple[Any, float, Any]] = {
    "printed": (drift, 1.0, mechanics.printed_step),
    "printed_strang": (drift, 0.5, lambda *a: mechanics.printed_step(*a, strang=True)),
    "variational": (turn_by_cayley, 1.0, mechanics.variational_step),
    "plane_split": (turn_planes, 0.5, mechanics.plane_split_step),
}
"""The move between the kicks, the share of the kick before it, and the readable step."""


@_jit
def _steps(q, p, w, lever, c, dt, first, move, frames, momenta):  # type: ignore[no-untyped-def]  # pragma: no cover
    for t in range(len(frames)):
        kick(q, p, lever, c, first * dt)
        move(q, p, w, dt)
        if first < 1.0:
            kick(q, p, lever, c, (1.0 - first) * dt)
        frames[t], momenta[t] = q, p


def run(state: mechanics.Phase, body: mechanics.Body, name: str, dt: float, n: int) -> Any:
    """The n phases after ``state``, stacked."""
    move, first, _ = INTEGRATORS[name]
    q, p = (np.array(v, dtype=float, order="C") for v in state)
    frames: Numbers = np.empty((n, *q.shape))
    momenta = np.empty_like(frames)
    c = np.ascontiguousarray(body.observation, dtype=float)
    _steps(q, p, body.inertia, body.lever, c, dt, first, move, frames, momenta)
    return mechanics.Phase(frames, momenta)
