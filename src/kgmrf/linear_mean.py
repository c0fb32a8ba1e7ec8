"""A mean that is linear in the last rows, taken off before an engine follows what is left.

`kgmrf.readable.linear_mean` has the formulas. State is one row per track, as of an engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from kgmrf._types import Numbers
from kgmrf.constants import MEAN_RIDGE, SMALLEST_SPECTRUM
from kgmrf.engines import core
from kgmrf.geometry import orbit
from kgmrf.readable.linear_mean import MeanTrack, mean_of, mean_size, mean_track, share

LAGS = 2
"""Rows that a linear mean looks back, unless something else is asked for."""

FARTHEST = 1000
"""Rows that a forecast of the mean goes ahead at most; what is further is as far."""


def blank_rows(n: int, d: int, lags: int) -> Numbers:
    """Rows ``(n, size)`` of new tracks."""
    rows = np.zeros((n, mean_size(d, lags)))
    for row in rows:
        np.fill_diagonal(mean_track(row, d, lags).spread, 1.0 / MEAN_RIDGE)
    return rows


def take_off(rows: Numbers, track_index: Numbers, values: Numbers, lags: int) -> Numbers:
    """The mean before each of the lines ``(N, d)``; rows change in place."""
    means = np.empty(values.shape)
    index = np.ascontiguousarray(track_index, dtype=np.int64)
    lines = np.ascontiguousarray(values, dtype=float)
    core.functions("linear_mean").follow_linear_mean(rows, index, lines, int(lags), means)
    return means


def check_rows(rows: Numbers, d: int, lags: int) -> None:
    """Raise ValueError unless these rows could have come from `take_off`."""
    if rows.shape[-1] != mean_size(d, lags) or not np.isfinite(rows).all():
        raise ValueError("a linear mean holds numbers that are not finite, or too few")
    for row in rows:
        t = mean_track(row, d, lags)
        if (t.head[:2] < 0.0).any() or (t.level < 0.0).any() or (t.noise < 0.0).any():
            raise ValueError("a linear mean holds a negative variance or count")
        if (np.diag(t.spread) < -1e-9).any() or np.abs(t.spread).max() > 1.0:
            raise ValueError("the uncertainty of a linear mean is none")


def predicted(row: Numbers, d: int, lags: int, rows_ahead: int) -> Numbers:
    """mu of each of the next rows ``(h, d)``, with every mean in place of the row that comes."""
    t = mean_track(row.copy(), d, lags)
    out = np.empty((rows_ahead, d))
    for mu in out:
        mu[:] = mean_of(t)
        t.lags[1:] = t.lags[:-1].copy()
        t.lags[0] = mu
    return out


def responses(t: MeanTrack, rows_ahead: int) -> Numbers:
    """Psi_k: what an error of one row adds to the mean k rows later, ``(h, d, d)``.

    Psi_0 = I, Psi_k = sum_j A_j Psi_{k-j}, A_j = a sqrt(L) B_j^T 1/sqrt(L).
    """
    lags, d = t.lags.shape
    units = np.sqrt(t.level)
    inverse = np.where(units > 0.0, 1.0 / np.where(units > 0.0, units, 1.0), 0.0)
    blocks = share(t) * np.swapaxes(t.slopes.reshape(lags, d, d), 1, 2)
    blocks = units[:, None] * blocks * inverse
    out = np.zeros((rows_ahead, d, d))
    out[0] = np.eye(d)
    for k in range(1, rows_ahead):
        out[k] = sum(blocks[j] @ out[k - 1 - j] for j in range(min(lags, k)))
    return out


class WithMean(Mapping[str, Numbers]):
    """The fields of an engine, those of what is left, with the mean of the rows.

    mean: ``(..., d)``. covariance: of a forecast further ahead, what takes the place of the
    engine's; None leaves it.
    """

    def __init__(self, values: Any, mean: Numbers, covariance: Numbers | None = None) -> None:
        self._values = values
        self._made: dict[str, Numbers] = {"mean": mean}
        if covariance is not None:
            self._made |= self._widened(covariance)

    def _widened(self, covariance: Numbers) -> dict[str, Numbers]:
        own = self._values["covariance"]
        there = ~np.isnan(np.diagonal(own, axis1=-2, axis2=-1))
        size = [
            np.where(there, np.diagonal(m, axis1=-2, axis2=-1), 0.0).sum(axis=-1)
            for m in (self._values["scale"], own)
        ]
        heavy = size[0] / np.where(size[1] > 0.0, size[1], 1.0)
        frame, spectrum = orbit.decompose(covariance)
        spectrum = np.maximum(spectrum, SMALLEST_SPECTRUM * spectrum[..., :1])
        return {
            "covariance": covariance,
            "scale": heavy[..., None, None] * covariance,
            "frame": frame,
            "spectrum": spectrum,
        }

    def __getitem__(self, name: str) -> Numbers:
        return self._made[name] if name in self._made else self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter((*self._values, "mean"))

    def __len__(self) -> int:
        return len(self._values) + 1

    def at(self, frame: int | slice) -> WithMean:
        """The fields of some steps alone."""
        part = WithMean(self._values.at(frame), self._made["mean"][frame])
        part._made = {name: value[frame] for name, value in self._made.items()}
        return part
