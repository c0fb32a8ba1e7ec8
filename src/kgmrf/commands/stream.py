"""``kgmrf stream``."""

from __future__ import annotations

import sys
import time as clock
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from kgmrf.commands._given import split_fields
from kgmrf.commands._run import LAWS, note
from kgmrf.io import FIELDS
from kgmrf.stream import Report, Settings, run


class Format(StrEnum):
    """How lines are written."""

    JSON = "json"
    CSV = "csv"


class SameTime(StrEnum):
    """What a second line of a track with the same time is."""

    DROP = "drop"
    USE = "use"


class OnError(StrEnum):
    """What a line that cannot be used does."""

    STOP = "stop"
    SKIP = "skip"


_IN, _OUT, _SAFE, _MODEL = "Lines in", "Lines out", "Safety", "The trackers"


def stream(
    format_: Annotated[
        Format, typer.Option("--format", help="Lines in and out.", rich_help_panel=_IN)
    ] = Format.JSON,
    wait: Annotated[
        float,
        typer.Option(
            metavar="T",
            min=0.0,
            help="Hold lines back until their track is T further, to sort late ones in.",
            rich_help_panel=_IN,
        ),
    ] = 0.0,
    same_time: Annotated[
        SameTime,
        typer.Option(
            help="A second line of a track with the same time: dropped as a repetition, or used.",
            rich_help_panel=_IN,
        ),
    ] = SameTime.DROP,
    on_error: Annotated[
        OnError,
        typer.Option(help="At a line that cannot be used: stop, or skip it.", rich_help_panel=_IN),
    ] = OnError.STOP,
    key: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Field or column that names the track. Default: key, or a usual name: sensor, id.",
            rich_help_panel=_IN,
        ),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Field or column that is the time. Default: time, or a usual name: ts, timestamp.",
            rich_help_panel=_IN,
        ),
    ] = None,
    bad_lines: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Append lines that cannot be used to a file, with their number and the reason.",
            rich_help_panel=_IN,
        ),
    ] = None,
    max_gap: Annotated[
        float | None,
        typer.Option(
            metavar="T",
            min=0.0,
            help="A line more than T ahead of its track is refused, unless the next one of the "
            "track agrees with it. Default: a million --time-unit.",
            rich_help_panel=_IN,
        ),
    ] = None,
    fields: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help=f"Any of {', '.join(FIELDS)}. Default: the matrix and log_likelihood.",
            rich_help_panel=_OUT,
        ),
    ] = None,
    digits: Annotated[
        int,
        typer.Option(
            min=1, max=17, help="Significant digits; 17 writes every bit.", rich_help_panel=_OUT
        ),
    ] = 9,
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Checkpoint: read at the start if it exists, replaced as the stream goes on.",
            rich_help_panel=_SAFE,
        ),
    ] = None,
    every: Annotated[
        float,
        typer.Option(
            "--checkpoint-every",
            metavar="SECONDS",
            min=0.0,
            help="How often the checkpoint is replaced.",
            rich_help_panel=_SAFE,
        ),
    ] = 5.0,
    replay: Annotated[
        bool,
        typer.Option(
            "--replay",
            help="The input starts again from its first line: skip what the checkpoint has.",
            rich_help_panel=_SAFE,
        ),
    ] = False,
    forget_after: Annotated[
        float | None,
        typer.Option(
            metavar="T",
            min=0.0,
            help="Forget tracks that are more than T behind the newest line of the stream.",
            rich_help_panel=_SAFE,
        ),
    ] = None,
    stats: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=0.0,
            help="Write a line of statistics to stderr this often; 0: never.",
            rich_help_panel=_SAFE,
        ),
    ] = 0.0,
    metrics: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Keep statistics in a file in Prometheus' text format, as often (or every 15 s).",
            rich_help_panel=_SAFE,
        ),
    ] = None,
    time_unit: Annotated[
        float,
        typer.Option(
            metavar="T",
            min=1e-300,
            help="Typical interval between lines of a track, in their units of time.",
            rich_help_panel=_MODEL,
        ),
    ] = 1.0,
    samples: Annotated[
        float | None,
        typer.Option(
            "--samples",
            "-m",
            metavar="M",
            min=1e-9,
            help="Samples behind each covariance, where the line has no n_samples.",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    noise_std: Annotated[
        float | None,
        typer.Option(
            metavar="RAD",
            min=1e-12,
            help="Noise of observed rotations, radians.",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    gains: Annotated[
        str,
        typer.Option(
            help="information, zero_lag, printed, or auto: self-tuned, slower.",
            rich_help_panel=_MODEL,
        ),
    ] = "auto",
    centre: Annotated[
        bool,
        typer.Option(
            "--centre",
            "--center",
            metavar="",
            help="Subtract the running mean of every channel of every track.",
            rich_help_panel=_MODEL,
        ),
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No summary at the end.", rich_help_panel=_OUT)
    ] = False,
) -> None:
    """Follow live tracks: one line in on stdin, one estimate out on stdout, per key.

    JSON lines: {"key": "eeg-3", "time": 12.5, "x": [0.1, null, -0.3]}; x is one sample (a number
    alone: d = 1). Instead of x a line may have covariance (with n_samples), rotation, or
    quaternion (x, y, z, w). CSV: a header with key, time and the channels. A line with nothing but
    key and time moves its track on. A line without key belongs to the track ""; without time it
    comes one --time-unit after the one before.

    Time: numbers, or ISO 8601 dates, which count in seconds and come out as dates. A line that is
    not later than the last one of its track is dropped and counted, unless --wait gave it time to
    be sorted in.

    Safety: with --state the stream can be killed at any moment. Nothing is lost: restarted, it goes
    on from the checkpoint, and the lines since then are written a second time, the same as before
    (at least once). Send those input lines again, or all of them with --replay; whatever the
    checkpoint has already taken in is recognised by its time and not taken in twice. SIGTERM,
    SIGINT, a reader that goes away and a full disk leave a checkpoint too. One process at a time
    may use a state.
    """
    chosen = None if fields is None else split_fields(fields)
    if replay and state is None:
        raise ValueError("--replay needs --state")
    if gains not in LAWS:
        raise ValueError(f"--gains has no {gains!r}; there are {', '.join(LAWS)}")
    tracker: dict[str, Any] = {"gains": gains}
    if samples is not None:
        tracker["n_samples"] = samples
    if noise_std is not None:
        tracker["noise_std"] = noise_std
    settings = Settings(
        format=format_.value,
        fields=chosen,
        digits=digits,
        time_unit=time_unit,
        wait=wait,
        same_time=same_time.value,
        on_error=on_error.value,
        tracker=tracker,
        centre=centre,
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
            if format_ is Format.JSON
            else "no row had an observation: CSV is a header, then rows"
        )
