"""The demonstration: honest, repeatable, and a real picture at the end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="matplotlib is not installed: no demonstration")
pytest.importorskip("rich", reason="rich is not installed: no table")

import kgmrf
from kgmrf import KGMRF, AlphaBeta, EuclideanEMA, metrics
from kgmrf.commands.demo import CONTENDERS, QUICK, Scene, print_demo, run_demo, simulated

TINY = Scene(n_frames=70, scored_from=20, occluded_from=40, occluded_to=50, n_seeds=2)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run_demo(tmp_path_factory.mktemp("demo") / "demo.png", TINY)


def test_the_command_prints_json_and_writes_a_png(tmp_path: Path) -> None:
    path = tmp_path / "demo.png"
    command = [sys.executable, "-m", "kgmrf", "demo", "--quick", "--json", "--output", str(path)]
    env = {**os.environ, "PYTHONPATH": str(Path(kgmrf.__file__).parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=env)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert found["figure"] == str(path)
    assert found["scene"]["n_frames"] == QUICK.n_frames
    ours, *others = found["mean_error_degrees"]
    assert ours["tracker"] == "KGMRF"
    assert [row["tracker"] for row in others] == [kind.__name__ for kind in CONTENDERS]
    for row in others:
        assert ours["occluded"] < row["occluded"]


def test_the_same_call_gives_the_same_numbers_and_picture(
    tiny: dict[str, Any], tmp_path: Path
) -> None:
    again = run_demo(tmp_path / "demo.png", TINY)
    assert {**again, "figure": tiny["figure"]} == tiny
    assert Path(again["figure"]).read_bytes() == Path(tiny["figure"]).read_bytes()


def test_the_numbers_are_those_of_the_trackers(tiny: dict[str, Any]) -> None:
    seen, truth = simulated(TINY)
    for row in tiny["mean_error_degrees"]:
        if row["tracker"] not in ("KGMRF", "EuclideanEMA"):
            continue
        ours = row["tracker"] == "KGMRF"
        tracker = KGMRF(n_samples=8) if ours else EuclideanEMA(**row["settings"])
        # One seed after the other; the demonstration runs them as a batch.
        found = np.stack([tracker.copy().filter(seen[:, k]).covariance for k in range(2)], axis=1)
        error = np.asarray(metrics.angular_error(found, truth, degrees=True))
        assert np.isclose(row["start"], error[:20].mean())
        assert np.isclose(row["before"], error[20:40].mean())
        assert np.isclose(row["occluded"], error[40:50].mean())
        assert np.isclose(row["after"], error[50:].mean())


def test_baselines_are_never_worse_than_their_defaults(tiny: dict[str, Any]) -> None:
    seen, truth = simulated(TINY)
    frames = {name: f.stop - f.start for name, f in TINY.phases().items() if name != "start"}
    for kind in (EuclideanEMA, AlphaBeta):
        (row,) = (row for row in tiny["mean_error_degrees"] if row["tracker"] == kind.__name__)
        shown = sum(row[name] * n for name, n in frames.items()) / sum(frames.values())
        found = kind().filter(seen).covariance
        error = np.asarray(metrics.angular_error(found, truth, degrees=True))
        assert shown <= error[TINY.scored_from :].mean() + 1e-9


def test_the_first_settings_of_a_baseline_are_its_defaults() -> None:
    for kind, grid in CONTENDERS.items():
        defaults = kind().settings()  # type: ignore[call-arg]
        assert {name: defaults[name] for name in grid[0]} == grid[0]


def test_nothing_is_computed_for_a_figure_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = sys.modules["kgmrf.commands.demo"]
    monkeypatch.setattr(module, "simulated", lambda *a: pytest.fail("worked"))
    with pytest.raises(FileNotFoundError):
        run_demo(tmp_path / "nowhere" / "demo.png", TINY)


def test_the_table_shows_the_measured_numbers(
    tiny: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    print_demo(tiny)
    text = capsys.readouterr().out
    for row in tiny["mean_error_degrees"]:
        (line,) = (line for line in text.splitlines() if line.split()[:1] == [row["tracker"]])
        errors = (row["start"], row["before"], row["occluded"], row["after"])
        assert line.split()[-4:] == [f"{error:.1f}" for error in errors]
    assert f"{100 * tiny['share_within_two_angle_std']:.0f} %" in text
    assert tiny["figure"] in text
