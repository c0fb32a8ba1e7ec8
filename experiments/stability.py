"""The stability domain, measured, and the error inside it: maps over a grid of gains."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.recursions import half_turn, plane_law
from experiments.store import Unit, unit
from kgmrf import KGMRF, gains, metrics, simulate, theory
from kgmrf._types import Numbers
from kgmrf.geometry import orbit, so

SPECTRUM = np.array([2.0, 0.5])
START = 1e-6


def run(law: str, size: int) -> dict[str, Any]:
    """What becomes of an error of 1e-6 rad within 300 frames over ``size`` x ``size`` gains, and
    the prediction.

        printed: velocity gain eta (x) against damping gamma (y), position gain 0.
        zero_lag: velocity gain (x) against position gain (y), no damping.
    """
    x = np.linspace(0.02, 4.2, size)
    # The package takes no retention below -1: at damping 2 the printed domain ends anyway.
    y = np.linspace(0.02, 2.0 if law == "printed" else 2.2, size)
    horizontal, vertical = np.meshgrid(x, y)
    zero = np.zeros_like(horizontal)
    if law == "printed":
        position, velocity, retention = zero, horizontal, 1.0 - vertical
        predicted = theory.printed_domain(horizontal, vertical)
    else:
        position, velocity, retention = vertical, horizontal, zero + 1.0
        predicted = theory.stable(position, velocity)
    n_frames = 300
    target = simulate.ellipse(0.0, n_frames=n_frames, n_samples=None, noise_floor=0.0)
    start = orbit.compose(so.exp(so.hat(np.array([START]))), SPECTRUM)
    tracker = KGMRF(
        # Negative retention (damping above 1) is part of the printed domain.
        gains=gains.FixedGains(position, velocity, retention, np.clip(retention, 0.0, 1.0), 0.0),
        n_samples=8,
        spectrum=SPECTRUM,
        initial=start,
    )
    shape = (n_frames, size, size, 2, 2)
    seen = np.broadcast_to(target.observations[:, None, None], shape)
    truth = np.broadcast_to(target.covariance[:, None, None], shape)
    angle = metrics.angular_error(tracker.filter(seen).covariance, truth)
    # What is left of the error at the end, against what it was: orders of magnitude.
    left = angle[-12:].max(axis=0)
    growth = np.log10(np.maximum(left, 1e-15) / START)
    stable = growth < 0
    radius = theory.stability_radius(position, velocity, retention)
    clear = np.abs(radius - 1) > 0.02
    return {
        "x": x,
        "y": y,
        "growth": np.round(growth, 2),
        "stable": stable,
        "predicted": predicted,
        "agree": float((stable == predicted).mean()),
        "agree_off_boundary": float((stable == predicted)[clear].mean()),
    }


def run_error(law: str, rate: float, size: int, n_seeds: int) -> dict[str, Any]:
    """Mean angle error in degrees over ``size`` x ``size`` gains, 8 samples per frame.

    printed: velocity gain eta (x) against damping gamma (y). zero_lag: velocity gain (x) against
    position gain (y). Gains are logarithmic, since the good ones are small.
    """
    x, y = np.geomspace(1e-3, 4.0, size), np.geomspace(0.01, 2.0, size)
    b, other = (v.ravel()[:, None] for v in np.meshgrid(x, y))
    zero = np.zeros_like(b)
    a, rho = (zero, 1 - other) if law == "printed" else (other, zero + 1)
    scenes = [simulate.ellipse(rate, rng=seed) for seed in range(10, 10 + n_seeds)]
    seen = np.stack([s.observations for s in scenes], 1)
    truth = metrics.axis_angle(np.stack([s.covariance for s in scenes], 1))
    angle = plane_law(seen, SPECTRUM[0] - SPECTRUM[1], a, b, rho, zero)
    off = np.degrees(np.abs(half_turn(angle - truth[:, None])))[50:].mean(axis=(0, 2))
    error = off.reshape(size, size)
    j, i = np.unravel_index(int(np.argmin(error)), error.shape)
    return {
        "x": x,
        "y": y,
        "rate": rate,
        "error": np.round(error, 2),
        "best": {"velocity_gain": x[i], "other": y[j], "error": error[j, i]},
        "paper": _at_paper(law, seen, truth),
    }


def _at_paper(law: str, seen: Numbers, truth: Numbers) -> float:
    """The error with the paper's gains."""
    settings = (0.0, 0.05, 0.05) if law == "printed" else (0.1, 0.05, 1.0)
    a, b, rho = (np.array([[v]]) for v in settings)
    angle = plane_law(seen, SPECTRUM[0] - SPECTRUM[1], a, b, rho, np.zeros((1, 1)))
    return float(np.degrees(np.abs(half_turn(angle - truth[:, None])))[50:].mean())


TURNING_LAWS = {"A .1, B .005": (0.1, 0.005), "A .1, B .02": (0.1, 0.02), "A .5, B 2.5": (0.5, 2.5)}
SPEEDS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5)


def run_turning() -> dict[str, Any]:
    """Radius of the error map about a rotation in space that turns at |Omega|, d = 3.

    Predicted by `theory.stability_radius`; measured as the growth of a tiny error over 600 steps of
    the step itself on rotations.
    """
    turns = so.hat(np.stack([np.zeros(len(SPEEDS)), np.zeros(len(SPEEDS)), SPEEDS], -1))
    laws: dict[str, Any] = {}
    largest = 0.0
    for name, (a, b) in TURNING_LAWS.items():
        radius = theory.stability_radius(a, b, velocity=turns)
        measured = _growth(a, b, turns)
        largest = max(largest, float(np.abs(radius - measured).max()))
        laws[name] = {"radius": radius, "measured": measured}
    law = np.array(laws["A .1, B .02"]["radius"])
    few = slice(1, 5)
    slope = np.polyfit(np.log(SPEEDS[few]), np.log(law[few] - law[0]), 1)[0]
    return {"speeds": SPEEDS, "laws": laws, "exponent": float(slope), "largest_gap": largest}


def _growth(a: float, b: float, turns: Numbers) -> Numbers:
    """Largest growth factor per step of small errors, by power iteration on the real step.

    Shapes: turns (n, 3, 3) -> (n,), all from the same start.
    """
    size, n, logs = 1e-7, len(turns), []
    start = size * np.random.default_rng(10).standard_normal((2, 3))
    error, rate = (np.tile(v, (n, 1)) for v in start)
    truth = so.exp(turns)
    for _ in range(900):
        frame = so.exp(so.hat(-error)) @ so.exp(turns - so.hat(rate))
        miss = so.log(np.swapaxes(frame, -1, -2) @ truth)
        frame = frame @ so.exp(a * miss)
        error = so.vee(so.log(np.swapaxes(frame, -1, -2) @ truth))
        rate = rate - b * so.vee(miss)
        length = np.sqrt((error**2 + rate**2).sum(-1))
        logs.append(np.log(length / size))
        error, rate = (v * size / length[:, None] for v in (error, rate))
    return np.exp(np.mean(logs[300:], axis=0))


def units(quick: bool) -> list[Unit]:
    """Two maps of stability, four of the error, and targets that turn."""
    size, n_seeds = (12, 2) if quick else (45, 10)
    stable = [unit("stability", law, run, law=law, size=size) for law in ("printed", "zero_lag")]
    error = [
        unit(
            "stability",
            f"error.{law}.rate_{rate:g}",
            run_error,
            law=law,
            rate=rate,
            size=size,
            n_seeds=n_seeds,
        )
        for law in ("printed", "zero_lag")
        for rate in (0.02, 0.08)
    ]
    return [*stable, *error, unit("stability", "turning", run_turning)]
