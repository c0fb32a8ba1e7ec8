"""What is known of a vector: its fields, as a table and as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kgmrf._extras import optional
from kgmrf._types import Numbers
from kgmrf.results import Estimate, Result, Values

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure


class _VectorFields:
    """The fields that a vector has and a matrix has not."""

    if TYPE_CHECKING:

        def _field(self, name: str) -> Any: ...

    @property
    def position(self) -> Numbers:
        """The estimate, (..., d); NaN for components that were never seen."""
        return self._field("position")

    @property
    def std(self) -> Numbers:
        """Standard deviation of every component, (..., d)."""
        return self._field("std")

    @property
    def position_covariance(self) -> Numbers:
        """Covariance of the estimate's error, (..., d, d)."""
        return self._field("position_covariance")


class VectorEstimate(_VectorFields, Estimate):
    """What a tracker knows of a vector: position, velocity (..., d), std, nis, log_likelihood.

    >>> from kgmrf.trackers.vector import VectorTracker
    >>> VectorTracker(noise_std=1.0).update([3.0, 4.0])
    VectorEstimate(position (2,), time=0, age=0)
    """

    def __repr__(self) -> str:
        plain = Estimate({**self._all(), "covariance": self.position})
        return repr(plain).replace("Estimate(covariance", "VectorEstimate(position", 1)

    def _all(self) -> Values:
        return {name: self._field(name) for name in self.fields()}


class VectorResult(_VectorFields, Result):
    """What a tracker knew of a vector at every time of a sequence: `VectorEstimate`, time first.

    >>> from kgmrf.trackers.vector import VectorTracker
    >>> len(VectorTracker(noise_std=1.0).filter([[0.0, 1.0]] * 5))
    5
    """

    def __getitem__(self, frame: int | slice) -> VectorEstimate | VectorResult:
        kind = VectorResult if isinstance(frame, slice) else VectorEstimate
        return kind({name: self._field(name)[frame] for name in self.fields()})

    def __repr__(self) -> str:
        return f"Vector{super().__repr__()}"

    def to_frame(self) -> pandas.DataFrame:
        """A pandas table: one row per frame (and item), columns such as ``position_0``.

        >>> from kgmrf.trackers.vector import VectorTracker
        >>> list(VectorTracker(noise_std=1.0).filter([[0.0]] * 3).to_frame())[:2]
        ['time', 'age']
        """
        with optional():
            import pandas as pd

        columns: dict[str, Numbers] = {}
        if self.time.ndim > 1:
            index = np.indices(self.time.shape).reshape(self.time.ndim, -1)
            columns["frame_number"] = index[0]
            columns |= {f"item_{k}": axis for k, axis in enumerate(index[1:])}
        for name in ("time", "age", "nis", "log_likelihood"):
            columns[name] = np.reshape(self._field(name), -1)
        for name in ("position", "velocity", "std"):
            rows = np.reshape(self._field(name), (-1, self._field(name).shape[-1]))
            columns |= {f"{name}_{k}": rows[:, k] for k in range(rows.shape[-1])}
        return pd.DataFrame(columns)

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
