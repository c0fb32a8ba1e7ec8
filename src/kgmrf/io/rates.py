"""Measured angular rates (a gyroscope) beside the poses of a file: both on one line of time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from kgmrf._types import Numbers
from kgmrf.io import ARRAYS, open_source
from kgmrf.io.columns import axes_of
from kgmrf.io.source import Chunk, DataError, Source, joined, rows_per_chunk, suffix

_RATE_NAME = re.compile(
    r"(?:(?!b_).*[._])?(?:w|g|omega|rate|gyro|gyr|gyroscope|angular_(?:velocity|rate))"
    r"(?:[._]\w+)*?[._]?[xyz]"
)
"""Names of a rate about an axis: w_x, gyro_z, w_RS_S_x; b_w_RS_S_x is a bias."""

SAME = 4.0
"""Stamps that differ by so many steps of a float, as after another unit, are the same."""


def with_rates(source: Source, path: Path, time: str | None = None) -> Source:
    """Poses with the rates of another file, or of other columns of the same.

    Stamps of rates between the first pose and the last become steps without a pose. At a pose the
    rate is that between its two neighbours in time; outside of the times of the rates it is NaN.
    """
    if source.kind != "rotation" or source.d != 3:
        raise DataError(
            f"{source.path} holds {source.kind}s, d = {source.d}: --gyroscope is for rotations of "
            "space"
        )
    stamps, rates = _read(path, source, time)

    def read() -> Iterator[Chunk]:
        last, overlap = None, False
        for chunk in source:
            if chunk.times is None:
                raise DataError(f"{source.path} has no time stamps; --gyroscope needs them")
            whole = _merged(chunk, chunk.times, stamps, rates, last)
            last = float(chunk.times[-1])
            overlap = overlap or bool(np.isfinite(np.asarray(whole.rates)).any())
            size = rows_per_chunk(8 * 9)
            for first in range(0, len(whole.values), size):
                yield whole.cut(first, first + size)
        if not overlap:
            raise DataError(
                f"{path} has no rate within the times of {source.path}: rates are from "
                f"{stamps[0]:.15g} to {stamps[-1]:.15g}, poses until {last:.15g}"
            )

    return replace(source, read=read)


def _merged(
    chunk: Chunk, times: Numbers, stamps: Numbers, rates: Numbers, last: float | None
) -> Chunk:
    """Poses and rates in order of time; last: stamp of the last pose of the chunk before."""
    between = (stamps > (times[0] if last is None else last)) & (stamps < times[-1])
    after = np.minimum(np.searchsorted(times, stamps), len(times) - 1)
    beside = np.stack([times[after], times[np.maximum(after - 1, 0)]])
    apart = np.abs(beside - stamps).min(axis=0)
    extra = stamps[between & (apart > SAME * np.spacing(np.abs(stamps)))]
    order = np.argsort(np.concatenate([times, extra]), kind="stable")
    every = np.concatenate([times, extra])[order]
    pose = np.minimum(np.searchsorted(times, every), len(times) - 1)
    here = (order < len(times))[:, None]
    pose[here[:, 0]] = order[here[:, 0]]
    places = None if chunk.positions is None else np.where(here, chunk.positions[pose], np.nan)
    sides = [np.interp(every, stamps, axis, left=np.nan, right=np.nan) for axis in rates.T]
    return chunk._replace(
        values=np.where(here[..., None], chunk.values[pose], np.nan),
        times=every,
        places=chunk.places[pose],
        positions=places,
        rates=np.stack(sides, axis=-1),
    )


def _read(path: Path, poses: Source, time: str | None) -> tuple[Numbers, Numbers]:
    """Stamps ``(n,)`` and rates ``(n, 3)`` of a file, in the unit of time of the poses."""
    found = open_source(path, kind="samples", time=time)
    triples = axes_of(found.names, _RATE_NAME, "xyz")
    if found.d != 3 or triples:
        if len(triples) != 1 or suffix(path) in ARRAYS:
            raise DataError(
                f"{path} has the columns {', '.join(found.names[:12])}; expected the rates of one "
                "gyroscope, named like w_x, w_y, w_z or gyro_x, gyro_y, gyro_z, or three columns "
                "beside the time"
            )
        columns = [found.names[k] for k in triples[0]]
        found = open_source(path, kind="samples", time=time, columns=columns)
    chunks = list(found)
    whole = joined(chunks) if chunks else None
    if whole is None or whole.times is None:
        raise DataError(f"{path} has no time stamps; rates need a column time")
    there = ~np.isnan(whole.values).any(axis=-1)
    if not there.any():
        raise DataError(f"{path} holds no rates")
    stamps, first = np.unique(whole.times[there], return_index=True)
    second = poses.per_second or 1.0
    if poses.per_second and found.per_second:
        stamps = stamps * (poses.per_second / found.per_second)
    return stamps, whole.values[there][first] / second
