"""How the records of many channels look from outside: factors, and matrices if asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kgmrf._types import Numbers
from kgmrf.density import TAILS
from kgmrf.engines import View
from kgmrf.factors import DENSE, derived, heaviness

if TYPE_CHECKING:
    from kgmrf.engines.low_rank import LowRank

NAMES = (
    "time",
    "age",
    "loadings",
    "noise",
    "nis",
    "log_likelihood",
    "tails",
    "dof",
    "weights",
    "half_life",
    "starting",
)
FROM_ROWS = ("loadings", "noise", *DENSE)
"""Fields that a small record cannot show."""

NU = np.array(TAILS)


class LowRankView(View):
    """Fields of records ``(..., size)``; the matrices of `DENSE` are there but not listed.

    rows: those that the records belong to, or a function that hands them out chunk by chunk.
    """

    def __init__(
        self, engine: LowRank, records: Numbers, rows: Any, names: tuple[str, ...]
    ) -> None:
        super().__init__(names)
        self._engine, self._records, self._rows = engine, records, rows

    def __getitem__(self, name: str) -> Numbers:
        if name in DENSE:
            return derived(name, self["loadings"], self["noise"], self["tails"])
        if name not in NAMES:
            raise KeyError(name)
        if name not in self._made:
            self._made |= self._make(name)
        return self._made[name]

    def at(self, frame: int | slice) -> LowRankView:
        """The view of some steps alone."""
        rows = self._rows
        if callable(rows):
            rows = _Chosen(rows, np.arange(len(self._records))[frame])
        elif rows is not None:
            rows = rows[frame]
        return LowRankView(self._engine, self._records[frame], rows, self._names)

    def _make(self, name: str) -> dict[str, Numbers]:
        engine, record = self._engine, self._engine.read(self._records)
        if name == "age":
            return {name: record.time - record.seen}
        if name in ("time", "log_likelihood", "tails", "weights"):
            return {name: getattr(record, name)}
        if name == "half_life":
            lives = [law.noise_half_life for law in engine.members]
            return {name: np.exp(record.weights @ np.log(lives))}
        if name == "starting":
            # Five rows per factor, after which the axes are not started anew.
            return {name: record.samples < engine.plan.rows}
        if name == "dof":
            grow = heaviness(record.tails)
            return {name: 2.0 * grow / (grow - 1.0)}
        if name == "nis":
            return {name: self._surprise()}
        loadings, noise = self._factors()
        grow = (np.exp(record.kappa) * heaviness(record.tails))[..., None]
        return {"loadings": np.sqrt(grow)[..., None] * loadings, "noise": grow * noise}

    def _factors(self) -> tuple[Numbers, Numbers]:
        engine, records = self._engine, self._records
        if records.shape[-1] > engine.small:
            return engine.factors(records)
        if not callable(self._rows):
            return engine.factors(_look(engine, self._rows))
        lead, d = records.shape[:-1], engine.d
        loadings, noise = np.empty((*lead, d, engine.plan.columns)), np.empty((*lead, d))

        def take(at: Any, rows: Numbers) -> None:
            loadings[at], noise[at] = engine.factors(_look(engine, rows))

        self._rows(take)
        return loadings, noise

    def _surprise(self) -> Numbers:
        """The chi-squared value that is as improbable as the observation under its forecast."""
        from scipy import special

        record, d = self._engine.read(self._records), self._engine.d
        if d == 1:
            return np.full(record.time.shape, np.nan)
        n = record.values[..., None]
        beyond = special.fdtrc(n, NU, record.distance[..., None] / n)
        tail = np.maximum((record.before * beyond).sum(axis=-1), 1e-300)
        return special.chdtri(d * (d - 1) / 2.0, np.where(np.isnan(tail), np.nan, tail))


class _Chosen:
    """Hands out the rows of some steps only, of all that another function hands out."""

    def __init__(self, rows: Any, frames: Any) -> None:
        self._rows, self._frames = rows, frames

    def __call__(self, take: Any) -> None:
        single = np.ndim(self._frames) == 0
        wanted = np.atleast_1d(self._frames)

        def pick(at: slice, rows: Numbers) -> None:
            inside = (wanted >= at.start) & (wanted < at.stop)
            if inside.any():
                chosen = rows[wanted[inside] - at.start]
                take(... if single else np.flatnonzero(inside), chosen[0] if single else chosen)

        self._rows(pick)


def _look(engine: LowRank, rows: Numbers) -> Numbers:
    """Whole records of rows ``(..., size)``."""
    return engine.look(rows.reshape(-1, engine.size)).reshape(*rows.shape[:-1], -1)
