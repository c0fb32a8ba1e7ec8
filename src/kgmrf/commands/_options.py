"""Arguments that several commands take, described once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from kgmrf.centring import HALF_LIFE
from kgmrf.commands._run import KindName, MeanName, TrackerName
from kgmrf.io import FIELDS

_FILE, _MODEL, _OUT = "The file", "The tracker", "What comes out"

File: TypeAlias = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="Table (.csv .tsv .txt, also .gz; .parquet), array (.npy .npz .h5) or trajectory "
        "(.tum).",
        show_default=False,
    ),
]
KindOption: TypeAlias = Annotated[
    KindName | None,
    typer.Option(
        "--kind",
        help="samples, covariance or rotation, if the file does not say so itself.",
        rich_help_panel=_FILE,
    ),
]
Time: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--time",
        help="Column or array of time stamps. Default: time, timestamp or date, if there is one; "
        "in tables also a first column without a name.",
        metavar="NAME",
        rich_help_panel=_FILE,
    ),
]
Columns: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--columns",
        help="Channels to use, separated by commas. Default: all.",
        metavar="A,B,...",
        rich_help_panel=_FILE,
    ),
]
Key: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--key", help="Array to use, in .npz and HDF5 files.", metavar="NAME", rich_help_panel=_FILE
    ),
]
Window: TypeAlias = Annotated[
    int,
    typer.Option(
        "--window",
        "-w",
        help="Rows of samples that make one frame.",
        min=1,
        metavar="ROWS",
        rich_help_panel=_FILE,
    ),
]
Centre: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--centre",
        "--center",
        metavar="",
        help="Subtract the mean of all samples so far: the same as --mean running.",
        rich_help_panel=_FILE,
    ),
]
MeanOption: TypeAlias = Annotated[
    MeanName,
    typer.Option(
        "--mean",
        help="Mean of the samples: zero, running (subtract the mean of those before) or drift "
        f"(one that forgets, half-life {HALF_LIFE:g} samples).",
        rich_help_panel=_FILE,
    ),
]
TimeUnit: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--time-unit",
        min=1e-300,
        metavar="T",
        help="Usual interval, in units of the time column. Default: median of the first eight.",
        rich_help_panel=_MODEL,
    ),
]
Samples: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--n-samples",
        "--samples",
        "-m",
        help="Samples behind each covariance of the file (not for files of samples).",
        min=1e-9,
        metavar="M",
        rich_help_panel=_MODEL,
    ),
]
NoiseStd: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--noise-std",
        min=1e-12,
        metavar="RAD",
        rich_help_panel=_MODEL,
        help="Noise of observed rotations, radians. Default: estimated.",
    ),
]
NoiseFloor: TypeAlias = Annotated[
    float,
    typer.Option(
        "--noise-floor",
        min=0.0,
        metavar="VAR",
        rich_help_panel=_MODEL,
        help="Measurement-noise variance to subtract.",
    ),
]
GainsOption: TypeAlias = Annotated[
    str,
    typer.Option(
        "--gains",
        help="auto tunes itself; a single law is information, zero_lag or printed.",
        rich_help_panel=_MODEL,
    ),
]
TrackerOption: TypeAlias = Annotated[
    TrackerName,
    typer.Option("--tracker", help="The kinetic tracker, or a baseline.", rich_help_panel=_MODEL),
]
OnInvalidOption: TypeAlias = Annotated[
    str,
    typer.Option(
        "--on-invalid",
        rich_help_panel=_MODEL,
        help="What to do with an invalid matrix: raise, skip or repair.",
    ),
]
AsJson: TypeAlias = Annotated[
    bool, typer.Option("--json", metavar="", help="Print numbers as JSON.", rich_help_panel=_OUT)
]
Quiet: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--quiet", "-q", metavar="", help="Print nothing but errors.", rich_help_panel=_OUT
    ),
]
Plot: TypeAlias = Annotated[
    Path | None,
    typer.Option("--plot", help="Also draw a figure: .png, .svg or .pdf.", rich_help_panel=_OUT),
]
Output: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        help="Where the estimates go: .csv, .parquet, .npz; trajectories also .tum, .euroc.csv.",
        rich_help_panel=_OUT,
    ),
]
FieldsOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--fields",
        metavar="A,B,...",
        rich_help_panel=_OUT,
        help=f"What to write: {', '.join(FIELDS)}. Default: all but correlation, volatility and "
        "spectrum.",
    ),
]
