"""Options of commands, written as they read in a help text, and what several commands share.

A heading begins a panel of the help; further indented lines continue a text. A line is the names of
an option, a word for its value, bounds, then two spaces and the help::

    Input:
      --window ROWS >=1  Number of samples in one step.

An argument is its word alone. Types and defaults are those of the function's parameter of the same
name; ``json_`` is ``--json``.
"""

from __future__ import annotations

import inspect
import math
import re
from ast import literal_eval
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Annotated, Any

import typer

from kgmrf.io import FIELDS

JSON = "Output:\n  --json  Print results as JSON.\n"
QUIET = "Output:\n  --quiet, -q  Print nothing but errors.\n"
PLOT = "Output:\n  --plot  Also draw a figure: .png, .svg or .pdf.\n"
WRITTEN = f"""
Output:
  --output, -o  Write the estimates to a file: .csv, .parquet, .npz; rotations also .tum,
    .euroc.csv.
  --fields A,B,...  Fields to write: {", ".join(FIELDS)}. Default: all but correlation, volatility
    and spectrum.
"""
LAW = """
Tracker:
  --noise-std RAD >=1e-12  Noise of observed rotations, in radians. Default: estimated.
  --gains LAW  auto: self-tuned; a single law: information, zero_lag, printed.
"""
PAPER = """
The paper's trackers:
  --paper NAME  algorithm1, or a column of its tables as it was run: kgmrf, riemannian_ema,
    euclidean_ema, tangent_kalman, alpha_beta; with _printed at the end, as it is printed.
  --eta ETA >=0.0  Step size of algorithm1. Default: .05.
  --gamma GAMMA >=0.0 <=1.0  Damping of algorithm1. Default: .95.
  --start START  Where algorithm1 starts: first (the first observation; the default), or a file
    (.csv or .npy) with the matrix M_0.
"""
_ENTRY = re.compile(
    r"(?P<names>--?[\w-]+(?:, --?[\w-]+)*)?(?P<word> ?[A-Z][A-Z,.]*)?"
    r"(?: >=(?P<min>[\d.e-]+))?(?: <=(?P<max>[\d.e-]+))?  (?P<help>.*)"
)


def parameters(function: Any, text: str) -> list[inspect.Parameter]:
    """The parameters of a function, each with its option or argument of the text."""
    known = _read(text)
    own = inspect.signature(function, eval_str=True).parameters.values()
    return [p.replace(annotation=_annotated(p, known)) for p in own]


def _annotated(parameter: inspect.Parameter, known: dict[str, Any]) -> Any:
    name = parameter.name.rstrip("_").replace("_", "-")
    if name not in known:
        return parameter.annotation
    make, names, more = known[name]
    if parameter.annotation in (float, float | None):
        more = {**more, "callback": _finite}
    if name == "fields":
        more = {**more, "callback": split_fields}
    if parameter.annotation is bool:
        more = {**more, "metavar": ""}  # so that a flag does not look as if it took a value
    return Annotated[parameter.annotation, make(*names, **more)]


def split_fields(fields: str | None) -> tuple[str, ...] | None:
    """The names in ``--fields``."""
    if fields is None:
        return None
    chosen = tuple(name.strip() for name in fields.split(","))
    for name in chosen:
        if name not in FIELDS:
            raise ValueError(f"--fields has no {name!r}; there are {', '.join(FIELDS)}")
    return chosen


def _finite(value: float | None) -> float | None:
    """Bounds alone let NaN and infinity pass."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number")
    return value


def _read(text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    panel = None
    for line in re.sub(r"\n {4,}", " ", text).splitlines():
        if line and not line.startswith(" "):
            panel = line.rstrip(":")
        entry = _ENTRY.fullmatch(line.strip())
        if entry is None:
            continue
        bounds = {key: literal_eval(entry[key]) for key in ("min", "max") if entry[key]}
        more = {"help": entry["help"], **bounds}
        if entry["word"]:
            more["metavar"] = entry["word"].strip()
        if entry["names"]:
            names = entry["names"].split(", ")
            more["rich_help_panel"] = None if panel == "Options" else panel
            found[names[0].lstrip("-")] = typer.Option, names, more
        else:
            found[more["metavar"].lower()] = typer.Argument, [], more
    return found


def takes(
    *texts: str, given: Any = None, without: Sequence[str] = ()
) -> Callable[[Callable[..., None]], Any]:
    """Give the parameters of a command the options of these texts.

    given: a dataclass, which is the first argument of the command; its fields are options too, but
    for some.
    """
    text = "\n".join(texts)
    shared = [] if given is None else parameters(given, text)
    shared = [p for p in shared if p.name not in without]

    def expand(command: Callable[..., None]) -> Any:
        own = parameters(command, text)[given is not None :]

        @wraps(command)
        def run(**values: Any) -> None:
            options = {p.name: values.pop(p.name) for p in shared}
            command(*([] if given is None else [given(**options)]), **values)

        run.__signature__ = inspect.Signature([*shared, *own])  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in (*shared, *own)}
        return run

    return expand
