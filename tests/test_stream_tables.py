"""Streams of tables: Arrow and Parquet give what JSON lines give, also cut, torn and restarted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from base64 import b64decode
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgmrf.stream import Report, Settings, Stream, StreamError, run
from kgmrf.stream.endpoints import Stop
from kgmrf.stream.table_endpoints import MessageSink, whole_messages

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")

N, KEYS, CHANNELS = 90, 4, ("a", "b", "c")
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, 3)) * [1.0, 2.0, 3.0]
X[5, 1] = np.nan
TIMES = np.arange(N) // KEYS * 0.5
WORDS = [f"k{k % KEYS}" for k in range(N)]


def table(first: int = 0, last: int = N, order: tuple[str, ...] = CHANNELS, **more: Any) -> Any:
    columns: dict[str, Any] = {"key": WORDS[first:last], "time": TIMES[first:last]}
    columns |= {name: X[first:last, CHANNELS.index(name)] for name in order}
    return pa.table({**columns, **more})


def lines(first: int = 0, last: int = N) -> list[bytes]:
    rows = np.where(np.isnan(X), None, X).tolist()
    return [
        json.dumps({"key": WORDS[k], "time": TIMES[k], "x": rows[k]}).encode()
        for k in range(first, last)
    ]


def as_stream(found: Any, rows: int = 17) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, found.schema) as writer:
        writer.write_table(found, max_chunksize=rows)
    return sink.getvalue().to_pybytes()


def as_file(found: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, found.schema) as writer:
        writer.write_table(found, max_chunksize=17)
    return sink.getvalue().to_pybytes()


def as_parquet(found: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(found, sink, row_group_size=13)
    return sink.getvalue().to_pybytes()


FORMS = {
    "stream": ("arrow", as_stream),
    "file": ("arrow", as_file),
    "parquet": ("parquet", as_parquet),
}


def through(
    content: bytes, folder: Path, form: str = "arrow", *, append: bool = False, **more: Any
) -> Any:
    """The table that a run over this content writes."""
    given, out = folder / "in", folder / "out"
    given.write_bytes(content)
    how = os.O_RDWR | os.O_CREAT | (os.O_APPEND if append else os.O_TRUNC)
    source, sink = os.open(given, os.O_RDONLY), os.open(out, how)
    words = {name: more.pop(name) for name in ("state", "replay", "report") if name in more}
    try:
        run(Settings(format=form, **more), source, sink, **words)  # type: ignore[arg-type]
    finally:
        os.close(source)
        os.close(sink)
    return written(out, form)


def written(out: Path, form: str = "arrow") -> Any:
    if form == "parquet":
        return pq.read_table(out)
    with pa.OSFile(str(out)) as file:
        return pa.ipc.open_stream(file).read_all()


def expected(first: int = 0, last: int = N, **more: Any) -> list[dict[str, Any]]:
    text = Stream(Settings(digits=17, **more)).take(lines(first, last))
    return [json.loads(line) for line in text.splitlines()]


def rows_of(found: Any) -> list[dict[str, Any]]:
    plain = json.dumps(found.to_pylist()).replace("NaN", "null")
    return json.loads(plain)


# ---------------------------------------------------------------------- the same numbers


@pytest.mark.parametrize("name", FORMS)
def test_tables_give_what_json_gives(name: str, tmp_path: Path) -> None:
    form, make = FORMS[name]
    assert rows_of(through(make(table()), tmp_path, form)) == expected()


@pytest.mark.parametrize("rows", [1, 4, N])
def test_batches_change_nothing(rows: int, tmp_path: Path) -> None:
    fields = ("covariance", "age", "log_likelihood")
    found = through(as_stream(table(), rows), tmp_path, fields=fields)
    assert rows_of(found) == expected(fields=fields)


def test_lists_are_observations_as_in_json(tmp_path: Path) -> None:
    values = X.tolist()
    found = pa.table({"key": WORDS, "time": TIMES, "x": pa.array(values, pa.list_(pa.float64()))})
    assert rows_of(through(as_stream(found), tmp_path)) == expected()
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), 3)
    found = pa.table({"key": WORDS, "time": TIMES, "x": fixed})
    assert rows_of(through(as_stream(found), tmp_path)) == expected()


def test_rows_before_the_first_observation_of_all(tmp_path: Path) -> None:
    """As in JSON: nothing is known yet, not even d."""
    rows = [None, None, [1.0, 2.0], None, [3.0, 1.0]]
    found = pa.table({"key": list("abbaa"), "time": np.arange(5.0), "x": rows})
    text = [json.dumps(row).encode() for row in found.to_pylist()]
    wanted = Stream(Settings(digits=17)).take(text).splitlines()
    assert rows_of(through(as_stream(found, 9), tmp_path)) == [json.loads(line) for line in wanted]


def test_matrices_in_lists(tmp_path: Path) -> None:
    turns = [np.eye(3).tolist()] * 6
    found = pa.table({"time": np.arange(6.0), "rotation": turns})
    text = [json.dumps({"time": t, "rotation": turns[0]}).encode() for t in range(6)]
    wanted = Stream(Settings(digits=17)).take(text).splitlines()
    assert rows_of(through(as_stream(found), tmp_path)) == [json.loads(line) for line in wanted]
    seen = (np.swapaxes(X[:40].reshape(5, 8, 3), 1, 2) @ X[:40].reshape(5, 8, 3) / 8)[1:]
    found = pa.table({"time": np.arange(4.0), "covariance": seen.tolist(), "n_samples": [8] * 4})
    text = [
        json.dumps({"time": t, "covariance": m, "n_samples": 8}).encode()
        for t, m in enumerate(seen.tolist())
    ]
    wanted = Stream(Settings(digits=17)).take(text).splitlines()
    assert rows_of(through(as_stream(found), tmp_path)) == [json.loads(line) for line in wanted]


def test_keys_and_dates_come_back_in_their_types(tmp_path: Path) -> None:
    stamps = pa.array((TIMES * 2e6).astype(np.int64)).cast(pa.timestamp("us", tz="UTC"))
    numbers = np.arange(N) % KEYS
    found = table(key=pa.array(numbers).dictionary_encode(), time=stamps)
    back = through(as_stream(found), tmp_path)
    assert back.column("key").to_pylist() == numbers.tolist()
    assert back.column("time").type == pa.timestamp("us", tz="UTC")
    assert back.column("time").to_pylist() == stamps.to_pylist()
    wanted = np.array([row["covariance"] for row in expected()])
    # Nanoseconds as seconds are rounded, so the intervals are.
    np.testing.assert_allclose(back.column("covariance").to_pylist(), wanted, rtol=1e-9)


def test_nanoseconds_since_1970_are_times(tmp_path: Path) -> None:
    """They are no whole numbers in double precision."""
    stamps = (1_700_000_000 + 2 * TIMES).astype(np.int64) * 10**9 + 123_456_789
    back = through(as_parquet(table(time=stamps)), tmp_path, "parquet", fields=("log_likelihood",))
    wanted = [row["log_likelihood"] for row in expected(fields=("log_likelihood",))]
    assert rows_of(back.select(["log_likelihood"])) == [{"log_likelihood": v} for v in wanted]


# ---------------------------------------------------------------------- names


def test_channels_go_by_name_after_a_restart(tmp_path: Path) -> None:
    state = tmp_path / "state"
    through(as_stream(table(0, 40)), tmp_path, state=state)
    back = through(as_stream(table(40, N, ("c", "a", "b"))), tmp_path, state=state, append=True)
    assert rows_of(back) == expected()
    with pytest.raises(StreamError, match="unknown channel 'z'"):
        through(
            as_stream(table(40, N).append_column("z", pa.array(TIMES[40:]))), tmp_path, state=state
        )
    state.unlink()
    through(as_stream(table(0, 40)), tmp_path, state=state)
    with pytest.raises(StreamError, match="where the keys before were words"):
        through(as_stream(table(40, N, key=np.arange(40, N))), tmp_path, state=state)


def test_parquet_and_arrow_share_a_state(tmp_path: Path) -> None:
    """A night's file first, then live."""
    state = tmp_path / "state"
    first = through(as_parquet(table(0, 40)), tmp_path, "parquet", state=state)
    second = through(as_stream(table(40, N)), tmp_path, state=state)
    assert rows_of(first) + rows_of(second) == expected()


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"city": ["x"] * N}, r"column 'city' holds string, not numbers"),
        ({"time": ["x"] * N}, r"time 'time' holds string"),
        ({"key": TIMES}, r"key 'key' holds double"),
        ({"sensor": ["s"] * N, "key": None}, None),
    ],
)
def test_columns_that_cannot_be_used(columns: Any, told: str | None, tmp_path: Path) -> None:
    found = table()
    for name, values in columns.items():
        if name in found.column_names:
            found = found.drop_columns([name])
        if values is not None:
            found = found.append_column(name, pa.array(values))
    if told is None:
        assert {row["key"] for row in rows_of(through(as_stream(found), tmp_path))} == {"s"}
        return
    with pytest.raises(StreamError, match=told):
        through(as_stream(found), tmp_path)


def test_bad_rows_are_named_and_kept(tmp_path: Path) -> None:
    values = X.copy()
    values[7, 0], values[11, 2] = np.inf, 1e80
    found = (
        table()
        .set_column(2, "a", pa.array(values[:, 0]))
        .set_column(4, "c", pa.array(values[:, 2]))
    )
    with pytest.raises(StreamError, match="line 8: infinite"):
        through(as_stream(found), tmp_path)
    assert rows_of(written(tmp_path / "out")) == expected(0, 7)
    letters = tmp_path / "bad"
    through(as_stream(found), tmp_path, on_error="skip", report=Report(bad_lines=letters))
    bad = [json.loads(line) for line in letters.read_text().splitlines()]
    assert [letter["line"] for letter in bad] == [8, 12]
    assert json.loads(bad[1]["text"])["c"] == 1e80


def test_lists_of_another_length_get_the_remedy(tmp_path: Path) -> None:
    found = pa.table({"key": ["a", "b"], "x": [[1.0, 2.0], [1.0]]})
    with pytest.raises(StreamError, match=r"expected \(2,\).*one stream for each"):
        through(as_stream(found), tmp_path)


# ---------------------------------------------------------------------- files that end early


def test_a_torn_message_of_the_output_is_written_again(tmp_path: Path) -> None:
    state, out = tmp_path / "state", tmp_path / "out"
    through(as_stream(table(0, 40)), tmp_path, state=state)
    before = state.read_bytes()
    through(as_stream(table(40, 70)), tmp_path, state=state, append=True)
    state.write_bytes(before)  # killed before the checkpoint, in the middle of a message
    with open(out, "r+b") as file:
        file.truncate(out.stat().st_size - 100)
    found = rows_of(through(as_stream(table(40, N)), tmp_path, state=state, append=True))
    wanted = expected()
    assert found[:40] == wanted[:40]
    assert [row for row in wanted if row not in found] == []
    assert found[-50:] == wanted[-50:]


def test_a_torn_input_leaves_a_checkpoint(tmp_path: Path) -> None:
    state, content = tmp_path / "state", as_stream(table())
    with pytest.raises(StreamError, match="torn"):
        through(content[: len(content) // 2], tmp_path, state=state)
    whole = len(rows_of(written(tmp_path / "out")))
    assert 0 < whole < N
    back = through(content, tmp_path, state=state, replay=True, append=True)
    assert rows_of(back) == expected()


def test_streams_may_follow_one_another(tmp_path: Path) -> None:
    content = as_stream(table(0, 40)) + as_stream(table(40, N))
    assert rows_of(through(content, tmp_path)) == expected()


@pytest.mark.parametrize(
    "content", [b"PAR1", b"{}\n" * 40, b"\xff\xff\xff\xff\x00", b"ARROW1aaaaaaa"]
)
@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_what_is_no_table(content: bytes, form: str, tmp_path: Path) -> None:
    with pytest.raises(StreamError, match=rf"no {form}|from its end"):
        through(content, tmp_path, form)


def test_parquet_is_whole_or_not_there(tmp_path: Path) -> None:
    """Its estimates can be read when it is ended, so no checkpoint comes before."""
    state = tmp_path / "state"
    bad = table().set_column(2, "a", pa.array(np.where(np.arange(N) == 50, np.inf, X[:, 0])))
    with pytest.raises(StreamError, match="line 51"):
        through(as_parquet(bad), tmp_path, "parquet", state=state)
    assert rows_of(written(tmp_path / "out", "parquet")) == expected(0, 50)
    with pytest.raises(ValueError, match="nothing can be appended"):
        through(as_parquet(table()), tmp_path, "parquet", state=state, append=True)


def test_another_output_than_the_states(tmp_path: Path) -> None:
    state = tmp_path / "state"
    through(as_stream(table(0, 40)), tmp_path, state=state)
    with pytest.raises(ValueError, match="same --fields"):
        through(as_stream(table(40, N)), tmp_path, state=state, fields=("age",), append=True)
    with pytest.raises(ValueError, match="appended to a file with other columns"):
        through(as_stream(table()), tmp_path, append=True)


# ---------------------------------------------------------------------- live


def test_a_batch_is_answered_before_the_next_and_sigterm_ends_in_order(tmp_path: Path) -> None:
    state = tmp_path / "state"
    call = [sys.executable, "-m", "kgmrf", "stream", "--format", "arrow", "--state", str(state)]
    with subprocess.Popen(call, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        writer = pa.ipc.new_stream(process.stdin, table().schema)
        reader = None
        for first in (0, 30):
            writer.write_table(table(first, first + 30))
            process.stdin.flush()
            reader = reader or pa.ipc.open_stream(process.stdout)
            assert len(reader.read_next_batch()) == 30
        process.terminate()
        assert process.wait(20) == 0
    stream = Stream(Settings(format="arrow"))
    stream.restore(state)
    assert stream.counts.used == 60


def test_what_a_blocked_reader_did_not_take_comes_after_the_restart() -> None:
    """Whole messages stay, and the schema comes by itself."""
    stream = Stream(Settings(format="arrow"))
    parts = [stream.take(batch) for batch in table().to_batches(max_chunksize=20)]
    far, near = os.pipe()
    os.set_blocking(near, False)
    stop = Stop()
    sink = MessageSink(near, stop, lambda: stream.header[0])
    stop.signal = 15
    sink.write(b"".join(parts) * 40)  # more than a pipe holds
    os.close(near)
    with os.fdopen(far, "rb") as file:
        got = file.read()
    again = MessageSink(os.open(os.devnull, os.O_WRONLY), Stop(), lambda: stream.header[0])
    again.keep(sink.pending)
    whole = got[: whole_messages(got, len(got))]
    rest = b64decode(stream.header[0]) + again.pending
    first, second = (pa.ipc.open_stream(pa.py_buffer(text)).read_all() for text in (whole, rest))
    assert len(first) + len(second) == N * 40
    assert 0 < len(first) < N * 40
