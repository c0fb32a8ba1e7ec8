"""The study's tables for the report, as HTML, and for a terminal.

Only reads result files. ``streams``, ``starts``, ``faults`` and ``rotating`` return one section
each, or a line that says what was not run; ``sections`` joins them.
"""

from __future__ import annotations

from typing import Any

from experiments import markup as page
from experiments import motions
from experiments.reading import Results
from experiments.rotating import PREVIOUS_COMMIT
from experiments.streams import data, markdown


def sections(results: Results) -> str:
    """All sections."""
    parts = (streams, starts, faults, rotating, motions_section)
    return "\n".join(part(results) for part in parts)


def streams(results: Results) -> str:
    """Scores on real streams, ours beside every rival."""
    if not any(results.data("streams", f"{s}.ours") for s in data.STREAMS):
        return _not_run("streams", "Real streams")
    scores, more = (
        page.from_markdown(part(results.folder)) for part in (markdown.streams, markdown.more)
    )
    return (
        '<section id="streams"><h2>Real streams</h2><p>Mean log-density of the next row, in nats; '
        "more is better. Ours is the density that the default forecasts, nothing chosen. Rivals "
        "forecast a covariance; each gets the settings, the degrees of freedom and the scale of a "
        "Student-t that are best on the scored rows in hindsight.</p>"
        f"{scores}<h3>What the default does there</h3>{more}"
        "<p>The interval is that of a paired bootstrap of blocks of 50 rows. “Nats that velocity "
        "earns” is the score less that of the same tracker without the members that carry a "
        "velocity: where it is nearly 0 the lead comes from the averages. As one Gaussian, the "
        "same covariance can be far worse where rows are stuck or come in bursts.</p></section>"
    )


def starts(results: Results) -> str:
    """Start-up: nats per dimension in ranges of rows."""
    return _section(
        results,
        "starts",
        "Start-up",
        "Log-density of every row of a factor model under the forecast from the rows before it. "
        "Ledoit and Wolf's covariance of all rows so far and the true covariance are scored as "
        "Gaussians.",
    )


def faults(results: Results) -> str:
    """One line per fault."""
    return _section(
        results,
        "faults",
        "Faults",
        "What sensors do, and the default after it. Scores in nats per row, bursts in nats per "
        "dimension lost against the true Gaussian. The EWMA is scored as a Gaussian, in bursts as "
        "a t with everything best in hindsight.",
    )


def rotating(results: Results) -> str:
    """Angles in degrees, ours, the previous default and the best EMA."""
    return _section(
        results,
        "rotating",
        "Simulated rotations",
        "Angle between the filtered and the true eigenframe, 8 samples a frame, cold start, frames "
        f"50–399, ten seeds. The previous default's figures were recorded at commit "
        f"{PREVIOUS_COMMIT} on the same frames; the EMA has the gain that is best in hindsight.",
    )


def _section(results: Results, name: str, title: str, words: str) -> str:
    """A table of the documentation, on the page."""
    if not any((results.folder / name).glob("*.json")):
        return _not_run(name, title)
    found = page.from_markdown(getattr(markdown, name)(results.folder))
    return f'<section id="{name}"><h2>{title}</h2><p>{words}</p>{found}</section>'


def motions_section(results: Results) -> str:
    """Covariances carried by recorded motion: degrees of every method."""
    found = {r: results.data("motions", f"carried.{r}") for r in motions.RECORDINGS}
    there = {r: f for r, f in found.items() if f}
    if not there:
        return _not_run("motions", "Covariances carried by recorded motion")
    methods = list(next(iter(there.values()))["rows"])
    rows = [
        _row(page.e(m), [f["rows"].get(m, {}).get("score") for f in there.values()])
        for m in methods
    ]
    rows.append(_row("weight with velocity", [f["weight_with_velocity"] for f in there.values()]))
    return (
        '<section id="motions"><h2>Covariances carried by recorded motion</h2><p>Orientation from '
        "motion capture, 8 samples per frame; angle between eigenframes, degrees. Rivals have the "
        "settings that are best in hindsight.</p>"
        f"{page.table(['degrees', *[page.n(page.e(r)) for r in there]], rows)}</section>"
    )


def _row(words: str, values: Any) -> str:
    cells = (v if isinstance(v, str) else page.number(v, 4) for v in values)
    return f"<tr><td>{words}</td>{''.join(f'<td class=n>{c}</td>' for c in cells)}</tr>"


def _not_run(name: str, title: str) -> str:
    words = f"{page.tag('not run', 'idle')} python -m experiments run {name}"
    return f'<section id="{name}"><h2>{title}</h2><p>{words}</p></section>'
