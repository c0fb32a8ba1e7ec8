"""Second derivatives, function transforms and missing observations of the layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: the layers are unchecked")

from kgmrf import KGMRF, gains, simulate  # noqa: E402
from kgmrf.model.law_state import State  # noqa: E402
from kgmrf.torch import FixedLaw, InformationLaw, LawLayer, RotationLayer  # noqa: E402

torch.set_num_threads(1)
DOUBLE = torch.float64


def _samples(d: int, batch: int, n_steps: int, m: int = 8, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    levels = 2.0 ** -np.arange(d)
    return torch.tensor(rng.standard_normal((batch, n_steps, m, d)) * levels)


def _mask(batch: int, n_steps: int) -> Any:
    there = torch.tensor(np.random.default_rng(5).random((batch, n_steps)) > 0.25)
    there[:, 0] = True
    return there


def _laws(d: int) -> dict[str, Any]:
    return {
        "information": InformationLaw(d, acceleration=1e-3, angle_noise=1e-4, retention=0.9),
        "per plane": InformationLaw(d, acceleration=1e-3, per="plane", inertia=True),
        "fixed": FixedLaw(d, position_gain=0.2, velocity_gain=0.02, retention=0.9, ridge=0.1),
        "kicks": FixedLaw(d, position_gain=0.0, velocity_gain=0.05, retention=0.8, ridge=0.1),
    }


def _layers() -> dict[str, Any]:
    fixed, kicks = _laws(3)["fixed"], _laws(3)["kicks"]
    return {
        "learned start": LawLayer(3, start="learned", noise_floor=0.05),
        "information": LawLayer(3, gains=_laws(3)["information"], pool_steps=2),
        "uneven": LawLayer(3, gains=_laws(3)["information"], start="learned"),
        "per plane": LawLayer(3, gains=_laws(3)["per plane"], pool_steps=2),
        "fixed": LawLayer(3, gains=fixed, start="learned", output="tangent"),
        "fixed spectrum": LawLayer(3, gains=fixed, pool_steps=2, spectrum="fixed"),
        "pieces": LawLayer(3, start="learned", checkpoint_every=3),
        "split": LawLayer(3, gains=kicks, start="learned", integrator="split"),
        "rotations": RotationLayer(3, gains=_laws(3)["information"]),
        "rotations d = 4": RotationLayer(4, noise_std=0.2),
    }


def _outputs(layer: Any, uneven: bool) -> tuple[Any, list[Any]]:
    """A function of the observations and every parameter, and where to differentiate it."""
    layer = layer.double()
    names = [name for name, _ in layer.named_parameters()]
    values = [p.detach().clone().requires_grad_() for p in layer.parameters()]
    n_steps = 5
    options: dict[str, Any] = {"mask": _mask(1, n_steps), "forecast": True}
    if isinstance(layer, RotationLayer):
        seen = _rotations(layer.d, 1, n_steps)
    else:
        seen, options["samples"] = _samples(3, 1, n_steps), True
    if uneven:
        options["dt"] = torch.tensor(np.random.default_rng(1).uniform(0.5, 1.5, (1, n_steps)))

    def function(seen: Any, *numbers: Any) -> tuple[Any, ...]:
        settings = dict(zip(names, numbers, strict=True))
        out = torch.func.functional_call(layer, settings, (seen,), options)
        state = (out.state.uncertainty, out.state.spectrum_var)
        ends = (*out[:4], out.forecast, *state)
        return tuple(torch.nan_to_num(end) for end in ends if end.requires_grad)

    return function, [seen.requires_grad_(), *values]


def _rotations(d: int, batch: int, n_steps: int) -> Any:
    scenes = [simulate.rotating_frame(d, n_frames=n_steps, rng=k) for k in range(batch)]
    return torch.tensor(np.stack([scene.observations for scene in scenes]))


@pytest.mark.parametrize("name", list(_layers()))
def test_second_derivatives_are_right(name: str) -> None:
    """Of every output by the observations and every parameter, against finite differences."""
    function, inputs = _outputs(_layers()[name], uneven=name == "uneven")
    assert torch.autograd.gradgradcheck(function, inputs, atol=5e-6, rtol=1e-4, fast_mode=True)


def test_second_derivatives_of_every_parameter_by_every_other(monkeypatch: Any) -> None:
    """The Hessian of the mean log-likelihood: compiled as readable, and the finite differences."""
    layer = LawLayer(3, gains=_laws(3)["information"]).double()
    samples = _samples(3, 2, 20)
    parameters = list(layer.parameters())

    def loss() -> Any:
        return -layer(samples, samples=True).log_likelihood.nanmean()

    def slopes(create_graph: bool) -> Any:
        found = torch.autograd.grad(loss(), parameters, create_graph=create_graph)
        return torch.stack([slope.reshape(()) for slope in found])

    tables = {}
    for engine in ("compiled", "readable"):
        monkeypatch.setenv("KGMRF_ENGINE", engine)
        rows = slopes(True)
        tables[engine] = torch.stack(
            [
                torch.stack(torch.autograd.grad(row, parameters, retain_graph=True)).reshape(-1)
                for row in rows
            ]
        )
    monkeypatch.setenv("KGMRF_ENGINE", "compiled")
    torch.testing.assert_close(tables["compiled"], tables["readable"], rtol=1e-7, atol=1e-11)
    step = 1e-4
    for k, parameter in enumerate(parameters):
        sides = []
        for sign in (1.0, -1.0):
            with torch.no_grad():
                parameter += sign * step
            sides.append(slopes(False))
            with torch.no_grad():
                parameter -= sign * step
        differences = (sides[0] - sides[1]) / (2 * step)
        torch.testing.assert_close(tables["compiled"][k], differences, rtol=1e-4, atol=1e-7)


def test_a_gradient_with_a_graph_is_the_gradient() -> None:
    """In single precision too, where the readable step runs in double like the compiled loop."""
    layer = LawLayer(3, start="learned")
    samples = _samples(3, 2, 20).float().requires_grad_()
    leaves = [samples, *layer.parameters()]

    def slopes(create_graph: bool) -> Any:
        out = layer(samples, samples=True)
        loss = out.estimate.square().sum() - out.log_likelihood.sum()
        return torch.autograd.grad(loss, leaves, create_graph=create_graph, allow_unused=True)

    for plain, with_graph in zip(slopes(False), slopes(True), strict=True):
        torch.testing.assert_close(plain, with_graph, rtol=1e-5, atol=1e-6)


# --- missing observations ----------------------------------------------------------------------


@pytest.mark.parametrize("graph", [True, False])
@pytest.mark.parametrize("law", ["information", "fixed"])
def test_where_nothing_was_scored_the_likelihood_is_nan_as_in_trackers(
    graph: bool, law: str
) -> None:
    samples, there = _samples(3, 2, 30), _mask(2, 30)
    learned: Any = {"information": InformationLaw(3), "fixed": FixedLaw(3, ridge=0.1)}[law]
    plain: Any = {
        "information": gains.information(),
        "fixed": gains.FixedGains(0.1, 0.005, ridge=0.1),
    }
    tracker = KGMRF(3, gains=plain[law])
    result = tracker.filter(samples.movedim(1, 0).numpy(), samples=True, mask=there.T.numpy())
    layer = LawLayer(3, gains=learned).double()
    with torch.set_grad_enabled(graph):
        out = layer(samples, samples=True, mask=there)
    expected = np.moveaxis(result.log_likelihood, 0, 1)
    assert np.isnan(expected[~there.numpy()]).all()
    np.testing.assert_allclose(
        out.log_likelihood.detach().numpy(), expected, rtol=1e-5, equal_nan=True
    )
    np.testing.assert_array_equal(out.scored.numpy(), ~np.isnan(expected))


@pytest.mark.parametrize("engine", ["compiled", "readable"])
def test_masked_steps_neither_bias_the_loss_nor_its_gradient(engine: str, monkeypatch: Any) -> None:
    """The mean over scored steps is that of the sequence without the others, and finite."""
    monkeypatch.setenv("KGMRF_ENGINE", engine)
    layer = LawLayer(3, start="learned").double()
    samples, there = _samples(3, 1, 20), _mask(1, 20)
    kept = torch.nonzero(there[0])[:, 0]
    dt = torch.diff(kept, prepend=kept[:1]).double()
    few = layer(samples[:, kept], samples=True, dt=dt[None])
    samples.requires_grad_()
    out = layer(samples, samples=True, mask=there)
    loss = -out.log_likelihood[there].mean()
    torch.testing.assert_close(loss, -few.log_likelihood.mean())
    torch.testing.assert_close(loss, -out.log_likelihood.nanmean())
    loss.backward()
    assert torch.isfinite(samples.grad).all()
    assert (samples.grad[~there] == 0).all()
    assert all(torch.isfinite(p.grad).all() for p in layer.parameters() if p.grad is not None)


# --- transforms of functions -------------------------------------------------------------------


def _loss(layer: Any, samples: Any, mask: Any = None) -> Any:
    """As a function of the parameters: they can be differentiated, and mapped over."""

    def loss(parameters: Any, x: Any = samples) -> Any:
        out = torch.func.functional_call(layer, parameters, (x,), {"samples": True, "mask": mask})
        return -out.log_likelihood.nanmean() + out.velocity.square().sum()

    return loss


@pytest.mark.parametrize("start", ["learned", "data"])
def test_func_grad_is_backward(start: Any) -> None:
    layer = LawLayer(3, start=start, checkpoint_every=4).double()
    loss = _loss(layer, _samples(3, 2, 10), _mask(2, 10))
    values = {name: p.detach() for name, p in layer.named_parameters()}
    found = torch.func.grad(loss)(values)
    expected = torch.autograd.grad(loss(dict(layer.named_parameters())), layer.parameters())
    for slope, plain in zip(found.values(), expected, strict=True):
        torch.testing.assert_close(slope, plain, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("start", ["learned", "data"])
def test_vmap_is_a_loop(start: Any) -> None:
    """Over sequences, over parameters (an ensemble of layers), and with gradients inside."""
    layer = LawLayer(3, start=start).double()
    samples = _samples(3, 3, 6)
    values = {name: p.detach() for name, p in layer.named_parameters()}
    loss = _loss(layer, samples[0])
    over = torch.func.vmap(lambda x: layer(x, samples=True).estimate)(samples)
    torch.testing.assert_close(over, layer(samples, samples=True).estimate, rtol=1e-9, atol=1e-9)
    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(values, samples)
    for k, x in enumerate(samples):
        for name, slope in torch.func.grad(loss)(values, x).items():
            torch.testing.assert_close(each[name][k], slope, rtol=1e-9, atol=1e-12)
    several = {name: torch.stack([v, v + 0.1]) for name, v in values.items()}
    both = torch.func.vmap(loss)(several)
    moved = {name: v + 0.1 for name, v in values.items()}
    torch.testing.assert_close(both, torch.stack([loss(values), loss(moved)]))
    # A gradient outside the map: nothing may ask a mapped tensor whether it needs one.
    outside = torch.func.grad(lambda v: torch.func.vmap(lambda x: loss(v, x))(samples).sum())
    for name, slope in outside(values).items():
        torch.testing.assert_close(slope, each[name].sum(0), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("start", ["learned", "data"])
def test_jacobians_forward_and_reverse_are_those_of_autograd(start: Any) -> None:
    layer = LawLayer(2, start=start, pool_steps=2).double()
    samples = _samples(2, 1, 4, m=3)

    def estimate(x: Any) -> Any:
        return layer(x, samples=True).estimate

    expected = torch.autograd.functional.jacobian(estimate, samples)
    assert float(expected.abs().max()) > 0
    for transform in (torch.func.jacrev, torch.func.jacfwd):
        torch.testing.assert_close(transform(estimate)(samples), expected, rtol=1e-7, atol=1e-9)


def test_forward_mode_keeps_its_tangents() -> None:
    layer, x = RotationLayer(3).double(), _rotations(3, 1, 5)
    moved = torch.randn(x.shape, dtype=DOUBLE, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        _, tangent = torch.func.jvp(lambda v: layer(v).estimate, (x,), (moved,))
        step = 1e-6
        sides = [layer(x + sign * step * moved).estimate for sign in (1.0, -1.0)]
    torch.testing.assert_close(tangent, (sides[0] - sides[1]) / (2 * step), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("d", [3, 4])
def test_vmap_over_rotations(d: int) -> None:
    layer, x = RotationLayer(d).double(), _rotations(d, 2, 4)
    run = torch.func.vmap(lambda v: layer(v).estimate)
    if d <= 3:
        torch.testing.assert_close(run(x), layer(x).estimate)
    else:
        with pytest.raises(NotImplementedError, match=r"d = 4.*looks at the data"):
            run(x)


@pytest.mark.parametrize("graph", [True, False])
@pytest.mark.parametrize("order", [[0, 1, 2], [1, 0, 2], [1, 2, 0], [2, 1, 0]])
def test_the_velocity_follows_the_order_of_eigenvalues(order: list[int], graph: bool) -> None:
    """A track keeps its order; what is handed out is sorted, signs included, as trackers do it."""
    layer = LawLayer(3, start="learned").double()
    with torch.no_grad():
        layer.free_start_velocity.copy_(torch.tensor([0.1, -0.2, 0.3]))
        layer.free_start_spectrum.copy_(layer.free_start_spectrum[order].clone())
    with torch.set_grad_enabled(graph):
        out = layer(_samples(3, 1, 1), samples=True)
    state = State(*(part[0].detach().numpy() for part in out.state))
    tracker = KGMRF(3, gains=gains.information())
    shown = tracker.engine().view_state(State(*(part[None] for part in state)))
    np.testing.assert_allclose(
        out.velocity[0, 0].detach().numpy(), shown["velocity"][0], atol=1e-12
    )
    np.testing.assert_allclose(
        out.estimate[0, 0].detach().numpy(), shown["covariance"][0], atol=1e-12
    )
