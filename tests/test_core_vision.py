"""The loops of vision on the core are the readable ones, to single precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgmrf.engines import core
from kgmrf.readable import vision as readable
from kgmrf.vision import BoxTracker
from kgmrf.vision.clip import demo_clip

pytestmark = pytest.mark.skipif(core.compiled() is None, reason="no compiled core")

EPS = float(np.finfo(np.float32).eps)
seeds = st.integers(0, 2**32 - 1)


def both(name: str, arguments: tuple[Any, ...], shape: tuple[int, ...]) -> list[np.ndarray]:
    """What the core and the readable form write."""
    found = [np.full(shape, np.nan, np.float32) for _ in range(2)]
    for loops, out in zip((core.compiled(), readable), found, strict=True):
        getattr(loops, name)(*arguments, out)
    return found


@settings(max_examples=40, deadline=None)
@given(seeds, st.integers(1, 7), st.integers(1, 9), st.integers(1, 9), st.data())
def test_moments_of_cells(seed: int, d: int, cell: int, stride: int, data: Any) -> None:
    high, wide = (data.draw(st.integers(cell, 40)) for _ in range(2))
    features = np.random.default_rng(seed).normal(size=(d, high, wide)).astype(np.float32)
    shape = 3 * d + d * (d + 1) // 2, (high - cell) // stride + 1, (wide - cell) // stride + 1
    got, plain = both("cell_moments", (features, cell, stride, 0.01), shape)
    # Sums of cell^2 products of numbers up to 5, rounded once each at worst.
    np.testing.assert_allclose(got, plain, atol=25 * cell**2 * EPS)


@settings(max_examples=40, deadline=None)
@given(seeds, st.integers(1, 9), st.sampled_from([(4, 1), (4, 2), (6, 3), (8, 4), (8, 8)]))
@pytest.mark.parametrize("softness", [0.0, 0.4])
def test_costs_of_places(softness: float, seed: int, d: int, cells: tuple[int, int]) -> None:
    rng = np.random.default_rng(seed)
    (cell, stride), (nx, ny) = cells, rng.integers(1, 5, 2).tolist()
    high, wide = ny * cell + int(rng.integers(0, 20)), nx * cell + int(rng.integers(0, 20))
    features = rng.normal(size=(d, high, wide)).astype(np.float32)
    x = rng.normal(size=(nx * ny, d + 3, 2 * d + 6))
    models = (x @ x.swapaxes(-1, -2) / (2 * d) + 0.05 * np.eye(d + 3)).astype(np.float32)
    log_dets = np.linalg.slogdet(models.astype(float))[1].astype(np.float32)
    weights = rng.random(nx * ny).astype(np.float32)
    weights[rng.random(nx * ny) < 0.3] = 0.0
    step = cell // stride
    shape = (
        (high - cell) // stride + 1 - (ny - 1) * step,
        (wide - cell) // stride + 1 - (nx - 1) * step,
    )
    given_ = features, cell, stride, 0.05, models, log_dets, weights, nx, ny, softness
    got, plain = both("place_costs", given_, shape)
    # log det of a cell: its features vary by .05 or more beside means up to 5.
    worst = weights.sum() * (d + 3) * 1e3 * EPS
    np.testing.assert_allclose(got, plain, rtol=1e-3, atol=worst)


@settings(max_examples=30, deadline=None)
@given(seeds, st.integers(1, 4), st.integers(3, 40), st.integers(3, 40))
def test_colour_and_gradient(seed: int, channels: int, high: int, wide: int) -> None:
    rng = np.random.default_rng(seed)
    planes = rng.uniform(0, 255, (channels, high, wide)).astype(np.float32)
    offset, gain = rng.normal(size=(2, channels + 2)).astype(np.float32)
    got, plain = both(
        "colour_and_gradient", (planes, offset, gain), (channels + 2, high - 2, wide - 2)
    )
    np.testing.assert_allclose(got, plain, atol=255 * 8 * EPS * max(1.0, abs(gain).max()))


@settings(max_examples=60, deadline=None)
@given(seeds, st.sampled_from([np.uint8, np.float32]), st.integers(1, 4), st.data())
def test_windows_of_images(seed: int, dtype: Any, channels: int, data: Any) -> None:
    rng = np.random.default_rng(seed)
    size = tuple(data.draw(st.integers(1, 30)) for _ in range(2))
    image = rng.uniform(0, 255, (*size, channels)).astype(dtype)
    at = [data.draw(st.integers(-60, 60)) for _ in range(2)]
    blocks = [data.draw(st.integers(1, 7)) for _ in range(2)]
    shape = data.draw(st.integers(1, 20)), data.draw(st.integers(1, 20)), channels
    got, plain = both("decimate", (image, *at, *blocks), shape)
    np.testing.assert_allclose(got, plain, atol=255 * 50 * EPS)


@settings(max_examples=60, deadline=None)
@given(seeds, st.integers(1, 4), st.data())
def test_samples_of_images(seed: int, channels: int, data: Any) -> None:
    rng = np.random.default_rng(seed)
    size = tuple(data.draw(st.integers(1, 30)) for _ in range(2))
    image = rng.uniform(0, 255, (*size, channels)).astype(np.float32)
    point = [data.draw(st.floats(-40, 40)) for _ in range(2)]
    step = [data.draw(st.floats(0.05, 6)) for _ in range(2)]
    shape = channels, data.draw(st.integers(1, 20)), data.draw(st.integers(1, 20))
    got, plain = both("sample_image", (image, *point, *step), shape)
    np.testing.assert_allclose(got, plain, atol=255 * 200 * EPS)


def test_a_box_is_followed_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    clip = demo_clip(6)
    paths = []
    for engine in ("", "readable"):
        monkeypatch.setenv("KGMRF_ENGINE", engine)
        tracker = BoxTracker()
        tracker.init(clip.frames[0], clip.boxes[0])
        paths.append([tracker.update(frame)[1] for frame in clip.frames[1:]])
    np.testing.assert_allclose(paths[0], paths[1], atol=0.02)


def test_shapes_and_sizes_are_checked() -> None:
    loops = core.compiled()
    features = np.zeros((2, 12, 12), np.float32)
    out = np.zeros((9, 7, 7), np.float32)
    loops.cell_moments(features, 6, 1, 0.1, out)
    for cell, stride, shape in [
        (0, 1, (9, 7, 7)),
        (13, 1, (9, 7, 7)),
        (6, 0, (9, 7, 7)),
        (6, 1, (9, 7, 8)),
    ]:
        with pytest.raises(ValueError, match=r"must be|at least"):
            loops.cell_moments(features, cell, stride, 0.1, np.zeros(shape, np.float32))
    with pytest.raises(TypeError):
        loops.cell_moments(features.astype(np.float64), 6, 1, 0.1, out)
    models, ones = np.zeros((4, 5, 5), np.float32), np.ones(4, np.float32)
    for stride, nx, ny, message in [(4, 2, 2, "divide"), (3, 3, 2, "models"), (1, 2, 2, "out")]:
        with pytest.raises(ValueError, match=message):
            loops.place_costs(features, 6, stride, 0.1, models, ones, ones, nx, ny, 0.0, out[0])
    image = np.zeros((4, 4, 2), np.float32)
    with pytest.raises(ValueError, match="blocks"):
        loops.decimate(image, 0, 0, 0, 1, np.zeros((2, 2, 2), np.float32))
    with pytest.raises(ValueError, match="too far"):
        loops.decimate(image, 2**62, 0, 1, 1, np.zeros((2, 2, 2), np.float32))
    with pytest.raises(ValueError, match="steps"):
        loops.sample_image(image, 0.0, 0.0, float("nan"), 1.0, np.zeros((2, 2, 2), np.float32))
