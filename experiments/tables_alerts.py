"""Tables of the page on alerts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from experiments import alerts
from experiments.markup import markdown

OURS = (
    *("KineticDetector", "watch", 'watch, adapt="slow"', 'watch, adapt="no"'),
    'watch, mean="linear"',
)


def _data(results: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((results / "alerts" / f"{name}.json").read_text())["data"]
    return found


def _detectors(results: Path) -> dict[str, list[dict[str, Any]]]:
    """The figures of every detector, set by set; of rivals that were there."""
    out: dict[str, list[dict[str, Any]]] = {}
    for kind in ("fitted", "online"):
        for name in alerts.SETS:
            for word, row in _data(results, f"{kind}_{name}")["detectors"].items():
                if "absent" not in row:
                    out.setdefault(word, []).append(row)
    return {word: rows for word, rows in out.items() if len(rows) == len(alerts.SETS)}


def _name(word: str) -> str:
    return f"**{word}**" if word in OURS else word


def found(results: Path) -> str:
    """Area under precision and recall of every detector on every set, the best mean first."""
    rows = []
    every = _detectors(results)
    for word, each in sorted(every.items(), key=lambda i: -np.mean([r["precision"] for r in i[1]])):
        cells = [row["precision"] for row in each]
        rows.append([_name(word), *[f"{cell:.2f}" for cell in cells], f"{np.mean(cells):.3f}"])
    known = [_data(results, f"fitted_{name}")["faulty"] for name in alerts.SETS]
    rows.append(["no knowledge", *[f"{cell:.2f}" for cell in known], f"{np.mean(known):.3f}"])
    return markdown(["AUC-PR", *alerts.SETS, "mean"], rows)


def soon(results: Path) -> str:
    """The faults that are found, and how soon; means over the sets."""
    rows = []
    every = _detectors(results)
    for word, each in sorted(every.items(), key=lambda i: -np.mean([r["found"] for r in i[1]])):
        delays = [row["delay"] for row in each if row["delay"] is not None]
        cells = [
            f"{100.0 * np.mean([row['found'] for row in each]):.0f} %",
            f"{np.median(delays):.1f}",
            f"{np.mean([row['smoothed'] for row in each]):.3f}",
        ]
        rows.append([_name(word), *cells])
    heads = ["", "faults found", "rows until then, median of the sets", "AUC-PR of 20-row means"]
    return markdown(heads, rows)


def false(results: Path) -> str:
    """Realised against nominal rates."""
    rows = []
    for kind in ("simulated", "real"):
        for name, row in _data(results, f"false_{kind}").items():
            shown = name if kind == "simulated" else f"real: {name}"
            cells = [f"{1000.0 * row[key]:.2f}" for key in ("0.001", "alarms")]
            rows.append([shown, *cells, f"{row['rows']:,}"])
    return markdown(["per 1,000 rows; nominal 1", "p <= 0.001", "alarms", "rows"], rows)


def speed(results: Path) -> str:
    """Rows per second of one core."""
    row = _data(results, "speed")
    shown = {k: v for k, v in row.items() if k != "bytes_of_an_alarm"}
    return markdown(
        ["", *shown], [["rows per second, d = 4", *[f"{v:,.0f}" for v in shown.values()]]]
    )


TABLES = {
    "alerts_found": found,
    "alerts_soon": soon,
    "alerts_false": false,
    "alerts_speed": speed,
}
