"""Videos with true boxes: the folders of OTB."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kgmrf.vision.videos import image_files, read_image


class FrameSequence(NamedTuple):
    """A named list of frame files with boxes (n, 4): left, top, width, height, pixels from 0.

    There may be fewer boxes than frames; frames beyond the last box have no ground truth.
    """

    name: str
    files: tuple[Path, ...]
    boxes: NDArray[np.float64]

    def frames(self) -> Iterator[NDArray[np.uint8]]:
        """The frames with ground truth, decoded one after another (blue, green, red)."""
        for file in self.files[: len(self.boxes)]:
            yield read_image(file)


def read_boxes(file: Path) -> NDArray[np.float64]:
    """Boxes, one per line; numbers separated by commas, tabs, semicolons or blanks; 0-based."""
    lines = [re.findall(r"[^,;\s]+", line) for line in file.read_text().splitlines()]
    rows = [line for line in lines if line]
    try:
        x, y, width, height = np.array(rows, dtype=float).T if rows else np.empty((4, 0))
    except ValueError:
        raise ValueError(f"{file}: expected four numbers per line") from None
    return np.stack([x - 1, y - 1, width, height], axis=-1)


def read_otb(root: Path) -> list[FrameSequence]:
    """The targets of an OTB folder: ``img/`` and ``groundtruth_rect.txt`` (or ``.1.txt``, ...).

    Several targets are named Folder-1, Folder-2, ...
    """
    files, out = image_files(root / "img"), []
    for truth in sorted(root.glob("groundtruth_rect*.txt")):
        target = re.search(r"\.(\d+)\.txt$", truth.name)
        name = root.name + (f"-{target[1]}" if target else "")
        boxes = read_boxes(truth)
        if len(boxes):  # OTB has an empty file for a target that was given up
            out.append(FrameSequence(name, files, boxes[: len(files)]))
    return out


def find_sequences(folder: Path) -> list[FrameSequence]:
    """Every target of an OTB folder, or of the OTB folders in a folder."""
    folders = [folder] if (folder / "img").is_dir() else sorted(folder.iterdir())
    found = [s for f in folders if (f / "img").is_dir() for s in read_otb(f)]
    if not found:
        raise FileNotFoundError(f"no img/ with groundtruth_rect.txt in {folder} or below it")
    return found
