"""One kgmrf tracker per key as a stateful operator on Spark Structured Streaming.

    python examples/spark_stream.py INPUT_DIR OUTPUT_DIR --checkpoint DIR [--once]

INPUT_DIR: files of JSON lines {"key": "a", "time": 3.0, "x": [0.1, -0.4]}, each put there whole
(write elsewhere, then rename). Without x, with null or with NaN in it, that much was not observed.
OUTPUT_DIR: Parquet, one folder per micro-batch, one row per row taken in.

The rules are those of ``kgmrf stream``, because its code applies them: a row not later than the
row before of its key is dropped and counted. Within a micro-batch the rows of a key are put in
order of time first. What Spark keeps for a key are the
bytes of the file that ``kgmrf stream --state`` writes.

The operator is transformWithStateInPandas, over the RocksDB state store, which it requires: it is
the one that new features of Spark (states that expire, states read as tables) come to. It needs
protobuf besides pandas and pyarrow.

Exactly once: a micro-batch that was cut short runs again from the same files and the same state,
and its folder batch=N is written over. docs/howto_spark.md says where that ends.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from kgmrf.stream import Settings, Stream
from kgmrf.stream.alerts import WORDS

ROWS = "key STRING, time DOUBLE, x ARRAY<DOUBLE>"
ESTIMATES = (
    "key STRING, time DOUBLE, covariance ARRAY<DOUBLE>, log_likelihood DOUBLE, nis DOUBLE, "
    "p_value DOUBLE, alarm STRING, shares ARRAY<DOUBLE>, speed DOUBLE, dropped LONG"
)
FIELDS = ("covariance", "log_likelihood", "nis", "p_value", "velocity")


# ---------------------------------------------------------------------- the operator


class Operator:
    """The rows of one state's keys, in order of time, through the code of ``kgmrf stream``.

    settings: of ``kgmrf stream``. channels: d, the length of every x.
    """

    def __init__(self, settings: Settings, channels: int) -> None:
        self.settings, self.channels = settings, channels

    def step(self, before: bytes | None, rows: Any) -> tuple[bytes, dict[str, Any]]:
        """The state before and the rows of a micro-batch; the state after, columns of estimates."""
        stream = Stream(self.settings)
        if before is not None:
            stream.from_bytes(before)
        estimates = self.moved(stream, *self.arrays(rows))
        return stream.to_bytes(), estimates

    def arrays(self, rows: Any) -> tuple[list[str], Any, Any]:
        """Keys, times ``(n,)`` and values ``(n, d)`` in order of time.

        Spark does not say which of two rows with the same key and time came first; the smaller
        values do here, so that a repeated micro-batch repeats its output to the bit.
        """
        times = rows["time"].to_numpy(dtype=float, copy=True)
        values = np.full((len(rows), self.channels), math.nan)
        for k, x in enumerate(rows["x"]):
            fault = None
            if math.isnan(times[k]):
                fault = "a row without a time has no place in the order"
            elif x is not None and len(x) not in (0, self.channels):
                fault = f"time {times[k]:g}: {len(x)} values, expected {self.channels}"
            elif x is not None and len(x):
                values[k] = x
            if fault and self.settings.on_error == "stop":
                raise ValueError(f"key {rows['key'][k]!r}: {fault}")
            if fault:
                times[k] = math.inf  # which the stream skips and counts
        order = np.lexsort((*values.T[::-1], times))
        return rows["key"].to_numpy()[order].tolist(), times[order], values[order]

    def moved(self, stream: Stream, keys: list[str], times: Any, values: Any) -> dict[str, Any]:
        """The columns of `ESTIMATES`, or none if no row was taken in."""
        moved = stream.take_rows(keys, times, values)
        if not moved.keys:
            return {}
        found, n = moved.fields, len(moved.keys)
        row, column = np.triu_indices(self.channels)
        return {
            "key": moved.keys,
            "time": moved.times,
            "covariance": list(found["covariance"][:, row, column]),
            "log_likelihood": found["log_likelihood"],
            "nis": found["nis"],
            "p_value": found["p_value"],
            # With --alert: "begins", "lasts" or "ends", and the share of each channel in it.
            "alarm": [WORDS[int(code)] or None for code in found.get("alarm", np.zeros(n))],
            "shares": [
                None if row is None or np.isnan(row).all() else row
                for row in found.get("channels", [None] * n)
            ],
            # Angle per unit of time, as distances between rotations are angles: |.|_F / sqrt(2).
            "speed": np.linalg.norm(found["velocity"], axis=(-2, -1)) / math.sqrt(2.0),
            "dropped": np.full(n, stream.counts.late + stream.counts.duplicate),
        }


def processor(operator: Operator) -> Any:
    """The operator as Spark wants it: the state is one value, the bytes of its tracks."""
    import pandas
    from pyspark.sql.streaming import StatefulProcessor

    class Tracks(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.state = handle.getValueState("tracks", "state BINARY")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
            before = bytes(self.state.get()[0]) if self.state.exists() else None
            # A key with many rows comes in parts: all of them, before they are put in order.
            after, estimates = operator.step(before, pandas.concat(list(rows), ignore_index=True))
            self.state.update((after,))
            if estimates:
                yield pandas.DataFrame(estimates)

        def close(self) -> None:
            pass

    return Tracks()


# ---------------------------------------------------------------------- the query


def session(cores: int) -> Any:
    """Spark on this machine; for a cluster, ``spark-submit`` brings its own settings."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    builder = SparkSession.builder.appName("kgmrf").master(f"local[{cores}]")
    options = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        # Fixed for the life of a checkpoint: the number of parts that the states are kept in.
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.streaming.stateStore.providerClass": provider,
        "spark.sql.execution.arrow.pyspark.enabled": "true",
    }
    for name, value in options.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def start(
    spark: Any,
    source: Path,
    sink: Path,
    checkpoint: Path,
    operator: Operator,
    *,
    once: bool = True,
    files: int = 16,
    buckets: int = 0,
    every: float = 2.0,
) -> Any:
    """Start the query and return it.

    once: take what is there and end, or go on every ``every`` seconds. files: at most so many in a
    micro-batch. buckets: 0 for one state per key; otherwise keys share so many states, which is
    quicker for very many keys with few rows each.
    """
    from pyspark.sql import functions as f

    # From Kafka: spark.readStream.format("kafka")..., then from_json(value, ROWS). All else stays.
    mode = "DROPMALFORMED" if operator.settings.on_error == "skip" else "FAILFAST"
    reader = spark.readStream.schema(ROWS).option("mode", mode)
    rows = reader.option("maxFilesPerTrigger", files).json(str(source)).na.fill("", ["key"])
    group = f.pmod(f.hash("key"), f.lit(buckets)) if buckets else f.col("key")
    estimates = (
        rows.withColumn("group", group)
        .groupBy("group")
        .transformWithStateInPandas(processor(operator), ESTIMATES, "append", "None")
    )

    def keep(batch: Any, number: int) -> None:
        batch.write.mode("overwrite").parquet(str(sink / f"batch={number}"))

    writer = estimates.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
    timing = {"availableNow": True} if once else {"processingTime": f"{every} seconds"}
    return writer.trigger(**timing).start()


# ---------------------------------------------------------------------- the command


class Refused(Exception):
    """Something is missing or does not fit; the message says what to do."""


def check_engine() -> None:
    """pyspark and a Java it can run on."""
    for name in ("pyspark", "pandas", "pyarrow", "google.protobuf"):
        try:
            importlib.import_module(name)
        except ImportError:
            raise Refused(f"{name} is not installed: pip install 'kgmrf[spark]'") from None
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None or not Path(java).exists():
        raise Refused("no Java: Spark needs Java 17 or newer, on the PATH or at JAVA_HOME")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < 17:
        raise Refused(f"Spark needs Java 17 or newer; {java} is {said.splitlines()[:1]}")


def check_folders(source: Path, sink: Path, checkpoint: Path) -> None:
    """The output must be that of this checkpoint: a batch of another would be written over."""
    if not source.is_dir():
        raise Refused(f"{source} is not a folder")
    known = [int(p.name) for p in checkpoint.glob("offsets/*") if p.name.isdigit()]
    there = [int(p.name[6:]) for p in sink.glob("batch=*") if p.name[6:].isdigit()]
    if max(there, default=-1) > max(known, default=-1):
        raise Refused(
            f"{sink} holds batch {max(there)}, which {checkpoint} knows nothing of; "
            "give the checkpoint that belongs to it, or another output folder"
        )


def count_channels(source: Path) -> int:
    """d, from the first row that has values."""
    for path in sorted(source.iterdir()):
        if path.is_file() and path.name[0] not in "._":
            with open(path) as file:
                for line in file:
                    try:
                        values = json.loads(line)["x"]
                    except (ValueError, KeyError, TypeError):
                        continue
                    if isinstance(values, list) and values:
                        return len(values)
    raise Refused(f"no row in {source} has values yet; say how many there are with --channels")


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    text = (__doc__ or "").split("\n\n", 1)
    parser = argparse.ArgumentParser(
        description=text[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("input", type=Path, help="folder of JSON lines")
    parser.add_argument("output", type=Path, help="folder of Parquet, one folder per micro-batch")
    parser.add_argument(
        "--checkpoint", type=Path, required=True, help="folder of offsets and states"
    )
    parser.add_argument("--once", action="store_true", help="take what is there, then end")
    parser.add_argument("--every", type=float, default=2.0, help="seconds between micro-batches")
    parser.add_argument("--files", type=int, default=16, help="most files in a micro-batch")
    parser.add_argument("--channels", type=int, help="length of x (found out if there are rows)")
    parser.add_argument("--buckets", type=int, default=0, help="0: a state per key; or so many")
    parser.add_argument("--cores", type=int, default=2, help="cores of this machine")
    parser.add_argument("--gains", default="auto", help="gain law of the trackers")
    parser.add_argument("--time-unit", type=float, default=1.0, help="one step of the trackers")
    parser.add_argument("--alert", help="watch every key: false alarms per row, such as 1e-4")
    parser.add_argument("--mean", default="zero", help="mean of the samples, as of kgmrf stream")
    parser.add_argument("--same-time", choices=("drop", "use"), default="drop", help="repetitions")
    parser.add_argument("--on-error", choices=("stop", "skip"), default="stop", help="bad rows")
    return parser.parse_args(arguments)


def run(requested: argparse.Namespace) -> None:
    """Start the query and wait for its end."""
    check_engine()
    check_folders(requested.input, requested.output, requested.checkpoint)
    settings = Settings(
        fields=FIELDS,
        time_unit=requested.time_unit,
        same_time=requested.same_time,
        on_error=requested.on_error,
        tracker={"gains": requested.gains},
        alert=requested.alert,
        mean=requested.mean,
    )
    operator = Operator(settings, requested.channels or count_channels(requested.input))
    from pyspark.errors import PySparkException

    spark = session(requested.cores)
    options = dict(
        once=requested.once, files=requested.files, buckets=requested.buckets, every=requested.every
    )
    try:
        query = start(
            spark, requested.input, requested.output, requested.checkpoint, operator, **options
        )
        query.awaitTermination()
    except KeyboardInterrupt:
        query.stop()
    except PySparkException as error:
        # The cause stands in the last line of the worker's traceback, among hundreds of Java's.
        causes = re.findall(r"^(?:\w+\.)*(\w*Error: .*)", str(error), re.M)
        raise Refused(causes[0] if causes else str(error).splitlines()[0]) from error
    finally:
        spark.stop()


if __name__ == "__main__":
    try:
        run(parse())
    except Refused as refusal:
        sys.exit(f"spark_stream: {refusal}")
