"""What every command on a file is given: the same options, written once."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import update_wrapper
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import typer

from kgmrf.centring import HALF_LIFE
from kgmrf.commands import _options as opt
from kgmrf.commands._options import FILE, MODEL, option
from kgmrf.commands._run import Run, remark, spare
from kgmrf.io import FIELDS, Kind, Source, Writer, check_output, open_source
from kgmrf.io.write import DEFAULT
from kgmrf.plots import check_path


@dataclass(frozen=True)
class Given:
    """The file, how it is to be read and followed, and how much to say."""

    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="Table (.csv .tsv .txt .dat, also .gz; .parquet), array (.npy .npz .h5) or "
            "trajectory (.tum).",
            show_default=False,
        ),
    ]
    kind: Annotated[
        Kind | None,
        option(FILE, "samples, covariance or rotation. Default: detected.", metavar="KIND"),
    ] = None
    time: Annotated[
        str | None,
        option(
            FILE,
            "Column or array of time stamps. Default: time, timestamp or date; in tables also a "
            "first column without a name.",
            metavar="NAME",
        ),
    ] = None
    columns: Annotated[
        str | None,
        option(FILE, "Channels to use, separated by commas. Default: all.", metavar="A,B,..."),
    ] = None
    key: Annotated[
        str | None, option(FILE, "Array to use, in .npz and HDF5 files.", metavar="NAME")
    ] = None
    window: Annotated[
        int,
        option(FILE, "Number of samples in one step.", "--window", "-w", min=1, metavar="ROWS"),
    ] = 1
    mean: Annotated[
        Literal["zero", "running", "drift"],
        option(
            FILE,
            "Mean of the samples: zero, running (subtract the mean so far) or drift (the same with "
            f"a half-life of {HALF_LIFE:g} samples).",
        ),
    ] = "zero"
    centre: opt.Centre = False
    samples: Annotated[
        float | None,
        option(
            MODEL,
            "Number of samples behind each covariance of the file.",
            "--n-samples",
            "--samples",
            "-m",
            min=1e-9,
            metavar="M",
        ),
    ] = None
    noise_std: opt.NoiseStd = None
    noise_floor: Annotated[
        float, option(MODEL, "Measurement-noise variance to subtract.", min=0.0, metavar="VAR")
    ] = 0.0
    time_unit: Annotated[
        float | None,
        option(
            MODEL,
            "Sampling interval, in units of the time column. Default: median of the first eight.",
            min=1e-300,
            metavar="T",
        ),
    ] = None
    gains: opt.Gains = "auto"
    on_invalid: Annotated[
        Literal["raise", "skip", "repair"], option(MODEL, "What to do with an invalid matrix.")
    ] = "raise"
    as_json: opt.AsJson = False
    quiet: opt.Quiet = False

    @property
    def talk(self) -> bool:
        """Whether a person is reading along."""
        return not (self.quiet or self.as_json)

    @property
    def subtracted(self) -> str:
        """Which mean is subtracted: --centre is another word for one of them."""
        return "running" if self.centre and self.mean == "zero" else self.mean

    def open(self) -> Source:
        """The file as the options describe it."""
        names = None if self.columns is None else [w.strip() for w in self.columns.split(",")]
        return open_source(self.file, kind=self.kind, time=self.time, columns=names, key=self.key)

    def follow(self, source: Source, *, poses: bool = True) -> Run:
        """A tracker at the start of the file; says what the user did not say and might have."""
        run = Run(source, self, poses=poses)
        remark(run, shown=self.talk)
        return run

    @staticmethod
    def writer(output: Path, fields: Sequence[str], source: Source) -> Writer:
        """A file for results that knows the names and dates of the file they come from."""
        about: dict[str, Any] = {"dates": source.dates, "per_second": source.per_second}
        return Writer(output, fields, channels=source.names, **about)

    def say(self, about: dict[str, Any], words: Sequence[str]) -> None:
        """The result on stdout, as JSON or as lines."""
        if self.as_json:
            typer.echo(json.dumps(about))
        elif not self.quiet:
            typer.echo("\n".join(words))


def on_a_file(*, without: Sequence[str] = ()) -> Callable[[Callable[..., None]], Any]:
    """Give a command whose first argument is a `Given` all its options, but for some.

    Files to write, ``output`` and ``plot``, are checked before the command begins.
    """
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
            for name, check in (("output", check_output), ("plot", check_path)):
                if values.get(name) is not None:
                    check(values[name])
                    spare(given.file, values[name])
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


def files_written(**files: Path | None) -> dict[str, str | None]:
    """For the summary of a command: which files it wrote."""
    return {name: None if path is None else str(path) for name, path in files.items()}
