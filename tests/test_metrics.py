"""Laws of the error measures: symmetries, invariances, agreement between them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgmrf import metrics, wishart
from kgmrf.geometry import orbit, so

angles = st.floats(-3.0, 3.0)
seeds = st.integers(0, 2**32 - 1)


def ellipse(theta: float, lam: tuple[float, float] = (2.0, 0.5)) -> np.ndarray:
    return orbit.compose(so.exp(so.hat(np.array([theta]))), np.array(lam))


def random_frame(rng: np.random.Generator, d: int, spread: float = 1.0) -> np.ndarray:
    return so.exp(so.hat(spread * rng.standard_normal(d * (d - 1) // 2)))


@given(angles, angles)
def test_angular_error_is_the_axis_difference_modulo_180_degrees(a, b):
    expected = abs((math.degrees(a - b) + 90.0) % 180.0 - 90.0)
    got = metrics.angular_error(ellipse(a), ellipse(b), degrees=True)
    assert got == pytest.approx(expected, abs=1e-9)


@given(angles, angles, st.floats(1.5, 9.0))
def test_in_two_dimensions_the_orbit_error_is_the_angular_error(a, b, ratio):
    one, other = ellipse(a), ellipse(b, (ratio, 1.0))
    assert metrics.orbit_error(one, other) == pytest.approx(
        metrics.angular_error(one, other).item(), abs=1e-7
    )


@given(angles)
def test_axis_angle_points_along_the_major_axis(a):
    m = ellipse(a)
    phi = metrics.axis_angle(m)
    axis = np.array([np.cos(phi), np.sin(phi)])
    assert axis @ m @ axis == pytest.approx(2.0, abs=1e-12)


@given(seeds, st.sampled_from([2, 3, 5]))
def test_rotating_both_changes_no_error(seed, d):
    rng = np.random.default_rng(seed)
    lam = 2.0 ** -np.arange(d)
    r = random_frame(rng, d)
    one = orbit.compose(random_frame(rng, d), lam)
    other = orbit.compose(random_frame(rng, d), lam)
    for measure in (metrics.orbit_error, metrics.affine_invariant_error):
        before = measure(one, other)
        assert measure(r @ one @ r.T, r @ other @ r.T) == pytest.approx(before, abs=1e-6)
        assert measure(other, one) == pytest.approx(before, abs=1e-6)


@given(seeds, st.sampled_from([2, 3, 4]))
def test_orbit_error_of_a_small_turn_is_its_angle(seed, d):
    rng = np.random.default_rng(seed)
    lam = 2.0 ** -np.arange(d)
    frame, turn = random_frame(rng, d), random_frame(rng, d, 0.05)
    one, other = orbit.compose(frame, lam), orbit.compose(frame @ turn, lam)
    angle = np.linalg.norm(so.log(turn)) / math.sqrt(2)
    assert metrics.orbit_error(one, other) == pytest.approx(angle, abs=1e-7)
    assert metrics.geodesic_error(frame, frame @ turn) == pytest.approx(angle, abs=1e-9)


@given(seeds)
def test_affine_invariant_error_ignores_units(seed):
    rng = np.random.default_rng(seed)
    a, b = wishart.sample(np.stack([np.eye(3)] * 2), 12, rng)
    units = np.diag(rng.uniform(0.5, 2.0, 3)) @ random_frame(rng, 3)
    assert metrics.affine_invariant_error(units @ a @ units.T, units @ b @ units.T) == (
        pytest.approx(metrics.affine_invariant_error(a, b), rel=1e-7)
    )


def test_frobenius_is_root_two_times_the_angle_and_degrees_are_degrees():
    turn = so.exp(so.hat(np.array([0.0, 0.0, math.radians(30.0)])))
    assert metrics.geodesic_error(np.eye(3), turn, degrees=True) == pytest.approx(30.0)
    got = metrics.geodesic_error(np.eye(3), turn, degrees=True, norm="frobenius")
    assert got == pytest.approx(np.degrees(np.linalg.norm(so.log(turn))))


def test_the_truth_has_the_best_mean_likelihood():
    rng = np.random.default_rng(1)
    truth = np.array([[2.0, 0.6], [0.6, 1.0]])
    seen = wishart.sample(np.broadcast_to(truth, (4000, 2, 2)), 4, rng)
    score = wishart.predictive_log_likelihood(np.broadcast_to(truth, seen.shape), seen, 4).mean()
    for wrong in (1.2 * truth, 0.8 * truth, np.diag(np.diag(truth))):
        other = wishart.predictive_log_likelihood(np.broadcast_to(wrong, seen.shape), seen, 4)
        assert other.mean() < score


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_a_batch_equals_its_items_and_nan_stays_where_it_was(library):
    if library == "torch":
        torch = pytest.importorskip("torch")
        make = torch.asarray
    else:
        make = np.asarray
    rng = np.random.default_rng(2)
    a = wishart.sample(np.broadcast_to(np.eye(3), (4, 3, 3)), 9, rng)
    b = wishart.sample(np.broadcast_to(np.eye(3), (4, 3, 3)), 9, rng)
    gap = a.copy()
    gap[2] = np.nan
    for measure in (metrics.orbit_error, metrics.affine_invariant_error):
        whole = np.asarray(measure(make(gap), make(b)))
        assert whole.shape == (4,)
        assert np.isnan(whole).tolist() == [False, False, True, False]
        for i in (0, 1, 3):
            assert whole[i] == pytest.approx(float(measure(make(a[i]), make(b[i]))), abs=1e-10)


def test_missing_rotations_and_ellipses_give_nan():
    nothing = np.full((2, 2), np.nan)
    assert np.isnan(metrics.angular_error(nothing, np.eye(2)))
    assert np.isnan(metrics.geodesic_error(nothing, np.eye(2)))


@pytest.mark.parametrize(
    "call",
    [
        lambda: metrics.angular_error(np.eye(3), np.eye(3)),
        lambda: metrics.axis_angle(np.ones(4)),
        lambda: metrics.orbit_error(np.eye(3), np.ones((3, 2))),
        lambda: metrics.affine_invariant_error(np.eye(3), np.eye(2)),
        lambda: metrics.geodesic_error(np.eye(3), np.eye(3), norm="max"),
    ],
)
def test_wrong_shapes_and_names_are_refused(call):
    with pytest.raises(ValueError, match=r"shape|dimensional|norm"):
        call()
