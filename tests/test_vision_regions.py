import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgmrf.vision import jbld, region_covariance
from kgmrf.vision.cells import cell_moments, colour_and_gradient, place_costs
from kgmrf.vision.regions import cell_matrices, stein_costs
from kgmrf.vision.resample import as_image, cut_window, sample_window


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), d=st.integers(1, 7), data=st.data())
def test_region_covariance_is_np_cov(seed, d, data):
    rng = np.random.default_rng(seed)
    height, width = (data.draw(st.integers(2, 30)) for _ in range(2))
    # grey levels far from zero: naive sums of squares would lose digits here
    planes = 200 + rng.normal(0, rng.uniform(0.1, 50), (d, height, width))
    left, top = data.draw(st.integers(0, width - 2)), data.draw(st.integers(0, height - 2))
    box = [left, top, data.draw(st.integers(2, width - left)), height - top]
    covariance = region_covariance(planes, box)
    pixels = planes[:, top:, left : left + box[2]].reshape(d, -1)
    centred = pixels - pixels.mean(1, keepdims=True)
    expected = centred @ centred.T / (pixels.shape[1] - 1)
    scale = planes.std() ** 2
    np.testing.assert_allclose(covariance, expected, rtol=1e-10, atol=1e-10 * scale)


@pytest.mark.parametrize(
    "box", [[0, 0, 1, 1], [-1, 0, 3, 3], [0, 0, 6, 3], [0, 0, 0, 3], [0.5, 0, 2, 2], [1, 2, 3]]
)
def test_impossible_boxes_are_refused(box):
    with pytest.raises(ValueError, match="box"):
        region_covariance(np.zeros((2, 5, 5)), box)


def _spd(rng, n, d):
    a = rng.normal(size=(n, d, 2 * d))
    return a @ a.swapaxes(-1, -2) / d + 0.05 * np.eye(d)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), d=st.integers(1, 9))
def test_jbld_is_the_slogdet_formula_and_affine_invariant(seed, d):
    rng = np.random.default_rng(seed)
    a, b, g = _spd(rng, 4, d), _spd(rng, 4, d), rng.normal(size=(d, d)) + 3 * np.eye(d)

    def log_det(x):
        return np.linalg.slogdet(x)[1]

    expected = log_det((a + b) / 2) - 0.5 * (log_det(a) + log_det(b))
    np.testing.assert_allclose(jbld(a, b), expected, atol=1e-10)
    np.testing.assert_allclose(jbld(g @ a @ g.T, g @ b @ g.T), expected, rtol=1e-5, atol=1e-6)
    assert (jbld(a, b) >= 0).all()
    np.testing.assert_allclose(jbld(a, a), 0, atol=1e-12)


def _brute_cell(patch, ridge):
    d, n, m = patch.shape
    y, x = np.mgrid[0:n, 0:m].astype(float)
    x, y = (x - x.mean()) / x.std(), (y - y.mean()) / y.std()
    z = np.concatenate([np.ones((1, n * m)), [x.ravel(), y.ravel()], patch.reshape(d, -1)])
    return z @ z.T / (n * m) + np.diag([0, 0, 0] + [ridge] * d)


@pytest.mark.parametrize(("d", "stride"), [(1, 4), (3, 2), (5, 4), (5, 8), (7, 4)])
def test_cell_maps_are_moments_of_their_pixels(d, stride):
    rng = np.random.default_rng(d)
    features = rng.normal(size=(d, 25, 31)).astype(np.float32)
    maps = cell_moments(features, 8, stride, 0.01)
    got = cell_matrices(maps, d).reshape(*maps.shape[1:], d + 3, d + 3)
    assert maps.shape[1:] == ((25 - 8) // stride + 1, (31 - 8) // stride + 1)
    for i, j in np.ndindex(maps.shape[1:]):
        patch = features[:, i * stride : i * stride + 8, j * stride : j * stride + 8]
        expected = _brute_cell(patch.astype(float), 0.01)
        np.testing.assert_allclose(got[i, j], expected, atol=3e-6)


@pytest.mark.parametrize("softness", [0.0, 0.4])
@pytest.mark.parametrize(
    ("cell", "stride", "high", "wide", "d"),
    [(8, 4, 36, 52, 5), (6, 3, 30, 31, 2), (4, 1, 8, 12, 5), (4, 1, 10, 17, 3), (4, 2, 12, 16, 9)],
)
def test_costs_are_sums_of_jblds(softness, cell, stride, high, wide, d):
    rng = np.random.default_rng(3)
    nx, ny, step = 3, 2, cell // stride
    features = rng.normal(size=(d, high, wide)).astype(np.float32)
    maps = cell_moments(features, cell, stride, 0.01)
    places = cell_matrices(maps, d).reshape(*maps.shape[1:], d + 3, d + 3)
    models = _spd(rng, nx * ny, d + 3)  # any SPD matrix, as a tracker may return
    weights = rng.random(nx * ny).astype(np.float32)
    weights[1] = 0
    log_dets = np.linalg.slogdet(models)[1].astype(np.float32)
    model = models.astype(np.float32), log_dets, weights, nx, ny
    got = place_costs(features, cell, stride, 0.01, *model, softness)
    expected = np.zeros((maps.shape[1] - step * (ny - 1), maps.shape[2] - step * (nx - 1)))
    for k in range(nx * ny):
        v, u = step * (k // nx), step * (k % nx)
        t = jbld(places[v : v + expected.shape[0], u : u + expected.shape[1]], models[k])
        expected += weights[k] * t / (1 + softness * t)
    np.testing.assert_allclose(got, expected, rtol=2e-4)


@pytest.mark.parametrize("channels", [1, 3])
def test_features_are_colour_and_absolute_gradient(channels):
    rng = np.random.default_rng(5)
    planes = rng.uniform(0, 255, (channels, 7, 9)).astype(np.float32)
    offset, gain = rng.normal(size=(2, channels + 2)).astype(np.float32)
    gy, gx = np.gradient(planes.mean(0))
    features = np.concatenate([planes, np.abs([gx, gy])])[:, 1:-1, 1:-1]
    plain = (features - offset[:, None, None]) * gain[:, None, None]
    np.testing.assert_allclose(
        colour_and_gradient(planes, offset, gain), plain, rtol=1e-5, atol=1e-4
    )


def test_stein_costs_are_jblds():
    rng = np.random.default_rng(6)
    first, second = _spd(rng, 9, 6), _spd(rng, 9, 6)
    log_dets, costs = stein_costs(first, second)
    np.testing.assert_allclose(log_dets, np.linalg.slogdet(second)[1], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(costs, jbld(first, second), rtol=1e-9, atol=1e-9)


def test_window_replicates_edges_and_averages_blocks():
    image = np.arange(20, dtype=np.uint8).reshape(4, 5, 1)
    window = cut_window(image, -2, -1, 8, 5, 1, 1)
    padded = np.pad(image[:, :, 0], ((1, 9), (2, 9)), mode="edge")
    n, m = window.pixels.shape[:2]
    np.testing.assert_array_equal(window.pixels[:, :, 0], padded[:n, :m])
    np.testing.assert_array_equal(cut_window(image, 50, 60, 3, 3, 1, 1).pixels, 19)
    np.testing.assert_array_equal(cut_window(image, -50, -60, 3, 3, 1, 1).pixels, 0)
    blocks = cut_window(image, 0, 0, 4, 4, 2, 2)
    expected = image[:4, :4, 0].reshape(2, 2, 2, 2).mean((1, 3))
    np.testing.assert_allclose(blocks.pixels[:2, :2, 0], expected)


@settings(max_examples=25, deadline=None)
@given(st.floats(0.4, 6), st.floats(0.4, 6), st.floats(-3, 20), st.floats(-3, 20))
def test_sampling_keeps_linear_images(step_x, step_y, x, y):
    # any antialiasing filter that is symmetric and sums to one leaves a plane as it is
    rows, cols = np.mgrid[0:90, 0:100].astype(np.float32)
    image = np.stack([rows, cols], axis=-1)
    x, y = x + 15, y + 15
    window = cut_window(image, x - 10, y - 10, 60, 60, step_x, step_y)
    got = sample_window(window, x, y, step_x, step_y, 5, 4)
    np.testing.assert_allclose(got[1, 0], x + step_x * np.arange(5), atol=2e-3)
    np.testing.assert_allclose(got[0, :, 0], y + step_y * np.arange(4), atol=2e-3)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int32, np.float32, np.float64, np.bool_])
def test_every_dtype_reaches_the_same_scale(dtype):
    white = {np.uint8: 255, np.uint16: 65535, np.int32: 2**31 - 1}.get(dtype, 1)
    image = np.zeros((4, 5, 3), dtype)
    image[1:] = white
    got = as_image(image)
    assert (got.min(), got.max()) == (0, 255)
    assert as_image(image[:, :, 0]).shape == (4, 5, 1)
    with pytest.raises(ValueError, match="shape"):
        as_image(np.zeros(3))
