"""`python -m benchmarks.soak`: what `kgmrf stream` and state files survive, counted.

Trials: the real command killed at random moments, disks that are full, damaged checkpoints, lines
and files that are nonsense, state files with other numbers in them, long runs. Each trial counts
what must never happen (``lost``, ``torn``, ``crashed``, ``silent``) and says what it did. The table
of docs/reliability.md is made of the result file. --share 0.15, or KGMRF_SOAK_SHARE=0.15, does that
part of everything; a run that is interrupted goes on when it is started again. --only kills states
does these two.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import kgmrf
from benchmarks import mutants
from kgmrf import TrackerBank
from kgmrf.stream import Settings, Stream

RESULTS = Path(__file__).parent / "results" / "reliability.json"
BASE = [sys.executable, "-m", "kgmrf", "stream", "-q", "--fields", "covariance", "--replay"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(kgmrf.__file__).parents[1])}
LIMITED = (
    "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop(1)),) * 2);"
    "from kgmrf.cli import main; sys.exit(main(sys.argv[1:]))"
)


def lines(n: int, keys: int = 7) -> list[bytes]:
    """JSON lines of three channels."""
    rng = np.random.default_rng(n)
    rows = rng.normal(size=(n, 3)).round(4).tolist()
    return [
        b'{"key":"k%d","time":%d,"x":%s}' % (i % keys, i, json.dumps(row).encode())
        for i, row in enumerate(rows)
    ]


def expected(rows: list[bytes]) -> list[bytes]:
    """What a stream writes that nothing happens to."""
    text = Stream(Settings(fields=("covariance",))).take(rows)
    return text.splitlines(keepends=True)


def compared(wanted: list[bytes], raw: bytes) -> dict[str, int]:
    """An output that was interrupted: in order, going back at a restart and never ahead."""
    number = {line: k for k, line in enumerate(wanted)}
    at, repeated, torn = 0, 0, 0
    for line in raw.splitlines(keepends=True):
        k = number.get(line)
        if k is None:
            torn += 1
        elif k == at:
            at += 1
        elif k < at:
            repeated, at = repeated + at - k, k + 1
        else:
            break  # lines are missing: everything from here on counts as lost
    return {"lost": len(wanted) - at, "repeated": repeated, "torn": torn}


def kills(n: int, folder: Path, n_lines: int = 30_000) -> dict[str, Any]:
    """kill -9 of the real command at random moments, restarted until it is through."""
    rows = lines(n_lines)
    wanted = expected(rows)
    (folder / "in").write_bytes(b"".join(row + b"\n" for row in rows))
    dice = random.Random(1)
    total = {"kills": 0, "streams": 0, "lost": 0, "repeated": 0, "torn": 0, "crashed": 0}
    while total["kills"] < n:
        out, state = folder / f"out{total['streams']}", folder / f"state{total['streams']}"
        while True:
            call = [*BASE, "--state", str(state), "--checkpoint-every", "0.05"]
            before = out.stat().st_size if out.exists() else 0
            # A pipe gives the lines in small pieces: many moments to die in.
            feed = subprocess.Popen(["cat", str(folder / "in")], stdout=subprocess.PIPE)
            with open(out, "ab") as sink:
                process = subprocess.Popen(call, stdin=feed.stdout, stdout=sink, env=ENVIRONMENT)
            assert feed.stdout is not None
            feed.stdout.close()
            if total["kills"] < n:
                _wait(process, out, before, dice)
                process.kill()
            code = process.wait()
            feed.wait()
            total["kills"] += code == -signal.SIGKILL
            if code != -signal.SIGKILL:
                total["crashed"] += code != 0
                break
        for name, value in compared(wanted, out.read_bytes()).items():
            total[name] += value
        total["streams"] += 1
        out.unlink()
    return {**total, "lines": n_lines * total["streams"]}


def _wait(process: Any, out: Path, before: int, dice: random.Random) -> None:
    """Until some moment: one in four times any, else shortly after the output grows."""
    if dice.random() < 0.25:
        time.sleep(dice.uniform(0.0, 3.0))
        return
    while process.poll() is None and out.stat().st_size == before:
        time.sleep(0.002)
    time.sleep(dice.uniform(0.0, 0.15))


def full_disks(n: int, folder: Path, n_lines: int = 2_000) -> dict[str, Any]:
    """Files may not grow beyond a limit, which is raised until the stream is through."""
    rows = lines(n_lines)
    wanted = expected(rows)
    (folder / "in").write_bytes(b"".join(row + b"\n" for row in rows))
    dice = random.Random(2)
    total = {"full": 0, "streams": 0, "lost": 0, "repeated": 0, "torn": 0, "crashed": 0}
    size = sum(map(len, wanted))
    while total["full"] < n:
        out, state = folder / f"out{total['streams']}", folder / f"state{total['streams']}"
        limit = 0
        while True:
            limit += dice.randrange(2_000, size)
            call = [sys.executable, "-c", LIMITED, str(limit), *BASE[3:], "--state", str(state)]
            with open(folder / "in", "rb") as source, open(out, "ab") as sink:
                done = subprocess.run(
                    call, stdin=source, stdout=sink, stderr=subprocess.PIPE, env=ENVIRONMENT
                )
            if done.returncode == 0:
                break
            total["full"] += 1
            total["crashed"] += done.returncode != 2 or b"Traceback" in done.stderr
        for name, value in compared(wanted, out.read_bytes()).items():
            total[name] += value
        total["streams"] += 1
    return {**total, "lines": n_lines * total["streams"]}


def checkpoints(n: int, folder: Path) -> dict[str, Any]:
    """Damaged checkpoints: refused by one ValueError, or still the same state."""
    rows = lines(300)
    stream = Stream(Settings(fields=("covariance",)))
    stream.take(rows[:200])
    good, wanted = stream.to_bytes(), stream.take(rows[200:])
    dice = np.random.default_rng(4)
    total = {"files": n, "refused": 0, "accepted": 0, "crashed": 0, "silent": 0}
    path = folder / "state"
    for _ in range(n):
        path.write_bytes(mutants.damaged(good, dice))
        again = Stream(Settings(fields=("covariance",)))
        try:
            again.restore(path)
        except ValueError:
            total["refused"] += 1
            continue
        except Exception:
            total["crashed"] += 1
            continue
        total["accepted"] += 1
        total["silent"] += again.take(rows[200:]) != wanted
    return total


def nonsense(n: int, folder: Path) -> dict[str, Any]:
    """Lines that are damaged, cut, joined or invented, between good ones."""
    good = lines(n // 2 + 1, keys=5)
    dice = np.random.default_rng(5)
    total = {"lines": 0, "bad": 0, "crashed": 0, "silent": 0}
    settings = Settings(fields=("covariance",), on_error="skip", forget_after=1e5)
    stream = Stream(settings)
    taken = 0
    while total["lines"] < n:
        block = []
        for _ in range(500):
            block.append(mutants.line(good[taken % len(good)], dice))
            block.append(good[taken % len(good)])
            taken += 1
        block = [part for row in block for part in row.split(b"\n")]
        total["lines"] += len(block)
        try:
            text = stream.take(block)
        except Exception:
            total["crashed"] += 1
            stream = Stream(settings)
            continue
        for row in text.splitlines():
            found = np.array(json.loads(row)["covariance"], dtype=float)
            # None before anything of a track was seen; otherwise all of it is there.
            total["silent"] += bool(np.isnan(found).any() and not np.isnan(found).all())
    total["bad"] = stream.counts.bad
    return total


def long_runs(n: int, folder: Path) -> dict[str, Any]:
    """Steps of many tracks with other scales, bursts and gaps, under the default and one law."""
    total = {"steps": 0, "jumps": 0, "crashed": 0, "silent": 0}
    tracks, dice = 200, np.random.default_rng(6)
    for law in ("auto", "information"):
        bank = TrackerBank(tracks, 3, gains=law)
        scale = np.ones(tracks)
        for step in range(max(1, n // (2 * tracks))):
            jump = dice.random(tracks) < 1e-3
            scale = np.where(jump, 10.0 ** dice.choice([-6.0, 6.0], tracks) * scale, scale)
            scale = np.where((scale > 1e20) | (scale < 1e-20), 1.0, scale)
            burst = np.where(dice.random(tracks) < 0.01, 50.0, 1.0)
            rows = dice.normal(size=(tracks, 3)) * (scale * burst)[:, None]
            rows[dice.random(tracks) < 0.05] = np.nan
            dt = np.where(dice.random(tracks) < 1e-3, 1e4, 1.0)
            bank.update(rows, dt=dt)
            total["steps"] += tracks
            total["jumps"] += int(jump.sum())
            if step % 100 == 99:
                found = bank.estimate().covariance
                fine = np.isfinite(found).all() and np.linalg.eigvalsh(found).min() >= 0.0
                total["silent"] += not fine
    return total


TRIALS: dict[str, tuple[Callable[[int, Path], dict[str, Any]], int]] = {
    "kills": (kills, 200),
    "full_disks": (full_disks, 60),
    "checkpoints": (checkpoints, 10_000),
    "lines": (nonsense, 100_000),
    "files": (mutants.data_files, 10_000),
    "states": (mutants.state_files, 100_000),
    "steps": (long_runs, 10_000_000),
}
"""Every trial, and how often at full size."""


def run(share: float, output: Path, only: tuple[str, ...] = ()) -> dict[str, dict[str, Any]]:
    """All trials, or some, at a share of their full size, written to a file one after the other.

    Trials that the file has already, of the same share and the same sources, are not repeated: a
    run that was interrupted goes on.
    """
    about = {"share": share, "sources": sources(), "system": platform.system()}
    about |= {"python": platform.python_version(), "numpy": np.__version__}
    stored = json.loads(output.read_text()) if output.exists() else {}
    same = {name: stored.get(name) for name in about} == about
    found: dict[str, dict[str, Any]] = dict(stored["trials"]) if same else {}
    for name, (trial, n) in TRIALS.items():
        if name in found or (only and name not in only):
            continue
        with tempfile.TemporaryDirectory() as folder:
            began = time.monotonic()
            found[name] = trial(max(1, round(n * share)), Path(folder))
            found[name]["seconds"] = round(time.monotonic() - began, 1)
        sys.stderr.write(f"{name}: {found[name]}\n")
        found = {name: found[name] for name in TRIALS if name in found}
        output.write_text(json.dumps({**about, "trials": found}, indent=2) + "\n")
    return found


def sources() -> str:
    """Which state of the package was tried."""
    digest = hashlib.sha256()
    for path in sorted(Path(kgmrf.__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def main() -> int:
    """Run the trials, write the results, and fail if anything happened that must not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=share_of_all())
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--only", nargs="+", default=(), metavar="TRIAL")
    requested = parser.parse_args()
    return int(
        any(map(faults, run(requested.share, requested.output, tuple(requested.only)).values()))
    )


def share_of_all() -> float:
    """KGMRF_SOAK_SHARE: 1 is everything, more than an hour; 0.15 about ten minutes."""
    return float(os.environ.get("KGMRF_SOAK_SHARE", "1"))


def faults(trial: dict[str, Any]) -> int:
    """What must never happen."""
    return sum(int(trial.get(name, 0)) for name in ("lost", "torn", "crashed", "silent"))


if __name__ == "__main__":
    sys.exit(main())
