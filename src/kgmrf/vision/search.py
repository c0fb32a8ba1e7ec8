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
    median cost of the search window: near 0 is the target, near 1 is anything.

    Parameters
    ----------
    n_cells : int, default 36
        Cells of the box, about.
    cell : int, default 6
        Side of a cell, samples.
    stride : int, default 3
        Step of the coarse search, samples.
    ridge : float, default 0.01
        Variance added to the second moments of the standardised features, so that determinants
        exist.
    feature_floor : float, default 4.0
        Least standard deviation by which a feature is divided.
    reach : float, default 0.8
        How far the search looks, in units of sqrt(width height).
    reach_growth : float, default 1.1
        Growth of the reach per image while nothing scores well.
    reach_limit : float, default 2.4
        Largest reach.
    alternate_cells : bool, default True
        Let the coarse search look at every other cell only.
    softness : float, default 0.4
        Costs t of cells count as t/(1 + softness t): one bad cell does not decide.
    prior_weight : float, default 0.04
        Weight of the expected place in the cost.
    prior_freedom : float, default 3.0
        Degrees of freedom of that prior: low ones forgive a surprise.
    prior_floor : float, default 0.05
        Least uncertainty of the expected place.
    scale_step : float, default 0.04
        Step of the tried log sizes.
    scale_reach : int, default 2
        Steps that are tried, the second only where the first was better than none.
    renew_every : int, default 1
        Sizes are tried and the appearance is learned in every so many images.
    aspect_pull : float, default 0.05
        Pull of the aspect towards that of the first box.
    cell_memory : float, default 0.95
        Share of a cell's old cost that is kept when a new one comes.
    learn_below : float, default 0.65
        Score below which the appearance is learned.
    lost_above : float, default 0.9
        Score above which the target is lost.
    found_below : float, default 0.8
        Score below which a lost target is taken up again.
    found_near : float, default 0.25
        How far above its usual score it may then be.
    found_above : float, default 0.5
        Confidence above which a target counts as found.
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
