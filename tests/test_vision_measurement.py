"""Motion, gate and confidence around boxes that were recorded elsewhere."""

from types import SimpleNamespace

import numpy as np
import pytest

from kgmrf.vision import BoxesTracker, BoxTracker, MotionSettings, RegionCovarianceTracker
from kgmrf.vision.clip import render_clip
from kgmrf.vision.measurement import Sighting
from kgmrf.vision.regions import box_iou

IMAGE = np.zeros((240, 400, 3), np.uint8)
EXACT = MotionSettings(centre_noise=1e-6, size_noise=1e-6, aspect_noise=1e-6)


def path(n=60):
    """Boxes (n, 4) of a target that goes right and down and comes nearer."""
    t = np.arange(n)
    width = 24 * 1.005**t
    centre = np.stack([40 + 4.0 * t, 60 + 1.5 * t], axis=1)
    return np.concatenate([centre, np.stack([width, 0.75 * width], axis=1)], axis=1) - np.stack(
        [width / 2, 0.375 * width, 0 * t, 0 * t], axis=1
    )


def follow(boxes, scores=None, **settings):
    """What a tracker makes of recorded boxes; a box of None is an image without one."""
    scores = [0.95] * len(boxes) if scores is None else scores
    answers = iter(list(zip(boxes, scores, strict=True))[1:])
    tracker = BoxTracker(measure=lambda image, box: next(answers), **settings)
    tracker.init(IMAGE, boxes[0])
    rows = []
    for _ in boxes[1:]:
        found, box = tracker.update(IMAGE)
        assert found != tracker.lost
        rows.append((box, found, tracker.confidence, tracker.reacquired, tracker.score))
    names = ("boxes", "found", "confidence", "reacquired", "score")
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    return SimpleNamespace(**dict(zip(names, columns, strict=True)))


@pytest.mark.parametrize("kinetics", ["coast", "always", "never"])
def test_with_a_perfect_measurement_the_box_is_the_measurement(kinetics):
    truth = path()
    run = follow(truth, motion=EXACT, kinetics=kinetics)
    np.testing.assert_allclose(run.boxes, truth[1:], rtol=1e-6, atol=1e-6)
    assert run.found.all()
    np.testing.assert_allclose(run.score, 0.05)
    assert box_iou(follow(truth, kinetics=kinetics).boxes, truth[1:]).min() > 0.9


def test_noise_of_the_size_is_filtered():
    truth = path(200) - [[100, 100, 0, 0]]
    truth[:, :2] = [150, 100] - truth[:, 2:] / 2
    rng = np.random.default_rng(3)
    noisy = truth.copy()
    noisy[:, 2:] *= np.exp(0.05 * rng.standard_normal((200, 2)))
    noisy[:, :2] += (truth[:, 2:] - noisy[:, 2:]) / 2
    noisy[0] = truth[0]
    raw, ours = (
        np.std(np.log(boxes[:, 2:] / truth[1:, 2:])) for boxes in (noisy[1:], follow(noisy).boxes)
    )
    assert ours < 0.8 * raw


@pytest.mark.parametrize("how", ["score 0", "no box", "no score", "NaN"])
def test_through_a_gap_the_motion_goes_on_and_the_target_is_lost(how):
    truth = path()
    boxes, scores = list(truth), [0.95] * len(truth)
    for t in range(30, 42):
        if how == "score 0":
            boxes[t], scores[t] = truth[29], 0.0  # waits where it saw the target last
        elif how == "no box":
            boxes[t] = None
        elif how == "no score":
            scores[t] = None
        else:
            boxes[t] = np.full(4, np.nan)
    run = follow(boxes, scores, motion=MotionSettings(retention=1.0))
    hidden = slice(29, 41)  # rows begin with the second image
    assert run.found[:29].all()
    assert not run.found[hidden].any()
    assert run.confidence[hidden].max() < 0.5
    assert box_iou(run.boxes[hidden], truth[30:42]).min() > 0.7
    still = follow(boxes, scores, kinetics="never").boxes[hidden]
    assert box_iou(still[-1:], truth[41:42])[0] == 0
    assert run.reacquired[41:44].sum() == 1
    assert run.found[44:].all()
    assert box_iou(run.boxes[44:], truth[45:]).min() > 0.9


def test_a_jump_to_something_else_is_not_followed():
    truth = path()
    boxes = truth.copy()
    boxes[30:36, 0] += 120  # sure of itself, and wrong
    run = follow(boxes, motion=MotionSettings(retention=1.0))
    assert not run.found[30:35].any()
    assert box_iou(run.boxes[29:35], truth[30:36]).min() > 0.5
    assert run.found[38:].all()
    assert box_iou(run.boxes[40:], truth[41:]).min() > 0.9


def test_a_measurement_that_is_lost_for_good_stays_lost():
    truth = path()
    run = follow([*truth[:20], *[None] * 40])
    assert not run.found[19:].any()
    assert run.confidence[-1] < 0.01
    assert np.isfinite(run.boxes).all()


def test_confidence_follows_the_score():
    truth = path()
    last = [
        follow(truth, [1.0] + [score] * 59).confidence[-1] for score in (0.05, 0.3, 0.6, 0.9, 1.0)
    ]
    assert last == sorted(last)
    assert last[1] < 0.5 < last[3]


class Recorded:
    """Sightings that were recorded; it remembers how far it was asked to look."""

    def __init__(self, costs, log_odds, usual):
        self.sightings = [
            Sighting(np.array([100.0, 80.0]), cost, odds, usual)
            for cost, odds in zip(costs, log_odds, strict=True)
        ]
        self.reaches, self.learned = [], 0

    def start(self, pixels, centre, size):
        self.size = size

    def look(self, pixels, expected):
        self.reaches.append(expected.reach / expected.scale)
        return self.sightings[len(self.reaches) - 1]

    def take(self):
        self.learned += 1
        return np.array([100.0, 80.0]), self.size

    def rest(self):
        pass


def _over(costs, log_odds, usual=0.3):
    tracker = BoxTracker()
    tracker.measure = Recorded(costs, log_odds, usual)
    tracker.init(IMAGE, (90, 70, 20, 20))
    return tracker.measure, [tracker.update(IMAGE)[0] for _ in costs]


def test_after_a_loss_only_what_is_as_alike_as_the_target_was_is_taken_up_again():
    costs = [0.3, 0.7, 0.95, 0.7, 0.6, 0.5, 0.7]
    sure = [5.0] * len(costs)
    measure, found = _over(costs, sure)
    assert found == [True, True, False, False, False, True, True]
    assert measure.learned == 4
    assert _over(costs, sure, usual=0.6)[1] == [True, True, False, True, True, True, True]


def test_the_window_grows_while_nothing_is_as_alike_as_the_target_was():
    costs = [0.3, 0.3, *[0.7] * 8, 0.4, 0.4]
    measure, found = _over(costs, [5.0] * len(costs))
    assert measure.learned == len(costs)  # followed all the same
    assert all(found)
    reaches = np.array(measure.reaches)
    np.testing.assert_allclose(reaches[:3], 0.8, rtol=1e-6)
    np.testing.assert_allclose(reaches[3:11] / reaches[2:10], 1.1, rtol=1e-6)
    assert reaches[11] == pytest.approx(0.8)
    assert _over([0.95] * 40, [-5.0] * 40)[0].reaches[-1] == pytest.approx(2.4)


class Network:
    """OpenCV's methods, and answers that were recorded."""

    def __init__(self, boxes, scores):
        self.answers = list(zip(boxes, scores, strict=True))
        self.score = None

    def init(self, image, box):
        assert image.dtype == np.uint8
        assert all(type(v) is int for v in box)
        self.first, self.next = box, 1

    def update(self, image):
        box, self.score = self.answers[self.next]
        self.next += 1
        return (True, box) if box is not None else (False, (0, 0, 0, 0))

    def getTrackingScore(self):
        return self.score


def test_an_object_with_the_methods_of_opencv_is_a_measurement():
    truth = path()
    boxes = [*truth[:30], *[None] * 6, *truth[36:]]
    scores = np.random.default_rng(0).uniform(0.6, 1, 60).tolist()
    network = Network(boxes, scores)
    tracker = BoxTracker(measure=network)
    tracker.init(IMAGE, truth[0])
    assert network.first == tuple(np.round(truth[0]).astype(int).tolist())
    rows = [tracker.update(IMAGE) for _ in truth[1:]]
    run = follow(boxes, scores)
    np.testing.assert_array_equal([box for _, box in rows], run.boxes)
    np.testing.assert_array_equal([found for found, _ in rows], run.found)
    assert not run.found[29:35].any()


def test_a_callable_is_asked_where_the_box_is_expected():
    truth, asked = path(), []

    def measure(image, box):
        asked.append(box)
        return (truth[len(asked)], 0.9) if len(asked) < 30 else (None, 0.0)

    tracker = BoxTracker(measure=measure, motion=MotionSettings(retention=1.0))
    tracker.init(IMAGE, truth[0])
    for _ in range(40):
        tracker.update(IMAGE)
    np.testing.assert_allclose(asked[0], truth[0], rtol=1e-12)
    assert box_iou(np.array(asked[-1:]), truth[40:41])[0] > 0.7  # it coasts


def test_a_tracker_of_opencv_inside_a_callable():
    cv2 = pytest.importorskip("cv2")
    clip = render_clip(30)
    kcf = cv2.TrackerKCF.create()

    def measure(image, box):
        found, seen = kcf.update(image)
        return (seen, 1.0) if found else (None, None)

    tracker = BoxTracker(measure=measure)
    tracker.init(clip.frames[0], clip.boxes[0])
    kcf.init(clip.frames[0], tuple(int(v) for v in np.round(clip.boxes[0])))
    alone = cv2.TrackerKCF.create()
    alone.init(clip.frames[0], tuple(int(v) for v in np.round(clip.boxes[0])))
    for frame in clip.frames[1:5]:
        _, box = tracker.update(frame)
        found, seen = alone.update(frame)
        assert found
        assert box_iou(np.array([box]), np.array([seen], float))[0] > 0.9


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, r"return \(box, score\)"),
        (((1, 2, 3), 0.5), r"shape \(3,\)"),
        (((10, 10, 0, 5), 0.5), "size positive"),
        (((10, np.inf, 5, 5), 0.5), "finite"),
        (((40, 60, 24, 18), 1.5), r"score 1.5, it must lie in \[0, 1\]"),
    ],
)
def test_a_wrong_answer_is_refused_and_changes_nothing(answer, said):
    answers = iter([answer, (path()[1], 0.9)])
    tracker = BoxTracker(measure=lambda image, box: next(answers))
    tracker.init(IMAGE, path()[0])
    with pytest.raises(ValueError, match=said):
        tracker.update(IMAGE)
    after = tracker.update(IMAGE)[1]
    np.testing.assert_array_equal(after, follow(path()[:2], [1, 0.9]).boxes[0])


def test_refuses_what_is_no_measurement():
    with pytest.raises(ValueError, match="getTrackingScore"):
        BoxTracker(measure=3)
    for setting in ({"model": "static"}, {"anchor_weight": 0.5}, {"model_gain": 0.1}):
        with pytest.raises(ValueError, match="leave them out"):
            BoxTracker(measure=lambda image, box: (box, 1.0), **setting)
    with pytest.raises(ValueError, match="one box"):
        BoxesTracker(measure=lambda image, box: (box, 1.0))


def test_the_older_name_stays():
    assert RegionCovarianceTracker is BoxTracker
