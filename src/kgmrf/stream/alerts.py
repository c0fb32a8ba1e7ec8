"""Alarms of a stream: how its lines are watched, and what an output line says of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson

from kgmrf._types import Numbers
from kgmrf.alerts.alarm import Alarm
from kgmrf.alerts.lines import Observed, take_watched
from kgmrf.constants import ALARM_BEGINS, ALARM_ENDS, ALARM_QUIET
from kgmrf.stream.pool import Pool
from kgmrf.stream.settings import Settings

WORDS = ("", "begins", "lasts", "ends")
"""What `alarm` says of a line, by the status of `kgmrf.alerts.alarm.Heard`."""

LOUD = ("alarm", "channels")
"""Fields that are said in words."""

NAMED = 5
"""Channels that a line names, the largest shares first."""


def alarm_of(settings: Settings) -> Alarm | None:
    """The alarm of every track, if the stream has one."""
    if settings.alert is None:
        return None
    if "/" in str(settings.alert) and settings.time_unit is None:
        raise ValueError(
            f"--alert {settings.alert} needs --time-unit, the seconds between two lines of a track"
        )
    return Alarm(
        settings.alert, settings.memory, warm_up=settings.warm_up, interval=settings.time_unit
    )


def take(
    pool: Pool, alarm: Alarm, adapt: str, lines: Observed, names: list[str]
) -> tuple[dict[str, Numbers], dict[str, Numbers]]:
    """Take in lines; the fields of their estimates, and what became of their alarms: status,
    evidence, rows since the onset (NaN: no alarm), and the share of each channel ``(N, d)``."""
    fields, heard, contribution = take_watched(pool, alarm, adapt, lines, names)
    quiet = heard.status == ALARM_QUIET
    total = np.nansum(contribution, axis=1, keepdims=True)
    return fields, {
        "alarm": heard.status.astype(float),
        "evidence": heard.evidence,
        "since": np.where(quiet, np.nan, heard.since),
        "channels": contribution / np.where(total > 0.0, total, np.nan),
    }


def begins(fields: dict[str, Numbers]) -> int:
    """How many alarms begin."""
    return int((fields["alarm"] == ALARM_BEGINS).sum())


def turning_points(fields: dict[str, Numbers]) -> Numbers:
    """The lines at which an alarm begins or ends."""
    return np.flatnonzero(np.isin(fields["alarm"], (ALARM_BEGINS, ALARM_ENDS)))


def in_words(fields: dict[str, Numbers], names: Any, form: str) -> dict[str, Numbers]:
    """The fields with the alarm and its channels in words: JSON, or text for other formats."""
    json, n = form == "json", len(fields["alarm"])
    said = {name: np.full(n, b"null" if json else None, dtype=object) for name in LOUD}
    for k in np.flatnonzero(fields["alarm"] != ALARM_QUIET).tolist():  # few
        word, shares = WORDS[int(fields["alarm"][k])], fields["channels"][k]
        order = np.argsort(-np.nan_to_num(shares))[:NAMED].tolist()
        some = {names[i]: round(float(shares[i]), 3) for i in order if shares[i] > 0.0} or None
        if json:
            said["alarm"][k], said["channels"][k] = orjson.dumps(word), orjson.dumps(some)
        else:
            text = "; ".join(f"{name}={share:g}" for name, share in (some or {}).items())
            said["alarm"][k], said["channels"][k] = word, text or None
    return {**fields, **said}
