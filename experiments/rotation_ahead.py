"""Forecasts of recorded rotations one, three and ten frames ahead, the noise given and learned.

Errors over those of a damped error-state Kalman filter that knows the noise and whose acceleration
and damping are the best in hindsight, run by run and horizon by horizon; over holding the last
observation; and how often the region of 95 % holds the truth, also with no frame ahead.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.rotation_faults import (
    NOISE,
    Scene,
    exp_quaternion,
    log_between,
    recordings,
    scene,
    times_quaternion,
)
from experiments.rotations import LIMIT
from kgmrf.engines import Lines
from kgmrf.engines.rotations import Rotations

HORIZONS = (1, 3, 10)
FIRST = 20
"""The first frame that is scored."""
ACCELERATIONS = 10.0 ** np.arange(-10.0, 0.1)
DAMPINGS = np.array([1e-9, 0.01, 0.03, 0.1, 0.3, 1.0, 10.0])


def damped(s: Scene, noise: float) -> tuple[list[float], list[float]]:
    """Least mean errors of the rival over its settings, and those of holding, per horizon."""
    n, r = len(s.times), noise**2
    h = np.diff(s.times, prepend=s.times[0])
    h = h / np.median(h[1:9])
    shape = (len(ACCELERATIONS), len(DAMPINGS))
    q, g = ACCELERATIONS[:, None] * np.ones(shape), DAMPINGS * np.ones(shape)
    p0, p1, p2 = r + 0 * q, 0 * q, 1e-2 + 0 * q
    frame, v = np.broadcast_to(s.seen[0], (*shape, 4)).copy(), np.zeros((*shape, 3))
    frames, speeds = np.empty((n, *shape, 4)), np.empty((n, *shape, 3))
    for t in range(n):
        if t:
            keep = np.exp(-g * h[t])
            beta = (1 - keep) / g
            p0, p1, p2 = (
                p0 + 2 * beta * p1 + beta**2 * p2 + q * h[t] ** 3 / 3,
                keep * (p1 + beta * p2) + q * h[t] ** 2 / 2,
                keep**2 * p2 + q * h[t],
            )
            frame = times_quaternion(frame, exp_quaternion(beta[..., None] * v))
            e, total = log_between(frame, s.seen[t]), p0 + r
            k0, k1 = p0 / total, p1 / total
            frame = times_quaternion(frame, exp_quaternion(k0[..., None] * e))
            frame /= np.linalg.norm(frame, axis=-1, keepdims=True)
            v = keep[..., None] * v + k1[..., None] * e
            p0, p1, p2 = p0 * r / total, p1 * r / total, p2 - k1 * p1
        frames[t], speeds[t] = frame, v
    best, held, time = [], [], np.cumsum(h)
    for ahead in HORIZONS:
        beta = (1 - np.exp(-g * (time[ahead:] - time[:-ahead])[:, None, None])) / g
        moved = exp_quaternion(beta[..., None] * speeds[:-ahead])
        e = log_between(times_quaternion(frames[:-ahead], moved), s.truth[ahead:, None, None])
        best.append(float(np.linalg.norm(e, axis=-1)[FIRST:].mean(axis=0).min()))
        e = log_between(s.seen[:-ahead], s.truth[ahead:])
        held.append(float(np.linalg.norm(e, axis=-1)[FIRST:].mean()))
    return best, held


def forecasts(s: Scene, noise_std: float | None) -> tuple[list[float], list[float]]:
    """Mean errors per horizon; how often the region holds the truth, with none ahead first."""
    from scipy.spatial.transform import Rotation

    engine, truth, n = Rotations(noise_std=noise_std), Rotation.from_quat(s.truth), len(s.times)
    seen, dt = Rotation.from_quat(s.seen).as_matrix(), np.diff(s.times, prepend=s.times[0])
    rows, kept, one = engine.init(1), np.empty((n, engine.size)), np.ones(1)
    track = np.zeros(1, dtype=np.int64)
    records = np.empty((n, engine.record_size))
    for t in range(n):
        step = Lines(track, seen[t : t + 1], one, dt[t : t + 1].copy())
        records[t] = engine.advance(rows, step)[1][0]
        kept[t] = rows[0]
    settings, errors, inside = engine.settings.copy(), [], []
    settings[:, 0] = 1.0  # each row keeps its unit of time
    for ahead in (0, *HORIZONS):
        m = n - ahead
        over = s.times[ahead:] - s.times[:m]
        gap = Lines(np.arange(m), np.zeros((m, 3, 3)), np.zeros(m), over)
        found = engine.advance(kept[:m].copy(), gap, None, settings)[1] if ahead else records
        view = engine.view(found)
        wrong = (Rotation.from_matrix(view["rotation"]).inv() * truth[ahead:]).as_rotvec()[FIRST:]
        square = np.linalg.solve(view["covariance"][FIRST:], wrong[..., None])[..., 0]
        errors.append(float(np.linalg.norm(wrong, axis=1).mean()))
        inside.append(float(((square * wrong).sum(axis=1) < LIMIT).mean()))
    return errors[1:], inside


def run() -> dict[str, Any]:
    """Every recording at every noise, and means over recordings."""
    table: dict[str, Any] = {}
    for noise in NOISE:
        for name in recordings():
            s = scene(name, noise, "clean")
            best, held = damped(s, noise)
            row: dict[str, Any] = {}
            for way, noise_std in (("given", noise), ("learned", None)):
                errors, inside = forecasts(s, noise_std)
                row[way] = {
                    "over damped": (np.array(errors) / best).tolist(),
                    "over holding": (np.array(errors) / held).tolist(),
                    "inside": inside,
                }
            table[f"{noise:g} {name}"] = row
    return {"horizons": HORIZONS, "runs": table, "summary": summary(table)}


def summary(table: dict[str, Any]) -> dict[str, Any]:
    """Geometric means of the ratios, means and least of the coverage, by noise."""
    found: dict[str, Any] = {}
    for noise in NOISE:
        for way in ("given", "learned"):
            rows = [row[way] for key, row in table.items() if key.startswith(f"{noise:g} ")]
            ratios = {name: np.array([row[name] for row in rows]) for name in rows[0]}
            found[f"{noise:g} {way}"] = {
                "over damped": np.exp(np.log(ratios["over damped"]).mean(axis=0)).tolist(),
                "over holding": np.exp(np.log(ratios["over holding"]).mean(axis=0)).tolist(),
                "over holding, most": ratios["over holding"].max(axis=0).tolist(),
                "inside, mean": ratios["inside"].mean(axis=0).tolist(),
                "inside, least": ratios["inside"].min(axis=0).tolist(),
            }
    return found
