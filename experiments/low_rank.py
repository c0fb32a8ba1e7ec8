"""Many channels: few factors plus a diagonal beside shrinkage, OPAST and the small ensemble.

simulated  factor models of d = 200 and 500 channels, T = 2 d rows, loadings and noise change at row
           d, with constant and with clustered volatility: log-likelihood of the next row and risk
           of the minimum-variance portfolio, from row 20 on. Rivals at their best setting, density
           included, in hindsight.
subspace   axes that turn in directions that are forgotten: error of the subspace, beside OPAST.
etf18      daily returns of 18 funds (needs the data).
crossover  the same factor models with few channels: the small ensemble beside this one.
cost       CPU time per row as d grows, and of one member; memory of 2,000 rows.
"""

from __future__ import annotations

import math
import time
import tracemalloc
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from scipy import special

from experiments.low_rank_rivals import Dense, moving, opast, window
from experiments.store import NotAvailable, Unit
from kgmrf import KGMRF
from kgmrf._types import Numbers
from kgmrf.density import TAILS
from kgmrf.engines.low_rank import LowRank
from kgmrf.engines.low_rank_layout import Factors

FIRST = 20
STRENGTHS = np.array([4.0, 2.0, 1.0, 0.5, 0.5])
HALF_LIVES = (0.5, 1.0, 2.0)  # of the moving averages, in multiples of d
WINDOWS = (0.25, 0.5, 1.0, 2.0)
CLOCKS = (0.1, 0.3)
Truth = list[tuple[Numbers, Numbers]]


def scene(d: int, n: int, seed: int, clustered: bool) -> tuple[Numbers, Truth]:
    """Rows ``(n, d)`` of five factors plus noise, and the true loadings and noise at each row.

    At row n/2 the loadings become .6 of themselves, mixed anew, plus .8 of new ones, and the
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


def inverse_times(loadings: Numbers, noise: Numbers, x: Numbers) -> Numbers:
    """(F F^T + diag N)^-1 x by Woodbury."""
    scaled = loadings / noise[:, None]
    inner = np.eye(loadings.shape[1]) + loadings.T @ scaled
    return np.asarray(x / noise - scaled @ np.linalg.solve(inner, scaled.T @ x))


def risk(weights: Numbers, truth: tuple[Numbers, Numbers]) -> float:
    """Variance of a portfolio under the true covariance."""
    along = truth[0].T @ weights
    return float(along @ along + truth[1] @ weights**2)


def minimum_variance(loadings: Numbers, noise: Numbers) -> Numbers:
    """S^-1 1 / 1^T S^-1 1."""
    w = inverse_times(loadings, noise, np.ones(len(noise)))
    return np.asarray(w / w.sum())


def ours(x: Numbers, truth: Truth, rank: int | None = None) -> tuple[Numbers, Numbers]:
    """Log-likelihood of rows and variance of the portfolio held over them, from FIRST on."""
    engine = LowRank(x.shape[1], rank)
    rows, line, one = engine.init(1), np.zeros(1, dtype=np.int64), np.ones(1)
    scores, risks = [], []
    for t, row in enumerate(x):
        if t >= FIRST:
            loadings, noise = engine.factors(engine.ahead(rows, 1.0)[1][0])
            risks.append(risk(minimum_variance(loadings, noise), truth[t]))
        record = engine.advance(rows, line, row[None, None], one, one, room=engine.small)[1]
        scores.append(engine.read(record).log_likelihood[0])
    return np.array(scores[FIRST:]), np.array(risks)


def oracle(x: Numbers, truth: Truth) -> tuple[Numbers, Numbers]:
    """What the true covariance scores."""
    scores, risks = [], []
    for row, (loadings, noise) in list(zip(x, truth, strict=True))[FIRST:]:
        inner = np.eye(5) + loadings.T @ (loadings / noise[:, None])
        log_det = np.log(noise).sum() + np.linalg.slogdet(inner)[1]
        distance = row @ inverse_times(loadings, noise, row)
        scores.append(-0.5 * (distance + log_det + len(row) * math.log(2.0 * math.pi)))
        risks.append(risk(minimum_variance(loadings, noise), (loadings, noise)))
    return np.array(scores), np.array(risks)


def rival(forecasts: Iterable[Dense], x: Numbers, truth: Truth) -> tuple[Numbers, Numbers, str]:
    """The same for a rival, as a Gaussian or as the Student-t that suits it best in hindsight."""
    found = [
        (f.distance(row), f.log_det(), risk(f.portfolio(), now))
        for f, row, now in zip(forecasts, x[FIRST:], truth[FIRST:], strict=True)
    ]
    distance, log_det, risks = np.array(found).T
    d = x.shape[1]
    gauss = -0.5 * (distance + log_det + d * math.log(2.0 * math.pi))
    choices = {"Gaussian": gauss}
    for nu in TAILS[:-1]:
        shrink = (nu - 2.0) / nu  # the t whose covariance is the rival's
        rise = special.gammaln(0.5 * (nu + d)) - special.gammaln(0.5 * nu)
        fall = 0.5 * (nu + d) * np.log1p(distance / (shrink * nu))
        spread = 0.5 * d * math.log(math.pi * nu * shrink) + 0.5 * log_det
        choices[f"t with {nu:g} degrees of freedom"] = rise - spread - fall
    best = max(choices, key=lambda name: choices[name].mean())
    return choices[best], risks, best


def run_simulated(d: int, seeds: tuple[int, ...], clustered: bool, every: int) -> dict[str, Any]:
    """Means over rows and seeds of every method and setting, by stretches of rows."""
    methods: dict[str, Callable[[Numbers, Truth], Any]] = {"true covariance": oracle, "ours": ours}
    for share in WINDOWS:
        length = int(share * d)
        methods[f"Ledoit-Wolf, window {length}"] = lambda x, truth, n=length: rival(
            window(x, n, FIRST, every), x, truth
        )
    for share in HALF_LIVES:
        for gain in (0.0, *CLOCKS):
            name = "EWMA + QIS" + (f" + size clock {gain:g}" if gain else "")
            methods[f"{name}, half-life {share * d:g}"] = lambda x, truth, h=share * d, g=gain: (
                rival(moving(x, h, FIRST, every, g), x, truth)
            )
    edges = {"20 to d/2": (20, d // 2), "d/2 to d": (d // 2, d), "d to d + 40": (d, d + 40)}
    edges |= {"d + 40 to 2 d": (d + 40, 2 * d), "20 to 2 d": (20, 2 * d)}
    scenes = [scene(d, 2 * d, seed, clustered) for seed in seeds]
    table: dict[str, Any] = {}
    for name, method in methods.items():
        runs = [method(x, truth) for x, truth in scenes]
        scores, risks = (np.mean([run[k] for run in runs], axis=0) for k in (0, 1))
        table[name] = {
            "density": sorted({run[2] for run in runs if len(run) > 2}),
            "log_likelihood": {
                key: scores[a - FIRST : b - FIRST].mean() for key, (a, b) in edges.items()
            },
            "risk": {
                key: math.sqrt(risks[a - FIRST : b - FIRST].mean()) for key, (a, b) in edges.items()
            },
        }
    return {"d": d, "rows": 2 * d, "every": every, "methods": table}


def run_subspace(d: int, n: int, seed: int) -> dict[str, Any]:
    """Mean error of a subspace of five axes, sqrt(1 - |U^T V|^2 / 5), at two speeds of turning."""
    found: dict[str, Any] = {}
    for speed in (0.01, 0.05):
        g = np.random.default_rng(seed)
        axes = np.linalg.qr(g.normal(size=(d, 5)))[0]
        way, x, truth = np.zeros((d, 5)), np.empty((n, d)), []
        for t in range(n):
            way = 0.97 * way + math.sqrt(1.0 - 0.97**2) * g.normal(size=(d, 5))
            axes = np.linalg.qr(axes + speed * way / math.sqrt(d))[0]
            x[t] = axes @ (3.0 * g.normal(size=5)) + g.normal(size=d)
            truth.append(axes)

        def error(guesses: Iterable[Numbers], truth: list[Numbers] = truth) -> float:
            wrong = [
                math.sqrt(max(1.0 - float(((u.T @ v) ** 2).sum()) / 5.0, 0.0))
                for u, v in zip(guesses, truth, strict=True)
            ]
            return float(np.mean(wrong[100:]))

        rivals = {f"OPAST, forgetting {b:g}": error(opast(x, 5, b)) for b in OPAST_FORGETTING}
        found[f"{speed:g}"] = {"ours": error(_axes(x, 5)), **rivals}
    return found


OPAST_FORGETTING = (0.9, 0.95, 0.97, 0.98, 0.99, 0.995, 0.998)


def _axes(x: Numbers, rank: int) -> Iterable[Numbers]:
    """The leading axes of our forecast before every row."""
    engine = LowRank(x.shape[1], rank)
    rows, line, one = engine.init(1), np.zeros(1, dtype=np.int64), np.ones(1)
    for row in x:
        loadings, noise = engine.factors(engine.ahead(rows, 1.0)[1][0])
        if np.isfinite(noise).all() and loadings.any():
            left, size, _ = np.linalg.svd(loadings, full_matrices=False)
            order = np.argsort(-(size**2 + (left**2 * noise[:, None]).sum(axis=0)))
            yield left[:, order[:rank]]
        else:
            yield np.eye(x.shape[1], rank)
        engine.advance(rows, line, row[None, None], one, one, room=0)


def run_crossover(d: int, seeds: tuple[int, ...]) -> dict[str, Any]:
    """The small ensemble and this one: log-likelihood from row 20 on, CPU microseconds per row."""
    scenes = [scene(d, max(4 * d, 400), seed, clustered=True) for seed in seeds]
    found: dict[str, Any] = {"d": d}
    for name, rank in (("small", None), ("low_rank", 0)):
        scores, seconds = [], math.inf
        for x, _ in scenes:
            start = time.process_time()
            if rank is None:
                result = KGMRF(d, **SMALL).filter(x, fields=("log_likelihood",)).log_likelihood
            else:
                engine = LowRank(d)
                n = len(x)
                lines = (np.zeros(n, dtype=np.int64), x[:, None], np.ones(n), np.ones(n))
                records = engine.advance(engine.init(1), *lines, room=engine.small)[1]
                result = engine.read(records).log_likelihood
            seconds = min(seconds, (time.process_time() - start) / len(x))
            scores.append([result[FIRST:d].mean() if d > FIRST else None, result[FIRST:].mean()])
        found[name] = {"log_likelihood": np.mean([s[1] for s in scores]), "us": 1e6 * seconds}
        if d > FIRST:
            found[name]["first d rows"] = np.mean([s[0] for s in scores])
    return found


SMALL: dict[str, Any] = {"rank": None}
"""How the small ensemble is asked for."""


def run_etf18(n: int) -> dict[str, Any]:
    """Mean log-likelihood from row 300 on of daily returns in percent."""
    from experiments.streams import data

    stream = data.etf18()
    if stream is None:
        raise NotAvailable("no returns of funds: set KGMRF_DATA to the folder of the data")
    x = stream.samples[:n]
    d = x.shape[1]
    truth = [(np.zeros((d, 1)), np.ones(d))] * len(x)
    found = {"ours, six factors": ours(x, truth)[0][280:].mean()}
    small = KGMRF(d, **SMALL).filter(x, fields=("log_likelihood",)).log_likelihood
    found["small ensemble"] = small[300:].mean()
    for h in (32.0, 64.0, 128.0):
        for gain in (0.0, *CLOCKS):
            scores, _, density = rival(moving(x, h, FIRST, 1, gain), x, truth)
            found[f"EWMA + QIS, half-life {h:g}, clock {gain:g}, {density}"] = scores[280:].mean()
    for length in (64, 128, 256):
        scores, _, density = rival(window(x, length, FIRST, 1), x, truth)
        found[f"Ledoit-Wolf, window {length}, {density}"] = scores[280:].mean()
    return found


def run_cost(n_rounds: int) -> dict[str, Any]:
    """CPU microseconds per row, best of several short runs; a 400 x 400 product as the measure."""
    sizes = (100, 200, 500, 1000, 2000)
    found: dict[str, Any] = {"default": {}, "one member of rank 10": {}, "kilobytes of a track": {}}
    one = (Factors(10, 0.02, 40.0, 20.0, 0.3),)
    for name, members in (("default", None), ("one member of rank 10", one)):
        for d in sizes:
            engine = LowRank(d, members=members)
            x = np.random.default_rng(0).normal(size=(120, 1, d))
            rows = engine.init(1)

            def advance(n: int, engine: LowRank = engine, rows: Any = rows, x: Any = x) -> None:
                lines = (np.zeros(n, dtype=np.int64), x[:n], np.ones(n), np.ones(n))
                engine.advance(rows, *lines, room=0)

            advance(120)
            found[name][str(d)] = _best(lambda: advance(20), n_rounds) / 20 * 1e6
            found["kilobytes of a track"][str(d)] = rows.nbytes / 1e3
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
    """Simulated markets of two sizes, the subspace, the funds, the crossover and the cost."""
    made = []
    for d, seeds, every in ((40, (0,), 5),) if quick else ((200, (0, 1, 2), 1), (500, (0,), 10)):
        for clustered in (False, True):
            name = f"simulated_{d}" + ("_clustered" if clustered else "")
            given = {"d": d, "seeds": seeds, "clustered": clustered, "every": every}
            made.append(Unit("low_rank", name, "low_rank:run_simulated", given))
    wide, long = (20, 150) if quick else (200, 1000)
    given = {"d": wide, "n": long, "seed": 0}
    made.append(Unit("low_rank", "subspace", "low_rank:run_subspace", given))
    made.append(Unit("low_rank", "etf18", "low_rank:run_etf18", {"n": 400 if quick else 3000}))
    for d in (8, 16) if quick else (16, 32, 48, 64, 96, 128):
        given = {"d": d, "seeds": (0,) if quick else (0, 1, 2)}
        made.append(Unit("low_rank", f"crossover_{d}", "low_rank:run_crossover", given))
    rounds = {"n_rounds": 2 if quick else 40}
    made.append(Unit("low_rank", "cost", "low_rank:run_cost", rounds))
    return made
