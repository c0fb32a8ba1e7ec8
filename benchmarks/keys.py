"""`python -m benchmarks.keys`: Arrow beside JSON, and a million keys, through ``kgmrf stream``.

Rows of four channels, the self-tuned default, one thread. Rates are processor time of the whole
command less that of a run on the first rows, the least of three interleaved rounds. Memory is the
largest resident size of the process, of which the libraries are a part: in the first run all keys
are new and a checkpoint is written at the end; the second reads it, takes in one row of every
hundredth key, and writes it again. Written to ``results/keys.json``; a part of which nothing is to
be measured (--rows 0, --keys 0) stays as it was.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.run import RESULTS, machine

D, TRACKS, BATCH = 4, 100, 1 << 16
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def arrow(path: Path, keys: Any, times: Any, x: Any) -> None:
    """Rows as a stream of Arrow."""
    import pyarrow as pa

    words, codes = np.unique(keys, return_inverse=True)
    key = pa.array([f"k{k:07d}" for k in words.tolist()]).take(pa.array(codes))
    columns = {"key": key, "time": times, **{f"c{j}": x[:, j] for j in range(D)}}
    table = pa.table(columns)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=BATCH)


def lines(path: Path, keys: Any, times: Any, x: Any) -> None:
    """The same as JSON."""
    with open(path, "w") as file:
        for key, when, row in zip(keys.tolist(), times.tolist(), x.tolist(), strict=True):
            file.write(f'{{"key":"k{key:07d}","time":{when:g},"x":{json.dumps(row)}}}\n')


SANDBOX = (
    *(
        "bwrap",
        "--ro-bind",
        "/",
        "/",
        "--dev",
        "/dev",
        "--proc",
        "/proc",
        "--unshare-user",
        "--unshare-net",
    ),
    *("--uid", "65534", "--gid", "65534", "--unsetenv", "HOME", "--"),
)
"""A container without Docker: everything read-only, another user, no home, no network."""


def run(source: Path, *more: str, inside: tuple[str, ...] = ()) -> dict[str, float]:
    """Wall and processor seconds, and megabytes, of one run."""
    call = [*inside, sys.executable, "-m", "kgmrf", "stream", "-q", *more]
    began = time.perf_counter()
    most = 0
    with open(source, "rb") as given, open(os.devnull, "wb") as nowhere:
        process = subprocess.Popen(call, stdin=given, stdout=nowhere, env=ENVIRONMENT)
        while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
            most = max(most, resident(process.pid))
            time.sleep(0.02)
        _, status, used = os.wait4(process.pid, 0)
    if status:
        raise RuntimeError(f"{' '.join(call)} ended with {status}")
    return {
        "seconds": time.perf_counter() - began,
        "cpu": used.ru_utime + used.ru_stime,
        "megabytes": most / 1e6,
    }


def resident(process: int) -> int:
    """The largest resident size so far, in bytes. (That of getrusage may be the parent's.)"""
    with suppress(OSError), open(f"/proc/{process}/status", encoding="ascii") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    return 0


def formats(folder: Path, n: int) -> dict[str, dict[str, float]]:
    """Rows per processor second by format and fields."""
    k = np.arange(n)
    x = np.random.default_rng(0).normal(size=(n, D)).round(5)
    made = {}
    for name, write in (("json", lines), ("arrow", arrow)):
        for part, size in (("whole", n), ("first", TRACKS)):
            made[name, part] = folder / f"{part}.{name}"
            write(made[name, part], k[:size] % TRACKS, k[:size] // TRACKS, x[:size])
    found: dict[str, dict[str, float]] = {}
    for fields in ("covariance,log_likelihood", "log_likelihood"):
        spent: dict[tuple[str, str], list[float]] = {}
        for _ in range(3):
            for (name, part), path in made.items():
                used = run(path, "--format", name, "--fields", fields)["cpu"]
                spent.setdefault((name, part), []).append(used)
        found[fields] = {
            name: round((n - TRACKS) / (min(spent[name, "whole"]) - min(spent[name, "first"])))
            for name in ("json", "arrow")
        }
        print(fields, json.dumps(found[fields]), flush=True)
    return found


def many(folder: Path, keys: int) -> dict[str, Any]:
    """A stream of very many keys, three rows each; and the same again from its checkpoint."""
    rng = np.random.default_rng(0)
    k = np.arange(3 * keys)
    first, later, state = folder / "first.arrow", folder / "later.arrow", folder / "state"
    arrow(first, k % keys, (k // keys).astype(float), rng.normal(size=(3 * keys, D)))
    some = np.arange(0, keys, 100)
    arrow(later, some, np.full(len(some), 3.0), rng.normal(size=(len(some), D)))
    said = ["--format", "arrow", "--fields", "log_likelihood", "--state", str(state)]
    said += ["--checkpoint-every", "1e9", "--time-unit", "1"]
    filled = run(first, *said)
    size = state.stat().st_size
    again = run(later, *said)
    return {
        "keys": keys,
        "d": D,
        "state_megabytes": size / 1e6,
        "bytes_per_key": size / keys,
        "first": filled,
        "again": again,
    }


def start(folder: Path) -> dict[str, Any]:
    """A process that answers one line, the least of five: as it is, and in a sandbox."""
    empty = folder / "empty.arrow"
    arrow(empty, np.zeros(1, dtype=int), np.zeros(1), np.ones((1, D)))
    found: dict[str, Any] = {}
    for name, inside in (("plain", ()), ("sandbox", SANDBOX)):
        if not inside or shutil.which(inside[0]):
            runs = [run(empty, "--format", "arrow", inside=inside) for _ in range(5)]
            found[name] = {key: min(row[key] for row in runs) for key in runs[0]}
    found.get("sandbox", {}).pop("megabytes", None)  # that of bwrap
    return found


def main() -> None:
    """Measure and write the result file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.keys", description=__doc__)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    requested = parser.parse_args()
    path = RESULTS / "keys.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        if requested.rows:
            found["formats"] = formats(Path(folder), requested.rows)
            found["settings"] = {"d": D, "tracks": TRACKS, "rows": requested.rows, **machine()}
        if requested.keys:
            found["many"] = many(Path(folder), requested.keys)
        found["start"] = start(Path(folder))
    path.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps({name: found.get(name) for name in ("many", "start")}, indent=1))


if __name__ == "__main__":
    main()
