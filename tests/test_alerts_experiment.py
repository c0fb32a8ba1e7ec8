"""The experiment on alarms: its metrics, its faults, and rivals that are not there."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

pytest.importorskip("sklearn", reason="scikit-learn is not installed")

from experiments import alerts, alerts_data, alerts_detectors  # noqa: E402
from sklearn.metrics import average_precision_score  # noqa: E402


def test_the_area_is_that_of_scikit_learn_also_with_ties() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        faulty = rng.random(200) < 0.2
        scores = np.round(rng.standard_normal(200) + faulty, int(rng.integers(0, 4)))
        expected = average_precision_score(faulty, scores)
        assert alerts.average_precision(faulty, scores) == pytest.approx(expected)


def test_delays_count_from_the_first_row_of_a_fault() -> None:
    faulty = np.zeros(400, bool)
    faulty[100:120] = faulty[200:220] = faulty[399] = True
    scores = np.linspace(0.0, 1.0, 400)
    scores[faulty] = 0.0
    scores[105], scores[200] = 5.0, 5.0
    assert alerts.delays(faulty, scores) == (pytest.approx(2 / 3), 2.5)


def test_means_of_rows_use_the_past_alone() -> None:
    scores = np.arange(50.0)
    found = alerts.smoothed(scores)
    assert found[0] == 0.0
    assert found[3] == 1.5
    assert found[30] == pytest.approx(scores[11:31].mean())


def test_faults_that_are_put_in_are_those_that_are_labelled() -> None:
    clean = alerts_data.background("simulated")
    (part,) = alerts_data.injected("simulated")
    changed = (part.rows != clean).any(axis=1)
    assert not changed[~part.faulty].any()
    assert changed[part.faulty].mean() > 0.95
    assert not part.faulty[: part.fit].any()
    edges = np.flatnonzero(np.diff(part.faulty.astype(int)) == 1)
    assert len(edges) == 10


def test_a_rival_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = {"KineticDetector": alerts_detectors.kinetic_fit}
    nobody = {**ours, "nobody": alerts_detectors.pyod("NoSuchDetector")}
    monkeypatch.setattr(alerts, "FITTED", nobody)
    found = alerts.detect("simulated", online=False)["detectors"]
    assert "absent" in found["nobody"]
    assert found["KineticDetector"]["precision"] > 0.3


def test_rates_are_counted_over_what_was_seen() -> None:
    from kgmrf.alerts import Alarm

    p = np.full((2, 100), 0.5)
    p[0, 10:14], p[1, 50:] = 1e-5, np.nan
    found = alerts.shares(p, Alarm(1e-3, warm_up=0))
    assert found["rows"] == 150
    assert found["0.001"] == pytest.approx(4 / 150)
    assert found["alarms"] == pytest.approx(1 / 150)
