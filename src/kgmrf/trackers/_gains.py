"""Gain laws as arguments of trackers: by name, as objects, or from a file."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgmrf._check import in_range
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
    for name, limits in RANGES[type(law)].items():
        for value in np.ravel(np.asarray(getattr(law, name), dtype=float)):
            in_range(value, name, *limits)
    return law


RANGES: dict[type, dict[str, tuple[float, float, bool]]] = {
    InformationGains: {
        "acceleration": (0.0, np.inf, False),
        "angle_noise": (0.0, np.inf, False),
        "rate_prior": (0.0, np.inf, True),
        "angle_prior": (0.0, np.inf, True),
        "retention": (1e-6, 1.0, False),
    },
    FixedGains: {
        "retention": (-1.0, 1.0, False),
        "coast_retention": (-1.0, 1.0, False),
        "position_gain": (-np.inf, np.inf, False),
        "velocity_gain": (-np.inf, np.inf, False),
    },
}
"""Least and largest value of every setting, and whether the least is left out."""
