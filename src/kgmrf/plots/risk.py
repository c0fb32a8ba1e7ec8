"""A result as people look at risk: volatility, correlation, members and surprise along time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kgmrf._types import Numbers
from kgmrf.members import Average, Diagonal, default_members
from kgmrf.plots._style import (
    COLOURS,
    CYCLE,
    MOST_LABELS,
    WIDTH,
    clock,
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

Labels = dict[Any, list[tuple[float, str, str]]]

NARROW = 5.0
"""Width in inches below which panels stand below one another."""

MOST_STEPS = 1500
"""Steps that a line shows; more cannot be distinguished."""

MOST_NUMBERS = 20_000_000
"""Entries of correlation matrices that are held at a time."""

RARE = (20.0, 1000.0)
"""One step in so many is beyond each dashed line."""

RAREST = 1e6
"""The rarest step that is drawn as what it is."""


def plot_risk(
    result: Result, kind: str, path: str | Path | None = None, width: float = WIDTH
) -> Figure:
    """Draw one track of covariances along time; with ``path`` the figure is also written.

    "volatility": the standard deviation of every channel. "correlation": of all pairs along time,
    and the last matrix. "weights": of the members of a self-tuned tracker, and its half-life.
    "surprise": one step in how many is so improbable under its forecast, and how often
    observations lie outside the 95 % region.

    Parameters
    ----------
    result : Result
        What ``filter`` returned for one track of covariances.
    kind : str
        "volatility", "correlation", "weights" or "surprise".
    path : str or Path, default None
        PNG, SVG or PDF to write too; None: no file.
    width : float, default WIDTH
        Width of the figure in inches.

    Examples
    --------
    >>> from kgmrf import KGMRF
    >>> result = KGMRF().filter(np.random.default_rng(0).normal(size=(200, 3)))
    >>> [axes.get_ylabel() for axes in plot_risk(result, "surprise").axes]
    ['one step in N', 'outside the 95 %\\nregion']
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
    if result.time.ndim != 1:
        raise ValueError(
            f"plot({kind!r}) shows one track, and this result holds a batch of shape "
            f"{result.time.shape[1:]}; filter one track at a time"
        )
    with style():
        figure = new_figure(3.0 if width >= NARROW else 3.6, width)
        label_lines(KINDS[kind](figure, result))
    if path is not None:
        write_figure(figure, path)
    return figure


def _volatility(figure: Figure, result: Result) -> Labels:
    some = _thinned(result, MOST_STEPS)
    values = _settled(some, some.volatility)
    names, axes = _names(some), figure.add_subplot()
    lines = _lines(axes, some, values, names)
    known = values[np.isfinite(values) & (values > 0.0)]
    low, high = np.quantile(known, [0.02, 0.999]) if known.size else (1.0, 1.0)
    if high > 8.0 * low:  # one crisis would make a flat line of all the rest
        axes.set_yscale("log")
        axes.set_ylim(0.7 * low, 1.1 * known.max())
        log_ticks(axes, "y")
    else:
        axes.set_ylim(bottom=0.0)
    axes.set_ylabel("standard deviation per step")
    axes.set_title("Volatility")
    return {axes: lines}


def _correlation(figure: Figure, result: Result) -> Labels:
    d = _dimension(result)
    if d < 2:
        raise ValueError("one channel has no correlation; plot the volatility")
    tall = figure.get_figwidth() < NARROW
    shape = (2, 1) if tall else (1, 2)
    if tall:
        figure.set_figheight(2.3 + 0.9 * figure.get_figwidth())
    ratios: Any = {"height_ratios": (1.0, 1.6)} if tall else {"width_ratios": (1.5, 1.0)}
    axes, matrix = figure.subplots(*shape, **ratios)
    some = _thinned(result, max(2, min(MOST_STEPS, MOST_NUMBERS // d**2)))
    rows, columns = np.triu_indices(d, 1)
    names = _names(some)
    values = _settled(some, some.correlation[:, rows, columns])
    lines = []
    if len(rows) <= 6:
        pairs = [f"{names[i]}–{names[j]}" for i, j in zip(rows, columns, strict=True)]
        lines = _lines(axes, some, values, pairs)
    else:
        _frame(axes, some)
        times = clock(some)[0]
        low, middle, high = _quantiles(values)
        axes.fill_between(times, low, high, color=CYCLE[0], alpha=0.2, linewidth=0)
        axes.plot(times, middle, color=CYCLE[0])
        lines = [
            (_last(line), words, CYCLE[0])
            for line, words in ((low, "10 %"), (middle, "median"), (high, "90 %"))
        ]
    axes.set_ylim(min(-0.05, float(np.nanmin(values, initial=0.0)) - 0.05), 1.0)
    axes.set_title("Correlation of pairs")
    axes.set_ylabel("correlation")
    _draw_matrix(matrix, result[-1].correlation, names)
    return {axes: lines}


def _draw_matrix(axes: Axes, correlation: Numbers, names: list[str]) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    d = len(names)
    ends = [COLOURS["vermillion"], "#F7F7F7", COLOURS["ours"]]
    colours = LinearSegmentedColormap.from_list("signed", ends)
    picture = axes.imshow(correlation, vmin=-1.0, vmax=1.0, cmap=colours)
    axes.grid(visible=False)
    axes.set_title("At the last step")
    size = 7.0 if d <= 10 else 5.5
    if d <= 30:
        axes.set_yticks(range(d), names, fontsize=size)
        axes.set_xticks(range(d), names, fontsize=size, rotation=90)
    else:
        axes.set_xticks([])
        axes.set_yticks([])
    axes.tick_params(length=0.0)
    if d <= 8:
        for (i, j), value in np.ndenumerate(correlation):
            ink = "white" if abs(value) > 0.6 else COLOURS["truth"]
            axes.text(j, i, f"{value:.2f}", ha="center", va="center", fontsize=size, color=ink)
    else:
        bar = axes.figure.colorbar(picture, ax=axes, shrink=0.7, ticks=(-1.0, 0.0, 1.0))
        bar.outline.set_visible(False)


def _weights(figure: Figure, result: Result) -> Labels:
    every = max(1, len(result) // 400)
    whole = len(result) // every * every
    weights = np.asarray(result.weights[:whole]).reshape(whole // every, every, -1).mean(axis=1)
    times = clock(result)[0][:whole:every]
    axes, below = figure.subplots(2, 1, sharex=True, height_ratios=(2.0, 1.0))
    members = _member_names(result)
    low, labels = np.zeros(len(weights)), []
    late = -max(1, len(weights) // 20)
    for member in dict.fromkeys(members):  # those of one name together
        words, colour = member
        high = low + weights[:, [other == member for other in members]].sum(axis=1)
        axes.fill_between(times, low, high, color=colour, linewidth=0)
        if (high - low)[late:].mean() > 0.04:
            labels.append((float(0.5 * (low + high)[-1]), words, COLOURS["truth"]))
        low = high
    axes.set_ylim(0.0, 1.0)
    axes.set_title("Weights of the members, by half-life")
    axes.set_ylabel("weight")
    days = _counts_seconds(result) and float(np.nanmedian(result.half_life)) >= 86400.0
    below.plot(clock(result)[0], result.half_life / (86400.0 if days else 1.0), color=CYCLE[0])
    below.set_yscale("log")
    below.set_ylabel("half-life\n(days)" if days else "half-life")
    log_ticks(below, "y")
    _frame(below, result)
    return {axes: labels}


def _counts_seconds(result: Result) -> bool:
    """Whether time is that of the dates, not the number of the row."""
    if clock(result)[1] != "date" or len(result) < 2:
        return False
    dates = np.asarray(result.index).astype("datetime64[us]")
    seconds = (dates[-1] - dates[0]) / np.timedelta64(1, "s")
    return bool(np.isclose(result.time[-1] - result.time[0], seconds))


def _member_names(result: Result) -> list[tuple[str, str]]:
    """Name and colour of each member: the shorter its memory, the darker."""
    import matplotlib

    n = result.weights.shape[-1]
    members = default_members(_dimension(result))
    if len(members) != n or "loadings" in result.fields():
        shades = matplotlib.colormaps["viridis"](np.linspace(0.1, 0.95, n))
        to_hex = matplotlib.colors.to_hex
        return [(f"member {k + 1}", to_hex(shade)) for k, shade in enumerate(shades)]
    averages = sorted({m.half_life for m in members if isinstance(m, Average)})
    blues = matplotlib.colormaps["Blues"](np.linspace(0.95, 0.35, len(averages)))
    found = []
    for member in members:
        if isinstance(member, Average):
            words = f"{member.half_life:g}"
            words += " + fast scale" if member.size_gain else ""
            words += " + channels" if member.channel_half_life else ""
            shade = matplotlib.colors.to_hex(blues[averages.index(member.half_life)])
            if member.size_gain:  # the same memory, another hue
                greens = matplotlib.colormaps["Greens"](np.linspace(0.95, 0.35, len(averages)))
                shade = matplotlib.colors.to_hex(greens[averages.index(member.half_life)])
            found.append((words, shade))
        elif isinstance(member, Diagonal):
            found.append(("variances only", COLOURS["quiet"]))
        else:
            found.append(("rotating", COLOURS["vermillion"]))
    return found


def _surprise(figure: Figure, result: Result) -> Labels:
    from scipy import special

    d = _dimension(result)
    if d < 2 or not np.isfinite(result.nis).any():
        raise ValueError(
            "this result does not tell how improbable its observations were (nis is NaN): "
            "plot() shows their log-likelihood"
        )
    axes, below = figure.subplots(2, 1, sharex=True, height_ratios=(2.0, 1.0))
    times, unit = clock(result)
    dated = unit == "date"
    beyond = special.chdtrc(d * (d - 1) / 2.0, result.nis)
    rare = np.minimum(1.0 / np.maximum(beyond, 1e-300), RAREST)
    axes.plot(times, rare, ".", color=CYCLE[0], markersize=2.5, alpha=0.5)
    axes.set_yscale("log")
    axes.set_ylim(1.0, 2.0 * max(float(np.nanmax(rare)), RARE[-1]))
    labels = []
    for level in RARE:
        axes.axhline(level, color=COLOURS["quiet"], linewidth=0.8, linestyle=(0, (4, 2)))
        labels.append((level, f"1 in {level:g}", COLOURS["quiet"]))
    _mark_rarest(axes, times, rare, np.asarray(result.index) if dated else None)
    axes.set_ylabel("one step in N")
    axes.set_title("Surprise of every observation")
    outside = np.where(np.isnan(beyond), np.nan, beyond < 0.05)
    width = max(50, len(outside) // 20)
    below.plot(times, 100.0 * _share(outside, width), color=CYCLE[0])
    below.axhline(5.0, color=COLOURS["quiet"], linewidth=0.8, linestyle=(0, (4, 2)))
    below.set_ylim(bottom=0.0)
    below.set_ylabel("outside the 95 %\nregion")
    below.yaxis.set_major_formatter("{x:g} %")
    _frame(below, result)
    return {axes: labels, below: [(5.0, "expected", COLOURS["quiet"])]}


def _mark_rarest(axes: Axes, times: Numbers, rare: Numbers, dates: Any) -> None:
    """Names the most improbable steps, but no two that are neighbours."""
    named: list[float] = []
    span = max(float(times[-1] - times[0]), 1e-300)
    for k in np.argsort(-np.nan_to_num(rare))[:40]:
        if len(named) == 4 or not rare[k] > 100.0:
            break
        room = span / axes.figure.get_figwidth()  # type: ignore[union-attr]
        if any(abs(times[k] - other) < room for other in named):
            continue
        named.append(float(times[k]))
        words = f"{times[k]:g}" if dates is None else str(dates[k])[:10]
        late = (times[k] - times[0]) > 0.8 * span
        axes.plot(times[k], rare[k], "o", color=COLOURS["vermillion"], markersize=3.0)
        axes.annotate(
            words,
            (float(times[k]), float(rare[k])),
            xytext=(-4.0 if late else 4.0, 0.0),
            textcoords="offset points",
            ha="right" if late else "left",
            va="center",
            fontsize=7.0,
        )


KINDS: dict[str, Callable[[Any, Result], Labels]] = {
    "volatility": _volatility,
    "correlation": _correlation,
    "weights": _weights,
    "surprise": _surprise,
}
"""What `plot_risk` draws."""


# --- pieces ---------------------------------------------------------------------------------------


def _dimension(result: Result) -> int:
    if result.channels is not None and "covariance" not in result.fields():
        return len(result.channels)
    return int(result.covariance.shape[-1])


def _thinned(result: Result, most: int) -> Result:
    every = max(1, -(-len(result) // most))
    part: Any = result[(len(result) - 1) % every :: every]  # the last step is among them
    return part


def _settled(result: Result, values: Numbers) -> Numbers:
    """NaN at the start, where fewer than 2 d samples are behind an estimate."""
    if "is_initial" not in result.fields() or np.all(result.is_initial):
        return values
    return np.where(np.asarray(result.is_initial, dtype=bool)[:, None], np.nan, values)


def _names(result: Result) -> list[str]:
    d = result.volatility.shape[-1]
    channels = result.channels
    return list(channels) if channels and len(channels) == d else [str(k) for k in range(d)]


def _frame(axes: Axes, result: Result) -> None:
    times, unit = clock(result)
    shade_gaps(axes, times, np.asarray(result.age) != 0)
    time_axis(axes, times, unit)


def _lines(
    axes: Axes, result: Result, values: Numbers, names: list[str]
) -> list[tuple[float, str, str]]:
    """A line for each name; of many the largest and the smallest at the end stand out."""
    _frame(axes, result)
    times, n = clock(result)[0], len(names)
    last = np.array([_last(line) for line in values.T])
    order = np.argsort(np.nan_to_num(last))
    chosen = list(range(n)) if n <= MOST_LABELS else [*order[-3:][::-1], *order[:3][::-1]]
    for k in sorted(set(range(n)) - set(chosen)):
        axes.plot(times, values[:, k], color="#C4C4C4", linewidth=0.6)
    labels = []
    for place, k in enumerate(chosen):
        colour = CYCLE[place % len(CYCLE)]
        dashed = "-" if place < len(CYCLE) else (0, (3, 1.5))
        axes.plot(times, values[:, k], color=colour, linewidth=1.0, linestyle=dashed)
        labels.append((float(last[k]), names[k], colour))
    return labels


def _last(line: Numbers) -> float:
    known = np.flatnonzero(np.isfinite(line))
    return float(line[known[-1]]) if known.size else np.nan


def _quantiles(values: Numbers) -> Numbers:
    """10 %, 50 % and 90 % of every row; NaN where nothing is known."""
    out = np.full((3, len(values)), np.nan)
    known = np.isfinite(values).any(axis=1)
    if known.any():
        out[:, known] = np.nanquantile(values[known], [0.1, 0.5, 0.9], axis=1)
    return out


def _share(outside: Numbers, width: int) -> Numbers:
    """Mean of the last ``width`` values that are known; NaN before there are half as many."""
    known = np.isfinite(outside)
    sums = np.cumsum(np.pad(np.where(known, outside, 0.0), (width, 0)))
    counts = np.cumsum(np.pad(known.astype(float), (width, 0)))
    total, count = sums[width:] - sums[:-width], counts[width:] - counts[:-width]
    return np.where(count > 0.5 * width, total / np.maximum(count, 1.0), np.nan)
