"""Where the numbers of a rotation's state row and of its records are; no compiler needed.

A row holds all that is remembered of one track: clock, frame, members, weights. The isotropic
members of an axis lie side by side: number k of axis a is at ``FIELD + MEMBERS * a + k``.
"""

from __future__ import annotations

import numpy as np

from kgmrf._types import Numbers

MEMBERS = 24
LEVELS = 12  # of the noise that have weights of their own, about its estimate
DENSE_MEMBERS = 12
FORGETTING = 1.0 / 250.0  # of what was learned of the noise, at every observation
JITTER = 0.0015**2  # variance below which white fluctuation is more likely motion than noise

# ---- a row: the clock and what all members share
TIME, SEEN, REJECTED, ACCEPT, NOW, NOISE, GAIN = range(7)  # NOW: noise of Z, 0 after a step
EXPERTS = 7  # probabilities of the joint, the per-axis and the dense weights
EVIDENCE = 10  # log evidence of the joint and of the per-axis weights so far, while noise is young
FRAME = 12  # quaternion (w, x, y, z) of the common frame Q
LAST = 16  # quaternion of the last observation, taken in or rejected
UNIT, KNOWN, GAPS = 20, 21, 22  # unit of time, how many intervals are known, the first eight
BASE = 30  # number of the lowest level with weights of its own; -1 before the first innovation
YOUNG, PRECISION = 31, 32  # observations until the noise is known, 1 / its least value of late

# ---- a row: isotropic members
DELTA = 33  # (3, K) angle of the member, seen from the common frame
RATE = DELTA + 3 * MEMBERS  # (3, K) velocity per unit
P00 = RATE + 3 * MEMBERS  # (K,) variances in units of the noise variance
P01 = P00 + MEMBERS
P11 = P01 + MEMBERS
LEVEL = P11 + MEMBERS  # (2, L) probabilities of the levels: of the joint, of the per-axis expert
TABLES = LEVEL + 2 * LEVELS  # (4, L, K) weights at each level: all axes together, then each axis
WEIGHT = TABLES + 4 * LEVELS * MEMBERS  # (3, K) all of it together
CORE = WEIGHT + 3 * MEMBERS

# ---- a row: the first observations, while the noise is learned; (interval, relative noise, Z)
LONGEST_START = 16
STORED = CORE
FIRST = CORE + 1
DENSE = FIRST + 6 * LONGEST_START

# ---- a row: dense members, one after the other
# Quaternion, v, u, log frequency (3 each), weight, age, lower triangle of the covariance.
MOTION, SHARE, AGE, COV, BLOCK = 4, 13, 14, 15, 93
WHOLE = DENSE + DENSE_MEMBERS * BLOCK

# ---- a record
R_QUATERNION, R_VELOCITY = 0, 4
R_ANGLE, R_CROSS, R_RATE, R_OFF = 7, 10, 13, 16  # per axis; off-diagonal of the angle (12, 02, 01)
R_NIS, R_LIKELIHOOD, R_TIME, R_SEEN, R_NOISE, R_GAIN, R_UNIT, R_STATUS = range(19, 27)
R_SHOWN = 27  # share of the observation itself in what is shown, also of those who look back
R_WEIGHTS = 28
RECORD = R_WEIGHTS + MEMBERS + DENSE_MEMBERS

MISSING, OBSERVED, INVALID, OUTLIER, RESTART = 0, 1, 2, 3, 4
"""What became of an observation."""

# ---- settings of the compiled loop
S_UNIT, S_DENSE, S_JITTER, S_COUNT = range(4)  # S_COUNT: levels of the noise, 1 if it is given
S_LEVELS = 4  # variances of the noise, then their prior

# ---- columns of `isotropic_laws` and of `dense_laws`
LAMBDA, DECAY, RATE_PRIOR, JITTER_VAR, JOINT, EACH = range(6)
FREQUENCY, LOG_STD, RATE_VAR, ACCELERATION, PRIOR = 0, 3, 4, 7, 8


def isotropic_laws(learned: bool = True) -> Numbers:
    """The isotropic members ``(K, 6)``: lambda, decay g, velocity prior c, jitter rho, two priors.

    lambda: variance of the acceleration, c: of the velocity at the start, rho: of white jitter that
    is part of the motion, all over the variance of the noise. Priors of weights for all axes
    together and for each axis. If the noise is learned, jitter can hardly be told from it: it is
    less likely, and not on all axes alike.

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
    for own in (1e1, 1e3, 1e5):
        for ratio in (1e-4, 1e-2):
            rows.append((ratio * own, 0.0, own, own, 0.0, 0.005 if learned else 0.02))
    table = np.array(sorted(rows, key=lambda row: row[1]))  # by decay, as the loop expects them
    table[:, 4:] /= table[:, 4:].sum(axis=0)
    return table


def noise_levels(noise_std: float | None, guess: float | None = None) -> Numbers:
    """Variances that the noise may have, then how probable they are before anything is seen, p.

    Last p^f with f = FORGETTING: what fades is drawn towards it.

    Given, it has one. Learned, each is twice the one before, and a guess favours those near.

    >>> noise_levels(0.1), len(noise_levels(None))
    (array([0.01, 1.  , 1.  ]), 120)
    """
    if noise_std is not None:
        return np.array([float(noise_std) ** 2, 1.0, 1.0])
    levels = 2.0 ** np.arange(-40, 0)
    prior = np.exp(-0.1 * np.abs(np.log(levels / float(1e-3 if guess is None else guess) ** 2)))
    prior /= prior.sum()
    return np.concatenate([levels, prior, prior**FORGETTING])


def dense_laws() -> Numbers:
    """The dense members ``(12, 9)``: frequency (3), std of its log, rate prior (3), q, weight.

    One of constant velocity, eight oscillators with a slow or a fast period on every axis, three
    that swing irregularly. Frequencies in rad, rate priors and accelerations q in rad^2 per unit.

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
