"""Many channels as an engine: rows of tracks, lines of samples, records, and how they look.

==========  =============  ================================================================
head        (9,)           as in :mod:`kgmrf.engines.layout`; rows in the buffer in place of
                           pooled observations
tails       (8,)           weight of each degree of freedom, now and before the last observation
roots       (K,)           r_k, the weight of member k being r_k^2 / sum r^2
level       (d,)           L, long-run variance of each channel; 0: never seen
counts      (d,)           observations of each channel
first       (d,)           variance that was guessed from the first value
parts       K times        psi (d), D^2 (d), U and V (r or 2 r, d), P, Lam (r, r), numbers (4)
buffer      (rows, d)      the first rows, from which the axes start
==========  =============  ================================================================

Vectors over channels begin at multiples of eight and are filled up with zeros to the next, for the
compiled loop: to it, what is filled up are channels that were never seen.

A record is head, tails and weights of the row, and where there is room the loadings ``(d, k)`` and
the noise ``(d,)`` of the blend S = F F^T + diag N. `kgmrf.kernels.low_rank` tells the formulas.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from kgmrf._types import Numbers
from kgmrf.engines import Lines
from kgmrf.engines import layout as at
from kgmrf.engines import low_rank_step as maths
from kgmrf.engines.ensemble_view import SMALL, EnsembleView
from kgmrf.engines.low_rank_step import Factors
from kgmrf.engines.self_tuned import SelfTuned
from kgmrf.factors import DENSE, heaviness
from kgmrf.kernels import engine

CROSSOVER = 64
"""Channels from which factors beat the small ensemble in accuracy and in speed."""

FASTEST_AXIS = 10.0  # radians per unit of time
LARGEST_LOG = 350.0  # of a ratio of sizes: values beyond 1e75 are no observations
FROM_ROWS = ("loadings", "noise", *DENSE)  # fields that a small record cannot show
NAMES = ("time", "age", "loadings", "noise", *SMALL[2:])


def default_members(d: int, rank: int | None = None, velocity: bool = False) -> tuple[Factors, ...]:
    """Six members: of this rank, default min(10, d // 3), of a third and of twice as many factors.

    velocity: two more whose axes keep turning the way they did.

    >>> [member.rank for member in default_members(500)]
    [10, 10, 10, 3, 20, 10]
    """
    r = min(10, max(1, d // 3)) if rank is None else rank
    few, many = max(1, r // 3), max(r, min(2 * r, d // 2))
    members = (
        Factors(r, 0.01, 400.0, 100.0, 0.1),
        Factors(r, 0.02, 40.0, 20.0, 0.3),
        Factors(r, 0.05, 40.0, 40.0, 0.1),
        Factors(few, 0.02, 100.0, 40.0, 0.3),
        Factors(many, 0.01, 100.0, 40.0, 0.3),
        Factors(r, 0.2, 400.0, 40.0, 0.0),
    )
    turning = [members[0]._replace(acceleration=rate) for rate in (0.004, 0.012)]
    return (*members, *turning) if velocity else members


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
    roots: Numbers
    level: Numbers
    counts: Numbers
    first: Numbers
    parts: tuple[Part, ...]
    buffer: Numbers


class Layout(NamedTuple):
    """Members, as they are and as a table, and where the parts of a row begin."""

    d: int
    stride: int  # d, rounded up to a multiple of eight
    members: tuple[Factors, ...]
    table: Numbers
    channels: int  # where level begins
    buffer: int
    rows: int  # of the buffer
    size: int
    columns: int  # factors of the blend: sum of the ranks


def layout(d: int, members: tuple[Factors, ...]) -> Layout:
    """The layout of a track of d channels under these members."""
    k, stride = len(members), up(d)
    table = np.zeros((k, maths.N_COLUMNS))
    channels = up(at.N_HEAD + 2 * at.N_TAILS + k)
    place = channels + 3 * stride
    for line, law in zip(table, members, strict=True):
        states = law.rank * (2 if law.acceleration else 1)
        line[: maths.STATES + 1] = *law, states
        line[at.ROOT] = 1.0 / k
        line[maths.STAGE : maths.PLACE] = law.stages
        angles = place + (2 + states) * stride
        spectrum = angles + states**2
        line[maths.PLACE :] = place, angles, spectrum, spectrum + law.rank**2
        place = up(spectrum + law.rank**2 + maths.N_NUMBERS)
    rows = max(law.stages[-1] for law in members)
    size, columns = place + rows * stride, sum(law.rank for law in members)
    return Layout(d, stride, members, table, channels, place, rows, size, columns)


def up(n: int) -> int:
    """The next multiple of eight."""
    return -(-n // 8) * 8


def track(row: Numbers, plan: Layout) -> Track:
    """The parts of a row ``(..., size)``, as views."""
    d, wide, tails = plan.d, plan.stride, at.N_HEAD + 2 * at.N_TAILS

    def cut(begin: int, *shape: int) -> Numbers:
        return row[..., begin : begin + math.prod(shape)].reshape(*row.shape[:-1], *shape)

    def part(law: Numbers) -> Part:
        r, states = int(law[maths.RANK]), int(law[maths.STATES])
        place, angles, spectrum, numbers = law[maths.PLACE :].astype(int)
        rows = cut(place, 2 + states, wide)[..., :d]
        own, lam = cut(angles, states, states), cut(spectrum, r, r)
        noise, metric, both = rows[..., 0, :], rows[..., 1, :], rows[..., 2:, :]
        last = cut(numbers, maths.N_NUMBERS)
        return Part(noise, metric, both, both[..., :r, :], own, lam, last)

    head, roots = cut(0, at.N_HEAD), cut(tails, len(plan.members))
    level, counts, first = np.moveaxis(cut(plan.channels, 3, wide)[..., :d], -2, 0)
    parts = tuple(part(law) for law in plan.table)
    buffer = cut(plan.buffer, plan.rows, wide)[..., :d]
    return Track(head, row[..., at.N_HEAD : tails], roots, level, counts, first, parts, buffer)


class LowRankView(EnsembleView):
    """Fields of records; see `kgmrf.factors.DENSE` for those that are not listed."""

    def _make(self, name: str) -> dict[str, Numbers]:
        if name not in FROM_ROWS:
            return super()._make(name)
        engine, records = self._engine, self._records
        record, lead = engine.read(records), records.shape[:-1]
        if records.shape[-1] > engine.small:
            loadings, noise = engine.factors(records)
        else:
            shape = (*lead, engine.d)
            loadings, noise = self._worked_out(
                lambda rows, at: engine.factors(self._whole(rows)),
                *((*shape, engine.plan.columns), shape),
            )
        grow = (np.exp(record.kappa) * heaviness(record.tails))[..., None]
        return {"loadings": np.sqrt(grow)[..., None] * loadings, "noise": grow * noise}


class LowRank(SelfTuned):
    """Six laws of few factors plus a diagonal, blended by the gradient of their likelihood.

    rank, velocity: as for `default_members`. members: `Factors` in place of these.

    >>> engine = LowRank(100, rank=4)
    >>> rows = engine.init(1)
    >>> x = np.random.default_rng(0).normal(size=(50, 1, 100))
    >>> lines = Lines(np.zeros(50, dtype=int), x, np.ones(50), np.ones(50), matrix=False)
    >>> records = engine.advance(rows, lines)[1]
    >>> [part.shape for part in engine.factors(records)]
    [(50, 100, 25), (50, 100)]
    """

    names = NAMES
    from_rows = FROM_ROWS
    shows = LowRankView

    def __init__(
        self,
        d: int,
        rank: int | None = None,
        members: Iterable[Factors] | None = None,
        velocity: bool = False,
    ) -> None:
        self.d = int(d)
        self.members = tuple(
            default_members(self.d, rank, velocity) if members is None else members
        )
        for law in self.members:
            if not 1 <= law.rank <= self.d:
                raise ValueError(f"rank must be between 1 and d = {d}, got {law.rank!r}")
        super().__init__(len(self.members))
        self.plan: Layout = layout(self.d, self.members)
        # Five rows per factor, after which the axes are not started anew.
        self.size, self.start_up = self.plan.size, self.plan.rows
        self.record_size = self.small + self.d * (self.plan.columns + 1)

    def _work(self) -> tuple[Numbers, Numbers]:
        """The work space of this thread."""
        work: Any = getattr(self._local, "work", None)
        if work is None:
            work = self._local.work = self._work_space()
        return work

    def _work_space(self) -> tuple[Numbers, Numbers]:
        p = self.plan
        counts = np.array([p.d, p.stride, p.columns, p.channels, p.buffer, p.rows])
        return counts, np.zeros((p.columns + len(p.members), p.stride))

    def advance(
        self, rows: Numbers, lines: Lines, room: int | None = None
    ) -> tuple[Numbers, Numbers]:
        """Take in lines; see :mod:`kgmrf.engines`. A matrix has no single samples: refused."""
        which, seen, counts, dt, matrix, _ = lines
        if matrix:
            raise ValueError(
                f"factors of {self.d} channels need raw samples (m, d), not matrices; pass those, "
                "or rank=None for the engine that takes matrices"
            )
        status, records = self._answers(len(which), room)
        mark = np.zeros(3, dtype=np.int64)
        loop = engine.loops("low_rank")
        while loop.run(
            rows, which, seen, counts, dt, self.plan.table, *self._work(), records, status, mark
        ):
            line, samples, left = mark
            parts = track(rows[which[line]], self.plan)
            if left == loop.COAST:
                maths.coast(parts, self.plan, float(dt[line]))
            else:
                maths.arrive(parts, self.plan, seen[line, samples - 1], left == loop.COUNTED)
        return status, records

    def factors(self, records: Numbers) -> tuple[Numbers, Numbers]:
        """Loadings ``(..., d, k)`` and noise ``(..., d)`` of S; NaN for channels never seen."""
        d, k = self.d, self.plan.columns
        loadings = records[..., self.small : self.small + d * k]
        return loadings.reshape(*records.shape[:-1], d, k), records[..., self.small + d * k :]

    def room(self, names: tuple[str, ...]) -> int:
        """Numbers of a record that these fields need; factors are worked out from the rows."""
        return self.small

    def half_life(self, weights: Numbers) -> Numbers:
        """Of the noise, in the geometric mean of the members."""
        return np.exp(weights @ np.log([law.noise_half_life for law in self.members]))

    def check(self, rows: Numbers) -> None:
        """Raise ValueError unless these rows could have come from this engine."""
        super().check(rows)
        rest = rows.copy()
        blank = track(rest, self.plan)
        for values in (*blank[:-2], *(array for part in blank.parts for array in part), blank[-1]):
            values[...] = 0.0
        if rest.any():
            raise ValueError("a row holds numbers beyond its channels")
        parts = track(rows, self.plan)
        head, buffered = parts.head, parts.head[:, maths.BUFFERED]
        positive = [buffered, parts.level, parts.counts, parts.first]
        for part in parts.parts:
            positive += [part.noise, part.metric, part.numbers[:, maths.N_NOISE :]]
        if any((array < 0.0).any() for array in positive):
            raise ValueError("a row holds a negative count or variance")
        if (buffered != np.floor(buffered)).any() or (buffered > self.plan.rows).any():
            raise ValueError("a row counts more first rows than it holds")
        sizes = [head[:, at.KAPPA], *(part.numbers[:, maths.SIZE] for part in parts.parts)]
        if any((np.abs(size) > LARGEST_LOG).any() for size in sizes):
            raise ValueError("a row holds a size that is not possible")
        there = parts.level > 0.0
        if ((head[:, at.COUNT] > 0.0) & ~there.any(axis=-1)).any():
            raise ValueError("a row has observations but no channel")
        for law, part in zip(self.members, parts.parts, strict=True):
            if (there & ~((part.noise > 0.0) & (part.metric > 0.0))).any():
                raise ValueError("a channel of a row has no variance")
            live = buffered >= law.stages[0]
            for matrix, name in ((part.angle_var, "angles"), (part.spectrum, "factors")):
                own, most = matrix[live], 1e-6 * np.abs(matrix[live]).max(initial=0.0)
                skew = np.abs(own - np.swapaxes(own, -1, -2)).max(initial=0.0)
                if skew > most or np.linalg.eigvalsh(own).min(initial=0.0) < -most:
                    raise ValueError(f"the covariance of the {name} of a row is not positive")
            axes = part.axes[live & (there.sum(axis=-1) >= law.rank)]
            defect = axes @ np.swapaxes(axes, -1, -2) - np.eye(law.rank)
            if (np.abs(defect) > 1e-6).any():
                raise ValueError("axes of a row are not orthonormal")
            if (np.abs(part.states) > FASTEST_AXIS).any():
                raise ValueError("axes of a row turn too fast")
