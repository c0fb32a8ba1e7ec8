"""The steady path of a camera that is still running, and how far it may leave the camera's."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from kgmrf.vision.camera import CameraRotation, Similarity, apply

__all__ = ["LivePath", "Room", "corners", "is_seen"]

Array = NDArray[np.float64]
Camera: TypeAlias = Similarity | CameraRotation
CAMERA, NEAR, EASE = 1.0, 0.25, 1 / 7.5
"""Time constants of the camera's slow and near path and of the shown one, as shares of the
smoothness."""

MEMORY = 6
"""How many time constants the camera's path is remembered; older images have no weight left."""

FREE, MOST_ROOM = 0.5, 0.9
"""Share of the room that the slow path uses as it likes, and the largest that it may use."""

EDGE, STEEP, MOST = 0.8, 8, 100.0
"""Share of the room from which on the edge pushes back, how steeply, and the largest weight: where
a fast pan keeps to the edge for long, more would throw the plan from one side to the other."""

FIXED = 1e3
"""Weight of what was shown, in units of the stiffness of the path that continues it."""


def corners(size: tuple[int, int], share: float = 1.0) -> Array:
    """Corners (4, 2) of the central rectangle of an image that is ``share`` of width and height."""
    half = 0.5 * (np.array(size, dtype=float) - 1)
    return half + share * half * np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]])


def is_seen(path: Array) -> NDArray[np.bool_]:
    """Which poses are no gaps, (n,)."""
    return ~np.isnan(path.reshape(len(path), -1)[:, 0])


class Room:
    """How far the central rectangle of share ``keep`` may move inside an image."""

    def __init__(self, model: Camera, size: tuple[int, int], keep: float) -> None:
        self.model = model
        self.inner = corners(size, keep)
        self.outward = np.sign(self.inner - self.inner.mean(0))
        self.room = 0.5 * (1 - keep) * (np.array(size) - 1)

    def used(self, path: Array, steady: Array) -> Array:
        """Share of the room that each image needs, (n,); above 1 the rectangle leaves the image."""
        shift = apply(self.model.warp(steady, path), self.inner) - self.inner
        return (self.outward * shift / self.room).max(axis=(1, 2))

    def clamped(self, path: Array, steady: Array) -> Array:
        """The steady path, drawn to the camera's as far as the rectangle needs."""
        for _ in range(8):
            used = self.used(path, steady)
            if used.max() <= 1:
                break
            share = np.maximum(used, 1.0)[:, None] * (1 + 1e-6 * (used > 1)[:, None])
            steady = self.model.add(path, self.model.difference(path, steady) / share)
        return steady


def limited(used: Array) -> Array:
    """Share of the room that may be used where ``used`` is wanted: the same, then less and less.

    >>> limited(np.array([0.2, 0.5, 5.0])).round(3).tolist()
    [0.2, 0.5, 0.9]
    """
    over = np.maximum(used - FREE, 0.0) / (MOST_ROOM - FREE)
    return np.minimum(used, FREE) + (MOST_ROOM - FREE) * (1 - np.exp(-over))


class LivePath:
    """argmin over s of ease^4 sum |s''|^2 + sum w_k |s_k - c_k|^2, begun with what was shown.

    c is the camera's path, smoothed with what is known until ``lag`` images later and continued at
    its last velocity: what is still to come is part of the plan, so that the shown path does not
    follow shake and does not swing. It is the slow path as far as there is room; where that would
    leave the room (a camera that pans faster and faster), it keeps to the `limited` share of its
    distance from the near path, whose time constant is a quarter. Of the plan one image is shown;
    the next image makes a new one.
    The time constant ``ease`` is short without a lag and at most doubles with it. Where the plan
    nears the edge, w_k = 1 + (used / EDGE)^STEEP draws it to the camera, which is expected to go on
    along the near path; images of the past have no weight that could be raised.
    """

    def __init__(self, model: Camera, room: Room, smoothness: float, lag: int) -> None:
        self.model, self.room = model, room
        self.camera = max(1.0, CAMERA * smoothness)
        self.near = max(1.0, NEAR * smoothness)
        ease = EASE * smoothness
        self.ease = max(1.0, ease + min(lag, ease))
        self.memory = int(MEMORY * self.camera)
        self.horizon = int(2 * self.ease) + 2
        self.weights = np.ones(lag + 1 + self.horizon)
        self.shown: list[Array] = []

    def next(self, path: Array, at: int, *, begins: bool) -> tuple[Array, Array]:
        """Pose and steady pose of image ``at`` of a path; ``begins``: its first image is the first.

        The pose is the camera's own or, in a gap, where it is taken to be.
        """
        model, known = self.model, len(path) - at
        to_come = np.full((self.horizon, *path.shape[1:]), np.nan)
        extended = np.concatenate([path, to_come])
        aim, near = (
            self._smoothed(extended, time, begins)[at:] for time in (self.camera, self.near)
        )
        camera = near.copy()
        seen = is_seen(path[at:])
        camera[:known][seen] = path[at:][seen]
        wanted = np.maximum(self.room.used(near, aim), 1e-9)
        share = (limited(wanted) / wanted)[:, None]
        aim = model.add(near, model.difference(near, aim) * share)

        size = known + self.horizon
        weights = np.append(self.weights[1:], self.weights[-1])[:size]
        # the edge is where the camera is, not where its slow path is
        pulled = model.difference(aim, camera) * (1 - 1 / weights)[:, None]
        shown = self.shown[-4:]
        rows = np.concatenate([*(pose[None] for pose in shown), model.add(aim, pulled)])
        fixed = np.full(len(shown), FIXED * self.ease**4)
        plan = model.smooth(rows, np.append(fixed, weights), self.ease)[len(shown) :]
        used = np.maximum(self.room.used(camera, plan), 0.0)
        # one plan for each image: half way to the weights that this plan asks for
        self.weights = np.sqrt(weights * np.minimum(1 + (used / EDGE) ** STEEP, MOST))
        steady = self.room.clamped(camera[:1], plan[:1])[0]
        self.shown = [*shown, steady]
        return camera[0], steady

    def _smoothed(self, path: Array, time: float, begins: bool) -> Array:
        rest = 20.0 * time**-3 if begins else 1.0
        return self.model.smooth(path, np.ones(len(path)), time, rest)
