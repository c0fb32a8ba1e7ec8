"""Verdicts on the motion: lag, overshoot, oscillation, wrong noise."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgmrf._types import Numbers
from kgmrf.diagnosis.innovations import Run
from kgmrf.diagnosis.measures import blocks, mean_of, settled
from kgmrf.diagnosis.report import MEMORY, Finding

SURE = 5.0
"""Standard errors beyond which a deviation is not chance."""

BIAS = 0.25
"""Mean innovation, in standard deviations of the innovations, that is worth a remedy."""

RINGING = 0.3
"""Damping ratio below which a loop rings at every disturbance (1 is critical)."""

DAMPING = 0.5
"""Damping ratio below which ringing is believed if the innovations show it too."""

MISFIT = 1.6
"""Factor by which the size of the innovations may differ from what the tracker expects."""

NEEDS = "needs the observations of 20 frames or more: diagnose(result, observations, ...)"


def lag(
    run: Run | None, memory: dict[str, Any], loop: dict[str, float], fields: dict[str, Numbers]
) -> Finding:
    """Innovations with a mean or a memory: the estimate stays behind."""
    name = "persistent lag"
    if run is None:
        return Finding(name, "unknown", NEEDS)
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
    measured = {"bias": float(share[worst]), "autocorrelation": r1, "mean_innovation": angle}
    unit = "" if run.kind == "position" else f" ({np.degrees(angle):.2f} degrees)"
    evidence = (
        f"mean innovation is {share[worst]:.2f} sigma{unit}; autocorrelation at lag 1 is {r1:+.2f}"
    )
    if not (biased or slow):
        return Finding(name, "ok", evidence, measured=measured)
    if not loop.get("moves"):
        remedy = 'it carries no velocity: use KGMRF(gains="information")'
        if run.kind == "rotation":
            remedy = "it carries no velocity: use RotationTracker(noise_std=...)"
    elif loop["retention"] < 0.98 and np.isnan(fields["nis"]).all():
        remedy = (
            f"the velocity is damped (retention {loop['retention']:.2f}): use "
            'gains="information", or gains="zero_lag", which keeps retention at 1'
        )
    elif np.isnan(fields["nis"]).all():
        remedy = (
            "correct the oscillation first"
            if rings
            else 'raise position_gain and velocity_gain together, or use gains="information"'
        )
    elif nis_ratio(run.kind, fields) < 1.0 / MISFIT:
        remedy = "it expects more noise than there is and so follows too slowly: see wrong noise"
    else:
        remedy = (
            "the motion changes faster than expected: raise acceleration in "
            "gains.information(acceleration=...), or let kgmrf.learn.fit find it"
        )
    return Finding(name, "fault", evidence, remedy, measured)


def overshoot(memory: dict[str, Any], loop: dict[str, float], kind: str) -> Finding:
    """Innovations that change sign from step to step: noise is chased."""
    name = "overshoot"
    if not memory:
        return Finding(name, "unknown", NEEDS)
    r1 = min(float(memory["acf"][1]), memory["first"])
    error = float(memory["error"][1])
    measured = {"autocorrelation": r1} | {
        k: loop[k] for k in ("position_gain", "velocity_gain") if k in loop
    }
    evidence = f"each innovation is followed by {r1:+.2f} of itself"
    if loop:
        evidence += f"; measured position gain {loop['position_gain']:.3g}"
        evidence += f", velocity gain {loop['velocity_gain']:.3g}" if loop.get("moves") else ""
    if not (r1 < -MEMORY and r1 < -SURE * error):
        return Finding(name, "ok", evidence, measured=measured)
    noise = "n_samples" if kind == "covariance" else "noise_std"
    remedy = (
        "corrections are taken back at the next frame, so it chases noise: lower position_gain "
        f'and velocity_gain, or with gains="information" lower acceleration and check {noise}'
    )
    return Finding(name, "fault", evidence, remedy, measured)


def oscillation(memory: dict[str, Any], loop: dict[str, float]) -> Finding:
    """A loop that rings: too much velocity gain for its position gain."""
    name = "oscillation"
    if not memory:
        return Finding(name, "unknown", NEEDS)
    acf, error = memory["acf"], memory["error"]
    if "damping" not in loop:
        return Finding(name, "ok", "the loop has no velocity or does not ring")
    period, damping = loop["period"], loop["damping"]
    half = min(max(round(period / 2.0), 1), acf.size - 1)
    window = slice(max(half - half // 3, 1), min(half + half // 3 + 1, acf.size))
    k = window.start + int(np.argmin(acf[window]))
    swing = float(acf[k])
    measured = {"damping": damping, "period": period, "swing": swing}
    evidence = (
        f"the loop's damping ratio is {damping:.2f} (1 is critical), its period {period:.1f} "
        f"frames; innovations half a period apart correlate by {swing:+.2f}"
    )
    shows = swing < -max(0.05, SURE * float(error[k]))
    # What repeats less than eight times in the run cannot be told from a wandering mean.
    repeats = period * 8.0 < memory["frames"]
    if not (repeats and (damping < RINGING or (damping < DAMPING and shows))):
        return Finding(name, "ok", evidence, measured=measured)
    critical = loop["position_gain"] ** 2 / (2.0 - loop["position_gain"])
    remedy = (
        f"velocity_gain is too large for position_gain={loop['position_gain']:.3g}: about "
        f'{critical:.2g} keeps the balance, or use gains="information"'
    )
    return Finding(name, "fault", evidence, remedy, measured)


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
    if not np.isnan(nis).all() and degrees:
        mean, error = blocks(nis[:, None] / degrees)
        ratio = float(mean[0])
        measured["nis_ratio"] = ratio
        words.append(f"normalised innovations are {ratio:.2f} of what is expected")
        if abs(np.log(max(ratio, 1e-12))) * ratio > SURE * float(error[0]):
            factors.append(ratio)
    single = None
    # A tracker that follows heavy tails expects more scatter than Gaussian samples have.
    gaussian = "tails" not in fields
    if run is not None and kind == "covariance" and counts is not None and gaussian:
        power = settled(run.power)
        m = counts if counts.ndim == 0 else settled(counts)[:, None]
        spread = float(mean_of(np.reshape(0.5 * m * (power - 1.0) ** 2, -1)))
        single = float(np.mean(counts)) / spread
        measured["n_samples"] = single
        words.append(f"the observed variances scatter like those of {single:.3g} samples")
        factors.append(spread)
    if not words:
        return Finding(
            name, "unknown", "fixed gains expect no variance; give observations and n_samples"
        )
    # Other faults only make innovations larger: small ones are the noise's fault alone.
    blamed = [f for f in others if f != "overshoot" or np.isnan(nis).all()]
    if blamed and not measured.get("nis_ratio", 1.0) < 1.0 / MISFIT:
        words.append(f"correct the {blamed[0]} first, which changes them too")
        return Finding(name, "unknown", "; ".join(words), measured=measured)
    worst = max(factors, key=lambda f: abs(np.log(max(f, 1e-12))), default=1.0)
    if 1.0 / MISFIT < worst < MISFIT:
        return Finding(name, "ok", "; ".join(words), measured=measured)
    more = "larger" if worst > 1 else "smaller"
    if kind == "covariance":
        best = single if single is not None else None
        if best is None and counts is not None:
            best = float(np.mean(counts)) / worst
        number = "" if best is None else f" to about {best:.3g}"
        verb = "lower" if worst > 1 else "raise"
        remedy = f"the noise is {more} than n_samples says: {verb} n_samples{number}"
    else:
        number = "" if noise_std is None else f" to about {noise_std * np.sqrt(worst):.3g}"
        remedy = f"the noise is {more} than noise_std says: set noise_std{number}"
    return Finding(name, "fault", "; ".join(words), remedy, measured)


def nis_ratio(kind: str, fields: dict[str, Numbers]) -> float:
    """Mean normalised innovation squared over its expectation."""
    return float(mean_of(settled(fields["nis"])) / max(freedom(kind, fields), 1))


def freedom(kind: str, fields: dict[str, Numbers]) -> int:
    """Degrees of freedom of nis: components, or planes."""
    width = fields[kind].shape[-1]
    return width if kind == "position" else width * (width - 1) // 2
