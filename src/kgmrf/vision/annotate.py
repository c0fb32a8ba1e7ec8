"""Boxes and labels drawn on images, to be read at any size; needs OpenCV."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgmrf.vision.crowd import Followed

__all__ = ["annotated", "caption"]

Image = Any
Ink = tuple[int, int, int]
FOUND, LOST, TRUE = (80, 200, 60), (0, 140, 255), (255, 255, 255)
"""Blue, green, red, as OpenCV orders them."""

CYCLE: tuple[Ink, ...] = (
    FOUND,
    (235, 170, 60),
    (70, 110, 240),
    (210, 90, 200),
    (60, 210, 230),
    (200, 200, 60),
    (140, 230, 150),
    (180, 130, 255),
)
"""Colours of several targets, by identity."""


def annotated(image: Image, found: list[Followed], *, number: int, truth: Any = None) -> Image:
    """A copy of an image with boxes and confidence: green found, orange lost, white true.

    Lines and letters grow with the image. Several targets have a colour and a number each.
    """
    picture = np.array(image if image.ndim == 3 else np.repeat(image[..., None], 3, 2))
    thick = max(1, round(min(picture.shape[:2]) / 200))
    if truth is not None and np.isfinite(truth).all():
        _box(picture, truth, TRUE, max(1, thick // 2))
    several = len(found) > 1
    inks = [LOST if one.lost else CYCLE[(one.identity - 1) % len(CYCLE)] for one in found]
    for one, ink in zip(found, inks, strict=True):
        _box(picture, one.box, ink, thick)
    for one, ink in zip(found, inks, strict=True):  # words last: no box may hide them
        state = "lost" if one.lost else f"{100 * one.confidence:.0f} %"
        words = f"{one.identity}  {state}" if several else state
        caption(picture, words, (one.box[0], one.box[1] - 2 * thick), ink)
    caption(picture, str(number), (2.0 * thick, picture.shape[0] - 2.0 * thick), TRUE)
    return picture


def caption(picture: Image, words: str, place: tuple[float, float], ink: Ink) -> None:
    """Black words on a label, its lower left corner at ``place`` or as near as it fits."""
    import cv2

    rows, cols = picture.shape[:2]
    size = max(0.4, min(rows, cols) / 550)
    thick = max(1, round(1.6 * size))
    edge = max(2, round(4 * size))
    font = cv2.FONT_HERSHEY_SIMPLEX
    (width, height), _ = cv2.getTextSize(words, font, size, thick)
    wide, high = width + 2 * edge, height + 2 * edge
    x = int(np.clip(place[0], 0, max(0, cols - wide)))
    y = int(np.clip(place[1], high, max(high, rows)))
    cv2.rectangle(picture, (x, y - high), (x + wide - 1, y - 1), ink, -1)
    at = (x + edge, y - edge)
    cv2.putText(picture, words, at, font, size, (0, 0, 0), thick, cv2.LINE_AA)


def _box(picture: Image, box: Any, ink: Ink, thick: int) -> None:
    import cv2

    x, y, width, height = (float(v) for v in box)
    first, last = (round(x), round(y)), (round(x + width) - 1, round(y + height) - 1)
    cv2.rectangle(picture, first, last, (0, 0, 0), thick + 2)
    cv2.rectangle(picture, first, last, ink, thick)
