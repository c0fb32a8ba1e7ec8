"""Laws of several boxes at once: each is found, keeps its number, and one alone changes nothing."""

from __future__ import annotations

import numpy as np
import pytest

from kgmrf.vision import BoxesTracker, BoxTracker
from kgmrf.vision.clip import paste, render_clip
from kgmrf.vision.regions import box_iou
from kgmrf.vision.scenery import street, van
from kgmrf.vision.search import CROWD

N, COUNT = 25, 4


@pytest.fixture(scope="module")
def traffic() -> tuple[np.ndarray, np.ndarray]:
    """Vans of several colours on a street: images (n, H, W, 3) and boxes (n, count, 4)."""
    rng = np.random.default_rng(3)
    scene, (body, cover) = street(240, 360, 3), van(48, 72)
    colours = [body[..., list(order)] for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0), (2, 0, 1))]
    images, boxes = [], []
    for t in range(N):
        image = scene.copy()
        now = []
        for k in range(COUNT):
            speed = (2.0, -1.5, 1.0, -2.5)[k]
            x = (20, 150, 90, 290)[k] + speed * t
            now.append([x, (40, 95, 150, 195)[k], 48.0, 32.0])
            paste(image, colours[k], cover, np.array(now[-1]))
        image += rng.normal(0, 2, image.shape)
        images.append(np.clip(np.rint(image), 0, 255).astype(np.uint8))
        boxes.append(now)
    return np.stack(images), np.array(boxes)


def test_one_box_is_followed_exactly_as_alone() -> None:
    clip = render_clip(15)
    crowd, alone = BoxesTracker(), BoxTracker()
    assert crowd.init(clip.frames[0], clip.boxes[0]) == [1]
    alone.init(clip.frames[0], clip.boxes[0])
    for image in clip.frames[1:]:
        (one,) = crowd.update(image)
        alone.update(image)
        assert (one.box, one.score, one.lost) == (alone.box, alone.score, alone.lost)


def test_every_target_is_found_and_keeps_its_number(
    traffic: tuple[np.ndarray, np.ndarray],
) -> None:
    images, boxes = traffic
    tracker = BoxesTracker()
    assert tracker.init(images[0], boxes[0]) == [1, 2, 3, 4]
    for image, true in zip(images[1:], boxes[1:], strict=True):
        found = tracker.update(image)
        assert [one.identity for one in found] == [1, 2, 3, 4]
        assert not any(one.lost for one in found)
        assert box_iou(np.array([one.box for one in found]), true).min() > 0.7


def test_the_others_do_not_matter(traffic: tuple[np.ndarray, np.ndarray]) -> None:
    images, boxes = traffic
    all_of_them, two = BoxesTracker(), BoxesTracker()
    all_of_them.init(images[0], boxes[0])
    two.init(images[0], boxes[0][:2])
    for image in images[1:10]:
        many, few = all_of_them.update(image), two.update(image)
        assert [one.box for one in many[:2]] == [one.box for one in few]


def test_targets_come_and_go(traffic: tuple[np.ndarray, np.ndarray]) -> None:
    images, boxes = traffic
    tracker = BoxesTracker()
    tracker.init(images[0], boxes[0][:2])
    tracker.update(images[1])
    tracker.drop(1)
    assert tracker.add(images[1], boxes[1][2]) == 3
    found = tracker.update(images[2])
    assert [one.identity for one in found] == [2, 3]
    assert box_iou(np.array([one.box for one in found]), boxes[2][[1, 2]]).min() > 0.7
    tracker.drop(2)
    tracker.update(images[3])
    with pytest.raises(KeyError, match=r"no target 2; there are \[3\]"):
        tracker.drop(2)
    with pytest.raises(ValueError, match="shape"):
        tracker.init(images[0], [[1, 2, 3]])
    with pytest.raises(ValueError, match="outside the 360 x 240 image"):
        tracker.init(images[0], [*boxes[0], [400, 10, 20, 20]])


@pytest.mark.parametrize("scale", [1 / 255, 1 / 65025], ids=["float", "nearly black"])
def test_images_are_scaled_once(traffic: tuple[np.ndarray, np.ndarray], scale: float) -> None:
    images, boxes = traffic
    several, alone = BoxesTracker(), BoxTracker(settings=CROWD, model_gain=0.08)
    several.init(images[0] * scale, boxes[0][:2])
    alone.init(images[0] * scale, boxes[0][0])
    alone.measure.stagger(1)
    for image in images[1:6]:
        alone.update(image * scale)
        assert several.update(image * scale)[0].box == alone.box
