"""Run the experiments, build the report, or list what there is."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from experiments import store


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line and do what it says; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    run = verbs.add_parser("run", help="compute results that are not there yet")
    run.add_argument("names", nargs="*", help="all, experiments, or experiment/unit")
    run.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    run.add_argument("--fresh", action="store_true", help="compute again what is there")
    run.add_argument(
        "--stale", action="store_true", help="compute again what depends on changed files"
    )
    report = verbs.add_parser("report", help="figures and report.html from the results")
    report.add_argument("--out", type=Path, help="folder for report.html and figures")
    tables = verbs.add_parser("tables", help="measured tables of the documentation")
    verbs_list = verbs.add_parser("list", help="every unit: done, stale or missing")
    for verb in (run, report, tables, verbs_list):
        verb.add_argument(
            "--quick", action="store_true", help="few seeds, short runs: a smoke test"
        )
        verb.add_argument("--results", type=Path, help="folder of the result files")
    options = parser.parse_args(arguments)
    results: Path = options.results or (store.QUICK_RESULTS if options.quick else store.RESULTS)
    from experiments.catalogue import select

    if options.verb == "run":
        from experiments import running, sources

        units = select(options.names, options.quick)
        known = None if options.names and "all" not in options.names else units
        gone = running.clear(results, known and {u.path(results) for u in known})
        if gone:
            print(f"removed {gone} results that no unit writes any more")
        keep = sources.current if options.stale else store.finished
        keep = None if options.fresh else keep
        return running.run(units, results, options.jobs, keep, remember=not options.quick)
    if options.verb == "report":
        from experiments import report as page

        out: Path = options.out or (results if options.quick else store.HERE)
        page.build(results, out, quick=options.quick)
        warning = page.stale(results, options.quick)
        if warning:
            print(warning, file=sys.stderr)
        print(f"wrote {out / 'report.html'}")
    elif options.verb == "tables":
        from experiments import tables as pages

        for page in pages.write(results):
            print(f"wrote {page}")
    else:
        from experiments import sources

        units = select(["all"], options.quick)
        old = sources.stale(units, results)
        for unit in units:
            there = "done" if store.finished(unit, results) else "missing"
            print(f"{'stale' if unit in old else there:7}  {unit.key}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
