"""Tables of measured numbers inside the documentation, written from the result files.

A page holds ``<!-- table otb -->`` and ``<!-- end of table -->``; what stands between them is
written by ``python -m experiments tables`` and compared with the results by the tests.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from experiments import otb

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
BLOCK = re.compile(r"(<!-- table (\w+) -->\n).*?(<!-- end of table -->)", re.S)

NAMES = {
    "kgmrf": "**RegionCovarianceTracker**",
    "kgmrf, first frame only": '`model="static"`',
    "KCF-0": "OpenCV KCF, never giving up",
}


def otb_averages(results: Path) -> str:
    """Means over the targets that every tracker was run on, best first."""
    rows = otb.averages(otb.load(results))
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


TABLES: dict[str, Callable[[Path], str]] = {
    "otb": otb_averages,
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
