"""(C) OTB: boxes through video, ours and OpenCV's trackers on the same frames in one process.

One unit per tracker and target: the first box is given, one setting for all sequences. Sequences
come from ``$KGMRF_DATA/otb`` (or ``../shared/data/otb``); what is not there is skipped and said
so. Seconds are CPU time inside the tracker; decoding is not counted.

Besides these units, any ``results/otb/*.json`` with one record, or a list of records under
"results", enters the table, each with

    sequence        BlurBody, BlurCar1, BlurCar2, BlurFace, CarScale, Jogging (or Jogging-1, -2)
    method          any word; "kgmrf" is ours
    mean_iou        mean overlap with the ground truth, 0 to 1
    success_rate    share of frames with an overlap above .5
    seconds         run time of the whole sequence (optional), n_frames (optional)

Other fields are kept and ignored. Without files the report says "not run".
"""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path
from typing import Any

from experiments import intervals, store
from experiments.store import NotAvailable, Unit

SEQUENCES = ("BlurBody", "BlurCar1", "BlurCar2", "BlurFace", "CarScale", "Jogging")

TARGETS = (*SEQUENCES[:-1], "Jogging-1", "Jogging-2")
"""Jogging has two targets, each a sequence of its own."""

LENGTHS = {
    "BlurBody": 334,
    "BlurCar1": 742,
    "BlurCar2": 585,
    "BlurFace": 493,
    "CarScale": 252,
    "Jogging-1": 307,
    "Jogging-2": 307,
}
"""Frames of the complete sequences; a shorter copy is marked as partial."""

OURS = "kgmrf"
MODELS = {
    OURS: "anchor+ema",
    "kgmrf, first frame only": "static",
    "kgmrf, kinetic appearance": {"gains": "information"},
    "kgmrf, self-tuned appearance": {},
}
"""Our tracker and what it compares cells with; a table of settings is a KGMRF tracker of them."""

METHODS = (*MODELS, "CSRT", "KCF", "KCF-0", "MIL", "MOSSE")
"""Ours and OpenCV's; KCF-0 never gives up."""

NUMBERS = (
    "mean_iou",
    "success_rate",
    "success_auc",
    "precision",
    "normalised_precision",
    "seconds",
    "n_frames",
)
"""What a record may say about a sequence, all but the first optional."""


def units(quick: bool) -> list[Unit]:
    """Every tracker on every target; a smoke test is our tracker on a few frames of one."""
    if quick:
        settings = {"method": OURS, "sequence": "CarScale", "n_frames": 20}
        return [Unit("otb", "kgmrf.CarScale", "otb:follow", settings)]
    return [
        Unit(
            "otb",
            f"{method.replace(', ', '_').replace(' ', '_')}.{sequence}",
            "otb:follow",
            {"method": method, "sequence": sequence},
        )
        for sequence in TARGETS
        for method in METHODS
    ]


def targets(sequence: str | None = None, folder: str = "otb") -> list[Any]:
    """Frames and boxes of all targets, or of one video; NotAvailable says what is missing."""
    try:
        import cv2
    except ImportError:
        raise NotAvailable('no OpenCV: pip install "kgmrf[vision]"') from None
    from experiments.sequences import find_sequences

    cv2.setNumThreads(1)
    try:
        video = "" if sequence is None else sequence.partition("-")[0]
        return find_sequences(Path(os.environ.get("KGMRF_DATA", ""), folder, video))
    except OSError:
        what = "the videos" if sequence is None else sequence
        why = "no public copy was found; " if sequence == "BlurFace" else ""
        raise NotAvailable(
            f"no frames of {what}: {why}set KGMRF_DATA to the folder that contains {folder}/"
        ) from None


def target(sequence: str) -> Any:
    """Frames and boxes of one target."""
    found = next((t for t in targets(sequence) if t.name == sequence), None)
    if found is None:
        raise NotAvailable(f"$KGMRF_DATA/otb has no target {sequence}")
    return found


def follow(method: str, sequence: str, n_frames: int | None = None) -> dict[str, Any]:
    """One tracker over one target, from its first box; overlap frame by frame and the summary."""
    found = target(sequence)
    import cv2

    from experiments.evaluation import box_iou, run_tracker, summary

    truth = found.boxes[:n_frames]
    run = run_tracker(tracker(method), islice(found.frames(), len(truth)), truth[0])
    return {
        "sequence": sequence,
        "method": method,
        "partial": len(truth) < LENGTHS[sequence],
        "complete_length": LENGTHS[sequence],
        "n_frames": len(truth),
        "seconds": float(run.seconds.sum()),
        "frames_lost": int((~run.found).sum()),
        **summary(run.boxes, truth),
        "opencv": cv2.__version__,
        "iou": [round(v, 3) for v in box_iou(run.boxes, truth).tolist()],
    }


def tracker(method: str) -> Any:
    """One of :data:`METHODS`, ready for its first frame."""
    from experiments.otb_rivals import OpenCVTracker
    from kgmrf import KGMRF
    from kgmrf.vision import BoxTracker
    from kgmrf.vision.clip import render_clip

    if not method.startswith(OURS):
        try:
            return OpenCVTracker(method)
        except ImportError as error:
            raise NotAvailable(str(error)) from None
    clip = render_clip(3)  # compiled here, so that the clock does not see it
    first = BoxTracker()
    first.init(clip.frames[0], clip.boxes[0])
    first.update(clip.frames[1])
    model = MODELS[method]
    if isinstance(model, dict):
        return BoxTracker(KGMRF(n_samples=first.settings.cell**2, **model))
    return BoxTracker(model)


def load(results: Path) -> list[dict[str, Any]]:
    """All well-formed records, ours first, then in the order of :data:`METHODS` and of names."""
    found: list[dict[str, Any]] = []
    for path in sorted((results / "otb").glob("*.json")):
        record = store.load(path) or {}
        rows = record.get("results", [record.get("data", record)])
        for row in rows if isinstance(rows, list) else []:
            if isinstance(row, dict) and isinstance(row.get("mean_iou"), (int, float)):
                found.append(
                    {
                        "sequence": str(row.get("sequence", path.stem)),
                        "method": str(row.get("method", OURS)),
                        "partial": bool(row.get("partial", False)),
                        **{key: row.get(key) for key in NUMBERS},
                        "iou": row.get("iou"),
                    }
                )
    rank = {method: k for k, method in enumerate(METHODS)}
    return sorted(found, key=lambda row: rank.get(row["method"], len(rank)))


def missing(results: Path) -> dict[str, str]:
    """sequence -> why it was not run, for sequences without any record."""
    there = {row["sequence"] for row in load(results)}
    found: dict[str, str] = {}
    for path in sorted((results / "otb").glob("*.json")):
        record = store.load(path) or {}
        name = record.get("settings", {}).get("sequence")
        if record.get("status") == "not available" and name not in there:
            found.setdefault(str(name), str(record.get("reason", "")))
    return found


def _mean(rows: list[dict[str, Any]], key: str) -> float | None:
    values = [float(r[key]) for r in rows if isinstance(r.get(key), (int, float))]
    return sum(values) / len(values) if values else None


def table(records: list[dict[str, Any]]) -> dict[str, dict[str, dict[str, Any]]]:
    """sequence -> method -> record; the two Jogging targets are averaged under "Jogging"."""
    groups: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for record in records:
        name = record["sequence"]
        base = next((s for s in SEQUENCES if name.lower().startswith(s.lower())), name)
        groups.setdefault(base, {}).setdefault(record["method"], []).append(record)
    return {
        sequence: {
            method: {key: _mean(rows, key) for key in NUMBERS} for method, rows in methods.items()
        }
        for sequence, methods in groups.items()
    }


def averages(records: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """method -> mean of each number over targets, CPU milliseconds per frame, and mean IoU by clip.

    Only targets that every method was run on count, so that methods stay comparable.
    """
    by_method: dict[str, dict[str, dict[str, Any]]] = {}
    for record in records:
        by_method.setdefault(record["method"], {})[record["sequence"]] = record
    if not by_method:
        return {}
    common = set.intersection(*(set(rows) for rows in by_method.values()))
    found: dict[str, dict[str, Any]] = {}
    for method, rows in by_method.items():
        chosen = [rows[name] for name in sorted(common)]
        timed = [r for r in chosen if r.get("seconds") and r.get("n_frames")]
        frames = sum(r["n_frames"] for r in timed)
        found[method] = {key: _mean(chosen, key) for key in NUMBERS}
        found[method]["n_targets"] = len(chosen)
        found[method]["clips"] = intervals.by_clip([(r["sequence"], r["mean_iou"]) for r in chosen])
        found[method]["milliseconds"] = (
            1000 * sum(r["seconds"] for r in timed) / frames if frames else None
        )
    return found
