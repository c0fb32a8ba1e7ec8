"""Many channels as an engine: rows of tracks, lines of samples, records, and how they look.

A record is head, tails and weights of the row (:mod:`kgmrf.engines.low_rank_layout`), and where
there is room the loadings ``(d, k)`` and the noise ``(d,)`` of the blend S = F F^T + diag N.
`kgmrf.readable.low_rank` tells the formulas.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from kgmrf._types import Numbers
from kgmrf.constants import LOW_RANK_FASTEST, LOW_RANK_LARGEST_LOG
from kgmrf.engines import Lines, core
from kgmrf.engines import layout as at
from kgmrf.engines.ensemble_view import SMALL, EnsembleView
from kgmrf.engines.low_rank_layout import (
    BUFFERED,
    COLUMN,
    N_NOISE,
    SIZE,
    Factors,
    Layout,
    layout,
    track,
)
from kgmrf.engines.self_tuned import SelfTuned
from kgmrf.model.factors import DENSE, heaviness

CROSSOVER = 64
"""Channels from which factors beat the small ensemble in accuracy and in speed."""

FROM_ROWS = ("loadings", "noise", *DENSE)  # fields that a small record cannot show
NAMES = ("time", "age", "loadings", "noise", *SMALL[2:])


def default_members(
    d: int, rank: int | None = None, rotating_axes: bool = False
) -> tuple[Factors, ...]:
    """Six members: of this rank, default min(10, d // 3), of a third and of twice as many factors.

    rotating_axes: two more whose axes keep turning the way they did.

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
    return (*members, *turning) if rotating_axes else members


class LowRankView(EnsembleView):
    """Fields of records; see `kgmrf.model.factors.DENSE` for those that are not listed."""

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
        heavy = heaviness(record.tails, record.size_std)
        grow = (np.exp(record.kappa) * heavy)[..., None]
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
    root_column = COLUMN["root"]
    horizon_columns = (COLUMN["horizon"], COLUMN["heir"])

    def __init__(
        self,
        d: int,
        rank: int | None = None,
        members: Iterable[Factors] | None = None,
        rotating_axes: bool = False,
    ) -> None:
        self.d = int(d)
        self.members = tuple(
            default_members(self.d, rank, rotating_axes) if members is None else members
        )
        for law in self.members:
            if not 1 <= law.rank <= self.d:
                raise ValueError(f"rank must be between 1 and d = {d}, got {law.rank!r}")
        super().__init__(len(self.members))
        self.plan: Layout = layout(self.d, self.members)
        # Five rows per factor, after which the axes are not started again.
        self.size, self.start_up = self.plan.size, self.plan.rows
        self.record_size = self.small + self.d * (self.plan.columns + 1)

    def _make_loop(self) -> Any:
        return core.loop("LowRank", self.d, self.plan.table, self.plan.places)

    def advance(
        self, rows: Numbers, lines: Lines, record_width: int | None = None
    ) -> tuple[Numbers, Numbers]:
        """Take in lines; see :mod:`kgmrf.engines`. A matrix has no single samples: refused."""
        if lines.matrix:
            raise ValueError(
                f"factors of {self.d} channels need raw samples (m, d), not matrices; pass those, "
                "or rank=None for the engine that takes matrices"
            )
        status, records = self._answers(len(lines.track_index), record_width)
        self.loop.run(rows, *lines[:4], False, lines.tolerance, records, status)
        return status, records

    def factors(self, records: Numbers) -> tuple[Numbers, Numbers]:
        """Loadings ``(..., d, k)`` and noise ``(..., d)`` of S; NaN for channels never seen."""
        d, k = self.d, self.plan.columns
        loadings = records[..., self.small : self.small + d * k]
        return loadings.reshape(*records.shape[:-1], d, k), records[..., self.small + d * k :]

    def record_width(self, names: tuple[str, ...]) -> int:
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
        head, buffered = parts.head, parts.head[:, BUFFERED]
        positive = [buffered, parts.level, parts.counts, parts.first]
        for part in parts.parts:
            positive += [part.noise, part.metric, part.numbers[:, N_NOISE:]]
        if any((array < 0.0).any() for array in positive):
            raise ValueError("a row holds a negative count or variance")
        if (buffered != np.floor(buffered)).any() or (buffered > self.plan.rows).any():
            raise ValueError("a row counts more first rows than it holds")
        sizes = [head[:, at.KAPPA], *(part.numbers[:, SIZE] for part in parts.parts)]
        if any((np.abs(size) > LOW_RANK_LARGEST_LOG).any() for size in sizes):
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
            if (np.abs(part.states) > LOW_RANK_FASTEST).any():
                raise ValueError("axes of a row turn too fast")
