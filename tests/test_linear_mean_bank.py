"""Linear means in banks: every track is the tracker that it would be alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.test_linear_mean import autoregressive, with_holes

from kgmrf import KGMRF, ObservationError, TrackerBank

FIELDS = ("mean", "covariance", "log_likelihood", "p_value", "scale")


def sequences(n: int = 3, length: int = 150) -> Any:
    """Rows ``(T, n, d)`` with holes, and one track that is not there for a while."""
    x = np.stack([with_holes(autoregressive(length, seed)) for seed in range(n)], axis=1)
    x[40:50, 1] = np.nan
    return x


@pytest.mark.parametrize(
    "settings", [{}, {"lags": 1}, {"lags": 3}, {"gains": "information"}], ids=str
)
def test_a_bank_is_its_trackers(settings: Any) -> None:
    x = sequences()
    bank = TrackerBank(3, 2, mean="linear", n_threads=1, **settings)
    trackers = [KGMRF(mean="linear", **settings) for _ in range(3)]
    for rows in x:
        bank.update(rows)
        for tracker, row in zip(trackers, rows, strict=True):
            tracker.update(row)
    for found, name in ((bank.estimate(), "estimate"), (bank.forecast(1), "forecast")):
        for k, tracker in enumerate(trackers):
            expected = getattr(tracker, name)()
            for field in ("mean", "covariance", "log_likelihood"):
                one, other = getattr(found, field)[k], getattr(expected, field)
                np.testing.assert_allclose(one, other, rtol=1e-9, err_msg=field)
    further = bank.forecast(5)
    for k, tracker in enumerate(trackers):
        expected = tracker.forecast(5)
        np.testing.assert_allclose(further.mean[k], expected.mean, rtol=1e-9)
        np.testing.assert_allclose(further.covariance[k], expected.covariance, rtol=1e-9)


def test_lines_in_any_order_and_steps_are_the_same_to_the_bit() -> None:
    x = sequences()
    steps, lines = (TrackerBank(3, 2, mean="linear") for _ in range(2))
    shown = [steps.update(rows) and steps.estimate() for rows in x]
    order = np.argsort(np.random.default_rng(0).random(len(x) * 3), kind="stable")
    # Each track keeps its own order.
    tracks = np.tile(np.arange(3), len(x))[order]
    place = np.empty(len(tracks), dtype=int)
    for k in range(3):
        place[tracks == k] = np.arange(len(x))
    found = lines.feed(tracks, x[place, tracks], dt=np.ones(len(tracks)), fields=FIELDS)
    for name in FIELDS:
        expected = np.stack([getattr(one, name) for one in shown])[place, tracks]
        assert np.array_equal(found[name], expected, equal_nan=True), name
    # Fields that are worked out from rows take another way.
    again = TrackerBank(3, 2, mean="linear")
    more = again.feed(
        tracks, x[place, tracks], dt=np.ones(len(tracks)), fields=("mean", "velocity")
    )
    assert np.array_equal(more["mean"], found["mean"])


def test_threads_files_parts_and_new_tracks(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(20, 1200, 2)).cumsum(axis=0)
    one = TrackerBank(1200, 2, mean="linear", n_threads=1)
    two = TrackerBank(600, 2, mean="linear", n_threads=3)
    two.add(600)
    for rows in x:
        one.update(rows)
        two.update(rows)
    assert np.array_equal(one.estimate().mean, two.estimate().mean)
    two.save(tmp_path / "bank.npz")
    again = TrackerBank.load(tmp_path / "bank.npz")
    part = again.select([5, 7])
    for bank, these in ((again, slice(None)), (part, [5, 7])):
        bank.update(x[0][these])
    one.update(x[0])
    expected = one.estimate()
    assert np.array_equal(again.estimate().covariance, expected.covariance)
    assert np.array_equal(part.estimate().mean, expected.mean[[5, 7]])
    again.remove([0])
    assert np.array_equal(again.forecast(3).mean, one.forecast(3).mean[1:])
    plain = TrackerBank(1200, 2)
    assert one.nbytes - plain.nbytes == 1200 * 8 * (3 + 3 * 2 + 4 + 4 * 2 + 4 * 4)


def test_rows_that_cannot_be_used_count_as_missing() -> None:
    x = sequences(2)
    bank, alone = (TrackerBank(2, 2, mean="linear") for _ in range(2))
    for t, rows in enumerate(x):
        bad = rows.copy()
        if t == 100:
            bad[1], rows[1] = 1e90, np.nan
            assert bank.update(bad).invalid.tolist() == [False, True]
        else:
            bank.update(rows)
        alone.update(rows)
    assert np.array_equal(bank.estimate().mean, alone.estimate().mean)
    assert np.array_equal(bank.estimate().covariance, alone.estimate().covariance)


def test_what_it_does_not_take_changes_nothing() -> None:
    bank = TrackerBank(2, 2, mean="linear")
    bank.update(np.ones((2, 2)))
    before = bank.state_dict()
    with pytest.raises(ObservationError, match="single rows"):
        bank.update(np.stack([np.eye(2)] * 2), n_samples=5)
    with pytest.raises(ObservationError, match="single rows"):
        bank.update(np.ones((2, 3, 2)), samples=True)
    for name, array in bank.state_dict().items():
        assert np.array_equal(array, before[name], equal_nan=True), name
    with pytest.raises(ValueError, match="mean='linear'; centre them"):
        TrackerBank(2, 2, mean="expanding")
    with pytest.raises(ValueError, match="rank=None"):
        TrackerBank(2, 64, mean="linear")
    for name, value in (("means", np.zeros((2, 1))), ("means", np.full((2, 41), np.nan))):
        with pytest.raises(ValueError, match="linear mean"):
            bank.load_state_dict({**bank.state_dict(), name: value})


def test_tables_by_key_in_python_and_on_the_command_line(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    from kgmrf.cli import main

    x = [autoregressive(200, seed) for seed in range(2)]
    key = np.repeat(["one", "two"], 200)
    time = np.tile(np.arange(200), 2)
    values = np.concatenate(x)
    table = pd.DataFrame({"key": key, "t": time, "a": values[:, 0], "b": values[:, 1]})
    table = table.sort_values("t", kind="stable")
    bank = TrackerBank(0, 2, mean="linear")
    found = bank.feed_table(table, key="key", fields=["mean", "log_likelihood"])
    assert list(found.columns) == ["key", "t", "mean_a", "mean_b", "log_likelihood"]
    for k, name in enumerate(("one", "two")):
        expected = KGMRF(mean="linear").filter(x[k])
        own = found[found["key"] == name]
        np.testing.assert_allclose(own[["mean_a", "mean_b"]], expected.mean, rtol=1e-12)
        np.testing.assert_allclose(own["log_likelihood"], expected.log_likelihood, rtol=1e-9)
    file, out = tmp_path / "x.csv", tmp_path / "out.csv"
    table.to_csv(file, index=False)
    words = ["track", str(file), "--by", "key", "--mean", "linear", "-o", str(out)]
    assert main([*words, "--fields", "mean,log_likelihood"]) == 0
    written = pd.read_csv(out)
    np.testing.assert_allclose(written["mean_a"], found["mean_a"], rtol=1e-6)
