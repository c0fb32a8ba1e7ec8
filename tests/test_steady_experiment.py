"""The measures that stabilisers are compared by."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    # The experiments are not part of the installed package.
    sys.path.insert(0, str(ROOT))

pytest.importorskip("cv2", reason="OpenCV is not installed: no video")

from experiments import steady  # noqa: E402

from kgmrf.vision.steady import Rectangle, steady_rectangle  # noqa: E402

SIZE = (200, 100)


def _shifted(*shifts: tuple[float, float]) -> np.ndarray:
    out = np.tile(np.eye(3), (len(shifts), 1, 1))
    out[:, :2, 2] = shifts
    return out


def test_shake_is_that_of_the_part_that_is_kept():
    still = dict(enumerate(np.tile(np.eye(3), (3, 1, 1))))
    zoom = np.diag([1.1, 1.1, 1.0])
    steps = np.stack([np.eye(3), zoom])  # about the corner: what is far from it moves more
    near, far = (
        steady.shake(still, steps, SIZE, Rectangle(left, left / 2, 20, 10)) for left in (0, 180)
    )
    assert near == pytest.approx(np.mean(0.1 * np.hypot(*_middle(0))), rel=1e-9)
    assert far > 5 * near
    assert steady.shake(still, steps, SIZE) == steady.shake(
        still, steps, SIZE, Rectangle(0, 0, *SIZE)
    )


def _middle(left: float) -> np.ndarray:
    x, y = np.meshgrid(left + np.linspace(3, 17, 5), left / 2 + np.linspace(1.5, 8.5, 4))
    return np.stack([x.ravel(), y.ravel()])


def test_a_central_crop_is_smaller_than_the_largest_one_unless_shifts_are_symmetric():
    one_sided, both = _shifted((0, 0), (40, 0)), _shifted((-20, 0), (20, 0))
    width = SIZE[0] - 1
    assert steady._central_crop(both, SIZE) == pytest.approx(1 - 40 / width, abs=1e-5)
    assert steady._central_crop(one_sided, SIZE) == pytest.approx(1 - 80 / width, abs=1e-5)
    for warps in (one_sided, both):
        assert steady_rectangle(warps, SIZE).width / width == pytest.approx(1 - 40 / width)
    assert steady._central_crop(_shifted((0, 0), (150, 0)), SIZE) < steady.SMALLEST
