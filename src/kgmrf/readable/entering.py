"""Channels that come late: when, and with which first variance.

A channel of the first rows comes with its first value other than zero. A later one waits until it
has had five: one value says little of a size, and what is too small makes all others surprising.
Its variance is that of these values,

    ((mean |x|)/sum_j pi_j E_j|x|)^2 e^-kappa,

drawn in the logarithm towards the variances of the channels that are there, as far as these are
alike: their mean is worth (2 pi - 4)/spread values, spread = var (1 + 1/k) + .05.
"""

from __future__ import annotations

import math

import numpy as np

from kgmrf._types import Numbers
from kgmrf.constants import (
    ENTER_CONFLICT,
    ENTER_LEAST,
    ENTER_SAMPLES,
    ENTER_SPREAD,
    SMALLEST,
    TAIL_ABS,
)
from kgmrf.engines import layout as at
from kgmrf.engines.layout import Track, present


def as_absolute(power: float, m: float) -> float:
    """sqrt(C_ii) of m samples, as |x| of one would be: E sqrt(chi^2_m/m) over that of m = 1."""
    mean = math.sqrt(2.0 / m) * math.exp(math.lgamma(0.5 * (m + 1.0)) - math.lgamma(0.5 * m))
    return math.sqrt(power) * TAIL_ABS[3] / mean


def first_scale(
    absolute: float, n: float, tails: Numbers, kappa: float, others: Numbers
) -> tuple[float, float]:
    """The variance that n values of this sum of sizes tell, and how many values it is worth."""
    log = 2.0 * math.log(absolute / n / float(tails @ np.array(TAIL_ABS))) - kappa
    log += 0.5 * ENTER_SPREAD / n  # the logarithm of a mean is too small on average
    k = len(others)
    if k < 2:
        return math.exp(log), n
    logs = np.log(others)
    spread = float(logs.var(ddof=1)) * (1.0 + 1.0 / k) + ENTER_LEAST
    apart = log - float(logs.mean())
    if not apart**2 < ENTER_CONFLICT * (spread + ENTER_SPREAD / n):
        return math.exp(log), n
    more = ENTER_SPREAD / spread
    return math.exp((n * log + more * float(logs.mean())) / (n + more)), n + more


def arrive(track: Track, power: Numbers, m: float, total: Numbers) -> Numbers:
    """Variances of the channels that come with this observation, 0 of all others, ``(d,)``.

    power: C_ii. total: the forecast S of the observation.
    """
    there, age, waiting = present(track), track.entry[0], track.entry[1]
    others, out = np.diag(total)[there], np.zeros(len(power))
    for i in np.flatnonzero(~there & (power > SMALLEST)):
        if track.head[at.COUNT] < ENTER_SAMPLES:
            out[i], age[i] = (1.0 + 1.0 / m) * power[i], max(track.head[at.COUNT], 1.0)
            continue
        waiting[i] += m * as_absolute(float(power[i]), m)
        age[i] += m
        if age[i] >= ENTER_SAMPLES:
            tails, kappa = track.tails[: at.N_TAILS], float(track.head[at.KAPPA])
            out[i], n = first_scale(float(waiting[i]), float(age[i]), tails, kappa, others)
            age[i], waiting[i] = max(n / m, 1.0), 0.0
    return out
