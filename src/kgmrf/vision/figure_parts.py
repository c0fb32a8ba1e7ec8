"""What all pictures of an evaluation share: colours, lines, checks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kgmrf.vision.evaluation import Evaluation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Numbers = NDArray[np.float64]
Line = tuple[str, Any]

DASHED, DOTTED, TRUTH = (0, (4, 2)), (0, (1, 1.5)), (0, (3, 3))
_LOOK: dict[str, tuple[str, Any]] = {
    "kgmrf": ("ours", "-"),
    "CSRT": ("vermillion", "-"),
    "KCF": ("green", "-"),
    "KCF-0": ("green", DASHED),
    "MIL": ("purple", "-"),
    "MOSSE": ("orange", "-"),
}
"""Colour and line of the trackers that are usually compared; others take what is left."""


def check(evaluations: Sequence[Evaluation]) -> None:
    """Refuse to draw nothing."""
    if not evaluations or not all(e.runs for e in evaluations):
        raise ValueError("there is nothing to draw: evaluate at least one tracker first")


def looks(names: Sequence[str]) -> dict[str, Line]:
    """Colour and line of every tracker."""
    from kgmrf import plots

    known = {name: _LOOK[name] for name in names if name in _LOOK}
    left = [c for c in plots.CYCLE if c not in {plots.COLOURS[word] for word, _ in known.values()}]
    left = left or list(plots.CYCLE)
    out: dict[str, Line] = {}
    others = 0
    for name in names:
        if name in known:
            word, dash = known[name]
            out[name] = (plots.COLOURS[word], dash)
        else:
            # every colour once solid, then once more dashed, then dotted
            dash = ("-", DASHED, DOTTED)[others // len(left) % 3]
            out[name] = (left[others % len(left)], dash)
            others += 1
    return out


def finished(figure: Figure, path: str | Path | None) -> Figure:
    """The figure, written where there is a path."""
    from kgmrf import plots

    if path is not None:
        plots.write_figure(figure, path)
    return figure
