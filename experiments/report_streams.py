"""The section of the page on real streams: read from results/streams.json."""

from __future__ import annotations

from typing import Any

from experiments import store
from experiments.markup import e, n, number, table, tag
from experiments.reading import Results

PARTS = {
    "streams": (
        "Samples",
        "one zero-mean sample per frame; mean one-step-ahead log-likelihood, nats per frame",
        True,
    ),
    "carried": (
        "Covariances carried by recorded motion",
        "orientation from motion capture, 8 samples per frame; angle between eigenframes, degrees",
        False,
    ),
    "rotations": (
        "Rotations of recorded motion",
        "noise of .05 rad and gaps of nine frames; angle, degrees",
        False,
    ),
}


def streams_section(results: Results) -> str:
    """Every stream with all methods, best first, and what the velocity earned."""
    record = store.load(results.folder / "streams.json")
    if record is None or "data" not in record:
        return (
            f'<section id="streams"><h2>Real streams</h2><p>{tag("not run", "idle")} '
            "<code>python -m experiments.streams</code></p></section>"
        )
    parts = []
    for key, (title, words, high) in PARTS.items():
        found = record["data"].get(key) or {}
        if not found:
            continue
        tables = "".join(_stream(name, data, high) for name, data in found.items())
        parts.append(f"<h3>{title}</h3><p>{words}.</p>{_overview(found, high)}{tables}")
    return f"""<section id="streams"><h2>Real streams</h2>
<p>Data that nobody simulated. Rivals with settings get those that turn out best on the very frames
they are scored on; ours has none. “Velocity” is the share of the self-tuned tracker's weight that
members with a velocity carry: where it is small, the lead comes from the other parts (clocks for
scale and spectrum, mixing), not from the kinetics.</p>{"".join(parts)}</section>"""


def _rows(data: dict[str, Any], high: bool) -> list[tuple[str, dict[str, Any]]]:
    there = [(k, v) for k, v in data["rows"].items() if v.get("score") is not None]
    return sorted(there, key=lambda item: -item[1]["score"] if high else item[1]["score"])


def _overview(found: dict[str, Any], high: bool) -> str:
    """One line a stream: ours, the best rival and by how much."""
    lines = []
    for name, data in found.items():
        ours = next(iter(data["rows"].values()))
        rivals = [(k, v) for k, v in _rows(data, high) if "ours_ahead" in v]
        if not rivals:
            continue
        rival, row = rivals[0]
        low, top = row.get("interval") or (None, None)
        share = data.get("weight_with_velocity", ours.get("weight_with_velocity"))
        lines.append(
            f"<tr><td>{e(name)}</td><td class='n best'>{number(ours['score'], 4)}</td>"
            f"<td>{e(rival)}</td><td class='n'>{number(row['score'], 4)}</td>"
            f"<td class='n'>{number(row['ours_ahead'])} <span class='pm'>{number(low)} to "
            f"{number(top)}</span></td>"
            f"<td class='n'>{'–' if share is None else f'{100 * share:.1f} %'}</td></tr>"
        )
    head = ["stream", n("ours"), "best rival", n("its score"), n("ours ahead, 95 %"), n("velocity")]
    return table(head, lines)


def _stream(name: str, data: dict[str, Any], high: bool) -> str:
    rows = [
        f"<tr><td>{e(method)}</td><td class='n'>{number(row['score'], 4)}</td>"
        f"<td>{e(row.get('settings', ''))}</td>"
        f"<td class='n'>{number(row.get('microseconds'))}</td></tr>"
        for method, row in _rows(data, high)
    ]
    body = table(["method", n("score"), "best settings in hindsight", n("µs per frame")], rows)
    return f"<details><summary>{e(name)}, {data.get('frames', '')} frames</summary>{body}</details>"
