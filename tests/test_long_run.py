"""Long runs: the orbit and the frame are kept to rounding."""

from __future__ import annotations

import numpy as np
import pytest

from kgmrf import KGMRF, gains, simulate


@pytest.mark.parametrize("rounds", [100, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("law", [gains.information(1e-6), gains.zero_lag()])
def test_a_million_frames_stay_on_the_orbit(law: gains.Gains, rounds: int) -> None:
    lam = np.array([8.0, 4.0, 2.0, 1.0, 0.5])
    seen = np.random.default_rng(0).random(1000) < 0.7  # updating and coasting mixed
    scene = simulate.rotating_covariance(
        5, rate=0.05, spectrum=lam, n_frames=1000, n_samples=8, observed=seen, rng=1
    )
    tracker = KGMRF(gains=law, spectrum="fixed", initial=np.diag(lam), n_samples=8)
    for _ in range(rounds):
        result = tracker.filter(scene.observations)
    assert float(result.time[-1]) == 1000.0 * rounds - 1.0
    values = np.linalg.eigvalsh(result.covariance)[:, ::-1]
    np.testing.assert_allclose(values, np.broadcast_to(lam, values.shape), atol=1e-12 * lam[0])
    defect = result.frame.swapaxes(-1, -2) @ result.frame - np.eye(5)
    assert np.abs(defect).max() < 1e-13
    if isinstance(law, gains.InformationGains):
        p11, p12, p22 = tracker.engine().state(tracker._rows)[0].uncertainty[0]
        off = ~np.eye(5, dtype=bool)
        assert (p11 * p22 > p12**2)[off].all()
