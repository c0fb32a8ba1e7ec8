"""Trajectories as robots write them: stamps in two columns, nanoseconds, positions kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from kgmrf.cli import main
from kgmrf.geometry import so
from kgmrf.io import open_source
from kgmrf.io.write import Writer
from kgmrf.results import Result

EUROC = (
    "#timestamp [ns],p_RS_R_x [m],p_RS_R_y [m],p_RS_R_z [m],"
    "q_RS_w [],q_RS_x [],q_RS_y [],q_RS_z []\n"
)
T, RATE = 60, 0.5


def quaternions() -> Any:
    """A steady turn about z by RATE rad per second, 20 frames a second: w, z."""
    half = 0.5 * RATE * np.arange(T) / 20
    return np.cos(half), np.sin(half)


def euroc(path: Path) -> Path:
    w, z = quaternions()
    rows = [
        f"{1403636580838555648 + 50_000_000 * k},{0.1 * k},0,1,{w[k]},0,0,{z[k]}" for k in range(T)
    ]
    path.write_text(EUROC + "\n".join(rows) + "\n")
    return path


def tum(path: Path) -> Path:
    w, z = quaternions()
    rows = [f"{1305031098 + k / 20:.4f} {0.1 * k} 0 1 0 0 {z[k]} {w[k]}" for k in range(T)]
    path.write_text("\n".join(rows) + "\n")
    return path


def test_ros_stamps_in_two_columns_are_one_time(tmp_path: Path) -> None:
    """Finding 52: frames were counted, and the stamps were channels."""
    path = tmp_path / "ros.csv"
    head = "header.seq,header.stamp.secs,header.stamp.nsecs,orientation.x,orientation.y,"
    rows = [f"{k},1700000000,{k * 10**7},0,0,0,1" for k in range(5)]
    path.write_text(head + "orientation.z,orientation.w\n" + "\n".join(rows) + "\n")
    source = open_source(path)
    chunk = next(iter(source))
    assert (source.kind, source.per_second, chunk.positions) == ("rotation", 1.0, None)
    assert chunk.times is not None
    assert_allclose(np.diff(chunk.times), 0.01, atol=1e-6)
    path.write_text("header.stamp.secs,header.stamp.nsecs,a\n1,500000000,3\n2,0,4\n")
    source = open_source(path)
    chunk = next(iter(source))
    assert source.names == ("a",)
    assert_allclose(chunk.times, [1.5, 2.0])


def test_a_file_says_how_long_a_second_is(tmp_path: Path) -> None:
    assert open_source(euroc(tmp_path / "e.csv")).per_second == 1e9
    assert open_source(tum(tmp_path / "t.tum")).per_second == 1.0
    for text, want in (
        ("time [ms],a\n0,1\n1,2\n", 1e3),
        ("date,a\n2024-01-01,1\n2024-01-02,2\n", 1.0),
        ("time,a\n1700000000000,1\n1700000000010,2\n", 1e3),
        ("time,a\n0,1\n1,2\n", None),
    ):
        (tmp_path / "a.csv").write_text(text)
        assert open_source(tmp_path / "a.csv").per_second == want


@pytest.mark.parametrize("make", [euroc, tum])
def test_positions_come_with_the_rotations(make: Any, tmp_path: Path) -> None:
    """Finding 24: tx ty tz were dropped in silence."""
    chunk = next(iter(open_source(make(tmp_path / f"a{'.csv' if make is euroc else '.tum'}"))))
    assert chunk.positions is not None
    assert_allclose(chunk.positions[:, 0], 0.1 * np.arange(T))
    assert_allclose(chunk.positions[:, 2], 1.0)


@pytest.mark.parametrize("ending", [".tum", ".euroc.csv"])
def test_a_written_trajectory_reads_back(ending: str, tmp_path: Path) -> None:
    turns = so.exp(so.hat(0.1 * np.arange(5)[:, None] * np.array([0.0, 0.6, 0.8])))
    turns[0] = np.nan
    places = np.arange(15.0).reshape(5, 3)
    times = 1.4e18 + 5e6 * np.arange(5)
    path = tmp_path / f"out{ending}"
    with Writer(path, per_second=1e9) as writer:
        writer.write(Result({"time": times, "rotation": turns, "position": places}))
    chunk = next(iter(open_source(path)))
    assert_allclose(chunk.values, turns[1:], atol=1e-7)
    assert chunk.positions is not None
    assert_allclose(chunk.positions, places[1:])
    unit = 1.0 if ending == ".tum" else 1e9
    assert_allclose(np.diff(chunk.times) / unit, 5e-3, atol=1e-6)


@pytest.mark.parametrize("make", [euroc, tum])
def test_commands_speak_of_seconds_and_keep_positions(
    make: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Finding 51: EuRoC speeds were 5e-10, and the times of forecasts all the same."""
    path = make(tmp_path / f"a{'.csv' if make is euroc else '.tum'}")
    out = tmp_path / "out.tum"
    assert main(["track", str(path), "--json", "-o", str(out)]) == 0
    about = json.loads(capsys.readouterr().out)
    assert about["rate"] == "rad per second"
    assert about["speed"] == pytest.approx(RATE, rel=0.02)
    found = next(iter(open_source(out)))
    assert found.positions is not None
    assert_allclose(found.positions[10:, 0], 0.1 * np.arange(10, T), atol=0.02)
    assert main(["forecast", str(path), "--json", "--steps", "3"]) == 0
    rows = json.loads(capsys.readouterr().out)["forecast"]
    second = 1e9 if make is euroc else 1.0
    assert_allclose(np.diff([row["time"] for row in rows]) / second, 0.05, rtol=1e-3)
    assert rows[0]["position"][0] == pytest.approx(0.1 * T, abs=0.02)
    assert main(["forecast", str(path), "--steps", "3"]) == 0
    printed = [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]]
    assert len(set(printed)) == 3
