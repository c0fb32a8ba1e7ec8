"""The motion of the camera between images: from features, or as a file says.

A *pose* says where the camera looks, a *step* its motion since the last pose. `Similarity`
follows shift, turn and zoom in the image plane, `CameraRotation` the orientation of a camera of
known focal length. Both compose steps on their group; the path is smoothed by the Gauss-Markov
random field behind our trackers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solveh_banded
from scipy.spatial.transform import Rotation, Slerp

from kgmrf import _deprecated
from kgmrf.geometry import so

__all__ = ["CameraRotation", "FeatureMotion", "RecordedMotion", "Similarity"]

Array = NDArray[np.float64]
FEWEST, MOST = 12, 200
"""Points that must agree on a motion (with fewer the image is a gap), and corners kept."""

ABRUPT = 8.0
"""How many times the usual change of a step shows that other points move otherwise."""

WORKING_SIZE = 640
"""Pixels on the longer side of the images in which corners are followed."""


def smoothed(rows: Array, weights: Array, smoothness: float, rate_prior: float = 1.0) -> Array:
    """The constant-velocity smoother of `VectorTracker` as one banded solve, (n, k); NaN: gaps.

    In units of the shake's variance, ``smoothness**-4`` is the variance of the acceleration and
    ``rate_prior`` that of the first velocity. The first position is free. The unknowns are position
    and velocity of every image in turn; their precision (:mod:`kgmrf.smoothing.gmrf`) has three
    diagonals beside its own, so that the cost is linear in n.
    """
    n, seen = len(rows), np.isfinite(rows).all(axis=1)
    band = np.zeros((4, n, 2))  # band[i, t, j]: entry (2t + j + i, 2t + j)
    band[0, :-1] += [12, 4]  # F^T Q^-1 F of the step that begins here
    band[0, 1:] += [12, 4]  # Q^-1 of the step that ends here
    band[1, :-1, 0] += 6
    band[1, 1:, 0] -= 6
    band[1, :-1, 1], band[2, :-1], band[3, :-1, 0] = -6, [-12, 2], 6  # -Q^-1 F
    band *= smoothness**4.0
    band[0, :, 0] += np.where(seen, weights, 0.0)
    band[0, 0] += [1e-12, 1 / rate_prior]
    centre = rows[seen].mean(axis=0)  # the free position is about 0
    pull = np.zeros((n, 2, rows.shape[1]))
    pull[seen, 0] = weights[seen, None] * (rows[seen] - centre)
    found = solveh_banded(band.reshape(4, -1), pull.reshape(2 * n, -1), lower=True)
    return np.asarray(found)[::2] + centre


class Similarity:
    """x -> e^l R(a) (x - c) + c + p about the centre c of the image; pose (p_x, p_y, a, l)."""

    columns = ("x", "y", "angle", "log_scale")
    start: Array = np.zeros(4)
    smooth = staticmethod(smoothed)

    def __init__(self, size: tuple[int, int]) -> None:
        self.centre = (np.array(size, dtype=float) - 1) / 2

    def fit(self, before: Array, after: Array, threshold: float) -> tuple[Array, Any] | None:
        """The step that most pairs of points (n, 2) agree on, and which pairs do."""
        import cv2

        matrix, inliers = cv2.estimateAffinePartial2D(
            after - self.centre, before - self.centre, ransacReprojThreshold=threshold
        )
        if matrix is None or inliers.sum() < FEWEST:
            return None
        (a, _, x), (b, _, y) = matrix
        step = np.array([x, y, np.arctan2(b, a), np.log(np.hypot(a, b))])
        # a camera does not zoom by half from one image to the next: a wrong fit does
        return (step, inliers.ravel() > 0) if abs(step[3]) < 0.4 else None

    def compose(self, pose: Array, step: Array) -> Array:
        """The pose after a step."""
        shift = np.exp(pose[3]) * so.exp(so.hat(pose[2:3])) @ step[:2]
        return np.concatenate([pose[:2] + shift, pose[2:] + step[2:]])

    def difference(self, poses: Array, others: Array) -> Array:
        """What leads from poses to others, (n, 4)."""
        return others - poses

    def add(self, poses: Array, differences: Array) -> Array:
        """The others."""
        return poses + differences

    def numbers(self, poses: Array) -> Array:
        """Poses as rows of a table."""
        return poses

    def warp(self, pose: Array, steady: Array) -> Array:
        """Pixels of images at ``pose`` (..., 4) -> pixels of steady images, (..., 3, 3)."""
        return np.linalg.inv(self._matrix(steady)) @ self._matrix(pose)

    def _matrix(self, pose: Array) -> Array:
        matrix = np.zeros((*pose.shape[:-1], 3, 3))
        matrix[..., :2, :2] = np.exp(pose[..., 3, None, None]) * so.exp(so.hat(pose[..., 2:3]))
        matrix[..., :2, 2] = pose[..., :2] + self.centre - matrix[..., :2, :2] @ self.centre
        matrix[..., 2, 2] = 1.0
        return matrix


class CameraRotation:
    """x -> K R K^-1 x: a camera that turns in space; pose R (3, 3), from the camera to the world.

    ``focal`` is the focal length in pixels; the axes are right, down, forward.
    """

    columns = ("turn_x", "turn_y", "turn_z")
    start: Array = np.eye(3)

    def __init__(self, size: tuple[int, int], focal: float) -> None:
        if not (np.isfinite(focal) and focal > 0):
            raise ValueError(f"the focal length must be a positive number of pixels, got {focal}")
        x, y = (np.array(size, dtype=float) - 1) / 2
        self.camera = np.array([[focal, 0, x], [0, focal, y], [0, 0, 1.0]])

    def fit(self, before: Array, after: Array, threshold: float) -> tuple[Array, Any] | None:
        """The step that most pairs of points (n, 2) agree on, and which pairs do."""
        import cv2

        matrix, inliers = cv2.findHomography(after, before, cv2.RANSAC, threshold)
        if matrix is None or inliers.sum() < FEWEST:
            return None
        chosen = inliers.ravel() > 0
        u, _, vt = np.linalg.svd(self._rays(before[chosen]).T @ self._rays(after[chosen]))
        step = u @ np.diag([1, 1, np.linalg.det(u @ vt)]) @ vt
        return step, chosen

    def _rays(self, points: Array) -> Array:
        rays = np.linalg.solve(self.camera, np.vstack([points.T, np.ones(len(points))])).T
        return rays / np.linalg.norm(rays, axis=1, keepdims=True)

    def compose(self, pose: Array, step: Array) -> Array:
        """The pose after a step."""
        return so.polish(pose @ step)

    def difference(self, poses: Array, others: Array) -> Array:
        """What leads from poses to others, (n, 3), in the camera's axes."""
        return so.vee(so.log(np.swapaxes(poses, -1, -2) @ others))

    def add(self, poses: Array, differences: Array) -> Array:
        """The others."""
        return poses @ so.exp(so.hat(differences))

    def numbers(self, poses: Array) -> Array:
        """Poses as rows of a table: rotation vectors in radians, without jumps of a whole turn."""
        seen = ~np.isnan(poses[:, 0, 0])
        rows = np.full((len(poses), 3), np.nan)
        known = poses[seen]
        steps = self.difference(np.concatenate([np.eye(3)[None], known[:-1]]), known)
        rows[seen] = np.cumsum(steps, axis=0)
        return rows

    def smooth(
        self, poses: Array, weights: Array, smoothness: float, rate_prior: float = 1.0
    ) -> Array:
        """The steady poses behind the seen ones (n, 3, 3); matrices of NaN are gaps.

        Gauss-Newton: turns in the camera's axes add up to second order in the turn between images,
        so the path is smoothed as vectors and what is left is smoothed again.
        """
        seen = ~np.isnan(poses[:, 0, 0])
        last = np.maximum.accumulate(np.where(seen, np.arange(len(poses)), seen.argmax()))
        steady = poses[last]
        for _ in range(3):
            rows = self.numbers(steady)
            wanted = rows + self.difference(steady, poses)
            steady = self.add(steady, smoothed(wanted, weights, smoothness, rate_prior) - rows)
        return so.polish(steady)

    def warp(self, pose: Array, steady: Array) -> Array:
        """Pixels of images at ``pose`` (..., 3, 3) -> pixels of steady images, (..., 3, 3)."""
        return self.camera @ np.swapaxes(steady, -1, -2) @ pose @ np.linalg.inv(self.camera)


def apply(matrices: Array, points: Array) -> Array:
    """Points (k, 2) mapped by matrices (..., 3, 3): (..., k, 2)."""
    mapped = np.swapaxes(matrices @ np.vstack([points.T, np.ones(len(points))]), -1, -2)
    return mapped[..., :2] / mapped[..., 2:]


class _View(NamedTuple):
    """An image, corners in it, and which of them went along with the camera before."""

    grey: Any
    points: Any
    trusted: Any


class _Steps:
    """Steps one after another, joined where points of another motion take over."""

    def __init__(self, model: Similarity | CameraRotation) -> None:
        self.model = model
        self.last: Array | None = None
        self.count, self.usual = 0, 0.0
        self.added: Array | None = None  # what other points move less than the camera

    def joined(self, step: Array, by_all: bool) -> Array:
        """The camera's step; ``by_all``: not those points decided that went along before."""
        model, last = self.model, self.last
        now = step if self.added is None else model.add(step[None], self.added)[0]
        if last is not None:
            change = float(np.linalg.norm(model.difference(last[None], now[None])))
            if by_all and self.count >= FEWEST and change > ABRUPT * self.usual:
                self.added, now = model.difference(step[None], last[None]), last
            else:
                self.count += 1
                self.usual += (change - self.usual) / min(self.count, FEWEST)
        self.last = now
        return now


class FeatureMotion:
    """Corners followed by optical flow, and the motion that most of them agree on (RANSAC).

    Those that went along so far decide. An image without enough corners is a gap: the next is
    compared with the last good one, and if that fails with the one just before, from which the path
    then starts again. Where the background has left the view and what remains moves otherwise, the
    difference is added from then on: the path goes on as fast as before, beside what is seen.
    """

    def __init__(self, model: Similarity | CameraRotation) -> None:
        self.model = model
        self.restarted = False
        self._good: _View | None = None
        self._lost: _View | None = None
        self._steps = _Steps(model)

    def update(self, image: Any) -> Array | None:
        """The step from the last image that had one, or None."""
        grey, scale = self._small(image)
        self.restarted = False
        if self._good is None:
            self._good = self._view(grey)
            return self.model.start
        if (found := self._match(self._good, grey, scale)) is not None:
            step, self._good, self._lost = *found, None
            return self._steps.joined(step, self._by_all)
        # fast shake: the last good image is out of reach, but those after it may know each other
        if self._lost is not None and (found := self._match(self._lost, grey, scale)) is not None:
            self.restarted, self._good, self._lost = True, found[1], None
        else:
            self._lost = self._view(grey)
        return None

    def _match(self, view: _View, grey: Any, scale: float) -> tuple[Array, _View] | None:
        """The step from another image to this one, and what this one shows."""
        import cv2

        if len(view.points) < FEWEST:
            return None
        flow: Any = cv2.calcOpticalFlowPyrLK  # its type stubs do not know that None will do
        found, status, _ = flow(view.grey, grey, view.points, None)
        good = status.ravel() > 0
        before, after = ((p[good].reshape(-1, 2) + 0.5) * scale - 0.5 for p in (view.points, found))
        for threshold in (1.5, 4.5):  # blurred corners are less exact
            fitted = self._agreed(before, after, view.trusted[good], threshold * scale)
            # a wrong match is off by the distance of corners: this share of them agrees by chance
            chance = 1.5 * (threshold / _apart(grey)) ** 2
            if fitted is not None and fitted[1].sum() > chance * good.sum():
                return fitted[0], self._view(grey, found[good][fitted[1]])
        return None

    def _agreed(
        self, before: Array, after: Array, trusted: Any, threshold: float
    ) -> tuple[Array, Any] | None:
        """The step of the points that went along before; of all where these are too few.

        What enters the view, however large, does not outvote the background.
        """
        model = self.model
        self._by_all = False
        if trusted.sum() >= 2 * FEWEST:
            fitted = model.fit(before[trusted], after[trusted], threshold)
            if fitted is not None:
                warp = model.warp(model.compose(model.start, fitted[0]), model.start)
                off = np.hypot(*(apply(warp, after) - before).T)
                return fitted[0], off < threshold
        self._by_all = True
        return model.fit(before, after, threshold) if len(before) >= FEWEST else None

    def _small(self, image: Any) -> tuple[Any, float]:
        import cv2

        grey = cv2.cvtColor(image, cv2.COLOR_BGR2GRAY) if image.ndim == 3 else image
        scale = max(1.0, max(grey.shape) / WORKING_SIZE)
        if scale > 1:
            size = (round(grey.shape[1] / scale), round(grey.shape[0] / scale))
            grey = cv2.resize(grey, size, interpolation=cv2.INTER_AREA)
        return grey, scale

    def _view(self, grey: Any, points: Any = None) -> _View:
        """An image with the corners that were followed into it, and new ones for those lost."""
        import cv2

        old = np.zeros((0, 1, 2), np.float32) if points is None else points
        new = None
        if len(old) < 0.6 * MOST:
            apart = _apart(grey)
            free = np.full(grey.shape, 255, np.uint8)
            for x, y in old.reshape(-1, 2):
                cv2.circle(free, (round(float(x)), round(float(y))), round(apart), 0, -1)
            new = cv2.goodFeaturesToTrack(grey, MOST - len(old), 0.01, apart, mask=free)
        both = old if new is None else np.concatenate([old, new])
        return _View(grey, both, np.arange(len(both)) < len(old))


def _apart(grey: Any) -> float:
    """Least distance of two corners in an image, in pixels."""
    return max(grey.shape) / 40


class RecordedMotion:
    """The orientation of the camera (n, 3, 3) at every image, from a gyroscope or a trajectory.

    Matrices of NaN are gaps, as are images beyond the last.
    """

    restarted = False

    def __init__(self, rotations: Array) -> None:
        self.rotations = np.asarray(rotations, dtype=float)
        self._next, self._last = 0, None

    def update(self, image: Any) -> Array | None:
        """The step from the last image that had one, or None."""
        k, self._next = self._next, self._next + 1
        if k >= len(self.rotations) or np.isnan(self.rotations[k, 0, 0]):
            return None
        last, self._last = self._last, self.rotations[k]
        return np.eye(3) if last is None else last.T @ self.rotations[k]

    @classmethod
    def sampled(cls, rotations: Array, stamps: Array, times: Array) -> RecordedMotion:
        """Orientations (m, 3, 3) at ``stamps`` as seen by images at ``times`` of the same clock.

        Between stamps they turn at a constant rate; images outside the stamps are gaps.
        """
        if len(stamps) < 2:
            raise ValueError(f"a motion needs two time stamps at least, got {len(stamps)}")
        inside = (times >= stamps[0] - 1e-9) & (times <= stamps[-1] + 1e-9)
        if not inside.any():
            raise ValueError(
                f"no image falls into the motion: it lasts from {stamps[0]:g} to {stamps[-1]:g}, "
                f"the first image is at {times[0]:g}"
            )
        later = np.append(True, np.diff(stamps) > 0)  # of equal stamps the first counts
        between = Slerp(stamps[later], Rotation.from_matrix(rotations[later]))
        found = between(np.clip(times, stamps[0], stamps[-1])).as_matrix()
        return cls(np.where(inside[:, None, None], found, np.nan))

    @staticmethod
    def integrated(rates: Array, stamps: Array) -> Array:
        """Orientations (m, 3, 3) from a gyroscope's rates (m, 3), rad/s in the camera's axes."""
        turns = 0.5 * (rates[1:] + rates[:-1]) * np.diff(stamps)[:, None]
        out = [np.eye(3)]
        for step in so.exp(so.hat(np.nan_to_num(turns))):
            out.append(so.polish(out[-1] @ step))
        return np.stack(out)


__getattr__ = _deprecated.names(__name__, {"Turning": (__name__, "CameraRotation")})
