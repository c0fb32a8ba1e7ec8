"""Structure preservation: orthogonality, spectrum, energy and symplecticity over 10^5 steps."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from experiments.store import Unit, unit
from kgmrf._types import Numbers
from kgmrf.geometry import orbit, so
from kgmrf.simulate import motion
from kgmrf.theory import mechanics

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


INTEGRATORS: dict[str, Callable[[mechanics.Phase, mechanics.Body, float], mechanics.Phase]] = {
    "printed": mechanics.printed_step,
    "printed_strang": partial(mechanics.printed_step, strang=True),
    "variational": mechanics.variational_step,
    "plane_split": mechanics.plane_split_step,
}
SPECTRA = {2: (2.0, 0.5), 3: (4.0, 2.0, 0.5), 5: (9.0, 6.0, 4.0, 2.0, 0.5)}


def body_at(d: int, speed: float = 0.5, seed: int = 7) -> tuple[mechanics.Phase, mechanics.Body]:
    """A body that swings and turns about a target, d = 2, 3 or 5: always the same one."""
    rng = np.random.default_rng(seed)
    n = d * (d - 1) // 2
    spectrum = np.array(SPECTRA[d])
    target = orbit.compose(so.exp(so.hat(rng.standard_normal(n))), spectrum + 0.1)
    body = mechanics.Body(spectrum, target, 0.1)
    frame = so.exp(so.hat(rng.standard_normal(n)))
    velocity = so.hat(speed * rng.standard_normal(n))
    return mechanics.Phase(frame, body.inertia * velocity), body


def run_energy(d: int, integrator: str, n_steps: int, dt: float) -> dict[str, Any]:
    """Undamped motion about a resting target: wander of the energy, and the symplectic defect.

    The wander is the largest relative deviation so far, at logarithmic times. The defect is
    |J^T omega J - omega| of one step from the start.
    """
    state, body = body_at(d)
    step = INTEGRATORS[integrator]
    defect = mechanics.symplectic_defect(lambda z: step(z, body, dt), state)
    start = mechanics.energy(state, body)
    times = np.unique(np.logspace(0, np.log10(n_steps), 60).astype(int))
    off = np.empty(n_steps)
    for t in range(n_steps):
        state = step(state, body, dt)
        off[t] = mechanics.energy(state, body) / start - 1
        if t % 1000 == 999:
            state = state._replace(frame=so.polish(state.frame))
    wander = np.maximum.accumulate(np.abs(off))[times - 1]
    return {
        "d": d,
        "dt": dt,
        "integrator": integrator,
        "times": times,
        "wander": wander,
        "late_mean": float(off[int(0.9 * n_steps) :].mean()),
        "symplectic_defect": defect,
    }


def units(quick: bool) -> list[Unit]:
    """Maps in d = 7; energies in d = 2, 3, 5 for four integrators."""
    n_steps = 500 if quick else 100_000
    return [
        unit("structure", "maps", run_maps, d=7, n_steps=max(n_steps, 1000)),
        *[
            unit(
                "structure",
                f"energy_{d}.{name}",
                run_energy,
                d=d,
                integrator=name,
                n_steps=n_steps,
                dt=0.05,
            )
            for d in SPECTRA
            for name in INTEGRATORS
        ],
    ]
