"""What the commands on files share: a tracker for the file, a walk through it, places of errors."""

from __future__ import annotations

import inspect
import re
import sys
import time as clock
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np

from kgmrf import trackers
from kgmrf._check import ObservationError
from kgmrf._time import unit_of
from kgmrf._types import Numbers
from kgmrf.centring import RunningMean
from kgmrf.geometry import so
from kgmrf.io import Chunk, DataError, Source, dates
from kgmrf.results import Result, join, stack

PATIENCE = 2.0
"""Seconds after which a progress bar appears."""

LAWS = ("auto", "information", "zero_lag", "printed")
"""What ``--gains`` takes."""

MOST_DRAWN = 4000
"""Frames in a picture; more cannot be told apart."""


class KindName(StrEnum):
    """What a file may hold."""

    SAMPLES = "samples"
    COVARIANCE = "covariance"
    ROTATION = "rotation"


class MeanName(StrEnum):
    """What is assumed of the mean of samples."""

    ZERO = "zero"
    RUNNING = "running"
    DRIFT = "drift"


class TrackerName(StrEnum):
    """Trackers by the name of their class."""

    KGMRF = "kgmrf"
    EUCLIDEAN_EMA = "euclidean-ema"
    LOG_EUCLIDEAN_EMA = "log-euclidean-ema"
    RIEMANNIAN_EMA = "riemannian-ema"
    ALPHA_BETA = "alpha-beta"
    TANGENT_KALMAN = "tangent-kalman"
    HOLD_LAST = "hold-last"


BASELINES: dict[TrackerName, type[trackers.Tracker]] = {
    TrackerName.EUCLIDEAN_EMA: trackers.EuclideanEMA,
    TrackerName.LOG_EUCLIDEAN_EMA: trackers.LogEuclideanEMA,
    TrackerName.RIEMANNIAN_EMA: trackers.RiemannianEMA,
    TrackerName.ALPHA_BETA: trackers.AlphaBeta,
    TrackerName.TANGENT_KALMAN: trackers.TangentKalman,
    TrackerName.HOLD_LAST: trackers.HoldLast,
}


@dataclass(frozen=True)
class Setup:
    """How a file is to be followed; None asks the file."""

    window: int = 1
    mean: str = "zero"
    n_samples: float | None = None
    noise_std: float | None = None
    noise_floor: float = 0.0
    gains: str = "auto"
    tracker: TrackerName = TrackerName.KGMRF
    on_invalid: str = "raise"
    time_unit: float | None = None
    poses: bool = True


class Run:
    """One tracker over one file, chunk by chunk; iterating gives ``(chunk, result)`` pairs.

    The tracker's unit of time is ``time_unit``, or the median of the first eight intervals. Times
    are those of the file; velocities are per second where it is known how long that is, otherwise
    per unit of the time column. Positions beside rotations are followed too.
    """

    def __init__(self, source: Source, setup: Setup) -> None:
        self.source, self.setup = source, setup
        self.frames = source.windows(setup.window) if source.kind == "samples" else source
        if source.kind != "samples" and (setup.window > 1 or setup.mean != "zero"):
            raise DataError(
                f"{source.path} holds matrices: only samples can be windowed or centred"
            )
        self.noise_std = setup.noise_std
        self.estimated_noise = False
        first = next(iter(self.frames), None)
        if first is None:
            raise DataError(f"{source.path} holds no frames")
        self.unit = 1.0
        if first.times is not None:
            self.unit = setup.time_unit or unit_of(np.diff(first.times))
        self.per_second = None if first.times is None else source.per_second
        self.poses = setup.poses and first.positions is not None and self._learns
        self.tracker: Any = self._tracker(first)
        self.n_frames = 0
        self.n_observed = 0
        self.last_time = 0.0
        self.weekends = False  # whether any frame is dated on one

    @property
    def _learns(self) -> bool:
        """Whether this is the self-tuned tracker of rotations."""
        setup = self.setup
        ours = setup.tracker is TrackerName.KGMRF and setup.gains == "auto"
        return ours and self.source.kind == "rotation" and self.source.d == 3

    def _tracker(self, first: Chunk) -> Any:
        setup, kind = self.setup, self.source.kind
        if setup.tracker is not TrackerName.KGMRF:
            return self.baseline(BASELINES[setup.tracker])
        if self.poses:
            assert first.positions is not None
            return trackers.PoseTracker(
                position_noise_std=noise_of_places(first.positions),
                noise_std=self.noise_std,
                time_unit=self.unit,
                on_invalid=setup.on_invalid,  # type: ignore[arg-type]
            )
        if kind == "rotation":
            if self.noise_std is None and not self._learns:
                self.noise_std, self.estimated_noise = noise_of(first.values), True
            return trackers.RotationTracker(
                self.source.d,
                noise_std=self.noise_std,
                gains=setup.gains,
                on_invalid=setup.on_invalid,  # type: ignore[arg-type]
                time_unit=self.unit,
            )
        n_samples = self._count() if kind == "covariance" else None
        if kind == "covariance" and n_samples is None:
            raise DataError(
                f"{self.source.path} holds covariances: how many samples are behind each? "
                "Say it with --n-samples"
            )
        return trackers.KGMRF(
            self.source.d,
            gains=setup.gains,
            noise_floor=setup.noise_floor,
            n_samples=n_samples,
            on_invalid=setup.on_invalid,  # type: ignore[arg-type]
            time_unit=self.unit,
        )

    def baseline(self, maker: Any, **settings: Any) -> Any:
        """A baseline for this file, with settings of its own."""
        kind = self.source.kind
        if "kind" in inspect.signature(maker).parameters:
            settings["kind"] = "rotation" if kind == "rotation" else "covariance"
        elif kind == "rotation":
            raise DataError(f"{maker.__name__} does not follow rotations")
        if kind == "covariance":
            settings["n_samples"] = self._count()
        on_invalid = self.setup.on_invalid
        return maker(self.source.d, on_invalid=on_invalid, time_unit=self.unit, **settings)

    def _count(self) -> float | None:
        return self.source.n_samples if self.setup.n_samples is None else self.setup.n_samples

    def chunks(self) -> Iterator[Chunk]:
        """The frames of the file, centred if that was asked for."""
        if self.setup.mean == "zero":
            yield from self.frames
            return
        mean = RunningMean(self.setup.mean)
        centred = replace(self.source, read=lambda: _centred(self.source, mean))
        yield from centred.windows(self.setup.window)

    def apply(self, tracker: Any, chunk: Chunk) -> Result:
        """The next frames through a tracker."""
        return self.through(tracker.filter, chunk)

    def through(self, method: Any, chunk: Chunk, **options: Any) -> Result:
        """Frames through `filter` or `smooth` of a tracker; of poses one result."""
        if self.source.kind == "samples":
            options["samples"] = True
        if not self.poses:
            return method(chunk.values, times=chunk.times, **options)
        both = {"rotation": chunk.values, "position": chunk.positions}
        return merged(method(both, times=chunk.times, **options))

    def __iter__(self) -> Iterator[tuple[Chunk, Result]]:
        for chunk in self.chunks():
            with located(self.source, chunk):
                result = self.per_time(self.apply(self.tracker, chunk))
            result = result.named(
                self.source.names, dates.instants(result.time) if self.source.dates else None
            )
            self.n_frames += len(result)
            self.n_observed += int((result.age == 0).sum())
            self.last_time = float(result.time[-1])
            if self.setup.noise_std is None and "noise_std" in result.fields():
                self.noise_std = float(result.noise_std[-1])
            if self.source.dates and chunk.times is not None:
                days = dates.instants(chunk.times).astype("datetime64[D]")
                self.weekends |= not np.is_busday(days).all()
            yield chunk, result

    def steps_ahead(self, n: int) -> list[float]:
        """How far ahead the next n frames are: of daily data without weekends, business days."""
        if self.source.dates.removesuffix("Z") != "D" or self.weekends or self.unit != 86400.0:
            return [(k + 1) * self.unit for k in range(n)]
        last = dates.instants(np.array([self.last_time])).astype("datetime64[D]")[0]
        days = np.busday_offset(last, np.arange(1, n + 1), roll="forward")
        return ((days - last).astype(float) * self.unit).tolist()

    def per_time(self, result: Result) -> Result:
        """Velocities per second, where it is known how long that is."""
        if self.per_second in (None, 1.0):
            return result
        values = {name: result._field(name) for name in result.fields()}
        scaled = {**values, "velocity": values["velocity"] * self.per_second}
        return Result(scaled).named(result.channels, result.index)

    def ahead(self, steps: int) -> Result:
        """Forecasts from where the tracker stands, one interval apart."""
        found = [self.tracker.forecast(far) for far in self.steps_ahead(steps)]
        return self.per_time(stack([merged(one) if self.poses else one for one in found]))

    @property
    def rate(self) -> str:
        """What velocities are given in."""
        return "rad per second" if self.per_second else "rad per unit of time"


def merged(pose: Any) -> Any:
    """One estimate or result of a pose: the rotation's fields, and the position's beside them."""
    turn, place = pose["rotation"], pose["position"]
    values = {name: turn._field(name) for name in turn.fields()}
    return type(turn)({**values, "position": place.position, "std": place.std})


def _centred(source: Source, mean: RunningMean) -> Iterator[Chunk]:
    for chunk in source:
        if chunk.values.ndim != 2:
            raise DataError(f"{source.path} holds blocks of samples: centre them before")
        yield chunk._replace(values=mean.centre(chunk.values))


def noise_of(rotations: Numbers) -> float:
    """Noise of observed rotations ``(n, d, d)`` in radians, from the jerkiness of the motion.

    Of a smooth motion with independent noise, second differences of the angle have six times the
    variance of the noise; their median is not disturbed by single jumps.

    >>> from kgmrf import simulate
    >>> scene = simulate.rotating_frame(n_frames=400, noise_std=0.05, rng=0)
    >>> round(noise_of(scene.observations), 2)
    0.05
    """
    seen = rotations[~np.isnan(rotations).any(axis=(-2, -1))][:4000]
    if len(seen) < 5:
        raise DataError("too few rotations to find their noise; say it with --noise-std")
    steps = so.vee(so.log(so.project(np.swapaxes(seen[:-1], -1, -2) @ seen[1:])))
    jerks = np.abs(np.diff(steps, axis=0))
    return max(float(np.median(jerks)) / 0.6745 / 6.0**0.5, 1e-6)


def noise_of_places(positions: Numbers) -> float:
    """Noise of observed positions ``(n, 3)`` in their unit, from the jerkiness of the motion.

    >>> line = np.arange(300.0)[:, None] * np.ones(3)
    >>> round(noise_of_places(line + 0.1 * np.random.default_rng(0).normal(size=(300, 3))), 1)
    0.1
    """
    seen = positions[~np.isnan(positions).any(axis=-1)][:4000]
    if len(seen) < 5:
        return 0.01
    jerks = np.abs(np.diff(seen, n=2, axis=0))
    size = float(np.abs(seen - seen[0]).max())
    return max(float(np.median(jerks)) / 0.6745 / 6.0**0.5, 1e-6 * size, 1e-12)


@contextmanager
def located(source: Source, chunk: Chunk) -> Iterator[None]:
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


def as_matrices(values: Any, kind: str) -> tuple[Any, Any]:
    """Samples as covariances with their counts; a frame with a hole in it counts as a gap."""
    if kind != "samples":
        return values, np.zeros(len(values))
    blocks = values[:, None, :] if values.ndim == 2 else values
    empty = np.isnan(blocks).all(axis=-1)
    holes = (np.isnan(blocks).any(axis=-1) & ~empty).any(axis=-1)
    number = (~empty).sum(axis=-1).astype(float)
    rows = np.where(np.isnan(blocks), 0.0, blocks)
    total = np.swapaxes(rows, -1, -2) @ rows / np.maximum(number, 1.0)[:, None, None]
    there = (number > 0) & ~holes
    return np.where(there[:, None, None], total, np.nan), np.maximum(number, 1.0)


class Thinned:
    """Every k-th frame of a long run, k growing so that a picture stays drawable."""

    def __init__(self) -> None:
        self.every = 1
        self.next = 0
        self.kept: list[Result] = []

    def add(self, result: Result) -> None:
        """Take in the next frames."""
        picked = result[self.next :: self.every]
        assert isinstance(picked, Result)
        taken = len(range(self.next, len(result), self.every))
        self.next += taken * self.every - len(result)
        if taken:
            values = {name: picked._field(name) for name in picked.fields()}
            self.kept.append(Result(values).named(picked.channels, picked.index))
        while sum(len(r) for r in self.kept) > MOST_DRAWN:
            whole = join(self.kept)
            # The next frame to keep is the first that continues the wider spacing.
            if len(whole) % 2:
                self.next += self.every
            self.every *= 2
            half = whole[::2]
            assert isinstance(half, Result)
            self.kept = [half]

    def result(self) -> Result:
        """What was kept."""
        return join(self.kept)


@contextmanager
def progress(words: str, *, shown: bool) -> Iterator[Callable[[float], None]]:
    """A function that takes the share done, 0 to 1; a bar on stderr once it takes long."""
    began = clock.monotonic()
    bar: Any = None
    task: Any = None

    def advance(done: float) -> None:
        nonlocal bar, task
        if not shown or clock.monotonic() - began < PATIENCE:
            return
        if bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
            bar = Progress(*columns, console=Console(stderr=True), transient=True)
            bar.start()
            task = bar.add_task(words, total=1.0)
        bar.update(task, completed=done)

    try:
        yield advance
    finally:
        if bar is not None:
            bar.stop()


def note(words: str, *, shown: bool) -> None:
    """A remark on stderr."""
    if shown:
        sys.stderr.write(f"kgmrf: {words}\n")


def spare(source: Path, *outputs: Path | None) -> None:
    """Refuse to write over the file that is read, by whatever name."""
    for output in outputs:
        if output is None or not (output.exists() and source.exists()):
            continue
        if output.samefile(source):
            raise ValueError(f"{output} would overwrite the input {source}; give another name")
