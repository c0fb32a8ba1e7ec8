"""Looking back at a recording of vectors: one random field for every component."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgmrf._types import Numbers
from kgmrf.gains import InformationGains
from kgmrf.smoothing import gmrf
from kgmrf.trackers._smooth import Recording

FREE = 1e9
"""Prior variance of a position that nothing is known of, in units of the noise variance."""


def smooth_components(
    record: Recording,
    noise: Numbers,
    walk: Numbers,
    wander: Numbers,
    rate: Numbers,
    retention: float,
    lag: int | None,
    spreads: bool,
) -> tuple[Numbers, Numbers, Numbers]:
    """Positions, velocities and variances of positions (T, ..., d) given all that was seen.

    ``noise``, ``walk``, ``wander``, ``rate`` are the variances (d,) of observation, acceleration,
    random walk and first velocity. Components of one law and one start are solved together. Without
    ``spreads`` the variances are left NaN.
    """
    n, d = len(record.dt), record.seen.shape[-1]
    seen = np.where(record.observed[..., None], record.seen, np.nan).reshape(n, -1)
    counts = np.broadcast_to(record.counts[..., None], record.seen.shape).reshape(n, -1)
    there = ~np.isnan(seen)
    position, velocity, variance = (np.full(seen.shape, np.nan) for _ in range(3))
    groups: dict[tuple[float, ...], list[int]] = {}
    for column in range(seen.shape[1]):
        if there[:, column].any():
            k, first = column % d, int(np.argmax(there[:, column]))
            key = (first, *(float(v[k]) for v in (noise, walk, wander, rate)))
            groups.setdefault(key, []).append(column)
    for (start, r, q, jitter, prior), columns in groups.items():
        first = int(start)
        law = InformationGains(q, jitter, retention, prior, FREE * r)
        spread = np.where(there[first:, columns], r / counts[first:, columns], np.inf)
        y = seen[first:, columns]
        done = first
        for end in range(n if lag is None else min(first + lag + 1, n), n + 1):
            # given the steps before ``end``: one step, and at the end all that are left
            model = gmrf.chain(law, spread[: end - first], dt=record.dt[first + 1 : end])
            found = gmrf.solve(model, y[: end - first] - y[0])
            until = end if end == n else end - int(lag or 0)
            at = slice(done, until), columns
            position[at] = found[done - first : until - first, :, 0] + y[0]
            velocity[at] = found[done - first : until - first, :, 1]
            if spreads:
                variance[at] = gmrf.marginals(model)[done - first : until - first, :, 0, 0]
            done = until
    shape = record.seen.shape
    return position.reshape(shape), velocity.reshape(shape), variance.reshape(shape)


def diagonal(matrix: Numbers, name: str) -> Numbers:
    """The variances (d,) in a setting; what couples components has no smoother."""
    values: Any = np.diagonal(matrix)
    if np.count_nonzero(matrix - np.diag(values)):
        raise ValueError(
            f"smoothing goes component by component: {name} must be a number or one number per "
            f"component, got the matrix {matrix.tolist()}"
        )
    return values
