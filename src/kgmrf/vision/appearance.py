"""Where a box looks most like itself: covariances of its cells, compared place by place."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kgmrf._check import in_range
from kgmrf._types import Numbers
from kgmrf.trackers._contract import Tracker
from kgmrf.vision.cells import cell_moments, colour_and_gradient, place_costs
from kgmrf.vision.confidence import Evidence, Usual, log_odds, surprise
from kgmrf.vision.measurement import Expected, Sighting
from kgmrf.vision.regions import cell_matrices, stein_costs
from kgmrf.vision.resample import Window, cut_window, sample_window
from kgmrf.vision.search import SearchSettings, least
from kgmrf.vision.search import step as best_step

__all__ = ["RegionCovariance"]

Maps = NDArray[np.float32]


class RegionCovariance:
    """argmin over boxes of sum_k w_k phi(JBLD(C_k, M_k)) / median + prior: a `Measurement`.

    Its arguments are those of :class:`kgmrf.vision.BoxTracker`, which makes one where no other
    measurement is given.
    """

    def __init__(
        self,
        model: Literal["anchor+ema", "static"] | Tracker,
        *,
        anchor_weight: float,
        model_gain: float,
        settings: SearchSettings,
    ) -> None:
        if model not in ("anchor+ema", "static") and not isinstance(model, Tracker):
            raise ValueError(f'model is "anchor+ema", "static" or a tracker, not {model!r}')
        self.model = model
        self.anchor_weight = in_range(anchor_weight, "anchor_weight", 0.0, 1.0)
        self.model_gain = in_range(model_gain, "model_gain", 0.0, 1.0)
        self.settings = settings
        self.evidence: Evidence | None = None

    def stagger(self, k: int) -> None:
        """Renew ``k`` images out of turn, so that many boxes do not all do so at once."""
        self._since_renewed = k % self.settings.renew_every

    # ------------------------------------------------------------------ the protocol
    def start(self, pixels: NDArray[np.generic], centre: Numbers, size: Numbers) -> None:
        """Learn the target from its box in the first image."""
        s, (width, height) = self.settings, size
        root, ratio = np.sqrt(s.n_cells), np.sqrt(width / height)
        self._nx = int(np.clip(round(root * ratio), 2, 2 * root))
        self._ny = int(np.clip(round(root / ratio), 2, 2 * root))
        self._samples = np.array([self._nx, self._ny], dtype=np.float64) * s.cell
        self._channels = pixels.shape[2]
        self._aspect = float(np.log(width / height))
        self.evidence, self._usual = None, Usual()
        self._since_renewed = 0
        window = self._window(pixels, centre, size, (1, 1))
        d = self._channels + 2
        self._offset, self._gain = np.zeros(d, np.float32), np.ones(d, np.float32)
        raw = self._patch(window, centre, size, (0, 0))
        self._offset = raw.mean(axis=(1, 2))
        self._gain = 1 / np.maximum(raw.std(axis=(1, 2)), np.float32(s.feature_floor))
        self._anchor = self._cells(window, centre, size)
        log_det = stein_costs(self._anchor, self._anchor)[0].astype(np.float32)
        self._start = self._anchor.astype(np.float32), log_det
        row, col = np.divmod(np.arange(self._nx * self._ny), self._nx)
        # every other cell, as on a chessboard, is enough to find where to look closely
        self._coarse = (row + col) % 2 == 0 if s.alternate_cells else np.ones(len(row), np.bool_)
        self._alike = (self._coarse / self._coarse.sum()).astype(np.float32)
        self._weigh(np.ones(len(row)))
        self._cell_cost: Numbers | None = None
        given = self.model
        self._model: Any = self._anchor if isinstance(given, str) else copy.deepcopy(given)
        self._learn(self._anchor)

    def look(self, pixels: NDArray[np.generic], expected: Expected) -> Sighting:
        """The best place in the window; nothing is learned yet."""
        s, (predicted, size, scale, variance, reach) = self.settings, expected
        step = size / self._samples
        margin = [int(np.ceil(reach / v / s.stride)) * s.stride for v in step]
        window = self._window(pixels, predicted, size, margin)
        cost = self._costs(window, predicted, size, margin, s.stride)
        median = float(np.partition(cost, cost.size // 2, axis=None)[cost.size // 2]) or 1.0
        first, each = (-margin[0], -margin[1]), step / scale
        total = cost / median + self._prior(cost, first, s.stride, each, variance)

        r = s.stride // 2 + 1
        row, col = divmod(int(total.argmin()), total.shape[1])
        dx, dy = col * s.stride - margin[0], row * s.stride - margin[1]
        centre = predicted + step * (dx, dy)
        patch = self._patch(window, centre, size, (r, r))
        fine = self._compared(patch) / median
        place, shift = least(fine + self._prior(fine, (dx - r, dy - r), 1, each, variance))
        centre = centre + step * shift
        value = float(fine[place])
        off = (centre - predicted) / scale
        self.evidence = Evidence(
            value,
            math.log(max(self._from_start(patch, place), 1e-3)),
            self._runner_up(cost, row, col) / median,
            surprise(off, variance),
            self._usual.beside(value),
        )
        self._seen = window, centre, size, median, value
        return Sighting(centre, value, log_odds(self.evidence), self.evidence.usual)

    def take(self) -> tuple[Numbers, Numbers]:
        """Centre and size of what was seen last, the size renewed in turn; learns its looks."""
        s, (window, centre, size, median, value) = self.settings, self._seen
        del self._seen  # its memory is what the next window is written to
        cells = None
        if value < s.learn_below:
            self._usual.take(value)
        self._since_renewed += 1
        if self._since_renewed >= s.renew_every:
            self._since_renewed = 0
            centre, size = self._resize(window, centre, size, median)
            cells = self._cells(window, centre, size) if value < s.learn_below else None
        self._learn(cells)
        return centre, size

    def rest(self) -> None:
        """What was seen last is not the target: a model with a velocity coasts, others rest."""
        del self._seen
        self._learn(None)

    # ------------------------------------------------------------------ parts
    def _window(self, pixels: Any, centre: Numbers, size: Numbers, margin: Sequence[int]) -> Window:
        # slack of 4 samples and 8 % of the box: refinement and larger scales reach a little further
        step = size / self._samples
        half = 0.54 * size + (np.array(margin) + 6) * step
        left, top = centre - half
        return cut_window(
            pixels, left, top, 2 * half[0], 2 * half[1], 0.97 * step[0], 0.97 * step[1]
        )

    def _patch(self, window: Window, centre: Numbers, size: Any, margin: Sequence[int]) -> Maps:
        """Standardised features of the box and ``margin`` samples around it, (d, h, w)."""
        # plain numbers: arrays of two cost more than all of this
        nx, ny = self._nx * self.settings.cell, self._ny * self.settings.cell
        step_x, step_y = float(size[0]) / nx, float(size[1]) / ny
        # one more sample on every side: gradients there are one-sided, and cut away below
        left = float(centre[0]) - (0.5 * nx + margin[0] + 0.5) * step_x - 0.5
        top = float(centre[1]) - (0.5 * ny + margin[1] + 0.5) * step_y - 0.5
        width, height = nx + 2 * margin[0] + 2, ny + 2 * margin[1] + 2
        planes = sample_window(window, left, top, step_x, step_y, width, height)
        features: Maps = colour_and_gradient(planes, self._offset, self._gain)
        return features

    def _cells(self, window: Window, centre: Numbers, size: Numbers) -> Numbers:
        patch, s = self._patch(window, centre, size, (0, 0)), self.settings
        return cell_matrices(cell_moments(patch, s.cell, s.cell, s.ridge), len(patch))

    def _costs(
        self, window: Window, centre: Numbers, size: Any, margin: Sequence[int], stride: int = 1
    ) -> Maps:
        """Cost of the box at every ``stride``-th shift by up to ``margin`` samples."""
        return self._compared(self._patch(window, centre, size, margin), stride)

    def _compared(self, patch: Maps, stride: int = 1) -> Maps:
        s, weights = self.settings, self._weights if stride == 1 else self._coarse_weights
        model = self._target, self._target_log_det, weights, self._nx, self._ny
        costs: Maps = place_costs(patch, s.cell, stride, s.ridge, *model, s.softness)
        return costs

    def _from_start(self, patch: Maps, place: tuple[int, int]) -> float:
        """Mean divergence of the coarse cells at one place of a patch from the first image's."""
        s, (i, j) = self.settings, place
        high, wide = self._ny * s.cell, self._nx * s.cell
        cells = np.ascontiguousarray(patch[:, i : i + high, j : j + wide])
        model = *self._start, self._alike, self._nx, self._ny
        return float(place_costs(cells, s.cell, s.cell, s.ridge, *model, 0.0)[0, 0])

    def _runner_up(self, cost: Maps, row: int, col: int) -> float:
        """The least cost of places more than half a box away; where there is none, the largest."""
        s = self.settings
        down, across = self._ny * s.cell // (2 * s.stride), self._nx * s.cell // (2 * s.stride)
        elsewhere = cost.copy()
        elsewhere[max(row - down, 0) : row + down + 1, max(col - across, 0) : col + across + 1] = (
            np.inf
        )
        found = float(elsewhere.min())
        return found if found < np.inf else float(cost.max())

    def _prior(
        self, cost: Maps, first: Sequence[int], stride: int, step: Numbers, variance: float
    ) -> Numbers:
        """Student-t penalty on the distance from the prediction, as wide as predictions err.

        ``first`` (x, y) is the shift of the first place in samples, ``step`` that of a sample.
        """
        s = self.settings
        x = (np.arange(cost.shape[1]) * stride + first[0]) * step[0]
        y = (np.arange(cost.shape[0]) * stride + first[1]) * step[1]
        squared = (x * x)[None, :] + (y * y)[:, None]
        return s.prior_weight * np.log1p(squared / (s.prior_freedom * variance))

    def _resize(
        self, window: Window, centre: Numbers, size: Numbers, median: float
    ) -> tuple[Numbers, Numbers]:
        """One step of scale and one of aspect, each the best of three and refined by a parabola."""
        s = self.settings
        width, height = float(size[0]), float(size[1])
        near = self._costs(window, centre, size, (1, 1)) / median
        place, shift = least(near)
        same = float(near[place])
        centre = centre + size / self._samples * shift

        def cost(x: float, y: float) -> float:
            costs = self._costs(window, centre, (width * x, height * y), (1, 1))
            return float(costs.min()) / median

        g = 1 + s.scale_step
        h = math.sqrt(g)
        smaller, larger = cost(1 / g, 1 / g), cost(g, g)
        grow = best_step(smaller, same, larger)
        if s.scale_reach > 1 and abs(grow) == 1.0:
            # the best was the last one tried: one more, for targets that approach quickly
            beyond = cost(g ** (2 * grow), g ** (2 * grow))
            grow *= 1 + best_step(same, min(smaller, larger), beyond)
        widen = 0.5 * best_step(cost(1 / h, h), same, cost(h, 1 / h))
        drift = math.log(width / height) - self._aspect
        widen -= s.aspect_pull * drift / math.log(g)
        return centre, size * (g ** (grow + widen), g ** (grow - widen))

    def _learn(self, cells: Numbers | None) -> None:
        """Renew what candidates are compared with; without cells a tracker coasts, others rest."""
        s, model = self.settings, self._model
        if isinstance(model, Tracker):
            present = np.asarray(model.update(cells, n_samples=s.cell**2).covariance, np.float64)
            # a tracker that is still warming up has no say
            usable = np.isfinite(present).all(axis=(-2, -1), keepdims=True)
            present = np.where(usable, present, self._anchor)
        elif cells is None:
            return
        else:
            present = self._model = model + self.model_gain * (cells - model)
        # One matrix per cell stands for the first frame and the present model, so that one Cholesky
        # factor per candidate scores both.
        w = 1.0 if self.model == "static" else self.anchor_weight
        target = w * self._anchor + (1 - w) * present
        log_det, cost = stein_costs(target if cells is None else cells, target)
        self._target = np.ascontiguousarray(target, dtype=np.float32)
        self._target_log_det = log_det.astype(np.float32)
        if cells is None:
            return
        # cells that never match well (background in the corners) count less
        if self._cell_cost is None:
            self._cell_cost = np.zeros_like(cost)
        else:
            self._cell_cost = s.cell_memory * self._cell_cost + (1 - s.cell_memory) * cost
            self._weigh(1 / (self._cell_cost + 0.5 * self._cell_cost.mean() + 1e-6))

    def _weigh(self, weights: Numbers) -> None:
        self._weights = (weights / weights.sum()).astype(np.float32)
        chosen = weights * self._coarse
        self._coarse_weights = (chosen / chosen.sum()).astype(np.float32)
