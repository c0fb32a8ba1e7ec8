"""Result files, read: records by name, numbers by cell, and the words of a verdict.

Nothing here runs an experiment. A missing result gives "not run", never a guess.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments import store

REPRODUCED = "reproduced"
RECOVERED = "reproduced under the recovered protocol"
PARTLY = "partly, under the recovered protocol"
NOT = "not reproducible"
NARROWED = "holds, narrowed"
HIDDEN = "holds, constant hidden"
FALSE = "does not hold: counterexample"
NOT_RUN = "not run"

COLUMNS = {
    "K-GMRF": "kgmrf",
    "Riemannian EMA": "riemannian_ema",
    "Euclidean EMA": "euclidean_ema",
    "Tangent KF": "tangent_kalman",
    "Alpha-Beta": "alpha_beta",
}
OURS = ("auto", "information_one", "information")
"""Ours in order of preference: self-tuned; the law with one setting for all cells; as it is."""


@dataclass
class Verdict:
    """One claim of the paper and what became of it."""

    claim: str
    where: str
    verdict: str
    why: str
    anchor: str


Judged = tuple[str, str]
"""The word of a verdict, and why."""
RULES: list[Callable[[Results], Verdict]] = []
"""One for each claim that is judged, in the order of the page."""


def verdict(
    claim: str, where: str, anchor: str, *needs: str
) -> Callable[[Callable[..., Judged]], Callable[[Results], Verdict]]:
    """Make a rule of a function from results to a word and why.

    needs: "experiment/unit" of what it is given, in this order; where one is missing the claim was
    not run. With no needs it is given the `Results` themselves.
    """

    def register(judge: Callable[..., Judged]) -> Callable[[Results], Verdict]:
        def rule(results: Results) -> Verdict:
            found = [results.data(*key.split("/", 1)) for key in needs] if needs else [results]
            missing = any(data is None for data in found)
            word, why = (NOT_RUN, "no results") if missing else judge(*found)
            return Verdict(claim, where, word, why, anchor)

        RULES.append(rule)
        return rule

    return register


@dataclass
class Bar:
    """A threshold set in advance: passed, failed, or not run."""

    text: str
    passed: bool | None
    measured: str


@dataclass
class Line:
    """One row of a comparison table: claim | as printed | as run | ours."""

    group: str
    method: str
    claim: float
    claim_std: float | None
    as_printed: tuple[float, float] | None
    as_run: tuple[float, float] | None
    close: bool | None


@dataclass
class Best:
    """Ours against everybody else in one cell, on seeds nobody was tuned on."""

    reading: str
    cell: str
    ours: float
    ours_half: float
    rival: str
    rival_error: float
    difference: tuple[float, float]
    status: str


class Results:
    """The result files of a folder, read on demand."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._seen: dict[str, dict[str, Any] | None] = {}

    def record(self, experiment: str, unit: str) -> dict[str, Any] | None:
        """The whole record, or None."""
        key = f"{experiment}/{unit}"
        if key not in self._seen:
            self._seen[key] = store.load(self.folder / experiment / f"{unit}.json")
        return self._seen[key]

    def data(self, experiment: str, unit: str) -> Any:
        """What the unit computed; None where it is missing or not available."""
        record = self.record(experiment, unit)
        return record.get("data") if record and record.get("status") == "done" else None

    def every(self) -> list[dict[str, Any]]:
        """All records there are, in the order of their names."""
        found = [store.load(p) for p in sorted(self.folder.glob("*/*.json"))]
        return [r for r in found if r and "made_with" in r]

    def methods(self, experiment: str, reading: str) -> dict[str, dict[str, Any]]:
        """method -> data, for all methods that ran under a reading."""
        found = {}
        for path in sorted((self.folder / experiment).glob(f"{reading}.*.json")):
            method = path.stem.split(".", 1)[1]
            data = self.data(experiment, path.stem)
            if data is not None:
                found[method] = data
        return found


def read(folder: Path, experiment: str, unit: str) -> Any:
    """What one unit computed; None where it is missing."""
    return Results(folder).data(experiment, unit)


def numbers(data: dict[str, Any], cell: str, block: str = "further") -> np.ndarray:
    """The errors of one cell over the seeds of a block ("test" or "further")."""
    row = data[block][data["cells"].index(cell)]
    return np.array([np.nan if v is None else v for v in row], dtype=float)


def mean_half(values: np.ndarray) -> tuple[float, float]:
    """Mean and half width of its 95 % confidence interval."""
    half = 1.96 * values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return float(values.mean()), float(half)


def our_method(found: dict[str, Any]) -> str | None:
    """Which of ours is there."""
    return next((name for name in OURS if name in found), None)
