"""Names of channels and rows: read from what the user gave, put on what comes out.

A leaf module. Tables (pandas, polars) and recordings of MNE are known by what they can do, so that
none of these packages is imported here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from kgmrf._types import Numbers

TIME_NAMES = (
    *("time", "times", "timestamp", "timestamps", "t", "date", "dates", "datetime", "stamp"),
    *("ts", "epoch", "event_time", "unixtime", "created_at", "recorded_at"),
)
"""What a column of times is called, in tables, files, arrays and streams alike."""
_SECOND_CHOICE = frozenset(TIME_NAMES[9:])
"""Names of times that give way to any of the others beside them."""
_SECONDS = re.compile(r"(?:.*[._])?stamp[._](?:secs?|seconds)")
_NANOSECONDS = re.compile(r"(?:.*[._])?stamp[._](?:nsecs?|nanosecs?|nanoseconds)")
"""A time in two columns, as ROS writes it; in one it is called header.stamp."""

_ISO_DAY = re.compile(r"\d{4}-\d\d-\d\d")


class Named(NamedTuple):
    """Samples with the names that came with them.

    values: what is to be followed. channels: names, or None. index: labels of the rows, or None.
    blocks: whether each row is a block of samples (epochs). seconds: times of the rows of a
    recording, or None. stamps: dates of the rows in whole nanoseconds, or seconds of a recording,
    by which rows that come a second time are known; or None.
    """

    values: Any
    channels: tuple[str, ...] | None = None
    index: Any = None
    blocks: bool | None = None
    seconds: Numbers | None = None
    stamps: Numbers | None = None


def is_clock(name: str) -> bool:
    """Whether a column of this name is the time.

    >>> is_clock("Timestamp"), is_clock("Time (s)"), is_clock("a")
    (True, True, False)
    >>> is_clock("header.stamp.secs")
    True
    """
    word = _word(name)
    return word in TIME_NAMES or word.endswith(("_stamp", ".stamp")) or _is_seconds(word)


def gives_way(name: str) -> bool:
    """Whether a time of this name gives way to a more usual one beside it."""
    return _word(name) in _SECOND_CHOICE


def _word(name: str) -> str:
    return re.sub(r"\s*(\([^)]*\)|\[[^\]]*\])$", "", name.strip().lstrip("#% ")).lower()


def clocks_among(names: Sequence[str]) -> list[int]:
    """The places of the columns that hold times, the most usual name first.

    >>> clocks_among(["created_at", "x", "time"])
    [2, 0]
    """
    found = [k for k, name in enumerate(names) if is_clock(name)]
    return sorted(found, key=lambda k: gives_way(names[k]))


def _is_seconds(word: str) -> bool:
    return _SECONDS.fullmatch(word) is not None


def is_stamp(name: str) -> bool:
    """Whether a column is a stamp of ROS, or a part of one: a clock where there is no other."""
    word = name.lower()
    return "stamp" in word and (
        word.startswith("header.stamp") or _is_seconds(word) or is_nanoseconds(word)
    )


def is_nanoseconds(name: str) -> bool:
    """Whether a column is the nanoseconds of a stamp of ROS."""
    return _NANOSECONDS.fullmatch(name.lower()) is not None


def nanoseconds_of(names: Sequence[str], clock: str) -> int | None:
    """The column of the nanoseconds beside the seconds of a stamp of ROS, if ``clock`` is such."""
    if not _is_seconds(clock.lower()):
        return None
    return next((k for k, name in enumerate(names) if is_nanoseconds(name)), None)


def from_names(value: Any) -> Named:
    """The samples of a table or a recording, and their names; anything else as it is."""
    if hasattr(value, "ch_names") and hasattr(value, "get_channel_types"):
        return _recording(value)
    columns = getattr(value, "columns", None)
    if columns is None or not hasattr(value, "to_numpy") or getattr(value, "ndim", 2) != 2:
        return Named(value)
    clocks = clocks_of(value)
    kept = [name for name in columns if name not in clocks]
    index = getattr(value, "index", None)  # pandas has one
    stamps = None if index is None else _stamps(index)
    if clocks and (index is None or str(getattr(index, "dtype", "")) == "int64"):
        index = value[clocks[0]].to_numpy()
        stamps = _stamps(value[clocks[0]])
    table = value[kept]
    how = {"dtype": float, "na_value": np.nan} if hasattr(value, "iloc") else {}
    names = tuple(str(name) for name in kept)
    return Named(table.to_numpy(**how), names, index, stamps=stamps)


def from_labels(value: Any) -> Named:
    """One sample with a label for each channel (a pandas Series); anything else as it is."""
    labels = getattr(value, "index", None)
    if labels is None or callable(labels) or getattr(value, "ndim", 0) != 1:
        return Named(value)
    words = list(labels)
    if not all(isinstance(word, str) for word in words):
        return Named(value)
    stamp = getattr(value, "name", None)  # of a row of a table: its date
    stamps = None if not hasattr(stamp, "isoformat") else np.array([stamp], "datetime64[ns]")
    numbers = value.to_numpy(dtype=float, na_value=np.nan)
    return Named(numbers, tuple(words), stamps=None if stamps is None else stamps.astype(np.int64))


def _stamps(labels: Any) -> Numbers | None:
    """Dates as whole nanoseconds; None for all else, such as numbers, which may start again."""
    if hasattr(labels, "to_timestamp") and str(labels.dtype).startswith("period"):
        labels = labels.to_timestamp()
    word = str(getattr(labels, "dtype", ""))
    try:
        if _dated(word):
            kind = "timedelta64[ns]" if word.startswith(("timedelta", "Duration")) else None
            plain = labels.to_numpy() if hasattr(labels, "to_physical") else labels
            return np.asarray(plain, dtype=kind or "datetime64[ns]").astype(np.int64)
        values = labels.to_numpy()
        if values.dtype.kind in "OUT" and values.size and _ISO_DAY.match(str(values.flat[0])):
            return values.astype("U").astype("datetime64[ns]").astype(np.int64)
    except (TypeError, ValueError):
        return None
    return None


def clocks_of(table: Any) -> list[Any]:
    """The columns of a table that hold times: by their names, or because they hold dates."""
    names = list(table.columns)
    clocks = [name for name in names if is_clock(str(name)) or _dated(table[name].dtype)]
    clocks.sort(key=lambda name: gives_way(str(name)))
    if len(clocks) == len(names):
        raise ValueError(
            f"the table has no column of values beside the time ({', '.join(map(str, names))})"
        )
    for name in (name for name in names if name not in clocks):
        _no_text(name, table[name])
    rest = nanoseconds_of([str(name) for name in names], str(clocks[0])) if clocks else None
    if rest is not None:
        raise ValueError(
            f"the time is in two columns, {clocks[0]} and {names[rest]}: make one of them, in "
            "seconds (whole + 1e-9 * nanoseconds)"
        )
    index = getattr(table, "index", None)
    for stamps in ([] if index is None else [index]) + [table[name] for name in clocks]:
        _oldest_first(stamps)
    return clocks


def _no_text(name: Any, column: Any) -> None:
    if not str(column.dtype).lower().startswith(("str", "object", "categor", "enum")):
        return
    for cell in column:
        if isinstance(cell, str):
            try:
                float(cell)
            except ValueError:
                raise ValueError(
                    f"column {name!r} holds text, such as {cell!r}; drop it, or make it the index"
                ) from None


def _oldest_first(stamps: Any) -> None:
    """Dates, also as text, from a table with the newest row first."""
    values = stamps.to_numpy()
    if values.dtype.kind not in "MOUT" or len(values) < 2:
        return
    first, last = values[0], values[-1]
    text = isinstance(first, str) and isinstance(last, str)
    if text and not (_ISO_DAY.match(first) and _ISO_DAY.match(last)):
        return
    if (text or _dated(stamps.dtype)) and last < first:
        raise ValueError(
            f"the dates run backwards, from {first} to {last}; sort the table by time first"
        )


def _dated(dtype: Any) -> bool:
    return str(dtype).lower().startswith(("date", "period", "timedelta", "duration"))


_UNITS = {
    **dict.fromkeys(("eeg", "seeg", "ecog", "dbs"), "V"),
    "mag": "T",
    "grad": "T/m",
    "csd": "V/m^2",
    "hbo": "M",
    "hbr": "M",
}
"""Units of MNE's channels of the brain."""


def _recording(recording: Any) -> Named:
    """Raw ``(d, T)`` or Epochs ``(n, d, T)`` of MNE: the good channels of the brain, or all.

    Samples under an annotation that begins with BAD are gaps.
    """
    types, names = recording.get_channel_types(), recording.ch_names
    bad = set(recording.info["bads"])
    used = [k for k, kind in enumerate(types) if kind in _UNITS and names[k] not in bad]
    kinds = list(dict.fromkeys(types[k] for k in used))
    if len({_UNITS[kind] for kind in kinds}) > 1:
        given = ", ".join(f"{kind} ({_UNITS[kind]}, {types.count(kind)})" for kind in kinds)
        raise ValueError(
            f"the recording has channels of several units: {given}; one covariance of them depends "
            f"on the units. Follow each type with a tracker of its own: "
            f"recording.copy().pick({kinds[0]!r})"
        )
    used = used or list(range(len(names)))
    epochs, rate = hasattr(recording, "events"), recording.info["sfreq"]
    how = {} if epochs else {"reject_by_annotation": "NaN", "verbose": False}
    values = np.swapaxes(recording.get_data(picks=used, **how), -1, -2)
    channels = tuple(names[k] for k in used)
    first = np.asarray(recording.events)[:, 0] if epochs else recording.first_samp
    seconds = (first if epochs else first + np.arange(len(values))) / rate
    return Named(values, channels, seconds, epochs or None, seconds, seconds)


def as_columns(
    arrays: dict[str, Numbers], lead: int, channels: Sequence[str] | None = None
) -> dict[str, Numbers]:
    """Fields as columns of numbers, one row per item of their first ``lead`` axes.

    Matrices of channels are named by them, ``covariance_Oz_O1``; those of axes by their rank.

    >>> list(as_columns({"age": np.zeros(3), "covariance": np.zeros((3, 2, 2))}, 1, ["x", "y"]))
    ['age', 'covariance_x_x', 'covariance_x_y', 'covariance_y_y']
    """
    columns: dict[str, Numbers] = {}
    for name, array in arrays.items():
        inner = array.shape[lead:]
        flat = array.reshape(-1, *inner)
        if not inner:
            columns[name] = flat
            continue
        d = inner[-1]
        ours = channels is not None and len(channels) == d and name in BY_CHANNEL
        words = list(channels or ()) if ours else [str(i) for i in range(d)]
        if len(inner) == 1:
            columns |= {f"{name}_{word}": flat[:, i] for i, word in enumerate(words)}
            continue
        # Of symmetric and skew matrices a triangle says it all.
        first = 0 if name in ("covariance", "error_covariance", "scale") else 1
        for i in range(d):
            for j in range(0 if name == "rotation" else i + first, d):
                columns[f"{name}_{words[i]}_{words[j]}"] = flat[:, i, j]
    return columns


BY_CHANNEL = ("covariance", "correlation", "volatility", "scale", "mean")
"""Fields whose axes are channels; those of the others are the axes of the eigenframe."""
