"""Recentring: a reference that follows the recording, and how far matrices are from it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn is not installed: no recentring")

from sklearn.base import clone

from kgmrf.geometry import spd
from kgmrf.sklearn.recentring import OnlineRecenter, RiemannianReference


def windows(n: int, mixing: Any, seed: int = 0, length: int = 64) -> Any:
    """Covariances of windows of white noise that a matrix mixes."""
    mixing = np.asarray(mixing)
    rows = np.random.default_rng(seed).standard_normal((n, length, len(mixing))) @ mixing.T
    return np.swapaxes(rows, -1, -2) @ rows / length


def mixings(seed: int = 1) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    first = np.eye(3) + 0.5 * rng.standard_normal((3, 3))
    return first, first + 0.5 * rng.standard_normal((3, 3))


# ---------------------------------------------------------------------- the reference


def test_the_mean_of_all_is_the_geometric_mean_where_matrices_commute() -> None:
    logs = np.random.default_rng(0).normal(size=(40, 3))
    reference = RiemannianReference()
    for row in logs:
        reference.update(np.diag(np.exp(row)))
    expected = np.diag(np.exp(logs.mean(axis=0)))
    np.testing.assert_allclose(reference.means[-1], expected, rtol=1e-9, atol=1e-12)


def test_a_mean_that_forgets_is_a_sum_of_logarithms_where_matrices_commute() -> None:
    logs = np.random.default_rng(1).normal(size=(60, 2))
    reference = RiemannianReference()
    for row in logs:
        reference.update(np.diag(np.exp(row)))
    mean = logs[0]
    for k, row in enumerate(logs[1:], 2):
        mean = mean + max(1.0 - 2.0 ** (-1.0 / 8.0), 1.0 / k) * (row - mean)
    np.testing.assert_allclose(reference.means[0], np.diag(np.exp(mean)), rtol=1e-9, atol=1e-12)


def test_the_reference_turns_with_the_channels() -> None:
    X, A = windows(30, mixings()[0]), mixings(5)[1]
    plain, mixed = RiemannianReference(), RiemannianReference()
    for C in X:
        plain.update(C)
        mixed.update(A @ C @ A.T)
    np.testing.assert_allclose(mixed.value(), A @ plain.value() @ A.T, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(mixed.scores, plain.scores, rtol=1e-7)
    C = windows(1, mixings(7)[0])[0]
    assert mixed.score(A @ C @ A.T) == pytest.approx(plain.score(C), rel=1e-7)


def test_the_memory_is_long_where_nothing_changes_and_short_after_a_change() -> None:
    first, second = mixings()
    reference = RiemannianReference()
    for C in windows(200, first):
        reference.update(C)
    assert reference.scores.argmin() == 0
    assert reference.scores.argmax() != 0
    for C in windows(12, 2.0 * second, seed=1):
        reference.update(C)
    assert reference.scores.argmax() == 0
    truth = 4.0 * second @ second.T
    assert spd.distance(reference.value(), truth) < 0.5 * spd.distance(reference.means[-1], truth)


def test_equal_matrices_are_their_own_reference() -> None:
    reference = RiemannianReference()
    with pytest.raises(ValueError, match="without any matrix"):
        reference.value()
    for _ in range(5):
        reference.update(np.diag([4.0, 1.0]))
    np.testing.assert_allclose(reference.value(), np.diag([4.0, 1.0]), rtol=1e-12, atol=1e-12)


# ---------------------------------------------------------------------- the transformer


def test_recentring_takes_a_change_of_the_recording_off() -> None:
    first, second = mixings()
    model = OnlineRecenter().fit(windows(60, first))
    after = model.transform(windows(120, second, seed=1))
    assert np.abs(after[40:].mean(axis=0) - np.eye(3)).max() < 0.2


@pytest.mark.parametrize("kind", ["riemannian", "tracker"])
def test_a_known_start_of_a_session_is_faster(kind: str) -> None:
    first, second = mixings()
    model = OnlineRecenter(reference=kind).fit(windows(150, first))
    X = windows(15, 3.0 * second, seed=1)

    def left(model: Any) -> float:
        return float(np.abs(model.transform(X)[10:].mean(axis=0) - np.eye(3)).max())

    before = left(model)
    assert left(model.new_session()) < 0.7 * before


@pytest.mark.parametrize("kind", ["riemannian", "tracker"])
def test_one_matrix_at_a_time_is_the_whole_session(kind: str) -> None:
    X = windows(30, np.diag([2.0, 1.0]))
    whole = OnlineRecenter(reference=kind).fit(X[:10])
    online = OnlineRecenter(reference=kind).fit(X[:10])
    found = []
    for C in X[10:]:
        found.append(online.transform(C[None])[0])
        online.partial_fit(C[None])
    np.testing.assert_allclose(found, whole.transform(X[10:]), rtol=1e-9)


def test_the_training_session_is_whitened_by_the_reference_at_its_end() -> None:
    X = windows(30, mixings()[0])
    model = OnlineRecenter()
    found = model.fit_transform(X)
    root = spd.power(model.reference_.value(), -0.5)
    np.testing.assert_allclose(found, root @ X @ root, rtol=1e-10)
    # What comes next begins where it ended.
    np.testing.assert_allclose(model.transform(X[:1])[0], found[0], rtol=1e-10)


@pytest.mark.parametrize("turning", [False, True])
def test_a_tracker_as_reference_uses_only_the_past(turning: bool) -> None:
    X = windows(60, mixings()[0])
    step = OnlineRecenter(reference="tracker", n_samples=64, turning=turning)
    whole = step.fit_transform(X)
    assert np.array_equal(whole[:20], step.fit_transform(X[:20]))
    assert np.allclose(whole[40:].mean(axis=0), np.eye(3), atol=0.5)


def test_what_is_seen_from_the_body_does_not_depend_on_the_axes() -> None:
    X = windows(60, mixings()[0])
    step = OnlineRecenter(reference="tracker", n_samples=64, turning=True)
    flip = np.diag([-1.0, 1.0, -1.0])  # the default knows which channel is which, but not its sign
    plain, turned = step.fit_transform(X), step.fit_transform(flip @ X @ flip)
    assert np.allclose(np.abs(turned), np.abs(plain), rtol=1e-6, atol=1e-9)  # up to signs


def test_gaps_stay_gaps_and_change_nothing() -> None:
    X = windows(30, mixings()[0])
    holes = np.insert(X, [3, 12, 25], np.nan, axis=0)
    missing = np.isnan(holes[:, 0, 0])
    for first, second in ((holes[:15], holes[15:]), (X[:13], X[13:])):
        model = OnlineRecenter().fit(first)
        found = model.transform(second)
        if np.isnan(second).any():
            assert np.isnan(found[missing[15:]]).all()
            assert np.isnan(model.artefact_score(second)[missing[15:]]).all()
            whole = found[~missing[15:]]
    np.testing.assert_allclose(whole, found, rtol=1e-12)


def test_what_has_no_riemannian_distance_is_refused_or_skipped() -> None:
    X = windows(20, mixings()[0])
    X[7] = np.diag([1.0, 1.0, 0.0])
    with pytest.raises(ValueError, match=r"X\[7\].*singular.*'oas'"):
        OnlineRecenter().fit(X)
    found = OnlineRecenter(on_invalid="skip").fit_transform(X)
    assert np.isnan(found[7]).all()
    assert np.isfinite(np.delete(found, 7, axis=0)).all()


@pytest.mark.parametrize("setting", [{"n_samples": 64}, {"turning": True}])
def test_settings_of_the_other_reference_are_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match='settings of reference="tracker"'):
        OnlineRecenter(**setting).fit(windows(5, np.eye(2)))


def test_wrong_input_is_refused() -> None:
    model = OnlineRecenter().fit(windows(5, np.eye(2)))
    with pytest.raises(ValueError, match="2 x 2"):
        model.transform(windows(5, np.eye(3)))
    with pytest.raises(ValueError, match="leave out times"):
        model.transform(windows(5, np.eye(2)), times=np.arange(5.0))
    with pytest.raises(ValueError, match="reference must be one of"):
        OnlineRecenter(reference="mean").fit(windows(5, np.eye(2)))
    with pytest.raises(ValueError, match='needs reference="riemannian"'):
        OnlineRecenter(reference="tracker").fit(windows(9, np.eye(2))).artefact_score(
            windows(5, np.eye(2))
        )
    with pytest.raises(ValueError, match="no matrix to begin with"):
        OnlineRecenter().fit(np.full((3, 2, 2), np.nan))
    assert clone(model).fit(windows(5, np.eye(3))).n_features_in_ == 3
    assert model.fit(windows(5, np.eye(3))).n_features_in_ == 3


def test_an_artefact_stands_out_and_hardly_moves_the_reference() -> None:
    mixing = mixings()[0]
    model = OnlineRecenter().fit(windows(20, mixing))
    X = windows(40, mixing, seed=1)
    clean = model.artefact_score(X)
    assert np.quantile(clean, 0.95) < 2.0
    assert 0.7 < np.median(clean) < 1.3
    X[10] = windows(1, 5.0 * np.diag([1.0, 0.2, 1.0]) @ mixing, seed=2)[0]
    hit = model.artefact_score(X)
    assert hit[10] > 2.5
    assert np.abs(np.delete(hit - clean, 10)).max() < 0.5
