"""Laws of the motion models and of the self-tuning bank on SO(3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kgmrf
from kgmrf import AutoRotation, RotationTracker, gains, metrics, simulate
from kgmrf.geometry import so
from kgmrf.motion import (
    SMALL,
    MotionModels,
    decaying_velocity,
    default_models,
    join,
    oscillators,
)
from kgmrf.rotation_bank import (
    advance_bank,
    compiled_models,
    filter_bank,
    forecast_bank,
    new_bank,
    record_size,
    unfold,
)

rk = pytest.importorskip("kgmrf.kernels.rotation_bank", reason="numba is not installed")
from kgmrf.kernels.rotation3 import exp3, relative_log3, right_jacobian3  # noqa: E402

vectors = st.lists(st.floats(-3, 3), min_size=3, max_size=3).map(np.array)
FEW = default_models(periods=SMALL)


def rot(v: Any) -> Any:
    return so.exp(so.hat(np.asarray(v, dtype=float)))


def turn(v: Any) -> Any:
    out = np.empty((3, 3))
    exp3(*np.asarray(v, float), out)
    return out


def log(a: Any, b: Any) -> Any:
    w = np.empty(3)
    relative_log3(np.ascontiguousarray(a), np.ascontiguousarray(b), w)
    return w


# ------------------------------------------------------------------ the words of the group


@given(vectors)
def test_exp_is_that_of_the_geometry_and_log_inverts_it(v: Any) -> None:
    r = turn(v)
    np.testing.assert_allclose(r, rot(v), atol=1e-13)
    w = log(np.eye(3), r)
    np.testing.assert_allclose(rot(w), r, atol=1e-13)
    assert np.linalg.norm(w) <= np.pi + 1e-12


@pytest.mark.parametrize("angle", [0.0, 1e-9, 1e-4, 1e-3, 3.0, np.pi - 1e-6, np.pi])
def test_log_keeps_its_digits_near_zero_and_pi(angle: float) -> None:
    axis = np.array([0.6, -0.64, 0.48])
    w = np.empty(3)
    length = relative_log3(np.eye(3), rot(angle * axis), w)
    assert length == pytest.approx(angle, abs=1e-15, rel=1e-9)
    assert min(np.abs(w - angle * axis).max(), np.abs(w + angle * axis).max()) < 1e-8


@given(vectors)
def test_right_jacobian_is_the_derivative_of_exp(v: Any) -> None:
    j = np.empty((3, 3))
    right_jacobian3(*v, j)
    h = 1e-6
    for k in range(3):
        e = np.eye(3)[k] * h
        numeric = (log(turn(v), turn(v + e)) - log(turn(v), turn(v - e))) / (2 * h)
        np.testing.assert_allclose(numeric, j[:, k], atol=1e-8)


# ------------------------------------------------------------------ one member


def _member(rng: Any, period: float, retention: float) -> tuple[Any, Any, Any]:
    frame = rot(rng.normal(size=3))
    log_frequency = np.log(2 * np.pi / period) + np.zeros(3)
    motion = np.concatenate([rng.normal(scale=0.1, size=6), log_frequency])
    return frame, motion, compiled_models(oscillators((period,), retention=retention))[0]


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.floats(0.05, 3.0), st.floats(0.8, 1.0), st.floats(5.0, 1e6))
def test_transition_is_the_derivative_of_the_flow(
    seed: int, dt: float, retention: float, period: float
) -> None:
    frame, motion, law = _member(np.random.default_rng(seed), period, retention)

    def flow(x: Any) -> tuple[Any, Any]:
        f, m = frame @ rot(x[:3]), motion + x[3:]
        rk.advance(f, m, law, dt, np.zeros((6, 12, 12)))
        return f, m

    work = np.zeros((6, 12, 12))
    f0, m0 = frame.copy(), motion.copy()
    rk.advance(f0, m0, law, dt, work)
    jac = np.empty((12, 12))
    rk.carry(12, work, np.eye(12), jac)
    h = 1e-5
    for k in range(12):
        (fp, mp), (fm, mm) = flow(h * np.eye(12)[k]), flow(-h * np.eye(12)[k])
        numeric = np.concatenate([log(f0, fp) - log(f0, fm), mp - mm]) / (2 * h)
        np.testing.assert_allclose(jac[:, k], numeric, atol=1e-7)


@given(st.integers(0, 10**6), st.floats(0.1, 5.0), st.floats(0.1, 5.0), st.floats(0.7, 1.0))
def test_two_drifts_about_one_axis_equal_one(
    seed: int, first: float, second: float, retention: float
) -> None:
    frame, motion, law = _member(np.random.default_rng(seed), 20.0, retention)
    motion[1:3] = motion[4:6] = 0.0  # one axis: the group commutes
    work = np.zeros((6, 12, 12))
    fa, ma, fb, mb = frame.copy(), motion.copy(), frame.copy(), motion.copy()
    rk.advance(fa, ma, law, first, work)
    rk.advance(fa, ma, law, second, work)
    rk.advance(fb, mb, law, first + second, work)
    np.testing.assert_allclose(fa, fb, atol=1e-12)
    np.testing.assert_allclose(ma, mb, atol=1e-12)


def test_series_meets_closed_form() -> None:
    for dt in (0.3, 2.5, 40.0):
        near, far = np.zeros(12), np.zeros(12)
        edge = 1e-4 / max(dt, 1.0)
        rk.axis_transition(edge * (1 - 1e-9), 0.0, dt, near)
        rk.axis_transition(edge * (1 + 1e-9), 0.0, dt, far)
        np.testing.assert_allclose(near[:6], far[:6], rtol=1e-6, atol=1e-7)


@given(st.floats(0.05, 1.0), st.floats(0.01, 20.0))
def test_acceleration_means_what_the_gain_law_means(retention: float, dt: float) -> None:
    law = gains.transition(gains.information(1.0, retention=retention), np.asarray(dt))
    got = rk.velocity_noise(-np.log(retention), dt)
    np.testing.assert_allclose(got, (law.angle, law.cross, law.rate), rtol=1e-7)


def test_density_integrates_to_one_over_the_group() -> None:
    """Monte Carlo over Haar measure; the group has volume 8 pi^2 in rotation-vector units."""
    rng = np.random.default_rng(1)
    z = so.project(rng.normal(size=(8000, 3, 3)))
    z = z @ rot(rng.normal(size=(8000, 3)))
    law, total = np.zeros(12), []
    for k in z:
        frame, motion, cov = rot([0.3, -0.2, 0.1]), np.zeros(9), np.diag(np.full(12, 0.2))
        ll, _ = rk.correct_member(frame, motion, cov, 6, law, k, 0.1, np.zeros((6, 12, 12)))
        total.append(ll)
    density = 8 * np.pi**2 * np.exp(total)
    assert abs(density.mean() - 1) < 4 * density.std() / np.sqrt(len(total))


def test_correction_is_the_kalman_formula() -> None:
    rng = np.random.default_rng(0)
    a = rng.normal(size=(12, 12)) * 0.1
    cov = a @ a.T
    frame, motion = np.eye(3), rng.normal(size=9) * 0.1
    e = np.array([1e-4, -2e-4, 3e-4])
    h = np.eye(3, 12)
    s = h @ cov @ h.T + 0.01 * np.eye(3)
    k = cov @ h.T @ np.linalg.inv(s)
    want, moved = cov - k @ s @ k.T, motion + (k @ e)[3:]
    law = compiled_models(oscillators((20.0,)))[0]
    rk.correct_member(frame, motion, cov, 12, law, rot(e), 0.01, np.zeros((6, 12, 12)))
    np.testing.assert_allclose(motion[:6], moved[:6], atol=1e-14)
    np.testing.assert_allclose(frame, rot((k @ e)[:3]), atol=1e-14)
    np.testing.assert_allclose(cov, want, atol=1e-4 * np.abs(want).max())  # up to the half turn
    np.testing.assert_array_equal(cov, cov.T)


# ------------------------------------------------------------------ the bank


def _streams() -> Iterator[Any]:
    rng = np.random.default_rng(5)
    yield so.project(rng.normal(size=(60, 3, 3)))  # pure garbage
    yield simulate.camera_shake(1).observations
    yield simulate.steady_camera(1).observations
    jump = simulate.camera_shake(2).observations.copy()
    jump[80:] = jump[80:] @ rot([1.5, 0, 0])
    yield jump
    yield rot(rng.normal(size=(50, 3)) * 1e-3)


@pytest.mark.parametrize("switching", [0.0, 1e-3, 0.05])
def test_mixture_density_is_never_behind_any_member(switching: float) -> None:
    prior = FEW.log_weight - np.logaddexp.reduce(FEW.log_weight)
    for z in _streams():
        _, r, members = filter_bank(z, 0.05, switching=switching, models=FEW)
        ours, each = np.nancumsum(r.log_likelihood), np.nancumsum(members, axis=0)
        n = np.cumsum(~np.isnan(r.log_likelihood))
        bound = (each + prior + n[:, None] * np.log1p(-switching)).max(axis=1)
        assert (ours - bound > -1e-8).all()


def test_the_guarantee_is_that_of_separate_trackers() -> None:
    """The members' densities are those of banks of one: the mixture is compared with the world."""
    z = simulate.camera_shake(1, 0.2).observations
    tracker = AutoRotation(noise_std=0.05, models="small", switching=0.0)
    ours = np.nansum(tracker.filter(z).log_likelihood)
    prior = np.exp(FEW.log_weight) / np.exp(FEW.log_weight).sum()
    for k in (0, 3, 20, 35):
        alone = MotionModels(*(field[k : k + 1] for field in FEW))
        theirs = np.nansum(AutoRotation(noise_std=0.05, models=alone).filter(z).log_likelihood)
        assert ours >= theirs + np.log(prior[k]) - 1e-8


def test_chunked_equals_whole_and_input_state_is_untouched() -> None:
    z = simulate.camera_shake(3, 0.3).observations
    whole_state, whole, _ = filter_bank(z, 0.05, models=FEW)
    state, _, _ = filter_bank(z[:77], 0.05, models=FEW)
    before = state.frames.copy()
    end, tail, _ = filter_bank(z[77:], 0.05, state=state, models=FEW)
    np.testing.assert_array_equal(state.frames, before)
    np.testing.assert_array_equal(tail.rotation, whole.rotation[77:])
    np.testing.assert_array_equal(end.log_weight, whole_state.log_weight)


def test_the_online_path_is_the_sequence() -> None:
    z = simulate.camera_shake(3, 0.3).observations[:60]
    _, whole, _ = filter_bank(z, 0.05, models=FEW)
    state, table, work = new_bank(FEW), compiled_models(FEW), np.zeros((6, 12, 12))
    record = np.empty(record_size(FEW.n_models))
    for t, seen in enumerate(z):
        status = advance_bank(state, table, seen, 0.05**2, record, work, tolerance=1e-6)
        assert status == (not np.isnan(seen).any())
        np.testing.assert_allclose(unfold(record).rotation, whole.rotation[t], atol=1e-12)
    before = state.frames.copy()
    for bad in (np.diag([1.0, 1.0, -1.0]), 1.1 * np.eye(3), np.full((3, 3), np.inf)):
        assert advance_bank(state, table, bad, 0.05**2, record, work, tolerance=1e-6) == 2
    np.testing.assert_array_equal(state.frames, before)


def test_coasting_equals_forecast_and_long_dt() -> None:
    z = simulate.camera_shake(4).observations
    state, _, _ = filter_bank(z, 0.05, models=FEW)
    coasted = filter_bank(np.full((7, 3, 3), np.nan), 0.05, state=state, models=FEW)[1]
    ahead = forecast_bank(state, 7.0, models=FEW)
    np.testing.assert_allclose(coasted.rotation[-1], ahead.rotation, atol=1e-12)
    np.testing.assert_allclose(coasted.covariance[-1], ahead.covariance, atol=1e-12)
    late = filter_bank(z[:1], 0.05, state=state, dt=7.0, present=[False], models=FEW)[1]
    np.testing.assert_allclose(late.rotation[-1], ahead.rotation, atol=1e-12)


def test_turning_the_world_turns_the_estimate() -> None:
    z = simulate.camera_shake(0, 0.2).observations
    g = rot([0.4, 1.0, -2.0])
    a, b = filter_bank(z, 0.05, models=FEW)[1], filter_bank(g @ z, 0.05, models=FEW)[1]
    np.testing.assert_allclose(g @ a.rotation, b.rotation, atol=1e-8)
    np.testing.assert_allclose(a.weights, b.weights, atol=1e-6)


def test_covariances_stay_definite_and_frames_orthonormal_for_ever() -> None:
    rng = np.random.default_rng(0)
    models = join(decaying_velocity(0.0), oscillators((20.0, 60.0)))
    state = new_bank(models)
    for _ in range(5):  # 10,000 frames with coasts of 500
        z = rot(0.05 * rng.normal(size=(2000, 3)))
        z[1000:1500] = np.nan
        state, r, _ = filter_bank(z, 0.05, models=models, state=state)
        for k in range(models.n_models):
            n = 12 if models.frequency[k].any() else 6
            c = state.covariances[k, :n, :n]
            scale = np.sqrt(np.diagonal(c))
            assert np.linalg.eigvalsh(c / scale[:, None] / scale)[0] > -1e-9
        gram = state.frames.transpose(0, 2, 1) @ state.frames
        assert np.abs(gram - np.eye(3)).max() < 1e-13
        assert np.isfinite(r.rotation).all()


def test_noise_per_observation_is_believed_accordingly() -> None:
    z = simulate.steady_camera(0).observations
    counts = np.ones(200)
    counts[100] = 1e-4
    wild = z.copy()
    wild[100] = wild[100] @ rot([1.0, 0, 0])
    tracker = AutoRotation(noise_std=0.05, models="small")
    a, b = (tracker.copy().filter(x, n_samples=counts).rotation for x in (z, wild))
    assert np.degrees(so.distance(a[100:], b[100:])).max() < 0.1


# ------------------------------------------------------------------ the tracker


@pytest.mark.parametrize("seed", [0, 1])
def test_nobody_has_to_tune_it(seed: int) -> None:
    """On shake far ahead of any single law, on a steady turn hardly behind the right one."""
    shake, steady = simulate.camera_shake(seed, 0.2), simulate.steady_camera(seed, 0.2)
    auto = RotationTracker(noise_std=0.05, gains="auto")
    ou = RotationTracker(noise_std=0.05, gains=gains.information(1.03e-3, retention=0.91))
    constant = RotationTracker(noise_std=0.05, gains=gains.information(0.0))

    def error(tracker: Any, scene: Any) -> float:
        found = tracker.copy().filter(scene.observations).rotation
        return float(metrics.geodesic_error(found, scene.rotation).mean())

    assert error(auto, shake) < 0.6 * error(ou, shake)
    assert error(auto, steady) < 1.1 * error(constant, steady)


def test_auto_is_a_word_for_the_class(tmp_path: Any) -> None:
    tracker = RotationTracker(noise_std=0.05, gains="auto", switching=0.01)
    assert isinstance(tracker, AutoRotation)
    assert tracker.models.n_models == 74
    tracker.filter(simulate.camera_shake(0).observations[:9])
    tracker.save(tmp_path / "state.npz")
    twin = kgmrf.load(tmp_path / "state.npz")
    assert twin.switching == 0.01
    np.testing.assert_array_equal(twin.forecast(2).rotation, tracker.forecast(2).rotation)


def test_time_in_seconds_is_time_in_frames(tmp_path: Any) -> None:
    z = simulate.camera_shake(2, 0.2).observations[:80]
    frames = AutoRotation(noise_std=0.05, models="small").filter(z, times=np.arange(80.0))
    tracker = AutoRotation(noise_std=0.05, models="small", frame_interval=1 / 30)
    seconds = tracker.filter(z, times=np.arange(80) / 30)
    np.testing.assert_allclose(seconds.rotation, frames.rotation, atol=1e-9)
    np.testing.assert_allclose(seconds.velocity, 30 * frames.velocity, atol=1e-7)
    np.testing.assert_allclose(seconds.angle_std, frames.angle_std, atol=1e-9)
    np.testing.assert_allclose(30 * seconds.half_life, frames.half_life, atol=1e-7)
    np.testing.assert_allclose(
        tracker.forecast(0.1).rotation,
        filter_bank(np.concatenate([z, np.full((3, 3, 3), np.nan)]), 0.05, models=FEW)[1].rotation[
            -1
        ],
        atol=1e-9,
    )


def test_models_of_ones_own_survive_a_file(tmp_path: Any) -> None:
    models = join(decaying_velocity(1e-5), oscillators((20.0, 60.0)))
    tracker = AutoRotation(noise_std=0.05, models=models)
    z = simulate.camera_shake(0).observations
    tracker.filter(z[:50])
    tracker.save(tmp_path / "state.npz")
    twin = AutoRotation.load(tmp_path / "state.npz")
    np.testing.assert_array_equal(twin.update(z[50]).weights, tracker.update(z[50]).weights)


def test_weights_and_half_life_tell_what_it_does() -> None:
    steady = AutoRotation(noise_std=0.05).filter(simulate.steady_camera(0).observations)
    np.testing.assert_allclose(steady.weights.sum(axis=-1), 1.0)
    assert steady.weights[-1, 0] > 0.5  # the constant velocity comes first
    assert steady.half_life[0] == 0.0
    assert steady.half_life[-1] > 20
    assert "half_life" in steady.to_frame()
    rng = np.random.default_rng(0)
    wild = rot(np.cumsum(rng.normal(scale=0.3, size=(200, 3)), axis=0))
    assert AutoRotation(noise_std=0.05).filter(wild).half_life[-1] < 1


@pytest.mark.parametrize(
    "settings",
    [
        {"d": 2},
        {"noise_std": None},
        {"models": "huge"},
        {"switching": 2.0},
        {"forgetting": -1.0},
        {"frame_interval": 0.0},
        {"rate_prior": 0.0},
        {"rate_prior": 1e-3, "models": decaying_velocity(0.0)},
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must|needs"):
        AutoRotation(**{"noise_std": 0.05, **settings})
