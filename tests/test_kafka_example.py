"""The Kafka recipe loses nothing: a queue that is full, a broker that stops, kills, more instances.

With confluent-kafka it runs against the mock broker of librdkafka, in a process of its own.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kgmrf.stream import Settings, Stream

SCRIPT = Path(__file__).parents[1] / "examples" / "kafka_stream.py"
pytestmark = pytest.mark.skipif(not SCRIPT.exists(), reason="a copy without the examples")
FIELDS = Settings(on_error="skip", fields=("log_likelihood",))


@pytest.fixture
def example() -> Any:
    spec = importlib.util.spec_from_file_location("kafka_stream", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


# ---------------------------------------------------------------------- without a broker


class Message:
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


class Producer:
    """A queue of ten; messages are confirmed, or refused, when it is polled."""

    def __init__(self, refuse: int = -1) -> None:
        self.queue: list[Any] = []
        self.sent: list[bytes] = []
        self.refuse, self.full = refuse, 0

    def produce(self, topic: str, *, value: bytes, key: bytes, on_delivery: Any) -> None:
        if len(self.queue) >= 10:
            self.full += 1
            raise BufferError("Local: Queue full")
        self.queue.append((value, on_delivery))

    def poll(self, timeout: float) -> int:
        for value, call in self.queue:
            wrong = len(self.sent) == self.refuse
            self.refuse = -1 if wrong else self.refuse
            call("broker: message timed out" if wrong else None, None)
            self.sent += [] if wrong else [value]
        self.queue.clear()
        return 0


def lines_of(n: int) -> list[bytes]:
    return [
        json.dumps({"key": "abcdef"[k % 6], "time": k, "x": [k % 3, k % 5]}).encode()
        for k in range(n)
    ]


def test_a_full_queue_holds_the_input_back_and_loses_nothing(example: Any, tmp_path: Path) -> None:
    """BufferError once ended the recipe."""
    producer = Producer()
    worker = example.Worker(FIELDS, None, example.Output(producer), tmp_path, to="out", bad="bad")
    worker.commit = lambda offsets: None
    part = worker.parts[0] = example.Partition(FIELDS, tmp_path / "t-0.state")
    messages = [Message(line, k) for k, line in enumerate([*lines_of(50), b"{"])]
    worker.take(messages)
    worker.checkpoint()
    assert producer.full > 0
    assert producer.sent[:50] == Stream(FIELDS).take(lines_of(50)).splitlines()
    assert json.loads(producer.sent[50])["text"] == "{"
    part.close()
    assert example.Partition(FIELDS, tmp_path / "t-0.state").offset == 51


def test_what_is_not_confirmed_is_not_saved(example: Any, tmp_path: Path) -> None:
    """Without a callback nobody heard of it."""
    output = example.Output(Producer(refuse=30))
    worker = example.Worker(FIELDS, None, output, tmp_path, to="out")
    worker.commit = lambda offsets: None
    worker.parts[0] = example.Partition(FIELDS, tmp_path / "t-0.state")
    worker.take([Message(line, k) for k, line in enumerate(lines_of(5))])
    worker.take([Message(line, k) for k, line in enumerate(lines_of(25))][5:])
    later = [Message(line, k) for k, line in enumerate(lines_of(50))][25:]
    with pytest.raises(example.Undelivered, match="timed out"):
        worker.take(later)
    with pytest.raises(example.Undelivered):
        worker.checkpoint()  # nor on the way out
    assert not (tmp_path / "t-0.state").exists()


def test_a_broker_that_never_answers_ends_it(example: Any) -> None:
    producer = Producer()
    producer.poll = lambda timeout: 0  # type: ignore[method-assign]
    output = example.Output(producer, patience=0.2)
    output.send("out", b"1")
    with pytest.raises(example.Undelivered, match=r"1 estimates are not confirmed within 0\.2 s"):
        output.confirm()


# ---------------------------------------------------------------------- with librdkafka's broker

BROKER = """
import sys
from confluent_kafka import Producer
client = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "none"})
broker = next(iter(client.list_topics(timeout=20).brokers.values()))
print(f"{broker.host}:{broker.port}", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def broker() -> Iterator[tuple[str, Any]]:
    pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
    if os.name == "nt":
        pytest.skip("signals of POSIX")
    process = subprocess.Popen(
        [sys.executable, "-c", BROKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    yield process.stdout.readline().strip(), process
    process.kill()
    process.wait()


class Life:
    """Messages of six keys in a topic of four partitions, and instances that follow them."""

    def __init__(self, address: str, folder: Path) -> None:
        from confluent_kafka import Producer

        self.address, self.folder, self.count = address, folder, 0
        self.producer = Producer({"bootstrap.servers": address})
        self.lines = lines_of(3000)

    def send(self, n: int) -> None:
        for line in self.lines[self.count : self.count + n]:
            self.producer.produce("in", value=line, key=json.loads(line)["key"].encode())
            self.producer.poll(0)
        self.count += n
        assert self.producer.flush(20) == 0

    def start(self, *more: str) -> subprocess.Popen[bytes]:
        call = [sys.executable, str(SCRIPT), "--brokers", self.address, "--input", "in"]
        call += ["--output", "out", "--state", str(self.folder), "--checkpoint-every", "0.1"]
        call += ["--fields", "log_likelihood", *more]
        call += ["--consumer", "session.timeout.ms=6000", "topic.metadata.refresh.interval.ms=500"]
        return subprocess.Popen(call, stderr=subprocess.PIPE)

    def output(self, n: int, patience: float = 60.0) -> list[bytes]:
        """All of the output, once it has n different lines."""
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        reader = Consumer({"bootstrap.servers": self.address, "group.id": "reader"})
        until = time.monotonic() + patience
        while "out" not in reader.list_topics(timeout=20).topics and time.monotonic() < until:
            time.sleep(0.2)
        parts = reader.list_topics("out", timeout=20).topics["out"].partitions
        reader.assign([TopicPartition("out", p, OFFSET_BEGINNING) for p in parts])
        found: list[bytes] = []
        while len({*found}) < n and time.monotonic() < until:
            found += [m.value() for m in reader.consume(5000, 0.5) if m.error() is None]
        found += [m.value() for m in reader.consume(5000, 1.0) if m.error() is None]
        reader.close()
        return found

    def wanted(self) -> set[bytes]:
        """Every key's estimates, each key on its own."""
        rows = self.lines[: self.count]
        found: set[bytes] = set()
        for key in "abcdef":
            mine = [row for row in rows if json.loads(row)["key"] == key]
            found |= {*Stream(FIELDS).take(mine).splitlines()}
        return found


def ended(process: subprocess.Popen[bytes], timeout: float = 60.0) -> str:
    """What an instance said at its end."""
    error = process.communicate(timeout=timeout)[1]
    return error.decode()


def test_kills_and_more_instances_lose_nothing(broker: tuple[str, Any], tmp_path: Path) -> None:
    life = Life(broker[0], tmp_path / "states")
    life.send(600)
    first = life.start()
    assert len(life.output(300)) >= 300
    first.kill()  # in the middle, without a last checkpoint
    ended(first)
    life.send(600)
    second, third = life.start(), life.start()
    life.output(1200)
    life.send(600)
    found = life.output(1800)
    for process in (second, third):
        process.send_signal(signal.SIGTERM)
        words = ended(process)
        assert process.returncode == 0, words
    assert {*found} == life.wanted()  # estimates that come twice are the same to the digit
    from confluent_kafka import Consumer, TopicPartition

    group = Consumer({"bootstrap.servers": life.address, "group.id": "kgmrf"})
    places = group.committed([TopicPartition("in", p) for p in range(4)], timeout=20)
    assert sum(max(place.offset, 0) for place in places) == 1800
    group.close()


def test_a_broker_that_stops_for_a_while_loses_nothing(
    broker: tuple[str, Any], tmp_path: Path
) -> None:
    """It does not confirm: exit code 1 and nothing saved; started again, all comes."""
    address, process = broker
    life = Life(address, tmp_path / "states")
    life.send(300)
    first = life.start("--patience", "5", "--producer", "linger.ms=3000")
    life.output(300)
    life.send(600)
    time.sleep(1.5)  # taken in, and still with the producer
    process.send_signal(signal.SIGSTOP)
    try:
        deadline = time.monotonic() + 40
        while first.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
    finally:
        process.send_signal(signal.SIGCONT)
    words = ended(first)
    assert first.returncode == 1, words
    assert "nothing is saved" in words
    second = life.start()
    found = life.output(900)
    second.send_signal(signal.SIGTERM)
    words = ended(second)
    assert second.returncode == 0, words
    assert {*found} == life.wanted()
