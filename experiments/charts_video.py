"""Figures of the OTB sequences."""

from __future__ import annotations

import numpy as np

from experiments import otb, otb_models
from experiments.chart_parts import Figure, panel, series, sheet
from experiments.reading import Results

VIDEO_LOOK = {
    "kgmrf": "ours solid",
    "kgmrf, first frame only": "ours dotted",
    "kgmrf, kinetic appearance": "sky dashed",
    "kgmrf, self-tuned appearance": "sky dotted",
    "CSRT": "vermillion solid",
    "KCF": "green solid",
    "KCF-0": "green dashed",
    "MIL": "purple solid",
    "MOSSE": "orange solid",
}


def otb_success(results: Results) -> Figure | None:
    """Share of frames above each overlap, every target counting once."""
    overlaps = _overlaps(results)
    if not overlaps:
        return None
    thresholds = np.linspace(0, 1, 21)
    common = set.intersection(*(set(rows) for rows in overlaps.values()))
    lines = []
    for method, rows in overlaps.items():
        each = [(rows[name][:, None] > thresholds).mean(axis=0) for name in sorted(common)]
        curve = np.mean(each, axis=0)
        name = f"{curve.mean():.2f} {method.replace('kgmrf', 'ours')}"
        lines.append(series(name, thresholds, curve, VIDEO_LOOK.get(method, "quiet solid")))
    # All curves end at 0: their names stand there in the order of the areas.
    lines.sort(key=lambda line: line["name"], reverse=True)
    return sheet(
        "otb_success",
        "Success on the OTB sequences",
        f"Share of frames whose overlap with the true box is above the threshold, mean "
        f"of {len(common)} targets ({', '.join(sorted(common))}); the number is the area under the "
        f"curve. First box given, one setting for all.{_absent(results)}",
        [panel("success", "overlap threshold", "share of frames", lines, low=0.0)],
    )


def _absent(results: Results) -> str:
    partial = {r["sequence"]: r["n_frames"] for r in otb.load(results.folder) if r["partial"]}
    words = [f"{name} is missing" for name in otb.missing(results.folder)]
    words += [f"{name} is its first {count} frames" for name, count in partial.items()]
    return f" {', '.join(words)}." if words else ""


def otb_overlap(results: Results) -> Figure | None:
    """Overlap frame by frame, ours beside OpenCV's best."""
    overlaps = _overlaps(results)
    shown = {"kgmrf": "ours", "CSRT": "CSRT", "KCF-0": "KCF-0"}
    panels = []
    for target in otb.TARGETS:
        lines = [
            series(word, range(len(rows[target])), rows[target], VIDEO_LOOK[method])
            for method, word in shown.items()
            if target in (rows := overlaps.get(method, {}))
        ]
        if lines:
            panels.append(panel(target, "frame", "overlap", lines, low=0.0))
    return sheet(
        "otb_overlap",
        "Overlap along the OTB sequences",
        "Intersection over union with the true box, frame by frame. KCF-0 is OpenCV's "
        "KCF with its failure threshold at 0.",
        panels,
    )


def models(results: Results) -> Figure | None:
    """Overlap frame by frame with the paper's methods as the memory of appearance."""
    shown = {
        "K-GMRF": "ours",
        "K-GMRF, Algorithm 1": "paper_kgmrf",
        "Riemannian EMA": "paper_riemannian_ema",
        "Euclidean EMA": "paper_euclidean_ema",
        "Tangent KF": "paper_tangent_kalman",
        "Alpha-Beta": "paper_alpha_beta",
    }
    panels = []
    for sequence, data in otb_models.load(results.folder).items():
        lines = [
            series(name, range(data["n_frames"]), data["rows"][name]["iou"], look)
            for name, look in shown.items()
        ]
        panels.append(panel(sequence, "frame", "overlap", lines, low=0.0))
    return sheet(
        "otb_models",
        "The paper's methods inside one tracker",
        "Intersection over union with the true box along each sequence; only the memory "
        "of the appearance differs. The paper's curves, drawn again.",
        panels,
    )


def _overlaps(results: Results) -> dict[str, dict[str, np.ndarray]]:
    """method -> target -> overlap of every frame."""
    found: dict[str, dict[str, np.ndarray]] = {}
    for row in otb.load(results.folder):
        if row["iou"]:
            found.setdefault(row["method"], {})[row["sequence"]] = np.array(row["iou"])
    return found
