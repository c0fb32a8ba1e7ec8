"""``kgmrf stream``."""

from __future__ import annotations

import sys
import time as clock
from pathlib import Path
from typing import Annotated, Any, Literal

from kgmrf.commands import _options as opt
from kgmrf.commands._given import split_fields
from kgmrf.commands._options import option
from kgmrf.commands._run import note
from kgmrf.io import FIELDS
from kgmrf.stream import Report, Settings, run

_IN, _OUT, _SAFE, _MODEL = opt.FILE, opt.OUT, "Safety", opt.MODEL


def stream(
    format_: Annotated[
        Literal["json", "csv"], option(_IN, "Format of the lines, in and out.", "--format")
    ] = "json",
    wait: Annotated[
        float,
        option(
            _IN,
            "Hold every line back for T, so that late lines can be sorted in.",
            metavar="T",
            min=0.0,
        ),
    ] = 0.0,
    same_time: Annotated[
        Literal["drop", "use"],
        option(_IN, "Second line of a track with the same time: drop it, or use it."),
    ] = "drop",
    on_error: Annotated[
        Literal["stop", "skip"], option(_IN, "What to do with an invalid line: stop, or skip it.")
    ] = "stop",
    key: Annotated[
        str | None,
        option(_IN, "Field that names the track. Default: key, sensor, id, ...", metavar="NAME"),
    ] = None,
    time: Annotated[
        str | None,
        option(_IN, "Field that holds the time. Default: time, ts, timestamp, ...", metavar="NAME"),
    ] = None,
    bad_lines: Annotated[
        Path | None,
        option(
            _IN, "Append invalid lines to FILE as JSON, with number and reason.", metavar="FILE"
        ),
    ] = None,
    max_gap: Annotated[
        float | None,
        option(
            _IN,
            "Refuse a line more than T ahead of its track, unless the next line of the track "
            "agrees. Default: a million --time-unit.",
            metavar="T",
            min=0.0,
        ),
    ] = None,
    fields: Annotated[
        str | None,
        option(
            _OUT,
            f"Fields to write: {', '.join(FIELDS)}. Default: the matrix and log_likelihood.",
            metavar="A,B,...",
        ),
    ] = None,
    digits: Annotated[
        int, option(_OUT, "Significant digits; 17 writes every bit.", min=1, max=17)
    ] = 9,
    state: Annotated[
        Path | None,
        option(
            _SAFE, "Checkpoint: read at the start if it exists, kept up to date.", metavar="FILE"
        ),
    ] = None,
    every: Annotated[
        float,
        option(
            _SAFE,
            "Write the checkpoint this often.",
            "--checkpoint-every",
            metavar="SECONDS",
            min=0.0,
        ),
    ] = 5.0,
    replay: Annotated[
        bool,
        option(
            _SAFE,
            "The input starts again from its first line: skip what the checkpoint has.",
            "--replay",
            metavar="",
        ),
    ] = False,
    forget_after: Annotated[
        float | None,
        option(_SAFE, "Forget tracks more than T behind the newest line.", metavar="T", min=0.0),
    ] = None,
    stats: Annotated[
        float,
        option(_SAFE, "Print statistics on stderr this often.", metavar="SECONDS", min=0.0),
    ] = 0.0,
    metrics: Annotated[
        Path | None,
        option(
            _SAFE,
            "Keep statistics in FILE, in Prometheus' text format; as often as --stats, or every "
            "15 s.",
            metavar="FILE",
        ),
    ] = None,
    time_unit: Annotated[
        float,
        option(
            _MODEL,
            "Sampling interval of a track, in units of the lines' time.",
            metavar="T",
            min=1e-300,
        ),
    ] = 1.0,
    samples: Annotated[
        float | None,
        option(
            _MODEL,
            "Number of samples behind a covariance, if its line has no n_samples.",
            "--n-samples",
            "--samples",
            "-m",
            metavar="M",
            min=1e-9,
        ),
    ] = None,
    noise_std: opt.NoiseStd = None,
    gains: opt.Gains = "auto",
    centre: opt.Centre = False,
    mean: Annotated[
        Literal["zero", "running", "drift"],
        opt.option(opt.MODEL, "Mean of the samples: zero, running (as --centre) or drift."),
    ] = "zero",
    quiet: opt.Quiet = False,
) -> None:
    """Track live data: one line in on stdin, one estimate out on stdout, per key.

    JSON lines: {"key": "eeg-3", "time": 12.5, "x": [0.1, null, -0.3]}; x is one sample (a number
    alone: d = 1). Instead of x a line may have covariance (with n_samples), rotation, or
    quaternion (x, y, z, w). CSV: a header with key, time and the channels. A line with only key and
    time advances its track without an observation. A line without key belongs to the track ""; a
    line without time comes one --time-unit after the line before.

    Time: numbers, or ISO 8601 dates, which count in seconds and come out as dates. A line that is
    not later than the last one of its track is dropped and counted, unless --wait gave it time to
    be sorted in.

    Safety: with --state the stream can be killed at any moment and no line is lost. After a
    restart it continues from the checkpoint; output lines since then are written twice, with the
    same content (at least once). Send those input lines again, or all of them with --replay; lines
    that are part of the checkpoint are recognised by their time and not used twice. A checkpoint is
    also written after SIGTERM, SIGINT, a closed output and a full disk. One process at a time may
    use a state.
    """
    chosen = None if fields is None else split_fields(fields)
    if replay and state is None:
        raise ValueError("--replay needs --state")
    tracker: dict[str, Any] = {"gains": gains, "n_samples": samples, "noise_std": noise_std}
    settings = Settings(
        format=format_,
        fields=chosen,
        digits=digits,
        time_unit=time_unit,
        wait=wait,
        same_time=same_time,
        on_error=on_error,
        tracker={name: value for name, value in tracker.items() if value is not None},
        mean="running" if centre and mean == "zero" else mean,
        key=key,
        time=time,
        max_gap=max_gap,
        forget_after=forget_after,
    )
    began = clock.monotonic()
    done = run(
        settings,
        sys.stdin.fileno(),
        sys.stdout.fileno(),
        state=state,
        replay=replay,
        every=every,
        report=Report(stats, metrics, bad_lines, sys.stderr),
    )
    counts, seconds = done.counts, clock.monotonic() - began
    tracks = 0 if done.pool is None else len(done.pool)
    dropped = ", ".join(
        f"{getattr(counts, name)} {name}"
        for name in ("late", "duplicate", "bad", "forgotten")
        if getattr(counts, name)
    )
    note(
        f"{counts.lines} lines, {tracks} tracks, dropped: {dropped or 'none'}; {seconds:.1f} s",
        shown=not quiet,
    )
    if counts.lines and done.pool is None:
        raise ValueError(
            'no line had an observation: it is called x, as in {"key": "a", "time": 0, "x": [0.1]}'
            if format_ == "json"
            else "no row had an observation: CSV is a header, then rows"
        )
