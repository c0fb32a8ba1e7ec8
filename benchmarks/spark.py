"""`python -m benchmarks.spark`: the Spark operator beside the same code in one process.

Rows of d = 7 on 1,000 keys go through examples/spark_stream.py on two cores of this machine, with
one state per key and with keys sharing states, and through `kgmrf.stream.Stream` in this process on
one core. The first micro-batch warms up and is not counted. Beside the wall clock stands the
processor time of Java and its Python workers together, which does not depend on what else runs.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import sys
import tempfile
import time
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import kgmrf
from benchmarks.run import RESULTS, _commit, _processor
from kgmrf.stream import Settings, Stream

D, CORES = 7, 2
EXAMPLES = Path(__file__).parent.parent / "examples"
TICKS = os.sysconf("SC_CLK_TCK")


def rows(folder: Path, files: int, keys: int, per_file: int) -> None:
    """Files of JSON lines, ``per_file`` rows of every key in each, in order of time."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    for number in range(files):
        values = (rng.normal(size=(per_file, keys, D)) * np.arange(D, 0, -1)).round(5).tolist()
        with open(folder / f"{number:04d}.json", "w") as file:
            for t, frame in enumerate(values):
                for k, x in enumerate(frame):
                    row = {"key": f"k{k}", "time": number * per_file + t, "x": x}
                    file.write(json.dumps(row) + "\n")
        os.utime(folder / f"{number:04d}.json", (1_600_000_000 + number,) * 2)


def processor_seconds() -> float:
    """Of all processes below this one, living or dead: Java, and the workers it started."""
    parents, used = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(path.parent.name)] = int(words[1])
        used[int(path.parent.name)] = sum(map(int, words[11:15])) / TICKS
    below, found = {os.getpid()}, 0.0
    while new := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= new
        found += sum(used[pid] for pid in new)
    return found


def shuffled(spark: Any) -> int:
    """Bytes written to shuffles so far."""
    executors = spark.sparkContext._jsc.sc().statusStore().executorList(True)
    return sum(executors.apply(k).totalShuffleWrite() for k in range(executors.size()))


def through_spark(spark: Any, example: Any, folder: Path, buckets: int) -> dict[str, Any]:
    """One run of the query, file by file."""
    place = folder / f"buckets{buckets}"
    operator = example.Operator(Settings(fields=example.FIELDS), D)
    marks: list[tuple[float, float, int]] = []
    before = shuffled(spark)
    query = example.start(
        spark,
        folder / "in",
        place / "out",
        place / "checkpoint",
        operator,
        files=1,
        buckets=buckets,
    )
    commits, done = place / "checkpoint" / "commits", 0
    while query.isActive:
        now = sum(path.name.isdigit() for path in commits.glob("*"))
        if now > done:
            marks.append((time.perf_counter(), processor_seconds(), now))
            done = now
        time.sleep(0.02)
    query.awaitTermination()
    progress = [p for p in query.recentProgress if p.numInputRows]
    moved = shuffled(spark) - before
    n = sum(p.numInputRows for p in progress)
    first, last = marks[0], marks[-1]
    counted = sum(p.numInputRows for p in progress[first[2] : last[2]])
    timed = progress[first[2] :]
    states = timed[-1].stateOperators[0]
    disk = sum(p.stat().st_size for p in (place / "checkpoint" / "state").rglob("*") if p.is_file())

    def mean(values: Any) -> float:
        return round(float(np.mean(list(values))) / 1000, 3)

    return {
        "states": "one per key" if not buckets else f"{buckets} shared",
        "number_of_states": states.numRowsTotal,
        "rows_counted": counted,
        "rows_per_second": round(counted / (last[0] - first[0])),
        "rows_per_processor_second": round(counted / (last[1] - first[1])),
        "seconds_of_a_micro_batch": mean(p.durationMs["triggerExecution"] for p in timed),
        "of_these_for_logs": mean(
            p.durationMs["walCommit"] + p.durationMs["commitOffsets"] for p in timed
        ),
        "task_seconds_to_commit_states": mean(p.stateOperators[0].commitTimeMs for p in timed),
        "shuffle_bytes_per_row": round(moved / n, 1),
        "checkpoint_megabytes_on_disk": round(disk / 1e6, 2),
    }


def in_process(example: Any, folder: Path) -> dict[str, Any]:
    """The same files through ``kgmrf stream``: lines in, lines out, one core, no Spark."""
    files = [path.read_bytes().splitlines() for path in sorted((folder / "in").iterdir())]
    stream = Stream(Settings(fields=example.FIELDS))
    stream.take(files[0])
    wall, used = time.perf_counter(), time.process_time()
    for lines in files[1:]:
        stream.take(lines)
    wall, used = time.perf_counter() - wall, time.process_time() - used
    n = sum(map(len, files[1:]))
    return {
        "states": "all in one process",
        "rows_counted": n,
        "rows_per_second": round(n / wall),
        "rows_per_processor_second": round(n / used),
        "state_bytes_per_key_in_one_file": round(len(stream.to_bytes()) / len(stream.pool or "1")),
    }


def state_bytes(example: Any) -> int:
    """What Spark keeps for one key with a state of its own."""
    stream = Stream(Settings(fields=example.FIELDS))
    stream.take_rows(["k123"] * 3, np.arange(3.0), np.random.default_rng(0).normal(size=(3, D)))
    return len(stream.to_bytes())


def main() -> None:
    """Measure, print, and write the result file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--rows", type=int, default=25, help="of every key in every file")
    parser.add_argument("--buckets", type=int, default=16)
    parser.add_argument("--output", type=Path, default=RESULTS / "spark.json")
    requested = parser.parse_args()
    sys.path.insert(0, str(EXAMPLES))
    example: Any = importlib.import_module("spark_stream")
    example.check_engine()
    # The workers find the example by its name, as this process does.
    paths = [str(EXAMPLES), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    spark = example.session(CORES)
    found = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows(folder / "in", requested.files, requested.keys, requested.rows)
        for buckets in (0, requested.buckets):
            found.append(through_spark(spark, example, folder, buckets))
            print(json.dumps(found[-1]), flush=True)
        found.append(in_process(example, folder))
        print(json.dumps(found[-1]), flush=True)
    java = spark.sparkContext._jvm.System.getProperty("java.version")
    spark.stop()
    report = {
        "settings": {
            "date": date.today().isoformat(),
            "kgmrf": kgmrf.__version__,
            "commit": _commit(),
            "processor": _processor(),
            "cores": CORES,
            "python": platform.python_version(),
            "java": java,
            "packages": {n: version(n) for n in ("pyspark", "pandas", "pyarrow", "numpy")},
            "load_of_the_machine": round(os.getloadavg()[1], 1),
            "d": D,
            "keys": requested.keys,
            "rows_of_a_key_in_a_micro_batch": requested.rows,
            "micro_batches_counted": requested.files - 1,
            "seed": 0,
        },
        "state_bytes_of_one_key": state_bytes(example),
        "results": found,
    }
    requested.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
