"""Live streams: the lines are those of the trackers, in any cut, order or number of kills."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import kgmrf
from kgmrf import KGMRF, RotationTracker, simulate
from kgmrf.stream import Settings, Stream, StreamError, run
from kgmrf.stream.csv_lines import CsvReader
from kgmrf.stream.json_lines import JsonReader
from kgmrf.stream.writer import text_of


def sample_lines(n: int = 120, keys: int = 3, d: int = 3, seed: int = 0) -> list[bytes]:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, d)) * np.arange(d, 0, -1)
    return [
        json.dumps({"key": f"k{i % keys}", "time": i // keys * 0.5, "x": row.tolist()}).encode()
        for i, row in enumerate(rows)
    ]


def estimates(text: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def run_files(
    folder: Path, lines: list[bytes], settings: Settings, name: str = "out", **options: Any
) -> tuple[Stream, bytes]:
    """The loop itself, from one file to another."""
    (folder / "in").write_bytes(b"".join(line + b"\n" for line in lines))
    source = os.open(folder / "in", os.O_RDONLY)
    sink = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        stream = run(settings, source, sink, **options)
    finally:
        os.close(source)
        os.close(sink)
    return stream, (folder / name).read_bytes()


# ---------------------------------------------------------------------- what comes out


def test_every_line_is_the_estimate_of_its_own_tracker() -> None:
    lines = sample_lines()
    found = estimates(Stream(Settings(time_unit=0.5, digits=17)).take(lines))
    trackers: dict[str, KGMRF] = {}
    assert len(found) == len(lines)
    for line, estimate in zip(map(json.loads, lines), found, strict=True):
        tracker = trackers.setdefault(line["key"], KGMRF(3))
        expected = tracker.partial_fit(np.asarray(line["x"]))
        assert (estimate["key"], estimate["time"]) == (line["key"], line["time"])
        assert np.allclose(estimate["covariance"], expected.covariance, rtol=1e-9, atol=1e-12)
        known = np.isfinite(expected.log_likelihood)
        assert (estimate["log_likelihood"] is not None) == known
        if known:
            assert estimate["log_likelihood"] == pytest.approx(float(expected.log_likelihood))


laws = st.sampled_from(["information", "zero_lag", "auto"])


@given(st.lists(st.integers(0, 120), max_size=6), st.integers(1, 5), laws)
def test_how_the_input_is_cut_makes_no_difference(cuts: list[int], keys: int, law: str) -> None:
    lines = sample_lines(keys=keys)
    settings = Settings(digits=17, tracker={"gains": law})
    whole = Stream(settings).take(lines)
    stream, pieces = Stream(settings), b""
    edges = [0, *sorted(cuts), len(lines)]
    for first, last in pairwise(edges):
        pieces += stream.take(lines[first:last])
    if law == "auto":
        assert pieces == whole
        return
    # Single laws fill their lanes by blocks, and round accordingly.
    for a, b in zip(estimates(pieces), estimates(whole), strict=True):
        assert (a["key"], a["time"]) == (b["key"], b["time"])
        assert np.allclose(a["covariance"], b["covariance"], rtol=1e-9, atol=1e-11)


def test_csv_says_what_json_says() -> None:
    lines = sample_lines(60)
    header = b"key,time,a,b,c"
    rows = [
        ",".join([r["key"], repr(r["time"]), *map(repr, r["x"])]).encode()
        for r in map(json.loads, lines)
    ]
    text = Stream(Settings(format="csv")).take([header, *rows]).decode().splitlines()
    names = text[0].split(",")
    assert names[:4] == ["key", "time", "covariance_0_0", "covariance_0_1"]
    for row, estimate in zip(text[1:], estimates(Stream(Settings()).take(lines)), strict=True):
        cells = dict(zip(names, row.split(","), strict=True))
        assert float(cells["covariance_1_2"]) == estimate["covariance"][1][2]
        assert cells["key"] == estimate["key"]


@pytest.mark.parametrize("format_", ["json", "csv"])
def test_volatilities_and_correlations_are_those_of_the_covariance(format_: str) -> None:
    lines = sample_lines(60, keys=2)
    if format_ == "csv":
        rows = [json.loads(line) for line in lines]
        text = [",".join([r["key"], str(r["time"]), *map(repr, r["x"])]) for r in rows]
        lines = [b"key,time,a,b,c", *(row.encode() for row in text)]
    names = ("covariance", "volatility", "correlation")
    stream = Stream(Settings(format=format_, fields=names, digits=17))
    found = stream.take(lines).decode().splitlines()[-1]
    last = json.loads(found) if format_ == "json" else None
    if last is None:
        cells = np.array(found.split(",")[2:], dtype=float)
        last = dict(zip(names, np.split(cells, [9, 12]), strict=True))
    covariance = np.reshape(last["covariance"], (3, 3))
    sizes = np.sqrt(np.diag(covariance))
    assert np.allclose(last["volatility"], sizes, rtol=1e-14)
    shares = covariance / np.outer(sizes, sizes)
    assert np.allclose(np.reshape(last["correlation"], (3, 3)), shares, rtol=1e-12)


@pytest.mark.parametrize(
    ("line", "field"),
    [
        (b'{"x": [1, 2]}', "rotation"),
        (b'{"x": [1, 2]}', "position"),
        (b'{"quaternion": [0, 0, 0, 1]}', "volatility"),
        (b'{"quaternion": [0, 0, 0, 1]}', "spectrum"),
    ],
)
def test_a_field_that_the_lines_do_not_have_is_named(line: bytes, field: str) -> None:
    with pytest.raises(ValueError, match=rf"--fields has '{field}', which .* not have; it has age"):
        Stream(Settings(fields=(field,))).take([line])


def test_covariances_rotations_and_quaternions() -> None:
    scene = simulate.ellipse(0.05, n_frames=40, n_samples=8, rng=0)
    lines = [
        json.dumps({"covariance": C.tolist(), "n_samples": 8}).encode() for C in scene.observations
    ]
    found = estimates(Stream(Settings()).take(lines))
    expected = KGMRF(n_samples=8).filter(scene.observations)
    assert np.allclose(found[-1]["covariance"], expected.covariance[-1], rtol=1e-8)
    assert [f["time"] for f in found[:3]] == [0.0, 1.0, 2.0]

    from scipy.spatial.transform import Rotation

    turns = simulate.rotating_frame(n_frames=40, noise_std=0.05, rng=0).observations
    result = RotationTracker(noise_std=0.05, gains="information").filter(turns)
    settings = Settings(
        tracker={"noise_std": 0.05, "gains": "information"}, fields=("rotation", "velocity")
    )
    for word, values in (
        ("rotation", turns),
        ("quaternion", Rotation.from_matrix(turns).as_quat()),
    ):
        lines = [json.dumps({"key": "c", word: v.tolist()}).encode() for v in values]
        found = estimates(Stream(settings).take(lines))
        assert np.allclose(found[-1]["rotation"], result.rotation[-1], atol=1e-7)
        assert np.allclose(found[-1]["velocity"], result.velocity[-1], atol=1e-7)
    quats = [
        f"{t},{','.join(map(repr, q))}".encode()
        for t, q in enumerate(Rotation.from_matrix(turns).as_quat().tolist())
    ]
    csv = Settings(
        format="csv", tracker={"noise_std": 0.05, "gains": "information"}, fields=("rotation",)
    )
    last = Stream(csv).take([b"time,qx,qy,qz,qw", *quats]).splitlines()[-1].split(b",")
    assert np.allclose(np.array(last[2:], float).reshape(3, 3), result.rotation[-1], atol=1e-7)


def test_self_tuned_tracks(tmp_path: Path) -> None:
    lines = sample_lines(90)
    settings = Settings(tracker={"gains": "auto"}, time_unit=0.5)
    first = Stream(settings)
    text = first.take(lines[:50])
    first.save(tmp_path / "state")
    second = Stream(settings)
    second.restore(tmp_path / "state")
    found = estimates(text + second.take(lines[50:]))
    rows = np.array([json.loads(line)["x"] for line in lines[1::3]])
    expected = KGMRF(3).filter(rows).covariance
    assert np.allclose([f["covariance"] for f in found[1::3]], expected, rtol=1e-7, atol=1e-9)
    turned = Stream(Settings(fields=("rotation",))).take([b'{"quaternion": [0, 0, 0, 1]}'] * 3)
    assert np.allclose(estimates(turned)[-1]["rotation"], np.eye(3))


def test_gaps_and_holes_and_lines_without_observation() -> None:
    lines = sample_lines(30, keys=1)
    holes = [json.loads(line) for line in lines]
    holes[12]["x"][1] = None
    holes[20]["x"] = None
    holes[21]["x"] = [None, None, None]
    del holes[22]["x"]
    text = Stream(Settings(time_unit=0.5)).take([json.dumps(h).encode() for h in holes])
    found = estimates(text)
    rows = np.array(
        [[math.nan if v is None else v for v in h.get("x") or [None] * 3] for h in holes]
    )
    expected = KGMRF(3).filter(rows)
    assert np.allclose(found[-1]["covariance"], expected.covariance[-1], rtol=1e-8)
    assert found[21]["log_likelihood"] is None
    assert len(found) == 30


# ---------------------------------------------------------------------- time


def lines_at(times: list[float], key: str = "a") -> list[bytes]:
    return [json.dumps({"key": key, "time": t, "x": [1.0 + t, 2.0 - t]}).encode() for t in times]


def test_late_and_repeated_lines_are_dropped_and_counted() -> None:
    stream = Stream(Settings())
    found = estimates(stream.take(lines_at([0, 1, 3, 2, 3, 4, 1])))
    found += estimates(stream.take(lines_at([4, 5])))
    assert [f["time"] for f in found] == [0, 1, 3, 4, 5]
    assert (stream.counts.late, stream.counts.duplicate) == (2, 2)
    assert found == estimates(Stream(Settings()).take(lines_at([0, 1, 3, 4, 5])))


def test_the_same_time_may_be_a_second_sample_of_the_moment() -> None:
    stream = Stream(Settings(same_time="use", fields=("age",)))
    assert len(estimates(stream.take(lines_at([0, 0, 1, 1, 0.5])))) == 4
    assert stream.counts.late == 1


# ---------------------------------------------------------------------- bad lines


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (b"{", "not JSON"),
        (b"3", "not a JSON object"),
        (b'{"x": [1, 2, 3]}', "shape (3,), expected (2,)"),
        (b'{"x": ["a", 2]}', "not an array of numbers"),
        (
            b'{"x": [1, 2], "time": "noon"}',
            "'time' is 'noon', not a number and not an ISO 8601 date",
        ),
        (b'{"x": [1, 1e999]}', "number is infinity"),
        (b'{"x": [1, NaN]}', "not JSON"),
        (b'{"x": [1, 2], "key": "\\ud800"}', "not JSON"),
        (b'{"covariance": [[1, 0], [0, 1]]}', "has 'covariance' where lines before had 'x'"),
        (b"[" * 100_000, "not JSON"),
        (b'{"key": "a", "X": [1, 2]}', "has a field 'X' and no observation, which is called x"),
        (b'{"x": 1.5}', "shape (), expected (2,)"),
    ],
)
def test_a_bad_line_stops_or_is_skipped(line: bytes, fault: str) -> None:
    good = lines_at([0, 1, 2, 3])
    lines = [*good[:2], line, *good[2:]]
    with pytest.raises(StreamError, match=r"^line 3: ") as caught:
        Stream(Settings()).take(lines)
    assert fault in str(caught.value)
    assert caught.value.before == Stream(Settings()).take(good[:2])
    skipping = Stream(Settings(on_error="skip"))
    assert skipping.take(lines) == Stream(Settings()).take(good)
    assert (skipping.counts.bad, skipping.counts.lines) == (1, 5)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (b'{"key": "a", "X": [1, 2]}', "has a field 'X'"),
        (b'{"x": "1,2"}', "'x' is not an array of numbers"),
        (b'{"x": []}', "'x' is not an array of numbers"),
        (b'{"covariance": 2.0}', "'covariance' is not an array of numbers"),
        (b'{"x": true}', "'x' is not an array of numbers"),
    ],
)
def test_a_first_line_that_says_nothing_is_not_swallowed(line: bytes, fault: str) -> None:
    with pytest.raises(StreamError, match=r"^line 2: ") as caught:
        Stream(Settings()).take([b'{"key": "a", "time": 0}', line])
    assert fault in str(caught.value)


def test_a_number_alone_is_a_sample_of_one_channel() -> None:
    values = (1.5, 2, None, -3.0)
    alone = [json.dumps({"key": "a", "x": v, "more": "said"}).encode() for v in values]
    listed = [json.dumps({"key": "a", "x": v if v is None else [v]}).encode() for v in values]
    expected = Stream(Settings()).take(listed)
    assert len(estimates(expected)) == 4
    assert Stream(Settings()).take(alone) == expected
    assert Stream(Settings()).take([alone[0], listed[1], *alone[2:]]) == expected
    assert Stream(Settings()).take(alone[:2]) == Stream(Settings()).take(listed[:2])


def test_an_index_and_names_of_other_software_in_csv() -> None:
    plain = Stream(Settings(format="csv")).take([b"time,a,b", b"3,1,2", b"5,2,1"])
    index = Stream(Settings(format="csv")).take([b",a,b", b"3,1,2", b"5,2,1"])
    both = Stream(Settings(format="csv")).take([b",#Time [s],a,b", b"x,3,1,2", b"y,5,2,1"])
    assert plain == index == both
    turned = Stream(Settings(format="csv", tracker={"noise_std": 0.1, "gains": "information"}))
    turned.take([b"t,q_w,q_x,q_y,q_z", b"0,1,0,0,0"])
    assert turned.reader.kind == "rotation"


def test_matrices_that_are_none_are_bad_lines() -> None:
    good = json.dumps({"covariance": [[2.0, 0.0], [0.0, 1.0]], "n_samples": 5}).encode()
    for bad, fault in (
        ({"covariance": [[1.0, 3.0], [3.0, 1.0]], "n_samples": 5}, "not a valid covariance"),
        ({"covariance": [[1.0, 0.0], [0.0, 1.0]]}, "how many samples"),
    ):
        with pytest.raises(StreamError, match=f"^line 2: .*{fault}") as caught:
            Stream(Settings()).take([good, json.dumps(bad).encode()])
        assert len(estimates(caught.value.before)) == 1
        skipping = Stream(Settings(on_error="skip"))
        assert len(estimates(skipping.take([good, json.dumps(bad).encode(), good]))) == 2


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        ([b"a,b", b"1"], "line 2: 1 cells where the header has 2"),
        ([b"a,b", b"1,x"], "line 2: column 'b': 'x' is not a number"),
        ([b"a,b", b"1,1_0"], "line 2: column 'b': '1_0' is not a number"),
        ([b"a,b", "1,١".encode()], "line 2: column 'b': '١' is not a number"),
        ([b"a,b", b'1,"2'], "line 2: not CSV: unexpected end of data"),
        ([b'a,"b', b"1,2"], "line 1: not CSV: unexpected end of data"),
        ([b"time,a", b",1"], "line 2: 'time' is '', not a number"),
        ([b"a,b", b"1,inf"], "line 2: infinite"),
        ([b"a,a", b"1,2"], "line 1: the header has a column twice"),
        ([b"key,time", b"1,2"], "line 1: the header has 0 channels"),
        ([b"0,1.5,1.5", b"1,2,3"], "line 1: is data, not a header"),
        ([b"a,0,1.5,2", b"b,2,3,4"], "line 1: is data, not a header"),
        ([b"qx,qy,qz,qw,q_x,q_y,q_z,q_w"], "line 1: the header has more than one quaternion"),
        ([b"qx,qy,qz,qw", b"0,0,0,0"], "line 2: a quaternion of length zero"),
    ],
)
def test_bad_rows_of_csv(rows: list[bytes], fault: str) -> None:
    with pytest.raises(StreamError) as caught:
        Stream(
            Settings(
                format="csv",
                tracker={"noise_std": 0.1, "gains": "information"} if b"qx" in rows[0] else {},
            )
        ).take(rows)
    assert str(caught.value).startswith(fault)


# ---------------------------------------------------------------------- numbers as text


numbers = st.floats(allow_nan=False, allow_infinity=False)


@example([9.9999999995, 0.1 + 0.2, 1e22, 1e23, 5e-324, 1.7976931348623157e308], 9)
@given(st.lists(numbers, min_size=1, max_size=20), st.integers(1, 17))
def test_numbers_have_the_digits_of_printf(values: list[float], digits: int) -> None:
    for form in ("json", "csv"):
        text = text_of(["k"], np.zeros(1), {"v": np.array([values])}, form, digits, "").decode()
        cells = text.partition("[")[2][:-3] if form == "json" else text.split(",", 2)[2][:-1]
        for value, cell in zip(values, cells.split(","), strict=True):
            number = Decimal(cell)  # as floats their difference would be rounded
            if digits > 15:
                assert float(cell) == value
                continue
            # Equal, or one unit of the last digit apart where the value lies between two.
            expected = Decimal(f"{value:.{digits}g}")
            unit = Decimal(10) ** (expected.adjusted() + 1 - digits) if value else Decimal(0)
            assert abs(number - expected) <= unit or float(cell) == float(expected)
            if math.isfinite(float(expected)):  # the largest number rounds up to none
                assert len(number.normalize().as_tuple().digits) <= digits


values = st.floats(-1e75, 1e75)


@given(
    st.lists(
        st.tuples(st.text(max_size=5), st.floats(-1e6, 1e6), st.tuples(values, values)),
        min_size=1,
        max_size=8,
    ),
    st.permutations(["key", "time", "x"]),
    st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", " : ")]),
)
def test_lines_hold_what_was_written_to_the_bit(
    rows: list[Any], order: list[str], marks: tuple[str, str]
) -> None:
    records = [dict(zip(("key", "time", "x"), row, strict=True)) for row in rows]
    lines = [
        json.dumps({name: r[name] for name in order}, separators=marks).encode() for r in records
    ]
    plain = [r for r in records if not any(mark in r["key"] for mark in '",\r\n')]
    cells = [f"{r['key']},{r['time']!r},{r['x'][0]!r},{r['x'][1]!r}".encode() for r in plain]
    for reader, given_, wanted in (
        (JsonReader("x", 2), lines, records),
        (CsvReader(["key", "time", "a", "b"]), cells, plain),
    ):
        found = reader.parse(given_)
        assert not found.errors
        assert found.keys == [r["key"] for r in wanted]
        assert found.times.tolist() == [r["time"] for r in wanted]
        assert found.values.tolist() == [list(r["x"]) for r in wanted]


def test_keys_that_differ_stay_apart() -> None:
    """Two keys are one track only if they are written alike."""
    wide = [b'{"key": %d, "x": [1]}' % k for k in (2**64, 2**64 + 1)]
    stream = Stream(Settings(on_error="skip"))
    stream.take([b'{"key": 5, "x": [1]}', *wide, b'{"key": 18446744073709551615, "x": [1]}'])
    assert stream.pool is not None
    assert stream.pool.names == ["5", "18446744073709551615"]
    assert [f.reason for f in stream.errors] == [
        "'key' is not a word or a number of at most 64 bits"
    ] * 2
    stream = Stream(Settings(on_error="skip", format="csv"))
    stream.take([b"key,a", b"\xff,1", b"\xfe,1", "é,1".encode()])
    assert stream.pool is not None
    assert stream.pool.names == ["é"]
    assert {f.reason for f in stream.errors} == {"not UTF-8"}


def test_a_mark_before_all_text_is_passed_over() -> None:
    for form, lines in (("json", [b'{"key": "a", "x": [1]}']), ("csv", [b"key,a", b"a,1"])):
        marked = [b"\xef\xbb\xbf" + lines[0], *lines[1:]]
        settings = Settings(format=form)
        assert Stream(settings).take(marked) == Stream(settings).take(lines)


def test_numbers_that_are_none() -> None:
    found = {"v": np.array([[math.nan, math.inf, 0.0, -1.5]])}
    assert b'"v":[null,null,0.0,-1.5]' in text_of(["k"], np.zeros(1), found, "json", 9, "")
    text = text_of(['a,"b'], np.zeros(1), found, "csv", 9, "")
    assert text == b'"a,""b",0.0,,,0.0,-1.5\n'


# ---------------------------------------------------------------------- inside another engine


def test_rows_and_bytes_do_what_lines_and_files_do(tmp_path: Path) -> None:
    lines = sample_lines()
    settings = Settings(fields=("covariance", "velocity"), digits=17)
    texts, whole = Stream(settings), b""
    state: bytes | None = None
    rows: list[dict[str, Any]] = []
    for block in (lines[:50], lines[50:51], lines[30:]):  # some lines twice
        whole += texts.take(block)
        records = [json.loads(line) for line in block]
        stream = Stream(settings)
        if state is not None:
            stream.from_bytes(state)
        moved = stream.take_rows(
            [r["key"] for r in records],
            np.array([r["time"] for r in records], dtype=float),
            np.array([r["x"] for r in records]),
        )
        for k, (key, time) in enumerate(zip(moved.keys, moved.times.tolist(), strict=True)):
            fields = {name: array[k].tolist() for name, array in moved.fields.items()}
            rows.append({"key": key, "time": time, **fields})
        state = stream.to_bytes()
    assert rows == estimates(whole)
    assert stream.counts == texts.counts
    assert stream.counts.late + stream.counts.duplicate == 21
    # The bytes are a state file.
    (tmp_path / "state").write_bytes(state or b"")
    other = Stream(settings)
    other.restore(tmp_path / "state")
    assert other.counts == stream.counts
    with pytest.raises(ValueError, match="is not a kgmrf state"):
        Stream(settings).from_bytes((state or b"")[:-9])


def test_rows_that_cannot_be_used() -> None:
    stream = Stream(Settings())
    with pytest.raises(ValueError, match="do not fit"):
        stream.take_rows(["a", "b"], np.zeros(1), np.eye(2))
    with pytest.raises(StreamError, match="row 2 of 'b': infinite"):
        stream.take_rows(["a", "b"], np.zeros(2), np.array([[1.0, 2.0], [1.0, math.inf]]))
    skipping = Stream(Settings(on_error="skip"))
    moved = skipping.take_rows(["a", "b"], np.array([math.inf, 0.0]), np.eye(2))
    assert moved.keys == ["b"]
    assert (skipping.counts.lines, skipping.counts.used, skipping.counts.bad) == (2, 1, 1)
    assert skipping.take_rows(["b"], np.zeros(1), np.ones((1, 2))).keys == []


# ---------------------------------------------------------------------- checkpoints


def test_a_restored_stream_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    lines = sample_lines()
    settings = Settings(time_unit=0.5, digits=17)
    whole = Stream(settings).take(lines)
    for cut in (0, 1, 7, 60, 119):
        first = Stream(settings)
        text = first.take(lines[:cut])
        first.save(tmp_path / "state")
        second = Stream(settings)
        second.restore(tmp_path / "state")
        assert text + second.take(lines[cut:]) == whole
        assert second.counts.lines == len(lines)


def test_lines_sent_again_are_recognised(tmp_path: Path) -> None:
    lines = sample_lines()
    settings = Settings(digits=17)
    whole = Stream(settings).take(lines)
    _, text = run_files(tmp_path, lines[:70], settings, state=tmp_path / "state")
    again, text = run_files(tmp_path, lines[50:], settings, state=tmp_path / "state")
    assert text == whole
    assert again.counts.duplicate + again.counts.late == 20
    _, text = run_files(
        tmp_path, lines, settings, name="second", state=tmp_path / "state", replay=True
    )
    assert text == b""


def test_a_state_of_other_settings_is_refused(tmp_path: Path) -> None:
    run_files(tmp_path, sample_lines(), Settings(), state=tmp_path / "state")
    with pytest.raises(ValueError, match=r"other settings \(time_unit\)"):
        run_files(tmp_path, sample_lines(), Settings(time_unit=2.0), state=tmp_path / "state")


def test_a_state_that_cannot_be_written_ends_before_the_first_line(tmp_path: Path) -> None:
    for state, fault in ((tmp_path / "none" / "a.state", "No such folder"), (tmp_path, "a folder")):
        read, write = os.pipe()
        os.write(write, b'{"x": [1, 2]}\n')
        os.close(write)
        out = tmp_path / "out.jsonl"
        with open(out, "wb") as sink, pytest.raises(OSError, match=fault):
            run(Settings(), read, sink.fileno(), state=state)
        os.close(read)
        assert out.read_bytes() == b""


def test_a_last_line_without_an_end_counts(tmp_path: Path) -> None:
    lines = lines_at([0, 1, 2])
    (tmp_path / "in").write_bytes(b"\n".join(lines))
    source = os.open(tmp_path / "in", os.O_RDONLY)
    sink = os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)
    stream = run(Settings(), source, sink)
    os.close(source)
    os.close(sink)
    assert stream.counts.lines == 3
    assert len(estimates((tmp_path / "out").read_bytes())) == 3


KILLER = """
import os, random, signal, sys, time
from pathlib import Path
from kgmrf.stream import Settings, Stream, run

folder, kills, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
random.seed(seed)
# Everything is loaded once: a child starts in a moment and is killed in mid-work.
Stream(Settings()).take([b'{"x": [1, 2, 3]}'])

def work(life):
    source = os.open(folder / "in", os.O_RDONLY)
    sink = os.open(folder / f"out{life}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    import kgmrf.stream.endpoints as ends
    ends.READ = 3000  # many small blocks: many moments to die in
    state = folder / f"state{life}"
    run(Settings(time_unit=0.5), source, sink, state=state, replay=True, every=0.0)

done, life = 0, 0
while True:
    child = os.fork()
    if child == 0:
        work(life)
        os._exit(0)
    if done < kills:
        time.sleep(random.uniform(0.0, 0.04))
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        done += 1
        continue
    assert os.WEXITSTATUS(status) == 0
    if done >= kills:
        break
    life += 1  # it got through: begin another stream
print(done, life + 1)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_fifty_kills_lose_nothing_and_repeat_only_what_is_told(tmp_path: Path) -> None:
    lines = sample_lines(6_000, keys=7)
    expected = Stream(Settings(time_unit=0.5)).take(lines).splitlines(keepends=True)
    (tmp_path / "in").write_bytes(b"".join(line + b"\n" for line in lines))
    path = {**os.environ, "PYTHONPATH": str(Path(kgmrf.__file__).parents[1])}
    call = [sys.executable, "-c", KILLER, str(tmp_path), "50", "1"]
    done = subprocess.run(call, capture_output=True, text=True, timeout=300, env=path, check=True)
    kills, streams = map(int, done.stdout.split())
    assert kills == 50
    lives = sum(walk(expected, (tmp_path / f"out{k}").read_bytes()) for k in range(streams))
    assert lives <= 50 + streams


def walk(expected: list[bytes], raw: bytes) -> int:
    """Go through the output of a stream that was killed: all lines in order, going back at a
    restart and never ahead. Returns the number of its lives that wrote something."""
    lives, k, at = 1, 0, 0
    number = {line: n for n, line in enumerate(expected)}
    while at < len(raw):
        if k < len(expected) and raw.startswith(expected[k], at):
            at += len(expected[k])
            k += 1
            continue
        # A restart: perhaps a piece of the next line, then a line from before, never from later.
        lives += 1
        line = raw[at : raw.index(b"\n", at) + 1]
        start = line.rfind(b'{"key"')
        piece, again = line[:start], number[line[start:]]
        assert again <= k
        assert not piece or expected[k].startswith(piece)
        at, k = at + start, again
    assert k == len(expected)
    return lives


def test_a_second_clock_of_a_csv_stream_is_no_channel():
    stream = Stream(Settings(format="csv"))
    out = stream.take([b"time,header.stamp.secs,header.stamp.nsecs,x,y", b"3,1,0,1,2"])
    assert b"covariance_1_1" in out
    assert b"covariance_2_2" not in out
