"""The rotation engine and tracker: never lost, any unit of time, what is shown."""

from __future__ import annotations

import datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from kgmrf import (
    ErrorStateKalman,
    EuclideanEMA,
    ObservationError,
    OneEuro,
    PoseTracker,
    RotationTracker,
    TrackerBank,
    load,
    metrics,
    simulate,
)
from kgmrf._time import duration, stamps, unit_of
from kgmrf.constants import REFUSED, STALE
from kgmrf.engines import Lines
from kgmrf.engines.rotation_row import part
from kgmrf.engines.rotations import Rotations
from kgmrf.geometry import so


def _motion(n: int, rate: float, noise: float, rng: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A turn whose axis wanders, and what is seen of it."""
    g = np.random.default_rng(rng)
    axis = np.cumsum(0.1 * g.standard_normal((n, 3)), axis=0) + [1.0, 0.5, -0.3]
    steps = rate * axis / np.linalg.norm(axis, axis=1, keepdims=True)
    truth = [np.eye(3)]
    for step in Rotation.from_rotvec(steps).as_matrix()[1:]:
        truth.append(truth[-1] @ step)
    whole = np.array(truth)
    return whole, whole @ Rotation.from_rotvec(noise * g.standard_normal((n, 3))).as_matrix()


def _error(estimates: np.ndarray, truth: np.ndarray) -> np.ndarray:
    return metrics.geodesic_error(estimates, truth)


# --------------------------------------------------------------------------- the engine


def test_rows_are_all_that_is_remembered() -> None:
    """One track of many is a track alone; cut anywhere it goes on as if nothing had happened."""
    engine = Rotations()
    z = np.stack([_motion(40, 0.03 * k, 0.01, k)[1] for k in range(3)], axis=1)
    counts, dt = np.ones((40, 3)), np.full((40, 3), 0.1)
    counts[5:9, 1] = 0.0
    rows, steps = engine.init(3), np.repeat(np.arange(40), 3)
    every = np.tile(np.arange(3), 40)
    lines = Lines(every, z[steps, every], counts[steps, every], dt[steps, every])
    records = engine.advance(rows, lines)[1].reshape(40, 3, -1)
    alone, pieces = engine.init(1), []
    for low, high in ((0, 1), (1, 6), (6, 20), (20, 40)):
        mine = lines.part(slice(3 * low + 1, 3 * high, 3))
        part = [np.ascontiguousarray(values) for values in mine[1:4]]
        pieces.append(engine.advance(alone, Lines(np.zeros(high - low, dtype=int), *part))[1])
        alone = alone.copy()
    np.testing.assert_array_equal(np.concatenate(pieces), records[:, 1])
    np.testing.assert_array_equal(alone[0], rows[1])
    before = rows.copy()
    ahead = engine.view(engine.ahead(rows, 0.25)[1])
    np.testing.assert_array_equal(rows, before)
    assert ahead["rotation"].shape == (3, 3, 3)
    # Lines of any tracks in any order are the same.
    order = np.random.default_rng(0).permutation(np.tile(np.arange(3), 40))
    step = np.zeros(3, dtype=int)
    place = []
    for track in order:
        place.append(step[track])
        step[track] += 1
    lined, seen = engine.init(3), counts[place, order]
    found = engine.advance(lined, Lines(order, z[place, order], seen, dt[place, order]))[1]
    np.testing.assert_array_equal(lined, rows)
    np.testing.assert_array_equal(found, records[place, order])


@settings(max_examples=25, deadline=None)
@given(
    noise=st.floats(-6, -0.5),
    rate=st.floats(-4, 0.5),
    given_noise=st.booleans(),
    unit=st.sampled_from([1.0, 1e-9, 1e9]),
    seed=st.integers(0, 99),
)
def test_never_lost(noise: float, rate: float, given_noise: bool, unit: float, seed: int) -> None:
    """Whatever comes: finite rotations, and in the end as near as what was observed last."""
    truth, z = _motion(60, 10.0**rate, 10.0**noise, seed)
    g = np.random.default_rng(seed)
    wild = g.random(60) < 0.05
    wild[[0, *range(50, 60)]] = False
    z[wild] = Rotation.random(int(wild.sum()), random_state=seed).as_matrix()
    z[g.random(60) < 0.2] = np.nan
    z[0], z[-1] = truth[0], truth[-1]
    tracker = RotationTracker(noise_std=10.0**noise if given_noise else None)
    result = tracker.filter(z, times=1.7e9 + unit * np.cumsum(g.uniform(0.5, 1.5, 60)))
    for field in ("rotation", "velocity", "angle_std", "covariance", "noise_std", "weights"):
        assert np.isfinite(getattr(result, field)).all(), field
    turned = np.swapaxes(result.rotation, 1, 2) @ result.rotation
    np.testing.assert_allclose(turned, np.broadcast_to(np.eye(3), turned.shape), atol=1e-9)


# --------------------------------------------------------------------------- what was found


@pytest.mark.parametrize("noise", [1e-4, 3e-4, 1e-3])
def test_a_small_correct_noise_does_not_freeze_it(noise: float) -> None:
    """A steady turn whose first observation is off by 1.5 rad: NaN from step 31 once."""
    spin = np.array([0.0, 0.08, 0.0])
    truth = Rotation.from_rotvec(np.arange(200)[:, None] * spin).as_matrix()
    z = (
        truth
        @ Rotation.from_rotvec(
            noise * np.random.default_rng(0).standard_normal((200, 3))
        ).as_matrix()
    )
    z[0] = truth[0] @ so.exp(so.hat(np.array([1.5, 0.0, 0.0])))
    result = RotationTracker(noise_std=noise).filter(z)
    assert np.isfinite(result.weights).all()
    assert (result.angle_std[-1][[0, 0, 1], [1, 2, 2]] > 0).all()
    assert _error(result.rotation, truth)[10:].max() < 5 * noise


def test_it_starts_without_a_noise_level_and_learns_it() -> None:
    for noise in (0.005, 0.05):
        truth, z = _motion(400, 0.01, noise)
        tracker = RotationTracker()
        result = tracker.filter(z)
        assert noise / 1.3 < result.noise_std[-1] < 1.3 * noise
        known = RotationTracker(noise_std=noise).filter(z)
        late = slice(50, None)
        ratio = (
            _error(result.rotation, truth)[late].mean() / _error(known.rotation, truth)[late].mean()
        )
        assert ratio < 1.1
        for wrong in (0.01, 10.0, 100.0):
            guessed = RotationTracker(noise_std_guess=wrong * noise).filter(z)
            error = _error(guessed.rotation, truth)[late].mean()
            assert error < 1.5 * _error(known.rotation, truth)[late].mean()


@pytest.mark.parametrize("unit", [1e-9, 1.0 / 30.0, 1.0, 3.3e7, 1e9])
def test_stamps_in_any_unit(unit: float) -> None:
    _truth, z = _motion(100, 0.05, 0.02)
    plain = RotationTracker().filter(z)
    result = RotationTracker().filter(z, times=unit * np.arange(100))
    np.testing.assert_allclose(result.rotation, plain.rotation, atol=1e-6)
    np.testing.assert_allclose(
        result.angular_velocity * unit, plain.angular_velocity, atol=1e-6, rtol=1e-6
    )
    fixed = RotationTracker(time_unit=unit).filter(z, times=unit * np.arange(100))
    np.testing.assert_allclose(fixed.rotation, plain.rotation, atol=1e-6)


def test_dates_count_in_seconds() -> None:
    _, z = _motion(30, 0.05, 0.02)
    dates = np.datetime64("2024-03-01T00:00:00") + np.arange(30) * np.timedelta64(40, "ms")
    seconds = RotationTracker().filter(z, times=0.04 * np.arange(30))
    for times in (dates, [d.astype(datetime.datetime) for d in dates]):
        tracker = RotationTracker()
        result = tracker.filter(z, times=times)
        np.testing.assert_allclose(result.velocity, seconds.velocity, rtol=1e-4, atol=1e-5)
        ahead = tracker.forecast(np.timedelta64(40, "ms")).time - result.time[-1]
        np.testing.assert_allclose(ahead, 0.04, atol=1e-6)


def test_words_of_time() -> None:
    assert unit_of(np.array([0.0, 0.0])) == 1.0
    assert unit_of(np.arange(1.0, 100.0)) == 4.5  # the first eight
    assert duration(datetime.timedelta(seconds=2)) == 2.0
    assert stamps(None) is None
    pandas = pytest.importorskip("pandas")
    index = pandas.date_range("2024-01-01", periods=3, freq="h", tz="Europe/Paris")
    np.testing.assert_allclose(np.diff(stamps(index)), 3600.0)


def test_earlier_stamps_say_where_the_tracker_stands() -> None:
    tracker = RotationTracker()
    tracker.filter(np.tile(np.eye(3), (5, 1, 1)), times=np.arange(5) + 495.0)
    with pytest.raises(ObservationError, match=r"last time stamp is 499\.0"):
        tracker.filter(np.tile(np.eye(3), (5, 1, 1)), times=np.arange(5.0))


@pytest.mark.parametrize("dt", [1e9, 1e12, 1e15])
def test_a_long_gap_leaves_a_rotation(dt: float) -> None:
    _, z = _motion(21, 0.1, 0.01)
    tracker = RotationTracker()
    for seen in z[:20]:
        tracker.update(seen)
    for estimate in (tracker.forecast(dt), tracker.update(None, dt=dt), tracker.update(z[20])):
        r = estimate.rotation
        np.testing.assert_allclose(r.T @ r, np.eye(3), atol=1e-9)
        assert np.isfinite(estimate.velocity).all()
    assert _error(tracker.update(z[20]).rotation, z[20]) < 0.1


def test_irregular_stamps_cost_little() -> None:
    g, errors = np.random.default_rng(5), []
    for wobble in (0.0, 0.3):
        for seed in range(6):
            g = np.random.default_rng(seed)
            t = np.arange(300) + wobble * g.uniform(-1, 1, 300)
            path = np.stack([np.sin(0.05 * t), 0.7 * np.sin(0.07 * t + 1), 0.02 * t], axis=1)
            truth = Rotation.from_rotvec(path).as_matrix()
            z = truth @ Rotation.from_rotvec(0.03 * g.standard_normal((300, 3))).as_matrix()
            result = RotationTracker().filter(z, times=t / 30)
            errors.append(_error(result.rotation, truth).mean())
    assert np.mean(errors[6:]) < 1.1 * np.mean(errors[:6])


def test_one_class() -> None:
    assert EuclideanEMA(kind="rotation").kind == "rotation"
    for tracker in (RotationTracker(), RotationTracker(noise_std=0.1, gains="information")):
        assert type(tracker) is RotationTracker
        assert tracker.kind == "rotation"


def test_a_jump_is_followed_within_three_observations_and_outliers_are_not() -> None:
    truth, z = _motion(100, 0.02, 0.01)
    turn = so.exp(so.hat(np.array([0.0, 0.0, 2.0])))
    truth[50:], z[50:] = truth[50:] @ turn, z[50:] @ turn
    z[20], z[75] = so.exp(so.hat(np.array([0.0, 3.0, 0.0]))), np.eye(3)
    for noise_std in (None, 0.01):
        result = RotationTracker(noise_std=noise_std).filter(z)
        error = _error(result.rotation, truth)
        assert error[[20, 75]].max() < 0.05
        assert error[52:].max() < 0.1
        assert list(result.status[[20, 75]]) == [REFUSED, REFUSED]


def _outliers(
    angle: float, about: str, noise: float, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A turn seen with 2 % outliers of this angle about z or about any axis; where they are."""
    truth, z = _motion(400, 0.03, noise, seed)
    g = np.random.default_rng([7, seed])
    wild = g.random(400) < 0.02
    wild[:20] = False
    axis = g.standard_normal((400, 3)) * ([0.0, 0.0, 1.0] if about == "z" else 1.0)
    axis /= np.linalg.norm(axis, axis=1, keepdims=True)
    off = np.where(wild, np.radians(angle), 0.0)[:, None] * axis
    return truth, z @ Rotation.from_rotvec(off).as_matrix(), wild


@pytest.mark.parametrize("noise_std", [None, 1e-3])
@pytest.mark.parametrize(("angle", "about"), [(90.0, "z"), (180.0, "z"), (10.0, "z"), (5.0, "any")])
def test_outliers_that_people_have_do_no_harm(
    angle: float, about: str, noise_std: float | None
) -> None:
    """A turn about one axis was taken for motion, and so were a few degrees (findings 110, 111)."""
    ratios, caught = [], []
    for seed in range(4):
        truth, z, wild = _outliers(angle, about, 1e-3, seed)
        clean = RotationTracker(noise_std=noise_std).filter(_motion(400, 0.03, 1e-3, seed)[1])
        found = RotationTracker(noise_std=noise_std).filter(z)
        error = _error(found.rotation, truth)
        ratios.append(error.mean() / _error(clean.rotation, truth).mean())
        caught.append((found.status == REFUSED)[wild].mean())
        good = ~wild & np.roll(~wild, 1)
        assert error[good].max() < np.radians(1.0)
    assert np.mean(ratios) < 1.25
    assert np.mean(caught) > 0.7


def test_a_doubt_is_told() -> None:
    """An outlier that cannot be told from motion yet: its probability, and a wide covariance."""
    truth, z = _motion(100, 0.03, 0.01)
    z[60] = z[60] @ so.exp(so.hat(np.array([0.0, 0.0, 0.09])))
    tracker = RotationTracker(noise_std=0.01)
    before = tracker.filter(z[:60])
    doubt, after = tracker.update(z[60]), tracker.update(z[61])
    assert 0.02 < doubt.outlier_probability < 0.98
    assert doubt.angle_std[0, 1] > 2.0 * before.angle_std[-1, 0, 1]
    assert after.angle_std[0, 1] < 0.7 * doubt.angle_std[0, 1]
    np.testing.assert_allclose(before.outlier_probability[30:].max(), 0.0, atol=0.1)
    missing = tracker.update(None)
    assert np.isnan(missing.outlier_probability)
    whole = RotationTracker(noise_std=0.01).filter(z[:62])
    np.testing.assert_allclose(whole.rotation[-1], after.rotation, atol=1e-14)
    assert _error(after.rotation, truth[61]) < 0.03


def test_doubt_through_a_gap_is_coasting() -> None:
    """While an observation is open, steps without one show what a forecast shows."""
    _, z = _motion(100, 0.03, 0.01)
    z[60] = z[60] @ so.exp(so.hat(np.array([0.0, 0.0, 0.09])))
    tracker = RotationTracker(noise_std=0.01)
    tracker.filter(z[:61])
    ahead = [tracker.forecast(float(k)) for k in (1, 2, 3)]
    for expected in ahead:
        found = tracker.update(None)
        np.testing.assert_allclose(found.rotation, expected.rotation, atol=1e-12)
        np.testing.assert_allclose(found.covariance, expected.covariance, rtol=1e-9)


@pytest.mark.parametrize("noise_std", [None, 1e-3])
def test_the_future_makes_outliers_gaps(noise_std: float | None) -> None:
    """`smooth` and a lag took over what had been taken for motion (finding 111)."""
    found = []
    for seed in range(4):
        truth, z, wild = _outliers(8.0, "any", 1e-3, seed)
        tracker = RotationTracker(noise_std=noise_std)
        runs = tracker.smooth(z), tracker.smooth(z, mask=~wild), tracker.smooth(z, lag=5)
        assert (runs[0].status[wild] == REFUSED).all()
        late = tracker.filter(z)
        found.append([_error(run.rotation, truth)[wild].mean() for run in (*runs, late)])
    whole, masked, lagged, late = np.mean(found, axis=0)
    assert whole < 1.3 * masked
    assert lagged < 0.7 * late


@pytest.mark.parametrize("every", [2, 3])
def test_stale_poses_are_missing(every: int) -> None:
    """Poses that come twice or three times with new stamps fooled the noise (finding 112)."""
    truth, fresh = _motion(400, 0.03, 0.01)
    z = fresh[np.arange(400) // every * every]
    with pytest.warns(UserWarning, match="poses repeat exactly"):
        found = RotationTracker().filter(z)
    gaps = np.where((np.arange(400) % every == 0)[:, None, None], fresh, np.nan)
    masked = RotationTracker().filter(gaps)
    error = _error(found.rotation, truth).mean()
    assert error < 1.02 * _error(masked.rotation, truth).mean()
    assert error < 0.8 * _error(RotationTracker(repeats="taken").filter(z).rotation, truth).mean()
    assert set(found.status[1::every]) == {STALE}
    assert 0.006 < found.noise_std[-1] < 0.015
    smooth = RotationTracker(repeats="missing").smooth(z)
    np.testing.assert_allclose(
        _error(smooth.rotation, truth).mean(),
        _error(RotationTracker().smooth(gaps).rotation, truth).mean(),
        rtol=0.02,
    )


def test_repeats_of_a_sensor_at_rest_are_taken(recwarn: pytest.WarningsRecorder) -> None:
    """Long runs of repeats are rest, and one repeat among many is nothing."""
    still = RotationTracker().filter(np.tile(np.eye(3), (200, 1, 1)))
    assert (still.status[10:] == 1).all()
    z = _motion(200, 0.03, 0.01)[1]
    z[[60, 90, 140]] = z[[59, 89, 139]]
    assert (RotationTracker().filter(z).status[[60, 90, 140]] != STALE).all()
    assert not [w for w in recwarn if "repeat" in str(w.message)]


def test_repeats_must_be_a_known_word() -> None:
    with pytest.raises(ValueError, match="repeats"):
        RotationTracker(repeats="sometimes")  # type: ignore[arg-type]


def test_exact_rest_then_fast_motion_on_a_grid() -> None:
    """Repeats of quantised poses say nothing of the noise: it collapsed, and motion was refused."""
    for grid in (1e-3, 1e-2):
        t = np.maximum(np.arange(300) - 150, 0)
        path = 0.4 * np.stack([np.sin(0.2 * t), np.sin(0.13 * t), 0.02 * t], axis=1)
        seen = Rotation.from_rotvec(np.round(path / grid) * grid).as_matrix()
        truth = Rotation.from_rotvec(path).as_matrix()
        result = RotationTracker().filter(seen)
        assert (result.status[150:] == REFUSED).sum() <= 1
        assert _error(result.rotation, truth)[160:].mean() < 1.2 * _error(seen, truth)[160:].mean()


def test_jitter_is_motion_but_does_not_spoil_the_velocity() -> None:
    """Precise observations of a steady turn that trembles about one axis, as inexact stamps do.

    Nine steps ahead a forecast is wrong by the tremble of the last step and nine velocities.
    """
    wrong: dict[float | None, list[float]] = {1e-4: [], None: []}
    ahead: dict[float | None, list[float]] = {1e-4: [], None: []}
    for seed in range(8):
        g = np.random.default_rng(seed)
        turn = np.outer(np.arange(300), [0.0, 0.0, 0.05])
        tremble = g.standard_normal((300, 3)) * [0.0, 0.0, 0.01]
        truth = Rotation.from_rotvec(turn + tremble).as_matrix()
        z = truth @ Rotation.from_rotvec(1e-4 * g.standard_normal((300, 3))).as_matrix()
        for noise_std, near in ((1e-4, 1.1), (None, np.inf)):
            tracker = RotationTracker(noise_std=noise_std)
            result = tracker.filter(z)
            seen = _error(z, truth)[50:].mean()
            assert _error(result.rotation, truth)[50:].mean() < near * seen
            wrong[noise_std].append(((result.angular_velocity[-100:, 2] - 0.05) ** 2).mean())
            expected = Rotation.from_rotvec([0.0, 0.0, 0.05 * 308]).as_matrix()
            ahead[noise_std].append(float(_error(tracker.forecast(9.0).rotation, expected)) ** 2)
    for noise_std, velocity in ((1e-4, 1e-3), (None, 2e-3)):
        assert np.sqrt(np.mean(wrong[noise_std])) < velocity
        assert np.sqrt(np.mean(ahead[noise_std])) < np.hypot(0.01, 9 * velocity)


def test_what_looks_like_noise_is_shown_unless_smoothing_gains_much() -> None:
    """White jitter of the motion cannot be told from noise; the cheaper mistake is made."""
    g = np.random.default_rng(5)
    tremble = Rotation.from_rotvec(1e-3 * g.standard_normal((400, 3))).as_matrix()
    truth = _motion(400, 0.05, 0.0)[0] @ tremble
    z = truth @ Rotation.from_rotvec(1e-4 * g.standard_normal((400, 3))).as_matrix()
    seen = _error(z, truth).mean()
    assert _error(RotationTracker().filter(z).rotation, truth).mean() < 1.05 * seen
    smoothed = RotationTracker(noise_std_guess=1e-3).filter(z).rotation
    assert _error(smoothed, truth).mean() > 3.0 * seen
    for noise in (1e-4, 1e-3, 1e-2):  # at rest smoothing gains much
        still, z = _motion(300, 0.0, noise)
        rest = RotationTracker().filter(z).rotation
        assert _error(rest, still)[50:].mean() < 0.3 * _error(z, still)[50:].mean()


def test_a_row_is_small() -> None:
    assert 8 * Rotations().size < 23_000
    assert 8 * Rotations(oscillations=False).size < 13_000


# --------------------------------------------------------------------------- what is shown


def test_quaternions_velocities_and_scipy() -> None:
    turns = Rotation.from_rotvec(np.arange(60)[:, None] * np.array([0.0, 0.0, 0.1]))
    tilted = Rotation.from_rotvec([1.2, 0.0, 0.0]) * turns
    result = RotationTracker(noise_std=1e-3).filter(tilted, times=np.arange(60) / 30)
    np.testing.assert_allclose(
        np.abs((result.quaternion * tilted.as_quat()).sum(axis=1)), 1.0, atol=1e-5
    )
    np.testing.assert_array_equal(
        result.as_quat(scalar_first=True)[:, 1:], result.quaternion[:, :3]
    )
    np.testing.assert_allclose(result.as_rotation().as_matrix(), result.rotation, atol=1e-12)
    np.testing.assert_allclose(result.angular_velocity[-1], [0.0, 0.0, 3.0], atol=0.02)
    world = tilted[-1].apply([0.0, 0.0, 3.0])
    np.testing.assert_allclose(result.angular_velocity_world[-1], world, atol=0.02)
    ahead = RotationTracker(noise_std=1e-3)
    ahead.filter(tilted, times=np.arange(60) / 30)
    expected = tilted[-1] * Rotation.from_rotvec([0.0, 0.0, 3.0 * 0.05])
    assert _error(ahead.forecast(0.05).rotation, expected.as_matrix()) < 0.01


def test_the_covariance_covers() -> None:
    inside = []
    for seed in range(4):
        truth, z = _motion(300, 0.03, 0.03, seed)
        result = RotationTracker().filter(z)
        wrong = Rotation.from_matrix(np.swapaxes(result.rotation, 1, 2) @ truth).as_rotvec()
        square = np.einsum(
            "ti,ti->t", wrong, np.linalg.solve(result.covariance, wrong[..., None])[..., 0]
        )
        inside.append(square[20:] < 7.815)
    assert 0.9 < np.mean(inside) < 0.985


def test_smoothing_beats_filtering_and_a_lag_is_between() -> None:
    scene = simulate.steady_camera(1, 0.1)
    tracker = RotationTracker()
    runs = [
        tracker.filter(scene.observations),
        tracker.smooth(scene.observations, lag=0),
        tracker.smooth(scene.observations, lag=5),
        tracker.smooth(scene.observations, lag=199),
        tracker.smooth(scene.observations),
    ]
    late, same, lagged, whole, early = (_error(r.rotation, scene.rotation).mean() for r in runs)
    assert late == same
    assert early == whole
    assert early < lagged < late
    assert (runs[-1].angle_std[10:] < runs[0].angle_std[10:] + 1e-12).mean() > 0.95


def test_online_lag_is_the_smoother_late(tmp_path: Path) -> None:
    scene = simulate.steady_camera(1, 0.1, n_frames=60)
    z = scene.observations
    offline = RotationTracker(noise_std=0.05, time_unit=1.0).smooth(z, lag=4)
    tracker = RotationTracker(noise_std=0.05, time_unit=1.0, lag=4)
    first = tracker.filter(z[:30])
    tracker.save(tmp_path / "a.npz")
    tracker = load(tmp_path / "a.npz")
    late = [tracker.update(None if np.isnan(seen).any() else seen) for seen in z[30:]]
    found = np.concatenate([first.rotation, [e.rotation for e in late]])
    assert np.isnan(found[:4]).all()
    np.testing.assert_allclose(found[4:], offline.rotation[:-4], atol=1e-9)
    assert late[-1].time == 55.0
    assert tracker.forecast(1).time == 60.0


def test_a_lag_in_chunks_is_the_lag_of_the_whole() -> None:
    """Noise and unit of time, both learned, were those of the last step of a chunk."""
    z = _motion(80, 0.05, 0.02)[1]
    z[30:33] = np.nan
    times = 1.7e9 + np.cumsum(np.random.default_rng(1).uniform(0.02, 0.05, 80))
    offline = RotationTracker().smooth(z, times=times, lag=4)
    whole, tracker = RotationTracker(lag=4).filter(z, times=times), RotationTracker(lag=4)
    ends = ((0, 7), (7, 8), (8, 50), (50, 80))
    chunks = [tracker.filter(z[a:b], times=times[a:b]) for a, b in ends]
    single = RotationTracker(lag=4)
    steps = [single.filter(z[k : k + 1], times=times[k : k + 1])[0] for k in range(80)]
    for name in ("rotation", "velocity", "angle_std", "noise_std"):
        expected = getattr(whole, name)
        for found in (
            np.concatenate([getattr(chunk, name) for chunk in chunks]),
            np.array([getattr(step, name) for step in steps]),
        ):
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(expected[4:], getattr(offline, name)[:-4], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("noise", [1e-6, 1e-5, 1e-3, 1e-2])
def test_smoothing_is_no_worse_than_filtering_of_precise_observations(noise: float) -> None:
    truth, z = _motion(400, 0.05, noise)
    runs = (
        RotationTracker().filter(z),
        RotationTracker().smooth(z),
        RotationTracker().smooth(z, lag=5),
    )
    late, early, lagged = (_error(run.rotation, truth)[20:].mean() for run in runs)
    assert early < 1.1 * late
    assert lagged < 1.1 * late


def test_rivals_follow_a_turn() -> None:
    truth, z = _motion(200, 0.05, 0.03)
    held = _error(z, truth)[20:].mean()
    kalman = ErrorStateKalman(noise_std=0.03, acceleration=1e-5).filter(z)
    assert _error(kalman.rotation, truth)[20:].mean() < 0.75 * held
    euro = OneEuro(min_cutoff=0.3, slope=1.0).filter(z)
    assert _error(euro.rotation, truth)[20:].mean() < 1.1 * held
    ours = RotationTracker().filter(z)
    assert _error(ours.rotation, truth)[20:].mean() < 0.75 * held


def test_poses_under_one_clock(tmp_path: Path) -> None:
    truth, z = _motion(120, 0.03, 0.02)
    times = 1.7e9 + np.arange(120) / 30
    places = np.outer(np.arange(120) / 30, [1.0, 0.0, -0.5])
    noisy = places + 0.01 * np.random.default_rng(0).standard_normal((120, 3))
    tracker = PoseTracker(position_noise_std=0.01)
    result = tracker.filter({"rotation": z, "position": noisy}, times=times)
    assert np.abs(result["position"].position - places)[30:].mean() < 0.006
    np.testing.assert_allclose(result["position"].velocity[-1], [1.0, 0.0, -0.5], atol=0.1)
    assert _error(result["rotation"].rotation, truth)[30:].mean() < 0.75 * _error(z, truth).mean()
    tracker.save(tmp_path / "pose.npz")
    ahead = load(tmp_path / "pose.npz").forecast(0.1)
    np.testing.assert_allclose(ahead.position.position, places[-1] + [0.1, 0.0, -0.05], atol=0.03)
    assert len(tracker.smooth({"rotation": z, "position": noisy}, times=times)) == 120


def test_state_files_that_were_tampered_with_are_refused(tmp_path: Path) -> None:
    tracker = RotationTracker()
    tracker.filter(_motion(20, 0.1, 0.01)[1])
    tracker.save(tmp_path / "a.npz")
    assert load(tmp_path / "a.npz").forecast(1).rotation.shape == (3, 3)
    with np.load(tmp_path / "a.npz") as file:
        arrays = dict(file)
    tampered = ("intervals", 40.0), ("stored", 1e6), ("unit", -1.0), ("intervals", np.nan)
    for name, value in tampered:
        broken = {**arrays, "array_rows": arrays["array_rows"].copy()}
        part(broken["array_rows"], name)[...] = value
        np.savez(tmp_path / "b.npz", **broken)
        with pytest.raises(ValueError, match="rows"):
            load(tmp_path / "b.npz")


@pytest.mark.parametrize("shape", [(20, 3), (3,), (20, 2, 3)])
def test_angles_instead_of_matrices_are_told_how_to_become_rotations(shape: tuple[int]) -> None:
    with pytest.raises(ObservationError, match=r"rotation matrices .*Rotation\.from_euler"):
        RotationTracker().filter(np.zeros(shape))


def test_a_bank_that_skips_takes_single_precision_as_a_tracker_does() -> None:
    z = _motion(30, 0.05, 0.0)[0].round(4).astype(np.float32)
    tracker = RotationTracker(noise_std=0.01, on_invalid="skip")
    bank = TrackerBank(2, d=3, kind="rotation", noise_std=0.01, on_invalid="skip")
    for matrix in z:
        one, many = tracker.update(matrix), bank.update(np.stack([matrix, matrix]))
        assert many.observed.all()
    np.testing.assert_allclose(bank.estimate().rotation, [one.rotation] * 2, atol=1e-4)


def test_noise_in_degrees_is_refused() -> None:
    with pytest.raises(ValueError, match="noise_std is in radians, at most pi, got 5; degrees"):
        RotationTracker(noise_std=5.0)
