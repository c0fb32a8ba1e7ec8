"""Data that do not vary, and threads that share a tracker: no lost update, no broken state."""

from __future__ import annotations

import copy
import pickle
import sys
import threading
from typing import Any

import numpy as np
import pytest

from kgmrf._threads import OneAtATime
from kgmrf.bank import TrackerBank
from kgmrf.baselines import (
    AlphaBeta,
    EuclideanEMA,
    HoldLast,
    LogEuclideanEMA,
    RiemannianEMA,
    TangentKalman,
)
from kgmrf.trackers import KGMRF, KineticGaussian, ProductTracker, RotationTracker, VectorTracker

SINGULAR = ("constant", "zero", "duplicate", "tiny", "all zero", "all constant", "zeros first")


def samples(what: str, n: int = 90, seed: int = 0) -> Any:
    x = np.random.default_rng(seed).normal(size=(n, 3))
    if what == "constant":
        x[:, 1] = 5.0
    elif what == "zero":
        x[:, 1] = 0.0
    elif what == "duplicate":
        x[:, 2] = x[:, 1]
    elif what == "tiny":
        x[:, 1] *= 1e-9
    elif what == "all zero":
        x[:] = 0.0
    elif what == "all constant":
        x[:] = 3.0
    elif what == "zeros first":
        x[:30] = 0.0
    return x


def memory(tracker: Any) -> dict[str, bytes]:
    return {name: np.asarray(value).tobytes() for name, value in tracker.state_dict().items()}


@pytest.mark.parametrize("what", SINGULAR)
def test_a_gaussian_of_samples_that_do_not_vary(what: str) -> None:
    """A channel that does not vary was a LinAlgError, with the state of the mean changed."""
    rows = samples(what)
    tracker = KineticGaussian(covariance=EuclideanEMA(gain=0.1))
    result = tracker.filter(rows)
    assert np.isfinite(result.mean).all()
    assert np.isfinite(result.covariance[5:]).all()
    still = np.ptp(rows, axis=0) == 0
    np.testing.assert_allclose(result.mean[-1][still], rows[-1][still], atol=1e-9)
    assert np.abs(result.mean[-1] - rows.mean(axis=0)).max() < 3.0
    row_by_row = KineticGaussian(covariance=EuclideanEMA(gain=0.1))
    for row in rows:
        last = row_by_row.update(row)
    np.testing.assert_allclose(last.mean, result.mean[-1], atol=1e-9)
    # And ordinary data afterwards are followed as ever.
    after = tracker.filter(samples("plain", 200, 1) + 10.0)
    assert np.abs(after.mean[-1] - 10.0).max() < 3.0


def test_a_covariance_tracker_that_refuses_changes_nothing() -> None:
    tracker = KineticGaussian(covariance=RiemannianEMA())
    blocks = np.random.default_rng(0).normal(size=(30, 8, 3))
    tracker.filter(blocks)
    before = memory(tracker)
    flat = blocks[0].copy()
    flat[:, 1] = 0.0
    flat[:, 2] = 0.0
    for _ in range(2):
        with pytest.raises(ValueError, match="full rank"):
            tracker.covariance.update(np.diag([1.0, 0.0, 0.0]))
        assert memory(tracker) == before

    class Refuses(EuclideanEMA):
        def advance(self, *_: Any) -> None:
            raise ValueError("no")

    tracker = KineticGaussian(covariance=EuclideanEMA())
    tracker.filter(blocks)
    before = memory(tracker)
    tracker.covariance.__class__ = Refuses
    with pytest.raises(ValueError, match="no"):
        tracker.update(blocks[0])
    tracker.covariance.__class__ = EuclideanEMA
    assert memory(tracker) == before


@pytest.mark.parametrize("kind", [LogEuclideanEMA, RiemannianEMA, TangentKalman])
@pytest.mark.parametrize("what", SINGULAR[:-1])
def test_a_logarithm_of_singular_samples_is_refused_and_forgotten(kind: Any, what: str) -> None:
    """Singular samples were a LinAlgError, and normal data failed after them."""
    good = np.random.default_rng(3).normal(size=(20, 6, 3))
    tracker, other = kind(), kind()
    for block in good[:10]:
        tracker.partial_fit(block)
        other.partial_fit(block)
    before = memory(tracker)
    if what not in ("constant", "all constant"):
        with pytest.raises(ValueError, match="full rank"):
            tracker.partial_fit(samples(what, 6))
        with pytest.raises(ValueError, match="full rank"):
            tracker.filter(np.stack([good[10], samples(what, 6)]), samples=True)
        assert memory(tracker) == before
    for block in good[10:]:
        found, expected = tracker.partial_fit(block), other.partial_fit(block)
    np.testing.assert_array_equal(found.covariance, expected.covariance)
    skipping = kind(on_invalid="skip")
    skipping.partial_fit(good[0])
    assert np.isfinite(skipping.partial_fit(samples("duplicate", 6)).covariance).all()


@pytest.mark.parametrize("kind", [EuclideanEMA, HoldLast, AlphaBeta])
@pytest.mark.parametrize("what", SINGULAR)
def test_other_baselines_take_singular_samples(kind: Any, what: str) -> None:
    tracker = kind()
    for row in samples(what):
        found = tracker.partial_fit(row)
    assert np.isfinite(found.covariance).all()
    assert np.isfinite(tracker.partial_fit(samples("plain", 6)).covariance).all()


def test_samples_with_holes_that_cannot_be_filled_change_nothing() -> None:
    tracker = RiemannianEMA()
    tracker.partial_fit(np.random.default_rng(0).normal(size=(6, 3)))
    before = memory(tracker)
    holes = np.zeros((6, 3))
    holes[:, 0] = np.nan
    try:
        tracker.partial_fit(holes)
    except ValueError:
        assert memory(tracker) == before


# ---------------------------------------------------------------------- threads


def shared(call: Any, threads: int, times: int) -> list[BaseException]:
    """Many calls from many threads, switching often."""
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for k in range(times):
                call(number, k)
        except BaseException as error:
            errors.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        workers = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    finally:
        sys.setswitchinterval(interval)
    return errors


@pytest.mark.parametrize(
    "make",
    [
        lambda: KineticGaussian(2, covariance=EuclideanEMA()),
        EuclideanEMA,
        RiemannianEMA,
        KGMRF,
        lambda: KGMRF(gains="information"),
    ],
)
def test_threads_that_share_a_tracker_lose_no_update(make: Any) -> None:
    """Updates from eight threads were lost."""
    tracker = make()
    blocks = np.random.default_rng(0).normal(size=(40, 5, 2))

    def call(number: int, k: int) -> None:
        tracker.partial_fit(blocks[k])
        if number == 0:
            assert np.isfinite(tracker.forecast(1.0).covariance).all()
            tracker.copy()

    assert not shared(call, 8, 40)
    assert tracker.now == 8 * 40 - 1  # one unit of time per update, the first at 0
    estimate = tracker.forecast(0.0)
    assert np.isfinite(estimate.covariance).all()


def test_threads_that_share_a_tracker_of_rotations_or_vectors_lose_no_update() -> None:
    pose = ProductTracker({"turn": RotationTracker(), "place": VectorTracker(noise_std=1.0)})

    def call(number: int, k: int) -> None:
        pose.update({"turn": np.eye(3), "place": [float(k)]})
        if number == 0:
            pose.forecast(1.0)

    assert not shared(call, 4, 20)
    assert pose.now == 4 * 20 - 1
    assert [part.now for part in pose.components.values()] == [79, 79]


@pytest.mark.parametrize("samples", [True, False])
def test_threads_that_share_a_bank_lose_no_update(samples: bool) -> None:
    bank = TrackerBank(3, 2, n_samples=None if samples else 5)
    rows = np.random.default_rng(0).normal(size=(20, 3, 2))
    seen = rows if samples else np.eye(2) + rows[..., :, None] * rows[..., None, :]

    def call(number: int, k: int) -> None:
        bank.update(seen[k])
        if number == 0:
            assert np.isfinite(bank.copy().forecast(1.0).covariance).all()

    assert not shared(call, 6, 20)
    np.testing.assert_array_equal(bank.time, 6 * 20 - 1)


def test_a_guard_is_not_shared_with_copies() -> None:
    tracker = KineticGaussian(2, covariance=EuclideanEMA())
    tracker.update([1.0, 2.0])
    bank = TrackerBank(1, 2)
    bank.update([[1.0, 2.0]])
    others = [copy.deepcopy(tracker), tracker.copy(), pickle.loads(pickle.dumps(tracker))]
    others += [bank.copy(), bank.select([0]), pickle.loads(pickle.dumps(bank))]
    for other in others:
        with tracker.__dict__["_guard"], bank.__dict__["_guard"]:
            x = [[1.0, 2.0]] if isinstance(other, TrackerBank) else [1.0, 2.0]
            worker = threading.Thread(target=other.update, args=(x,))
            worker.start()
            worker.join(timeout=20)
            assert not worker.is_alive()


def test_a_guard_keeps_every_count() -> None:
    class Guarded(OneAtATime):
        total = 0

        def add(self) -> None:
            total = self.total
            for _ in range(50):
                pass
            self.total = total + 1

    some = Guarded()
    assert not shared(lambda *_: some.add(), 8, 300)
    assert some.total == 2400
