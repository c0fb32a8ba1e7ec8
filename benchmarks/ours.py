"""kgmrf itself, as its users would call it."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.measure import Contender
from benchmarks.scenes import N_SAMPLES
from kgmrf import KGMRF, RotationTracker
from kgmrf.bank import TrackerBank

LAWS = ("information", "zero_lag")


def online(frames: Any, law: str, *, trusted: bool = False) -> Contender:
    """`KGMRF.update`, checks included, one call per frame."""
    tracker = KGMRF(n_samples=N_SAMPLES, gains=law)
    tracker.filter(frames[: len(frames) // 2])
    tracker.update(frames[0])
    observations = list(frames)
    update = tracker.update

    def run() -> None:
        for observation in observations:
            update(observation, assume_valid=trusted)

    return Contender(f"kgmrf update, {law}" + (", trusted" * trusted), run, len(observations))


def online_rotation(frames: Any) -> Contender:
    """`RotationTracker.update`, checks included."""
    tracker = RotationTracker(noise_std=0.05, gains="information")
    tracker.update(frames[0])
    tracker.update(frames[0])
    observations = list(frames)
    update = tracker.update

    def run() -> None:
        for observation in observations:
            update(observation)

    return Contender("kgmrf rotation update", run, len(observations))


def sequence(frames: Any, law: str, *, covariance: bool) -> Contender:
    """`KGMRF.filter` from a cold start, checks included; with the covariances read or not."""

    def run() -> object:
        result = KGMRF(n_samples=N_SAMPLES, gains=law).filter(frames)
        return result.covariance if covariance else result

    name = f"kgmrf filter, {law}" + (", covariances read" * covariance)
    return Contender(name, run, len(frames))


def bank(
    frames: list[Any],
    law: str,
    *,
    kind: str = "covariance",
    threads: int = 1,
) -> tuple[Contender, TrackerBank]:
    """`TrackerBank.update`, checks included; the frames take turns."""
    n, d = frames[0].shape[:2]
    settings: dict[str, Any] = {"noise_std": 0.05}
    if kind == "covariance":
        settings = {"n_samples": N_SAMPLES, "initial": np.diag(np.geomspace(16.0, 0.25, d))}
    tracks = TrackerBank(n, d, kind=kind, n_threads=threads, gains=law, **settings)
    turn = [0]

    def run() -> None:
        turn[0] += 1
        tracks.update(frames[turn[0] % len(frames)])

    run()
    name = f"kgmrf bank, {law}, float64, {threads} thread" + "s" * (threads > 1)
    clock = time.process_time if threads == 1 else time.perf_counter
    return Contender(name, run, n, clock), tracks
