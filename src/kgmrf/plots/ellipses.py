"""Ellipses of 2 x 2 covariances along time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kgmrf._extras import optional
from kgmrf._types import Mask, Numbers
from kgmrf.plots._style import colours_of, new_figure, shade_gaps, style, write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def _draw(
    axes: Axes, covariances: Numbers, times: Numbers, *, height: float, size: float, **look: Any
) -> None:
    """The ellipses x^T M^{-1} x = 1 along a time axis, true in shape and angle on the page.

    covariances: (T, 2, 2); those that are NaN or not positive definite are left out.
    size: what a standard deviation of 1 measures in units of time.
    """
    with optional():
        from matplotlib.collections import EllipseCollection

    safe = np.where(np.isfinite(covariances), covariances, 0.0)
    values, vectors = np.linalg.eigh(safe)
    proper = np.isfinite(covariances).all(axis=(-2, -1)) & (values[:, 0] > 0)
    values, vectors = values[proper], vectors[proper]
    axes.add_collection(
        EllipseCollection(
            2.0 * size * np.sqrt(values[:, 1]),
            2.0 * size * np.sqrt(values[:, 0]),
            np.degrees(np.arctan2(vectors[:, 1, 1], vectors[:, 0, 1])),
            units="x",
            offsets=np.stack([times[proper], np.full(int(proper.sum()), height)], axis=-1),
            offset_transform=axes.transData,
            **look,
        ),
        autolim=False,
    )


def plot_ellipses(
    covariances: Numbers | Mapping[str, Numbers],
    path: str | Path | None = None,
    *,
    truth: Numbers | None = None,
    times: Numbers | None = None,
    observed: Mask | None = None,
    n_shown: int = 20,
    title: str = "",
) -> Figure:
    """Ellipses of 2 x 2 covariances along time, one row per estimate, over the truth in grey.

    Parameters
    ----------
    covariances : array or Mapping[str, Numbers]
        (T, 2, 2), or several of them by name.
    path : str or Path, default None
        PNG, SVG or PDF to write too; None: no file.
    truth : array, default None
        The true ones, ``(T, 2, 2)``.
    times, observed : default None
        Times of the frames and where there was an observation, ``(T,)``.
    n_shown : int, default 20
        How many of the T frames are drawn.
    title : str, default ""
        Title of the figure.

    Examples
    --------
    >>> from kgmrf import KGMRF, simulate
    >>> scene = simulate.ellipse(0.08, n_frames=60)
    >>> result = KGMRF(n_samples=8).filter(scene.observations)
    >>> figure = plot_ellipses({"KGMRF": result.covariance}, truth=scene.covariance)
    >>> figure.axes[0].get_xlabel()
    'time'
    """
    rows = covariances if isinstance(covariances, Mapping) else {"estimate": covariances}
    rows = {name: np.asarray(matrices, dtype=float) for name, matrices in rows.items()}
    if not rows:
        raise ValueError("there is nothing to draw: give at least one sequence of covariances")
    truth = None if truth is None else np.asarray(truth, dtype=float)
    n_frames = len(next(iter(rows.values())))
    for name, matrices in {**rows, **({} if truth is None else {"truth": truth})}.items():
        if matrices.shape != (n_frames, 2, 2) or n_frames == 0:
            raise ValueError(f"{name} must have shape (T, 2, 2), got {matrices.shape}")
    clock = np.arange(n_frames, dtype=float) if times is None else np.asarray(times, dtype=float)
    if clock.shape != (n_frames,):
        raise ValueError(f"times must have shape ({n_frames},), got {clock.shape}")
    with style():
        figure = new_figure(height=0.55 + 0.5 * len(rows))
        axes = figure.add_subplot()
        if observed is not None:
            shade_gaps(axes, clock, ~np.asarray(observed, dtype=bool))
        draw_rows(axes, rows, truth, clock, n_shown)
        axes.set_xlabel("time")
        axes.set_title(title)
    if path is not None:
        write_figure(figure, path)
    return figure


def draw_rows(
    axes: Axes, rows: Mapping[str, Numbers], truth: Numbers | None, times: Numbers, n_shown: int
) -> None:
    """Rows of ellipses, each over the truth, with the row's name as its tick.

    Parameters
    ----------
    axes : Axes
        Axes to draw into.
    rows : Mapping[str, Numbers]
        Covariances ``(T, 2, 2)`` by name.
    truth : array
        The true ones, or None.
    times : array
        ``(T,)``.
    n_shown : int
        How many of the T frames are drawn.
    """
    shown = np.unique(np.linspace(0, len(times) - 1, max(n_shown, 1)).round().astype(int))
    pitch = (times[-1] - times[0]) / max(len(shown) - 1, 1) or 1.0
    # The truth sets the size if there is one: a wild estimate may overlap its neighbours.
    measures = list(rows.values()) if truth is None else [truth]
    finite = [np.nan_to_num(m[shown], posinf=0.0, neginf=0.0) for m in measures]
    largest = float(np.linalg.norm(np.concatenate(finite), 2, axis=(-2, -1)).max())
    size = 0.47 * pitch / np.sqrt(largest or 1.0)
    for k, (matrices, colour) in enumerate(zip(rows.values(), colours_of(len(rows)), strict=True)):
        place: dict[str, Any] = {"times": times[shown], "height": -k, "size": size}
        if truth is not None:
            _draw(axes, truth[shown], **place, facecolor="#AFAFAF", linewidth=0.0, zorder=1.5)
        line: dict[str, Any] = {"facecolor": "none", "edgecolor": colour, "linewidth": 1.2}
        _draw(axes, matrices[shown], **place, **line, zorder=2.5)
    axes.set_xlim(times[0] - 0.6 * pitch, times[-1] + 0.6 * pitch)
    axes.set_ylim(-len(rows) + 0.4, 0.6)
    axes.set_yticks([-k for k in range(len(rows))], list(rows))
    axes.tick_params(axis="y", length=0)
    for tick, colour in zip(axes.get_yticklabels(), colours_of(len(rows)), strict=True):
        tick.set_color(colour)
    axes.grid(False)
    axes.spines["left"].set_visible(False)
