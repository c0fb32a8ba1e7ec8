"""What a tracker says: one `Estimate` per frame, one `Result` per sequence.

Fields are built when they are first looked at: an online update should not pay for a covariance
that nobody reads. What a tracker does not know (a moving average has no velocity and no idea of
its own uncertainty) is NaN.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from kgmrf import _deprecated
from kgmrf._extras import optional
from kgmrf._names import BY_CHANNEL, as_columns
from kgmrf._types import Numbers
from kgmrf.geometry.between import state_between
from kgmrf.model.density import GAUSSIAN, Density, components
from kgmrf.model.factors import DENSE, FactorDensity, derived, heaviness, solve
from kgmrf.model.tail import surprise
from kgmrf.results.rotation_fields import Field, RotationFields
from kgmrf.youth import widening

if TYPE_CHECKING:
    import mne
    import pandas
    from matplotlib.figure import Figure

Values = Mapping[str, Numbers]


class _Fields(RotationFields):
    """Named arrays, computed once on demand.

    channels: the names of the channels, if what was followed had names, or None.
    index: labels of the rows (dates, seconds), if it had those, or None.
    """

    time = Field()
    """Time of the step, (...)."""
    age = Field()
    """Time since the last observation, (...); NaN before the first."""
    covariance = Field()
    """Estimate of M, (..., d, d)."""
    loadings = Field()
    """Factors of a covariance of many channels, (..., d, k): see `noise`."""
    noise = Field()
    """Diagonal beside the factors, (..., d): covariance = loadings loadings^T + diag(noise)."""
    position = Field()
    """Estimate of a vector, (..., d); NaN for components that were never seen."""
    std = Field()
    """Standard deviation of every component of a vector, (..., d)."""
    position_covariance = Field()
    """Covariance of the error of a vector, (..., d, d)."""
    frame = Field()
    """Eigenframe of the covariance, columns by descending eigenvalue, det +1, (..., d, d)."""
    spectrum = Field()
    """Eigenvalues of the covariance, descending, (..., d)."""
    angle_std = Field()
    """Standard deviation of the angle in each plane (i, j), radians, (..., d, d)."""
    nis = Field()
    """Surprise of the observation: chi-squared with d(d-1)/2 degrees of freedom, (...).

    Of a single law the normalised innovation squared, summed over planes. Of the self-tuned tracker
    the chi-squared value that is as improbable as the observation under its Student-t forecast.
    """
    log_likelihood = Field()
    """One-step-ahead log-likelihood of the observation, nats, (...)."""
    p_value = Field()
    """Probability of an observation at least as far from its forecast, (...); NaN where nothing was
    seen or forecast.

    Of the self-tuned tracker the tail of its density (:func:`kgmrf.model.tail.tail_probability`);
    of a single law, a rotation or a vector that of `nis`, which is chi-squared.
    """
    scale = Field()
    """Scale matrix of the forecast's Student-t density, (..., d, d)."""
    mean = Field()
    """Mean that was forecast for the row, (..., d), with ``KGMRF(mean="linear")``; the covariance
    is that about it."""
    tails = Field()
    """Weight of each degree of freedom (3, 6, 12, 1e5) of that density, (..., 4)."""
    size_std = Field()
    """Standard deviation of the log size of that density, (...): 0 one step ahead, and the larger
    the longer nothing was seen. Each tail comes in three sizes; see
    `kgmrf.model.density.components`."""
    doubt = Field()
    """How little the forecast of a young track knows, (...): 1 after one sample, 0 after 5 (d + 2).
    The tails of the density become 1/(1/nu + doubt), its scale grows; see :mod:`kgmrf.youth`."""
    steps = Field()
    """How many observations are summed, of `forecast_total`, (...)."""
    dof = Field()
    """Degrees of freedom of the one Student-t with the same second moment, (...)."""
    weights = Field()
    """Weight of each member of a self-tuned tracker, (..., K)."""
    half_life = Field()
    """Time after which a self-tuned tracker has half forgotten an observation, (...)."""
    is_initial = Field()
    """Whether fewer than 2 d samples are behind the estimate, (...)."""

    time_scale = Field()
    """Rows ahead on which the covariance of a signal was judged, (...); 1: one row, as it is of
    observations that do not predict each other. See ``KGMRF(time_scale=)``."""
    effective_samples = Field()
    """How many independent samples that many rows are worth, (...); see `time_scale`."""

    channels: tuple[str, ...] | None = None
    index: Any = None
    integrated_time: float = np.nan
    """Of a result of raw rows: tau of the first 2,048 that were filtered, the number of rows after
    which a row is new (:func:`kgmrf.model.integrated_time.integrated_time`); NaN where it is
    unknown."""

    def __init__(self, values: Values) -> None:
        self._values = values

    def with_labels(self, channels: tuple[str, ...] | None, index: Any = None) -> Self:
        """The same with names for its channels, and for its rows."""
        self.channels, self.index = channels, index
        return self

    def _derived(self, name: str) -> Numbers:
        """A field that is not among the values."""
        if name in DENSE and "loadings" in self._values:
            heavy = heaviness(self.tails, self.size_std)
            return derived(name, self.loadings, self.noise, heavy)
        kinds = {"rotation": "rotation", "position": "vector"}
        kind = next((word for name, word in kinds.items() if name in self._values), "covariance")
        raise AttributeError(
            f"this tracker follows a {kind} and has no {name!r}; it has {', '.join(self._values)}"
        ) from None

    def __getstate__(self) -> dict[str, Any]:
        # What makes the fields may hold a whole sequence: what travels is the numbers.
        values = {name: np.array(value) for name, value in self.as_dict().items()}
        return {"_values": values, "channels": self.channels, "index": self.index}

    def as_dict(self) -> Values:
        """All fields by name."""
        return {name: getattr(self, name) for name in self.fields()}

    def fields(self) -> tuple[str, ...]:
        """The names of the fields that this tracker fills."""
        return tuple(self._values)

    @property
    def surprise(self) -> Numbers:
        """-log10 of `p_value`, (...): 3 is one in a thousand."""
        return surprise(self.p_value)

    @property
    def volatility(self) -> Numbers:
        """Standard deviation of every channel: sqrt(M_ii), (..., d)."""
        variances = np.diagonal(self.covariance, axis1=-2, axis2=-1)
        return np.sqrt(np.maximum(variances, 0.0))

    @property
    def correlation(self) -> Numbers:
        """M_ij / sqrt(M_ii M_jj), (..., d, d); 0 beside a channel without any variance."""
        size = self.volatility
        safe = np.where(size == 0, 1.0, size)
        shares = self.covariance / (safe[..., :, None] * safe[..., None, :])
        d = size.shape[-1]
        return np.where(np.eye(d, dtype=bool) & ~np.isnan(shares), 1.0, shares)

    def solve(self, x: Any) -> Numbers:
        """covariance^-1 x of vectors ``(..., d)``; of factors without a d x d array."""
        if "loadings" in self.fields():
            return solve(self.loadings, self.noise, x)
        vectors = np.asarray(x, dtype=float)
        return np.asarray(np.linalg.solve(self.covariance, vectors[..., None])[..., 0])

    @property
    def density(self) -> Density | FactorDensity:
        """The density that the estimate stands for: Student-t where there are tails, or Gaussian.

        Of ``forecast(h)`` it is the density of the next observation.
        """
        if "loadings" in self.fields():
            grow = heaviness(self.tails, self.size_std)[..., None]
            loadings = self.loadings / np.sqrt(grow[..., None])
            wide = widening(self.doubt, _seen(self.noise))
            parts = components(self.tails, self.size_std, 1.0, self.doubt, wide)
            return FactorDensity(loadings, self.noise / grow, *parts, channels=self.channels)
        if "tails" in self.fields():
            wide = widening(self.doubt, _seen(np.diagonal(self.scale, axis1=-2, axis2=-1)))
            steps = self._values.get("steps", 1.0)
            parts = components(self.tails, self.size_std, steps, self.doubt, wide)
            mean = self.mean if "mean" in self.fields() else 0.0
            return Density(self.scale, *parts, channels=self.channels, mean=mean)
        ones = np.ones((*self.covariance.shape[:-2], 1))
        return Density(self.covariance, ones, np.array([GAUSSIAN]), channels=self.channels)

    def log_density(self, x: Any) -> Numbers:
        """log p(x) of vectors ``(..., d)`` under `density`; NaN cells are integrated out."""
        return self.density.log_density(x)

    def channel_p_value(self, x: Any) -> Numbers:
        """Two-sided p-value of each channel of x given all others, ``(..., d)``, under `density`.

        Of ``forecast(1)`` and the next observation it tells which channel is not as expected.

        >>> from kgmrf import KGMRF
        >>> tracker = KGMRF()
        >>> x = np.random.default_rng(0).normal(size=(500, 2))
        >>> _ = tracker.filter(x @ [[1.0, 0.9], [0.0, 0.4]])
        >>> bool((tracker.forecast(1).channel_p_value([1.0, -1.0]) < 0.01).all())
        True
        """
        return self.density.channel_p_value(x)

    def contribution(self, x: Any) -> Numbers:
        """What each channel adds to ``mahalanobis(x)``, ``(..., d)``: they sum to it."""
        return self.density.contribution(x)

    def mahalanobis(self, x: Any) -> Numbers:
        """x^T scale^-1 x of vectors ``(..., d)``; compare with `region`."""
        return self.density.mahalanobis(x)

    def region(self, level: float) -> Numbers:
        """The squared distance within which an observation falls with this probability."""
        return self.density.region(level)


FIELDS = tuple(
    name
    for kind in (_Fields, RotationFields)
    for name, value in vars(kind).items()
    if isinstance(value, Field)
)
"""The names of all fields. A tracker fills those that it knows: see `Estimate.fields`."""


_Fields.starting = _deprecated.attribute("is_initial")  # type: ignore[attr-defined]


class Estimate(_Fields):
    """What a tracker knows at one time.

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


def _seen(variances: Numbers) -> Numbers:
    """How many channels have a variance, ``(...)``."""
    return (~np.isnan(variances)).sum(axis=-1)


def stacked(steps: Sequence[Values]) -> Values:
    """The fields of a sequence from those of its steps."""
    return {name: np.stack([one[name] for one in steps]) for name in steps[0]}


def stack(estimates: Sequence[Estimate]) -> Result:
    """A `Result` from the estimates of successive frames."""
    return Result(stacked([one.as_dict() for one in estimates])).with_labels(estimates[0].channels)


def join(results: list[Result]) -> Result:
    """One `Result` from those of successive pieces of a sequence."""
    if len(results) == 1:
        return results[0]
    every = [result.as_dict() for result in results]
    pieces = {name: np.concatenate([one[name] for one in every]) for name in every[0]}
    index = None
    if all(r.index is not None for r in results):
        index = np.concatenate([np.asarray(r.index) for r in results])
    return type(results[0])(pieces).with_labels(results[0].channels, index)
