"""Run units in processes and write their records; a run that was stopped goes on where it was."""

from __future__ import annotations

import functools
import multiprocessing
import platform
import re
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

import kgmrf
from experiments import sources, store
from experiments.store import HERE, NotAvailable, Unit

TIMES = HERE.parent / "out" / "experiments-times.json"

ALONE = re.compile(r"cost/.+|(low_rank|rotations|layers)/(cost|crossover_.+)")
"""Units whose times are the result: nothing else may run beside them."""

TIMED = re.compile(rf"(otb|otb_unseen|steady|streams)/.+|{ALONE.pattern}")
"""Units that measure time; all others give the same file in every run of the same sources."""

LONG = re.compile(r"otb|steady|confidence|low_rank|alerts|streams")
"""Experiments whose units take minutes: they go first where no time of a unit is known yet."""

Failures = list[tuple[str, BaseException]]


def run(
    units: list[Unit],
    results: Path,
    jobs: int,
    keep: Callable[[Unit, Path], bool] | None,
    *,
    remember: bool = True,
) -> int:
    """Run the units in parallel, but those to keep; returns the exit code.

    The longest go first: the last ones to finish are then short, and no core waits. What is
    measured goes last and alone. ``remember``: keep what each took for the next run.
    """
    started = time.perf_counter()
    _check_core()
    todo = [u for u in units if keep is None or not keep(u, results)]
    kept = [u for u in units if u not in todo]
    if kept:
        print(f"{len(kept)} of {len(units)} results are there already")
        old = sources.stale(kept, results)
        if old:
            print(f"{len(old)} of them were made by other files than these; --stale runs them")
    known = costs()
    todo.sort(key=lambda u: -known.get(u.key, 600.0 if LONG.match(u.key) else 30.0))
    alone = [u for u in todo if ALONE.fullmatch(u.key)]
    together = [u for u in todo if u not in alone]
    failures: Failures = []
    spent: dict[str, float] = {}
    for batch, workers in ((together, jobs), (alone, 1)):
        if batch:
            failures += _pool(batch, results, workers, len(todo), spent, remember)
    _show_times(spent)
    for key, error in failures:
        print(f"failed: {key}: {type(error).__name__}: {error}", file=sys.stderr)
    minutes = (time.perf_counter() - started) / 60
    print(f"{len(todo) - len(failures)} units in {minutes:.1f} minutes")
    return 1 if failures else 0


def _pool(
    units: list[Unit],
    results: Path,
    workers: int,
    total: int,
    spent: dict[str, float],
    remember: bool,
) -> Failures:
    failures: Failures = []
    context = multiprocessing.get_context("spawn")
    states = {unit.key: sources.state(unit) for unit in units}
    with ProcessPoolExecutor(
        max(1, workers), mp_context=context, initializer=_prepare_worker
    ) as pool:
        futures: dict[Future[Any], Unit] = {}
        try:
            for unit in units:
                futures[pool.submit(execute, unit, results, states[unit.key])] = unit
            for future in as_completed(futures):
                unit = futures[future]
                error = future.exception()
                status = "failed"
                if error is not None:
                    failures.append((unit.key, error))
                else:
                    record = future.result()
                    spent[unit.key] = record["cpu_seconds"]
                    status = record.get("reason", f"{record['cpu_seconds']:.1f} s CPU")
                    if remember:
                        costs({unit.key: record["cpu_seconds"]})
                print(f"[{len(spent) + len(failures)}/{total}] {unit.key}: {status}", flush=True)
        except KeyboardInterrupt:
            # What is finished is on disk; the rest starts again next time.
            pool.shutdown(wait=False, cancel_futures=True)
            raise SystemExit("stopped; run the same command again to go on") from None
    return failures


def execute(unit: Unit, results: Path, state: str | None = None) -> dict[str, Any]:
    """Run a unit and write its record; returns the record without the data, with its CPU seconds.

    ``state``: that of its files when the run began, before any of them was imported. Files that
    changed since then may or may not be in the result, which is then nobody's. What a unit took is
    no part of its record: two runs of the same sources write the same files, but for units that
    measure time.
    """
    busy = time.process_time()
    state = state or sources.state(unit)
    record: dict[str, Any] = {
        "experiment": unit.experiment,
        "unit": unit.name,
        "settings": unit.settings,
        "rerun": f"python -m experiments run {unit.key} --fresh",
    }
    try:
        record["data"] = unit.call()
        record["status"] = "done"
    except NotAvailable as reason:
        record["status"] = "not available"
        record["reason"] = str(reason)
    same = sources.state(unit) == state
    record["made_with"] = provenance() | {"source": state if same else "changed while it ran"}
    store.write(unit.path(results), record)
    spent = {"cpu_seconds": round(time.process_time() - busy, 3)}
    return {k: v for k, v in record.items() if k != "data"} | spent


def clear(results: Path, known: set[Path] | None = None) -> int:
    """Remove what a killed run left half written, and files that no unit of ``known`` writes."""
    for part in results.glob("*/.*.part"):
        part.unlink(missing_ok=True)
    old = [p for p in results.glob("*/*.json") if known is not None and p not in known]
    for path in old:
        path.unlink(missing_ok=True)
    return len(old)


def costs(spent: dict[str, float] | None = None) -> dict[str, float]:
    """CPU seconds of every unit in its last run on this machine, after adding those ``spent``."""
    known = {**(store.load(TIMES) or {}), **(spent or {})}
    if spent:
        store.write(TIMES, known)
    return known


def _prepare_worker() -> None:
    """Workers leave Ctrl-C to the parent, and print only what they return."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Rivals with absurd trial settings overflow; their error counts as infinite.
    warnings.simplefilter("ignore", RuntimeWarning)


def _check_core() -> None:
    """Refuse to record results of a compiled core that is older than its sources."""
    built = next(sources.PACKAGES["kgmrf"].glob("_core*"), None)
    if built is None or not sources.CORE.is_dir():
        return
    done = [p for p in (built, sources.ROOT / "build" / ".core") if p.exists()]
    last = max(p.stat().st_mtime for p in done)
    read = (*sources.CORE.glob("*pp"), sources.PACKAGES["kgmrf"] / "constants.py")
    newer = [p for p in read if p.stat().st_mtime > last]
    if newer:
        raise SystemExit(f"{newer[0].name} is newer than the compiled core: run make core first")


def _show_times(spent: dict[str, float]) -> None:
    """CPU seconds of each experiment, the longest first, and of its longest unit."""
    whole: dict[str, float] = {}
    for key, seconds in spent.items():
        name = key.partition("/")[0]
        whole[name] = whole.get(name, 0.0) + seconds
    for name, seconds in sorted(whole.items(), key=lambda item: -item[1]):
        longest = max((k for k in spent if k.startswith(f"{name}/")), key=spent.__getitem__)
        print(f"{seconds:8.1f} s CPU  {name} ({longest}: {spent[longest]:.1f})")
    if spent:
        print(f"{sum(spent.values()):8.1f} s CPU  altogether")


# ------------------------------------------------------------------------------- made with what


@functools.cache
def provenance() -> dict[str, Any]:
    """Versions, commit and processor behind a result."""
    return {
        "kgmrf": kgmrf.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        **{name: _version(name) for name in ("scipy", "opencv-contrib-python-headless")},
        "commit": _commit(),
        "processor": _processor(),
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The checked-out commit, with a plus sign if the sources differ from it."""
    head = _git("rev-parse", "--short=12", "HEAD")
    if head is None:
        return None
    changed = _git("status", "--porcelain", "--", "src", "experiments/*.py")
    return head + "+" if changed else head


def _git(*words: str) -> str | None:
    """What git says; None where it fails or is not there."""
    try:
        done = subprocess.run(
            ["git", *words],
            cwd=HERE.parent,
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _processor() -> str:
    """The processor's own name, because run times mean nothing without it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
