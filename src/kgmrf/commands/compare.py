"""``kgmrf compare``: the kinetic tracker beside moving averages, on your own file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import typer
from scipy.special import chdtri

from kgmrf import baselines
from kgmrf._check import ObservationError
from kgmrf._types import Mask, Numbers
from kgmrf.commands._given import ON_A_FILE, FileOptions
from kgmrf.commands._options import takes
from kgmrf.commands._paper import ALGORITHM_1, WORDS, check_words, paper_tracker
from kgmrf.commands._rivals import FORECASTERS, forecasters
from kgmrf.commands._run import OURS, Run, print_table, progress, with_position
from kgmrf.commands._scores import against, against_cells, lead_of, student
from kgmrf.commands._signals import compare_blocks, print_blocks, single_rows, time_of
from kgmrf.engines.low_rank import CROSSOVER
from kgmrf.geometry import so
from kgmrf.io import Chunk, DataError
from kgmrf.model.integrated_time import LONGEST, THRESHOLD
from kgmrf.model.wishart import second_moments
from kgmrf.plots import COLOURS, CYCLE, label_lines, new_figure, style, write_figure
from kgmrf.results import Result, join

OPTIONS = """
Tracker:
  --frames, -n >=30  Number of steps to use.
  --skip >=0  Steps at the start without score. Default: a fifth, at most 500.
  --dcc  Also DCC-GARCH, fitted to the rows so far after 250, 500, 1000, ... rows: slow.
"""
HALF_LIVES = (4, 16, 64, 256)
RISK_AVERAGES = (
    *(
        (baselines.ScaledEMA, {"half_life": life, "scale_gain": gain})
        for life in (64.0, 256.0)
        for gain in (0.1, 0.3)
    ),
    *(
        (baselines.IteratedEMA, {"volatility": fast, "correlation": slow})
        for fast, slow in ((10.0, 21.0), (21.0, 63.0), (63.0, 125.0))
    ),
)
"""What risk systems use."""


@dataclass
class Candidate:
    """A tracker with settings, its measures of every step, and why it had to give up, if it did."""

    name: str
    settings: str
    tracker: Any
    parts: list[dict[str, Numbers]] = field(default_factory=list)
    last: Numbers | None = None
    trouble: str | None = None

    def all(self, name: str = "score") -> Numbers:
        """One number per step: log-likelihood under its own density, or degrees."""
        return np.concatenate([part[name] for part in self.parts]) if self.parts else np.zeros(0)

    def finish(self) -> None:
        """Score as a Student-t where the tracker has no density of that kind."""
        if self.trouble is None and self.parts and "score" not in self.parts[0]:
            needed = (self.all(name) for name in ("log_det", "distance", "samples", "values"))
            names = ("gaussian", "qlike", "covered")
            self.parts = [{"score": student(*needed), **{name: self.all(name) for name in names}}]


@takes(ON_A_FILE, OPTIONS, given=FileOptions, without=["gyroscope"])
def compare(
    given: FileOptions,
    frames: int = 20_000,
    skip: int | None = None,
    dcc: bool = False,
    plot: Path | None = None,
) -> None:
    """Compare one-step-ahead forecasts of the kinetic tracker and the usual baselines on a file.

    Covariances and samples are ranked by the log-likelihood of each step under a Student-t made
    from the steps before it (higher is better): the tracker's own where it has one, otherwise one
    with its covariance, whose tails and size are learned on the way. Beside it: the same under a
    Gaussian, QLIKE per channel (log-determinant plus squared distance; lower is better), the share
    of samples inside the nominal 95 % region, the lead of the kinetic tracker with its 95 %
    interval, and the half-life, in steps: of a blend its median. Where rows predict each other, as
    the samples of a signal do, the covariances that trackers report are also scored on the blocks
    of rows that follow. Rotations are ranked by the angle
    between forecast and observation. skfolio's estimator runs too, where it is installed, on
    samples. With --paper one
    of the paper's trackers runs as well, with --paper all every one.
    """
    given.check(plot=plot)
    ours = replace(given, paper=None, eta=None, gamma=None, start=None)
    run = ours.follow(poses=False, most=frames)
    field_ = [*_candidates(run, dcc), *_of_the_paper(run, given)]
    done = 0.0
    first: list[Numbers] = []
    with progress(given.file.name, shown=given.talk) as advance:
        for chunk in run.chunks():
            if sum(map(len, first)) < LONGEST:
                first.append(chunk.values)
            with with_position(run.source, chunk):
                for k, candidate in enumerate(field_):
                    advance(done + (chunk.done - done) * k / len(field_), candidate.name)
                    if candidate.trouble is None:
                        _let_run(run, candidate, chunk)
            done = chunk.done
    rotations = run.source.kind == "rotation"
    for candidate in field_:
        candidate.finish()
    scored = _scored(field_, skip)
    sign = -1.0 if rotations else 1.0  # whether a higher score is better
    ranked = sorted(
        (e for e in field_ if e.trouble is None), key=lambda e: -sign * e.all()[scored].mean()
    )
    if plot is not None:
        _draw(ranked, scored, sign, plot)
    tau = time_of(run, first)
    about = {
        "file": str(given.file),
        "frames": len(scored),
        "scored": int(scored.sum()),
        "measure": "mean angle between forecast and observation, degrees"
        if rotations
        else "mean one-step-ahead log-likelihood, nats per step",
        "integrated_time": tau,
        "signal": compare_blocks(run, tau, skip),
        "rows": [
            {"tracker": e.name, "settings": e.settings, **_measures(e, field_[0], scored, sign)}
            for e in ranked
        ],
        "left_out": [{"tracker": e.name, "why": e.trouble} for e in field_ if e.trouble],
        "figure": None if plot is None else str(plot),
    }
    if given.talk:
        _print(about)
    else:
        given.say(about, [])


def _candidates(run: Run, dcc: bool) -> list[Candidate]:
    ours = "RotationTracker" if run.source.kind == "rotation" else "KGMRF"
    field_ = [Candidate(ours, f"gains={run.given.gains}", run.tracker)]
    if run.given.gains == "auto":
        single = Run(run.source, replace(run.given, gains="information"), poses=False)
        field_.append(Candidate(ours, "gains=information", single.tracker))
    if single_rows(run) and run.given.gains == "auto" and run.source.d < CROSSOVER:
        linear = Run(run.source, replace(run.given, mean="linear"), poses=False)
        field_.append(Candidate(ours, "mean=linear", linear.tracker))
    shared: dict[str, Any] = {"kind": "rotation"}
    averages: list[Any] = [baselines.EuclideanEMA]
    if run.source.kind != "rotation":
        shared = {"kind": "covariance", "n_samples": run.n_samples}
        averages += [baselines.LogEuclideanEMA, baselines.RiemannianEMA]
    shared |= {"on_invalid": run.given.on_invalid, "time_unit": run.unit}
    for maker in averages:
        for life in HALF_LIVES:
            made = maker(run.source.d, gain=1.0 - 2.0 ** (-1.0 / life), **shared)
            field_.append(Candidate(maker.__name__, f"half_life={life}", made))
    others: list[Any] = [baselines.AlphaBeta, baselines.TangentKalman, baselines.HoldLast]
    if run.source.kind == "rotation":
        others += [baselines.ErrorStateKalman, baselines.OneEuro]
    for maker in others:
        field_.append(Candidate(maker.__name__, "defaults", maker(run.source.d, **shared)))
    if run.source.kind != "rotation":
        for average, words in RISK_AVERAGES:
            settings = ", ".join(f"{name}={value:g}" for name, value in words.items())
            made = average(run.source.d, **words, **shared)
            field_.append(Candidate(average.__name__, settings, made))
    if run.source.kind == "samples" and run.given.window == 1:
        field_ += [Candidate(*one) for one in forecasters(run.source.d, dcc=dcc)]
    elif dcc:
        raise DataError(f"{run.source.path}: --dcc is for samples, one a step")
    return field_


def _of_the_paper(run: Run, given: FileOptions) -> list[Candidate]:
    """The tracker that ``--paper`` names, or all of them."""
    check_words(given)
    kind = "rotation" if run.source.kind == "rotation" else "covariance"
    shared: dict[str, Any] = {"on_invalid": given.on_invalid, "time_unit": run.unit}
    if kind == "covariance":
        shared["n_samples"] = run.n_samples
    words = [given.paper] if given.paper else []
    if given.paper == "all":
        words = [word for word in WORDS if kind == "covariance" or word != ALGORITHM_1]
    made = [paper_tracker(given, word, kind, run.source.d, **shared) for word in words]
    return [Candidate(f"paper {word}", "", one) for word, one in zip(words, made, strict=True)]


def _let_run(run: Run, candidate: Candidate, chunk: Chunk) -> None:
    try:
        candidate.parts.append(_measured(run, candidate, chunk))
    except (ObservationError, np.linalg.LinAlgError) as error:
        if candidate.tracker is run.tracker:
            raise
        candidate.trouble = str(error).partition("; ")[0]
        if isinstance(error, np.linalg.LinAlgError):
            candidate.trouble = "its estimate has no full rank, and missing channels need that"


def _measured(run: Run, candidate: Candidate, chunk: Chunk) -> dict[str, Numbers]:
    """The measures of every step of a chunk, each made from the steps before it."""
    if run.source.kind == "rotation":
        return {"score": _angles(run, candidate.tracker, chunk)}
    result, ahead = _forecasts(run, candidate, chunk)
    seen, m = chunk.values, run.tracker.n_samples or 1.0
    if "mean" in result.fields():  # what it forecast is not what is left to be scored
        seen = seen - result.mean
    if run.source.kind == "samples":
        total, counts = second_moments(seen[:, None, :] if seen.ndim == 2 else seen, None)
        there = (counts > 0) & ~np.isnan(total).any(axis=(-2, -1))  # no hole in the step
        seen, m = np.where(there[:, None, None], total, np.nan), np.maximum(counts, 1.0)
    d = seen.shape[-1]
    before = ahead + run.given.noise_floor * np.eye(d)
    samples = np.broadcast_to(np.asarray(m, dtype=float), len(seen))
    log_det, distance = against(before, seen)
    found = {
        "gaussian": -0.5 * m * (log_det + distance + d * np.log(2.0 * np.pi)),
        "qlike": (log_det + distance) / d,
        "covered": np.full(len(seen), np.nan),
    }
    single = run.source.kind == "samples" and run.given.window == 1
    own = "tails" in result.fields()
    if own:
        found["score"] = result.log_likelihood
        found["half_life"] = result.half_life / run.unit
    else:
        cells = (log_det, distance, samples * d)
        if single:
            cells = against_cells(before, chunk.values)
        found |= dict(zip(("log_det", "distance", "values"), cells, strict=True))
        found["samples"] = samples
    if single:
        inside = distance <= chdtri(d, 0.05)
        if own and d > 1:  # nis is exact for its Student-t
            distance = result.nis
            inside = distance <= chdtri(d * (d - 1) / 2, 0.05)
        found["covered"] = np.where(np.isnan(distance), np.nan, inside)
    return found


STILL = (
    *(baselines.EuclideanEMA, baselines.LogEuclideanEMA, baselines.RiemannianEMA),
    *(baselines.IteratedEMA, baselines.HoldLast),
)
"""Trackers that forecast what they hold, however far ahead."""


def _forecasts(run: Run, candidate: Candidate, chunk: Chunk) -> tuple[Result, Numbers]:
    """The covariance that a tracker forecasts for every step, before it sees the step."""
    tracker, d = candidate.tracker, run.source.d
    forecaster = isinstance(tracker, FORECASTERS)
    if forecaster or isinstance(tracker, STILL):
        if forecaster:
            result = Result({"covariance": tracker.covariances(chunk.values)})
        else:
            result = run.through(tracker.filter, chunk)
        start = np.full((1, d, d), np.nan) if candidate.last is None else candidate.last
        candidate.last = result.covariance[-1:]
        return result, np.concatenate([start, result.covariance[:-1]])
    results, ahead = [], np.full((len(chunk.values), d, d), np.nan)
    for k, dt, one in _one_by_one(tracker, chunk):
        if dt is not None:
            ahead[k] = tracker.forecast(dt).covariance
        with with_position(run.source, one):
            results.append(run.through(tracker.filter, one))
    return join(results), ahead


def _one_by_one(tracker: Any, chunk: Chunk) -> Iterator[tuple[int, float | None, Chunk]]:
    """Every step of a chunk, and how far ahead of the tracker it is; None before its first."""
    for k in range(len(chunk.values)):
        dt, now = None, tracker.now
        if now is not None:
            dt = 1.0 if chunk.times is None else max(float(chunk.times[k]) - now, 0.0)
        yield k, dt, chunk.cut(k, k + 1)


def _angles(run: Run, tracker: Any, chunk: Chunk) -> Numbers:
    """Degrees between forecast and observation, step by step."""
    angles = np.full(len(chunk.values), np.nan)
    for k, dt, one in _one_by_one(tracker, chunk):
        seen = chunk.values[k]
        if dt is not None and not np.isnan(seen).any():
            ahead = tracker.forecast(dt).rotation
            if not np.isnan(ahead).any():
                angles[k] = np.degrees(so.distance(ahead, so.project(seen)))
        with with_position(run.source, one):
            run.through(tracker.filter, one)
    return angles


def _scored(field_: list[Candidate], skip: int | None) -> Mask:
    """The steps on which all are judged; who has no forecast in many of them is left out."""
    n_steps = len(field_[0].all())
    start = min(500, n_steps // 5) if skip is None else skip
    scored: Mask = (np.arange(n_steps) >= start) & np.isfinite(field_[0].all())
    if not scored.any():
        raise DataError(f"none of {n_steps} steps can be scored; use more steps or --skip less")
    base = scored.copy()
    for candidate in field_:
        if candidate.trouble is None:
            there = np.isfinite(candidate.all())
            missing = 1.0 - float(there[base].mean())
            if missing > 0.01:
                candidate.trouble = f"has no valid forecast in {100 * missing:.0f} % of the steps"
            else:
                scored &= there
    return scored


def _measures(
    candidate: Candidate, ours: Candidate, scored: Mask, sign: float
) -> dict[str, float | None]:
    """All measures, means over the scored steps; None for what is not known."""
    found: dict[str, float | None] = {}
    for name in candidate.parts[0]:
        values = candidate.all(name)[scored]
        known = values[np.isfinite(values)]
        mean = np.median if name == "half_life" else np.mean
        found[name] = float(mean(known)) if known.size else None
    life = re.match(r"half_life=([\d.]+)", candidate.settings)
    if life is not None:
        found["half_life"] = float(life[1])
    lead, within = lead_of(sign * (ours.all() - candidate.all())[scored])
    return {**found, "lead": lead, "lead_within": within}


HEADS = {
    "score": "score",
    "gaussian": "Gaussian",
    "qlike": "QLIKE",
    "covered": "in 95 %",
    "half_life": "half-life",
    "lead": "ours ahead by",
}


def _print(about: dict[str, Any]) -> None:
    shown = [name for name in HEADS if about["rows"][0].get(name) is not None]
    rows = [
        [row["tracker"], row["settings"], *(_cell(row, name) for name in shown)]
        for row in about["rows"]
    ]
    typer.echo(f"{about['file']}: {about['scored']} of {about['frames']} steps scored")
    typer.echo(f"{about['measure']}, best first")
    print_table(["tracker", "settings", *(HEADS[name] for name in shown)], rows)
    for name, why in {row["tracker"]: row["why"] for row in reversed(about["left_out"])}.items():
        typer.echo(f"left out: {name}: {why}")
    if (about["integrated_time"] or 0.0) >= THRESHOLD:
        print_blocks(about["integrated_time"], about["signal"])
    if about["figure"]:
        typer.echo(f"figure: {about['figure']}")


def _cell(row: dict[str, Any], name: str) -> str:
    value = row.get(name)
    if value is None or (name == "lead" and value == 0.0):
        return ""
    if name == "covered":
        return f"{100 * value:.1f} %"
    if name == "lead":
        return f"{value:.3f} ± {row['lead_within']:.3f}"
    if name == "half_life":
        return f"{value:.3g}"
    return f"{value:.4f}" if name == "score" else f"{value:.3f}"


def _draw(ranked: list[Candidate], scored: Mask, sign: float, path: Path) -> None:
    """How far the kinetic tracker is ahead of each baseline's best setting, added up."""
    ours = next(e for e in ranked if e.name in OURS)
    best: dict[str, Candidate] = {}
    for candidate in ranked:
        best.setdefault(candidate.name, candidate)
    where = np.flatnonzero(scored)
    with style():
        figure = new_figure(2.6)
        axes = figure.add_subplot()
        labels = []
        rivals = (candidate for name, candidate in best.items() if name not in OURS)
        for colour, candidate in zip(cycle(CYCLE[1:]), rivals, strict=False):
            lead = sign * np.cumsum(ours.all()[where] - candidate.all()[where])
            axes.plot(where, lead, color=colour)
            labels.append((float(lead[-1]), f"{candidate.name}, {candidate.settings}", colour))
        axes.axhline(0.0, color=COLOURS["quiet"], lw=0.6)
        axes.set_xlabel("step")
        axes.set_ylabel("degrees" if sign < 0 else "nats")
        axes.set_title(f"How far {ours.name} is ahead of each baseline's best setting, added up")
        label_lines({axes: labels})
    write_figure(figure, path)
