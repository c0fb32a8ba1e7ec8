"""Sheets of key images: boxes of truth and trackers in some frames of a video, and the overlap.

    python -m experiments.otb_sheets            writes build/otb_sheets/<sequence>.png and _iou.png
    python -m experiments.otb_sheets FILE.png   writes the sheet of the drawn clip: docs/vision.png

The boxes of OTB come from results/otb_models, the images from ``$KGMRF_DATA/otb``. The videos
belong to others, so that their sheets are not part of the repository.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from experiments import otb, otb_models, otb_rivals, store
from experiments.evaluation import Evaluation, Run, run_tracker
from experiments.figures_video import iou_curves, key_frame_sheet
from kgmrf.vision.clip import demo_clip

OUT = store.HERE.parent / "build" / "otb_sheets"


def evaluation(sequence: str, data: dict[str, Any]) -> Evaluation:
    """The kept boxes of three methods beside the truth."""
    rows = {name: data["rows"][name] for name in otb_models.SHOWN}
    boxes = {name: np.array(row["boxes"], float) for name, row in rows.items() if "boxes" in row}
    found, unknown = np.ones(data["n_frames"], np.bool_), np.full(data["n_frames"], np.nan)
    runs = {name: Run(rows, found, unknown) for name, rows in boxes.items()}
    return Evaluation(sequence, np.array(data["truth"], float), runs)


def drawn(path: Path, n_frames: int = 120) -> None:
    """The sheet of the drawn clip: our tracker and OpenCV's."""
    clip = demo_clip(n_frames)
    names = (otb.OURS, *otb_rivals.RIVALS)
    runs = {name: run_tracker(otb.tracker(name), clip.frames, clip.boxes[0]) for name in names}
    truth = np.where(clip.hidden[:, None], np.nan, clip.boxes)
    key_frame_sheet(Evaluation("drawn", truth, runs), clip.frames, path, n_frames=8, n_columns=4)


def main(folder: Path = OUT, results: Path = store.RESULTS) -> int:
    """Write the sheets of all sequences that are there; returns the exit code."""
    found = otb_models.load(results)
    folder.mkdir(parents=True, exist_ok=True)
    for sequence, data in found.items():
        try:
            shown = evaluation(sequence, data)
            frames = otb.target(sequence).frames()
            key_frame_sheet(shown, frames, folder / f"{sequence}.png", n_frames=5, n_columns=5)
        except store.NotAvailable as reason:
            print(f"{sequence}: {reason}")
            continue
        iou_curves(shown, folder / f"{sequence}_iou.png")
        print(f"wrote {folder / sequence}.png and _iou.png")
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(drawn(Path(sys.argv[1])) if sys.argv[1:] else main())
