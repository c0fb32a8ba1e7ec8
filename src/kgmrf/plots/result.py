"""The panels of a `Result` along time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from warnings import catch_warnings

import numpy as np

from kgmrf import metrics
from kgmrf._types import Mask, Numbers
from kgmrf.geometry import so
from kgmrf.model.gains import ANGLE_VARIANCE_LIMIT
from kgmrf.plots._style import (
    COLOURS,
    MOST_LABELS,
    clock,
    colours_of,
    label_lines,
    log_ticks,
    new_figure,
    shade_gaps,
    style,
    time_axis,
    write_figure,
)
from kgmrf.results import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class _Panel(NamedTuple):
    """One quantity along time: ``values`` (T, items, lines) with a name for every line."""

    label: str
    values: Numbers
    names: tuple[str, ...] = ("",)
    log: bool = False
    from_zero: bool = False
    dots: bool = False
    levels: tuple[tuple[float, str], ...] = ()  # dashed lines and what they mean
    spread: Numbers | None = None


def plot_result(result: Result, path: str | Path | None = None) -> Figure:
    """Draw what a tracker knew along time: matrix, speed, uncertainty, surprise; gaps in grey.

    Panels without any finite number are left out. A batch is shown by the median of its items and
    the range of the middle 80 %. With ``path`` the figure is also written (PNG, SVG or PDF).

    Parameters
    ----------
    result : Result
        What ``filter`` returned.
    path : str or Path, default None
        PNG, SVG or PDF to write too; None: no file.

    Examples
    --------
    >>> from kgmrf import KGMRF, simulate
    >>> scene = simulate.ellipse(0.08, n_frames=60)
    >>> figure = plot_result(KGMRF(n_samples=8).filter(scene.observations))
    >>> [axes.get_ylabel().split()[0] for axes in figure.axes]
    ['eigenvalues', 'major', 'speed', 'angle', 'NIS', 'log-likelihood']
    """
    panels = _panels(result)
    times, unit = clock(result)
    missing = (_flat(result.age)[:, :, 0] != 0).mean(axis=-1)
    with style():
        figure = new_figure(height=0.75 + 1.05 * len(panels))
        grid = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
        labels = {}
        for axes, panel in zip(grid, panels, strict=True):
            shade_gaps(axes, times, missing)
            labels[axes] = _draw(axes, times, panel)
        time_axis(grid[-1], times, unit)
        figure.align_ylabels(grid)
        figure.suptitle(_title(result, missing), x=0.01, ha="left", fontsize=8.5)
        label_lines(labels)
    if path is not None:
        write_figure(figure, path)
    return figure


def _title(result: Result, missing: Numbers) -> str:
    kind = next(k for k in ("rotation", "position", "covariance") if k in result.fields())
    items = int(np.prod(result.time.shape[1:], dtype=int))
    words = [f"{kind}, d = {getattr(result, kind).shape[-1]}, {len(result)} frames"]
    if items > 1:
        words.append(f"{items} tracks: median and middle 80 %")
    if missing.any():
        words.append("grey: tracks without observation" if items > 1 else "grey: no observation")
    return "; ".join(words)


def _flat(values: Numbers, lines: int = 1) -> Numbers:
    """(T, ..., lines) as (T, items, lines), infinities as NaN."""
    flat = np.asarray(values, dtype=float).reshape(values.shape[0], -1, lines)
    return np.where(np.isfinite(flat), flat, np.nan)


def _panels(result: Result) -> list[_Panel]:
    rotates = "rotation" in result.fields()
    likelihood = _Panel("log-likelihood\n(nats per frame)", _flat(result.log_likelihood), dots=True)
    if not rotates and "position" in result.fields():
        return [_position_panel(result), likelihood]
    first = _rotation_panel(result) if rotates else _spectrum_panel(result)
    rest = [] if rotates or result.covariance.shape[1:] != (2, 2) else [_axis_panel(result)]
    n_planes = len(np.triu_indices(result.velocity.shape[-1], 1)[0])
    if n_planes:
        speed = np.degrees(np.linalg.norm(result.velocity, axis=(-2, -1)) / np.sqrt(2.0))
        mean = ((n_planes, f"expected mean: {n_planes}"),)
        rest += [
            _Panel("speed (degrees\nper unit time)", _flat(speed), from_zero=True),
            _uncertainty_panel(result),
            _Panel("NIS", _flat(result.nis), dots=True, from_zero=True, levels=mean),
        ]
    # The matrix itself always has its panel, even when nothing was ever seen.
    return [first, *(p for p in (*rest, likelihood) if np.isfinite(p.values).any())]


def _position_panel(result: Result) -> _Panel:
    values = _flat(result.position, d := result.position.shape[-1])
    band = 2.0 * _flat(result.std, d) if values.shape[1] == 1 else None
    names = tuple(f"$x_{{{i + 1}}}$" for i in range(d))
    return _Panel("position\n(± 2 std)", values, names, spread=band)


def _spectrum_panel(result: Result) -> _Panel:
    d = result.spectrum.shape[-1]
    values = _flat(result.spectrum, d)
    # Before there are as many samples as channels some eigenvalues are rounding errors.
    values = np.where(values > 1e-12 * values[..., :1], values, np.nan)
    if "is_initial" in result.fields():
        early = np.asarray(result.is_initial, dtype=bool).reshape(len(values), -1)
        if not early.all():
            values = np.where(early[..., None], np.nan, values)
    names = tuple(f"$\\lambda_{{{i + 1}}}$" for i in range(d))
    return _Panel("eigenvalues", values, names, log=True)


def _axis_panel(result: Result) -> _Panel:
    """Direction of the major axis of a single ellipse, followed through half turns."""
    angle = _unwrapped(np.asarray(metrics.axis_angle(result.covariance)), np.pi)
    spread = 2.0 * np.degrees(_flat(result.angle_std[:, 0, 1]))
    return _Panel("major axis\n(degrees)", _flat(np.degrees(angle)), spread=spread)


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


def _uncertainty_panel(result: Result) -> _Panel:
    std = np.degrees(result.angle_std[..., *np.triu_indices(result.angle_std.shape[-1], 1)])
    worst, best = std.max(axis=-1), std.min(axis=-1)
    label = "angle std\n(degrees)"
    cap = float(np.degrees(np.sqrt(ANGLE_VARIANCE_LIMIT)))
    reached = np.nanmax(std, initial=0.0) > 0.999 * cap
    limit = ((cap, "limit: direction unknown"),) if reached else ()
    if np.allclose(worst, best, equal_nan=True):
        return _Panel(label, _flat(worst), from_zero=True, levels=limit)
    ends = _flat(np.stack([worst, best], axis=-1), 2)
    names = ("least certain pair", "most certain pair")
    return _Panel(label, ends, names, from_zero=True, levels=limit)


def _unwrapped(angle: Numbers, period: float) -> Numbers:
    out = np.full_like(angle, np.nan)
    there = np.isfinite(angle)
    out[there] = np.unwrap(angle[there], period=period)
    return out


def _draw(axes: Axes, times: Numbers, panel: _Panel) -> list[tuple[float, str, str]]:
    """Lines, bands and dots of a panel; returns the labels of its lines (`label_lines`)."""
    labels: list[tuple[float, str, str]] = []
    axes.set_ylabel(panel.label)
    names = ("running mean",) if panel.dots else panel.names
    for k, (name, colour) in enumerate(zip(names, colours_of(len(names)), strict=True)):
        values = panel.values[:, :, k]
        low, middle, high = _quantiles(values)
        if panel.spread is not None:
            low, high = middle - panel.spread[:, 0, k], middle + panel.spread[:, 0, k]
        if np.nanmax(high - low, initial=0.0) > 0:
            axes.fill_between(times, low, high, color=colour, alpha=0.2, linewidth=0)
        if panel.dots and values.shape[1] == 1:
            axes.plot(times, middle, ".", color=colour, markersize=2.0, alpha=0.45, zorder=2)
        line = _running_mean(values) if panel.dots else middle
        axes.plot(times, line, color=colour, zorder=2.5)
        # A frame between two gaps has no line to its neighbours.
        gap = np.isnan(np.pad(line, 1, constant_values=np.nan))
        isolated = ~gap[1:-1] & gap[:-2] & gap[2:]
        if isolated.any():
            axes.plot(
                times[isolated], line[isolated], ".", color=colour, markersize=3.0, zorder=2.5
            )
        if name and len(names) <= MOST_LABELS and not gap.all():
            labels.append((float(line[~gap[1:-1]][-1]), name, colour))
    for level, words in panel.levels:
        axes.axhline(level, color=COLOURS["quiet"], linewidth=0.8, linestyle=(0, (4, 2)))
        labels.append((level, words, COLOURS["quiet"]))
    if panel.from_zero:
        axes.set_ylim(bottom=0.0)
    if panel.log:
        axes.set_yscale("log")
        log_ticks(axes, "y")
    return labels


def _running_mean(values: Numbers) -> Numbers:
    """Of the items (T, items) together; NaN where there are too few."""
    with catch_warnings(action="ignore"):  # times at which nothing is known
        mean = np.nanmean(values, axis=1)
    width = max(5, len(mean) // 20) | 1
    if len(mean) < 3 * width:
        return np.full_like(mean, np.nan)
    there, window = np.isfinite(mean), np.ones(width)
    total = np.convolve(np.where(there, mean, 0.0), window, mode="same")
    count = np.round(np.convolve(there.astype(float), window, mode="same"))
    # Short gaps are bridged, long ones stay open.
    return np.where(count > width / 3, total / np.maximum(count, 1.0), np.nan)


def _quantiles(values: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """10 %, 50 % and 90 % over the items (T, items) that are known at each time."""
    with catch_warnings(action="ignore"):  # times at which nothing is known
        return tuple(np.nanquantile(values, [0.1, 0.5, 0.9], axis=1))
