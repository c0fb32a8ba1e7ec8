"""Many channels: few factors plus a diagonal beside shrinkage, OPAST and the small ensemble.

simulated  factor models of d = 200 and 500 channels, T = 2 d rows, loadings and noise change at row
           d, with constant and with clustered volatility: log-likelihood of the next row and risk
           of the minimum-variance portfolio, from row 20 on. Rivals at their best setting, density
           included, in hindsight.
subspace   axes that turn in directions that are forgotten: error of the subspace, beside OPAST.
velocity   axes whose direction of turning lasts: the log-likelihood that `rotating_axes=True` adds.
crossover  the same factor models with few channels: the small ensemble beside this one.
cost       CPU time per row as d grows, and of one member; memory of 2,000 rows.
"""

from __future__ import annotations

import math
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from scipy import special

from experiments.low_rank_rivals import Dense, moving, opast, window
from experiments.store import Unit
from kgmrf import KGMRF
from kgmrf._types import Numbers
from kgmrf.engines import Lines
from kgmrf.engines.low_rank import LowRank, default_members
from kgmrf.model.density import GAUSSIAN, TAILS
from kgmrf.model.factors import FactorDensity, solve

FIRST = 20
STRENGTHS = np.array([4.0, 2.0, 1.0, 0.5, 0.5])
HALF_LIVES = (0.5, 1.0, 2.0)  # of the moving averages, in multiples of d
WINDOWS = (0.25, 0.5, 1.0)
CLOCK = 0.3
FORGETTING = (0.9, 0.95, 0.97, 0.98, 0.99, 0.995, 0.998)
RIVALS = ("Ledoit-Wolf", "EWMA + QIS,", "EWMA + QIS + size clock")
Truth = list[tuple[Numbers, Numbers]]

# ----------------------------------------------------------------------- simulated markets


def scene(d: int, n: int, seed: int, clustered: bool) -> tuple[Numbers, Truth]:
    """Rows ``(n, d)`` of five factors plus noise, and the true loadings and noise at each row.

    At row n/2 the loadings become .6 of themselves, mixed again, plus .8 of new ones, and the
    noise variances change by a factor exp(.5 N(0, 1)). Clustered: a common log-variance follows
    an autoregression of coefficient .97.
    """
    g = np.random.default_rng(seed)
    loadings = 0.3 * g.normal(size=(d, 5)) * np.sqrt(STRENGTHS)
    noise = 0.3 + g.gamma(2.0, 0.5, size=d)
    x, truth, level = np.empty((n, d)), [], 0.0
    for t in range(n):
        if t == n // 2:
            mixed = 0.6 * loadings @ np.linalg.qr(g.normal(size=(5, 5)))[0]
            loadings = mixed + 0.8 * 0.3 * g.normal(size=(d, 5)) * np.sqrt(STRENGTHS)
            noise = noise * np.exp(0.5 * g.normal(size=d))
        if clustered:
            level = 0.97 * level + 0.12 * g.normal()
        now = math.exp(0.5 * level) * loadings, math.exp(level) * noise
        x[t] = now[0] @ g.normal(size=5) + np.sqrt(now[1]) * g.normal(size=d)
        truth.append(now)
    return x, truth


def risk(weights: Numbers, truth: tuple[Numbers, Numbers]) -> float:
    """Variance under the true covariance of a portfolio in proportion to these weights."""
    w = weights / weights.sum()
    along = truth[0].T @ w
    return float(along @ along + truth[1] @ w**2)


def forecasts(x: Numbers, rank: int | None = None) -> Iterator[tuple[Numbers, Numbers, float]]:
    """Loadings and noise of our forecast for every row, and the log-likelihood of the row."""
    engine = LowRank(x.shape[1], rank)
    rows, line, one = engine.init(1), np.zeros(1, dtype=np.int64), np.ones(1)
    for row in x:
        ahead = engine.factors(engine.ahead(rows, 1.0)[1][0])
        record = engine.advance(
            rows, Lines(line, row[None, None], one, one, matrix=False), engine.small
        )[1]
        yield *ahead, float(engine.read(record).log_likelihood[0])


def ours(x: Numbers, truth: Truth) -> tuple[Numbers, Numbers]:
    """Log-likelihood of rows and variance of the portfolio held over them, from FIRST on."""
    ones, scores, risks = np.ones(x.shape[1]), [], []
    for t, (loadings, noise, score) in enumerate(forecasts(x)):
        if t >= FIRST:
            scores.append(score)
            risks.append(risk(solve(loadings, noise, ones), truth[t]))
    return np.array(scores), np.array(risks)


def oracle(x: Numbers, truth: Truth) -> tuple[Numbers, Numbers]:
    """What the true covariance scores."""
    ones, normal = np.ones(x.shape[1]), (np.ones(1), np.array([GAUSSIAN]))
    pairs = list(zip(x, truth, strict=True))[FIRST:]
    scores = [float(FactorDensity(*now, *normal).log_density(row)) for row, now in pairs]
    return np.array(scores), np.array([risk(solve(*now, ones), now) for _, now in pairs])


def rival(guesses: Iterable[Dense], x: Numbers, truth: Truth) -> tuple[Numbers, Numbers, str]:
    """The same for a rival, as a Gaussian or as the Student-t that suits it best in hindsight."""
    found = [
        (f.distance(row), f.log_det(), risk(f.portfolio(), now))
        for f, row, now in zip(guesses, x[FIRST:], truth[FIRST:], strict=True)
    ]
    distance, log_det, risks = np.array(found).T
    d = x.shape[1]
    choices = {"Gaussian": -0.5 * (distance + log_det + d * math.log(2.0 * math.pi))}
    for nu in TAILS[:-1]:
        shrink = (nu - 2.0) / nu  # the t whose covariance is the rival's
        rise = special.gammaln(0.5 * (nu + d)) - special.gammaln(0.5 * nu)
        fall = 0.5 * (nu + d) * np.log1p(distance / (shrink * nu))
        spread = 0.5 * d * math.log(math.pi * nu * shrink) + 0.5 * log_det
        choices[f"t with {nu:g} degrees of freedom"] = rise - spread - fall
    best = max(choices, key=lambda name: choices[name].mean())
    return choices[best], risks, best


def run_simulated(d: int, seeds: tuple[int, ...], clustered: bool, every: int) -> dict[str, Any]:
    """Means over rows and seeds of every method and setting, by stretches of rows.

    every: rows between two estimates of a rival, at most; fewer while there are few rows.
    """

    def shrunk(how: Any, span: float, *more: float) -> Callable[[Numbers, Truth], Any]:
        return lambda x, truth: rival(how(x, span, FIRST, every, *more), x, truth)

    methods: dict[str, Callable[[Numbers, Truth], Any]] = {"true covariance": oracle, "ours": ours}
    for length in (int(share * d) for share in WINDOWS):
        methods[f"Ledoit-Wolf, window {length}"] = shrunk(window, length)
    for half_life in (share * d for share in HALF_LIVES):
        for gain, name in ((0.0, "EWMA + QIS"), (CLOCK, "EWMA + QIS + size clock")):
            methods[f"{name}, half-life {half_life:g}"] = shrunk(moving, half_life, gain)
    edges = {"20 to d/2": (20, d // 2), "d/2 to d": (d // 2, d), "d to d + 40": (d, d + 40)}
    edges |= {"d + 40 to 2 d": (d + 40, 2 * d), "20 to 2 d": (20, 2 * d)}
    scenes = [scene(d, 2 * d, seed, clustered) for seed in seeds]
    table: dict[str, Any] = {}
    for name, method in methods.items():
        runs = [method(x, truth) for x, truth in scenes]
        scores, risks = (np.mean([run[k] for run in runs], axis=0) for k in (0, 1))
        parts = {key: slice(a - FIRST, b - FIRST) for key, (a, b) in edges.items()}
        table[name] = {
            "density": sorted({run[2] for run in runs if len(run) > 2}),
            "log_likelihood": {key: scores[part].mean() for key, part in parts.items()},
            "risk": {key: math.sqrt(risks[part].mean()) for key, part in parts.items()},
        }
    return {"d": d, "rows": 2 * d, "every": every, "methods": table}


# ----------------------------------------------------------------------- axes that turn


def turning(
    d: int, n: int, seed: int, speed: float, lasts: float, strength: float
) -> tuple[Numbers, list[Numbers]]:
    """Rows of five factors whose axes turn ``speed`` radians a row, and the axes.

    The direction of turning is an autoregression that forgets within ``lasts`` rows.
    """
    g, keep = np.random.default_rng(seed), math.exp(-1.0 / lasts)
    axes = np.linalg.qr(g.normal(size=(d, 5)))[0]
    way, x, truth = g.normal(size=(d, 5)), np.empty((n, d)), []
    for t in range(n):
        way = keep * way + math.sqrt(1.0 - keep**2) * g.normal(size=(d, 5))
        way -= axes @ (axes.T @ way)
        axes = np.linalg.qr(axes + speed * way / math.sqrt(d))[0]
        x[t] = axes @ (strength * g.normal(size=5)) + g.normal(size=d)
        truth.append(axes)
    return x, truth


def run_subspace(d: int, n: int, seed: int) -> dict[str, Any]:
    """Mean error of a subspace of five axes, sqrt(1 - |U^T V|^2 / 5), at two speeds of turning."""
    found: dict[str, Any] = {}
    for speed in (0.01, 0.05):
        x, truth = turning(d, n, seed, speed, 33.0, 3.0)

        def error(guesses: Iterable[Numbers], truth: list[Numbers] = truth) -> float:
            shared = [float(((u.T @ v) ** 2).sum()) for u, v in zip(guesses, truth, strict=True)]
            return float(np.sqrt(np.maximum(1.0 - np.array(shared[100:]) / 5.0, 0.0)).mean())

        rivals = {f"OPAST, forgetting {b:g}": error(opast(x, 5, b)) for b in FORGETTING}
        found[f"{speed:g}"] = {"ours": error(_axes(x, 5)), **rivals}
    return found


def _axes(x: Numbers, rank: int) -> Iterator[Numbers]:
    """The leading axes of our forecast before every row."""
    for loadings, noise, _ in forecasts(x, rank):
        if np.isfinite(noise).all() and loadings.any():
            left, size, _ = np.linalg.svd(loadings, full_matrices=False)
            order = np.argsort(-(size**2 + (left**2 * noise[:, None]).sum(axis=0)))
            yield left[:, order[:rank]]
        else:
            yield np.eye(x.shape[1], rank)


def run_velocity(d: int, n: int, seeds: tuple[int, ...]) -> dict[str, Any]:
    """Log-likelihood per row after a third of the rows, without velocity, and what it adds."""
    found: dict[str, Any] = {}
    for lasts in (100.0, 30.0, 1.0):
        for strength, speed in ((15.0, 0.03), (30.0, 0.05), (30.0, 0.1)):
            scores = []
            for seed in seeds:
                x = turning(d, n, seed, speed, lasts, strength)[0]
                trackers = KGMRF(d, rank=5), KGMRF(d, rank=5, rotating_axes=True)
                runs = [tracker.filter(x, fields="log_likelihood") for tracker in trackers]
                scores.append([run.log_likelihood[n // 3 :].mean() for run in runs])
            without, with_velocity = np.mean(scores, axis=0)
            key = f"{lasts:g} rows, factors of {strength:g}, {speed:g} radians a row"
            found[key] = {"without": without, "gain": with_velocity - without}
    return found


# ----------------------------------------------------------------------- crossover and cost


def run_crossover(d: int, seeds: tuple[int, ...]) -> dict[str, Any]:
    """The small ensemble and this one: log-likelihood from row 20 on, CPU microseconds per row."""
    scenes = [scene(d, max(4 * d, 400), seed, clustered=True)[0] for seed in seeds]
    found: dict[str, Any] = {"d": d}
    for name, rank in (("small", None), ("low_rank", default_members(d)[0].rank)):
        scores, seconds = [], math.inf
        for x in scenes:
            start = time.process_time()
            result = KGMRF(d, rank=rank).filter(x, fields="log_likelihood")
            scores.append(result.log_likelihood[FIRST:].mean())
            seconds = min(seconds, (time.process_time() - start) / len(x))
        found[name] = {"log_likelihood": np.mean(scores), "us": 1e6 * seconds}
    return found


def run_cost(n_rounds: int) -> dict[str, Any]:
    """CPU microseconds per row, best of several short runs; a 400 x 400 product as the measure."""
    found: dict[str, Any] = {"default": {}, "one member of rank 10": {}, "kilobytes of a track": {}}
    for name, members in (("default", None), ("one member of rank 10", default_members(500)[1:2])):
        for d in (100, 200, 500, 1000, 2000):
            engine = LowRank(d, members=members)
            x = np.random.default_rng(0).normal(size=(120, 1, d))
            rows = engine.init(1)

            def advance(n: int, engine: LowRank = engine, rows: Any = rows, x: Any = x) -> None:
                lines = Lines(np.zeros(n, dtype=np.int64), x[:n], np.ones(n), np.ones(n), False)
                engine.advance(rows, lines, 0)

            advance(120)
            found[name][str(d)] = _best(lambda: advance(20), n_rounds) / 20 * 1e6
            found["kilobytes of a track"].setdefault(str(d), rows.nbytes / 1e3)
    square = np.random.default_rng(0).normal(size=(400, 400))
    found["product of 400 x 400 matrices, us"] = 1e6 * _best(lambda: square @ square, n_rounds)
    x = np.random.default_rng(0).normal(size=(2000, 500))
    tracemalloc.start()
    tracker = KGMRF(500, rank=10)
    tracker.filter(x, fields=("log_likelihood",))
    _ = tracker.estimate().covariance
    found["peak of 2,000 rows of 500 channels, MB"] = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    return found


def _best(call: Callable[[], Any], n_rounds: int) -> float:
    best = math.inf
    for _ in range(n_rounds):
        start = time.process_time()
        call()
        best = min(best, time.process_time() - start)
    return best


def units(quick: bool) -> list[Unit]:
    """Simulated markets of two sizes, axes that turn, the crossover and the cost."""
    made = []

    def add(name: str, function: str, **given: Any) -> None:
        made.append(Unit("low_rank", name, f"low_rank:run_{function}", given))

    for d, seeds in ((40, (0,)),) if quick else ((200, (0, 1, 2)), (500, (0,))):
        for clustered in (False, True):
            name = f"simulated_{d}" + ("_clustered" if clustered else "")
            add(name, "simulated", d=d, seeds=seeds, clustered=clustered, every=10)
    add("subspace", "subspace", d=20 if quick else 200, n=150 if quick else 1000, seed=0)
    wide, long, seeds = (20, 90, (0,)) if quick else (100, 600, (0, 1, 2))
    add("velocity", "velocity", d=wide, n=long, seeds=seeds)
    for d in (8, 16) if quick else (16, 32, 48, 64, 96, 128):
        add(f"crossover_{d}", "crossover", d=d, seeds=seeds)
    add("cost", "cost", n_rounds=2 if quick else 40)
    return made
