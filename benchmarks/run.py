"""Measure everything in one process and write one result file."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import tracemalloc
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

import kgmrf
from benchmarks import defaults, limits, ours, rivals, scenes
from benchmarks.measure import Contender, race

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("numpy", "pyriemann", "filterpy", "simdkalman", "skfolio", "precise")
PACKAGES += ("cvxcovariance", "scipy", "gtsam", "jaxlie", "jax", "torch")


def run(*, quick: bool = False, what: str = "speed") -> Path:
    """All groups of ``what``; ``quick``: fewer rounds, smaller banks, to see that it works.

    what: "speed" (single laws beside every rival) or "default" (the default beside pyRiemann).
    """
    absent: dict[str, str] = {}
    results: dict[str, Any] = {}
    before = _load()
    for name, group in (GROUPS if what == "speed" else defaults.GROUPS).items():
        print(f"benchmarks: {name}", flush=True)
        results[name] = group(quick, absent)
    report = {
        "settings": {
            "quick": quick,
            **machine(),
            "load of the machine, before and after": [before, _load()],
            "packages": {name: rivals.version(name) for name in PACKAGES},
            "threads of BLAS": os.environ.get("OPENBLAS_NUM_THREADS", "not set"),
            "seed": 0,
        },
        "absent": absent,
        "results": results,
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{'quick_' * quick}{what}.json"
    path.write_text(json.dumps(report, indent=1) + "\n")
    return path


def one_update(quick: bool, absent: dict[str, str]) -> Any:
    """One frame at a time from Python, against the dimension."""
    table = {}
    for d in (2, 3, 5, 7, 12, 16, 24, 32):
        frames = scenes.turning_covariances(100, d)
        samples = np.random.default_rng(0).standard_normal((200, d))
        contenders = [ours.online(frames, law) for law in ours.LAWS]
        contenders += [limits.empty_call(list(frames))]
        contenders += _rivals(
            absent,
            {
                "pyRiemann geodesic": lambda f=frames: rivals.pyriemann_step(f[:20]),
                "numpy EMA": lambda f=frames: rivals.numpy_ema(f),
            },
        )
        if d == 7:
            contenders += [ours.online(frames, "information", trusted=True)]
            contenders += _rivals(
                absent,
                {
                    "pyRiemann geodesic, torch": lambda f=frames: rivals.pyriemann_step(
                        f[:20], "torch"
                    ),
                    "filterpy vech Kalman": lambda f=frames: rivals.filterpy_step(f[:10]),
                    "skfolio EWCovariance": lambda s=samples: rivals.skfolio_step(s),
                    "precise EwaCovariance": lambda s=samples: rivals.precise_step(s),
                },
            )
        table[str(d)] = race(contenders, 7 if quick else 41 if d == 7 else 15)
    return table


def whole_sequence(quick: bool, absent: dict[str, str]) -> Any:
    """A sequence of 2000 frames in one call, d = 7, seconds per frame."""
    frames = scenes.turning_covariances(2000, 7)
    samples = np.random.default_rng(0).standard_normal((200, 7))
    contenders = [ours.sequence(frames, law, covariance=c) for law in ours.LAWS for c in (0, 1)]
    contenders += [limits.multiply_adds()]
    contenders += _rivals(
        absent,
        {
            "pyRiemann geodesic": lambda: rivals.pyriemann_step(frames[:40]),
            "numpy EMA": lambda: rivals.numpy_ema(frames[:400]),
            "simdkalman vech": lambda: rivals.simdkalman_sequence(frames[:20]),
        },
    )
    table = race(contenders, 7 if quick else 41)
    slow = _rivals(
        absent, {"cvxcovariance CM-IEWMA": lambda: rivals.cvxcovariance_sequence(samples)}
    )
    table |= race(slow, 1)
    return {"table": table, "multiply-adds": limits.step_multiply_adds(7)}


def many_tracks(quick: bool, absent: dict[str, str]) -> Any:
    """A bank of 100,000 tracks, d = 7, seconds per track."""
    n = 5_000 if quick else 100_000
    frames = [scenes.many_covariances(n, 7, seed) for seed in (0, 1)]
    few = frames[0][:2000].copy()
    contenders = [limits.multiply_adds(), limits.stream_copy()]
    memory = {}
    for law in ours.LAWS:
        contender, bank = ours.bank(frames, law)
        contenders.append(contender)
        memory[contender.name] = {
            "bytes per track": bank.nbytes / n,
            "peak share": _peak_share(contender, bank.nbytes),
            "traffic": (2 * bank.nbytes + frames[0].nbytes) / n,
        }
    contenders.append(ours.bank(frames, "information", threads=2)[0])
    contenders += _rivals(
        absent,
        {
            "pyRiemann batched": lambda: rivals.pyriemann_many(few),
            "pyRiemann batched, torch": lambda: rivals.pyriemann_many(few, "torch"),
            "numpy EMA batched": lambda: rivals.numpy_ema_many(frames[0]),
            "simdkalman batched": lambda: rivals.simdkalman_many(few[:200]),
        },
    )
    table = race(contenders, 3 if quick else 15)
    return {
        "tracks": n,
        "table": table,
        "memory": memory,
        "multiply-adds": limits.step_multiply_adds(7),
    }


def rotation_bank(quick: bool, absent: dict[str, str]) -> Any:
    """A bank of 100,000 rotations in space, seconds per track, one thread each."""
    n = 5_000 if quick else 100_000
    frames = [scenes.many_rotations(n, seed) for seed in (0, 1)]
    contenders = [ours.bank(frames, law, kind="rotation")[0] for law in ours.LAWS]
    contenders.append(ours.online_rotation(frames[0][:200]))
    contenders += _rivals(
        absent,
        {
            "jaxlie jit": lambda: rivals.jaxlie_rotations(frames[0]),
            "scipy Rotation": lambda: rivals.scipy_rotations(frames[0]),
            "gtsam Rot3, one by one": lambda: rivals.gtsam_rotations(frames[0]),
        },
    )
    return {"tracks": n, "table": race(contenders, 3 if quick else 21)}


def growth(quick: bool, absent: dict[str, str]) -> Any:
    """Cost per track against the number of tracks, d = 7 and one thread; the sizes take turns."""
    contenders = []
    for n in (1_000, 10_000) if quick else (1_000, 10_000, 100_000, 1_000_000):
        contender, _ = ours.bank([scenes.many_covariances(n, 7)], "information")
        contender.name = str(n)
        contenders.append(contender)
    return race(contenders, 3 if quick else 7)


GROUPS = {
    "one update": one_update,
    "whole sequence": whole_sequence,
    "many tracks": many_tracks,
    "rotation bank": rotation_bank,
    "growth": growth,
}


def _rivals(absent: dict[str, str], builders: dict[str, Any]) -> list[Contender]:
    return [c for name, build in builders.items() for c in rivals.attempt(name, build, absent)]


def _peak_share(contender: Contender, state: int) -> float:
    """Memory at the height of an update beyond the state and its observations, per state."""
    tracemalloc.start()
    contender.run()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return 1.0 + peak / state


def machine() -> dict[str, Any]:
    """Where and when figures were measured, and of what."""
    return {
        "date": date.today().isoformat(),
        "kgmrf": kgmrf.__version__,
        "commit": _commit(),
        "processor": _processor(),
        "processors": os.cpu_count(),
        "source lines": _source_lines(),
        "python": platform.python_version(),
    }


def _load() -> float:
    """Processes that ran or waited for a processor, mean of the last minute."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else float("nan")


def _source_lines() -> int:
    files = Path(kgmrf.__file__).parent.rglob("*.py")
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)


def _commit() -> str:
    try:
        words = ["git", "rev-parse", "--short", "HEAD"]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"
