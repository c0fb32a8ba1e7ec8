"""Settings of `kgmrf.KGMRF`: what is refused, and old names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kgmrf._types import Numbers


def checked_rank(rank: Any, usual: bool, d: int | None) -> int | str | None:
    """A checked rank: "auto", None or a number of factors."""
    if rank is None or (isinstance(rank, str) and rank == "auto"):
        return rank
    if isinstance(rank, (bool, str)) or int(rank) != rank or rank < 1:
        raise ValueError(f'rank must be "auto", None or a number of factors, got {rank!r}')
    if d is not None and rank > d:
        raise ValueError(f"rank must be at most d = {d}, got {rank!r}")
    if not usual:
        raise ValueError(
            f'rank={rank!r} needs gains="auto", the default members and noise_floor=0; leave out '
            "rank or the others"
        )
    return int(rank)


RENAMED = {
    "velocity": "rotating_axes",
    "warmup_samples": "pool_samples",
    "warmup_frames": "pool_steps",
}
"""Settings under their old names."""

SINGLE = (
    *("spectrum", "spectrum_rate", "scale_rate", "scale_retention", "integrator", "initial"),
    *("pool_samples", "pool_steps"),
)
"""Settings that only a single law has."""


def refuse_single_law(given: dict[str, Any], known: Mapping[str, Any]) -> None:
    """Refuses settings of a single law, unless they have the values that they have anyway.

    known: the parameters of `KGMRF`, with their defaults.
    """
    for name in SINGLE:
        value, usual = given[name], known[name].default
        same = value is usual or (isinstance(value, (str, float, int)) and value == usual)
        if not same:
            raise ValueError(
                f'{name}={value!r} belongs to a single law and needs gains="information" (or '
                'another law); gains="auto" follows size, spectrum and frame by itself'
            )


def refuse_one_channel(d: int | None) -> None:
    if d == 1:
        raise ValueError(
            'n_samples="learned" needs two channels or more: a matrix of one channel has nothing '
            "but its size; give the number of samples"
        )


def known_spectrum(spectrum: Any, d: int | None) -> Numbers:
    values = np.asarray(spectrum, dtype=float)
    if values.ndim < 1 or (d is not None and values.shape[-1] != d):
        raise ValueError(f"spectrum must be a word or d eigenvalues, got shape {values.shape}")
    if not ((values > 0) & np.isfinite(values)).all():
        raise ValueError(f"spectrum must hold positive eigenvalues, got {spectrum!r}")
    return np.flip(np.sort(values, axis=-1), axis=-1).copy()
