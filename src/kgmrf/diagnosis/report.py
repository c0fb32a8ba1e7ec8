"""Findings on a run, and the report that holds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from kgmrf._types import Numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Verdict = Literal["ok", "note", "fault", "unknown"]

MEMORY = 0.15
"""Autocorrelation of the innovations at lag 1 that is a fault."""


@dataclass(frozen=True)
class Finding:
    """One way of failing: its name, the verdict, what was measured, and what to do about it.

    A "fault" is an error of the tracker or of its settings; a "note" is a property of the data that
    limits what can be read from the result.
    """

    name: str
    verdict: Verdict
    evidence: str
    remedy: str = ""
    measured: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """All findings on one run; prints as text. ``faults`` are the names of those that failed."""

    findings: tuple[Finding, ...]
    frames: int
    traces: Mapping[str, Numbers] = field(default_factory=dict, repr=False)

    @property
    def healthy(self) -> bool:
        """True if nothing that could be checked failed."""
        return not self.faults

    @property
    def faults(self) -> tuple[str, ...]:
        """Names of the findings that failed."""
        return tuple(f.name for f in self.findings if f.verdict == "fault")

    def __getitem__(self, name: str) -> Finding:
        for finding in self.findings:
            if finding.name == name:
                return finding
        raise KeyError(f"no finding {name!r}; there are {', '.join(f.name for f in self.findings)}")

    def __str__(self) -> str:
        unknown, notes = (sum(f.verdict == v for f in self.findings) for v in ("unknown", "note"))
        head = "healthy" if self.healthy else f"{len(self.faults)} fault(s)"
        head += f", {notes} note(s)" if notes else ""
        lines = [f"{self.frames} steps: {head}" + (f", {unknown} unchecked" if unknown else "")]
        width = max(len(f.name) for f in self.findings)
        marks = {"ok": "ok     ", "note": "note   ", "fault": "FAULT  ", "unknown": "?      "}
        order = ("fault", "note", "ok", "unknown")
        for finding in sorted(self.findings, key=lambda f: order.index(f.verdict)):
            lines.append(f"  {marks[finding.verdict]}{finding.name:<{width}}  {finding.evidence}")
            if finding.remedy and finding.verdict != "ok":
                lines.append(" " * (11 + width) + f"-> {finding.remedy}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain numbers and words, ready for JSON."""
        findings = [asdict(finding) for finding in self.findings]
        return {"frames": self.frames, "healthy": self.healthy, "findings": findings}

    def plot(self, path: str | Path | None = None) -> Figure:
        """Draw the innovations, their autocorrelation, their size and the planes' uncertainty.

        Returns the matplotlib figure; with ``path`` also writes it (PNG, SVG or PDF by its ending).
        """
        from kgmrf.plots import COLOURS, CYCLE, new_figure, running_mean, style, write_figure

        titles = {
            "innovation": "innovations, in standard deviations of the observation's noise",
            "autocorrelation": "autocorrelation of the innovations, against lag in steps",
            "nis": "normalised innovation squared, over its expectation (running mean of 25)",
            "angle_std": "standard deviation of the angle in every plane, degrees",
            "std": "standard deviation of every component",
        }
        panels = [n for n in titles if n in self.traces and not np.isnan(self.traces[n]).all()]
        dashed: dict[str, Any] = {"color": COLOURS["quiet"], "lw": 0.6, "ls": "--"}
        with style():
            figure = new_figure(1.5 * len(panels) + 0.4)
            for k, name in enumerate(panels):
                axes = figure.add_subplot(len(panels), 1, k + 1)
                axes.set_title(titles[name])
                values = self.traces[name]
                if name == "autocorrelation":
                    axes.stem(np.arange(1, values.size), values[1:], basefmt=" ", markerfmt=".")
                    for level in (-MEMORY, MEMORY):
                        axes.axhline(level, **dashed)
                    continue
                if name == "nis":
                    values = running_mean(values / self.traces["freedom"], 25)[:, None]
                    axes.axhline(1.0, **dashed)
                if name == "angle_std":
                    values = np.degrees(values[:, *np.triu_indices(values.shape[-1], 1)])
                axes.set_prop_cycle(color=CYCLE)
                axes.plot(self.traces["time"], values, lw=0.8)
            figure.axes[-1].set_xlabel("time")
            if path is not None:
                write_figure(figure, path)
        return figure
