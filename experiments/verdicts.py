"""What the results say about the claims of the paper: verdicts and bars, all computed."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from experiments import verdicts_tasks, verdicts_theory
from experiments.comparison import bars
from experiments.reading import Bar, Results, Verdict


@dataclass
class Everything:
    """All that the report shows, computed once."""

    results: Results
    verdicts: list[Verdict] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)


def verdicts(results: Results) -> list[Verdict]:
    """One verdict per table, figure or theorem of the paper."""
    return [*verdicts_tasks.verdicts(results), *verdicts_theory.verdicts(results)]


def judge(folder: Path) -> Everything:
    """Read a results folder and judge it."""
    results = Results(folder)
    return Everything(results, verdicts(results), bars(results))
