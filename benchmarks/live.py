"""`python -m benchmarks.live`: lines per second of ``kgmrf stream``, rows per second of files.

Everything runs as a user runs it, one process, from a file; start-up is taken off by a second run
on the first line alone. Streams run the self-tuned default, and at 100 tracks one law beside it.
Memory is the largest resident size of the process. Written to ``results/live.json``; a part of
which nothing is to be measured (--lines 0, --rows 0) stays as it was.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.run import RESULTS, machine

D = 7
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def lines(path: Path, n: int, keys: int) -> None:
    """``n`` samples of ``D`` channels on ``keys`` tracks, as JSON lines or CSV by the ending."""
    rows = (np.random.default_rng(0).normal(size=(n, D)) * np.arange(D, 0, -1)).round(5).tolist()
    with open(path, "w") as file:
        if path.suffix == ".csv":
            file.write("key,time," + ",".join("abcdefg") + "\n")
        for k, row in enumerate(rows):
            key, stamp = f"k{k % keys}", k // keys
            if path.suffix == ".csv":
                file.write(f"{key},{stamp},{','.join(map(repr, row))}\n")
            else:
                file.write(json.dumps({"key": key, "time": stamp, "x": row}) + "\n")


def seconds(call: list[str], source: Path | None = None) -> tuple[float, float, float]:
    """Wall seconds, processor seconds and megabytes of one run."""
    with open(source or os.devnull) as given, open(os.devnull, "w") as nowhere:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.perf_counter()
        subprocess.run(call, stdin=given, stdout=nowhere, check=True, env=ENVIRONMENT)
        wall = time.perf_counter() - began
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, used, after.ru_maxrss / 1024


def stream(folder: Path, n: int) -> list[dict[str, Any]]:
    """Throughput of the stream by format, number of tracks, and with a checkpoint."""
    found = []
    for suffix in (".jsonl", ".csv"):
        form = "csv" if suffix == ".csv" else "json"
        for keys in (1, 100, 10_000):
            path, first = folder / f"lines{suffix}", folder / f"first{suffix}"
            lines(path, n, keys)
            first.write_bytes(b"".join(path.open("rb").readlines()[:2]))
            for fields in ("covariance,log_likelihood", "log_likelihood"):
                for state in (False, True) if keys == 100 else (False,):
                    call = [sys.executable, "-m", "kgmrf", "stream", "-q", "--format", form]
                    call += ["--gains", "information", "--fields", fields]
                    if state:
                        saved = folder / f"{form}{fields}.state"
                        call += ["--state", str(saved)]
                    start = min(seconds(call[:9], first)[:2] for _ in range(2))
                    runs = []
                    for _ in range(3):
                        if state:
                            saved.unlink(missing_ok=True)
                        runs.append(seconds(call, path)[:2])
                    best = min(runs)
                    found.append(
                        {
                            "format": form,
                            "tracks": keys,
                            "fields": fields,
                            "checkpoint": state,
                            "lines_per_second": round(n / (best[0] - start[0])),
                            "lines_per_cpu_second": round(n / (best[1] - start[1])),
                        }
                    )
                    print(json.dumps(found[-1]), flush=True)
    return found


def files(folder: Path, n: int) -> list[dict[str, Any]]:
    """``kgmrf track`` over a file of n rows of three channels: rows per second and memory."""
    rng = np.random.default_rng(0)
    array, table = folder / "rows.npy", folder / "rows.csv"
    out = np.lib.format.open_memmap(array, "w+", np.float64, (n, 3))
    part = rng.normal(size=(100_000, 3)) * [3.0, 1.0, 0.5]
    text = "".join(f"{a:.6g},{b:.6g},{c:.6g}\n" for a, b, c in part.tolist())
    with open(table, "w") as file:
        file.write("a,b,c\n")
        for first in range(0, n, len(part)):
            out[first : first + len(part)] = part[: n - first]
            file.write(text)
    out.flush()
    found = []
    for path in (array, table):
        call = [sys.executable, "-m", "kgmrf", "track", "-q", "--gains", "information", str(path)]
        wall, used, megabytes = seconds(call)
        found.append(
            {
                "file": path.suffix,
                "rows": n,
                "megabytes_of_file": round(path.stat().st_size / 1e6),
                "rows_per_second": round(n / wall),
                "rows_per_cpu_second": round(n / used),
                "megabytes_of_memory": round(megabytes),
            }
        )
        print(json.dumps(found[-1]), flush=True)
    return found


def main() -> None:
    """Measure, print one JSON object per line, and write the result file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.live", description=__doc__)
    parser.add_argument("--lines", type=int, default=300_000)
    parser.add_argument("--rows", type=int, default=10_000_000)
    requested = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = {
            "settings": {"d": D, "lines": requested.lines, "rows": requested.rows, **machine()},
            "stream": stream(Path(folder), requested.lines) if requested.lines else [],
            "files": files(Path(folder), requested.rows) if requested.rows else [],
        }
    (RESULTS / "live.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
