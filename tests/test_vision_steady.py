"""Laws of the stabiliser: what the camera did is taken out, and what it meant stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("cv2", reason="OpenCV is not installed: no video")

import cv2
from hypothesis import given, settings
from hypothesis import strategies as st

from kgmrf import RotationTracker, VectorTracker, gains
from kgmrf.geometry import so
from kgmrf.smoothing import gmrf
from kgmrf.vision import Stabilizer
from kgmrf.vision.camera import CameraRotation, FeatureMotion, RecordedMotion, Similarity, smoothed
from kgmrf.vision.live import MOST_ROOM, LivePath, Room, limited
from kgmrf.vision.scenery import street
from kgmrf.vision.steady import steady_rectangle

SIZE = (200, 150)
N = 40
NUMBERS = st.floats(-1, 1)


def _poses(seed: int, n: int = N, drift: float = 0.0) -> np.ndarray:
    """Shake in x, y, angle and log scale, and a drift to the right."""
    rng = np.random.default_rng(seed)
    shake = np.cumsum(rng.normal(0, 1, (n, 4)), axis=0)
    shake -= shake.mean(0)
    poses = shake / shake.std(0) * [3.0, 3.0, 0.01, 0.004]
    poses[:, 0] += drift * np.arange(n)
    return poses


def _views(poses: np.ndarray, size: tuple[int, int] = SIZE, scene: Any = None) -> list[np.ndarray]:
    """What a camera at these poses sees of a street, or of another scene."""
    scene = street(300, 520, 4) if scene is None else scene
    model = Similarity(size)
    place = np.array([[1, 0, 160.0], [0, 1, 75.0], [0, 0, 1]])
    return [
        cv2.warpAffine(
            scene,
            (place @ model._matrix(pose))[:2],
            size,
            flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
        )
        .round()
        .astype(np.uint8)
        for pose in poses
    ]


def _shake(warps: np.ndarray, poses: np.ndarray) -> float:
    """Mean acceleration of the background, pixels per image squared."""
    model = Similarity(SIZE)
    scene = np.array([[60.0, 40, 1], [140, 40, 1], [140, 110, 1], [60, 110, 1]]).T
    where = warps @ np.linalg.inv(model._matrix(poses)) @ scene
    return float(np.hypot(*np.diff(where[:, :2], 2, axis=0).transpose(1, 0, 2)).mean())


@settings(max_examples=50, deadline=None)
@given(st.tuples(*[NUMBERS] * 4), st.tuples(*[NUMBERS] * 4))
def test_steps_compose_as_matrices_do(first: tuple[float, ...], second: tuple[float, ...]) -> None:
    model = Similarity(SIZE)
    a, b = np.array(first) * [50, 50, 3, 1], np.array(second) * [50, 50, 3, 1]
    both = model._matrix(a) @ model._matrix(b)
    np.testing.assert_allclose(model._matrix(model.compose(a, b)), both, atol=1e-9)
    np.testing.assert_allclose(
        model.warp(a, b), np.linalg.solve(model._matrix(b), model._matrix(a)), atol=1e-9
    )
    np.testing.assert_allclose(
        model.add(a[None], model.difference(a[None], b[None]))[0], b, atol=1e-12
    )


@settings(max_examples=30, deadline=None)
@given(st.tuples(*[NUMBERS] * 3), st.tuples(*[NUMBERS] * 3))
def test_rotations_differ_by_what_is_added(
    first: tuple[float, ...], second: tuple[float, ...]
) -> None:
    model = CameraRotation(SIZE, 150.0)
    a, b = so.exp(so.hat(np.array([first, second])))
    np.testing.assert_allclose(
        model.add(a[None], model.difference(a[None], b[None]))[0], b, atol=1e-9
    )
    np.testing.assert_allclose(model.warp(a, a), np.eye(3), atol=1e-9)


def test_features_tell_the_true_motion() -> None:
    poses = _poses(1)
    poses -= poses[0]
    model = Similarity(SIZE)
    motion, pose = FeatureMotion(model), model.start
    for image, true in zip(_views(poses), poses, strict=True):
        step = motion.update(image)
        assert step is not None
        pose = model.compose(pose, step)
        assert (
            np.abs(model._matrix(pose) @ [100, 75, 1] - model._matrix(true) @ [100, 75, 1]).max()
            < 1
        )
        assert abs(pose[2] - true[2]) < 0.01


def test_a_recording_becomes_steady_and_is_cropped() -> None:
    poses = _poses(2, drift=1.5)
    images = _views(poses)
    stabilizer = Stabilizer(15.0, keep=0.7)
    made = list(stabilizer.stabilize(images))
    assert len(made) == N
    still = np.tile(np.eye(3), (N, 1, 1))
    assert _shake(stabilizer.warps, poses) < 0.1 * _shake(still, poses)
    # the drift was meant: it stays
    assert stabilizer.steady_path[-1, 0] - stabilizer.steady_path[0, 0] > 1.2 * N
    kept = stabilizer.rectangle
    assert 0.7 * (SIZE[0] - 1) <= kept.width < SIZE[0]
    assert made[0].shape == (int(kept.height) // 2 * 2, int(kept.width) // 2 * 2, 3)
    # no border is seen: filled with white or with black, the images are the same
    size = (made[0].shape[1], made[0].shape[0])
    left = kept.left + 0.5 * (kept.width - size[0])
    top = kept.top + 0.5 * (kept.height - size[1])
    for image, warp, own in zip(images, stabilizer.warps, made, strict=True):
        matrix = (np.array([[1, 0, -left], [0, 1, -top], [0, 0, 1]]) @ warp)[:2]
        white = cv2.warpAffine(image, matrix, size, borderValue=(255, 255, 255))
        np.testing.assert_array_equal(own, white)


@pytest.mark.parametrize("keep", [0.75, 0.9, 0.97])
def test_as_much_is_kept_as_asked(keep: float) -> None:
    poses = _poses(3, drift=-3.0)
    stabilizer = Stabilizer(20.0, keep=keep)
    stabilizer.watch(_views(poses))
    stabilizer.plan()
    assert stabilizer.rectangle.width >= keep * (SIZE[0] - 1) * (1 - 1e-6)
    still = np.tile(np.eye(3), (N, 1, 1))
    assert _shake(stabilizer.warps, poses) < _shake(still, poses)


@pytest.mark.parametrize("lag", [0, 8])
def test_live_shows_the_image_of_lag_ago_and_knows_no_later_ones(lag: int) -> None:
    poses = _poses(4, drift=1.0)
    images = _views(poses)
    live = Stabilizer(6.0, lag=lag, keep=0.6)
    made = [live.update(image) for image in images]
    assert [image is None for image in made] == [True] * lag + [False] * (N - lag)
    shown = [image for image in made if image is not None] + list(live.finish())
    assert len(shown) == N
    assert {image.shape for image in shown} == {(90, 120, 3)}
    _, path, steady = live.numbers()
    assert _shake(Similarity(SIZE).warp(path, steady), poses) < 0.5 * _shake(
        np.tile(np.eye(3), (N, 1, 1)), poses
    )
    other = Stabilizer(6.0, lag=lag, keep=0.6)
    for image in images[:20] + images[:0:-1][:19]:
        other.update(image)
    list(other.finish())
    known = 20 - lag
    np.testing.assert_array_equal(other.numbers()[2][:known], steady[:known])
    assert np.abs(other.numbers()[2][20:] - steady[20:39]).max() > 0.5


def _shaken(seed: int, n: int = 200, pan: float = 0.0) -> np.ndarray:
    """A camera in a trembling hand: shake of 10 to 25 images, and a pan that begins at once."""
    rng = np.random.default_rng(seed)
    frequency = np.fft.rfftfreq(4 * n)
    band = sum(
        np.exp(-0.5 * (np.log(np.maximum(frequency, 1e-6) * period) / 0.5) ** 2)
        for period in (10, 25)
    )
    noise = np.fft.irfft(np.fft.rfft(rng.standard_normal((4, 4 * n))) * band)[:, :n].T
    poses = noise / noise.std(0) * [6.0, 6.0, 0.006, 0.002]
    poses[:, 0] += pan * np.arange(n)
    return poses


def _live(path: np.ndarray, lag: int, keep: float, size: tuple[int, int]) -> np.ndarray:
    model = Similarity(size)
    live = LivePath(model, Room(model, size, keep), 30.0, lag)
    pairs = (
        live.next(path[max(0, t - 180) : t + lag + 1], min(t, 180), begins=t <= 180)
        for t in range(len(path))
    )
    return np.stack([steady for _, steady in pairs])


def _kalman(path: np.ndarray, keep: float, size: tuple[int, int]) -> np.ndarray:
    """The plain rival: what a constant-velocity filter says of each number, held in the image."""
    model = Similarity(size)
    room = Room(model, size, keep)
    filtered = VectorTracker(4, noise_std=1.0, acceleration=30.0**-4, rate_prior=1e-3)
    return room.clamped(path, filtered.filter(path).position)


def _bend(path: np.ndarray) -> float:
    return float(np.hypot(*np.diff(path[:, :2], 2, axis=0).T).mean())


@pytest.mark.parametrize("pan", [0.0, 4.0])
@pytest.mark.parametrize(("keep", "bound"), [(0.92, 0.75), (0.8, 0.3)])
def test_live_is_steadier_than_a_kalman_filter_at_every_lag(
    keep: float, bound: float, pan: float
) -> None:
    path, size = _shaken(10, pan=pan), (640, 480)
    rival = _bend(_kalman(path, keep, size))
    found = [_bend(_live(path, lag, keep, size)) for lag in (0, 5, 15)]
    assert found[0] < bound * rival  # the more room, the steadier
    assert found[2] < found[1] < 0.6 * found[0]
    assert found[0] < 0.2 * _bend(path)


def test_live_keeps_inside_the_image_and_follows_a_steady_camera_exactly() -> None:
    size = (640, 480)
    model = Similarity(size)
    wild = 12 * _shaken(11)
    wild[:, 2:] /= 12
    steady = _live(wild, 5, 0.9, size)
    assert Room(model, size, 0.9).used(wild, steady).max() <= 1 + 1e-9
    assert _bend(steady) < _bend(wild)
    pan = np.zeros((320, 4))
    pan[:, 0] = 3.0 * np.arange(320)
    # six time constants after its start nothing is left of it
    np.testing.assert_allclose(_live(pan, 0, 0.9, size)[200:], pan[200:], atol=0.02)


@given(st.lists(st.floats(0, 50), min_size=2, max_size=9))
def test_the_room_is_used_freely_at_first_and_never_wholly(wanted: list[float]) -> None:
    used = limited(np.sort(wanted))
    assert (np.diff(used) >= 0).all()
    assert (used <= np.minimum(np.sort(wanted) + 1e-12, MOST_ROOM)).all()


def test_one_jolt_does_not_stiffen_what_comes_after() -> None:
    """A jolt fills the room once; a hundred images later nothing of it is left."""
    path, size = _shaken(12), (640, 480)
    jolted = path.copy()
    jolted[50:53, 0] += 120.0
    calm, found = (_live(p, 0, 0.9, size) for p in (path, jolted))
    assert np.abs(calm[50:56] - found[50:56]).max() > 20
    assert _bend(found[120:]) < 1.1 * _bend(calm[120:])


@pytest.mark.parametrize("lag", [0, 1, 5])
@pytest.mark.parametrize("keep", [0.75, 0.9])
def test_a_pan_faster_and_faster_is_not_shown_shakier_than_it_was_filmed(
    keep: float, lag: int
) -> None:
    rng = np.random.default_rng(13)
    path = np.zeros((220, 4))
    rate = 0.5 * np.exp(np.arange(220) / 50)  # to 40 pixels per image
    path[:, 0] = np.cumsum(rate + np.cumsum(rng.normal(0, 0.3, 220)))
    path[:, 1] = np.cumsum(rng.normal(0, 0.5, 220))
    assert _bend(_live(path, lag, keep, (640, 272))) < _bend(path)


def test_points_of_another_motion_that_take_over_do_not_jolt_the_path() -> None:
    """The background leaves the view of a pan; what is left stands in the image."""
    from kgmrf.vision.camera import _Steps

    model = Similarity(SIZE)
    steps, rng = _Steps(model), np.random.default_rng(0)
    pan = np.array([30.0, 0, 0, 0]) + rng.normal(0, 0.5, (40, 4)) * [1, 1, 0, 0]
    before = [steps.joined(step, False) for step in pan]
    np.testing.assert_array_equal(before, pan)
    after = [steps.joined(step - [30, 0, 0, 0], k == 0) for k, step in enumerate(pan)]
    np.testing.assert_allclose(np.array(after)[:, 0], 30, atol=3)
    # shake of every size is the camera's own: the change is not abrupt
    steps = _Steps(model)
    shake = rng.normal(0, 15, (40, 4)) * [1, 1, 0, 0]
    np.testing.assert_array_equal([steps.joined(step, True) for step in shake], shake)


def test_dark_images_are_coasted_through_and_the_path_goes_on() -> None:
    poses = _poses(5, drift=2.0)
    poses -= poses[0]
    images = _views(poses)
    for k in range(15, 20):
        images[k] = np.zeros_like(images[k])
    stabilizer = Stabilizer(10.0, keep=0.6)
    assert len(list(stabilizer.stabilize(images))) == N
    gap = np.isnan(stabilizer.path[:, 0])
    assert np.flatnonzero(gap).tolist() == [15, 16, 17, 18, 19]
    assert np.isfinite(stabilizer.warps).all()
    # the image after the gap is compared with the one before it
    assert np.abs(stabilizer.path[25, :2] - poses[25, :2]).max() < 3
    # images of one grey throughout: nothing to see, nothing moves
    blank = Stabilizer(5.0)
    made = list(blank.stabilize([np.full((60, 80, 3), 99, np.uint8)] * 25))
    assert all((image == 99).all() for image in made)


def test_a_jump_is_one_gap_and_the_path_starts_again_from_there() -> None:
    first, second = _poses(6), _poses(7)
    noise = np.random.default_rng(0).uniform(0, 255, (300, 520, 3)).astype(np.float32)
    other = _views(second, scene=cv2.GaussianBlur(noise, (0, 0), 3) * 4 - 380)
    stabilizer = Stabilizer(10.0)
    stabilizer.watch(_views(first)[:20] + other[:20])
    stabilizer.plan()
    assert np.flatnonzero(np.isnan(stabilizer.path[:, 0])).tolist() == [20]
    steps = np.diff(stabilizer.path[21:, :2], axis=0)
    true = np.diff(second[1:20, :2], axis=0)
    np.testing.assert_allclose(steps, true, atol=0.5)


def test_the_path_issmoothed_as_the_trackers_do() -> None:
    rng = np.random.default_rng(8)
    weights = rng.uniform(0.5, 20, N)
    poses = _poses(8, drift=3.0)
    poses[12:15] = np.nan
    tracker = VectorTracker(4, noise_std=1.0, acceleration=8.0**-4, rate_prior=0.3)
    wanted = tracker.smooth(poses, n_samples=weights).position
    found = Similarity(SIZE).smooth(poses, weights, 8.0, 0.3)
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    turns = so.exp(so.hat(np.cumsum(rng.normal(0, 0.01, (N, 3)), axis=0) + [0, 2.0, 0]))
    turns[12:15] = np.nan
    law = gains.information(1e-4 * 8.0**-4, rate_prior=0.3e-4)
    seen = RotationTracker(noise_std=0.01, gains=law).smooth(turns, n_samples=weights)
    model = CameraRotation(SIZE, 200.0)
    off = model.difference(model.smooth(turns, weights, 8.0, 0.3), seen.rotation)
    assert np.abs(off).max() < 1e-3


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.floats(1, 30))
def test_the_banded_solve_is_that_of_the_random_field(seed: int, n: int, smoothness: float) -> None:
    rng = np.random.default_rng(seed)
    rows, weights = np.cumsum(rng.normal(0, 2, (n, 3)), axis=0), rng.uniform(1, 50, n)
    rows[1:][rng.random(n - 1) < 0.3] = np.nan
    rate_prior = float(rng.uniform(0.01, 1))
    law = gains.InformationGains(smoothness**-4.0, rate_prior=rate_prior, angle_prior=1e12)
    seen, centre = np.isfinite(rows), np.nanmean(rows, axis=0)
    variance = np.where(seen, 1 / weights[:, None], np.inf)
    wanted = gmrf.solve(gmrf.chain(law, variance), rows - centre)[..., 0] + centre
    found = smoothed(rows, weights, smoothness, rate_prior)
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_long_darkness_live() -> None:
    images = _views(_poses(9))[:10] + [np.zeros((*SIZE[::-1], 3), np.uint8)] * 30
    stabilizer = Stabilizer(2.0, lag=1)
    made = [stabilizer.update(image) for image in images]
    assert all(image is not None for image in made[1:])
    stabilizer.numbers()
    assert np.isfinite(stabilizer.warps).all()


def test_a_turning_camera_is_steadied_by_its_gyroscope() -> None:
    rng = np.random.default_rng(6)
    n, rate, focal = 60, 30.0, 160.0
    stamps = np.arange(0, n / rate + 0.1, 0.005)
    rates = np.stack([np.sin(stamps * f) for f in (21.0, 26.0, 17.0)], axis=1) * [0.3, 0.3, 0.2]
    truth = RecordedMotion.integrated(rates, stamps)
    seen = rates + rng.normal(0, 0.002, rates.shape)
    times = np.arange(n) / rate
    cameras = RecordedMotion.sampled(truth, stamps, times).rotations
    model = CameraRotation(SIZE, focal)
    scene = street(300, 520, 4)
    place = np.array([[1, 0, 160.0], [0, 1, 75.0], [0, 0, 1]])
    inverse = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    images = [
        cv2.warpPerspective(scene, place @ model.warp(R, np.eye(3)), SIZE, flags=inverse).astype(
            np.uint8
        )
        for R in cameras
    ]

    def shake(paths: np.ndarray) -> float:
        rays = (paths @ np.array([0.0, 0.0, 1.0]))[:, :2]
        return float(np.hypot(*np.diff(focal * rays, 2, axis=0).T).mean())

    for motion in (
        RecordedMotion.sampled(RecordedMotion.integrated(seen, stamps), stamps, times),
        None,
    ):
        stabilizer = Stabilizer(12.0, keep=0.7, focal=focal, motion=motion)
        made = list(stabilizer.stabilize(images))
        assert len(made) == n
        assert so.distance(stabilizer.path[-1], cameras[0].T @ cameras[-1]) < 0.01
        # where the true camera points after the correction
        left = np.swapaxes(stabilizer.path, -1, -2) @ stabilizer.steady_path
        assert shake(cameras @ left) < 0.1 * shake(cameras)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_the_rectangle_is_inside_every_image_and_touches_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    poses = rng.normal(0, 1, (12, 4)) * [6, 6, 0.03, 0.02]
    warps = Similarity(SIZE).warp(poses, np.zeros(4))
    x, y, width, height = steady_rectangle(warps, SIZE)
    assert width / height == pytest.approx((SIZE[0] - 1) / (SIZE[1] - 1), rel=1e-5)
    corners = np.array(
        [[x, y, 1], [x + width, y, 1], [x + width, y + height, 1], [x, y + height, 1]]
    )
    sources = (np.linalg.inv(warps) @ corners.T)[:, :2]
    room = np.minimum(sources, (np.array(SIZE) - 1)[:, None] - sources).min()
    assert -1e-3 < room < 0.1


def test_settings_are_checked() -> None:
    for wrong, words in (
        ({"smoothness": 0}, "smoothness must be at least 1"),
        ({"lag": -1}, "lag must be None"),
        ({"keep": 1.0}, "keep must be a share"),
        ({"border": "blue"}, "border is one of"),
    ):
        with pytest.raises(ValueError, match=words):
            Stabilizer(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="lag is None"):
        Stabilizer().update(np.zeros((20, 20, 3), np.uint8))
    with pytest.raises(RuntimeError, match="no image yet"):
        Stabilizer().plan()
    with pytest.raises(ValueError, match="focal length"):
        CameraRotation(SIZE, 0.0)
    two = Stabilizer(lag=0)
    two.update(np.zeros((20, 20, 3), np.uint8))
    with pytest.raises(ValueError, match="image of 30 x 20"):
        two.update(np.zeros((20, 30, 3), np.uint8))
