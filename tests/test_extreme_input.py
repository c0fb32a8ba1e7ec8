"""Input at the edge of float64: refused with a reason, or taken in without harm to any track."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgmrf import KGMRF, ObservationError, TrackerBank
from kgmrf.constants import LARGEST_SAMPLE
from kgmrf.engines import Lines
from kgmrf.engines.ensemble import Ensemble
from kgmrf.members import Average, Rotating
from kgmrf.readable import ensemble
from kgmrf.stream import Settings, Stream

HUGE = [1e16, 1e19, 1e150, 1e300]


def started(d: int, n: int = 60) -> KGMRF:
    tracker = KGMRF(time_unit=1.0)
    tracker.filter(np.random.default_rng(0).normal(size=(n, d)))
    return tracker


@pytest.mark.parametrize("d", [1, 3, 5])
@pytest.mark.parametrize("dt", HUGE)
def test_steps_beyond_the_reach_of_float64_are_refused(d: int, dt: float) -> None:
    tracker, x = started(d), np.ones(d)
    before = tracker._rows.copy()
    for refused in (
        lambda: tracker.partial_fit(x, dt=dt),
        lambda: tracker.update(np.eye(d), dt=dt, n_samples=5),
        lambda: tracker.update(None, dt=dt),
        lambda: tracker.forecast(dt),
        lambda: tracker.filter(x[None], times=[60.0 + dt]),
    ):
        with pytest.raises(ObservationError, match="usual interval"):
            refused()
    np.testing.assert_array_equal(tracker._rows, before)
    bank = TrackerBank(3, d, time_unit=1.0)
    for _ in range(3):
        bank.update(np.ones((3, d)))
    before = bank._rows.copy()
    for refused in (
        lambda: bank.update(np.ones((3, d)), dt=np.array([1.0, dt, 1.0])),
        lambda: bank.feed([0, 1], np.ones((2, d)), dt=np.array([1.0, dt])),
        lambda: bank.forecast(dt),
    ):
        with pytest.raises(ObservationError, match="usual interval"):
            refused()
    np.testing.assert_array_equal(bank._rows, before)


@pytest.mark.parametrize("dt", [1e9, 1e12, 1e15])
def test_the_longest_steps_leave_a_state_that_loads(dt: float, tmp_path: Path) -> None:
    bank, g = TrackerBank(4, 3), np.random.default_rng(1)
    alone = TrackerBank(4, 3)
    for _ in range(30):
        x = g.normal(size=(4, 3))
        bank.update(x), alone.update(x)
    bank.update(x, dt=np.array([1.0, dt, 1.0, 1.0]))
    alone.update(x)
    assert np.isfinite(bank.forecast(dt).covariance).all()
    for _ in range(5):
        x = g.normal(size=(4, 3))
        bank.update(x), alone.update(x)
    assert np.isfinite(bank.estimate().covariance).all()
    others = [0, 2, 3]  # tracks never see what happens to one another
    np.testing.assert_array_equal(bank._rows[others], alone._rows[others])
    bank.save(tmp_path / "bank.npz")
    TrackerBank.load(tmp_path / "bank.npz")


@pytest.mark.parametrize("count", [5e-324, 1e-300, 1e-9, 1e16, 1e155, 1e300])
def test_counts_that_no_matrix_has_are_refused(count: float) -> None:
    with pytest.raises(ObservationError, match="n_samples must lie between"):
        KGMRF(3, n_samples=count)
    tracker = KGMRF(3, n_samples=5)
    for _ in range(3):
        tracker.update(np.eye(3))
    with pytest.raises(ObservationError, match="n_samples must lie between"):
        tracker.update(np.eye(3), n_samples=count)
    with pytest.raises(ObservationError, match="n_samples"):
        TrackerBank(1, 3).feed([0], np.eye(3)[None], dt=np.ones(1), n_samples=np.array([count]))


def test_a_line_with_an_impossible_count_is_one_bad_line(tmp_path: Path) -> None:
    """It went into the state, which could not be read again: all tracks were lost."""
    lines: list[dict[str, Any]] = [
        {"key": "a", "time": k, "covariance": [[1, 0], [0, 1]], "n_samples": 5} for k in range(6)
    ]
    lines[3]["n_samples"] = 1e155
    stream = Stream(Settings(on_error="skip"))
    out = stream.take([json.dumps(line).encode() for line in lines])
    assert len(out.splitlines()) == 5
    assert stream.counts.bad == 1
    stream.save(tmp_path / "state.npz")
    Stream(Settings(on_error="skip")).restore(tmp_path / "state.npz")


@pytest.mark.parametrize("size", [1.0, 9e74, LARGEST_SAMPLE])
@pytest.mark.parametrize("n", [1, 2, 5, 40])
def test_the_largest_samples_leave_a_state_that_loads(size: float, n: int, tmp_path: Path) -> None:
    for first in (0, 20):
        bank = TrackerBank(1, 3)
        for x in np.random.default_rng(0).normal(size=(first, 3)):
            bank.update(x[None])
        for _ in range(n):
            bank.update(np.full((1, 3), size))
        bank.save(tmp_path / "bank.npz")
        TrackerBank.load(tmp_path / "bank.npz")


@pytest.mark.parametrize("seed", range(8))
def test_no_sizes_in_any_order_make_a_row_that_cannot_be_read(seed: int) -> None:
    g = np.random.default_rng(seed)
    for d in (1, 2, 3, 5):
        engine = Ensemble(d)
        for matrix in (False, True):
            size = 10.0 ** g.choice([-149.0, -100.0, -5.0, 0.0, 0.0, 5.0, 100.0, 149.0], 60)
            rows, m = engine.init(1), 2 * d if matrix else 1
            x = g.normal(size=(60, m, d)) * np.sqrt(size)[:, None, None] / 3.0
            x[0] = 1.0 + g.random((m, d))
            x[1:][g.random(59) < 0.2, :, 0] *= 1e-30
            counts = 10.0 ** g.uniform(-2.0, 15.0, 60) if matrix else np.ones(60)
            values = np.swapaxes(x, 1, 2) @ x / m if matrix else x
            dt = 10.0 ** g.choice([-300.0, 0.0, 3.0, 15.0], 60)
            lines = Lines(np.zeros(60, np.int64), values, counts, dt, matrix)
            _, records = engine.advance(rows, lines)
            engine.check(rows)
            assert np.isfinite(records[-1, engine.small :]).all()


@pytest.mark.parametrize("name", ["spectrum_rate", "scale_rate", "noise_floor"])
def test_infinite_settings_are_refused(name: str) -> None:
    words: dict[str, Any] = {name: np.inf}
    with pytest.raises(ValueError, match=name):
        KGMRF(gains="information", **words)


def test_members_with_absurd_numbers_are_refused() -> None:
    for make in (
        lambda: Ensemble(2, (Rotating(1e300),)),
        lambda: Ensemble(2, (Rotating(1e-6, spectrum_rate=np.inf),)),
        lambda: Ensemble(2, (Average(4.0, prior=1e300),)),
        lambda: Ensemble(2, (Average(np.nan),)),
    ):
        with pytest.raises(ValueError, match="must be positive"):
            make()


@pytest.mark.parametrize("size", [5e-324, 1e-200, 1e-3, 1e70])
def test_quaternions_of_any_length_but_zero(size: float) -> None:
    """One of 1e-200, or without numbers, stopped a stream that was to skip bad lines."""
    turned = [0.0, 0.0, size, size]
    lines = [[0, 0, 1, 1], turned, [0, 0, 0, 0], turned, [None] * 4, [1e200] * 4]
    stream = Stream(Settings(on_error="skip", fields=("rotation",)))
    out = stream.take([json.dumps({"quaternion": line}).encode() for line in lines])
    found = [json.loads(line)["rotation"] for line in out.splitlines()]
    np.testing.assert_allclose(found, [[[0, -1, 0], [1, 0, 0], [0, 0, 1]]] * 4, atol=1e-6)
    assert stream.counts.bad == 2


@pytest.mark.parametrize("law", ["information", "zero_lag", "printed"])
@pytest.mark.parametrize(("d", "m", "decades"), [(3, 1, 0), (8, 1, 0), (4, 1, 7), (3, 6, 7)])
def test_a_likelihood_is_that_of_the_density(law: str, d: int, m: int, decades: int) -> None:
    """They differed by up to half a nat: the density was a t of 1e8 degrees of freedom."""
    g = np.random.default_rng(0)
    x = g.normal(size=(60, m, d)) * 10.0 ** -np.linspace(0.0, decades, d)
    tracker = KGMRF(gains=law, n_samples=m)
    for k, samples in enumerate(x):
        density = tracker.forecast(1).density if k > 3 else None
        found = tracker.update(samples.T @ samples / m).log_likelihood
        if density is not None and np.isfinite(found):
            expected = density.log_density(samples).sum()
            np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-9)


@pytest.mark.parametrize("error", [IndexError, MemoryError, KeyboardInterrupt])
def test_any_error_leaves_a_bank_as_it_was(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An IndexError left it half moved."""
    monkeypatch.setenv("KGMRF_ENGINE", "readable")
    bank, x = TrackerBank(3, 2), np.random.default_rng(0).normal(size=(9, 3, 2))
    for row in x[:5]:
        bank.update(row)
    before, step, calls = bank._rows.copy(), ensemble.step, []

    def fails(*given: Any, **more: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise error("the third track")
        return step(*given, **more)

    with monkeypatch.context() as broken:
        broken.setattr(ensemble, "step", fails)
        with pytest.raises(error):
            bank.update(x[5])
    np.testing.assert_array_equal(bank._rows, before)
    bank.update(x[5])
    assert not (bank._rows == before).all()
