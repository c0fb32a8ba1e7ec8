"""The paper's printed numbers, by table, row and column. Read by the report only."""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path
from typing import Any

PATH = Path(__file__).with_name("paper_claims.toml")


@functools.cache
def load() -> dict[str, Any]:
    """The whole file: "paper", "tables", "text"."""
    return tomllib.loads(PATH.read_text(encoding="utf-8"))


def value(table: str, row: str, column: str) -> Any:
    """What is printed in one cell.

    >>> value("omega_sweep", "0.08", "K-GMRF")
    0.29
    """
    return _entry(table, row, column, "values")


def rows(table: str) -> list[str]:
    """Names of the rows of a table."""
    return list(load()["tables"][table]["rows"])


def std(table: str, row: str, column: str) -> float | None:
    """The printed standard deviation of a cell; None where none is printed."""
    if "stds" not in load()["tables"][table]["rows"][row]:
        return None
    return float(_entry(table, row, column, "stds"))


def _entry(table: str, row: str, column: str, kind: str) -> Any:
    found = load()["tables"][table]
    return found["rows"][row][kind][found["columns"].index(column)]


def text(name: str) -> dict[str, Any]:
    """A number that the paper states in running text, with where and what it says.

    >>> text("sweep_kgmrf")["below"]
    0.4
    """
    found: dict[str, Any] = load()["text"][name]
    return found
