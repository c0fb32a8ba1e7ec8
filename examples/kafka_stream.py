"""One kgmrf tracker per key between two Kafka topics: JSON lines in, estimates out.

    python examples/kafka_stream.py --brokers localhost:9092 --input samples --output estimates \
        --state tracks.state --group kgmrf

Messages are those of ``kgmrf stream``: {"key": "a", "time": 3.0, "x": [0.1, -0.4]}. The code of
``kgmrf stream`` applies its rules. Messages that cannot be used go to the topic of --bad, if there
is one, with the reason.

What is lost when the process dies: nothing. The offsets are part of the state file and are written
with it, at once or not at all; estimates are flushed to the broker before. After a restart reading
begins at the offsets of the state, so that every message is taken in once, and the estimates since
then are written a second time, the same as before (at least once). Kafka's own committed offsets
are not used. One process per state: give every instance its own partitions and its own state.

It needs confluent-kafka. `follow` takes anything with the three methods of its consumer and the
three of its producer that are used here; `FileConsumer` and `FileProducer` are such, on files.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from kgmrf.stream import Settings, Stream
from kgmrf.stream.ends import Stop
from kgmrf.stream.run import Lock


def follow(
    stream: Stream,
    consumer: Any,
    producer: Any,
    *,
    output: str,
    bad: str | None = None,
    state: Path,
    offsets: dict[str, int],
    stop: Stop,
    block: int = 5000,
    every: float = 5.0,
    idle: int | None = None,
) -> dict[str, int]:
    """Take in messages until asked to stop, or until ``idle`` blocks in a row were empty.

    offsets: the next message of each partition, by its number as a word; updated and returned.
    """
    saved, quiet = time.monotonic(), 0

    def checkpoint() -> None:
        producer.flush()  # first the estimates, then the state that covers them
        stream.save(state, offsets=offsets)

    while not stop and (idle is None or quiet < idle):
        messages = consumer.consume(block, 0.5)
        for message in messages:
            if message.error():
                raise RuntimeError(str(message.error()))
        quiet = 0 if messages else quiet + 1
        # A message is one line, whatever is in it.
        lines = [(message.value() or b"").replace(b"\n", b" ") for message in messages]
        for line in stream.take(lines).splitlines():
            producer.produce(output, value=line, key=json.loads(line)["key"].encode())
        for fault in stream.faults:
            if bad is not None:
                letter = {"reason": fault.reason, "text": fault.text.decode(errors="replace")}
                producer.produce(bad, value=json.dumps(letter).encode())
        stream.faults.clear()
        producer.poll(0)
        for message in messages:
            offsets[str(message.partition())] = message.offset() + 1
        if messages and time.monotonic() - saved >= every:
            checkpoint()
            saved = time.monotonic()
    checkpoint()
    return offsets


def resumed(settings: Settings, state: Path) -> tuple[Stream, dict[str, int]]:
    """The stream of a state file and its offsets, or a fresh one."""
    stream = Stream(settings)
    if not state.exists():
        return stream, {}
    return stream, {str(k): int(v) for k, v in stream.restore(state)["offsets"].items()}


# ---------------------------------------------------------------------- files instead of Kafka


class FileMessage:
    """A line of a file, as a message."""

    def __init__(self, value: bytes, offset: int) -> None:
        self._value, self._offset = value, offset

    def value(self) -> bytes:
        return self._value

    def offset(self) -> int:
        return self._offset

    def partition(self) -> int:
        return 0

    def error(self) -> None:
        return None


class FileConsumer:
    """The lines of a file from an offset on, in blocks."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.lines, self.at = path.read_bytes().splitlines(), offset

    def consume(self, n: int, timeout: float) -> list[FileMessage]:
        found = self.lines[self.at : self.at + n]
        self.at += len(found)
        return [FileMessage(line, self.at - len(found) + k) for k, line in enumerate(found)]


class FileProducer:
    """A file per topic."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def produce(self, topic: str, value: bytes, key: bytes = b"") -> None:
        with open(self.folder / f"{topic}.jsonl", "ab") as file:
            file.write(value + b"\n")

    def poll(self, timeout: float) -> int:
        return 0

    def flush(self) -> int:
        return 0


# ---------------------------------------------------------------------- the command


def main() -> None:
    """From one topic to another."""
    parser = argparse.ArgumentParser(description="kgmrf between two Kafka topics")
    parser.add_argument("--brokers", required=True)
    parser.add_argument("--input", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--bad")
    parser.add_argument("--group", default="kgmrf")
    parser.add_argument("--state", type=Path, required=True)
    wish = parser.parse_args()

    from confluent_kafka import Consumer, Producer, TopicPartition

    stop = Stop()
    with stop.on_signals(), Lock(wish.state):
        stream, offsets = resumed(Settings(on_error="skip"), wish.state)
        consumer = Consumer(
            {
                "bootstrap.servers": wish.brokers,
                "group.id": wish.group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        topic = consumer.list_topics(wish.input, timeout=30).topics[wish.input]
        consumer.assign(
            [TopicPartition(wish.input, p, offsets.get(str(p), 0)) for p in topic.partitions]
        )
        producer = Producer({"bootstrap.servers": wish.brokers, "enable.idempotence": True})
        try:
            follow(
                stream,
                consumer,
                producer,
                output=wish.output,
                bad=wish.bad,
                state=wish.state,
                offsets=offsets,
                stop=stop,
            )
        finally:
            consumer.close()


if __name__ == "__main__":
    main()
