"""What is known of a vector: its fields, as a table and as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kgmrf.results import Estimate, Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class VectorEstimate(Estimate):
    """What a tracker knows of a vector: position, velocity (..., d), std, nis, log_likelihood.

    >>> from kgmrf.trackers.vector import VectorTracker
    >>> VectorTracker(noise_std=1.0).update([3.0, 4.0])
    VectorEstimate(position (2,), time=0, age=0)
    """


class VectorResult(Result):
    """What a tracker knew of a vector at every time of a sequence: `VectorEstimate`, time first.

    >>> from kgmrf.trackers.vector import VectorTracker
    >>> len(VectorTracker(noise_std=1.0).filter([[0.0, 1.0]] * 5))
    5
    """

    _estimate = VectorEstimate

    def plot(self, path: str | Path | None = None) -> Figure:
        """Draw every component with a band of two standard deviations along time.

        Returns the matplotlib figure; with ``path`` also writes it (PNG, SVG or PDF by its ending).
        """
        from kgmrf.plots import COLOURS, CYCLE, new_figure, style, write_figure

        if self.time.ndim > 1:
            raise ValueError(f"only one track can be drawn, this result has {self.time.shape[1:]}")
        with style():
            figure = new_figure(2.4)
            axes = figure.add_subplot()
            for k in range(self.position.shape[-1]):
                centre, half = self.position[:, k], 2.0 * self.std[:, k]
                colour = CYCLE[k % len(CYCLE)]
                axes.plot(self.time, centre, color=colour, label=f"component {k}")
                axes.fill_between(
                    self.time, centre - half, centre + half, color=colour, alpha=0.2, lw=0
                )
            axes.set_xlabel("time")
            axes.set_title("position, ± 2 standard deviations", color=COLOURS["truth"])
            axes.legend(frameon=False)
            if path is not None:
                write_figure(figure, path)
        return figure
