"""Laws of looking back: the smoother is the MAP, beats the filter, and meets it at lag 0."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest

from kgmrf import KGMRF, HoldLast, RotationTracker, gains, metrics, simulate
from kgmrf.geometry import so
from kgmrf.smoothing import rotations as turning
from kgmrf.smoothing.law import smooth_planes, walk_back


def rot(v: Any) -> Any:
    return so.exp(so.hat(np.asarray(v, dtype=float)))


def error(found: Any, truth: Any) -> float:
    return float(metrics.geodesic_error(found, truth, degrees=True).mean())


# ------------------------------------------------------------------ rotations in space


def _map_oracle(
    z: Any, present: Any, noise: float, law: gains.InformationGains, dt: Any, iterations: int = 15
) -> tuple[Any, Any, Any]:
    """Sparse Gauss-Newton MAP of the decaying-velocity chain with numerical Jacobians."""
    sparse = pytest.importorskip("scipy.sparse", reason="scipy is not installed: no MAP oracle")
    from scipy.sparse.linalg import splu

    n = len(z)

    @cache
    def over(h: float) -> tuple[float, float, Any]:
        t = gains.transition(law, np.asarray(h))
        c = np.array([[t.angle, t.cross], [t.cross, t.rate]])
        root = np.linalg.cholesky(np.linalg.inv(c)).T
        return float(t.turn), float(t.keep), np.kron(root, np.eye(3))

    def log(r: Any) -> Any:
        return so.vee(so.log(r))

    def residuals(t: int, x0: Any, x1: Any) -> Any:
        """Rows of interval t -> t+1 and of the observation at t + 1."""
        (r0, v0), (r1, v1) = x0, x1
        turn, keep, weight = over(float(dt[t + 1]))
        out = [weight @ np.concatenate([log((r0 @ rot(turn * v0)).T @ r1), v1 - keep * v0])]
        if present[t + 1]:
            out.append(log(r1.T @ z[t + 1]) / noise)
        return np.concatenate(out)

    def first(x: Any) -> Any:
        return np.concatenate([log(z[0].T @ x[0]) / noise, x[1] / np.sqrt(law.rate_prior)])

    def move(x: Any, d: Any) -> Any:
        return x[0] @ rot(d[:3]), x[1] + d[3:]

    def numeric(f: Any, h: float = 1e-6) -> Any:
        return np.stack([(f(h * e) - f(-h * e)) / (2 * h) for e in np.eye(6)], axis=1)

    states = [(z[0], np.zeros(3))]
    for t in range(1, n):  # hold the last observation as the starting point
        states.append((z[t] if present[t] else states[-1][0], np.zeros(3)))
    for _ in range(iterations):
        rhs = [first(states[0])]
        blocks = [(numeric(lambda d: first(move(states[0], d))), 0, 0)]  # noqa: B023
        top = 6
        for t in range(n - 1):
            a, b = states[t], states[t + 1]
            r = residuals(t, a, b)
            back = numeric(lambda d: residuals(t, move(a, d), b))  # noqa: B023
            ahead = numeric(lambda d: residuals(t, a, move(b, d)))  # noqa: B023
            blocks += [(back, top, 6 * t), (ahead, top, 6 * t + 6)]
            rhs.append(r)
            top += len(r)
        jac = sparse.lil_matrix((top, 6 * n))
        for block, row, col in blocks:
            jac[row : row + len(block), col : col + 6] = block
        jac = jac.tocsc()
        precision = (jac.T @ jac).tocsc()
        step = -splu(precision).solve(jac.T @ np.concatenate(rhs))
        states = [move(x, step[6 * t : 6 * t + 6]) for t, x in enumerate(states)]
        if np.abs(step).max() < 1e-10:
            break
    cov = np.linalg.inv(precision.toarray())
    square = np.stack([cov[6 * t : 6 * t + 6, 6 * t : 6 * t + 6] for t in range(n)])
    return np.stack([x[0] for x in states]), np.stack([x[1] for x in states]), square


@pytest.mark.parametrize("retention", [1.0, 0.9])
@pytest.mark.parametrize("noise", [1e-3, 0.05])
def test_smoother_is_the_sparse_map(retention: float, noise: float) -> None:
    """One pass back is close to the iterated answer: within a fraction of the noise."""
    scene = simulate.camera_shake(2, 0.3, n_frames=20)
    z = scene.rotation @ rot(noise * np.random.default_rng(1).standard_normal((20, 3)))
    present = scene.observed.copy()
    present[-3:] = False
    dt = np.round(np.random.default_rng(0).uniform(0.5, 1.0, 20), 2)
    law = gains.information(1e-4, retention=retention)
    want = _map_oracle(z, present, noise, law, dt)
    got = turning.smooth(law, z, present, dt, np.full(20, noise**2))
    off = metrics.geodesic_error(got.rotation, want[0])
    assert off.max() < 0.5 * noise
    assert off.mean() < 0.25 * noise
    np.testing.assert_allclose(got.covariance, want[2], atol=0.25 * np.abs(want[2]).max())


def test_the_tracker_smooths_with_its_law_and_its_clock() -> None:
    scene = simulate.camera_shake(2, 0.3, n_frames=40)
    times = np.cumsum(np.linspace(0.5, 1.0, 40))
    law = gains.information(1e-4, retention=0.9)
    dt = np.diff(times, prepend=times[0])
    noise = np.full(40, 0.05**2 / 2)
    want = turning.smooth(law, scene.observations, scene.observed, dt, noise)
    tracker = RotationTracker(noise_std=0.05, gains=law, time_unit=1.0)
    got = tracker.smooth(scene.observations, times=times, n_samples=2)
    np.testing.assert_allclose(got.rotation, want.rotation, atol=1e-10)
    np.testing.assert_allclose(so.vee(got.velocity), want.velocity, atol=1e-10)
    filtered = tracker.filter(scene.observations, times=times, n_samples=2)
    assert set(filtered.fields()) <= set(got.fields())
    np.testing.assert_allclose(got.time, filtered.time)
    np.testing.assert_allclose(got.age, filtered.age, atol=1e-12)
    assert np.isnan(got.nis).all()


def test_lag_interpolates_between_filter_and_smoother() -> None:
    scene = simulate.steady_camera(3, 0.2, n_frames=120)
    tracker = RotationTracker(noise_std=0.05, gains=gains.information(1e-6))
    zero, some, late = (tracker.smooth(scene.observations, lag=lag) for lag in (0, 15, 120))
    whole = tracker.smooth(scene.observations)
    np.testing.assert_allclose(late.rotation, whole.rotation, atol=1e-12)
    errors = [error(track.rotation, scene.rotation) for track in (zero, some, late)]
    assert errors[0] > errors[1] > errors[2]


def test_smoothing_never_widens_a_variance() -> None:
    z = simulate.steady_camera(5, 0.3).observations
    tracker = RotationTracker(noise_std=0.05, gains=gains.information(1e-6))
    f, s = (tracker.smooth(z, lag=lag).angle_std for lag in (0, None))
    assert (s <= f * 1.01).all()


@pytest.mark.parametrize("scene", [simulate.camera_shake(0, 0.3), simulate.steady_camera(0, 0.2)])
def test_the_default_looks_back_better_than_it_looks_ahead(scene: Any) -> None:
    tracker = RotationTracker(noise_std=0.05)
    f, s = tracker.filter(scene.observations), tracker.smooth(scene.observations)
    assert error(s.rotation, scene.rotation) < 0.75 * error(f.rotation, scene.rotation)
    assert f.fields() == s.fields()


def test_frames_before_the_first_stay_unknown() -> None:
    z = simulate.camera_shake(0, n_frames=30).observations.copy()
    z[:4] = np.nan
    for tracker in (
        RotationTracker(noise_std=0.05, time_unit=1.0),
        RotationTracker(noise_std=0.05, gains="information"),
    ):
        result = tracker.smooth(z)
        assert np.isnan(result.rotation[:4]).all()
        assert np.isnan(result.age[:4]).all()
        np.testing.assert_allclose(result.rotation[4:], tracker.smooth(z[4:]).rotation, atol=1e-9)
    assert np.isnan(
        RotationTracker(noise_std=0.05, gains="information").smooth(z[:4]).rotation
    ).all()


# ------------------------------------------------------------------ any dimension, plane by plane

TRACKERS = {
    "adaptive": lambda: KGMRF(gains="information", n_samples=8),
    "fixed": lambda: KGMRF(gains="information", n_samples=8, spectrum="fixed", noise_floor=0.1),
    "scale": lambda: KGMRF(gains="information", n_samples=8, scale_rate=1e-3),
    "decaying": lambda: KGMRF(n_samples=8, gains=gains.information(1e-6, retention=0.98)),
    "plane": lambda: RotationTracker(2, noise_std=0.1, gains="information"),
    "four": lambda: RotationTracker(4, noise_std=0.1, gains="information"),
}


def _scene(name: str, rng: int = 0, n_frames: int = 120) -> tuple[Any, Any]:
    """Truth and what was seen of it, with a gap."""
    observed = np.ones(n_frames, dtype=bool)
    observed[60:75] = False
    observed[3] = False
    if name in ("plane", "four"):
        d = 2 if name == "plane" else 4
        rotation = simulate.rotating_frame(
            d, n_frames=n_frames, observed=observed, noise_std=0.1, rng=rng
        )
        return rotation.rotation, rotation.observations
    scene = simulate.rotating_covariance(3, n_frames=n_frames, observed=observed, rng=rng)
    return scene.covariance, scene.observations


def _frame(result: Any) -> Any:
    return result.rotation if "rotation" in result.fields() else result.frame


@pytest.fixture(params=list(TRACKERS))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_looking_back_beats_looking_ahead(name: str) -> None:
    late, early = 0.0, 0.0
    for seed in range(2):
        truth, seen = _scene(name, seed)
        tracker = TRACKERS[name]()
        for k, run in enumerate((tracker.copy().filter(seen), tracker.smooth(seen))):
            if tracker.kind == "rotation":
                value = float(metrics.geodesic_error(run.rotation, truth).mean())
            else:
                value = float(metrics.orbit_error(run.covariance, truth).mean())
            late, early = (late + value, early) if k == 0 else (late, early + value)
    assert early < 0.85 * late


def test_no_lag_is_the_filter_and_a_long_one_the_interval(name: str) -> None:
    _, seen = _scene(name)
    times = np.cumsum(np.linspace(0.5, 1.5, len(seen)))
    plain = TRACKERS[name]()
    tracker = type(plain)(**{**plain.settings(), "time_unit": 1.0})  # known before the first frame
    filtered, whole = tracker.copy().filter(seen, times=times), tracker.smooth(seen, times=times)
    zero = tracker.smooth(seen, times=times, lag=0)
    assert zero.fields() == filtered.fields() == whole.fields()
    for field in set(zero.fields()) - {"nis", "p_value", "log_likelihood"}:
        np.testing.assert_allclose(
            getattr(zero, field), getattr(filtered, field), atol=1e-9, err_msg=field
        )
    late = tracker.smooth(seen, times=times, lag=len(seen) - 1)
    np.testing.assert_allclose(_frame(late), _frame(whole), atol=0)
    # One frame short of the interval: only the first frame misses something.
    almost = tracker.smooth(seen, times=times, lag=len(seen) - 2)
    np.testing.assert_allclose(_frame(almost)[12:], _frame(whole)[12:], atol=1e-10)
    np.testing.assert_array_equal(tracker.smooth(seen[:1]).time, [0.0])


def test_a_lag_sees_that_far_and_no_further(name: str) -> None:
    _, seen = _scene(name)
    changed = seen.copy()
    changed[50:] = seen[49:-1]
    a, b = (TRACKERS[name]().smooth(x, lag=9) for x in (seen, changed))
    np.testing.assert_array_equal(_frame(a)[:41], _frame(b)[:41])
    assert np.abs(_frame(a)[41] - _frame(b)[41]).max() > 1e-9


def test_a_batch_is_its_items(name: str) -> None:
    seen = np.stack([_scene(name, seed)[1] for seed in range(2)], axis=1)
    seen[0:2, 1] = np.nan
    for lag in (None, 5):
        batch = TRACKERS[name]().smooth(seen, lag=lag)
        for item in range(2):
            alone = TRACKERS[name]().smooth(seen[:, item], lag=lag)
            for field in alone.fields():
                np.testing.assert_allclose(
                    getattr(batch, field)[:, item], getattr(alone, field), atol=1e-9, err_msg=field
                )


def test_smoothing_leaves_the_tracker_alone(name: str) -> None:
    _, seen = _scene(name)
    tracker = TRACKERS[name]()
    tracker.filter(seen[:40])
    before = tracker.forecast(3)
    again = tracker.smooth(seen)
    np.testing.assert_array_equal(_frame(tracker.forecast(3)), _frame(before))
    np.testing.assert_array_equal(_frame(again), _frame(TRACKERS[name]().smooth(seen)))


def test_in_the_plane_it_is_the_textbook_smoother() -> None:
    """d = 2 is linear: angles about a known line, two states, no geometry left."""
    rng = np.random.default_rng(0)
    n, r, q = 30, 0.1**2, 1e-4
    seen_angle = 0.02 * np.arange(n) + 0.1 * rng.standard_normal(n)
    seen = so.exp(so.hat(seen_angle[:, None]))
    seen[10:14] = np.nan
    result = RotationTracker(2, noise_std=0.1, gains=gains.information(q)).smooth(seen)
    # Dense least squares of the same chain.
    c = np.linalg.inv(np.linalg.cholesky(q * np.array([[1 / 3, 1 / 2], [1 / 2, 1]])))
    rows, rhs = [], []
    for t in range(n):
        if t:
            block = np.zeros((2, 2 * n))
            block[:, 2 * t : 2 * t + 2] = c
            block[:, 2 * t - 2 : 2 * t] = -c @ np.array([[1.0, 1.0], [0.0, 1.0]])
            rows.append(block)
            rhs.append(np.zeros(2))
        if not 10 <= t < 14:
            rows.append(np.eye(1, 2 * n, 2 * t) / r**0.5)
            rhs.append(seen_angle[t : t + 1] / r**0.5)
    rows.append(np.eye(1, 2 * n, 1) / 4e-4**0.5)
    rhs.append(np.zeros(1))
    jac = np.concatenate(rows)
    best = np.linalg.lstsq(jac, np.concatenate(rhs), rcond=None)[0]
    spread = np.sqrt(np.diagonal(np.linalg.inv(jac.T @ jac)))
    np.testing.assert_allclose(so.vee(so.log(result.rotation))[:, 0], best[::2], atol=1e-9)
    np.testing.assert_allclose(so.vee(result.velocity)[:, 0], best[1::2], atol=1e-9)
    np.testing.assert_allclose(result.angle_std[:, 0, 1], spread[::2], rtol=1e-7)


def test_the_log_spectrum_is_a_smoothed_random_walk() -> None:
    """With one channel only the eigenvalue is left; its chain is scalar."""
    rng = np.random.default_rng(1)
    level = np.exp(np.cumsum(0.1 * rng.standard_normal(200)))
    seen = (level * rng.chisquare(10, 200) / 10)[:, None, None]
    tracker = KGMRF(gains="information", n_samples=10, spectrum_rate=1e-2, initial=[[1.0]])
    f, s = tracker.filter(seen), tracker.smooth(seen)
    miss = [np.abs(np.log(run.spectrum[:, 0] / level)).mean() for run in (f, s)]
    assert miss[1] < 0.85 * miss[0]


def test_the_cold_start_is_looked_back_at_too() -> None:
    late, early = 0.0, 0.0
    for seed in range(4):
        scene = simulate.ellipse(0.08, n_frames=100, n_samples=8, rng=seed)
        tracker = KGMRF(gains="information", n_samples=2, pool_samples=30, pool_steps=15)
        blurred = tracker.filter(scene.observations).covariance[:14]
        sharp = tracker.smooth(scene.observations).covariance[:14]
        late += float(metrics.angular_error(blurred, scene.covariance[:14]).mean())
        early += float(metrics.angular_error(sharp, scene.covariance[:14]).mean())
    assert early < 0.7 * late
    short = KGMRF(gains="information", n_samples=1).smooth(scene.observations[:3])
    np.testing.assert_array_equal(short.covariance[0], short.covariance[2])


def test_raw_samples_are_smoothed_as_their_moments() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 7, 3)) * [2.0, 1.0, 0.5]
    C = X.swapaxes(-1, -2) @ X / 7
    a = KGMRF(gains="information").smooth(X, samples=True)
    b = KGMRF(gains="information", n_samples=7).smooth(C)
    np.testing.assert_allclose(a.covariance, b.covariance, atol=1e-11)
    X[20:23] = np.nan
    X[30, 2, 1] = np.nan
    mask = np.ones(50, dtype=bool)
    mask[40] = False
    holes = KGMRF(gains="information").smooth(X, samples=True, mask=mask)
    assert np.isfinite(holes.covariance).all()
    assert holes.age[22] == 3.0
    assert holes.age[40] == 1.0
    assert KGMRF(gains="information").smooth(X[:, 0]).covariance.shape == (50, 3, 3)


def test_lag_windows_equal_shorter_recordings() -> None:
    """State t of a lagged run is what the interval smoother says of the frames up to t + lag."""
    _, seen = _scene("adaptive")
    tracker: Any = KGMRF(3, gains="information", n_samples=8, initial=np.diag([4.0, 2.0, 0.5]))
    rows = []
    for k in range(40):
        tracker.update(None if np.isnan(seen[k]).any() else seen[k])
        rows.append(tracker._rows[0].copy())
    model = tracker.engine().model
    states = tracker.engine().state(np.stack(rows))[0]
    dt, observed = np.ones(40), ~np.isnan(seen[:40, 0, 0])
    lagged = smooth_planes(states, model, dt, observed, lag=6)
    for t in (0, 11, 30, 36):
        end = min(t + 7, 40)
        cut = type(states)(*(field[:end] for field in states))
        whole = smooth_planes(cut, model, dt[:end], observed[:end])
        np.testing.assert_allclose(lagged.frame[t], whole.frame[t], atol=1e-12)
        np.testing.assert_allclose(lagged.spectrum[t], whole.spectrum[t], atol=1e-12)


def test_what_cannot_be_smoothed_says_why() -> None:
    seen = simulate.steady_camera(0, n_frames=10).observations
    for call, words in (
        (lambda: RotationTracker(gains="zero_lag").smooth(seen), "information gains"),
        (
            lambda: RotationTracker(noise_std=0.1, gains="information").smooth(seen, lag=-1),
            "lag must",
        ),
        (
            lambda: RotationTracker(noise_std=0.1, gains="information").smooth(seen, lag=1.5),
            "lag must",
        ),  # type: ignore[arg-type]
        (lambda: RotationTracker().smooth(seen, lag=-3), "lag must"),
    ):
        with pytest.raises(ValueError, match=words):
            call()
    assert not hasattr(HoldLast(kind="rotation"), "smooth")
    tracker = RotationTracker(noise_std=0.1, gains="information")
    assert len(tracker.smooth(seen, lag=2)) == 10
    nothing = np.full((4, 3, 3), np.nan)
    assert np.isnan(tracker.smooth(nothing).rotation).all()


class Sum(NamedTuple):
    total: Any


@pytest.mark.parametrize(("lag", "expected"), [(None, [10, 10, 9, 7, 4]), (1, [1, 3, 5, 7, 4])])
def test_a_walk_back_knows_the_frames_up_to_its_lag(lag: int | None, expected: list[int]) -> None:
    def add(frames: slice, later: Sum) -> Sum:
        return Sum(np.arange(5)[frames] + later.total)

    assert walk_back(Sum(np.arange(5)), add, lag).total.tolist() == expected
