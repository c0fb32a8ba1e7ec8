"""Pictures, last in the flow of data: one style, the panels of a `Result`, ellipses along time.

Everything is drawn on plain matplotlib figures: no window opens, no global setting changes, and it
works on machines without a screen. matplotlib is loaded when something is drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kgmrf import metrics
from kgmrf._extras import optional
from kgmrf._types import Mask, Numbers
from kgmrf.geometry import so
from kgmrf.results import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    with optional():
        from matplotlib.figure import Figure

__all__ = [
    "COLOURS",
    "draw_ellipses",
    "label_lines",
    "new_figure",
    "plot_ellipses",
    "plot_result",
    "shade_gaps",
    "style",
    "write_figure",
]

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
"""Okabe and Ito's palette, told apart by colour-blind readers too, and three greys."""

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
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
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
    """An empty figure of ``width`` x ``height`` inches that arranges its panels by itself."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    figure.get_layout_engine().set(h_pad=0.04, w_pad=0.04)  # type: ignore[union-attr, call-arg]
    return figure


def write_figure(figure: Figure, path: str | Path) -> Path:
    """Write PNG, SVG or PDF by the ending of ``path``; the same figure gives the same bytes."""
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
    """``path`` if a figure can be written there; asked before long work, not after it."""
    target = Path(path)
    if target.suffix.lower() not in _STAMPS:
        raise ValueError(f"a figure ends in .png, .svg or .pdf, got {str(path)!r}")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"the folder {str(target.parent)!r} for the figure does not exist")
    if find_spec("matplotlib") is None:
        raise ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib")
    return target


# ---------------------------------------------------------------------- small drawing words


def shade_gaps(axes: Axes, times: Numbers, missing: Numbers) -> None:
    """Grey background where there is no observation.

    ``missing`` (T,) is True or, for a batch, the share of items without data: the darker, the more.
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
    """Write (height, text, colour) beside the right edge of axes, moved apart where they collide.

    Call it once, when everything else of the figure is drawn: the places depend on the final axes.
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
        places = _apart(wanted, spacing, axes.bbox.y0 * points, axes.bbox.y1 * points)
        for word, place, want in zip(texts, places, wanted, strict=True):
            word.set_position((4.0, place - want))


def _apart(wanted: Sequence[float], spacing: float, low: float, high: float) -> list[float]:
    """The places nearest to the wanted ones (ascending) that are ``spacing`` apart, in [low, high].

    Without the spacing the task is isotonic regression: neighbours out of order share their mean.
    """
    blocks: list[tuple[float, int]] = []
    for k, place in enumerate(wanted):
        block = (place - k * spacing, 1)
        while blocks and blocks[-1][0] > block[0]:
            mean, count = blocks.pop()
            total = count + block[1]
            block = ((mean * count + block[0] * block[1]) / total, total)
        blocks.append(block)
    ceiling = max(high - (len(wanted) - 1) * spacing, low)
    levels = [min(max(mean, low), ceiling) for mean, count in blocks for _ in range(count)]
    return [level + k * spacing for k, level in enumerate(levels)]


def draw_ellipses(
    axes: Axes,
    covariances: Numbers,
    times: Numbers,
    *,
    height: float = 0.0,
    size: float,
    filled: bool = False,
    colour: str = COLOURS["ours"],
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
            facecolor="#AFAFAF" if filled else "none",
            edgecolor="none" if filled else colour,
            linewidth=0.0 if filled else 1.2,
            zorder=1.5 if filled else 2.5,
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
) -> Figure:
    """Ellipses of 2 x 2 covariances along time, one row per estimate, over the truth in grey.

    covariances: (T, 2, 2), or several of them by name; truth: (T, 2, 2); times, observed: (T,).
    n_shown: how many of the T frames are drawn.

    >>> from kgmrf import KGMRF, simulate
    >>> scene = simulate.ellipse(0.08, n_frames=60)
    >>> result = KGMRF(n_samples=8).filter(scene.observations)
    >>> figure = plot_ellipses({"KGMRF": result.covariance}, truth=scene.covariance)
    >>> figure.axes[0].get_xlabel()
    'time'
    """
    rows = covariances if isinstance(covariances, Mapping) else {"estimate": covariances}
    rows = {name: np.asarray(matrices, dtype=float) for name, matrices in rows.items()}
    if truth is not None:
        truth = np.asarray(truth, dtype=float)
    named = {**rows, **({} if truth is None else {"truth": truth})}
    if not rows:
        raise ValueError("there is nothing to draw: give at least one sequence of covariances")
    n_frames = len(next(iter(rows.values())))
    for name, matrices in named.items():
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
    if path is not None:
        write_figure(figure, path)
    return figure


def draw_rows(
    axes: Axes, rows: Mapping[str, Numbers], truth: Numbers | None, times: Numbers, n_shown: int
) -> None:
    """Rows of ellipses, each over the truth, with the row's name as its tick."""
    shown = np.unique(np.linspace(0, len(times) - 1, max(n_shown, 1)).round().astype(int))
    pitch = (times[-1] - times[0]) / max(len(shown) - 1, 1) or 1.0
    # The truth sets the size if there is one: a wild estimate may overlap its neighbours.
    measures = list(rows.values()) if truth is None else [truth]
    largest = max(
        float(np.linalg.norm(m[shown], 2, axis=(-2, -1)).max()) for m in _finite(measures)
    )
    size = 0.47 * pitch / np.sqrt(largest or 1.0)
    for k, (matrices, colour) in enumerate(zip(rows.values(), _colours(len(rows)), strict=True)):
        if truth is not None:
            draw_ellipses(axes, truth[shown], times[shown], height=-k, size=size, filled=True)
        draw_ellipses(axes, matrices[shown], times[shown], height=-k, size=size, colour=colour)
    axes.set_xlim(times[0] - 0.6 * pitch, times[-1] + 0.6 * pitch)
    axes.set_ylim(-len(rows) + 0.4, 0.6)
    axes.set_yticks([-k for k in range(len(rows))], list(rows))
    axes.tick_params(axis="y", length=0)
    for tick, colour in zip(axes.get_yticklabels(), _colours(len(rows)), strict=True):
        tick.set_color(colour)
    axes.grid(False)
    axes.spines["left"].set_visible(False)


def _finite(matrices: Sequence[Numbers]) -> list[Numbers]:
    return [np.where(np.isfinite(m), m, 0.0) for m in matrices]


def _colours(count: int) -> list[str]:
    """``count`` colours: the palette, or shades of one when it runs out."""
    if count <= len(CYCLE):
        return list(CYCLE[:count])
    import matplotlib

    shades = matplotlib.colormaps["viridis"](np.linspace(0.0, 0.9, count))
    return [matplotlib.colors.to_hex(shade) for shade in shades]


# ---------------------------------------------------------------------- a result


class _Panel(NamedTuple):
    """One quantity along time: ``values`` (T, items, lines) with a name for every line."""

    label: str
    values: Numbers
    names: tuple[str, ...] = ("",)
    log: bool = False
    from_zero: bool = False
    dots: bool = False
    expected: float | None = None
    spread: Numbers | None = None


def plot_result(result: Result, path: str | Path | None = None) -> Figure:
    """Draw what a tracker knew along time: matrix, speed, uncertainty, surprise; gaps in grey.

    Panels without any finite number are left out. A batch is shown by the median of its items and
    the range of the middle 80 %. With ``path`` the figure is also written (PNG, SVG or PDF).

    >>> from kgmrf import KGMRF, simulate
    >>> scene = simulate.ellipse(0.08, n_frames=60)
    >>> figure = plot_result(KGMRF(n_samples=8).filter(scene.observations))
    >>> [axes.get_ylabel().split()[0] for axes in figure.axes]
    ['eigenvalues', 'major', 'speed', 'angle', 'NIS', 'log-likelihood']
    """
    panels = _panels(result)
    times, unit = _clock(result.time)
    age = _flat(result.age)[:, :, 0]
    missing = (~(age == 0)).mean(axis=-1)
    with style():
        figure = new_figure(height=0.75 + 1.05 * len(panels))
        grid = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
        for axes, panel in zip(grid, panels, strict=True):
            shade_gaps(axes, times, missing)
            _draw(axes, times, panel)
        grid[-1].set_xlabel(unit)
        pad = 0.5 if len(times) == 1 else 0.0
        grid[-1].set_xlim(times[0] - pad, times[-1] + pad)
        figure.align_ylabels(grid)
        figure.suptitle(_title(result, missing), x=0.01, ha="left", fontsize=8.5)
        label_lines({axes: _line_labels(p) for axes, p in zip(grid, panels, strict=True)})
    if path is not None:
        write_figure(figure, path)
    return figure


def _title(result: Result, missing: Numbers) -> str:
    kind = "rotation" if "rotation" in result.fields() else "covariance"
    matrix = result.rotation if kind == "rotation" else result.covariance
    items = int(np.prod(result.time.shape[1:], dtype=int))
    words = [f"{kind}, d = {matrix.shape[-1]}, {len(result)} frames"]
    if items > 1:
        words.append(f"{items} tracks: median and middle 80 %")
    if missing.any():
        words.append("grey: tracks without observation" if items > 1 else "grey: no observation")
    return "; ".join(words)


def _clock(time: Numbers) -> tuple[Numbers, str]:
    """Time where all items share it, the number of the frame otherwise."""
    items = time.reshape(time.shape[0], -1)
    if np.isfinite(items).all() and (items == items[:, :1]).all():
        return items[:, 0], "time"
    return np.arange(len(items), dtype=float), "frame"


def _flat(values: Numbers, lines: int = 1) -> Numbers:
    """(T, ..., lines) as (T, items, lines), infinities as NaN."""
    flat = np.asarray(values, dtype=float).reshape(values.shape[0], -1, lines)
    return np.where(np.isfinite(flat), flat, np.nan)


def _panels(result: Result) -> list[_Panel]:
    if "rotation" in result.fields():
        d = result.rotation.shape[-1]
        first = [_rotation_panel(result)]
    else:
        d = result.covariance.shape[-1]
        first = [_spectrum_panel(result), *_axis_panel(result)]
    planes = np.triu_indices(d, 1)
    n_planes = len(planes[0])
    rest = [_Panel("log-likelihood\n(nats per frame)", _flat(result.log_likelihood), dots=True)]
    if n_planes:
        nis = _Panel("NIS", _flat(result.nis), dots=True, from_zero=True, expected=n_planes)
        rest = [_speed_panel(result), _uncertainty_panel(result, planes), nis, *rest]
    # The matrix itself always has its panel, even when nothing was ever seen.
    return [first[0], *(p for p in [*first[1:], *rest] if np.isfinite(p.values).any())]


def _spectrum_panel(result: Result) -> _Panel:
    d = result.spectrum.shape[-1]
    values = _flat(result.spectrum, d)
    names = tuple(f"$\\lambda_{{{i + 1}}}$" for i in range(d))
    return _Panel("eigenvalues", np.where(values > 0, values, np.nan), names, log=True)


def _axis_panel(result: Result) -> list[_Panel]:
    """Direction of the major axis of a single ellipse, followed through half turns."""
    if result.covariance.shape[1:] != (2, 2):
        return []
    angle = _unwrapped(np.asarray(metrics.axis_angle(result.covariance)), np.pi)
    spread = 2.0 * np.degrees(_flat(result.angle_std[:, 0, 1]))
    return [_Panel("major axis\n(degrees)", _flat(np.degrees(angle)), spread=spread)]


def _rotation_panel(result: Result) -> _Panel:
    rotation, d = result.rotation, result.rotation.shape[-1]
    items = rotation.reshape(len(result), -1, d, d)
    there = np.asarray(np.isfinite(items).all(axis=(-2, -1)))
    safe = np.where(there[..., None, None], items, np.eye(d))
    if items.shape[1] == 1 and d <= 3:
        vector = np.where(there[:, 0, None], so.vee(so.log(safe[:, 0])), np.nan)
        if d == 2:
            turned = _unwrapped(vector[:, 0], 2 * np.pi)
            return _Panel("angle\n(degrees)", _flat(np.degrees(turned)))
        # Past half a turn the vector jumps to the other side: no line across the jump.
        jump: Mask = np.linalg.norm(np.diff(vector, axis=0), axis=-1) > np.pi
        vector[1:][jump] = np.nan
        values = _flat(np.degrees(vector), 3)
        return _Panel("rotation vector\n(degrees)", values, ("x", "y", "z"))
    first = np.argmax(there, axis=0)
    start = safe[first, np.arange(items.shape[1])]
    angle = np.where(there, so.distance(start, safe), np.nan)
    return _Panel("angle from start\n(degrees)", np.degrees(angle)[..., None])


def _speed_panel(result: Result) -> _Panel:
    speed = np.linalg.norm(result.velocity, axis=(-2, -1)) / np.sqrt(2.0)
    return _Panel("speed (degrees\nper unit time)", _flat(np.degrees(speed)), from_zero=True)


def _uncertainty_panel(result: Result, planes: tuple[Numbers, Numbers]) -> _Panel:
    std = np.degrees(result.angle_std[..., planes[0], planes[1]])
    worst, best = std.max(axis=-1), std.min(axis=-1)
    label = "angle std\n(degrees)"
    if np.allclose(worst, best, equal_nan=True):
        return _Panel(label, _flat(worst), from_zero=True)
    ends = _flat(np.stack([worst, best], axis=-1), 2)
    return _Panel(label, ends, ("worst plane", "best plane"), from_zero=True)


def _unwrapped(angle: Numbers, period: float) -> Numbers:
    out = np.full_like(angle, np.nan)
    there = np.isfinite(angle)
    out[there] = np.unwrap(angle[there], period=period)
    return out


def _draw(axes: Axes, times: Numbers, panel: _Panel) -> None:
    axes.set_ylabel(panel.label)
    if panel.expected is not None:
        axes.axhline(panel.expected, color=COLOURS["quiet"], linewidth=0.8, linestyle=(0, (4, 2)))
    for k, colour in enumerate(_colours(len(panel.names))):
        values = panel.values[:, :, k]
        low, middle, high = _quantiles(values)
        if panel.spread is not None:
            low, high = middle - panel.spread[:, 0, k], middle + panel.spread[:, 0, k]
        if np.nanmax(high - low, initial=0.0) > 0:
            axes.fill_between(times, low, high, color=colour, alpha=0.2, linewidth=0)
        if panel.dots and values.shape[1] == 1:
            axes.plot(times, middle, ".", color=colour, markersize=2.0, alpha=0.45, zorder=2)
        line = _line(panel, k)
        axes.plot(times, line, color=colour, zorder=2.5)
        # A frame between two gaps has no line to its neighbours.
        if (lone := _lone(line)).any():
            axes.plot(times[lone], line[lone], ".", color=colour, markersize=3.0, zorder=2.5)
    if panel.from_zero:
        axes.set_ylim(bottom=0.0)
    if panel.log:
        _log_axis(axes)


def _log_axis(axes: Axes) -> None:
    """A logarithmic axis with round numbers that say themselves: 0.5, 1, 2, 5."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_yscale("log")
    low, high = axes.get_ylim()
    decades = np.log10(high / low)
    if decades < 2.5:
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if decades < 1.7 else (1.0,)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _line(panel: _Panel, k: int) -> Numbers:
    """What is drawn as a line: the median of the items, or the running mean of scattered dots."""
    if not panel.dots:
        return _quantiles(panel.values[:, :, k])[1]
    values = panel.values[:, :, k]
    count = np.isfinite(values).sum(axis=1)
    mean = np.nansum(values, axis=1) / np.maximum(count, 1)
    return _running_mean(np.where(count > 0, mean, np.nan))


def _lone(line: Numbers) -> Mask:
    gap = np.isnan(np.concatenate([[np.nan], line, [np.nan]]))
    return ~gap[1:-1] & gap[:-2] & gap[2:]


def _line_labels(panel: _Panel) -> list[tuple[float, str, str]]:
    labels: list[tuple[float, str, str]] = []
    names = ("running mean",) if panel.dots else panel.names
    for k, name in enumerate(names if len(names) <= MOST_LABELS else ()):
        line = _line(panel, k)
        there = line[np.isfinite(line)]
        if name and there.size:
            labels.append((float(there[-1]), name, _colours(len(names))[k]))
    if panel.expected is not None:
        labels.append((panel.expected, f"expected mean: {panel.expected:g}", COLOURS["quiet"]))
    return labels


def _quantiles(values: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """10 %, 50 % and 90 % over the items (T, items) that are known at each time."""
    if values.shape[1] == 1:
        return values[:, 0], values[:, 0], values[:, 0]
    out = np.full((3, len(values)), np.nan)
    there = np.isfinite(values).any(axis=1)
    if there.any():
        out[:, there] = np.nanquantile(values[there], [0.1, 0.5, 0.9], axis=1)
    return out[0], out[1], out[2]


def _running_mean(values: Numbers) -> Numbers:
    """Mean of the finite values in a window of about a twentieth of the sequence."""
    width = max(5, len(values) // 20) | 1
    if len(values) < 3 * width:
        return np.full_like(values, np.nan)
    there = np.isfinite(values)
    window = np.ones(width)
    total = np.convolve(np.where(there, values, 0.0), window, mode="same")
    count = np.convolve(there.astype(float), window, mode="same")
    # Short gaps are bridged, long ones stay open.
    return np.where(count > width / 3, total / np.maximum(count, 1.0), np.nan)
