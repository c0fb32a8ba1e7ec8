"""When a run of small p-values is an alarm: exponential CUSUMs with an exact false-alarm rate.

Bet kappa on p pays e = kappa p^(kappa - 1), whose mean is 1 if p is uniform and less if p is larger
(Vovk and Wang 2021). Its CUSUM log e_t + max(0, ...) is an e-detector (Shin, Ramdas and Rinaldo
2024, E-detectors): for p-values that are valid given the past, in other words for rows that may
depend on each other in any way, its average run length to a false alarm is at least the exponential
of the threshold. Divided by 1 - kappa it reads

    S_t = max(0, S_{t-1} - log p_t - r),    r = -log(kappa)/(1 - kappa),    alarm at S_t >= h

and since -log p is exponential, the run length is known exactly (Vardeman and Ray 1985), not only
bounded: ARL(h) = 1 + g(h + r) with g' = 1 + g(u) - g(u - r), g(u) = e^u - 1 below r.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from kgmrf._types import Numbers
from kgmrf.constants import ALARM_BETS

STEPS = 128
"""Steps per reference in the solution of g."""


class Bets(NamedTuple):
    """References r and thresholds h of the CUSUMs, ``(K,)``."""

    references: Numbers
    thresholds: Numbers


def run_lengths(reference: float, most: float) -> tuple[Numbers, Numbers]:
    """Thresholds h and the average run length of each to a false alarm, up to ``most`` or beyond.

    >>> h, length = run_lengths(1.5, 1e3)
    >>> bool(abs(length[0] - np.exp(1.5)) < 1e-9)
    True
    """
    step = 0.5 * reference / STEPS  # two of them for one of Runge and Kutta's
    back, u = 2 * STEPS, np.arange(2 * STEPS + 1) * step
    g = list(np.expm1(u))
    while g[-1] < most:
        now, a, b, c = g[-1], *(1.0 - v for v in (g[-1 - back], g[-back], g[1 - back]))
        one = now + a
        two = now + step * one + b
        three = now + step * two + b
        four = now + 2.0 * step * three + c
        after = now + step / 3.0 * (one + 2.0 * two + 2.0 * three + four)
        # The point between, by Hermite's cubic.
        g.append(0.5 * (now + after) + 0.25 * step * (one - (after + c)))
        g.append(after)
    found = np.array(g[back:])
    return np.arange(len(found)) * step, 1.0 + found


def threshold(reference: float, run_length: float) -> float:
    """h with this average run length to a false alarm; at least e^r, the length for h = 0.

    >>> round(threshold(1.5, 1e4), 2)
    11.7
    """
    h, length = run_lengths(reference, run_length)
    if run_length <= length[0]:
        return 0.0
    return float(np.interp(math.log(run_length), np.log(length), h))


def size_for(rows: float, rate: float) -> float:
    """mu: the mean of -log p that so many rows tell from 1 at this rate of false alarms.

    rows (mu - 1 - log mu) = log(1/rate): the divergence of exponentials collects the evidence.

    Parameters
    ----------
    rows : float
        Rows that the evidence may take to gather.
    rate : float
        False alarms per row.
    """
    from scipy import optimize

    need = -math.log(rate) / rows
    return float(optimize.brentq(lambda mu: mu - 1.0 - math.log(mu) - need, 1.0, need + 20.0))


@lru_cache(maxsize=64)
def bets(rate: float, memory: float) -> Bets:
    """Bets for changes that need 1, sqrt(memory) and memory rows; together they raise no more
    false alarms per row than ``rate``.

    >>> bets(1e-3, 100.0).references.round(2).tolist()
    [2.58, 1.57, 1.19]
    """
    windows = sorted({1.0, math.sqrt(memory), memory})
    sizes = [size_for(window, rate) for window in windows]
    references = [math.log(mu) * mu / (mu - 1.0) for mu in sizes]
    share = len(windows) / rate
    found = [threshold(r, share) for r in references]
    # Unused bets never win.
    spare = ALARM_BETS - len(windows)
    return Bets(np.array(references + [1e300] * spare), np.array(found + [1e300] * spare))
