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

from experiments import otb_models, store
from experiments.chart_parts import LOOK
from kgmrf import plots

OUT = store.HERE.parent / "build" / "otb_sheets"
COLOURS = {
    "K-GMRF": LOOK["ours"][0],
    "Riemannian EMA": LOOK["paper_euclidean_ema"][0],
    "Alpha-Beta": LOOK["paper_alpha_beta"][0],
}


def key_frames(data: dict[str, Any], count: int = 5) -> list[int]:
    """Frames to show: evenly spread, each moved to where the methods differ most nearby."""
    iou = np.array([data["rows"][name]["iou"] for name in COLOURS], dtype=float)
    spread = iou[:2].max(axis=0) - iou[:2].min(axis=0)
    n = iou.shape[1]
    edges = np.linspace(1, n, count + 1).astype(int)
    return [
        int(a + np.argmax(spread[a:b])) for a, b in zip(edges, edges[1:], strict=False) if b > a
    ]


def sheet(sequence: str, data: dict[str, Any]) -> Any:
    """One figure: key images above, overlap along the sequence below."""
    target = otb_models._target(sequence)
    wanted = key_frames(data)
    images = {t: image for t, image in enumerate(target.frames()) if t in wanted}
    figure = plots.new_figure(height=3.4)
    grid = figure.add_gridspec(2, len(wanted), height_ratios=(1.2, 1.0))
    for k, t in enumerate(wanted):
        axes = figure.add_subplot(grid[0, k])
        image = np.asarray(images[t])
        axes.imshow(image, cmap="gray" if image.ndim == 2 else None)
        boxes = {"truth": target.boxes[t]}
        boxes |= {name: data["rows"][name]["boxes"][t] for name in COLOURS}
        for name, (left, top, width, height) in boxes.items():
            colour = COLOURS.get(name, "white")
            corners = [left, left + width, left + width, left, left]
            sides = [top, top, top + height, top + height, top]
            axes.plot(corners, sides, color=colour, linewidth=1.2)
        axes.set_xlim(0, image.shape[1])
        axes.set_ylim(image.shape[0], 0)
        axes.axis("off")
        axes.set_title(f"frame {t}", loc="center")
    axes = figure.add_subplot(grid[1, :])
    labels = []
    for name, colour in COLOURS.items():
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
