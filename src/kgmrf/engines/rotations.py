"""The self-tuned rotation filter: rows of numbers in, records out.

Everything that is remembered of a track is its row. One tracker is one row, a bank is many rows, a
stream is rows by key: the numbers are the same. The mathematics is in
:mod:`kgmrf.kernels.rotation_core` (isotropic members) and :mod:`kgmrf.kernels.rotation_dense`
(oscillators); it is written a second time, readably, in the tests.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kgmrf import _check
from kgmrf._types import Numbers
from kgmrf.engines import Engine, Lines, View
from kgmrf.kernels import rotation_rows as at
from kgmrf.kernels.engine import loops

NAMES = (
    "time",
    "age",
    "nis",
    "log_likelihood",
    "rotation",
    "velocity",
    "angle_std",
    "covariance",
    "noise_std",
    "status",
    "weights",
    "half_life",
)
"""The fields of a record."""

_FIRST = np.zeros(1, dtype=np.int64)


class RotationView(View):
    """Named fields of records ``(..., record_size)``; velocities are per unit of the stamps."""

    def _make(self, name: str) -> dict[str, Numbers]:
        return {name: self._field(name)}

    def _field(self, name: str) -> Numbers:
        r = self._records
        if name in _PLAIN:
            return r[..., _PLAIN[name]].copy()
        if name == "age":
            return np.asarray(r[..., at.R_TIME] - r[..., at.R_SEEN])
        if name == "weights":
            return r[..., at.R_WEIGHTS :].copy()
        if name == "rotation":
            return matrices(r[..., :4])
        if name == "velocity":
            return skew(r[..., at.R_VELOCITY : at.R_VELOCITY + 3])
        if name == "covariance":
            return r[..., _COVARIANCE]
        if name == "angle_std":
            return np.abs(skew(np.sqrt(r[..., at.R_ANGLE : at.R_ANGLE + 3])))
        kept = np.minimum(r[..., at.R_GAIN], 1.0)
        with np.errstate(divide="ignore"):
            return np.asarray(-math.log(2.0) / np.log1p(-kept) * r[..., at.R_UNIT])


_COVARIANCE = at.R_ANGLE + np.array([[0, 11, 10], [11, 1, 9], [10, 9, 2]])  # R_OFF - R_ANGLE = 9
_PLAIN = {
    "time": at.R_TIME,
    "nis": at.R_NIS,
    "log_likelihood": at.R_LIKELIHOOD,
    "noise_std": at.R_NOISE,
    "status": at.R_STATUS,
}


class Rotations(Engine):
    """Follow rotations of space without settings; observations are R Exp(noise).

    noise_std: standard deviation of the noise in every plane, radians; None learns it.
    noise_std_guess: where learning starts; it counts less than an observation, so that a wrong one
    does little harm. Without one, white fluctuation below 1.5e-3 rad is taken for motion.
    oscillations: also hold dense members (constant velocity and oscillators), which cost most of
    the time and earn 1-3 % on smooth motion and a factor 2 on regular oscillation.
    time_unit: the usual time between observations in units of the stamps; None takes the median of
    the first eight positive intervals of each track.

    >>> engine = Rotations(noise_std=0.05)
    >>> rows = engine.init(2)
    >>> seen = np.tile(np.eye(3), (5, 1, 1))
    >>> lines, one = np.array([0, 1, 0, 0, 1]), np.ones(5)
    >>> records = engine.advance(rows, Lines(lines, seen, one, one))[1]
    >>> engine.view(records)["rotation"].shape
    (5, 3, 3)
    """

    d = 3
    names = NAMES
    shows = RotationView

    def __init__(
        self,
        *,
        noise_std: float | None = None,
        noise_std_guess: float | None = None,
        oscillations: bool = True,
        time_unit: float | None = None,
    ) -> None:
        learned = noise_std is None
        levels = at.noise_levels(noise_std, noise_std_guess)
        jitter = at.JITTER if learned and noise_std_guess is None else 0.0
        first = (time_unit or 0.0, oscillations, jitter, len(levels) // 3)
        self.settings = np.array([[*first, *levels]])
        self._laws, self._table = at.isotropic_laws(learned), at.dense_laws()
        self.size = at.WHOLE if oscillations else at.CORE + 1
        self.record_size = self.small = self.kept = at.RECORD

    def init(self, n_tracks: int) -> Numbers:
        """Rows ``(n, size)`` of tracks that have seen nothing.

        >>> Rotations(oscillations=False).init(4).shape
        (4, 1498)
        """
        rows = np.zeros((n_tracks, self.size))
        rows[:, at.SEEN] = np.nan
        unit = self.settings[:, at.S_UNIT]
        rows[:, at.UNIT] = np.where(unit > 0.0, unit, 1.0)
        return rows

    def advance(
        self, rows: Numbers, lines: Lines, room: int | None = None, settings: Numbers | None = None
    ) -> tuple[Numbers, Numbers]:
        """Take in lines; see :mod:`kgmrf.engines`. counts divide the noise variance.

        settings: for this once, in place of those of the engine.
        """
        settings = self.settings if settings is None else settings
        which, n = lines.which, len(lines.which)
        records, status = np.empty((n, at.RECORD)), np.empty(n, dtype=np.int8)
        order = _FIRST if n == 1 else np.argsort(which, kind="stable")  # track by track
        steps, members = (*lines[1:4], lines.tolerance), (self._laws, self._table, settings)
        loops("rotations").advance(rows, which, order, *steps, *members, records, status)
        return status, records[:, :room]

    def ahead(self, rows: Numbers, dt: Any) -> tuple[Numbers, Numbers]:
        """Rows as they are, and records ``(n, record_size)`` of them ``dt`` later, unobserved."""
        n = len(rows)
        lines = Lines(np.arange(n), np.zeros((n, 3, 3)), np.zeros(n), np.full(n, float(dt)))
        settings = self.settings.copy()
        settings[:, at.S_UNIT] = 1.0  # each row keeps its own
        return rows, self.advance(rows.copy(), lines, None, settings)[1]

    def look(self, rows: Numbers) -> Numbers:
        """Records of rows as they stand, without what their last observation said."""
        return self.ahead(rows, 0.0)[1]

    def check(self, rows: Numbers) -> None:
        """Raise ValueError unless a loop can use these rows without leaving them."""
        super().check(rows)
        known, stored = rows[..., at.KNOWN], rows[..., at.CORE]
        if not ((known >= 0) & (known <= 8) & (stored >= 0) & (stored <= at.LONGEST_START)).all():
            raise ValueError("rows count more intervals or observations than they hold")
        base = rows[..., at.BASE]
        most = self.settings[0, at.S_COUNT] - at.LEVELS
        if not ((base >= -1) & (base <= max(most, 0)) & (base == np.floor(base))).all():
            raise ValueError("rows hold a level of the noise that there is not")
        if not (rows[..., at.UNIT] > 0).all():
            raise ValueError("rows have a unit of time that is not positive")
        if (rows[..., at.GAPS : at.GAPS + 8] < 0).any():
            raise ValueError("rows hold an interval that is negative")
        loose = np.arange(rows.shape[-1]) == at.SEEN
        if np.isnan(rows[..., ~loose]).any() or (np.abs(rows) > _check.LARGEST).any():
            raise ValueError("rows hold numbers that are not finite")
        _check_members(rows[~np.isnan(rows[..., at.SEEN])])


def _check_members(rows: Numbers) -> None:
    """Weights, variances and quaternions of rows ``(n, size)`` that have seen something."""
    size = at.MEMBERS

    def part(first: int, *shape: int) -> Numbers:
        return rows[:, first : first + math.prod(shape)].reshape(len(rows), *shape)

    weights = [part(at.EXPERTS, 3), part(at.LEVEL, 2, at.LEVELS)]
    weights += [part(at.TABLES, 4 * at.LEVELS, size), part(at.WEIGHT, 3, size)]
    units = [part(at.FRAME, 4)]
    p00, p01, p11 = (part(first, size) for first in (at.P00, at.P01, at.P11))
    positive = [p00, p11, part(at.NOISE, 2)]
    speeds = [part(at.DELTA, 3, size), part(at.RATE, 3, size)]
    if rows.shape[1] == at.WHOLE:
        dense = part(at.DENSE, at.DENSE_MEMBERS, at.BLOCK)
        weights.append(dense[..., at.SHARE])
        units.append(dense[..., :4])
        speeds.append(dense[..., at.MOTION : at.SHARE])
        positive.append(dense[..., at.AGE])
        spread = np.zeros((*dense.shape[:2], 12, 12))
        spread[..., *np.tril_indices(12)] = dense[..., at.COV :]
        spread += np.swapaxes(np.tril(spread, -1), -1, -2)
        most = np.abs(spread).max(axis=(-2, -1), initial=0.0)[..., None]
        if (np.linalg.eigvalsh(spread) < -1e-6 * most).any():
            raise ValueError("rows hold a covariance that is none")
        first = part(at.FIRST, at.LONGEST_START, 6)
        stored = np.arange(at.LONGEST_START) < rows[:, at.STORED, None]
        positive.append(first[stored][:, :2])
        units.append(first[stored][:, 2:])
    if any((np.abs(w.sum(axis=-1) - 1.0) > 1e-6).any() or (w < 0.0).any() for w in weights):
        raise ValueError("rows hold weights that do not sum to 1")
    if any((np.abs((q**2).sum(axis=-1) - 1.0) > 1e-6).any() for q in units):
        raise ValueError("rows hold a quaternion whose length is not 1")
    if any((values < 0.0).any() for values in positive):
        raise ValueError("rows hold a negative variance, count or interval")
    if any((np.abs(values) > _check.FASTEST).any() for values in speeds):
        raise ValueError("rows turn too fast")
    if (p01**2 > p00 * p11 * (1.0 + 1e-6) + 1e-30).any():
        raise ValueError("an angle and its velocity are correlated by more than 1")


def matrices(quaternions: Numbers) -> Numbers:
    """Rotation matrices ``(..., 3, 3)`` of unit quaternions (w, x, y, z).

    >>> matrices(np.array([1.0, 0.0, 0.0, 0.0])).trace().item()
    3.0
    """
    w, v = quaternions[..., :1, None], quaternions[..., 1:]
    eye = np.eye(3) * (2.0 * w * w - 1.0)
    return np.asarray(eye + 2.0 * v[..., :, None] * v[..., None, :] + 2.0 * w * skew(v))


def skew(vectors: Numbers) -> Numbers:
    """The cross product as a matrix; NaN throughout where the vector is.

    >>> skew(np.array([0.0, 0.0, 2.0]))[1, 0].item()
    2.0
    """
    out = np.zeros((*vectors.shape, 3))
    for a, b, c in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        out[..., b, c] = -vectors[..., a]
        out[..., c, b] = vectors[..., a]
    out[np.isnan(vectors[..., 0])] = np.nan
    return out
