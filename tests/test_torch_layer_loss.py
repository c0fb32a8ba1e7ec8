"""Laws of the Student-t loss and of the forecasts that it scores."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

torch = pytest.importorskip("torch", reason="torch is not installed: the layers are unchecked")

from kgmrf.model.density import GAUSSIAN, TAILS, Density  # noqa: E402
from kgmrf.torch import FixedLaw, LawLayer, RotationLayer, StudentTLoss  # noqa: E402

torch.set_num_threads(1)


def _scale(rng: Any, d: int, n: int) -> Any:
    x = rng.standard_normal((n, 3 * d, d))
    return np.swapaxes(x, -1, -2) @ x / (3 * d)


@settings(max_examples=25, deadline=None)
@given(d=st.integers(1, 4), seed=st.integers(0, 1000), lost=st.floats(0.0, 0.8))
def test_it_is_the_density_of_the_trackers(d: int, seed: int, lost: float) -> None:
    rng = np.random.default_rng(seed)
    scale, x = _scale(rng, d, 6), rng.standard_normal((6, d))
    x[rng.random(x.shape) < lost] = np.nan
    tails = rng.dirichlet(np.ones(len(TAILS)))
    expected = Density(scale, tails, np.array(TAILS)).log_density(x)
    loss = StudentTLoss(tails=tails.tolist()).double()
    found = loss.log_density(torch.tensor(scale), torch.tensor(x)[:, None], samples=True)
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dof", [1.5, 4.0, 1e5])
def test_samples_of_a_step_share_one_t(dof: float) -> None:
    """m samples are one vector of m d numbers with a block-diagonal scale, as scipy has it."""
    rng = np.random.default_rng(0)
    scale, x = _scale(rng, 3, 1)[0], rng.standard_normal((4, 3))
    expected = stats.multivariate_t(np.zeros(12), np.kron(np.eye(4), scale), df=dof).logpdf(
        x.ravel()
    )
    loss = StudentTLoss([dof])
    S, samples = torch.tensor(scale), torch.tensor(x)
    found = loss.log_density(S, samples, samples=True)
    np.testing.assert_allclose(float(found.detach()), expected, rtol=1e-9)
    moments = loss.log_density(S, samples.mT @ samples / 4, n_samples=4)
    np.testing.assert_allclose(float(moments.detach()), expected, rtol=1e-9)


def test_gradients_are_those_of_finite_differences() -> None:
    rng = np.random.default_rng(1)
    scale = torch.tensor(_scale(rng, 3, 2)).requires_grad_()
    x = torch.tensor(rng.standard_normal((2, 2, 3))).requires_grad_()
    loss = StudentTLoss().double()
    assert torch.autograd.gradcheck(lambda S, x: loss(S, x, samples=True), (scale, x))
    numbers = [p.detach().clone().requires_grad_() for p in loss.parameters()]

    def by_parameters(*values: Any) -> Any:
        names = [name for name, _ in loss.named_parameters()]
        settings = dict(zip(names, values, strict=True))
        return torch.func.functional_call(loss, settings, (scale, x), {"samples": True})

    assert torch.autograd.gradcheck(by_parameters, numbers)


def test_masked_steps_and_missing_scales_do_not_count() -> None:
    rng = np.random.default_rng(2)
    scale, x = torch.tensor(_scale(rng, 3, 5)), torch.tensor(rng.standard_normal((5, 2, 3)))
    whole = StudentTLoss(learned=False, reduction="none")(scale, x, samples=True)
    broken = scale.clone()
    broken[1], broken[3] = math.nan, -torch.eye(3)
    broken.requires_grad_()
    mask = torch.tensor([True, True, True, False, True])
    for reduction in ("none", "mean", "sum"):
        loss = StudentTLoss(learned=False, reduction=reduction)
        found = loss(broken, x, samples=True, mask=mask)
        kept = whole[[0, 2, 4]]
        if reduction == "none":
            assert torch.isnan(found[[1, 3]]).all()
            torch.testing.assert_close(found[[0, 2, 4]].detach(), kept)
        else:
            torch.testing.assert_close(found.detach(), getattr(kept, reduction)())
            (slope,) = torch.autograd.grad(found, broken)
            assert torch.isfinite(slope).all()
            assert (slope[[1, 3]] == 0).all()


@pytest.mark.parametrize("graph", [True, False])
@pytest.mark.parametrize("case", ["information", "fixed", "noise floor", "start"])
def test_with_a_gaussian_it_is_the_likelihood_of_the_layer(case: str, graph: bool) -> None:
    """So the forecast is what the likelihood was counted under."""
    rng = np.random.default_rng(3)
    samples = torch.tensor(rng.standard_normal((2, 25, 6, 3)) * [2.0, 1.0, 0.5])
    mask = torch.tensor(rng.random((2, 25)) > 0.2)
    dt = torch.tensor(rng.uniform(0.5, 2.0, (2, 25)))
    kinds: dict[str, dict[str, Any]] = {
        "information": {},
        "fixed": {"gains": FixedLaw(3, retention=0.9, per="plane", coast_retention=0.8)},
        "noise floor": {"noise_floor": 0.2},
        "start": {"start": "learned"},
    }
    layer = LawLayer(3, **kinds[case]).double()
    with torch.set_grad_enabled(graph):
        out = layer(samples, samples=True, mask=mask, dt=dt, forecast=True)
    scale = out.forecast + layer.noise_floor * torch.eye(3)
    loss = StudentTLoss([GAUSSIAN], learned=False)
    found = loss.log_density(scale, samples, samples=True, mask=out.scored)
    torch.testing.assert_close(found, out.log_likelihood, rtol=1e-5, atol=1e-5, equal_nan=True)
    last = layer(samples[:, :24], samples=True, mask=mask[:, :24], dt=dt[:, :24]).state
    ahead, _ = layer.forecast(last, dt[:, 24])
    torch.testing.assert_close(out.forecast[:, 24], ahead)


def test_rotations_have_forecasts_too() -> None:
    seen = torch.linalg.matrix_exp(
        torch.arange(6.0)[:, None, None] * torch.tensor([[0.0, -0.1, 0], [0.1, 0, 0], [0, 0, 0]])
    )
    layer = RotationLayer(3)
    out = layer(seen[None], forecast=True)
    before = layer(seen[None, :5]).state
    torch.testing.assert_close(out.forecast[:, 5], layer.forecast(before)[0])
    assert layer(seen[None]).forecast is None


def test_training_finds_the_tails() -> None:
    """On data with three degrees of freedom the weights go there, and the size with them."""
    rng = np.random.default_rng(4)
    x = torch.tensor(rng.standard_normal((800, 1, 3)))
    x = 1.5 * x / torch.sqrt(torch.tensor(rng.chisquare(3, (800, 1, 1))) / 3)
    loss, scale = StudentTLoss(), torch.eye(3, dtype=torch.float64).expand(800, 3, 3)
    optimizer = torch.optim.Adam(loss.parameters(), lr=0.1)
    before = float(loss(scale, x, samples=True).detach())
    for _ in range(60):
        optimizer.zero_grad()
        loss(scale, x, samples=True).backward()
        optimizer.step()
    tails = loss.tails().detach()
    assert float(loss(scale, x, samples=True).detach()) < before - 0.1
    assert int(tails.argmax()) == 0
    assert 0.5 < float(loss.kappa().detach()) < 0.7  # 2 log 1.5 = .81 is beyond the limit


def test_mistakes_are_named() -> None:
    eye, x = torch.eye(3), torch.zeros(4, 3)
    with pytest.raises(
        ValueError, match=r"scale must be \(\.\.\., d, d\).*got \(3, 3\) and \(4, 2\)"
    ):
        StudentTLoss()(eye, x[:, :2], samples=True)
    with pytest.raises(ValueError, match="n_samples="):
        StudentTLoss()(eye, eye)
    with pytest.raises(ValueError, match="n_samples must be positive"):
        StudentTLoss()(eye, eye, n_samples=0)
    with pytest.raises(TypeError, match="scale must be a torch tensor"):
        StudentTLoss()(np.eye(3), x, samples=True)
    with pytest.raises(ValueError, match="positive weight"):
        StudentTLoss([3.0, 6.0], tails=[1.0])
    with pytest.raises(ValueError, match="positive weight"):
        StudentTLoss([0.0])
    with pytest.raises(ValueError, match="reduction must be one of"):
        StudentTLoss(reduction="max")  # type: ignore[arg-type]
