"""`python -m benchmarks [run|report] [--quick]`: one BLAS thread, whatever the environment says."""

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
    wish = parser.parse_args()
    if wish.what in ("run", "all"):
        from benchmarks.run import run

        print(run(quick=wish.quick))
    if wish.what in ("report", "all"):
        from benchmarks.report import report

        path = report("quick" if wish.quick else "speed")
        print(path.read_text())


if __name__ == "__main__":
    main()
