"""Rotations without settings: real trajectories, the camera's two protocols, and the cost.

real       ten recorded trajectories (needs the data), at 30 frames a second, 1,000 frames from
           their middle, seen with four levels of noise, with and without gaps of nine frames,
           with and without 2 % (or 5 %) gross outliers; the noise given and learned.
protocols  the two readings of the paper's camera study, seeds 10-109, the noise given and learned.
cost       one update, and the first use in a process.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from experiments import camera
from experiments.store import NotAvailable, Unit
from kgmrf import RotationTracker, metrics, simulate
from kgmrf._types import Numbers
from kgmrf.geometry import so

NOISE = (1e-4, 1e-3, 1e-2, 5e-2)
LIMIT = 7.815  # 95 % of chi-squared with three degrees of freedom
OLD_BANK = Path(__file__).with_name("rotations_old_bank.json")
"""Errors of the bank of 74 models with the right noise on these runs, at commit b00c79c."""


def folder() -> Path:
    """Where the recorded rotations are."""
    folder = Path(os.environ.get("KGMRF_DATA", ""))
    if not (folder / "rotation" / "tum").is_dir():
        raise NotAvailable("no recorded rotations: set KGMRF_DATA to the folder of the data")
    return folder / "rotation"


def recordings() -> dict[str, tuple[Numbers, Numbers]]:
    """Stamps in seconds and quaternions (x, y, z, w) of every recording, as recorded."""
    from scipy.io import loadmat

    found: dict[str, tuple[Numbers, Numbers]] = {}
    for path in sorted((folder() / "tum").glob("*.txt")):
        table = np.loadtxt(path, usecols=range(8))
        found[path.stem] = table[:, 0], table[:, 4:8]
    for path in sorted((folder() / "broad").glob("*.mat")):
        file = loadmat(path)
        quaternions = file["opt_quat"][:, [1, 2, 3, 0]]
        rows = np.isfinite(quaternions).all(axis=1)
        times = np.arange(len(quaternions)) / float(np.ravel(file["sampling_rate"])[0])
        found[f"{path.stem[:2]}_broad"] = times[rows], quaternions[rows]
    return found


def trajectories(rate: float = 30.0, n: int = 1000) -> dict[str, tuple[Numbers, Numbers]]:
    """Stamps in seconds and rotations of every recording."""
    from scipy.spatial.transform import Rotation

    cut = {}
    for name, (times, quaternions) in recordings().items():
        middle = 0.5 * (times[0] + times[-1]) - 0.5 * n / rate
        grid = np.arange(max(middle, times[0]), times[-1], 1.0 / rate)[:n]
        rows = np.unique(np.clip(np.searchsorted(times, grid), 0, len(times) - 1))
        rotations = Rotation.from_quat(quaternions[rows]).as_matrix()
        cut[name] = times[rows] - times[rows][0], rotations
    return cut


def jitter(times: Numbers, quaternions: Numbers, n: int = 4000) -> float:
    """Standard deviation of the white noise in a recording itself, radians.

    Every frame against the cubic through its four neighbours, at the full rate, where the motion
    between frames is smooth; frames beside a gap are left out.
    """
    from scipy.spatial.transform import Rotation

    first = max(0, len(times) // 2 - n // 2)
    times, turns = times[first : first + n], Rotation.from_quat(quaternions[first : first + n])
    here = np.arange(2, len(times) - 2)
    usual = np.median(np.diff(times))
    here = here[np.abs(times[here + 2] - times[here - 2] - 4 * usual) < 0.5 * usual]
    wrong = np.zeros((len(here), 3))
    for step, weight in ((-2, -1 / 6), (-1, 2 / 3), (1, 2 / 3), (2, -1 / 6)):
        wrong += weight * (turns[here].inv() * turns[here + step]).as_rotvec()
    return float(np.sqrt((wrong**2).mean() / (1 + 2 * (4 / 9 + 1 / 36))))


def runs(outlier_rate: float) -> Iterator[tuple[str, Numbers, Numbers, Numbers]]:
    """Every trajectory under every noise, with and without gaps and outliers."""
    from scipy.spatial.transform import Rotation

    for name, (times, truth) in trajectories().items():
        code = sum(map(ord, name))
        for noise, gaps, wild in itertools.product(NOISE, (0, 1), (0, 1)):
            if wild and outlier_rate == 0.0:
                continue
            g = np.random.default_rng([0, int(noise * 1e4), gaps, wild, code])
            n = len(times)
            turn = Rotation.from_rotvec(noise * g.standard_normal((n, 3))).as_matrix()
            seen = truth @ turn
            if wild:
                bad = g.random(n) < outlier_rate
                bad[0] = False
                other = Rotation.random(int(bad.sum()), random_state=int(g.integers(1 << 30)))
                seen[bad] = other.as_matrix()
            if gaps:
                seen[~simulate.bursts(n, 0.05, [0, code])] = np.nan
            yield f"{name} {noise:g} {gaps} {wild}", times, truth, seen


def _hold(seen: Numbers) -> Numbers:
    there = ~np.isnan(seen[:, 0, 0])
    return seen[np.maximum.accumulate(np.where(there, np.arange(len(seen)), 0))]


def error_state(seen: Numbers, h: Numbers, noise: float, accelerations: Numbers) -> Numbers:
    """The constant-velocity error-state filter for many accelerations at once ``(T, Q, 3, 3)``."""
    q, r = accelerations, noise**2
    p0, p1, p2 = np.full_like(q, r), np.zeros_like(q), np.full_like(q, 1e-2)
    frame, v = np.tile(seen[0], (len(q), 1, 1)), np.zeros((len(q), 3))
    out = np.empty((len(seen), *frame.shape))
    for t, matrix in enumerate(seen):
        if t:
            p0, p1, p2 = (
                p0 + 2 * h[t] * p1 + h[t] ** 2 * p2 + q * h[t] ** 3 / 3,
                p1 + h[t] * p2 + q * h[t] ** 2 / 2,
                p2 + q * h[t],
            )
            frame = frame @ so.exp(so.hat(h[t] * v))
            if not np.isnan(matrix[0, 0]):
                e, s = so.vee(so.log(np.swapaxes(frame, -1, -2) @ matrix)), p0 + r
                frame = frame @ so.exp(so.hat((p0 / s)[:, None] * e))
                v = v + (p1 / s)[:, None] * e
                p0, p1, p2 = p0 * r / s, p1 * r / s, p2 - p1**2 / s
        out[t] = frame
    return out


def _inside(result: Any, truth: Numbers) -> float:
    """Share of frames whose error is inside the 95 % ellipsoid of the 3 x 3 covariance."""
    wrong = so.vee(so.log(np.swapaxes(result.rotation, -1, -2) @ truth))
    square = np.linalg.solve(result.covariance, wrong[..., None])[..., 0]
    return float((np.einsum("ti,ti->t", wrong, square)[20:] < LIMIT).mean())


def run_real(outlier_rate: float) -> dict[str, Any]:
    """Errors in degrees and coverage on every run; ratios as geometric means."""
    old = json.loads(OLD_BANK.read_text())
    table: dict[str, dict[str, Any]] = {}
    for key, times, truth, seen in runs(outlier_rate):
        _, noise, _, wild = key.split()

        def error(found: Numbers, truth: Numbers = truth) -> float:
            return float(metrics.geodesic_error(found, truth, degrees=True).mean())

        row: dict[str, Any] = {"hold": error(_hold(seen)), "old": old.get(key)}
        if wild == "1" and outlier_rate != 0.02:
            row["old"] = None
        for name, settings in (("given", {"noise_std": float(noise)}), ("learned", {})):
            result = RotationTracker(**settings).filter(seen, times=times)
            row[name] = error(result.rotation)
            row[f"{name}_inside"] = _inside(result, truth)
            row[f"{name}_finite"] = bool(np.isfinite(result.weights).all())
        if wild == "0":
            dt = np.diff(times, prepend=times[0])
            grid = 10.0 ** np.arange(-10, 0.1, 0.5)
            tried = error_state(seen, dt / np.median(dt[1:9]), float(noise), grid)
            row["error_state"] = min(error(tried[:, k]) for k in range(len(grid)))
        table[key] = row
    own = {name: jitter(*record) for name, record in recordings().items()}
    return {"runs": table, "jitter": own, "summary": _summary(table, own)}


def _summary(table: dict[str, dict[str, Any]], own: dict[str, float]) -> dict[str, Any]:
    """How many runs failed, and geometric means of ratios over the runs without outliers.

    "above the jitter" are the runs whose noise is at least twice that of the recording itself.
    """
    plain = {key: (key.split()[0], float(key.split()[1])) for key in table if key.endswith(" 0")}
    groups = {f"{level}": [k for k, (_, s) in plain.items() if s == level] for level in NOISE}
    groups["at least 1e-2"] = [k for k, (_, s) in plain.items() if s >= 1e-2]
    groups["above the jitter"] = [k for k, (name, s) in plain.items() if s >= 2 * own[name]]
    groups["small, above the jitter"] = [
        k for k in groups["above the jitter"] if k not in groups["at least 1e-2"]
    ]
    found: dict[str, Any] = {}
    for name in ("given", "learned"):
        rows = list(table.values())
        lines: dict[str, Any] = {
            "not finite": sum(not row[f"{name}_finite"] for row in rows),
            "lost (over 1.5 x hold-last and over 2 degrees)": sum(
                row[name] > max(1.5 * row["hold"], 2.0) for row in rows
            ),
            "over 1.5 x hold-last": sum(row[name] > 1.5 * row["hold"] for row in rows),
            "inside 95 %": np.mean([row[f"{name}_inside"] for row in rows]),
        }
        for rival in ("old", "error_state", "hold", "given"):
            for group, keys in groups.items():
                known = [table[k] for k in keys if table[k][rival] is not None]
                ratio = [np.log(row[name] / row[rival]) for row in known]
                lines[f"over {rival}, noise {group}"] = float(np.exp(np.mean(ratio)))
        found[name] = lines
    return found


def run_protocols(n_seeds: int) -> dict[str, Any]:
    """Mean error in degrees at every dropout probability."""
    seeds = tuple(range(10, 10 + n_seeds))
    lines: dict[str, Any] = {}
    for reading in ("as_printed", "as_run"):
        seen, truth = camera.scenes(reading, seeds)
        for name, settings in (("given", {"noise_std": camera.NOISE_STD}), ("learned", {})):
            tracker = RotationTracker(**settings)
            found = tracker.filter(seen).rotation
            lines[f"{reading} {name}"] = camera.errors(reading, found, truth).mean(axis=-1)
            smooth = RotationTracker(**settings).smooth(seen[:, :, :20]).rotation
            some = camera.errors(reading, smooth, truth[:, :, :20]).mean(axis=-1)
            lines[f"{reading} {name}, smoothed, 20 seeds"] = some
    return {"probabilities": camera.PROBABILITIES, "seeds": n_seeds, "lines": lines}


def run_cost(n_rounds: int) -> dict[str, Any]:
    """CPU microseconds of one update; CPU seconds of a process from start to its first result."""
    seen = np.ascontiguousarray(simulate.camera_shake(3, 0.0).observations)
    found: dict[str, Any] = {}
    for name, settings in (("learned", {}), ("given", {"noise_std": 0.05})):
        for oscillations in (True, False):
            tracker = RotationTracker(oscillations=oscillations, **settings)
            tracker.filter(seen)
            best = np.inf
            for _ in range(n_rounds):
                start = time.process_time()
                for matrix in seen:
                    tracker.update(matrix)
                best = min(best, time.process_time() - start)
            label = f"update, {name}" + ("" if oscillations else ", no oscillations")
            found[f"{label}, us"] = 1e6 * best / len(seen)
    script = (
        "import time, numpy as np; from kgmrf import RotationTracker;"
        "RotationTracker().filter(np.tile(np.eye(3), (20, 1, 1))).rotation;"
        "print(time.process_time())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=True, text=True
    )
    found["first use, CPU s"] = float(done.stdout)
    return found


def units(quick: bool) -> list[Unit]:
    """Real trajectories with 2 and 5 % outliers, the protocols, the cost."""
    n = 2 if quick else 100
    return [
        Unit("rotations", "real", "rotations:run_real", {"outlier_rate": 0.02}),
        Unit("rotations", "real_5_percent", "rotations:run_real", {"outlier_rate": 0.05}),
        Unit("rotations", "protocols", "rotations:run_protocols", {"n_seeds": n}),
        Unit("rotations", "cost", "rotations:run_cost", {"n_rounds": 1 if quick else 5}),
    ]
