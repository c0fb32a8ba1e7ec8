"""Isotropic members of the rotation filter: angle and velocity, the same noise on every axis.

    begin     the frame at Z
    predict   members and frame move on
    score     what Z says of members, levels of the noise and experts
    take      Kalman step, weights, noise; then the frame moves to the mean of the members

delta_k and v_k are angle and velocity of member k seen from the common frame Q; P_k, lambda_k and
the variance rho_k of its jitter are in units of the noise variance r. Two experts weigh members:
for all axes together (w), and axis by axis (omega), each at every tabulated level of the noise.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.transform import Rotation
from scipy.special import logsumexp

from kgmrf import constants as c
from kgmrf._types import Numbers
from kgmrf.engines.rotation_row import CORE, DENSE, FIRST_LEVEL, ROTATION_HEAD, SETTINGS, part

LAW = c.STRUCTS["IsotropicLaw"]


def exp(v: Numbers) -> Numbers:
    """Exp: a rotation vector to its matrix."""
    return np.asarray(Rotation.from_rotvec(v).as_matrix())


def log(p: Numbers, q: Numbers) -> Numbers:
    """Log(P^T Q) of quaternions (w, x, y, z), principal."""
    of = Rotation.from_quat
    return np.asarray((of(p, scalar_first=True).inv() * of(q, scalar_first=True)).as_rotvec())


def turned(q: Numbers, v: Numbers) -> Numbers:
    """Q Exp(v) of a quaternion."""
    turned = Rotation.from_quat(q, scalar_first=True) * Rotation.from_rotvec(v)
    return np.asarray(turned.as_quat(scalar_first=True))


class Track:
    """One row by the names of :mod:`kgmrf.engines.rotation_row`: views, and numbers of the head."""

    def __init__(self, row: Numbers, oscillations: bool) -> None:
        names = [*CORE, *(DENSE if oscillations else ())]
        self.__dict__.update({name: part(row, name) for name in names if name != "head"})
        self.__dict__["numbers"] = row[: len(ROTATION_HEAD)]

    def __getattr__(self, name: str) -> Any:
        return self.numbers[ROTATION_HEAD.index(name)]

    def __setattr__(self, name: str, value: float) -> None:
        self.numbers[ROTATION_HEAD.index(name)] = value

    @property
    def unseen(self) -> bool:
        """Whether nothing was observed yet."""
        return bool(np.isnan(self.seen))


class Levels:
    """Settings of a row: the variances that the noise may have, with their priors."""

    def __init__(self, settings: Numbers) -> None:
        self.unit, self.jitter, self.rated, self.repeats, n = settings[: len(SETTINGS)]
        self.variance, self.prior, self.fading = settings[FIRST_LEVEL:].reshape(3, int(n))
        self.n, self.given = int(n), n == 1
        self.in_use = min(self.n, c.NOISE_LEVELS)


class Scored(NamedTuple):
    """What an observation says: new weights at every level, probabilities of levels, evidence."""

    w: Numbers  # (L, K)
    omega: Numbers  # (L, K, 3)
    found: Numbers  # (2, L)
    evidence: Numbers  # (2,), logs
    axes: Numbers  # (L, 3), log evidence of each axis, -inf at levels that are left out
    square: Numbers  # (K, 3), y^2/S
    log_s: Numbers  # (K,)


class Interval(NamedTuple):
    """Of every member over h: k = e^{-gh}, beta = (1 - k)/g, and its noise q over lambda."""

    keep: Numbers
    beta: Numbers
    q0: Numbers
    q2: Numbers


class Isotropic:
    """Formulas over one `Track`; laws ``(K, 6)``."""

    def __init__(self, laws: Numbers) -> None:
        self.lam, self.g, self.c, self.rho, self.joint, self.each = laws.T

    def begin(self, t: Track, z: Numbers, levels: Levels) -> None:
        """All members at Z for the first time: Q = Z, delta = 0, v = 0, P = diag(1 + rho, c)."""
        t.noise = math.exp(levels.prior @ np.log(levels.variance))
        t.base, t.young, t.precision = -1.0, c.YOUNG, 0.0
        t.level[:] = 1.0 / c.NOISE_LEVELS
        t.p11[:] = 0.0
        self.begin_again(t, z, 0.0)
        t.experts[:], t.rate[:] = c.EXPERT_PRIORS, 0.0
        t.weight[:] = t.tables[1:] = self.each
        t.tables[0] = self.joint

    def begin_again(self, t: Track, z: Numbers, fast: float) -> None:
        """Q = Z, delta = 0, P = diag(1 + rho, P11 + c + fast). Velocities, weights, noise stay."""
        t.frame[:], t.delta[:] = z, 0.0
        t.p00[:], t.p01[:] = 1.0 + self.rho, 0.0
        t.p11[:] += self.c + fast

    def rescale(self, t: Track, f: float) -> None:
        """The unit of time becomes f times what it was."""
        t.p01[:] *= f
        t.p11[:] *= f * f
        t.rate[:] *= f

    def predict(self, t: Track, h: float) -> None:
        """d_k = beta v_k, the frame by their mean m; P <- F P F^T + lambda q.

        F = [[1, beta], [0, k]], k = e^{-gh}, beta = (1 - k)/g;
        delta_k <- Exp(-m) delta_k + Exp(-m/2) (d_k - m).
        """
        keep, beta, q0, q2 = self.interval(h)
        p = t.p00 + beta * (2 * t.p01 + beta * t.p11) + self.lam * q2
        cross = keep * (t.p01 + beta * t.p11) + self.lam * beta**2 / 2
        most = 1e6 * c.WIDEST_ANGLE / t.noise  # nothing is known of this angle any more
        t.p00[:], t.p01[:] = np.minimum(p, most), np.sqrt(np.minimum(most / p, 1.0)) * cross
        t.p11[:] = keep**2 * t.p11 + self.lam * q0
        d = beta * t.rate
        t.rate[:] *= keep
        m = (t.weight * d).sum(axis=1)
        t.frame[:] = turned(t.frame, m)
        t.delta[:] = exp(-m) @ t.delta + exp(-m / 2) @ (d - m[:, None])
        _make_principal(t)

    def interval(self, h: float) -> Interval:
        """What h makes of the decay of every member."""
        x = self.g * h
        keep, still = np.exp(-x), self.g == 0.0
        g = np.where(still, 1.0, self.g)
        beta = np.where(still, h, -np.expm1(-x) / g)
        q0 = np.where(still, h, -np.expm1(-2 * x) / (2 * g))
        series = h**3 * (1 / 3 - x * (1 / 4 - x * (7 / 60 - x / 24)))
        return Interval(keep, beta, q0, np.where(x < 0.02, series, (h - 2 * beta + q0) / g**2))

    def turn(self, t: Track, by: Numbers, walk: float) -> None:
        """The body has turned by ``by``, as was measured; walk: variance of what was not.

        Q <- Q by, delta_k <- by^T delta_k, P00 <- P00 + walk/r.
        """
        turn = Rotation.from_quat(by, scalar_first=True)
        t.frame[:] = turned(t.frame, turn.as_rotvec())
        t.delta[:] = turn.as_matrix().T @ t.delta
        t.p00[:] += walk / t.noise

    def score(self, t: Track, e: Numbers, rel: float, levels: Levels) -> Scored:
        """N(y; 0, r S) at every level r for every member, y = e - delta, S = P00 + rho + rel."""
        if t.base < 0.0:
            self._place(t, e, levels)
        use = slice(0, levels.in_use)
        r = levels.variance[int(t.base) :][use]
        y, s = e - t.delta.T, t.p00 + self.rho + rel
        rs = r[:, None, None] * s[:, None]
        one = -0.5 * (np.log(2 * np.pi * rs) + y**2 / rs)  # (L, K, 3)
        share = c.MEMBER_SWITCHING
        w = (1 - share) * t.tables[0, use] + share * self.joint
        omega = (1 - share) * np.moveaxis(t.tables[1:, use], 0, -1) + share * self.each[:, None]
        with np.errstate(divide="ignore"):  # jitter is never that of all axes together
            known = np.where(self.joint > 0.0, np.log(w), -np.inf)
            joint, axes = one.sum(axis=2) + known, one + np.log(omega)
            level = np.log(t.level[:, use])
        each = logsumexp(axes, axis=1)
        found = np.stack([logsumexp(joint, axis=1), each.sum(axis=1)]) + level
        padded = np.pad(t.level[:, use], ((0, 0), (1, 1)), mode="edge")
        near = padded[:, :-2] + padded[:, 1:-1] + padded[:, 2:]
        found[near <= c.UNLIKELY_LEVEL] = -np.inf
        each[near[1] <= c.UNLIKELY_LEVEL] = -np.inf
        evidence = logsumexp(found, axis=1)
        return Scored(
            np.exp(joint - logsumexp(joint, axis=1)[:, None]),
            np.exp(axes - logsumexp(axes, axis=1)[:, None]),
            np.exp(found - evidence[:, None]),
            evidence,
            each,
            y**2 / s[:, None],
            np.log(s),
        )

    def distance(self, t: Track, scored: Scored) -> float:
        """Squared distance of what was scored, over its variance."""
        return float((t.weight.T * scored.square).sum() / t.noise)

    def outlier(self, t: Track, e: Numbers, volume: float, scored: Scored) -> float:
        """Log density of Z as an outlier, o(e), over the group; volume: that of e.

        Any rotation, or nearer ones more likely; or off about one axis i while the two others say
        what they would of a motion, f_jm at level m of the noise, so that quiet axes speak for
        neither. With d the deviation of the forecast, L = log(1 + pi/d), L3 = max(L - 1.5, 1):

            o = s0 / 8 pi^2 + s1 / (4 pi (|e| + d)^3 L3)
                + sum_i (s2 / 2 pi + s3 / (2 (|e_i| + d) L)) sum_m level_m prod_{j != i} f_jm / 3
        """
        s0, s1, s2, s3 = c.OUTLIER_SHARES
        d = math.sqrt(t.noise) * math.exp((t.weight.sum(axis=0) * scored.log_s).sum() / 6)
        big = math.log1p(math.pi / d)
        near = s1 / (4 * math.pi * (np.linalg.norm(e) + d) ** 3 * max(big - 1.5, 1.0))
        others = np.stack([scored.axes[:, [1, 2]], scored.axes[:, [2, 0]], scored.axes[:, [0, 1]]])
        quiet = np.exp(others.sum(axis=2)) @ t.level[1, : len(scored.axes)]
        one = s2 / (2 * math.pi) + s3 / (2 * (np.abs(e) + d) * big)
        density = (near + (one * quiet).sum() / 3) * math.exp(-volume)
        return math.log(s0 / (8 * math.pi**2) + density)

    def take(
        self, t: Track, e: Numbers, rel: float, repeat: bool, levels: Levels, scored: Scored
    ) -> None:
        """Kalman step K = P[:, 0]/S and the new weights of every member.

        An exact repeat says nothing of the noise.
        """
        self._learn(t, repeat, levels, scored)
        own = rel + self.rho
        s = t.p00 + own
        k0, k1 = t.p00 / s, t.p01 / s
        y = e[:, None] - t.delta
        t.delta[:] += k0 * y
        t.rate[:] += k1 * y
        t.gain = (t.weight * k0).sum() / 3
        # Not below what the correlation with the angle needs: the difference cancels.
        least = own * k1 * t.p01 / np.where(t.p00 > 0.0, t.p00, 1.0) + 1e-300
        t.p11[:] = np.maximum(t.p11 - k1 * t.p01, least)
        t.p00[:], t.p01[:] = own * k0, own * k1
        self._recentre(t)

    def lost(self, t: Track) -> bool:
        """Whether nothing is known of the angle any more, as after a long gap."""
        known = np.minimum(t.p00 * t.noise, c.WIDEST_ANGLE)
        return bool((t.weight * known).sum() > 2.9 * c.WIDEST_ANGLE)

    def _place(self, t: Track, e: Numbers, levels: Levels) -> None:
        """Which levels of the noise have weights: the first innovation says it."""
        base, n = 0, c.NOISE_LEVELS
        while base + n < levels.n and levels.variance[base + n - 2] < e @ e:
            base += 1
        t.base = base
        prior = levels.prior[base : base + n]
        t.level[:] = 0.0
        t.level[:, : len(prior)] = prior / prior.sum()

    def _learn(self, t: Track, repeat: bool, levels: Levels, scored: Scored) -> None:
        """What the levels of the noise say together; then what is known of them fades.

        level prop to (level^(1 - tau) found^tau)^(1 - f) prior^f, f = NOISE_FORGETTING. One
        observation says little of the noise, tau = LEVEL_LEARNING: members at different levels do
        not err alike. While the noise is young it counts in full.
        """
        base, n = int(t.base), levels.in_use
        variance, fading = (of[base : base + n] for of in (levels.variance, levels.fading))
        experts = t.experts[:2] / t.experts[:2].sum()
        found, seen = scored.found, scored.found > 0.0
        if repeat:  # the levels that were scored, as probable as before
            found = np.where(seen, t.level[:, :n], 0.0)
            found /= found.sum(axis=1)[:, None]
        one, each = experts[:, None] * found
        t.weight[:] = one @ scored.w + np.einsum("l,lka->ak", each, scored.omega)
        t.noise = (one + each) @ variance
        t.tables[0, :n][seen[0]] = scored.w[seen[0]]
        t.tables[1:, :n][:, seen[1]] = np.moveaxis(scored.omega, -1, 0)[:, seen[1]]
        if repeat:
            return
        tau = 1.0 if t.young > 0.0 else c.LEVEL_LEARNING
        before, now = (np.log(np.maximum(of, c.LEAST_LEVEL)) for of in (t.level[:, :n], found))
        level = np.exp((1 - c.NOISE_FORGETTING) * (before + tau * (now - before))) * fading
        t.level[:, :n] = level / level.sum(axis=1)[:, None]
        if levels.n >= c.NOISE_LEVELS:  # those that have weights follow the noise
            middle = t.level.mean(axis=0) @ np.arange(n)
            steps = int(np.clip(round(middle - (n - 1) / 2), -base, levels.n - n - base))
            near = np.clip(np.arange(n) + steps, 0, n - 1)
            t.base, t.tables[:] = base + steps, t.tables[:, near]
            if steps:
                t.level[:] = t.level[:, near] / t.level[:, near].sum(axis=1)[:, None]
        t.young = max(t.young - 1.0, 0.0)
        if levels.jitter > 0.0:  # the least noise of late, as a precision
            here = t.level[:, :n].mean(axis=0) @ (1 / levels.variance[int(t.base) :][:n])
            t.precision = max(here, 0.0 if t.young else c.LEAST_NOISE_MEMORY * t.precision)

    def _recentre(self, t: Track) -> None:
        """Q <- Q Exp(m), m the mean of the members; delta <- Exp(-m/2)(delta - m)."""
        m = np.where(t.weight > 1e-12, t.weight * t.delta, 0.0).sum(axis=1)
        t.frame[:] = turned(t.frame, m)
        t.delta[:] = exp(-m / 2) @ (t.delta - m[:, None])
        _make_principal(t)
        far, fast = (t.delta**2).sum(axis=0), (t.rate**2).sum(axis=0)
        for k in np.flatnonzero(~((far < 0.99 * c.WIDEST_ANGLE) & (fast < c.WIDEST_ANGLE))):
            # A member that ran away starts again here, with their mean velocity.
            t.p00[k], t.p01[k], t.p11[k] = 1.0 + self.rho[k], 0.0, self.c[k]
            t.delta[:, k] = 0.0
            t.rate[:, k] = (t.weight * np.where(np.abs(t.rate) < 4.0, t.rate, 0.0)).sum(axis=1)


def _make_principal(t: Track) -> None:
    for k in np.flatnonzero((t.delta**2).sum(axis=0) > c.WIDEST_ANGLE):
        t.delta[:, k] = Rotation.from_rotvec(t.delta[:, k]).as_rotvec()
