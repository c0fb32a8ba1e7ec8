"""Late lines are sorted by a bounded buffer, however the input is cut, also over a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgmrf.stream import Settings, Stream, reorder

SORTED = Settings(on_error="skip", fields=("log_likelihood",), time_unit=1.0)
HELD = Settings(on_error="skip", fields=("log_likelihood",), time_unit=1.0, reorder=30.0)


def line(time: Any, key: str = "a", x: Any = (1.0, 2.0)) -> bytes:
    return json.dumps({"key": key, "time": time, "x": x}).encode()


def lines_of(n: int, keys: int, late: float, seed: int = 0) -> list[tuple[float, bytes]]:
    """Lines by time; of them one in a hundred arrives up to ``late`` later."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2)).round(3).tolist()
    made = [(float(k // keys), line(k // keys, f"k{k % keys}", x[k])) for k in range(n)]
    arrival = np.arange(n) / keys + np.where(rng.random(n) < 0.01, rng.uniform(0, late, n), 0.0)
    return [made[k] for k in np.argsort(arrival, kind="stable").tolist()]


def by_key(text: bytes) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {}
    for row in text.splitlines():
        found.setdefault(json.loads(row)["key"], []).append(row)
    return found


def test_shuffled_lines_are_all_used_and_give_what_sorted_lines_give() -> None:
    shuffled = lines_of(20_000, 10, 25.0)
    plain = Stream(SORTED)
    plain.take([text for _, text in shuffled])
    assert plain.counts.late > 100  # what the finding counted
    stream, text = Stream(HELD), b""
    for first in range(0, len(shuffled), 700):
        text += stream.take([row for _, row in shuffled[first : first + 700]])
    text += stream.flush()
    assert stream.counts.late == 0
    assert stream.counts.used == 20_000
    wanted = Stream(SORTED).take([row for _, row in sorted(shuffled, key=lambda one: one[0])])
    assert by_key(text) == by_key(wanted)


@given(
    cuts=st.lists(st.integers(0, 120), max_size=5),
    late=st.sampled_from([5.0, 40.0, 200.0]),
    stamps=st.lists(st.tuples(st.integers(0, 119), st.sampled_from([1e9, -5.0, 4e4])), max_size=3),
    saved=st.booleans(),
)
def test_cuts_and_restarts_change_nothing(
    cuts: list[int], late: float, stamps: list[Any], saved: bool
) -> None:
    """The same lines are late, and the order of the output is the same, also with wild stamps."""
    rows = [row for _, row in lines_of(120, 2, late, seed=3)]
    for at, stamp in stamps:
        rows[at] = line(stamp, "b")
    whole = Stream(HELD)
    wanted = whole.take(rows) + whole.flush()
    stream, text, edges = Stream(HELD), b"", [0, *sorted(cuts), 120]
    for a, b in pairwise(edges):
        text += stream.take(rows[a:b])
        if saved:
            old, stream = stream, Stream(HELD)
            stream.from_bytes(old.to_bytes())
    text += stream.flush()
    assert text == wanted
    assert stream.counts == whole.counts


def test_one_wrong_stamp_lets_nothing_go() -> None:
    stream = Stream(HELD)
    rows = [line(k) for k in range(10)]
    assert stream.take([*rows, line(1e8, "wrong"), line(9.5), line(8.5)]) == b""
    assert stream.held is not None
    assert len(stream.held) == 13
    out = stream.flush().splitlines()
    assert [json.loads(row)["time"] for row in out][:12] == [*range(9), 8.5, 9, 9.5]


def test_the_clock_follows_a_real_gap() -> None:
    stream = Stream(HELD)
    stream.take([line(k) for k in range(10)])
    text = stream.take([line(1e5), line(1e5 + 1)])
    assert len(text.splitlines()) == 10


def test_the_buffer_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reorder, "MOST_BYTES", 12_000)  # a hundred lines of two channels
    stream = Stream(HELD)
    text = b"".join(stream.take([line(0.01 * k)]) for k in range(500))
    assert stream.held is not None
    assert 50 < len(stream.held) < 200
    assert len(text.splitlines()) == 500 - len(stream.held)
    assert [note for note in stream.remarks if "--reorder" in note]
    assert len(stream.remarks) == 1


def test_a_line_that_cannot_be_used_keeps_its_number() -> None:
    settings = Settings(on_error="skip", time_unit=1.0, reorder=5.0, max_gap=50.0)
    stream = Stream(settings)
    stream.take([line(0), line(1), line(2), b"{", line(300)])
    stream.take([line(4), line(5)])
    stream.flush()
    assert [(fault.line, fault.reason[:8]) for fault in stream.errors] == [
        (4, "not JSON"),
        (5, "its time"),
    ]
    assert stream.counts.bad == 2


def test_what_cannot_be_held_is_refused() -> None:
    with pytest.raises(ValueError, match="--reorder needs --on-error skip"):
        Stream(Settings(reorder=1.0))
    stream = Stream(HELD)
    stream.take([line(0), b'{"key": "a", "x": [1, 2]}'])
    assert "no time, and --reorder needs one" in stream.errors[0].reason
    with pytest.raises(ValueError, match="1 lines that wait for their turn; give --reorder"):
        Stream(SORTED).from_bytes(stream.to_bytes())


@pytest.mark.parametrize("how", ["terminated", "killed"])
def test_a_stream_that_is_stopped_loses_nothing(how: str, tmp_path: Path) -> None:
    """SIGTERM hands on all lines; after a kill they are part of the checkpoint."""
    state = tmp_path / "state"
    call = [sys.executable, "-m", "kgmrf", "stream", "-q", "--reorder", "30", "--on-error", "skip"]
    call += ["--state", str(state), "--fields", "log_likelihood", "--checkpoint-every", "0"]
    call += ["--time-unit", "1"]
    rows = [row for _, row in lines_of(200, 2, 20.0)]

    def started() -> subprocess.Popen[bytes]:
        return subprocess.Popen(call, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    first = started()
    assert first.stdin is not None
    assert first.stdout is not None
    first.stdin.write(b"\n".join(rows[:150]) + b"\n")
    first.stdin.flush()
    out = first.stdout.readline()  # 75 units of time: some are due
    if how == "killed":
        while not state.exists():
            pass
        first.kill()
        first.stdin.close()
        out += first.stdout.read()
        whole = Stream(HELD)
        whole.restore(state)
        assert whole.counts.lines == 150
    else:
        os.kill(first.pid, signal.SIGTERM)
        out += first.stdout.read()
        first.stdin.close()
        assert len(out.splitlines()) == 150
    first.wait()
    second = started()
    out += second.communicate(b"\n".join(rows[150:]) + b"\n")[0]
    assert second.returncode == 0
    assert {json.loads(row)["key"] for row in out.splitlines()} == {"k0", "k1"}
    if how == "killed":
        assert len({*out.splitlines()}) == 200  # all; since the checkpoint perhaps twice
