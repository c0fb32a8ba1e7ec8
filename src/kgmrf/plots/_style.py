"""One look for every picture: colours, figures, files, gaps and labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kgmrf._extras import optional
from kgmrf._types import Numbers
from kgmrf.results import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    with optional():
        from matplotlib.figure import Figure

COLOURS = {
    "ours": "#0072B2",
    "vermillion": "#D55E00",
    "green": "#009E73",
    "purple": "#CC79A7",
    "orange": "#E69F00",
    "sky": "#56B4E9",
    "truth": "#222222",
    "quiet": "#767676",
    "gap": "#E8E8E8",
}
"""Okabe and Ito's palette, which colour-blind readers can distinguish, and three greys."""

CYCLE = tuple(COLOURS[k] for k in ("ours", "vermillion", "green", "purple", "orange", "sky"))

_SETTINGS: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same picture on every machine
    "font.size": 8.0,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8.0,
    "axes.titlelocation": "left",
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#444444",
    "axes.labelcolor": "#222222",
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#D9D9D9",
    "grid.linewidth": 0.4,
    **{f"{axis}tick.labelsize": 7.5 for axis in "xy"},
    **{f"{axis}tick.color": "#444444" for axis in "xy"},
    **{f"{axis}tick.major.width": 0.6 for axis in "xy"},
    **{f"{axis}tick.major.size": 2.5 for axis in "xy"},
    "ytick.minor.size": 0.0,
    "lines.linewidth": 1.2,
    "lines.solid_capstyle": "round",
    "legend.frameon": False,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "savefig.dpi": 200,
    "svg.fonttype": "none",
    "svg.hashsalt": "kgmrf",
    "pdf.fonttype": 42,
}

WIDTH = 7.2
"""Width of a figure over both columns of a journal page, inches."""

NARROW_WIDTH = 3.7
"""Width of a figure on the screen of a telephone, inches."""

MOST_LABELS = 8
"""Lines that can still be labelled one by one."""


@contextmanager
def style() -> Iterator[None]:
    """The project's look, inside the ``with`` block only.

    >>> with style():
    ...     figure = new_figure(height=2.0)
    >>> figure.get_size_inches().tolist()
    [7.2, 2.0]
    """
    with optional():
        import matplotlib
    from cycler import cycler

    settings: Any = {**_SETTINGS, "axes.prop_cycle": cycler(color=CYCLE)}
    with matplotlib.rc_context(settings):
        yield


def new_figure(height: float, width: float = WIDTH) -> Figure:
    """An empty figure of ``width`` x ``height`` inches that arranges its panels by itself.

    Parameters
    ----------
    height : float
        Inches.
    width : float, default WIDTH
        Inches.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    figure.get_layout_engine().set(h_pad=0.04, w_pad=0.04)  # type: ignore[union-attr, call-arg]
    return figure


def write_figure(figure: Figure, path: str | Path) -> Path:
    """Write PNG, SVG or PDF by the ending of ``path``; the same figure gives the same bytes.

    Parameters
    ----------
    figure : Figure
        The figure.
    path : str or Path
        PNG, SVG or PDF.
    """
    target = check_path(path)
    with style():
        figure.savefig(target, metadata=_STAMPS[target.suffix.lower()])
    return target


# What would differ from run to run is left out of the files.
_STAMPS: dict[str, dict[str, str | None]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None},
}


def check_path(path: str | Path) -> Path:
    """``path`` if a figure can be written there; call it before long work.

    Parameters
    ----------
    path : str or Path
        PNG, SVG or PDF.
    """
    target = Path(path)
    if target.suffix.lower() not in _STAMPS:
        raise ValueError(f"a figure ends in .png, .svg or .pdf, got {str(path)!r}")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"the folder {str(target.parent)!r} for the figure does not exist")
    if find_spec("matplotlib") is None:
        raise ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib")
    return target


def colours_of(count: int) -> list[str]:
    """``count`` colours: the palette, or shades of one when it runs out."""
    if count <= len(CYCLE):
        return list(CYCLE[:count])
    import matplotlib

    shades = matplotlib.colormaps["viridis"](np.linspace(0.0, 0.9, count))
    return [matplotlib.colors.to_hex(shade) for shade in shades]


def log_ticks(axes: Axes, name: str) -> None:
    """Plain numbers on a logarithmic axis, three or more; powers of ten where it is long.

    Parameters
    ----------
    axes : Axes
        Axes with a logarithmic scale.
    name : str
        "x" or "y".
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    side = getattr(axes, f"{name}axis")
    low, high = side.get_view_interval()
    side.set_minor_formatter(NullFormatter())
    if high / low >= 3e3 or low <= 1e-3:
        return
    steps: tuple[float, ...] = (1.0,)
    for steps in ((1.0,), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)):
        decades = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
        if sum(low <= m * 10.0**k <= high for k in decades for m in steps) >= 3:
            break
    side.set_major_locator(LogLocator(subs=steps))
    side.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def clock(result: Result) -> tuple[Numbers, str]:
    """Dates or times of the rows, time where all items share it, the number of the frame else."""
    time = result.time
    index = None if result.index is None else np.asarray(result.index)
    if index is not None and index.dtype.kind == "M":
        from matplotlib.dates import date2num

        return np.asarray(date2num(index)), "date"
    if index is not None and index.dtype.kind == "f" and np.isfinite(index).all():
        return index, "time"
    items = time.reshape(time.shape[0], -1)
    if np.isfinite(items).all() and (items == items[:, :1]).all():
        return items[:, 0], "time"
    return np.arange(len(items), dtype=float), "frame"


def time_axis(axes: Axes, times: Numbers, unit: str) -> None:
    """The axis below a panel, as `clock` gives it: dates as dates."""
    if unit == "date":
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        axes.xaxis.set_major_locator(AutoDateLocator(maxticks=8))
        axes.xaxis.set_major_formatter(ConciseDateFormatter(axes.xaxis.get_major_locator()))
    axes.set_xlabel("" if unit == "date" else unit)
    pad = 0.5 if len(times) == 1 else 0.0
    axes.set_xlim(times[0] - pad, times[-1] + pad)


def shade_gaps(axes: Axes, times: Numbers, missing: Numbers) -> None:
    """Grey background where there is no observation.

    The darker the background, the more is missing.

    Parameters
    ----------
    axes : Axes
        Axes to draw into.
    times : array
        ``(T,)``.
    missing : array
        ``(T,)``: True, or for a batch the share of items without data.
    """
    share = np.asarray(missing, dtype=float)
    levels = (0.0, 0.25, 0.5, 0.75) if ((share > 0) & (share < 1)).any() else (0.0,)
    for level in levels:
        if (share > level).any():
            axes.fill_between(
                times,
                0.0,
                np.where(share > level, 1.0, 0.0),
                step="mid",
                color=COLOURS["gap"],
                alpha=1.0 / len(levels),
                linewidth=0,
                zorder=0,
                transform=axes.get_xaxis_transform(),
            )


def label_lines(labels: Mapping[Axes, Sequence[tuple[float, str, str]]]) -> None:
    """Write (height, text, colour) beside the right edge of axes, shifted where they collide.

    Call it once, when everything else of the figure is drawn: the places depend on the final axes.

    Parameters
    ----------
    labels
        (height, text, colour) of each label, by axes.
    """
    words = {
        axes: [
            axes.annotate(
                text,
                xy=(1.0, height),
                xycoords=axes.get_yaxis_transform(),
                xytext=(4.0, 0.0),
                textcoords="offset points",
                color=colour,
                va="center",
                annotation_clip=False,
            )
            for height, text, colour in sorted(these)
            if np.isfinite(height)
        ]
        for axes, these in labels.items()
    }
    for figure in {axes.figure for axes in labels}:
        figure.draw_without_rendering()  # type: ignore[union-attr]
    for axes, texts in words.items():
        points = 72.0 / axes.figure.dpi
        wanted = [float(axes.transData.transform((0.0, w.xy[1]))[1]) * points for w in texts]
        spacing = 1.15 * max((float(w.get_fontsize()) for w in texts), default=0.0)
        places = apart(wanted, spacing, axes.bbox.y0 * points, axes.bbox.y1 * points)
        for word, place, want in zip(texts, places, wanted, strict=True):
            word.set_position((4.0, place - want))


def apart(wanted: Sequence[float], spacing: float, low: float, high: float) -> list[float]:
    """The places nearest to the wanted ones (ascending) that are ``spacing`` apart, in [low, high].

    Without the spacing this is isotonic regression.
    """
    from scipy.optimize import isotonic_regression

    if not len(wanted):
        return []
    shift = spacing * np.arange(len(wanted))
    levels = isotonic_regression(np.asarray(wanted) - shift).x
    return list(np.clip(levels, low, max(high - shift[-1], low)) + shift)
