"""Alarms on p-values: CUSUMs of -log p, restarted when an alarm ends.

    S_k <- max(0, S_k - log p - r_k)

An alarm begins at S_k >= h_k and ends once all S_k, held at most at h_k, are at half of it.
`kgmrf.alerts.thresholds` tells where references r and thresholds h come from.
"""

from __future__ import annotations

import math

from kgmrf._types import Numbers
from kgmrf.constants import (
    ALARM_BEGINS,
    ALARM_BETS,
    ALARM_CALM,
    ALARM_ENDS,
    ALARM_LASTS,
    ALARM_LEAST,
    ALARM_QUIET,
    STRUCTS,
)

COUNT, INSIDE, ONSET, LAST, SUMS, STARTS = 0, 1, 2, 3, 4, 4 + ALARM_BETS
WIDTH = len(STRUCTS["AlarmRow"])


def follow_alarm(row: Numbers, p: float, bets: Numbers, warm_up: float) -> tuple[int, float]:
    """One p-value into the row of its track; what became of it, and the evidence max S_k/h_k.

    The first lines of a track, as many as ``warm_up``, count as without a p-value.
    """
    references, thresholds = bets
    sums, starts = row[SUMS:STARTS], row[STARTS:]
    inside = row[INSIDE] > 0.0
    row[COUNT] += 1.0
    if not math.isnan(p) and row[COUNT] > warm_up:
        starts[sums == 0.0] = row[COUNT]
        sums[:] = (sums - math.log(max(p, ALARM_LEAST)) - references).clip(0.0)
    share = sums / thresholds
    evidence = float(share.max())
    if not inside and evidence < 1.0:
        return ALARM_QUIET, evidence
    sums[:] = sums.clip(max=thresholds)
    if evidence >= 1.0:
        row[LAST] = row[COUNT]
    if not inside:
        row[INSIDE], row[ONSET] = 1.0, starts[share.argmax()]
        return ALARM_BEGINS, evidence
    if evidence > ALARM_CALM:
        return ALARM_LASTS, evidence
    row[INSIDE], sums[:] = 0.0, 0.0
    return ALARM_ENDS, evidence


def follow_alarms(
    rows: Numbers,
    track_index: Numbers,
    p_values: Numbers,
    bets: Numbers,
    warm_up: float,
    records: Numbers,
    status: Numbers,
) -> None:
    """Lines of any tracks in order; records ``(N, 3)``: evidence, rows since the onset and since
    the last evidence of the alarm that is on or was the last."""
    for i, (track, p) in enumerate(zip(track_index.tolist(), p_values.tolist(), strict=True)):
        row = rows[track]
        status[i], evidence = follow_alarm(row, p, bets, warm_up)
        records[i] = evidence, row[COUNT] - row[ONSET], row[COUNT] - row[LAST]
