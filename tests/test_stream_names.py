"""Live streams: channels, keys and times by name, and the unit of time."""

from __future__ import annotations

import json
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgmrf import KGMRF
from kgmrf.io import open_source
from kgmrf.stream import Report, Settings, Stream, StreamError, run

EXACT = Settings(digits=17)
SKIP = Settings(digits=17, on_error="skip")
X = np.random.default_rng(0).standard_normal((40, 3)) * [1.0, 2.0, 3.0]


def named(first: int, last: int, order: str = "abc", **more: Any) -> list[bytes]:
    rows = [dict(zip("abc", row, strict=True)) for row in X[first:last].tolist()]
    return [
        json.dumps(
            {"key": "k", "time": first + t, "x": {n: row[n] for n in order}, **more}
        ).encode()
        for t, row in enumerate(rows)
    ]


def plain(first: int, last: int) -> list[bytes]:
    return [
        json.dumps({"key": "k", "time": t, "x": X[t].tolist()}).encode() for t in range(first, last)
    ]


def rows(first: int, last: int, order: str = "abc") -> list[bytes]:
    places = ["abc".index(name) for name in order]
    cells = [[f"k,{t}", *map(repr, X[t, places].tolist())] for t in range(first, last)]
    return [f"key,time,{','.join(order)}".encode(), *(",".join(row).encode() for row in cells)]


# ---------------------------------------------------------------------- channels


def test_json_objects_name_channels() -> None:
    """They were refused."""
    stream = Stream(EXACT)
    assert stream.take(named(0, 20) + named(20, 40, "cab")) == Stream(EXACT).take(plain(0, 40))


@pytest.mark.parametrize("how", ["json", "csv"])
def test_names_hold_after_a_restart(how: str, tmp_path: Path) -> None:
    """A header with other columns was data that is not a number, or none of these channels."""
    make = named if how == "json" else rows
    settings = Settings(digits=17, format=how)  # type: ignore[arg-type]
    whole = Stream(settings).take(make(0, 40))
    stream = Stream(settings)
    text = stream.take(make(0, 20))
    stream.save(tmp_path / "state")
    again = Stream(settings)
    again.restore(tmp_path / "state")
    assert text + again.take(make(20, 40, "bca")) == whole
    other = Stream(settings)
    other.restore(tmp_path / "state")
    wrong = [line.replace(b"c", b"z", 1) if how == "csv" else line for line in make(20, 40)]
    if how == "json":
        wrong = [line.replace(b'"c"', b'"z"') for line in wrong]
    with pytest.raises(StreamError, match="unknown channel 'z'"):
        other.take(wrong)


@pytest.mark.parametrize("how", ["json", "csv"])
def test_missing_channels_are_gaps_and_said_once(how: str) -> None:
    make = named if how == "json" else rows
    stream = Stream(Settings(digits=17, format=how))  # type: ignore[arg-type]
    text = (
        stream.take(make(0, 20)) + stream.take(make(20, 30, "ca")) + stream.take(make(30, 40, "ca"))
    )
    assert stream.remarks[-1] == "channels without a value count as not observed: 'b'"
    assert sum("not observed" in remark for remark in stream.remarks) == 1
    gaps = X.copy()
    gaps[20:, 1] = np.nan
    expected = KGMRF().filter(gaps).covariance[-1]
    if how == "json":
        found = np.array(json.loads(text.splitlines()[-1])["covariance"])
    else:
        found = np.array(text.splitlines()[-1].split(b",")[2:11], dtype=float).reshape(3, 3)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_columns_choose_the_channels() -> None:
    settings = Settings(digits=17, columns=("c", "a"))
    expected = Stream(EXACT).take(
        [
            json.dumps({"key": "k", "time": t, "x": X[t, [2, 0]].tolist()}).encode()
            for t in range(40)
        ]
    )
    assert Stream(settings).take(named(0, 40)) == expected
    table = Stream(Settings(digits=17, columns=("c", "a"), format="csv")).take(rows(0, 40))
    assert len(table.splitlines()[1].split(b",")) == 2 + 4 + 1
    with pytest.raises(StreamError, match="has no 'z'"):
        Stream(Settings(columns=("z", "a"), format="csv")).take(rows(0, 40))


# ---------------------------------------------------------------------- keys and times


def test_a_key_of_another_name_is_an_error() -> None:
    """Lines with device_id fell into track "" in silence."""
    lines = [b'{"key": "a", "time": 0, "x": [1]}', b'{"device_id": "b", "time": 0, "x": [1]}']
    stream = Stream(SKIP)
    stream.take(lines)
    assert stream.pool is not None
    assert stream.pool.names == ["a"]
    assert "has 'device_id' and no 'key'" in stream.errors[0].reason
    stream = Stream(SKIP)
    stream.take([b'{"time": 0, "x": [1]}', lines[1]])
    assert "has 'device_id' and no 'key'" in stream.errors[0].reason


def test_a_time_of_another_name_is_an_error() -> None:
    """Such a line came one unit after the one before, whatever its time."""
    stream = Stream(SKIP)
    stream.take([b'{"key": "a", "time": 0, "x": [1]}', b'{"key": "a", "ts": 9, "x": [1]}'])
    assert "has 'ts' and no 'time'" in stream.errors[0].reason
    assert stream.counts.used == 1


@pytest.mark.parametrize("first", ["1", '"1"'])
def test_a_number_and_a_word_are_not_one_key(first: str, tmp_path: Path) -> None:
    """1 and "1" were one track."""
    second = '"1"' if first == "1" else "1"
    lines = [
        f'{{"key": {key}, "time": {t}, "x": [1]}}'.encode() for t, key in enumerate([first] * 2)
    ]
    stream = Stream(SKIP)
    stream.take(lines)
    stream.save(tmp_path / "state")
    stream = Stream(SKIP)
    stream.restore(tmp_path / "state")
    stream.take([f'{{"key": {second}, "time": 5, "x": [1]}}'.encode()])
    assert stream.counts.used == 2
    assert "where the keys before were" in stream.errors[0].reason
    same = Stream(SKIP)
    same.take([b'{"key": 1, "time": 0, "x": [1]}', b'{"key": 1.0, "time": 1, "x": [1]}'])
    assert same.pool is not None
    assert same.pool.names == ["1"]


@pytest.mark.parametrize("name", ["time", "timestamp", "timestamps", "times", "ts", "created_at"])
def test_one_list_of_time_names(name: str, tmp_path: Path) -> None:
    """CSV `timestamps` became a channel, NPZ `timestamp` was dropped."""
    times = np.arange(40) * 0.5
    text = "\n".join(
        [
            f"a,b,c,{name}",
            *(
                ",".join(map(repr, [*x, t]))
                for x, t in zip(X.tolist(), times.tolist(), strict=True)
            ),
        ]
    )
    (tmp_path / "x.csv").write_text(text)
    np.savez(tmp_path / "x.npz", samples=X, **{name: times})
    for ending in ("csv", "npz"):
        source = open_source(tmp_path / f"x.{ending}")
        assert source.d == 3
        np.testing.assert_array_equal(next(iter(source)).times, times)
    pd = pytest.importorskip("pandas")
    assert KGMRF().filter(pd.read_csv(tmp_path / "x.csv")).channels == ("a", "b", "c")
    lines = [
        json.dumps({"key": "k", name: t, "x": x}).encode()
        for x, t in zip(X.tolist(), times.tolist(), strict=True)
    ]
    found = [json.loads(row)["time"] for row in Stream(EXACT).take(lines).splitlines()]
    assert found == times.tolist()
    stream = Stream(Settings(format="csv"))
    stream.take(text.encode().split(b"\n"))
    assert stream.reader.d == 3


def test_a_second_time_in_a_file_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("created_at,time,a\n5,0,1.5\n5,1,2.5\n")
    source = open_source(tmp_path / "x.csv")
    assert source.names == ("a",)
    assert next(iter(source)).times.tolist() == [0.0, 1.0]
    assert "'created_at' is another time" in source.remarks[0]


# ---------------------------------------------------------------------- units of time


def timed(unit: float, start: float = 0.0, keys: int = 3) -> list[bytes]:
    """Rows at 1, 2, 1, 2, ... units, the tracks in turn."""
    steps = np.cumsum(np.where(np.arange(40) % 2, 2.0, 1.0))
    return [
        json.dumps({"key": f"k{t % keys}", "time": start + unit * step, "x": row}).encode()
        for t, (step, row) in enumerate(zip(steps.tolist(), X.tolist(), strict=True))
    ]


def fields_of(text: bytes, name: str) -> np.ndarray:
    return np.array([json.loads(row)[name] for row in text.splitlines()], dtype=float)


@pytest.mark.parametrize(
    ("scale", "start"), [(1e3, 0.0), (1e-2, 0.0), (1e3, 1.7e9), (1e6, 1.7e9), (1e9, 1.7e9)]
)
def test_estimates_do_not_depend_on_the_unit_of_the_lines(scale: float, start: float) -> None:
    """Epoch milliseconds cost 0.7 nats a line, in silence."""
    settings = Settings(digits=12, fields=("covariance", "velocity", "half_life"))
    base = Stream(settings).take(timed(4.0, start * (start > 0)))
    stream = Stream(settings)
    text = stream.take(timed(4.0 * scale, start * scale))
    tolerance = {"rtol": 1e-6, "atol": 1e-9}
    np.testing.assert_allclose(
        fields_of(text, "covariance"), fields_of(base, "covariance"), **tolerance
    )
    velocity = fields_of(text, "velocity") * scale
    np.testing.assert_allclose(velocity, fields_of(base, "velocity"), **tolerance)
    half = fields_of(text, "half_life") / scale
    np.testing.assert_allclose(half[3:], fields_of(base, "half_life")[3:], rtol=1e-6)
    assert stream.remarks == [
        f"time unit {18.0 * scale:.6g}, the median of the first eight intervals; "
        "--time-unit fixes it"
    ]


def test_a_single_track_counts_as_a_tracker_does() -> None:
    steps = np.cumsum(np.random.default_rng(3).uniform(10.0, 30.0, 40))
    lines = [
        json.dumps({"key": "a", "time": t, "x": x}).encode()
        for t, x in zip(steps.tolist(), X.tolist(), strict=True)
    ]
    found = fields_of(Stream(EXACT).take(lines), "covariance")
    expected = KGMRF().filter(X, times=steps).covariance
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@given(st.lists(st.integers(0, 40), max_size=5), st.sampled_from([1, 3, 7]), st.booleans())
def test_cuts_do_not_change_the_unit(cuts: list[int], keys: int, saved: bool) -> None:
    lines = timed(250.0, 1.7e12, keys)
    whole, stream, text = Stream(EXACT), Stream(EXACT), b""
    expected = whole.take(lines)
    edges = [0, *sorted(cuts), 40]
    for first, last in pairwise(edges):
        text += stream.take(lines[first:last])
        if saved:
            stored, stream = stream.to_bytes(), Stream(EXACT)
            stream.from_bytes(stored)
    assert text == expected


def test_the_unit_is_told(tmp_path: Path) -> None:
    import io

    for n, words in ((40, "the first eight"), (6, "3 intervals")):
        (tmp_path / "in").write_bytes(b"".join(line + b"\n" for line in timed(250.0)[:n]))
        source, sink = os.open(tmp_path / "in", os.O_RDONLY), os.open(os.devnull, os.O_WRONLY)
        said = io.StringIO()
        run(Settings(), source, sink, report=Report(err=said))
        os.close(source)
        os.close(sink)
        assert "time unit" in said.getvalue()
        assert words in said.getvalue()


def test_a_unit_that_is_said_is_taken() -> None:
    stream = Stream(Settings(time_unit=5.0, digits=17))
    text = stream.take(timed(5.0, keys=1))
    steps = np.cumsum(np.where(np.arange(40) % 2, 2.0, 1.0))
    expected = KGMRF(time_unit=1.0).filter(X, times=steps).covariance
    np.testing.assert_allclose(fields_of(text, "covariance"), expected, rtol=1e-9)
    assert not stream.remarks
