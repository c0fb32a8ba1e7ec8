"""What every command on a file is given: the same options, written once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import update_wrapper
from pathlib import Path
from typing import Any, Literal

from kgmrf.centring import HALF_LIFE
from kgmrf.commands._options import CENTRE, JSON, LAW, PLOT, QUIET, WRITTEN, mean_of, parameters
from kgmrf.commands._run import Run, say, spare
from kgmrf.io import FIELDS, Kind, Source, check_output, open_source
from kgmrf.io.write import DEFAULT
from kgmrf.plots import check_path

OPTIONS = f"""
FILE  Table (.csv .tsv .txt .dat, also .gz; .parquet), array (.npy .npz .h5) or trajectory (.tum).
Input:
  --kind KIND  samples, covariance or rotation. Default: detected.
  --time NAME  Column or array of time stamps. Default: time, timestamp or date; in tables also a
    first column without a name.
  --columns A,B,...  Channels to use, separated by commas. Default: all.
  --key NAME  Array to use, in .npz and HDF5 files.
  --window, -w ROWS >=1  Number of samples in one step.
  --mean  Mean of the samples: zero (default), running (subtract the mean so far) or drift (the
    same with a half-life of {HALF_LIFE:g} samples).
Tracker:
  --n-samples, --samples, -m M >=1e-9  Number of samples behind each covariance of the file.
  --noise-floor VAR >=0.0  Measurement-noise variance to subtract.
  --time-unit T >=1e-300  Sampling interval, in units of the time column. Default: median of the
    first eight.
  --on-invalid  What to do with an invalid matrix.
{LAW}{CENTRE}{JSON}{QUIET}"""


@dataclass(frozen=True)
class Given:
    """The file, how it is to be read and followed, and how much to say."""

    file: Path
    kind: Kind | None = None
    time: str | None = None
    columns: str | None = None
    key: str | None = None
    window: int = 1
    mean: Literal["zero", "running", "drift"] | None = None
    centre: bool = False
    n_samples: float | None = None
    noise_std: float | None = None
    noise_floor: float = 0.0
    time_unit: float | None = None
    gains: Literal["auto", "information", "zero_lag", "printed"] = "auto"
    on_invalid: Literal["raise", "skip", "repair"] = "raise"
    json_: bool = False
    quiet: bool = False

    @property
    def talk(self) -> bool:
        """Whether a person is reading along."""
        return not (self.quiet or self.json_)

    @property
    def subtracted(self) -> str:
        """Which mean is subtracted."""
        return mean_of(self.mean, self.centre)

    def open(self) -> Source:
        """The file as the options describe it."""
        names = None if self.columns is None else [w.strip() for w in self.columns.split(",")]
        return open_source(self.file, kind=self.kind, time=self.time, columns=names, key=self.key)

    def follow(self, **words: Any) -> Run:
        """A tracker at the start of the file; says what the user did not say and might have."""
        run = Run(self.open(), self, **words)
        run.remark()
        return run

    def say(self, about: dict[str, Any], words: Sequence[str], **files: Path | None) -> None:
        """The result and the files that were written on stdout, as JSON or as lines."""
        paths = {name: None if path is None else str(path) for name, path in files.items()}
        lines = [*words, *(f"  {name:18s}{path}" for name, path in paths.items() if path)]
        say({"file": str(self.file), **about, **paths}, lines, self.json_, self.quiet)


def on_a_file(text: str = "", *, without: Sequence[str] = ()) -> Callable[[Any], Any]:
    """Give a command whose first argument is a `Given` all its options, but for some.

    Files to write, ``output`` and ``plot``, are checked before the command begins; ``fields`` come
    as names.
    """
    shared = [p for p in parameters(Given, OPTIONS) if p.name not in without]

    def expand(command: Callable[..., None]) -> Any:
        own = parameters(command, f"{text}{WRITTEN}{PLOT}")[1:]

        def run(**values: Any) -> None:
            given = Given(**{option.name: values.pop(option.name) for option in shared})
            for name, check in (("output", check_output), ("plot", check_path)):
                if values.get(name) is not None:
                    check(values[name])
                    spare(given.file, values[name])
            if "fields" in values:
                values["fields"] = split_fields(values["fields"])
            command(given, **values)

        update_wrapper(run, command)
        del run.__wrapped__  # type: ignore[attr-defined]
        run.__signature__ = inspect.Signature([*shared, *own])  # type: ignore[attr-defined]
        run.__annotations__ = {option.name: option.annotation for option in (*shared, *own)}
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
