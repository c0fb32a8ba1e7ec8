"""Streams of rotations with measured rates: each key is a `RotationTracker` with a gyroscope."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time as clock
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from kgmrf import RotationTracker
from kgmrf.stream import Settings, Stream, StreamError

HZ, N = 200.0, 60
SHOWN = ("rotation", "covariance", "velocity", "half_life", "status", "log_likelihood", "age")
RATED = Settings(fields=SHOWN, digits=17)
SKIP = Settings(fields=SHOWN, digits=17, on_error="skip")


def motion(seed: int, n: int = N) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Stamps that are not regular, poses at every fifth, body rates at two of three."""
    g = np.random.default_rng(seed)
    t = 100.0 * seed + np.cumsum(g.uniform(0.5, 1.5, n)) / HZ
    rate = g.uniform(1.0, 3.0, 3) * np.sin(5.0 * t[:, None] + g.uniform(0.0, 6.0, 3))
    steps = Rotation.from_rotvec(rate * np.diff(t, prepend=t[0])[:, None])
    turn, seen = Rotation.identity(), np.full((n, 3, 3), np.nan)
    for k, step in enumerate(steps):
        turn = turn * step
        if k % 5 == 0:
            noise = Rotation.from_rotvec(g.normal(scale=0.01, size=3))
            seen[k] = (turn * noise).as_matrix()
    rate[g.random(n) < 0.3] = np.nan
    return t, seen, rate


def record(key: str, time: Any, pose: np.ndarray, rate: np.ndarray) -> dict[str, Any]:
    """A line as programs write it: without what was not measured."""
    found: dict[str, Any] = {"key": key, "time": time}
    if np.isfinite(pose[0, 0]):
        found["quaternion"] = Rotation.from_matrix(pose).as_quat().tolist()
    if np.isfinite(rate[0]):
        found["rate"] = rate.tolist()
    return found


def records(seeds: tuple[int, ...] = (0, 1, 2)) -> list[dict[str, Any]]:
    """Lines of several keys, mixed; the first has a rate or says that it has none."""
    runs = [motion(seed) for seed in seeds]
    found = [
        record(f"k{seed}", float(t[k]), seen[k], rate[k])
        for k in range(N)
        for seed, (t, seen, rate) in zip(seeds, runs, strict=True)
    ]
    found[0].setdefault("rate", None)
    return found


def lines(rows: list[dict[str, Any]]) -> list[bytes]:
    return [json.dumps(row).encode() for row in rows]


def estimates(text: bytes) -> list[dict[str, Any]]:
    return [json.loads(row) for row in text.splitlines()]


def check_key(found: list[dict[str, Any]], expected: Any) -> None:
    for name in SHOWN:
        array = np.array([row[name] for row in found], dtype=float)
        wanted = getattr(expected, name)
        wanted = np.where(np.isinf(wanted), np.nan, wanted)  # JSON has no infinities
        np.testing.assert_allclose(array, wanted, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("time_unit", [None, 0.004])
@pytest.mark.parametrize("noise_std", [None, 0.02])
def test_every_key_is_a_tracker_with_a_gyroscope(
    time_unit: float | None, noise_std: float | None
) -> None:
    tracker = {} if noise_std is None else {"noise_std": noise_std}
    stream = Stream(Settings(fields=SHOWN, digits=17, time_unit=time_unit, tracker=tracker))
    found = estimates(stream.take(lines(records())))
    assert len(found) == 3 * N
    for seed in (0, 1, 2):
        t, seen, rate = motion(seed)
        alone = RotationTracker(gyroscope=True, noise_std=noise_std, time_unit=time_unit)
        expected = alone.filter(seen, times=t, rates=rate)
        check_key([row for row in found if row["key"] == f"k{seed}"], expected)
        # Step by step too, and a step without a rate holds the last one.
        online = RotationTracker(gyroscope=True, noise_std=noise_std, time_unit=time_unit)
        for k in range(N):
            pose = None if np.isnan(seen[k, 0, 0]) else seen[k]
            omega = None if np.isnan(rate[k, 0]) else rate[k]
            last = online.update(pose, dt=1.0 if k == 0 else t[k] - t[k - 1], rate=omega)
        np.testing.assert_allclose(last.rotation, expected.rotation[-1], atol=1e-9)


def test_after_dates_rates_are_per_second() -> None:
    rows = records((0,))
    start = np.datetime64("2024-01-31T10:00:00.000000")
    dated = []
    for row in rows:
        micro = np.timedelta64(round(1e6 * row["time"]), "us")
        dated.append({**row, "time": f"{start + micro}Z"})
    plain = estimates(Stream(RATED).take(lines(rows)))
    found = estimates(Stream(RATED).take(lines(dated)))
    for one, other in zip(found, plain, strict=True):
        np.testing.assert_allclose(one["rotation"], other["rotation"], atol=1e-4)
        np.testing.assert_allclose(one["velocity"], other["velocity"], atol=1e-2)


def test_pose_and_rate_of_one_moment_may_be_two_lines() -> None:
    t, seen, rate = motion(3)
    rate = np.where(np.isnan(rate), 0.5, rate)
    tracker = RotationTracker(gyroscope=True)
    rows, poses, now = [], [], t[0]
    for k in range(N):
        rows.append({"time": t[k], "rate": rate[k].tolist()})
        poses.append(tracker.update(None, dt=t[k] - now, rate=rate[k]).rotation)
        if np.isfinite(seen[k, 0, 0]):
            rows.append({"time": t[k], "rotation": seen[k].tolist()})
            poses.append(tracker.update(seen[k], dt=0.0).rotation)
        now = t[k]
    found = Stream(Settings(fields=("rotation",), digits=17, same_time="use")).take(lines(rows))
    rotations = np.array([row["rotation"] for row in estimates(found)], dtype=float)
    np.testing.assert_allclose(rotations, poses, atol=1e-9)


def test_rates_turn_the_estimate_between_poses() -> None:
    """Ten seconds without a pose: the rates alone turn the track."""
    turn = 0.5
    rows = [{"time": k / 20, "rate": [0.0, 0.0, turn]} for k in range(241)]
    for k in range(41):
        rows[k]["quaternion"] = Rotation.from_rotvec([0, 0, turn * k / 20]).as_quat().tolist()
    last = estimates(Stream(Settings(fields=("rotation",))).take(lines(rows)))[-1]
    expected = Rotation.from_rotvec([0.0, 0.0, turn * 12.0])
    assert (Rotation.from_matrix(last["rotation"]) * expected.inv()).magnitude() < 0.02


@hypothesis_settings(max_examples=12, deadline=None)
@given(st.lists(st.integers(0, 3 * N), max_size=6), st.booleans(), st.booleans())
def test_blocks_and_states_make_no_difference(
    tmp_path_factory: Any, cuts: list[int], restart: bool, held: bool
) -> None:
    rows = records()
    reorder = {"reorder": 1e4 / HZ} if held else {}
    settings = Settings(fields=SHOWN, digits=17, on_error="skip", **reorder)
    every = lines(rows)
    stream = Stream(settings)
    whole = stream.take(every) + stream.flush()
    stream, text = Stream(settings), b""
    path = tmp_path_factory.mktemp("rates") / "a.state"
    ends = [0, *sorted(cuts), len(every)]
    for first, last in pairwise(ends):
        text += stream.take(every[first:last])
        if restart:
            stream.save(path)
            stream = Stream(settings)
            stream.restore(path)
    assert text + stream.flush() == whole
    assert stream.counts.used == len(every)


def test_late_lines_are_sorted_with_their_rates() -> None:
    rows = records((0, 0))[::2]
    order = np.argsort(np.arange(N) + np.random.default_rng(0).uniform(0, 6, N))
    order = np.concatenate([[0], order[order != 0]])
    sorting = Stream(Settings(fields=SHOWN, digits=17, on_error="skip", reorder=20 / HZ))
    text = sorting.take(lines([rows[k] for k in order]))
    assert 0 < len(sorting.held or ()) < N
    assert text + sorting.flush() == Stream(RATED).take(lines(rows))


@pytest.mark.parametrize("kind", ["rotation", "quaternion"])
def test_rates_may_come_before_the_first_rotation(kind: str) -> None:
    rows = [{"time": k / HZ, "rate": [0.1, 0.2, 0.3]} for k in range(6)]
    pose = Rotation.from_rotvec([0.1, 0.0, 0.0])
    rows[4][kind] = pose.as_matrix().tolist() if kind == "rotation" else pose.as_quat().tolist()
    whole = Stream(RATED).take(lines(rows))
    assert len(whole.splitlines()) == 6
    stream = Stream(RATED)
    assert b"".join(stream.take([row]) for row in lines(rows)) == whole
    other = {"time": 1.0, "x": [1, 2, 3], "rate": [0, 0, 0]}
    for before in (rows, rows[:2]):
        stream = Stream(SKIP)
        stream.take(lines([*before, other]))
        assert "has 'x' where lines before had" in stream.errors[0].reason


def test_a_rate_alone_says_that_there_are_rates_and_so_does_the_option() -> None:
    pose = {"time": 0.0, "quaternion": [0, 0, 0, 1]}
    rows = [{**pose, "time": 0.1 * k, "rate": [0.0, 0.0, 0.2]} for k in range(1, 20)]
    expected = Stream(RATED).take(lines([{**pose, "rate": None}, *rows]))
    with_option = Settings(fields=SHOWN, digits=17, tracker={"gyroscope": True})
    assert Stream(with_option).take(lines([pose, *rows])) == expected
    for row in (rows[0], {"time": 0.1, "rate": [0.0, 0.0, 0.2]}):
        with pytest.raises(StreamError, match="line 2: has 'rate', and the first line had none"):
            Stream(RATED).take(lines([pose, row]))


@pytest.mark.parametrize(
    ("rate", "fault"),
    [
        (5.0, r"'rate' is not three numbers \[wx, wy, wz\], a rate in radians per unit of the"),
        ([0.0, 1.0], r"'rate' is not three numbers.*body frame, got \[0\.0, 1\.0\]"),
        ([[0.0, 1.0, 2.0]], "'rate' is not three numbers"),
        (["0", 1.0, 2.0], "'rate' is not three numbers"),
        ([True, 1.0, 2.0], "'rate' is not three numbers"),
        ([None, 1.0, 2.0], "'rate': a rate that lacks some axes; give all three, or leave it out"),
        ([1e16, 1.0, 2.0], "'rate': a rate must be finite, at most 1e.15 radians per unit"),
    ],
)
def test_a_bad_rate_is_a_bad_line_and_changes_nothing(rate: Any, fault: str) -> None:
    rows = records((0,))
    bad = {"key": "k0", "time": rows[29]["time"] + 1e-6, "rate": rate}
    with_bad = lines([*rows[:30], bad, *rows[30:]])
    stream = Stream(SKIP)
    assert stream.take(with_bad) == Stream(RATED).take(lines(rows))
    (error,) = stream.errors
    assert error.line == 31
    assert re.search(fault, error.reason)
    with pytest.raises(StreamError, match=fault):
        Stream(RATED).take(with_bad)


def test_the_fastest_rate_leaves_a_state_that_can_be_read(tmp_path: Path) -> None:
    stream = Stream(RATED)
    stream.take(lines(records((0,))))
    stream.take(lines([{"key": "k0", "time": 50.0, "rate": [1e15, -1e15, 1e15]}]))
    stream.save(tmp_path / "a.state")
    again = Stream(RATED)
    again.restore(tmp_path / "a.state")
    line = lines([{"key": "k0", "time": 51.0, "quaternion": [0, 0, 0, 1]}])
    assert again.take(line) == stream.take(line)


def test_where_rates_cannot_be() -> None:
    rated = lines([{"time": 0.0, "quaternion": [0, 0, 0, 1], "rate": [0, 0, 1]}])
    with pytest.raises(ValueError, match="need rotations in three dimensions and --gains auto"):
        Stream(Settings(tracker={"gains": "information", "noise_std": 0.1})).take(rated)
    with pytest.raises(ValueError, match="need rotations in three dimensions"):
        Stream(Settings()).take([b'{"rotation": [[1, 0], [0, 1]], "rate": [0, 0, 1]}'])
    with pytest.raises(ValueError, match="--alert does not watch rotations with measured rates"):
        Stream(Settings(alert="1e-4")).take(rated)
    with pytest.raises(ValueError, match="--rates is for rotations; these lines hold samples"):
        Stream(Settings(tracker={"gyroscope": True})).take([b'{"x": [1, 2]}'])
    # Of samples the field is not ours: a heart rate, say.
    plain = Stream(Settings(fields=("covariance",)))
    assert len(plain.take([b'{"x": [1, 2], "rate": 72}'] * 2).splitlines()) == 2
    skipping = Stream(SKIP)
    skipping.take([b'{"time": 0, "rate": 72}', b'{"time": 0, "rate": [1, 2]}'])
    assert all("'rate' is not" in fault.reason for fault in skipping.errors)
    assert len(skipping.errors) == 2


# ---------------------------------------------------------------------- columns


def cells(row: dict[str, Any]) -> list[Any]:
    turn = row.get("quaternion") or [None] * 4
    return [row["key"], row["time"], *turn, *(row.get("rate") or [None] * 3)]


def csv(rows: list[dict[str, Any]], stem: str = "w_") -> list[bytes]:
    header = f"key,time,qx,qy,qz,qw,{stem}x,{stem}y,{stem}z".encode()
    text = [",".join("" if x is None else repr(x) for x in cells(row)) for row in rows]
    return [header, *(line.replace("'", "").encode() for line in text)]


@pytest.mark.parametrize("stem", ["w_", "gyro_"])
def test_columns_are_the_fields_of_lines(stem: str, tmp_path: Path) -> None:
    rows = records()
    expected = estimates(Stream(RATED).take(lines(rows)))
    settings = Settings(format="csv", fields=("rotation", "log_likelihood"), digits=17)
    text = csv(rows, stem)
    found = Stream(settings).take(text)
    values = [row.split(b",")[2:11] for row in found.splitlines()[1:]]
    np.testing.assert_array_equal(
        np.array(values, dtype=float).reshape(-1, 3, 3), [row["rotation"] for row in expected]
    )
    first, again = Stream(settings), Stream(settings)
    part = first.take(text[:50])
    first.save(tmp_path / "a.state")
    again.restore(tmp_path / "a.state")
    assert part + again.take(text[50:]) == found
    quoted = [text[0], *(b'"' + line.replace(b",", b'",', 1) for line in text[1:])]
    assert Stream(settings).take(quoted) == found


def test_bad_rates_in_columns() -> None:
    text = [b"time,qx,qy,qz,qw,w_x,w_y,w_z", b"0,0,0,0,1,0,0,1"]
    bad = [b"1,0,0,0,1,0,,1", b"2,0,0,0,1,0,word,1", b"3,0,0,0,1,0,inf,1", b"4,0,0,0,1,0,0,1"]
    stream = Stream(Settings(format="csv", on_error="skip"))
    stream.take([*text, *bad])
    reasons = [fault.reason for fault in stream.errors]
    assert [fault.line for fault in stream.errors] == [3, 4, 5]
    assert reasons[0].startswith("a rate that lacks some axes")
    assert "column 'w_y': 'word' is not a number" in reasons[1]
    assert stream.counts.used == 2
    header = text[0] + b",gyro_x,gyro_y,gyro_z"
    with pytest.raises(StreamError, match=r"more than one gyroscope \('w_x', 'gyro_x', ...\)"):
        Stream(Settings(format="csv")).take([header])
    quaternion = ("qx", "qy", "qz", "qw")
    for chosen, there in (((), False), (("gyro_x", "gyro_y", "gyro_z"), True)):
        stream = Stream(Settings(format="csv", columns=(*quaternion, *chosen)))
        stream.take([header, text[1] + b",0,0,9"])
        assert stream.reader.rated is there
        assert stream.counts.used == 1
    stream = Stream(Settings(format="csv"))
    stream.take([b"time,qx,qy,qz,qw", b"0,0,0,0,1"])
    with pytest.raises(StreamError, match="has a rate, 'w_x', where lines before had none"):
        stream.take(text)


@pytest.mark.parametrize("shape", ["columns", "lists", "rotations"])
def test_tables_are_the_fields_of_lines(shape: str, tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    rows = records()
    expected = estimates(Stream(RATED).take(lines(rows)))
    table: dict[str, Any] = {"key": [r["key"] for r in rows], "time": [r["time"] for r in rows]}
    turns, rates = [r.get("quaternion") for r in rows], [r.get("rate") for r in rows]
    if shape == "columns":
        names = ("qx", "qy", "qz", "qw", "gyro_x", "gyro_y", "gyro_z")
        every = [cells(row)[2:] for row in rows]
        table |= {name: [row[k] for row in every] for k, name in enumerate(names)}
    else:
        table["rate"] = rates  # before the rotations: the order is not important
        table |= {"quaternion": turns} if shape == "lists" else {}
    if shape == "rotations":
        matrices = [
            None if q is None else Rotation.from_quat(q).as_matrix().tolist() for q in turns
        ]
        table["rotation"] = matrices
    batch = pa.record_batch(table)
    settings = Settings(format="arrow", fields=("rotation",))
    stream = Stream(settings)
    tell = pa.ipc.open_stream(b"".join(taken(stream, [batch]))).read_all()
    rotation = np.array(tell.column("rotation").to_pylist())
    np.testing.assert_allclose(rotation, [row["rotation"] for row in expected], atol=1e-12)
    # In pieces, with a state between them.
    first = Stream(settings)
    parts = taken(first, [batch.slice(0, 1), batch.slice(1, 40)])
    first.save(tmp_path / "a.state")
    again = Stream(settings)
    again.restore(tmp_path / "a.state")
    parts += taken(again, [batch.slice(41)])[1:]
    pieces = pa.ipc.open_stream(b"".join(parts)).read_all()
    assert pieces.column("rotation").to_pylist() == tell.column("rotation").to_pylist()


def taken(stream: Stream, batches: list[Any]) -> list[bytes]:
    """The schema and the messages of a stream of tables."""
    from base64 import b64decode

    found = [stream.take(batch) for batch in batches]
    return [b64decode(stream.header[0]), *found]


def test_bad_rates_in_tables() -> None:
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    turn = [[0.0, 0.0, 0.0, 1.0]] * 4
    rates = [[0.0, 0.0, 1.0], [0.0, 1.0], [None, 0.0, 1.0], None]
    batch = pa.record_batch({"time": np.arange(4.0), "quaternion": turn, "rate": rates})
    stream = Stream(Settings(format="arrow", on_error="skip"))
    stream.take(batch)
    assert [fault.line for fault in stream.errors] == [2, 3]
    assert "'rate' is not three numbers" in stream.errors[0].reason
    assert "a rate that lacks some axes" in stream.errors[1].reason
    words = pa.record_batch({"quaternion": turn, "rate": [["a", "b", "c"]] * 4})
    with pytest.raises(StreamError, match="not numbers"):
        Stream(Settings(format="arrow")).take(words)


# ---------------------------------------------------------------------- the command


def test_kill_and_resume_gives_the_same_output(tmp_path: Path) -> None:
    every = lines(records())
    state, out = tmp_path / "a.state", tmp_path / "out.jsonl"
    command = [sys.executable, "-m", "kgmrf", "stream", "--fields", "rotation,covariance", "-q"]
    command += ["--digits", "17", "--state", str(state), "--rates", "--checkpoint-every", "0"]
    with out.open("ab") as sink:
        first = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=sink)
        assert first.stdin is not None
        first.stdin.write(b"\n".join(every[:80]) + b"\n")
        first.stdin.flush()
        patience = clock.monotonic() + 120.0
        while not (state.exists() and out.read_bytes().count(b"\n") >= 80):
            assert first.poll() is None
            assert clock.monotonic() < patience
            clock.sleep(0.02)
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        text = b"\n".join(every) + b"\n"
        subprocess.run([*command, "--replay"], input=text, stdout=sink, check=True)
    found = list(dict.fromkeys(out.read_bytes().splitlines()))  # some may come twice, the same
    tracker = {"gains": "auto", "gyroscope": True}
    settings = Settings(fields=("rotation", "covariance"), digits=17, tracker=tracker)
    assert found == Stream(settings).take(every).splitlines()
