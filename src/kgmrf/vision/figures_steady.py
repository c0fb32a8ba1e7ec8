"""Pictures of a stabilised video: the path of the camera, and images before and after."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["before_after", "path_plot"]

LABELS = {
    "x": "right, pixels",
    "y": "down, pixels",
    "angle": "turn, degrees",
    "log_scale": "zoom, %",
    "turn_x": "pitch, degrees",
    "turn_y": "yaw, degrees",
    "turn_z": "roll, degrees",
}
UNITS = {"angle": np.degrees(1), "log_scale": -100.0, "turn_x": np.degrees(1)}
UNITS |= {"turn_y": np.degrees(1), "turn_z": np.degrees(1)}


def path_plot(
    columns: Sequence[str],
    path: NDArray[np.float64],
    steady: NDArray[np.float64],
    file: str | Path | None = None,
) -> Figure:
    """The camera's path (n, k) and the steady one, one panel per component; grey: gaps.

    >>> path_plot(("x",), np.zeros((5, 1)), np.zeros((5, 1))).axes[0].get_ylabel()
    'right, pixels'
    """
    from kgmrf import plots

    with plots.style():
        figure = plots.new_figure(height=0.5 + 1.15 * len(columns))
        grid = figure.subplots(len(columns), 1, sharex=True, squeeze=False)[:, 0]
        times = np.arange(len(path), dtype=float)
        for axes, name, raw, smooth in zip(grid, columns, path.T, steady.T, strict=True):
            unit = UNITS.get(name, 1.0)
            plots.shade_gaps(axes, times, np.isnan(raw))
            axes.plot(times, unit * raw, color=plots.COLOURS["vermillion"], linewidth=0.8)
            axes.plot(times, unit * smooth, color=plots.COLOURS["ours"], linewidth=1.4)
            axes.set_ylabel(LABELS[name])
            axes.set_xlim(0, max(len(path) - 1, 1))
        figure.legend(grid[0].lines[:2], ["camera", "steady"], loc="outside upper right", ncols=2)
        grid[-1].set_xlabel("image")
        figure.align_ylabels(grid)
        if file is not None:
            plots.write_figure(figure, file)
    return figure


def before_after(
    before: Sequence[Any],
    after: Sequence[Any],
    file: str | Path | None = None,
    *,
    n_columns: int = 3,
) -> Figure:
    """Some images of a stretch before and after, and the mean of all of them: shake blurs it.

    ``before`` and ``after`` are as many images (H, W, 3), blue, green, red.
    """
    from kgmrf import plots

    if len(before) != len(after) or not len(before):
        raise ValueError(f"as many images before as after, got {len(before)} and {len(after)}")
    at = np.linspace(0, len(before) - 1, n_columns).round().astype(int)
    height, width = before[0].shape[:2]
    with plots.style():
        side = plots.WIDTH / (n_columns + 1)
        figure = plots.new_figure(height=2 * side * height / width + 0.25)
        engine: Any = figure.get_layout_engine()
        engine.set(h_pad=0.015, w_pad=0.015, hspace=0.0, wspace=0.0)
        grid = figure.subplots(2, n_columns + 1)
        for row, (word, images) in enumerate((("before", before), ("after", after))):
            mean = np.mean([np.asarray(image, dtype=np.float32) for image in images], axis=0)
            shown = [images[k] for k in at] + [np.rint(mean).astype(np.uint8)]
            for k, (axes, image) in enumerate(zip(grid[row], shown, strict=True)):
                colour = image[..., ::-1] if image.ndim == 3 else np.repeat(image[..., None], 3, 2)
                axes.imshow(colour, interpolation="antialiased")
                axes.set_axis_off()
                # a line that stays: what moves against it shakes
                axes.axhline(image.shape[0] / 2, color="white", linewidth=0.5, alpha=0.8)
                axes.axvline(image.shape[1] / 2, color="white", linewidth=0.5, alpha=0.8)
                if row == 0:
                    last = k == n_columns
                    axes.set_title(
                        f"mean of {len(images)} images" if last else f"image {at[k]}", loc="center"
                    )
                if k == 0:
                    axes.text(
                        0.03,
                        0.95,
                        word,
                        transform=axes.transAxes,
                        va="top",
                        color="white",
                        fontweight="bold",
                        bbox={"facecolor": "black", "alpha": 0.65, "pad": 1.5, "linewidth": 0},
                    )
        if file is not None:
            plots.write_figure(figure, file)
    return figure
