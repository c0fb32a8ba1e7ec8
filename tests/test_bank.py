"""A bank is its tracks: each steps as a tracker does, and none disturbs another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgmrf import KGMRF, ObservationError, RotationTracker
from kgmrf.bank import TrackerBank
from kgmrf.geometry import so
from kgmrf.model.step import covariance_step, rotation_step

STATE = ("frame", "spectrum", "velocity", "uncertainty", "spectrum_var", "pool", "pooled_samples")
CLOCKS = ("log_scale", "scale_var", "time", "seen", "steps")


def _rng(*seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def _covariances(rng: np.random.Generator, n: int, d: int, m: int = 6) -> Any:
    x = rng.standard_normal((n, m, d)) * np.geomspace(3.0, 0.5, d)
    return np.swapaxes(x, -1, -2) @ x / m


def _rotations(rng: np.random.Generator, n: int, d: int, angle: float = 0.3) -> Any:
    return so.exp(so.hat(angle * rng.standard_normal((n, d * (d - 1) // 2))))


def _observations(kind: str, rng: np.random.Generator, n: int, d: int) -> Any:
    return _covariances(rng, n, d) if kind == "covariance" else _rotations(rng, n, d)


CASES: list[tuple[str, int, dict[str, Any]]] = [
    ("covariance", 1, {"n_samples": 6, "gains": "information"}),
    ("covariance", 2, {"n_samples": 6, "gains": "printed"}),
    ("covariance", 3, {"n_samples": 6, "gains": "information", "scale_rate": 1e-2}),
    ("covariance", 5, {"n_samples": 6, "gains": "zero_lag", "spectrum": "fixed"}),
    ("covariance", 7, {"n_samples": 6, "gains": "information", "noise_floor": 0.05}),
    (
        "covariance",
        9,
        {
            "n_samples": 6,
            "gains": "information",
            "initial": np.diag(np.geomspace(9.0, 0.3, 9)),
        },
    ),
    ("rotation", 2, {"noise_std": 0.1}),
    ("rotation", 3, {"noise_std": 0.1, "gains": "information"}),
    ("rotation", 3, {"gains": "zero_lag"}),
]


@pytest.mark.parametrize(("kind", "d", "settings"), CASES)
def test_every_step_is_the_readable_step(kind: str, d: int, settings: dict[str, Any]) -> None:
    rng, n = _rng(d), 11
    bank = TrackerBank(n, d, kind=kind, n_threads=1, time_unit=1.0, **settings)
    engine: Any = bank._engine
    for k in range(12):
        C = _observations(kind, rng, n, d)
        C[rng.random(n) < 0.2] = np.nan
        present = rng.random(n) < 0.8
        dt = rng.choice([0.5, 1.0, 2.0], n)
        counts = rng.integers(3, 9, n).astype(float)
        state = bank.state()
        observed = present & ~np.isnan(C[:, 0, 0])
        step = covariance_step if kind == "covariance" else rotation_step
        clean = np.where(observed[:, None, None], C, np.eye(d))
        strength = counts if kind == "covariance" else engine.noise_var / counts
        reference, surprise = step(
            state, engine.model, clean, strength, dt if k else 0 * dt, observed
        )
        taken = bank.update(C, mask=present, dt=dt, n_samples=counts)
        np.testing.assert_array_equal(taken.observed, observed)
        assert not taken.invalid.any()
        new = bank.state()
        cold = np.asarray(reference.pooled_steps != state.pooled_steps)
        for name in STATE + CLOCKS:
            mine, theirs = getattr(new, name), getattr(reference, name)
            if name == "frame":  # while pooling, the signs of eigenvectors are free
                mine, theirs = mine[~cold], theirs[~cold]
            np.testing.assert_allclose(mine, theirs, rtol=1e-11, atol=1e-12, err_msg=name)
        np.testing.assert_allclose(bank.nis, surprise.nis, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(bank.log_likelihood, surprise.log_likelihood, rtol=1e-11)


@pytest.mark.parametrize("gains", ["auto", "information"])
@pytest.mark.parametrize("kind", ["covariance", "rotation"])
def test_a_bank_equals_single_trackers(kind: str, gains: str) -> None:
    rng, n, d = _rng(1), 9, 3
    settings: dict[str, Any] = {"n_samples": 6} if kind == "covariance" else {"noise_std": 0.1}
    settings["gains"] = gains if kind == "covariance" else "information"
    bank = TrackerBank(n, d, kind=kind, **settings)
    single = KGMRF if kind == "covariance" else RotationTracker
    trackers: list[Any] = [single(d, **settings) for _ in range(n)]
    frames = [_observations(kind, rng, n, d) for _ in range(10)]
    for C in frames:
        bank.update(C)
        estimates = [tracker.update(c) for tracker, c in zip(trackers, C, strict=True)]
    shown, ahead = bank.estimate(), bank.forecast(2.0)
    for name in shown.fields():
        expected = np.stack([getattr(e, name) for e in estimates])
        if name in ("covariance", "rotation", "spectrum", "time", "age", "nis", "log_likelihood"):
            np.testing.assert_allclose(getattr(shown, name), expected, rtol=1e-9, atol=1e-9)
    field = "covariance" if kind == "covariance" else "rotation"
    expected = np.stack([getattr(t.forecast(2.0), field) for t in trackers])
    np.testing.assert_allclose(getattr(ahead, field), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["covariance", "rotation"])
def test_a_wrong_track_never_disturbs_another(kind: str) -> None:
    rng, n, d = _rng(2), 16, 3
    settings: dict[str, Any] = {"n_samples": 6} if kind == "covariance" else {"noise_std": 0.1}
    settings["gains"] = "information"
    clean, dirty = (TrackerBank(n, d, kind=kind, **settings) for _ in range(2))
    wrong = [np.full((d, d), np.inf), np.zeros((d, d)), -np.eye(d), np.diag([1.0, np.nan, 1.0])]
    for k in range(12):
        C = _observations(kind, rng, n, d)
        clean.update(C)
        C[5] = wrong[k % 4]
        C[9] = 1e150 * C[9] if kind == "covariance" else wrong[(k + 1) % 4]
        taken = dirty.update(C)
        assert taken.invalid[5]
        assert not taken.observed[5]
        others = np.delete(np.arange(n), [5, 9])
        assert taken.observed[others].all()
    for name in STATE + CLOCKS:
        ours, theirs = getattr(clean.state(), name), getattr(dirty.state(), name)
        if name != "pool":
            np.testing.assert_allclose(ours[others], theirs[others], rtol=1e-9, atol=1e-12)
    assert np.isfinite(dirty.state().frame).all()


def test_what_is_invalid_is_skipped_raised_or_repaired() -> None:
    rng, n, d = _rng(3), 5, 3
    C = _covariances(rng, n, d)
    bad = C.copy()
    bad[3] = np.diag([2.0, 1.0, -0.5])
    for how in ("skip", "raise", "repair"):
        settings: Any = {"n_samples": 6, "on_invalid": how, "gains": "information"}
        bank = TrackerBank(n, d, initial=np.diag([3.0, 2.0, 1.0]), **settings)
        bank.update(C)
        before = bank.state()
        if how == "raise":
            with pytest.raises(ObservationError, match=r"observations\[3\].*negative eigenvalue"):
                bank.update(bad)
            for name in STATE + CLOCKS:
                np.testing.assert_array_equal(getattr(bank.state(), name), getattr(before, name))
            bad[3, 0, 0] = np.inf
            with pytest.raises(ObservationError, match="not finite"):
                bank.update(bad)
            bad[3, 0, 0] = 2.0
        else:
            taken = bank.update(bad)
            assert taken.observed[3] == (how == "repair")
            assert taken.invalid[3] == (how == "skip")
            assert bank.age[3] == (0.0 if how == "repair" else 1.0)


def test_rotations_are_repaired() -> None:
    R = _rotations(_rng(4), 3, 3)
    bank = TrackerBank(3, 3, kind="rotation", noise_std=0.1, on_invalid="repair")
    assert bank.update(1.2 * R).observed.all()
    np.testing.assert_allclose(bank.estimate().rotation, R, atol=1e-12)


def test_tracks_come_and_go() -> None:
    rng, d = _rng(5), 3
    bank = TrackerBank(20, d, n_samples=6, gains="information")
    for _ in range(9):
        bank.update(_covariances(rng, 20, d))
    before = bank.state()
    new = bank.add(3)
    assert len(bank) == 23
    np.testing.assert_array_equal(new, [20, 21, 22])
    np.testing.assert_array_equal(bank.state().frame[:20], before.frame)
    assert np.isnan(bank.estimate(new).covariance).all()
    for _ in range(9):
        bank.update(_covariances(rng, 23, d))
    np.testing.assert_array_equal(bank.time, [17.0] * 20 + [8.0] * 3)
    some = bank.select([4, 21])
    bank.remove([0, 1, 2, 3])
    assert len(bank) == 19
    assert bank.ids[0] == 4
    for other, place in ((some, [0, 1]), (bank.select(np.isin(bank.ids, [4, 21])), [0, 1])):
        np.testing.assert_array_equal(other.ids[place], [4, 21])
        np.testing.assert_array_equal(other.state().frame, bank.state([0, 17]).frame)
    C = _covariances(rng, 19, d)
    some.update(C[[0, 17]])
    bank.update(C)
    np.testing.assert_allclose(some.state().frame, bank.state([0, 17]).frame, atol=1e-13)
    bank.remove(np.ones(19, dtype=bool))
    assert len(bank) == 0
    assert bank.update(np.zeros((0, d, d))).observed.size == 0


@pytest.mark.parametrize("law", [{}, {"gains": "information", "pool_steps": 3}])
def test_saved_banks_go_on_as_if_nothing_had_happened(tmp_path: Path, law: Any) -> None:
    rng, n, d = _rng(6), 10, 3
    bank = TrackerBank(n, d, n_samples=6, **law)
    for k in range(6):
        bank.update(_covariances(rng, n, d))
        if k in (1, 5):
            bank.save(tmp_path / "bank.npz")
            twin = TrackerBank.load(tmp_path / "bank.npz")
            C = _covariances(rng, n, d)
            bank.update(C)
            twin.update(C)
            np.testing.assert_array_equal(bank.estimate().covariance, twin.estimate().covariance)
            np.testing.assert_array_equal(bank.ids, twin.ids)
    (tmp_path / "wrong.npz").write_bytes(b"not a bank")
    with pytest.raises(ValueError, match="is not a kgmrf state file"):
        TrackerBank.load(tmp_path / "wrong.npz")
    with pytest.raises(FileNotFoundError):
        TrackerBank.load(tmp_path / "nothing.npz")


def test_a_copy_goes_its_own_way() -> None:
    rng, n, d = _rng(9), 10, 3
    bank = TrackerBank(n, d, n_samples=6)
    bank.update(_covariances(rng, n, d))
    twin = bank.copy()
    before = bank.covariance
    C = _covariances(rng, n, d)
    twin.update(C)
    twin.add(2)
    np.testing.assert_array_equal(bank.covariance, before)
    assert len(bank) == n
    bank.update(C)
    np.testing.assert_array_equal(bank.covariance, twin.covariance[:n])
    np.testing.assert_array_equal(bank.covariance, bank.estimate().covariance)
    rebuilt = TrackerBank(n, **bank.settings())
    assert rebuilt.settings() == bank.settings()


def test_threads_change_nothing() -> None:
    rng, n, d = _rng(7), 3000, 2
    law = {"gains": "information", "initial": np.diag([3.0, 1.0])}
    settings: dict[str, Any] = {"n_samples": 6, **law}
    one = TrackerBank(n, d, n_threads=1, **settings)
    two = TrackerBank(n, d, n_threads=2, **settings)
    for _ in range(4):
        C = _covariances(rng, n, d)
        for bank in (one, two):
            bank.update(C)
    np.testing.assert_array_equal(one.state().frame, two.state().frame)


def test_the_readable_step_stands_in(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, n, d = _rng(8), 6, 3
    frames = [_covariances(rng, n, d) for _ in range(8)]
    frames[4][2] = np.nan
    frames[5][3] = -np.eye(d)
    frames[6][1, 0, 0] = np.inf
    results = []
    for word in ("readable", "compiled"):
        monkeypatch.setenv("KGMRF_ENGINE", word)
        bank = TrackerBank(n, d, n_samples=6, gains="information")
        taken = [bank.update(C) for C in frames]
        assert taken[5].invalid[3]
        assert taken[6].invalid[1]
        results.append(bank.estimate().covariance)
    np.testing.assert_allclose(results[0], results[1], rtol=1e-8, atol=1e-8)
    monkeypatch.setenv("KGMRF_ENGINE", "readable")
    turning = TrackerBank(2, 4, kind="rotation", noise_std=0.1)  # too large for the compiled one
    turning.update(_rotations(rng, 2, 4))
    strict = TrackerBank(n, d, n_samples=6, on_invalid="raise")
    with pytest.raises(ObservationError, match="negative"):
        strict.update(frames[5])
    with pytest.raises(ObservationError, match="not finite"):
        strict.update(frames[6])


def test_wrong_arguments_say_so() -> None:
    for wrong in ({"kind": "vector"}, {"on_invalid": "ignore"}):
        with pytest.raises(ValueError, match="must be one of"):
            TrackerBank(2, 2, **wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="n_tracks"):
        TrackerBank(-1, 2)
    bank = TrackerBank(2, 2)
    C = np.tile(np.eye(2), (2, 1, 1))
    with pytest.raises(ObservationError, match="how many samples"):
        bank.update(C)
    for matrices, arguments in (
        (C[0], {}),
        (C.astype(complex), {}),
        (C, {"mask": [1, 2]}),
        (C, {"mask": ["True", "False"]}),
        (C, {"mask": [np.nan, 1.0]}),
        (C, {"dt": [1.0, 2.0, 3.0]}),
        (C, {"dt": -1.0}),
        (C, {"n_samples": 0.0}),
    ):
        with pytest.raises(ObservationError):
            bank.update(matrices, **{"n_samples": 4.0, **arguments})
    assert "2 tracks" in repr(bank)


def _same_rows(bank: TrackerBank, covariances: Any) -> None:
    np.testing.assert_array_equal(bank.covariance, covariances)


@pytest.mark.parametrize("gains", ["auto", "information", "zero_lag", "printed"])
def test_one_law_of_numbers_everywhere(gains: str) -> None:
    """A bank, trackers, a batch, chunks and steps one by one give the same numbers."""
    rng, n, d = _rng(10), 5, 3
    x = rng.standard_normal((60, n, d)) @ np.diag([3.0, 1.0, 0.2])
    x[rng.random((60, n)) < 0.1] = np.nan
    x[rng.random(x.shape) < 0.05] = np.nan
    bank = TrackerBank(n, d, gains=gains)
    for row in x:
        bank.update(row)
    batch = KGMRF(d, gains=gains).filter(x[:, :, None, :], samples=True)
    _same_rows(bank, batch.covariance[-1])
    np.testing.assert_array_equal(bank.log_likelihood, batch.log_likelihood[-1])
    pieces = KGMRF(d, gains=gains)
    for low, high in ((0, 1), (1, 7), (7, 60)):
        last = pieces.filter(x[low:high, :, None, :], samples=True)
    _same_rows(bank, last.covariance[-1])
    singles = [KGMRF(d, gains=gains) for _ in range(n)]
    for row in x:
        estimates = [t.partial_fit(one) for t, one in zip(singles, row, strict=True)]
    _same_rows(bank, np.stack([e.covariance for e in estimates]))


def test_a_self_tuned_bank_skips_raises_and_repairs() -> None:
    rng, n, d = _rng(11), 4, 3
    C = _covariances(rng, n, d)
    bad = C.copy()
    bad[2] = np.diag([2.0, 1.0, -0.5])
    for how in ("skip", "raise", "repair"):
        bank = TrackerBank(n, d, n_samples=6, on_invalid=how)  # type: ignore[arg-type]
        bank.update(C)
        before = bank.covariance
        if how == "raise":
            with pytest.raises(ObservationError, match=r"observations\[2\].*negative eigenvalue"):
                bank.update(bad)
            np.testing.assert_array_equal(bank.covariance, before)
        else:
            taken = bank.update(bad)
            assert taken.observed[2] == (how == "repair")
            assert taken.invalid[2] == (how == "skip")
            assert bank.age[2] == (0.0 if how == "repair" else 1.0)
    samples = TrackerBank(2, 2)
    assert samples.update([[1.0, 2.0], [1e200, 1.0]]).invalid.tolist() == [False, True]
    strict = TrackerBank(2, 2, on_invalid="raise")
    with pytest.raises(ObservationError, match="too large to square"):
        strict.update([[1.0, 2.0], [1e200, 1.0]])


def test_a_refused_step_does_not_set_the_unit_of_time() -> None:
    rng = np.random.default_rng(4)
    x = rng.normal(size=(6, 2, 3))
    clean, tried = (TrackerBank(2, 3, on_invalid="raise") for _ in range(2))
    for k in range(6):
        if k == 1:
            with pytest.raises(ObservationError):
                tried.update(np.full((2, 3), 1e200), dt=7.0)
            with pytest.raises(ObservationError):
                tried.update(x[k], dt=7.0, n_samples=3)
        for bank in (clean, tried):
            bank.update(x[k], dt=2.0)
    np.testing.assert_array_equal(tried.time, clean.time)
    np.testing.assert_array_equal(tried.covariance, clean.covariance)


@pytest.mark.parametrize("settings", [{}, {"gains": "information"}, {"kind": "rotation"}])
def test_a_bank_without_tracks_has_estimates_of_none(settings):
    bank = TrackerBank(0, 3, **settings)
    for estimate in (bank.estimate(), bank.forecast(1.0)):
        assert getattr(estimate, bank.kind).shape == (0, 3, 3)


@pytest.mark.parametrize("gains", ["auto", "information"])
def test_lines_of_the_wrong_shape_are_refused_and_change_nothing(gains):
    rng = np.random.default_rng(0)
    bank = TrackerBank(4, 3, gains=gains)
    for _ in range(5):
        bank.update(rng.normal(size=(4, 3)))
    before = bank.state_dict()["rows"].copy()
    which, rows, one = np.arange(40) % 4, rng.normal(size=(40, 3)), np.ones(40)
    infinite = rows.copy()
    infinite[7, 1] = np.inf
    for tracks, seen, dt, fields, error in (
        (which, rows[:1], one, "covariance", ObservationError),
        (which, rows[:, :2], one, "covariance", ObservationError),
        (which, np.ones((40, 2, 2)), one, "covariance", ObservationError),
        (which, infinite, one, "covariance", ObservationError),
        (which, rows, -one, "covariance", ObservationError),
        (which, rows, np.nan * one, "covariance", ObservationError),
        (which, rows, one[:2], "covariance", ValueError),
        (which, rows, one, "nonsense", ValueError),
        (which + 1, rows, one, "covariance", IndexError),
        (which > 1, rows, one, "covariance", IndexError),
    ):
        with pytest.raises(error):
            bank.feed(tracks, seen, dt=dt, fields=fields)
        np.testing.assert_array_equal(bank.state_dict()["rows"], before)
    assert bank.feed(which, rows, dt=1.0, fields="covariance")["covariance"].shape == (40, 3, 3)


def test_what_a_bank_remembers_is_a_snapshot():
    """It was a view: the next update changed it."""
    bank = TrackerBank(2, 3)
    bank.update(np.ones((2, 3)))
    found = bank.state_dict()
    before = {name: array.copy() for name, array in found.items()}
    bank.update(np.full((2, 3), 7.0))
    for name, array in found.items():
        np.testing.assert_array_equal(array, before[name])
    np.testing.assert_array_equal(bank.state_dict([1])["rows"], bank.state_dict()["rows"][1:])


def test_restored_banks_are_independent():
    one, two = TrackerBank(2, 3), TrackerBank(2, 3)
    one.update(np.ones((2, 3)))
    two.load_state_dict(one.state_dict())
    before = one.state_dict()["rows"].copy()
    two.update(np.full((2, 3), 7.0))
    np.testing.assert_array_equal(one.state_dict()["rows"], before)


def test_a_refused_matrix_leaves_a_fresh_bank_of_many_channels():
    bank = TrackerBank(2, 64, on_invalid="raise")
    before = bank.state_dict()["rows"].shape
    with pytest.raises(ObservationError):
        bank.update(np.stack([-np.eye(64)] * 2), n_samples=5)
    assert bank.state_dict()["rows"].shape == before
    assert TrackerBank(0, 64).estimate().covariance.shape == (0, 64, 64)
    taken = TrackerBank(4, 3).update(np.zeros((4, 0, 3)), samples=True)
    assert not taken.observed.any()
