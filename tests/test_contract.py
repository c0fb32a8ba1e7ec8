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


def _sequence(name: str, n_frames: int = 40, rng: int = 0) -> np.ndarray:
    """A moving truth seen with noise and gaps."""
    observed = np.ones(n_frames, dtype=bool)
    observed[[17, 18, 19, 30]] = False
    if name in ROTATION:
        return simulate.rotating_frame(n_frames=n_frames, observed=observed, rng=rng).observations
    return simulate.rotating_covariance(
        3, n_frames=n_frames, n_samples=12, observed=observed, rng=rng
    ).observations


def _same(a: Any, b: Any, tolerance: float = 1e-11) -> None:
    assert a.fields() == b.fields()
    for field in a.fields():
        np.testing.assert_allclose(
            getattr(a, field), getattr(b, field), atol=tolerance, rtol=tolerance, err_msg=field
        )


@pytest.fixture(params=list(ALL))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_filter_is_update_after_update(name: str) -> None:
    sequence = _sequence(name)
    whole = ALL[name]().filter(sequence)
    tracker = ALL[name]()
    for k, observation in enumerate(sequence):
        estimate = tracker.update(None if np.isnan(observation).any() and k else observation)
        _same(estimate, whole[k], 1e-9)


def test_chunked_is_whole(name: str, tmp_path: Path) -> None:
    """Cut anywhere, also inside the warm-up and a gap, and through a file."""
    sequence, times = _sequence(name), np.cumsum(np.linspace(0.5, 1.5, 40))
    whole = ALL[name]().filter(sequence, times=times)
    tracker = ALL[name]()
    pieces = []
    for low, high in ((0, 1), (1, 3), (3, 18), (18, 19), (19, 40)):
        pieces.append(tracker.filter(sequence[low:high], times=times[low:high]))
        tracker.save(tmp_path / "state.npz")
        tracker = kgmrf.load(tmp_path / "state.npz")
    _same(kgmrf.results.join(pieces), whole)


@settings(max_examples=2)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_readable_engine_takes_the_same_steps(
    name: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From every state of the core, one step on: all that the estimate shows, to 1e-9."""
    path = tmp_path / "state.npz"
    tracker = ALL[name]()
    for k, observation in enumerate(_sequence(name, 34, seed)):
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


def test_a_batch_is_its_items(name: str) -> None:
    sequences = np.stack([_sequence(name, rng=seed) for seed in range(3)], axis=1)
    sequences[7:9, 1] = np.nan
    sequences[0, 2] = np.nan
    batch = ALL[name]().filter(sequences)
    for item in range(3):
        alone = ALL[name]().filter(sequences[:, item])
        for field in batch.fields():
            np.testing.assert_allclose(
                getattr(batch, field)[:, item], getattr(alone, field), atol=1e-9, err_msg=field
            )


def test_coasting_is_forecasting(name: str) -> None:
    tracker = ALL[name]()
    tracker.filter(_sequence(name)[:16])
    ahead = tracker.forecast(3)
    for _ in range(3):
        coasted = tracker.update(None)
    matrix = tracker.kind if name in ROTATION or name.startswith("kgmrf") else "covariance"
    matrix = "rotation" if name in ROTATION else matrix
    np.testing.assert_allclose(getattr(coasted, matrix), getattr(ahead, matrix), atol=1e-11)
    assert float(coasted.age) == float(ahead.age) == 3.0
    assert float(coasted.time) == float(ahead.time)


def test_forecast_changes_nothing(name: str) -> None:
    tracker, twin = ALL[name](), ALL[name]()
    sequence = _sequence(name)
    tracker.filter(sequence[:20])
    twin.filter(sequence[:20])
    tracker.forecast(5)
    _same(tracker.update(sequence[20]), twin.update(sequence[20]))


def test_a_copy_lives_its_own_life(name: str) -> None:
    tracker = ALL[name]()
    sequence = _sequence(name)
    tracker.filter(sequence[:20])
    before = tracker.forecast(1)
    other = tracker.copy()
    other.filter(sequence[20:])
    _same(tracker.forecast(1), before)


def test_estimates_lie_on_their_manifold(name: str) -> None:
    result = ALL[name]().filter(_sequence(name))
    if name in ROTATION:
        R = result.rotation
        np.testing.assert_allclose(R @ R.swapaxes(-1, -2), np.eye(3) + 0 * R, atol=1e-12)
        np.testing.assert_allclose(np.linalg.det(R), 1.0, atol=1e-12)
    else:
        values = np.linalg.eigvalsh(result.covariance)[:, ::-1]
        np.testing.assert_allclose(values, result.spectrum, atol=1e-12 * values.max())
        np.testing.assert_allclose(np.linalg.det(result.frame), 1.0, atol=1e-12)
        assert (np.diff(result.spectrum, axis=-1) <= 0).all()
        rebuilt = (result.frame * result.spectrum[:, None, :]) @ result.frame.swapaxes(-1, -2)
        np.testing.assert_allclose(rebuilt, result.covariance, atol=1e-11 * values.max())


def test_missing_frames_before_the_first_are_nan_and_do_not_matter(name: str) -> None:
    sequence = _sequence(name)
    late = np.concatenate([np.full((3, 3, 3), np.nan), sequence])
    result = ALL[name]().filter(late)
    matrix = "rotation" if name in ROTATION else "covariance"
    if name != "kgmrf initial":
        assert np.isnan(getattr(result, matrix)[:3]).all()
    assert np.isnan(result.age[:3]).all()
    np.testing.assert_allclose(
        getattr(result, matrix)[3:], getattr(ALL[name]().filter(sequence), matrix), atol=1e-10
    )


def test_mask_hides_frames_unseen(name: str) -> None:
    sequence = _sequence(name)
    mask = ~np.isnan(sequence).any(axis=(1, 2))
    mask[5] = False
    hidden = sequence.copy()
    hidden[5] = np.nan
    garbage = sequence.copy()
    garbage[5] = np.inf
    _same(ALL[name]().filter(garbage, mask=mask), ALL[name]().filter(hidden))


def test_lists_with_none_are_sequences_with_gaps(name: str) -> None:
    sequence = _sequence(name)
    listed = [None if np.isnan(frame).any() else frame for frame in sequence]
    _same(ALL[name]().filter(listed), ALL[name]().filter(sequence))


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (np.ones((3, 2)), "square"),
        (np.eye(4), "d = 4"),
        (np.full((3, 3), np.inf), "infinity"),
        (np.array([[1.0, np.nan, 0.0], [np.nan, 1.0, 0.0], [0.0, 0.0, 1.0]]), "partly NaN"),
        (np.eye(3, dtype=complex), "complex"),
        ([["a", "b"], ["c", "d"]], "dtype"),
        ([[1.0, 2.0], [3.0]], "rectangular"),
        (np.zeros((3, 3)), "zero|orthogonal"),
        (np.array([[1.0, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]), "symmetric|orthogonal"),
        (np.diag([1.0, 1.0, -1.0]), "negative eigenvalue|determinant"),
        (np.ones((2, 3, 3)), "batch"),
    ],
)
def test_bad_observations_are_refused_and_change_nothing(name: str, bad: Any, words: str) -> None:
    tracker = ALL[name]()
    tracker.filter(_sequence(name)[:20])
    before = tracker.forecast(1)
    with pytest.raises(ObservationError, match=words):
        tracker.update(bad)
    _same(tracker.forecast(1), before)


def test_a_bad_frame_in_a_sequence_changes_nothing(name: str) -> None:
    tracker = ALL[name]()
    sequence = _sequence(name)
    tracker.filter(sequence[:20])
    before = tracker.forecast(1)
    broken = sequence[20:].copy()
    broken[4] = [[1.0, 7.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    with pytest.raises(ObservationError, match=r"sequence\[4\]"):
        tracker.filter(broken)
    _same(tracker.forecast(1), before)
    for call in (
        lambda: tracker.filter(sequence[:0]),
        lambda: tracker.filter(sequence[0, 0]),
        lambda: tracker.filter(sequence[:3], times=[0.0, 2.0]),
        lambda: tracker.filter(sequence[:3], times=[90.0, 80.0, 85.0]),
        lambda: tracker.filter(sequence[:3], times=[90.0, np.nan, 95.0]),
        lambda: tracker.filter(sequence[:3], mask=[1, 0, 2]),
        lambda: tracker.filter(sequence[:3], mask=[1.0, np.nan, 1.0]),
        lambda: tracker.filter(sequence[:3], mask=["True", "False", "True"]),
        lambda: tracker.filter(sequence[:3], mask=[True, False]),
        lambda: tracker.filter(sequence[:3], n_samples=[1.0, 2.0]),
        lambda: tracker.update(sequence[0], dt=-1.0),
        lambda: tracker.update(sequence[0], dt=np.nan),
        lambda: tracker.update(sequence[0], dt=[1.0, 2.0]),
        lambda: tracker.update(sequence[0], n_samples=0),
        lambda: tracker.update(sequence[0], n_samples=np.inf),
        lambda: tracker.forecast(-1.0),
    ):
        with pytest.raises(ObservationError):
            call()
        _same(tracker.forecast(1), before)


@pytest.mark.parametrize("policy", ["skip", "repair"])
def test_skip_and_repair(name: str, policy: str) -> None:
    sequence = _sequence(name)
    broken = sequence.copy()
    broken[6] = np.inf
    missing = sequence.copy()
    missing[6] = np.nan
    clean, dirty = ALL[name](), ALL[name]()
    dirty.on_invalid = policy  # type: ignore[assignment]
    _same(clean.filter(missing), dirty.filter(broken))
    crooked = sequence.copy()
    crooked[8] = crooked[8] + np.array([[0.0, 0.3, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    other = ALL[name]()
    other.on_invalid = policy  # type: ignore[assignment]
    result = other.filter(crooked)
    ages = result.age[8]
    assert float(ages) == (1.0 if policy == "skip" else 0.0)


def test_files_of_strangers_are_refused(name: str, tmp_path: Path) -> None:
    tracker = ALL[name]()
    tracker.filter(_sequence(name)[:10])
    path = tmp_path / "state.npz"
    tracker.save(path)
    data = path.read_bytes()
    for cut in (0, 10, len(data) // 2, len(data) - 5):
        path.write_bytes(data[:cut])
        with pytest.raises(ValueError, match="not a kgmrf state file"):
            kgmrf.load(path)
    np.savez(path, header=np.array([{"a": 1}], dtype=object))
    with pytest.raises(ValueError, match="not a kgmrf state file"):
        kgmrf.load(path)


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


def test_settings_rebuild_the_tracker(name: str) -> None:
    tracker = ALL[name]()
    twin = type(tracker)(**tracker.settings())
    assert repr(twin) == repr(tracker)
    sequence = _sequence(name)
    _same(tracker.filter(sequence), twin.filter(sequence))


def test_trackers_explain_what_they_lack(name: str) -> None:
    estimate = ALL[name]().update(_sequence(name)[0])
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
    _same(KGMRF().filter(X, samples=True), by_matrix)
    tracker = KGMRF()
    for k in range(30):
        estimate = tracker.partial_fit(X[k])
    np.testing.assert_allclose(estimate.covariance, by_matrix.covariance[-1], atol=1e-12)
    _same(KGMRF().filter(X[:, 0]), KGMRF(n_samples=1).filter(X[:, 0, :, None] * X[:, 0, None, :]))


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
        (lambda: KGMRF().filter(np.ones((5, 2)), n_samples=3), "count themselves"),
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
    sequence = _sequence("rotation")[:17]
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

    R = _sequence("rotation")[:10]
    plain = RotationTracker(noise_std=0.05, gains="information").filter(R)
    _same(
        RotationTracker(noise_std=0.05, gains="information").filter(Rotation.from_matrix(R)), plain
    )
    _same(
        RotationTracker(noise_std=0.05, gains="information").filter(
            [Rotation.from_matrix(r) for r in R]
        ),
        plain,
    )
    gaps: list[Any] = [Rotation.from_matrix(r) for r in R]
    gaps[4] = None
    hidden = R.copy()
    hidden[4] = np.nan
    _same(
        RotationTracker(noise_std=0.05, gains="information").filter(gaps),
        RotationTracker(noise_std=0.05, gains="information").filter(hidden),
    )
    with pytest.raises(ObservationError, match="from_quat"):
        RotationTracker(noise_std=0.05, gains="information").update([0.0, 0.0, 0.0, 1.0])


def test_more_samples_make_a_rotation_count_more() -> None:
    R = _sequence("rotation")[:2]
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
    sequence = _sequence("kgmrf").astype(np.float32)
    result = KGMRF(n_samples=12).filter(sequence)
    assert result.covariance.dtype == np.float64
    R = _sequence("rotation").astype(np.float32)
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
    result = KGMRF(n_samples=12).filter(_sequence("kgmrf"))
    table = result.to_frame()
    assert len(table) == 40
    np.testing.assert_array_equal(table["covariance_0_2"], result.covariance[:, 0, 2])
    assert "velocity_0_1" in table
    assert "velocity_0_0" not in table
    batch = KGMRF(n_samples=12).filter(np.stack([_sequence("kgmrf")] * 2, axis=1)).to_frame()
    assert len(batch) == 80
    assert set(batch["item_0"]) == {0, 1}
    turned = (
        RotationTracker(noise_std=0.05, gains="information")
        .filter(_sequence("rotation"))
        .to_frame()
    )
    assert "rotation_2_0" in turned


def test_results_are_sliced_by_frame() -> None:
    result = KGMRF(n_samples=12).filter(_sequence("kgmrf"))
    assert len(result[3:8]) == 5
    np.testing.assert_array_equal(result[4].covariance, result.covariance[4])
    assert "40 steps" in repr(result)
