"""What is measured on innovations: their mean, their memory, and the gains of the loop."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgmrf import theory
from kgmrf._types import Numbers
from kgmrf.diagnosis.innovations import Run, late


def settled(values: Numbers) -> Numbers:
    """Without the start, which no tracker can predict: the first tenth, 20 steps at least."""
    return values[min(max(20, values.shape[0] // 10), values.shape[0] // 2) :]


def memory_of(run: Run) -> dict[str, Any]:
    """Autocorrelation of the innovations, all planes pooled, and its standard error."""
    u = settled(run.innovation)
    u = u[:, mean_of(u**2) > 0]
    there = ~np.isnan(u)
    filled = np.where(there, u, 0.0)
    # A single outlier must not decide: innovations are limited at four standard deviations.
    limit = 4.0 * np.sqrt(np.nanmedian(u**2) / 0.455) if there.any() else 1.0
    filled = np.clip(filled, -limit, limit)
    power = max(float(np.sum(filled**2)) / max(int(there.sum()), 1), 1e-300)
    lags = min(100, u.shape[0] // 3)
    acf, error = np.ones(lags + 1), np.zeros(lags + 1)
    for k in range(1, lags + 1):
        pairs = max(int(np.sum(there[k:] & there[:-k])), 1)
        acf[k] = np.sum(filled[k:] * filled[:-k]) / pairs / power
        error[k] = 1.0 / np.sqrt(pairs)
    first = _first_lag(settled(run.shape), acf[1])
    return {"acf": acf, "error": error, "first": first}


def _first_lag(shape: Numbers, otherwise: float) -> float:
    """Autocorrelation at lag 1 of whole matrices in the space frame, where axes may jump."""
    there = ~np.isnan(shape[:, 0, 0])
    if not there.any():
        return float(otherwise)
    X = np.where(there[:, None, None], shape, 0.0)
    limit = 4.0 * np.sqrt(np.mean(X[there] ** 2))
    X = np.clip(X, -limit, limit)
    pairs = there[1:] & there[:-1]
    return float(np.sum(X[1:] * X[:-1]) / max(pairs.sum(), 1) / (np.sum(X**2) / there.sum()))


def loop_of(run: Run) -> dict[str, float]:
    """Position gain, velocity gain and retention, by least squares from the run itself.

    correction = A w;  velocity = rho velocity_before + B w.
    """
    w, turn = settled(run.angle), settled(run.correction)
    after, before = settled(run.velocity), settled(late(run.velocity[:-1]))
    dt = settled(late(np.diff(run.times)))[:, None]
    good = ~(np.isnan(w) | np.isnan(turn) | np.isnan(before)) & (dt > 0)
    total = float(np.sum(w[good] ** 2))
    if total == 0:
        return {}
    A = float(np.sum(turn[good] * w[good])) / total
    x, y, z = before[good], w[good], after[good]
    if not np.any(z):
        return {"position_gain": A, "velocity_gain": 0.0, "retention": 0.0, "moves": 0.0}
    table = np.asarray([[x @ x, x @ y], [x @ y, y @ y]])
    table += 1e-12 * np.trace(table) * np.eye(2)
    rho, B = map(float, np.linalg.solve(table, np.asarray([x @ z, y @ z])))
    loop = {"position_gain": A, "velocity_gain": B, "retention": rho, "moves": 1.0}
    roots = np.linalg.eigvals(theory.error_map(A, B, min(rho, 1.0)))
    loop["radius"] = float(np.abs(roots).max())
    if roots[0].imag:
        decay, turned = -np.log(max(np.abs(roots[0]), 1e-12)), np.abs(np.angle(roots[0]))
        loop["damping"] = float(decay / np.hypot(decay, turned))
        loop["period"] = float(2.0 * np.pi / turned)
    return loop


def blocks(values: Numbers, count: int = 12) -> tuple[Numbers, Numbers]:
    """Mean over time and its standard error, from blocks because of the autocorrelation."""
    means = np.stack([mean_of(part) for part in np.array_split(values, count)])
    centre = mean_of(means)
    there = (~np.isnan(means)).sum(axis=0)
    return centre, np.sqrt(mean_of((means - centre) ** 2) / np.maximum(there - 1, 1))


def mean_of(values: Numbers) -> Numbers:
    """Mean over the first axis of the values that are not NaN."""
    there = ~np.isnan(values)
    number = there.sum(axis=0)
    total = np.where(there, values, 0.0).sum(axis=0) / np.maximum(number, 1)
    return np.where(number > 0, total, np.nan)
