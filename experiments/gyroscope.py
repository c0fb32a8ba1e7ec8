"""Rotations with measured rates in bursts of missing poses, beside a gyroscope filter.

Two BROAD recordings at 28.6 poses and 286 rates a second; the rival integrates every rate, knows
the noise of the poses, and its noise of the rate is the best in hindsight.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.rotations import LIMIT, folder
from kgmrf import RotationTracker
from kgmrf._types import Mask, Numbers

EVERY = 10
"""Rates per pose."""


def recording(path: Any, bias: float) -> tuple[Numbers, Numbers, Mask, Numbers]:
    """Stamps, quaternions (the last known where lost), whether known, rates; 10,000 rows."""
    from scipy.io import loadmat

    file = loadmat(path)
    q = file["opt_quat"][:, [1, 2, 3, 0]]
    rates = np.nan_to_num(np.asarray(file["imu_gyr"], dtype=float)) + bias
    moving = np.flatnonzero(file["movement"].ravel() > 0)
    first = max((moving[0] + moving[-1]) // 2 - 5000, 0)
    q, rates = q[first : first + 10000], rates[first : first + 10000]
    known = np.isfinite(q).all(axis=1)
    last = np.maximum.accumulate(np.where(known, np.arange(len(q)), 0))
    hz = float(np.ravel(file["sampling_rate"])[0])
    return np.arange(len(q)) / hz, q[last], known, rates


def tuned(
    seen: Any, there: Mask, turns: Any, noise: float, truth: Any, scored: Mask
) -> tuple[float, float]:
    """Mean errors in degrees, in all and in gaps, of the best angle random walk."""
    from scipy.spatial.transform import Rotation

    best = (np.inf, np.inf)
    for q in 10.0 ** np.arange(-9, -2.9, 0.5):
        here, p, path = seen[0], noise**2, [seen[0].as_quat()]
        for k in range(1, len(there)):
            here, p = here * turns[k], p + q
            if there[k]:
                gain = p / (p + noise**2)
                here = here * Rotation.from_rotvec(gain * (here.inv() * seen[k]).as_rotvec())
                p *= 1.0 - gain
            path.append(here.as_quat())
        wrong = np.degrees((Rotation.from_quat(path).inv() * truth).magnitude())
        best = min(best, (wrong[scored].mean(), wrong[scored & ~there].mean()))
    return best


def run() -> dict[str, Any]:
    """Errors over the rival's, and coverage of the 95 % ellipsoid, with every rate and with one."""
    from scipy.spatial.transform import Rotation

    table: dict[str, Any] = {}
    for path in sorted((folder() / "broad").glob("*.mat")):
        for bias in (0.0, 0.05):
            times, q, known, rates = recording(path, bias)
            at = np.arange(0, len(q), EVERY)
            truth = Rotation.from_quat(q[at])
            middle = 0.5 * (rates[:-1] + rates[1:]) * np.diff(times)[:, None]
            turns = [Rotation.identity()]
            for k in at[:-1]:
                turn = Rotation.identity()
                for step in middle[k : k + EVERY]:
                    turn = turn * Rotation.from_rotvec(step)
                turns.append(turn)
            for noise in (1e-3, 1e-2):
                g = np.random.default_rng(2)
                seen = truth * Rotation.from_rotvec(noise * g.standard_normal((len(at), 3)))
                there, k = np.ones(len(at), bool), 1
                while k < len(at):
                    burst = g.random() < 0.05
                    there[k : k + 10] &= not burst
                    k += 10 if burst else 1
                there &= known[at]
                there[0] = True
                scored = known[at].copy()
                scored[:20] = False
                whole, gaps = tuned(seen, there, turns, noise, truth, scored)
                row: dict[str, Any] = {"rival": whole, "rival, gaps": gaps}
                for way, settings in (("given", {"noise_std": noise}), ("learned", {})):
                    for label, rows in (("", np.arange(len(q))), (", one rate per pose", at)):
                        poses = np.full((len(q), 3, 3), np.nan)
                        poses[at[there]] = seen[there].as_matrix()
                        found = RotationTracker(**settings).filter(
                            poses[rows], times=times[rows], rates=rates[rows]
                        )
                        pick = np.searchsorted(rows, at)
                        turned = Rotation.from_matrix(found.rotation[pick])
                        wrong = (turned.inv() * truth).as_rotvec()
                        square = np.linalg.solve(found.covariance[pick], wrong[..., None])[..., 0]
                        inside = (square * wrong).sum(axis=1) < LIMIT
                        error = np.degrees(np.linalg.norm(wrong, axis=1))
                        row[way + label] = {
                            "over rival": float(error[scored].mean() / whole),
                            "over rival, gaps": float(error[scored & ~there].mean() / gaps),
                            "inside": float(inside[scored].mean()),
                        }
                table[f"{path.stem[:2]} noise {noise:g} bias {bias:g}"] = row
    return table
