"""Dense members of the rotation filter: constant velocity and oscillators.

Each axis of the body frame carries a velocity v, its quadrature u and a log frequency l:

    v + i u  <-  z^h (v + i u),   z = exp(-i e^l),   angle += Re[(1 - z^h)/(1 - z) (v + i u)]

so that over one unit of time the angle moves by exactly v; at frequency 0 this is constant
velocity. A member is an extended Kalman filter of (angle, v, u, l), three numbers each, with its
own frame Q: the rotation is Q Exp(angle).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from kgmrf import constants as c
from kgmrf._types import Numbers
from kgmrf.geometry.between import right_jacobian
from kgmrf.readable.isotropic import Track, exp, log, turned

ANGLE, V, U, L = (slice(k, k + 3) for k in (0, 3, 6, 9))
LOWER = np.tril_indices(12)


class Scored(NamedTuple):
    """What an observation says of the dense members: new weights, innovations and S^-1."""

    weight: Numbers
    innovation: Numbers
    inverse: Numbers
    evidence: float


class Axes(NamedTuple):
    """How v and u of all axes go on over h; derivatives of angle, v and u."""

    v: Numbers
    u: Numbers
    step: Numbers
    by_v: Numbers
    by_u: Numbers
    by_l: Numbers
    v_by_l: Numbers
    u_by_l: Numbers
    cos: Numbers
    sin: Numbers


def follow(v: Numbers, u: Numbers, w: Numbers, h: float) -> Axes:
    """v + i u after h, and the angle turned on the way, by z = exp(-i w)."""
    now, z, zh = v + 1j * u, np.exp(-1j * w), np.exp(-1j * w * h)
    turning = w > 1e-4
    share = np.full(3, h, dtype=complex)
    by_l = np.zeros(3, dtype=complex)
    if abs(h - 1.0) < 1e-5:
        share[:] = 1.0
    else:
        safe = np.where(turning, z, 0.0)
        share = np.where(turning, (1 - zh) / (1 - safe), h)
        by_l = np.where(turning, (h * zh - share * z) / (1 - safe) * 1j * w, 0.0)
    later = zh * now
    slope = -1j * w * h * later  # d later / d l
    return Axes(
        later.real,
        later.imag,
        (share * now).real,
        share.real,
        -share.imag,
        (by_l * now).real,
        slope.real,
        slope.imag,
        zh.real,
        -zh.imag,
    )


def transition(axes: Axes) -> Numbers:
    """F, the Jacobian of (angle, v, u, l) after a step by those before it, at angle 0."""
    f, jr = np.zeros((12, 12)), right_jacobian(axes.step)
    f[ANGLE, ANGLE] = exp(-axes.step)
    f[ANGLE, V], f[ANGLE, U], f[ANGLE, L] = jr * axes.by_v, jr * axes.by_u, jr * axes.by_l
    f[V, V], f[V, U], f[V, L] = np.diag(axes.cos), np.diag(axes.sin), np.diag(axes.v_by_l)
    f[U, V], f[U, U], f[U, L] = np.diag(-axes.sin), np.diag(axes.cos), np.diag(axes.u_by_l)
    f[L, L] = np.eye(3)
    return f


class Dense:
    """Formulas over one `Track`; laws ``(D, 9)``."""

    def __init__(self, laws: Numbers) -> None:
        self.frequency, self.rate = laws[:, 0:3], laws[:, 4:7]
        self.log_std, self.acceleration, self.prior = laws[:, 3], laws[:, 7], laws[:, 8]

    def covariance(self, t: Track, n: int) -> Numbers:
        """P of member n."""
        p = np.zeros((12, 12))
        p[LOWER] = t.spread[:, n]
        return np.asarray(p + np.tril(p, -1).T)

    def start(self, t: Track, n: int, noise: float) -> None:
        """Member n starts at the common frame with the common velocity and its own prior."""
        t.quaternion[:, n] = t.frame
        t.motion[:, n] = 0.0
        t.motion[:3, n] = (t.weight * t.rate).sum(axis=1)
        moving = self.frequency[n] > 0.0
        t.motion[6:, n][moving] = np.log(self.frequency[n][moving])
        rate = self.rate[n]
        p = np.diag([*[noise] * 3, *rate, *rate, *[self.log_std[n] ** 2] * 3])
        t.spread[:, n], t.age[n] = p[LOWER], 0.0

    def start_all(self, t: Track) -> None:
        """All members there, with their prior weights."""
        for n in range(c.DENSE_MEMBERS):
            self.start(t, n, t.noise)
        t.share[:] = self.prior

    def rescale(self, t: Track, f: float) -> None:
        """The unit of time becomes f times what it was."""
        t.motion[:6] *= f
        t.motion[6:] += math.log(f)
        units = np.repeat([1.0, f, f, 1.0], 3)
        t.spread[:] *= np.outer(units, units)[LOWER][:, None]

    def drift(self, t: Track, h: float) -> None:
        """All members over h, in pieces of about one unit."""
        pieces = max(math.ceil(h - 0.5), 1) if h <= c.LONGEST_GAP else 0
        for n in range(c.DENSE_MEMBERS):
            if pieces == 0:
                self.start(t, n, c.DENSE_WIDEST_ANGLE)
            for _ in range(pieces):
                self.drift_piece(t, n, h / pieces)

    def drift_piece(self, t: Track, n: int, h: float) -> None:
        """P <- F P F^T + noise over h of about one unit at most.

        The frequency multiplies the amplitude. While both are uncertain a first-order step would be
        far too sure of the phase, so the mean takes its second-order term and the covariance a
        diffusion w h var(l) var(amplitude).
        """
        p, q = self.covariance(t, n), self.acceleration[n]
        v, u, _ = t.motion[:, n].reshape(3, 3)
        w = self.turning(t, n)
        axes = follow(v, u, w, h)
        var_v, var_u, var_l = (np.diagonal(p)[k] for k in (V, U, L))
        pv, pu = np.diagonal(p[V, L]), np.diagonal(p[U, L])
        t.motion[:3, n] = axes.v + w * h * (axes.cos * pu - axes.sin * pv)
        t.motion[3:6, n] = axes.u - w * h * (axes.cos * pv + axes.sin * pu)
        t.quaternion[:, n] = turned(t.quaternion[:, n], axes.step)
        f = transition(axes)
        p = f @ p @ f.T
        diffusion = w * h * var_l
        p[ANGLE, ANGLE] += q * h**3 / 3 * np.eye(3)
        p[ANGLE, V] += q * h**2 / 2 * np.eye(3)
        p[V, ANGLE] += q * h**2 / 2 * np.eye(3)
        p[V, V] += np.diag(diffusion * var_u + q * h)
        p[U, U] += np.diag(diffusion * var_v + q * h)
        most = np.ones(12)  # row and column, so that P stays definite
        most[:3] = np.sqrt(np.minimum(c.DENSE_WIDEST_ANGLE / np.diagonal(p)[:3], 1.0))
        t.spread[:, n] = (most[:, None] * most * p)[LOWER]

    def turning(self, t: Track, n: int) -> Numbers:
        """Frequency of every axis of member n; 0 for constant velocity."""
        return np.where(self.frequency[n] > 0.0, np.exp(t.motion[6:, n]), 0.0)

    def ahead(self, t: Track, n: int, h: float) -> tuple[Numbers, float]:
        """Turn of member n over h, seen from the common frame; sum of its variances.

        To first order in what is uncertain, and each axis by itself.
        """
        p, (v, u, _) = self.covariance(t, n), t.motion[:, n].reshape(3, 3)
        axes = follow(v, u, self.turning(t, n), h)
        slopes = np.stack([np.ones(3), axes.by_v, axes.by_u, axes.by_l])
        each = p.reshape(4, 3, 4, 3).diagonal(axis1=1, axis2=3)  # (4, 4, axis)
        variance = np.einsum("ia,ija,ja->", slopes, each, slopes)
        variance += self.acceleration[n] * h**3
        return log(t.frame, t.quaternion[:, n]) + axes.step, float(variance)

    def score(self, t: Track, z: Numbers, r: float) -> Scored:
        """N(Log(Q^T Z); 0, P + r I) of the angles of every member, over the group."""
        found = np.empty(c.DENSE_MEMBERS)
        innovation, inverse = np.empty((len(found), 3)), np.empty((len(found), 3, 3))
        for n in range(len(found)):
            variances = np.diagonal(self.covariance(t, n))
            sound = (variances >= 0.0).all() and (variances < 1e12).all()
            if not (sound and (np.abs(t.motion[:3, n]) < math.pi).all()):
                self.start(t, n, r)
            e = innovation[n] = log(t.quaternion[:, n], z)
            s = self.covariance(t, n)[ANGLE, ANGLE] + r * np.eye(3)
            inverse[n] = np.linalg.inv(s)
            half = np.linalg.norm(e) / 2
            volume = 2 * math.log(np.sinc(half / math.pi))
            nis = e @ inverse[n] @ e
            found[n] = -0.5 * (np.linalg.slogdet(2 * np.pi * s)[1] + nis) - volume
        found = np.maximum(found, -1e12)
        share = (1 - c.MEMBER_SWITCHING) * t.share + c.MEMBER_SWITCHING * self.prior
        evidence = logsumexp(found + np.log(share))
        return Scored(np.exp(found + np.log(share) - evidence), innovation, inverse, evidence)

    def take(self, t: Track, r: float, scored: Scored) -> None:
        """Kalman corrections K = P[:, angle] S^-1.

        A member whose past weighs less than what the sharing grants it anyway starts again.
        """
        t.share[:] = scored.weight
        t.age[:] += 1.0
        for n in range(c.DENSE_MEMBERS):
            p = self.covariance(t, n)
            gain = p[:, ANGLE] @ scored.inverse[n]
            step = gain @ scored.innovation[n]
            after = p - gain @ p[ANGLE]
            after[:, ANGLE] = r * gain  # the same, without cancellation
            t.spread[:, n] = after[LOWER]
            t.quaternion[:, n] = turned(t.quaternion[:, n], step[ANGLE])
            t.motion[:, n] += step[3:]
            bounds = math.log(c.LOWEST_FREQUENCY), math.log(c.HIGHEST_FREQUENCY)
            t.motion[6:, n] = np.clip(t.motion[6:, n], *bounds)
            least = 1e-3 * c.MEMBER_SWITCHING * self.prior[n]
            if t.age[n] > 30.0 and t.share[n] * t.experts[2] < least:
                self.start(t, n, r)
