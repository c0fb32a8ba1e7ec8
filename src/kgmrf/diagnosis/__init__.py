"""What is wrong with a run: evidence, verdict and remedy for each way of failing.

Innovations of a tracker that fits its data have zero mean, no autocorrelation, and the expected
size. Each fault violates this in its own way. The gains of the loop are measured from the finished
run; they show which setting is to blame.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kgmrf import _check
from kgmrf._types import Numbers
from kgmrf.diagnosis import innovations, verdicts
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

    Parameters
    ----------
    result
        What ``filter`` returned for covariances, rotations or vectors.
    observations : default None
        What ``filter`` was given, matrices or raw samples ``(T, d)``; without them lag and
        overshoot are not checked.
    n_samples, noise_std, noise_floor : default None, None and 0.0
        The settings of the tracker.
    item : int or tuple[int, ...], default None
        Which track of a batch.

    Examples
    --------
    >>> from kgmrf import KGMRF, simulate
    >>> scene = simulate.ellipse(0.08, n_samples=8, noise_floor=0.0, rng=1)
    >>> run = KGMRF(n_samples=8).filter(scene.observations)
    >>> diagnose(run, scene.observations, n_samples=8).healthy
    True
    >>> run = KGMRF(n_samples=8, gains="printed").filter(scene.observations)
    >>> diagnose(run, scene.observations, n_samples=8).faults[0]
    'persistent lag'
    """
    fields = innovations.fields_of(result, item)
    n_steps = fields["time"].shape[0]
    if observations is not None and "mean" in fields:  # of what a linear mean leaves
        rows = _check.real_array(observations, "observations")
        observations, item = (rows if item is None else rows[:, *np.atleast_1d(item)]), None
        observations = observations - fields["mean"]
    # The covariance of a rotation or a vector is that of its error.
    kind = next(name for name in ("rotation", "position", "covariance") if name in fields)
    counts = None if n_samples is None else np.asarray(n_samples, dtype=float)
    if counts is not None and counts.ndim and counts.shape != (n_steps,):
        raise ValueError(f"n_samples must be a number or one per step, got shape {counts.shape}")
    run, memory, loop = None, None, {}
    if observations is not None:
        seen = _check.real_array(innovations.as_matrices(observations), "observations")
        if item is not None:
            seen = innovations.of_item(seen, item)
        if kind == "covariance" and seen.shape != fields[kind].shape:
            seen, counts = innovations.second_moments(seen, counts)
        if seen.shape != fields[kind].shape:
            raise ValueError(
                f"observations have shape {seen.shape}, but the result is for {fields[kind].shape}"
            )
        run = innovations.compare(kind, fields, seen, counts, noise_std, noise_floor)
        late = innovations.settled(run.innovation)
        if np.isfinite(late).sum() < 20 * max(late.shape[-1], 1):
            run = None  # too little was observed, or there is no plane to turn in
        else:
            memory, loop = innovations.memory_of(run), innovations.loop_of(run, fields["time"])
    case = verdicts.Case(kind, fields, run, memory, loop, counts, noise_std, noise_floor)
    if run is None:
        names = ("persistent lag", "overshoot", "oscillation")
        findings = [Finding(name, "unknown", verdicts.NEEDS) for name in names]
    else:
        findings = [verdicts.lag(case), verdicts.overshoot(case), verdicts.oscillation(case)]
    findings += [verdicts.divergence(case), verdicts.manifold(case)]
    others = [finding.name for finding in findings if finding.verdict == "fault"]
    findings.append(verdicts.calibration(case, others))
    if kind == "covariance":
        findings.append(verdicts.gaps(case))
        findings = verdicts.with_signal(findings, fields, None if item else observations)
    return Report(tuple(findings), n_steps)
