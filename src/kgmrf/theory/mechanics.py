"""The rigid body behind the paper: its energy, and integrators that keep its structure.

A body frame Q carries the momentum Pi = w o W (elementwise), with the inertia w_ij = (lam_i -
lam_j)^2 / (d_i d_j), d_i = lam_i + noise_floor, fixed in the body. Held towards an observation C by
the potential V = tr(S^-1 C) / 2, it moves by

    Q' = Q W,    Pi' = [Pi, W] + stiffness tau,    tau_ij = -C~_ij (lam_i - lam_j) / (d_i d_j),

C~ = Q^T C Q. The paper's step drops [Pi, W]. That term does no work, so the energy
<W, w o W>/2 + stiffness V, <A, B> = tr(A^T B)/2, stays nearly constant all the same; but for d >= 3
and unequal inertias the step is not symplectic. `variational_step` and `plane_split_step` are.

All steps take arrays (..., d, d), also complex ones, so that their derivatives can be had by a
complex step. The eigenvalues must differ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kgmrf.geometry import orbit, so
from kgmrf.theory._arrays import number

__all__ = [
    "Body",
    "Phase",
    "energy",
    "plane_split_step",
    "printed_step",
    "symplectic_defect",
    "variational_step",
]

Matrices = NDArray[Any]


class Phase(NamedTuple):
    """Where a body is and how it turns: frame Q and body momentum Pi, both (..., d, d)."""

    frame: Matrices
    momentum: Matrices


@dataclass(frozen=True, eq=False)
class Body:
    """What turns, and towards what: spectrum lam (d,), observation C (d, d), noise floor, pull.

    >>> Body(np.array([2.0, 0.5]), np.diag([2.0, 0.5])).inertia
    array([[1.  , 2.25],
           [2.25, 1.  ]])
    """

    spectrum: ArrayLike
    observation: ArrayLike
    noise_floor: float = 0.0
    stiffness: float = 1.0

    @cached_property
    def inertia(self) -> NDArray[np.float64]:
        """w_ij = (lam_i - lam_j)^2 / (d_i d_j), with 1 on the unused diagonal."""
        d = np.asarray(self.spectrum, dtype=np.float64) + self.noise_floor
        w = orbit.gaps(d) ** 2 / (d[:, None] * d)
        np.fill_diagonal(w, 1.0)
        if np.any(w == 0):
            raise ValueError(f"equal eigenvalues have no inertia: {np.asarray(self.spectrum)}")
        return w

    def torque(self, frame: Matrices) -> Matrices:
        """stiffness times -C~_ij (lam_i - lam_j) / (d_i d_j): minus the slope of the potential."""
        return self.lever * (np.swapaxes(frame, -1, -2) @ np.asarray(self.observation) @ frame)

    @cached_property
    def lever(self) -> NDArray[np.float64]:
        """The torque per entry of the observation in the body frame."""
        d = np.asarray(self.spectrum, dtype=np.float64) + self.noise_floor
        return -self.stiffness * orbit.gaps(d) / (d[:, None] * d)


def energy(state: Phase, body: Body) -> Any:
    """H = <W, w o W>/2 + stiffness tr(S^-1 C)/2, <A, B> = tr(A^T B)/2: (..., d, d) -> (...).

    >>> at_rest = Phase(np.eye(2), np.zeros((2, 2)))
    >>> energy(at_rest, Body((2.0, 0.5), np.diag([2.0, 0.5])))
    1.0
    """
    kinetic = 0.25 * (state.momentum**2 / body.inertia).sum((-1, -2))
    seen = np.swapaxes(state.frame, -1, -2) @ np.asarray(body.observation) @ state.frame
    d = np.asarray(body.spectrum, dtype=np.float64) + body.noise_floor
    pull = (np.diagonal(seen, axis1=-2, axis2=-1) / d).sum(-1)
    return number(kinetic + 0.5 * body.stiffness * pull)


def printed_step(state: Phase, body: Body, dt: float = 1.0, *, strang: bool = False) -> Phase:
    """Pi <- Pi + dt tau, Q <- Q Exp(dt Pi / w): the paper's kick and drift, without damping.

    ``strang`` kicks by half before the drift and by half after it. Both preserve volume; neither is
    symplectic unless d = 2 or all inertias are equal.
    """
    part = 0.5 * dt if strang else dt
    momentum = state.momentum + part * body.torque(state.frame)
    frame = state.frame @ so.exp(dt * momentum / body.inertia)
    if strang:
        momentum = momentum + part * body.torque(frame)
    return Phase(frame, momentum)


def plane_split_step(state: Phase, body: Body, dt: float = 1.0) -> Phase:
    """Half kick; plane by plane, then in reverse, turn by dt Pi_ji / (2 w_ij); half kick.

    The kinetic energy is a sum over planes, and each summand's motion is a rotation in its plane
    that carries the momentum along, Pi <- R^T Pi R: every part is exact, so that the whole is
    symplectic, explicit and of second order. Keep dt Pi_ij / w_ij small.
    """
    momentum = state.momentum + 0.5 * dt * body.torque(state.frame)
    frame, momentum = so.free_turn(state.frame, momentum, dt / body.inertia)
    return Phase(frame, momentum + 0.5 * dt * body.torque(frame))


def variational_step(state: Phase, body: Body, dt: float = 1.0) -> Phase:
    """Kick; solve w o x + [x, w o x]/2 - x (w o x) x/4 = dt Pi; Q <- Q cay(x), Pi carried along.

    The discrete Euler-Poincare equations with the Cayley map: symplectic, of first order, and
    without a pull it keeps the spatial momentum Q Pi Q^T exactly. The equation is solved by Newton.

    >>> body = Body((4.0, 2.0, 0.5), np.diag([4.0, 2.0, 0.5]), stiffness=0.0)
    >>> before = Phase(np.eye(3), so.hat(np.array([0.1, 0.2, 0.3])))
    >>> after = variational_step(before, body, 0.5)
    >>> spatial = after.frame @ after.momentum @ after.frame.T
    >>> bool(np.allclose(spatial, before.momentum, atol=1e-14))
    True
    """
    momentum = state.momentum + dt * body.torque(state.frame)
    turn = so.cayley(_cayley_velocity(dt * momentum, body.inertia))
    return Phase(state.frame @ turn, np.swapaxes(turn, -1, -2) @ momentum @ turn)


def _cayley_velocity(goal: Matrices, w: NDArray[np.float64]) -> Matrices:
    """x with w o x + [x, w o x]/2 - x (w o x) x/4 = goal, by Newton from x = goal / w."""
    basis, rows, columns = _basis(w.shape[0])
    heavy = w * basis
    x = goal / w
    size = np.abs(goal).max() + np.finfo(float).tiny
    last = False
    for _ in range(60):
        y = w * x
        xy = x @ y
        miss = y + 0.5 * (xy - y @ x) - 0.25 * xy @ x - goal
        # d miss / dx in every direction of the basis, E: terms in E y, y E, x (w o E), (w o E) x
        right, left = 0.5 * y - 0.25 * y @ x, -0.5 * y - 0.25 * xy
        ahead = 0.5 * x[..., None, :, :] @ heavy
        slope = heavy + basis @ right[..., None, :, :] + left[..., None, :, :] @ basis
        slope = slope + ahead - (0.5 * heavy + 0.5 * ahead) @ x[..., None, :, :]
        jacobian = np.swapaxes(slope[..., rows, columns], -1, -2)
        turn = np.linalg.solve(jacobian, miss[..., rows, columns, None])
        x = x - (turn[..., None] * basis).sum(-3)
        # The step after a miss of 1e-9 leaves rounding; the imaginary part of a complex step
        # wants one more.
        settled = bool(np.abs(miss).max() <= 1e-9 * size)
        if last or (settled and np.isrealobj(x)):
            return x
        last = settled
    raise RuntimeError("the implicit equation has no nearby solution; make dt smaller")


@cache
def _basis(d: int) -> tuple[Matrices, Matrices, Matrices]:
    """Unit turns in every plane (n, d, d), and where each of them is 1: rows (n,), columns (n,)."""
    basis = so.hat(np.eye(d * (d - 1) // 2))
    _, rows, columns = np.nonzero(basis > 0)
    return basis, rows, columns


def symplectic_defect(step: Callable[[Phase], Phase], state: Phase) -> float:
    """max |J^T omega(z') J - omega(z)|: how far a step is from preserving the symplectic form.

    omega(1, 2) = <delta_2, xi_1> - <delta_1, xi_2> + <Pi, [xi_1, xi_2]> with xi = Q^T dQ, delta =
    dPi and <A, B> = tr(A^T B)/2. J is found by a complex step, so that a symplectic map gives
    rounding. ``state`` is one real phase (d, d).

    >>> body = Body((2.0, 0.5), np.diag([1.0, 1.5]))
    >>> turning = Phase(np.eye(2), so.hat(np.array([0.3])))
    >>> symplectic_defect(lambda z: printed_step(z, body, 0.1), turning) < 1e-15
    True
    """
    q, p = (np.asarray(v, dtype=np.float64) for v in state)
    basis, _, _ = _basis(q.shape[-1])
    tiny, n = 1e-30, len(basis)
    angles, kicks = [], []
    for k in range(2 * n):
        xi = basis[k] if k < n else np.zeros_like(q)
        delta = basis[k - n] if k >= n else np.zeros_like(q)
        stepped = step(Phase(q + 1j * tiny * (q @ xi), p + 1j * tiny * delta))
        angles.append(stepped.frame.real.T @ stepped.frame.imag / tiny)
        kicks.append(stepped.momentum.imag / tiny)
    after = _form(np.stack(angles), np.stack(kicks), stepped.momentum.real)
    zeros = np.zeros_like(basis)
    before = _form(np.concatenate([basis, zeros]), np.concatenate([zeros, basis]), p)
    return float(np.abs(after - before).max())


def _form(xi: Matrices, delta: Matrices, momentum: Matrices) -> Matrices:
    """omega of every pair of variations."""
    paired = 0.5 * np.einsum("aij,bij->ab", xi, delta)
    product = np.einsum("aij,bjk->abik", xi, xi)
    bracket = product - np.swapaxes(product, 0, 1)
    return paired - paired.T + 0.5 * np.einsum("ij,abij->ab", momentum, bracket)
