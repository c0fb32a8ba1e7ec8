"""How many samples a matrix is worth, where that is learned: n_samples="learned"."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgmrf import KGMRF, TrackerBank, load
from kgmrf._check import ObservationError
from kgmrf.geometry import orbit

MIXING = np.array([[2.0, 0.3, 0.0], [0.0, 1.0, 0.5], [0.0, 0.0, 0.5]])


def white(n: int, m: int, seed: int = 0) -> np.ndarray:
    """Blocks ``(n, m, 3)`` of independent rows."""
    return np.random.default_rng(seed).normal(size=(n, m, 3)) @ MIXING


def averaged(n: int, m: int, over: int, seed: int = 0) -> np.ndarray:
    """The same of a moving average: each row is close to the last."""
    rows = np.random.default_rng(seed).normal(size=(n * m + over - 1, 3)) @ MIXING
    rows = np.apply_along_axis(np.convolve, 0, rows, np.ones(over) / np.sqrt(over), "valid")
    return rows.reshape(n, m, 3)


def moments(blocks: np.ndarray) -> np.ndarray:
    return np.swapaxes(blocks, -1, -2) @ blocks / blocks.shape[-2]


def test_white_noise_is_worth_its_samples() -> None:
    blocks = white(600, 256)
    free = KGMRF(n_samples="learned").filter(moments(blocks))
    assert free.effective_samples[-300:].mean() == pytest.approx(256.0, rel=0.12)
    told = KGMRF(n_samples="learned").filter(moments(blocks), n_samples=256)
    assert (told.effective_samples <= 256.0).all()
    assert told.effective_samples[-300:].mean() > 200.0
    raw = KGMRF(n_samples="learned").filter(blocks, samples=True)
    np.testing.assert_allclose(raw.effective_samples, told.effective_samples, rtol=1e-6)
    np.testing.assert_allclose(raw.covariance, told.covariance, rtol=1e-6, atol=1e-9)


def test_rows_that_predict_each_other_are_worth_few() -> None:
    # Of a moving average over k rows, m rows are worth about m / (2 k/3).
    found = KGMRF(n_samples="learned").filter(averaged(600, 256, 24), samples=True)
    assert 8.0 < found.effective_samples[-300:].mean() < 32.0


def test_the_size_does_not_count() -> None:
    g = np.random.default_rng(1)
    blocks = white(500, 64) * np.exp(g.normal(size=(500, 1, 1)))
    found = KGMRF(n_samples="learned").filter(blocks, samples=True)
    assert found.effective_samples[-200:].mean() > 48.0


def test_singular_matrices_are_taken() -> None:
    blocks = white(400, 2)  # rank 2 of 3
    found = KGMRF(n_samples="learned").filter(moments(blocks))
    assert np.isfinite(found.log_likelihood[1:]).all()
    assert found.effective_samples[-200:].mean() < 6.0


def test_uncertainty_and_surprise_are_those_of_so_few() -> None:
    """Counting rows that predict each other, axes are too sure of themselves, nothing surprises,
    and the shape of the covariance follows noise."""
    truth = MIXING.T @ MIXING
    axes = orbit.decompose(truth)[0]

    def measured(tracker: Any, seed: int) -> np.ndarray:
        late = tracker.filter(averaged(600, 128, 24, seed), samples=True)[200:]
        angle = (np.swapaxes(axes, 0, 1) @ late.frame)[:, 1, 0]
        size = np.trace(late.covariance, axis1=1, axis2=2) / np.trace(truth)
        error = np.linalg.norm(late.covariance / size[:, None, None] - truth, axis=(1, 2)).mean()
        squared = ((angle / late.angle_std[:, 1, 0]) ** 2).mean()
        return np.array([squared, np.mean(late.p_value < 0.05), error])

    learned = np.mean([measured(KGMRF(n_samples="learned"), k) for k in range(4)], axis=0)
    counted = np.mean([measured(KGMRF(), k) for k in range(4)], axis=0)
    assert learned[0] < 2.0 < 8.0 < counted[0]  # 1 would be exact
    assert counted[1] < 0.02 < 0.035 < learned[1] < 0.08  # .05 would be exact
    assert learned[2] < 0.85 * counted[2]


@pytest.mark.parametrize("rate", [0.02, 0.08])
def test_axes_turn_as_well_as_with_the_right_number(rate: float) -> None:
    angle, m = rate * np.arange(800), 8
    turn = np.stack([np.cos(angle), -np.sin(angle), np.sin(angle), np.cos(angle)], -1)
    turn = turn.reshape(-1, 2, 2)
    truth = turn @ np.diag([4.0, 0.5]) @ np.swapaxes(turn, 1, 2)
    x = np.random.default_rng(6).normal(size=(800, m, 2, 1))
    C = moments((np.linalg.cholesky(truth)[:, None] @ x)[..., 0])

    def error(n_samples: Any, claimed: float) -> float:
        found = KGMRF(n_samples=n_samples).filter(C, n_samples=claimed).covariance[200:]
        return float(np.linalg.norm(found - truth[200:], axis=(1, 2)).mean())

    assert error("learned", 800.0) < 1.1 * error(None, 8.0)
    assert error("learned", 800.0) < 0.5 * error(None, 800.0)
    found = KGMRF(n_samples="learned").filter(C)
    assert found.effective_samples[200:].mean() == pytest.approx(8.0, rel=0.15)


def test_missing_cells_say_nothing_of_it() -> None:
    blocks = white(60, 32)
    tracker = KGMRF(n_samples="learned")
    before = tracker.filter(blocks, samples=True).effective_samples[-1]
    holes = averaged(60, 32, 24)
    holes[:, 0, 1] = np.nan
    assert (tracker.filter(holes, samples=True).effective_samples == before).all()


def test_a_row_is_a_sample() -> None:
    rows = white(300, 1)[:, 0]
    plain, learned = KGMRF().filter(rows), KGMRF(n_samples="learned").filter(rows)
    for name in plain.fields():
        assert np.array_equal(getattr(plain, name), getattr(learned, name), equal_nan=True), name
    assert (learned.effective_samples == 1.0).all()


def test_chunks_files_and_banks_know_the_same(tmp_path: Path) -> None:
    C = moments(averaged(80, 32, 8))
    whole = KGMRF(n_samples="learned").filter(C)
    tracker = KGMRF(n_samples="learned")
    tracker.filter(C[:40])
    tracker.save(tmp_path / "state.npz")
    again = load(tmp_path / "state.npz")
    assert again.n_samples == "learned"
    late = again.filter(C[40:])
    for name in ("covariance", "effective_samples", "log_likelihood", "angle_std"):
        assert np.array_equal(getattr(late, name), getattr(whole, name)[40:]), name
    assert again.estimate().effective_samples == whole.effective_samples[-1]
    assert again.forecast(3).effective_samples == whole.effective_samples[-1]

    bank = TrackerBank(2, 3, n_samples="learned")
    for matrix in C:
        bank.update(np.stack([matrix, 2.0 * matrix]))
    bank.save(tmp_path / "bank.npz")
    found = TrackerBank.load(tmp_path / "bank.npz").estimate()
    assert found.effective_samples[0] == whole.effective_samples[-1]
    np.testing.assert_allclose(found.covariance[0], whole.covariance[-1], rtol=1e-12)
    assert found.effective_samples[1] == pytest.approx(found.effective_samples[0], rel=1e-6)


def test_estimates_without_it_have_no_such_field() -> None:
    assert "effective_samples" not in KGMRF(n_samples=8).filter(moments(white(5, 8))).fields()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_samples": "many"}, "a number or"),
        ({"n_samples": "learned", "gains": "information"}, 'needs gains="auto"'),
        ({"n_samples": "learned", "rank": 3}, "no factors"),
        ({"n_samples": "learned", "d": 1}, "two channels"),
    ],
)
def test_what_does_not_go_together(settings: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        KGMRF(**settings)


def test_one_channel_and_many_channels_are_refused() -> None:
    with pytest.raises(ValueError, match="two channels"):
        KGMRF(n_samples="learned").update([[1.0]])
    with pytest.raises(ObservationError, match="rank=None"):
        KGMRF(n_samples="learned").filter(np.ones((3, 80, 70)), samples=True)
