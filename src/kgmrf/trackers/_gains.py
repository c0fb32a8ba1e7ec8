"""Gain laws as arguments of trackers: by name, as objects, or from a file."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgmrf._check import in_range
from kgmrf._types import Array, Numbers
from kgmrf.gains import LAWS, FixedGains, Gains, InformationGains


def as_gains(gains: str | Gains | dict[str, Any]) -> Gains:
    """A gain law from its name, from a law with its settings, or from a saved file's table."""
    if isinstance(gains, (FixedGains, InformationGains)):
        law: Gains = gains
    elif isinstance(gains, dict):
        table = dict(gains)
        kinds: dict[str, Any] = {k.__name__: k for k in (FixedGains, InformationGains)}
        law = kinds[table.pop("law")](**table)
    elif gains in LAWS:
        law = LAWS[gains]()  # type: ignore[operator]
    else:
        raise ValueError(
            f"gains must be one of {', '.join(map(repr, LAWS))} or a law such as "
            f"kgmrf.gains.information(acceleration=1e-6), got {gains!r}"
        )
    _check_law(law)
    return law


def _check_law(law: Gains) -> None:
    def numbers(name: str) -> list[float]:
        return list(np.ravel(np.asarray(getattr(law, name), dtype=float)))

    if isinstance(law, InformationGains):
        for name in ("acceleration", "angle_noise"):
            [in_range(v, name, 0.0, np.inf) for v in numbers(name)]
        for name in ("rate_prior", "angle_prior"):
            [in_range(v, name, 0.0, np.inf, open_low=True) for v in numbers(name)]
        [in_range(v, "retention", 1e-6, 1.0) for v in numbers("retention")]
        return
    for name in ("retention", "coast_retention"):
        [in_range(v, name, -1.0, 1.0) for v in numbers(name)]
    for name in ("position_gain", "velocity_gain"):
        [in_range(v, name, -np.inf, np.inf) for v in numbers(name)]


def as_batch(array: Array, shape: tuple[int, ...]) -> Numbers:
    """A copy of ``array`` for every item of the batch."""
    return np.broadcast_to(np.asarray(array, dtype=float), shape).copy()
