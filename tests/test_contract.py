"""The contract that every tracker keeps, tested on all of them by one suite."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kgmrf
from kgmrf import (
    KGMRF,
    AlphaBeta,
    ErrorStateKalman,
    EuclideanEMA,
    HoldLast,
    IteratedEMA,
    LogEuclideanEMA,
    ObservationError,
    OneEuro,
    RiemannianEMA,
    RotationTracker,
    ScaledEMA,
    TangentKalman,
    _npz,
    gains,
    paper,
    simulate,
)
from kgmrf.geometry import so
from kgmrf.testing import CHECKS, assert_same, check_tracker, observations

COVARIANCE = {
    "kgmrf auto": lambda: KGMRF(n_samples=12),
    "kgmrf": lambda: KGMRF(gains="information", n_samples=12),
    "kgmrf fixed spectrum": lambda: KGMRF(gains="information", n_samples=12, spectrum="fixed"),
    "kgmrf known spectrum": lambda: KGMRF(
        gains="information", n_samples=12, spectrum=[4.0, 2.0, 0.5]
    ),
    "kgmrf scale clock": lambda: KGMRF(gains="information", n_samples=12, scale_rate=1e-2),
    "kgmrf decaying": lambda: KGMRF(n_samples=12, gains=gains.information(1e-4, retention=0.9)),
    "kgmrf zero lag": lambda: KGMRF(n_samples=12, gains="zero_lag", noise_floor=0.1),
    "kgmrf printed": lambda: KGMRF(n_samples=12, gains="printed"),
    "kgmrf initial": lambda: KGMRF(
        gains="information", n_samples=12, initial=np.diag([4.0, 2.0, 0.5])
    ),
    "euclidean": lambda: EuclideanEMA(gain=0.2, n_samples=12),
    "log-euclidean": lambda: LogEuclideanEMA(gain=0.2, n_samples=12),
    "riemannian": lambda: RiemannianEMA(gain=0.2, n_samples=12),
    "tangent kalman": lambda: TangentKalman(n_samples=12),
    "alpha-beta": lambda: AlphaBeta(n_samples=12),
    "hold last": lambda: HoldLast(n_samples=12),
    "scaled": lambda: ScaledEMA(half_life=16.0, n_samples=12),
    "iterated": lambda: IteratedEMA(n_samples=12),
    "paper algorithm 1": lambda: paper.algorithm1(n_samples=12),
    "paper algorithm 1, start": lambda: paper.algorithm1(
        0.1, 0.9, initial=np.diag([4.0, 2.0, 0.5]), noise_floor=0.1, epsilon=1e-3, n_samples=12
    ),
    "paper ellipse": lambda: paper.kgmrf_ellipse(n_samples=12),
    "paper ellipse, spectrum": lambda: paper.kgmrf_ellipse(spectrum=[4.0, 2.0, 0.5]),
    "paper alpha-beta": lambda: paper.column("alpha_beta", "printed", n_samples=12),
    "paper tangent kalman": lambda: paper.column("tangent_kalman", "printed", n_samples=12),
}
ROTATION = {
    "rotation": lambda: RotationTracker(noise_std=0.05, gains="information"),
    "rotation decaying": lambda: RotationTracker(
        noise_std=0.05, gains=gains.information(1e-3, retention=0.9)
    ),
    "rotation zero lag": lambda: RotationTracker(gains=gains.zero_lag(0.5, 0.05)),
    "rotation auto": lambda: RotationTracker(noise_std=0.05, gains="auto"),
    "rotation learned": lambda: RotationTracker(),
    "rotation core": lambda: RotationTracker(oscillations=False, time_unit=1.0),
    "rotation euclidean": lambda: EuclideanEMA(kind="rotation"),
    "rotation riemannian": lambda: RiemannianEMA(kind="rotation"),
    "rotation alpha-beta": lambda: AlphaBeta(kind="rotation"),
    "rotation tangent": lambda: TangentKalman(kind="rotation", coast=False),
    "rotation hold": lambda: HoldLast(kind="rotation"),
    "rotation one euro": lambda: OneEuro(),
    "rotation error state": lambda: ErrorStateKalman(),
    "rotation paper": lambda: paper.kgmrf_so3(),
    "rotation paper alpha-beta": lambda: paper.column("alpha_beta", "so3"),
}
ALL = COVARIANCE | ROTATION


@pytest.fixture(params=list(ALL))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("check", list(CHECKS))
def test_contract(name: str, check: str) -> None:
    check_tracker(ALL[name], checks=[check])


def test_a_tracker_that_breaks_the_contract_is_named() -> None:
    class Forgetful(EuclideanEMA):
        def forecast(self, *arguments: Any, **options: Any) -> Any:
            ahead = super().forecast(*arguments, **options)
            self.update(None)
            return ahead

    with pytest.raises(AssertionError, match=r"^coasting is forecasting: age 4.0, 3.0"):
        check_tracker(lambda: Forgetful(gain=0.2, n_samples=12))
    with pytest.raises(ValueError, match="no checks"):
        check_tracker(ALL["euclidean"], checks=["speed"])
    with pytest.raises(ValueError, match="shape"):
        check_tracker(ALL["euclidean"], np.ones((50, 2, 2)))


@settings(max_examples=2)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_readable_engine_takes_the_same_steps(
    name: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From every state of the core, one step on: all that the estimate shows, to 1e-9."""
    path = tmp_path / "state.npz"
    tracker, kind = ALL[name](), "rotation" if name in ROTATION else "covariance"
    for k, observation in enumerate(observations(kind, 34, seed)):
        seen = None if np.isnan(observation).any() else observation
        tracker.save(path)
        with monkeypatch.context() as environment:
            environment.setenv("KGMRF_ENGINE", "readable")
            expected = _fields(kgmrf.load(path).update(seen))
        found = _fields(tracker.update(seen))
        if "frame" in found:  # the signs of its axes are free where a track starts
            signs = np.sign(np.diag(expected["frame"].T @ found["frame"]))
            found["frame"] *= signs
            if "velocity" in found:
                found["velocity"] *= signs[:, None] * signs
        for field, value in expected.items():
            scale = np.abs(np.nan_to_num(value)).max(initial=1e-3)
            np.testing.assert_allclose(
                found[field], value, rtol=0, atol=1e-9 * scale, err_msg=f"{field}, step {k}"
            )


def _fields(estimate: Any) -> dict[str, np.ndarray]:
    return {name: np.array(getattr(estimate, name), dtype=float) for name in estimate.fields()}


def test_files_of_other_versions_and_trackers_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.npz"
    KGMRF(n_samples=3).save(path)
    assert kgmrf.load(path).batch_shape is None
    with pytest.raises(ValueError, match="holds a KGMRF"):
        RotationTracker.load(path)
    assert isinstance(KGMRF.load(path), KGMRF)
    header = {"format": 99, "tracker": "KGMRF", "settings": {}, "d": 2, "batch_shape": None}
    np.savez(path, header=np.frombuffer(json.dumps(header).encode(), dtype=np.uint8))
    with pytest.raises(ValueError, match="format 99"):
        kgmrf.load(path)
    header |= {"format": _npz.FORMAT, "tracker": "Popen"}
    np.savez(path, header=np.frombuffer(json.dumps(header).encode(), dtype=np.uint8))
    with pytest.raises(ValueError, match="Popen"):
        kgmrf.load(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("header.npy", b"nonsense")
    with pytest.raises(ValueError, match="not a kgmrf state file"):
        kgmrf.load(path)
    with pytest.raises(FileNotFoundError):
        kgmrf.load(tmp_path / "nowhere.npz")


def test_trackers_explain_what_they_lack(name: str) -> None:
    estimate = ALL[name]().update(observations("rotation" if name in ROTATION else "covariance")[0])
    missing = "spectrum" if name in ROTATION else "rotation"
    with pytest.raises(AttributeError, match=f"has no '{missing}'"):
        getattr(estimate, missing)
    if "kgmrf" not in name and "rotation" not in name:
        assert np.isnan(estimate.angle_std).all()
        assert np.isnan(estimate.nis)
    assert "time=0" in repr(estimate)


def test_none_before_anything_is_known() -> None:
    with pytest.raises(ObservationError, match="give d at construction"):
        KGMRF(n_samples=3).update(None)
    with pytest.raises(ObservationError, match="give d at construction"):
        KGMRF(n_samples=3).filter([None, None])
    with pytest.raises(ObservationError, match="nothing to forecast"):
        KGMRF(n_samples=3).forecast()
    estimate = KGMRF(d=2, n_samples=3).update(None)
    assert np.isnan(estimate.covariance).all()
    assert np.isnan(KGMRF(d=2, n_samples=3).filter([None, None]).covariance).all()


def test_the_number_of_samples_is_asked_for() -> None:
    with pytest.raises(ObservationError, match="n_samples"):
        KGMRF().update(np.eye(2))
    KGMRF().update(np.eye(2), n_samples=4)
    assert np.isnan(EuclideanEMA().filter([np.eye(2)] * 3).log_likelihood).all()


# ------------------------------------------------------------------ raw samples


def test_samples_count_themselves() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 7, 3)) * [2.0, 1.0, 0.5]
    C = X.swapaxes(-1, -2) @ X / 7
    by_matrix = KGMRF(n_samples=7).filter(C)
    assert_same(KGMRF().filter(X, samples=True), by_matrix)
    tracker = KGMRF()
    for k in range(30):
        estimate = tracker.partial_fit(X[k])
    np.testing.assert_allclose(estimate.covariance, by_matrix.covariance[-1], atol=1e-12)
    assert_same(
        KGMRF().filter(X[:, 0]), KGMRF(n_samples=1).filter(X[:, 0, :, None] * X[:, 0, None, :])
    )


def test_missing_samples_do_not_count_and_partial_ones_enter_as_expectation() -> None:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((60, 3)) @ np.linalg.cholesky(np.diag([4.0, 2.0, 0.5]) + 0.5).T
    X[20] = np.nan
    X[40, 1] = np.nan
    tuned = KGMRF()
    tuned.filter(X[:40])
    # The self-tuned tracker scores the cells that are there.
    expected = tuned.forecast(1).log_density(X[40])
    np.testing.assert_allclose(tuned.partial_fit(X[40]).log_likelihood, expected, rtol=1e-10)
    tracker = KGMRF(gains="information")
    head = tracker.filter(X[:40])
    assert float(head.age[20]) == 1.0
    S = tracker.forecast(1).covariance
    keep, r = [0, 2], 3 / float(tracker.support())
    known = S[np.ix_(keep, keep)] + np.diag(r * np.diag(S)[keep] + r**2 * np.trace(S) / 3)
    mean = S[1, keep] @ np.linalg.solve(known, X[40, keep])
    spread = S[1, 1] - S[1, keep] @ np.linalg.solve(known, S[keep, 1])
    full = X[40].copy()
    full[1] = mean
    C = np.outer(full, full)
    C[1, 1] += spread
    by_hand = tracker.copy().update(C, n_samples=1)
    by_tracker = tracker.partial_fit(X[40])
    np.testing.assert_allclose(by_tracker.covariance, by_hand.covariance, atol=1e-12)
    whole = KGMRF(gains="information").filter(X)
    np.testing.assert_allclose(whole.covariance[40], by_hand.covariance, atol=1e-12)


def test_a_track_may_start_with_a_partial_sample() -> None:
    X = np.random.default_rng(2).standard_normal((50, 2))
    X[::2, 0] = np.nan
    X[1::2, 1] = np.nan
    result = KGMRF().filter(X)
    # A channel that was never seen is not known; the other is, from the first row.
    assert np.isnan(result.covariance[0, 0, 0])
    assert np.isfinite(result.covariance[0, 1, 1])
    assert np.isfinite(result.covariance[1:]).all()
    variances = np.diagonal(result.covariance[-1])
    assert ((variances > 0.3) & (variances < 3.0)).all()


def test_samples_that_make_no_sense() -> None:
    for call, words in (
        (lambda: KGMRF().partial_fit(3.0), "shape"),
        (lambda: KGMRF().partial_fit([[1.0, np.inf]]), "infinity"),
        (lambda: KGMRF(d=3).partial_fit([1.0, 2.0]), "2 channels"),
        (lambda: KGMRF().filter(np.ones((5, 2)), n_samples=3), "n_samples is inferred"),
        (lambda: HoldLast(kind="rotation").partial_fit([1.0, 2.0, 3.0]), "rotations"),
        (lambda: RiemannianEMA().filter(np.ones((5, 2))), "full rank"),
        (lambda: RiemannianEMA().update(np.ones((2, 2))), "no full rank"),
    ):
        with pytest.raises(ObservationError, match=words):
            call()


@given(st.integers(1, 5), st.integers(1, 4), st.integers(0, 1000))
def test_rank_deficient_observations_are_fine(d: int, m: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((60, m, d))
    result = KGMRF().filter(X, samples=True)
    assert np.isfinite(result.covariance).all()
    assert (np.linalg.eigvalsh(result.covariance) > -1e-12).all()


# ------------------------------------------------------------------ each tracker's own law


def test_one_channel_is_a_variance_tracker() -> None:
    x = 3.0 * np.random.default_rng(0).standard_normal((2000, 1))
    result = KGMRF().filter(x)
    assert float(result.covariance[-1, 0, 0]) == pytest.approx(9.0, rel=0.35)
    with pytest.raises(ValueError, match="d = 1"):
        RotationTracker(1, noise_std=0.1, gains="information")


def test_moving_averages_do_what_their_formula_says() -> None:
    rng = np.random.default_rng(3)
    C = simulate.rotating_covariance(3, n_frames=6, n_samples=9, rng=rng).observations
    M = C[0]
    for k in range(1, 6):
        M = 0.8 * M + 0.2 * C[k]
    got = EuclideanEMA(gain=0.2).filter(C)
    np.testing.assert_allclose(got.covariance[-1], M, atol=1e-13)
    # A gap of three frames weighs the next observation as three frames would.
    skip = EuclideanEMA(gain=0.2, time_unit=1.0).filter(C[:2], times=[0.0, 3.0]).covariance[-1]
    np.testing.assert_allclose(skip, 0.8**3 * C[0] + (1 - 0.8**3) * C[1], atol=1e-13)
    np.testing.assert_allclose(HoldLast().filter(C).covariance, C, atol=0)


def test_predicted_likelihood_of_a_moving_average() -> None:
    C = simulate.rotating_covariance(2, n_frames=5, n_samples=9, rng=1).observations
    result = EuclideanEMA(gain=0.3, n_samples=9).filter(C)
    S = result.covariance[3]
    expected = -4.5 * (
        2 * np.log(2 * np.pi) + np.linalg.slogdet(S)[1] + np.trace(np.linalg.solve(S, C[4]))
    )
    assert float(result.log_likelihood[4]) == pytest.approx(expected)
    ours = KGMRF(n_samples=9, initial=np.eye(2), gains=gains.zero_lag()).filter(C)
    S = ours.covariance[3]  # not turning fast enough to matter would be luck: forecast instead
    tracker = KGMRF(n_samples=9, initial=np.eye(2), gains=gains.zero_lag())
    tracker.filter(C[:4])
    S = tracker.forecast(1).covariance
    expected = -4.5 * (
        2 * np.log(2 * np.pi) + np.linalg.slogdet(S)[1] + np.trace(np.linalg.solve(S, C[4]))
    )
    assert float(ours.log_likelihood[4]) == pytest.approx(expected)


def test_a_forecast_that_has_collapsed_has_no_likelihood() -> None:
    """After a long coast the tangent filter extrapolates a logarithm out of all proportion."""
    away = simulate.occlusions(400, starts=(200,), length=60)
    scene = simulate.ellipse(0.08, observed=away, rng=1)
    result = TangentKalman(n_samples=8).filter(scene.observations)
    assert np.isnan(result.log_likelihood[260])
    assert np.isfinite(result.log_likelihood[100:200]).all()


def test_a_frozen_tangent_filter_freezes() -> None:
    sequence = observations("rotation")[:17]
    for coast in (True, False):
        tracker = TangentKalman(kind="rotation", coast=coast)
        last = tracker.filter(sequence).rotation[-1]
        moved = np.abs(tracker.forecast(5).rotation - last).max()
        assert (moved > 1e-3) == coast


def test_a_second_order_tracker_coasts_where_an_average_freezes() -> None:
    scene = simulate.ellipse(0.08, n_samples=200, observed=np.arange(400) < 370, rng=4)
    error = {}
    for name, tracker in {
        "auto": KGMRF(n_samples=200),
        "information": KGMRF(gains="information", n_samples=200),
        "average": EuclideanEMA(gain=0.2),
    }.items():
        result = tracker.filter(scene.observations)
        error[name] = kgmrf.metrics.angular_error(
            result.covariance[370:], scene.covariance[370:], degrees=True
        ).mean()
    assert error["auto"] < 3.0
    assert error["information"] < 3.0
    assert error["average"] > 20.0


def test_rotations_from_scipy() -> None:
    from scipy.spatial.transform import Rotation

    R = observations("rotation")[:10]
    plain = RotationTracker(noise_std=0.05, gains="information").filter(R)
    assert_same(
        RotationTracker(noise_std=0.05, gains="information").filter(Rotation.from_matrix(R)), plain
    )
    assert_same(
        RotationTracker(noise_std=0.05, gains="information").filter(
            [Rotation.from_matrix(r) for r in R]
        ),
        plain,
    )
    gaps: list[Any] = [Rotation.from_matrix(r) for r in R]
    gaps[4] = None
    hidden = R.copy()
    hidden[4] = np.nan
    assert_same(
        RotationTracker(noise_std=0.05, gains="information").filter(gaps),
        RotationTracker(noise_std=0.05, gains="information").filter(hidden),
    )
    with pytest.raises(ObservationError, match="from_quat"):
        RotationTracker(noise_std=0.05, gains="information").update([0.0, 0.0, 0.0, 1.0])


def test_more_samples_make_a_rotation_count_more() -> None:
    R = observations("rotation")[:2]
    few = RotationTracker(noise_std=0.05, gains="information")
    many = RotationTracker(noise_std=0.05, gains="information")
    few.update(R[0])
    many.update(R[0])
    a, b = few.update(R[1], n_samples=1), many.update(R[1], n_samples=100)
    assert so.distance(b.rotation, R[1]) < so.distance(a.rotation, R[1])
    assert b.angle_std[0, 1] < a.angle_std[0, 1]


@pytest.mark.parametrize(
    "build",
    [
        lambda: KGMRF(0),
        lambda: KGMRF(2.5),  # type: ignore[arg-type]
        lambda: KGMRF(gains="magic"),
        lambda: KGMRF(gains=gains.information(-1.0)),
        lambda: KGMRF(gains=gains.information(retention=1.5)),
        lambda: KGMRF(gains=gains.FixedGains(0.1, 0.1, retention=2.0)),
        lambda: KGMRF(gains="information", spectrum="magic"),
        lambda: KGMRF(gains="information", spectrum=[1.0, -1.0]),
        lambda: KGMRF(3, gains="information", spectrum=[2.0, 1.0]),
        lambda: KGMRF(noise_floor=-1.0),
        lambda: KGMRF(noise_floor="a"),  # type: ignore[arg-type]
        lambda: KGMRF(gains="information", scale_rate=0.1, noise_floor=0.1),
        lambda: KGMRF(gains="information", initial=[[1.0, 0.0], [0.0, 0.0]]),
        lambda: KGMRF(gains="information", initial=[[1.0, 2.0], [0.0, 1.0]]),
        lambda: KGMRF(scale_rate=0.1),
        lambda: KGMRF(initial=[[1.0, 0.0], [0.0, 1.0]]),
        lambda: KGMRF(members=[]),
        lambda: KGMRF(gains="information", members=[]),
        lambda: KGMRF(n_samples=-3),
        lambda: KGMRF(on_invalid="ignore"),  # type: ignore[arg-type]
        lambda: RotationTracker(gains="information"),
        lambda: RotationTracker(noise_std=-1.0),
        lambda: RotationTracker(time_unit=0.0),
        lambda: RotationTracker(noise_std=0.0, gains="information"),
        lambda: EuclideanEMA(gain=1.5),
        lambda: EuclideanEMA(kind="vector"),
    ],
)
def test_settings_that_make_no_sense_are_refused(build: Any) -> None:
    with pytest.raises(ValueError, match=r"must|needs?|has no|not symmetric"):
        build()


def test_float32_input_is_accepted_with_its_own_rounding() -> None:
    sequence = observations("covariance").astype(np.float32)
    result = KGMRF(n_samples=12).filter(sequence)
    assert result.covariance.dtype == np.float64
    R = observations("rotation").astype(np.float32)
    assert (
        np.abs(
            RotationTracker(noise_std=0.05, gains="information").filter(R).rotation
            - RotationTracker(noise_std=0.05, gains="information")
            .filter(R.astype(float), mask=None)
            .rotation
        ).max()
        < 1e-6
    )  # type: ignore[operator]


def test_integer_input_is_accepted() -> None:
    estimate = KGMRF(n_samples=5).update(np.array([[2, 1], [1, 2]]))
    same = KGMRF(n_samples=5).update(np.array([[2.0, 1.0], [1.0, 2.0]]))
    np.testing.assert_array_equal(estimate.covariance, same.covariance)


# ------------------------------------------------------------------ results


def test_results_become_tables() -> None:
    result = KGMRF(n_samples=12).filter(observations("covariance"))
    table = result.to_frame()
    assert len(table) == 40
    np.testing.assert_array_equal(table["covariance_0_2"], result.covariance[:, 0, 2])
    assert "velocity_0_1" in table
    assert "velocity_0_0" not in table
    batch = (
        KGMRF(n_samples=12).filter(np.stack([observations("covariance")] * 2, axis=1)).to_frame()
    )
    assert len(batch) == 80
    assert set(batch["item_0"]) == {0, 1}
    turned = (
        RotationTracker(noise_std=0.05, gains="information")
        .filter(observations("rotation"))
        .to_frame()
    )
    assert "rotation_2_0" in turned


def test_results_are_sliced_by_frame() -> None:
    result = KGMRF(n_samples=12).filter(observations("covariance"))
    assert len(result[3:8]) == 5
    np.testing.assert_array_equal(result[4].covariance, result.covariance[4])
    assert "40 steps" in repr(result)
