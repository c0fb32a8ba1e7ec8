"""Videos with ground truth: the folders of OTB, VOT and GOT-10k."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kgmrf.vision.videos import frame_number, image_files, read_image, read_video

__all__ = [
    "FrameSequence",
    "box_of_polygon",
    "find_sequences",
    "read_boxes",
    "read_otb",
    "read_video",
    "read_vot",
]

OTB_START = {"david": 300}
"""Sequences of OTB whose first box belongs to a later frame, and the number of that frame."""


class FrameSequence(NamedTuple):
    """A named list of frame files with boxes (n, 4): left, top, width, height, pixels from 0.

    There may be fewer boxes than frames; frames beyond the last box have no ground truth. Rows of
    NaN mark frames in which the target is absent.
    """

    name: str
    files: tuple[Path, ...]
    boxes: NDArray[np.float64]

    def frames(self) -> Iterator[NDArray[np.uint8]]:
        """The frames with ground truth, decoded one after another (blue, green, red)."""
        for file in self.files[: len(self.boxes)]:
            yield read_image(file)


def box_of_polygon(polygon: ArrayLike) -> NDArray[np.float64]:
    """[min x, min y, max x - min x, max y - min y] of corners x1, y1, x2, y2, ...

    Shapes (..., 2 k) -> (..., 4).

    >>> box_of_polygon([0, 1, 4, 1, 4, 3, 0, 3]).tolist()
    [0.0, 1.0, 4.0, 2.0]
    """
    corners = np.asarray(polygon, dtype=np.float64)
    x, y = corners[..., 0::2], corners[..., 1::2]
    left, top = x.min(-1), y.min(-1)
    return np.stack([left, top, x.max(-1) - left, y.max(-1) - top], axis=-1)


def read_boxes(file: str | Path, *, one_based: bool = False) -> NDArray[np.float64]:
    """Boxes or polygons, one per line.

    Numbers are separated by commas, tabs, semicolons or blanks in any mixture.
    Four numbers are left, top, width, height; six or more are corners, replaced by their bounding
    box. ``one_based`` shifts left and top by -1.
    """
    rows = []
    for number, line in enumerate(Path(file).read_text(encoding="utf-8-sig").splitlines(), 1):
        words = [word for word in re.split(r"[,;\s]+", line.strip()) if word]
        if not words:
            continue
        try:
            row = np.array([float(word) for word in words])
        except ValueError:
            raise ValueError(f"{file}, line {number}: {line!r} is not a row of numbers") from None
        if len(row) != 4 and (len(row) < 6 or len(row) % 2):
            raise ValueError(f"{file}, line {number}: {len(row)} numbers, neither box nor polygon")
        rows.append(row if len(row) == 4 else box_of_polygon(row))
    if not rows:
        raise ValueError(f"{file} holds no boxes")
    boxes = np.array(rows)
    boxes[:, :2] -= one_based
    return boxes


def read_otb(folder: str | Path) -> list[FrameSequence]:
    """The targets of an OTB folder: ``img/`` and ``groundtruth_rect.txt`` (or ``.1.txt``, ...).

    Several targets are named Folder-1, Folder-2, ... Boxes become 0-based. An optional
    ``offset.txt`` (one number) says how many frames precede the first box, for sequences whose
    annotation starts late; David, which does so in OTB, is known.
    """
    root = Path(folder)
    # OTB has an empty file for a target that was given up
    truths = [
        f
        for f in sorted(root.glob("groundtruth_rect*.txt"))
        if f.read_text(encoding="utf-8").strip()
    ]
    if not truths:
        raise FileNotFoundError(f"no boxes in any groundtruth_rect*.txt of {root}")
    files = image_files(root / "img" if (root / "img").is_dir() else root)
    note = root / "offset.txt"
    if note.is_file():
        files = files[int(note.read_text(encoding="utf-8").split()[0]) :]
    elif (start := OTB_START.get(root.name.lower())) is not None:
        # by the number in the name: a copy without the frames before it stays as it is
        files = tuple(f for f in files if frame_number(f) >= start)
    out = []
    for truth in truths:
        target = re.search(r"\.(\d+)\.txt$", truth.name)
        boxes = read_boxes(truth, one_based=True)
        name = root.name + (f"-{target[1]}" if target else "")
        out.append(FrameSequence(name, files, boxes[: len(files)]))
    return out


def read_vot(folder: str | Path) -> FrameSequence:
    """A VOT folder: images (perhaps in ``color/``) and polygons or boxes in ``groundtruth.txt``."""
    root = Path(folder)
    images = next((root / p for p in ("color", "img") if (root / p).is_dir()), root)
    boxes = read_boxes(root / "groundtruth.txt")
    files = image_files(images)
    return FrameSequence(root.name, files, boxes[: len(files)])


def find_sequences(folder: str | Path) -> list[FrameSequence]:
    """Every target of an OTB folder, a VOT or GOT-10k folder, or a folder of such folders."""
    root = Path(folder)
    if not root.is_dir():
        raise NotADirectoryError(20, "No such folder of frames", str(folder))
    found = _sequences(root) or [s for f in sorted(root.iterdir()) for s in _sequences(f)]
    if not found:
        raise FileNotFoundError(
            f"no groundtruth_rect.txt (OTB) or groundtruth.txt (VOT, GOT-10k) in {root}, "
            "nor in the folders below it"
        )
    return found


def _sequences(root: Path) -> list[FrameSequence]:
    if any(root.glob("groundtruth_rect*.txt")):
        return read_otb(root)
    return [read_vot(root)] if (root / "groundtruth.txt").is_file() else []
