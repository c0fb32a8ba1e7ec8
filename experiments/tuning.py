"""Tuning with seed separation: every rival gets the same number of trials, on seeds 0 to 4 only.

A trial is one setting. The first third of the trials are the paper's own grid for the method, if it
has one, and settings drawn at random from a wide space; the rest are drawn near the best so far,
cell by cell in turn. The winner of each cell is chosen on the tuning seeds and scored on seeds it
has never seen.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from experiments.store import Unit
from kgmrf import AlphaBeta, TangentKalman, paper
from kgmrf._types import Numbers

Settings = dict[str, float]
Space = Mapping[str, tuple[float, float, str]]
Maker = Callable[[Any], Callable[..., Numbers]]

TUNING_SEEDS = tuple(range(5))
TEST_SEEDS = tuple(range(5, 10))
FURTHER_SEEDS = tuple(range(10, 110))
TRIALS = 100


@dataclass(frozen=True)
class Method:
    """A way to track: what it is called, what it does, and what may be tuned.

    run: (observations, n_samples, **settings) -> estimates.
    space: name -> (low, high, kind), kind "log", "linear" or "below_one" (1 - x, x logarithmic).
    grid: the paper's grid for it, in our words.
    tune: "none", "cell" (one setting per cell) or "all" (one setting for all cells).
    """

    name: str
    label: str
    run: Callable[..., Numbers]
    settings: Settings = field(default_factory=dict)
    space: Space = field(default_factory=dict)
    grid: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    tune: str = "none"
    family: str = "rival"
    order: int = 1


def columns(
    reading: str, labels: Mapping[str, str], made: Maker, **fixed: dict[str, Any]
) -> tuple[Method, ...]:
    """The columns of the paper's tables under one of `kgmrf.paper`'s readings.

    fixed: settings by name of a column that belong to the protocol, such as where it starts.
    """
    family = "printed" if reading.startswith("printed") else "paper"
    return tuple(
        Method(
            f"{family}_{name}",
            labels[name],
            made(partial(paper.column, name, reading, **fixed.get(name, {}))),
            {k: v for k, v in paper.COLUMNS[reading][name][1].items() if isinstance(v, float)},
            family=family,
            order=1 if name.endswith("ema") else 2,
        )
        for name in paper.NAMES
    )


def ours(name: str, label: str, run: Callable[..., Numbers], space: Space | None = None) -> Method:
    """One of ours: nothing to set, or one setting for all cells."""
    tune = "none" if space is None else "all"
    return Method(name, label, run, space=space or {}, tune=tune, family="ours", order=2)


def tuned(
    name: str,
    label: str,
    run: Callable[..., Numbers],
    space: Space,
    grid: Mapping[str, tuple[float, ...]] | None = None,
    order: int = 1,
) -> Method:
    """A rival with one setting per cell."""
    label = f"{label}, tuned"
    return Method(f"tuned_{name}", label, run, {}, space, grid or {}, "cell", order=order)


def tuned_averages(made: Maker, averages: Mapping[str, tuple[str, type]]) -> tuple[Method, ...]:
    """Moving averages by name: label and class; the paper's beta is the weight of the past."""
    space, grid = {"gain": (0.02, 1.0, "log")}, {"gain": (0.4, 0.3, 0.2, 0.1)}
    return tuple(
        tuned(name, label, made(kind), space, grid) for name, (label, kind) in averages.items()
    )


def tuned_tangent_kalman(made: Maker, noise_std: tuple[float, float]) -> Method:
    """The Kalman filter in one tangent space, on the paper's grid and beyond."""
    space = {"velocity_noise": (1e-8, 1e-1, "log"), "noise_std": (*noise_std, "log")}
    grid = {"velocity_noise": (0.001, 0.005, 0.01), "noise_std": (0.05, 0.1, 0.2)}
    return tuned("tangent_kalman", "Tangent KF", made(TangentKalman), space, grid, order=2)


def tuned_alpha_beta(made: Maker, space: Space) -> Method:
    """Alpha-beta, on the paper's grid and beyond."""
    grid = {"position_gain": (0.3, 0.4, 0.5, 0.6), "velocity_gain": (0.05, 0.1, 0.15)}
    return tuned("alpha_beta", "Alpha-beta", made(AlphaBeta), space, grid, order=2)


def tuned_alpha_beta_gamma(run: Callable[..., Numbers]) -> Method:
    """With an acceleration as well."""
    space = {
        "position_gain": (0.05, 1.2, "log"),
        "velocity_gain": (1e-3, 1.0, "log"),
        "acceleration_gain": (1e-5, 0.5, "log"),
    }
    return tuned("alpha_beta_gamma", "Alpha-beta-gamma", run, space, order=3)


def first_trials(method: Method, count: int) -> tuple[list[Settings], int]:
    """The paper's grid, then random settings: the first third of ``count``; and the grid's size."""
    if method.tune == "none":
        return [dict(method.settings)], 0
    names = list(method.grid)
    grid = [
        {**method.settings, **dict(zip(names, values, strict=True))}
        for values in itertools.product(*method.grid.values())
        if names
    ]
    grid = grid[:count]
    rng = _rng(method)
    drawn = [
        {**method.settings, **{k: _draw(rng, *v) for k, v in method.space.items()}}
        for _ in range(max(count // 3, 1) - len(grid))
    ]
    return grid + drawn, len(grid)


def _rng(method: Method, salt: int = 0) -> np.random.Generator:
    """Fixed by the method's name, so that a new method changes no other's trials."""
    return np.random.default_rng([zlib.crc32(method.name.encode()), salt])


def nearby(method: Method, settings: Settings, rng: np.random.Generator) -> Settings:
    """A setting near a good one, still inside the space."""
    near = dict(settings)
    # Small steps polish, large ones leave a poor valley.
    size = float(np.exp(rng.uniform(np.log(0.1), np.log(1.5))))
    for name, (low, high, kind) in method.space.items():
        old = near[name]
        if kind == "linear":
            new = old + 0.3 * size * (high - low) * rng.standard_normal()
        elif kind == "log":
            new = old * float(np.exp(size * rng.standard_normal()))
        else:
            rest = max(1.0 - old, low) * float(np.exp(size * rng.standard_normal()))
            new = 1.0 - min(max(rest, low), high)
        if kind != "below_one":
            new = min(max(new, low), high)
        near[name] = float(f"{new:.6g}")
    return near


def _draw(rng: np.random.Generator, low: float, high: float, kind: str) -> float:
    if kind == "linear":
        value = rng.uniform(low, high)
    elif kind == "log":
        value = float(np.exp(rng.uniform(np.log(low), np.log(high))))
    elif kind == "below_one":
        value = 1.0 - float(np.exp(rng.uniform(np.log(low), np.log(high))))
    else:
        raise ValueError(f"kind is log, linear or below_one, not {kind!r}")
    return float(f"{value:.6g}")


def units(
    experiment: str, readings: Iterable[str], methods: tuple[Method, ...], quick: bool
) -> list[Unit]:
    """One unit per reading and method, computed by the experiment's ``run_method``."""
    n_trials, n_further = (4, 2) if quick else (TRIALS, len(FURTHER_SEEDS))
    return [
        Unit(
            experiment,
            f"{reading}.{method.name}",
            f"{experiment}:run_method",
            {
                "reading": reading,
                "method": method.name,
                "n_trials": n_trials if method.tune != "none" else 0,
                "n_further": n_further,
            },
        )
        for reading in readings
        for method in methods
    ]


def evaluate(
    method: Method,
    score: Callable[[Method, Settings, tuple[int, ...], list[int]], Numbers],
    n_cells: int,
    n_trials: int,
    further: tuple[int, ...],
) -> dict[str, Any]:
    """Choose settings on the tuning seeds, score them on the others.

    score(method, settings, seeds, cells) -> errors (n_cells, n_seeds), NaN where it failed.
    """
    tried, n_grid = first_trials(method, n_trials)
    everywhere = list(range(n_cells))

    def on_tuning_seeds(settings: Settings) -> Numbers:
        errors = score(method, settings, TUNING_SEEDS, everywhere)
        return np.where(np.isnan(errors).any(axis=1), np.inf, errors.mean(axis=1))

    table = np.full((1, n_cells), np.inf)
    if method.tune != "none":
        table = np.stack([on_tuning_seeds(s) for s in tried])
        rng = _rng(method, salt=1)
        for k in range(n_trials - len(tried)):
            # One setting for all cells: the geometric mean weighs an easy cell like a hard one.
            goal = np.log(table).mean(axis=1) if method.tune == "all" else table[:, k % n_cells]
            tried.append(nearby(method, tried[int(np.argmin(goal))], rng))
            table = np.vstack([table, on_tuning_seeds(tried[-1])])
    if method.tune == "all":
        winners = np.full(n_cells, int(np.argmin(np.log(table).mean(axis=1))))
    else:
        winners = np.argmin(table, axis=0) if len(tried) > 1 else np.zeros(n_cells, dtype=int)
    seeds = TEST_SEEDS + further
    errors = np.full((n_cells, len(seeds)), np.nan)
    for k in np.unique(winners):
        cells = np.flatnonzero(winners == k).tolist()
        errors[cells] = score(method, tried[int(k)], seeds, cells)
    on_grid = np.argmin(table[:n_grid], axis=0) if n_grid and len(tried) > 1 else None
    return {
        "label": method.label,
        "family": method.family,
        "order": method.order,
        "tuned": method.tune,
        "trials": len(tried) if len(tried) > 1 else 0,
        "tuning_seeds": list(TUNING_SEEDS) if len(tried) > 1 else [],
        "test_seeds": list(TEST_SEEDS),
        "further_seeds": [further[0], further[-1]] if further else [],
        "settings": [tried[int(k)] for k in winners],
        "best_on_paper_grid": None if on_grid is None else [tried[int(k)] for k in on_grid],
        "test": errors[:, : len(TEST_SEEDS)],
        "further": errors[:, len(TEST_SEEDS) :],
    }
