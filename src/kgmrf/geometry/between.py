"""Rotations at any time between steps, from the rotation and the velocity of the steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgmrf._check import ObservationError
from kgmrf._time import stamps
from kgmrf._types import Numbers
from kgmrf.geometry import so

NEEDED = ("rotation", "velocity", "covariance")


def state_between(steps: Any, time: Any) -> dict[str, Numbers]:
    """The fields of a result of rotations of space at stamps ``time``, a number or ``(K,)``.

    >>> from kgmrf import RotationTracker
    >>> result = RotationTracker(noise_std=0.1).filter(np.tile(np.eye(3), (5, 1, 1)))
    >>> state_between(result, 2.5)["rotation"].round(6).tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    lacking = [name for name in NEEDED if name not in steps.fields()]
    if lacking or steps.time.ndim != 1 or steps.rotation.shape[1:] != (3, 3):
        raise ValueError(
            "state_at needs a result of one RotationTracker in three dimensions with gains='auto' "
            f"and the fields {', '.join(NEEDED)}; this has {', '.join(steps.fields())}"
        )
    at = np.asarray(stamps(np.asarray(time)), dtype=float)
    first, last = (float(steps.time[k]) for k in (0, -1))
    if at.ndim > 1 or not ((at >= first) & (at <= last)).all():
        raise ObservationError(
            f"time must be a stamp, or a row of them, from {first:.15g} to {last:.15g}, got "
            f"{time!s:.80}; later ones are forecasts: tracker.state_at(time)"
        )
    velocity = np.asarray(so.vee(steps.velocity))
    known = steps.time, steps.rotation, velocity, steps.covariance
    found = between(*known, np.atleast_1d(at))
    spread = np.sqrt(np.diagonal(found["covariance"], axis1=-2, axis2=-1))
    found["angle_std"] = np.abs(np.asarray(so.hat(spread)))
    found["velocity"] = np.asarray(so.hat(found["velocity"]))
    return {"time": at, **{k: a if at.ndim else a[0] for k, a in found.items()}}


def between(
    times: Numbers, rotations: Numbers, velocities: Numbers, covariances: Numbers, at: Numbers
) -> dict[str, Numbers]:
    """Rotation, velocity and covariance at stamps ``at`` between steps, from those of the steps.

    times ``(T,)``, rotations ``(T, 3, 3)``, velocities ``(T, 3)`` in the body frame.
    R(t) = R_0 Exp(x(t)): x is the cubic with x(0) = 0, x'(0) = w_0, x(h) = Log(R_0^T R_1) and
    x'(h) = Jr(x(h))^-1 w_1, the mean of a motion with white noise on its acceleration, given both
    ends; less than half a turn between them. The covariance is that of the ends, linear in time,
    and q (h s (1 - s))^3 / 3 for what moves between them, q the variance of the acceleration there.

    >>> turns = np.stack([np.eye(3), [[0, -1, 0], [1, 0, 0], [0, 0, 1]]])
    >>> speed = np.array([[0.0, 0.0, np.pi / 2]] * 2)
    >>> found = between(np.array([0.0, 1.0]), turns, speed, np.zeros((2, 3, 3)), np.array([0.5]))
    >>> np.degrees(np.arctan2(*found["rotation"][0, [1, 0], 0])).round(9).item()
    45.0
    """
    k = np.clip(np.searchsorted(times, at, side="right") - 1, 0, max(len(times) - 2, 0))
    n = np.minimum(k + 1, len(times) - 1)
    parts = [array[which] for which in (k, n) for array in (rotations, velocities, covariances)]
    there = ~np.any([np.isnan(part).reshape(len(at), -1).any(axis=1) for part in parts], axis=0)
    out = {"rotation": (3, 3), "velocity": (3,), "covariance": (3, 3)}
    found = {name: np.full((len(at), *shape), np.nan) for name, shape in out.items()}
    if not there.any():
        return found
    r0, w0, p0, r1, w1, p1 = (part[there] for part in parts)
    h = (times[n] - times[k])[there]
    apart = h > 0.0  # where two steps have one stamp the later one counts
    safe = np.where(apart, h, 1.0)
    s = np.where(apart, (at - times[k])[there] / safe, 1.0)
    now, speed = _cubic(r0, w0, r1, w1, safe, s)
    back, on = (np.swapaxes(now, 1, 2) @ r for r in (r0, r1))
    first, second = (m @ p @ np.swapaxes(m, 1, 2) for m, p in ((back, p0), (on, p1)))
    free = _unrest(times, rotations, velocities)[k[there]] * (safe * s * (1.0 - s)) ** 3 / 3.0
    found["rotation"][there] = now
    found["velocity"][there] = np.where(apart[:, None], speed, w1)
    share = s[:, None, None]
    linear = (1.0 - share) * first + share * second
    found["covariance"][there] = linear + free[:, None, None] * np.eye(3)
    return found


def _cubic(
    r0: Numbers, w0: Numbers, r1: Numbers, w1: Numbers, h: Numbers, s: Numbers
) -> tuple[Numbers, Numbers]:
    """Rotation and velocity at a share ``s`` of the time h from one end to the other ``(K,)``."""
    from scipy.spatial.transform import Rotation  # slow to import

    begin, end = Rotation.from_matrix(r0), Rotation.from_matrix(r1)
    step, h, s = (begin.inv() * end).as_rotvec(), h[:, None], s[:, None]
    v0, v1 = h * w0, h * np.linalg.solve(right_jacobian(step), w1[..., None])[..., 0]
    x = (s**3 - 2 * s**2 + s) * v0 + (3 * s**2 - 2 * s**3) * step + (s**3 - s**2) * v1
    slope = (3 * s**2 - 4 * s + 1) * v0 + 6 * (s - s**2) * step + (3 * s**2 - 2 * s) * v1
    speed = (right_jacobian(x) @ slope[..., None])[..., 0] / h
    return (begin * Rotation.from_rotvec(x)).as_matrix(), speed


def _unrest(times: Numbers, rotations: Numbers, velocities: Numbers) -> Numbers:
    """Variance of the acceleration per unit of time after each step ``(T,)``.

    Each step is compared with the cubic through its neighbours, from which it differs by
    q (H s (1 - s))^3 / 3; q is the mean over the four steps about an interval.
    """
    from scipy.spatial.transform import Rotation  # slow to import

    square = np.full(len(times), np.nan)
    whole, part = times[2:] - times[:-2], times[1:-1] - times[:-2]
    both = np.concatenate([rotations.reshape(len(times), 9), velocities], axis=1)
    known = np.asarray(np.isfinite(both).all(axis=1))
    use = (part > 0.0) & (part < whole) & known[:-2] & known[1:-1] & known[2:]
    if use.any():
        here, h, s = np.flatnonzero(use) + 1, whole[use], part[use] / whole[use]
        r0, w0, r1, w1 = (of[here + k] for k in (-1, 1) for of in (rotations, velocities))
        expected = Rotation.from_matrix(_cubic(r0, w0, r1, w1, h, s)[0])
        wrong = (expected.inv() * Rotation.from_matrix(rotations[here])).as_rotvec()
        square[here] = (wrong**2).mean(axis=1) * 3.0 / (h * s * (1.0 - s)) ** 3
    padded = np.pad(square, (1, 2), constant_values=np.nan)
    near = np.stack([padded[k : k + len(times)] for k in range(4)])
    there = ~np.isnan(near)
    return np.asarray(np.where(there, near, 0.0).sum(axis=0) / np.maximum(there.sum(axis=0), 1))


def right_jacobian(v: Numbers) -> Numbers:
    """Exp(v + dv) = Exp(v) Exp(Jr dv): Jr = I - (1 - cos t)/t^2 N + (t - sin t)/t^3 N^2.

    >>> right_jacobian(np.zeros((2, 3))).shape
    (2, 3, 3)
    """
    t, n = np.linalg.norm(v, axis=-1)[..., None, None], np.asarray(so.hat(v))
    small = t < 1e-2
    safe = np.where(small, 1.0, t)
    a = np.where(small, 1 / 2 - t**2 / 24, (1 - np.cos(safe)) / safe**2)
    b = np.where(small, 1 / 6 - t**2 / 120, (1 - np.sin(safe) / safe) / safe**2)
    return np.asarray(np.eye(3) - a * n + b * n @ n)
