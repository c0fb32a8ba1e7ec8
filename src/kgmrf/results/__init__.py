"""What a tracker says: one `Estimate` per frame, one `Result` per sequence.

Fields are built when they are first looked at: an online update should not pay for a covariance
that nobody reads. What a tracker does not know (a moving average has no velocity and no idea of
its own uncertainty) is NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from kgmrf import _deprecated
from kgmrf._extras import optional
from kgmrf._names import BY_CHANNEL, as_columns
from kgmrf._types import Numbers
from kgmrf.geometry.between import state_between
from kgmrf.results.fields import FIELDS as FIELDS
from kgmrf.results.fields import Values as Values
from kgmrf.results.fields import _Fields

if TYPE_CHECKING:
    import mne
    import pandas
    from matplotlib.figure import Figure


class Estimate(_Fields):
    """What a tracker knows at one time.

    Parameters
    ----------
    values : Mapping[str, array]
        The fields by name, ``(...)`` first; trackers make them, the others are derived.

    Examples
    --------
    >>> from kgmrf import KGMRF
    >>> estimate = KGMRF(n_samples=8).update([[2.0, 0.1], [0.1, 0.5]])
    >>> estimate.covariance.shape
    (2, 2)
    """

    def table(self, field: str = "covariance") -> pandas.DataFrame | pandas.Series:
        """One field with the names of the channels: a matrix as a table, a vector as a series.

        >>> import pandas as pd
        >>> from kgmrf import KGMRF
        >>> tracker = KGMRF()
        >>> _ = tracker.filter(pd.DataFrame({"a": [1.0, -2.0, 1.5], "b": [0.5, -1.0, 0.25]}))
        >>> tracker.forecast(1).table("correlation").round(2)
              a     b
        a  1.00  0.72
        b  0.72  1.00
        """
        with optional():
            import pandas as pd

        array = np.asarray(getattr(self, field))
        if array.ndim not in (1, 2):
            raise ValueError(f"{field} has shape {array.shape}: a table holds one track")
        names = _names_of(self, field, array.shape[-1])
        if array.ndim == 1:
            return pd.Series(array, index=names, name=field)
        return pd.DataFrame(array, index=names, columns=names)

    def to_mne(self, n_samples: int = 1) -> mne.Covariance:
        """The covariance as MNE's, which whitens and projects with it.

        n_samples: how many samples it is worth, where MNE joins several. Channels need names, as
        after a Raw or Epochs.
        """
        with optional():
            import mne

        if self.channels is None or np.ndim(self.covariance) != 2:
            raise ValueError(
                f"a covariance of shape {self.covariance.shape} without the names of its channels "
                "is none for MNE; track a Raw, Epochs or a table with names"
            )
        return mne.Covariance(
            np.array(self.covariance), list(self.channels), bads=[], projs=[], nfree=n_samples
        )

    def __repr__(self) -> str:
        names = self.fields()
        known = ("rotation", "loadings", "position")
        matrix = next((name for name in known if name in names), "covariance")
        shown = f"{matrix} {getattr(self, matrix).shape}"
        times = f"time={_brief(self.time)}, age={_brief(self.age)}"
        return f"{type(self).__name__}({shown}, {times})"


class Result(_Fields):
    """What a tracker knew at every time of a sequence: the fields of `Estimate`, time first.

    Parameters
    ----------
    values : Mapping[str, array]
        The fields by name, time first; trackers make them, the others are derived.

    Examples
    --------
    >>> import numpy as np
    >>> from kgmrf import KGMRF
    >>> result = KGMRF(n_samples=8).filter(np.tile(np.diag([2.0, 0.5]), (200, 1, 1)))
    >>> len(result), result.covariance.shape
    (200, (200, 2, 2))
    """

    def __len__(self) -> int:
        return int(self.time.shape[0])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} steps, fields: {', '.join(self.fields())})"

    def __getitem__(self, frame: int | slice) -> Estimate | Result:
        """One frame as an `Estimate`, or a slice of frames as a `Result`."""
        kind = type(self) if isinstance(frame, slice) else Estimate
        index = self.index[frame] if isinstance(frame, slice) and self.index is not None else None
        if hasattr(self._values, "at"):  # fields that are made later, for these frames alone
            return kind(self._values.at(frame)).with_labels(self.channels, index)
        values = {name: value[frame] for name, value in self.as_dict().items()}
        return kind(values).with_labels(self.channels, index)

    def state_at(self, time: Any) -> Estimate | Result:
        """Rotations at a stamp between steps, or at many ``(K,)``, by rotation and velocity of the
        steps on both sides; see :func:`kgmrf.geometry.between.between`. Later ones are forecasts,
        which a tracker makes: ``tracker.state_at(time)``.

        >>> from kgmrf import RotationTracker, simulate
        >>> scene = simulate.steady_camera(1, 0.1)
        >>> RotationTracker().smooth(scene.observations).state_at(10.5).rotation.shape
        (3, 3)
        """
        found = state_between(self, time)
        return (Result if found["time"].ndim else Estimate)(found)

    def select(self, fields: Any) -> Self:
        """The same with these fields alone (and time); None keeps all."""
        if fields is None:
            return self
        names = (fields,) if isinstance(fields, str) else tuple(fields)
        return type(self)(
            {name: np.array(getattr(self, name)) for name in dict.fromkeys(("time", *names))}
        ).with_labels(self.channels, self.index)

    def to_frame(self) -> pandas.DataFrame:
        """A pandas table with one row per frame (and per item of a batch).

        Matrices become columns such as ``covariance_0_1``, or ``covariance_Oz_O1`` where the
        channels have names; the upper triangle of symmetric and skew ones is enough. Rows keep the
        index of the table that was followed.

        >>> import numpy as np
        >>> from kgmrf import KGMRF
        >>> result = KGMRF(n_samples=8).filter(np.tile(np.diag([2.0, 0.5]), (200, 1, 1)))
        >>> result.to_frame()["covariance_0_0"].iloc[-1].round(1).item()
        2.0
        """
        with optional():
            import pandas as pd

        columns: dict[str, Numbers] = {}
        if self.time.ndim > 1:
            index = np.indices(self.time.shape).reshape(self.time.ndim, -1)
            columns["frame_number"] = index[0]
            columns |= {f"item_{k}": axis for k, axis in enumerate(index[1:])}
        arrays = {name: getattr(self, name) for name in _IN_TABLES if name in self.fields()}
        columns |= as_columns(arrays, self.time.ndim, self.channels)
        return pd.DataFrame(columns, index=None if self.time.ndim > 1 else self.index)

    def table(self, field: str = "covariance") -> pandas.DataFrame:
        """One field along time, with the names of rows and channels.

        Of a matrix, one block of rows for every step, as ``table.ewm(...).cov()`` gives; of a
        vector such as "volatility", one row for every step.

        >>> import pandas as pd
        >>> from kgmrf import KGMRF
        >>> days = pd.date_range("2024-01-01", periods=3, freq="B")
        >>> returns = pd.DataFrame({"a": [1.0, -2.0, 1.5], "b": [0.5, -1.0, 0.25]}, index=days)
        >>> KGMRF().filter(returns).table("volatility").round(2)
                       a     b
        2024-01-01  1.41  0.71
        2024-01-02  2.22  1.11
        2024-01-03  2.09  0.91
        """
        with optional():
            import pandas as pd

        array = np.asarray(getattr(self, field))
        if self.time.ndim > 1 or array.ndim not in (1, 2, 3):
            raise ValueError(f"{field} has shape {array.shape}; a table holds one track at a time")
        rows = pd.RangeIndex(len(array)) if self.index is None else pd.Index(self.index)
        if array.ndim == 1:
            return pd.DataFrame({field: array}, index=rows)
        names = pd.Index(_names_of(self, field, array.shape[-1]))
        if array.ndim == 2:
            return pd.DataFrame(array, index=rows, columns=names)
        index = pd.MultiIndex.from_product([rows, names])
        return pd.DataFrame(array.reshape(-1, array.shape[-1]), index=index, columns=names)

    def plot(self, kind: str | Path | None = None, path: str | Path | None = None) -> Figure:
        """Draw it along time; with ``path`` also write it (PNG, SVG or PDF by its ending).

        kind: "volatility", "correlation", "weights" or "surprise", of one track of covariances;
        see :func:`kgmrf.plots.plot_risk`. None draws the spectrum or angles, speed, uncertainty and
        surprise of any result; ``plot("picture.png")`` writes that.
        """
        from kgmrf.plots import plot_result, plot_risk

        if kind is None or isinstance(kind, Path) or Path(kind).suffix:
            return plot_result(self, path if kind is None else kind)
        return plot_risk(self, kind, path)


_deprecated.methods(Result, {"only": "select", "named": "with_labels"})

_IN_TABLES = (
    *("time", "age", "nis", "p_value", "log_likelihood", "half_life"),
    *("covariance", "rotation", "position", "velocity", "angle_std", "std"),
)
"""What `Result.to_frame` shows, in this order."""


def _names_of(fields: _Fields, field: str, size: int) -> list[Any]:
    if fields.channels is not None and field in BY_CHANNEL and len(fields.channels) == size:
        return list(fields.channels)
    return list(range(size))


def _brief(value: Numbers) -> str:
    return f"{float(value):g}" if np.ndim(value) == 0 else f"array{np.shape(value)}"


def stacked(steps: Sequence[Values]) -> Values:
    """The fields of a sequence from those of its steps.

    Parameters
    ----------
    steps : Sequence[Values]
        Fields of each step, in time order.
    """
    return {name: np.stack([one[name] for one in steps]) for name in steps[0]}


def stack(estimates: Sequence[Estimate]) -> Result:
    """A `Result` from the estimates of successive frames.

    Parameters
    ----------
    estimates : Sequence[Estimate]
        Estimates of one tracker, in time order.
    """
    return Result(stacked([one.as_dict() for one in estimates])).with_labels(estimates[0].channels)


def join(results: list[Result]) -> Result:
    """One `Result` from those of successive pieces of a sequence.

    Parameters
    ----------
    results : list[Result]
        Results of one tracker, in time order.
    """
    if len(results) == 1:
        return results[0]
    every = [result.as_dict() for result in results]
    pieces = {name: np.concatenate([one[name] for one in every]) for name in every[0]}
    index = None
    if all(r.index is not None for r in results):
        index = np.concatenate([np.asarray(r.index) for r in results])
    return type(results[0])(pieces).with_labels(results[0].channels, index)
