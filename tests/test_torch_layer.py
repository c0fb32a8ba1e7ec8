"""Laws of the differentiable layers: they are the step, their gradients are right and finite."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="torch is not installed: the layers are unchecked")

from kgmrf import KGMRF, RotationTracker, gains, simulate, theory  # noqa: E402
from kgmrf.geometry import orbit, so  # noqa: E402
from kgmrf.torch import (  # noqa: E402
    FixedLaw,
    InformationLaw,
    LawLayer,
    RotationLayer,
    detach,
)
from kgmrf.torch.law_layer import START  # noqa: E402
from kgmrf.torch.laws import positive  # noqa: E402

torch.set_num_threads(1)
DOUBLE = torch.float64


def _covariances(
    d: int, batch: int, n_frames: int, seed: int = 0, n_samples: int = 8
) -> tuple[Any, Any]:
    """Observations (batch, time, d, d) of turning covariances, and which are there."""
    scenes = [
        simulate.rotating_covariance(
            d, rate=0.05, n_frames=n_frames, n_samples=n_samples, rng=seed + k
        )
        for k in range(batch)
    ]
    seen = torch.tensor(np.stack([scene.observations for scene in scenes]))
    there = torch.tensor(np.random.default_rng(seed).random((batch, n_frames)) > 0.2)
    there[:, 0] = True
    return seen, there


def _rotations(d: int, batch: int, n_frames: int, seed: int = 0) -> Any:
    scenes = [simulate.rotating_frame(d, n_frames=n_frames, rng=seed + k) for k in range(batch)]
    return torch.tensor(np.stack([scene.observations for scene in scenes]))


def _laws(d: int) -> list[Any]:
    return [
        InformationLaw(d, acceleration=1e-4),
        InformationLaw(
            d, acceleration=1e-4, angle_noise=1e-4, retention=0.9, per="plane", inertia=True
        ),
        FixedLaw(d, position_gain=0.2, velocity_gain=0.02, ridge=0.1),
        FixedLaw(
            d,
            position_gain=0.3,
            velocity_gain=0.05,
            retention=0.8,
            coast_retention=0.9,
            ridge=0.2,
            per="plane",
            inertia=True,
        ),
    ]


# --- the layer is the tracker ------------------------------------------------------------------


@pytest.mark.parametrize("law", ["information", "fixed"])
@pytest.mark.parametrize("graph", [True, False])
@pytest.mark.parametrize("d", [2, 3, 5])
def test_layer_is_the_tracker(law: str, graph: bool, d: int) -> None:
    """With a graph the loop with a backward pass runs, without one the plain loop."""
    seen, there = _covariances(d, 3, 40)
    plain = gains.information(1e-5)
    learned: Any = InformationLaw(d, acceleration=1e-5)
    if law == "fixed":
        plain = gains.FixedGains(0.1, 0.005, ridge=0.1)
        learned = FixedLaw(d, ridge=0.1)
    layer = LawLayer(d, gains=learned, n_samples=8).double()
    tracker = KGMRF(gains=plain, n_samples=8, time_unit=1.0)
    times = np.cumsum(np.random.default_rng(1).uniform(0.5, 2.0, 40))
    result = tracker.filter(seen.movedim(1, 0).numpy(), times=times, mask=there.T.numpy())
    dt = torch.tensor(np.diff(times, prepend=times[0]))
    with torch.set_grad_enabled(graph):
        out = layer(seen, mask=there, dt=dt)
    assert out.estimate.requires_grad is graph
    scores = (("nis", out.nis), ("log_likelihood", out.log_likelihood))
    for name, got in (("covariance", out.estimate), *scores):
        expected = np.moveaxis(getattr(result, name), 0, 1)
        # The parameters of the law are stored in single precision.
        np.testing.assert_allclose(got.detach().numpy(), expected, rtol=2e-5, atol=2e-5)
    velocity, body = np.nan_to_num(np.moveaxis(result.velocity, 0, 1)), out.velocity.detach()
    if graph:  # its pool is decomposed by LAPACK, which chooses other signs of eigenvectors
        np.testing.assert_allclose(np.abs(body), np.abs(velocity), atol=2e-5)
    else:
        np.testing.assert_allclose(body, velocity, atol=2e-5)
    layer.velocity = "spatial"
    frame = np.moveaxis(result.frame, 0, 1)
    spatial = frame @ velocity @ np.swapaxes(frame, -1, -2)
    with torch.set_grad_enabled(graph):
        out = layer(seen, mask=there, dt=dt)
    np.testing.assert_allclose(out.velocity.detach().numpy(), spatial, atol=2e-5)


@pytest.mark.parametrize("d", [2, 3, 4])
def test_rotation_layer_is_the_rotation_tracker(d: int) -> None:
    seen = _rotations(d, 2, 30)
    layer = RotationLayer(d, noise_std=0.05).double()
    result = RotationTracker(d, noise_std=0.05, gains="information").filter(
        seen.movedim(1, 0).numpy()
    )
    for graph in (True, False):
        with torch.set_grad_enabled(graph):
            out = layer(seen)
        np.testing.assert_allclose(
            out.estimate.detach().numpy(), np.moveaxis(result.rotation, 0, 1), atol=1e-6
        )
        np.testing.assert_allclose(
            out.velocity.detach().numpy(), np.moveaxis(result.velocity, 0, 1), atol=1e-6
        )


@pytest.mark.parametrize("k", range(4))
@pytest.mark.parametrize("start", ["data", "learned"])
def test_compiled_twin_and_readable_step_agree(k: int, start: Any) -> None:
    seen, there = _covariances(3, 2, 30)
    layer = LawLayer(3, gains=_laws(3)[k], n_samples=8, start=start).double()
    layer.velocity = "spatial"  # eigenvectors may have other signs
    slow = layer(seen, mask=there)
    with torch.no_grad():
        fast = layer(seen, mask=there)
    for a, b in zip(slow[:4], fast[:4], strict=True):
        torch.testing.assert_close(a.detach(), b, rtol=1e-9, atol=1e-9, equal_nan=True)
    torch.testing.assert_close(slow.state.spectrum.detach(), fast.state.spectrum)


@pytest.mark.parametrize("graph", [True, False])
@pytest.mark.parametrize("start", ["data", "learned"])
def test_steps_and_chunks_are_the_sequence(graph: bool, start: Any) -> None:
    seen, there = _covariances(3, 2, 25)
    dt = torch.rand(2, 25, dtype=DOUBLE) + 0.5
    layer = LawLayer(3, n_samples=8, start=start).double()
    with torch.set_grad_enabled(graph):
        whole = layer(seen, mask=there, dt=dt)
        first = layer(seen[:, :11], mask=there[:, :11], dt=dt[:, :11])
        second = layer(seen[:, 11:], mask=there[:, 11:], dt=dt[:, 11:], state=first.state)
        state, singles = None, []
        for t in range(25):
            one = layer.step(seen[:, t], mask=there[:, t], dt=dt[:, t], state=state)
            state = one.state
            singles.append(one.estimate)
    joined = torch.cat([first.estimate, second.estimate], dim=1)
    torch.testing.assert_close(joined, whole.estimate, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(torch.stack(singles, 1), whole.estimate, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(second.state.velocity, whole.state.velocity)


def test_streaming_remembers_and_forgets() -> None:
    seen = _rotations(3, 2, 12)
    layer = RotationLayer(3).double()
    stream = layer.stream()
    with torch.no_grad():
        whole = layer(seen).estimate
    for _ in range(2):
        outs = torch.stack([stream(seen[:, t]).estimate for t in range(12)], dim=1)
        torch.testing.assert_close(outs, whole)
        stream.reset()


@pytest.mark.parametrize("law", [0, 1, 3])
def test_forecast_is_what_coasting_gives(law: int) -> None:
    seen, _ = _covariances(3, 2, 20)
    layer = LawLayer(3, gains=_laws(3)[law], n_samples=8, output="tangent").double()
    seen[:, 15:] = math.nan
    out = layer(seen)
    state = layer(seen[:, :15]).state
    estimate, velocity = layer.forecast(state, 5.0)
    torch.testing.assert_close(estimate, out.estimate[:, -1])
    torch.testing.assert_close(velocity, out.velocity[:, -1])


def test_samples_count_themselves() -> None:
    x = torch.randn(2, 10, 6, 3, dtype=DOUBLE)
    layer = LawLayer(3).double()
    whole = layer(x, samples=True).estimate
    torch.testing.assert_close(whole, layer(x.mT @ x / 6, n_samples=6).estimate)
    x[0, 4, 2] = math.nan  # this sample is left out
    x[1, 5] = math.nan  # this frame is missing
    few = torch.full((2, 10), 6.0, dtype=DOUBLE)
    few[0, 4] = 5.0
    rows = torch.nan_to_num(x)
    mask = torch.ones(2, 10, dtype=torch.bool)
    mask[1, 5] = False
    expected = layer(rows.mT @ rows / few[..., None, None], n_samples=few, mask=mask).estimate
    torch.testing.assert_close(layer(x, samples=True).estimate, expected)
    torch.testing.assert_close(
        layer(torch.nan_to_num(rows), samples=True, mask=mask)[0][1], expected[1]
    )


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**16),
    share=st.floats(0.0, 0.6),
    graph=st.booleans(),
    noise_floor=st.sampled_from([0.0, 0.1]),
)
def test_partly_missing_samples_enter_as_the_tracker_takes_them(
    seed: int, share: float, graph: bool, noise_floor: float
) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((3, 12, 5, 3)) * [2.0, 1.0, 0.5]
    lost = (rng.random(x.shape) < share) & (rng.random((3, 12, 1, 1)) < 0.5)
    x[lost] = np.nan
    there = rng.random((3, 12)) < 0.8
    layer = LawLayer(3, noise_floor=noise_floor).double()
    with torch.no_grad():
        law = layer.gains()
    rate = float(positive(layer.free_spectrum_rate.detach(), 1e-12, 1e1))
    tracker = KGMRF(
        3,
        gains=gains.InformationGains(float(law.acceleration), rate_prior=float(law.rate_prior)),
        noise_floor=noise_floor,
        spectrum_rate=rate,
    )
    expected = tracker.filter(x.swapaxes(0, 1), samples=True, mask=there.T)
    samples = torch.tensor(x, requires_grad=graph)
    out = layer(samples, samples=True, mask=torch.tensor(there))
    filtered = np.swapaxes(expected.covariance, 0, 1)
    known = ~np.isnan(filtered)
    # Entries that are zero but for rounding need an absolute measure.
    np.testing.assert_allclose(
        out.estimate.detach().numpy()[known], filtered[known], rtol=1e-7, atol=1e-9
    )
    if graph:
        out.estimate.sum().backward()
        assert torch.isfinite(samples.grad).all()


def test_rotating_the_input_rotates_the_output() -> None:
    seen, there = _covariances(4, 2, 25)
    turn = so.project(torch.randn(4, 4, dtype=DOUBLE))
    layer = LawLayer(4, n_samples=8, velocity="spatial").double()
    out, turned = layer(seen, mask=there), layer(turn @ seen @ turn.mT, mask=there)
    torch.testing.assert_close(turned.estimate, turn @ out.estimate @ turn.mT)
    torch.testing.assert_close(turned.velocity, turn @ out.velocity @ turn.mT)
    torch.testing.assert_close(turned.log_likelihood, out.log_likelihood, equal_nan=True)


def test_tangent_output_is_the_logarithm() -> None:
    seen, _ = _covariances(3, 2, 20)
    layer = LawLayer(3, n_samples=8).double()
    matrices = layer(seen)
    assert LawLayer(3, output="tangent").velocity == "spatial"
    layer.output = "tangent"
    vectors = layer(seen)
    values, axes = torch.linalg.eigh(matrices.estimate)
    logarithm = axes @ torch.diag_embed(torch.log(values)) @ axes.mT
    torch.testing.assert_close(vectors.estimate.norm(dim=-1), torch.linalg.matrix_norm(logarithm))
    torch.testing.assert_close(so.hat(vectors.velocity), matrices.velocity)


# --- gradients ---------------------------------------------------------------------------------


def _check(layer: Any, seen: Any, run: Any) -> None:
    """Finite differences agree for the input and every parameter."""
    layer = layer.double()
    names = [name for name, _ in layer.named_parameters()]
    values = [p.detach().clone().requires_grad_() for p in layer.parameters()]

    def function(seen: Any, *numbers: Any) -> Any:
        values = dict(zip(names, numbers, strict=True))
        out = torch.func.functional_call(layer, values, (seen,), run)[:4]
        return tuple(torch.nan_to_num(part) for part in out)  # differences of NaN are no zeros

    inputs = (seen.clone().requires_grad_(), *values)
    # fast_mode checks the Jacobian along random directions: all of it, at a fraction of the cost.
    assert torch.autograd.gradcheck(function, inputs, atol=2e-6, rtol=1e-4, fast_mode=True)


@pytest.mark.parametrize("k", range(4))
@pytest.mark.parametrize("equal", [False, True])
def test_gradients_of_a_learned_start(k: int, equal: bool) -> None:
    """At zero velocity, with equal eigenvalues, missing frames and uneven intervals."""
    seen, _ = _covariances(3, 1, 4, n_samples=6)
    layer = LawLayer(3, gains=_laws(3)[k], n_samples=6, start="learned")
    if equal:
        layer.free_start_spectrum.data.zero_()
    mask = torch.tensor([[True, False, True, True]])
    _check(layer, seen, {"mask": mask, "dt": torch.tensor([1.0, 1.0, 2.5, 0.5])})


@pytest.mark.parametrize("k", [0, 2])
@pytest.mark.parametrize("output", ["covariance", "tangent"])
def test_gradients_of_a_start_from_data(k: int, output: Any) -> None:
    seen, _ = _covariances(3, 1, 4, n_samples=12)
    layer = LawLayer(3, gains=_laws(3)[k], n_samples=12, pool_steps=2, output=output)
    _check(layer, seen, {"mask": torch.tensor([[True, True, False, True]])})


@pytest.mark.parametrize("d", [2, 3, 4])
@pytest.mark.parametrize("k", [0, 3])
def test_gradients_of_rotations_at_rest_and_near_pi(d: int, k: int) -> None:
    steps = torch.zeros(1, 4, d * (d - 1) // 2, dtype=DOUBLE)
    steps[0, 2, 0], steps[0, 3, -1] = math.pi - 1e-3, 0.3
    seen = so.exp(so.hat(steps))
    layer = RotationLayer(d, gains=_laws(d)[k], noise_std=0.3)
    mask = torch.tensor([[True, True, True, False]])
    _check(layer, seen, {"mask": mask})


@settings(max_examples=12)
@given(
    d=st.integers(1, 5),
    m=st.integers(1, 3),
    size=st.sampled_from([1e-2, 1.0, 1e2]),
    kind=st.sampled_from(["random", "equal", "same", "nothing", "late"]),
    k=st.integers(0, 3),
    start=st.sampled_from(["data", "learned"]),
    double=st.booleans(),
    seed=st.integers(0, 100),
)
def test_no_nan_anywhere(
    d: int, m: int, size: float, kind: str, k: int, start: Any, double: bool, seed: int
) -> None:
    """Fewer samples than dimensions, equal eigenvalues, nothing seen at first or ever, any size."""
    dtype = DOUBLE if double else torch.float32
    x = size * torch.randn(2, 9, m, d, dtype=dtype, generator=torch.Generator().manual_seed(seed))
    if kind == "equal":
        x = (size * torch.eye(d, dtype=dtype)).expand(2, 9, d, d).clone()
    elif kind == "same":
        x = x[:, :1].expand(2, 9, m, d).clone()
    elif kind == "nothing":
        x = torch.full_like(x, math.nan)
    elif kind == "late":
        x[:, :4] = math.nan
    x.requires_grad_()
    layer = LawLayer(d, gains=_laws(d)[k], start=start, output="tangent").to(dtype)
    out = layer(x, samples=True)
    total = sum((part**2).nansum() for part in (out.estimate, out.velocity, out.nis))
    (total + out.log_likelihood.nansum()).backward()
    assert all(torch.isfinite(part).all() for part in (*out[:2], out.log_likelihood[out.scored]))
    assert torch.isfinite(x.grad).all()
    for name, p in layer.named_parameters():
        assert p.grad is None or torch.isfinite(p.grad).all(), name


@pytest.mark.parametrize("d", [2, 3, 4])
def test_no_nan_for_opposite_rotations(d: int) -> None:
    half = torch.diag(torch.tensor([-1.0, -1.0] + [1.0] * (d - 2)))
    seen = torch.stack([torch.eye(d), half, torch.eye(d), half])[None].requires_grad_()
    layer = RotationLayer(d)
    out = layer(seen)
    (out.estimate.square().sum() + out.velocity.square().sum() + out.nis.nansum()).backward()
    assert torch.isfinite(seen.grad).all()
    assert all(torch.isfinite(p.grad).all() for p in layer.parameters())


@pytest.mark.parametrize("k", range(4))
@pytest.mark.parametrize("start", ["data", "learned"])
def test_every_parameter_is_learned(k: int, start: Any) -> None:
    seen, there = _covariances(3, 2, 25)
    layer = LawLayer(3, gains=_laws(3)[k], n_samples=8, start=start).double()
    out = layer(seen, mask=there)
    (out.estimate.square().sum() + out.velocity.square().sum()).backward()
    for name, p in layer.named_parameters():
        assert p.grad is not None, name
        assert (p.grad != 0).any(), name


# --- stability and manifold by construction ----------------------------------------------------


@given(
    seed=st.integers(0, 10_000),
    spread=st.sampled_from([1.0, 10.0, 1000.0]),
    longest=st.sampled_from([1.0, 4.0]),
    kind=st.sampled_from([(0.1, 1.0), (0.1, 0.5), (0.0, 0.5)]),
)
def test_no_parameter_leaves_the_stability_domain(
    seed: int, spread: float, longest: float, kind: tuple[float, float]
) -> None:
    law = FixedLaw(
        4,
        position_gain=kind[0],
        retention=kind[1],
        coast_retention=0.9,
        longest_step=longest,
        per="plane",
        inertia=True,
    )
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in law.parameters():
            p.copy_(spread * torch.randn(p.shape, generator=g))
        plain = law()
    a, b = plain.position_gain.numpy(), plain.velocity_gain.numpy()
    rho, coast = plain.retention.numpy(), plain.coast_retention.numpy()
    assert np.all(theory.stable(a, b, rho))
    for dt in np.linspace(1.0, longest, 4):
        # Over dt the innovation is e + dt u and the velocity keeps rho coast^(dt - 1).
        keep = rho * coast ** (dt - 1.0)
        assert np.all(theory.stable(a, dt * b, keep))


@pytest.mark.parametrize("k", range(4))
def test_laws_start_where_they_are_told(k: int) -> None:
    law = _laws(3)[k]().__dict__
    told: dict[str, float] = [
        dict(acceleration=1e-4, angle_noise=0.0, retention=1.0, rate_prior=4e-4),
        dict(acceleration=1e-4, angle_noise=1e-4, retention=0.9),
        dict(position_gain=0.2, velocity_gain=0.02, retention=1.0, ridge=0.1),
        dict(position_gain=0.3, velocity_gain=0.05, retention=0.8, coast_retention=0.9),
    ][k]
    for name, value in told.items():
        np.testing.assert_allclose(law[name].detach().numpy(), value, rtol=2e-6)


def test_heavy_planes_are_kicked_less() -> None:
    for law in (FixedLaw(3, inertia=True), InformationLaw(3, inertia=True)):
        law.log_inertia.data = torch.tensor([2.0, 0.0, -2.0])
        heavy, light = law.inertia()[0, 1], law.inertia()[1, 2]
        assert heavy > 1.0 > light
        plain = law()
        kick = plain.velocity_gain if isinstance(law, FixedLaw) else plain.acceleration
        assert kick[0, 1] < kick[0, 2] < kick[1, 2]


@pytest.mark.parametrize("k", [0, 1, 3])
def test_the_manifold_survives_reckless_training(k: int) -> None:
    seen, there = _covariances(4, 2, 20)
    seen = seen.float()
    layer = LawLayer(4, gains=_laws(4)[k], n_samples=8, start="learned")
    optimizer = torch.optim.SGD(layer.parameters(), lr=100.0)
    for _ in range(5):
        optimizer.zero_grad()
        out = layer(seen, mask=there)
        (-out.log_likelihood[there].mean()).backward()
        optimizer.step()
    out = layer(seen, mask=there)
    assert torch.isfinite(out.estimate).all()
    frame = out.state.frame
    torch.testing.assert_close(frame.mT @ frame, torch.eye(4).expand_as(frame), atol=1e-5, rtol=0)
    assert (out.state.spectrum > 0).all()
    torch.testing.assert_close(out.estimate, out.estimate.mT)


# --- precision, devices, memory ----------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("graph", [True, False])
def test_half_precision_is_computed_in_single(dtype: Any, graph: bool) -> None:
    seen, _ = _covariances(3, 2, 20)
    seen = seen.to(dtype)
    layer = LawLayer(3, n_samples=8)
    plain = layer(seen.float())
    with torch.set_grad_enabled(graph), torch.autocast("cpu", dtype=torch.bfloat16):
        out = layer(seen)
        forecast, _ = layer.forecast(out.state)
    assert out.estimate.dtype == out.state.frame.dtype == forecast.dtype == torch.float32
    torch.testing.assert_close(out.estimate, plain.estimate, rtol=1e-3, atol=1e-3)


def test_single_precision_follows_double() -> None:
    seen, there = _covariances(3, 2, 60)
    layer = LawLayer(3, n_samples=8)
    single, double = layer(seen.float(), mask=there), layer(seen, mask=there)
    assert single.estimate.dtype == torch.float32
    assert double.estimate.dtype == DOUBLE
    torch.testing.assert_close(single.estimate.double(), double.estimate, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("k", range(4))
def test_all_tensors_live_on_the_device_of_the_input(k: int) -> None:
    """The meta device computes nothing but refuses to mix with others, as CUDA does."""
    layer = LawLayer(5, gains=_laws(5)[k], n_samples=8, start="learned").to("meta")
    out = layer(torch.empty(2, 3, 5, 5, device="meta"), dt=torch.empty(3, device="meta"))
    assert all(part.device.type == "meta" for part in (*out[:4], *out.state))
    turns = RotationLayer(3, gains=_laws(3)[k]).to("meta")
    assert turns(torch.empty(2, 3, 3, 3, device="meta")).estimate.device.type == "meta"


def test_state_dict_round_trips() -> None:
    seen, there = _covariances(3, 2, 15)
    a, b = (LawLayer(3, gains=_laws(3)[3], n_samples=8, start="learned").double() for _ in range(2))
    with torch.no_grad():
        for p in a.parameters():
            p.add_(torch.randn_like(p))
    missing = b.load_state_dict(a.state_dict())
    assert not missing.missing_keys
    assert not missing.unexpected_keys
    torch.testing.assert_close(a(seen, mask=there).estimate, b(seen, mask=there).estimate)


def _saved_bytes(layer: Any, seen: Any) -> int:
    """Bytes that the backward pass waits for."""
    kept: dict[int, int] = {}

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = layer(seen)
    assert out.estimate.requires_grad
    return sum(kept.values())


def test_memory_grows_linearly_and_checkpointing_shrinks_it() -> None:
    seen, _ = _covariances(3, 16, 80)
    layer = LawLayer(3, n_samples=8, start="learned").double()
    short, long = _saved_bytes(layer, seen[:, :40]), _saved_bytes(layer, seen)
    assert 1.8 < long / short < 2.2
    frame_bytes = 16 * 9 * 8
    assert long / 80 < 120 * frame_bytes


@pytest.mark.parametrize("every", [1, 7, 100])
def test_checkpointing_changes_nothing(every: int) -> None:
    seen, there = _covariances(3, 2, 20)
    grads = []
    for size in (None, every):
        torch.manual_seed(0)
        layer = LawLayer(3, n_samples=8, checkpoint_every=size).double()
        x = seen.clone().requires_grad_()
        out = layer(x, mask=there)
        (out.estimate.square().sum() - out.log_likelihood[out.scored].sum()).backward()
        grads.append([x.grad, *(p.grad for p in layer.parameters())])
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b)


def test_truncated_backpropagation_cuts_at_the_state() -> None:
    seen, _ = _covariances(2, 1, 20)
    x = seen.clone().requires_grad_()
    layer = LawLayer(2, n_samples=8).double()
    state = detach(layer(x[:, :10]).state)
    layer(x[:, 10:], state=state).estimate.sum().backward()
    assert (x.grad[:, :10] == 0).all()
    assert (x.grad[:, 10:] != 0).any()


# --- graphs ------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [4])
def test_the_step_compiles_into_one_graph(d: int) -> None:
    """Traced forward and backward without a break; the code generator is torch's own affair."""
    torch.compiler.reset()
    seen, there = _covariances(d, 2, 5)
    layer = LawLayer(d, n_samples=8, start="learned").double()

    def run() -> list[Any]:
        layer.zero_grad()
        out = layer(seen, mask=there)
        out.estimate.square().sum().backward()
        return [
            out.estimate.detach(),
            *(p.grad.clone() for p in layer.parameters() if p.grad is not None),
        ]

    plain = run()
    layer.compile_step(backend="aot_eager", fullgraph=True)
    for a, b in zip(plain, run(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-9)


def test_a_sequence_of_fixed_length_exports() -> None:
    seen, _ = _covariances(3, 2, 4)
    layer = LawLayer(3, n_samples=8, start="learned").double().eval()
    program = torch.export.export(layer, (seen,))
    out = program.module()(seen)
    torch.testing.assert_close(out.estimate, layer(seen).estimate)


# --- on input -----------------------------------------------------------------------------------


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match="n_samples"):
        LawLayer(3)(torch.eye(3).expand(1, 2, 3, 3))
    with pytest.raises(ValueError, match=r"expected \(\.\.\., time, 3, 3\)"):
        LawLayer(3, n_samples=8)(torch.eye(2).expand(1, 2, 2, 2))
    with pytest.raises(ValueError, match="expected"):
        RotationLayer(3)(torch.eye(3))
    with pytest.raises(ValueError, match="time, m, d"):
        LawLayer(3)(torch.ones(4, 3), samples=True)
    with pytest.raises(ValueError, match="made for d = 2"):
        LawLayer(3, gains=FixedLaw(2))
    with pytest.raises(ValueError, match="gains"):
        LawLayer(3, gains="magic")
    with pytest.raises(ValueError, match="not inside"):
        FixedLaw(3, position_gain=2.5)
    with pytest.raises(ValueError, match="not inside"):
        FixedLaw(3, ridge=0.0)
    with pytest.raises(ValueError, match="retention below 1"):
        FixedLaw(3, position_gain=0.0)
    with pytest.raises(ValueError, match="velocity must be one of"):
        LawLayer(3, velocity="world")  # type: ignore[arg-type]
    for law in ("information", "fixed", FixedLaw(3, position_gain=0, retention=0.9, per="plane")):
        with pytest.raises(ValueError, match=r"gains=FixedLaw\(d, position_gain=0"):
            LawLayer(3, gains=law, integrator="split")
    with pytest.raises(ValueError, match="longest_step"):
        FixedLaw(3, longest_step=0.5)
    with pytest.raises(ValueError, match="not inside"):
        InformationLaw(3, acceleration=0.0)
    with pytest.raises(ValueError, match="per must be"):
        InformationLaw(3, per="frame")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="start"):
        LawLayer(3, start="cold")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not inside"):
        LawLayer(3, spectrum_rate=0.0)
    with pytest.raises(ValueError, match="checkpoint_every"):
        LawLayer(3, checkpoint_every=0)
    with pytest.raises(ValueError, match="at least 1"):
        LawLayer(0)
    with pytest.raises(ValueError, match="2 or more"):
        RotationLayer(1)
    with pytest.raises(ValueError, match="not inside"):
        RotationLayer(3, noise_std=0.0)


def _bad(value: float, at: tuple[int, ...] = (1, 4)) -> Any:
    seen = torch.eye(3).repeat(2, 9, 1, 1)
    seen[at] = value
    return seen


@pytest.mark.parametrize("grad", [True, False])
def test_what_is_no_covariance_is_refused_where_it_is(grad: bool) -> None:
    layer = LawLayer(3, n_samples=8)
    negative, skew, endless = _bad(0.0), _bad(0.0), _bad(math.inf, (1, 4, 0, 0))
    negative[1, 4] = -torch.eye(3)
    skew[1, 4] = torch.eye(3) + torch.tensor([[0.0, 1, 0], [0, 0, 0], [0, 0, 0]])
    with torch.set_grad_enabled(grad):
        for seen, fault in (
            (negative, r"\[1, 4\].*negative eigenvalue -1 "),
            (skew, r"\[1, 4\].*not symmetric"),
            (_bad(0.0), r"\[1, 4\].*zero matrix"),
            (endless, r"infinity at index \(1, 4, 0, 0\)"),
        ):
            for kind in (torch.float32, torch.float64, torch.bfloat16):
                with pytest.raises(ValueError, match=fault):
                    layer(seen.to(kind))
            # What is masked, or has a NaN, is no observation and is not looked at.
            there = torch.ones(2, 9, dtype=torch.bool)
            there[1, 4] = False
            masked = layer(seen, mask=there).estimate
            gap = torch.where(there[..., None, None], seen, math.nan)
            torch.testing.assert_close(masked, layer(gap).estimate)
            with pytest.raises(ValueError, match=r"no covariance|not|negative|infinity"):
                layer.step(seen[1, 4])


def test_estimates_of_what_passes_stay_on_the_cone() -> None:
    """Eigenvalues of -1e-5 are rounding of float32 matrices: they pass, and do no harm."""
    rng = np.random.default_rng(0)
    frames, _ = np.linalg.qr(rng.normal(size=(4, 40, 3, 3)))
    seen = (frames * np.asarray([2.0, 0.5, -1e-5])) @ np.swapaxes(frames, -1, -2)
    for gains_ in ("information", "fixed"):
        layer = LawLayer(3, n_samples=8, gains=gains_).double()
        for grad in (True, False):
            with torch.set_grad_enabled(grad):
                estimate = layer(torch.tensor(seen)).estimate.detach()
            # The first frames pool what was seen; from two on three directions were.
            assert float(torch.linalg.eigvalsh(estimate[:, 2:]).min()) > 0


def test_samples_that_are_no_numbers_are_refused() -> None:
    layer = LawLayer(3)
    samples = torch.randn(2, 9, 4, 3, generator=torch.Generator().manual_seed(0))
    samples[1, 4, 2, 0] = math.inf
    with pytest.raises(ValueError, match=r"infinity at index \(1, 4, 2, 0\)"):
        layer(samples, samples=True)
    there = torch.ones(2, 9, dtype=torch.bool)
    there[1, 4] = False
    assert bool(torch.isfinite(layer(samples, samples=True, mask=there).estimate).all())
    samples[1, 4, 2, 0] = 1e25  # its square is no number in float32, but one in float64
    with pytest.raises(ValueError, match=r"1e\+25 at index \(1, 4, 2, 0\).*units"):
        layer(samples, samples=True)
    samples[1, 4, 2, 0] = 1.0
    usual, large = (
        layer(size * samples.double(), samples=True).estimate / size**2 for size in (1.0, 1e25)
    )
    torch.testing.assert_close(large, usual)
    with pytest.raises(ValueError, match="no frames"):
        layer(samples[:, :0], samples=True)


def test_what_is_no_rotation_is_refused_unless_it_is_projected() -> None:
    seen = _bad(0.0)
    seen[1, 4] = torch.diag(torch.tensor([1.0, 1.0, 2.0]))
    assert RotationLayer(3)(seen).estimate.shape == seen.shape
    with pytest.raises(ValueError, match=r"\[1, 4\].*not orthogonal"):
        RotationLayer(3, project=False)(seen)
    seen[1, 4] = -torch.eye(3)
    with pytest.raises(ValueError, match=r"\[1, 4\].*determinant -1"):
        RotationLayer(3, project=False)(seen)
    with pytest.raises(ValueError, match=r"infinity at index \(1, 4, 0, 0\)"):
        RotationLayer(3)(_bad(math.inf))


@pytest.mark.parametrize("layer", [LawLayer(3, n_samples=8), RotationLayer(3)])
def test_times_counts_and_shapes_are_checked(layer: Any) -> None:
    seen = torch.eye(3).repeat(2, 9, 1, 1)
    back = torch.ones(2, 9)
    back[0, 3] = -1.0
    for dt in (-1.0, back, math.nan, math.inf):
        with pytest.raises(ValueError, match="dt must be finite and 0 or more"):
            layer(seen, dt=dt)
    with pytest.raises(ValueError, match="dt must be finite"):
        layer.forecast(layer(seen).state, -1.0)
    for count in (0, -3.0, math.inf, torch.zeros(2, 9)):
        with pytest.raises(ValueError, match="n_samples must be positive"):
            layer(seen, n_samples=count)
    for options in ({"dt": torch.ones(9, 2)}, {"n_samples": torch.ones(5)}):
        with pytest.raises(ValueError, match="give one number, or one per frame"):
            layer(seen, **options)
    with pytest.raises(ValueError, match=r"mask has shape \(9, 2\)"):
        layer(seen, mask=torch.ones(9, 2, dtype=torch.bool))
    with pytest.raises(TypeError, match="mask must be a torch tensor, got ndarray"):
        layer(seen, mask=np.ones((2, 9), dtype=bool))
    with pytest.raises(ValueError, match="no frames"):
        layer(seen[:, :0])
    for numbers in (seen.numpy(), seen.tolist()):
        with pytest.raises(TypeError, match=r"must be a torch tensor, got \w+ of shape \(2, 9"):
            layer(numbers)
    with pytest.raises(TypeError, match="must be a torch tensor"):
        layer.step(np.eye(3))
    with pytest.raises(ValueError, match="expected real numbers"):
        layer(seen.to(torch.complex64))


@pytest.mark.parametrize("engine", ["compiled", "readable"])
def test_the_door_is_the_same_without_the_compiler(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KGMRF_ENGINE", engine)
    seen = _bad(0.0)
    seen[1, 4] = torch.diag(torch.tensor([1.0, 1.0, -1.0]))
    layer = LawLayer(3, n_samples=8)
    with pytest.raises(ValueError, match=r"\[1, 4\].*negative eigenvalue"):
        layer(seen)
    assert layer(seen[:, :4]).estimate.shape == (2, 4, 3, 3)


def test_spectrum_may_be_fixed() -> None:
    seen, _ = _covariances(3, 2, 30)
    layer = LawLayer(3, n_samples=8, spectrum="fixed", start="learned").double()
    out = layer(seen)
    expected = positive(layer.free_start_spectrum, *START).detach()
    torch.testing.assert_close(out.state.spectrum.detach(), expected.expand(2, 3))
    torch.testing.assert_close(
        orbit.compose(out.state.frame, out.state.spectrum), out.estimate[:, -1]
    )


@pytest.mark.parametrize("start", ["learned", "data"])
@pytest.mark.parametrize("uneven", [False, True])
@pytest.mark.parametrize("k", range(4))
def test_the_compiled_backward_pass_is_that_of_the_readable_step(
    k: int, uneven: bool, start: Any, monkeypatch: Any
) -> None:
    d, n_frames = 3, 20  # long enough for a polish
    laws = [
        InformationLaw(d, acceleration=1e-3),
        InformationLaw(d, acceleration=1e-4, angle_noise=1e-4, retention=0.9, rate_prior=1.0),
        FixedLaw(d, position_gain=0.2, velocity_gain=0.02, retention=0.9, coast_retention=0.8),
        FixedLaw(d, position_gain=0.2, velocity_gain=0.02, per="plane", inertia=True),
    ]
    torch.manual_seed(k)
    layer = LawLayer(d, gains=laws[k], start=start, noise_floor=0.05).double()
    for parameter in layer.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    seen, there = _covariances(d, 2, n_frames)
    seen.requires_grad_()
    counts = (8.0 + torch.rand(2, n_frames, dtype=DOUBLE)).requires_grad_()
    dt = (0.5 + torch.rand(2, n_frames, dtype=DOUBLE)).requires_grad_()
    leaves = [seen, counts, *layer.parameters()] + ([dt] if uneven else [])
    found = []
    for name in ("compiled", "readable"):
        monkeypatch.setenv("KGMRF_ENGINE", name)
        out = layer(seen, mask=there, n_samples=counts, dt=dt if uneven else 1.0)
        torch.manual_seed(9)
        ends = (*out[:4], out.state.spectrum_var, out.state.uncertainty)
        loss = sum((torch.randn_like(end[..., :1]) * end).nansum() for end in ends)
        slopes = torch.autograd.grad(loss, leaves, allow_unused=True)
        found.append([loss, *slopes])
    for fast, slow in zip(*found, strict=True):
        assert (fast is None) <= (slow is None)  # a rate prior that nothing depends on
        if slow is not None:
            torch.testing.assert_close(
                fast, slow, rtol=1e-7, atol=1e-9 * float(slow.detach().abs().max())
            )


def test_large_turns_have_exact_gradients() -> None:
    """Several radians per frame: the exponential is squared up, and its derivative with it."""
    layer = LawLayer(4, gains=InformationLaw(4), start="learned").double()
    layer.free_start_velocity.data = torch.tensor([2.0, -1.0, 0.5, 1.5, 0.1, -2.5], dtype=DOUBLE)
    seen, _ = _covariances(4, 1, 2)

    def run(velocity: Any) -> Any:
        values = {"free_start_velocity": velocity}
        out = torch.func.functional_call(layer, values, (seen,), {"n_samples": 8.0})
        return out.estimate

    start = layer.free_start_velocity.detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(run, (start,))


def test_the_compiled_graph_keeps_few_matrices() -> None:
    d, batch = 4, 8
    seen, _ = _covariances(d, batch, 60)
    layer = LawLayer(d, n_samples=8)
    short, long = _saved_bytes(layer, seen[:, :30].float()), _saved_bytes(layer, seen.float())
    assert (long - short) / 30 / (4 * batch * d * d) < 30


@pytest.mark.parametrize("d", [9, 17])
def test_the_compiled_backward_pass_in_high_dimensions(d: int, monkeypatch: Any) -> None:
    """Products in tiles of sixteen columns and of eight, and both."""
    seen, _ = _covariances(d, 1, 4, n_samples=3 * d)
    layer = LawLayer(d, n_samples=3 * d, gains=FixedLaw(d, ridge=0.1)).double()
    found = []
    for name in ("compiled", "readable"):
        monkeypatch.setenv("KGMRF_ENGINE", name)
        x = seen.clone().requires_grad_()
        layer(x).estimate.square().sum().backward()
        found.append(x.grad)
    torch.testing.assert_close(found[0], found[1], rtol=1e-7, atol=1e-9)
