"""Looking at one step of a result, and following a sequence at once, costs no more than it must."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kgmrf import KGMRF, AlphaBeta, EuclideanEMA, RotationTracker, simulate
from kgmrf.baselines._contract import BaselineTracker
from kgmrf.engines.ensemble import Ensemble

X = np.random.default_rng(0).normal(size=(300, 4)) * [3.0, 2.0, 1.0, 0.5]
LATE = ["covariance", "frame", "spectrum", "velocity", "angle_std", "nis", "scale", "correlation"]


class Counted:
    """How many lines an engine took in."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lines = 0
        advance = Ensemble.advance

        def counting(engine: Any, rows: Any, lines: Any, record_width: Any = None) -> Any:
            self.lines += len(lines.track_index)
            return advance(engine, rows, lines, record_width)

        monkeypatch.setattr(Ensemble, "advance", counting)


def test_one_step_of_a_result_is_not_worked_out_from_all(monkeypatch):
    result = KGMRF().filter(X)
    counted = Counted(monkeypatch)
    last = result[-1]
    assert last.covariance.shape == (4, 4)
    assert result[10:20].log_likelihood.shape == (10,)
    assert counted.lines == 0
    assert "spectrum" not in result._values._made


@pytest.mark.parametrize("times", [None, np.cumsum(np.random.default_rng(1).exponential(size=300))])
@pytest.mark.parametrize("picked", [-1, 7, slice(3, 40, 5)])
def test_a_part_shows_what_the_whole_shows(picked, times):
    whole = KGMRF().filter(X, times=times)
    part = KGMRF().filter(X, times=times)[picked]
    for name in (*whole.fields(), *LATE):
        expected = getattr(whole, name)[picked]
        np.testing.assert_allclose(getattr(part, name), expected, rtol=1e-12, err_msg=name)


def test_steps_in_a_row_do_not_run_the_sequence_each_time(monkeypatch):
    result = KGMRF().filter(X)
    counted = Counted(monkeypatch)
    turns = [step.velocity for step in result]
    assert counted.lines <= 20 * len(X)  # once more, and once for every member; not len(X) times
    np.testing.assert_array_equal(np.stack(turns), result.velocity)


def test_rotations_and_baselines_have_parts_too():
    scene = simulate.rotating_frame(3, n_frames=50, rng=0).observations
    for tracker in (RotationTracker(), EuclideanEMA(kind="rotation"), AlphaBeta(kind="rotation")):
        result = tracker.filter(scene)
        for name in result.fields():
            np.testing.assert_array_equal(getattr(result[-1], name), getattr(result, name)[-1])


def test_the_scikit_learn_face_filters_once(monkeypatch):
    estimator = pytest.importorskip("kgmrf.sklearn.estimator")
    counted = Counted(monkeypatch)
    estimator.KineticCovariance().fit(X)
    assert counted.lines <= 1.2 * len(X)


def holes(kind: str) -> tuple[np.ndarray, dict[str, Any]]:
    rng = np.random.default_rng(3)
    rows = X.copy()
    if kind == "cells":
        rows[rng.random(rows.shape) < 0.1] = np.nan
    rows[rng.random(len(rows)) < 0.2] = np.nan
    rows[:3] = np.nan
    if kind == "matrices":
        return rows[:, :, None] * rows[:, None, :], {"n_samples": 1.0}
    if kind == "batch":
        return np.stack([rows, X], axis=1)[:, :, None], {"samples": True}
    return rows, {"times": np.cumsum(rng.exponential(size=len(rows)))} if kind == "times" else {}


@pytest.mark.parametrize("kind", ["rows", "cells", "times", "matrices", "batch"])
def test_an_average_at_once_is_the_average_step_by_step(kind):
    """Bit by bit, also in two pieces."""
    rows, given = holes(kind)
    times = given.pop("times", None)
    counts = given.pop("n_samples", None)
    step_by_step = EuclideanEMA(gain=0.07, n_samples=counts)
    pieces = EuclideanEMA(gain=0.07, n_samples=counts)
    whole = BaselineTracker._run(
        step_by_step, step_by_step.prepare_sequence(rows, times=times, **given), None
    )
    parts = [
        pieces.filter(rows[part], times=None if times is None else times[part], **given)
        for part in (slice(2), slice(2, 120), slice(120, None))
    ]
    for name in ("covariance", "age", "log_likelihood", "spectrum"):
        found = np.concatenate([getattr(part, name) for part in parts])
        if times is None:
            np.testing.assert_array_equal(found, whole[name], err_msg=name)
        elif name != "age":
            np.testing.assert_allclose(found, whole[name], rtol=1e-9, err_msg=name)


def test_an_average_is_scored_at_once(monkeypatch):
    calls = []
    predictive = EuclideanEMA._predictive
    monkeypatch.setattr(
        EuclideanEMA, "_predictive", lambda *a: (calls.append(1), predictive(*a))[1]
    )
    EuclideanEMA(gain=0.1).filter(X)
    assert len(calls) == 1
