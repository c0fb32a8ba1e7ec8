"""How far a mean over clips would move with other clips."""

from __future__ import annotations

import numpy as np

DRAWS = 4000


def of_mean(values: dict[str, list[float]]) -> tuple[float, float]:
    """95 % interval of the mean of all values, by bootstrap over clips: clip -> its values.

    Values of one clip stay together, because they are alike.

    >>> of_mean({"a": [0.2, 0.4], "b": [0.3]})
    (0.3, 0.3)
    """
    total = np.array([sum(v) for v in values.values()])
    count = np.array([len(v) for v in values.values()])
    chosen = np.random.default_rng(0).integers(len(total), size=(DRAWS, len(total)))
    means = total[chosen].sum(axis=1) / count[chosen].sum(axis=1)
    low, high = np.quantile(means, (0.025, 0.975))
    return round(float(low), 6), round(float(high), 6)


def by_clip(cases: list[tuple[str, float]]) -> dict[str, list[float]]:
    """Values by clip; a case is named after its clip ("Jogging-1 from 0" is of "Jogging").

    >>> by_clip([("Jogging-1 from 0", 0.5), ("Jogging-2", 0.7), ("zoom 0", 0.1)])
    {'Jogging': [0.5, 0.7], 'zoom': [0.1]}
    """
    found: dict[str, list[float]] = {}
    for name, value in cases:
        found.setdefault(name.partition(" ")[0].partition("-")[0], []).append(value)
    return found


def words(values: dict[str, list[float]]) -> str:
    """The mean of all values and its interval in brackets."""
    low, high = of_mean(values)
    mean = np.mean([v for row in values.values() for v in row])
    return f"{mean:.3f} ({low:.2f} to {high:.2f})"
