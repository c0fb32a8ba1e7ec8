"""The rigid body behind the paper: what conserves what."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgmrf.geometry import orbit, so
from kgmrf.theory import mechanics
from kgmrf.theory.mechanics import Body, Phase

SPECTRA = {2: (2.0, 0.5), 3: (4.0, 2.0, 0.5), 4: (8.0, 4.0, 2.0, 0.5), 5: (9.0, 6.0, 4.0, 2.0, 0.5)}
GENUINE = (mechanics.plane_split_step, mechanics.variational_step)


def skew(rng, d, size=1.0):
    return size * so.hat(rng.standard_normal(d * (d - 1) // 2))


def scene(d, seed, speed=0.5, stiffness=1.0):
    rng = np.random.default_rng(seed)
    spectrum = np.array(SPECTRA[d])
    target = orbit.compose(so.exp(skew(rng, d)), spectrum + 0.1)
    body = Body(spectrum, target, 0.1, stiffness)
    return Phase(so.exp(skew(rng, d)), body.inertia * skew(rng, d, speed)), body


def largest_wander(step, state, body, dt, n_steps):
    start = mechanics.energy(state, body)
    wander = 0.0
    for _ in range(n_steps):
        state = step(state, body, dt)
        wander = max(wander, abs(mechanics.energy(state, body) - start))
    return wander / start


@pytest.mark.parametrize("d", [2, 3, 5])
def test_the_torque_is_minus_the_slope_of_the_potential(d):
    state, body = scene(d, 1)
    still = state._replace(momentum=np.zeros((d, d)))
    x, h = skew(np.random.default_rng(2), d), 1e-6

    def potential(t):
        return mechanics.energy(still._replace(frame=still.frame @ so.exp(t * x)), body)

    slope = (potential(h) - potential(-h)) / (2 * h)
    assert slope == pytest.approx(-0.5 * np.sum(body.torque(still.frame) * x), rel=1e-6)
    spatial = orbit.torque(orbit.compose(still.frame, np.array(SPECTRA[d])), body.observation, 0.1)
    assert np.allclose(still.frame @ body.torque(still.frame) @ still.frame.T, spatial)


@pytest.mark.parametrize("d", [2, 3, 4, 5])
@pytest.mark.parametrize("step", GENUINE)
@pytest.mark.parametrize("dt", [0.05, 1.0])
def test_the_genuine_integrators_are_symplectic(d, step, dt):
    state, body = scene(d, d, speed=0.3)
    assert mechanics.symplectic_defect(lambda z: step(z, body, dt), state) < 1e-12


@pytest.mark.parametrize("strang", [False, True])
def test_the_printed_step_is_symplectic_in_the_plane_only(strang):
    def defect(d, body=None):
        state, usual = scene(d, d)
        body = body or usual
        return mechanics.symplectic_defect(
            lambda z: mechanics.printed_step(z, body, 0.05, strang=strang), state
        )

    assert defect(2) < 1e-14
    for d in (3, 4, 5):
        assert defect(d) > 1e-2


def test_the_printed_step_preserves_volume():
    for d in (2, 3, 4):
        state, body = scene(d, d)
        n = d * (d - 1) // 2
        basis, h = so.hat(np.eye(n)), 1e-30
        columns = []
        for k in range(2 * n):
            xi = basis[k] if k < n else 0 * basis[0]
            delta = basis[k - n] if k >= n else 0 * basis[0]
            start = Phase(state.frame @ (np.eye(d) + 1j * h * xi), state.momentum + 1j * h * delta)
            end = mechanics.printed_step(start, body, 0.3)
            turned = so.vee(end.frame.real.T @ end.frame.imag / h)
            columns.append(np.concatenate([turned, so.vee(end.momentum.imag / h)]))
        assert np.linalg.det(np.array(columns)) == pytest.approx(1.0, abs=1e-10)


@pytest.mark.parametrize("d", [2, 3, 4, 5])
@pytest.mark.parametrize("step", [*GENUINE, mechanics.printed_step])
def test_energy_is_nearly_conserved_in_every_dimension(d, step):
    state, body = scene(d, 7)
    assert largest_wander(step, state, body, 0.05, 1500) < 0.1
    coarse = largest_wander(step, state, body, 0.05, 300)
    fine = largest_wander(step, state, body, 0.025, 600)
    assert fine < 0.75 * coarse  # it shrinks with the time step: an error of the step, not a leak


@pytest.mark.parametrize("step", GENUINE)
def test_without_a_pull_the_spatial_momentum_stays(step):
    state, body = scene(5, 3, speed=0.2, stiffness=0.0)
    start = state.frame @ state.momentum @ state.frame.T
    for _ in range(200):
        state = step(state, body, 0.5)
    assert np.allclose(state.frame @ state.momentum @ state.frame.T, start, atol=1e-11)


def flow(state, body, time, euler):
    """The exact motion, by many small Runge-Kutta steps; without the Euler term on request."""

    def slope(q, p):
        w = p / body.inertia
        return q @ w, euler * (p @ w - w @ p) + body.torque(q)

    n = 200
    h = time / n
    q, p = state
    for _ in range(n):
        k1 = slope(q, p)
        k2 = slope(q + h / 2 * k1[0], p + h / 2 * k1[1])
        k3 = slope(q + h / 2 * k2[0], p + h / 2 * k2[1])
        k4 = slope(q + h * k3[0], p + h * k3[1])
        q = q + h / 6 * (k1[0] + 2 * k2[0] + 2 * k3[0] + k4[0])
        p = p + h / 6 * (k1[1] + 2 * k2[1] + 2 * k3[1] + k4[1])
    return Phase(q, p)


@pytest.mark.parametrize(
    ("step", "euler", "order"),
    [
        (mechanics.plane_split_step, True, 3),
        (mechanics.variational_step, True, 2),
        (mechanics.printed_step, False, 2),
        (mechanics.printed_step, True, 1),  # it leaves out the Euler term
    ],
)
def test_local_order(step, euler, order):
    state, body = scene(3, 11)
    misses = []
    for dt in (0.02, 0.01):
        exact, found = flow(state, body, dt, euler), step(state, body, dt)
        misses.append(max(np.abs(a - b).max() for a, b in zip(exact, found, strict=True)))
    assert np.log2(misses[0] / misses[1]) == pytest.approx(order, abs=0.25)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([2, 3, 4]))
def test_frames_stay_rotations_and_batches_equal_their_items(seed, d):
    one, body = scene(d, seed, speed=0.3)
    two, _ = scene(d, seed + 1, speed=0.3)
    both = Phase(*(np.stack(pair) for pair in zip(one, two, strict=True)))
    for step in (*GENUINE, mechanics.printed_step):
        moved = step(both, body, 0.1)
        assert np.allclose(np.swapaxes(moved.frame, -1, -2) @ moved.frame, np.eye(d), atol=1e-12)
        alone = step(two, body, 0.1)
        assert np.allclose(moved.frame[1], alone.frame, atol=1e-12)
        assert np.allclose(moved.momentum[1], alone.momentum, atol=1e-12)


def test_impossible_bodies_and_steps_are_refused():
    with pytest.raises(ValueError, match="equal eigenvalues"):
        _ = Body((1.0, 1.0), np.eye(2)).inertia
    state, body = scene(3, 1)
    with pytest.raises(RuntimeError, match="make dt smaller"):
        mechanics.variational_step(state._replace(momentum=np.full((3, 3), np.nan)), body)
