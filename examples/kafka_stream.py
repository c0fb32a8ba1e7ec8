"""One kgmrf tracker per key between two Kafka topics: JSON lines in, estimates out.

    python examples/kafka_stream.py --brokers localhost:9092 --input samples --output estimates \
        --state /var/lib/kgmrf --group kgmrf

Messages are those of ``kgmrf stream``: {"key": "a", "time": 3.0, "x": [0.1, -0.4]}. The code of
``kgmrf stream`` applies its rules. Messages that cannot be used go to the topic of --bad, if there
is one, with the reason. Send all messages of a key to one partition, as Kafka does by itself if
they have a key.

Every partition has a state file of its own in the folder of --state, with the trackers of its keys
and the offset of its next message; one cannot change without the other. Start as many instances
with one --group as there are partitions: Kafka shares the partitions out, and the states go with
them, so all instances need the same folder (a shared volume).

Nothing is lost: a state is saved, and its offset committed, only after the broker has confirmed
every estimate before it. If it does not confirm one, the process ends with exit code 1 and saves
nothing; started again, it repeats what came since the last checkpoint, the same as before (at least
once). A broker that is slow holds the input back: at most --most estimates wait for it.

It needs confluent-kafka.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from kgmrf.stream import Settings, Stream
from kgmrf.stream.endpoints import Stop
from kgmrf.stream.run import Lock, Locked

BLOCK = 5000
"""Messages that are taken in together."""


class Undelivered(RuntimeError):
    """The broker has not confirmed an estimate."""


class Output:
    """A producer that knows what the broker has confirmed."""

    def __init__(self, producer: Any, most: int = 100_000, patience: float = 120.0) -> None:
        self.producer, self.most, self.patience = producer, most, patience
        self.waiting = 0
        self.error: str | None = None

    def send(self, topic: str, value: bytes, key: bytes = b"") -> None:
        """Put a message on its way; wait while too many are."""
        until = time.monotonic() + self.patience
        while True:
            self._check(until, "the broker takes no more messages")
            if self.waiting < self.most:
                try:
                    self.producer.produce(topic, value=value, key=key, on_delivery=self._delivered)
                except BufferError:  # the queue of the producer is full
                    pass
                else:
                    self.waiting += 1
                    return
            self.producer.poll(0.1)

    def confirm(self) -> None:
        """Return when the broker has confirmed everything; `Undelivered` if it does not."""
        until = time.monotonic() + self.patience
        while self.waiting:
            self._check(until, f"{self.waiting} estimates are not confirmed")
            self.producer.poll(0.1)
        self._check(until, "")

    def _check(self, until: float, words: str) -> None:
        if self.error is None and time.monotonic() > until:
            self.error = f"{words} within {self.patience:g} s"
        if self.error is not None:  # for good: nothing may be saved behind a gap
            raise Undelivered(self.error)

    def _delivered(self, error: Any, message: Any) -> None:
        self.waiting -= 1
        if error is not None:
            self.error = str(error)


class Partition:
    """The trackers of one partition, the offset of its next message, and their file."""

    def __init__(self, settings: Settings, state: Path, patience: float = 30.0) -> None:
        self.state, self.lock = state, Lock(state)
        until = time.monotonic() + patience
        while True:  # the instance that had it before may still be saving
            try:
                self.lock.__enter__()
                break
            except Locked:
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)
        self.stream, self.offset = Stream(settings), 0
        if state.exists():
            self.offset = int(self.stream.restore(state)["offset"])
        self.changed = False

    def save(self) -> None:
        self.stream.save(self.state, offset=self.offset)
        self.changed = False

    def close(self) -> None:
        self.lock.__exit__()


class Worker:
    """From one topic to another, with the partitions that this instance is given."""

    def __init__(
        self,
        settings: Settings,
        consumer: Any,
        output: Output,
        folder: Path,
        *,
        to: str,
        bad: str | None = None,
        every: float = 5.0,
    ) -> None:
        self.settings, self.consumer, self.output, self.folder = settings, consumer, output, folder
        self.to, self.bad, self.every = to, bad, every
        self.parts: dict[int, Partition] = {}
        self.topic = ""

    def subscribe(self, topic: str) -> None:
        self.topic = topic
        self.consumer.subscribe(
            [topic], on_assign=self.assigned, on_revoke=self.revoked, on_lost=self.lost
        )

    # ------------------------------------------------------------------ partitions

    def assigned(self, consumer: Any, partitions: list[Any]) -> None:
        """Go on where the states of these partitions stand."""
        for given in partitions:
            state = self.folder / f"{self.topic}-{given.partition}.state"
            part = self.parts[given.partition] = Partition(self.settings, state)
            given.offset = part.offset
        consumer.incremental_assign(partitions)

    def revoked(self, consumer: Any, partitions: list[Any]) -> None:
        """Another instance takes these over: leave a checkpoint first."""
        self.checkpoint()
        self.lost(consumer, partitions)

    def lost(self, consumer: Any, partitions: list[Any]) -> None:
        """Another instance has these already: what came since the checkpoint, it does again."""
        for given in partitions:
            self.parts.pop(given.partition).close()
        consumer.incremental_unassign(partitions)

    # ------------------------------------------------------------------ messages

    def run(self, stop: Stop, idle: float | None = None) -> None:
        """Take in messages until asked to stop, or until none came for ``idle`` seconds."""
        saved = heard = time.monotonic()
        while not stop and (idle is None or time.monotonic() - heard < idle):
            messages = self.consumer.consume(BLOCK, 0.2)
            if messages:
                heard = time.monotonic()
                self.take(messages)
            self.output.producer.poll(0)
            if time.monotonic() - saved >= self.every:
                self.checkpoint()
                saved = time.monotonic()
        self.checkpoint()

    def take(self, messages: list[Any]) -> None:
        """Take in messages of any of the partitions, and send their estimates."""
        blocks: dict[int, list[Any]] = {}
        for message in messages:
            error = message.error()
            if error is None:
                blocks.setdefault(message.partition(), []).append(message)
            elif error.fatal():
                raise RuntimeError(str(error))
            else:  # the client tries again by itself
                sys.stderr.write(f"kafka: {error}\n")
        for number, block in blocks.items():
            part = self.parts[number]
            # A message is one line, whatever is in it.
            lines = [(message.value() or b"").replace(b"\n", b" ") for message in block]
            for line in part.stream.take(lines).splitlines():
                self.output.send(self.to, line, json.loads(line)["key"].encode())
            for fault in part.stream.errors:
                letter = {"reason": fault.reason, "text": fault.text.decode(errors="replace")}
                if self.bad is not None:
                    self.output.send(self.bad, json.dumps(letter).encode())
            part.stream.errors.clear()
            part.offset, part.changed = block[-1].offset() + 1, True

    def checkpoint(self) -> None:
        """First the estimates, then the states that cover them, then Kafka's own offsets."""
        changed = {number: part for number, part in self.parts.items() if part.changed}
        if not changed:
            return
        self.output.confirm()
        for part in changed.values():
            part.save()
        self.commit({number: part.offset for number, part in changed.items()})

    def commit(self, offsets: dict[int, int]) -> None:
        """Tell Kafka how far this group is, for those who watch its lag; the states decide."""
        from confluent_kafka import KafkaException, TopicPartition

        places = [TopicPartition(self.topic, number, at) for number, at in offsets.items()]
        try:
            self.consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as error:  # the states are saved: nothing is lost
            sys.stderr.write(f"kafka: offsets are not committed: {error}\n")

    def close(self) -> None:
        """Leave the group; what was not saved is repeated by the next."""
        self.consumer.close()
        for part in self.parts.values():
            part.close()
        self.parts.clear()


# ---------------------------------------------------------------------- the command


def pairs(words: list[str]) -> dict[str, str]:
    """Settings NAME=VALUE of librdkafka."""
    found = dict(word.partition("=")[::2] for word in words)
    wrong = next((word for word in words if "=" not in word), None)
    if wrong is not None:
        raise SystemExit(f"{wrong!r} is not NAME=VALUE")
    return found


def main() -> int:
    """From one topic to another."""
    parser = argparse.ArgumentParser(description="kgmrf between two Kafka topics")
    parser.add_argument("--brokers", required=True)
    parser.add_argument("--input", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--bad")
    parser.add_argument("--group", default="kgmrf")
    parser.add_argument("--state", type=Path, required=True, help="folder of the states")
    parser.add_argument("--fields", help="as for kgmrf stream")
    parser.add_argument("--checkpoint-every", type=float, default=5.0, help="seconds")
    parser.add_argument("--most", type=int, default=100_000, help="estimates on their way")
    parser.add_argument("--patience", type=float, default=120.0, help="seconds for the broker")
    parser.add_argument("--consumer", nargs="*", default=[], metavar="NAME=VALUE")
    parser.add_argument("--producer", nargs="*", default=[], metavar="NAME=VALUE")
    requested = parser.parse_args()

    from confluent_kafka import Consumer, Producer

    requested.state.mkdir(parents=True, exist_ok=True)
    shared = {"bootstrap.servers": requested.brokers}
    consumer = Consumer(
        {
            **shared,
            "group.id": requested.group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "cooperative-sticky",
            **pairs(requested.consumer),
        }
    )
    timeout = {"message.timeout.ms": int(1000 * requested.patience)}
    idempotent = {"enable.idempotence": True, "acks": "all"}
    producer = Producer({**shared, **idempotent, **timeout, **pairs(requested.producer)})
    fields = None if requested.fields is None else tuple(requested.fields.split(","))
    output = Output(producer, requested.most, requested.patience)
    stop, settings = Stop(), Settings(on_error="skip", fields=fields)
    worker = Worker(
        settings,
        consumer,
        output,
        requested.state,
        to=requested.output,
        bad=requested.bad,
        every=requested.checkpoint_every,
    )
    with stop.on_signals():
        worker.subscribe(requested.input)
        try:
            worker.run(stop)
        except Undelivered as error:
            sys.stderr.write(f"kafka: {error}; nothing is saved, start again\n")
            return 1
        finally:
            with suppress(Undelivered):
                worker.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
