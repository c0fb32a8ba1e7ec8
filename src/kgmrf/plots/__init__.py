"""Pictures, last in the flow of data: one style, the panels of a `Result`, ellipses along time.

Everything is drawn on plain matplotlib figures: no window opens, no global setting changes, and it
works on machines without a screen. matplotlib is loaded when something is drawn.
"""

from kgmrf.plots._style import (
    COLOURS,
    CYCLE,
    WIDTH,
    check_path,
    label_lines,
    log_ticks,
    new_figure,
    shade_gaps,
    style,
    write_figure,
)
from kgmrf.plots.alerts import plot_alerts
from kgmrf.plots.ellipses import draw_rows, plot_ellipses
from kgmrf.plots.result import plot_result
from kgmrf.plots.risk import plot_risk

__all__ = [
    "COLOURS",
    "CYCLE",
    "WIDTH",
    "check_path",
    "draw_rows",
    "label_lines",
    "log_ticks",
    "new_figure",
    "plot_alerts",
    "plot_ellipses",
    "plot_result",
    "plot_risk",
    "shade_gaps",
    "style",
    "write_figure",
]
