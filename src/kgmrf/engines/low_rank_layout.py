"""Members of the ensemble for many channels, and where their numbers lie in a row.

==========  =============  ================================================================
head        (9,)           as in :mod:`kgmrf.engines.layout`; rows in the buffer in place of
                           pooled observations
tails       (8,)           weight of each degree of freedom, now and before the last observation
roots       (K,)           r_k, the weight of member k being r_k^2 / sum r^2
level       (d,)           L, long-run variance of each channel; 0: never seen
counts      (d,)           observations of each channel
first       (d,)           variance that was guessed from the first value
parts       K times        psi (d), D^2 (d), U (r, d), P (r, r), Lam (r, r), numbers (4)
buffer      (rows, d)      the first rows, from which the axes start
==========  =============  ================================================================

The numbers of a member are its log size s and the rows that are in psi, D^2 and Lam. Vectors over
channels begin at multiples of eight and are filled up with zeros to the next, for the compiled
loop: to it, what is filled up are channels that were never seen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from kgmrf._types import Numbers
from kgmrf.engines.layout import N_HEAD, N_TAILS, POOLED, ROOT

BUFFERED = POOLED
SIZE, N_NOISE, N_METRIC, N_SPECTRUM = range(4)
N_NUMBERS = 4
RANK, ANGLE_NOISE, NOISE_HALF_LIFE, SPECTRUM_HALF_LIFE, SIZE_GAIN, PLACE = range(6)
"""Columns of the table of members, before the root of the weight at the start."""
STAGE, N_STAGES = ROOT + 1, 4


@dataclass(frozen=True)
class Factors:
    """S = e^s [D U^T Lam U D + diag psi] with ``rank`` axes U.

    angle_noise: standard deviation of the angle by which an axis turns in a unit of time.
    noise_half_life, spectrum_half_life: of the averages psi and Lam.
    size_gain: gain of the size clock s; 0 leaves it out.

    >>> Factors(10, 0.01, 400.0, 100.0, 0.1).rank
    10
    """

    rank: int
    angle_noise: float
    noise_half_life: float
    spectrum_half_life: float
    size_gain: float


def default_rank(d: int) -> int:
    """min(10, d // 3), at least 1.

    >>> default_rank(500), default_rank(18), default_rank(2)
    (10, 6, 1)
    """
    return min(10, max(1, d // 3))


def default_members(d: int, rank: int | None = None) -> tuple[Factors, ...]:
    """Six members: of this rank, of a third and of twice as many factors.

    >>> [member.rank for member in default_members(500)]
    [10, 10, 10, 3, 20, 10]
    """
    r = default_rank(d) if rank is None else rank
    few, many = max(1, r // 3), max(r, min(2 * r, d // 2))
    return (
        Factors(r, 0.01, 400.0, 100.0, 0.1),
        Factors(r, 0.02, 40.0, 20.0, 0.3),
        Factors(r, 0.05, 40.0, 40.0, 0.1),
        Factors(few, 0.02, 100.0, 40.0, 0.3),
        Factors(many, 0.01, 100.0, 40.0, 0.3),
        Factors(r, 0.2, 400.0, 40.0, 0.0),
    )


@lru_cache(maxsize=64)
def stages(rank: int) -> tuple[int, ...]:
    """Numbers of rows after which a member of this rank starts its axes anew.

    >>> stages(10), stages(3)
    ((11, 20, 30, 50), (4, 8, 12, 20))
    """
    least, own = (3, 8, 12, 20), (rank + 1, 2 * rank, 3 * rank, 5 * rank)
    return tuple(max(a, b) for a, b in zip(least, own, strict=True))


class Layout(NamedTuple):
    """Members, as objects and as a table ``(K, 13)``, and where the parts of a row begin.

    The last columns of the table are the `stages` of the members.
    """

    d: int
    stride: int  # d, rounded up to a multiple of eight
    members: tuple[Factors, ...]
    table: Numbers
    channels: int  # where level begins
    buffer: int
    rows: int  # of the buffer

    @property
    def size(self) -> int:
        """Numbers of a row."""
        return self.buffer + self.rows * self.stride

    @property
    def columns(self) -> int:
        """Factors of the blend: sum of the ranks."""
        return sum(member.rank for member in self.members)

    @property
    def prior(self) -> Numbers:
        """Roots of the weights at the start."""
        return self.table[:, ROOT]


class Part(NamedTuple):
    """The numbers of one member, as views."""

    noise: Numbers  # psi (d,)
    metric: Numbers  # D^2 (d,)
    axes: Numbers  # U (r, d)
    angle_var: Numbers  # P (r, r)
    spectrum: Numbers  # Lam (r, r)
    numbers: Numbers  # (4,)


class Track(NamedTuple):
    """The parts of one row, as views."""

    head: Numbers
    tails: Numbers
    roots: Numbers
    level: Numbers
    counts: Numbers
    first: Numbers
    parts: tuple[Part, ...]
    buffer: Numbers


def layout(d: int, members: tuple[Factors, ...]) -> Layout:
    """The layout of a track of d channels under these members.

    >>> layout(500, default_members(500)).size
    91400
    """
    k, stride = len(members), up(d)
    table = np.zeros((k, ROOT + 1 + N_STAGES))
    channels = up(N_HEAD + 2 * N_TAILS + k)
    place = channels + 3 * stride
    for row, member in zip(table, members, strict=True):
        row[RANK], row[ANGLE_NOISE] = member.rank, member.angle_noise
        row[NOISE_HALF_LIFE] = member.noise_half_life
        row[SPECTRUM_HALF_LIFE] = member.spectrum_half_life
        row[SIZE_GAIN], row[PLACE], row[ROOT] = member.size_gain, place, 1.0 / k
        row[STAGE:] = stages(member.rank)
        place += (2 + member.rank) * stride + up(2 * member.rank**2 + N_NUMBERS)
    rows = max(stages(member.rank)[-1] for member in members)
    return Layout(d, stride, members, table, channels, place, rows)


def up(n: int) -> int:
    """The next multiple of eight.

    >>> up(500), up(8)
    (504, 8)
    """
    return -(-n // 8) * 8


def track(row: Numbers, plan: Layout) -> Track:
    """The parts of a row ``(..., size)``, as views.

    >>> plan = layout(9, default_members(9))
    >>> track(np.zeros(plan.size), plan).parts[0].axes.shape
    (3, 9)
    """
    lead, d, wide = row.shape[:-1], plan.d, plan.stride

    def cut(begin: int, *shape: int) -> Numbers:
        return row[..., begin : begin + math.prod(shape)].reshape(*lead, *shape)

    parts = []
    for member, law in zip(plan.members, plan.table, strict=True):
        r, at = member.rank, int(law[PLACE])
        after = at + (2 + r) * wide
        parts.append(
            Part(
                cut(at, wide)[..., :d],
                cut(at + wide, wide)[..., :d],
                cut(at + 2 * wide, r, wide)[..., :d],
                cut(after, r, r),
                cut(after + r * r, r, r),
                cut(after + 2 * r * r, N_NUMBERS),
            )
        )
    level, counts, first = np.moveaxis(cut(plan.channels, 3, wide)[..., :d], -2, 0)
    return Track(
        cut(0, N_HEAD),
        cut(N_HEAD, 2 * N_TAILS),
        cut(N_HEAD + 2 * N_TAILS, len(plan.members)),
        level,
        counts,
        first,
        tuple(parts),
        cut(plan.buffer, plan.rows, wide)[..., :d],
    )
