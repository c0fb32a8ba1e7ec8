"""``kgmrf track``, ``kgmrf smooth`` and ``kgmrf forecast``."""

from __future__ import annotations

import math
import time as clock
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from kgmrf._types import Numbers
from kgmrf.commands._given import ON_A_FILE, FileOptions
from kgmrf.commands._keyed import check_keyed, track_by_key
from kgmrf.commands._options import takes
from kgmrf.commands._page import check_report
from kgmrf.commands._report import Report
from kgmrf.commands._run import Run, progress, spare, with_position
from kgmrf.geometry import so
from kgmrf.io import Chunk, DataError, dates
from kgmrf.io.source import joined
from kgmrf.io.write import arrays_of
from kgmrf.results import Result, join

REPORT = """
Input:
  --by NAME  Column of a table that names the track of each row: one tracker for each.
Output:
  --report  Also write a risk report, one .html page: volatility, correlation, surprise, value at
    risk.
"""
SMOOTH = """
Tracker:
  --frames, -n >=2  Refuse a longer recording.
  --lag >=0  Use only so many steps of the future. Default: all.
"""

MOST_STEPS = 100_000
"""Frames of a forecast: some hundred times more than any forecast is good for."""

ROUNDING = 1e-12
"""Radians per interval that are no motion."""

MOST_DRAWN = 4000
"""Steps in a picture; more cannot be distinguished."""

MOST_AHEAD = 8_000_000
"""Numbers of a forecast that are held in memory, for each of its fields."""


@takes(ON_A_FILE, REPORT, given=FileOptions)
def track(
    given: FileOptions,
    output: Path | None = None,
    plot: Path | None = None,
    report: Path | None = None,
    fields: Any = None,
    by: str | None = None,
) -> None:
    """Track the covariance or rotation in a file of any length.

    Empty cells and NaN are gaps. Velocities are in radians per second, or per unit of the time
    column if that unit is not known; the one printed is where forecast begins. Positions beside
    rotations are tracked too. --by NAME follows the samples of every track of a table (CSV,
    Parquet, Arrow) on its own; rows of a track must be in order of time.
    """
    if by is not None:
        check_keyed(given, output, plot=plot, report=report)
        if output is not None:
            spare(given.file, output)
        about, words = track_by_key(given, by, output, fields)
        given.say(about, words, output=output)
        return
    given.check(output, plot)
    if report is not None:
        check_report(report)
        spare(given.file, report)
    run = given.follow()
    kept = None if report is None else Report(run)
    drawn: list[Result] = []
    every = 0
    began = clock.monotonic()
    with (
        nullcontext() if output is None else run.writer(output, fields) as writer,
        progress(given.file.name, shown=given.talk) as advance,
    ):
        for chunk, result in run:
            if writer is not None:
                writer.write(result)
            if plot is not None:
                # By the first chunk it is known how many steps there will be.
                every = every or max(1, math.ceil(len(result) / chunk.done / MOST_DRAWN))
                picked: Any = result[(len(result) - run.n_frames) % every :: every]
                drawn.append(picked.select(picked.fields()))  # a copy, which holds no whole chunk
            if kept is not None:
                kept.take(chunk, result)
            advance(chunk.done)
    if plot is not None:
        join(drawn).plot(plot)
    if kept is not None and report is not None:
        kept.write(report)
    # That of a forecast of no steps: an estimate just after an observation has sharper weights.
    velocity = run.ahead(0, first=0).velocity[0]
    about = _summary(run, result, velocity)
    about["seconds"] = round(clock.monotonic() - began, 3)
    given.say(
        about, _words(run, result, velocity, about), output=output, figure=plot, report=report
    )


def _summary(run: Run, result: Result, velocity: Numbers) -> dict[str, Any]:
    speed = np.linalg.norm(so.vee(velocity))
    about: dict[str, Any] = {
        "kind": run.source.kind,
        "channels": list(run.source.names),
        "frames": run.n_frames,
        "observed": run.n_observed,
        "time_unit": run.unit,
        "rate": run.rate,
        "mean_log_likelihood": run.total_score / run.n_scored if run.n_scored else None,
        "last_time": run.last_time,
        "speed": float(speed) if np.isfinite(speed) else None,
    }
    if "spectrum" in result.fields():
        about["spectrum"] = [float(v) if np.isfinite(v) else None for v in result.spectrum[-1]]
    if run.noise_std is not None:
        about["noise_std"] = run.noise_std
    return about


@takes(ON_A_FILE, SMOOTH, given=FileOptions, without=["gains", "paper", "eta", "gamma", "start"])
def smooth(
    given: FileOptions,
    output: Path | None = None,
    plot: Path | None = None,
    fields: Any = None,
    frames: int = 200_000,
    lag: int | None = None,
) -> None:
    """Estimate every step of a recording from all of it, past and future.

    The whole recording is held in memory.
    """
    given.check(output, plot)
    lagged = lag is not None and given.open().kind != "rotation"
    run = replace(given, gains="information" if lagged else "auto").follow()
    chunks: list[Chunk] = []
    with progress(given.file.name, shown=given.talk) as advance:
        for chunk in run.chunks():
            chunks.append(chunk)
            if sum(len(c.values) for c in chunks) > frames:
                raise DataError(
                    f"{given.file} has more than {frames} steps; allow more with --frames, "
                    "or use track"
                )
            advance(0.1 * chunk.done)
        whole = joined(chunks)
        with with_position(run.source, whole):
            result = run.finished(run.through(run.tracker.smooth, whole, lag=lag))
    if output is not None:
        with run.writer(output, fields) as writer:
            writer.write(result)
    if plot is not None:
        result.plot(plot)
    words = f"{given.file}: {len(result)} steps smoothed"
    if output is None and plot is None:
        words += "; nothing is written without --output or --plot"
    about = {"kind": run.source.kind, "frames": len(result)}
    given.say(about, [words], output=output, figure=plot)


@takes(
    ON_A_FILE, "Tracker:\n  --steps, -n >=1  Number of steps to look ahead.\n", given=FileOptions
)
def forecast(
    given: FileOptions, steps: int = 10, output: Path | None = None, fields: Any = None
) -> None:
    """Track a file to its end and forecast the next steps."""
    given.check(output)
    source = given.open()
    most = max(1, min(MOST_STEPS, MOST_AHEAD // source.d**2))
    if steps > most:
        raise DataError(f"{given.file} has d = {source.d}: --steps can be {most} at most")
    run = given.follow()
    with progress(given.file.name, shown=given.talk) as advance:
        for chunk, _ in run:
            advance(chunk.done)
    ahead = run.ahead(steps)
    stamps = _stamps(run, ahead.time)
    if output is not None:
        with run.writer(output, fields) as writer:
            writer.write(ahead)
    matrix = source.kind if source.kind == "rotation" else "covariance"
    shown = arrays_of(ahead, fields or (matrix,))
    shown.pop("time")
    if not shown:
        raise DataError(f"{given.file} holds {source.kind}s, which have no {', '.join(fields)}")
    rows = [
        {"step": k + 1, "time": stamp, **{name: a[k].tolist() for name, a in shown.items()}}
        for k, stamp in enumerate(stamps)
    ]
    if run.poses:
        places = ahead.position.tolist()
        rows = [{**row, "position": place} for row, place in zip(rows, places, strict=True)]
    began = _stamps(run, np.array([run.last_time]))[0]
    words = _table(ahead, shown, [str(stamp) for stamp in stamps], run)
    given.say({"from": began, "forecast": rows}, words, output=output)


def _spoken(run: Run, velocity: Numbers) -> tuple[float, str]:
    """A speed as it is printed, 0 where it is rounding; dates hours apart: per day."""
    speed = float(np.linalg.norm(so.vee(velocity)))
    interval = run.unit / (run.per_second or 1.0)
    if speed * interval < ROUNDING:
        speed = 0.0
    if run.source.dates and interval > 3600.0:
        return 86400.0 * speed, "rad per day"
    return speed, run.rate


def _eigenvalues(run: Run, result: Result) -> str:
    """The last eigenvalues; of the channels that vary, if some have not yet."""
    if "spectrum" not in result.fields():
        return ""
    values, silent = result.spectrum[-1], ""
    if np.isnan(values).any():
        last = result[-1].covariance
        seen = ~np.isnan(np.diagonal(last))
        rest = last[np.ix_(seen, seen)]
        if seen.any() and not seen.all() and np.isfinite(rest).all():
            values = np.linalg.eigvalsh(rest)[::-1]
            names = [run.source.names[k] for k in np.flatnonzero(~seen)]
            some = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
            word = "value other than 0" if run.given.mean == "zero" else "change"
            silent = f" ({some} {'has' if len(names) == 1 else 'have'} had no {word})"
    shown = ", ".join("-" if np.isnan(v) else f"{v:.4g}" for v in values[:6])
    return f"{shown}{', ...' if len(values) > 6 else ''}{silent}"


def _words(run: Run, result: Result, velocity: Numbers, about: dict[str, Any]) -> list[str]:
    missing = run.n_frames - run.n_observed
    lines = [
        f"{run.given.file}: {run.source.kind}, d = {run.source.d}, {run.n_frames} steps, "
        f"{missing} without observation"
    ]
    if values := _eigenvalues(run, result):
        lines.append(f"  eigenvalues now   {values}")
    speed, unit = _spoken(run, velocity)
    if np.isfinite(speed):
        lines.append(f"  angular velocity  {speed:.4g} {unit}")
    if run.n_scored:
        lines.append(f"  log-likelihood    {about['mean_log_likelihood']:.4f} nats per step")
    return lines


def _stamps(run: Run, times: Numbers) -> list[Any]:
    """Times as the file has them: dates as dates, numbers to a thousandth of an interval."""
    if run.source.dates:
        return list(dates.words(times, run.source.dates))
    digits = max(0, 3 - math.floor(math.log10(run.unit)))
    return [round(float(t), digits) for t in times]


def _table(ahead: Result, shown: dict[str, Numbers], stamps: list[str], run: Run) -> list[str]:
    width = max(12, *(len(stamp) for stamp in stamps))
    unit = _spoken(run, ahead.velocity[0])[1]
    unit = {"rad per second": "rad/s", "rad per day": "rad/day"}.get(unit, "speed")
    named = [f"{name}, row by row" if a.ndim == 3 else name for name, a in shown.items()]
    lines = [f"{'time':>{width}s}  {unit:>10s}  {'; '.join(named)}"]
    for k in range(len(ahead)):
        speed = _spoken(run, ahead.velocity[k])[0]
        flat = np.concatenate([array[k].reshape(-1) for array in shown.values()])
        cells = " ".join(f"{v:10.4g}" for v in flat[:16])
        more = " ..." if flat.size > 16 else ""
        lines.append(f"{stamps[k]:>{width}s}  {speed:10.4g}  {cells}{more}")
    return lines
