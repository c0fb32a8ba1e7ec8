"""How the records of an ensemble look from outside."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgmrf._types import Numbers
from kgmrf.density import TAILS
from kgmrf.engines import View
from kgmrf.engines.details import velocity_and_angle_var
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
    """The fields of estimates of a self-tuned engine."""

    def _make(self, name: str) -> dict[str, Numbers]:
        if name == "covariance":
            if self._engine.noise_floor:
                return {name: orbit.compose(self["frame"], self["spectrum"])}
            return {name: self._raw()}
        record = self._engine.read(self._records)
        if name in ("time", "log_likelihood", "tails", "weights"):
            return {name: getattr(record, name)}
        if name == "age":
            return {name: record.time - record.seen}
        if name == "half_life":
            return {name: self._engine.half_life(record.weights)}
        if name == "starting":
            return {name: record.samples < self._engine.start_up}
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
            records = self._whole(self._rows)
        return records[..., engine.small :].reshape(*records.shape[:-1], engine.d, engine.d)

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
        engine, frame, spectrum = self._engine, self["frame"], self["spectrum"]
        unknown = np.isnan(spectrum[..., :1])[..., None]
        frame = np.where(unknown, np.eye(engine.d), frame)
        spectrum = np.where(unknown[..., 0], 1.0, spectrum)

        def work(rows: Numbers, at: Any) -> tuple[Numbers, Numbers]:
            return velocity_and_angle_var(engine, rows, frame[at], spectrum[at])

        velocity, variance = self._worked_out(work, frame.shape, frame.shape)
        return {"velocity": np.where(unknown, np.nan, velocity), "angle_std": np.sqrt(variance)}
