"""What went wrong in a run: evidence, verdict and remedy for each way of failing.

A tracker that fits its data leaves nothing to predict in its innovations: they have no mean, no
memory, and the size that it expects. Each fault breaks this in its own way, and the loop's own
gains, which can be measured from a finished run, tell which setting is to blame.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from kgmrf import _check, theory
from kgmrf._types import Mask, Numbers
from kgmrf.geometry import orbit, so

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Finding", "Report", "diagnose"]

Verdict = Literal["ok", "fault", "unknown"]

SURE = 5.0
"""Standard errors beyond which a deviation is not chance."""

MEMORY = 0.15
"""Autocorrelation of the innovations at lag 1 that is worth a remedy."""

BIAS = 0.25
"""Mean innovation, in standard deviations of the innovations, that is worth a remedy."""

RINGING = 0.3
"""Damping ratio below which a loop rings at every disturbance (1 is critical)."""

DAMPING = 0.5
"""Damping ratio below which ringing is believed if the innovations show it too."""

MISFIT = 1.6
"""Factor by which the size of the innovations may differ from what the tracker expects."""

WIDE_ANGLE = 0.4
"""Standard deviation of a plane's angle (radians) at which its axes are as good as unknown."""

DEFECT = 1e-6
"""Departure from orthonormality or symmetry that is no rounding any more."""


ROUNDING = 1e-10
"""How far below zero, as a share of the largest entry, an eigenvalue of zero may be computed."""


@dataclass(frozen=True)
class Finding:
    """One way of failing: its name, the verdict, what was measured, and what to do about it."""

    name: str
    verdict: Verdict
    evidence: str
    remedy: str = ""
    measured: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """All findings on one run; prints as text. ``faults`` are the names of those that failed."""

    findings: tuple[Finding, ...]
    frames: int
    traces: Mapping[str, Numbers] = field(default_factory=dict, repr=False)

    @property
    def healthy(self) -> bool:
        """True if nothing that could be checked failed."""
        return not self.faults

    @property
    def faults(self) -> tuple[str, ...]:
        """Names of the findings that failed."""
        return tuple(f.name for f in self.findings if f.verdict == "fault")

    def __getitem__(self, name: str) -> Finding:
        for finding in self.findings:
            if finding.name == name:
                return finding
        raise KeyError(f"no finding {name!r}; there are {', '.join(f.name for f in self.findings)}")

    def __str__(self) -> str:
        unknown = sum(f.verdict == "unknown" for f in self.findings)
        head = "healthy" if self.healthy else f"{len(self.faults)} fault(s)"
        lines = [f"{self.frames} frames: {head}" + (f", {unknown} unchecked" if unknown else "")]
        width = max(len(f.name) for f in self.findings)
        marks = {"ok": "ok     ", "fault": "FAULT  ", "unknown": "?      "}
        for finding in sorted(self.findings, key=lambda f: f.verdict != "fault"):
            lines.append(f"  {marks[finding.verdict]}{finding.name:<{width}}  {finding.evidence}")
            if finding.remedy and finding.verdict != "ok":
                lines.append(" " * (11 + width) + f"-> {finding.remedy}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain numbers and words, ready for JSON."""
        return {
            "frames": self.frames,
            "healthy": self.healthy,
            "findings": [
                {
                    "name": f.name,
                    "verdict": f.verdict,
                    "evidence": f.evidence,
                    "remedy": f.remedy,
                    "measured": {k: float(v) for k, v in f.measured.items()},
                }
                for f in self.findings
            ],
        }

    def plot(self, path: str | Path | None = None) -> Figure:
        """Draw the innovations, their autocorrelation, their size and the planes' uncertainty.

        Returns the matplotlib figure; with ``path`` also writes it (PNG, SVG or PDF by its ending).
        """
        from kgmrf.plots import COLOURS, CYCLE, new_figure, style, write_figure

        panels = [
            name
            for name in ("innovation", "autocorrelation", "nis", "angle_std", "std")
            if name in self.traces and not np.isnan(self.traces[name]).all()
        ]
        titles = {
            "innovation": "innovations, in deviations of the observation's noise",
            "autocorrelation": "autocorrelation of the innovations, against lag in frames",
            "nis": "normalised innovation squared, over its expectation (running mean of 25)",
            "angle_std": "standard deviation of the angle in every plane, degrees",
            "std": "standard deviation of every component",
        }
        time = self.traces["time"]
        with style():
            figure = new_figure(1.5 * len(panels) + 0.4)
            for k, name in enumerate(panels):
                axes = figure.add_subplot(len(panels), 1, k + 1)
                axes.set_title(titles[name])
                values = self.traces[name]
                if name == "autocorrelation":
                    axes.stem(np.arange(1, values.size), values[1:], basefmt=" ", markerfmt=".")
                    for level in (-MEMORY, MEMORY):
                        axes.axhline(level, color=COLOURS["quiet"], lw=0.6, ls="--")
                    continue
                if name == "nis":
                    values = _running(values / self.traces["freedom"], 25)[:, None]
                    axes.axhline(1.0, color=COLOURS["quiet"], lw=0.6, ls="--")
                if name == "angle_std":
                    rows, columns = np.triu_indices(values.shape[-1], 1)
                    values = np.degrees(values[:, rows, columns])
                for j in range(values.shape[-1]):
                    axes.plot(time, values[:, j], color=CYCLE[j % len(CYCLE)], lw=0.8)
            figure.axes[-1].set_xlabel("time")
            if path is not None:
                write_figure(figure, path)
        return figure


class _Run(NamedTuple):
    """A finished run of one track, opened up: time first, NaN where there is nothing to compare."""

    kind: str
    times: Numbers
    innovation: Numbers  # (T, k): unit variance if only the observation's noise was in it
    correction: Numbers  # (T, k): how far the estimate turned
    angle: Numbers  # (T, k): the innovation in the units of the correction
    velocity: Numbers  # (T, k)
    power: Numbers  # (T, d): observed over predicted variance along the axes (covariances)
    shape: Numbers  # (T, d, d): whitened residual in the space frame (covariances)
    over_nothing: Numbers  # (T,): advantage over a sphere, or over the last observation
    over_average: Numbers  # (T,): advantage over a moving average, nats per sample (covariances)


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
    fields = _fields(result, item)
    n_frames = fields["time"].shape[0]
    kind = next(name for name in ("covariance", "rotation", "position") if name in fields)
    counts = None if n_samples is None else np.asarray(n_samples, dtype=float)
    if counts is not None and counts.ndim and counts.shape != (n_frames,):
        raise ValueError(f"n_samples must be a number or one per frame, got shape {counts.shape}")
    run = None
    if observations is not None:
        seen = _check.real_array(_plain(observations), "observations")
        if item is not None:
            seen = seen[(slice(None), *np.atleast_1d(item))]
        if kind == "covariance" and seen.shape != fields[kind].shape:
            seen, counts = _second_moments(seen, counts)
        if seen.shape != fields[kind].shape:
            raise ValueError(
                f"observations have shape {seen.shape}, but the result is for {fields[kind].shape}"
            )
        run = _opened(kind, fields, seen, counts, noise_std, noise_floor)
        if np.isfinite(_settled(run.innovation)).sum() < 20 * max(run.innovation.shape[-1], 1):
            run = None  # too little was observed, or there is no plane to turn in
    loop = _loop(run)
    memory = _memory(run)
    findings = [
        _lag(run, memory, loop, fields),
        _overshoot(memory, loop, kind),
        _oscillation(memory, loop),
        _divergence(kind, fields, run, loop),
        _manifold(kind, fields),
    ]
    others = [f.name for f in findings if f.verdict == "fault"]
    findings.append(_calibration(kind, fields, run, counts, noise_std, others))
    if kind == "covariance":
        findings += [_gaps(fields, noise_floor), _worth(run)]
    freedom = np.asarray(float(_freedom(kind, fields)))
    traces = {"time": fields["time"], "nis": fields["nis"], "freedom": freedom}
    if run is not None:
        traces |= {"innovation": run.innovation, "autocorrelation": memory["acf"]}
    for name in ("angle_std", "std"):
        if name in fields:
            traces[name] = fields[name]
    return Report(tuple(findings), n_frames, traces)


# --------------------------------------------------------------------------- opening up a run


def _fields(result: Any, item: int | tuple[int, ...] | None) -> dict[str, Numbers]:
    names = result.fields() if hasattr(result, "fields") else ()
    if "time" not in names:
        parts: Any = getattr(result, "keys", tuple)()
        raise TypeError(
            f"this result has the parts {', '.join(parts)}; diagnose one at a time: "
            f"diagnose(result[{parts[0]!r}], observations)"
            if isinstance(parts, tuple) and parts
            else f"diagnose takes what filter returned, got a {type(result).__name__}; first the "
            "run, then what it was given: diagnose(tracker.filter(X), X)"
        )
    fields = {name: np.asarray(getattr(result, name)) for name in names}
    batch = fields["time"].shape[1:]
    if item is None and batch:
        raise ValueError(f"this result holds a batch {batch}; say which track with item=...")
    if item is not None:
        fields = {
            name: value[(slice(None), *np.atleast_1d(item))] for name, value in fields.items()
        }
    if fields["time"].shape[0] < 30:
        raise ValueError(
            f"{fields['time'].shape[0]} frames tell too little; at least 30 are needed"
        )
    return fields


def _plain(observations: Any) -> Any:
    if isinstance(observations, (list, tuple)):
        return [f.as_matrix() if hasattr(f, "as_matrix") else f for f in observations]
    return observations.as_matrix() if hasattr(observations, "as_matrix") else observations


def _second_moments(samples: Numbers, counts: Numbers | None) -> tuple[Numbers, Numbers | None]:
    """C of raw samples ``(T, d)`` or ``(T, m, d)``, of the whole ones, and how many they are."""
    if samples.ndim not in (2, 3):
        return samples, counts
    rows = samples.reshape(samples.shape[0], -1, samples.shape[-1])
    whole: Mask = ~np.any(np.isnan(rows), axis=-1)
    number = whole.sum(axis=-1).astype(float)
    rows = np.where(whole[..., None], rows, 0.0)
    total = np.swapaxes(rows, -1, -2) @ rows
    C = total / np.where(number > 0, number, np.nan)[:, None, None]
    return C, np.maximum(number, 1.0) if counts is None else counts


def _opened(
    kind: str,
    fields: dict[str, Numbers],
    seen: Numbers,
    counts: Numbers | None,
    noise_std: float | None,
    noise_floor: float,
) -> _Run:
    """Predict every frame from the one before and compare."""
    inner = tuple(range(1, seen.ndim))
    known: Mask = ~np.any(np.isnan(fields[kind][:-1]), axis=inner)
    valid: Mask = known & ~np.any(np.isnan(seen[1:]), axis=inner)
    velocity = np.where(np.isnan(fields["velocity"]), 0.0, fields["velocity"])
    fields = {**fields, "velocity": velocity}
    m = np.ones(()) if counts is None else counts
    if kind == "covariance":
        return _opened_covariance(fields, seen, valid, m, noise_floor)
    return _opened_direct(kind, fields, seen, valid, noise_std, m)


def _opened_direct(
    kind: str,
    fields: dict[str, Numbers],
    seen: Numbers,
    valid: Mask,
    noise_std: float | None,
    m: Numbers,
) -> _Run:
    """Rotations and vectors: what is followed is what is seen."""
    times, velocity = fields["time"], fields["velocity"]
    steps = np.diff(times)
    if kind == "position":
        ahead = fields["position"][:-1] + steps[:, None] * velocity[:-1]
        error, correction = seen[1:] - ahead, fields["position"][1:] - ahead
        naive = np.sum(np.diff(seen, axis=0) ** 2, axis=-1)
        planes = velocity
    else:
        turn, correction, same = _turns(fields["rotation"], velocity, steps, valid)
        observed = np.where(valid[:, None, None], seen[1:], np.eye(seen.shape[-1]))
        error = _planes(so.log(np.swapaxes(turn, -1, -2) @ observed))
        correction = np.where(same[:, None], correction, np.nan)
        there: Mask = ~np.any(np.isnan(seen), axis=(1, 2))
        apart = so.distance(_filled(seen[:-1]), _filled(seen[1:])) ** 2
        naive = np.where(there[:-1] & there[1:], apart, np.nan)
        planes = _planes(velocity)
    error = np.where(valid[:, None], error, np.nan)
    correction = np.where(valid[:, None], correction, np.nan)
    unit = np.asarray(_unit(error) if noise_std is None else noise_std / np.sqrt(m))
    unit = unit[1:, None] if unit.ndim else unit
    return _Run(
        kind=kind,
        times=times,
        innovation=_late(error / unit),
        correction=_late(correction),
        angle=_late(error),
        velocity=planes,
        power=np.full((times.size, 1), np.nan),
        shape=np.full((times.size, 1, 1), np.nan),
        over_nothing=_late(naive - np.sum(error**2, axis=-1)),
        over_average=np.full(times.size, np.nan),
    )


def _opened_covariance(
    fields: dict[str, Numbers], seen: Numbers, valid: Mask, m: Numbers, noise_floor: float
) -> _Run:
    """Covariances: an angle is seen through the gap of its plane."""
    times, velocity = fields["time"], fields["velocity"]
    d = seen.shape[-1]
    rows, columns = np.triu_indices(d, 1)
    # A spectrum off the cone predicts nothing.
    valid = valid & np.all(np.where(valid[:, None], fields["spectrum"][:-1], 1.0) > 0, axis=-1)
    wide = valid[:, None, None]
    ahead, correction, same = _turns(fields["frame"], velocity, np.diff(times), valid)
    spectrum = np.where(valid[:, None], fields["spectrum"][:-1], 1.0)
    observed = np.where(wide, seen[1:], np.eye(d))
    level = spectrum + noise_floor
    gap = orbit.gaps(spectrum)[:, rows, columns]
    size = np.sqrt(level[:, rows] * level[:, columns])
    body = np.swapaxes(ahead, -1, -2) @ observed @ ahead
    cross = -body[:, rows, columns]
    root = np.sqrt(m if m.ndim == 0 else m[1:, None])
    # Where a plane is hardly seen its angle is noise divided by nothing.
    clear = np.abs(gap) > 0.1 * size
    angle = np.where(clear, cross / np.where(clear, gap, 1.0), 0.0)
    correction = np.where(same[:, None], np.where(clear, correction, 0.0), np.nan)
    ratio = np.diagonal(body, axis1=-2, axis2=-1) / level
    predicted = (ahead * level[:, None, :]) @ np.swapaxes(ahead, -1, -2)
    overall = np.linalg.cholesky(_average(observed, valid)) + 0 * observed
    residual = np.linalg.solve(overall, observed - predicted)
    residual = np.linalg.solve(overall, np.swapaxes(residual, -1, -2))
    sphere, average = _plain_forecasts(observed, valid, m if m.ndim == 0 else m[1:])
    moving = np.sum(np.log(level) + ratio, axis=-1)

    def row(values: Numbers) -> Numbers:
        mask = valid.reshape(valid.shape + (1,) * (values.ndim - 1))
        return _late(np.where(mask, values, np.nan))

    return _Run(
        kind="covariance",
        times=times,
        innovation=row(cross / size * root),
        correction=row(correction),
        angle=row(angle),
        velocity=_planes(velocity),
        power=row(ratio),
        shape=row(residual),
        over_nothing=row(0.5 * (sphere - moving)),
        over_average=row(0.5 * (average - moving)),
    )


def _turns(
    frame: Numbers, velocity: Numbers, steps: Numbers, valid: Mask
) -> tuple[Numbers, Numbers, Mask]:
    """The predicted frames, how far the estimate turned from them, and where that is told.

    Label swaps and sign changes of columns are no turns.
    """
    eye = np.eye(frame.shape[-1])
    here = np.where(valid[:, None, None], frame[:-1], eye)
    there = np.where(valid[:, None, None], frame[1:], eye)
    ahead = here @ so.exp(steps[:, None, None] * velocity[:-1])
    turned = np.swapaxes(ahead, -1, -2) @ there
    same = valid & (np.diagonal(turned, axis1=-2, axis2=-1).min(axis=-1) > 0.0)
    return ahead, _planes(so.log(np.where(same[:, None, None], turned, eye))), same


def _planes(matrices: Numbers) -> Numbers:
    rows, columns = np.triu_indices(matrices.shape[-1], 1)
    return matrices[..., rows, columns]


def _plain_forecasts(observed: Numbers, valid: Mask, m: Numbers) -> tuple[Numbers, Numbers]:
    """log det + trace of a sphere, and of the best average in hindsight (moving or constant).

    A constant has seen the samples that it forecasts. With p entries and N samples that is worth
    p/N, and forecasts from what came before cost p/n at the n-th sample, 2 p log 2 / N on average
    over the second half; both are taken off.
    """
    overall = _average(observed, valid)
    size = np.trace(overall) / overall.shape[-1]
    sphere = _misfit(size * np.eye(overall.shape[-1]) + 0 * observed, observed)
    best = _misfit(overall + 0 * observed, observed)
    entries = overall.shape[-1] * (overall.shape[-1] + 1) / 2
    best += entries * (1.0 + 2.0 * np.log(2.0)) / max(float(np.sum(m * valid)), 1.0)
    for gain in (0.02, 0.05, 0.1, 0.2):
        averages, current = np.empty_like(observed), overall
        for k in range(observed.shape[0]):
            averages[k] = current
            if valid[k]:
                current = current + gain * (observed[k] - current)
        # A little of the constant keeps averages of few samples invertible.
        value = _misfit(0.95 * averages + 0.05 * overall, observed)
        half = value.shape[0] // 2
        if float(np.mean(value[half:])) < float(np.mean(best[half:])):
            best = value
    return sphere, best


def _average(observed: Numbers, valid: Mask) -> Numbers:
    """The mean observation, lifted a little so that a silent channel does no harm."""
    mean = observed[valid].mean(axis=0) if valid.any() else np.eye(observed.shape[-1])
    size = float(np.trace(mean)) / mean.shape[-1]
    return mean + 1e-9 * (size if size > 0 else 1.0) * np.eye(mean.shape[-1])


def _misfit(forecast: Numbers, observed: Numbers) -> Numbers:
    trace = np.trace(np.linalg.solve(forecast, observed), axis1=-2, axis2=-1)
    return np.linalg.slogdet(forecast)[1] + trace


def _late(values: Numbers) -> Numbers:
    """Back to one row per frame; the first frame has no prediction."""
    return np.concatenate([np.full_like(values[:1], np.nan), values])


def _filled(matrices: Numbers) -> Numbers:
    bad: Mask = np.any(np.isnan(matrices), axis=(1, 2))
    return np.where(bad[:, None, None], np.eye(matrices.shape[-1]), matrices)


def _unit(error: Numbers) -> float:
    there = error[~np.isnan(error)]
    return max(float(np.sqrt(np.mean(there**2))), 1e-300) if there.size else 1.0


def _settled(values: Numbers) -> Numbers:
    """Without the start, which no tracker can predict: the first tenth, 20 frames at least."""
    return values[min(max(20, values.shape[0] // 10), values.shape[0] // 2) :]


# --------------------------------------------------------------------------- what is measured


def _memory(run: _Run | None) -> dict[str, Any]:
    """Autocorrelation of the innovations, all planes pooled, and its standard error."""
    if run is None:
        return {}
    u = _settled(run.innovation)
    u = u[:, _mean(u**2) > 0]
    there = ~np.isnan(u)
    filled = np.where(there, u, 0.0)
    # One gross frame must not decide: the innovations are limited at four deviations.
    limit = 4.0 * np.sqrt(np.nanmedian(u**2) / 0.455) if there.any() else 1.0
    filled = np.clip(filled, -limit, limit)
    power = max(float(np.sum(filled**2)) / max(int(there.sum()), 1), 1e-300)
    lags = min(100, u.shape[0] // 3)
    acf, error = np.ones(lags + 1), np.zeros(lags + 1)
    for k in range(1, lags + 1):
        pairs = int(np.sum(there[k:] & there[:-k]))
        acf[k] = np.sum(filled[k:] * filled[:-k]) / max(pairs, 1) / power
        error[k] = 1.0 / np.sqrt(max(pairs, 1))
    first = _first_lag(_settled(run.shape), acf[1])
    return {"acf": acf, "error": error, "first": first, "frames": run.times.size}


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


def _loop(run: _Run | None) -> dict[str, float]:
    """Position gain, velocity gain and retention, by least squares from the run itself.

    correction = A w;  velocity = rho velocity_before + B w.
    """
    if run is None:
        return {}
    w, turn = _settled(run.angle), _settled(run.correction)
    after, before = _settled(run.velocity), _settled(_late(run.velocity[:-1]))
    dt = _settled(_late(np.diff(run.times)))[:, None]
    good = ~(np.isnan(w) | np.isnan(turn) | np.isnan(before)) & (dt > 0)
    total = float(np.sum(w[good] ** 2))
    if total == 0:
        return {}
    A = float(np.sum(turn[good] * w[good])) / total
    x, y, z = before[good], w[good], after[good]
    if not np.any(z):
        return {"position_gain": A, "velocity_gain": 0.0, "retention": 0.0, "moves": 0.0}
    table = np.asarray([[np.sum(x * x), np.sum(x * y)], [np.sum(x * y), np.sum(y * y)]])
    table += 1e-12 * np.trace(table) * np.eye(2)
    rho, B = np.linalg.solve(table, np.asarray([np.sum(x * z), np.sum(y * z)]))
    loop = {"position_gain": A, "velocity_gain": float(B), "retention": float(rho), "moves": 1.0}
    root = np.linalg.eigvals(theory.error_map(A, float(B), min(float(rho), 1.0)))
    k = int(np.argmax(np.abs(root.imag) * 1e3 + np.abs(root)))
    radius, turned = float(np.abs(root[k])), float(np.abs(np.angle(root[k])))
    loop["radius"] = float(np.abs(root).max())
    if abs(root[k].imag) > 1e-9:
        decay = -np.log(max(radius, 1e-12))
        loop["damping"] = float(decay / np.hypot(decay, turned))
        loop["period"] = float(2.0 * np.pi / turned)
    return loop


def _blocks(values: Numbers, count: int = 12) -> tuple[Numbers, Numbers]:
    """Mean over time and its standard error from blocks, so that memory does not fool it."""
    means = [_mean(part) for part in np.array_split(values, count)]
    stacked = np.stack(means)
    centre = _mean(stacked)
    there = (~np.isnan(stacked)).sum(axis=0)
    spread = np.sqrt(_mean((stacked - centre) ** 2) / np.maximum(there - 1, 1))
    return centre, spread


def _mean(values: Numbers) -> Numbers:
    there = ~np.isnan(values)
    number = there.sum(axis=0)
    total = np.where(there, values, 0.0).sum(axis=0) / np.maximum(number, 1)
    return np.where(number > 0, total, np.nan)


# --------------------------------------------------------------------------- the verdicts

_NEEDS = "needs the observations of 20 frames or more: diagnose(result, observations, ...)"


def _lag(
    run: _Run | None, memory: dict[str, Any], loop: dict[str, float], fields: dict[str, Numbers]
) -> Finding:
    name = "persistent lag"
    if run is None:
        return Finding(name, "unknown", _NEEDS)
    u = _settled(run.innovation)
    mean, error = _blocks(u)
    scale = np.sqrt(_mean(u**2))
    share = np.abs(mean) / np.where(scale > 0, scale, 1.0)
    sure = np.abs(mean) > SURE * error
    worst = int(np.nanargmax(np.where(np.isnan(share), 0.0, share * sure)))
    biased = bool(sure[worst]) and share[worst] > BIAS
    r1 = float(memory["acf"][1])
    # A ringing loop has a memory of its own.
    rings = loop.get("damping", 1.0) < RINGING
    slow = r1 > MEMORY and r1 > SURE * memory["error"][1] and not rings
    angle = float(_mean(_settled(run.angle))[worst])
    measured = {"bias": float(share[worst]), "autocorrelation": r1, "mean_innovation": angle}
    unit = "" if run.kind == "position" else f" ({np.degrees(angle):.2f} degrees)"
    evidence = (
        f"innovations lean by {share[worst]:.2f} of their spread{unit}; "
        f"autocorrelation at lag 1 is {r1:+.2f}"
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
            "mend the oscillation first"
            if rings
            else 'raise position_gain and velocity_gain together, or use gains="information"'
        )
    elif _nis_ratio(run.kind, fields) < 1.0 / MISFIT:
        remedy = "it expects more noise than there is and so follows too slowly: see wrong noise"
    else:
        remedy = (
            "the motion changes faster than expected: raise acceleration in "
            "gains.information(acceleration=...), or let kgmrf.learn.fit find it"
        )
    return Finding(name, "fault", evidence, remedy, measured)


def _overshoot(memory: dict[str, Any], loop: dict[str, float], kind: str) -> Finding:
    name = "overshoot"
    if not memory:
        return Finding(name, "unknown", _NEEDS)
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


def _oscillation(memory: dict[str, Any], loop: dict[str, float]) -> Finding:
    name = "oscillation"
    if not memory:
        return Finding(name, "unknown", _NEEDS)
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


def _calibration(
    kind: str,
    fields: dict[str, Numbers],
    run: _Run | None,
    counts: Numbers | None,
    noise_std: float | None,
    others: list[str],
) -> Finding:
    name = "wrong noise"
    nis = _settled(fields["nis"])
    freedom = _freedom(kind, fields)
    measured: dict[str, float] = {}
    words, factors = [], []
    if not np.isnan(nis).all() and freedom:
        mean, error = _blocks(nis[:, None] / freedom)
        ratio = float(mean[0])
        measured["nis_ratio"] = ratio
        words.append(f"normalised innovations are {ratio:.2f} of what is expected")
        if abs(np.log(max(ratio, 1e-12))) * ratio > SURE * float(error[0]):
            factors.append(ratio)
    single = None
    if run is not None and kind == "covariance" and counts is not None:
        power = _settled(run.power)
        m = counts if counts.ndim == 0 else _settled(counts)[:, None]
        spread = float(_mean(np.reshape(0.5 * m * (power - 1.0) ** 2, -1)))
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
        words.append(f"mend the {blamed[0]} first, which changes them too")
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


def _nis_ratio(kind: str, fields: dict[str, Numbers]) -> float:
    return float(_mean(_settled(fields["nis"])) / max(_freedom(kind, fields), 1))


def _freedom(kind: str, fields: dict[str, Numbers]) -> int:
    """Degrees of freedom of nis: components, or planes."""
    width = fields[kind].shape[-1]
    return width if kind == "position" else width * (width - 1) // 2


def _running(values: Numbers, width: int) -> Numbers:
    there = ~np.isnan(values)
    window = np.ones(width)
    total = np.convolve(np.where(there, values, 0.0), window, mode="same")
    number = np.convolve(there.astype(float), window, mode="same")
    return np.where(number > 0, total / np.maximum(number, 1.0), np.nan)


def _divergence(
    kind: str, fields: dict[str, Numbers], run: _Run | None, loop: dict[str, float]
) -> Finding:
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
        return Finding(name, "unknown", f"all frames are finite; the rest {_NEEDS}")
    mean, error = _blocks(_second_half(run.over_nothing)[:, None])
    advantage = float(mean[0])
    measured["advantage"] = advantage
    if "radius" in loop:
        measured["radius"] = loop["radius"]
    if kind == "covariance":
        evidence = f"against a sphere of the observed size: {advantage:+.3f} nats per sample"
        limit = 0.02 * fields[kind].shape[-1]
    else:
        evidence = f"against holding the last observation: {advantage:+.3g} of squared error"
        limit = 0.3 * float(_mean(np.sum(_second_half(run.angle) ** 2, axis=-1)))
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


def _second_half(values: Numbers) -> Numbers:
    return values[values.shape[0] // 2 :]


def _worth(run: _Run | None) -> Finding:
    name = "worse than averaging"
    if run is None:
        return Finding(name, "unknown", _NEEDS)
    mean, error = _blocks(_second_half(run.over_average)[:, None])
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


def _manifold(kind: str, fields: dict[str, Numbers]) -> Finding:
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


def _gaps(fields: dict[str, Numbers], noise_floor: float) -> Finding:
    name = "near-degenerate gaps"
    spectrum = fields["spectrum"]
    good = ~np.isnan(spectrum).any(axis=-1)
    d = spectrum.shape[-1]
    if d == 1 or not good.any():
        return Finding(name, "ok", "there is no plane to turn in")
    late = _settled(spectrum[good])
    level = late + noise_floor
    gap = np.abs(np.diff(late, axis=-1))
    seen = np.median(gap**2 / (level[:, 1:] * level[:, :-1]), axis=0)
    worst = int(np.argmin(seen))
    measured = {"information": float(seen[worst]), "plane": float(worst)}
    evidence = f"axes {worst} and {worst + 1} differ by G^2/(d_i d_j) = {seen[worst]:.2g}"
    faint = seen[worst] < 1e-2
    spread = fields.get("angle_std")
    if spread is not None and not np.isnan(spread).all():
        planes = np.stack([_settled(spread[good])[:, k, k + 1] for k in range(d - 1)], axis=-1)
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
        "these axes cannot be told apart: use the covariance rather than single axes, pool more "
        "samples per frame (n_samples), or lower acceleration"
        if "angle_std" in measured
        else "these axes cannot be told apart: use the covariance rather than single axes, and "
        'gains="information", which turns such planes no further than the data allow'
    )
    return Finding(name, "fault", evidence, remedy, measured)
