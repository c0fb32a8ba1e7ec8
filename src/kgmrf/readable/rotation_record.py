"""What a row of the rotation filter shows: moments of the mixture of all members, as a record."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from kgmrf import constants as c
from kgmrf._types import Numbers
from kgmrf.engines.rotation_row import field
from kgmrf.readable.dense import Dense
from kgmrf.readable.isotropic import Isotropic, Levels, Track, log, turned
from kgmrf.readable.rotation_ahead import Ahead


class Said(NamedTuple):
    """What became of an observation, and what it said."""

    status: int
    log_likelihood: float = math.nan
    nis: float = math.nan
    outlier_probability: float = math.nan
    before: int = c.MISSING  # what became of an observation that was open until now


class Member(NamedTuple):
    """What one member, axis by axis, says of Log(Q^T R) and of the velocity: moments."""

    weight: Numbers  # of each axis
    mean: Numbers
    velocity: Numbers
    angle: Numbers  # covariance of the angles
    cross: Numbers
    rate: Numbers


class Recorder:
    """Records of rows; what follows them is `kgmrf.readable.rotations.Rotations`."""

    isotropic: Isotropic
    dense: Dense
    ahead: Ahead
    oscillations: bool

    def dense_in_use(self, t: Track, levels: Levels) -> bool:
        """Whether dense members are: not before FIRST_START observations with learned noise."""
        return bool(self.oscillations and (levels.given or t.stored >= c.FIRST_START))

    def members(self, t: Track, with_dense: bool, e: Numbers) -> list[Member]:
        """What every member says, dense members last; e: Log(Q^T Z) of the observation.

        Jitter is part of the motion: R = S Exp(j), j of variance rho; given S and Z it is
        (1 - kept)(Z - S) with variance rho kept.
        """
        share, rho, r = t.experts[2] if with_dense else 0.0, self.isotropic.rho, t.noise
        kept = t.now / (t.now + rho) if t.now > 0.0 else np.ones(len(rho))
        p00 = np.minimum(r * t.p00, c.WIDEST_ANGLE)
        p01 = kept * t.p01 * np.sqrt(r * p00 / t.p00)
        p00 = kept**2 * p00 + r * rho * kept
        out = [
            Member(
                (1 - share) * t.weight[:, k],
                kept[k] * t.delta[:, k] + (1 - kept[k]) * e,
                t.rate[:, k],
                np.diag([p00[k]] * 3),
                np.full(3, p01[k]),
                np.full(3, r * t.p11[k]),
            )
            for k in range(c.ROTATION_MEMBERS)
        ]
        for n in range(c.DENSE_MEMBERS if with_dense else 0):
            if share * t.share[n] > 1e-12:
                p = self.dense.covariance(t, n)
                away = log(t.frame, t.quaternion[:, n])
                cross, rate = np.diagonal(p[3:6, :3]), np.diagonal(p)[3:6]
                weight = np.full(3, share * t.share[n])
                out.append(Member(weight, away, t.motion[:3, n], p[:3, :3], cross, rate))
        return out

    def seen_share(self, t: Track, left: float, young: bool, levels: Levels) -> float:
        """Share of Z itself in what is shown after it, where the noise is learned.

        Noise and white jitter of the rotation look alike: Z is shown unless smoothing gains much.
        left: variance over that of Z.
        """
        if levels.jitter == 0.0 or t.precision == 0.0:
            return 0.0
        bar = max(math.exp(-levels.jitter * t.precision / t.now), c.SMOOTHING_GAIN)
        if young:
            bar = min(bar, c.YOUNG_GAIN)
        return float(np.clip(0.5 + 5 * (left / bar - 1), 0.0, 1.0))

    def write_record(self, t: Track, said: Said, levels: Levels, record: Numbers) -> None:
        """Moments of the mixture of all members into a record; NaN before an observation."""
        record[:] = math.nan if t.unseen else 0.0
        numbers = {"time": t.time, "seen": t.seen, "unit": t.unit, **said._asdict()}
        for name, number in numbers.items():
            _put(record, name, number)
        if t.unseen:
            return
        with_dense, e = self.dense_in_use(t, levels), log(t.frame, t.last)
        members = self.members(t, with_dense, e)
        mean = np.sum([m.weight * m.mean for m in members], axis=0)
        velocity = np.sum([m.weight * m.velocity for m in members], axis=0)
        if t.now > 0.0:
            variance = sum(float(m.weight @ np.diagonal(m.angle)) for m in members)
            left = variance / (3 * t.noise * t.now)
            mean = mean + self.seen_share(t, left, t.young > 0.0, levels) * (e - mean)
            _put(record, "shown", self.seen_share(t, left, False, levels))
        angle, cross, rate, off = np.zeros((4, 3))
        for m in members:
            y, v = m.mean - mean, m.velocity - velocity
            angle += m.weight * (np.diagonal(m.angle) + y**2)
            cross += m.weight * (m.cross + y * v)
            rate += m.weight * (m.rate + v**2)
        for m in members[c.ROTATION_MEMBERS :]:  # isotropic members know no axes together
            y, second = m.mean - mean, m.angle
            for a in range(3):
                b, d = (a + 1) % 3, (a + 2) % 3
                off[a] += m.weight[a] * (second[b, d] + y[b] * y[d])
        shown, spread = turned(t.frame, mean), 1.0
        if not levels.rated and t.now == 0.0 and t.time > t.seen:
            more = self.ahead.applied(t, shown)
            shown, spread = turned(shown, more.turn), more.spread
        _put(record, "quaternion", shown)
        _put(record, "velocity", velocity / t.unit)
        _put(record, "angle", spread * angle)
        _put(record, "cross", math.sqrt(spread) * cross / t.unit)
        _put(record, "rate", rate / t.unit**2)
        _put(record, "off", spread * off)
        if t.held >= 0.0:
            _put(record, "omega", t.omega)
            _put(record, "rate", rate / t.unit**2 + t.unrest * t.held)
        _put(record, "noise_std", math.sqrt(t.noise))
        _put(record, "gain", t.gain)
        weights = field(record, "weights")
        weights[: c.ROTATION_MEMBERS] = [m.weight.mean() for m in members[: c.ROTATION_MEMBERS]]
        if with_dense:
            dense = t.experts[2] * t.share
            weights[c.ROTATION_MEMBERS :] = np.where(dense > 1e-12, dense, 0.0)


def _put(record: Numbers, name: str, value: Any) -> None:
    field(record, name)[...] = value
