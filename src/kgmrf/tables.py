"""Tables and arrays with names in, the same kind out: pandas, polars, xarray."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kgmrf import _check
from kgmrf._align import OnOverlap, new_rows, places_of, taken
from kgmrf._extras import optional
from kgmrf._names import clocks_of, from_names
from kgmrf._time import stamps
from kgmrf._types import Numbers
from kgmrf.results import Result
from kgmrf.trackers import KGMRF
from kgmrf.trackers._samples import CovarianceTracker

if TYPE_CHECKING:
    import pandas
    import xarray

__all__ = ["as_blocks", "track_array", "track_table"]


def track_table(
    table: Any,
    tracker: Any = None,
    *,
    window: int = 1,
    times: Any = None,
    on_overlap: OnOverlap = "raise",
) -> Any:
    """S_t for a table whose columns are channels and whose rows are samples in time order.

    pandas gives what ``table.ewm(...).cov()`` gives: channels in rows and columns, one block per
    step under the index of its last row. Other kinds, which have no index, give the same rows
    with columns ``row`` (number of the last row of the step, or its time) and ``channel`` first.

    Parameters
    ----------
    table
        Pandas, polars, or another kind that narwhals knows; missing values are gaps. A column of
        dates, or one that is called time, date or the like, is not followed: it names the rows.
    tracker : default None
        None: ``KGMRF()``.
    window : int, default 1
        Rows per step, the last may be shorter.
    times : default None
        Stamps of the rows, numbers or dates, or True for the column that names them; None counts
        steps.
    on_overlap : OnOverlap, default "raise"
        Of dates that are not later than those before, as for `KGMRF.filter`. A tracker that knows
        its channels has the columns put in their order, and so has the result.

    Examples
    --------
    >>> import pandas as pd
    >>> returns = pd.DataFrame({"a": [1.0, -2.0, 1.5], "b": [0.5, -1.0, 0.25]})
    >>> track_table(returns).loc[2].round(2)
          a     b
    a  4.38  1.50
    b  1.50  0.82
    """
    _check.whole(window, "window")
    tracker = KGMRF() if tracker is None else tracker
    if hasattr(table, "iloc"):
        if table.ndim == 1:
            table = table.to_frame()  # one channel
        table, times, places = _continued(table, tracker, times, on_overlap)
        clocks = clocks_of(table)
        if clocks:
            table = table.set_index(clocks[0]).drop(columns=clocks[1:])
        rows = taken(table.to_numpy(dtype=float, na_value=np.nan), places)
        times = table.index if times is True else times
        if -1 in places or places != sorted(places):
            table = table.reindex(columns=list(tracker.channels))
        return as_blocks(_covariances(rows, tracker, window, times), table, window)
    with optional():
        import narwhals as nw

    try:
        frame = nw.from_native(table, eager_only=True)
    except TypeError:
        raise TypeError(
            f"track_table takes a table of pandas, polars or the like, got {_kind(table)}; for "
            "arrays use KGMRF().filter(samples)"
        ) from None
    frame, times, places = _continued(frame, tracker, times, on_overlap)
    clocks = clocks_of(frame)
    names = [name for name in frame.columns if name not in clocks]
    rows = taken(frame.select(nw.col(names).cast(nw.Float64)).to_numpy(), places)
    names = list(tracker.channels or names)
    if times is True:
        if not clocks:
            raise ValueError("times=True needs a column of times or dates; this table has none")
        times = frame[clocks[0]].to_numpy()
    covariances = _covariances(rows, tracker, window, times)
    last = _last_rows(len(rows), window)
    labels = frame[clocks[0]].to_numpy()[last] if clocks else last
    columns: dict[str, Any] = {clocks[0] if clocks else "row": np.repeat(labels, len(names))}
    columns["channel"] = names * len(covariances)
    columns |= {name: covariances[:, :, j].reshape(-1) for j, name in enumerate(names)}
    return nw.from_dict(columns, backend=frame.implementation).to_native()


def _continued(table: Any, tracker: Any, times: Any, on_overlap: str) -> tuple[Any, Any, list[int]]:
    """The rows of a table that are new to a tracker, their times, and the place of each channel;
    the tracker learns names and dates."""
    found = from_names(table)
    names = found.channels or ()
    places = places_of(names, tracker.channels, tracker._missing)
    kept = new_rows(found.stamps, tracker.until, on_overlap)
    if kept is not None:
        table = table.loc[kept] if hasattr(table, "iloc") else table.filter(kept.tolist())
        times = times if times is None or times is True else np.asarray(times)[kept]
    # Names that are no words stay with the table: a tracker's are words.
    tracker.channels = tracker.channels or names
    if found.stamps is not None:
        tracker.until = found.stamps.max().item()
    return table, times, places


def as_blocks(covariances: Numbers, table: pandas.DataFrame, window: int) -> pandas.DataFrame:
    """Covariances ``(n_frames, d, d)`` under the index and column names of the samples' table.

    Parameters
    ----------
    covariances : array
        ``(n_frames, d, d)``.
    table : pandas.DataFrame
        The samples, a DataFrame.
    window : int
        Samples per frame.
    """
    with optional():
        import pandas as pd

    d, last = len(table.columns), table.index.take(_last_rows(len(table), window))
    rows = [last.repeat(d), table.columns.take(np.tile(np.arange(d), len(last)))]
    index = pd.MultiIndex.from_arrays(rows, names=[table.index.name, table.columns.name])
    return pd.DataFrame(covariances.reshape(-1, d), index=index, columns=table.columns)


def track_array(
    array: xarray.DataArray,
    tracker: Any = None,
    *,
    time: str = "time",
    channel: str = "channel",
    window: int = 1,
    unit: Any = None,
) -> xarray.Dataset:
    """S_t along the dimension ``time`` of an xarray, for every item of its other dimensions.

    Returns a Dataset: ``covariance`` with dimensions (time, ..., channel, channel_2), eigenvalues
    and velocity by their rank, likelihood, age; time stamps are those of the last samples.

    Parameters
    ----------
    array : xarray.DataArray
        Samples with the dimensions ``time``, ``channel`` and any others, in any order. If it is in
        dask chunks (over time, the others, or both), so is the result, and nothing is computed yet.
    tracker : default None
        None: ``KGMRF()``; for dask chunks also a bank without tracks, see `kgmrf.dask`.
    time : str, default "time"
        Name of the dimension of time.
    channel : str, default "channel"
        Name of the dimension of channels.
    window : int, default 1
        Samples per frame (left over ones are not used).
    unit : default None
        What one unit of the tracker's time is on the time coordinate, a number or a timedelta; None
        counts one unit per frame.

    Examples
    --------
    >>> import xarray as xr
    >>> data = xr.DataArray(np.random.default_rng(0).normal(size=(3, 50)), dims=("channel", "time"))
    >>> track_array(data).covariance.dims
    ('time', 'channel', 'channel_2')
    """
    with optional():
        import xarray as xr

    if not hasattr(array, "dims"):
        raise TypeError(
            f"track_array takes an xarray.DataArray with named dimensions, got {_kind(array)}; "
            "use KGMRF().filter(samples), or name the dimensions: "
            f"xarray.DataArray(samples, dims=({time!r}, {channel!r}))"
        )
    _check.whole(window, "window")
    for name in (time, channel):
        if name not in array.dims:
            raise ValueError(f"the array has the dimensions {array.dims}, none named {name!r}")
    others = [str(name) for name in array.dims if name not in (time, channel)]
    ordered = array.transpose(time, *others, channel)
    n_frames = len(ordered) // window
    if n_frames == 0:
        raise ValueError(f"{len(ordered)} samples do not fill one window of {window}")
    ends = ordered[time][window - 1 : n_frames * window : window]
    times = None if unit is None else np.asarray((ends.values - ends.values[0]) / unit)
    kept = [name for name in (*others, channel) if name in ordered.coords]
    coordinates = {name: (ordered[name].dims, ordered[name].values) for name in kept}
    if time in array.coords:
        coordinates[time] = ((time,), ends.values)
    pair, first = f"{channel}_2", (time, *others)
    if channel in coordinates:
        coordinates[pair] = ((pair,), coordinates[channel][1])
    fields = {"covariance": (*first, channel, pair), "spectrum": (*first, "rank")}
    fields |= dict.fromkeys(("velocity", "angle_std"), (*first, "rank", "rank_2"))
    fields |= dict.fromkeys(("age", "nis", "p_value", "log_likelihood"), first)
    used = ordered[: n_frames * window]
    if used.chunks is None:
        frames = _frames(np.asarray(used.values, dtype=float), window)
        result = _followed(tracker, frames, times=times)
        variables = {name: (dims, getattr(result, name)) for name, dims in fields.items()}
    else:
        tracker = KGMRF() if tracker is None else tracker
        variables = _lazily(used.data, tracker, window, times, fields)
    return xr.Dataset(variables, coords=coordinates)


def _kind(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return type(value).__name__ + ("" if shape is None else f" of shape {tuple(shape)}")


def _frames(values: Any, window: int) -> Any:
    """Samples ``(time, ..., d)`` as frames ``(time, ..., window, d)``."""
    blocks = values.reshape(-1, window, *values.shape[1:])
    return blocks.transpose(0, *range(2, blocks.ndim - 1), 1, blocks.ndim - 1)


def _lazily(
    values: Any, tracker: Any, window: int, times: Any, fields: dict[str, tuple[str, ...]]
) -> dict[str, Any]:
    """The variables of a dask array of samples ``(time, ..., d)``, not yet computed."""
    from kgmrf.dask import filter_array

    whole = max(window, values.chunksize[0] // window * window)  # a frame is in one chunk
    frames = _frames(values.astype(float).rechunk({0: whole, values.ndim - 1: -1}), window)
    alone = frames.ndim == 3  # no other dimension: a single track
    if alone:
        frames = frames[:, None]
    found = filter_array(tracker, frames, fields=list(fields), samples=True, times=times)
    return {
        name: (dims, found[name][:, 0] if alone else found[name]) for name, dims in fields.items()
    }


def windows(rows: Numbers, window: int, times: Any) -> tuple[Numbers, Any]:
    """Rows ``(n, d)`` in windows ``(n_frames, window, d)``, the last filled with NaN; and the time
    of the last row of each, from those of all rows, or None."""
    n = len(rows)
    padded = np.pad(rows, ((0, -n % window), (0, 0)), constant_values=np.nan)
    if times is not None:
        if len(times) != n:
            raise ValueError(f"times has {len(times)} stamps for {n} rows; give one for each row")
        times = np.asarray(stamps(times))[_last_rows(n, window)]
    return _frames(padded, window), times


def _covariances(rows: Numbers, tracker: Any, window: int, times: Any) -> Numbers:
    frames, times = windows(rows, window, times)
    return np.asarray(_followed(tracker, frames, times=times).covariance)


def _followed(tracker: Any, blocks: Numbers, **words: Any) -> Result:
    tracker = KGMRF() if tracker is None else tracker
    if isinstance(tracker, CovarianceTracker):
        words["layout"] = "channels_last"  # names say which axis has the channels, however few rows
    return tracker.filter(blocks, samples=True, **words)


def _last_rows(n_rows: int, window: int) -> Numbers:
    return np.minimum(np.arange(window, n_rows + window, window), n_rows) - 1
