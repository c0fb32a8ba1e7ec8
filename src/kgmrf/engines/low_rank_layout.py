"""Many channels: the laws of few factors, and where their numbers lie in a row.

==========  =============  ================================================================
head        (10,)          as in :mod:`kgmrf.engines.layout`; rows in the buffer in place of
                           pooled observations
tails       (8,)           weight of each degree of freedom, now and before the last observation
wander      (6,)           as in :mod:`kgmrf.engines.layout`
roots       (K,)           r_k, the weight of member k being r_k^2 / sum r^2
level       (d,)           L, long-run variance of each channel; 0: never seen
counts      (d,)           observations of each channel
first       (d,)           variance that was guessed from the first value
parts       K times        psi (d), D^2 (d), U and V (r or 2 r, d), P, Lam (r, r), numbers (4)
buffer      (rows, d)      the first rows, from which the axes start
==========  =============  ================================================================

Vectors over channels begin at multiples of eight and are filled up with zeros to the next, for the
compiled loop: to it, what is filled up are channels that were never seen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from kgmrf._types import Numbers
from kgmrf.constants import HORIZON_CLOCK, LOW_RANK_METRIC_HALF_LIFE, STRUCTS
from kgmrf.engines import horizon
from kgmrf.engines import layout as at

BUFFERED = at.POOLED
"""Where the head has the rows in the buffer."""

COLUMN = {name: k for k, name in enumerate(STRUCTS["FactorsLine"])}
"""Columns of the table of members, by name."""

STAGES = slice(COLUMN["stage_1"], COLUMN["stage_4"] + 1)
SIZE, N_NOISE, N_METRIC, N_SPECTRUM = range(4)
N_NUMBERS = len(STRUCTS["FactorsNumbers"])


class Factors(NamedTuple):
    """S = e^s [D U^T Lam U D + diag psi] with ``rank`` axes U.

    angle_noise: standard deviation of the angle by which an axis turns in a unit of time.
    noise_half_life, spectrum_half_life: of the averages psi and Lam.
    size_gain: gain of the size clock s; 0 leaves it out.
    acceleration: how much the velocity of an axis changes in a unit of time; 0 for no velocity.
    """

    rank: int
    angle_noise: float
    noise_half_life: float
    spectrum_half_life: float
    size_gain: float
    acceleration: float = 0.0

    @property
    def states(self) -> int:
        """Rows of U and V."""
        return self.rank * (2 if self.acceleration else 1)

    @property
    def stages(self) -> tuple[int, ...]:
        """Numbers of rows after which the axes start again."""
        r = self.rank
        return max(3, r + 1), max(8, 2 * r), max(12, 3 * r), max(20, 5 * r)

    @property
    def half_lives(self) -> Numbers:
        """Of psi, D^2 and Lam."""
        noise = self.noise_half_life
        return np.array([noise, max(LOW_RANK_METRIC_HALF_LIFE, noise), self.spectrum_half_life])


class Part(NamedTuple):
    """The numbers of one member, as views."""

    noise: Numbers  # psi (d,)
    metric: Numbers  # D^2 (d,)
    states: Numbers  # U and V (r or 2 r, d)
    axes: Numbers  # U (r, d)
    angle_var: Numbers  # P (r, r) or (2 r, 2 r)
    spectrum: Numbers  # Lam (r, r)
    numbers: Numbers  # s, and the rows that are in psi, D^2 and Lam


class Track(NamedTuple):
    """The parts of one row, as views."""

    head: Numbers
    tails: Numbers
    wander: Numbers
    roots: Numbers
    level: Numbers
    counts: Numbers
    first: Numbers
    parts: tuple[Part, ...]
    buffer: Numbers


class Layout(NamedTuple):
    """Members as a table with the columns `COLUMN`, and where the parts of a row begin."""

    d: int
    table: Numbers
    places: Mapping[str, int]

    @property
    def stride(self) -> int:
        """Numbers of a vector over channels."""
        return up(self.d)

    @property
    def members(self) -> tuple[Factors, ...]:
        """The laws of the table."""
        laws = self.table[:, : len(Factors._fields)].tolist()
        return tuple(Factors(int(rank), *rest) for rank, *rest in laws)

    @property
    def rows(self) -> int:
        """Rows of the buffer."""
        return self.places["buffer_rows"]

    @property
    def size(self) -> int:
        """Numbers of a row."""
        return self.places["end"]

    @property
    def columns(self) -> int:
        """Factors of the blend: sum of the ranks."""
        return int(self.table[:, COLUMN["rank"]].sum())


def layout(d: int, members: tuple[Factors, ...]) -> Layout:
    """The layout of a track of d channels under these members.

    >>> plan = layout(20, (Factors(3, 0.01, 400.0, 100.0, 0.1),))
    >>> plan.places["level"], plan.places["0.axes"], plan.size
    (32, 152, 728)
    """
    k, stride = len(members), up(d)
    table = np.array([[*law, law.states, 1.0 / k, *law.stages] for law in members])
    table = np.concatenate([table, _horizons(members)], axis=1)
    tails = at.N_HEAD
    wander = tails + 2 * at.N_TAILS
    roots = wander + 2 * horizon.N_LAGS
    level = up(roots + k)
    places = {"tails": tails, "wander": wander, "roots": roots, "level": level}
    places |= {"counts": level + stride, "first": level + 2 * stride}
    end = level + 3 * stride
    for number, law in enumerate(members):
        sizes = {"noise": stride, "metric": stride, "axes": law.states * stride}
        sizes |= {"angle_var": law.states**2, "spectrum": law.rank**2, "numbers": N_NUMBERS}
        for name, size in sizes.items():
            places[f"{number}.{name}"] = end
            end += size
        end = up(end)
    rows = max(law.stages[-1] for law in members)
    places |= {"buffer": end, "buffer_rows": rows, "end": end + rows * stride}
    return Layout(d, table, places)


def _horizons(members: tuple[Factors, ...]) -> Numbers:
    """How long what each member knows lasts, and who inherits; see `kgmrf.engines.horizon`."""
    noise, spectrum, gain = np.array(
        [(law.noise_half_life, law.spectrum_half_life, law.size_gain) for law in members]
    ).T
    with np.errstate(divide="ignore"):
        lasts = np.minimum(np.minimum(noise, spectrum), HORIZON_CLOCK / gain)
    return horizon.mark(lasts, np.where(gain > 0.0, noise, 0.0), np.where(gain > 0.0, 0.0, noise))


def up(n: int) -> int:
    """The next multiple of eight."""
    return -(-n // 8) * 8


def track(row: Numbers, plan: Layout) -> Track:
    """The parts of a row ``(..., size)``, as views."""
    d, wide, places = plan.d, plan.stride, plan.places

    def cut(name: str, *shape: int) -> Numbers:
        begin = places[name]
        return row[..., begin : begin + math.prod(shape)].reshape(*row.shape[:-1], *shape)

    def part(number: int, law: Factors) -> Part:
        r, states = law.rank, law.states
        noise, metric = (cut(f"{number}.{name}", wide)[..., :d] for name in ("noise", "metric"))
        both = cut(f"{number}.axes", states, wide)[..., :d]
        own, lam = cut(f"{number}.angle_var", states, states), cut(f"{number}.spectrum", r, r)
        numbers = cut(f"{number}.numbers", N_NUMBERS)
        return Part(noise, metric, both, both[..., :r, :], own, lam, numbers)

    members = plan.members
    level, counts, first = (cut(name, wide)[..., :d] for name in ("level", "counts", "first"))
    return Track(
        row[..., : at.N_HEAD],
        cut("tails", 2 * at.N_TAILS),
        cut("wander", 2 * horizon.N_LAGS),
        cut("roots", len(members)),
        level,
        counts,
        first,
        tuple(part(number, law) for number, law in enumerate(members)),
        cut("buffer", plan.rows, wide)[..., :d],
    )
