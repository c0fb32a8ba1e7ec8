"""Young tracks: p-values of their first rows, and what does not depend on how channels are told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgmrf import KGMRF, TrackerBank
from kgmrf._types import Numbers
from kgmrf.youth import doubt_of


def covariance(kind: str, d: int) -> Numbers:
    rng = np.random.default_rng(d)
    if kind == "identity":
        return np.eye(d)
    if kind == "factors":
        loadings = rng.standard_normal((d, max(1, d // 3)))
        return loadings @ loadings.T + 0.3 * np.eye(d)
    turn = np.linalg.qr(rng.standard_normal((d, d)))[0]
    return (turn * np.logspace(0, -3, d)) @ turn.T


def first_rows(kind: str, d: int, tracks: int, rows: int) -> tuple[Numbers, Numbers]:
    """p-values and log-likelihoods less those of the truth, ``(rows - 1, tracks)``."""
    A = covariance(kind, d)
    root, rng, bank = np.linalg.cholesky(A), np.random.default_rng(7), TrackerBank(tracks, d)
    p, score = np.empty((2, rows, tracks))
    for t in range(rows):
        x = rng.standard_normal((tracks, d)) @ root.T
        bank.update(x)
        told = bank.estimate()
        p[t], score[t] = told.p_value, told.log_likelihood
    oracle = -0.5 * (d * np.log(2.0 * np.pi) + np.linalg.slogdet(A)[1] + d)
    return p[1:], score[1:] - oracle


@pytest.mark.parametrize("kind", ["identity", "factors", "spread"])
@pytest.mark.parametrize(("d", "tracks"), [(1, 4000), (3, 2000), (8, 1000)])
def test_p_values_of_first_rows_are_honest(kind: str, d: int, tracks: int) -> None:
    p, _ = first_rows(kind, d, tracks, 4 * d + 2)
    for level in (0.05, 0.01):
        share = (p < level).mean(axis=1)
        spread = 3.0 * np.sqrt(level / tracks)
        assert (share < 1.5 * level + spread).all()
    assert (p < 1e-3).mean() < 1.5e-3
    # From 2 d rows on neither too sure nor far too unsure.
    assert 0.01 < (p[2 * d :] < 0.05).mean() < 0.055


def test_the_first_forecasts_are_worth_more_than_without_it() -> None:
    """Before, the second row of eight channels was 1.35 nats per channel behind the truth."""
    _, score = first_rows("identity", 8, 500, 18)
    assert score[0].mean() / 8 > -1.2
    assert score[16].mean() / 8 > -0.12


@given(st.integers(0, 2**32 - 1), st.integers(2, 6), st.booleans())
@settings(deadline=None, max_examples=30)
def test_signs_and_order_of_channels_do_not_matter(seed: int, d: int, matrix: bool) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((12, 7, d)) @ rng.standard_normal((d, d))
    seen: Any = np.einsum("tmi,tmj->tij", x, x) / 7 if matrix else x[:, 0]
    order, scale = rng.permutation(d), rng.choice([-1.0, 1.0], d)
    other = seen * scale[:, None] * scale if matrix else seen * scale
    other = other[:, order][:, :, order] if matrix else other[:, order]
    given_m = {"n_samples": 7} if matrix else {}
    plain, turned = KGMRF(**given_m).filter(seen), KGMRF(**given_m).filter(other)
    back = (plain.covariance * scale[:, None] * scale)[:, order][:, :, order]
    size = np.sqrt(np.einsum("ti,tj->tij", *[np.diagonal(back, axis1=1, axis2=2)] * 2))
    np.testing.assert_allclose(turned.covariance / size, back / size, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(turned.p_value[1:], plain.p_value[1:], rtol=1e-5)


@given(st.integers(1, 40), st.floats(1.0, 400.0))
def test_doubt_falls_to_nothing(d: int, n: float) -> None:
    now, later = doubt_of([n, n + 1.0], d)
    assert 0.0 <= later <= now <= 1.0
    assert (now > 0.0) == (n < 5.0 * (d + 2.0))


def test_the_covariance_has_nothing_of_it() -> None:
    x = np.random.default_rng(1).standard_normal((30, 4))
    tracker = KGMRF()
    for row in x:
        tracker.update(row)
    ahead = tracker.forecast(1)
    assert ahead.doubt == 0.0 or ahead.doubt < 0.03
    young = KGMRF()
    young.update(x[0])
    first = young.forecast(1)
    assert first.doubt == pytest.approx(doubt_of(1.0, 4))
    np.testing.assert_allclose(np.diag(first.covariance), 2.0 * x[0] ** 2, rtol=1e-6)
    assert first.density.region(0.95) > 10.0 * ahead.density.region(0.95)
