"""The lemmas about the torque: exact constants against simulation."""

from __future__ import annotations

import numpy as np
import pytest

from kgmrf import theory, wishart
from kgmrf.geometry import orbit, so


@pytest.mark.parametrize("d", [2, 3, 5])
def test_wishart_second_moment_and_torque_variance(d):
    rng = np.random.default_rng(d)
    m, floor = 6, 0.2
    lam = np.sort(rng.uniform(0.3, 4.0, d))[::-1]
    q = so.exp(so.hat(0.5 * rng.standard_normal(d * (d - 1) // 2)))
    truth = orbit.compose(q, lam) + floor * np.eye(d)  # seen from the estimate's eigenframe
    seen = wishart.sample(np.broadcast_to(truth, (150_000, d, d)), m, rng)
    left, right = rng.standard_normal((2, 3, d))
    spread = left @ (seen - truth) @ right.T
    found = theory.wishart_second_moment(left, truth, right.T, m)
    assert found == pytest.approx((spread**2).sum((-1, -2)).mean(), rel=0.02)
    tau = orbit.torque(np.broadcast_to(np.diag(lam), seen.shape), seen, floor)
    off = tau - orbit.torque(np.diag(lam), truth, floor)
    found = theory.torque_variance(lam, m, noise_floor=floor, truth=truth)
    assert found == pytest.approx((off**2).sum((-1, -2)).mean(), rel=0.02)
    printed = 4 / (lam[-1] + floor) ** 4 * lam[0] ** 2
    printed *= (truth**2).sum() + np.trace(truth) ** 2
    assert found < printed / m


def test_the_torque_is_one_commutator():
    rng = np.random.default_rng(0)
    m, c = (x @ x.T for x in rng.standard_normal((2, 4, 4)))
    inverse = np.linalg.inv(m + 0.3 * np.eye(4))
    assert np.allclose(orbit.torque(m, c, 0.3), inverse @ c - c @ inverse)


@pytest.mark.parametrize("d", [2, 3, 4])
def test_the_torque_is_lipschitz_with_this_constant(d):
    rng = np.random.default_rng(d)
    lam = np.linspace(3.0, 0.5, d)
    worst = 0.0
    for _ in range(300):
        c = rng.standard_normal((d, d))
        c = c @ c.T
        limit = theory.torque_lipschitz(c, lam, noise_floor=0.1)
        step = so.hat(rng.standard_normal(d * (d - 1) // 2) * rng.choice([1e-4, 1.0]))
        q = so.exp(so.hat(rng.standard_normal(d * (d - 1) // 2)))
        pair = [orbit.torque(orbit.compose(x, lam), c, 0.1) for x in (q, so.exp(step) @ q)]
        change = np.linalg.norm(pair[1] - pair[0]) / np.linalg.norm(step)
        assert change <= limit * (1 + 1e-6)
        worst = max(worst, change / limit)
    if d == 2:
        assert worst > 0.95


def test_the_printed_lipschitz_constant_depends_on_the_units():
    """Torques do not change when all covariances are scaled; the printed constant does."""
    c, lam = np.diag([3.0, 1.0]), np.array([2.0, 0.5])
    values = [theory.torque_lipschitz(s * c, s * lam) for s in (1.0, 100.0)]
    assert values[0] == pytest.approx(values[1])
    printed = [np.linalg.norm(s * c) / (s * lam[-1]) ** 3 for s in (1.0, 100.0)]
    assert printed[1] < 1e-3 * printed[0]
    assert printed[1] < values[1]
