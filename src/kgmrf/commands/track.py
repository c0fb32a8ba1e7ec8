"""``kgmrf track`` and ``kgmrf forecast``."""

from __future__ import annotations

import math
import time as clock
from contextlib import nullcontext
from typing import Annotated, Any

import numpy as np

from kgmrf._types import Numbers
from kgmrf.commands import _options as opt
from kgmrf.commands._given import Given, files_written, on_a_file, split_fields
from kgmrf.commands._run import Run, progress
from kgmrf.geometry import so
from kgmrf.io import DataError, dates
from kgmrf.results import Result, join

MOST_STEPS = 100_000
"""Frames of a forecast: some hundred times more than any forecast is good for."""

ROUNDING = 1e-12
"""Radians per interval that are no motion."""

MOST_DRAWN = 4000
"""Steps in a picture; more cannot be told apart."""

MOST_AHEAD = 8_000_000
"""Numbers of a forecast that are held in memory, for each of its fields."""


@on_a_file()
def track(
    given: Given,
    output: opt.Output = None,
    plot: opt.Plot = None,
    fields: opt.FieldsOption = None,
) -> None:
    """Track the covariance or rotation in a file of any length.

    Empty cells and NaN are gaps. Velocities are in radians per second, or per unit of the time
    column if that unit is not known. Positions beside rotations are tracked too.
    """
    chosen = split_fields(fields)
    source = given.open()
    run = given.follow(source)
    drawn: list[Result] = []
    every = 0
    began = clock.monotonic()
    with (
        nullcontext() if output is None else given.writer(output, chosen, source) as writer,
        progress(given.file.name, shown=given.talk) as advance,
    ):
        for chunk, result in run:
            if writer is not None:
                writer.write(result)
            if plot is not None:
                # By the first chunk it is known how many steps there will be.
                every = every or max(1, math.ceil(len(result) / chunk.done / MOST_DRAWN))
                picked: Any = result[(len(result) - run.n_frames) % every :: every]
                drawn.append(join([picked]))  # a copy, which does not hold the whole chunk
            advance(chunk.done)
    if plot is not None:
        join(drawn).plot(plot)
    speed = np.linalg.norm(so.vee(result.velocity[-1]))
    about: dict[str, Any] = {
        "file": str(given.file),
        "kind": source.kind,
        "channels": list(source.names),
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
    about["seconds"] = round(clock.monotonic() - began, 3)
    about |= files_written(output=output, figure=plot)
    speaks = about["speed"], run.interval, source.dates
    given.say(about, _words(about, _eigenvalues(run, result), *_spoken(*speaks)))


@on_a_file()
def forecast(
    given: Given,
    steps: Annotated[
        int, opt.option(opt.MODEL, "Number of steps to look ahead.", "--steps", "-n", min=1)
    ] = 10,
    output: opt.Output = None,
    fields: opt.FieldsOption = None,
) -> None:
    """Track a file to its end and forecast the next steps."""
    chosen = split_fields(fields)
    source = given.open()
    most = max(1, min(MOST_STEPS, MOST_AHEAD // source.d**2))
    if steps > most:
        raise DataError(f"{given.file} has d = {source.d}: --steps can be {most} at most")
    run = given.follow(source)
    with progress(given.file.name, shown=given.talk) as advance:
        for chunk, _ in run:
            advance(chunk.done)
    ahead = run.ahead(steps)
    stamps = _stamps(run, ahead.time, source.dates)
    if output is not None:
        with given.writer(output, chosen, source) as writer:
            writer.write(ahead)
    matrix = source.kind if source.kind == "rotation" else "covariance"
    rows = [
        {"step": k + 1, "time": stamp, matrix: getattr(ahead, matrix)[k].tolist()}
        for k, stamp in enumerate(stamps)
    ]
    if run.poses:
        places = ahead.position.tolist()
        rows = [{**row, "position": place} for row, place in zip(rows, places, strict=True)]
    began = _stamps(run, np.array([run.last_time]), source.dates)[0]
    words = _table(ahead, matrix, [str(stamp) for stamp in stamps], run)
    if output is not None:
        words.append(f"written to {output}")
    given.say({"file": str(given.file), "from": began, "forecast": rows}, words)


def _spoken(speed: float | None, seconds: float, style: str) -> tuple[float | None, str]:
    """A speed as it is printed and its unit if that is another: of dates hours apart per day, and 0
    where it is rounding. seconds: the usual interval, in the unit of the speed."""
    if speed is not None and speed * seconds < ROUNDING:
        speed = 0.0
    if not style or seconds <= 3600.0:
        return speed, ""
    return None if speed is None else 86400.0 * speed, "rad/day"


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
            word = "value other than 0" if run.given.subtracted == "zero" else "change"
            silent = f" ({some} {'has' if len(names) == 1 else 'have'} had no {word})"
    shown = ", ".join("-" if np.isnan(v) else f"{v:.4g}" for v in values[:6])
    return f"{shown}{', ...' if len(values) > 6 else ''}{silent}"


def _words(about: dict[str, Any], values: str, speed: float | None, unit: str) -> list[str]:
    lines = [
        f"{about['file']}: {about['kind']}, d = {len(about['channels'])}, "
        f"{about['frames']} steps, {about['frames'] - about['observed']} without observation"
    ]
    if values:
        lines.append(f"  eigenvalues now   {values}")
    if speed is not None:
        lines.append(
            f"  angular velocity  {speed:.4g} {unit.replace('/', ' per ') or about['rate']}"
        )
    if about["mean_log_likelihood"] is not None:
        lines.append(f"  log-likelihood    {about['mean_log_likelihood']:.4f} nats per step")
    for name in ("output", "figure"):
        if about[name]:
            lines.append(f"  {name:18s}{about[name]}")
    return lines


def _stamps(run: Run, times: Numbers, style: str) -> list[Any]:
    """Times as the file has them: dates as dates, numbers to a thousandth of an interval."""
    if style:
        return list(dates.words(times, style))
    digits = max(0, 3 - math.floor(math.log10(run.unit)))
    return [round(float(t), digits) for t in times]


def _table(ahead: Result, matrix: str, stamps: list[str], run: Run) -> list[str]:
    width = max(12, *(len(stamp) for stamp in stamps))
    unit = _spoken(None, run.interval, run.source.dates)[1] or "speed"
    lines = [f"{'time':>{width}s}  {unit:>10s}  {matrix}, row by row"]
    for k in range(len(ahead)):
        plain = float(np.linalg.norm(so.vee(ahead.velocity[k])))
        speed = _spoken(plain, run.interval, run.source.dates)[0]
        cells = " ".join(f"{v:10.4g}" for v in getattr(ahead, matrix)[k].reshape(-1)[:16])
        more = " ..." if getattr(ahead, matrix)[k].size > 16 else ""
        lines.append(f"{stamps[k]:>{width}s}  {speed:10.4g}  {cells}{more}")
    return lines
