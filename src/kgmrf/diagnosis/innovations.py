"""Innovations of a finished run: every step predicted from the one before, and compared.

Their mean, their memory, and the gains of the loop.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kgmrf import theory
from kgmrf._types import Mask, Numbers
from kgmrf.geometry import orbit, so

NOTHING: Numbers = np.empty((0, 1, 1))


class Run(NamedTuple):
    """Innovations of one track: time first, NaN where there is nothing to compare."""

    velocity: Numbers  # (T, k)
    innovation: Numbers  # (T, k): unit variance if only the observation's noise was in it
    correction: Numbers  # (T, k): how far the estimate turned
    angle: Numbers  # (T, k): the innovation in the units of the correction
    over_nothing: Numbers  # (T,): advantage over a sphere, or over the last observation
    # Of covariances only:
    power: Numbers = NOTHING  # (T, d): observed over predicted variance along the axes
    shape: Numbers = NOTHING  # (T, d, d): whitened residual in the space frame


class Memory(NamedTuple):
    """Autocorrelation of innovations at lag 1."""

    lag: float
    error: float  # its standard error
    of_shape: float  # that of whole matrices in the space frame, where axes may not jump


def fields_of(result: Any, item: int | tuple[int, ...] | None) -> dict[str, Numbers]:
    """The fields of one track, its time in intervals; refuses what is no result of `filter`."""
    names = result.fields() if hasattr(result, "fields") else ()
    if "time" not in names:
        parts: Any = getattr(result, "keys", tuple)()
        raise TypeError(
            f"this result has the parts {', '.join(parts)}; diagnose one at a time: "
            f"diagnose(result[{parts[0]!r}], observations)"
            if isinstance(parts, tuple) and parts
            else f"diagnose takes what filter returned, got a {type(result).__name__}; call "
            "diagnose(tracker.filter(X), X)"
        )
    fields = {name: np.asarray(getattr(result, name)) for name in names}
    batch = fields["time"].shape[1:]
    if item is None and batch:
        raise ValueError(f"this result holds a batch {batch}; say which track with item=...")
    if item is not None:
        fields = {name: of_item(value, item) for name, value in fields.items()}
    # Gains are per step, whatever unit the time stamps have.
    steps = np.diff(fields["time"])
    unit = float(np.median(steps[steps > 0])) if (steps > 0).any() else 1.0
    fields["time"] = fields["time"] / unit
    if "velocity" in fields:
        fields["velocity"] = fields["velocity"] * unit
    if len(steps) < 29:
        raise ValueError(f"{len(steps) + 1} steps are too few; at least 30 are needed")
    return fields


def of_item(values: Numbers, item: int | tuple[int, ...]) -> Numbers:
    """One track of a batch."""
    return values[:, *np.atleast_1d(item)]


def as_matrices(observations: Any) -> Any:
    """Rotations of scipy as matrices."""
    if isinstance(observations, (list, tuple)):
        return [as_matrices(f) for f in observations]
    return observations.as_matrix() if hasattr(observations, "as_matrix") else observations


def second_moments(samples: Numbers, counts: Numbers | None) -> tuple[Numbers, Numbers | None]:
    """C of the complete ones of samples ``(T, d)`` or ``(T, m, d)``, and how many they are."""
    if samples.ndim not in (2, 3):
        return samples, counts
    rows = samples.reshape(samples.shape[0], -1, samples.shape[-1])
    whole: Mask = ~np.any(np.isnan(rows), axis=-1)
    number = whole.sum(axis=-1).astype(float)
    rows = np.where(whole[..., None], rows, 0.0)
    total = np.swapaxes(rows, -1, -2) @ rows
    C = total / np.where(number > 0, number, np.nan)[:, None, None]
    return C, np.maximum(number, 1.0) if counts is None else counts


def compare(
    kind: str,
    fields: dict[str, Numbers],
    seen: Numbers,
    counts: Numbers | None,
    noise_std: float | None,
    noise_floor: float,
) -> Run:
    """Predict every step from the one before and compare."""
    inner = tuple(range(1, seen.ndim))
    known: Mask = ~np.any(np.isnan(fields[kind][:-1]), axis=inner)
    valid: Mask = known & ~np.any(np.isnan(seen[1:]), axis=inner)
    velocity = np.where(np.isnan(fields["velocity"]), 0.0, fields["velocity"])
    m = np.ones(()) if counts is None else counts
    if kind == "covariance":
        return _of_covariances({**fields, "velocity": velocity}, seen, valid, m, noise_floor)
    # Of rotations and vectors the state itself is observed.
    steps = np.diff(fields["time"])
    if kind == "position":
        ahead = fields["position"][:-1] + steps[:, None] * velocity[:-1]
        error, correction = seen[1:] - ahead, fields["position"][1:] - ahead
        naive = np.sum(np.diff(seen, axis=0) ** 2, axis=-1)
    else:
        turn, correction = _turns(fields["rotation"], velocity, steps, valid)
        there: Mask = ~np.any(np.isnan(seen), axis=(1, 2))
        filled = np.where(there[:, None, None], seen, np.eye(seen.shape[-1]))
        error = planes(so.log(np.swapaxes(turn, -1, -2) @ filled[1:]))
        apart = so.distance(filled[:-1], filled[1:]) ** 2
        naive = np.where(there[:-1] & there[1:], apart, np.nan)
        velocity = planes(velocity)
    error = np.where(valid[:, None], error, np.nan)
    found = error[~np.isnan(error)]
    unit = np.asarray(max(float(np.sqrt(np.mean(found**2))), 1e-300) if found.size else 1.0)
    if noise_std is not None:
        unit = noise_std / np.sqrt(m if m.ndim == 0 else m[1:, None])
    over_nothing = naive - np.sum(error**2, axis=-1)
    parts = (error / unit, correction, error, over_nothing)
    return Run(velocity, *(_late(part, valid) for part in parts))


def _of_covariances(
    fields: dict[str, Numbers], seen: Numbers, valid: Mask, m: Numbers, noise_floor: float
) -> Run:
    """Covariances: an angle is seen through the gap of its plane."""
    velocity, d = fields["velocity"], seen.shape[-1]
    rows, columns = np.triu_indices(d, 1)
    # A spectrum off the cone predicts nothing.
    valid = valid & np.all(np.where(valid[:, None], fields["spectrum"][:-1], 1.0) > 0, axis=-1)
    ahead, correction = _turns(fields["frame"], velocity, np.diff(fields["time"]), valid)
    spectrum = np.where(valid[:, None], fields["spectrum"][:-1], 1.0)
    observed = np.where(valid[:, None, None], seen[1:], np.eye(d))
    level = spectrum + noise_floor
    gap = planes(orbit.gaps(spectrum))
    noise = np.sqrt(level[:, rows] * level[:, columns])
    body = np.swapaxes(ahead, -1, -2) @ observed @ ahead
    cross = -planes(body)
    root = np.sqrt(m if m.ndim == 0 else m[1:, None])
    # Where a plane is hardly seen its angle is noise divided by nothing.
    clear = np.abs(gap) > 0.1 * noise
    angle = np.where(clear, cross / np.where(clear, gap, 1.0), 0.0)
    correction = np.where(clear | np.isnan(correction), correction, 0.0)
    ratio = np.diagonal(body, axis1=-2, axis2=-1) / level
    predicted = (ahead * level[:, None, :]) @ np.swapaxes(ahead, -1, -2)
    # The mean observation, with a small ridge so that a silent channel does no harm.
    mean = observed[valid].mean(axis=0) if valid.any() else np.eye(d)
    size = float(np.trace(mean)) / d
    mean = mean + 1e-9 * (size if size > 0 else 1.0) * np.eye(d)
    overall = np.linalg.cholesky(mean) + 0 * observed
    residual = np.linalg.solve(overall, observed - predicted)
    residual = np.linalg.solve(overall, np.swapaxes(residual, -1, -2))
    variance = np.trace(mean) / d
    sphere = d * np.log(variance) + np.trace(observed, axis1=-2, axis2=-1) / variance
    over_nothing = 0.5 * (sphere - np.sum(np.log(level) + ratio, axis=-1))
    parts = (cross / noise * root, correction, angle, over_nothing, ratio, residual)
    return Run(planes(velocity), *(_late(part, valid) for part in parts))


def _turns(
    frame: Numbers, velocity: Numbers, steps: Numbers, valid: Mask
) -> tuple[Numbers, Numbers]:
    """The predicted frames, and how far the estimate turned from them, NaN where that is unknown.

    Label swaps and sign changes of columns are no turns.
    """
    eye = np.eye(frame.shape[-1])
    here = np.where(valid[:, None, None], frame[:-1], eye)
    there = np.where(valid[:, None, None], frame[1:], eye)
    ahead = here @ so.exp(steps[:, None, None] * velocity[:-1])
    turned = np.swapaxes(ahead, -1, -2) @ there
    same = valid & (np.diagonal(turned, axis1=-2, axis2=-1).min(axis=-1) > 0.0)
    angles = planes(so.log(np.where(same[:, None, None], turned, eye)))
    return ahead, np.where(same[:, None], angles, np.nan)


def planes(matrices: Numbers) -> Numbers:
    """The entries (i, j), i < j, of matrices."""
    return matrices[..., *np.triu_indices(matrices.shape[-1], 1)]


def _late(values: Numbers, valid: Mask | None = None) -> Numbers:
    """Back to one row per step, NaN where not valid; the first step has no prediction."""
    if valid is not None:
        values = np.where(valid.reshape(-1, *(1,) * (values.ndim - 1)), values, np.nan)
    return np.concatenate([np.full_like(values[:1], np.nan), values])


def settled(values: Numbers) -> Numbers:
    """Without the start, which no tracker can predict: the first tenth, 20 steps at least."""
    return values[min(max(20, values.shape[0] // 10), values.shape[0] // 2) :]


def memory_of(run: Run) -> Memory:
    """Autocorrelation of the innovations at lag 1, all planes pooled."""
    u = settled(run.innovation)
    u = u[:, mean_of(u**2) > 0]
    # A single outlier must not decide: innovations are limited at four standard deviations.
    limit = 4.0 * np.sqrt(np.nanmedian(u**2) / 0.455) if np.isfinite(u).any() else 1.0
    lag, pairs = _lag_one(u, limit)
    shape = settled(run.shape)
    seen = shape[~np.isnan(shape)]
    of_shape = _lag_one(shape, 4.0 * np.sqrt(np.mean(seen**2)))[0] if seen.size else lag
    return Memory(lag, float(1.0 / np.sqrt(pairs)), of_shape)


def _lag_one(values: Numbers, limit: float) -> tuple[float, int]:
    """Autocorrelation at lag 1 of values (T, ...), limited in size, and from how many pairs."""
    there = ~np.isnan(values)
    filled = np.clip(np.where(there, values, 0.0), -limit, limit)
    power = max(float(np.sum(filled**2)) / max(int(there.sum()), 1), 1e-300)
    pairs = max(int(np.sum(there[1:] & there[:-1])), 1)
    return float(np.sum(filled[1:] * filled[:-1]) / pairs / power), pairs


def loop_of(run: Run, times: Numbers) -> dict[str, float]:
    """Position gain, velocity gain and retention, by least squares from the run itself.

    correction = A w;  velocity = rho velocity_before + B w.
    """
    w, turn = settled(run.angle), settled(run.correction)
    after, before = settled(run.velocity), settled(_late(run.velocity[:-1]))
    dt = settled(_late(np.diff(times)))[:, None]
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


def blocks(values: Numbers) -> tuple[Numbers, Numbers]:
    """Mean over time and its standard error, from blocks because of the autocorrelation."""
    means = np.stack([mean_of(part) for part in np.array_split(values, 12)])
    centre = mean_of(means)
    there = (~np.isnan(means)).sum(axis=0)
    return centre, np.sqrt(mean_of((means - centre) ** 2) / np.maximum(there - 1, 1))


def mean_of(values: Numbers) -> Numbers:
    """Mean over the first axis of the values that are not NaN."""
    there = ~np.isnan(values)
    number = there.sum(axis=0)
    total = np.where(there, values, 0.0).sum(axis=0) / np.maximum(number, 1)
    return np.where(number > 0, total, np.nan)
