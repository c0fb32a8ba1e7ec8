"""The layer of the ensemble: untrained it is the tracker, and its gradients are differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: the layers are unchecked")

from kgmrf import KGMRF  # noqa: E402
from kgmrf._check import ObservationError  # noqa: E402
from kgmrf.engines import core  # noqa: E402
from kgmrf.engines.layout import placed, track  # noqa: E402
from kgmrf.members import Average, Diagonal, Rotating  # noqa: E402
from kgmrf.torch import KGMRFLayer, StudentTLoss  # noqa: E402
from kgmrf.torch.ensemble import GROUPS  # noqa: E402

pytestmark = pytest.mark.skipif(core.compiled() is None, reason="no compiled core")
torch.set_num_threads(1)
DOUBLE = torch.float64


def _samples(d: int, n_steps: int, m: int = 1, *, seed: int = 0, missing: bool = False) -> Any:
    """Samples (1, time, m, d) with one strong common factor whose size wanders."""
    rng = np.random.default_rng(seed)
    size = np.exp(np.cumsum(0.3 * rng.standard_normal(n_steps)))[:, None, None]
    x = rng.standard_normal((n_steps, m, d)) + size * rng.standard_normal((n_steps, m, 1))
    if missing:
        gone = rng.random(x.shape) < 0.2
        gone[0] = False
        x[gone] = np.nan
    return torch.tensor(x[None])


def _gaps(n_steps: int) -> tuple[Any, Any]:
    """A mask with gaps, and intervals that are not one."""
    there, dt = torch.ones(1, n_steps, dtype=torch.bool), torch.ones(1, n_steps, dtype=DOUBLE)
    there[:, [3, n_steps // 2, n_steps // 2 + 1]] = False
    dt[:, 5], dt[:, 7], dt[:, n_steps - 3] = 7.0, 0.5, 3.5
    return there, dt


# --------------------------------------------------------------------------- it is the tracker


@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.parametrize("kind", ["sample", "missing cells", "samples", "matrices", "gaps"])
def test_untrained_it_is_the_tracker(d: int, kind: str) -> None:
    m = 4 if kind in ("samples", "matrices") else 1
    x = _samples(d, 60, m, missing=kind == "missing cells")
    options: dict[str, Any] = {}
    mask = times = None
    if kind == "gaps":
        mask, dt = _gaps(60)
        options = {"mask": mask, "dt": dt}
        times = np.cumsum(dt[0].numpy())
    if kind == "matrices":
        C = (x.mT @ x)[0] / m
        out = KGMRFLayer(d)(C[None], n_samples=m)
        want = KGMRF().filter(C.numpy(), n_samples=m)
    else:
        out = KGMRFLayer(d)(x if m > 1 else x[:, :, 0], samples=True, **options)
        seen = x[0].numpy().copy()
        if mask is not None:
            seen[~mask[0].numpy()] = np.nan
        want = KGMRF().filter(seen if m > 1 else seen[:, 0], times=times, samples=True)
    pairs = {
        "covariance": (out.covariance, want.covariance),
        "log_prob": (out.log_prob, want.log_likelihood),
        "weights": (out.weights, want.weights),
    }
    for name, (mine, theirs) in pairs.items():
        close = np.isclose(mine[0].detach(), theirs, rtol=1e-9, atol=1e-12)
        assert (close | np.isnan(theirs)).all(), name
        assert np.isfinite(theirs).mean() > 0.5, name


def test_the_forecast_is_that_of_the_tracker_one_step_later() -> None:
    x = _samples(3, 40)[:, :, 0]
    out, tracker = KGMRFLayer(3)(x), KGMRF()
    for k in range(39):
        tracker.update(x[0, k].numpy())
    ahead = tracker.forecast(1)
    assert np.allclose(out.forecast[0, -1].detach(), ahead.covariance, rtol=1e-9)
    density = out.density
    assert torch.allclose(density.log_prob(x)[:, 1:], out.log_prob[:, 1:], rtol=1e-9)
    assert torch.allclose(density.covariance_matrix[0, -1], out.density.covariance_matrix[0, -1])


def test_pieces_are_the_whole() -> None:
    x = _samples(3, 50)[:, :, 0]
    layer = KGMRFLayer(3)
    first = layer(x[:, :20])
    second = layer(x[:, 20:], state=first.state)
    assert torch.allclose(second.covariance, layer(x).covariance[:, 20:], rtol=1e-12)


def test_without_gradients_the_numbers_are_the_same() -> None:
    x = _samples(3, 50, missing=True)[:, :, 0]
    layer = KGMRFLayer(3)
    kept = layer(x)
    with torch.no_grad():
        plain = layer(x)
    for name in ("covariance", "forecast", "scale", "log_prob", "weights", "state", "tails"):
        mine, theirs = getattr(plain, name), getattr(kept, name)
        assert torch.equal(mine.nan_to_num(), theirs.nan_to_num()), name


def test_threads_do_not_change_the_numbers() -> None:
    x = torch.randn(9, 30, 3, dtype=DOUBLE)
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        layer = KGMRFLayer(3)
        out = layer(x)
        out.log_prob.nanmean().backward()
        found.append((out.covariance.detach(), layer.free_half_life.grad))
    torch.set_num_threads(1)
    assert torch.equal(found[0][0], found[1][0])
    assert torch.allclose(found[0][1], found[1][1], rtol=1e-9)


# --------------------------------------------------------------------------- gradients


MEMBERS = (
    *(Average(4.0, clip_outliers=True), Average(16.0), Average(64.0, size_gain=0.3)),
    *(Average(30.0, size_gain=0.4, channel_half_life=8.0, clip_outliers=True), Average(256.0)),
    *(Diagonal(50.0), Rotating(1e-4, spectrum_rate=1e-3), Rotating(3e-3, rate_prior=4e-3)),
)
CASES: dict[str, dict[str, Any]] = {
    "d = 2": {"d": 2, "n_steps": 24},
    "d = 3, while members pool": {"d": 3, "n_steps": 12},
    "d = 3, gaps": {"d": 3, "n_steps": 30, "gaps": True},
    "d = 3, missing cells": {"d": 3, "n_steps": 30, "missing": True},
    "d = 5, missing cells, gaps": {"d": 5, "n_steps": 36, "missing": True, "gaps": True},
    "d = 3, samples": {"d": 3, "n_steps": 14, "m": 4, "missing": True},
    "d = 5, matrices": {"d": 5, "n_steps": 14, "m": 6, "matrix": True},
}


class Law:
    """A number made of all outputs of a layer, as a function of observations and parameters."""

    def __init__(
        self,
        d: int,
        n_steps: int,
        m: int = 1,
        *,
        matrix: bool = False,
        missing: bool = False,
        gaps: bool = False,
    ) -> None:
        self.layer = KGMRFLayer(d, members=MEMBERS)
        x = _samples(d, n_steps, m, missing=missing, seed=d)
        self.seen = (x.mT @ x) / m if matrix else x
        self.options: dict[str, Any] = {"n_samples": m} if matrix else {"samples": True}
        if gaps:
            self.options["mask"], self.options["dt"] = _gaps(n_steps)
        self.slopes: dict[str, Any] = {}

    def __call__(self, seen: Any, parameters: dict[str, Any]) -> Any:
        out = torch.func.functional_call(self.layer, parameters, (seen,), self.options)
        total = torch.zeros((), dtype=DOUBLE)
        for name in ("covariance", "forecast", "scale", "tails", "size_std", "log_prob", "weights"):
            value = getattr(out, name)
            if name not in self.slopes:
                rng = np.random.default_rng(len(self.slopes))
                self.slopes[name] = torch.tensor(rng.standard_normal(value.shape))
            total = total + (self.slopes[name] * torch.nan_to_num(value)).sum()
        return total


def _close(mine: float, function: Any, h: float, least: float) -> bool:
    """Whether a derivative is a central difference at one of three lengths."""
    differences = [(function(s) - function(-s)) / (2 * s) for s in (h, h / 10, h / 100)]
    return min(abs(one - mine) for one in differences) < 2e-5 * max(abs(mine), least)


@pytest.fixture(scope="module", params=CASES, ids=str)
def law(request: Any) -> tuple[Law, Any, dict[str, Any], Any]:
    """A law, its observations and parameters with gradients."""
    one = Law(**CASES[request.param])
    seen = one.seen.clone().requires_grad_()
    own = {
        name: torch.full_like(value, 0.1, dtype=DOUBLE).requires_grad_()
        for name, value in one.layer.named_parameters()
    }
    one(seen, own).backward()
    return one, seen, own, {name: value.grad for name, value in own.items()}


def test_gradients_by_observations_are_differences(law: Any) -> None:
    one, seen, own, _ = law
    fixed = {name: value.detach() for name, value in own.items()}
    base, slope = seen.detach(), seen.grad
    assert not torch.isnan(slope).any()
    rng = np.random.default_rng(0)
    for _ in range(6):
        way = torch.tensor(rng.standard_normal(base.shape))
        way = way + way.mT if "n_samples" in one.options else way
        mine = float((slope * way).sum())
        with torch.no_grad():
            ok = _close(mine, lambda s, w=way: float(one(base + s * w, fixed)), 1e-4, 1.0)
        assert ok


@pytest.mark.parametrize("group", GROUPS[:-1])
def test_gradients_by_settings_are_differences(law: Any, group: str) -> None:
    one, seen, own, slopes = law
    base, name = seen.detach(), f"free_{group}"
    fixed = {key: value.detach() for key, value in own.items()}
    slope = slopes[name]
    for k in range(slope.numel()):
        way = torch.zeros_like(slope)
        way.view(-1)[k] = 1.0
        moved = lambda s, w=way: float(one(base, fixed | {name: fixed[name] + s * w}))  # noqa: E731
        with torch.no_grad():
            assert _close(float(slope.reshape(-1)[k]), moved, 1e-3, float(slope.abs().max()) + 1e-3)


@pytest.mark.parametrize("case", ["plain", "missing cells", "gaps"])
def test_gradients_through_a_linear_mean_are_differences(case: str) -> None:
    x = _samples(3, 30, missing=case == "missing cells", seed=3)[:, :, 0]
    mask = _gaps(30)[0] if case == "gaps" else None
    layer = KGMRFLayer(3, lags=2)
    slope = torch.tensor(np.random.default_rng(0).standard_normal((1, 30, 3, 3)))

    def loss(mean: Any, seen: Any) -> Any:
        out = torch.func.functional_call(layer, {"free_mean": mean}, (seen,), {"mask": mask})
        return out.log_prob.nansum() + (slope * out.covariance).sum() + out.mean.square().sum()

    rng = np.random.default_rng(1)
    mean = torch.tensor(0.2 * rng.standard_normal((2, 3, 3))).requires_grad_()
    seen = x.clone().requires_grad_()
    loss(mean, seen).backward()
    for _ in range(6):
        ways = [torch.tensor(rng.standard_normal(tuple(v.shape))) for v in (mean, seen)]
        for k, own in enumerate((mean, seen)):
            mine = float((own.grad * ways[k]).nansum())

            def moved(s: float, k: int = k, way: Any = ways[k]) -> float:
                given = [mean.detach(), x]
                given[k] = given[k] + s * way
                return float(loss(*given).detach())

            assert _close(mine, moved, 1e-4, 1.0)


def test_a_linear_mean_starts_as_none_and_goes_on_in_pieces() -> None:
    x = _samples(3, 50, missing=True)[:, :, 0]
    plain, layer = KGMRFLayer(3), KGMRFLayer(3, lags=2)
    assert torch.equal(layer(x).log_prob.nan_to_num(), plain(x).log_prob.nan_to_num())
    with torch.no_grad():
        layer.free_mean += 0.1 * torch.randn(2, 3, 3)
    whole = layer(x)
    first = layer(x[:, :21])
    second = layer(x[:, 21:], state=first.state)
    assert torch.allclose(second.mean, whole.mean[:, 21:])
    assert torch.allclose(second.covariance, whole.covariance[:, 21:])


def test_rows_that_predict_each_other_have_a_linear_mean() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 120, 2, dtype=DOUBLE)
    for k in range(1, 120):
        x[:, k] = 0.9 * x[:, k - 1] + torch.randn(4, 2, dtype=DOUBLE)
    layer = KGMRFLayer(2, lags=1, learned=["mean"])
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.05)
    for _ in range(40):
        optimizer.zero_grad()
        (-layer(x).log_prob.nanmean()).backward()
        optimizer.step()
    out = layer(x)
    assert torch.allclose(layer.free_mean[0], 0.9 * torch.eye(2), atol=0.15)
    assert (out.log_prob - KGMRFLayer(2)(x).log_prob).nanmean() > 0.5
    assert torch.allclose(out.density.mean, out.mean)
    assert torch.allclose(out.density.log_prob(x)[:, 1:], out.log_prob[:, 1:], rtol=1e-8)


def test_a_linear_mean_needs_one_sample_a_step() -> None:
    with pytest.raises(ObservationError, match="needs one sample a step"):
        KGMRFLayer(3, lags=1)(torch.randn(1, 9, 4, 3))


def test_tails_start_where_they_are_learned_to() -> None:
    layer = KGMRFLayer(3)
    with torch.no_grad():
        layer.free_tails += torch.tensor([1.0, 0.0, 0.0, -1.0])
    tails = layer(torch.randn(1, 5, 3)).tails[0, 0]
    assert tails[0] > tails[1] > tails[3]
    assert torch.isclose(tails.sum(), torch.ones(()))


def test_the_way_back_covers_the_clock_of_the_top_direction() -> None:
    one = Law(d=3, n_steps=40)
    layer = one.layer
    out = layer(one.seen, samples=True)
    plan = placed(3, layer.settings()[0].detach().numpy())
    gate = track(out.state[0].numpy(), plan).top[-1]
    assert gate > 0.0  # the gate is open: what it adds counts in the laws above


def test_frozen_groups_stay() -> None:
    layer = KGMRFLayer(3, learned=("half_life", "prior"))
    layer(torch.randn(2, 30, 3)).log_prob.nanmean().backward()
    moved = {name for name, p in layer.named_parameters() if p.grad is not None}
    assert moved == {"free_half_life", "free_prior"}


def test_a_late_channel_has_finite_gradients() -> None:
    x = torch.randn(2, 60, 3, dtype=DOUBLE)
    x[:, :25, 2] = 0.0
    x.requires_grad_()
    layer = KGMRFLayer(3)
    layer(x).log_prob.nanmean().backward()
    assert torch.isfinite(x.grad).all()
    assert x.grad[:, 40:].abs().max() > 0
    assert all(torch.isfinite(p.grad).all() for p in layer.parameters())


def test_the_gradient_is_cut_after_so_many_steps() -> None:
    x = torch.randn(1, 30, 3, dtype=DOUBLE, requires_grad=True)
    out = KGMRFLayer(3, gradient_steps=10)(x)
    (slope,) = torch.autograd.grad(out.log_prob[0, 24], x)
    assert (slope[0, :20] == 0).all()
    assert (slope[0, 20:25].abs().amax(-1) > 0).all()
    first = KGMRFLayer(3)
    with torch.no_grad():
        state = first(x[:, :20]).state
    tail = x[:, 20:].detach().requires_grad_()
    (want,) = torch.autograd.grad(first(tail, state=state).log_prob[0, 4], tail)
    assert torch.allclose(slope[0, 20:], want[0])


def test_training_lowers_the_loss() -> None:
    x = _samples(3, 100, seed=4)[:, :, 0].float()
    layer = KGMRFLayer(3)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.05)
    losses = []
    for _ in range(12):
        optimizer.zero_grad()
        loss = -layer(x).log_prob.nanmean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.01


# --------------------------------------------------------------------------- shapes


def test_batch_time_channels_are_samples() -> None:
    out = KGMRFLayer(8)(torch.randn(4, 60, 8))
    assert out.covariance.shape == (4, 60, 8, 8)
    assert out.log_prob.shape == (4, 60)
    assert out.whitened.shape == (4, 60, 8)
    assert out.tangent.shape == (4, 60, 36)


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ((60, 8), {}, "give x"),
        ((4, 60, 7), {}, "expected samples"),
        ((4, 60, 8, 8), {}, "samples=True, or n_samples"),
        ((4, 60, 5, 8), {"n_samples": 3}, "goes with matrices"),
        ((4, 60, 8), {"n_samples": 3}, "goes with matrices"),
        ((4, 0, 8), {}, "no frames"),
        ((4, 60, 8), {"lengths": torch.tensor([3, 4])}, "lengths has shape"),
        ((4, 60, 8), {"state": torch.zeros(4, 3)}, "state has shape"),
    ],
)
def test_other_shapes_are_refused(shape: Any, options: Any, message: str) -> None:
    with pytest.raises(ObservationError, match=message):
        KGMRFLayer(8)(torch.randn(*shape), **options)


def test_settings_of_a_single_law_name_the_other_layer() -> None:
    with pytest.raises(TypeError, match="LawLayer"):
        KGMRFLayer(3, gains="fixed")


def test_lengths_masks_and_packed_sequences_agree() -> None:
    sequences = [torch.randn(n, 3) for n in (30, 20, 25)]
    padded = torch.nn.utils.rnn.pad_sequence(sequences, batch_first=True)
    packed = torch.nn.utils.rnn.pack_sequence(sequences, enforce_sorted=False)
    lengths = torch.tensor([30, 20, 25])
    layer = KGMRFLayer(3)
    mask = torch.arange(30) < lengths[:, None]
    found = [layer(padded, lengths=lengths), layer(padded, mask=mask), layer(packed)]
    for other in found[1:]:
        assert torch.equal(other.log_prob.nan_to_num(), found[0].log_prob.nan_to_num())
    assert found[0].scored.sum(-1).tolist() == [29, 19, 24]


def test_seconds_are_steps_of_the_unit() -> None:
    x = torch.randn(2, 30, 3, dtype=DOUBLE)
    slow = KGMRFLayer(3, unit=0.25)(x, dt=0.5)
    assert torch.allclose(slow.covariance, KGMRFLayer(3)(x, dt=2.0).covariance)


# --------------------------------------------------------------------------- in practice


def test_it_is_exported_with_any_batch_and_time(tmp_path: Any) -> None:
    layer = KGMRFLayer(3)
    dims = {0: torch.export.Dim("batch", min=1), 1: torch.export.Dim("time", min=1)}
    program = torch.export.export(layer, (torch.randn(4, 20, 3),), dynamic_shapes=(dims,))
    torch.export.save(program, tmp_path / "layer.pt2")
    read = torch.export.load(tmp_path / "layer.pt2").module()
    for other in (torch.randn(7, 35, 3), torch.randn(1, 2, 3)):
        mine, theirs = read(other), layer(other)
        assert torch.equal(mine.covariance, theirs.covariance)
        assert torch.equal(mine.log_prob.nan_to_num(), theirs.log_prob.nan_to_num())


def test_a_compiled_graph_gives_the_same_gradients() -> None:
    x = torch.randn(2, 30, 3)
    found = []
    for compiles in (False, True):
        layer = KGMRFLayer(3)
        run = torch.compile(layer, backend="aot_eager", fullgraph=True) if compiles else layer
        run(x).log_prob.nanmean().backward()
        found.append(layer.free_half_life.grad)
    assert torch.allclose(*found)


def test_saved_parameters_and_states_are_plain_tensors(tmp_path: Any) -> None:
    layer = KGMRFLayer(3)
    with torch.no_grad():
        layer.free_half_life += 0.3
    x = torch.randn(2, 30, 3)
    out = layer(x)
    torch.save({"layer": layer.state_dict(), "state": out.state}, tmp_path / "layer.pt")
    read = torch.load(tmp_path / "layer.pt", weights_only=True)
    other = KGMRFLayer(3)
    other.load_state_dict(read["layer"])
    assert torch.equal(
        other(x, state=read["state"]).covariance, layer(x, state=out.state).covariance
    )


def test_half_precision_and_autocast_are_computed_in_double() -> None:
    x = torch.randn(2, 30, 3).half()
    layer = KGMRFLayer(3)
    want = layer(x.double()).covariance
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = layer(x)
    assert out.covariance.dtype == torch.float32
    assert torch.allclose(out.covariance.double(), want, rtol=1e-5)


class Elsewhere(torch.Tensor):
    """Stands in for a tensor on a GPU, which no test machine has: numbers on the CPU that name
    another device. What comes back to that device has no numbers, but shapes and kinds."""

    device = property(lambda self: torch.device("meta"))  # type: ignore[assignment]


def test_tensors_of_other_devices_are_copied_with_one_warning() -> None:
    layer = KGMRFLayer(3)
    x = torch.randn(2, 30, 3)
    with pytest.warns(UserWarning, match="computes on the CPU: tensors on meta") as told:
        out = layer(x.as_subclass(Elsewhere))
    assert len(told) == 1
    want = layer(x)
    for name in ("covariance", "forecast", "scale", "log_prob", "weights", "tangent"):
        found = getattr(out, name)
        assert found.device.type == "meta", name
        assert (found.shape, found.dtype) == (getattr(want, name).shape, torch.float32), name
    assert torch.equal(out.state.as_subclass(torch.Tensor), want.state)  # it stays on the CPU


def test_a_training_step_works_under_autocast() -> None:
    torch.manual_seed(0)
    layer, head = KGMRFLayer(3), torch.nn.Linear(6, 1)
    optimizer = torch.optim.Adam([*layer.parameters(), *head.parameters()], lr=0.01)
    x = torch.randn(2, 30, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = layer(torch.nn.Linear(3, 3)(x))  # of half precision: what a network gives
        loss = head(out.tangent).float().square().mean() - out.log_prob.nanmean()
    loss.backward()
    assert all(torch.isfinite(p.grad).all() for p in layer.parameters())
    optimizer.step()


def test_derivatives_by_intervals_are_refused() -> None:
    with pytest.raises(ValueError, match="no derivatives by dt"):
        KGMRFLayer(2)(torch.randn(1, 5, 2), dt=torch.ones(1, 5, requires_grad=True))


def test_the_density_draws_what_it_says() -> None:
    torch.manual_seed(0)
    density = KGMRFLayer(2)(torch.randn(1, 200, 2, dtype=DOUBLE)).density
    drawn = density.sample((20_000,))[:, 0, -1]
    covariance = drawn.mT @ drawn / len(drawn)
    assert torch.allclose(covariance, density.covariance_matrix[0, -1], rtol=0.15, atol=0.1)


def test_the_loss_takes_forecasts_from_the_first_row() -> None:
    x = torch.randn(2, 40, 6)
    x[..., 5] = x[..., :5].sum(-1)  # singular
    out = KGMRFLayer(6)(x)
    loss = StudentTLoss()(out.scale, x[:, :, None], samples=True)
    loss.backward()
    assert torch.isfinite(loss)
