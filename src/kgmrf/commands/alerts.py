"""``kgmrf alerts``."""

from __future__ import annotations

import time as clock
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import typer

from kgmrf import KGMRF
from kgmrf._types import Numbers
from kgmrf.alerts import Alarm, Alerts, watch
from kgmrf.commands._alert_report import AlertReport, shares_of, stamp
from kgmrf.commands._given import ON_A_FILE, FileOptions
from kgmrf.commands._options import takes
from kgmrf.commands._page import check_report
from kgmrf.commands._run import Run, progress, spare, with_position
from kgmrf.io import Chunk, DataError, dates
from kgmrf.io.source import joined

ALARMS = """
Input:
  --frames, -n >=2  Refuse a longer recording.
Alarms:
  --rate RATE  False alarms per row, at most: 1e-4, or in words, 1/day, if the file has times.
  --memory ROWS >=1  Rows over which small evidence may gather.
  --warm-up ROWS >=0  First rows, which raise no alarm.
  --adapt  What is learned from rows in an alarm: yes, all; slow, one in ten; no, none.
Output:
  --report  Also write a report, one .html page.
"""
NOT_HERE = (
    "gains",
    "paper",
    "eta",
    "gamma",
    "start",
    "mean",
    "noise_std",
    "on_invalid",
    "gyroscope",
)


@takes(ON_A_FILE, ALARMS, given=FileOptions, without=NOT_HERE)
def alerts(
    given: FileOptions,
    rate: str = "1e-4",
    memory: float = 100.0,
    warm_up: float = 100.0,
    adapt: Literal["yes", "slow", "no"] = "yes",
    mean: Literal["zero", "expanding", "ewm", "linear"] = "ewm",
    plot: Path | None = None,
    report: Path | None = None,
    frames: int = 2_000_000,
) -> None:
    """Find alarms in a recording: when, for how long, and which channels say so.

    The exit code is 1 if there is an alarm, 0 if there is none. The whole recording is held in
    memory; for keys and live data there is kgmrf stream --alert.
    """
    given.check(plot=plot)
    if report is not None:
        check_report(report)
        spare(given.file, report)
    began = clock.monotonic()
    run = Run(given.open(), given)
    interval = run.unit / run.per_second if run.per_second else None
    alarm = Alarm(rate, memory, warm_up=warm_up, interval=interval)
    with progress(given.file.name, shown=given.talk) as advance:
        whole = _recording(run, frames, advance)
    run.given = replace(given, mean=mean)  # the tracker takes it off: what it learns may stop
    run.remark()
    signal, counts = _observations(run, whole)
    tracker = KGMRF(
        run.source.d,
        mean=mean if signal.ndim == 2 else "zero",
        noise_floor=given.noise_floor,
        time_unit=run.unit,
        n_samples=None if signal.ndim == 2 else 1.0,
    )
    words = {} if counts is None else {"n_samples": counts}
    with with_position(run.source, whole):
        found = watch(signal, alarm, tracker=tracker, adapt=adapt, times=whole.times, **words)
    index = None
    if whole.times is not None:
        found = found._replace(time=whole.times)
        index = dates.instants(whole.times) if run.source.dates else None
    found = found._replace(channels=run.source.names, index=index)
    if signal.ndim == 3:  # deviations
        signal = np.sqrt(np.diagonal(signal, axis1=1, axis2=2))
    if plot is not None:
        found.plot(signal, plot)
    if report is not None:
        AlertReport(run.source, found, signal, alarm, adapt).write(report)
    about = {
        "rows": len(found.time),
        "rate": alarm.rate,
        "seconds": round(clock.monotonic() - began, 3),
        "alarms": [_entry(found, run, event) for event in found.events],
    }
    given.say(about, _words(given, found, alarm), figure=plot, report=report)
    if found.events:
        raise typer.Exit(1)


def _recording(run: Run, frames: int, advance: Any) -> Chunk:
    chunks: list[Chunk] = []
    for chunk in run.chunks():
        chunks.append(chunk)
        if sum(len(c.values) for c in chunks) > frames:
            raise DataError(
                f"{run.source.path} has more than {frames} steps; allow more with --frames, or use "
                "kgmrf stream --alert"
            )
        advance(chunk.done)
    return joined(chunks)


def _observations(run: Run, whole: Chunk) -> tuple[Numbers, Numbers | None]:
    """Samples ``(n, d)``; or matrices ``(n, d, d)``, of windows their covariance about the mean of
    the window, and the samples behind each."""
    values, d = whole.values, run.source.d
    if run.source.kind == "rotation":
        raise DataError(f"{run.source.path} holds rotations; kgmrf alerts is for samples")
    if run.source.kind == "covariance":
        return values, np.full(len(values), run.n_samples)
    if values.ndim == 2 or run.given.window == 1:
        return values.reshape(-1, d), None
    there = ~np.isnan(values).any(axis=2, keepdims=True)
    m = there.sum(axis=(1, 2)) - 1.0
    safe = np.maximum(m, 1.0)[:, None, None]
    centred = np.where(there, values, 0.0)
    centred = np.where(there, centred - centred.sum(axis=1, keepdims=True) / (safe + 1.0), 0.0)
    matrices = np.swapaxes(centred, 1, 2) @ centred / safe
    counts = m if run.given.n_samples is None else np.full(len(m), run.given.n_samples)
    matrices[m < 1.0] = np.nan
    return matrices, np.where(m < 1.0, 1.0, counts)


def _entry(found: Alerts, run: Run, event: Any) -> dict[str, Any]:
    def at(row: int | None) -> Any:
        return None if row is None else stamp(found, row, run.source.dates)

    return {
        **{name: at(getattr(event, name)) for name in ("onset", "begin", "end", "peak")},
        "surprise": round(event.surprise, 2),
        "channels": {name: round(share, 3) for name, share in found.blame(event).items()},
    }


def _words(given: FileOptions, found: Alerts, alarm: Alarm) -> list[str]:
    n = len(found.time)
    lines = [
        f"{given.file}: {n} rows, {len(found.events)} alarms; "
        f"at {alarm.rate:.3g} a row, {n * alarm.rate:.2g} false ones are to be expected at most"
    ]
    if not found.events:
        return lines
    rows: list[tuple[str, ...]] = [("onset", "alarm", "end", "rows", "surprise", "channels")]
    for event in found.events:
        end = "-" if event.end is None else str(stamp(found, event.end))
        last = n - 1 if event.end is None else event.end
        begun = (str(stamp(found, row)) for row in (event.onset, event.begin))
        size = (f"{last - event.onset + 1}", f"{event.surprise:.1f}")
        rows.append((*begun, end, *size, shares_of(found, event)))
    wide = [max(len(row[k]) for row in rows) for k in range(5)]
    lines += [
        "  " + "  ".join([*(f"{row[k]:>{wide[k]}}" for k in range(5)), row[5]]) for row in rows
    ]
    return lines
