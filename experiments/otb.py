"""(C) OTB: the visual tracker writes its own result files; here they are only read.

``results/otb/*.json`` hold one record, or a list of records under "results", each with

    sequence        BlurBody, BlurCar1, BlurCar2, BlurFace, CarScale, Jogging (or Jogging-1, -2)
    method          any word; "kgmrf" is ours
    mean_iou        mean overlap with the ground truth, 0 to 1
    success_rate    share of frames with an overlap above .5
    seconds         run time of the whole sequence (optional), n_frames (optional)

Other fields are kept and ignored. Without files the report says "not run".
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments import store
from experiments.store import Unit

SEQUENCES = ("BlurBody", "BlurCar1", "BlurCar2", "BlurFace", "CarScale", "Jogging")


def units(quick: bool) -> list[Unit]:
    """None: tracking video is the vision module's work."""
    return []


def load(results: Path) -> list[dict[str, Any]]:
    """All well-formed records, in the order of the files' names."""
    found: list[dict[str, Any]] = []
    for path in sorted((results / "otb").glob("*.json")):
        record = store.load(path) or {}
        rows = record.get("results", [record])
        for row in rows if isinstance(rows, list) else []:
            if isinstance(row, dict) and isinstance(row.get("mean_iou"), (int, float)):
                found.append(
                    {
                        "sequence": str(row.get("sequence", path.stem)),
                        "method": str(row.get("method", "kgmrf")),
                        "mean_iou": float(row["mean_iou"]),
                        "success_rate": row.get("success_rate"),
                        "seconds": row.get("seconds"),
                        "n_frames": row.get("n_frames"),
                    }
                )
    return found


def table(records: list[dict[str, Any]]) -> dict[str, dict[str, dict[str, Any]]]:
    """sequence -> method -> record; the two Jogging targets are averaged under "Jogging"."""
    groups: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for record in records:
        name = record["sequence"]
        base = next((s for s in SEQUENCES if name.lower().startswith(s.lower())), name)
        groups.setdefault(base, {}).setdefault(record["method"], []).append(record)

    def mean(rows: list[dict[str, Any]], key: str) -> float | None:
        values = [float(r[key]) for r in rows if isinstance(r[key], (int, float))]
        return sum(values) / len(values) if values else None

    return {
        sequence: {
            method: {key: mean(rows, key) for key in ("mean_iou", "success_rate", "seconds")}
            for method, rows in methods.items()
        }
        for sequence, methods in groups.items()
    }
