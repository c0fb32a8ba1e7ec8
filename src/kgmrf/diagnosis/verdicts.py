"""One verdict per way of failing: what was measured, whether it is a fault, and the remedy."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from kgmrf._types import Mask, Numbers
from kgmrf.diagnosis.innovations import blocks, mean_of, settled
from kgmrf.diagnosis.report import Finding
from kgmrf.model.integrated_time import THRESHOLD, integrated_time

SURE = 5.0  # standard errors beyond which a deviation is not chance
DEFECT = 1e-6  # departure from orthonormality or symmetry that is more than rounding
RINGING = 0.3  # damping ratio below which a loop rings at every disturbance (1 is critical)
MEMORY = 0.15  # autocorrelation of the innovations at lag 1 that is a fault
BIAS = 0.25  # mean innovation, in standard deviations of the innovations, that is a fault
MISFIT = 1.6  # factor by which innovations may differ from the size that the tracker expects
WIDE_ANGLE = 0.4  # standard deviation of a plane's angle (radians) at which its axes are unknown
REVERSED = 0.45  # autocorrelation at which a self-tuned tracker follows the noise alone

NEEDS = "needs the observations of 20 steps or more: diagnose(result, observations, ...)"


FIXED = (
    "fixed gains do not fit this motion (position_gain {position_gain:.3f}, velocity_gain "
    "{velocity_gain:.3f}, retention {retention:.2f}): leave gains out, and they are tuned"
)


# What a self-tuned tracker of rotations can be given: the settings that it has.
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


class Case(NamedTuple):
    """One run, and what was measured on it: a `Run` and its `Memory`, None without observations."""

    kind: str
    fields: dict[str, Numbers]
    run: Any
    memory: Any
    loop: dict[str, float]
    counts: Numbers | None
    noise_std: float | None
    noise_floor: float

    @property
    def tuned(self) -> bool:
        """Whether the run is of the self-tuned tracker of rotations."""
        return self.kind == "rotation" and "status" in self.fields

    @property
    def knows_noise(self) -> bool:
        """Whether the self-tuned tracker of rotations was given its noise."""
        noise = self.fields["noise_std"][~np.isnan(self.fields["noise_std"])]
        return noise.size > 0 and float(np.ptp(noise)) <= 1e-9 * float(noise[0])

    @property
    def freedom(self) -> int:
        """Degrees of freedom of nis: components, or planes."""
        width = self.fields[self.kind].shape[-1]
        return width if self.kind == "position" else width * (width - 1) // 2

    @property
    def rings(self) -> bool:
        """Whether the loop overshoots again and again; eight periods differ from a drift."""
        lasts = self.loop.get("period", 0.0) * 8.0 < self.fields["time"].size
        return lasts and self.loop.get("damping", 1.0) < RINGING

    def usual_errors(self) -> tuple[float, float, bool]:
        """Medians of the squared error and of the advantage over the last observation, in the
        second half; whether that error is large against the noise.

        Recordings have gaps and jumps, which decide every mean.
        """
        half = self.run.over_nothing.size // 2
        error, advantage = np.sum(self.run.angle[half:] ** 2, axis=-1), self.run.over_nothing[half:]
        there = ~np.isnan(error + advantage)
        if not there.any():
            return 0.0, 0.0, False
        usual = float(np.median(error[there]))
        noise = min(3.0 * float(np.nanmedian(self.fields["noise_std"])), 0.1)
        large = usual > median_of_chi_squared(self.freedom) * noise**2
        return usual, float(np.median(advantage[there])), large

    def judge(
        self,
        name: str,
        failed: bool,
        evidence: str,
        remedy: str,
        measured: dict[str, float],
        serious: bool = True,
    ) -> Finding:
        """A finding; of a self-tuned run a note, unless it is serious."""
        if not failed:
            return Finding(name, "ok", evidence, measured=measured)
        if self.tuned:
            remedy = (SETTINGS if serious else USUAL)[name]
        return Finding(name, "fault" if serious else "note", evidence, remedy, measured)


def median_of_chi_squared(degrees: int) -> float:
    """Wilson and Hilferty's approximation, good to a percent from two degrees of freedom on."""
    return float(degrees * (1.0 - 2.0 / (9.0 * degrees)) ** 3)


SIGNAL = "rows predict each other"
FOR_SIGNALS = (
    'for the covariance of the signal use KGMRF(time_scale="auto"), for forecasts and alarms '
    'KGMRF(mean="linear"); a law with more acceleration only follows the last rows more closely'
)


def lag(case: Case) -> Finding:
    """Innovations with a mean or a memory: the estimate lags behind."""
    run, memory, loop = case.run, case.memory, case.loop
    u = settled(run.innovation)
    mean, error = blocks(u)
    scale = np.sqrt(mean_of(u**2))
    share = np.abs(mean) / np.where(scale > 0, scale, 1.0)
    sure = np.abs(mean) > SURE * error
    worst = int(np.nanargmax(np.where(np.isnan(share), 0.0, share * sure)))
    biased = bool(sure[worst]) and share[worst] > BIAS
    r1 = memory.lag
    # A ringing loop has a memory of its own.
    slow = r1 > MEMORY and r1 > SURE * memory.error and not case.rings
    angle = float(mean_of(settled(run.angle))[worst])
    unit = "" if case.kind == "position" else f" ({np.degrees(angle):.2f} degrees)"
    evidence = (
        f"mean innovation is {share[worst]:.2f} sigma{unit}; autocorrelation at lag 1 is {r1:+.2f}"
    )
    nis = mean_of(settled(case.fields["nis"])) / max(case.freedom, 1)
    remedy = (
        "the motion changes faster than expected: raise acceleration in "
        "gains.information(acceleration=...), or let kgmrf.learn.fit find it"
    )
    if not loop.get("moves"):
        better = "RotationTracker()" if case.kind == "rotation" else "KGMRF()"
        remedy = f"it carries no velocity: use {better}"
    elif np.isnan(nis):
        remedy = FIXED.format(**loop)
    elif nis < 1.0 / MISFIT:
        remedy = "it expects more noise than there is and follows too slowly: see wrong noise"
    measured = {"bias": float(share[worst]), "autocorrelation": r1, "mean_innovation": angle}
    serious = True
    if case.tuned:
        usual, advantage, large = case.usual_errors()
        # Without lag the error is small against the turn from one observation to the next.
        serious = large and advantage < 3.0 * usual
    return case.judge("persistent lag", biased or slow, evidence, remedy, measured, serious)


def overshoot(case: Case) -> Finding:
    """Innovations that change sign from step to step: the estimate follows the noise."""
    memory, loop = case.memory, case.loop
    r1 = min(memory.lag, memory.of_shape)
    names = ("position_gain", "velocity_gain")
    measured = {"autocorrelation": r1} | {name: loop[name] for name in names if name in loop}
    evidence = f"autocorrelation of the innovations at lag 1 is {r1:+.2f}"
    if loop:
        evidence += f"; measured position gain {loop['position_gain']:.3g}"
        evidence += f", velocity gain {loop['velocity_gain']:.3g}" if loop.get("moves") else ""
    noise = "n_samples" if case.kind == "covariance" else "noise_std"
    remedy = (
        "corrections are reversed at the next step, so it follows the noise: lower the gains, or "
        f"acceleration if they follow from it, and check {noise}"
    )
    failed = r1 < -MEMORY and r1 < -SURE * memory.error
    serious = not case.tuned or (r1 < -REVERSED and case.knows_noise)
    return case.judge("overshoot", failed, evidence, remedy, measured, serious)


def oscillation(case: Case) -> Finding:
    """A loop that rings: too much velocity gain for its position gain."""
    loop = case.loop
    if "damping" not in loop:
        return Finding("oscillation", "ok", "the loop has no velocity or does not ring")
    measured = {name: loop[name] for name in ("damping", "period")}
    evidence = f"damping ratio {loop['damping']:.2f} (1 is critical), "
    evidence += f"period {loop['period']:.1f} steps"
    return case.judge("oscillation", case.rings, evidence, FIXED.format(**loop), measured)


def manifold(case: Case) -> Finding:
    """Departure from rotations, or from symmetric positive semidefinite matrices."""
    name, X = "off the manifold", case.fields[case.kind]
    if case.kind == "position":
        return Finding(name, "ok", "vectors cannot leave their space")
    good = ~np.isnan(X).any(axis=(1, 2))
    if not good.any():
        return Finding(name, "unknown", "there is no estimate at any step")
    X = X[good]
    frame = X if case.kind == "rotation" else case.fields["frame"][good]
    flipped = np.swapaxes(X, -1, -2)
    defect = float(np.abs(np.swapaxes(frame, -1, -2) @ frame - np.eye(X.shape[-1])).max())
    measured, evidence = {"defect": defect}, f"|Q^T Q - I| is at most {defect:.1e}"
    if case.kind == "covariance":
        size = np.abs(X).max(axis=(1, 2))
        skew = float((np.abs(X - flipped).max(axis=(1, 2)) / size).max())
        lowest = float((np.linalg.eigvalsh(0.5 * (X + flipped))[:, 0] / size).min())
        measured |= {"asymmetry": skew, "lowest": lowest}
        evidence += f", asymmetry {skew:.1e}, lowest eigenvalue {lowest:.1e} of the largest entry"
        # Dependent channels have an eigenvalue of zero, which rounding may make negative.
        defect = max(defect, skew, -1e4 * lowest)
    remedy = "use KGMRF or RotationTracker, which cannot leave it"
    return case.judge(name, defect > DEFECT, evidence, remedy, measured)


def calibration(case: Case, others: list[str]) -> Finding:
    """The size of the innovations against what the tracker expects."""
    name = "wrong noise"
    counts, degrees = case.counts, case.freedom
    nis = settled(case.fields["nis"])
    measured: dict[str, float] = {}
    words, factors = [], []
    if not np.isnan(nis).all() and degrees:
        sizes = nis / degrees
        if case.tuned:  # single jumps and the ends of gaps decide the mean, whatever the noise
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
    gaussian = "tails" not in case.fields and case.kind == "covariance"
    if case.run is not None and counts is not None and gaussian:
        power = settled(case.run.power)
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
    best = None if case.noise_std is None else case.noise_std * np.sqrt(worst)
    verb, setting = "set", "noise_std"
    if case.kind == "covariance":
        verb, setting = "lower" if worst > 1 else "raise", "n_samples"
        best = None if counts is None else measured.get(setting, float(np.mean(counts)) / worst)
    remedy = f"the noise is {more} than {setting} says: {verb} {setting}"
    remedy += "" if best is None else f" to about {best:.3g}"
    failed = not 1.0 / MISFIT < worst < MISFIT
    serious = not case.tuned or case.knows_noise
    return case.judge(name, failed, "; ".join(words), remedy, measured, serious)


def divergence(case: Case) -> Finding:
    """Estimates that are not finite, worse than none, or of a loop that is unstable."""
    judge = partial(case.judge, "divergence")
    kind, fields, run, loop = case.kind, case.fields, case.run, case.loop
    main = fields[kind].reshape(fields["time"].size, -1)
    broken: Mask = ~np.isnan(fields["age"]) & ~np.all(np.isfinite(main), axis=-1)
    if kind == "position":
        broken = np.any(np.isinf(main), axis=-1)
    measured = {"broken_frames": float(broken.sum())}
    if broken.any():
        evidence = f"the estimate is not finite in {broken.sum()} steps, "
        evidence += f"first in step {broken.argmax()}"
        remedy = "smaller gains keep a linear tracker stable; KGMRF cannot leave the manifold"
        return judge(True, evidence, remedy, measured)
    if run is None:
        return Finding("divergence", "unknown", f"all steps are finite; the rest {NEEDS}")
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
    if case.tuned:
        usual, advantage, large = case.usual_errors()
        measured["advantage"] = advantage
        evidence = f"against holding the last observation: {advantage:+.3g} of squared error"
        lost = large and advantage < -0.3 * usual
    unstable = loop.get("radius", 0.0) > 1.02
    if unstable:
        evidence += f"; the loop's error map has radius {loop['radius']:.2f} > 1"
    remedy = (
        "the estimate is worse than none: "
        + ("the gains are unstable (theory.stable), lower velocity_gain; " if unstable else "")
        + "leave gains out, check n_samples or noise_std, widen rate_prior"
    )
    return judge(lost or unstable, evidence, remedy, measured)


def gaps(case: Case) -> Finding:
    """Axes whose eigenvalues are too close for their directions to mean anything."""
    name = "near-degenerate gaps"
    spectrum = case.fields["spectrum"]
    good = ~np.isnan(spectrum).any(axis=-1)
    d = spectrum.shape[-1]
    if d == 1 or not good.any():
        return Finding(name, "ok", "there is no plane to turn in")
    late = settled(spectrum[good])
    level = late + case.noise_floor
    gap = np.abs(np.diff(late, axis=-1))
    seen = np.median(gap**2 / (level[:, 1:] * level[:, :-1]), axis=0)
    worst = int(np.argmin(seen))
    measured = {"information": float(seen[worst]), "plane": float(worst)}
    evidence = f"axes {worst} and {worst + 1} differ by G^2/(d_i d_j) = {seen[worst]:.2g}"
    faint = seen[worst] < 1e-2
    remedy = "these axes cannot be distinguished: use the covariance rather than single axes, and "
    spread = case.fields.get("angle_std")
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
        remedy += "KGMRF(), which turns such planes no further than the data allow"
    return case.judge(name, bool(faint), evidence, remedy, measured, serious=False)


def with_signal(
    findings: list[Finding], fields: dict[str, Numbers], observations: Any
) -> list[Finding]:
    """Adds whether raw rows predict each other, as the samples of a signal do; other observations
    add nothing. If they do, that is why the estimate lags."""
    raw = isinstance(observations, np.ndarray) and observations.ndim == 2
    tau = integrated_time(observations.astype(float)) if raw else np.nan
    if np.isnan(tau):
        return findings
    measured, evidence = {"integrated_time": tau}, f"integrated time {tau:.1f} rows"
    scaled = "time_scale" in fields and fields["time_scale"][-1] > 1.0
    if tau < THRESHOLD and not scaled:
        return [*findings, Finding(SIGNAL, "ok", evidence, measured=measured)]
    lag = [each.name for each in findings].index("persistent lag")
    if scaled:  # the next row is nothing to compare the covariance of a signal with
        found = Finding(SIGNAL, "ok", evidence, measured=measured)
        instead = Finding("persistent lag", "unknown", "the covariance is that of the signal")
    else:
        found = Finding(SIGNAL, "fault", evidence, FOR_SIGNALS, measured)
        instead = findings[lag]
        if instead.verdict == "fault":
            instead = replace(instead, remedy=f"see {SIGNAL}")
    return [*findings[:lag], instead, *findings[lag + 1 :], found]
