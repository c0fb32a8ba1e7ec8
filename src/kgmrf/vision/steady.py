"""A shaky video in, a steady one out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from kgmrf.vision.camera import CameraRotation, FeatureMotion, RecordedMotion, Similarity, apply
from kgmrf.vision.live import MEMORY, LivePath, Room, corners, is_seen

__all__ = ["Border", "Rectangle", "Stabilizer", "steady_rectangle"]

Array = NDArray[np.float64]
Image: TypeAlias = NDArray[np.uint8]
Border: TypeAlias = Literal["crop", "black", "replicate", "reflect"]


class Rectangle(NamedTuple):
    """Left, top, width, height of the part of the steady image that is kept."""

    left: float
    top: float
    width: float
    height: float


class Stabilizer:
    """image_t -> image_t warped by S_t^-1 T_t: T the path of the camera, S the path smoothed.

    Images without enough features are gaps: the path coasts through them. After `plan`, ``path`` is
    the camera's path, ``steady_path`` the smoothed one, ``warps`` (n, 3, 3) take pixels of an image
    to steady ones and ``rectangle`` is what is kept of these.

    Parameters
    ----------
    smoothness : float, default 30.0
        Time constant of the steady camera, in images: what changes faster is shake. Live it is
        shorter, as far as the lag demands (:class:`kgmrf.vision.live.LivePath`).
    lag : int, default None
        None looks at the whole recording (`stabilize`, or `watch`, `plan` and `steady`); a number
        is live: `update` returns the steady image of ``lag`` images ago, 0 the present one.
    keep : float, default 0.8
        Least share of width and height to keep. The path follows the camera closer where more would
        be cut off.
    border : Border, default "crop"
        "crop" cuts the borders off: the largest rectangle that every image fills, or live the
        central one of size ``keep``. "black", "replicate" and "reflect" fill them instead.
    focal : float, default None
        The focal length in pixels. With it the camera turns in space (a homography), without it
        shifts, turns and zooms in the image plane.
    motion : RecordedMotion, default None
        What gives the motion of the camera; default: features of the images.

    Examples
    --------
    >>> from kgmrf.vision.clip import render_clip
    >>> import importlib.util
    >>> if importlib.util.find_spec("cv2"):
    ...     images = Stabilizer(5.0).stabilize(render_clip(10).frames)
    ...     assert len(list(images)) == 10
    """

    def __init__(
        self,
        smoothness: float = 30.0,
        *,
        lag: int | None = None,
        keep: float = 0.8,
        border: Border = "crop",
        focal: float | None = None,
        motion: RecordedMotion | None = None,
    ) -> None:
        if not (np.isfinite(smoothness) and smoothness >= 1):
            raise ValueError(f"smoothness must be at least 1 image, got {smoothness}")
        if lag is not None and (not isinstance(lag, (int, np.integer)) or lag < 0):
            raise ValueError(f"lag must be None or a number of images, 0 or more, got {lag!r}")
        if not 0 < keep < 1:
            raise ValueError(f"keep must be a share of the image between 0 and 1, got {keep}")
        if border not in get_args(Border):
            raise ValueError(f"border is one of {', '.join(get_args(Border))}, got {border!r}")
        self.smoothness, self.lag, self.keep, self.border = smoothness, lag, keep, border
        self.focal, self.motion = focal, motion
        self._model: Similarity | CameraRotation | None = None
        self._room: Room
        self._poses: list[Array] = []
        self._live: LivePath | None = None
        self._waiting: list[Image] = []
        self._lived: list[tuple[Array, Array, Array]] = []

    # ------------------------------------------------------------------ a recording

    def stabilize(self, images: Sequence[Image]) -> Iterator[Image]:
        """All images of a recording, steady; they are gone through twice."""
        self.watch(images)
        self.plan()
        return (self.steady(image, k) for k, image in enumerate(images))

    def watch(self, images: Iterable[Image]) -> None:
        """Follow the camera through images; more may come later."""
        for image in images:
            self._look(image)

    def plan(self) -> None:
        """Smooth the path that was watched and find the rectangle that every image fills.

        The smoothest path that keeps the central rectangle filled: an image whose correction is too
        large counts more, one with room to spare less, down to 1.
        """
        model, path = self._started(), np.stack(self._poses)
        weights, excess, seen = np.ones(len(path)), np.zeros(len(path)), is_seen(path)
        for _ in range(31):
            steady = model.smooth(path, weights, self.smoothness)
            excess[seen] = self._room.used(path[seen], steady[seen])
            changed = np.clip(weights * np.maximum(excess, 0.1) ** 2, 1.0, 1e9)
            if excess.max() <= 1.005 or np.allclose(changed, weights, rtol=1e-3):
                break
            weights = changed
        steady = self._room.clamped(self._filled(path, steady), steady)
        self.path, self.steady_path = path, steady
        self.warps = model.warp(self._filled(path, steady), steady)
        if self.border == "crop":
            self.rectangle = steady_rectangle(self.warps, self.size)

    def steady(self, image: Image, k: int) -> Image:
        """Image number ``k`` of the planned recording, steady."""
        return self._warped(image, self.warps[k])

    # ------------------------------------------------------------------ live

    def update(self, image: Image) -> Image | None:
        """Take in the next image; the steady image of ``lag`` images ago, None before there is one.

        At the end `finish` gives the last ``lag`` images.
        """
        if self.lag is None:
            raise ValueError("lag is None: a recording goes through stabilize; give lag=0 or more")
        self._look(image)
        self._waiting.append(image)
        del self._poses[: -(self.lag + 1 + int(MEMORY * self.smoothness))]
        if np.isnan(self._poses).all():  # in the dark for long: the camera is taken to rest
            self._poses[0] = self._pose
        return self._oldest() if len(self._waiting) > self.lag else None

    def finish(self) -> Iterator[Image]:
        """The images that are still waiting."""
        while self._waiting:
            yield self._oldest()

    def _oldest(self) -> Image:
        if self._live is None:
            self._live = LivePath(self._started(), self._room, self.smoothness, self.lag or 0)
        path = np.stack(self._poses)
        at = len(path) - len(self._waiting)
        # in the dark for long: from the last image that was seen
        first = min(max(0, at - self._live.memory), int(np.flatnonzero(is_seen(path))[-1]))
        begins = first == 0 and len(self._lived) == at
        pose, steady = self._live.next(path[first:], at - first, begins=begins)
        warp = self._started().warp(pose, steady)
        self._lived.append((path[at], steady, warp))
        return self._warped(self._waiting.pop(0), warp)

    # ------------------------------------------------------------------ parts

    def numbers(self) -> tuple[tuple[str, ...], Array, Array]:
        """Names of the columns, and the camera's and the steady path (n, k), for tables."""
        model = self._started()
        if self._lived:
            parts = (np.stack(part) for part in zip(*self._lived, strict=True))
            self.path, self.steady_path, self.warps = parts
        return model.columns, model.numbers(self.path), model.numbers(self.steady_path)

    def _started(self) -> Similarity | CameraRotation:
        if self._model is None:
            raise RuntimeError("there is no image yet: call watch or update first")
        return self._model

    def _look(self, image: Image) -> None:
        size = (image.shape[1], image.shape[0])
        if self._model is None:
            self.size = size
            keep = self.keep if self.border == "crop" else 1.0
            kept = keep * np.array(size)
            self.rectangle = Rectangle(*(0.5 * (size - kept)), *kept)
            self._model = (
                Similarity(size) if self.focal is None else CameraRotation(size, self.focal)
            )
            self._room = Room(self._model, size, self.keep)
            self._moves = self.motion or FeatureMotion(self._model)
            self._pose = self._model.start
        if size != self.size:
            wanted = "{} x {}".format(*self.size)
            raise ValueError(f"an image of {size[0]} x {size[1]} pixels, the first has {wanted}")
        step = self._moves.update(image)
        self._poses.append(np.full_like(self._pose, np.nan))
        if step is not None:
            self._pose = self._poses[-1] = self._model.compose(self._pose, step)
        elif self._moves.restarted:
            # nothing ties this image to those before: the camera is where the tracker coasts to
            path = np.stack(self._poses[-int(MEMORY * self.smoothness) - 1 :])
            steady = self._model.smooth(path, np.ones(len(path)), self.smoothness)
            self._pose = self._poses[-1] = steady[-1]

    def _filled(self, path: Array, steady: Array) -> Array:
        """The path with gaps filled: corrections are interpolated, at the ends held."""
        model, seen, at = self._started(), is_seen(path), np.arange(len(path))
        if seen.all():
            return path
        known = model.difference(path[seen], steady[seen])
        between = np.stack([np.interp(at, at[seen], column) for column in known.T], axis=1)
        filled = model.add(steady, -between)
        filled[seen] = path[seen]
        return filled

    def _warped(self, image: Image, warp: Array) -> Image:
        cv2: Any = import_module("cv2")
        modes = {"replicate": cv2.BORDER_REPLICATE, "reflect": cv2.BORDER_REFLECT}
        kept = self.rectangle
        # whole and even, as most codecs want them; never beyond the rectangle
        size = int(kept.width + 1e-6) // 2 * 2, int(kept.height + 1e-6) // 2 * 2
        left = kept.left + 0.5 * (kept.width - size[0])
        top = kept.top + 0.5 * (kept.height - size[1])
        matrix = np.array([[1, 0, -left], [0, 1, -top], [0, 0, 1.0]]) @ warp
        mode = modes.get(self.border, cv2.BORDER_CONSTANT)
        if self.focal is None:
            return cv2.warpAffine(image, matrix[:2], size, borderMode=mode)
        return cv2.warpPerspective(image, matrix, size, borderMode=mode)


def steady_rectangle(warps: Array, size: tuple[int, int]) -> Rectangle:
    """The largest upright rectangle of the image's proportions inside every warped image.

    max s over (c, s): n.c + s (|n_x| w + |n_y| h) / 2 <= b for every edge n.x <= b of every image,
    a linear programme. ``warps`` (n, 3, 3), ``size`` width and height.
    """
    from scipy.optimize import linprog

    seen = apply(np.asarray(warps), corners(size))
    edges = np.roll(seen, -1, axis=1) - seen
    normals = np.stack([edges[..., 1], -edges[..., 0]], axis=-1)
    normals /= np.linalg.norm(normals, axis=-1, keepdims=True)
    width, height = size[0] - 1.0, size[1] - 1.0
    reach = 0.5 * (np.abs(normals) @ [width, height])
    bounds = (normals * seen).sum(-1)
    table = np.concatenate([normals, reach[..., None]], axis=-1).reshape(-1, 3)
    free = [(None, None), (None, None), (0, 1)]
    found: Any = linprog([0, 0, -1], A_ub=table, b_ub=bounds.ravel(), bounds=free)
    if found.status != 0:
        raise ValueError("no part of the image is seen throughout; give a smaller smoothness")
    x, y, share = found.x
    sides = (x - share * width / 2, y - share * height / 2, share * width, share * height)
    return Rectangle(*(round(float(v), 6) for v in sides))
