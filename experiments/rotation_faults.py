"""Rotations as people have them: outliers, quantised and stale poses.

outliers   24 recordings at four levels of noise, clean and with 2 % outliers of several kinds, the
           noise given and learned, beside an error-state Kalman filter with a gate, which knows the
           noise and whose acceleration and gate are the best in hindsight, run by run.
quantised  the recordings on a grid of 1e-3 and 1e-2 rad without noise, as they are and with rests.
stale      every pose sent two or three times, beside a run in which the repeats are masked.

The rates of a gyroscope are measured in `experiments.gyroscope`, forecasts in
`experiments.rotation_ahead`.
"""

from __future__ import annotations

import itertools
import warnings
from typing import Any, NamedTuple

import numpy as np

from experiments.rotations import LIMIT, folder
from experiments.store import NotAvailable, Unit
from kgmrf import RotationTracker
from kgmrf._types import Mask, Numbers

NOISE = (1e-4, 1e-3, 1e-2, 5e-2)
KINDS = {
    "clean": None,
    "90 about z": 90.0,
    "45 about z": 45.0,
    "10 about z": 10.0,
    "10 about any": 10.0,
    "5 about any": 5.0,
    "random": 180.0,
}
ACCELERATIONS = 10.0 ** np.arange(-10, 0.1, 0.5)
GATES = (16.3, 40.0, np.inf)
"""Squared distances above which the rival refuses: .999 of chi-squared, wider, none."""


class Scene(NamedTuple):
    """A recording as it is seen."""

    name: str
    times: Numbers
    truth: Numbers  # quaternions (x, y, z, w)
    seen: Numbers
    wild: Mask


def recordings() -> dict[str, tuple[Numbers, Numbers]]:
    """Stamps and quaternions (x, y, z, w) of every recording, about 30 a second."""
    path = folder() / "recordings_dev.npz"
    if not path.is_file():
        raise NotAvailable(f"no recordings: {path}")
    with np.load(path) as file:
        names = [name.removesuffix("/t") for name in file.files if name.endswith("/t")]
        return {name: (file[f"{name}/t"], file[f"{name}/q"]) for name in names}


def outliers(kind: str, n: int, g: np.random.Generator) -> Any:
    """Turns by which outliers of this kind are off."""
    from scipy.spatial.transform import Rotation

    size = np.radians(KINDS[kind] or 0.0)
    if kind == "random":
        return Rotation.random(n, random_state=int(g.integers(1 << 30)))
    axis = g.standard_normal((n, 3))
    if kind.endswith("z"):
        axis = np.outer(np.sign(axis[:, 0]), [0.0, 0.0, 1.0])
    return Rotation.from_rotvec(size * axis / np.linalg.norm(axis, axis=1, keepdims=True))


def scene(name: str, noise: float, kind: str, rate: float = 0.02) -> Scene:
    """A recording with white noise and outliers; the first frame is none."""
    from scipy.spatial.transform import Rotation

    times, truth = recordings()[name]
    n, code = len(times), sum(map(ord, name))
    g = np.random.default_rng([3, int(noise * 1e5), code])
    seen = Rotation.from_quat(truth) * Rotation.from_rotvec(noise * g.standard_normal((n, 3)))
    wild = np.zeros(n, bool)
    if kind != "clean":
        wild = g.random(n) < rate
        wild[0] = False
        turns = Rotation.identity(n).as_quat()
        turns[wild] = outliers(kind, int(wild.sum()), g).as_quat()
        seen = seen * Rotation.from_quat(turns)
    return Scene(name, times, truth, seen.as_quat(), wild)


# --------------------------------------------------------------------------- the rival


def times_quaternion(p: Numbers, q: Numbers) -> Numbers:
    """p q of quaternions (x, y, z, w)."""
    a, b, v, w = p[..., 3:], q[..., 3:], p[..., :3], q[..., :3]
    vector = a * w + b * v + np.cross(v, w)
    return np.concatenate([vector, a * b - (v * w).sum(-1, keepdims=True)], axis=-1)


def exp_quaternion(v: Numbers) -> Numbers:
    """Exp of rotation vectors."""
    angle = np.linalg.norm(v, axis=-1, keepdims=True)
    share = 0.5 * np.sinc(angle / (2 * np.pi))
    return np.concatenate([share * v, np.cos(angle / 2)], axis=-1)


def log_between(p: Numbers, q: Numbers) -> Numbers:
    """Log(P^T Q), principal."""
    d = times_quaternion(p * [-1.0, -1.0, -1.0, 1.0], q)
    d = d * np.where(d[..., 3:] < 0.0, -1.0, 1.0)
    size = np.linalg.norm(d[..., :3], axis=-1, keepdims=True)
    angle = 2 * np.arctan2(size, d[..., 3:])
    return np.asarray(d[..., :3] * np.where(size > 1e-12, angle / np.maximum(size, 1e-300), 2.0))


def gated(scenes: list[Scene], noises: list[float]) -> Numbers:
    """Mean errors in degrees of the rival for every scene and setting ``(S, Q, G)``.

    Constant velocity, the noise known; what is further than the gate is refused, and after five
    refusals in a row it starts again there.
    """
    n = max(len(s.times) for s in scenes)
    shape = (len(scenes), len(ACCELERATIONS), len(GATES))
    r = np.square(noises)[:, None, None]
    q = ACCELERATIONS[:, None] * np.ones(shape)
    gate = np.broadcast_to(np.array(GATES), shape)
    h, seen, truth = np.ones((n, len(scenes))), np.zeros((n, len(scenes), 4)), None
    truth = seen.copy()
    there = np.zeros((n, len(scenes)), bool)
    for k, s in enumerate(scenes):
        dt = np.diff(s.times, prepend=s.times[0])
        h[: len(dt), k] = dt / np.median(dt[1:9])
        seen[: len(dt), k], truth[: len(dt), k], there[: len(dt), k] = s.seen, s.truth, True
    p0, p1, p2 = r + 0 * q, 0 * q, 1e-2 + 0 * q
    frame, v = np.broadcast_to(seen[0, :, None, None], (*shape, 4)).copy(), np.zeros((*shape, 3))
    refused, total = np.zeros(shape), np.zeros(shape)
    for t in range(n):
        if t:
            step = h[t][:, None, None]
            p0, p1, p2 = (
                p0 + 2 * step * p1 + step**2 * p2 + q * step**3 / 3,
                p1 + step * p2 + q * step**2 / 2,
                p2 + q * step,
            )
            frame = times_quaternion(frame, exp_quaternion(step[..., None] * v))
            e, s = log_between(frame, seen[t][:, None, None]), p0 + r
            far = (e**2).sum(-1) > gate * s
            refused = np.where(far, refused + 1, 0)
            again, take = refused >= 5, ~far & there[t][:, None, None]
            k0, k1 = np.where(take, p0 / s, 0.0), np.where(take, p1 / s, 0.0)
            k0 = np.where(again, 1.0, k0)
            frame = times_quaternion(frame, exp_quaternion(k0[..., None] * e))
            v = np.where(again[..., None], 0.0, v + k1[..., None] * e)
            p0, p1, p2 = (
                np.where(again, r, np.where(take, p0 * r / s, p0)),
                np.where(again, 0.0, np.where(take, p1 * r / s, p1)),
                np.where(again, 1e-2, p2 - k1 * p1),
            )
            refused = np.where(again, 0, refused)
            frame = frame / np.linalg.norm(frame, axis=-1, keepdims=True)
        error = np.linalg.norm(log_between(frame, truth[t][:, None, None]), axis=-1)
        total += np.degrees(error) * there[t][:, None, None]
    return np.asarray(total / there.sum(0)[:, None, None])


# --------------------------------------------------------------------------- scores


def measure(s: Scene, **settings: Any) -> dict[str, float]:
    """Mean error, coverage and refusals of the default on one scene."""
    from scipy.spatial.transform import Rotation

    tracker = RotationTracker(**settings)
    result = tracker.filter(Rotation.from_quat(s.seen).as_matrix(), times=s.times)
    found = Rotation.from_matrix(result.rotation)
    wrong = (found.inv() * Rotation.from_quat(s.truth)).as_rotvec()
    square = np.linalg.solve(result.covariance, wrong[..., None])[..., 0]
    inside = (wrong * square).sum(axis=1)[20:] < LIMIT
    error, refused = np.degrees(np.linalg.norm(wrong, axis=1)), result.status == 3
    return {
        "error": float(error.mean()),
        "worst": float(error[20:].max()),
        "inside": float(inside.mean()),
        "false refusals": int((refused & ~s.wild).sum()),
        "false restarts": int(((result.status == 4) & ~s.wild).sum()),
        "outliers": int(s.wild.sum()),
        "outliers refused": int((refused & s.wild).sum()),
        "noise": float(np.median(result.noise_std)),
        "finite": bool(np.isfinite(result.rotation).all() and np.isfinite(result.covariance).all()),
    }


def run_outliers(kinds: list[str]) -> dict[str, Any]:
    """Every recording at every noise, clean or with outliers."""
    table: dict[str, Any] = {}
    for kind, noise in itertools.product(kinds, NOISE):
        scenes = [scene(name, noise, kind) for name in recordings()]
        rival = gated(scenes, [noise] * len(scenes))
        for s, of in zip(scenes, rival, strict=True):
            table[f"{kind} {noise:g} {s.name}"] = {
                "given": measure(s, noise_std=noise),
                "learned": measure(s),
                "gated": float(of.min()),
                "ungated": float(of[:, -1].min()),
            }
    return {"runs": table, "summary": summary(table)}


def summary(table: dict[str, Any]) -> dict[str, Any]:
    """Geometric means over recordings, by kind and noise."""
    groups: dict[str, list[Any]] = {}
    for key, row in table.items():
        groups.setdefault(key.rpartition(" ")[0], []).append(row)
    found = {}
    for group, rows in groups.items():
        line: dict[str, Any] = {}
        for way in ("given", "learned"):
            errors = np.array([row[way]["error"] for row in rows])
            rival = np.array([row["gated"] for row in rows])
            inside = [row[way]["inside"] for row in rows]
            line[way] = {
                "error": float(errors.mean()),
                "over gated": float(np.exp(np.log(errors / rival).mean())),
                "over ungated": float(
                    np.exp(np.log(errors / [row["ungated"] for row in rows]).mean())
                ),
                "mean over mean of gated": float(errors.mean() / rival.mean()),
                "inside, mean": float(np.mean(inside)),
                "inside, least": float(np.min(inside)),
                "runs with false refusals": sum(row[way]["false refusals"] > 0 for row in rows),
                "false refusals": sum(row[way]["false refusals"] for row in rows),
                "outliers refused": float(
                    sum(row[way]["outliers refused"] for row in rows)
                    / max(sum(row[way]["outliers"] for row in rows), 1)
                ),
                "lost": sum(row[way]["error"] > 5 * row["gated"] for row in rows),
                "not finite": sum(not row[way]["finite"] for row in rows),
            }
        found[group] = line
    return found


def quantised(name: str, grid: float, rests: bool) -> Scene:
    """Rotation vectors rounded to a grid, without noise; rests: 100 frames stand still, twice."""
    from scipy.spatial.transform import Rotation

    times, truth = recordings()[name]
    if rests:
        n = len(times)
        hold = np.concatenate([np.arange(n // 3), np.full(100, n // 3), np.arange(n // 3, n)])
        truth, times = truth[hold], times[0] + np.arange(len(hold)) * np.median(np.diff(times))
    vectors = Rotation.from_quat(truth).as_rotvec()
    seen = Rotation.from_rotvec(np.round(vectors / grid) * grid).as_quat()
    return Scene(name, times, truth, seen, np.zeros(len(times), bool))


def run_quantised() -> dict[str, Any]:
    """Errors on a grid; "seen" is that of the poses themselves."""
    from scipy.spatial.transform import Rotation

    table: dict[str, Any] = {}
    for grid, rests in itertools.product((1e-3, 1e-2), (False, True)):
        for name in recordings():
            s = quantised(name, grid, rests)
            off = (Rotation.from_quat(s.seen).inv() * Rotation.from_quat(s.truth)).magnitude()
            key = f"{grid:g} {'rests' if rests else 'plain'} {name}"
            table[key] = {"learned": measure(s), "seen": float(np.degrees(off).mean())}
    groups: dict[str, list[Any]] = {}
    for key, row in table.items():
        groups.setdefault(key.rpartition(" ")[0], []).append(row)
    return {
        "runs": table,
        "summary": {
            group: {
                "error": float(np.mean([row["learned"]["error"] for row in rows])),
                "over seen": float(
                    np.exp(np.mean([np.log(r["learned"]["error"] / r["seen"]) for r in rows]))
                ),
                "worst over seen": float(max(r["learned"]["error"] / r["seen"] for r in rows)),
            }
            for group, rows in groups.items()
        },
    }


def run_stale() -> dict[str, Any]:
    """Every second or third pose is fresh: error over that of the masked run, and coverage."""
    from scipy.spatial.transform import Rotation

    table: dict[str, Any] = {}
    for noise, every in itertools.product((1e-3, 1e-2), (2, 3)):
        rows = []
        for name in recordings():
            s = scene(name, noise, "clean")
            steps = np.arange(len(s.times))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # that poses repeat
                found = measure(s._replace(seen=s.seen[steps // every * every]))
            gaps = Rotation.from_quat(s.seen).as_matrix()
            gaps[steps % every > 0] = np.nan
            masked = Rotation.from_matrix(RotationTracker().filter(gaps, times=s.times).rotation)
            wrong = np.degrees((masked.inv() * Rotation.from_quat(s.truth)).magnitude())
            rows.append((found["error"] / wrong.mean(), found["inside"]))
        ratios, inside = np.array(rows).T
        table[f"noise {noise:g}, one in {every}"] = {
            "over masked": float(np.exp(np.log(ratios).mean())),
            "worst over masked": float(ratios.max()),
            "inside, mean": float(inside.mean()),
            "inside, least": float(inside.min()),
        }
    return table


def units(quick: bool) -> list[Unit]:
    """Outliers of every kind, quantised and stale poses, a gyroscope."""
    kinds = ["clean", "90 about z"] if quick else list(KINDS)
    return [
        Unit("rotation_faults", "outliers", "rotation_faults:run_outliers", {"kinds": kinds}),
        Unit("rotation_faults", "quantised", "rotation_faults:run_quantised"),
        Unit("rotation_faults", "stale", "rotation_faults:run_stale"),
        Unit("rotation_faults", "gyroscope", "gyroscope:run"),
        Unit("rotation_faults", "forecasts", "rotation_ahead:run"),
    ]
