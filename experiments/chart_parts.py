"""The parts of a figure: one description, read by both the page and the printed figures.

A figure has panels; a panel has axes, shaded spans and series. A series is a list of points
(x, y) or (x, y, half width of the 95 % interval). Numbers come from result files only.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kgmrf.plots import COLOURS

Figure = dict[str, Any]

LOOK = {
    "ours": (COLOURS["ours"], "solid"),
    "information_one": (COLOURS["ours"], "dashed"),
    "information": (COLOURS["ours"], "dotted"),
    "auto": (COLOURS["ours"], "solid"),
    "paper_kgmrf": (COLOURS["vermillion"], "solid"),
    "printed_kgmrf": (COLOURS["vermillion"], "dashed"),
    "paper_euclidean_ema": (COLOURS["sky"], "solid"),
    "paper_riemannian_ema": (COLOURS["sky"], "dashed"),
    "paper_tangent_kalman": (COLOURS["green"], "solid"),
    "paper_alpha_beta": (COLOURS["purple"], "solid"),
    "tuned_alpha_beta": (COLOURS["purple"], "dashed"),
    "tuned_alpha_beta_decay": (COLOURS["purple"], "dashed"),
    "tuned_zero_lag": (COLOURS["orange"], "solid"),
    "tuned_riemannian_ema": (COLOURS["sky"], "dotted"),
    "tuned_euclidean_ema": (COLOURS["sky"], "dotted"),
    "tuned_error_state_kalman": (COLOURS["green"], "dotted"),
    "hold_last": (COLOURS["quiet"], "solid"),
}
SHORT = {
    "auto": "ours",
    "information_one": "information law, set once",
    "information": "information law",
    "paper_kgmrf": "K-GMRF, paper",
    "printed_kgmrf": "Algorithm 1",
    "paper_euclidean_ema": "EMA .2",
    "paper_riemannian_ema": "log-EMA .2",
    "paper_tangent_kalman": "tangent KF",
    "paper_alpha_beta": "alpha-beta",
    "tuned_alpha_beta": "alpha-beta, tuned",
    "tuned_alpha_beta_decay": "alpha-beta, tuned",
    "tuned_zero_lag": "zero-lag, tuned",
    "tuned_riemannian_ema": "EMA, tuned",
    "tuned_euclidean_ema": "EMA, tuned",
    "tuned_error_state_kalman": "error-state KF, tuned",
    "hold_last": "hold last",
}


def axis(label: str, *, log: bool = False, low: float | None = None) -> dict[str, Any]:
    """One axis of a panel."""
    return {"label": label, "log": log, "low": low}


def series(
    name: str,
    x: Any,
    y: Any,
    *,
    half: Any = None,
    look: tuple[str, str] | None = None,
    marker: bool = False,
    line: bool = True,
    off: bool = False,
) -> dict[str, Any]:
    """One line; points without a number are left out. ``off``: drawn only when asked for."""
    colour, dash = look or (COLOURS["quiet"], "solid")
    points = []
    for k, (a, b) in enumerate(zip(x, y, strict=True)):
        if a is None or b is None or not np.isfinite(b):
            continue
        point = [float(f"{a:.5g}"), float(f"{b:.5g}")]
        if half is not None and half[k] is not None and np.isfinite(half[k]):
            point.append(float(f"{half[k]:.3g}"))
        points.append(point)
    return {
        "name": name,
        "colour": colour,
        "dash": dash,
        "points": points,
        "marker": marker,
        "line": line,
        "off": off,
    }


def panel(
    title: str, x: dict[str, Any], y: dict[str, Any], lines: list[Any], **more: Any
) -> dict[str, Any]:
    """Axes with their lines; ``shade``: spans without an observation."""
    return {"title": title, "x": x, "y": y, "series": lines, **more}


def sheet(name: str, title: str, caption: str, panels: list[Any]) -> Figure | None:
    """A figure of panels; None where there are none."""
    return {"id": name, "title": title, "caption": caption, "panels": panels} if panels else None


def spans(observed: list[int]) -> list[list[int]]:
    """Runs of frames without an observation, as [first, last]."""
    found: list[list[int]] = []
    for t, seen in enumerate(observed):
        if seen:
            continue
        if found and found[-1][1] == t - 1:
            found[-1][1] = t
        else:
            found.append([t, t])
    return found
