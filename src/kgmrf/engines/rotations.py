"""The self-tuned rotation filter: rows of numbers in, records out.

Everything that is remembered of a track is its row. One tracker is one row, a bank is many rows, a
stream is rows by key: the numbers are the same. :mod:`kgmrf.readable.rotations` tells the formulas.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np

from kgmrf import _check
from kgmrf import constants as c
from kgmrf._types import Numbers
from kgmrf.engines import Engine, Lines, View, core
from kgmrf.engines import rotation_row as at
from kgmrf.engines.rotation_row import field, part
from kgmrf.model.tail import chi_squared_tail

NAMES = (
    "time",
    "age",
    "nis",
    "log_likelihood",
    "p_value",
    "rotation",
    "velocity",
    "angle_std",
    "covariance",
    "noise_std",
    "status",
    "outlier_probability",
    "weights",
    "half_life",
)
"""The fields of a record."""


class RotationView(View):
    """Named fields of records ``(..., record_size)``; velocities are per unit of the stamps."""

    def _make(self, name: str) -> dict[str, Numbers]:
        return {name: self._field(name)}

    def _field(self, name: str) -> Numbers:
        r = self._records
        if name in at.RECORD and name not in _MADE:
            return field(r, name).copy()
        if name == "p_value":
            return chi_squared_tail(field(r, "nis"), 3)
        if name == "age":
            return np.asarray(field(r, "time") - field(r, "seen"))
        if name == "rotation":
            return matrices(field(r, "quaternion"))
        if name == "velocity":
            return skew(field(r, "velocity") + field(r, "omega"))
        if name == "covariance":
            out = np.empty((*r.shape[:-1], 3, 3))
            for a, b, k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
                out[..., a, a] = field(r, "angle")[..., a]
                out[..., a, b] = out[..., b, a] = field(r, "off")[..., k]
            return out
        if name == "angle_std":
            return np.abs(skew(np.sqrt(field(r, "angle"))))
        kept = np.minimum(field(r, "gain"), 1.0)
        with np.errstate(divide="ignore"):
            return np.asarray(-math.log(2.0) / np.log1p(-kept) * field(r, "unit"))


NO_RATES = np.empty((0, 4))

_MADE = ("velocity",)
"""Fields that a record holds in another form."""


class Rotations(Engine):
    """Follow rotations of space without settings; observations are R Exp(noise).

    noise_std: standard deviation of the noise in every plane, radians; None learns it.
    noise_std_guess: where learning starts; it counts less than an observation, so that a wrong one
    does little harm. Without one, white fluctuation below about 2.5e-3 rad is taken for motion.
    oscillations: also hold dense members (constant velocity and oscillators), which cost most of
    the time and earn 1-3 % on smooth motion and a factor 2 on regular oscillation.
    time_unit: the usual time between observations in units of the stamps; None takes the median of
    the first eight positive intervals of each track.
    rated: rates are measured too (a gyroscope): they turn the body, and what the members follow is
    their error. There are no dense members then.
    repeats: whether exact repeats of a pose are "taken", are "missing" (at most three in a row), or
    are missing while they are frequent and runs of them short ("auto").

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
        rated: bool = False,
        repeats: str = "auto",
    ) -> None:
        self.rated, oscillations = rated, oscillations and not rated
        self.settings = at.settings(noise_std, noise_std_guess, time_unit, rated, repeats)
        self._laws = at.isotropic_laws(noise_std is None, rated), at.dense_laws()
        self._places = at.places(oscillations)
        self.size = at.size(oscillations)
        self.record_size = self.small = self.kept = at.RECORD_SIZE

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "loop"}

    @cached_property
    def loop(self) -> Any:
        """The loop over lines, made when it is first used."""
        return core.loop("Rotations", *self._laws, self._places)

    def init(self, n_tracks: int) -> Numbers:
        """Rows ``(n, size)`` of new tracks.

        >>> Rotations(oscillations=False).init(4).shape
        (4, 1620)
        """
        rows = np.zeros((n_tracks, self.size))
        part(rows, "seen")[:] = np.nan
        part(rows, "held")[:] = -1.0
        unit = self.settings[:, at.UNIT]
        part(rows, "unit")[:] = np.where(unit > 0.0, unit, 1.0)
        return rows

    def advance(
        self,
        rows: Numbers,
        lines: Lines,
        record_width: int | None = None,
        settings: Numbers | None = None,
        rates: Numbers = NO_RATES,
    ) -> tuple[Numbers, Numbers]:
        """Take in lines; see :mod:`kgmrf.engines`. counts divide the noise variance.

        settings: for this once, in place of those of the engine. rates: ``(N, 4)``, a rate at each
        line and its standard deviation, NaN where none was measured.
        """
        settings = self.settings if settings is None else settings
        which, n = lines.track_index, len(lines.track_index)
        if n > 1 and (which[1:] < which[:-1]).any():  # track by track: rows are large
            order = np.argsort(which, kind="stable")
            back = np.empty(n, dtype=np.int64)
            back[order] = np.arange(n)
            some = rates[order] if len(rates) else rates
            status, records = self.advance(rows, lines.part(order), record_width, settings, some)
            return status[back], records[back]
        status, records = np.empty(n, dtype=np.int8), np.empty((n, at.RECORD_SIZE))
        self.loop.run(rows, *lines[:4], True, lines.tolerance, records, status, settings, rates)
        return status, records[:, :record_width]

    def ahead(self, rows: Numbers, dt: Any) -> tuple[Numbers, Numbers]:
        """Rows as they are, and records ``(n, record_size)`` of them ``dt`` later, unobserved."""
        n = len(rows)
        lines = Lines(np.arange(n), np.zeros((n, 3, 3)), np.zeros(n), np.full(n, float(dt)))
        settings = self.settings.copy()
        settings[:, at.UNIT] = 1.0  # each row keeps its own
        return rows, self.advance(rows.copy(), lines, None, settings)[1]

    def records_of(self, rows: Numbers) -> Numbers:
        """Records of rows as they stand, without what their last observation said."""
        return self.ahead(rows, 0.0)[1]

    def check(self, rows: Numbers) -> None:
        """Raise ValueError unless a loop can use these rows without leaving them."""
        super().check(rows)
        known = part(rows, "intervals")
        if not ((known >= 0) & (known <= c.INTERVALS)).all():
            raise ValueError("rows count more intervals than they hold")
        stored = part(rows, "stored")
        if not ((stored >= 0) & (stored <= c.LONGEST_START)).all():
            raise ValueError("rows count more observations than they hold")
        mode = part(rows, "open")
        if not np.isin(mode, (0.0, c.TAKE, c.START, c.START_FAST)).all():
            raise ValueError("rows leave an observation open in a way that there is not")
        if not (np.abs(part(rows, "odds")) <= -2.0 * math.log(c.DOUBT)).all():
            raise ValueError("rows hold odds of an open observation that is not in doubt")
        outliers, observed = part(rows, "outliers"), part(rows, "observed")
        closed = (part(rows, "refused") > 0.0) & (mode == 0.0)  # an outlier that was counted
        if not ((outliers >= closed) & (outliers <= observed)).all():
            raise ValueError("rows count more outliers than observations")
        base = part(rows, "base")
        most = self.settings[0, at.N_LEVELS] - c.NOISE_LEVELS
        if not ((base >= -1) & (base <= max(most, 0)) & (base == np.floor(base))).all():
            raise ValueError("rows hold a level of the noise that there is not")
        if not (part(rows, "unit") > 0).all():
            raise ValueError("rows have a unit of time that is not positive")
        if (part(rows, "gaps") < 0).any():
            raise ValueError("rows hold an interval that is negative")
        seen = part(rows, "seen")
        finite = np.where(np.isnan(seen), 0.0, seen)
        if np.isnan(np.delete(rows, at.ROTATION_HEAD.index("seen"), axis=-1)).any() or not (
            max(
                np.abs(np.nan_to_num(rows, nan=0.0)).max(initial=0.0),
                np.abs(finite).max(initial=0.0),
            )
            <= _check.LARGEST
        ):
            raise ValueError("rows hold numbers that are not finite")
        _check_members(rows[~np.isnan(seen)])


def _check_members(rows: Numbers) -> None:
    """Weights, variances and quaternions of rows ``(n, size)`` that have seen something."""
    weights = [(part(rows, name), -1) for name in ("experts", "level", "tables", "weight")]
    units = [(part(rows, "frame"), -1)]
    p00, p01, p11 = (part(rows, name) for name in ("p00", "p01", "p11"))
    names = (
        "noise",
        "now",
        "open_noise",
        "behind",
        "unrest",
        "walk",
        "repeats",
        "repeated",
        "longest",
    )
    positive = [p00, p11, *(part(rows, name) for name in names)]
    units += [(part(rows, name)[part(rows, "open") > 0.0], -1) for name in ("last", "turned")]
    speeds = [part(rows, "delta"), part(rows, "rate")]
    units += [(part(rows, name), -1) for name in ("origin", "usual")]
    speeds.append(part(rows, "usual_rate"))
    positive.append(part(rows, "followed"))
    _check_earned(rows)
    if part(rows, "omega")[part(rows, "held") < 0.0].any():
        raise ValueError("rows hold a measured rate that never came")
    if rows.shape[1] == at.size(True):
        weights.append((part(rows, "share"), -1))
        units.append((part(rows, "quaternion"), -2))
        speeds.append(part(rows, "motion"))
        positive.append(part(rows, "age"))
        _check_spread(np.swapaxes(part(rows, "spread"), 1, 2))
        stored = np.arange(c.LONGEST_START) < part(rows, "stored")[:, None]
        first = part(rows, "first")[stored]
        positive.append(first[:, :2])
        units.append((first[:, 2:], -1))
    if any((np.abs(w.sum(axis=axis) - 1.0) > 1e-6).any() or (w < 0.0).any() for w, axis in weights):
        raise ValueError("rows hold weights that do not sum to 1")
    if any((np.abs((q**2).sum(axis=axis) - 1.0) > 1e-6).any() for q, axis in units):
        raise ValueError("rows hold a quaternion whose length is not 1")
    if any((values < 0.0).any() for values in positive):
        raise ValueError("rows hold a negative variance, count or interval")
    if any((np.abs(values) > _check.FASTEST).any() for values in speeds):
        raise ValueError("rows turn too fast")
    if (p01**2 > p00 * p11 * (1.0 + 1e-6) + 1e-30).any():
        raise ValueError("an angle and its velocity are correlated by more than 1")


def _check_earned(rows: Numbers) -> None:
    """What forecasts earned, and those that wait to be compared."""
    waiting, earned = part(rows, "pending"), part(rows, "earned")
    names, of = c.STRUCTS["PendingForecast"], c.STRUCTS["Earned"]
    variance, frame = waiting[..., names.index("variance")], waiting[..., 1:5]
    if (variance < 0.0).any() or (np.abs(waiting[..., 5:14]) > _check.FASTEST).any():
        raise ValueError("rows hold a forecast that is none")
    if (np.abs((frame[variance > 0.0] ** 2).sum(axis=-1) - 1.0) > 1e-6).any():
        raise ValueError("rows hold a forecast whose quaternion has not length 1")
    normal = np.zeros((*earned.shape[:-1], 3, 3))
    normal[..., *np.triu_indices(3)] = earned[..., :6]
    normal += np.swapaxes(np.triu(normal, 1), -1, -2)
    std = np.sqrt(np.maximum(np.diagonal(normal, axis1=-2, axis2=-1), 1e-300))
    unit = normal / std[..., :, None] / std[..., None, :]
    change, spread = earned[..., 10:13], earned[..., of.index("log_spread")]
    least_0 = earned[..., [of.index("count"), of.index("offered")]]
    if (np.linalg.eigvalsh(unit) < -1e-6).any() or (least_0 < 0.0).any():
        raise ValueError("rows hold a regression that is none")
    least, most = math.log(c.LEAST_SPREAD), math.log(c.WIDEST_SPREAD)
    if (np.abs(change) > c.MOST_EARNED).any() or ((spread < least) | (spread > most)).any():
        raise ValueError("rows hold a correction of forecasts that could not be learned")


def _check_spread(packed: Numbers) -> None:
    """Covariances of dense members, lower triangles ``(n, D, 78)``."""
    spread = np.zeros((*packed.shape[:2], 12, 12))
    spread[..., *np.tril_indices(12)] = packed
    spread += np.swapaxes(np.tril(spread, -1), -1, -2)
    most = np.abs(spread).max(axis=(-2, -1), initial=0.0)[..., None]
    if (np.linalg.eigvalsh(spread) < -1e-6 * most).any():
        raise ValueError("rows hold a covariance that is none")


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
    for i, j, k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        out[..., j, k] = -vectors[..., i]
        out[..., k, j] = vectors[..., i]
    out[np.isnan(vectors[..., 0])] = np.nan
    return out
