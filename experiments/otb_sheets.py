"""Sheets of key images: five frames a sequence with the boxes of truth and three methods, and IoU.

    python -m experiments.otb_sheets            writes build/otb_sheets/<sequence>.png and _iou.png

The boxes come from results/otb_models; the images from ``$KGMRF_DATA/otb``. The videos belong to
others, so that the sheets are not part of the repository.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from experiments import otb, otb_models, store
from kgmrf.vision.evaluation import Evaluation, Run
from kgmrf.vision.figures import iou_curves, key_frame_sheet

OUT = store.HERE.parent / "build" / "otb_sheets"


def evaluation(sequence: str, data: dict[str, Any]) -> Evaluation:
    """The kept boxes of three methods beside the truth."""
    boxes = {name: np.array(data["rows"][name]["boxes"], float) for name in otb_models.SHOWN}
    found, unknown = np.ones(data["n_frames"], np.bool_), np.full(data["n_frames"], np.nan)
    runs = {name: Run(rows, found, unknown) for name, rows in boxes.items()}
    return Evaluation(sequence, np.array(data["truth"], float), runs)


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
    sys.exit(main())
