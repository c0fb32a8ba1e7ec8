"""A mean that is linear in the last rows, taken off before an engine follows what is left.

`kgmrf.readable.linear_mean` has the formulas. State is one row per track, as of an engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from kgmrf._types import Numbers
from kgmrf.constants import MEAN_RIDGE, SMALLEST_SPECTRUM
from kgmrf.engines import core
from kgmrf.geometry import orbit
from kgmrf.readable.linear_mean import mean_of, mean_size, mean_track, share

LAGS = 2
"""Rows that a linear mean looks back, unless something else is asked for."""

FARTHEST = 1000
"""Rows that a forecast of the mean goes ahead at most; what is further is as far."""


def blank_rows(n: int, d: int, lags: int) -> Numbers:
    """Rows ``(n, size)`` of new tracks."""
    row = np.zeros(mean_size(d, lags))
    np.fill_diagonal(mean_track(row, d, lags).spread, 1.0 / MEAN_RIDGE)
    return np.tile(row, (n, 1))


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
    t = mean_track(rows, d, lags)
    if (t.head[:, :2] < 0.0).any() or (t.level < 0.0).any() or (t.noise < 0.0).any():
        raise ValueError("a linear mean holds a negative variance or count")
    diagonal = np.diagonal(t.spread, axis1=-2, axis2=-1)
    if (diagonal < -1e-9).any() or (np.abs(t.spread) > 1.0).any():
        raise ValueError("the uncertainty of a linear mean is none")


def mean_of_last(rows: Numbers, d: int, lags: int) -> Numbers:
    """What was forecast for the row that each track took in last, ``(..., d)``."""
    return mean_track(rows, d, lags).mean.copy()


def predicted(rows: Numbers, d: int, lags: int, steps: int) -> Numbers:
    """mu of the row that is ``steps`` ahead, ``(..., d)``, of tracks ``(..., size)``: with every
    mean in place of the row that comes before."""
    t = mean_track(rows, d, lags)
    for _ in range(steps - 1):
        t = t._replace(
            lags=np.concatenate([mean_of(t)[..., None, :], t.lags[..., :-1, :]], axis=-2)
        )
    return mean_of(t)


def widened(
    rows: Numbers, d: int, lags: int, steps: int, left: Callable[[int], Numbers]
) -> Numbers:
    """Covariance of rows that are ``steps`` ahead, ``(..., d, d)``.

    Cov = sum_k Psi_k S_{h-k} Psi_k^T, left(j) = S_j the covariance of what is left j rows ahead.
    Psi_k is what an error of one row adds to the mean k rows later: Psi_0 = I,
    Psi_k = sum_j A_j Psi_{k-j}, A_j = a sqrt(L) B_j^T 1/sqrt(L).
    """
    t = mean_track(rows, d, lags)
    units = np.sqrt(t.level)
    inverse = np.where(units > 0.0, 1.0 / np.where(units > 0.0, units, 1.0), 0.0)
    blocks = np.swapaxes(t.slopes.reshape(*t.level.shape[:-1], lags, d, d), -1, -2)
    units, inverse = units[..., None, :, None], inverse[..., None, None, :]
    blocks = share(t)[..., None, None, None] * units * blocks * inverse
    psi = [np.broadcast_to(np.eye(d), (*t.level.shape[:-1], d, d))]  # the newest first
    total = np.zeros(psi[0].shape)
    unknown = np.zeros(psi[0].shape, dtype=bool)
    for k in range(steps):
        own = left(steps - k)
        unknown |= np.isnan(own)
        total += psi[0] @ np.where(np.isnan(own), 0.0, own) @ np.swapaxes(psi[0], -1, -2)
        new = sum(blocks[..., j, :, :] @ psi[j] for j in range(len(psi)))
        psi = [np.asarray(new), *psi][:lags]
    return np.where(unknown, np.nan, 0.5 * (total + np.swapaxes(total, -1, -2)))


def ahead_with_mean(
    rows: Numbers, d: int, lags: int, dt: float, forecast: Callable[[float], Any]
) -> WithMean:
    """The fields ``dt`` from now of tracks ``(..., size)``, of the row that is nearest.

    forecast: the fields of what is left, any time from now.
    """
    h, values = int(min(max(round(dt), 1), FARTHEST)), forecast(dt)
    mean = predicted(rows, d, lags, h)
    if h == 1:
        return WithMean(values, mean)

    def left(j: int) -> Numbers:
        fields = values if j == h else forecast(float(j))
        return np.asarray(fields["covariance"])

    return WithMean(values, mean, widened(rows, d, lags, h, left))


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
        frame, spectrum = orbit.decompose(covariance)
        spectrum = np.maximum(spectrum, SMALLEST_SPECTRUM * spectrum[..., :1])
        found = {"covariance": covariance, "frame": frame, "spectrum": spectrum}
        if "scale" in self._values:  # of a density with tails
            size, whole = (
                np.nansum(np.diagonal(self._values[name], axis1=-2, axis2=-1), axis=-1)
                for name in ("scale", "covariance")
            )
            heavy = size / np.where(whole > 0.0, whole, 1.0)
            found["scale"] = heavy[..., None, None] * covariance
        return found

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
