"""Structure preservation: orthogonality, spectrum and energy over 10^5 steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.store import Unit
from kgmrf._types import Numbers
from kgmrf.geometry import orbit, so
from kgmrf.simulate import motion

RATE = 0.05


def run_maps(d: int, n_steps: int) -> dict[str, Any]:
    """Q <- Q E(W) with the exact exponential, Cayley, and Cayley-Neumann of 2, 3 and 4 terms.

    W turns at .05 rad per frame in a random combination of planes. Deviation from orthogonality,
    and relative change of the spectrum of Q diag(lam) Q^T, at logarithmic times.
    """
    w = RATE * motion.direction(d, 0)
    spectrum = 2.0 ** (d // 2 - np.arange(d))
    maps: dict[str, Numbers] = {
        "exponential": so.exp(w),
        "cayley": so.cayley(w),
        "cayley_neumann_2": so.cayley_neumann(w, 2),
        "cayley_neumann_3": so.cayley_neumann(w, 3),
        "cayley_neumann_4": so.cayley_neumann(w, 4),
    }
    times = np.unique(np.logspace(0, np.log10(n_steps), 40).astype(int))
    lines: dict[str, Any] = {}
    for name, step in maps.items():
        lines[name] = _follow(step, spectrum, times, polish=0)
    lines["exponential_polished"] = _follow(maps["exponential"], spectrum, times, polish=1000)
    return {"d": d, "rate": RATE, "times": times, "lines": lines}


def _follow(step: Numbers, spectrum: Numbers, times: Numbers, polish: int) -> dict[str, Any]:
    q = np.eye(len(spectrum))
    off, drift, t = [], [], 0
    with np.errstate(all="ignore"):
        for until in times:
            while t < until:
                q = q @ step
                t += 1
                if polish and t % polish == 0:
                    q = so.polish(q)
            off.append(np.linalg.norm(q.T @ q - np.eye(len(spectrum))))
            m = orbit.compose(q, spectrum)
            found = np.sort(np.linalg.eigvalsh(m))[::-1] if np.isfinite(m).all() else np.nan
            drift.append(np.max(np.abs(found / spectrum - 1)))
    return {"orthogonality": off, "spectrum": drift}


def run_energy(d: int, n_steps: int, velocity_gain: float) -> dict[str, Any]:
    """Undamped kick-drift towards a resting target: does |W|^2 / 2 + V stay where it was?

    d = 2: the force is (eta/2) sin 2x, the gradient of V = (eta/2) sin^2 x, and the energy may only
    ripple. d >= 3: no V has the forces C~_ij / (lam_i - lam_j) as its gradient, unless 1/(lam_i -
    lam_j) were differences of d numbers; we report the kinetic energy alone.
    """
    spectrum = np.array([2.0, 0.5]) if d == 2 else 2.0 ** (1 - np.arange(d, dtype=float))
    target = np.diag(spectrum)
    q = np.asarray(so.exp(0.3 * motion.direction(d, 1)))
    w = np.zeros((d, d))
    times = np.unique(np.logspace(0, np.log10(n_steps), 120).astype(int))
    kinetic, potential = [], []
    highest, last = 0.0, 0
    total: list[float] = []
    for until in times:
        peak = 0.0
        while last < until:
            innovation = orbit.innovation(q, spectrum, target)
            w = w + velocity_gain * innovation
            q = q @ so.exp(w)
            last += 1
            if last % 1000 == 0:
                q = so.polish(q)
            speed = 0.25 * float((w**2).sum())
            peak = max(peak, speed)
            if d == 2:
                angle = float(np.arctan2(q[1, 0], q[0, 0]))
                total.append(speed + 0.5 * velocity_gain * np.sin(angle) ** 2)
        highest = max(highest, peak)
        kinetic.append(peak)
        potential.append(total[-1] if total else None)
    result: dict[str, Any] = {
        "d": d,
        "velocity_gain": velocity_gain,
        "times": times,
        "peak_kinetic": kinetic,
        "energy": potential,
    }
    if total:
        energy = np.array(total)
        tenth = max(len(energy) // 10, 1)
        result["ripple"] = float(np.ptp(energy) / energy.mean())
        result["drift"] = float(energy[-tenth:].mean() / energy[:tenth].mean() - 1)
    else:
        gap = orbit.gaps(spectrum)
        result["loop_defect"] = float(1 / gap[0, 1] + 1 / gap[1, 2] - 1 / gap[0, 2])
        result["growth"] = float(
            max(kinetic[-len(kinetic) // 10 :]) / max(kinetic[: len(kinetic) // 2])
        )
    return result


def units(quick: bool) -> list[Unit]:
    """Maps in d = 7, energies in d = 2 and 3."""
    n_steps = 1000 if quick else 100_000
    return [
        Unit("structure", "maps", "structure:run_maps", {"d": 7, "n_steps": n_steps}),
        *[
            Unit(
                "structure",
                f"energy_{d}",
                "structure:run_energy",
                {"d": d, "n_steps": n_steps, "velocity_gain": 0.05},
            )
            for d in (2, 3)
        ],
    ]
