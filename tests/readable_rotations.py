"""The rotation engine once more, to be read beside the method: numpy, one track, one step a call.

Isotropic members only. Names follow the formulas: a member k has lambda, decay g, velocity prior c;
delta_k and v_k are its angle and velocity seen from the common frame Q; P_k and the variance rho of
its jitter are in units of the noise variance r.
"""

from __future__ import annotations

import numpy as np
from scipy.spatial.transform import Rotation
from scipy.special import logsumexp

from kgmrf.kernels.rotation_rows import JITTER, LEVELS, isotropic_laws, noise_levels

SWITCHING, EXPERT_SWITCHING, FORGETTING = 1e-3, 0.01, 1 / 250


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
        laws = isotropic_laws(not self.given)
        self.lam, self.g, self.c, self.rho, self.joint, self.each = laws.T
        self.all_levels, self.all_priors, _ = noise_levels(noise_std).reshape(3, -1)
        self.n, self.base = min(LEVELS, len(self.all_levels)), None

    def start(self, z: np.ndarray) -> None:
        k = len(self.lam)
        self.started, self.q = True, z
        self.delta, self.v = np.zeros((k, 3)), np.zeros((k, 3))
        self.p = np.zeros((k, 2, 2))
        self.p[:, 0, 0], self.p[:, 1, 1] = 1.0 + self.rho, self.c
        # Weights at every level of the noise: of all axes together (L, K), of each axis (L, K, 3).
        self.w = np.tile(self.joint, (self.n, 1))
        self.omega = np.tile(self.each[:, None], (self.n, 1, 3))
        self.weight = np.tile(self.each[:, None], (1, 3))
        self.pi = np.array([0.5, 0.5])
        self.rejected, self.accept, self.young = None, False, 6

    def predict(self, h: float = 1.0) -> None:
        g = self.g
        keep = np.exp(-g * h)
        safe = np.where(g > 0, g, 1.0)
        beta = np.where(g > 0, -np.expm1(-g * h) / safe, h)
        q0 = np.where(g > 0, -np.expm1(-2 * g * h) / (2 * safe), h)
        q2 = np.where(g > 0, (h - 2 * beta + q0) / safe**2, h**3 / 3)
        f = np.zeros((len(g), 2, 2))
        f[:, 0, 0], f[:, 0, 1], f[:, 1, 1] = 1.0, beta, keep
        q = np.stack([np.stack([q2, beta**2 / 2], -1), np.stack([beta**2 / 2, q0], -1)], -2)
        self.p = f @ self.p @ np.swapaxes(f, 1, 2) + self.lam[:, None, None] * q
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
        if z is None or not self.observe(z):
            mean = (self.weight * self.delta).sum(axis=0)
        else:  # jitter is part of the motion: R = S Exp(j), j = kappa Log(S^T Z)
            kappa = (self.rho / (self.rho + 1.0))[:, None]
            e = log(self.q.T @ z)
            mean = (self.weight * ((1 - kappa) * self.delta + kappa * e)).sum(axis=0)
            mean += self.seen_share(kappa) * (e - mean)
        return self.q @ exp(mean)

    def seen_share(self, kappa: np.ndarray) -> float:
        """Of Z itself: noise and jitter look alike; Z is shown unless smoothing gains much."""
        if self.given:
            return 0.0
        if self.base is None:  # started at Z
            return 1.0
        p00 = (1 - kappa) ** 2 * self.p[:, :1, 0] + kappa
        left = (self.weight * p00).sum() / 3
        bar = max(np.exp(-JITTER * self.precision), 0.3)
        if self.young > 0:
            bar = min(bar, 0.5)
        return float(np.clip(0.5 + 5 * (left / bar - 1), 0.0, 1.0))

    def place(self, e: np.ndarray) -> None:
        """Which levels of the noise have weights: the first innovation says it."""
        self.base = 0
        while self.base + self.n < len(self.all_levels) and (
            self.all_levels[self.base + self.n - 2] < e @ e
        ):
            self.base += 1
        prior = self.all_priors[self.base : self.base + self.n]
        self.level = np.stack([prior, prior]) / prior.sum()

    def observe(self, z: np.ndarray) -> bool:
        """Whether Z was taken in."""
        e = log(self.q.T @ z)
        if self.base is None:
            self.place(e)
        seen = slice(self.base, self.base + self.n)
        self.levels, self.prior = self.all_levels[seen], self.all_priors[seen]
        y, s = e - self.delta, self.p[:, 0, 0] + self.rho + 1.0
        half = np.linalg.norm(e) / 2
        volume = 2 * np.log(np.sinc(half / np.pi))
        # N(y; 0, r S) at every level r, for every member and axis.
        rs = self.levels[:, None, None] * s[:, None]
        one = -0.5 * (np.log(2 * np.pi * rs) + y**2 / rs)
        new_w = (1 - SWITCHING) * self.w + SWITCHING * self.joint
        new_omega = (1 - SWITCHING) * self.omega + SWITCHING * self.each[:, None]
        with np.errstate(divide="ignore"):  # jitter is never that of all axes together
            joint, axes = one.sum(axis=2) + np.log(new_w), one + np.log(new_omega)
        found = np.stack([logsumexp(joint, axis=1), logsumexp(axes, axis=1).sum(axis=1)])
        found += np.log(self.level)
        evidence = logsumexp(found, axis=1) - volume
        pi = (1 - EXPERT_SWITCHING) * self.pi + EXPERT_SWITCHING * 0.5
        total = logsumexp(evidence + np.log(pi))
        if total < np.log((1e-3 if self.given else 3e-3) / (8 * np.pi**2)) and not self.accept:
            return self.refuse(z, half)
        self.rejected, self.accept, self.young = None, False, self.young - 1
        self.pi = np.exp(evidence + np.log(pi) - total)
        self.w = np.exp(joint - logsumexp(joint, axis=1)[:, None])
        self.omega = np.exp(axes - logsumexp(axes, axis=1)[:, None])
        self.learn(np.exp(found - logsumexp(found, axis=1)[:, None]))
        gain = self.p[:, :, 0] / s[:, None]
        self.delta = self.delta + gain[:, :1] * y
        self.v = self.v + gain[:, 1:] * y
        self.p = self.p - gain[:, :, None] * gain[:, None, :] * s[:, None, None]
        m = (self.weight * self.delta).sum(axis=0)
        self.q = self.q @ exp(m)
        self.delta = (self.delta - m) @ exp(-m / 2).T
        return True

    def learn(self, level: np.ndarray) -> None:
        """What the levels of the noise say together; then what is known of them fades."""
        one, each = self.pi[:, None] * level
        self.weight = (one @ self.w)[:, None] + np.einsum("l,lka->ka", each, self.omega)
        self.r = (one + each) @ self.levels
        level = np.maximum(level, 1e-30) ** (1 - FORGETTING) * self.prior**FORGETTING
        self.level = level / level.sum(axis=1)[:, None]
        if len(self.all_levels) >= LEVELS:  # those that have weights follow the noise
            steps = round(self.level.mean(axis=0) @ np.arange(self.n) - (self.n - 1) / 2)
            steps = int(np.clip(steps, -self.base, len(self.all_levels) - self.n - self.base))
            near = np.clip(np.arange(self.n) + steps, 0, self.n - 1)
            self.base, self.w, self.omega = self.base + steps, self.w[near], self.omega[near]
            self.level = self.level[:, near] / self.level[:, near].sum(axis=1)[:, None]
        found = self.level.mean(axis=0) @ (1 / self.all_levels[self.base : self.base + self.n])
        old = 0.0 if self.young > 0 else 0.98 * self.precision
        self.precision = max(found, old)  # of the least noise of late

    def refuse(self, z: np.ndarray, half: float) -> bool:
        again = self.rejected is not None and (
            np.linalg.norm(log(self.rejected.T @ z)) < min(1.0, half)
        )
        if not again:
            self.rejected = z
            return False
        self.q, self.rejected, self.accept = z, None, True
        self.delta[:] = 0.0
        self.p[:, 0, 0], self.p[:, 0, 1], self.p[:, 1, 0] = 1.0 + self.rho, 0.0, 0.0
        self.p[:, 1, 1] += self.c
        self.base, self.young = None, 6
        return True
