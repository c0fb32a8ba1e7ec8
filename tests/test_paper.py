"""The paper's own trackers: literally what it prints, and what its tables were made with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kgmrf
from kgmrf import KGMRF, AlphaBeta, RotationTracker, gains, metrics, paper, simulate
from kgmrf.geometry import orbit, so

TEST_SEEDS = range(5, 10)


def by_the_book(M: Any, seen: Any, eta: float, gamma: float, floor: float, epsilon: float) -> Any:
    """The loop of Algorithm 1, with scalars, as one reads it; returns M_0, M_1, ..."""
    Omega, path = np.zeros_like(M), [M]
    for C in seen:
        S = np.linalg.inv(M + floor * np.eye(len(M)))
        tau = np.zeros_like(M) if C is None else S @ (C @ M - M @ C) @ S
        lam, U = np.linalg.eigh(M)
        body = U.T @ tau @ U
        for i in range(len(M)):
            for j in range(len(M)):
                weight = (lam[i] + floor) * (lam[j] + floor) / ((lam[i] - lam[j]) ** 2 + epsilon)
                body[i, j] *= weight if i != j else 0.0
        Omega = (1 - gamma) * Omega + eta * U @ body @ U.T
        R = so.exp(Omega)
        M = R @ M @ R.T
        path.append(M)
    return np.array(path)


@pytest.mark.parametrize("d", [2, 3, 5])
@pytest.mark.parametrize("epsilon", [1e-6, 0.3])
def test_algorithm_1_is_the_printed_loop(d: int, epsilon: float) -> None:
    scene = simulate.rotating_covariance(d, n_samples=12, n_frames=50, rng=3)
    seen = [None if 20 <= k < 25 else C for k, C in enumerate(scene.observations)]
    M0 = scene.covariance[0]
    expected = by_the_book(M0, seen, 0.1, 0.4, 0.1, epsilon)
    tracker = paper.algorithm1(0.1, 0.4, initial=M0, noise_floor=0.1, epsilon=epsilon)
    found = tracker.filter(seen).covariance
    np.testing.assert_allclose(found, expected[:-1], atol=1e-12)
    np.testing.assert_allclose(tracker.forecast(1).covariance, expected[-1], atol=1e-12)


@pytest.mark.parametrize("d", [2, 3, 7])
def test_algorithm_1_is_the_printed_law_on_the_eigenframe(d: int) -> None:
    scene = simulate.rotating_covariance(d, n_samples=12, n_frames=60, rng=4)
    seen = scene.observations.copy()
    seen[20:24] = np.nan
    M0 = scene.covariance[0]
    times = np.cumsum(np.linspace(0.5, 1.5, 60))
    law = gains.printed(0.1, 0.3, ridge=0.01)
    found = paper.algorithm1(0.1, 0.3, initial=M0, epsilon=0.01).filter(seen, times=times)
    frame = KGMRF(gains=law, spectrum="fixed", initial=M0, n_samples=12)
    ours = frame.filter(seen, times=times)
    np.testing.assert_allclose(found.covariance, ours.covariance, atol=1e-11)
    spatial = [r.frame @ r.velocity @ r.frame.swapaxes(-1, -2) for r in (found, ours)]
    np.testing.assert_allclose(*spatial, atol=1e-11)


def test_algorithm_1_is_isospectral_and_blind_to_the_noise_floor() -> None:
    scene = simulate.rotating_covariance(3, n_samples=5, n_frames=200, rng=1)
    runs = [
        paper.algorithm1(0.1, 0.3, noise_floor=floor, spectrum=[4.0, 2.0, 0.5])
        for floor in (0.01, 10.0)
    ]
    a, b = (run.filter(scene.observations) for run in runs)
    np.testing.assert_allclose(a.covariance, b.covariance, atol=1e-10)
    np.testing.assert_allclose(a.spectrum - [4.0, 2.0, 0.5], 0.0, atol=1e-12)


def test_a_round_start_never_turns() -> None:
    tracker = paper.algorithm1(initial=np.eye(3))
    found = tracker.filter(simulate.rotating_covariance(3, n_frames=20).observations)
    np.testing.assert_allclose(found.covariance, np.broadcast_to(np.eye(3), (20, 3, 3)), atol=0)


@pytest.mark.parametrize(
    ("rate", "expected"), [(0.03, 48.3), (0.05, 44.1), (0.08, 46.2), (0.15, 46.2), (0.20, 45.5)]
)
def test_algorithm_1_loses_the_ellipse(rate: float, expected: float) -> None:
    """An independent recomputation of the table's protocol, observations almost without noise."""
    errors = []
    for seed in TEST_SEEDS:
        scene = simulate.ellipse(rate, n_samples=3750, rng=seed)
        found = paper.algorithm1(0.05, 0.95, initial=np.diag([2.0, 0.5]))
        found = found.filter(scene.observations).covariance
        errors.append(metrics.angular_error(found, scene.covariance, degrees=True)[50:].mean())
    assert np.mean(errors) == pytest.approx(expected, abs=0.15)


@pytest.mark.parametrize(
    ("rate", "expected"),
    [(0.03, 0.30), (0.05, 0.31), (0.08, 0.33), (0.10, 0.34), (0.15, 0.36), (0.20, 0.39)],
)
def test_the_ellipse_column_follows_at_every_rate(rate: float, expected: float) -> None:
    errors = []
    for seed in TEST_SEEDS:
        scene = simulate.ellipse(rate, n_samples=3750, rng=seed)
        found = paper.column("kgmrf").filter(scene.observations).covariance
        errors.append(metrics.angular_error(found, scene.covariance, degrees=True)[50:].mean())
    assert np.mean(errors) == pytest.approx(expected, abs=0.0075)


@pytest.mark.parametrize(
    ("probability", "expected"),
    [(0.0, 4.3), (0.1, 5.6), (0.2, 7.2), (0.3, 7.9), (0.4, 12.2), (0.5, 15.1)],
)
def test_the_camera_column_is_that_of_an_independent_recomputation(
    probability: float, expected: float
) -> None:
    """Within three standard errors of a mean of twenty runs; gaps make them scatter."""
    scenes = [simulate.steady_camera(seed, probability) for seed in range(10, 110)]
    seen = np.stack([s.observations for s in scenes], axis=1)
    truth = np.stack([s.rotation for s in scenes], axis=1)
    found = paper.column("kgmrf", "so3").filter(seen).rotation
    errors = 2**0.5 * metrics.geodesic_error(found, truth, degrees=True).mean(axis=0)
    assert abs(errors.mean() - expected) < 3 * errors.std(ddof=1) / 20**0.5


def test_the_ellipse_column_is_the_zero_lag_law_on_the_observed_axis() -> None:
    observed = simulate.occlusions(120, starts=(60,))
    scene = simulate.ellipse(0.01, n_frames=120, n_samples=2000, observed=observed, rng=3)
    filled = np.where(np.isnan(scene.observations), np.eye(2), scene.observations)
    axis = so.exp(so.hat(metrics.axis_angle(filled)[:, None]))
    axis[~observed] = np.nan
    frames = RotationTracker(2, gains=gains.zero_lag(0.1, 0.05, 0.95)).filter(axis).rotation
    found = paper.kgmrf_ellipse(spectrum=[2.0, 0.5]).filter(scene.observations).covariance
    np.testing.assert_allclose(found, orbit.compose(frames, np.array([2.0, 0.5])), atol=1e-9)


def test_the_camera_columns_are_their_recursions() -> None:
    seen = simulate.steady_camera(6, 0.2).observations
    for name, retention in (("kgmrf", 0.98), ("alpha_beta", 1.0)):
        S, v, path = seen[0], np.zeros((3, 3)), [seen[0]]
        for Z in seen[1:]:
            e = np.zeros((3, 3)) if np.isnan(Z).any() else so.log(S.T @ Z)
            if name == "kgmrf":
                v = retention * v + 0.05 * e
                S = S @ so.exp(v + 0.5 * e)
            else:
                S = S @ so.exp(v + 0.5 * e)
                v = v + 0.05 * e
            path.append(S)
        found = paper.column(name, "so3").filter(seen).rotation
        np.testing.assert_allclose(found, np.array(path), atol=1e-12)


def test_the_printed_alpha_beta_moves_by_the_old_velocity() -> None:
    seen = simulate.ellipse(0.05, n_frames=60, observed=simulate.iid(60, 0.3, 1), rng=2)
    x, v, path = seen.observations[0], np.zeros((2, 2)), [seen.observations[0]]
    for z in seen.observations[1:]:
        e = np.zeros((2, 2)) if np.isnan(z).any() else z - x
        x, v = x + 0.4 * e + v, v + 0.1 * e
        path.append(x)
    found = paper.column("alpha_beta", "printed").filter(seen.observations).covariance
    np.testing.assert_allclose(found, np.array(path), atol=1e-12)
    other = AlphaBeta(position_gain=0.4, velocity_gain=0.1).filter(seen.observations).covariance
    assert np.abs(other - found).max() > 0.01


def test_the_tangent_filter_at_the_estimate_rests_and_predicts() -> None:
    still = np.broadcast_to(np.diag([2.0, 0.5]), (30, 2, 2)).copy()
    still[20:25] = np.nan
    found = paper.LocalTangentKalman().filter(still).covariance
    np.testing.assert_allclose(found, np.broadcast_to(found[0], found.shape), atol=1e-12)
    grow = np.exp(0.05 * np.arange(60))[:, None, None] * np.eye(2)
    seen = grow.copy()
    seen[50:] = np.nan
    ahead = paper.LocalTangentKalman().filter(seen).covariance
    np.testing.assert_allclose(ahead[-1], grow[-1], rtol=1e-3)  # along a geodesic it coasts


@pytest.mark.parametrize("reading", list(paper.COLUMNS))
@pytest.mark.parametrize("name", paper.NAMES)
def test_every_column_runs_and_is_read_back(name: str, reading: str, tmp_path: Any) -> None:
    if reading.endswith("so3"):
        seen, d = simulate.camera_shake(1, 0.2).observations, 3
    else:
        seen, d = simulate.ellipse(0.05, n_samples=50, rng=1).observations, 2
    tracker = paper.column(name, reading, d=d)
    tracker.filter(seen[:50])
    tracker.save(tmp_path / "state.npz")
    again = kgmrf.load(tmp_path / "state.npz")
    matrix = "rotation" if reading.endswith("so3") else "covariance"
    a, b = (getattr(t.filter(seen[50:]), matrix) for t in (tracker, again))
    np.testing.assert_array_equal(a, b)
    assert np.isfinite(a).all()


def test_settings_that_make_no_sense_are_refused() -> None:
    for build, words in (
        (lambda: paper.algorithm1(-1.0), "eta"),
        (lambda: paper.algorithm1(gamma=1.5), "gamma"),
        (lambda: paper.algorithm1(initial="last"), "initial"),
        (lambda: paper.algorithm1(initial=[[1.0, 2.0], [0.0, 1.0]]), "initial"),
        (lambda: paper.algorithm1(spectrum=[1.0, -1.0]), "spectrum"),
        (lambda: paper.algorithm1(noise_floor=0.0), "noise_floor"),
        (lambda: paper.algorithm1(epsilon=-1.0), "epsilon"),
        (lambda: paper.column("ema"), "name"),
        (lambda: paper.column("kgmrf", "otb"), "reading"),
    ):
        with pytest.raises(ValueError, match=words):
            build()
