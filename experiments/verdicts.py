"""What the results say about the claims of the paper: verdicts and bars, all computed."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

# The two modules of rules; reading them in this order makes the order of the page.
from experiments import verdicts_tasks, verdicts_theory  # noqa: F401
from experiments.comparison import bars
from experiments.reading import RULES, Bar, Results, Verdict


@dataclass
class Everything:
    """All that the report shows, computed once."""

    results: Results
    verdicts: list[Verdict] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)


def judge(folder: Path) -> Everything:
    """Read a results folder and judge it: one verdict for every rule."""
    results = Results(folder)
    return Everything(results, [rule(results) for rule in RULES], bars(results))
