"""Complexity and run time: what one update costs, against the dimension."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from experiments.store import Unit, unit
from kgmrf import (
    KGMRF,
    AlphaBeta,
    EuclideanEMA,
    LogEuclideanEMA,
    RiemannianEMA,
    TangentKalman,
    gains,
    metrics,
    simulate,
)
from kgmrf.geometry import so
from kgmrf.model.law_state import INTEGRATORS
from kgmrf.simulate import motion

TRACKERS: dict[str, tuple[str, Callable[[], Any]]] = {
    "information": ("K-GMRF information", lambda: KGMRF(gains="information", n_samples=8)),
    "zero_lag": ("K-GMRF zero-lag", lambda: KGMRF(gains=gains.zero_lag(), n_samples=8)),
    "auto": ("K-GMRF auto", lambda: KGMRF(gains="auto", n_samples=8)),
    "riemannian_ema": ("Riemannian EMA", lambda: RiemannianEMA(gain=0.1)),
    "log_euclidean_ema": ("Log-Euclidean EMA", lambda: LogEuclideanEMA(gain=0.1)),
    "euclidean_ema": ("Euclidean EMA", lambda: EuclideanEMA(gain=0.1)),
    "tangent_kalman": ("Tangent KF", lambda: TangentKalman()),
    "alpha_beta": ("Alpha-beta", lambda: AlphaBeta()),
}


def _best(work: Callable[[], Any], count: int, repeats: int) -> float:
    """CPU seconds per item: the quickest of several repeats, which disturbs least."""
    times = []
    for _ in range(repeats):
        started = time.process_time()
        work()
        times.append((time.process_time() - started) / count)
    return min(times)


def run_tracker(tracker: str, dimensions: list[int], n_frames: int) -> dict[str, Any]:
    """Microseconds per frame, one matrix at a time and a whole sequence at once."""
    label, build = TRACKERS[tracker]
    online, whole = [], []
    for d in dimensions:
        # Four samples per dimension: every rival can take logarithms.
        scene = simulate.rotating_covariance(d, n_frames=n_frames, n_samples=4 * d, rng=1)
        seen = scene.observations
        live = build()

        def stream(live: Any = live, seen: Any = seen) -> None:
            for matrix in seen:
                live.update(matrix, assume_valid=True)

        live.update(seen[0])
        stream()
        online.append(1e6 * _best(stream, n_frames, 3))
        build().filter(seen)

        def sequence(seen: Any = seen) -> None:
            build().filter(seen)

        whole.append(1e6 * _best(sequence, n_frames, 3))
    return {
        "label": label,
        "dimensions": dimensions,
        "online_microseconds": online,
        "filter_microseconds": whole,
    }


def run_maps(dimensions: list[int]) -> dict[str, Any]:
    """Microseconds of one exponential, Cayley or Cayley-Neumann map, and its log-log slope."""
    lines: dict[str, Any] = {}
    for name, function in {
        "exponential": so.exp,
        "cayley": so.cayley,
        "cayley_neumann_3": so.cayley_neumann,
    }.items():
        times = []
        for d in dimensions:
            w = 0.05 * motion.direction(d, 0)
            count = max(5, 2000 // d)

            def work(function: Any = function, w: Any = w, count: int = count) -> None:
                for _ in range(count):
                    function(w)

            work()
            times.append(1e6 * _best(work, count, 3))
        large = np.array(dimensions) >= 64
        slope = np.nan
        if large.sum() >= 2:
            logs = np.log(np.array(dimensions)[large]), np.log(np.array(times)[large])
            slope = np.polyfit(*logs, 1)[0]
        lines[name] = {"microseconds": times, "exponent": float(slope)}
    return {"dimensions": dimensions, "lines": lines}


def run_integrators(dimensions: list[int], n_frames: int) -> dict[str, Any]:
    """A tracker with each map for its drift, all by the readable step: time and error.

    Microseconds per frame, and the mean angle to the truth, degrees, of a covariance that turns at
    .05 rad per frame.
    """
    before = os.environ.get("KGMRF_ENGINE")
    os.environ["KGMRF_ENGINE"] = "readable"
    lines: dict[str, Any] = {name: {"microseconds": [], "error": []} for name in INTEGRATORS}
    try:
        for d in dimensions:
            scene = simulate.rotating_covariance(
                d, rate=0.05, n_frames=n_frames, n_samples=8 * d, rng=1
            )
            for name, line in lines.items():

                def work(name: str = name, d: int = d, scene: Any = scene) -> Any:
                    live = KGMRF(gains=gains.zero_lag(), n_samples=8 * d, integrator=name)
                    return live.filter(scene.observations)

                found = work()
                error = metrics.orbit_error(found.covariance, scene.covariance)[n_frames // 4 :]
                line["error"].append(float(np.degrees(error).mean()))
                line["microseconds"].append(1e6 * _best(work, n_frames, 3))
    finally:
        if before is None:
            del os.environ["KGMRF_ENGINE"]
        else:
            os.environ["KGMRF_ENGINE"] = before
    return {"dimensions": dimensions, "lines": lines}


def units(quick: bool) -> list[Unit]:
    """One unit per tracker, and the maps."""
    dimensions = [2, 7] if quick else [2, 3, 5, 7, 10, 16, 24, 32]
    n_frames = 30 if quick else 200
    maps = [2, 8] if quick else [2, 4, 8, 16, 32, 64, 128, 256]
    return [
        unit("cost", name, run_tracker, tracker=name, dimensions=dimensions, n_frames=n_frames)
        for name in TRACKERS
    ] + [
        unit("cost", "maps", run_maps, dimensions=maps),
        unit("cost", "integrators", run_integrators, dimensions=[2, 7], n_frames=n_frames),
    ]
