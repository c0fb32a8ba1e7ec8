"""Every number of the search for a box, and least values between samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["CROWD", "SearchSettings", "least", "step"]


@dataclass(frozen=True)
class SearchSettings:
    """Every number of the search; one setting serves all videos.

    Lengths are in samples of the normalised box (about ``sqrt(n_cells) * cell`` on a side) or in
    units of sqrt(width height) where the name says ``reach``. Scores are costs relative to the
    median cost of the search window: near 0 is the target, near 1 is anything. A target is found
    where its score is below ``lost_above`` and its confidence above ``found_above``. After a loss
    it is taken up again below ``found_below``, and at most ``found_near`` above its usual score.
    While nothing scores so well the window grows by ``reach_growth`` per image. Sizes are tried up
    to ``scale_reach`` steps away, the second only where the first was better than none.
    ``alternate_cells`` lets the coarse search look at every other cell only. Sizes are
    tried and the appearance is learned in every ``renew_every``-th image.
    """

    n_cells: int = 36
    cell: int = 6
    stride: int = 3
    ridge: float = 0.01
    feature_floor: float = 4.0
    reach: float = 0.8
    reach_growth: float = 1.1
    reach_limit: float = 2.4
    alternate_cells: bool = True
    softness: float = 0.4
    prior_weight: float = 0.04
    prior_freedom: float = 3.0
    prior_floor: float = 0.05
    scale_step: float = 0.04
    scale_reach: int = 2
    renew_every: int = 1
    aspect_pull: float = 0.05
    cell_memory: float = 0.95
    learn_below: float = 0.65
    lost_above: float = 0.9
    found_below: float = 0.8
    found_near: float = 0.25
    found_above: float = 0.5


def _vertex(left: float, middle: float, right: float) -> float:
    """Where the parabola through three equidistant values is least, in (-1/2, 1/2)."""
    curvature = left - 2 * middle + right
    if curvature <= 1e-9:
        return 0.0
    return max(-0.5, min(0.5, 0.5 * (left - right) / curvature))


def step(below: float, middle: float, above: float) -> float:
    """The better of three steps -1, 0, 1, refined by a parabola when it is the middle one."""
    if middle <= below and middle <= above:
        return _vertex(below, middle, above)
    return -1.0 if below < above else 1.0


def least(costs: Any) -> tuple[tuple[int, int], tuple[float, float]]:
    """Row and column of the least cost; its x and y from the middle, refined by parabolas."""
    high, wide = costs.shape
    i, j = divmod(int(costs.argmin()), wide)
    across = _vertex(*costs[i, j - 1 : j + 2].tolist()) if 0 < j < wide - 1 else 0.0
    down = _vertex(*costs[i - 1 : i + 2, j].tolist()) if 0 < i < high - 1 else 0.0
    return (i, j), (j - wide // 2 + across, i - high // 2 + down)


CROWD = SearchSettings(n_cells=16, reach=0.5, renew_every=4)
"""For many boxes at once: fewer cells, a shorter reach, size and looks renewed in turn."""
