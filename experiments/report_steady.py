"""The part of task B that shows whole videos: a shaky one in, a steady one out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from experiments import shaky, steady, tables
from experiments.markup import from_markdown, picture, tag
from experiments.reading import Results

SHOWN = (60, 100)
"""Images of the clip "hand" in the picture before and after."""


def strip(results: Results) -> Any:
    """Images of the hand-held clip before and after, drawn again and warped as the result says."""
    data = results.data("steady", "clip.hand")
    if data is None or len(data["warps"]) < SHOWN[1]:
        return None
    try:
        import cv2
    except ModuleNotFoundError:
        return None
    from experiments.figures_video import before_after

    images = shaky.draw("hand", steady.SEED).images[slice(*SHOWN)]
    left, top, width, height = data["rectangle"]
    warps = np.array(data["warps"]).reshape(-1, 2, 3)[slice(*SHOWN)] - [[0, 0, left], [0, 0, top]]
    size = int(width), int(height)
    after = [cv2.warpAffine(i, w, size) for i, w in zip(images, warps, strict=True)]
    return before_after(list(images), after, SHOWN[0])


def steady_part(results: Results, drawn_in: Path | None) -> str:
    """Before and after, and our stabiliser beside others."""
    if not steady.table(results):
        return f"<h3>The same for a whole video</h3><p>{tag('not run', 'idle')}</p>"
    shown = picture(
        drawn_in,
        "steady_strip",
        "Three images of a street before and after, and the mean of forty",
        "<b>The stabiliser (<code>kgmrf stabilize</code>) on a drawn hand-held clip.</b> White "
        "lines stay where they are. The mean of forty images is blurred by what still moves.",
    )
    return f"""<h3>The same for a whole video</h3>
<p>The table above scores orientations. Here they are put to use: the camera's path is measured from
features, smoothed by the same trackers, and taken out of the images. Shake is the mean acceleration
of the background, pixels per image²: of the true camera on drawn clips, of dense optical flow on
OTB. Ours runs at the crop (the share of the width that is left) of each rival: as a recording, and
live, some images behind the camera.</p>
{shown}{from_markdown(tables.steadier(results.folder))}
{from_markdown(tables.steadier_live(results.folder))}"""
