"""Where the numbers of an ensemble's track lie in its row; the only place that knows.

==========  ===============  ==============================================================
head        (11,)            time, time of the last observation, observations, samples, kappa,
                             observations pooled by the turning members; of the last observation:
                             log-likelihood, squared distance m z, number of values m d,
                             standard deviation of the log size of its forecast, what its
                             youth left open (`kgmrf.youth`)
tails       (8,)             weight of each degree of freedom, now and before the last observation
wander      (6,)             averages mu of the log size l = mean log |Sigma|/L over three lags,
                             then the variances v of l about them (`kgmrf.engines.horizon`)
roots       (K,)             r_k, the weight of member k being r_k^2 / sum r^2
size        (clocks,)        log size s of the averages with a size clock
mass        (averages,)      V, the effective number of observations in B
level       (d,)             L, long-run variance of each channel; 0: never seen
units       (d,)             E, units in which the turning members work
top         (d + 3,)         u, m, g and b of the clock of the top direction
entry       (2, d)           rows that a channel is old, of one that is to come its values so far;
                             sum of their sizes until it comes
deviation   (channels, d)    D of the averages with channel clocks, then of the diagonals
body        (averages, p)    B, lower triangle row by row
turning     (turning, t)     Q (d d), W and P11 P12 P22 (planes i > j), lam (d), var
bias        (1,)             log of the mean size of observations over what is reported for them
scatter     (3,) or (0,)     of matrices that were judged their number, their usual squared distance
                             v, and how many samples the last was worth; where that is learned
==========  ===============  ==============================================================

While turning members pool, the lower triangle of their pooled covariance lies in Q.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from kgmrf._types import Mask, Numbers
from kgmrf.constants import BLEND_RATE, HORIZON_CLOCK, KAPPA_GAIN, TAILS
from kgmrf.engines import horizon
from kgmrf.members import Average, Diagonal, Member, Rotating

TIME, SEEN, COUNT, SAMPLES, KAPPA, POOLED = range(6)
LIKELIHOOD, DISTANCE, VALUES, SIZE_STD, DOUBT = range(6, 11)
N_HEAD = 11
N_TAILS = len(TAILS)
JUDGED, SPREAD, WORTH = range(3)  # of ``scatter``
N_SCATTER = 3

# Columns of the table of members, and its kinds.
KIND, HALF_LIFE, SIZE_GAIN, CHANNEL, CLIP_OUTLIERS, ACCELERATION, SPECTRUM_RATE, RATE_PRIOR = range(
    8
)
ROOT, HORIZON, HEIR = 8, 9, 10
N_COLUMNS = 11
AVERAGE, DIAGONAL, TURNING = 0.0, 1.0, 2.0

FORECAST, SHARP = 2.0, 6.0
"""Powers of the roots that weigh the members in a forecast and in an estimate."""


class Learning(NamedTuple):
    """How quickly the weights and kappa learn; what the probabilities of the tails return to."""

    blend_rate: float = BLEND_RATE
    kappa_gain: float = KAPPA_GAIN
    tail_1: float = 1.0 / N_TAILS
    tail_2: float = 1.0 / N_TAILS
    tail_3: float = 1.0 / N_TAILS
    tail_4: float = 1.0 / N_TAILS


USUAL = Learning()


class Layout(NamedTuple):
    """Members as a table ``(K, 11)``, and where the parts of a row begin, ``(16,)``."""

    d: int
    table: Numbers
    begin: Numbers
    learning: Learning = USUAL

    @property
    def size(self) -> int:
        """Numbers of a row."""
        return int(self.begin[-1])

    @property
    def places(self) -> dict[str, int]:
        """Where the parts begin, by name, for the loop."""
        return dict(zip((*Track._fields, "end"), map(int, self.begin), strict=True))


class Track(NamedTuple):
    """The parts of one row, as views."""

    head: Numbers
    tails: Numbers
    wander: Numbers
    roots: Numbers
    size: Numbers
    mass: Numbers
    level: Numbers
    units: Numbers
    top: Numbers
    entry: Numbers
    deviation: Numbers
    body: Numbers
    turning: Numbers
    bias: Numbers
    scatter: Numbers


def present(track: Track) -> Mask:
    """Channels that have had a value other than zero."""
    return np.asarray(track.level > 0.0)


def pooling(track: Track) -> bool:
    """Whether the turning members of one track still pool their first observations."""
    return bool(track.head[POOLED] >= 0.0)


def counts(table: Numbers) -> list[int]:
    """Averages, turning members, size clocks, channel clocks (with the diagonals)."""
    kind = table[:, KIND]
    found = (kind == AVERAGE, kind == TURNING, table[:, SIZE_GAIN] > 0, table[:, CHANNEL] > 0)
    return [int(these.sum()) for these in found]


def layout(d: int, members: tuple[Member, ...], *, learns_samples: bool = False) -> Layout:
    """The layout of a track of d channels under these members.

    learns_samples: whether it learns how many samples an observation is worth.

    >>> from kgmrf.members import default_members
    >>> layout(7, default_members(7)).size
    613
    """
    table = np.zeros((len(members), N_COLUMNS))
    for row, member in zip(table, members, strict=True):
        if isinstance(member, Average):
            row[KIND] = AVERAGE
            row[HALF_LIFE], row[SIZE_GAIN] = member.half_life, member.size_gain
            row[CHANNEL], row[CLIP_OUTLIERS] = member.channel_half_life or 0.0, member.clip_outliers
        elif isinstance(member, Diagonal):
            row[KIND], row[CHANNEL] = DIAGONAL, member.half_life
        else:
            assert isinstance(member, Rotating)
            row[KIND] = TURNING
            row[ACCELERATION:ROOT] = member.acceleration, member.spectrum_rate, member.rate_prior
    prior = np.sqrt([member.prior for member in members])
    table[:, ROOT] = prior / prior.sum()
    table[:, HORIZON:] = _horizons(table)
    return placed(d, table, learns_samples=learns_samples)


def placed(
    d: int, table: Numbers, learning: Learning = USUAL, *, learns_samples: bool = False
) -> Layout:
    """The layout of a track of d channels under this table of members; see `layout`."""
    n_average, n_turning, clocks, channels = counts(table)
    pairs, planes = d * (d + 1) // 2, d * (d - 1) // 2
    one = d * d + 4 * planes + d + 1
    sizes = [N_HEAD, 2 * N_TAILS, 2 * horizon.N_LAGS, len(table), clocks, n_average]
    sizes += [d, d, d + 3, 2 * d]
    sizes += [channels * d, n_average * pairs, n_turning * one]
    sizes += [1, N_SCATTER * learns_samples]
    begin = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return Layout(d, table, begin, learning)


def _horizons(table: Numbers) -> Numbers:
    """How long what each member knows lasts, and who inherits; see `kgmrf.engines.horizon`."""
    kind, half, gain, channel = (table[:, k] for k in (KIND, HALF_LIFE, SIZE_GAIN, CHANNEL))
    average, free = kind == AVERAGE, channel == 0.0
    lasts = np.where(average, half, np.inf)
    with np.errstate(divide="ignore"):
        lasts = np.minimum(lasts, HORIZON_CLOCK / gain)
    lasts = np.where(free, lasts, np.minimum(lasts, channel))
    clocked = np.where(average & free & (gain > 0.0), half, 0.0)
    plain = np.where(average & free & (gain == 0.0), half, 0.0)
    return horizon.mark(lasts, clocked, plain)


def track(row: Numbers, plan: Layout) -> Track:
    """The parts of a row ``(..., size)``, as views.

    >>> from kgmrf.members import default_members
    >>> plan = layout(3, default_members(3))
    >>> track(np.zeros(plan.size), plan).body.shape
    (8, 6)
    """
    edges = plan.begin
    parts = [row[..., a:b] for a, b in pairwise(edges)]
    n_average, n_turning, _, channels = counts(plan.table)
    pairs, one = plan.d * (plan.d + 1) // 2, plan.d**2 + 2 * plan.d * (plan.d - 1) + plan.d + 1
    shapes = {9: (2, plan.d), 10: (channels, plan.d), 11: (n_average, pairs), 12: (n_turning, one)}
    for k, shape in shapes.items():
        parts[k] = parts[k].reshape(*row.shape[:-1], *shape)
    return Track(*parts)


def blend_weights(roots: Numbers, sharp: Any) -> Numbers:
    """w_k = r_k^2 / sum r^2 for a forecast; where ``sharp``, r_k^6 / sum r^6 for an estimate.

    A little weight on quick members makes a better density and a noisier matrix: what was just
    seen they know already. So the estimate after an observation leans on the best members.

    >>> blend_weights(np.array([0.8, 0.2]), False).round(3).tolist()
    [0.941, 0.059]
    """
    power = np.where(np.asarray(sharp)[..., None], SHARP, FORECAST)
    top = roots / roots.max(axis=-1, keepdims=True)
    raised = top**power
    return raised / raised.sum(axis=-1, keepdims=True)


# ----------------------------------------------------------------------- packed matrices


def unpack(packed: Numbers, d: int) -> Numbers:
    """The symmetric matrix of a lower triangle ``(..., d (d + 1)/2)``."""
    return packed.take(_places(d), axis=-1)


@lru_cache(maxsize=64)
def _places(d: int) -> Any:
    """Where each entry of a symmetric matrix lies in its lower triangle, ``(d, d)``."""
    low, high = np.tril_indices(d)
    index = np.zeros((d, d), dtype=np.intp)
    index[low, high] = index[high, low] = np.arange(low.size)
    return index


def pack(full: Numbers) -> Numbers:
    """The lower triangle of a symmetric matrix ``(d, d)``, row by row."""
    return full[np.tril_indices(len(full))]


def folded(planes: Numbers, d: int, sign: float) -> Numbers:
    """Numbers of the planes i > j as matrices, times ``sign`` above the diagonal.

    >>> folded(np.array([2.0]), 2, -1.0).tolist()
    [[0.0, -2.0], [2.0, 0.0]]
    """
    nothing = np.zeros((*planes.shape[:-1], 1))
    both = np.concatenate([planes, sign * planes, nothing], axis=-1)
    return both.take(_plane_places(d), axis=-1)


@lru_cache(maxsize=64)
def _plane_places(d: int) -> Any:
    """Where each entry of a matrix is in its lower planes, its upper planes and one zero."""
    low, high = np.tril_indices(d, -1)
    index = np.full((d, d), 2 * low.size)
    index[low, high] = np.arange(low.size)
    index[high, low] = low.size + index[low, high]
    return index


class Turned(NamedTuple):
    """The parts of a turning member, as views of its numbers."""

    frame: Numbers  # (d, d)
    velocity: Numbers  # planes i > j
    p11: Numbers
    p12: Numbers
    p22: Numbers
    spectrum: Numbers  # (d,)
    spectrum_var: Numbers  # (1,)


def turned(numbers: Numbers, d: int) -> Turned:
    """The parts of a turning member ``(..., t)``, as views."""
    n = d * (d - 1) // 2
    edges = np.cumsum([0, d * d, n, n, n, n, d, 1])
    parts = [numbers[..., a:b] for a, b in pairwise(edges)]
    return Turned(parts[0].reshape(*numbers.shape[:-1], d, d), *parts[1:])
