"""The Kafka recipe, on files: every message once, also after a restart from an older state."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from kgmrf.stream import Settings, Stream
from kgmrf.stream.ends import Stop

SCRIPT = Path(__file__).parents[1] / "examples" / "kafka_stream.py"
pytestmark = pytest.mark.skipif(not SCRIPT.exists(), reason="a copy without the examples")


@pytest.fixture
def example() -> Any:
    spec = importlib.util.spec_from_file_location("kafka_stream", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_messages_go_through_and_restarts_repeat(example: Any, tmp_path: Path) -> None:
    lines = [
        json.dumps({"key": "ab"[k % 2], "time": k, "x": [k % 3, k % 5]}).encode() for k in range(60)
    ]
    source = tmp_path / "in.jsonl"
    source.write_bytes(b"\n".join([*lines[:30], b"{", *lines[30:]]))
    settings, state = Settings(on_error="skip"), tmp_path / "state"

    def life(n: int | None, block: int) -> dict[str, int]:
        stream, offsets = example.resumed(settings, state)
        consumer = example.FileConsumer(source, offsets.get("0", 0))
        consumer.lines = consumer.lines[:n]
        return example.follow(
            stream,
            consumer,
            example.FileProducer(tmp_path),
            output="out",
            bad="bad",
            state=state,
            offsets=offsets,
            stop=Stop(),
            block=block,
            idle=1,
        )

    assert life(20, 7) == {"0": 20}
    shutil.copy(state, tmp_path / "old")
    assert life(40, 7) == {"0": 40}
    shutil.copy(tmp_path / "old", state)  # it was killed before the checkpoint
    assert life(None, 9) == {"0": 61}
    found = (tmp_path / "out.jsonl").read_bytes().splitlines()
    wanted = Stream(settings).take(lines).splitlines()
    assert found == [*wanted[:39], *wanted[20:]]
    bad = [json.loads(line) for line in (tmp_path / "bad.jsonl").read_text().splitlines()]
    assert [letter["text"] for letter in bad] == ["{", "{"]


def test_it_uses_what_confluent_kafka_has(example: Any) -> None:
    kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
    for kind, names in (
        (kafka.Consumer, ("consume", "assign", "list_topics", "close")),
        (kafka.Producer, ("produce", "poll", "flush")),
        (kafka.Message, ("value", "offset", "partition", "error")),
    ):
        assert all(hasattr(kind, name) for name in names)
