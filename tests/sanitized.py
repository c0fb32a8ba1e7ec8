"""The tests of the loops under AddressSanitizer and UndefinedBehaviorSanitizer; see the Makefile.

``--levels`` prints the levels of processor that this machine can run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = sorted(str(path) for path in (ROOT / "tests").glob("test_core_*.py"))
TESTS += [str(ROOT / "tests" / name) for name in ("test_fuzz.py", "test_mutated_rows.py")]


def levels() -> list[str]:
    """What this processor can run."""
    # An editable install finds its own core, of this machine's level alone, before any path.
    code = (
        "import sys\n"
        "sys.meta_path[:] = [f for f in sys.meta_path if 'ScikitBuild' not in type(f).__name__]\n"
        "import kgmrf._core as core\n"
        "print(*core.levels)"
    )
    return run(["-c", code], stdout=subprocess.PIPE).stdout.split()


def run(arguments: list[str], **options: object) -> subprocess.CompletedProcess[str]:
    """A Python into which the libraries of the sanitizers are loaded before all else."""
    compiler = os.environ.get("CXX", "c++")
    libraries = [
        subprocess.run(
            [compiler, f"-print-file-name=lib{name}.so"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("asan", "ubsan")
    ]
    environment = {
        **os.environ,
        "LD_PRELOAD": " ".join(libraries),
        "ASAN_OPTIONS": "detect_leaks=0",  # Python keeps what it has
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "KGMRF_MUTANTS": "17000",  # of each of six engines: 100,000 damaged rows
        "PYTHONPATH": str(ROOT / "src"),
    }
    return subprocess.run([sys.executable, *arguments], env=environment, text=True, **options)  # type: ignore[call-overload,no-any-return]


if __name__ == "__main__":
    if "--levels" in sys.argv:
        print(*levels())  # noqa: T201
        sys.exit()
    options = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:cov", "-m", "not slow"]
    sys.exit(run(["-m", "pytest", *options, *TESTS]).returncode)
