"""What works with the layers: one test for each row of the table in docs/torch_laws.md."""

from __future__ import annotations

import copy
import io
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: the layers are unchecked")

from torch.nn.utils.rnn import pad_sequence  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from kgmrf import ObservationError  # noqa: E402
from kgmrf.torch import LawLayer, RotationLayer, StudentTLoss  # noqa: E402

torch.set_num_threads(1)


def _samples(*shape: int) -> Any:
    levels = torch.tensor([2.0, 1.0, 0.5])
    return torch.randn(*shape, 3, generator=torch.Generator().manual_seed(0)) * levels


def _collate(sequences: list[Any]) -> tuple[Any, Any]:
    """Sequences of different lengths, padded; and which steps are there."""
    lengths = torch.tensor([len(x) for x in sequences])
    padded = pad_sequence(sequences, batch_first=True)
    return padded, torch.arange(padded.shape[1]) < lengths[:, None]


def test_data_loader_with_lengths() -> None:
    """Padding changes neither the estimates before it nor the loss nor its gradient."""
    layer = LawLayer(3)
    sequences = [_samples(n, 6) for n in (12, 20, 16)]
    ((padded, mask),) = DataLoader(sequences, batch_size=3, collate_fn=_collate)  # type: ignore[arg-type]
    out = layer(padded, samples=True, mask=mask)
    alone = [layer(x[None], samples=True) for x in sequences]
    for k, one in enumerate(alone):
        torch.testing.assert_close(out.estimate[k, : len(sequences[k])], one.estimate[0])
    loss = -out.log_likelihood[out.scored].mean()
    each = torch.cat([one.log_likelihood[one.scored] for one in alone])
    torch.testing.assert_close(loss, -each.mean())
    slopes = torch.autograd.grad(loss, layer.parameters())
    for slope, plain in zip(
        slopes, torch.autograd.grad(-each.mean(), layer.parameters()), strict=True
    ):
        torch.testing.assert_close(slope, plain, rtol=1e-4, atol=1e-6)


def test_torch_compile_takes_the_whole_layer() -> None:
    torch.compiler.reset()
    layer = LawLayer(2, n_samples=8, start="learned")
    x = _samples(2, 2, 8)[..., :2]
    seen = x.mT @ x / 8
    out = torch.compile(layer, backend="eager", fullgraph=True)(seen)
    torch.testing.assert_close(out.estimate, layer(seen).estimate)


def test_amp_and_single_precision() -> None:
    layer, x = LawLayer(3), _samples(2, 15, 6)
    exact = LawLayer(3)(x.double(), samples=True)
    single = layer(x, samples=True)
    assert single.estimate.dtype == torch.float32
    torch.testing.assert_close(single.estimate.double(), exact.estimate, rtol=1e-3, atol=1e-3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = layer(x.bfloat16(), samples=True)
        loss = StudentTLoss()(half.estimate, x, samples=True, mask=half.scored)
    assert half.estimate.dtype == torch.float32
    torch.testing.assert_close(half.estimate, single.estimate, rtol=5e-2, atol=5e-2)
    loss.backward()
    assert all(torch.isfinite(p.grad).all() for p in layer.parameters() if p.grad is not None)


@pytest.mark.parametrize("layer", [LawLayer(3, gains="printed"), RotationLayer(3)])
def test_state_dict_copy_and_pickle(layer: Any) -> None:
    with torch.no_grad():
        for p in layer.parameters():
            p += 0.1
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    twin = copy.deepcopy(layer)
    with torch.no_grad():
        for p in twin.parameters():
            p -= 0.1
    assert not twin.load_state_dict(torch.load(file)).missing_keys
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    whole = torch.load(file, weights_only=False)
    seen = torch.eye(3).expand(2, 9, 3, 3)
    for other in (twin, whole):
        expected, found = (one(seen, n_samples=8).estimate for one in (layer, other))
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("layer", [LawLayer(3), RotationLayer(3)])
def test_jit_script_is_refused_by_name(layer: Any) -> None:
    with pytest.raises(NotImplementedError, match=r"torch\.jit\.script.*torch\.export"):
        torch.jit.script(layer)


def test_rotations_of_four_dimensions_are_not_exported() -> None:
    seen = torch.eye(4).expand(1, 3, 4, 4)
    with pytest.raises(Exception, match=r"rotations of d = 4 cannot be traced"):
        torch.export.export(RotationLayer(4), (seen,))


def test_a_result_prints_its_shapes() -> None:
    out = LawLayer(3)(_samples(2, 50, 6), samples=True, forecast=True)
    assert repr(out) == (
        "Filtered of float32: estimate (2, 50, 3, 3), velocity (2, 50, 3, 3), log_likelihood "
        "(2, 50), nis (2, 50), state of 2 tracks, forecast (2, 50, 3, 3)"
    )
    assert np.shape(out.scored) == (2, 50)


def test_covariances_have_the_name_that_they_have_in_results() -> None:
    x = _samples(2, 50, 6)
    out = LawLayer(3)(x, samples=True)
    assert out.covariance is out.estimate
    assert LawLayer(3, start="learned").stream()(x[:, 0], samples=True).covariance.shape == (
        2,
        3,
        3,
    )
    others = (
        LawLayer(3, output="tangent")(x, samples=True),
        RotationLayer(3)(torch.eye(3).expand(4, 3, 3)),
    )
    for other in others:
        with pytest.raises(AttributeError, match="no covariances"):
            _ = other.covariance


def test_what_a_layer_gives_is_loaded_without_trust(tmp_path):
    """torch.load refused it with its default, weights_only=True."""
    out = LawLayer(3)(torch.randn(2, 20, 1, 3), samples=True)
    torch.save(out, tmp_path / "out.pt")
    found = torch.load(tmp_path / "out.pt", weights_only=True)
    assert type(found) is type(out)
    torch.testing.assert_close(found.forecast, out.forecast, equal_nan=True)
    later = torch.randn(2, 5, 1, 3)
    again = LawLayer(3)(later, samples=True, state=found.state)
    wanted = LawLayer(3)(later, samples=True, state=out.state)
    torch.testing.assert_close(again.estimate, wanted.estimate)


@pytest.mark.parametrize("samples", [True, False])
def test_a_scale_without_full_rank_is_named(samples):
    """It was a bare error of Cholesky's."""
    scale = torch.eye(3).expand(5, 3, 3).clone()
    scale[2] = 1.0
    seen = torch.randn(5, 1, 3) if samples else torch.eye(3).expand(5, 3, 3)
    how = {"samples": True} if samples else {"n_samples": 4.0}
    with pytest.raises(ObservationError, match=r"scale\[2.*not positive definite.*mask="):
        StudentTLoss()(scale, seen, **how)
    assert torch.isfinite(StudentTLoss()(scale, seen, mask=torch.arange(5) != 2, **how))
