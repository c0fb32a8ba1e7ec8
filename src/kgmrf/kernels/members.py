"""Where the numbers of a self-tuning bank lie: members, settings, the state of a track, a record.

No numba here: the loop of :mod:`kgmrf.kernels.mixture` and the words of :mod:`kgmrf.mixture` read
the same places.
"""

from __future__ import annotations

import itertools
import math
from functools import cache
from typing import Any

import numpy as np

from kgmrf._types import Numbers

# Kinds of members.
EMA, INFORMATION, KINETIC = 0, 1, 2

# One row of parameters per member.
(
    KIND,
    DECAY,  # log retention of the average per unit time, -log 2 / half-life; 0 for information
    CHANNEL_DECAY,  # the same for the deviation of each channel; 0 = no such clock
    SCALE_GAIN,  # gain of the clock of the overall size; 0 = no such clock
    SCALE_RETENTION,  # retention of the log size per unit time
    ACCELERATION,  # of the turning, rad^2 / time^3
    ANGLE_NOISE,  # random walk of the angle, rad^2 / time
    RETENTION,  # of the velocity per unit time
    SPECTRUM_RATE,  # variance that the log eigenvalues gain per unit time
    VELOCITY_GAIN,  # of a kinetic average
    RATE_PRIOR,  # variance of the velocity at the start
    SURPRISE_LIMIT,  # a frame this many times larger than forecast is scaled down to that
) = range(12)
N_PARAMETERS = 12

# Settings of the weighing, see `kgmrf.mixture.Settings`.
FORGETTING, BLEND_RATE, SHARE, CLIP, TOP_SHARE = range(5)

# The first numbers of a track's state.
TIME, SEEN, COUNT, POOL_SAMPLES, POOL_FRAMES, STARTED, LAST_SAMPLES = range(7)
N_HEAD = 7

# What a frame brings.
DT, SAMPLES, OBSERVED = range(3)

# The first numbers of a record; weights, the members' densities and the covariance follow, and in
# a detailed record the variance of the angles and the velocity.
R_TIME, R_SEEN, DENSITY, MIXTURE, BAYES, ALLOWANCE, NIS = range(7)
N_NUMBERS = 7


def shapes(n: int, n_information: int, d: int) -> dict[str, tuple[int, ...]]:
    """What a track remembers, in its order in a row of numbers.

    >>> list(shapes(17, 3, 7))[:3]
    ['head', 'floor', 'pool']
    """
    return {
        "head": (N_HEAD,),
        "floor": (d,),
        "pool": (d, d),
        "reference": (d, d),
        "log_posterior": (n,),
        "log_robust": (n,),
        "log_blend": (n,),
        "log_top": (2, 2),
        "gross": (3,),
        "scale": (n,),
        "mass": (n,),
        "spectrum": (n, d),
        "spectrum_var": (n, d),
        "frame": (n, d, d),
        "matrix": (n, d, d),
        "planes": (max(n_information, 1), 3, d, d),
    }


@cache
def _ends(n: int, n_information: int, d: int) -> tuple[int, ...]:
    sizes = (math.prod(shape) for shape in shapes(n, n_information, d).values())
    return tuple(itertools.accumulate(sizes, initial=0))


def offsets(table: Numbers, d: int) -> Numbers:
    """Where each part of a row begins, and its end, ``(parts + 1,)``."""
    n_information = int((table[:, KIND] == INFORMATION).sum())
    return np.array(_ends(len(table), n_information, d), dtype=np.int64)


def views(row: Numbers, table: Numbers, d: int) -> dict[str, Any]:
    """The parts of rows ``(..., size)`` by name, as views."""
    n_information = int((table[:, KIND] == INFORMATION).sum())
    ends = _ends(len(table), n_information, d)
    named = shapes(len(table), n_information, d).items()
    return {
        name: row[..., ends[k] : ends[k + 1]].reshape(*row.shape[:-1], *shape)
        for k, (name, shape) in enumerate(named)
    }


def record_size(n: int, d: int, *, detailed: bool) -> int:
    """Numbers in the record of one frame.

    >>> record_size(17, 3, detailed=True) - record_size(17, 3, detailed=False)
    18
    """
    return N_NUMBERS + 2 * n + (3 if detailed else 1) * d * d
