"""The rules of a stream: strict lines, names, dates, clocks that jump, tracks forgotten."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgmrf import KGMRF
from kgmrf.model.centring import RunningMean
from kgmrf.stream import Settings, Stream, StreamError
from kgmrf.stream.csv_lines import CsvReader
from kgmrf.stream.json_lines import JsonReader

SKIP = Settings(on_error="skip")


def line(time: Any, key: str = "a", x: Any = (1.0, 2.0), **more: Any) -> bytes:
    return json.dumps({"key": key, "time": time, "x": x, **more}).encode()


def estimates(text: bytes) -> list[dict[str, Any]]:
    return [json.loads(row) for row in text.splitlines()]


def times(text: bytes) -> list[Any]:
    return [row["time"] for row in estimates(text)]


# ---------------------------------------------------------------------- strict lines


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"time": []}, "'time' is an array, not a number"),
        ({"time": [5]}, "'time' is an array, not a number"),
        ({"time": True}, "'time' is true or false, not a number"),
        ({"time": {}}, "'time' is an object, not a number"),
        ({"x": ["1", "2"]}, "'x' is not an array of numbers"),
        ({"x": [True, 2]}, "'x' is not an array of numbers"),
        ({"x": [[1, 2]]}, "'x' is not an array of numbers"),
        ({"x": {"0": 1}}, "'x' names its channels, where lines before had arrays"),
        ({"x": [10**400, 1]}, "number is infinity"),
        ({"key": ["a"]}, "'key' is not a word or a number of at most 64 bits"),
        ({"n_samples": "8"}, "'n_samples' is '8', not a number"),
    ],
)
def test_only_numbers_are_numbers(fields: dict[str, Any], fault: str) -> None:
    """An empty array as time ended the stream; [5], true and words were taken as numbers."""
    bad = json.dumps({"key": "a", "time": 1.5, "x": [1.0, 2.0], **fields}).encode()
    lines = [line(0), line(1), bad, line(2)]
    skipping = Stream(SKIP)
    assert skipping.take(lines) == Stream(SKIP).take([line(0), line(1), line(2)])
    assert [(f.line, f.text) for f in skipping.errors] == [(3, bad)]
    assert fault in skipping.errors[0].reason
    with pytest.raises(StreamError, match=r"^line 3: ") as caught:
        Stream(Settings()).take(lines)
    assert times(caught.value.before) == [0, 1]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (b'{"key":"a","time":1,"x":[1', b'2]},{"key":"a","time":2,"x":[3,4]}'),
        (b'{"k":[{}', b'{"x":[1,2]}]},{"key":"a","time":2,"x":[3,4]}'),
        (b'{"key":"a","time":1,"x":[1,2]},{"key":"a","time":2,"x":[3', b"4]}"),
    ],
)
def test_broken_lines_do_not_join(first: bytes, second: bytes) -> None:
    """Two broken lines could join into valid records."""
    stream = Stream(SKIP)
    found = stream.take([line(0), first, second, line(5)])
    assert times(found) == [0, 5]
    assert stream.counts.bad == 2


def test_a_sample_that_cannot_be_squared_is_a_bad_line() -> None:
    """A sample of 1e200 made its track null for ever, also in the checkpoint."""
    for good, bad in (
        ([line(0), line(2)], line(1, x=[1e200, 1.0])),
        ([b"key,time,p,q", b"a,0,1,2", b"a,2,1,2"], b"a,1,1e200,1"),
    ):
        settings = Settings(on_error="skip", format="csv" if b"," in good[0][:5] else "json")
        stream, plain = Stream(settings), Stream(settings)
        assert stream.take([*good[:-1], bad, good[-1]]) == plain.take(good)
        assert "1e+200 is beyond the 1e+75" in stream.errors[0].reason
    with pytest.raises(StreamError, match="beyond the 1e"):
        Stream(Settings()).take_rows(["a"], np.zeros(1), np.array([[1e200, 1.0]]))


def test_a_block_of_bad_lines_is_skipped_in_a_loop() -> None:
    """One call per bad line: 900 of them in a block were a RecursionError."""
    lines = [line(0), *[b"{"] * 5000, line(1), *[b'{"x": 3}'] * 5000, line(2)]
    stream = Stream(SKIP)
    assert times(stream.take(lines)) == [0, 1, 2]
    assert (stream.counts.bad, stream.counts.lines) == (10_000, 10_003)
    matrices = Stream(SKIP)
    good = json.dumps({"covariance": [[2.0, 0.0], [0.0, 1.0]], "n_samples": 5}).encode()
    none = json.dumps({"covariance": [[1.0, 3.0], [3.0, 1.0]], "n_samples": 5}).encode()
    assert len(estimates(matrices.take([good, *[none] * 3000, good]))) == 2


json_text = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
records = st.fixed_dictionaries(
    {"x": json_text | st.lists(st.floats(-10, 10), min_size=2, max_size=2)},
    optional={"key": json_text, "time": json_text, "n_samples": json_text},
)


@given(st.lists(records | json_text, max_size=8), st.integers(0, 8))
def test_any_json_is_used_or_a_fault(found: list[Any], cut: int) -> None:
    lines = [line(0, key="first"), *[json.dumps(r).encode() for r in found]]
    stream = Stream(SKIP)
    text = stream.take(lines[:cut]) + stream.take(lines[cut:])
    assert stream.counts.lines == len(lines)
    rows = estimates(text)
    assert len(rows) + stream.counts.bad + stream.counts.late + stream.counts.duplicate == len(
        lines
    )


# ---------------------------------------------------------------------- names and dates


def test_usual_names_of_key_and_time() -> None:
    """A header sensor,ts gave "column sensor: k1 is not a number"."""
    plain = Stream(Settings(format="csv")).take([b"key,time,p,q", b"k1,3,1,2", b"k2,5,2,1"])
    for header in (b"sensor,ts,p,q", b"Device_ID,Timestamp,p,q", b"symbol,epoch,p,q"):
        assert Stream(Settings(format="csv")).take([header, b"k1,3,1,2", b"k2,5,2,1"]) == plain
    chosen = Settings(format="csv", key="who", time="when")
    assert Stream(chosen).take([b"who,when,p,q", b"k1,3,1,2", b"k2,5,2,1"]) == plain
    wanted = Stream(Settings()).take([line(3, "k1"), line(5, "k2")])
    for key, time in (("sensor", "ts"), ("key", "timestamp"), ("who", "when")):
        lines = [
            json.dumps({key: k, time: t, "x": [1.0, 2.0]}).encode()
            for k, t in (("k1", 3), ("k2", 5))
        ]
        settings = Settings(key=key, time=time) if key == "who" else Settings()
        stream = Stream(settings)
        assert stream.take(lines[:1]) + stream.take(lines[1:]) == wanted


@pytest.mark.parametrize(
    ("header", "row", "fault"),
    [
        (
            b"sensor,device,ts,p",
            b"a,b,1,2",
            "'sensor' or 'device' may be the key; choose with --key",
        ),
        (b"thing,ts,p,q", b"k1,0,1,2", "if it names the track, give --key thing"),
        (b"key,ts,epoch,p", b"a,1,2,3", "'ts' or 'epoch' may be the time; choose with --time"),
    ],
)
def test_names_that_are_not_understood_come_with_a_remedy(
    header: bytes, row: bytes, fault: str
) -> None:
    with pytest.raises(StreamError, match=r"^line [12]: ") as caught:
        Stream(Settings(format="csv")).take([header, row])
    assert fault in str(caught.value)


@pytest.mark.parametrize("form", ["json", "csv"])
def test_dates_go_in_and_come_out(form: str, tmp_path: Path) -> None:
    """ISO time stamps were refused, although files may have them."""
    stamps = ["2024-03-01T10:00:00Z", "2024-03-01T10:00:01Z", "2024-03-01T11:00:02.5+01:00"]
    back = ["2024-03-01T10:00:00Z", "2024-03-01T10:00:01Z", "2024-03-01T10:00:02.500000Z"]
    rows = [line(t) for t in stamps]
    numbers = [line(t) for t in (0.0, 1.0, 2.5)]
    if form == "csv":
        rows = [b"key,time,p,q", *(f"a,{t},1.0,2.0".encode() for t in stamps)]
        numbers = [b"key,time,p,q", *(f"a,{t},1.0,2.0".encode() for t in (0.0, 1.0, 2.5))]
    settings = Settings(format=form, fields=("covariance",))
    whole = Stream(settings).take(rows)
    for stamp in back:
        assert stamp.encode() in whole
    values = Stream(settings).take(numbers)
    for stamp, number in zip(back, (b"0.0", b"1.0", b"2.5"), strict=True):
        mark = b'"' if form == "json" else b""
        whole = whole.replace(mark + stamp.encode() + mark, number)
    assert whole == values
    # The style is part of the state.
    first = Stream(settings)
    text = first.take(rows[:-1])
    first.save(tmp_path / "s")
    second = Stream(settings)
    second.restore(tmp_path / "s")
    assert back[-1].encode() in text + second.take(rows[-1:])


@pytest.mark.parametrize("names", [("secs", "nsecs"), ("sec", "nanosec")])
def test_headers_of_ros_hold_the_time(names: tuple[str, str]) -> None:
    """Their stamps were ignored, and lines were counted."""
    whole, parts = names
    stamps = [{whole: 12}, {whole: 12, parts: 500_000_000}, {whole: "x"}, {}]
    lines = [
        json.dumps({"header": {"seq": 1, "stamp": s}, "quaternion": [0, 0, 0, 1]}).encode()
        for s in stamps
    ]
    early = json.dumps({"header": {"stamp": {whole: 11}}}).encode()  # moves the track on
    found = JsonReader().parse([early, *lines])
    assert found.times.tolist() == [12.0, 12.5]
    assert found.errors == {
        3: f"'header.stamp.{whole}' is 'x', not a number",
        4: "'header' is an object, not a number",
    }
    both = JsonReader().parse([b'{"time": 3, "header": {"stamp": {"secs": 12}}, "x": [1]}'])
    assert both.times.tolist() == [3.0]
    aside = JsonReader().parse([b'{"header": {"seq": 12}, "x": [1]}'])
    assert np.isnan(aside.times).all()


def test_flat_stamps_of_ros_have_nanoseconds() -> None:
    """Those of JSON were ignored in silence, in CSV they were a channel."""
    for name in ("header.stamp.secs", "stamp_sec"):
        rest = name.replace("sec", "nsec")
        lines = [
            json.dumps({name: 12, rest: part, "x": [1, 2]}).encode()
            for part in (0, 500_000_000, "x")
        ]
        found = JsonReader().parse([json.dumps({name: 11, rest: 0}).encode(), *lines])
        assert found.times.tolist() == [12.0, 12.5]
        assert found.errors == {3: f"{rest!r} is 'x', not a number"}
        rows = [f"{name},{rest},a,b", "12,0,1,2", "12,500000000,1,2", "12,x,1,2"]
        for n in (3, 4):  # plain rows are read at once, others one by one
            found = CsvReader().parse([row.encode() for row in rows[:n]])
            assert found.times.tolist() == [12.0, 12.5]
            assert found.values.tolist() == [[1.0, 2.0]] * 2
        assert found.errors == {3: f"{rest!r} is 'x', not a number"}
    stream = Stream(Settings())
    text = stream.take(lines[:1])
    assert times(text) == [12.0]


@pytest.mark.parametrize("name", ["time", "ts", "timestamp"])
def test_a_time_of_its_own_wins_over_a_stamp_of_ros(name: str) -> None:
    """Flat names were the time beside ``time``, nested ones were not."""
    flat = {"header.stamp.secs": 12, "header.stamp.nsecs": 5}
    for stamp in (flat, {"header": {"stamp": {"secs": 12, "nsecs": 5}}}):
        for record in ({**stamp, name: 3, "x": [1, 2]}, {name: 3, "x": [1, 2], **stamp}):
            assert JsonReader().parse([json.dumps(record).encode()]).times.tolist() == [3.0]
    for header, row in (
        (f"{name},header.stamp.secs,header.stamp.nsecs,p", b"3,12,5,1"),
        (f"header.stamp.secs,header.stamp.nsecs,{name},p", b"12,5,3,1"),
    ):
        found = CsvReader().parse([header.encode(), row])
        assert (found.times.tolist(), found.values.tolist()) == ([3.0], [[1.0]])


def test_nanoseconds_need_seconds() -> None:
    """Nanoseconds alone were ignored: the line was taken in without a time."""
    good = {"header.stamp.secs": 12, "header.stamp.nsecs": 5, "x": [1, 2]}
    for first in (good, {"x": [1, 2]}, None):
        for bad in (
            {"header.stamp.nsecs": 5, "x": [1, 2]},
            {"header.stamp.secs": None, "header.stamp.nsecs": 5, "x": [1, 2]},
            {"header": {"stamp": {"nsecs": 5}}, "x": [1, 2]},
        ):
            if first is not None and "header" in bad:
                continue  # where the first line has flat names, or none, these are its own matter
            records = [bad] if first is None else [first, bad]
            found = JsonReader().parse([json.dumps(r).encode() for r in records])
            (reason,) = found.errors.values()
            assert reason.startswith("has nanoseconds, 'header.stamp.nsecs', without seconds")
            assert len(found.keys) == len(records) - 1
    # The first line may have none: they count in those that have.
    found = JsonReader().parse(
        [b'{"stamp_sec": 1, "x": [1]}', b'{"stamp_sec": 1, "stamp_nsec": 5e8, "x": [1]}']
    )
    assert found.times.tolist() == [1.0, 1.5]
    with pytest.raises(
        StreamError, match=r"line 1: has nanoseconds, 'header.stamp.nsecs', without"
    ):
        Stream(Settings(format="csv")).take([b"header.stamp.nsecs,p,q", b"5,1,2"])


def test_lines_after_the_one_that_stops_a_stream_move_no_clock(tmp_path: Path) -> None:
    """The clock of a track was ahead of its lines in the checkpoint of a stream that stopped."""
    stream = Stream(Settings())
    with pytest.raises(StreamError, match=r"^line 3: its time"):
        stream.take([line(0), line(0, "b"), line(1e15, "b"), line(5)])
    assert stream.pool is not None
    assert stream.pool.columns["last"][:2].tolist() == [0.0, 0.0]
    assert times(stream.take([line(1), line(1, "b")])) == [1.0, 1.0]


def test_dates_and_numbers_do_not_mix() -> None:
    stream = Stream(SKIP)
    assert times(stream.take([line("2024-03-01"), line(5.0), line("2024-03-02")])) == [
        "2024-03-01",
        "2024-03-02",
    ]
    assert "where lines before had dates" in stream.errors[0].reason
    other = Stream(SKIP)
    other.take([line(5.0), line("2024-03-01")])
    assert "where lines before had numbers" in other.errors[0].reason


# ---------------------------------------------------------------------- clocks that jump


def test_one_stamp_in_the_far_future_is_set_aside() -> None:
    """One stamp in the far future silenced its key, which was told only at the end."""
    stream = Stream(SKIP)
    found = times(stream.take([line(0), line(1), line(1e15), line(2), line(3)]))
    assert found == [0, 1, 2, 3]
    assert [fault.line for fault in stream.errors] == [3]
    assert "more than --max-gap 1e+06" in stream.errors[0].reason
    with pytest.raises(StreamError, match=r"^line 3: its time is \+1e\+15 from the line") as caught:
        Stream(Settings()).take([line(0), line(1), line(1e15), line(2)])
    assert times(caught.value.before) == [0, 1]


def test_a_jump_is_believed_when_the_next_line_agrees() -> None:
    stream = Stream(SKIP)
    found = times(stream.take([line(0), line(1), line(5e6), line(5e6 + 1), line(5e6 + 2)]))
    assert found == [0, 1, 5e6 + 1, 5e6 + 2]
    assert stream.counts.bad == 1
    wide = Stream(Settings(max_gap=1e7))
    assert times(wide.take([line(0), line(5e6)])) == [0, 5e6]


def test_a_first_stamp_in_the_far_future_does_not_silence_its_key() -> None:
    stream = Stream(SKIP)
    found = times(stream.take([line(1e15), line(1), line(2), line(3), line(2.5)]))
    assert found == [1e15, 2, 3]
    assert (stream.counts.bad, stream.counts.late) == (1, 1)


stamps = st.lists(
    st.tuples(
        st.sampled_from("ab"), st.sampled_from([0.0, 1, 2, 3, 5, 8, 30, 31, 33, 100, 101, 1e9])
    ),
    max_size=14,
)


@given(stamps, st.lists(st.integers(0, 14), max_size=4), st.sampled_from([None, 10.0, 40.0]))
def test_cuts_make_no_difference_to_the_clocks(
    found: list[tuple[str, float]], cuts: list[int], forget: float | None
) -> None:
    settings = Settings(on_error="skip", max_gap=20.0, forget_after=forget, digits=17)
    lines = [line(t, key, x=[1.0 + k, t]) for k, (key, t) in enumerate(found)]
    whole, pieces = Stream(settings), Stream(settings)
    text = b""
    for first, last in pairwise([0, *sorted(min(c, len(lines)) for c in cuts), len(lines)]):
        text += pieces.take(lines[first:last])
    assert whole.take(lines) == text
    assert (whole.counts.bad, whole.counts.late) == (pieces.counts.bad, pieces.counts.late)


# ---------------------------------------------------------------------- forgetting


def test_idle_keys_leave_memory_and_state(tmp_path: Path) -> None:
    """Keys were never forgotten."""
    settings = Settings(forget_after=10.0)
    stream = Stream(settings)
    stream.take([line(0, "gone"), line(0, "kept")])
    for t in range(1, 30):
        stream.take([line(t, "kept")])
    assert stream.pool is not None
    assert stream.pool.names == ["kept"]
    assert stream.counts.forgotten == 1
    stream.save(tmp_path / "s")
    other = Stream(settings)
    other.restore(tmp_path / "s")
    more = [line(30, "gone"), line(31, "kept"), line(31, "gone")]
    text = other.take(more)
    assert text == stream.take(more)
    # It begins again, as if it had never been there.
    fresh = [row for row in estimates(text) if row["key"] == "gone"]
    assert fresh == estimates(Stream(settings).take([line(30, "gone"), line(31, "gone")]))
    # What is older than everything that is remembered is late, not new.
    assert times(other.take([line(2, "older"), line(32, "kept")])) == [32]
    assert other.counts.late == 1


def many_keys(n: int, alive: int, settings: Settings, block: int = 5000) -> tuple[int, int]:
    """Every key is seen a few times and never again; returns the most tracks and all forgotten."""
    stream, most = Stream(settings), 0
    for first in range(0, n, block):
        keys = np.arange(first, min(first + block, n))
        lines = [
            f'{{"key":"k{k}","time":{k / alive:.9g},"x":[{k % 7}.5,1]}}'.encode()
            for k in keys.tolist()
        ]
        stream.take(lines)
        assert stream.pool is not None
        most = max(most, len(stream.pool))
    return most, stream.counts.forgotten


def test_many_keys_stay_within_bounds() -> None:
    most, forgotten = many_keys(40_000, 2_000, Settings(forget_after=1.0, fields=("age",)), 1000)
    assert most < 2 * 2_000
    assert forgotten > 36_000


@pytest.mark.slow
def test_a_million_keys_stay_within_bounds() -> None:
    from kgmrf.stream.report import resident

    many_keys(20_000, 10_000, Settings(forget_after=1.0, fields=("age",)))
    before = resident()
    most, forgotten = many_keys(1_000_000, 10_000, Settings(forget_after=1.0, fields=("age",)))
    assert most < 2 * 10_000
    assert forgotten > 980_000
    after = resident()
    if before is not None and after is not None:
        assert after - before < 100e6


# ---------------------------------------------------------------------- centring, fields


@pytest.mark.parametrize("mean", ["expanding", "ewm"])
@given(cuts=st.lists(st.integers(0, 60), max_size=4))
def test_centred_samples_are_those_of_the_running_mean(mean: str, cuts: list[int]) -> None:
    """Streams could not subtract a mean."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(60, 2)) + [50.0, -20.0]
    lines = [line(k // 2, "ab"[k % 2], x=row) for k, row in enumerate(rows.tolist())]
    settings = Settings(mean=mean, digits=17)
    stream, text = Stream(settings), b""
    for first, last in pairwise([0, *sorted(cuts), 60]):
        text += stream.take(lines[first:last])
    assert text == Stream(settings).take(lines)
    centred = RunningMean(mean).centre(rows[::2])
    expected = KGMRF(2).filter(centred).covariance[-1]
    found = [row for row in estimates(text) if row["key"] == "a"][-1]
    assert np.allclose(found["covariance"], expected, rtol=1e-9)
    with pytest.raises(ValueError, match=f"--mean {mean} is for samples"):
        Stream(Settings(mean=mean)).take([b'{"covariance": [[1.0]], "n_samples": 3}'])


def test_the_means_are_part_of_the_state(tmp_path: Path) -> None:
    settings = Settings(mean="expanding", digits=17)
    lines = [line(k, x=[k % 3, k % 5]) for k in range(20)]
    first = Stream(settings)
    text = first.take(lines[:9])
    first.save(tmp_path / "s")
    second = Stream(settings)
    second.restore(tmp_path / "s")
    assert text + second.take(lines[9:]) == Stream(settings).take(lines)


def test_other_fields_keep_the_state(tmp_path: Path) -> None:
    """Other --fields made a state useless."""
    lines = [line(k, x=[k % 3, math.sin(k)]) for k in range(20)]
    for form in ("json", "csv"):
        if form == "csv":
            lines = [b"key,time,p,q", *(f"a,{k},{k % 3},{math.sin(k)}".encode() for k in range(20))]
        first = Stream(Settings(format=form))
        first.take(lines[:9])
        first.save(tmp_path / form)
        for fields in (("age",), ("covariance", "nis")):
            changed = Settings(format=form, fields=fields, digits=5, on_error="skip")
            second, whole = Stream(changed), Stream(changed)
            second.restore(tmp_path / form)
            text = second.take(lines[9:])
            expected = whole.take(lines).splitlines()
            assert text.splitlines()[-1] == expected[-1]
            # Other columns come with a header of their own.
            assert form == "json" or text.splitlines()[0] == expected[0]
    with pytest.raises(ValueError, match=r"other settings \(mean\)"):
        Stream(Settings(mean="expanding")).restore(tmp_path / "json")


CELLS = st.sampled_from(
    ["1", "-0.5", "1e3", "+2", ".5", "3.", "007", "", "nan", "NA", "inf", "1e400", "1_0", " 4", "x"]
    + ["[1]", "1],[2", "null", "true", '"5"', "2024-01-31"]
)
JSON_CELLS = st.sampled_from(
    ["1", "-0.5", "1e3", "null", "true", '"5"', "[1]", "{}", "NaN", "1e400", "99999999999999999999"]
)


def parsed(reader: Any, lines: list[bytes], size: int) -> tuple[Any, ...]:
    """Lines in blocks of a size: keys, times, values and errors, by row."""
    keys, times, values, errors = [], [], [], {}
    for first in range(0, len(lines), size):
        found = reader.parse(lines[first : first + size])
        keys += found.keys
        times += map(repr, found.times.tolist())
        values += map(repr, found.values.tolist())
        errors |= {first + row: reason for row, reason in found.errors.items()}
    return keys, times, values, errors


@given(st.lists(st.tuples(CELLS, CELLS, CELLS, CELLS), min_size=1, max_size=6), st.integers(2, 6))
def test_csv_rows_are_read_alike_in_blocks_and_alone(rows: list[Any], size: int) -> None:
    for header in (b"key,time,a,b", b"time,a,key,b", b"a,time,b,c"):
        lines = [b"k,0,1,2" if header[:1] == b"k" else b"0,1,2,3"]
        lines += [",".join(row).encode() for row in rows]
        alone, together = CsvReader(), CsvReader()
        for reader in (alone, together):
            reader.parse([header])
        assert parsed(alone, lines, 1) == parsed(together, lines, size)


@given(
    st.lists(st.tuples(JSON_CELLS, JSON_CELLS, JSON_CELLS), min_size=1, max_size=6),
    st.integers(2, 6),
)
def test_json_lines_are_read_alike_in_blocks_and_alone(rows: list[Any], size: int) -> None:
    lines = [b'{"key": "a", "time": 0.0, "x": [1, 2]}']
    for key, time, x in rows:
        lines.append(f'{{"key": {key}, "time": {time}, "x": [{x}, 2]}}'.encode())
    assert parsed(JsonReader(), lines, 1) == parsed(JsonReader(), lines, size)


def test_a_line_without_a_time_confirms_no_jump() -> None:
    """It came one unit after a stamp in the far future, and agreed with it; unless cut apart."""
    untimed = b'{"key": "a", "x": [1, 2]}'
    whole, cut = Stream(SKIP), Stream(SKIP)
    found = times(whole.take([line(0), line(1e15), untimed, line(2)]))
    assert found == [0, 1, 2]
    assert times(cut.take([line(0), line(1e15)]) + cut.take([untimed, line(2)])) == found
