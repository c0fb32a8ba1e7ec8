"""Where the numbers of a rotation's row and of its record lie, by name: declared once, here.

The core and the readable engine are handed `PLACES`; nothing else knows an offset.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kgmrf import constants as c
from kgmrf._types import Numbers

K, D, L = c.ROTATION_MEMBERS, c.DENSE_MEMBERS, c.NOISE_LEVELS
ROTATION_HEAD = c.STRUCTS["RotationHead"]

CORE = {
    "head": (len(ROTATION_HEAD),),
    "gaps": (c.INTERVALS,),  # the first positive intervals, ascending
    "experts": (3,),  # probabilities of the joint, the per-axis and the dense weights
    "evidence": (2,),  # log evidence of the first two so far, while the noise is young
    "frame": (4,),  # quaternion (w, x, y, z) of the common frame Q
    "last": (4,),  # quaternion of the last observation, taken in or refused
    "omega": (3,),  # the last measured rate
    "turned": (4,),  # quaternion of the measured turn since an observation was left open
    "origin": (4,),  # quaternion of the common frame at the last observation
    "usual": (4,),  # quaternion of the usual rotation of late
    "usual_rate": (3,),  # usual velocity of late
    "pending": (len(c.FORECAST_LAGS), c.PENDING_FORECASTS, len(c.STRUCTS["PendingForecast"])),
    "earned": (len(c.FORECAST_LAGS), len(c.STRUCTS["Earned"])),
    "delta": (3, K),  # angle of an isotropic member, seen from the common frame
    "rate": (3, K),  # its velocity per unit
    "p00": (K,),  # its variances, in units of the noise variance
    "p01": (K,),
    "p11": (K,),
    "level": (2, L),  # probabilities of the levels: of the joint, of the per-axis expert
    "tables": (4, L, K),  # weights at each level: of all axes together, then of each axis
    "weight": (3, K),  # all of it together
}
DENSE = {
    "first": (c.LONGEST_START, 6),  # time, relative noise and quaternion of the first observations
    "quaternion": (4, D),  # of the own frame of a dense member
    "motion": (9, D),  # velocity, its quadrature, log frequency of each axis
    "share": (D,),  # weight
    "age": (D,),  # observations since it started
    "spread": (78, D),  # lower triangle of the covariance of (angle, motion)
}
RECORD = {
    "quaternion": (4,),
    "velocity": (3,),  # less the measured rate,
    "omega": (3,),  # which is this, or 0
    "angle": (3,),  # variances of the angles,
    "cross": (3,),  # their covariances with the velocities,
    "rate": (3,),  # variances of the velocities,
    "off": (3,),  # covariances of the angles of axes (1, 2), (0, 2), (0, 1)
    "nis": (),
    "log_likelihood": (),
    "time": (),
    "seen": (),
    "noise_std": (),
    "gain": (),
    "unit": (),
    "status": (),
    "outlier_probability": (),
    "before": (),  # what became of an observation that was open: its status, else 0
    "shown": (),  # share of Z itself in what is shown, also of those who look back
    "weights": (K + D,),
}


def _laid(parts: dict[str, tuple[int, ...]]) -> dict[str, int]:
    begins, end = {}, 0
    for name, shape in parts.items():
        begins[name], end = end, end + math.prod(shape)
    return begins | {"end": end}


_ROW, _CORE, _RECORD = _laid(CORE | DENSE), _laid(CORE), _laid(RECORD)
RECORD_SIZE, STATUS = _RECORD["end"], _RECORD["status"]


def size(oscillations: bool) -> int:
    """Numbers of a row, with dense members or without."""
    return (_ROW if oscillations else _CORE)["end"]


def places(oscillations: bool) -> dict[str, int]:
    """Where the parts of a row and, after ``record_``, of a record begin."""
    return (_ROW if oscillations else _CORE) | {f"record_{k}": v for k, v in _RECORD.items()}


def part(rows: Numbers, name: str) -> Numbers:
    """A part of rows ``(..., size)`` by its name, as a view; a number of the head too.

    >>> rows = np.zeros((5, size(True)))
    >>> part(rows, "spread").shape, part(rows, "unit").shape
    ((5, 78, 12), (5,))
    """
    if name in ROTATION_HEAD:
        return _cut(rows, ROTATION_HEAD.index(name), ())
    return _cut(rows, _ROW[name], (CORE | DENSE)[name])


def field(records: Numbers, name: str) -> Numbers:
    """A part of records ``(..., RECORD_SIZE)`` by its name, as a view."""
    return _cut(records, _RECORD[name], RECORD[name])


def _cut(rows: Numbers, begin: int, shape: tuple[int, ...]) -> Numbers:
    if not shape:
        return rows[..., begin : begin + 1].reshape(rows.shape[:-1])
    return rows[..., begin : begin + math.prod(shape)].reshape(*rows.shape[:-1], *shape)


# ------------------------------------------------------------------ members and settings


def isotropic_laws(learned: bool = True, rated: bool = False) -> Numbers:
    """The isotropic members, one ``IsotropicLaw`` a row, sorted by decay ``(K, 6)``.

    If the noise is learned, jitter can hardly be distinguished from it: it is less likely, and not
    on all axes alike. rated: the rate is measured; in place of jitter the angle walks at random.

    >>> isotropic_laws().shape
    (24, 6)
    """
    listed = [(0.0, 0.0, 0.051), (1e-5, 0.0, 0.099), (1e-4, 0.0, 0.099)]
    usual = [(1e-3, 0.099), (0.01, 0.099), (0.1, 0.099), (1.0, 0.05), (10.0, 0.025)]
    listed += [(ratio, 0.03, prior) for ratio, prior in usual]
    listed += [(ratio, 0.03, 0.03) for ratio in (1e2, 1e4, 1e6)]
    listed += [(ratio, 0.3, prior) for ratio, prior in usual]
    listed += [(1e3, 0.3, 0.05), (1e6, 0.3, 0.05)]
    rows = [(ratio, g, max(0.1, ratio), 0.0, prior, prior) for ratio, g, prior in listed]
    walks = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0)
    rows += [(9.0 * q, 3.0, 1.5 * q, 0.0, 0.099, 0.099) for q in walks if rated]
    for own in () if rated else (1e1, 1e3, 1e5):
        for ratio in (1e-4, 1e-2):
            rows.append((ratio * own, 0.0, own, own, 0.0, 0.005 if learned else 0.02))
    table = np.array(sorted(rows, key=lambda row: row[1]))
    table[:, 4:] /= table[:, 4:].sum(axis=0)
    return table


def dense_laws() -> Numbers:
    """The dense members, one ``DenseLaw`` a row ``(D, 9)``; frequencies in rad per unit.

    One of constant velocity, eight oscillators with a slow or a fast period on every axis, three
    that swing irregularly.

    >>> dense_laws().shape
    (12, 9)
    """
    rows = [(0.0, 0.0, 0.0, 0.0, 4e-4, 4e-4, 4e-4, 0.0, 0.5)]
    for n in range(8):
        w = 2 * np.pi / np.array([20.0 if n >> a & 1 else 80.0 for a in range(3)])
        rows.append((*w, 0.5, *(0.5 * w) ** 2, 0.0, 0.3 / 8))
    for period in (8.0, 20.0, 50.0):
        one = 2 * np.pi / period
        rate = (0.5 * one) ** 2
        rows.append((one, one, one, 0.4, rate, rate, rate, 0.01 * rate, 0.2 / 3))
    return np.array(rows)


def noise_levels(noise_std: float | None, guess: float | None = None) -> Numbers:
    """Variances that the noise may have, how probable they are before anything is seen, p, p^f.

    f = NOISE_FORGETTING: what fades is drawn towards p. Given, the noise has one level. Learned,
    each is twice the one before, and a guess favours those near.

    >>> noise_levels(0.1), len(noise_levels(None))
    (array([0.01, 1.  , 1.  ]), 120)
    """
    if noise_std is not None:
        return np.array([float(noise_std) ** 2, 1.0, 1.0])
    levels = 2.0 ** np.arange(-40, 0)
    prior = np.exp(-0.1 * np.abs(np.log(levels / float(1e-3 if guess is None else guess) ** 2)))
    prior /= prior.sum()
    return np.concatenate([levels, prior, prior**c.NOISE_FORGETTING])


def settings(
    noise_std: float | None,
    guess: float | None = None,
    time_unit: float | None = None,
    rated: bool = False,
    repeats: str = "auto",
) -> Numbers:
    """A ``RotationSettings`` and the levels of the noise behind it ``(1, 5 + 3 n_levels)``."""
    levels = noise_levels(noise_std, guess)
    jitter = c.JITTER_VARIANCE if noise_std is None and guess is None and not rated else 0.0
    head = [time_unit or 0.0, jitter, float(rated), REPEATS[repeats], len(levels) // 3]
    return np.array([[*head, *levels]])


REPEATS = {"taken": c.REPEATS_TAKEN, "missing": c.REPEATS_MISSING, "auto": c.REPEATS_AUTO}
SETTINGS: Any = c.STRUCTS["RotationSettings"]
UNIT, N_LEVELS, FIRST_LEVEL = SETTINGS.index("unit"), SETTINGS.index("n_levels"), len(SETTINGS)
