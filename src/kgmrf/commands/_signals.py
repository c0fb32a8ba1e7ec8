"""Whether the rows of a file predict each other, as the samples of a signal do."""

from __future__ import annotations

import numpy as np

from kgmrf._types import Numbers
from kgmrf.commands._run import Run
from kgmrf.model.integrated_time import integrated_time

NOT_RANKED = (
    "rows predict each other (integrated time {:.0f} rows): the next row says little about the "
    "covariance of the signal, for which the trackers are not ranked here; in Python that is "
    'KGMRF(time_scale="auto")'
)


def single_rows(run: Run) -> bool:
    """Whether the file holds rows of mean zero, one per step."""
    plain = run.given.window == 1 and run.given.mean == "zero" and not run.given.noise_floor
    return run.source.kind == "samples" and plain


def time_of(run: Run, first: list[Numbers]) -> float | None:
    """The integrated time of the first rows of a file; None where it is unknown."""
    if not single_rows(run):
        return None
    tau = integrated_time(np.concatenate(first).reshape(-1, run.source.d))
    return None if np.isnan(tau) else tau
