"""Laws of the transition: drifts compose, and the paper's special cases come out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgmrf import gains
from kgmrf.model.gains import FixedGains, InformationGains, transition

retentions = st.one_of(st.just(1.0), st.floats(0.05, 1.0))
durations = st.floats(0.0, 40.0)


def _apply(law: InformationGains, dt: float, P: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """F and F P F^T + Q written out as 2 x 2 matrices."""
    step = transition(law, np.asarray(dt))
    F = np.array([[1.0, float(step.turn)], [0.0, float(step.coast)]])
    Q = np.array([[step.angle, step.cross], [step.cross, step.rate]], dtype=float)
    return F, F @ P @ F.T + Q


@given(retentions, durations, durations)
def test_two_drifts_are_one(retention: float, first: float, second: float) -> None:
    law = InformationGains(acceleration=2e-3, angle_noise=1e-3, retention=retention)
    P = np.array([[0.3, 0.01], [0.01, 0.02]])
    F1, half = _apply(law, first, P)
    F2, chained = _apply(law, second, half)
    F, whole = _apply(law, first + second, P)
    np.testing.assert_allclose(F2 @ F1, F, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(chained, whole, rtol=1e-8, atol=1e-11)


@given(retentions, durations)
def test_process_noise_is_positive_semidefinite(retention: float, dt: float) -> None:
    step = transition(InformationGains(1.0, retention=retention), np.asarray(dt))
    Q = np.array([[step.angle, step.cross], [step.cross, step.rate]], dtype=float)
    assert np.linalg.eigvalsh(Q)[0] >= -1e-12 * max(1.0, np.abs(Q).max())


def test_noise_of_a_decaying_velocity_matches_a_simulation() -> None:
    """Many small Euler steps of dW = log(rho) W dt + dB, turned at the scale a / (1 - rho)."""
    rho, dt, n = 0.7, 3.0, 6000
    a = -np.log(rho)
    h = dt / n
    P = np.zeros((2, 2))
    F = np.array([[1.0, h * a / (1.0 - rho)], [0.0, 1.0 - a * h]])
    for _ in range(n):
        P = F @ P @ F.T + np.diag([0.0, h])
    step = transition(InformationGains(1.0, retention=rho), np.asarray(dt))
    got = np.array([[step.angle, step.cross], [step.cross, step.rate]], dtype=float)
    np.testing.assert_allclose(got, P, rtol=2e-3)


def test_constant_velocity_limit() -> None:
    step = transition(InformationGains(acceleration=6.0), np.asarray(2.0))
    assert [float(v) for v in step] == [2.0, 1.0, 1.0, 16.0, 12.0, 12.0]


def test_noise_is_continuous_where_the_series_takes_over() -> None:
    dt = np.asarray(1.0)
    for edge in (np.exp(-0.02), 1.0 - 1e-9):
        below, above = (
            transition(InformationGains(1.0, retention=edge * (1 + s * 1e-13)), dt) for s in (-1, 1)
        )
        np.testing.assert_allclose(
            [float(v) for v in below], [float(v) for v in above], rtol=1e-9, atol=1e-12
        )


def test_a_whole_unit_of_time_turns_by_the_velocity_itself() -> None:
    for rho in (0.0, 0.3, 0.95, 1.0, -0.5):
        step = transition(FixedGains(0.0, 0.05, rho, rho), np.asarray(1.0))
        assert float(step.turn) == pytest.approx(1.0, abs=1e-15)
        assert float(step.keep) == float(step.coast) == rho


def test_zero_lag_keeps_the_velocity_with_data_and_loses_it_without() -> None:
    law = gains.zero_lag(coast_retention=0.9)
    step = transition(law, np.asarray([1.0, 3.0]))
    np.testing.assert_allclose(step.keep, [1.0, 0.81])
    np.testing.assert_allclose(step.coast, [0.9, 0.729])


def test_gradients_of_the_transition_are_finite(torch: Any) -> None:
    for rho in (1.0, 1.0 - 1e-10, 0.99, 0.5):
        retention = torch.tensor(rho, dtype=torch.float64, requires_grad=True)
        dt = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
        step = transition(InformationGains(1e-3, retention=retention), dt)
        sum(step).backward()
        assert torch.isfinite(retention.grad)
        assert torch.isfinite(dt.grad)
