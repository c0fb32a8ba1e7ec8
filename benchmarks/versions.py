"""Another state of the sources beside this one: `python -m benchmarks.versions PATH`.

PATH is a checkout (a worktree of an older commit, say); `--python` the interpreter that has what it
needs, if that is another one. Each state runs in a process of its own, and they take turns. The
ratios are those of the medians of processor time, this state over the other. `--levels v3` compares
the loops for processors with AVX2 only as well (ours must be built; Numba is held to it). Writes
benchmarks/results/versions.json and versions.md.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
WORKER = HERE / "versions_worker.py"
BARS = {
    "filter, d = 3": (1.05, 0.7),
    "filter, d = 8": (1.05, 0.9),
    "filter, d = 18": (1.05, 0.9),
    "filter, d = 3, AVX2": (0.95, 0.6),
    "filter, d = 8, AVX2": (0.95, 0.6),
    "filter, d = 18, AVX2": (0.95, 0.6),
    "partial_fit, d = 8": (1.0, 0.7),
    "forecast(1).covariance, d = 8": (1.0, 0.7),
    "default bank, d = 7": (1.0, 0.8),
    "single-law bank, d = 7": (1.05, 0.9),
    "RotationTracker update": (0.8, 0.5),
    "RotationTracker filter": (0.8, 0.5),
}
"""Bar and aim of each ratio."""

HOOK = (
    "import sys; sys.meta_path[:] = [f for f in sys.meta_path"
    " if type(f).__name__ != 'ScikitBuildInplaceFinder']; sys.path.insert(0, {path!r}); "
)
FIRST = (
    "import numpy as np, kgmrf; kgmrf.KGMRF().filter(np.random.default_rng(0).normal(size=(50, 8)))"
)
ROWS = FIRST.replace("50", "{n}")


class State(NamedTuple):
    """Sources, and what runs them."""

    path: Path
    python: str
    environment: dict[str, str]

    def command(self, code: str) -> list[str]:
        """A Python with these sources."""
        return [self.python, "-c", HOOK.format(path=str(self.path / "src")) + code]


def state(path: Path, python: str, level: str, cache: str) -> State:
    """On one BLAS thread; level: of processor, empty for the best."""
    own = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    own |= {"KGMRF_LEVEL": level, "NUMBA_CACHE_DIR": f"{cache}/{level or 'best'}"}
    if level:
        own |= {"NUMBA_CPU_NAME": f"x86-64-{level}", "NUMBA_CPU_FEATURES": ""}
    return State(path, python, {**os.environ, **own})


class Side:
    """A state at work in a process."""

    def __init__(self, state: State, tracks: int) -> None:
        self.process = subprocess.Popen(
            [state.python, str(WORKER), str(state.path / "src"), str(tracks)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=state.environment,
        )
        file, *self.cases = self._read().split("|")
        if not Path(file).is_relative_to(state.path):
            raise RuntimeError(f"{state.path} was asked for, {file} runs")

    def _read(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("a worker ended; run versions_worker.py by hand to see why")
        return line.strip()

    def take_turn(self, case: str) -> float:
        """Seconds of processor time per unit."""
        assert self.process.stdin is not None
        self.process.stdin.write(case + "\n")
        self.process.stdin.flush()
        return float(self._read())


def race(states: dict[str, State], rounds: int, tracks: int) -> dict[str, dict[str, float]]:
    """By case and state: the median of the seconds of processor time per unit."""
    sides = {name: Side(one, tracks) for name, one in states.items()}
    table = {}
    for case in sides["this"].cases:
        times: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(rounds):
            for name, side in sides.items():
                times[name].append(side.take_turn(case))
        table[case] = {name: statistics.median(t) for name, t in times.items()}
    return table


def spent(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Seconds on the clock, and of processor time, of a whole process."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, env=environment, check=True, stderr=subprocess.DEVNULL)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def starts(states: dict[str, State], rounds: int) -> dict[str, Any]:
    """Whole processes: the first use of all, later ones, and `import numpy` beside them."""
    cold = {}
    for name in ("other", "this"):
        with tempfile.TemporaryDirectory() as cache:
            fresh = {**states[name].environment, "NUMBA_CACHE_DIR": cache}
            cold[name] = spent(states[name].command(FIRST), fresh)[1]
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ("numpy", "other", "this")}
    for _ in range(rounds):
        for name, found in times.items():
            one = states["this" if name == "numpy" else name]
            code = "import numpy" if name == "numpy" else FIRST
            found.append(spent(one.command(code), one.environment))
    wall = {name: statistics.median(t[0] for t in found) for name, found in times.items()}
    later = {name: statistics.median(t[1] for t in found) for name, found in times.items()}
    return {"first use": cold, "later": later, "wall": wall}


def instructions(one: State) -> float | None:
    """Instructions per row of d = 8, by callgrind: 600 rows less 200; None without valgrind.

    Valgrind has no AVX-512: the loops are those for AVX2.
    """
    if shutil.which("valgrind") is None:
        return None
    counts = []
    for n in (200, 600):
        call = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
        done = subprocess.run(
            [*call, *one.command(ROWS.format(n=n))],
            env={**one.environment, "KGMRF_LEVEL": "", "PYTHONHASHSEED": "0"},
            capture_output=True,
            text=True,
        )
        found = re.search(r"Collected : (\d+)", done.stderr)
        if found is None:
            return None
        counts.append(int(found[1]))
    return (counts[1] - counts[0]) / 400


def size(one: State) -> float:
    """Megabytes of what is installed because of kgmrf, beyond numpy and scipy."""
    code = (
        "import importlib.util as u, pathlib\n"
        "total = 0\n"
        "for name in ('numba', 'llvmlite', 'array_api_compat', 'orjson'):\n"
        "    spec = u.find_spec(name)\n"
        "    if spec is None or (name in ('numba', 'llvmlite') and not {numba}): continue\n"
        "    root = pathlib.Path(spec.origin).parent\n"
        "    total += sum(p.stat().st_size for p in root.rglob('*') if p.is_file())\n"
        "print(total / 1e6)"
    )
    asked = "numba" in (one.path / "pyproject.toml").read_text()
    call = one.command(code.format(numba=asked))
    return float(subprocess.run(call, capture_output=True, text=True, check=True).stdout)


def lines(path: Path) -> dict[str, int]:
    """Lines of C++ and of Python."""
    counted = {}
    for name, patterns in (("C++", ("core/*.hpp", "core/*.cpp")), ("Python", ("kgmrf/**/*.py",))):
        files = [file for pattern in patterns for file in (path / "src").glob(pattern)]
        counted[name] = sum(len(file.read_bytes().splitlines()) for file in files)
    return counted


def page(report: dict[str, Any]) -> str:
    """The report as a page."""
    text = [
        "# This state beside the last one on Numba",
        "",
        f"`python -m benchmarks.versions` against {report['other']}, {report['rounds']} rounds",
        f"in turn, on {report['processor']}. Medians of processor time, this state over the other.",
        "",
        "| what | other | ratio | bar | aim |",
        "|---|---|---|---|---|",
    ]
    for case, ratio in report["ratios"].items():
        bar, aim = BARS.get(case, ("", ""))
        text.append(
            f"| {case} | {1e6 * report['seconds'][case][0]:.2f} us | {ratio:.2f} | {bar} | {aim} |"
        )
    whole, sizes, counts = report["processes"], report["megabytes"], report["lines"]
    first, later, wall = whole["first use"], whole["later"], whole["wall"]
    clock = {name: f"{wall[name] / wall['numpy']:.1f}" for name in ("other", "this")}
    pairs: list[tuple[str, Any, Any, str, str]] = [
        ("first use in a fresh environment, processor s",)
        + (f"{first['other']:.2f}", f"{first['this']:.2f}", "0.5", "0.3"),
        ("later processes, processor s", f"{later['other']:.2f}", f"{later['this']:.2f}", "", ""),
        ("a process that filters, over one that imports numpy, by the clock",)
        + (clock["other"], clock["this"], "2.5", "2"),
        ("requirements beyond numpy and scipy, MB",)
        + (f"{sizes['other']:.0f}", f"{sizes['this']:.1f}", "5", "2"),
        ("lines of C++", counts["other"]["C++"], counts["this"]["C++"], "4500", "3500"),
        ("lines of Python", counts["other"]["Python"], counts["this"]["Python"], "26500", "25000"),
        ("instructions per row, d = 8 (AVX2, callgrind)", "", report["instructions"], "", ""),
    ]
    text += ["", "| what | other | this | bar | aim |", "|---|---|---|---|---|"]
    text += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in pairs]
    return "\n".join(text) + "\n"


def main() -> None:
    """Compare, write and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path, help="the other checkout")
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the other")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--tracks", type=int, default=20_000, help="of a bank")
    parser.add_argument("--levels", nargs="*", default=[], help="also loops of these levels")
    asked = parser.parse_args()
    this, other = HERE.resolve().parent, asked.path.resolve()
    with tempfile.TemporaryDirectory() as cache:
        best = {"other": state(other, asked.python, "", cache)}
        best |= {"this": state(this, sys.executable, "", cache)}
        seconds = {
            k: (v["other"], v["this"]) for k, v in race(best, asked.rounds, asked.tracks).items()
        }
        for level in asked.levels:
            own = {"other": state(other, asked.python, level, cache)}
            own |= {"this": state(this, sys.executable, level, cache)}
            word = {"v3": "AVX2"}.get(level, level)
            for k, v in race(own, asked.rounds, asked.tracks).items():
                seconds[f"{k}, {word}"] = v["other"], v["this"]
        processes = starts(best, max(5, asked.rounds // 2))
        counted = instructions(best["this"])
    commit = ["git", "-C", str(asked.path), "rev-parse", "--short", "HEAD"]
    report = {
        "other": subprocess.run(commit, capture_output=True, text=True).stdout.strip(),
        "rounds": asked.rounds,
        "tracks": asked.tracks,
        "processor": _processor(),
        "seconds": seconds,
        "ratios": {case: round(mine / theirs, 3) for case, (theirs, mine) in seconds.items()},
        "processes": processes,
        "megabytes": {name: size(one) for name, one in best.items()},
        "lines": {"other": lines(other), "this": lines(this)},
        "instructions": counted and round(counted),
    }
    results = HERE / "results"
    (results / "versions.json").write_text(json.dumps(report, indent=1) + "\n")
    (results / "versions.md").write_text(page(report))
    print(page(report))


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return "an unknown processor"
    return re.search(r"model name\s*: (.*)", text)[1]  # type: ignore[index]


if __name__ == "__main__":
    main()
