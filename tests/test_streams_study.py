"""The study of real streams: its scores and intervals, and what it says where data are absent."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
study = pytest.importorskip("experiments.streams", reason="the experiments are not here")


def test_absent_data_are_skipped_and_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KGMRF_DATA", str(tmp_path))
    monkeypatch.setattr(study.store, "HERE", tmp_path / "a" / "b")
    data = study.run()
    assert set(data["streams"].values()) == {None}
    assert data["carried"] == {}
    assert capsys.readouterr().err.count("set KGMRF_DATA") == 5
    study.show(data)
    assert "ETF18: no data" in capsys.readouterr().out


def test_the_score_is_the_gaussian_of_the_forecast() -> None:
    X = np.random.default_rng(0).normal(size=(504, 2))
    S = np.diag([2.0, 0.5])
    score = study.log_likelihood(X, {502: S, 17: S})
    expected = -0.5 * (2 * np.log(2 * np.pi) + X[502] @ np.linalg.solve(S, X[502]))
    assert score[2] == pytest.approx(expected)
    assert np.isnan(score[[0, 1, 3]]).all()


def test_the_interval_covers_the_mean_of_dependent_frames() -> None:
    rng = np.random.default_rng(1)
    covered = 0
    for seed in range(40):
        noise = np.convolve(rng.normal(size=2020), np.ones(10) / 10, mode="valid")[:2000]
        low, high = study.interval(0.3 + noise, seed)
        covered += low <= 0.3 <= high
    assert covered >= 33  # 95 % would be 38


def test_rivals_are_scored_on_the_same_frames() -> None:
    X = np.random.default_rng(2).normal(size=(560, 2)) * [2.0, 1.0]
    for run in (study.ewma, study.iterated_ewma, study.precise_dcc, study.ledoit_wolf):
        try:
            found, seconds = run(X)
        except ImportError as reason:
            pytest.skip(str(reason))
        assert seconds >= 0
        assert all(score.shape == (60,) and np.isfinite(score).all() for score in found.values())
