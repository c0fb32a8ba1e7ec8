"""Pictures of a stabilised video: the path of the camera, and images before and after."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kgmrf._types import Numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["before_after", "path_plot"]

LABELS = {
    "x": ("right, pixels", 1.0),
    "y": ("down, pixels", 1.0),
    "angle": ("turn, degrees", np.degrees(1)),
    "log_scale": ("zoom, %", -100.0),
    "turn_x": ("pitch, degrees", np.degrees(1)),
    "turn_y": ("yaw, degrees", np.degrees(1)),
    "turn_z": ("roll, degrees", np.degrees(1)),
}
"""What a column of the path is called, and the factor to the unit that is shown."""


def path_plot(
    columns: Sequence[str], path: Numbers, steady: Numbers, file: str | Path | None = None
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
            label, unit = LABELS[name]
            plots.shade_gaps(axes, times, np.isnan(raw))
            axes.plot(times, unit * raw, color=plots.COLOURS["vermillion"], linewidth=0.8)
            axes.plot(times, unit * smooth, color=plots.COLOURS["ours"], linewidth=1.4)
            axes.set(ylabel=label, xlim=(0, max(len(path) - 1, 1)))
        figure.legend(grid[0].lines[:2], ["camera", "steady"], loc="outside upper right", ncols=2)
        grid[-1].set_xlabel("image")
        figure.align_ylabels(grid)
        return finished(figure, file)


def before_after(
    before: Sequence[Any],
    after: Sequence[Any],
    file: str | Path | None = None,
    *,
    n_columns: int = 3,
    first: int = 0,
) -> Figure:
    """Some images of a stretch before and after, and the mean of all of them: shake blurs it.

    ``before`` and ``after`` are as many images (H, W, 3), blue, green, red; ``first`` is the number
    of the first one in its video.
    """
    from kgmrf import plots

    if len(before) != len(after) or not len(before):
        raise ValueError(f"as many images before as after, got {len(before)} and {len(after)}")
    at = np.linspace(0, len(before) - 1, n_columns).round().astype(int)
    titles = [*(f"image {first + k}" for k in at), f"mean of {len(before)} images"]
    with plots.style():
        figure, grid = image_grid(2, n_columns + 1, before[0], plots.WIDTH / (n_columns + 1))
        for row, word, images in zip(grid, ("before", "after"), (before, after), strict=True):
            mean = np.mean([np.asarray(image, dtype=np.float32) for image in images], axis=0)
            shown = [*(images[k] for k in at), np.rint(mean).astype(np.uint8)]
            for axes, image in zip(row, shown, strict=True):
                show(axes, image)
                # a line that stays: what moves against it shakes
                axes.axhline(image.shape[0] / 2, color="white", linewidth=0.5, alpha=0.8)
                axes.axvline(image.shape[1] / 2, color="white", linewidth=0.5, alpha=0.8)
            write(row[0], word, 0.03, 0.95, size=8.0)
        for axes, title in zip(grid[0], titles, strict=True):
            axes.set_title(title, loc="center")
        return finished(figure, file)


def image_grid(rows: int, columns: int, first: Any, side: float) -> tuple[Figure, Any]:
    """Panels without axes, ``side`` inches wide and as high as the first image asks for."""
    from kgmrf import plots

    height, width = first.shape[:2]
    figure = plots.new_figure(height=rows * side * height / width + 0.25, width=side * columns)
    engine: Any = figure.get_layout_engine()
    engine.set(h_pad=0.015, w_pad=0.015, hspace=0.0, wspace=0.0)
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.ravel():
        axes.set_axis_off()
    return figure, grid


def show(axes: Axes, image: Any) -> None:
    """An image, blue, green, red or grey; pixel k covers [k, k + 1)."""
    height, width = image.shape[:2]
    colour = image[..., ::-1] if image.ndim == 3 else np.repeat(image[..., None], 3, 2)
    axes.imshow(colour, extent=(0, width, height, 0), interpolation="antialiased")
    axes.set(xlim=(0, width), ylim=(height, 0))


def write(
    axes: Axes, words: str, x: float, y: float, colour: str = "white", size: float = 6.0
) -> None:
    """Words on an image, in shares of it, from the nearest corner."""
    back = "black" if colour == "white" else "white"
    axes.text(
        x,
        y,
        words,
        transform=axes.transAxes,
        ha="left" if x < 0.5 else "right",
        va="bottom" if y < 0.5 else "top",
        color=colour,
        fontsize=size,
        fontweight="bold",
        bbox={"facecolor": back, "alpha": 0.65, "pad": 0.8, "linewidth": 0},
    )


def finished(figure: Figure, path: str | Path | None) -> Figure:
    """The figure, written where there is a path."""
    from kgmrf import plots

    if path is not None:
        plots.write_figure(figure, path)
    return figure
