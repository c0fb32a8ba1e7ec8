"""Result files: one per unit of work, written at once or not at all."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
QUICK_RESULTS = HERE.parent / "out" / "experiments-quick"


class NotAvailable(Exception):
    """A unit that cannot be run with this version of the package, and why."""


@dataclass(frozen=True)
class Unit:
    """One piece of work and the file that holds its result.

    ``function`` is "module:name" inside this package; it gets ``settings`` as keyword arguments
    and returns plain numbers, words, lists and tables.
    """

    experiment: str
    name: str
    function: str
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """What to type after ``run`` to do this unit alone."""
        return f"{self.experiment}/{self.name}"

    def path(self, results: Path) -> Path:
        """Where the result goes."""
        return results / self.experiment / f"{self.name}.json"

    def call(self) -> Any:
        """Compute the result."""
        module, name = self.function.split(":")
        function: Callable[..., Any] = getattr(import_module(f"experiments.{module}"), name)
        return function(**self.settings)


def unit(experiment: str, name: str, function: Callable[..., Any], **settings: Any) -> Unit:
    """A unit that calls a function of an experiment's module with ``settings``."""
    module = function.__module__.removeprefix("experiments.")
    return Unit(experiment, name, f"{module}:{function.__name__}", settings)


def load(path: Path) -> dict[str, Any] | None:
    """The record in a file; None where there is none or it is damaged."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) else None


def finished(unit: Unit, results: Path) -> bool:
    """Whether the unit's result is there, whole, and of the same settings."""
    record = load(unit.path(results))
    return (
        record is not None
        and record.get("status") == "done"
        and record.get("settings") == json.loads(json.dumps(unit.settings))
    )


def write(path: Path, record: Any) -> None:
    """Write JSON beside the target and move it into place: a reader sees all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(brief(record), indent=None, separators=(",", ":"), allow_nan=False)
    handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.chmod(scratch, 0o644)
        os.replace(scratch, path)
    except BaseException:
        Path(scratch).unlink(missing_ok=True)
        raise


def brief(value: Any, digits: int = 5) -> Any:
    """Plain JSON: arrays as lists, numbers to ``digits`` significant places, NaN and inf as
    null."""
    if isinstance(value, dict):
        return {str(k): brief(v, digits) for k, v in value.items()}
    if isinstance(value, np.ndarray):
        return brief(value.tolist(), digits)
    if isinstance(value, (list, tuple)):
        return [brief(v, digits) for v in value]
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(f"{float(value):.{digits}g}") if np.isfinite(value) else None
    return value
