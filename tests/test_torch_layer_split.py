"""The paper's own step as a layer, and the integrator that keeps its structure under training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: the layers are unchecked")

from kgmrf import simulate  # noqa: E402
from kgmrf.geometry import orbit, so  # noqa: E402
from kgmrf.theory import mechanics  # noqa: E402
from kgmrf.torch import FixedLaw, LawLayer, RotationLayer  # noqa: E402

torch.set_num_threads(1)
DOUBLE = torch.float64


def _observations(d: int, n_steps: int, seed: int = 0) -> Any:
    scene = simulate.rotating_covariance(d, rate=0.05, n_frames=n_steps, n_samples=20, rng=seed)
    return torch.tensor(scene.observations)[None]


def _layer(d: int, integrator: Any = "split", **options: Any) -> Any:
    settings = {"position_gain": 0.0, "velocity_gain": 0.05, "retention": 0.9, "ridge": 0.1}
    law = FixedLaw(d, **{**settings, **options})
    layer = LawLayer(
        d, gains=law, n_samples=20, spectrum="fixed", start="learned", integrator=integrator
    ).double()
    n = d * (d - 1) // 2
    with torch.no_grad():
        layer.free_start_velocity.copy_(0.2 * torch.sin(torch.arange(1.0, n + 1)))
        layer.free_start_turn.copy_(torch.cos(torch.arange(1.0, n + 1)))
    return layer


@pytest.mark.parametrize("d", [2, 3, 4])
def test_the_printed_law_is_the_papers_algorithm(d: int) -> None:
    """Kick, drift, report M_{t+1}; the layer's forecast after C_t."""
    layer = LawLayer(d, gains="printed", n_samples=20, spectrum="fixed", start="learned").double()
    seen = _observations(d, 12)
    with torch.no_grad():
        law = layer.gains()
        start = layer(torch.full_like(seen[:, :1], torch.nan)).state
        frame, velocity = start.frame[0].numpy(), start.velocity[0].numpy()
        spectrum, state = start.spectrum[0].numpy(), None
    gap = orbit.gaps(spectrum)
    for k in range(12):
        C = frame.T @ seen[0, k].numpy() @ frame
        w = -C * gap / (gap**2 + float(law.ridge))
        velocity = float(law.retention) * velocity + float(law.velocity_gain) * w
        frame = frame @ so.exp(velocity)
        with torch.no_grad():
            state = layer.step(seen[:, k], state=state).state
            ahead = layer.forecast(state, 1.0)[0][0]
        np.testing.assert_allclose(ahead.numpy(), orbit.compose(frame, spectrum), atol=1e-12)
    assert float(law.position_gain) == 0.0


def test_the_printed_law_follows_rotations_too() -> None:
    seen = torch.tensor(simulate.rotating_frame(3, n_frames=30, noise_std=0.01, rng=0).observations)
    layer = RotationLayer(3, gains=FixedLaw(3, position_gain=0, velocity_gain=0.3, retention=0.5))
    estimate = layer.double()(seen[None]).estimate[0]
    assert float(so.distance(estimate[10:], seen[10:]).mean()) < 0.5
    assert layer.gains.free_position is None


@pytest.mark.parametrize("d", [2, 3, 4])
def test_the_split_layer_is_the_plane_split_of_mechanics(d: int) -> None:
    """Free motion by `plane_split_step`, damping, then a kick by the torque."""
    layer = _layer(d, ridge=2e-8)
    seen = _observations(d, 8)
    with torch.no_grad():
        out = layer(seen)
        law, start = layer.gains(), layer(torch.full_like(seen[:, :1], torch.nan)).state
    spectrum, rho = start.spectrum[0].numpy(), float(law.retention)
    phase = None
    for C in seen[0].numpy():
        still = mechanics.Body(spectrum, C, stiffness=0.0)
        pulled = mechanics.Body(spectrum, C, stiffness=float(law.velocity_gain))
        if phase is None:  # nothing moves before the first observation
            W = start.velocity[0].numpy()
            phase = mechanics.Phase(start.frame[0].numpy(), still.inertia * W)
        else:
            phase = mechanics.plane_split_step(phase, still, 1.0)
            phase = phase._replace(momentum=rho * phase.momentum)
        kicked = phase.momentum + pulled.torque(phase.frame)
        phase = phase._replace(momentum=kicked)
    np.testing.assert_allclose(out.state.frame[0].numpy(), phase.frame, atol=1e-6)
    W = phase.momentum / still.inertia
    np.testing.assert_allclose(out.state.velocity[0].numpy(), W, atol=1e-6)


def _trained(d: int, integrator: Any, **options: Any) -> tuple[Any, Any]:
    """A layer after training with a step so large that its parameters go anywhere."""
    layer, seen = _layer(d, integrator, **options), _observations(d, 6)
    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    for _ in range(3):
        optimizer.zero_grad()
        (-layer(seen).log_likelihood.mean()).backward()
        torch.nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
        optimizer.step()
    return layer, seen


def _conformal_defect(layer: Any, seen: Any) -> float:
    """max |J^T omega J - rho omega| / max |omega| of one step of the layer."""
    d = layer.d
    with torch.no_grad():
        state = layer(seen[:, :-1]).state
        law = layer.gains()
        lam = state.spectrum[0]
        gap = lam[:, None] - lam
        inertia = (gap**2 + law.ridge) / (lam[:, None] * lam * law.velocity_gain)
    n = d * (d - 1) // 2

    def step(z: Any) -> tuple[Any, Any]:
        momentum = inertia * state.velocity + so.hat(z[n:])
        moved = state._replace(
            frame=state.frame @ so.exp(so.hat(z[:n])), velocity=momentum / inertia
        )
        after = layer.step(seen[:, -1], state=moved).state
        return after.frame[0], inertia * after.velocity[0]

    origin = torch.zeros(2 * n, dtype=DOUBLE)
    frame, momentum = (part.detach() for part in step(origin))
    slopes = torch.autograd.functional.jacobian(step, origin)
    xi = (frame.mT @ slopes[0].movedim(-1, 0)).numpy()
    after = mechanics._form(xi, slopes[1].movedim(-1, 0).numpy(), momentum.numpy())
    basis = so.hat(np.eye(n))
    nothing = np.zeros_like(basis)
    before = mechanics._form(
        np.concatenate([basis, nothing]),
        np.concatenate([nothing, basis]),
        (inertia * state.velocity[0]).detach().numpy(),
    )
    return float(np.abs(after - float(law.retention) * before).max() / np.abs(before).max())


@pytest.mark.parametrize("inertia", [False, True])
@pytest.mark.parametrize("d", [3, 4])
def test_training_keeps_the_symplectic_form(d: int, inertia: bool) -> None:
    """Up to the damping, which shrinks it by rho; the exponential step does not keep it."""
    layer, seen = _trained(d, "split", inertia=inertia)
    if inertia:
        assert float(layer.gains.log_inertia.detach().abs().max()) > 0
    assert _conformal_defect(layer, seen) < 1e-12
    plain, seen = _trained(d, "exponential", inertia=inertia)
    assert _conformal_defect(plain, seen) > 1e-4


@pytest.mark.parametrize("integrator", ["split", "exponential"])
def test_training_keeps_orbit_and_spectrum(integrator: Any) -> None:
    layer, seen = _trained(4, integrator)
    with torch.no_grad():
        out = layer(seen)
    frame, eye = out.state.frame, torch.eye(4, dtype=DOUBLE)
    torch.testing.assert_close(frame.mT @ frame, eye[None], atol=1e-12, rtol=0)
    levels = torch.linalg.eigvalsh(out.estimate)
    expected = out.state.spectrum.sort().values[:, None].expand_as(levels)
    torch.testing.assert_close(levels, expected, rtol=1e-10, atol=0)


def test_coasting_keeps_the_spatial_momentum_up_to_damping() -> None:
    """Free motion turns the body, not its momentum in space: what the printed step loses."""
    layer, seen = _layer(3), _observations(3, 4)
    with torch.no_grad():
        state = layer(seen).state
        law, lam = layer.gains(), state.spectrum[0]
        gap = lam[:, None] - lam
        inertia = (gap**2 + law.ridge) / (lam[:, None] * lam)
        later = layer(torch.full((1, 5, 3, 3), torch.nan, dtype=DOUBLE), state=state).state

    def spatial(now: Any) -> Any:
        return now.frame @ (inertia * now.velocity) @ now.frame.mT

    torch.testing.assert_close(spatial(later), spatial(state))  # coast_retention is 1
