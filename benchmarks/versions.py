"""Another state of the sources beside this one: `python -m benchmarks.versions PATH [--rounds 21]`.

PATH is a checkout (a worktree of an older commit, say) that imports with the same interpreter. Each
state runs in a process of its own, and they take turns. Reported is the ratio of the medians of the
processor time of a call, this state over the other. `--levels v3` adds loops of other levels of
processor (they must be built). Writes benchmarks/results/versions.json.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
WORKER = """
import sys, time, warnings
import numpy as np
warnings.simplefilter("ignore")
import kgmrf
from kgmrf import KGMRF, RotationTracker, TrackerBank, gains
g = np.random.default_rng(0)

def rows(n, d):
    return g.normal(size=(n, d)) @ (np.eye(d) + 0.3 * g.normal(size=(d, d)))

def spd(n, d):
    x = g.normal(size=(n, 2 * d, d))
    return np.einsum("nmi,nmj->nij", x, x) / (2 * d)

cases = {}
for d in (3, 8, 18):
    x = rows(400, d)
    cases[f"filter row, d = {d}"] = (lambda x=x: KGMRF().filter(x), 400)
x = rows(200, 8)
tracker = KGMRF(); tracker.filter(rows(100, 8))
def fit(x=x, t=tracker):
    for r in x: t.partial_fit(r)
def ahead(t=tracker):
    for _ in range(100): t.forecast(1).covariance
cases["partial_fit, d = 8"] = (fit, 200)
cases["forecast(1).covariance, d = 8"] = (ahead, 100)
many = g.normal(size=(2, 20000, 7))
bank = TrackerBank(20000, 7); bank.update(many[0])
turn = [0]
def step():
    turn[0] ^= 1
    bank.update(many[turn[0]])
cases["default bank, 20,000 x d = 7"] = (step, 20000)
frames = [spd(20000, 7) for _ in range(2)]
law = TrackerBank(20000, 7, gains="information", n_samples=14)
for f in frames * 4: law.update(f)
def step_law():
    turn[0] ^= 1
    law.update(frames[turn[0]])
cases["single-law bank, 20,000 x d = 7"] = (step_law, 20000)
shake = kgmrf.simulate.camera_shake(seed=1).observations
cases["RotationTracker filter row"] = (lambda: RotationTracker().filter(shake), len(shake))
online = RotationTracker(); online.filter(shake[:100])
def rotate(t=online):
    for z in shake[:60]: t.update(z)
cases["RotationTracker update"] = (rotate, 60)
wide = rows(300, 100)
cases["filter row, d = 100 (low rank)"] = (lambda: KGMRF().filter(wide), 300)
for call, _ in cases.values(): call()
print("ready", *cases, sep="|", flush=True)
for line in sys.stdin:
    call, units = cases[line.strip()]
    start = time.process_time()
    call()
    print((time.process_time() - start) / units, flush=True)
"""
FIRST = (
    "import numpy as np, kgmrf; kgmrf.KGMRF().filter(np.random.default_rng(0).normal(size=(50, 8)))"
)


class Side:
    """One state of the sources, in a process."""

    def __init__(self, path: Path, level: str = "") -> None:
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(path / "src"),
            "KGMRF_LEVEL": level,
            **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
        }
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=self.environment,
        )
        self.cases = self._read().split("|")[1:]

    def _read(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("a worker ended; run its code by hand to see why")
        return line.strip()

    def take_turn(self, case: str) -> float:
        """Seconds of processor time per unit."""
        assert self.process.stdin is not None
        self.process.stdin.write(case + "\n")
        self.process.stdin.flush()
        return float(self._read())

    def first_use(self) -> float:
        """Seconds of processor time of a whole new process that filters 50 rows."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", FIRST], env=self.environment, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return sum(b - a for a, b in zip(before[:2], after[:2], strict=True))


def compare(other: Path, rounds: int, levels: list[str]) -> dict[str, Any]:
    """The table: cases x sides, medians and ratios to the other state."""
    sides = {"other": Side(other), "this": Side(HERE.parent)}
    sides |= {level: Side(HERE.parent, level) for level in levels}
    table: dict[str, Any] = {}
    for case in sides["this"].cases:
        times: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(rounds):
            for name, side in sides.items():
                times[name].append(side.take_turn(case))
        table[case] = {name: statistics.median(t) for name, t in times.items()}
    starts: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(max(3, rounds // 4)):
        for name, side in sides.items():
            starts[name].append(side.first_use())
    table["first use, whole process"] = {k: statistics.median(t) for k, t in starts.items()}
    return table


def main() -> None:
    """Compare, write and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path, help="the other checkout")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--levels", nargs="*", default=[], help="also these loops of ours")
    wish = parser.parse_args()
    table = compare(wish.path.resolve(), wish.rounds, wish.levels)
    commit = ["git", "-C", str(wish.path), "rev-parse", "--short", "HEAD"]
    other = subprocess.run(commit, capture_output=True, text=True).stdout.strip()
    report = {"other": other, "rounds": wish.rounds, "seconds": table}
    (HERE / "results" / "versions.json").write_text(json.dumps(report, indent=1) + "\n")
    for case, row in table.items():
        ratios = "  ".join(f"{k} {v / row['other']:.2f}" for k, v in row.items() if k != "other")
        print(f"{case:35} {1e6 * row['other']:10.2f} us   {ratios}")


if __name__ == "__main__":
    main()
