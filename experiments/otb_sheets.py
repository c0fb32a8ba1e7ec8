"""Sheets of key images: five frames a sequence with the boxes of truth and three methods, and IoU.

    python -m experiments.otb_sheets            writes build/otb_sheets/<sequence>.png

The boxes come from results/otb_models; the images from ``$KGMRF_DATA/otb``. The videos belong to
others, so that the sheets are not part of the repository.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from experiments import otb, otb_models, store
from experiments.figures_scenes import VIDEO_ROWS, key_frames, outline
from kgmrf import plots

OUT = store.HERE.parent / "build" / "otb_sheets"


def sheet(sequence: str, data: dict[str, Any]) -> Any:
    """One figure: key images above, overlap along the sequence below."""
    target = otb.target(sequence)
    wanted = key_frames(data, 5)
    images = {t: image for t, image in enumerate(target.frames()) if t in wanted}
    figure = plots.new_figure(height=3.4)
    grid = figure.add_gridspec(2, len(wanted), height_ratios=(1.2, 1.0))
    for k, t in enumerate(wanted):
        axes = figure.add_subplot(grid[0, k])
        image = np.asarray(images[t])
        # OpenCV reads blue first.
        axes.imshow(image if image.ndim == 2 else image[..., ::-1], cmap="gray")
        boxes = {name: data["rows"][name]["boxes"][t] for name in reversed(VIDEO_ROWS)}
        boxes["truth"] = target.boxes[t]
        for name, box in boxes.items():
            axes.plot(*outline(box), color=VIDEO_ROWS.get(name, "white"), linewidth=1.2)
        axes.set_xlim(0, image.shape[1])
        axes.set_ylim(image.shape[0], 0)
        axes.axis("off")
        axes.set_title(f"frame {t}", loc="center")
    axes = figure.add_subplot(grid[1, :])
    labels = []
    for name, colour in VIDEO_ROWS.items():
        iou = data["rows"][name]["iou"]
        axes.plot(iou, color=colour, linewidth=0.9)
        labels.append((iou[-1], name, colour))
    for t in wanted:
        axes.axvline(t, color=plots.COLOURS["quiet"], linewidth=0.6, linestyle=":")
    axes.set_ylim(0, 1)
    axes.set_xlabel(f"frame of {sequence} (white box: truth)")
    axes.set_ylabel("overlap")
    plots.label_lines({axes: labels})
    return figure


def main(folder: Path = OUT, results: Path = store.RESULTS) -> int:
    """Write the sheets of all sequences that are there; returns the exit code."""
    found = otb_models.load(results)
    folder.mkdir(parents=True, exist_ok=True)
    for sequence, data in found.items():
        if "boxes" not in data["rows"]["K-GMRF"]:
            print(f"{sequence}: no boxes kept; python -m experiments run otb_models --fresh")
            continue
        try:
            with plots.style():
                path = plots.write_figure(sheet(sequence, data), folder / f"{sequence}.png")
        except store.NotAvailable as reason:
            print(f"{sequence}: {reason}")
            continue
        print(f"wrote {path}")
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
