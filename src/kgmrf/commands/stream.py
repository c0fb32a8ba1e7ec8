"""``kgmrf stream``."""

from __future__ import annotations

import sys
import time as clock
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from kgmrf.commands._options import LAW, QUIET, takes
from kgmrf.commands._run import note
from kgmrf.io import FIELDS
from kgmrf.stream import Report, Settings, run

OPTIONS = f"""
Input:
  --format  Format of the input and of the output: lines of json or csv, or tables: arrow, parquet.
  --same-time  Second line of a track with the same time: drop it, or use it.
  --on-error  What to do with an invalid line: stop, or skip it.
  --key NAME  Field that names the track. Default: key, sensor, id, ...
  --time NAME  Field that holds the time. Default: time, ts, timestamp, ...
  --columns A,B,...  Names of the channels, in order. Default: those of the first line.
  --rates  Rotations have measured rates beside them, although the first line has none.
  --bad-lines FILE  Append invalid lines to FILE as JSON, with number and reason.
  --max-gap T >=0.0  Refuse a line more than T ahead of its track, unless the next line of the track
    agrees. Default: a million --time-unit.
  --reorder T >=0.0  Sort late lines: hold each until the newest line is T ahead. Needs --on-error
    skip.
Output:
  --fields A,B,...  Fields to write: {", ".join(FIELDS)}. Default: the matrix and log_likelihood.
  --digits >=1 <=17  Significant digits of text; 17 writes every bit, as tables do.
Safety:
  --state FILE  Checkpoint: read at the start if it exists, kept up to date.
  --checkpoint-every SECONDS >=0.0  Write the checkpoint this often.
  --replay  The input starts again from its first line: skip what the checkpoint has.
  --forget-after T >=0.0  Forget tracks more than T behind the newest line.
  --stats SECONDS >=0.0  Print statistics on stderr this often.
  --metrics FILE  Keep statistics in FILE, in Prometheus' text format; as often as --stats, or every
    15 s.
Alarms:
  --alert RATE  Watch every track; RATE: false alarms per line at most, as 1e-4, or in words, 1/day,
    with --time-unit in seconds.
  --alerts-only  Write only the lines at which an alarm begins or ends.
  --adapt  What a track learns while in an alarm: yes, all; slow, one line in ten; no, nothing.
  --memory LINES >=1  Lines of a track over which small evidence may gather.
  --warm-up LINES >=0  First lines of a track that raise no alarm.
Tracker:
  --time-unit T >=1e-300  Sampling interval of a track, in units of the lines' time. Default: median
    of the first eight of all tracks.
  --n-samples, --samples, -m M >=1e-9  Number of samples behind a covariance, if its line has no
    n_samples.
  --mean  Mean of the samples: zero, running, drift or linear (in the last two).
"""


@takes(OPTIONS, LAW, QUIET, given=Settings, without=["fields", "tracker", "columns"])
def stream(
    settings: Settings,
    bad_lines: Path | None = None,
    fields: Any = None,
    columns: str | None = None,
    state: Path | None = None,
    checkpoint_every: float = 5.0,
    replay: bool = False,
    stats: float = 0.0,
    metrics: Path | None = None,
    n_samples: float | None = None,
    noise_std: float | None = None,
    rates: bool = False,
    gains: Literal["auto", "information", "zero_lag", "printed"] = "auto",
    quiet: bool = False,
) -> None:
    """Track live data: one line in on stdin, one estimate out on stdout, per key.

    JSON lines: {"key": "eeg-3", "time": 12.5, "x": [0.1, null, -0.3]}; x is one sample (a number
    alone: d = 1), or names its channels: "x": {"Oz": 0.1, "O1": -0.3}. Instead of x a line may have
    covariance (with n_samples), rotation, or quaternion (x, y, z, w). CSV: a header with key, time
    and the channels. A line with only key and time advances its track without an observation. A
    line without key belongs to the track ""; a line without time comes one --time-unit after the
    line before. Channels with names go by these.

    Rates, measured by a gyroscope: "rate", three numbers (x, y, z), beside a rotation or in a line
    without one; in the body frame, radians per unit of the stamps (per second after dates). In
    columns: w_x w_y w_z or gyro_x gyro_y gyro_z, beside a quaternion. A line without a rate holds
    the last one of its track. The first line says whether a stream has rates ("rate": null is
    enough), or --rates does.

    Tables, with the columns of CSV (or x as lists): arrow reads streams and files and writes a
    stream, batch by batch; parquet needs a file, < FILE, and writes one that is whole at the end.
    Both are much faster than text.

    Time: numbers, or ISO 8601 dates, which count in seconds and come out as dates. A line that is
    not later than the last one of its track is dropped and counted. --reorder 30 holds lines until
    the newest is 30 ahead and takes them in in order; SIGTERM and the end hand all of them on.

    Alarms: with --alert a line says whether an alarm begins, lasts or ends, the p-value of its
    observation, surprise (-log10 p), evidence (1 raises an alarm), lines since its onset, and the
    share of each channel; --fields adds others.

    Safety: with --state the stream can be killed at any moment and no line is lost. After a
    restart it continues from the checkpoint; output lines since then are written twice, with the
    same content (at least once). Send those input lines again, or all of them with --replay; lines
    that are part of the checkpoint are recognised by their time and not used twice. A checkpoint is
    also written after SIGTERM, SIGINT, a closed output and a full disk. One process at a time may
    use a state.
    """
    if replay and state is None:
        raise ValueError("--replay needs --state")
    if settings.key is not None and settings.key == settings.time:
        raise ValueError(
            f"--key and --time both name {settings.key!r}; give each a field of its own"
        )
    tracker: dict[str, Any] = {"gains": gains, "n_samples": n_samples, "noise_std": noise_std}
    tracker = {name: value for name, value in tracker.items() if value is not None}
    if rates:
        tracker["gyroscope"] = True
    names = None if columns is None else tuple(word.strip() for word in columns.split(","))
    began = clock.monotonic()
    done = run(
        replace(settings, fields=fields, tracker=tracker, columns=names),
        sys.stdin.fileno(),
        sys.stdout.fileno(),
        state=state,
        replay=replay,
        every=checkpoint_every,
        report=Report(stats, metrics, bad_lines, sys.stderr, talk=not quiet),
    )
    counts, seconds = done.counts, clock.monotonic() - began
    tracks = 0 if done.pool is None else len(done.pool)
    dropped = ", ".join(
        f"{getattr(counts, name)} {name}"
        for name in ("late", "duplicate", "bad", "forgotten")
        if getattr(counts, name)
    )
    alarms = "" if settings.alert is None else f"{counts.alarms} alarms, "
    words = f"{counts.lines} lines, {tracks} tracks, {alarms}dropped: {dropped or 'none'}"
    note(f"{words}; {seconds:.1f} s", shown=not quiet)
    if counts.lines and not (done.reader.d and (tracks or counts.forgotten)):
        raise ValueError(
            'no line had an observation: it is called x, as in {"key": "a", "time": 0, "x": [0.1]}'
            if settings.format == "json"
            else "no row had an observation: CSV is a header, then rows"
        )
