"""What every command on a file is given: the same options, written once."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import update_wrapper
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np

from kgmrf.commands import _options as opt
from kgmrf.commands._run import LAWS, MeanName, Run, Setup, TrackerName, note, spare
from kgmrf.io import ARRAYS, FIELDS, Chunk, Source, Writer, open_source
from kgmrf.io.write import DEFAULT


@dataclass(frozen=True)
class Given:
    """The file, how it is to be read and followed, and how much to say."""

    file: opt.File
    kind: opt.KindOption = None
    time: opt.Time = None
    columns: opt.Columns = None
    key: opt.Key = None
    window: opt.Window = 1
    mean: opt.MeanOption = MeanName.ZERO
    centre: opt.Centre = False
    samples: opt.Samples = None
    noise_std: opt.NoiseStd = None
    noise_floor: opt.NoiseFloor = 0.0
    time_unit: opt.TimeUnit = None
    gains: opt.GainsOption = "auto"
    tracker: opt.TrackerOption = TrackerName.KGMRF
    on_invalid: opt.OnInvalidOption = "raise"
    as_json: opt.AsJson = False
    quiet: opt.Quiet = False

    @property
    def talk(self) -> bool:
        """Whether a person is reading along."""
        return not (self.quiet or self.as_json)

    def open(self) -> Source:
        """The file as the options describe it."""
        chosen = (
            None if self.columns is None else [name.strip() for name in self.columns.split(",")]
        )
        word: Any = None if self.kind is None else self.kind.value
        return open_source(self.file, kind=word, time=self.time, columns=chosen, key=self.key)

    @staticmethod
    def writer(output: Path, fields: Sequence[str], source: Source) -> Writer:
        """A file for results that knows the names and dates of the file they come from."""
        about = {"dates": source.dates, "per_second": source.per_second}
        return Writer(output, fields, channels=source.names, **about)  # type: ignore[arg-type]

    def follow(self, source: Source, gains: str | None = None, *, poses: bool = True) -> Run:
        """A tracker at the start of the file; says what the user did not say and might have."""
        setup = Setup(
            self.window,
            "running" if self.centre and self.mean == "zero" else str(self.mean),
            self.samples,
            self.noise_std,
            self.noise_floor,
            gains or self.gains,
            self.tracker,
            self.on_invalid,
            self.time_unit,
            poses,
        )
        if setup.gains not in LAWS:
            raise ValueError(f"--gains has no {setup.gains!r}; there are {', '.join(LAWS)}")
        run = Run(source, setup)
        _remark(run, shown=self.talk)
        return run


def on_a_file(*, without: Sequence[str] = ()) -> Callable[[Callable[..., None]], Any]:
    """Give a command whose first argument is a `Given` all its options, but for some."""
    hints = get_type_hints(Given, include_extras=True)
    shared = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(Given)
        if field.name not in without
    ]

    def expand(command: Callable[..., None]) -> Any:
        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]

        def run(**values: Any) -> None:
            given = Given(**{option.name: values.pop(option.name) for option in shared})
            spare(given.file, *(value for value in values.values() if isinstance(value, Path)))
            command(given, **values)

        update_wrapper(run, command)
        del run.__wrapped__  # type: ignore[attr-defined]
        parameters = [*shared, *own]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {option.name: option.annotation for option in parameters}
        return run

    return expand


def split_fields(fields: str | None) -> tuple[str, ...]:
    """The names in ``--fields``."""
    if fields is None:
        return DEFAULT
    chosen = tuple(name.strip() for name in fields.split(","))
    for name in chosen:
        if name not in FIELDS:
            raise ValueError(f"--fields has no {name!r}; there are {', '.join(FIELDS)}")
    return chosen


def _remark(run: Run, *, shown: bool) -> None:
    """What the user did not say and might have said."""
    for words in run.source.remarks:
        note(f"{run.source.path}: {words}", shown=shown)
    if run.setup.n_samples is not None and run.source.kind != "covariance":
        note(
            f"--n-samples is for files of covariances; {run.source.path} holds {run.source.kind}, "
            "so it is ignored",
            shown=shown,
        )
    if run.estimated_noise:
        note(
            f"noise of the rotations estimated as {run.noise_std:.3g} rad; "
            "--noise-std says it better",
            shown=shown,
        )
    if run.source.kind != "samples":
        return
    chunk = next(iter(run.source))
    _remark_clock(run.source, chunk, shown=shown)
    if run.setup.mean == "zero":
        first = chunk.values
        rows = first.reshape(-1, first.shape[-1])[:10_000]
        there = ~np.isnan(rows)
        counts = np.maximum(there.sum(axis=0), 1)
        mean = np.where(there, rows, 0.0).sum(axis=0) / counts
        spread = np.sqrt(np.where(there, (rows - mean) ** 2, 0.0).sum(axis=0) / counts)
        far = np.abs(mean) > np.maximum(spread, 1e-300)
        if far.any():
            name = run.source.names[int(np.argmax(far))]
            note(
                f"the mean of {name!r} is larger than its spread, and covariances here are about "
                "zero; --mean running subtracts it",
                shown=shown,
            )


FEWEST = 8
"""Rows that have to grow before it can hardly be chance: one in 40000."""


def _remark_clock(source: Source, chunk: Chunk, *, shown: bool) -> None:
    """A channel that only ever grows is likely to be a clock or a counter."""
    values = chunk.values
    if values.ndim != 2 or len(values) < FEWEST:
        return
    grows = (np.diff(values, axis=0) > 0).all(axis=0)
    for name in [source.names[k] for k in np.flatnonzero(grows)][:3]:
        if source.path.suffix.lower() in ARRAYS:
            remedy = "is it a clock? Keep it in an array of its own, called times"
        elif chunk.times is None:
            remedy = f"is it a clock? --time {shlex.quote(name)}"
        else:
            remedy = "is it a counter? --columns leaves it out"
        note(f"column {name!r} only ever grows: {remedy}", shown=shown)
