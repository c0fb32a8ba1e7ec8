"""Tables of measured numbers inside the documentation, written from the result files.

A page holds ``<!-- table otb -->`` and ``<!-- end of table -->``; what stands between them is
written by ``python -m experiments tables`` and compared with the results by the tests.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments import headline, low_rank_tables, otb, otb_choice, otb_unseen, recentring
from experiments.streams import markdown

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
BLOCK = re.compile(r"(<!-- table (\w+) -->\n).*?(<!-- end of table -->)", re.S)

NAMES = {
    "kgmrf": "**RegionCovarianceTracker**",
    "kgmrf, first frame only": '`model="static"`',
    "kgmrf, kinetic appearance": '`model=KGMRF(n_samples=36, gains="information")`',
    "kgmrf, self-tuned appearance": "`model=KGMRF(n_samples=36)`",
    "KCF-0": "OpenCV KCF, never giving up",
}


def otb_averages(results: Path) -> str:
    """Means over the targets that every tracker was run on, best first."""
    return _averages(otb.averages(otb.load(results)))


def otb_rivals(results: Path) -> str:
    """The same, ours and OpenCV's alone."""
    rows = otb.averages(otb.load(results))
    others = [method for method in otb.MODELS if method != otb.OURS]
    return _averages({method: row for method, row in rows.items() if method not in others})


def _averages(rows: dict[str, dict[str, Any]]) -> str:
    lines = ["| | mean IoU | IoU > .5 | success AUC | within 20 px | ms per frame |"]
    lines += ["|---|---|---|---|---|---|"]
    for method in sorted(rows, key=lambda m: -rows[m]["mean_iou"]):
        row = rows[method]
        keys = ("mean_iou", "success_rate", "success_auc", "precision")
        cells = [f"{row[k]:.3f}" if row.get(k) is not None else "" for k in keys]
        speed = row.get("milliseconds")
        cells.append(f"{speed:.1f}" if speed is not None else "")
        lines.append(f"| {NAMES.get(method, f'OpenCV {method}')} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def otb_sequences(results: Path) -> str:
    """Mean IoU target by target, ours beside OpenCV's best and the model that never learns."""
    shown = {"kgmrf": "default", "kgmrf, first frame only": '`"static"`', "CSRT": "CSRT"}
    found: dict[str, dict[str, float]] = {}
    for record in otb.load(results):
        found.setdefault(record["sequence"], {})[record["method"]] = record["mean_iou"]
    lines = [f"| mean IoU | {' | '.join(shown.values())} |", "|---" * (len(shown) + 1) + "|"]
    for sequence in sorted(found):
        cells = [
            f"{found[sequence][method]:.3f}" if method in found[sequence] else ""
            for method in shown
        ]
        lines.append(f"| {sequence} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def beyond_one_pass(results: Path) -> str:
    """Mean IoU on other starts, first boxes, changed videos and drawn ones."""
    found = otb_unseen.table(results)
    groups = [group for group in otb_unseen.GROUPS if group in found]
    counts = {g: len(next(iter(found[g].values()))["cases"]) for g in groups}
    lines = ["| mean IoU | " + " | ".join(f"{g} ({counts[g]})" for g in groups) + " |"]
    lines += ["|---" * (len(groups) + 1) + "|"]
    for method in otb_unseen.METHODS:
        cells = [
            f"{found[g][method]['mean_iou']:.3f}" if method in found[g] else "" for g in groups
        ]
        lines.append(f"| {NAMES.get(method, f'OpenCV {method}')} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def velocity_of_the_box(results: Path) -> str:
    """Mean IoU by when the velocity of the box is used."""
    values = otb_choice.load(results)["kinetics"]
    cells = {name: sum(row.values()) / len(row) for name, row in values.items()}
    head = " | ".join(f'`"{name}"`' for name in cells)
    body = " | ".join(f"{mean:.4f}" for mean in cells.values())
    return f"| `kinetics=` | {head} |\n{'|---' * (len(cells) + 1)}|\n| mean IoU | {body} |\n"


def lines_per_second(results: Path) -> str:
    """Of ``kgmrf stream``, from the benchmark of live streams."""
    found = json.loads((ROOT / "benchmarks" / "results" / "live.json").read_text())["stream"]
    plain = [row for row in found if not row["checkpoint"]]
    kinds = {"covariance,log_likelihood": "covariances", "log_likelihood": "log-likelihoods"}
    columns = [(form, fields) for form in ("json", "csv") for fields in kinds]
    head = " | ".join(f"{form.upper()}, {kinds[fields]}" for form, fields in columns)
    lines = [f"| tracks | {head} |", "|---" * (len(columns) + 1) + "|"]
    for tracks in dict.fromkeys(row["tracks"] for row in plain):
        rates = {
            (row["format"], row["fields"]): row["lines_per_second"]
            for row in plain
            if row["tracks"] == tracks
        }
        lines.append(f"| {tracks:,} | {' | '.join(f'{rates[c]:,}' for c in columns)} |")
    return "\n".join(lines) + "\n"


def what_was_survived(results: Path) -> str:
    """By ``kgmrf stream`` and state files, from ``python -m benchmarks.soak``."""
    path = ROOT / "benchmarks" / "results" / "reliability.json"
    trials = json.loads(path.read_text())["trials"]
    told = {
        "kills": "{kills:,} kill -9 of the command in {streams:,} streams, {lines:,} lines in all",
        "full_disks": "{full:,} full disks in {streams:,} streams, {lines:,} lines in all",
        "checkpoints": "{files:,} damaged checkpoints: {refused:,} refused, {accepted:,} unharmed",
        "lines": "{lines:,} lines, half of them nonsense: {bad:,} refused",
        "files": "{files:,} damaged data files: {refused:,} refused, {read:,} read",
        "states": "{files:,} changed state files: {refused:,} refused, {accepted:,} usable",
    }
    lines = ["| trial | lost lines | torn lines | crashes | silent NaN | lines written twice |"]
    lines += ["|---|---|---|---|---|---|"]
    for name, words in told.items():
        row = trials[name]
        keys = ("lost", "torn", "crashed", "silent", "repeated")
        cells = [f"{row[key]:,}" if key in row else "" for key in keys]
        lines.append(f"| {words.format(**row)} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def recentring_table(results: Path) -> str:
    """Balanced accuracy on the second session, percent, by change and order of the classes."""
    folder = results / "recentring"
    cases = [(change, order) for change in recentring.CHANGES for order in recentring.ORDERS]
    found = {
        case: json.loads((folder / f"{'_'.join(case)}.json").read_text())["data"]["rows"]
        for case in cases
    }
    head = " | ".join(f"{change}, {order}" for change, order in cases)
    lines = [f"| | {head} |", "|---|" + "---|" * len(cases)]
    for name in next(iter(found.values())):
        cells = [f"{100 * found[case][name]['mean']:.0f}" for case in cases]
        shown = f"**{name}**" if name.startswith("Online") else name
        lines.append(f"| {shown} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


TABLES: dict[str, Callable[[Path], str]] = {
    "headline": headline.headline,
    "camera": headline.camera,
    "reliability": what_was_survived,
    "live": lines_per_second,
    "streams": markdown.streams,
    "streams_more": markdown.more,
    "recentring": recentring_table,
    "starts": markdown.starts,
    "faults": markdown.faults,
    "rotating": markdown.rotating,
    "low_rank": low_rank_tables.simulated,
    "low_rank_subspace": low_rank_tables.subspace,
    "otb": otb_averages,
    "otb_rivals": otb_rivals,
    "otb_unseen": beyond_one_pass,
    "otb_kinetics": velocity_of_the_box,
    "otb_sequences": otb_sequences,
}


def rewritten(text: str, results: Path) -> str:
    """A page with its tables filled in anew.

    >>> rewritten("no table here", Path("."))
    'no table here'
    """
    return BLOCK.sub(lambda m: f"{m[1]}{TABLES[m[2]](results)}{m[3]}", text)


def write(results: Path) -> list[Path]:
    """Write the tables into all pages; returns the pages that changed."""
    changed = []
    for page in PAGES:
        old = page.read_text(encoding="utf-8")
        new = rewritten(old, results)
        if new != old:
            page.write_text(new, encoding="utf-8")
            changed.append(page)
    return changed
