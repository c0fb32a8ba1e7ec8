"""Run the experiments, build the report, or list what there is."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from experiments import store

ALONE = {"cost"}
"""Experiments whose units must not share the machine with others."""


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line and do what it says; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    run = verbs.add_parser("run", help="compute results that are not there yet")
    run.add_argument("names", nargs="*", help="all, experiments, or experiment/unit")
    run.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    run.add_argument("--fresh", action="store_true", help="compute again what is there")
    run.add_argument("--stale", action="store_true", help="compute again what other sources made")
    report = verbs.add_parser("report", help="figures and report.html from the results")
    report.add_argument("--out", type=Path, help="folder for report.html and figures")
    tables = verbs.add_parser("tables", help="measured tables of the documentation")
    verbs_list = verbs.add_parser("list", help="every unit and whether it is done")
    for verb in (run, report, tables, verbs_list):
        verb.add_argument(
            "--quick", action="store_true", help="few seeds, short runs: a smoke test"
        )
        verb.add_argument("--results", type=Path, help="folder of the result files")
    options = parser.parse_args(arguments)
    results: Path = options.results or (store.QUICK_RESULTS if options.quick else store.RESULTS)
    if options.verb == "run":
        keep = store.current if options.stale else store.finished
        return run_all(
            options.names, results, options.quick, options.jobs, None if options.fresh else keep
        )
    if options.verb == "report":
        from experiments import reading
        from experiments import report as page

        out: Path = options.out or (results if options.quick else store.HERE)
        page.build(results, out, quick=options.quick)
        warning = page.mixed(reading.Results(results))
        if warning:
            print(warning, file=sys.stderr)
        print(f"wrote {out / 'report.html'}")
        return 0
    if options.verb == "tables":
        from experiments import tables as pages

        for page in pages.write(results):
            print(f"wrote {page}")
        return 0
    from experiments.catalogue import select

    for unit in select(["all"], options.quick):
        print(f"{'done   ' if store.finished(unit, results) else 'missing'}  {unit.key}")
    return 0


def run_all(
    names: list[str],
    results: Path,
    quick: bool,
    jobs: int,
    keep: Callable[[store.Unit, Path], bool] | None,
) -> int:
    """Run the chosen units in parallel, but those to keep; returns the exit code."""
    from experiments.catalogue import select

    started = time.perf_counter()
    units = select(names, quick)
    everything = not names or "all" in names
    gone = store.clear(results, {u.path(results) for u in units} if everything else None)
    if gone:
        print(f"removed {gone} results that no unit writes any more")
    todo = [u for u in units if keep is None or not keep(u, results)]
    # The longest first: the last ones to finish are then short, and no core waits.
    known = store.costs()
    todo.sort(key=lambda u: -known.get(u.key, float("inf")))
    kept = len(units) - len(todo)
    if keep is store.current:
        for unit in units:
            if unit not in todo:
                store.confirm(unit, results)
    if kept:
        print(f"{kept} of {len(units)} results are there already")
        _tell_age([u for u in units if u not in todo], results)
    together = [u for u in todo if u.experiment not in ALONE]
    alone = [u for u in todo if u.experiment in ALONE]
    failures: list[tuple[str, BaseException]] = []
    spent: dict[str, float] = {}
    for batch, workers in ((together, jobs), (alone, 1)):
        if batch:
            failures += _pool(batch, results, workers, len(todo), spent)
    if not quick:
        store.costs(spent)
    _tell_times(spent)
    for key, error in failures:
        print(f"failed: {key}: {type(error).__name__}: {error}", file=sys.stderr)
    minutes = (time.perf_counter() - started) / 60
    print(f"{len(todo) - len(failures)} units in {minutes:.1f} minutes")
    return 1 if failures else 0


def _tell_times(spent: dict[str, float]) -> None:
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


def _tell_age(units: list[store.Unit], results: Path) -> None:
    old = sum(not store.current(unit, results) for unit in units)
    if old:
        print(f"{old} of them were made by other sources than these; --stale computes them again")


def _pool(
    units: list[store.Unit], results: Path, workers: int, total: int, spent: dict[str, float]
) -> list[tuple[str, BaseException]]:
    failures: list[tuple[str, BaseException]] = []
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        max(1, workers), mp_context=context, initializer=store.prepare_worker
    ) as pool:
        futures: dict[Future[Any], store.Unit] = {}
        try:
            for unit in units:
                futures[pool.submit(store.execute, unit, results)] = unit
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
                print(f"[{len(spent) + len(failures)}/{total}] {unit.key}: {status}", flush=True)
        except KeyboardInterrupt:
            # What is finished is on disk; the rest starts again next time.
            pool.shutdown(wait=False, cancel_futures=True)
            raise SystemExit("stopped; run the same command again to go on") from None
    return failures


if __name__ == "__main__":
    raise SystemExit(main())
