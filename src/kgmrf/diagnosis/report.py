"""Findings on a run, and the report that holds them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Verdict = Literal["ok", "note", "fault", "unknown"]


@dataclass(frozen=True)
class Finding:
    """One way of failing: its name, the verdict, what was measured, and what to do about it.

    A "fault" is an error of the tracker or of its settings; a "note" is a property of the data that
    limits what can be read from the result.

    Parameters
    ----------
    name : str
        What was checked.
    verdict : Verdict
        The outcome, in a word.
    evidence : str
        The numbers that say so.
    remedy : str, default ""
        What to do about it.
    measured : dict[str, float]
        The numbers, by name.
    """

    name: str
    verdict: Verdict
    evidence: str
    remedy: str = ""
    measured: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """All findings on one run; prints as text. ``faults`` are the names of those that failed.

    Parameters
    ----------
    findings : tuple[Finding, ...]
        All findings.
    frames : int
        Rows that were looked at.
    """

    findings: tuple[Finding, ...]
    frames: int

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
