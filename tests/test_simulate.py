"""Scenes do what they say: protocols draw for draw, motions by their laws, noise by its moments."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgmrf import metrics, simulate
from kgmrf.geometry import so
from kgmrf.simulate import motion

SEEDS = range(10, 110)


# --- the two camera protocols ------------------------------------------------------------------


@pytest.mark.parametrize("p", [0.0, 0.3])
def test_camera_shake_draw_by_draw(p):
    rotation = pytest.importorskip("scipy.spatial.transform").Rotation
    g = np.random.default_rng(7)
    a, f, phi = g.uniform(0.05, 0.15, 3), g.uniform(0.01, 0.05, 3), g.uniform(0, 2 * np.pi, 3)
    eps, u = 0.05 * g.standard_normal((200, 3)), g.random(200)
    scene = simulate.camera_shake(7, p)
    r = rotation.identity()
    for t in range(200):
        assert np.allclose(scene.rotation[t], r.as_matrix(), atol=1e-12)
        if u[t] < p and t > 0:
            assert np.isnan(scene.observations[t]).all()
            assert not scene.observed[t]
        else:
            seen = r * rotation.from_rotvec(eps[t])
            assert np.allclose(scene.observations[t], seen.as_matrix(), atol=1e-12)
        r = r * rotation.from_rotvec(a * np.sin(2 * np.pi * f * t + phi))


@pytest.mark.parametrize("p", [0.0, 0.2])
def test_steady_camera_draw_by_draw(p):
    rotation = pytest.importorskip("scipy.spatial.transform").Rotation
    g = np.random.default_rng(8)
    n = g.normal(size=3)
    n /= np.linalg.norm(n)
    eps = g.normal(0, 0.05, (200, 3))
    dropped = set()
    r = np.random.default_rng([8, round(100 * p)])
    t = 1
    while t < 200:
        if r.random() < p:
            r.integers(9, 10)
            dropped |= set(range(t, t + 9))
            t += 9
        else:
            t += 1
    scene = simulate.steady_camera(8, p)
    for t in range(200):
        truth = rotation.from_rotvec(0.022 * t * n)
        assert np.allclose(scene.rotation[t], truth.as_matrix(), atol=1e-12)
        assert scene.observed[t] == (t not in dropped)
        if scene.observed[t]:
            seen = truth * rotation.from_rotvec(eps[t])
            assert np.allclose(scene.observations[t], seen.as_matrix(), atol=1e-12)


@pytest.mark.parametrize(
    ("p", "missing"), [(0.1, 0.50), (0.2, 0.69), (0.3, 0.79), (0.4, 0.86), (0.5, 0.90)]
)
def test_bursts_lose_far_more_than_their_probability(p, missing):
    observed = [simulate.bursts(200, p, [seed, 0]) for seed in range(400)]
    assert 1 - np.mean(observed) == pytest.approx(missing, abs=0.015)


@pytest.mark.parametrize(("p", "degrees"), [(0.0, 4.54), (0.3, 6.44), (0.5, 9.47)])
def test_holding_the_last_observation_of_a_shaken_camera(p, degrees):
    errors = []
    for seed in SEEDS:
        scene = simulate.camera_shake(seed, p)
        last = np.maximum.accumulate(np.where(scene.observed, np.arange(200), 0))
        held = scene.observations[last]
        errors.append(metrics.geodesic_error(held, scene.rotation, degrees=True))
    assert np.mean(errors) == pytest.approx(degrees, abs=0.005)


@pytest.mark.parametrize(("p", "degrees"), [(0.0, 4.31), (0.3, 8.17)])
def test_the_papers_recursion_on_the_steady_camera(p, degrees):
    scenes = [simulate.steady_camera(seed, p) for seed in SEEDS]
    truth, seen = (np.stack([s[i] for s in scenes], 1) for i in (1, 3))
    estimate, v = seen[0], np.zeros((len(SEEDS), 3))
    errors = [metrics.geodesic_error(estimate, truth[0], degrees=True, norm="frobenius")]
    for z, r in zip(seen[1:], truth[1:], strict=True):
        missing = np.isnan(z).any((-1, -2))
        z = np.where(missing[:, None, None], estimate, z)
        e = so.vee(so.log(np.swapaxes(estimate, -1, -2) @ z))
        v = 0.98 * v + 0.05 * e
        estimate = estimate @ so.exp(so.hat(v + 0.5 * e))
        errors.append(metrics.geodesic_error(estimate, r, degrees=True, norm="frobenius"))
    assert np.mean(errors) == pytest.approx(degrees, abs=0.005)


# --- masks -------------------------------------------------------------------------------------


@given(st.integers(1, 60), st.floats(0, 1), st.integers(0, 1000), st.integers(1, 9))
def test_masks_start_with_data_and_gaps_have_their_length(n, p, seed, length):
    assert simulate.iid(n, p, seed)[0]
    seen = simulate.bursts(n, p, seed, length=length)
    assert seen.shape == (n,)
    assert seen[0]
    # Every gap that ends inside the run is a whole number of bursts long.
    edges = np.flatnonzero(np.diff(seen.astype(int)))
    for start, stop in zip(edges[::2], edges[1::2], strict=False):
        assert (stop - start) % length == 0


def test_iid_loses_the_share_it_is_told_and_neighbours_are_independent():
    lost = ~simulate.iid(100_000, 0.3, 0)
    assert lost.mean() == pytest.approx(0.3, abs=0.005)
    assert np.corrcoef(lost[1:], lost[:-1])[0, 1] == pytest.approx(0.0, abs=0.01)


def test_bursts_of_random_length():
    seen = simulate.bursts(5000, 0.02, 0, length=(3, 5))
    edges = np.flatnonzero(np.diff(seen.astype(int)))
    gaps = edges[1::2] - edges[: len(edges[1::2]) * 2 : 2]
    assert {3, 4, 5} <= set(gaps.tolist())
    assert gaps.min() == 3


def test_default_occlusions_are_three_windows_of_thirty():
    hidden = np.flatnonzero(~simulate.occlusions())
    assert hidden.tolist() == [s + k for s in (100, 220, 340) for k in range(30)]


# --- motion ------------------------------------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from([1, 2, 3, 5]),
    st.sampled_from([0.0, 1e-3]),
    st.integers(0, 99),
)
def test_frames_follow_velocities_and_parts_make_the_covariance(d, acceleration_std, seed):
    scene = simulate.rotating_covariance(
        d, acceleration_std=acceleration_std, n_frames=30, rng=seed
    )
    q, w = scene.frame, scene.velocity
    assert np.allclose(q[1:], q[:-1] @ so.exp(w[:-1]), atol=1e-12)
    assert np.allclose(w, -np.swapaxes(w, -1, -2))
    assert np.allclose(q @ np.swapaxes(q, -1, -2), np.eye(d), atol=1e-12)
    assert (scene.spectrum > 0).all()
    rebuilt = np.einsum("tij,tj,tkj->tik", q, scene.spectrum, q)
    assert np.allclose(scene.covariance, rebuilt, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("d", [2, 3, 6])
def test_the_rate_is_the_angle_turned_per_frame(d):
    scene = simulate.rotating_covariance(d, rate=0.07, n_frames=20, rng=3)
    assert np.allclose(so.distance(scene.frame[1:], scene.frame[:-1]), 0.07, atol=1e-9)


def test_ellipse_turns_by_rate_from_the_start_angle():
    scene = simulate.ellipse(-0.05, start_angle=0.4, n_frames=12)
    expected = 0.4 - 0.05 * np.arange(12)
    assert np.allclose(metrics.axis_angle(scene.covariance), expected, atol=1e-12)


def test_drifting_velocity_is_a_random_walk_of_the_given_step():
    w = motion.velocities(motion.direction(3, 0), 0.02, 20_000, 1, acceleration_std=2e-3)
    steps = so.vee(np.diff(w, axis=0))
    assert steps.std(axis=0) == pytest.approx(2e-3, rel=0.03)
    assert np.allclose(np.linalg.norm(so.vee(w[0])), 0.02)
    assert abs(np.corrcoef(steps[1:, 0], steps[:-1, 0])[0, 1]) < 0.03


# --- observation -------------------------------------------------------------------------------


def test_observations_have_the_moments_of_the_wishart_model():
    scene = simulate.ellipse(0.0, n_frames=40_000, n_samples=8, noise_floor=0.1, rng=4)
    d1, d2 = 2.1, 0.6
    mean, c = scene.observations.mean(0), scene.observations
    assert np.allclose(mean, np.diag([d1, d2]), atol=0.02)
    # var C_ij = (S_ii S_jj + S_ij^2) / m
    assert c[:, 0, 1].var() == pytest.approx(d1 * d2 / 8, rel=0.03)
    assert c[:, 0, 0].var() == pytest.approx(2 * d1**2 / 8, rel=0.03)


def test_the_same_seed_moves_the_same_way_through_any_noise_and_gap():
    options = dict(acceleration_std=1e-3, n_frames=40, rng=5)
    clear = simulate.rotating_covariance(3, n_samples=None, **options)
    noisy = simulate.rotating_covariance(3, n_samples=1, **options)
    gaps = simulate.rotating_covariance(
        3, n_samples=1, observed=simulate.occlusions(40, starts=(5,), length=4), **options
    )
    assert np.array_equal(clear.covariance, noisy.covariance)
    assert np.allclose(clear.observations, clear.covariance + 0.1 * np.eye(3))
    assert np.array_equal(gaps.observations[gaps.observed], noisy.observations[gaps.observed])
    assert np.flatnonzero(np.isnan(gaps.observations).all((-1, -2))).tolist() == [5, 6, 7, 8]
    assert np.linalg.matrix_rank(noisy.observations[0]) == 1


def test_rotation_noise_has_the_given_size_in_every_plane():
    scene = simulate.rotating_frame(4, n_frames=5000, noise_std=0.03, rng=6)
    gap = so.vee(so.log(np.swapaxes(scene.rotation, -1, -2) @ scene.observations))
    assert gap.std(axis=0) == pytest.approx(0.03, rel=0.05)
    assert np.abs(gap.mean(axis=0)).max() < 0.002


def test_hiding_leaves_its_input_alone():
    mask = np.array([True, False, True])
    scene = simulate.ellipse(n_frames=3, observed=mask)
    assert np.isnan(scene.observations[1]).all()
    scene.observed[0] = False
    assert mask[0]


@pytest.mark.parametrize(
    "call",
    [
        lambda: simulate.iid(0, 0.1, 0),
        lambda: simulate.iid(5, 1.5, 0),
        lambda: simulate.bursts(5, 0.1, 0, length=0),
        lambda: simulate.occlusions(5, starts=(0,)),
        lambda: simulate.ellipse(spectrum=(1.0, 2.0, 3.0)),
        lambda: simulate.ellipse(n_frames=3, observed=np.ones(4, dtype=bool)),
        lambda: simulate.rotating_covariance(0),
        lambda: simulate.rotating_covariance(3, spectrum=(1.0, 2.0)),
        lambda: simulate.rotating_covariance(2, spectrum=(1.0, -2.0)),
        lambda: simulate.rotating_frame(1),
    ],
)
def test_impossible_scenes_are_refused(call):
    with pytest.raises(ValueError, match=r"must|need|has two|is "):
        call()
