"""The rotation engine once more, to be read beside the method: numpy, one track, one step a call.

Isotropic members only. Names follow the formulas: a member k has lambda, decay g, velocity prior c;
delta_k and v_k are its angle and velocity seen from the common frame Q; P_k is in units of the
noise variance r.
"""

from __future__ import annotations

import numpy as np
from scipy.spatial.transform import Rotation
from scipy.special import gammaln, logsumexp

from kgmrf.kernels.rotation_rows import isotropic_laws

LAM, G, C, PRIOR = isotropic_laws().T
SWITCHING, EXPERT_SWITCHING = 1e-3, 0.01


def exp(v: np.ndarray) -> np.ndarray:
    """Exp: rotation vectors to matrices."""
    return Rotation.from_rotvec(v).as_matrix()


def log(r: np.ndarray) -> np.ndarray:
    """Log: matrices to rotation vectors."""
    return Rotation.from_matrix(r).as_rotvec()


class Readable:
    """One track of the engine with ``oscillations=False``, stamps one unit apart."""

    def __init__(self, noise_std: float | None = None) -> None:
        self.given, self.started = noise_std is not None, False
        self.r = 1e-6 if noise_std is None else noise_std**2

    def start(self, z: np.ndarray) -> None:
        k = len(LAM)
        self.started, self.q = True, z
        self.delta, self.v = np.zeros((k, 3)), np.zeros((k, 3))
        self.p = np.zeros((k, 2, 2))
        self.p[:, 0, 0], self.p[:, 1, 1] = 1.0, C
        self.a = 0.15  # shape a_J of all axes together; one axis has a third
        self.b, self.ba = np.full(k, self.a * self.r), np.full((k, 3), self.a / 3 * self.r)
        self.w, self.omega = PRIOR.copy(), np.tile(PRIOR[:, None], (1, 3))
        self.pi = np.array([0.5, 0.5])
        self.rejected, self.accept = None, False

    @property
    def weight(self) -> np.ndarray:
        """W_ki, joint weights and weights per axis together."""
        return self.pi[0] * self.w[:, None] + self.pi[1] * self.omega

    def predict(self, h: float = 1.0) -> None:
        keep = np.exp(-G * h)
        safe = np.where(G > 0, G, 1.0)
        beta = np.where(G > 0, -np.expm1(-G * h) / safe, h)
        q0 = np.where(G > 0, -np.expm1(-2 * G * h) / (2 * safe), h)
        q2 = np.where(G > 0, (h - 2 * beta + q0) / safe**2, h**3 / 3)
        f = np.zeros((len(LAM), 2, 2))
        f[:, 0, 0], f[:, 0, 1], f[:, 1, 1] = 1.0, beta, keep
        q = np.stack([np.stack([q2, beta**2 / 2], -1), np.stack([beta**2 / 2, q0], -1)], -2)
        self.p = f @ self.p @ np.swapaxes(f, 1, 2) + LAM[:, None, None] * q
        d = beta[:, None] * self.v
        self.v = keep[:, None] * self.v
        m = (self.weight * d).sum(axis=0)
        self.q = self.q @ exp(m)
        self.delta = self.delta @ exp(-m).T + (d - m) @ exp(-m / 2).T

    def step(self, z: np.ndarray | None) -> np.ndarray:
        if not self.started:
            if z is not None:
                self.start(z)
            return self.q
        self.predict()
        if z is not None:
            self.observe(z)
        return self.q

    def observe(self, z: np.ndarray) -> None:
        e = log(self.q.T @ z)
        y, s = e - self.delta, self.p[:, 0, 0] + 1.0
        joint, axes = self.densities(y, s)
        half = np.linalg.norm(e) / 2
        volume = 2 * np.log(np.sinc(half / np.pi))
        new_w = (1 - SWITCHING) * self.w + SWITCHING * PRIOR
        new_omega = (1 - SWITCHING) * self.omega + SWITCHING * PRIOR[:, None]
        joint, axes = joint + np.log(new_w), axes + np.log(new_omega)
        evidence = np.array([logsumexp(joint), logsumexp(axes, axis=0).sum()]) - volume
        pi = (1 - EXPERT_SWITCHING) * self.pi + EXPERT_SWITCHING * 0.5
        total = logsumexp(evidence + np.log(pi))
        if total < np.log((1e-3 if self.given else 3e-3) / (8 * np.pi**2)) and not self.accept:
            self.refuse(z, half)
            return
        self.rejected, self.accept = None, False
        self.pi = np.exp(evidence + np.log(pi) - total)
        self.w = np.exp(joint - logsumexp(joint))
        self.omega = np.exp(axes - logsumexp(axes, axis=0))
        gain = self.p[:, :, 0] / s[:, None]
        self.delta = self.delta + gain[:, :1] * y
        self.v = self.v + gain[:, 1:] * y
        self.p = self.p - gain[:, :, None] * gain[:, None, :] * s[:, None, None]
        if not self.given:
            most = 3 * 36 / self.a if self.a > 9 else np.inf  # six sigma tell no more than that
            told = np.minimum((y**2).sum(axis=1) / s, most * self.b)
            each = np.minimum(y**2 / s[:, None], most * self.ba)
            fade = min(1.0, 750 / (self.a + 1.5))
            self.a = fade * (self.a + 1.5)
            self.b, self.ba = fade * (self.b + told / 2), fade * (self.ba + each / 2)
            self.r = np.exp((self.weight * np.log(self.mixed() / self.a)).sum() / 3)
        m = (self.weight * self.delta).sum(axis=0)
        self.q = self.q @ exp(m)
        self.delta = (self.delta - m) @ exp(-m / 2).T

    def mixed(self) -> np.ndarray:
        """B_ki = b_ki + sum over the other axes of exp sum_l omega_lj ln b_lj."""
        mean = np.exp((self.omega * np.log(self.ba)).sum(axis=0))
        return self.ba + mean.sum() - mean

    def densities(self, y: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Log densities of the innovations: of all axes (K,), of each axis (K, 3)."""
        square = (y**2).sum(axis=1)
        if self.given:
            rs = self.r * s
            one = -0.5 * (np.log(2 * np.pi * rs)[:, None] + y**2 / rs[:, None])
            return -0.5 * (3 * np.log(2 * np.pi * rs) + square / rs), one
        bs, axis = self.b * s, self.mixed() * s[:, None]
        return _student(square, bs, self.a, 3), _student(y**2, axis, self.a, 1)

    def refuse(self, z: np.ndarray, half: float) -> None:
        again = self.rejected is not None and (
            np.linalg.norm(log(self.rejected.T @ z)) < min(1.0, half)
        )
        if not again:
            self.rejected = z
            return
        self.q, self.rejected, self.accept = z, None, True
        self.delta[:] = 0.0
        self.p[:, 0, 0], self.p[:, 0, 1], self.p[:, 1, 0] = 1.0, 0.0, 0.0
        self.p[:, 1, 1] += C
        if not self.given:
            fade = min(1.0, 0.15 / self.a)
            self.a, self.b, self.ba = fade * self.a, fade * self.b, fade * self.ba


def _student(square: np.ndarray, scale: np.ndarray, a: float, n: int) -> np.ndarray:
    constant = gammaln(a + n / 2) - gammaln(a) - n / 2 * np.log(2 * np.pi * scale)
    return constant - (a + n / 2) * np.log1p(square / (2 * scale))
