"""What the commands on files share: a tracker for the file, a walk through it, places of errors."""

from __future__ import annotations

import json
import re
import shlex
import sys
import time as clock
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import typer
from rich.console import Console

from kgmrf import trackers
from kgmrf._check import ObservationError
from kgmrf._time import unit_of
from kgmrf._types import Numbers
from kgmrf.commands._paper import check_words, paper_tracker
from kgmrf.geometry import so
from kgmrf.io import ARRAYS, Chunk, DataError, Source, Writer, dates
from kgmrf.io.write import DEFAULT
from kgmrf.model.centring import RunningMean
from kgmrf.results import Result, stack

if TYPE_CHECKING:
    from kgmrf.commands._given import FileOptions

PATIENCE = 2.0
"""Seconds after which a progress bar appears."""

OURS = ("KGMRF", "RotationTracker")
"""Trackers that are not baselines."""

FEWEST = 8
"""Rows that have to grow before it can hardly be chance: one in 40000."""


class Run:
    """One tracker over one file, chunk by chunk; iterating gives ``(chunk, result)`` pairs.

    The tracker's unit of time is ``time_unit``, or the median of the first eight intervals. Times
    are those of the file; velocities are per second where it is known how long that is, otherwise
    per unit of the time column. Positions beside rotations are followed too, if ``poses``. most:
    steps after which it ends.
    """

    def __init__(
        self, source: Source, given: FileOptions, *, poses: bool = True, most: int = sys.maxsize
    ) -> None:
        self.source, self.given, self.most = source, given, most
        check_words(given)
        self.frames = source.windows(given.window) if source.kind == "samples" else source
        if source.kind != "samples" and (given.window > 1 or given.mean != "zero"):
            raise DataError(
                f"{source.path} holds matrices: only samples can be windowed or centred"
            )
        first = next(iter(self.frames), None)
        if first is None:
            raise DataError(f"{source.path} holds no observations")
        self.unit, self.per_second = 1.0, None
        if first.times is not None:
            times = first.times
            if first.rates is not None:  # the interval between poses
                times = times[~np.isnan(first.values[:, 0, 0])]
            self.unit = given.time_unit or unit_of(np.diff(times))
            self.per_second = source.per_second
        self.rate = "rad per second" if self.per_second else "rad per unit of time"
        own = given.gains == "auto" and given.paper is None
        learns = own and source.kind == "rotation" and source.d == 3
        self.poses = poses and learns and first.positions is not None
        stated = learns or given.noise_std is not None or given.paper is not None
        self.estimated_noise = source.kind == "rotation" and not stated
        self.noise_std = noise_of(first.values) if self.estimated_noise else given.noise_std
        self.n_samples = None
        if source.kind == "covariance":
            self.n_samples = given.n_samples or source.n_samples
            if self.n_samples is None:
                raise DataError(
                    f"{source.path} holds covariances: how many samples are behind each? "
                    "Give --n-samples"
                )
        self.tracker: Any = self._tracker(first)
        self.n_frames = self.n_observed = self.n_scored = 0
        self.total_score = self.last_time = 0.0
        self.weekends = False  # whether any step is dated on one

    def _tracker(self, first: Chunk) -> Any:
        given, source = self.given, self.source
        shared: dict[str, Any] = {"time_unit": self.unit, "on_invalid": given.on_invalid}
        if self.poses:
            assert first.positions is not None
            shared["position_noise_std"] = noise_of_places(first.positions)
            return trackers.PoseTracker(noise_std=self.noise_std, **shared)
        if given.paper is not None:
            shared["n_samples"] = self.n_samples
            return paper_tracker(given, given.paper, source.kind, source.d, **shared)
        shared["gains"] = given.gains
        if source.kind == "rotation":
            return trackers.RotationTracker(source.d, noise_std=self.noise_std, **shared)
        shared |= {"n_samples": self.n_samples, "noise_floor": given.noise_floor}
        if given.mean == "linear":  # a part of the forecast
            shared["mean"] = "linear"
        return trackers.KGMRF(source.d, **shared)

    def chunks(self) -> Iterator[Chunk]:
        """The steps of the file, up to `most`, centred if that was asked for."""
        frames, done = self.frames, 0
        if self.given.mean not in ("zero", "linear"):
            mean = RunningMean(self.given.mean)
            centred = replace(self.source, read=lambda: _centred(self.source, mean))
            frames = centred.windows(self.given.window)
        for whole in frames:
            chunk = whole.cut(0, self.most - done)
            done += len(chunk.values)
            yield chunk._replace(done=max(chunk.done, done / self.most))
            if done >= self.most:
                return

    def through(self, method: Any, chunk: Chunk, **options: Any) -> Result:
        """Steps through `filter` or `smooth` of a tracker; of poses one result."""
        if self.source.kind == "samples":
            options["samples"] = True
        if chunk.rates is not None:
            options["rates"] = chunk.rates
        if not self.poses:
            return method(chunk.values, times=chunk.times, **options)
        both = {"rotation": chunk.values, "position": chunk.positions}
        return merged(method(both, times=chunk.times, **options))

    def __iter__(self) -> Iterator[tuple[Chunk, Result]]:
        for chunk in self.chunks():
            with with_position(self.source, chunk):
                result = self.finished(self.through(self.tracker.filter, chunk))
            self.n_frames += len(result)
            self.n_observed += int((result.age == 0).sum())
            scores = result.log_likelihood[np.isfinite(result.log_likelihood)]
            self.total_score += float(scores.sum())
            self.n_scored += scores.size
            self.last_time = float(result.time[-1])
            if self.given.noise_std is None and "noise_std" in result.fields():
                self.noise_std = float(result.noise_std[-1])
            if self.source.dates and chunk.times is not None:
                days = dates.instants(chunk.times).astype("datetime64[D]")
                self.weekends |= not np.is_busday(days).all()
            yield chunk, result

    def finished(self, result: Result) -> Result:
        """A result with the file's names and dates, velocities per second if that is known."""
        if self.per_second not in (None, 1.0):
            values = dict(result.as_dict())
            values["velocity"] = values["velocity"] * self.per_second
            result = Result(values)
        found = dates.instants(result.time) if self.source.dates else None
        return result.with_labels(self.source.names, found)

    def ahead(self, steps: int, first: int = 1) -> Result:
        """Forecasts of the next steps: of daily data without weekends, of business days."""
        count = np.arange(first, steps + 1)
        far = self.unit * count
        if self.source.dates.removesuffix("Z") == "D" and self.unit == 86400 and not self.weekends:
            last = dates.instants(np.array([self.last_time])).astype("datetime64[D]")
            days = np.busday_offset(last, count, roll="forward")
            far = (days - last).astype(float) * self.unit
        found = [self.tracker.forecast(one) for one in far.tolist()]
        return self.finished(stack([merged(one) if self.poses else one for one in found]))

    def writer(self, output: Path, fields: Sequence[str] | None) -> Writer:
        """A file for results that knows the names and dates of the file they come from."""
        about: dict[str, Any] = {"dates": self.source.dates, "per_second": self.source.per_second}
        return Writer(output, fields or DEFAULT, channels=self.source.names, **about)

    def remark(self) -> None:
        """Say what was assumed, and what the user might have meant."""
        source, given = self.source, self.given
        words = [f"{source.path}: {text}" for text in source.remarks]
        stated = {"n_samples": "covariance", "noise_std": "rotation"}
        words += [
            f"--{name.replace('_', '-')} is for {kind}s; {source.path} holds {source.kind}: ignored"
            for name, kind in stated.items()
            if getattr(given, name) is not None and source.kind != kind
        ]
        if self.estimated_noise:
            words.append(
                f"noise of the rotations estimated as {self.noise_std:.3g} rad; "
                "give --noise-std if you know it"
            )
        if source.kind == "samples":
            chunk = next(iter(source))
            words += [*_clocks(source, chunk), *_means(source, chunk, given)]
        for text in words:
            note(text, shown=given.talk)


def merged(pose: Any) -> Any:
    """One estimate or result of a pose: the rotation's fields, and the position's beside them."""
    turn, place = pose["rotation"], pose["position"]
    return type(turn)({**turn.as_dict(), "position": place.position, "std": place.std})


def _centred(source: Source, mean: RunningMean) -> Iterator[Chunk]:
    for chunk in source:
        if chunk.values.ndim != 2:
            raise DataError(f"{source.path} holds blocks of samples: centre them before")
        yield chunk._replace(values=mean.centre(chunk.values))


def noise_of(rotations: Numbers) -> float:
    """Noise of observed rotations ``(n, d, d)`` in radians, from the jerkiness of the motion."""
    seen = rotations[~np.isnan(rotations).any(axis=(-2, -1))][:4000]
    if len(seen) < 5:
        raise DataError("too few rotations to estimate their noise; give --noise-std")
    steps = so.vee(so.log(so.project(np.swapaxes(seen[:-1], -1, -2) @ seen[1:])))
    return max(_noise_behind(np.diff(steps, axis=0)), 1e-6)


def noise_of_places(positions: Numbers) -> float:
    """Noise of observed positions ``(n, 3)`` in their unit, from the jerkiness of the motion."""
    seen = positions[~np.isnan(positions).any(axis=-1)][:4000]
    if len(seen) < 5:
        return 0.01
    size = float(np.abs(seen - seen[0]).max())
    return max(_noise_behind(np.diff(seen, n=2, axis=0)), 1e-6 * size, 1e-12)


def _noise_behind(jerks: Numbers) -> float:
    """Second differences of a smooth motion with independent noise have six times its variance;
    their median is not disturbed by single jumps."""
    return float(np.median(np.abs(jerks))) / 0.6745 / 6.0**0.5


@contextmanager
def with_position(source: Source, chunk: Chunk) -> Iterator[None]:
    """What a tracker refuses, with its place in the file."""
    try:
        yield
    except ObservationError as error:
        text = str(error)
        where = re.match(r"sequence\[(\d+)[^\]]*\](?: of shape \([^)]*\))?\s*", text)
        if where is None:
            raise
        place = chunk.places[int(where[1])]
        fault = text[where.end() :]
        raise DataError(f"{source.path}, {source.word} {place}: {fault}") from error


def _means(source: Source, chunk: Chunk, given: FileOptions) -> list[str]:
    """A channel far from zero, where the covariance is one about zero."""
    if given.mean != "zero":
        return []
    rows = np.ma.masked_invalid(chunk.values.reshape(-1, source.d)[:10_000])
    mean, spread = np.ma.filled(rows.mean(axis=0), 0.0), np.ma.filled(rows.std(axis=0), 0.0)
    far = np.flatnonzero(np.abs(mean) > np.maximum(spread, 1e-300))
    return [
        f"the mean of {source.names[k]!r} is larger than its standard deviation, and the "
        "covariance is taken about zero; --mean expanding subtracts the mean"
        for k in far[:1]
    ]


def _clocks(source: Source, chunk: Chunk) -> list[str]:
    """A channel that increases in every row is likely to be a clock or a counter."""
    values = chunk.values
    if values.ndim != 2 or len(values) < FEWEST:
        return []
    words = []
    grows = (np.diff(values, axis=0) > 0).all(axis=0)
    for name in [source.names[k] for k in np.flatnonzero(grows)][:3]:
        if source.path.suffix.lower() in ARRAYS:
            remedy = "if it is a clock, keep it in an array of its own, called times"
        elif chunk.times is None:
            remedy = f"if it is a clock, give --time {shlex.quote(name)}"
        else:
            remedy = "if it is a counter, leave it out with --columns"
        words.append(f"column {name!r} increases in every row: {remedy}")
    return words


@contextmanager
def progress(
    words: str, *, shown: bool, total: float | None = 1.0
) -> Iterator[Callable[..., None]]:
    """A function that takes how much of ``total`` is done, and a remark on it.

    On a terminal it draws a bar on stderr once it takes long.
    """
    began, console = clock.monotonic(), Console(stderr=True)
    if not (shown and console.is_terminal):
        yield lambda done, state="": None
        return
    from rich import progress as parts

    names = ("{task.description}", "{task.fields[state]}")
    text, said = (parts.TextColumn(name) for name in names)
    columns = (text, parts.BarColumn(), parts.TimeRemainingColumn(), said)
    bar = parts.Progress(*columns, console=console, transient=True)
    task = bar.add_task(words, total=total, state="")

    def advance(done: float, state: str = "") -> None:
        bar.update(task, completed=done, state=state)
        if clock.monotonic() - began >= PATIENCE:
            bar.start()

    try:
        yield advance
    finally:
        if bar.live.is_started:
            bar.stop()


def say(
    about: dict[str, Any], words: Sequence[str], as_json: bool, quiet: bool, **files: Path | None
) -> None:
    """The result and the files that were written on stdout, as JSON or as lines."""
    paths = {name: None if path is None else str(path) for name, path in files.items()}
    if as_json:
        typer.echo(json.dumps(about | paths))
    elif not quiet:
        lines = (f"  {name:18s}{path}" for name, path in paths.items() if path)
        typer.echo("\n".join([*words, *lines]))


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table on stdout: two columns of words, then numbers; our own trackers stand out."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for k, head in enumerate(heads):
        table.add_column(head, justify="left" if k < 2 else "right", no_wrap=k != 1)
    for row in rows:
        table.add_row(*row, style="bold cyan" if row[0] in OURS else "")
    Console(width=None if Console().is_terminal else 120).print(table)


def note(words: str, *, shown: bool) -> None:
    """A remark on stderr."""
    if shown:
        sys.stderr.write(f"kgmrf: {words}\n")


def spare(source: Path, output: Path) -> None:
    """Refuse to write over the file that is read, by whatever name."""
    if output.exists() and source.exists() and output.samefile(source):
        raise ValueError(f"{output} would overwrite the input {source}; give another name")
