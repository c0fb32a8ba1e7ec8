"""`python -m benchmarks [run|report] [--only default|speed] [--quick]`.

One BLAS thread, whatever the environment says.
"""

from __future__ import annotations

import argparse
import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"  # before numpy is loaded
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["XLA_FLAGS"] = (
    "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1 "
    + os.environ.get("XLA_FLAGS", "")
).strip()


def main() -> None:
    """Run, report, or both."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("what", nargs="?", choices=("run", "report", "all"), default="all")
    parser.add_argument("--quick", action="store_true", help="small and rough: does it work?")
    parser.add_argument("--only", choices=("default", "speed"), help="one of the result files")
    requested = parser.parse_args()
    for what in (requested.only,) if requested.only else ("default", "speed"):
        if requested.what in ("run", "all"):
            from benchmarks.run import run

            print(run(quick=requested.quick, what=what))
        if requested.what in ("report", "all"):
            from benchmarks.report import report

            print(report("quick_" * requested.quick + what).read_text())


if __name__ == "__main__":
    main()
