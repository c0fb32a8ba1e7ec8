"""The self-tuned rotation filter: rows of numbers in, records out."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgmrf._types import Mask, Numbers
from kgmrf.kernels.engine import loops
from kgmrf.kernels.rotation_rows import *  # noqa: F403


class Rotations:
    def __init__(self, noise_std=None, noise_std_guess=None, oscillations=True, time_unit=None):
        given = noise_std is not None
        noise = noise_std if given else (1e-3 if noise_std_guess is None else noise_std_guess)
        shape = 0.15 if noise_std_guess is None else 9.0
        unit = 0.0 if time_unit is None else float(time_unit)
        self.settings = np.array([given, noise**2, shape, unit, oscillations, -1.0])
        self.laws, self.table = isotropic_laws(), dense_laws()
        self.size = WHOLE if oscillations else CORE
        self.record_size = RECORD

    def init(self, n_tracks: int) -> Numbers:
        rows = np.zeros((n_tracks, self.size))
        rows[:, SEEN] = np.nan
        unit = self.settings[S_UNIT]
        rows[:, UNIT] = unit or 1.0
        return rows

    def advance(self, rows, seen, observed, dt, noise=None):
        n_steps, n = observed.shape
        records = np.empty((n_steps, n, RECORD))
        if noise is None:
            noise = np.ones((n_steps, n))
        loops("rotations").advance(
            rows, np.ascontiguousarray(seen), np.ascontiguousarray(observed),
            _own(dt, observed.shape), _own(noise, observed.shape),
            self.laws, self.table, self.settings, records)
        return records

    def ahead(self, rows, dt):
        dt = np.atleast_1d(np.asarray(dt, float))
        records = np.empty((len(dt), len(rows), RECORD))
        loops("rotations").ahead(rows, dt, self.laws, self.table, self.settings, records)
        return records


def _own(array, shape):
    full = np.broadcast_to(np.asarray(array, dtype=np.float64), shape)
    return full if full.flags.carray else full.copy()
