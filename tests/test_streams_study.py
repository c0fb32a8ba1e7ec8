"""The study of streams, starts, faults and rotations: data, rivals, scores, and what is shown."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("scipy")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
pytest.importorskip("experiments.streams", reason="the experiments are not here")

from experiments import faults, motions, rotating, starts, store
from experiments.reading import Results
from experiments.streams import data, rivals, scores, shown, study

from kgmrf import KGMRF
from kgmrf.baselines import _dcc as dcc


@pytest.fixture
def no_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KGMRF_DATA", str(tmp_path))
    monkeypatch.setattr(store, "HERE", tmp_path / "a" / "b")


@pytest.fixture
def rows() -> Any:
    return np.random.default_rng(2).normal(size=(400, 3)) * [2.0, 1.0, 0.3]


# ----------------------------------------------------------------------- data


@pytest.mark.parametrize("name", data.STREAMS)
def test_absent_data_are_not_available(no_data: None, name: str) -> None:
    with pytest.raises(store.NotAvailable, match="set KGMRF_DATA"):
        data.load(name)


def test_an_absent_recording_is_not_available(no_data: None) -> None:
    for name in motions.RECORDINGS:
        with pytest.raises(store.NotAvailable, match="set KGMRF_DATA"):
            motions.motion(name)


@pytest.mark.parametrize("name", data.STREAMS)
def test_streams_follow_the_conventions(name: str) -> None:
    stream = data.STREAMS[name]()
    if stream is None:
        pytest.skip(f"no file of {name}")
    x, first = stream
    assert np.isfinite(x).all()
    assert 200 <= first < len(x)
    assert not (x == 0).all(axis=0).any()
    if name in ("etth1", "gait_daphnet", "fx8", "ff_monthly"):
        assert len(x) <= 5000
        assert first == max(200, 5 * x.shape[1])


# ----------------------------------------------------------------------- scores


def test_scores_are_log_densities_of_scipy(rows: Any) -> None:
    from scipy import stats

    S = np.array([[2.0, 0.5, 0.1], [0.5, 1.0, 0.0], [0.1, 0.0, 0.3]])
    found = scores.reach(rows, np.broadcast_to(S, (400, 3, 3)))
    expected = stats.multivariate_normal(cov=S).logpdf(rows)
    np.testing.assert_allclose(scores.gaussian(found), expected)
    expected = stats.multivariate_t(shape=1.7 * S, df=5).logpdf(rows)
    np.testing.assert_allclose(scores.student(found, 5.0, 1.7), expected)
    assert scores.qlike(found) == pytest.approx(
        -2 * scores.gaussian(found).mean() - 3 * np.log(2 * np.pi)
    )


def test_a_matrix_that_is_none_scores_minus_infinity(rows: Any) -> None:
    S = np.broadcast_to(np.eye(3), (400, 3, 3)).copy()
    S[7] = -np.eye(3)
    S[8] = np.diag([1.0, -1.0, 1.0])
    score = scores.gaussian(scores.reach(rows, S))
    assert np.flatnonzero(~np.isfinite(score)).tolist() == [7, 8]
    assert scores.interval(score) is None


def test_the_best_t_finds_the_degrees_and_the_scale() -> None:
    rng = np.random.default_rng(0)
    x = 3.0 * rng.standard_t(5, size=(20000, 1))
    found = scores.reach(x, np.ones((20000, 1, 1)))
    score, dof, scale = scores.best_student(found)
    assert 4 <= dof <= 6
    assert scale == pytest.approx(9.0, rel=0.05)
    for other in (0.9, 1.1):
        assert scores.student(found, dof, other * scale).mean() < score.mean()


def test_the_interval_covers_the_mean_of_dependent_rows() -> None:
    rng = np.random.default_rng(1)
    covered = 0
    for seed in range(40):
        noise = np.convolve(rng.normal(size=2020), np.ones(10) / 10, mode="valid")[:2000]
        low, high = scores.interval(0.3 + noise, seed)  # type: ignore[misc]
        covered += low <= 0.3 <= high
    assert covered >= 33  # 95 % would be 38


# ----------------------------------------------------------------------- rivals


@pytest.mark.parametrize("name", rivals.RIVALS)
def test_rivals_know_the_past_only_and_stay_positive(name: str, rows: Any) -> None:
    changed = rows.copy()
    changed[300:] *= -7.0
    both = zip(rivals.RIVALS[name](rows), rivals.RIVALS[name](changed), strict=True)
    for (_, found), (_, other) in both:
        assert found.shape == (400, 3, 3)
        assert np.linalg.eigvalsh(found[200:]).min() > 0
        if name != "dcc_garch":  # fitted in hindsight, and says so
            np.testing.assert_allclose(found[200:301], other[200:301], rtol=1e-9, atol=1e-12)
            assert not np.allclose(found[301], other[301])


def test_an_average_is_the_weighted_mean(rows: Any) -> None:
    weights = 2.0 ** (-np.arange(400)[::-1] / 8.0)
    expected = (weights[:, None] * rows).sum(0) / weights.sum()
    np.testing.assert_allclose(rivals.average(rows, 8.0)[-1], expected)


@pytest.mark.parametrize("shape", [(60, 5), (4, 7), (2, 3)])
def test_shrinkage_is_that_of_scikit_learn(shape: tuple[int, int]) -> None:
    covariance = pytest.importorskip("sklearn.covariance")
    x = np.random.default_rng(0).normal(size=shape) * np.arange(1, shape[1] + 1)
    expected = covariance.ledoit_wolf(x, assume_centered=True)[0]
    np.testing.assert_allclose(rivals.shrunk(x), expected, rtol=1e-10)


def test_simplex_weights_are_optimal() -> None:
    rng = np.random.default_rng(3)
    diagonals, reached = rng.uniform(0.5, 2.0, (30, 4, 3)), rng.normal(size=(30, 4, 3))
    weights = rivals.simplex_weights(diagonals, reached, 10)
    np.testing.assert_allclose(weights.sum(axis=1), 1.0)
    assert weights.min() >= 0

    def value(t: int, w: Any) -> float:
        a, b = (np.einsum("tkd,k->td", z[t - 9 : t + 1], w) for z in (diagonals, reached))
        return float(np.log(a).sum() - 0.5 * (b**2).sum())

    for t in (9, 20, 29):
        best = value(t, weights[t])
        for other in rng.dirichlet(np.ones(4), size=200):
            assert value(t, other) <= best + 1e-5


def test_the_combination_is_that_of_cvxcovariance(rows: Any) -> None:
    pandas = pytest.importorskip("pandas")
    combination = pytest.importorskip("cvx.covariance.combination")
    run = combination.from_ewmas(
        pandas.DataFrame(rows), list(rivals.PAIRS), min_periods_vola=20, min_periods_cov=20
    )
    theirs = {r.time + 1: r.covariance.values for r in run.solve(window=10)}
    _, ours = next(rivals.cm_iewma(rows))
    for t in (300, 350, 399):
        # theirs leaves out the first rows, whose weight has faded to 2 %
        np.testing.assert_allclose(ours[t], theirs[t], rtol=0.05, atol=0.02)


def test_garch_finds_the_variance_that_made_the_rows() -> None:
    rng = np.random.default_rng(4)
    h, x = np.ones(3000), np.zeros(3000)
    for t in range(3000):
        if t:
            h[t] = 0.05 + 0.1 * x[t - 1] ** 2 + 0.85 * h[t - 1]
        x[t] = np.sqrt(h[t]) * rng.normal()
    found = dcc.garch(x)
    assert np.abs(np.log(found[100:] / h[100:])).mean() < 0.1


# ----------------------------------------------------------------------- ours


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Any:
    x = np.random.default_rng(5).standard_t(5, size=(700, 3)) @ np.diag([2.0, 1.0, 0.3])
    monkeypatch.setitem(data.STREAMS, "tiny", lambda: data.Stream(x, 200))
    return x


def test_ours_is_scored_by_the_density_that_it_forecasts(tiny: Any) -> None:
    found = study.run_ours("tiny")
    tracker, scored = KGMRF(), []
    tracker.filter(tiny[:200])
    for row in tiny[200:]:
        scored.append(tracker.forecast(1).log_density(row))
        tracker.partial_fit(row)
    assert found["t"] == pytest.approx(np.mean(scored), rel=1e-6)
    assert 0.9 < found["coverage"]["0.95"] <= found["coverage"]["0.99"] <= 1
    assert found["t"] > found["gaussian"]
    assert sum(found["weights"]) == pytest.approx(1)
    assert found["weight_with_velocity"] <= 1


def test_a_rival_is_compared_row_by_row(tiny: Any) -> None:
    mine, found = study.run_ours("tiny"), study.run_rival("tiny", "ewma")
    for kind in ("t", "gaussian"):
        part = found[kind]
        assert part["ours_ahead"] == pytest.approx(mine["t"] - part["score"])
        assert part["interval"][0] <= part["ours_ahead"] <= part["interval"][1]
    assert found["t"]["score"] > found["gaussian"]["score"]


def test_units_do_not_change_the_score() -> None:
    x = faults.normal_rows()[:600]
    plain, changed = (KGMRF().filter(rows).log_likelihood[1:] for rows in (x, x * faults.UNITS))
    # Members with a velocity take the channels' own units where they differ much: rows may differ.
    difference = changed + np.log(faults.UNITS).sum() - plain
    assert np.abs(difference).max() < 0.5
    assert abs(difference.mean()) < 0.02


def test_cells_missing_cost_less_than_rows() -> None:
    found = faults.missing_cells("simulated")
    assert found["between"], found


# ----------------------------------------------------------------------- simulations


def test_bursts_are_loud_first_and_their_oracle_is_the_truth() -> None:
    x, loud, oracle = faults.burst_rows(3, 0)
    assert loud[:300].all()
    assert 0.3 < loud.mean() < 0.8
    assert np.abs(x[~loud]).max() < 0.02
    own = -1.5 * np.log(2 * np.pi) - 1.5
    assert oracle[loud].mean() == pytest.approx(own - _half_log_det(0), abs=0.1)
    assert oracle[~loud].mean() == pytest.approx(own - _half_log_det(0) - 3 * np.log(1e-3), abs=0.1)


def _half_log_det(seed: int) -> float:
    mix = np.random.default_rng(seed).normal(size=(3, 3)) / np.sqrt(3) + np.eye(3)
    return float(np.log(abs(np.linalg.det(mix))))


def test_the_factor_model_has_its_covariance() -> None:
    x, covariance = starts.factor_model(200, 0)
    assert np.trace(x.T @ x) / len(x) == pytest.approx(np.trace(covariance), rel=0.1)
    ends = list(starts.ranges(200).values())
    assert [r.start for r in ends[1:]] == [r.stop for r in ends[:-1]]


def test_scenes_start_anywhere_and_every_cell_has_its_record() -> None:
    for d in rotating.SPECTRA:
        q = rotating.start(d, 3)
        np.testing.assert_allclose(q.T @ q, np.eye(d), atol=1e-12)
        assert np.linalg.det(q) > 0
        assert np.abs(q).max() < 0.9999
    assert set(rotating.PREVIOUS) == {(d, r) for d in rotating.SPECTRA for r in rotating.RATES}


# ----------------------------------------------------------------------- what is shown


def test_sections_say_what_was_not_run(tmp_path: Path) -> None:
    text = shown.sections(Results(tmp_path))
    assert text.count("not run") == 5
    for name in ("streams", "starts", "faults", "rotating", "motions"):
        assert f"python -m experiments run {name}" in text


def test_every_unit_has_its_own_name() -> None:
    for part in (study, starts, faults, rotating, motions):
        for quick in (True, False):
            keys = [u.key for u in part.units(quick)]
            assert len(keys) == len(set(keys)) > 0
