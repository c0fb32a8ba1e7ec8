"""What users call without settings: the self-tuned default, beside pyRiemann and the single law.

Each function below is one group of figures. Contenders of a group take turns in one process; what
needs a fresh process (the first use) counts all the processor time it takes.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import ours, rivals, scenes
from benchmarks.measure import Contender, race
from kgmrf import KGMRF, RotationTracker, TrackerBank
from kgmrf.stream import Settings, Stream

SOURCES = Path(__file__).parent.parent / "src"
FIRST_USES = {
    "nothing: import": "",
    "KGMRF().filter": "kgmrf.KGMRF().filter(np.random.default_rng(0).normal(size=(50, 8)))",
    "RotationTracker().filter": "kgmrf.RotationTracker().filter("
    "kgmrf.simulate.camera_shake(seed=1).observations[:50])",
    "TrackerBank.update": "kgmrf.TrackerBank(100, 7).update("
    "np.random.default_rng(0).normal(size=(100, 7)))",
}


def one_step(quick: bool, absent: dict[str, str]) -> Any:
    """One step from Python, and a row of a sequence; d = 8 and 18, seconds per step."""
    table = {}
    for d in (8, 18):
        frames = scenes.turning_covariances(100, d)
        rows = samples(400, d)
        contenders = [
            _partial_fit(rows),
            _partial_fit(rows, read=True),
            _update(frames),
            _forecast(rows),
            _filter(rows),
            _filter(rows, read=True),
            _filter(rows, missing=True),
            ours.online(frames, "information"),
            _filter(rows, gains="information"),
        ]
        builder = {"pyRiemann geodesic": lambda f=frames: rivals.pyriemann_step(f[:20])}
        for name, build in builder.items():
            contenders += rivals.attempt(name, build, absent)
        table[str(d)] = race(contenders, 5 if quick else 31)
    return table


def many_tracks(quick: bool, absent: dict[str, str]) -> Any:
    """A bank of 100,000 tracks, d = 7, one core, seconds per track."""
    n = 5_000 if quick else 100_000
    seen = [samples(n, 7, seed) for seed in (0, 1)]
    frames = [scenes.many_covariances(n, 7, seed) for seed in (0, 1)]
    few = frames[0][:2000].copy()
    default, bank = _bank(seen)
    single, law = ours.bank(frames, "information")
    contenders = [default, single]
    contenders += rivals.attempt("pyRiemann batched", lambda: rivals.pyriemann_many(few), absent)
    table = race(contenders, 3 if quick else 11)
    memory = {default.name: bank.nbytes / n, single.name: law.nbytes / n}
    return {"tracks": n, "table": table, "bytes per track": memory}


def streams(quick: bool, absent: dict[str, str]) -> Any:
    """Lines of 100 keys, d = 4, through `kgmrf.stream.Stream`, seconds per line."""
    n = 5_000 if quick else 40_000
    rows = samples(n, 4).round(5).tolist()
    lines = [
        json.dumps({"key": f"k{k % 100}", "time": k // 100, "x": row}).encode()
        for k, row in enumerate(rows)
    ]
    contenders = []
    for name, tracker in (("default", {}), ("information", {"gains": "information"})):

        def run(tracker: Any = tracker) -> None:
            stream = Stream(Settings(tracker=tracker))
            for first in range(0, n, 5_000):
                stream.take(lines[first : first + 5_000])

        contenders.append(Contender(f"kgmrf stream, {name}", run, n))
    return race(contenders, 2 if quick else 7)


def rotations(quick: bool, absent: dict[str, str]) -> Any:
    """One rotation at a time, seconds per step."""
    seen = list(scenes.many_rotations(200))
    contenders = []
    for name, tracker in (
        ("default", RotationTracker()),
        ("default without oscillators", RotationTracker(oscillations=False)),
        ("information", RotationTracker(noise_std=0.05, gains="information")),
    ):
        for rotation in seen[:20]:
            tracker.update(rotation)

        def run(update: Any = tracker.update) -> None:
            for rotation in seen:
                update(rotation)

        contenders.append(Contender(f"kgmrf rotation update, {name}", run, len(seen)))
    return race(contenders, 5 if quick else 21)


def first_use(quick: bool, absent: dict[str, str]) -> Any:
    """Processor seconds of a whole process."""
    rounds = 1 if quick else 5
    return {
        name: statistics.median(_process(code) for _ in range(rounds))
        for name, code in FIRST_USES.items()
    }


GROUPS = {
    "default: one step": one_step,
    "default: many tracks": many_tracks,
    "default: streams": streams,
    "default: rotations": rotations,
    "default: first use": first_use,
}


def samples(n: int, d: int, seed: int = 0) -> Any:
    """``(n, d)`` normal samples with variances from 16 to 1/4."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) * np.sqrt(np.geomspace(16.0, 0.25, d))


def _partial_fit(rows: Any, *, read: bool = False) -> Contender:
    tracker = KGMRF()
    tracker.filter(rows)
    seen = list(rows[:100])
    step = tracker.partial_fit

    def run() -> None:
        for row in seen:
            estimate = step(row)
            if read:
                estimate.covariance  # noqa: B018 (built when it is looked at)

    return Contender("kgmrf partial_fit" + ", covariance read" * read, run, len(seen))


def _update(frames: Any) -> Contender:
    tracker = KGMRF(n_samples=scenes.N_SAMPLES)
    tracker.filter(frames)
    seen = list(frames)
    step = tracker.update

    def run() -> None:
        for observation in seen:
            step(observation)

    return Contender("kgmrf update", run, len(seen))


def _forecast(rows: Any) -> Contender:
    tracker = KGMRF()
    tracker.filter(rows)

    def run() -> None:
        for _ in range(100):
            tracker.forecast(1).covariance  # noqa: B018

    return Contender("kgmrf forecast(1).covariance", run, 100)


def _filter(rows: Any, *, gains: str = "auto", read: bool = False, missing: bool = False) -> Any:
    seen = rows.copy()
    if missing:
        seen[np.arange(len(seen)), np.arange(len(seen)) % rows.shape[1]] = np.nan

    def run() -> object:
        result = KGMRF(gains=gains).filter(seen)
        return result.covariance if read else result

    name = "kgmrf filter" + f", {gains}" * (gains != "auto")
    name += ", covariances read" * read + ", one missing cell per row" * missing
    return Contender(name, run, len(seen))


def _bank(seen: list[Any]) -> tuple[Contender, TrackerBank]:
    n, d = seen[0].shape
    bank = TrackerBank(n, d, n_threads=1)
    turn = [0]

    def run() -> None:
        turn[0] += 1
        bank.update(seen[turn[0] % len(seen)])

    for _ in range(3):
        run()
    return Contender("kgmrf bank, default, samples, 1 thread", run, n), bank


def _process(code: str) -> float:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(SOURCES), os.environ.get("PYTHONPATH", "")]),
    }
    call = [sys.executable, "-c", f"import kgmrf, numpy as np\n{code}"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(call, check=True, env=environment, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
