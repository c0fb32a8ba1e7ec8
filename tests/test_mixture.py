"""Laws of the self-tuning tracker of covariances and of its members."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

import kgmrf
from kgmrf import KGMRF, AutoKGMRF, simulate
from kgmrf.gains import InformationGains
from kgmrf.geometry import orbit, so
from kgmrf.kernels import members as places
from kgmrf.kernels import small_linalg
from kgmrf.mixture import (
    MixtureState,
    Settings,
    Trace,
    bank,
    default_members,
    effective_half_life,
    ema_member,
    follow,
    fresh_row,
    information_member,
    kinetic_member,
    read,
    state_of,
)
from kgmrf.step import Model, covariance_step, initial_state

POSTERIOR = Settings(blend_rate=0.0)


def stream(seed: int, d: int, steps: int, kind: str = "gauss") -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(steps, d)) @ rng.normal(size=(d, d)).T
    if kind == "heavy":
        x *= rng.standard_t(3, size=(steps, 1))
    if kind == "glitch":
        x[rng.random(steps) < 0.03] *= 1e4
    if kind == "bursts":
        x *= np.exp(np.sin(np.arange(steps) / 9.0))[:, None]
    return x


def run(
    seen: np.ndarray,
    table: Any = None,
    weighing: Settings | None = None,
    *,
    m: float = 1.0,
    dt: Any = 1.0,
    detailed: bool = False,
) -> Trace:
    """The bank on samples ``(T, d)`` or covariances ``(T, d, d)``; NaN is missing."""
    C = seen[:, :, None] * seen[:, None, :] if seen.ndim == 2 else seen
    kind = bank(C.shape[-1], table, weighing)
    there = np.isfinite(C).all(axis=(1, 2))
    brought = np.stack([np.broadcast_to(dt, len(C)), np.full(len(C), m), there], axis=-1)
    return read(follow(kind, fresh_row(kind), C, brought, detailed=detailed), kind)


def gaussian(x: np.ndarray, S: np.ndarray) -> float:
    size = len(x) * math.log(2 * math.pi) + np.linalg.slogdet(S)[1]
    return float(-0.5 * (size + x @ np.linalg.solve(S, x)))


# ----------------------------------------------------------------------- small matrices


@njit
def _turn(frame, w):  # type: ignore[no-untyped-def]
    d = len(w)
    work = np.zeros((3, d, d))
    small_linalg.turn(frame, w, 1.0, work[0], work[1], work[2])


@njit
def _factor(samples, gain, a):  # type: ignore[no-untyped-def]
    """The factor of a moving average, by additions alone and anew at the end."""
    d = samples.shape[1]
    factor, fresh = np.eye(d), np.zeros((d, d))
    for t in range(len(samples)):
        x = samples[t]
        for i in range(d):
            for j in range(d):
                a[i, j] = (1.0 - gain) * a[i, j] + gain * x[i] * x[j]
        factor *= math.sqrt(1.0 - gain)
        small_linalg.cholesky_add(factor, math.sqrt(gain) * x, 0)
    return factor, small_linalg.cholesky(a, fresh), fresh


@njit
def _jacobi(a, J):  # type: ignore[no-untyped-def]
    small_linalg.jacobi(a, J, 1e-14)


@pytest.mark.parametrize("d", [2, 3, 4, 7])
@pytest.mark.parametrize("size", [1e-5, 0.02, 0.4, 1.0, 4.0])
def test_turn_is_the_exponential(d: int, size: float) -> None:
    rng = np.random.default_rng(d)
    w = rng.normal(size=(d, d))
    w = w - w.T
    w *= size / (np.linalg.norm(w) / math.sqrt(2))
    frame = np.linalg.qr(rng.normal(size=(d, d)))[0]
    moved = frame.copy()
    _turn(moved, w)
    np.testing.assert_allclose(moved, frame @ so.exp(w), atol=1e-9)
    np.testing.assert_allclose(moved.T @ moved, np.eye(d), atol=1e-13)


def test_a_factor_stays_a_factor_by_additions_alone() -> None:
    rng = np.random.default_rng(0)
    samples = rng.normal(size=(100_000, 4)) * np.array([1e3, 1.0, 1e-2, 1.0])
    a = np.eye(4)
    factor, fine, fresh = _factor(samples, 0.05, a)
    scale = np.sqrt(np.outer(np.diag(a), np.diag(a)))
    assert fine
    np.testing.assert_allclose(factor.T @ factor / scale, a / scale, atol=1e-12)
    upper = np.triu(fresh)
    np.testing.assert_allclose(upper.T @ upper / scale, a / scale, atol=1e-12)


def test_jacobi_is_nearest_the_identity() -> None:
    a = np.diag([3.0, 2.0, 5.0, 1.0]) + 0.01
    work, J = a.copy(), np.empty((4, 4))
    _jacobi(work, J)
    np.testing.assert_allclose(J.T @ a @ J, np.diag(np.diag(work)), atol=1e-12)
    assert np.all(np.diag(J) > 0.99)


# ----------------------------------------------------------------------- the guarantee


def _regret(trace: Trace, start: int) -> tuple[float, float, float]:
    best = trace.member_log_density[start:].sum(0).max()
    slack = 1e-9 * abs(best) + 1e-6
    return (
        best - trace.log_bayes[start:].sum() - slack,
        best - trace.log_mixture[start:].sum() - slack,
        math.log(trace.weights.shape[1]),
    )


@settings(max_examples=12, deadline=None)
@given(
    st.integers(0, 10_000),
    st.integers(1, 5),
    st.sampled_from(["gauss", "heavy", "bursts", "glitch"]),
)
def test_the_mixture_is_never_far_behind_its_best_member(seed: int, d: int, kind: str) -> None:
    bayes, mixture, log_k = _regret(run(stream(seed, d, 200, kind)), 5 * d)
    assert bayes <= log_k
    assert mixture <= log_k + math.log(2.0)


def test_a_weight_that_underflows_still_counts() -> None:
    """First one member is right by thousands of nats, then the other by more."""
    quiet, loud = 1e-3 * stream(0, 2, 900), 1e3 * stream(1, 2, 600)
    x = np.concatenate([quiet, loud])
    table = np.array([ema_member(4096.0), ema_member(4.0), ema_member(1.0)])
    trace = run(x, table)
    lead = trace.member_log_density[10:900].sum(0)
    assert abs(lead[0] - lead[2]) > 750.0  # beyond what exp can tell from 0
    bayes, mixture, log_k = _regret(trace, 10)
    assert bayes <= log_k
    assert mixture <= log_k + math.log(2.0)


def test_the_mixture_on_a_turning_covariance() -> None:
    scene = simulate.rotating_covariance(3, rate=0.05, n_frames=300, n_samples=8, rng=2)
    bayes, mixture, log_k = _regret(run(scene.observations, m=8.0), 2)
    assert bayes <= log_k
    assert mixture <= log_k + math.log(2.0)


def test_forgetting_changes_the_weights_but_not_the_members() -> None:
    x = stream(3, 3, 150)
    a = run(x, weighing=POSTERIOR)
    b = run(x, weighing=Settings(forgetting=0.95, blend_rate=0.0))
    np.testing.assert_array_equal(a.member_log_density, b.member_log_density)
    assert not np.allclose(a.weights, b.weights)
    # Bayes by hand, frame by frame, in logarithms.
    log_w = np.zeros(17)
    for t in range(15, 150):
        log_mean = np.logaddexp.reduce(log_w + a.member_log_density[t]) - np.logaddexp.reduce(log_w)
        assert a.log_bayes[t] == pytest.approx(log_mean, abs=1e-9)
        log_w += a.member_log_density[t]


# ----------------------------------------------------------------------- members


def test_a_plain_member_is_the_bias_corrected_average() -> None:
    x, h = stream(0, 3, 80), 10.0
    trace = run(x, [ema_member(h)], POSTERIOR)
    keep = 0.5 ** (1 / h)
    S, mass = x[:15].T @ x[:15] / 15, (1 - keep**15) / (1 - keep)
    for t in range(15, 80):
        assert trace.log_density[t] == pytest.approx(gaussian(x[t], S), abs=1e-5)
        mass = 1 + keep * mass
        S = S + (np.outer(x[t], x[t]) - S) / mass
        np.testing.assert_allclose(trace.covariance[t], S, rtol=1e-6, atol=1e-6)


def test_uniform_gaps_give_the_gain_of_the_gap() -> None:
    x = stream(0, 2, 400)
    kind = bank(2, [ema_member(20.0)])
    row = fresh_row(kind)
    follow(kind, row, x[:, :, None] * x[:, None, :], np.tile([3.0, 1.0, 1.0], (400, 1)))
    assert 1 / state_of(row, kind).mass[0] == pytest.approx(1 - 0.5 ** (3 / 20.0), rel=1e-6)


def test_a_kinetic_average_without_momentum_is_the_average() -> None:
    x = stream(5, 4, 120)
    a = run(x, [ema_member(12.0)])
    b = run(x, [kinetic_member(12.0, velocity_gain=0.0)])
    np.testing.assert_allclose(a.covariance[20:], b.covariance[20:], rtol=1e-5, atol=1e-5)


def test_a_kinetic_average_with_momentum_follows_a_turning_frame() -> None:
    scene = simulate.ellipse(0.05, n_samples=64, rng=0)
    error = {}
    for gain in (0.0, 0.002):
        C = run(scene.observations, [kinetic_member(8.0, velocity_gain=gain)], m=64.0).covariance
        truth = scene.covariance[100:]
        error[gain] = kgmrf.metrics.angular_error(C[100:], truth, degrees=True).mean()
    assert error[0.002] < 0.4 * error[0.0]


@pytest.mark.parametrize(("d", "rho"), [(2, 1.0), (3, 0.95), (5, 1.0)])
def test_an_information_member_is_the_readable_step(d: int, rho: float) -> None:
    m, n_frames, law = 12, 60, InformationGains(1e-6, retention=rho)
    spectrum = 2.0 ** np.arange(d, 0, -1)
    scene = simulate.rotating_covariance(
        d, rate=0.02, spectrum=list(spectrum), n_frames=n_frames, n_samples=m, rng=d
    )
    C = scene.observations
    trace = run(C, [information_member(1e-6, retention=rho)], m=float(m))
    pool = math.ceil(5 * d / m)
    frame, level = orbit.decompose(C[:pool].mean(0))
    state = initial_state(frame, level, law)
    state = state._replace(
        spectrum_var=np.full(d, 2.0 / (m * pool)), seen=np.asarray(0.0), steps=np.asarray(1.0)
    )
    model = Model(law, spectrum_rate=1e-4)
    one, yes = np.asarray(1.0), np.asarray(True)
    for t in range(pool, n_frames):
        state, surprise = covariance_step(state, model, C[t], np.asarray(float(m)), one, yes)
        readable = orbit.compose(state.frame, state.spectrum)
        np.testing.assert_allclose(trace.covariance[t], readable, rtol=1e-5, atol=1e-5)
        # The ridge of 1e-8 at the start is the only difference.
        assert trace.log_density[t] == pytest.approx(float(surprise.log_likelihood), abs=1e-3)


def test_one_sample_is_its_square() -> None:
    """A matrix of rank one takes a shorter way; an almost equal one of rank two does not."""
    x = stream(2, 3, 90)
    C = x[:, :, None] * x[:, None, :]
    near = C + 1e-11 * np.eye(3) * np.trace(C, axis1=1, axis2=2)[:, None, None]
    a, b = run(C), run(near)
    np.testing.assert_allclose(a.covariance[20:], b.covariance[20:], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(a.log_mixture[20:], b.log_mixture[20:], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "member", [information_member(1e-6, retention=0.9), ema_member(20.0, scale_gain=0.3)]
)
def test_two_short_drifts_make_one_long(member: np.ndarray) -> None:
    x = np.random.default_rng(0).normal(size=(120, 3)) * np.array([3.0, 1.0, 0.3])
    one = AutoKGMRF(members=member, n_samples=1)
    one.filter(x)
    two = one.copy()
    two.update(None, dt=1.5)
    np.testing.assert_allclose(
        one.forecast(4.0).covariance, two.forecast(2.5).covariance, rtol=1e-9, atol=1e-12
    )


def test_members_that_make_no_sense_are_refused() -> None:
    for call in (
        lambda: ema_member(0.0),
        lambda: ema_member(8.0, channel_half_life=-1.0),
        lambda: kinetic_member(np.inf, velocity_gain=0.1),
        lambda: AutoKGMRF(members=np.zeros((2, 5))),
        lambda: AutoKGMRF(gains="information"),
        lambda: AutoKGMRF(blend_rate=-1.0),
    ):
        with pytest.raises(ValueError, match="must"):
            call()
    with pytest.raises(ValueError, match='gains="information"'):
        KGMRF(spectrum="fixed")
    with pytest.raises(TypeError, match="magic"):
        KGMRF(magic=1)  # type: ignore[call-arg]


# ----------------------------------------------------------------------- the whole


def test_the_future_does_not_reach_the_past() -> None:
    x = stream(7, 3, 100)
    y = x.copy()
    y[70:] *= 50.0
    a, b = run(x), run(y)
    np.testing.assert_array_equal(a.log_density[:70], b.log_density[:70])
    np.testing.assert_array_equal(a.covariance[:70], b.covariance[:70])


def test_the_density_is_that_of_the_forecast() -> None:
    x = stream(8, 3, 100, "bursts")
    tracker = KGMRF()
    tracker.filter(x[:60])
    for t in range(60, 100):
        S = tracker.forecast(1.0).covariance
        estimate = tracker.partial_fit(x[t])
        assert float(estimate.log_likelihood) == pytest.approx(gaussian(x[t], S), rel=1e-9)


@settings(max_examples=8, deadline=None)
@given(st.integers(1, 99))
def test_chunked_is_whole_to_the_last_bit(cut: int) -> None:
    x = stream(4, 3, 100)
    x[[30, 31, 60]] = np.nan
    whole = KGMRF().filter(x)
    tracker = KGMRF()
    pieces = [tracker.filter(x[:cut]), tracker.filter(x[cut:])]
    for name in ("covariance", "log_likelihood", "log_mixture", "weights"):
        joined = np.concatenate([getattr(piece, name) for piece in pieces])
        np.testing.assert_array_equal(joined, getattr(whole, name))


def test_units_do_not_matter() -> None:
    x = stream(9, 3, 200, "heavy")
    a, b = run(x), run(1024.0 * x)
    np.testing.assert_allclose(b.covariance / 1024.0**2, a.covariance, rtol=1e-6)
    np.testing.assert_allclose(b.weights, a.weights, atol=1e-6)


def test_turning_the_channels_does_not_matter_to_members_without_clocks_of_channels() -> None:
    x = stream(10, 3, 120)
    R = so.exp(so.hat(np.array([0.8, 0.3, 0.4])))
    table = [ema_member(16), ema_member(64, scale_gain=0.3), information_member(1e-6)]
    a, b = run(x, table), run(x @ R.T, table)
    np.testing.assert_allclose(b.covariance, R @ a.covariance @ R.T, atol=1e-5)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 6))
def test_every_estimate_is_a_covariance(seed: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    x = stream(seed, d, 150, "heavy")
    x[rng.random(150) < 0.2] = np.nan
    if d > 1:
        x[:, 0] = np.where(np.isnan(x[:, 0]), np.nan, 0.0)  # a dead channel
    trace = run(x, dt=rng.uniform(0.5, 3.0, 150), detailed=True)
    begun = np.isfinite(trace.allowance)
    C = trace.covariance[begun]
    assert np.linalg.eigvalsh(C).min() > 0
    np.testing.assert_allclose(trace.weights.sum(1), 1.0, atol=1e-12)
    np.testing.assert_array_equal(C, np.swapaxes(C, 1, 2))
    assert trace.angle_var is not None
    assert ((trace.angle_var[begun] >= 0) & (trace.angle_var[begun] <= 0.25)).all()


def test_numbers_of_any_size_leave_it_finite() -> None:
    x = stream(1, 2, 120)
    x[60] *= 1e140
    x[90:] *= 1e-80
    trace = run(x)
    assert np.isfinite(trace.covariance).all()
    assert np.isfinite(trace.weights).all()


def test_an_isolated_gross_outlier_is_not_held_against_the_stream() -> None:
    x = stream(12, 3, 600)
    clean = run(x)
    x[300] *= 1e4
    trace = run(x)
    assert trace.allowance[301:310].max() > 1.0
    assert trace.allowance[-1] == pytest.approx(1.0, abs=1e-6)
    assert clean.allowance[20:].max() == 1.0
    assert clean.log_density[400:].mean() - trace.log_density[400:].mean() < 0.1


def test_the_noise_floor_is_taken_off() -> None:
    scene = simulate.rotating_covariance(2, n_frames=80, n_samples=20, noise_floor=0.1, rng=1)
    plain = KGMRF(n_samples=20).filter(scene.observations)
    off = KGMRF(n_samples=20, noise_floor=0.1).filter(scene.observations)
    np.testing.assert_allclose(
        off.covariance[5:], plain.covariance[5:] - 0.1 * np.eye(2), atol=1e-12
    )
    np.testing.assert_array_equal(off.log_likelihood, plain.log_likelihood)
    assert (KGMRF(n_samples=20, noise_floor=9.0).filter(scene.observations).spectrum > 0).all()


def test_a_copy_and_a_file_are_of_the_same_class(tmp_path: Path) -> None:
    for tracker in (KGMRF(n_samples=3), KGMRF(gains="information", n_samples=3)):
        tracker.filter(np.tile(np.diag([2.0, 0.5]), (9, 1, 1)))
        tracker.save(tmp_path / "state.npz")
        for twin in (tracker.copy(), KGMRF.load(tmp_path / "state.npz")):
            assert type(twin) is type(tracker)
            assert repr(twin) == repr(tracker)
    assert isinstance(KGMRF(), KGMRF)
    assert type(KGMRF()) is AutoKGMRF
    assert type(KGMRF(gains="information")) is KGMRF


def test_own_members_survive_a_file(tmp_path: Path) -> None:
    table = np.array([ema_member(8.0), ema_member(64.0)])
    tracker = AutoKGMRF(members=table, n_samples=1, forgetting=0.97)
    tracker.filter(stream(0, 2, 30))
    tracker.save(tmp_path / "state.npz")
    twin = kgmrf.load(tmp_path / "state.npz")
    np.testing.assert_array_equal(twin.members, table)
    assert twin.forgetting == 0.97
    assert twin.forecast(1).weights.shape == (2,)


def test_state_names_are_the_layout() -> None:
    assert tuple(places.shapes(3, 1, 2)) == MixtureState._fields
    kind = bank(2)
    row = fresh_row(kind)
    state_of(row, kind).mass[:] = 7.0
    assert (row == 7.0).sum() == 17


def test_half_life_of_averages_alone() -> None:
    table = default_members(1)
    assert len(table) == 12
    nobody = effective_half_life(np.array([ema_member(2.0), information_member(1e-6)]), np.eye(2))
    np.testing.assert_allclose(nobody, [2.0, np.nan])


# ----------------------------------------------------------------------- how good it is


def _ellipse_error(covariance: np.ndarray, truth: np.ndarray) -> float:
    errors = kgmrf.metrics.angular_error(covariance[50:], truth[50:], degrees=True)
    return float(np.mean(errors))


def test_an_ellipse_through_three_occlusions() -> None:
    errors = []
    for seed in range(5):
        away = simulate.occlusions(400, starts=(100, 220, 340), length=30)
        scene = simulate.ellipse(0.08, n_samples=1280, observed=away, rng=seed)
        found = KGMRF(n_samples=1280).filter(scene.observations).covariance
        errors.append(_ellipse_error(found, scene.covariance))
    assert np.mean(errors) <= 0.5


def test_an_ellipse_with_eight_samples_is_followed_as_by_the_best_member() -> None:
    whole, alone = [], []
    for seed in range(4):
        scene = simulate.ellipse(0.08, n_samples=8, rng=seed)
        C, M = scene.observations, scene.covariance
        whole.append(_ellipse_error(run(C, m=8.0).covariance, M))
        alone.append([_ellipse_error(run(C, [r], m=8.0).covariance, M) for r in default_members(2)])
    assert np.mean(whole) <= 1.15 * np.mean(alone, axis=0).min()


@pytest.mark.parametrize(("d", "rate"), [(2, 0.0), (3, 0.02), (3, 0.08)])
def test_it_knows_how_sure_it_is(d: int, rate: float) -> None:
    """The truth lies within two standard deviations about as often as it should (95 %)."""
    inside, nis = [], []
    pairs = np.triu_indices(d, 1)
    for seed in range(4):
        scene = simulate.rotating_covariance(d, rate=rate, n_frames=300, n_samples=8, rng=seed)
        result = KGMRF(n_samples=8).filter(scene.observations)
        between = np.swapaxes(result.frame, -1, -2) @ orbit.decompose(scene.covariance)[0]
        between = between * np.sign(np.einsum("tii->ti", between))[:, None, :]
        angle = 0.5 * (between - np.swapaxes(between, -1, -2))[60:, *pairs]
        inside.append(np.abs(angle) <= 2.0 * result.angle_std[60:, *pairs])
        nis.append(result.nis[60:])
    assert 0.9 < np.mean(inside) <= 1.0
    assert 0.8 < np.mean(nis) / len(pairs[0]) < 1.25


def test_velocity_is_that_of_the_turning() -> None:
    scene = simulate.rotating_covariance(3, rate=0.06, n_frames=400, n_samples=30, rng=3)
    result = KGMRF(n_samples=30).filter(scene.observations)
    frame = result.frame[200:]
    spatial = frame @ result.velocity[200:] @ np.swapaxes(frame, -1, -2)
    speed = np.linalg.norm(spatial.mean(axis=0)) / math.sqrt(2.0)
    assert speed == pytest.approx(0.06, rel=0.1)
    online = KGMRF(n_samples=30)
    for C in scene.observations[:60]:
        estimate = online.update(C)
    for name in ("velocity", "angle_std", "nis", "frame"):
        np.testing.assert_allclose(
            getattr(estimate, name), getattr(result, name)[59], atol=1e-9, err_msg=name
        )


def test_it_can_be_protected_and_be_a_part() -> None:
    """Wrappers take its fields apart and put them together again."""
    scene = simulate.rotating_covariance(3, n_frames=60, n_samples=12, rng=0)
    inside = kgmrf.RobustTracker(KGMRF(n_samples=12))
    result = inside.filter(scene.observations)
    plain = KGMRF(n_samples=12).filter(scene.observations)
    assert set(result.fields()) == {*plain.fields(), "score"}
    garbage = inside.update(900.0 * np.eye(3))
    assert float(garbage.covariance[0, 0]) < 10.0
    assert np.isfinite(garbage.velocity).all()
