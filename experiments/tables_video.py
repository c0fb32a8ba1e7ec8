"""Tables of video: blurred videos beside general ones."""

from __future__ import annotations

from pathlib import Path

from experiments import intervals, otb, otb_unseen
from experiments.markup import markdown

BLURRED = ("Deer", "Jumping", "MotorRolling")
"""Of the unseen videos, those to which OTB gives the attribute "motion blur"."""

METHODS = {otb.OURS: "**BoxTracker**", "CSRT": "OpenCV CSRT", "KCF": "OpenCV KCF"}


def blurred_and_general(results: Path) -> str:
    """Mean IoU of whole videos by kind: the development videos, and the unseen ones."""
    cells: dict[str, dict[str, list[tuple[str, float]]]] = {}
    for row in otb.load(results):
        if row["method"] in METHODS:
            kind = "development, mostly blurred"
            found = cells.setdefault(kind, {}).setdefault(row["method"], [])
            found.append((row["sequence"], row["mean_iou"]))
    for method, record in otb_unseen.table(results).get("unseen", {}).items():
        for case in record["cases"]:
            kind = f"{'blurred' if case['case'] in BLURRED else 'general'}, unseen"
            found = cells.setdefault(kind, {}).setdefault(method, [])
            found.append((case["case"], case["mean_iou"]))
    head = [f"{kind} ({len(next(iter(rows.values())))})" for kind, rows in cells.items()]
    lines = [
        [
            label,
            *[intervals.words(intervals.by_clip(rows.get(name, []))) for rows in cells.values()],
        ]
        for name, label in METHODS.items()
    ]
    return markdown(["mean IoU", *head], lines)
