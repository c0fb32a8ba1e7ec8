"""Single laws: one step of the loop is that of kgmrf.model.step; fields and checks are as they
should."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from kgmrf import KGMRF, ObservationError, RotationTracker, gains
from kgmrf.engines import Lines
from kgmrf.engines.law import LARGEST, SingleLaw, core_plan, guarded
from kgmrf.geometry import orbit, so
from kgmrf.model.law_state import Model, State, Surprise, cold_state, initial_state
from kgmrf.model.step import covariance_step
from kgmrf.model.step import rotation_step as readable_rotation_step
from kgmrf.readable import Law

single_law = partial(KGMRF, gains="information")
TOLERANCE = 1e-12
PER_STEP = ("frame", "spectrum", "velocity", "uncertainty", "spectrum_var", "log_scale")
DIMENSIONS = (1, 2, 3, 5, 7, 16)

PLANES = np.random.default_rng(5).uniform(0.01, 0.2, (16, 16))
LAWS: dict[str, Any] = {
    "information": lambda d: gains.information(1e-4, angle_noise=1e-5),
    "decaying": lambda d: gains.information(1e-4, retention=0.9),
    "zero_lag": lambda d: gains.zero_lag(0.1, 0.05, coast_retention=0.95),
    "printed": lambda d: gains.printed(),
    "ridge": lambda d: gains.FixedGains(0.1, 0.05, ridge=0.3),
    "planes": lambda d: gains.FixedGains(
        _symmetric(PLANES[:d, :d]), 0.3 * _symmetric(PLANES[:d, :d])
    ),
}


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def _symmetric(A: Any) -> Any:
    return (A + np.swapaxes(A, -1, -2)) / 2


def _skew(rng: np.random.Generator, shape: tuple[int, ...], size: float) -> Any:
    W = rng.standard_normal(shape)
    W = W - np.swapaxes(W, -1, -2)
    norm = np.sqrt((W**2).sum(axis=(-2, -1), keepdims=True) / 2)
    return size * W / np.where(norm > 0, norm, 1.0)


def _covariance(rng: np.random.Generator, shape: tuple[int, ...], m: int) -> Any:
    x = rng.standard_normal((*shape[:-2], m, shape[-1]))
    return np.swapaxes(x, -1, -2) @ x / m


def _moving_state(rng: np.random.Generator, d: int, model: Model, speed: float) -> State:
    """A track under way: every field that a step reads is something else than at the start."""
    frame = so.exp(_skew(rng, (d, d), 0.7))
    state = initial_state(frame, np.geomspace(4.0, 0.5, d), model.gains)
    p11 = _symmetric(rng.uniform(0.01, 0.1, (d, d))) * (1 - np.eye(d))
    p22 = _symmetric(rng.uniform(1e-4, 1e-3, (d, d))) * (1 - np.eye(d))
    p12 = 0.5 * np.sqrt(p11 * p22)
    informed = isinstance(model.gains, gains.InformationGains)
    uncertainty = np.stack([p11, p12, p22]) if informed else state.uncertainty
    return state._replace(
        velocity=_skew(rng, (d, d), speed),
        uncertainty=uncertainty,
        spectrum_var=rng.uniform(0.01, 0.1, d),
        log_scale=np.asarray(0.2 if model.scale_rate else 0.0),
        scale_var=np.asarray(0.05),
        time=np.asarray(3.0),
        seen=np.asarray(2.0),
        steps=np.asarray(998.0),
    )


def _blank(batch: tuple[int, ...] = ()) -> Surprise:
    return Surprise(np.full(batch, np.nan), np.full(batch, np.nan))


def _compiled_step(
    state: State, model: Model, C: Any, m: Any, dt: Any, observed: Any, rotation: bool
) -> tuple[State, Surprise, Any]:
    """One step of the loop; m: samples, or the noise variance of a rotation."""
    d, batch = C.shape[-1], C.shape[:-2]
    engine = SingleLaw(model, state, noise_var=1.0 if rotation else None)
    assert engine.plan is not None
    rows = engine.init(int(np.prod(batch)))
    n = len(rows)
    counts = np.where(observed, 1.0 / m if rotation else m, 0.0).reshape(n)
    step = np.array(np.broadcast_to(dt, batch), dtype=float).reshape(n)
    records = engine.advance(rows, Lines(np.arange(n), C.reshape(n, d, d), counts, step))[1]
    shown = engine.view(records.reshape(*batch, -1))
    return *engine.state(rows.reshape(*batch, -1)), shown


def _agree(new: Any, reference: Any) -> None:
    np.testing.assert_allclose(new, reference, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("d", DIMENSIONS)
@pytest.mark.parametrize("dt", [0.0, 1.0, 2.5])
@pytest.mark.parametrize("observed", [True, False])
def test_one_covariance_step(d: int, law: str, dt: float, observed: bool) -> None:
    rng = np.random.default_rng([d, int(10 * dt)])
    for adaptive, scale, speed in ((0.0, 0.0, 0.05), (1e-3, 0.0, 2.0), (1e-3, 1e-2, 0.3)):
        floor = 0.0 if scale else 0.1
        model = guarded(Model(LAWS[law](d), floor, adaptive, scale, 0.97))
        state = _moving_state(rng, d, model, speed)
        size = 1e3 if speed > 1 else 1.0  # beyond the limit
        C, m = size * _covariance(rng, (d, d), 3), np.asarray(3.0)
        step, there = np.asarray(dt), np.asarray(observed)
        reference, surprise = covariance_step(state, model, C, m, step, there)
        new, own, _ = _compiled_step(state, model, C, m, step, there, rotation=False)
        for name in (*PER_STEP, "scale_var", "time", "seen", "steps"):
            _agree(getattr(new, name), getattr(reference, name))
        _agree(own.nis, surprise.nis)
        _agree(own.log_likelihood, surprise.log_likelihood)


@pytest.mark.parametrize("law", ["information", "decaying", "zero_lag", "printed"])
@pytest.mark.parametrize("d", [2, 3])
@pytest.mark.parametrize("angle", [1e-9, 0.05, 1.0, 3.1])
def test_one_rotation_step(d: int, law: str, angle: float) -> None:
    rng = np.random.default_rng([d, int(100 * angle)])
    model = Model(RotationTracker(d, noise_std=0.1, gains=LAWS[law](d)).gains)
    for dt, observed in ((1.0, True), (2.5, True), (1.0, False)):
        state = _moving_state(rng, d, model, 0.1)
        R = state.frame @ so.exp(_skew(rng, (d, d), angle))
        noise, step, there = np.asarray(0.01), np.asarray(dt), np.asarray(observed)
        reference, surprise = readable_rotation_step(state, model, R, noise, step, there)
        new, own, _ = _compiled_step(state, model, R, noise, step, there, rotation=True)
        for name in ("frame", "velocity", "uncertainty", "time", "seen", "steps"):
            _agree(getattr(new, name), getattr(reference, name))
        _agree(own.nis, surprise.nis)
        _agree(own.log_likelihood, surprise.log_likelihood)


@pytest.mark.parametrize("d", [1, 2, 5, 7])
def test_the_cold_start_pools_the_same_covariance(d: int) -> None:
    rng = np.random.default_rng(d)
    for known in (None, np.geomspace(3.0, 1.0, d)):
        model = Model(
            gains.information(),
            noise_floor=0.05,
            spectrum_rate=1e-3,
            pool_samples=5.0 * d,
            pool_steps=9.0,
            known_spectrum=known,
        )
        mine = theirs = cold_state(np.zeros((d, d)), model.gains)
        one, there = np.asarray(1.0), np.asarray(True)
        for k in range(3):
            C = _covariance(rng, (d, d), 2 + k)
            theirs, _ = covariance_step(theirs, model, C, 2.0 * one, k * one, there)
            mine, surprise, _ = _compiled_step(mine, model, C, 2.0 * one, k * one, there, False)
            assert np.isnan(surprise.nis)
            assert np.linalg.det(mine.frame) > 0
            for name in (
                "spectrum",
                "spectrum_var",
                "pool",
                "pooled_samples",
                "pooled_steps",
                "time",
            ):
                _agree(getattr(mine, name), getattr(theirs, name))
            if known is None:  # the signs of eigenvectors are free, the covariance is not
                same = orbit.compose(theirs.frame, theirs.spectrum)
                _agree(orbit.compose(mine.frame, mine.spectrum), same)


def test_a_batch_with_laws_of_its_own_equals_its_items() -> None:
    rng = np.random.default_rng(1)
    d, batch = 3, (2, 2)
    number = np.asarray([[1e-5, 1e-4], [1e-3, 1e-2]])
    for law in (
        gains.InformationGains(acceleration=number, retention=1 - number),
        gains.FixedGains(10 * number, number),
    ):
        model = Model(law, 0.0, 1e-3)
        single = _moving_state(rng, d, Model(gains.information()), 0.1)
        state = State(*(np.broadcast_to(v, (*batch, *np.shape(v))).copy() for v in single))
        C, m = _covariance(rng, (*batch, d, d), 4), np.full(batch, 4.0)
        dt, observed = np.full(batch, 1.5), np.asarray([[True, False], [True, True]])
        reference, surprise = covariance_step(state, model, C, m, dt, observed)
        new, own, _ = _compiled_step(state, model, C, m, dt, observed, rotation=False)
        for name in ("frame", "spectrum", "velocity"):
            _agree(getattr(new, name), getattr(reference, name))
        _agree(own.log_likelihood, surprise.log_likelihood)


@pytest.mark.parametrize("law", ["information", "zero_lag"])
def test_fields_are_sorted_together(law: str) -> None:
    rng = np.random.default_rng(3)
    d = 5
    model = Model(LAWS[law](d), 0.0, 1e-3, 1e-3)
    for spectrum in ([4, 3, 2, 1, 0.5], [1, 3, 0.5, 2, 4], [1, 1, 2, 2, 1]):
        state = _moving_state(rng, d, model, 0.1)._replace(spectrum=np.asarray(spectrum, float))
        one, nothing = np.asarray(1.0), np.asarray(False)
        new, _, shown = _compiled_step(state, model, np.zeros((d, d)), one, one, nothing, False)
        frame, size = shown["frame"], np.exp(new.log_scale)
        assert (np.diff(shown["spectrum"]) <= 0).all()
        assert np.linalg.det(frame) > 0
        whole = new.frame * (size * new.spectrum) @ new.frame.T
        _agree(frame * shown["spectrum"] @ frame.T, whole)
        _agree(shown["covariance"], whole)
        # The velocity in space is the same, and angle_std goes with its plane.
        _agree(frame @ shown["velocity"] @ frame.T, new.frame @ new.velocity @ new.frame.T)
        if law == "information":
            order = np.argsort(-new.spectrum, kind="stable")
            _agree(shown["angle_std"] ** 2, new.uncertainty[0][np.ix_(order, order)])
        else:
            assert np.isnan(shown["angle_std"]).all()
    unseen = state._replace(spectrum=np.full(d, np.nan), seen=np.asarray(np.nan))
    shown = _compiled_step(unseen, model, np.zeros((d, d)), one, one, nothing, False)[2]
    assert np.isnan(shown["frame"]).all()
    assert np.isnan(shown["covariance"]).all()


def test_lines_in_any_order_are_their_tracks_one_by_one() -> None:
    rng = np.random.default_rng(4)
    d, n, lines = 3, 11, 200
    model = Model(gains.information(), spectrum_rate=1e-3, pool_samples=9.0, pool_steps=6.0)
    engine = SingleLaw(model, cold_state(np.zeros((d, d)), model.gains))
    which = rng.integers(0, n, lines)
    C, dt = _covariance(rng, (lines, d, d), 4), rng.uniform(0.0, 2.0, lines)
    counts = rng.choice([-1.0, 0.0, 4.0], lines, p=[0.1, 0.2, 0.7])
    C[5] = np.nan
    C[6] = -np.eye(d)
    rows = engine.init(n)
    status, records = engine.advance(rows, Lines(which, C, counts, dt, tolerance=1e-8))
    assert set(status) == {0, 1, 2} or counts[6] <= 0
    for track in range(n):
        these = np.flatnonzero(which == track)
        own = engine.init(1)
        alone = [
            engine.advance(
                own, Lines(np.zeros(1, dtype=int), C[[k]], counts[[k]], dt[[k]], tolerance=1e-8)
            )
            for k in these
        ]
        np.testing.assert_array_equal(own[0], rows[track])
        for k, (found, record) in zip(these, alone, strict=True):
            assert found[0] == status[k]
            np.testing.assert_array_equal(record[0], records[k])


def test_updates_equal_the_filter_and_a_chunked_filter(rng: np.random.Generator) -> None:
    sequence = _covariance(rng, (30, 4, 4), 6)
    sequence[7:11] = np.nan
    for make in (
        lambda: single_law(n_samples=6),
        lambda: KGMRF(n_samples=6, gains="zero_lag", scale_rate=1e-3),
    ):
        whole = make().filter(sequence)
        tracker = make()
        single = [tracker.update(C) for C in sequence]
        again = make()
        pieces = [again.filter(sequence[:9]), again.filter(sequence[9:])]
        for name in whole.fields():
            expected = getattr(whole, name)
            online = np.stack([getattr(e, name) for e in single])
            if name == "covariance":  # put together in another order
                np.testing.assert_allclose(online, expected, rtol=1e-13, atol=1e-15)
            else:
                np.testing.assert_array_equal(online, expected)
            np.testing.assert_array_equal(
                np.concatenate([getattr(piece, name) for piece in pieces]), expected
            )


def test_an_old_estimate_stays_as_it_was(rng: np.random.Generator) -> None:
    tracker = single_law(3, n_samples=5, initial=np.diag([3.0, 2.0, 1.0]))
    first = tracker.update(_covariance(rng, (3, 3), 5))
    twin = tracker.copy().update(_covariance(np.random.default_rng(0), (3, 3), 5))
    second = tracker.update(_covariance(rng, (3, 3), 5))
    before = first.covariance.copy()
    tracker.update(_covariance(rng, (3, 3), 5))
    assert not np.allclose(before, second.covariance)
    np.testing.assert_array_equal(first.covariance, before)
    assert twin.time == second.time


GOOD = np.diag([3.0, 2.0, 1.0])
BAD = {
    "infinite": np.diag([3.0, np.inf, 1.0]),
    "partly NaN": np.diag([3.0, np.nan, 1.0]),
    "asymmetric": GOOD + np.eye(3, k=1),
    "indefinite": np.diag([3.0, 1.0, -0.5]),
    "zero": np.zeros((3, 3)),
    "wrong shape": np.eye(2),
    "three axes": np.ones((1, 3, 3)),
    "complex": GOOD * 1j,
}


@pytest.mark.parametrize("fault", BAD)
def test_the_compiled_door_is_as_strict_as_the_readable_one(fault: str) -> None:
    tracker = single_law(3, n_samples=5)
    tracker.update(GOOD)
    tracker.update(GOOD)
    before = tracker._rows.copy()
    with pytest.raises(ObservationError):
        tracker.update(BAD[fault])
    np.testing.assert_array_equal(tracker._rows, before)
    for wrong in ({"dt": -1.0}, {"dt": np.nan}, {"n_samples": 0}, {"n_samples": np.inf}):
        with pytest.raises(ObservationError):
            tracker.update(GOOD, **wrong)  # type: ignore[arg-type]
    np.testing.assert_array_equal(tracker._rows, before)
    if BAD[fault].shape == (3, 3):
        with pytest.raises(ObservationError):
            single_law(3, n_samples=5).filter(np.stack([GOOD, BAD[fault]]))


def test_invalid_observations_are_skipped_or_repaired_on_the_fast_path_too() -> None:
    for how in ("skip", "repair"):
        tracker = single_law(3, n_samples=5, on_invalid=how)  # type: ignore[arg-type]
        for _ in range(4):
            tracker.update(GOOD)
        estimate = tracker.update(BAD["indefinite"])
        assert estimate.age == (1.0 if how == "skip" else 0.0)
        assert np.isfinite(estimate.covariance).all()


def test_rotations_are_checked_and_projected(rng: np.random.Generator) -> None:
    tracker = RotationTracker(noise_std=0.1, gains="information")
    R = so.exp(_skew(rng, (3, 3), 0.3))
    for _ in range(3):
        tracker.update(R)
    off = R + 3e-7 * rng.standard_normal((3, 3))
    estimate = tracker.update(off)
    assert np.abs(estimate.rotation.T @ estimate.rotation - np.eye(3)).max() < 1e-14
    for wrong in (1.01 * R, -R, np.full((3, 3), np.inf)):
        with pytest.raises(ObservationError):
            tracker.update(wrong)
    result = RotationTracker(noise_std=0.1, gains="information").filter(np.stack([R, R, R, off]))
    np.testing.assert_allclose(result.rotation[-1], estimate.rotation, atol=1e-14)


def test_odd_arrays_take_the_same_way(rng: np.random.Generator) -> None:
    C = _covariance(rng, (3, 3), 7)
    frozen = C.copy()
    frozen.flags.writeable = False
    expected = None
    for same in (C, np.asfortranarray(C), frozen, C.tolist(), np.repeat(C, 2, axis=1)[:, ::2]):
        tracker = single_law(n_samples=7, initial=GOOD)
        tracker.update(C)
        covariance = tracker.update(same, dt=2, n_samples=7).covariance
        expected = covariance if expected is None else expected
        np.testing.assert_array_equal(covariance, expected)


def test_trusted_observations_may_be_missing() -> None:
    tracker = single_law(3, n_samples=5, initial=GOOD)
    tracker.update(GOOD)
    tracker.update(GOOD, assume_valid=True)
    assert tracker.update(np.full((3, 3), np.nan), assume_valid=True).age == 1.0


def test_the_engine_is_chosen_by_dimension_law_and_wish(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model(gains.information())
    assert core_plan(model, 7, (), rotation=False) is not None
    assert core_plan(model, LARGEST + 1, (), rotation=False) is None
    assert core_plan(model, 5, (), rotation=True) is None
    per_plane = Model(gains.FixedGains(0.1, 0.1, retention=np.full((3, 3), 0.9)))
    assert core_plan(per_plane, 3, (), rotation=False) is None
    monkeypatch.setenv("KGMRF_ENGINE", "readable")
    tracker = single_law(n_samples=5)
    tracker.update(GOOD)
    tracker.update(GOOD)
    assert isinstance(tracker._engine.loop._loop, Law)
    assert len(single_law(n_samples=5).filter(np.stack([GOOD] * 3))) == 3
