"""What went wrong in a run: evidence, verdict and remedy for each way of failing.

A tracker that fits its data leaves nothing to predict in its innovations: they have no mean, no
memory, and the size that it expects. Each fault breaks this in its own way, and the loop's own
gains, which can be measured from a finished run, tell which setting is to blame.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kgmrf import _check
from kgmrf._types import Numbers
from kgmrf.diagnosis.estimate import divergence, gaps, manifold, worth
from kgmrf.diagnosis.innovations import fields_of, opened, plain, second_moments
from kgmrf.diagnosis.measures import loop_of, memory_of, settled
from kgmrf.diagnosis.motion import calibration, freedom, lag, oscillation, overshoot
from kgmrf.diagnosis.report import Finding, Report

__all__ = ["Finding", "Report", "diagnose"]


def diagnose(
    result: Any,
    observations: Any = None,
    *,
    n_samples: float | Numbers | None = None,
    noise_std: float | None = None,
    noise_floor: float = 0.0,
    item: int | tuple[int, ...] | None = None,
) -> Report:
    """Innovations are zero-mean, white and of the expected size, or something is wrong.

    result: what ``filter`` returned for covariances, rotations or vectors.
    observations: what ``filter`` was given, matrices or raw samples ``(T, d)``; without them lag,
    overshoot and oscillation stay unknown.
    n_samples, noise_std, noise_floor: as the tracker had them.
    item: which track of a batch.

    >>> from kgmrf import KGMRF, simulate
    >>> scene = simulate.ellipse(0.08, n_samples=8, noise_floor=0.0, rng=1)
    >>> run = KGMRF(n_samples=8).filter(scene.observations)
    >>> diagnose(run, scene.observations, n_samples=8).healthy
    True
    >>> run = KGMRF(n_samples=8, gains="printed").filter(scene.observations)
    >>> diagnose(run, scene.observations, n_samples=8).faults[0]
    'persistent lag'
    """
    fields = fields_of(result, item)
    n_frames = fields["time"].shape[0]
    kind = next(name for name in ("covariance", "rotation", "position") if name in fields)
    counts = None if n_samples is None else np.asarray(n_samples, dtype=float)
    if counts is not None and counts.ndim and counts.shape != (n_frames,):
        raise ValueError(f"n_samples must be a number or one per frame, got shape {counts.shape}")
    run = None
    if observations is not None:
        seen = _check.real_array(plain(observations), "observations")
        if item is not None:
            seen = seen[(slice(None), *np.atleast_1d(item))]
        if kind == "covariance" and seen.shape != fields[kind].shape:
            seen, counts = second_moments(seen, counts)
        if seen.shape != fields[kind].shape:
            raise ValueError(
                f"observations have shape {seen.shape}, but the result is for {fields[kind].shape}"
            )
        run = opened(kind, fields, seen, counts, noise_std, noise_floor)
        if np.isfinite(settled(run.innovation)).sum() < 20 * max(run.innovation.shape[-1], 1):
            run = None  # too little was observed, or there is no plane to turn in
    loop = loop_of(run)
    memory = memory_of(run)
    findings = [
        lag(run, memory, loop, fields),
        overshoot(memory, loop, kind),
        oscillation(memory, loop),
        divergence(kind, fields, run, loop),
        manifold(kind, fields),
    ]
    others = [f.name for f in findings if f.verdict == "fault"]
    findings.append(calibration(kind, fields, run, counts, noise_std, others))
    if kind == "covariance":
        findings += [gaps(fields, noise_floor), worth(run)]
    degrees = np.asarray(float(freedom(kind, fields)))
    traces = {"time": fields["time"], "nis": fields["nis"], "freedom": degrees}
    if run is not None:
        traces |= {"innovation": run.innovation, "autocorrelation": memory["acf"]}
    for name in ("angle_std", "std"):
        if name in fields:
            traces[name] = fields[name]
    return Report(tuple(findings), n_frames, traces)
