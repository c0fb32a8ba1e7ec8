"""`kgmrf compare` on rows that predict each other: covariances are ranked on the blocks ahead."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgmrf.cli import main
from kgmrf.commands._scores import lead_of

MIXING = np.array([[1.0, 0.6, 0.0], [0.0, 0.8, 0.3], [0.0, 0.0, 0.5]])


def signal(n: int = 900, length: int = 12, seed: int = 0) -> Any:
    """Moving sums of noise that is mixed."""
    noise = np.random.default_rng(seed).normal(size=(n + length - 1, 3))
    return np.apply_along_axis(np.convolve, 0, noise, np.ones(length), "valid") @ MIXING


def compared(path: Path, rows: Any, capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    np.savetxt(path, rows, delimiter=",", header="a,b,c", comments="")
    capsys.readouterr()
    assert main(["compare", str(path), *words]) == 0
    return capsys.readouterr().out


def test_what_is_reported_is_ranked_on_blocks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A steady covariance: long averages and ours know it, the last few rows do not."""
    about = json.loads(compared(tmp_path / "x.csv", signal(), capsys, "--json"))
    found = about["signal"]
    assert found["rows_ahead"] == round(2.0 * about["integrated_time"])
    assert found["blocks"] == 900 // found["rows_ahead"]
    place = {(row["tracker"], row["settings"]): row for row in found["rows"]}
    ours, quick = place["KGMRF", "time_scale=auto"], place["KGMRF", "time_scale=1"]
    averages = [row["score"] for row in found["rows"] if row["tracker"] == "EuclideanEMA"]
    assert ours["score"] > quick["score"] + 0.5
    assert ours["score"] > max(averages) - 0.05
    assert ours["score"] > min(averages) + 0.1
    assert quick["lead"] == pytest.approx(ours["score"] - quick["score"])
    scores = [row["score"] for row in found["rows"]]
    assert scores == sorted(scores, reverse=True)


def test_both_tables_are_printed_with_the_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = compared(tmp_path / "x.csv", signal(400), capsys)
    first, second = said.split("rows predict each other")
    assert "mean=linear" in first
    assert "time_scale=auto" in second
    assert "independent sample" in second
    few = compared(tmp_path / "x.csv", signal(140), capsys)
    assert 'use KGMRF(time_scale="auto")' in few
    assert "too few blocks" in few


def test_rows_that_do_not_predict_each_other_have_one_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = np.random.default_rng(0).normal(size=(200, 3))
    assert json.loads(compared(tmp_path / "x.csv", rows, capsys, "--json"))["signal"] is None


def test_holes_times_and_skipped_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = signal()
    rows[np.random.default_rng(1).random(rows.shape) < 0.02] = np.nan
    rows[400:500] = np.nan
    timed = np.column_stack([np.arange(len(rows)) / 256.0, rows])
    path = tmp_path / "x.csv"
    np.savetxt(path, timed, delimiter=",", header="time,a,b,c", comments="")
    assert main(["compare", str(path), "--json", "--skip", "300"]) == 0
    found = json.loads(capsys.readouterr().out)["signal"]
    length = found["rows_ahead"]
    usable = found["blocks"] - -(-300 // length)
    # Blocks of which half is missing say nothing.
    assert usable - 100 // length - 1 <= found["scored"] <= usable - 100 // length + 1


def test_the_interval_of_a_lead_is_of_means_of_blocks() -> None:
    gap = np.repeat([0.0, 1.0], 20)
    mean, within = lead_of(gap)
    assert mean == 0.5
    assert within == pytest.approx(1.96 * gap[::2].std(ddof=1) / np.sqrt(20.0))
    assert np.isnan(lead_of(np.ones(1))[1])
