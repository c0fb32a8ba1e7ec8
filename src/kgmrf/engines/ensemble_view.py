"""How the records of an ensemble look from outside."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgmrf._types import Numbers
from kgmrf.density import TAILS
from kgmrf.engines import View
from kgmrf.engines.details import half_life, velocity_and_angle_var
from kgmrf.factors import heaviness
from kgmrf.geometry import orbit
from kgmrf.state import SMALLEST_SPECTRUM

NAMES = (
    "time",
    "age",
    "covariance",
    "frame",
    "spectrum",
    "velocity",
    "angle_std",
    "nis",
    "log_likelihood",
    "scale",
    "tails",
    "dof",
    "weights",
    "half_life",
    "starting",
)

NU = np.array(TAILS)
SMALL = ("time", "age", "nis", "log_likelihood", "tails", "dof", "weights", "half_life", "starting")
"""Fields that a record without its matrix can show."""


class EnsembleView(View):
    """The fields of estimates from their records ``(..., size)``, each made when asked for."""

    def __init__(self, engine: Any, records: Numbers, rows: Any, names: tuple[str, ...]) -> None:
        self._names, self._made = names, {}
        self._engine, self._records, self._rows = engine, records, rows

    def _make(self, name: str) -> dict[str, Numbers]:
        if name == "covariance":
            if self._engine.noise_floor:
                return {name: orbit.compose(self["frame"], self["spectrum"])}
            return {name: self._raw()}
        record = self._engine.read(self._records)
        if name == "time":
            return {name: record.time}
        if name == "age":
            return {name: record.time - record.seen}
        if name == "log_likelihood":
            return {name: record.log_likelihood}
        if name in ("tails", "weights"):
            return {name: getattr(record, name)}
        if name == "half_life":
            return {name: half_life(self._engine.plan, record.weights)}
        if name == "starting":
            return {name: record.samples < 2.0 * self._engine.d}
        if name == "dof":
            grow = heaviness(record.tails)
            return {name: 2.0 * grow / (grow - 1.0)}
        if name == "nis":
            return {name: self._surprise()}
        if name == "scale":
            grow = np.where(record.observations > 1.0, heaviness(record.tails), 1.0)
            return {name: self._raw() / grow[..., None, None]}
        if name in ("frame", "spectrum"):
            return self._eigen()
        return self._moving()

    def _raw(self) -> Numbers:
        """Second moment of the forecast, noise floor included."""
        engine, records = self._engine, self._records
        if records.shape[-1] == engine.small:
            records = engine.look(self._rows.reshape(-1, engine.size))
        return records[..., engine.small :].reshape(*self._records.shape[:-1], engine.d, engine.d)

    def _eigen(self) -> dict[str, Numbers]:
        whole = self._raw()
        unseen = np.asarray(np.isnan(whole).any(axis=(-2, -1)))
        safe = np.where(unseen[..., None, None], np.eye(self._engine.d), whole)
        frame, spectrum = orbit.decompose(safe)
        spectrum = np.maximum(
            spectrum - self._engine.noise_floor, SMALLEST_SPECTRUM * spectrum[..., :1]
        )
        return {
            "frame": np.where(unseen[..., None, None], np.nan, frame),
            "spectrum": np.where(unseen[..., None], np.nan, spectrum),
        }

    def _surprise(self) -> Numbers:
        """The chi-squared value that is as improbable as the observation under its forecast."""
        from scipy import special  # slow to import, and only this needs it

        record = self._engine.read(self._records)
        d = self._engine.d
        if d == 1:
            return np.full(record.time.shape, np.nan)
        n = record.values[..., None]
        beyond = special.fdtrc(n, NU, record.distance[..., None] / n)
        # fdtrc loses its grip below 1e-300, where nobody counts any more
        tail = np.maximum((record.before * beyond).sum(axis=-1), 1e-300)
        return special.chdtri(d * (d - 1) / 2.0, np.where(np.isnan(tail), np.nan, tail))

    def _moving(self) -> dict[str, Numbers]:
        frame, spectrum = self["frame"], self["spectrum"]
        lead, engine, d = frame.shape[:-2], self._engine, self._engine.d
        velocity, variance = np.empty((2, *lead, d, d))
        if callable(self._rows):

            def take(at: Any, rows: Numbers) -> None:
                velocity[at], variance[at] = _moving(engine, rows, frame[at], spectrum[at])

            self._rows(take)
        else:
            velocity[...], variance[...] = _moving(engine, self._rows, frame, spectrum)
        return {"velocity": velocity, "angle_std": np.sqrt(variance)}


def _moving(
    engine: Any, rows: Numbers, frame: Numbers, spectrum: Numbers
) -> tuple[Numbers, Numbers]:
    unknown = np.isnan(spectrum[..., :1])[..., None]
    eye = np.eye(engine.d)
    safe = np.where(unknown, eye, frame), np.where(unknown[..., 0], 1.0, spectrum)
    velocity, variance = velocity_and_angle_var(engine, rows, *safe)
    return np.where(unknown, np.nan, velocity), variance
