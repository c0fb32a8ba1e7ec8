from types import SimpleNamespace

import numpy as np
import pytest

from kgmrf import KGMRF, EuclideanEMA, RiemannianEMA
from kgmrf.vision import BoxMotion, BoxTracker, MotionSettings, SearchSettings
from kgmrf.vision.clip import render_clip
from kgmrf.vision.confidence import Usual
from kgmrf.vision.regions import box_iou


def run_tracker(tracker, frames, box):
    """Boxes (n, 4) and whether the target was found (n,), frame 0 being the given box."""
    tracker.init(frames[0], box)
    rows = [(True, box), *(tracker.update(frame) for frame in frames[1:])]
    found, boxes = zip(*rows, strict=True)
    return SimpleNamespace(found=np.array(found), boxes=np.array(boxes))


@pytest.fixture(scope="module")
def clip():
    return render_clip(40)


@pytest.mark.parametrize("model", ["anchor+ema", "static", EuclideanEMA(gain=0.05)])
@pytest.mark.parametrize("kinetics", ["coast", "always", "never"])
def test_follows_a_blurred_target(clip, model, kinetics):
    tracker = BoxTracker(model, kinetics=kinetics)
    run = run_tracker(tracker, clip.frames, clip.boxes[0])
    iou = box_iou(run.boxes, clip.boxes)
    assert run.found.all()
    assert iou.mean() > 0.85
    assert iou.min() > 0.6


@pytest.mark.parametrize(
    "settings",
    [SearchSettings(alternate_cells=False), SearchSettings(scale_reach=1)],
    ids=["all cells", "one scale step"],
)
def test_other_ways_of_searching_find_it_too(clip, settings):
    run = run_tracker(BoxTracker(settings=settings), clip.frames, clip.boxes[0])
    assert box_iou(run.boxes, clip.boxes).mean() > 0.85


def test_keeps_up_with_a_target_that_approaches_quickly():
    # 5 % a frame: beyond one step of scale
    rng = np.random.default_rng(1)
    scene = np.kron(rng.integers(0, 255, (30, 40, 3)), np.ones((8, 8, 1))).astype(np.uint8)
    looks = np.kron(rng.integers(0, 255, (8, 8, 3)), np.ones((20, 20, 1))).astype(np.uint8)
    iou = {}
    for reach in (1, 2):
        tracker = BoxTracker(settings=SearchSettings(scale_reach=reach))
        for t in range(24):
            side = 40 * 1.05**t
            low, n = round(160 - side / 2), round(side)
            frame = scene.copy()
            pick = (np.arange(n) * 160 // n).astype(int)
            frame[low - 40 : low - 40 + n, low : low + n] = looks[pick][:, pick]
            box = (low, low - 40, n, n)
            if t == 0:
                tracker.init(frame, box)
            else:
                _, got = tracker.update(frame)
        iou[reach] = box_iou(got, box)
    assert iou[2] > 0.75
    assert iou[2] > iou[1] + 0.1


def test_is_deterministic(clip):
    runs = [run_tracker(BoxTracker(), clip.frames[:15], clip.boxes[0]) for _ in range(2)]
    np.testing.assert_array_equal(runs[0].boxes, runs[1].boxes)


def test_a_translated_video_translates_the_boxes(clip):
    # a cut of the same scene, away from the edges: the same track, shifted exactly
    dx, dy = 7, 5
    frames = np.pad(clip.frames[:15], ((0, 0), (20, 20), (20, 20), (0, 0)), mode="edge")
    first = frames[:, : 20 + 120 + 10, : 20 + 160 + 10]
    second = frames[:, dy:, dx:]
    a = run_tracker(BoxTracker(), first, clip.boxes[0] + [20, 20, 0, 0])
    b = run_tracker(BoxTracker(), second, clip.boxes[0] + [20 - dx, 20 - dy, 0, 0])
    np.testing.assert_allclose(b.boxes + [dx, dy, 0, 0], a.boxes, atol=0.05)


@pytest.mark.parametrize(
    "change",
    [
        lambda f: f.mean(axis=-1).round().astype(np.uint8),
        lambda f: f.astype(np.float32) / 255,
        lambda f: f.astype(np.uint16) * 257,
        lambda f: f[:, :-1, :-1],
        lambda f: f[..., :1],
    ],
    ids=["grey", "float", "uint16", "odd size", "one channel"],
)
def test_any_kind_of_image(clip, change):
    run = run_tracker(BoxTracker(), change(clip.frames[:25]), clip.boxes[0])
    assert box_iou(run.boxes, clip.boxes[:25]).mean() > 0.8


def test_integer_and_floating_images_agree(clip):
    a = run_tracker(BoxTracker(), clip.frames[:10], clip.boxes[0])
    b = run_tracker(BoxTracker(), clip.frames[:10].astype(np.float64), clip.boxes[0])
    np.testing.assert_allclose(a.boxes, b.boxes, atol=1e-3)


def test_survives_a_full_occlusion():
    clip = render_clip(70, speed=2.0, occlusion=(30, 40))
    tracker = BoxTracker()
    tracker.init(clip.frames[0], clip.boxes[0])
    lost, reacquired, iou = [], [], []
    for frame, box in zip(clip.frames[1:], clip.boxes[1:], strict=True):
        found, got = tracker.update(frame)
        assert found != tracker.lost
        lost.append(tracker.lost)
        reacquired.append(tracker.reacquired)
        iou.append(box_iou(got, box))
    hidden = clip.hidden[1:]
    assert np.mean(np.array(lost)[hidden]) > 0.5
    assert not np.any(np.array(lost)[:25])
    assert np.sum(reacquired) >= 1
    assert np.mean(iou[50:]) > 0.7


def test_a_box_that_leaves_the_image():
    rng = np.random.default_rng(0)
    world = np.kron(rng.integers(0, 255, (40, 80, 3)), np.ones((4, 4, 1))).astype(np.uint8)
    tracker = BoxTracker()
    tracker.init(world[:100, 120:240], (20, 30, 30, 24))
    for t in range(1, 25):  # the camera turns right, the target goes out on the left
        _, box = tracker.update(world[:100, 120 + 3 * t : 240 + 3 * t])
        assert np.isfinite(box).all()
        if 20 - 3 * t > -8:
            assert box_iou(box, [20 - 3 * t, 30, 30, 24]) > 0.6
    assert box[0] + box[2] / 2 >= 0


@pytest.mark.parametrize(
    "box", [(-5, -4, 20, 18), (150, 100, 30, 40), (0, 0, 160, 120), (80, 60, 1, 1)]
)
def test_starts_anywhere(clip, box):
    tracker = BoxTracker()
    tracker.init(clip.frames[0], box)
    for frame in clip.frames[1:4]:
        _, got = tracker.update(frame)
        assert np.isfinite(got).all()
        assert got[2] > 0
        assert got[3] > 0


def test_flat_images_do_no_harm():
    tracker = BoxTracker()
    flat = np.full((40, 50, 3), 7, np.uint8)
    tracker.init(flat, (10, 10, 12, 9))
    for _ in range(3):
        _, box = tracker.update(flat)
        assert np.isfinite(box).all()


def test_a_given_model_is_copied_and_learns(clip):
    model = EuclideanEMA(gain=0.1)
    tracker = BoxTracker(model)
    run_tracker(tracker, clip.frames[:5], clip.boxes[0])
    assert model.d is None


@pytest.mark.parametrize("make", [KGMRF, RiemannianEMA, EuclideanEMA])
def test_trackers_of_this_library_are_models(clip, make):
    tracker = BoxTracker(make())
    run = run_tracker(tracker, clip.frames[:20], clip.boxes[0])
    assert box_iou(run.boxes, clip.boxes[:20]).mean() > 0.8


def test_refuses_nonsense(clip):
    frame = clip.frames[0]
    with pytest.raises(ValueError, match="model"):
        BoxTracker("momentum")
    with pytest.raises(ValueError, match="velocity"):
        BoxTracker(kinetics="sometimes").init(frame, (60, 40, 30, 30))
    with pytest.raises(ValueError, match="model"):
        BoxTracker(np.eye)
    for name in ("anchor_weight", "model_gain"):
        with pytest.raises(ValueError, match=rf"{name} must lie in \[0, 1\], got 2"):
            BoxTracker(**{name: 2})
    with pytest.raises(RuntimeError, match="init"):
        BoxTracker().update(frame)
    for box in [(500, 0, 10, 10), (0, 0, 0, 10), (np.nan, 0, 10, 10)]:
        with pytest.raises(ValueError, match="box"):
            BoxTracker().init(frame, box)
    tracker = BoxTracker()
    tracker.init(frame, (60, 40, 30, 30))
    with pytest.raises(ValueError, match="channels"):
        tracker.update(frame[:, :, 0])


def _moving(use, n_frames=200, **settings):
    start = np.zeros(2), np.log([10.0, 10.0])
    motion = BoxMotion(*start, use=use, settings=MotionSettings(retention=1.0, **settings))
    for t in range(1, n_frames):
        motion.correct(np.array([3.0 * t, 0.0]), motion.log_size)
    return motion


def test_motion_learns_how_far_it_errs_and_coasts_ever_less_certain():
    motion = _moving("always")
    assert motion.spread < 0.01  # predictions of a steady motion do not err
    for _ in range(4):
        before = motion.spread
        motion.coast()
        assert motion.spread > before
    np.testing.assert_allclose(motion.centre, [3.0 * 203, 0], atol=1e-3)
    assert motion._box.forecast(1).age == 5


def test_velocity_enters_only_when_told():
    for use, before, after in [("never", 597, 597), ("coast", 597, 603), ("always", 600, 603)]:
        motion = _moving(use)
        assert motion.predict()[0][0] == pytest.approx(before, abs=0.3)
        motion.coast()
        assert motion.predict()[0][0] == pytest.approx(after, abs=0.3)


def test_a_search_without_velocity_expects_the_motion_it_leaves_out():
    assert _moving("coast").spread == pytest.approx(0.3 / np.sqrt(2), rel=0.05)
    assert _moving("never").spread == pytest.approx(0.3 / np.sqrt(2), rel=0.05)


def test_the_box_moves_alike_in_any_unit():
    motions = [BoxMotion(np.zeros(2), np.log(f * np.array([10.0, 14.0]))) for f in (1, 7)]
    for t in range(1, 10):
        for f, motion in zip((1, 7), motions, strict=True):
            motion.correct(f * np.array([t * 1.5, t % 3]), np.log(f * np.array([10.0, 14 + t])))
    np.testing.assert_allclose(motions[1].centre, 7 * motions[0].centre)
    assert motions[1].spread == pytest.approx(motions[0].spread)


def test_the_slow_average_is_that_of_a_euclidean_ema(clip):
    own, given = (BoxTracker(m) for m in ("anchor+ema", EuclideanEMA(gain=0.02)))
    first, second = (run_tracker(t, clip.frames[:15], clip.boxes[0]) for t in (own, given))
    np.testing.assert_allclose(first.boxes, second.boxes, atol=1e-3)


def test_while_nothing_is_learned_a_tracker_coasts_and_the_average_rests(clip):
    for model, moves in ((KGMRF(), True), ("anchor+ema", False)):
        tracker = BoxTracker(model, anchor_weight=0.0)
        run_tracker(tracker, clip.frames[:12], clip.boxes[0])
        looks = tracker.measure
        held, inner = looks._target, looks._model
        ahead = inner.forecast(1).covariance if moves else held
        looks._learn(None)
        np.testing.assert_allclose(looks._target, ahead, rtol=1e-5, atol=1e-6)
        assert np.array_equal(looks._target, held) != moves


def test_where_a_model_knows_nothing_the_first_frame_stands_alone(clip):
    class Unsure(EuclideanEMA):
        def update(self, observation, *, n_samples):
            covariance = 3 * observation
            covariance[1] = np.nan
            return SimpleNamespace(covariance=covariance)

    tracker = BoxTracker(Unsure(), anchor_weight=0.5)
    tracker.init(clip.frames[0], clip.boxes[0])
    np.testing.assert_allclose(
        tracker.measure._target[0], 2 * tracker.measure._anchor[0], rtol=1e-6
    )
    np.testing.assert_allclose(tracker.measure._target[1], tracker.measure._anchor[1], rtol=1e-6)


def test_confidence_says_whether_the_box_is_on_its_target():
    """Before, behind and after a patch of the street, which the old score took for the target."""
    clip = render_clip(70, height=120, width=160, speed=3.0)
    frames = clip.frames.copy()
    for t in range(30, 45):
        x, y, w, h = (int(v) for v in clip.boxes[t])
        left, right = max(x - 4, 0), min(x + w + 4, 160)
        frames[t, max(y - 4, 0) : y + h + 4, left:right] = (96, 118, 104)
    tracker = BoxTracker()
    tracker.init(frames[0], clip.boxes[0])
    assert tracker.confidence == 1.0
    seen = []
    for frame in frames[1:]:
        found, _ = tracker.update(frame)
        assert 0 <= tracker.confidence <= 1
        assert not (found and tracker.confidence < 0.5)
        assert found != tracker.lost
        seen.append(tracker.confidence)
    before, behind, after = seen[:29], seen[31:44], seen[50:]
    assert min(before) > 0.9
    assert max(behind) < 0.5
    assert np.mean(after) > 0.9
    assert box_iou(tracker.box, clip.boxes[-1]) > 0.6


def test_evidence_is_what_it_says(clip):
    """The five numbers, each from its definition."""
    tracker = BoxTracker()
    tracker.init(clip.frames[0], clip.boxes[0])
    tracker.update(clip.frames[0])
    score, start, runner_up, surprise, usual = tracker.measure.evidence
    assert score == tracker.score == usual < 0.05
    assert start < np.log(0.01)  # the first image again
    assert 0.3 < runner_up <= 1.5
    assert 0 <= surprise < 0.01
    looks = tracker.measure
    down = looks._ny * tracker.settings.cell // (2 * tracker.settings.stride)
    across = looks._nx * tracker.settings.cell // (2 * tracker.settings.stride)
    wide = np.full((4 * down + 1, 4 * across + 1), 5.0, np.float32)
    row, col = 2 * down, 2 * across
    wide[row, col], wide[row + down, col - across] = 0.1, 0.2  # half a box away: the same place
    assert looks._runner_up(wide, row, col) == 5.0
    wide[row + down + 1, col] = 3.0
    assert looks._runner_up(wide, row, col) == 3.0
    wide[row, col - across - 1] = 2.0
    assert looks._runner_up(wide, row, col) == 2.0
    assert looks._runner_up(wide[row - 1 : row + 2, col - 1 : col + 2], 1, 1) == 5.0


def test_the_usual_score_is_that_of_images_that_were_learned_from(clip):
    tracker = BoxTracker()
    tracker.init(clip.frames[0], clip.boxes[0])
    grey = np.full_like(clip.frames[0], 128)
    past, usual = [], []
    for frame in [*clip.frames[1:12], grey, grey, clip.frames[12], clip.frames[13]]:
        tracker.update(frame)
        usual.append(tracker.measure.evidence.usual)
        if tracker.score < tracker.settings.learn_below:
            past.append(tracker.score)
    assert len(past) == 13  # the grey ones are not among them
    np.testing.assert_allclose(usual[1:11], [np.mean(past[:k]) for k in range(1, 11)], rtol=1e-12)
    np.testing.assert_allclose(usual[11:14], np.mean(past[:11]), rtol=1e-12)
    slow = Usual()
    for score in [*np.linspace(0.2, 0.4, 20), *[0.5] * 200]:
        before = slow.beside(score)
        slow.take(score)
    assert before < slow.beside(0.0) < 0.5  # of late ones, where there are many
    np.testing.assert_allclose(slow.beside(0.0), 0.5, atol=1e-4)
