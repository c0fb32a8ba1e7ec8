"""Rivals of `kgmrf compare` have tails and sizes of their own, and are what they are called."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import multivariate_t

from kgmrf import IteratedEMA, ScaledEMA
from kgmrf.baselines import _dcc as dcc
from kgmrf.commands._scores import SIZES, TAILS, against, against_cells, student


def _heavy(seed, n=300, d=3):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(d, d))
    return rng.standard_t(4, size=(n, 1)) * rng.normal(size=(n, d)) @ A, A @ A.T


@given(st.integers(0, 10**6))
def test_a_rival_is_hardly_behind_its_best_student_t_in_hindsight(seed):
    x, _ = _heavy(seed)
    forecast = np.broadcast_to(np.cov(x.T), (len(x), 3, 3))
    log_det, distance = against(forecast, x[:, :, None] * x[:, None, :])
    one, three = np.ones(len(x)), np.full(len(x), 3.0)
    found = student(log_det, distance, one, three).sum()
    best = max(
        multivariate_t(shape=np.exp(s) * forecast[0], df=nu).logpdf(x).sum()
        for nu in TAILS
        for s in SIZES
    )
    assert best - np.log(len(TAILS) * len(SIZES)) <= found + 1e-6
    assert found <= best + 1e-6


def test_scores_use_nothing_of_later_steps():
    x, M = _heavy(1)
    log_det, distance = against(np.broadcast_to(M, (len(x), 3, 3)), x[:, :, None] * x[:, None, :])
    one, three = np.ones(len(x)), np.full(len(x), 3.0)
    whole = student(log_det, distance, one, three)
    part = student(log_det[:100], distance[:100], one[:100], three[:100])
    np.testing.assert_allclose(whole[:100], part, rtol=1e-12)


def test_holes_are_scored_on_the_cells_that_are_there():
    x, M = _heavy(2, n=50)
    x[::3, 1] = np.nan
    log_det, distance, values = against_cells(np.broadcast_to(M, (50, 3, 3)), x)
    for row, a, z, n in zip(x, log_det, distance, values, strict=True):
        o = ~np.isnan(row)
        S = M[np.ix_(o, o)]
        assert n == o.sum()
        assert a == pytest.approx(np.linalg.slogdet(S)[1])
        assert z == pytest.approx(row[o] @ np.linalg.solve(S, row[o]))


def test_without_a_gain_the_scaled_average_is_a_moving_average():
    x, _ = _heavy(3)
    h = 20.0
    weights = 2.0 ** (-np.arange(len(x))[::-1] / h)
    expected = np.einsum("t,ti,tj->ij", weights, x, x) / weights.sum()
    found = ScaledEMA(half_life=h, scale_gain=0.0).filter(x).covariance[-1]
    np.testing.assert_allclose(found, expected)


def _average(values, half_life):
    weights = 2.0 ** (-np.arange(len(values))[::-1] / half_life)
    return np.tensordot(weights, values, 1) / weights.sum()


def test_the_iterated_average_has_one_memory_for_volatilities_and_one_for_correlations():
    x, _ = _heavy(4)
    found = IteratedEMA(volatility=10.0, correlation=40.0).filter(x)
    variances = np.array([_average(x[: t + 1] ** 2, 10.0) for t in range(len(x))])
    y = x / np.sqrt(variances)
    R = _average(y[:, :, None] * y[:, None, :], 40.0)
    size = np.sqrt(np.diagonal(R))
    np.testing.assert_allclose(np.diagonal(found.covariance[-1]), variances[-1])
    np.testing.assert_allclose(found.correlation[-1], R / np.outer(size, size))


# ---------------------------------------------------------------------- the command


def compared(tmp_path, capsys, *more):
    from kgmrf.cli import main

    rng = np.random.default_rng(4)
    size = np.exp(0.6 * np.sin(np.arange(700) / 40))[:, None]
    rows = size * rng.normal(size=(700, 3))
    path = tmp_path / "rows.csv"
    path.write_text("a,b,c\n" + "\n".join(",".join(map(repr, row)) for row in rows.tolist()))
    assert main(["compare", str(path), "--json", "--skip", "300", *more]) == 0
    found = json.loads(capsys.readouterr().out)
    return rows, {(row["tracker"], row["settings"]): row for row in found["rows"]}


def test_dcc_is_fitted_to_the_past_only(tmp_path, capsys):
    rows, found = compared(tmp_path, capsys, "--dcc")
    row = found["DCC-GARCH", "fitted to the rows so far"]
    assert row["gaussian"] > found["EuclideanEMA", "half_life=256"]["gaussian"]
    whole = dcc.Dcc(3).covariances(rows)
    changed = rows.copy()
    changed[600:] *= 7.0
    np.testing.assert_array_equal(dcc.Dcc(3).covariances(changed)[:599], whole[:599])
    cut = dcc.Dcc(3)
    parts = [cut.covariances(rows[:280]), cut.covariances(rows[280:])]
    np.testing.assert_allclose(np.concatenate(parts), whole, rtol=1e-9)
    # By hand: the forecast of row 300, of a fit to the first 250.
    np.testing.assert_array_equal(whole[299], dcc.forecasts(rows[:301], 250)[1][300])


def test_skfolio_and_half_lives_are_shown(tmp_path, capsys):
    moments = pytest.importorskip("skfolio.moments")
    rows, found = compared(tmp_path, capsys)
    row = found["RegimeAdjustedEWCovariance", "half_life=40"]
    model, score = moments.RegimeAdjustedEWCovariance().partial_fit(rows[:1]), []
    for seen in rows[1:]:
        S = model.covariance_
        if np.isfinite(S).all() and len(score) >= 0:
            score.append(
                -0.5 * (np.linalg.slogdet(2 * np.pi * S)[1] + seen @ np.linalg.solve(S, seen))
            )
        model.partial_fit(seen[None])
    assert row["gaussian"] == pytest.approx(np.mean(score[-400:]))
    assert 1.0 < found["KGMRF", "gains=auto"]["half_life"] < 3000.0
    assert found["EuclideanEMA", "half_life=16"]["half_life"] == 16.0
    assert ("DCC-GARCH", "fitted to the rows so far") not in found
