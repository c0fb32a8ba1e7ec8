"""The Spark operator: equal to the tracker in process, and every row once however often it dies.

Run by ``make test-spark``; outside ``make test``, which needs neither Java nor Spark.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pandas = pytest.importorskip("pandas", reason="pandas is not installed: Spark is not tested")
pytest.importorskip("pyspark", reason="pyspark is not installed: Spark is not tested")

if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
    pytest.skip("there is no Java: Spark is not tested", allow_module_level=True)

from kgmrf import KGMRF  # noqa: E402

SCRIPT = Path(__file__).parents[2] / "examples" / "spark_stream.py"
D = 3
PATIENCE = 240.0
MATRIX = np.triu_indices(D)

Row = dict[str, Any]

# Runs this short are over before the optimising compiler of Java has paid for itself.
ENVIRONMENT = {**os.environ, "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


# ---------------------------------------------------------------------- rows, runs, results


def rows(key: str, times: np.ndarray, rng: np.random.Generator) -> list[Row]:
    x = rng.normal(size=(len(times), D)) * [3.0, 1.0, 0.4]
    return [
        {"key": key, "time": t, "x": v} for t, v in zip(times.tolist(), x.tolist(), strict=True)
    ]


def put(folder: Path, number: int, content: list[Row]) -> None:
    """A file of the source, whole from the start; Spark takes files in order of their age."""
    folder.mkdir(exist_ok=True)
    part = folder / f".{number:04d}.part"
    part.write_text("".join(json.dumps(row) + "\n" for row in content))
    os.utime(part, (1_600_000_000 + number, 1_600_000_000 + number))
    part.rename(folder / f"{number:04d}.json")


def command(folder: Path, *options: str) -> list[str]:
    call = [sys.executable, "-W", "ignore", str(SCRIPT), str(folder / "in"), str(folder / "out")]
    return [*call, "--checkpoint", str(folder / "checkpoint"), "--once", *options]


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    call = command(folder, *options)
    return subprocess.run(
        call, capture_output=True, text=True, timeout=PATIENCE, check=False, env=ENVIRONMENT
    )


def results(folder: Path) -> Any:
    """All output, as any reader of Parquet sees it: whatever lies in the folders counts."""
    parts = sorted((folder / "out").glob("batch=*/*.parquet"))
    found = pandas.concat([pandas.read_parquet(part) for part in parts], ignore_index=True)
    return found.sort_values(["key", "time"], ignore_index=True)


def in_process(content: list[Row]) -> dict[str, Any]:
    """The tracker itself on the rows of one key."""
    seen = [row.get("x") or [None] * D for row in content]
    values = np.array([[math.nan if v is None else v for v in x] for x in seen], dtype=float)
    tracker = KGMRF(D, gains="information")
    result = tracker.filter(values, times=np.array([row["time"] for row in content]))
    return {
        "covariance": result.covariance[:, MATRIX[0], MATRIX[1]],
        "log_likelihood": result.log_likelihood,
        "nis": result.nis,
        "speed": np.linalg.norm(result.velocity, axis=(-2, -1)) / math.sqrt(2),
    }


def same(found: Any, expected: list[Row]) -> None:
    """The output rows of one key are those of the tracker on the expected rows."""
    assert found["time"].tolist() == [row["time"] for row in expected]
    for name, values in in_process(expected).items():
        ours = np.array(found[name].tolist(), dtype=float)
        np.testing.assert_allclose(ours, values, rtol=1e-9, atol=1e-12, err_msg=name)


# ---------------------------------------------------------------------- one run of everything


@pytest.fixture(scope="module")
def messy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three micro-batches with all that can be wrong with rows."""
    folder = tmp_path_factory.mktemp("messy")
    rng = np.random.default_rng(1)
    kept: dict[str, list[Row]] = {}

    plain = rows("plain", np.arange(30.0), rng)
    uneven = rows("uneven", np.cumsum(rng.exponential(size=30)), rng)
    kept |= {"plain": plain, "uneven": uneven}
    files: list[list[Row]] = [plain[k : k + 10] + uneven[k : k + 10] for k in (0, 10, 20)]

    # Out of order within a micro-batch, in more rows than Spark hands over at a time: sorted.
    large = rows("large", np.arange(12_000.0), rng)
    kept["large"] = large
    files[0] += [large[k] for k in rng.permutation(len(large))]

    # Late by a micro-batch: dropped. Repeated, in the same one or in the next: taken once.
    late = rows("late", np.arange(30.0), rng)
    files[0] += [*late[:9], late[4]]
    files[1] += [*late[10:15], *late[16:20], late[9], late[3], late[10]]
    files[2] += [*late[20:], late[15], late[19]]
    kept["late"] = late[:15] + late[16:]

    # A key of which a micro-batch holds nothing new. No key at all is a key, too.
    again, nameless = rows("again", np.arange(5.0), rng), rows("", np.arange(6.0), rng)
    files[0] += again + [{k: v for k, v in row.items() if k != "key"} for row in nameless]
    files[2] += again
    kept |= {"again": again, "": nameless}

    # Nothing seen, in every way to say so, from the very first row on.
    gaps = rows("gaps", np.arange(30.0), rng)
    for k in (0, 7, 12):
        del gaps[k]["x"]
    gaps[1]["x"] = gaps[13]["x"] = None
    gaps[2]["x"] = gaps[14]["x"] = []
    gaps[3]["x"] = gaps[15]["x"] = [math.nan] * D
    gaps[20]["x"][1] = None
    gaps[21]["x"][0] = math.nan
    kept["gaps"] = gaps
    for k, file in enumerate(files):
        file += gaps[10 * k : 10 * k + 10]
        put(folder / "in", k, file)
    (folder / "kept.json").write_text(json.dumps(kept))
    done = run(folder, "--files", "1")
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def test_equals_the_tracker_in_process(messy: Path) -> None:
    found, expected = results(messy), json.loads((messy / "kept.json").read_text())
    assert set(found["key"]) == set(expected)
    for key, content in expected.items():
        same(found[found["key"] == key], content)


def test_late_and_repeated_rows_are_dropped_and_counted(messy: Path) -> None:
    found = results(messy)
    last = found.groupby("key").last()["dropped"].to_dict()
    assert last.pop("late") == 5
    assert set(last.values()) == {0}


def test_rows_without_values_are_coasted_over(messy: Path) -> None:
    found = results(messy)
    found = found[found["key"] == "gaps"]
    assert len(found) == 30
    assert np.isnan(np.array(found["log_likelihood"].tolist(), dtype=float))[[12, 13, 14, 15]].all()
    assert np.isfinite(np.array(found["covariance"].tolist())[12:16]).all()


# ---------------------------------------------------------------------- kill -9

FILES, KEYS, PER_FILE = 20, 5, 6


def numbers(folder: Path, what: str) -> set[int]:
    """The micro-batches that have begun ("offsets") or are done ("commits")."""
    names = [path.name for path in (folder / "checkpoint" / what).glob("*")]
    return {int(name) for name in names if name.isdigit()}


def written(folder: Path) -> set[int]:
    """The micro-batches whose output is whole."""
    return {int(p.parent.name[6:]) for p in (folder / "out").glob("batch=*/_SUCCESS")}


def alive(group: int) -> bool:
    """Whether a process of the group still runs; the dead that nobody has buried do not count."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, found = path.read_text().rpartition(")")[2].split()[:3]
        except (OSError, ValueError):
            continue
        if int(found) == group and state != "Z":
            return True
    return False


def kill(process: subprocess.Popen[bytes]) -> None:
    """The driver and its Java at one blow."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + 30
    while alive(process.pid):
        assert time.monotonic() < deadline, "the process group outlived SIGKILL"
        time.sleep(0.01)


def die_once(folder: Path, log: Any, delay: float | None) -> str:
    """Start, wait until a new micro-batch has begun and ``delay`` seconds more, or (None) until its
    output is whole, and kill. Returns what the blow met, or "finished"."""
    call = command(folder, "--files", "1")
    begun, whole = numbers(folder, "offsets"), written(folder)
    process = subprocess.Popen(
        call, stdout=log, stderr=log, start_new_session=True, env=ENVIRONMENT
    )
    deadline = time.monotonic() + PATIENCE
    while process.poll() is None:
        assert time.monotonic() < deadline
        if delay is None and len(written(folder) - whole) > 0:
            break
        if delay is not None and len(numbers(folder, "offsets") - begun) > 0:
            time.sleep(delay)
            break
        time.sleep(0.001)
    if process.poll() is not None:
        assert process.returncode == 0
        return "finished"
    kill(process)
    open_ = numbers(folder, "offsets") - numbers(folder, "commits")
    if not open_:
        return "between micro-batches"
    return "written, not committed" if open_ <= written(folder) else "in a micro-batch"


def test_killed_again_and_again_every_row_comes_once(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    tracks = {f"k{k}": rows(f"k{k}", np.arange(float(FILES * PER_FILE)), rng) for k in range(KEYS)}
    for number in range(FILES):
        now = slice(number * PER_FILE, (number + 1) * PER_FILE)
        put(tmp_path / "in", number, [row for content in tracks.values() for row in content[now]])

    moments = random.Random(4)
    delays = [moments.uniform(0, 0.3), None, moments.uniform(0, 3.0), None]
    with open(tmp_path / "log", "wb") as log:
        met = [die_once(tmp_path, log, delay) for delay in delays]
    # Some blow must have fallen between the beginning of a micro-batch and its commit.
    assert {"in a micro-batch", "written, not committed"} & set(met), met
    assert "finished" not in met, met
    done = run(tmp_path, "--files", "1")
    assert done.returncode == 0, done.stderr[-3000:]
    assert numbers(tmp_path, "offsets") == numbers(tmp_path, "commits") == set(range(FILES))

    found = results(tmp_path)
    assert len(found) == KEYS * FILES * PER_FILE
    for key, content in tracks.items():
        same(found[found["key"] == key], content)

    # The same rows without a blow: the same output, to the last bit.
    calm = tmp_path / "calm"
    calm.mkdir()
    (calm / "in").symlink_to(tmp_path / "in")
    done = run(calm, "--files", "1")
    assert done.returncode == 0, done.stderr[-3000:]
    pandas.testing.assert_frame_equal(results(calm), found, check_exact=True)


# ---------------------------------------------------------------------- options and errors


def test_keys_may_share_states_and_rows_of_a_later_file_are_late(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    tracks = {f"k{k}": rows(f"k{k}", np.arange(20.0), rng) for k in range(9)}
    for number in range(2):
        content = []
        for track in tracks.values():
            # Row 9 comes with the second file, though rows 10 and 11 came with the first.
            content += [*track[:9], *track[10:12]] if number == 0 else [track[9], *track[12:]]
        put(tmp_path / "in", number, content)
    done = run(tmp_path, "--files", "1", "--buckets", "2")
    assert done.returncode == 0, done.stderr[-3000:]
    found = results(tmp_path)
    # One row of each of nine keys, in two states, which count for themselves: never 4.5 each.
    assert sum(set(found.groupby("key")["dropped"].last())) == 9
    for key, content in tracks.items():
        same(found[found["key"] == key], [*content[:9], *content[10:]])


def test_a_bad_row_ends_the_query_with_one_line(tmp_path: Path) -> None:
    put(tmp_path / "in", 0, [{"key": "a", "time": 0.0, "x": [1.0, 2.0, 3.0]}])
    put(tmp_path / "in", 1, [{"key": "a", "time": 1.0, "x": [1.0, 2.0]}])
    done = run(tmp_path, "--files", "1")
    assert done.returncode == 1
    said = done.stderr.strip().splitlines()[-1]
    assert said == "spark_stream: ValueError: key 'a': time 1: 2 values, expected 3"
    assert len(results(tmp_path)) == 1


def test_without_java_or_input_it_says_so(tmp_path: Path) -> None:
    put(tmp_path / "in", 0, [{"key": "a", "time": 0.0}])

    def said(environment: dict[str, str], folder: Path = tmp_path) -> str:
        done = subprocess.run(
            command(folder), capture_output=True, text=True, check=False, env=environment
        )
        assert done.returncode == 1
        return done.stderr.strip().splitlines()[-1]

    bare = {k: v for k, v in ENVIRONMENT.items() if k not in ("PATH", "JAVA_HOME")}
    assert "no Java" in said({**bare, "PATH": str(tmp_path)})
    (tmp_path / "hidden" / "pyspark").mkdir(parents=True)
    (tmp_path / "hidden" / "pyspark" / "__init__.py").write_text("raise ImportError\n")
    hiding = {**ENVIRONMENT, "PYTHONPATH": str(tmp_path / "hidden")}
    assert "pip install 'kgmrf[spark]'" in said(hiding)
    assert "--channels" in said(ENVIRONMENT)
    assert "is not a folder" in said(ENVIRONMENT, tmp_path / "nowhere")
    (tmp_path / "out" / "batch=0").mkdir(parents=True)
    assert "knows nothing of" in said(ENVIRONMENT)
