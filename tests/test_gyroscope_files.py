"""Files of poses with a gyroscope beside them: the command line, and poses with positions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from kgmrf import PoseTracker, RotationTracker, load
from kgmrf.cli import main
from kgmrf.io import open_source
from test_gyroscope import BIAS, HZ, error, motion, seen_of

N, EVERY = 600, 7


@pytest.fixture
def scene() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    t, truth, rate = motion(N)
    return 100.0 + t, truth, rate + BIAS, seen_of(truth, 0.01, EVERY)


def tum(path: Path, t: Any, z: Any) -> Path:
    there = ~np.isnan(z[:, 0, 0])
    q = Rotation.from_matrix(z[there]).as_quat()
    np.savetxt(path, np.column_stack([t[there], np.ones((len(q), 3)), q]), fmt="%.17g")
    return path


def columns(path: Path, table: dict[str, Any]) -> Path:
    cells = np.column_stack(list(table.values()))
    rows = [",".join("" if np.isnan(c) else repr(float(c)) for c in row) for row in cells]
    path.write_text("\n".join([",".join(table), *rows]) + "\n")
    return path


def imu(path: Path, t: Any, rates: Any) -> Path:
    """As EuRoC has it: nanoseconds, and accelerations beside the rates."""
    names = "#timestamp [ns],w_RS_S_x [rad s^-1],w_RS_S_y [rad s^-1],w_RS_S_z [rad s^-1],"
    names += "a_RS_S_x [m s^-2],a_RS_S_y [m s^-2],a_RS_S_z [m s^-2]"
    stamps = np.round((1.4e9 + t) * 1e9).astype(np.int64)
    cells = [",".join(map(repr, omega)) for omega in rates.tolist()]
    rows = [f"{s},{omega},0.1,0.2,9.8" for s, omega in zip(stamps, cells, strict=True)]
    path.write_text("\n".join([names, *rows]) + "\n")
    return path


def test_poses_and_the_file_of_a_gyroscope(scene: Any, tmp_path: Path) -> None:
    t, truth, rates, z = scene
    poses, out = tum(tmp_path / "poses.tum", 1.4e9 + t, z), tmp_path / "out.npz"
    motion_file = imu(tmp_path / "imu.csv", t, rates)
    for command in ("track", "smooth"):
        words = [command, str(poses), "--gyroscope", str(motion_file), "-o", str(out), "--quiet"]
        assert main(words) == 0
        found = np.load(out)
        last = int(np.flatnonzero(~np.isnan(z[:, 0, 0]))[-1]) + 1
        assert len(found["rotation"]) == last  # the state runs at the rate
        method = "filter" if command == "track" else "smooth"
        expected = getattr(PoseTracker(time_unit=EVERY / HZ), method)(
            {"rotation": z[:last], "position": np.where(np.isnan(z[:last, 0]), np.nan, 1.0)},
            times=t[:last],
            rates=rates[:last],
        )
        np.testing.assert_allclose(found["rotation"], expected.rotation.rotation, atol=2e-4)
        assert error(expected.rotation, truth[:last])[N // 3 : N // 2].max() < 0.05
        np.testing.assert_allclose(found["position"], 1.0, atol=1e-3)


def test_columns_of_the_same_file(scene: Any, tmp_path: Path) -> None:
    t, _, rates, z = scene
    z = z.copy()
    z[-1] = np.eye(3)
    q = np.full((N, 4), np.nan)
    there = ~np.isnan(z[:, 0, 0])
    q[there] = Rotation.from_matrix(z[there]).as_quat()
    table = {"time": t} | dict(zip(["qx", "qy", "qz", "qw"], q.T, strict=True))
    table |= dict(zip(["gyro_x", "gyro_y", "gyro_z"], rates.T, strict=True))
    path, out = columns(tmp_path / "a.csv", table), tmp_path / "out.npz"
    assert main(["track", str(path), "--gyroscope", str(path), "-o", str(out), "--quiet"]) == 0
    expected = RotationTracker().filter(z, times=t, rates=rates)
    np.testing.assert_allclose(np.load(out)["rotation"], expected.rotation, atol=1e-6)
    assert main(["track", str(path), "-o", str(out), "--quiet"]) == 0  # nobody asked for rates
    without = RotationTracker().filter(z, times=t)
    np.testing.assert_allclose(np.load(out)["rotation"], without.rotation, atol=1e-6)


def test_chunks_make_no_difference(
    scene: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kgmrf.io import rates as module
    from kgmrf.io import text

    t, _, rates, z = scene
    poses, path = tum(tmp_path / "poses.tum", t, z), tmp_path / "rates.csv"
    columns(path, {"time": t + 0.001, "wx": rates[:, 0], "wy": rates[:, 1], "wz": rates[:, 2]})
    runs = []
    for block in (4_000_000, 500):
        monkeypatch.setattr(text, "BLOCK", block)
        chunks = list(module.with_rates(open_source(poses), path))
        runs.append([np.concatenate([getattr(c, n) for c in chunks]) for n in ("times", "rates")])
        values = np.concatenate([c.values for c in chunks])
        assert (~np.isnan(values[:, 0, 0])).sum() == (~np.isnan(z[:, 0, 0])).sum()
        assert (np.diff(runs[-1][0]) > 0).all()
    assert len(chunks) > 3
    for whole, parts in zip(*runs, strict=True):
        np.testing.assert_array_equal(whole, parts)


def test_what_is_wrong_with_rates_is_said(
    scene: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    t, _, rates, z = scene
    poses = tum(tmp_path / "poses.tum", t, z)
    three = dict(zip(["wx", "wy", "wz"], rates.T, strict=True))
    for table, words in (
        ({"time": t + 1e4, **three}, "no rate within the times of"),
        ({"time": t, "a": t, "b": t}, "expected the rates of one gyroscope"),
        (three, "no time stamps"),
        ({"time": t, **three, **{f"gyro_{k}": v for k, v in three.items()}}, "of one gyroscope"),
        ({"time": t, **dict.fromkeys(three, np.full(N, np.nan))}, "holds no rates"),
    ):
        path = columns(tmp_path / "rates.csv", table)
        assert main(["track", str(poses), "--gyroscope", str(path)]) == 2
        assert words in capsys.readouterr().err.replace("\n", " ")
    samples = columns(tmp_path / "samples.csv", {"time": t, "a": t, "b": t})
    assert main(["track", str(samples), "--gyroscope", str(samples)]) == 2
    assert "is for rotations" in capsys.readouterr().err


def test_a_pose_with_rates_is_its_rotation_with_rates(scene: Any, tmp_path: Path) -> None:
    t, _, rates, z = scene
    place = np.where(np.isnan(z[:, 0]), np.nan, 1.0)
    tracker = PoseTracker()
    first = tracker.filter(
        {"rotation": z[:100], "position": place[:100]}, times=t[:100], rates=rates[:100]
    )
    tracker.save(tmp_path / "pose.npz")
    tracker = load(tmp_path / "pose.npz")
    for k in range(100, 160):
        seen = {} if np.isnan(place[k, 0]) else {"rotation": z[k], "position": place[k]}
        found = tracker.update(seen, dt=t[k] - t[k - 1], rate=rates[k])
    alone = RotationTracker().filter(z[:160], times=t[:160], rates=rates[:160])
    np.testing.assert_allclose(first.rotation.rotation, alone.rotation[:100], atol=1e-12)
    np.testing.assert_allclose(found.rotation.rotation, alone.rotation[-1], atol=1e-8)
