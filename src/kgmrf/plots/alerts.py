"""A recording and its alarms: signal, surprise, and which channels are to blame."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kgmrf.plots._style import COLOURS, WIDTH, new_figure, style, time_axis, write_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from kgmrf.alerts import Alerts

MOST_CHANNELS = 12
"""More channels are not drawn one above the other."""


def plot_alerts(
    found: Alerts,
    signal: Any = None,
    path: str | Path | None = None,
    *,
    rows: slice = slice(None),
    width: float = WIDTH,
) -> Figure:
    """The signal ``(T, d)``, if it is given, the surprise, and the alarms as shaded stretches.

    Channels are drawn one above the other, each in units of its spread.

    Parameters
    ----------
    found : Alerts
        What :func:`kgmrf.alerts.watch` found.
    signal : default None
        The signal ``(T, d)``, if it is to be drawn.
    path : str or Path, default None
        PNG, SVG or PDF to write too; None: no file.
    rows : slice, default slice(None)
        Draw only these.
    width : float, default WIDTH
        Width of the figure in inches.

    Examples
    --------
    >>> from kgmrf.alerts import Alarm, watch
    >>> x = np.random.default_rng(0).normal(size=(500, 2))
    >>> [axes.get_ylabel() for axes in plot_alerts(watch(x), x).axes]
    ['', 'surprise\\n-log10 p']
    """
    values = None if signal is None else np.asarray(signal, dtype=float)
    if values is not None and values.shape != found.contribution.shape:
        raise ValueError(f"signal must be {found.contribution.shape}, got {values.shape}")
    whole = found.time if found.index is None else np.asarray(found.index)
    unit = "date" if whole.dtype.kind == "M" else "time"
    if unit == "date":
        from matplotlib.dates import date2num

        whole = np.asarray(date2num(whole))
    times, surprise = whole[rows], found.surprise[rows]
    values = values if values is None else values[rows]
    shown = values is not None and values.shape[1] <= MOST_CHANNELS
    with style():
        figure = new_figure(
            1.6 + (0.5 + 0.28 * values.shape[1] if shown and values is not None else 0), width
        )
        panels = figure.subplots(1 + shown, 1, sharex=True, squeeze=False)[:, 0]
        if shown and values is not None:
            names = found.channels or tuple(f"channel {k}" for k in range(values.shape[1]))
            for k, column in enumerate(values.T):
                known = column[~np.isnan(column)]
                low, middle, high = (
                    np.quantile(known, [0.01, 0.5, 0.99]) if known.size else (0, 0, 1)
                )
                size = max(high - low, 1e-300)
                line = np.clip((column - middle) / size, -0.9, 0.9) - k
                panels[0].plot(times, line, color=COLOURS["ours"], linewidth=0.5)
            panels[0].set_yticks(-np.arange(len(names)), names)
            panels[0].set_ylim(0.2 - len(names), 0.8)
            panels[0].grid(visible=False)
        last = panels[-1]
        last.plot(times, surprise, color="0.35", linewidth=0.5)
        last.set_ylabel("surprise\n-log10 p")
        last.set_ylim(bottom=0.0)
        for event in found.events:
            stop = len(whole) - 1 if event.end is None else min(event.end + 1, len(whole) - 1)
            for axes in panels:
                axes.axvspan(
                    whole[event.onset], whole[stop], color=COLOURS["vermillion"], alpha=0.25, lw=0
                )
        time_axis(last, times, unit)
    if path is not None:
        write_figure(figure, path)
    return figure
