"""One verdict per way of failing: what was measured, whether it is a fault, and the remedy."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgmrf._types import Mask, Numbers
from kgmrf.diagnosis.innovations import Run
from kgmrf.diagnosis.measures import blocks, mean_of, settled
from kgmrf.diagnosis.report import MEMORY, Finding, Verdict

SURE = 5.0  # standard errors beyond which a deviation is not chance
BIAS = 0.25  # mean innovation, in standard deviations of the innovations, that is a fault
RINGING = 0.3  # damping ratio below which a loop rings at every disturbance (1 is critical)
DAMPING = 0.5  # damping ratio below which a loop rings if the innovations show it too
MISFIT = 1.6  # factor by which innovations may differ from the size that the tracker expects
WIDE_ANGLE = 0.4  # standard deviation of a plane's angle (radians) at which its axes are unknown
DEFECT = 1e-6  # departure from orthonormality or symmetry that is more than rounding
REVERSED = 0.45  # autocorrelation at which a self-tuned tracker follows the noise alone
ROUNDING = 1e-10  # how far below zero, relative to the largest entry, a zero may be computed

NEEDS = "needs the observations of 20 frames or more: diagnose(result, observations, ...)"


# What a self-tuned tracker of rotations can be told: the settings that it has.
USUAL = {
    "persistent lag": "usual in recordings: the motion changes more slowly than expected; "
    "smooth, or lag=..., uses later observations too",
    "overshoot": "usual in recordings with gaps, sudden turns or noise that is not independent; "
    "if the estimate is too rough, give a larger noise_std, or lag=... to wait for more",
    "wrong noise": "the noise is learned, and its size or its tails change along the recording; "
    "give noise_std if you know it",
}
SETTINGS = {
    "persistent lag": "it forecasts hardly better than the last observation: check time_unit and "
    "the time stamps, and leave noise_std out if you gave it",
    "overshoot": "it follows the noise: noise_std is too small; raise it, or leave it out and it "
    "is learned",
    "oscillation": "try oscillations=False, and check time_unit",
    "wrong noise": "the innovations do not have the size that noise_std implies: leave noise_std "
    "out, and it is learned",
    "divergence": "the estimate is worse than the last observation: check time_unit and the time "
    "stamps, leave noise_std out if you gave it, and see whether on_invalid repairs much",
}


def learns(kind: str, fields: dict[str, Numbers]) -> bool:
    """Whether the run is of the self-tuned tracker of rotations."""
    return kind == "rotation" and "status" in fields


def knows_noise(fields: dict[str, Numbers]) -> bool:
    """Whether the self-tuned tracker of rotations was given its noise."""
    noise = fields["noise_std"][~np.isnan(fields["noise_std"])]
    return noise.size > 0 and float(np.ptp(noise)) <= 1e-9 * float(noise[0])


def _usual_errors(run: Run, fields: dict[str, Numbers]) -> tuple[float, float, bool]:
    """Medians of the squared error and of the advantage over the last observation, in the second
    half; whether that error is large against the noise.

    Recordings have gaps and jumps, which decide every mean.
    """
    half = run.over_nothing.size // 2
    error = np.sum(run.angle[half:] ** 2, axis=-1)
    there = ~np.isnan(error + run.over_nothing[half:])
    if not there.any():
        return 0.0, 0.0, False
    usual = float(np.median(error[there]))
    noise = min(3.0 * float(np.nanmedian(fields["noise_std"])), 0.1)
    large = usual > median_of_chi_squared(freedom(run.kind, fields)) * noise**2
    return usual, float(np.median(run.over_nothing[half:][there])), large


def median_of_chi_squared(degrees: int) -> float:
    """Wilson and Hilferty's approximation, good to a percent from two degrees of freedom on."""
    return float(degrees * (1.0 - 2.0 / (9.0 * degrees)) ** 3)


def _judged(
    name: str,
    failed: bool,
    evidence: str,
    remedy: str,
    measured: dict[str, float],
    verdict: Verdict = "fault",
) -> Finding:
    return Finding(name, verdict if failed else "ok", evidence, remedy if failed else "", measured)


def lag(
    run: Run, memory: dict[str, Any], loop: dict[str, float], fields: dict[str, Numbers]
) -> Finding:
    """Innovations with a mean or a memory: the estimate lags behind."""
    u = settled(run.innovation)
    mean, error = blocks(u)
    scale = np.sqrt(mean_of(u**2))
    share = np.abs(mean) / np.where(scale > 0, scale, 1.0)
    sure = np.abs(mean) > SURE * error
    worst = int(np.nanargmax(np.where(np.isnan(share), 0.0, share * sure)))
    biased = bool(sure[worst]) and share[worst] > BIAS
    r1 = float(memory["acf"][1])
    # A ringing loop has a memory of its own.
    rings = loop.get("damping", 1.0) < RINGING
    slow = r1 > MEMORY and r1 > SURE * memory["error"][1] and not rings
    angle = float(mean_of(settled(run.angle))[worst])
    unit = "" if run.kind == "position" else f" ({np.degrees(angle):.2f} degrees)"
    evidence = (
        f"mean innovation is {share[worst]:.2f} sigma{unit}; autocorrelation at lag 1 is {r1:+.2f}"
    )
    fixed = np.isnan(fields["nis"]).all()
    better = "RotationTracker(noise_std=...)"
    better = better if run.kind == "rotation" else 'KGMRF(gains="information")'
    kept = loop.get("retention", 1.0)
    nis = mean_of(settled(fields["nis"])) / max(freedom(run.kind, fields), 1)
    remedies = [
        (not loop.get("moves"), f"it carries no velocity: use {better}"),
        (
            fixed and kept < 0.98,
            f"the velocity is damped (retention {kept:.2f}): use "
            'gains="information", or gains="zero_lag", which keeps retention at 1',
        ),
        (fixed and rings, "correct the oscillation first"),
        (fixed, 'raise position_gain and velocity_gain together, or use gains="information"'),
        (
            nis < 1.0 / MISFIT,
            "it expects more noise than there is and follows too slowly: see wrong noise",
        ),
        (
            True,
            "the motion changes faster than expected: raise acceleration in "
            "gains.information(acceleration=...), or let kgmrf.learn.fit find it",
        ),
    ]
    remedy = next(words for applies, words in remedies if applies)
    measured = {"bias": float(share[worst]), "autocorrelation": r1, "mean_innovation": angle}
    name = "persistent lag"
    verdict: Verdict = "fault"
    if learns(run.kind, fields):
        usual, advantage, large = _usual_errors(run, fields)
        # Without lag the error is small against the turn from one observation to the next.
        verdict, remedy = _fault_or_note(name, large and advantage < 3.0 * usual)
    return _judged(name, biased or slow, evidence, remedy, measured, verdict)


def _fault_or_note(name: str, fault: bool) -> tuple[Verdict, str]:
    return ("fault", SETTINGS[name]) if fault else ("note", USUAL[name])


def overshoot(
    memory: dict[str, Any], loop: dict[str, float], kind: str, fields: dict[str, Numbers]
) -> Finding:
    """Innovations that change sign from step to step: the estimate follows the noise."""
    r1 = min(float(memory["acf"][1]), memory["first"])
    gains = {k: loop[k] for k in ("position_gain", "velocity_gain") if k in loop}
    evidence = f"autocorrelation of the innovations at lag 1 is {r1:+.2f}"
    if loop:
        evidence += f"; measured position gain {loop['position_gain']:.3g}"
        evidence += f", velocity gain {loop['velocity_gain']:.3g}" if loop.get("moves") else ""
    noise = "n_samples" if kind == "covariance" else "noise_std"
    remedy = (
        "corrections are reversed at the next step, so it follows the noise: lower position_gain "
        f'and velocity_gain, or with gains="information" lower acceleration and check {noise}'
    )
    failed = r1 < -MEMORY and r1 < -SURE * float(memory["error"][1])
    name = "overshoot"
    verdict: Verdict = "fault"
    if learns(kind, fields):
        verdict, remedy = _fault_or_note(name, r1 < -REVERSED and knows_noise(fields))
    return _judged(name, failed, evidence, remedy, {"autocorrelation": r1} | gains, verdict)


def oscillation(
    memory: dict[str, Any], loop: dict[str, float], kind: str, fields: dict[str, Numbers]
) -> Finding:
    """A loop that rings: too much velocity gain for its position gain."""
    name = "oscillation"
    acf, error = memory["acf"], memory["error"]
    if "damping" not in loop:
        return Finding(name, "ok", "the loop has no velocity or does not ring")
    period, damping = loop["period"], loop["damping"]
    half = min(max(round(period / 2.0), 1), acf.size - 1)
    window = slice(max(half - half // 3, 1), min(half + half // 3 + 1, acf.size))
    k = window.start + int(np.argmin(acf[window]))
    swing = float(acf[k])
    evidence = (
        f"the loop's damping ratio is {damping:.2f} (1 is critical), its period {period:.1f} "
        f"frames; innovations half a period apart correlate by {swing:+.2f}"
    )
    shows = swing < -max(0.05, SURE * float(error[k]))
    # Fewer than eight periods cannot be distinguished from a mean that changes.
    repeats = period * 8.0 < memory["frames"]
    failed = repeats and (damping < RINGING or (damping < DAMPING and shows))
    position = loop["position_gain"]
    remedy = (
        f"velocity_gain is too large for position_gain={position:.3g}: use about "
        f'{position**2 / (2.0 - position):.2g}, or gains="information"'
    )
    remedy = SETTINGS[name] if learns(kind, fields) else remedy
    measured = {"damping": damping, "period": period, "swing": swing}
    return _judged(name, failed, evidence, remedy, measured)


def freedom(kind: str, fields: dict[str, Numbers]) -> int:
    """Degrees of freedom of nis: components, or planes."""
    width = fields[kind].shape[-1]
    return width if kind == "position" else width * (width - 1) // 2


def calibration(
    kind: str,
    fields: dict[str, Numbers],
    run: Run | None,
    counts: Numbers | None,
    noise_std: float | None,
    others: list[str],
) -> Finding:
    """The size of the innovations against what the tracker expects."""
    name = "wrong noise"
    nis = settled(fields["nis"])
    degrees = freedom(kind, fields)
    measured: dict[str, float] = {}
    words, factors = [], []
    tuned = learns(kind, fields)
    if not np.isnan(nis).all() and degrees:
        sizes = nis / degrees
        if tuned:  # single jumps and the ends of gaps decide the mean, whatever the noise
            parts = np.array_split(nis[~np.isnan(nis)], 12)
            sizes = np.array([np.median(part) for part in parts if part.size])
            sizes /= median_of_chi_squared(degrees)
        mean, error = blocks(sizes[:, None])
        ratio = float(mean[0])
        measured["nis_ratio"] = ratio
        words.append(f"squared innovations are {ratio:.2f} times the expected size")
        if abs(np.log(max(ratio, 1e-12))) * ratio > SURE * float(error[0]):
            factors.append(ratio)
    # A tracker with heavy tails expects more scatter than Gaussian samples have.
    gaussian = "tails" not in fields
    if run is not None and kind == "covariance" and counts is not None and gaussian:
        power = settled(run.power)
        m = counts if counts.ndim == 0 else settled(counts)[:, None]
        spread = float(mean_of(np.reshape(0.5 * m * (power - 1.0) ** 2, -1)))
        measured["n_samples"] = float(np.mean(counts)) / spread
        words.append(f"variances scatter like those of {measured['n_samples']:.3g} samples")
        factors.append(spread)
    if not words:
        return Finding(
            name, "unknown", "fixed gains predict no variance; give observations and n_samples"
        )
    # Other faults only make innovations larger: small ones are the noise's fault alone.
    blamed = [f for f in others if f != "overshoot" or np.isnan(nis).all()]
    if blamed and not measured.get("nis_ratio", 1.0) < 1.0 / MISFIT:
        words.append(f"correct the {blamed[0]} first, which changes this too")
        return Finding(name, "unknown", "; ".join(words), measured=measured)
    worst = max(factors, key=lambda f: abs(np.log(max(f, 1e-12))), default=1.0)
    more = "larger" if worst > 1 else "smaller"
    best = None if noise_std is None else noise_std * np.sqrt(worst)
    verb, setting = "set", "noise_std"
    if kind == "covariance":
        verb, setting = "lower" if worst > 1 else "raise", "n_samples"
        best = None if counts is None else measured.get(setting, float(np.mean(counts)) / worst)
    remedy = f"the noise is {more} than {setting} says: {verb} {setting}"
    remedy += "" if best is None else f" to about {best:.3g}"
    verdict: Verdict = "fault"
    if tuned:
        verdict, remedy = _fault_or_note(name, knows_noise(fields))
    failed = not 1.0 / MISFIT < worst < MISFIT
    return _judged(name, failed, "; ".join(words), remedy, measured, verdict)


def divergence(
    kind: str, fields: dict[str, Numbers], run: Run | None, loop: dict[str, float]
) -> Finding:
    """Estimates that are not finite, worse than none, or of a loop that is unstable."""
    name = "divergence"
    main = fields[kind].reshape(fields["time"].size, -1)
    broken: Mask = ~np.isnan(fields["age"]) & ~np.all(np.isfinite(main), axis=-1)
    if kind == "position":
        broken = np.any(np.isinf(main), axis=-1)
    measured = {"broken_frames": float(broken.sum())}
    if broken.any():
        evidence = f"the estimate is not finite in {broken.sum()} frames, "
        evidence += f"first in frame {broken.argmax()}"
        remedy = "smaller gains keep a linear tracker stable; KGMRF cannot leave the manifold"
        remedy = SETTINGS[name] if learns(kind, fields) else remedy
        return Finding(name, "fault", evidence, remedy, measured)
    if run is None:
        return Finding(name, "unknown", f"all frames are finite; the rest {NEEDS}")
    # In the second half every tracker has started.
    half = run.over_nothing.size // 2
    mean, error = blocks(run.over_nothing[half:, None])
    advantage = float(mean[0])
    measured["advantage"] = advantage
    if "radius" in loop:
        measured["radius"] = loop["radius"]
    if kind == "covariance":
        evidence = f"against a sphere of the observed size: {advantage:+.3f} nats per sample"
        limit = 0.02 * fields[kind].shape[-1]
    else:
        evidence = f"against holding the last observation: {advantage:+.3g} of squared error"
        limit = 0.3 * float(mean_of(np.sum(run.angle[half:] ** 2, axis=-1)))
    lost = advantage < -limit and advantage < -SURE * float(error[0])
    tuned = learns(kind, fields)
    if tuned:
        usual, advantage, large = _usual_errors(run, fields)
        measured["advantage"] = advantage
        evidence = f"against holding the last observation: {advantage:+.3g} of squared error"
        lost = large and advantage < -0.3 * usual
    unstable = loop.get("radius", 0.0) > 1.02
    if unstable:
        evidence += f"; the loop's error map has radius {loop['radius']:.2f} > 1"
    remedy = (
        "the estimate is worse than none: "
        + ("the gains are unstable (theory.stable), lower velocity_gain; " if unstable else "")
        + 'use gains="information", check n_samples or noise_std, widen rate_prior'
    )
    remedy = SETTINGS[name] if tuned else remedy
    return _judged(name, lost or unstable, evidence, remedy, measured)


def worth(run: Run) -> Finding:
    """Against the best plain moving average, in nats per sample."""
    mean, error = blocks(run.over_average[run.over_average.size // 2 :, None])
    advantage = float(mean[0])
    evidence = f"against the best plain moving average: {advantage:+.3f} nats per sample"
    failed = advantage < -0.01 * run.power.shape[-1] and advantage < -SURE * float(error[0])
    remedy = (
        'a plain average predicts better: use gains="information", fit its acceleration and '
        "spectrum_rate with kgmrf.learn.fit, or let the spectrum adapt"
    )
    return _judged("worse than averaging", failed, evidence, remedy, {"advantage": advantage})


def manifold(kind: str, fields: dict[str, Numbers]) -> Finding:
    """Departure from rotations, or from symmetric positive semidefinite matrices."""
    name = "off the manifold"
    if kind == "position":
        return Finding(name, "ok", "vectors cannot leave their space")
    good = ~np.isnan(fields[kind]).any(axis=(1, 2))
    if not good.any():
        return Finding(name, "unknown", "there is no estimate in any frame")
    X = fields[kind][good]
    frame = X if kind == "rotation" else fields["frame"][good]
    defect = float(np.abs(np.swapaxes(frame, -1, -2) @ frame - np.eye(X.shape[-1])).max())
    measured = {"defect": defect}
    evidence = f"|Q^T Q - I| is at most {defect:.1e}"
    failed = defect > DEFECT
    remedy = "project the frame with geometry.so.project, or use the exact exponential so.exp"
    if kind == "covariance":
        size = np.abs(X).max(axis=(1, 2))
        skew = float((np.abs(X - np.swapaxes(X, -1, -2)).max(axis=(1, 2)) / size).max())
        lowest = np.linalg.eigvalsh(0.5 * (X + np.swapaxes(X, -1, -2)))[:, 0] / size
        # Fewer samples than channels, or dependent channels, leave an eigenvalue of zero, which
        # rounding may make negative.
        outside = int(np.sum(~(lowest > -ROUNDING)))
        measured |= {"asymmetry": skew, "not_positive_frames": float(outside)}
        evidence += f", asymmetry {skew:.1e}, {outside} frames with a negative eigenvalue"
        if skew > DEFECT or outside:
            failed = True
            remedy = "averaged entries left the cone: use KGMRF, which tracks frame and spectrum"
    return _judged(name, failed, evidence, remedy, measured)


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
    remedy = "these axes cannot be distinguished: use the covariance rather than single axes, and "
    spread = fields.get("angle_std")
    if spread is not None and not np.isnan(spread).all():
        angles = np.median(np.diagonal(settled(spread[good]), 1, axis1=-2, axis2=-1), axis=0)
        widest = int(np.argmax(angles))
        measured["angle_std"] = float(angles[widest])
        evidence += (
            f"; the angle between axes {widest} and {widest + 1} is known to "
            f"{np.degrees(angles[widest]):.1f} degrees"
        )
        faint = angles[widest] > WIDE_ANGLE
        remedy += "pool more samples per step (n_samples) if you need the axes"
    else:
        remedy += 'gains="information", which turns such planes no further than the data allow'
    return _judged(name, bool(faint), evidence, remedy, measured, "note")
