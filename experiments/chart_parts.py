"""The parts of a figure: one description, read by both the page and the printed figures.

A figure has panels; a panel has axes, shaded spans and series. A series is a list of points
(x, y) or (x, y, half width of the 95 % interval). Numbers come from result files only.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kgmrf.plots import COLOURS

Figure = dict[str, Any]

# Name in the results: words in the key, colour and dash.
METHODS = {
    "ours": ("ours", "ours solid"),
    "auto": ("ours", "ours solid"),
    "information_one": ("information law, set once", "ours dashed"),
    "information": ("information law", "ours dotted"),
    "paper_kgmrf": ("K-GMRF, paper", "vermillion solid"),
    "printed_kgmrf": ("Algorithm 1", "vermillion dashed"),
    "paper_euclidean_ema": ("EMA .2", "sky solid"),
    "paper_riemannian_ema": ("log-EMA .2", "sky dashed"),
    "paper_tangent_kalman": ("tangent KF", "green solid"),
    "paper_alpha_beta": ("alpha-beta", "purple solid"),
    "tuned_alpha_beta": ("alpha-beta, tuned", "purple dashed"),
    "tuned_alpha_beta_decay": ("alpha-beta, tuned", "purple dashed"),
    "tuned_zero_lag": ("zero-lag, tuned", "orange solid"),
    "tuned_riemannian_ema": ("EMA, tuned", "sky dotted"),
    "tuned_euclidean_ema": ("EMA, tuned", "sky dotted"),
    "tuned_error_state_kalman": ("error-state KF, tuned", "green dotted"),
    "tuned_one_euro": ("One Euro, tuned", "purple dotted"),
    "hold_last": ("hold last", "quiet solid"),
}
SHORT = {name: words for name, (words, _) in METHODS.items()}


def tint(look: str) -> str:
    """The colour of a method, or of a look such as "sky dashed"."""
    return _look(look)[0]


def _look(look: str) -> tuple[str, str]:
    name, dash = METHODS.get(look, ("", look))[1].split()
    return COLOURS.get(name, name), dash


def series(
    name: str,
    x: Any,
    y: Any,
    look: str = "quiet solid",
    half: Any = None,
    *,
    marker: bool = False,
    line: bool = True,
    off: bool = False,
) -> dict[str, Any]:
    """One line; points without a number are left out. ``off``: drawn only when asked for.

    look: a method of the table above, or colour and dash.
    """
    points = []
    for k, (a, b) in enumerate(zip(x, y, strict=True)):
        if a is None or b is None or not np.isfinite(b):
            continue
        point = [float(f"{a:.5g}"), float(f"{b:.5g}")]
        if half is not None and half[k] is not None and np.isfinite(half[k]):
            point.append(float(f"{half[k]:.3g}"))
        points.append(point)
    ink, dash = _look(look)
    drawn = {"points": points, "marker": marker, "line": line, "off": off}
    return {"name": name, "colour": ink, "dash": dash, **drawn}


def dots(name: str, x: Any, y: Any, look: str, half: Any = None, **more: Any) -> dict[str, Any]:
    """A line with a dot at every point."""
    return series(name, x, y, look, half, marker=True, **more)


def rings(name: str, x: Any, y: Any, look: str) -> dict[str, Any]:
    """Open rings without a line: what the paper prints, or a measurement beside a theory."""
    return series(name, x, y, look, marker=True, line=False)


def panel(
    title: str,
    x: str,
    y: str,
    lines: list[Any],
    *,
    log: str = "",
    low: float | None = None,
    shade: Any = (),
) -> dict[str, Any]:
    """Axes by their labels, and lines; ``log`` names axes, ``shade`` spans without observation."""
    axes = {
        name: {"label": label, "log": name in log, "low": low if name == "y" else None}
        for name, label in (("x", x), ("y", y))
    }
    return {"title": title, **axes, "series": lines, "shade": list(shade)}


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
