"""``--paper``: the paper's trackers on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("typer", reason="typer is not installed: no command line")
pytest.importorskip("rich", reason="rich is not installed: no command line")

from kgmrf import paper
from kgmrf.cli import main
from kgmrf.io import open_source

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("paper")
    main(["simulate", "ellipse", "-o", str(folder / "ellipse.csv"), "--dropout", "0.1"])
    main(["simulate", "steady-camera", "-o", str(folder / "camera.npz"), "--dropout", "0.1"])
    np.savetxt(folder / "start.csv", np.diag([2.0, 0.5]), delimiter=",")
    return folder


def call(capsys: Capture, *words: Any, code: int = 0) -> str:
    capsys.readouterr()
    assert main([str(word) for word in words]) == code
    captured = capsys.readouterr()
    return captured.out if code == 0 else captured.err


def values(path: Path, key: str | None = None) -> Any:
    return np.concatenate([chunk.values for chunk in open_source(path, key=key)])


@pytest.mark.parametrize("start", ["first", "file"])
def test_algorithm_1_follows_a_file(
    scenes: Path, tmp_path: Path, capsys: Capture, start: str
) -> None:
    given = scenes / "start.csv" if start == "file" else "first"
    out, source = tmp_path / "out.npz", scenes / "ellipse.csv"
    words = ["--paper", "algorithm1", "--eta", 0.1, "--gamma", 0.5, "--start", given]
    call(capsys, "track", source, "-m", 8, *words, "-o", out)
    initial = np.diag([2.0, 0.5]) if start == "file" else "first"
    expected = paper.algorithm1(0.1, 0.5, initial=initial).filter(values(source))
    np.testing.assert_array_equal(values(out, "covariance"), expected.covariance)


def test_the_columns_follow_rotations(scenes: Path, tmp_path: Path, capsys: Capture) -> None:
    out, source = tmp_path / "out.npz", scenes / "camera.npz"
    for word, reading in (("kgmrf", "so3"), ("alpha_beta_printed", "printed_so3")):
        call(capsys, "track", source, "--paper", word, "-o", out)
        name = word.removesuffix("_printed")
        expected = paper.column(name, reading).filter(values(source))
        np.testing.assert_array_equal(values(out, "rotation"), expected.rotation)


def test_compare_runs_one_of_them_or_all(scenes: Path, capsys: Capture) -> None:
    for word, least in (("algorithm1", 1), ("all", 10)):
        told = call(
            capsys, "compare", scenes / "ellipse.csv", "-m", 8, "--paper", word, "--json"
        )  # fmt: skip
        found = json.loads(told)
        rows = [row["tracker"] for row in found["rows"] + found["left_out"]]
        assert sum(row.startswith("paper ") for row in rows) == least
        assert "paper algorithm1" in rows
        assert "KGMRF" in rows


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--paper", "ema"], "--paper has no 'ema'; there are algorithm1, kgmrf"),
        (["--paper", "kgmrf", "--eta", "1"], "--eta is for --paper algorithm1, not kgmrf"),
        (["--gamma", ".5"], "--gamma is for --paper algorithm1"),
        (["--paper", "algorithm1", "--start", "nowhere.csv"], "there is no nowhere.csv"),
        (["--paper", "algorithm1", "--gamma", "2"], "'--gamma'"),
    ],
)
def test_wrong_words_are_refused(
    scenes: Path, capsys: Capture, words: list[str], message: str
) -> None:
    error = call(capsys, "track", scenes / "ellipse.csv", "-m", 8, *words, code=2)
    assert message in error


def test_algorithm_1_is_for_covariances(scenes: Path, capsys: Capture) -> None:
    error = call(capsys, "track", scenes / "camera.npz", "--paper", "algorithm1", code=2)
    assert "for rotations give --paper kgmrf" in error
