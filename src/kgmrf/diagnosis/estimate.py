"""Verdicts on the estimate: divergence, its worth, the manifold, gaps between eigenvalues."""

from __future__ import annotations

import numpy as np

from kgmrf._types import Mask, Numbers
from kgmrf.diagnosis.innovations import Run
from kgmrf.diagnosis.measures import blocks, mean_of, settled
from kgmrf.diagnosis.motion import NEEDS, SURE
from kgmrf.diagnosis.report import Finding

WIDE_ANGLE = 0.4
"""Standard deviation of a plane's angle (radians) at which its axes are as good as unknown."""

DEFECT = 1e-6
"""Departure from orthonormality or symmetry that is no rounding any more."""

ROUNDING = 1e-10
"""How far below zero, as a share of the largest entry, an eigenvalue of zero may be computed."""


def divergence(
    kind: str, fields: dict[str, Numbers], run: Run | None, loop: dict[str, float]
) -> Finding:
    """Estimates that are not finite, worse than none, or of a loop that is unstable."""
    name = "divergence"
    started: Mask = ~np.isnan(fields["age"])
    main = fields[kind].reshape(fields["time"].size, -1)
    broken: Mask = started & ~np.all(np.isfinite(main), axis=-1)
    if kind == "position":
        broken = np.any(np.isinf(main), axis=-1)
    measured = {"broken_frames": float(broken.sum())}
    if broken.any():
        return Finding(
            name,
            "fault",
            f"the estimate is not finite in {int(broken.sum())} frames, first in frame "
            f"{int(np.argmax(broken))}",
            "smaller gains keep a linear tracker stable; KGMRF cannot leave the manifold",
            measured,
        )
    if run is None:
        return Finding(name, "unknown", f"all frames are finite; the rest {NEEDS}")
    mean, error = blocks(second_half(run.over_nothing)[:, None])
    advantage = float(mean[0])
    measured["advantage"] = advantage
    if "radius" in loop:
        measured["radius"] = loop["radius"]
    if kind == "covariance":
        evidence = f"against a sphere of the observed size: {advantage:+.3f} nats per sample"
        limit = 0.02 * fields[kind].shape[-1]
    else:
        evidence = f"against holding the last observation: {advantage:+.3g} of squared error"
        limit = 0.3 * float(mean_of(np.sum(second_half(run.angle) ** 2, axis=-1)))
    lost = advantage < -limit and advantage < -SURE * float(error[0])
    unstable = loop.get("radius", 0.0) > 1.02
    if unstable:
        evidence += f"; the loop's error map has radius {loop['radius']:.2f} > 1"
    if not (lost or unstable):
        return Finding(name, "ok", evidence, measured=measured)
    remedy = (
        "the estimate is worse than none: "
        + ("the gains are unstable (theory.stable), lower velocity_gain; " if unstable else "")
        + 'use gains="information", check n_samples or noise_std, widen rate_prior'
    )
    return Finding(name, "fault", evidence, remedy, measured)


def second_half(values: Numbers) -> Numbers:
    """Where every tracker has started."""
    return values[values.shape[0] // 2 :]


def worth(run: Run | None) -> Finding:
    """Against the best plain moving average, in nats per sample."""
    name = "worse than averaging"
    if run is None:
        return Finding(name, "unknown", NEEDS)
    mean, error = blocks(second_half(run.over_average)[:, None])
    advantage = float(mean[0])
    measured = {"advantage": advantage}
    evidence = f"against the best plain moving average: {advantage:+.3f} nats per sample"
    if not (advantage < -0.01 * run.power.shape[-1] and advantage < -SURE * float(error[0])):
        return Finding(name, "ok", evidence, measured=measured)
    remedy = (
        'a plain average predicts better: use gains="information", fit its acceleration and '
        "spectrum_rate with kgmrf.learn.fit, or give up the fixed spectrum"
    )
    return Finding(name, "fault", evidence, remedy, measured)


def manifold(kind: str, fields: dict[str, Numbers]) -> Finding:
    """Departure from rotations, or from symmetric positive semidefinite matrices."""
    name = "off the manifold"
    if kind == "position":
        return Finding(name, "ok", "vectors cannot leave their space")
    matrices = fields[kind]
    good = ~np.isnan(matrices).any(axis=(1, 2))
    if not good.any():
        return Finding(name, "unknown", "there is no estimate in any frame")
    X = matrices[good]
    eye = np.eye(X.shape[-1])
    frame = X if kind == "rotation" else fields["frame"][good]
    defect = np.abs(np.swapaxes(frame, -1, -2) @ frame - eye).max(axis=(1, 2))
    measured = {"defect": float(defect.max())}
    evidence = f"|Q^T Q - I| is at most {defect.max():.1e}"
    fault = bool(defect.max() > DEFECT)
    remedy = "project the frame with geometry.so.project, or use the exact exponential so.exp"
    if kind == "covariance":
        size = np.abs(X).max(axis=(1, 2))
        skew = float((np.abs(X - np.swapaxes(X, -1, -2)).max(axis=(1, 2)) / size).max())
        lowest = np.linalg.eigvalsh(0.5 * (X + np.swapaxes(X, -1, -2)))[:, 0] / size
        # Fewer samples than channels, or channels that depend on each other, leave an eigenvalue
        # of zero, which rounding may put on either side.
        outside = int(np.sum(~(lowest > -ROUNDING)))
        measured |= {"asymmetry": skew, "not_positive_frames": float(outside)}
        evidence += f", asymmetry {skew:.1e}, {outside} frames with a negative eigenvalue"
        if skew > DEFECT or outside:
            fault = True
            remedy = (
                "entries were averaged off the cone: use KGMRF, which carries frame and spectrum"
            )
    return Finding(name, "fault" if fault else "ok", evidence, remedy if fault else "", measured)


def gaps(fields: dict[str, Numbers], noise_floor: float) -> Finding:
    """Axes whose eigenvalues are too close for their directions to mean anything."""
    name = "near-degenerate gaps"
    spectrum = fields["spectrum"]
    good = ~np.isnan(spectrum).any(axis=-1)
    d = spectrum.shape[-1]
    if d == 1 or not good.any():
        return Finding(name, "ok", "there is no plane to turn in")
    late = settled(spectrum[good])
    level = late + noise_floor
    gap = np.abs(np.diff(late, axis=-1))
    seen = np.median(gap**2 / (level[:, 1:] * level[:, :-1]), axis=0)
    worst = int(np.argmin(seen))
    measured = {"information": float(seen[worst]), "plane": float(worst)}
    evidence = f"axes {worst} and {worst + 1} differ by G^2/(d_i d_j) = {seen[worst]:.2g}"
    faint = seen[worst] < 1e-2
    spread = fields.get("angle_std")
    if spread is not None and not np.isnan(spread).all():
        planes = np.stack([settled(spread[good])[:, k, k + 1] for k in range(d - 1)], axis=-1)
        angles = np.median(planes, axis=0)
        widest = int(np.argmax(angles))
        measured["angle_std"] = float(angles[widest])
        evidence += (
            f"; the angle between axes {widest} and {widest + 1} is known to "
            f"{np.degrees(angles[widest]):.1f} degrees"
        )
        faint = angles[widest] > WIDE_ANGLE
    if not faint:
        return Finding(name, "ok", evidence, measured=measured)
    remedy = (
        "these axes cannot be told apart, which leaves the covariance as good as it is: use that "
        "rather than single axes, or pool more samples per step (n_samples)"
        if "angle_std" in measured
        else "these axes cannot be told apart: use the covariance rather than single axes, and "
        'gains="information", which turns such planes no further than the data allow'
    )
    return Finding(name, "note", evidence, remedy, measured)
