"""The self-tuned rotation filter: rows of numbers in, records out.

Everything that is remembered of a track is its row. One tracker is one row, a bank is many rows, a
stream is rows by key: the numbers are the same. The mathematics is in
:mod:`kgmrf.kernels.rotation_core` (isotropic members) and :mod:`kgmrf.kernels.rotation_dense`
(oscillators); it is written a second time, readably, in the tests.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from kgmrf._types import Mask, Numbers
from kgmrf.kernels import rotation_rows as at
from kgmrf.kernels.engine import ROTATION_TOLERANCE, loops

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

SHAPE = 0.15
"""How much a guess of the noise counts: as a tenth of an observation."""


class Rotations:
    """Follow rotations of space without settings; observations are R Exp(noise).

    noise_std: standard deviation of the noise in every plane, radians; None learns it.
    noise_std_guess: where learning starts; it counts as a tenth of an observation, so that a wrong
    one does little harm.
    oscillations: also hold dense members (constant velocity and oscillators), which cost most of
    the time and earn 1-3 % on smooth motion and a factor 2 on regular oscillation.
    time_unit: the usual time between observations in units of the stamps; None takes the median of
    the first eight positive intervals of each track.

    >>> engine = Rotations(noise_std=0.05)
    >>> rows = engine.init(2)
    >>> seen = np.tile(np.eye(3), (5, 2, 1, 1))
    >>> records = engine.advance(rows, seen, np.ones((5, 2), dtype=bool), 1.0)
    >>> engine.view(records)["rotation"].shape
    (5, 2, 3, 3)
    """

    def __init__(
        self,
        *,
        noise_std: float | None = None,
        noise_std_guess: float | None = None,
        oscillations: bool = True,
        time_unit: float | None = None,
    ) -> None:
        given = noise_std is not None
        guess = 1e-3 if noise_std_guess is None else min(float(noise_std_guess), 0.3)
        noise = guess if noise_std is None else float(noise_std)
        unit = 0.0 if time_unit is None else float(time_unit)
        head = [float(given), noise**2, SHAPE, unit, float(oscillations)]
        self._trusting = np.array([*head, -1.0])
        self._checking = np.array([*head, ROTATION_TOLERANCE])
        self._laws, self._table = at.isotropic_laws(), at.dense_laws()
        self.size = at.WHOLE if oscillations else at.CORE + 1
        self.record_size = at.RECORD

    def init(self, n_tracks: int) -> Numbers:
        """Rows ``(n, size)`` of tracks that have seen nothing.

        >>> Rotations(oscillations=False).init(4).shape
        (4, 391)
        """
        rows = np.zeros((n_tracks, self.size))
        rows[:, at.SEEN] = np.nan
        rows[:, at.UNIT] = self._trusting[at.S_UNIT] or 1.0
        return rows

    def advance(
        self,
        rows: Numbers,
        seen: Numbers,
        observed: Mask,
        dt: Any,
        noise: Any = 1.0,
    ) -> Numbers:
        """Take steps ``(T, n)`` into the rows, in place; returns records ``(T, n, record_size)``.

        seen: rotations ``(T, n, 3, 3)``; observed: where there is one; dt: time since the step
        before, in units of the stamps; noise: variance of an observation over that of one sample.
        """
        records = np.empty((*observed.shape, at.RECORD))
        loops("rotations").advance(
            rows,
            _own(seen, (*observed.shape, 3, 3)),
            np.array(observed, dtype=np.bool_, order="C"),
            _own(dt, observed.shape),
            _own(noise, observed.shape),
            self._laws,
            self._table,
            self._trusting,
            records,
        )
        return records

    def one(
        self, rows: Numbers, seen: Numbers, observed: Mask, dt: Numbers, noise: Numbers, check: bool
    ) -> tuple[int, Numbers]:
        """`advance` by one step of one track, without a copy; (what became of it, record).

        With ``check`` a matrix that is no rotation gives 2 and changes nothing.
        """
        records = np.empty((1, 1, at.RECORD))
        settings = self._checking if check else self._trusting
        status = loops("rotations").advance(
            rows, seen, observed, dt, noise, self._laws, self._table, settings, records
        )
        return status, records[0, 0]

    def ahead(self, rows: Numbers, dt: Any) -> Numbers:
        """Records ``(n, record_size)`` of the rows ``dt`` later, unobserved; rows are untouched."""
        records = np.empty((1, len(rows), at.RECORD))
        steps = np.array([float(dt)])
        loops("rotations_ahead").ahead(
            rows, steps, self._laws, self._table, self._trusting, records
        )
        return records[0]

    def check(self, rows: Numbers) -> None:
        """Raise ValueError unless a loop can use these rows without leaving them."""
        if rows.shape[-1] != self.size:
            raise ValueError(f"rows have {rows.shape[-1]} numbers, not {self.size}")
        known, stored = rows[..., at.KNOWN], rows[..., at.CORE]
        if not ((known >= 0) & (known <= 8) & (stored >= 0) & (stored <= at.LONGEST_START)).all():
            raise ValueError("rows count more intervals or observations than they hold")
        if not (rows[..., at.UNIT] > 0).all():
            raise ValueError("rows have a unit of time that is not positive")

    def view(self, records: Numbers) -> Any:
        """The fields of records ``(..., record_size)`` by name, each made when it is asked for."""
        return RotationView(records)


class RotationView(Mapping[str, Numbers]):
    """Named fields of records ``(..., record_size)``; velocities are per unit of the stamps."""

    def __init__(self, records: Numbers) -> None:
        self._records = records
        self._made: dict[str, Numbers] = {}

    def __getitem__(self, name: str) -> Numbers:
        if name not in NAMES:
            raise KeyError(name)
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)

    def _make(self, name: str) -> Numbers:
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
            return _symmetric(r[..., at.R_ANGLE : at.R_ANGLE + 3], r[..., at.R_OFF : at.R_OFF + 3])
        if name == "angle_std":
            return np.abs(skew(np.sqrt(r[..., at.R_ANGLE : at.R_ANGLE + 3])))
        kept = np.minimum(r[..., at.R_GAIN], 1.0)
        with np.errstate(divide="ignore"):
            return np.asarray(-math.log(2.0) / np.log1p(-kept) * r[..., at.R_UNIT])


_PLAIN = {
    "time": at.R_TIME,
    "nis": at.R_NIS,
    "log_likelihood": at.R_LIKELIHOOD,
    "noise_std": at.R_NOISE,
    "status": at.R_STATUS,
}


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


def _symmetric(diagonal: Numbers, off: Numbers) -> Numbers:
    """A 3 x 3 matrix of its diagonal and of (12, 02, 01)."""
    out = np.empty((*diagonal.shape, 3))
    for a, b, c in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        out[..., a, a] = diagonal[..., a]
        out[..., b, c] = out[..., c, b] = off[..., a]
    return out


def _own(array: Any, shape: tuple[int, ...]) -> Numbers:
    """An array as the compiled signatures ask: contiguous and writable."""
    full = np.broadcast_to(np.asarray(array, dtype=np.float64), shape)
    return full if full.flags.carray else full.copy()
