"""What every command on a file is given: the same options, written once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from kgmrf.commands._options import JSON, LAW, PAPER, PLOT, QUIET, WRITTEN
from kgmrf.commands._run import Run, say, spare
from kgmrf.io import Kind, Source, check_output, open_source
from kgmrf.io.rates import with_rates
from kgmrf.model.centring import HALF_LIFE
from kgmrf.plots import check_path

ON_A_FILE = f"""
FILE  Table (.csv .tsv .txt .dat, also .gz; .parquet), array (.npy .npz .h5) or trajectory (.tum).
Input:
  --kind KIND  samples, covariance or rotation. Default: detected.
  --time NAME  Column or array of time stamps. Default: time, timestamp or date; in tables also a
    first column without a name.
  --columns A,B,...  Channels to use, separated by commas. Default: all.
  --key NAME  Array to use, in .npz and HDF5 files.
  --gyroscope FILE  Angular rates measured beside rotations, rad/s in the body frame: a file with
    time and columns like w_x w_y w_z or gyro_x gyro_y gyro_z, or FILE again for columns of it.
  --window, -w ROWS >=1  Number of samples in one step.
  --mean  Mean of the samples: zero, running (subtract the mean so far) or drift (the
    same with a half-life of {HALF_LIFE:g} samples).
Tracker:
  --n-samples, --samples, -m M >=1e-9  Number of samples behind each covariance of the file.
  --noise-floor VAR >=0.0  Measurement-noise variance to subtract.
  --time-unit T >=1e-300  Sampling interval, in units of the time column. Default: median of the
    first eight.
  --on-invalid  What to do with an invalid matrix.
{LAW}{PAPER}{WRITTEN}{PLOT}{JSON}{QUIET}"""


@dataclass(frozen=True)
class FileOptions:
    """The file, how it is to be read and followed, and how much to say."""

    file: Path
    kind: Kind | None = None
    time: str | None = None
    columns: str | None = None
    key: str | None = None
    gyroscope: Path | None = None
    window: int = 1
    mean: Literal["zero", "expanding", "ewm", "linear"] = "zero"
    n_samples: float | None = None
    noise_std: float | None = None
    noise_floor: float = 0.0
    time_unit: float | None = None
    gains: Literal["auto", "information", "zero_lag", "printed"] = "auto"
    on_invalid: Literal["raise", "skip", "repair"] = "raise"
    paper: str | None = None
    eta: float | None = None
    gamma: float | None = None
    start: str | None = None
    json_: bool = False
    quiet: bool = False

    @property
    def talk(self) -> bool:
        """Whether a person is reading along."""
        return not (self.quiet or self.json_)

    def open(self) -> Source:
        """The file as the options describe it."""
        names = None if self.columns is None else [w.strip() for w in self.columns.split(",")]
        found = open_source(self.file, kind=self.kind, time=self.time, columns=names, key=self.key)
        if self.gyroscope is None:
            return found
        return with_rates(found, self.gyroscope, self.time if self.gyroscope == self.file else None)

    def check(self, output: Path | None = None, plot: Path | None = None) -> None:
        """Refuse files that cannot be written, before any work is done."""
        for path, check in ((output, check_output), (plot, check_path)):
            if path is not None:
                check(path)
                spare(self.file, path)
                if self.gyroscope is not None:
                    spare(self.gyroscope, path)

    def follow(self, **words: Any) -> Run:
        """A tracker at the start of the file; says what the user did not say and might have."""
        run = Run(self.open(), self, **words)
        run.remark()
        return run

    def say(self, about: dict[str, Any], words: Sequence[str], **files: Path | None) -> None:
        """The result and the files that were written on stdout."""
        say({"file": str(self.file), **about}, words, self.json_, self.quiet, **files)
