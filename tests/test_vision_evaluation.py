import json
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    # The experiments are not part of the installed package.
    sys.path.insert(0, str(ROOT))

from experiments.evaluation import (  # noqa: E402
    centre_errors,
    normalised_errors,
    precision_curve,
    run_tracker,
    success_curve,
    summary,
)
from experiments.otb_rivals import RIVALS, OpenCVTracker  # noqa: E402
from experiments.sequences import find_sequences, read_boxes, read_otb  # noqa: E402

from kgmrf.vision.clip import render_clip  # noqa: E402
from kgmrf.vision.regions import box_iou  # noqa: E402
from kgmrf.vision.videos import read_video  # noqa: E402

whole = st.integers(0, 12)
side = st.integers(1, 9)
box = st.tuples(whole, whole, side, side)


@settings(max_examples=60, deadline=None)
@given(box, box)
def test_iou_counts_pixels(a, b):
    def mask(box):
        out = np.zeros((24, 24), bool)
        out[box[1] : box[1] + box[3], box[0] : box[0] + box[2]] = True
        return out

    expected = (mask(a) & mask(b)).sum() / (mask(a) | mask(b)).sum()
    np.testing.assert_allclose(box_iou(a, b), expected, atol=1e-12)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(box, box), min_size=1, max_size=12))
def test_summary_against_loops(pairs):
    boxes, truth = (np.array([p[k] for p in pairs], float) for k in (0, 1))
    got = summary(boxes, truth)
    iou = [float(box_iou(a, b)) for a, b in zip(boxes, truth, strict=True)]
    curve = [sum(v > t for v in iou) / len(iou) for t in np.linspace(0, 1, 21)]
    errors = [
        np.hypot(
            a[0] + (a[2] - 1) / 2 - b[0] - (b[2] - 1) / 2,
            a[1] + (a[3] - 1) / 2 - b[1] - (b[3] - 1) / 2,
        )
        for a, b in zip(boxes, truth, strict=True)
    ]
    assert got["success_auc"] == pytest.approx(np.mean(curve))
    assert got["mean_iou"] == pytest.approx(np.mean(iou))
    assert got["success_rate"] == pytest.approx(curve[10])
    assert got["precision"] == pytest.approx(np.mean([e <= 20 for e in errors]))


RECORD = json.loads((Path(__file__).parent / "got10k_record.json").read_text())


@pytest.mark.parametrize("name", RECORD["sequences"])
def test_agrees_with_what_the_got10k_toolkit_reported(name):
    parts = RECORD["sequences"][name]
    truth, found = np.array(parts["truth"]), np.array(parts["found"])
    otb = RECORD["otb"]["seq_wise"][name]
    iou = box_iou(found, truth)
    np.testing.assert_allclose(success_curve(iou), otb["success_curve"], atol=1e-12)
    errors = centre_errors(found, truth)
    precision = precision_curve(errors, np.arange(51))
    np.testing.assert_allclose(precision, otb["precision_curve"], atol=1e-12)
    all_frames = summary(found, truth)
    assert all_frames["success_auc"] == pytest.approx(otb["success_score"], abs=1e-12)
    assert all_frames["success_rate"] == pytest.approx(otb["success_rate"], abs=1e-12)
    assert all_frames["precision"] == pytest.approx(otb["precision_score"], abs=1e-12)


def test_the_got10k_toolkit_still_reports_what_was_recorded(tmp_path):
    pytest.importorskip("got10k", reason="compared with recorded numbers instead")
    import got10k_record

    assert got10k_record.scenes() == RECORD["sequences"]
    assert got10k_record.record(got10k_record.scenes(), tmp_path) == RECORD["otb"]


@settings(max_examples=100, deadline=None)
@given(st.tuples(*[st.floats(-50, 50)] * 2, *[st.floats(0.5, 60)] * 2))
def test_a_box_never_overlaps_itself_by_more_than_all(numbers):
    assert box_iou(numbers, numbers) <= 1
    assert success_curve([box_iou(numbers, numbers)])[-1] == 0
    assert success_curve([box_iou(numbers, numbers)])[-2] == 1


def test_perfect_boxes_score_one_only_below_the_last_threshold():
    boxes = np.array([[3.0, 4, 10, 20]] * 5)
    assert summary(boxes, boxes)["success_auc"] == pytest.approx(20 / 21)  # IoU 1 is not > 1
    assert success_curve(np.ones(3))[-1] == 0
    assert precision_curve(np.zeros(3), np.arange(3))[0] == 1
    assert normalised_errors(boxes, boxes).max() == 0


def test_frames_without_truth_do_not_count():
    boxes = np.array([[0.0, 0, 4, 4]] * 3)
    truth = boxes.copy()
    truth[1] = np.nan
    assert summary(boxes, truth)["mean_iou"] == 1
    with pytest.raises(ValueError, match="ground truth"):
        summary(boxes, np.full((3, 4), np.nan))


def _image(path, value=0):
    cv2 = pytest.importorskip("cv2")
    path.parent.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(path), np.full((6, 8, 3), value, np.uint8))


def test_otb_folder_with_mixed_delimiters_and_two_targets(tmp_path):
    folder = tmp_path / "Pair"
    for k in (9, 10, 2):
        _image(folder / "img" / f"{k}.png", k)
    (folder / "img" / "Thumbs.ini").write_text("no image")
    (folder / "groundtruth_rect.1.txt").write_text("1,2,3,4\n5\t6\t7\t8\r\n 9 10, 11\t12 \n\n")
    (folder / "groundtruth_rect.2.txt").write_text("1;2;3;4\n2 2 2 2\n")
    one, two = read_otb(folder)
    assert (one.name, two.name) == ("Pair-1", "Pair-2")
    np.testing.assert_array_equal(one.boxes, [[0, 1, 3, 4], [4, 5, 7, 8], [8, 9, 11, 12]])
    assert [f.stem for f in one.files] == ["2", "9", "10"]
    assert [int(f.mean()) for f in two.frames()] == [2, 9]  # shorter truth, fewer frames
    (folder / "groundtruth_rect.3.txt").write_text("\n")  # a target that was given up
    assert len(read_otb(folder)) == 2
    assert [s.name for s in find_sequences(tmp_path)] == ["Pair-1", "Pair-2"]
    assert [int(f.mean()) for f in read_video(folder / "img")] == [2, 9, 10]


def test_more_boxes_than_images(tmp_path):
    folder = tmp_path / "Long"
    for k in range(3):
        _image(folder / "img" / f"{k}.png")
    (folder / "groundtruth_rect.txt").write_text("2 2 4 4\n" * 9)
    assert read_otb(folder)[0].boxes.shape == (3, 4)


@pytest.mark.parametrize("text", ["1,2,3\n", "a b c d\n", "1 2 3 4 5 6 7 8\n"])
def test_broken_truth_is_named(tmp_path, text):
    file = tmp_path / "groundtruth_rect.txt"
    file.write_text(text)
    with pytest.raises(ValueError, match="groundtruth_rect"):
        read_boxes(file)


def test_missing_things_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="groundtruth_rect"):
        find_sequences(tmp_path)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        find_sequences(tmp_path / "nowhere")


def test_clip_boxes_are_where_the_target_is():
    # without blur, noise or zoom of the background, two frames differ exactly inside the boxes
    clip = render_clip(12, exposure=0, noise_std=0)
    changed = (clip.frames[0] != clip.frames[11]).any(-1)
    outside = np.ones_like(changed)
    for x, y, w, h in clip.boxes[[0, 11]]:
        outside[int(np.floor(y)) : int(np.ceil(y + h)), int(np.floor(x)) : int(np.ceil(x + w))] = 0
    assert changed.any()
    assert not changed[outside].any()
    np.testing.assert_array_equal(render_clip(3).frames, render_clip(3).frames)


class _Still:
    def init(self, image, box):
        self.box = box

    def update(self, image):
        return (False, (0, 0, 0, 0)) if image[0, 0, 0] else (True, self.box)


def test_a_failed_update_repeats_the_last_box():
    frames = np.zeros((3, 4, 5, 3), np.uint8)
    frames[1] = 1
    run = run_tracker(_Still(), frames, (1.5, 1, 2, 3))
    assert run.found.tolist() == [True, False, True]
    np.testing.assert_array_equal(run.boxes, [[1.5, 1, 2, 3]] * 3)
    assert run.seconds.shape == (3,)


@pytest.mark.parametrize("name", RIVALS)
def test_rivals_run(name):
    cv2 = pytest.importorskip("cv2")
    if not hasattr(cv2, "TrackerCSRT_create"):
        pytest.skip("OpenCV without contrib")
    clip = render_clip(4, speed=1.0)
    run = run_tracker(OpenCVTracker(name), clip.frames, clip.boxes[0])
    assert run.boxes.shape == (4, 4)
    assert box_iou(run.boxes[1], clip.boxes[1]) > 0.3
