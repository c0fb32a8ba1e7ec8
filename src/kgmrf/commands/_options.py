"""Options that several commands take, each described once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import typer

from kgmrf.io import FIELDS

FILE, MODEL, OUT = "Input", "Tracker", "Output"
Law: TypeAlias = Literal["auto", "information", "zero_lag", "printed"]


def option(panel: str | None, help_: str, *names: str, **more: Any) -> Any:
    """An option in a panel of the help; a flag takes ``metavar=""``, so that no value is shown."""
    return typer.Option(*names, help=help_, rich_help_panel=panel, **more)


AsJson: TypeAlias = Annotated[bool, option(OUT, "Print results as JSON.", "--json", metavar="")]
Quiet: TypeAlias = Annotated[
    bool, option(OUT, "Print nothing but errors.", "--quiet", "-q", metavar="")
]
Plot: TypeAlias = Annotated[Path | None, option(OUT, "Also draw a figure: .png, .svg or .pdf.")]
Output: TypeAlias = Annotated[
    Path | None,
    option(
        OUT,
        "Write the estimates to a file: .csv, .parquet, .npz; rotations also .tum, .euroc.csv.",
        "--output",
        "-o",
    ),
]
FieldsOption: TypeAlias = Annotated[
    str | None,
    option(
        OUT,
        f"Fields to write: {', '.join(FIELDS)}. Default: all but correlation, volatility and "
        "spectrum.",
        metavar="A,B,...",
    ),
]
Centre: TypeAlias = Annotated[
    bool,
    option(FILE, "Subtract the running mean of every channel.", "--centre", "--center", metavar=""),
]
NoiseStd: TypeAlias = Annotated[
    float | None,
    option(
        MODEL,
        "Noise of observed rotations, in radians. Default: estimated.",
        min=1e-12,
        metavar="RAD",
    ),
]
Gains: TypeAlias = Annotated[
    Law,
    option(MODEL, "auto: self-tuned; a single law: information, zero_lag, printed.", metavar="LAW"),
]
