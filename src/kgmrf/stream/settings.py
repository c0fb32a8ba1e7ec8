"""The settings of a stream, what it counts, and how it says that a line cannot be used."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from kgmrf import _deprecated

LONGEST_GAP = 1e6
"""Units of time that a track may jump ahead, if nothing else is said."""


@dataclass(frozen=True)
class Settings:
    """The settings of a stream.

    Parameters
    ----------
    format : {"json", "csv", "arrow", "parquet"}, default "json"
        Lines of "json" or "csv", or tables: "arrow" (streams and files) and "parquet".
    fields : tuple[str, ...], default None
        What to write beside key and time; None: the matrix and its log-likelihood.
    digits : int, default 9
        Significant digits of the output.
    time_unit : float, default None
        The usual interval of a track, on the lines' clock; None: the median of the first eight of
        all tracks.
    same_time : {"drop", "use"}, default "drop"
        "drop" a second line of a track with the same time, or "use" it as another observation of
        that moment.
    on_error : {"stop", "skip"}, default "stop"
        "stop" at a line that cannot be used, or "skip" it.
    tracker : dict[str, Any]
        Settings of `kgmrf.KGMRF` or `kgmrf.RotationTracker`.
    mean : {"zero", "expanding", "ewm", "linear"}, default "zero"
        Of the samples of every track, as in `kgmrf.KGMRF`.
    key, time : str, default None
        Names of the fields or columns that hold them; None: ``key`` and ``time``, or a usual name
        such as ``sensor`` and ``ts``.
    columns : tuple[str, ...], default None
        Names of the channels; None: those of the first line.
    max_gap : float, default None
        A line that jumps further ahead, on the lines' clock, is refused until the next line of its
        track agrees; None: `LONGEST_GAP` units of time.
    forget_after : float, default None
        Tracks that are this far behind the newest line of the stream are forgotten; None: never.
    reorder : float, default None
        Hold lines until the newest time of the stream is this far ahead of them, on the lines'
        clock, and use them in order of time; None: as they come.
    alert : str, default None
        Watch every track with a `kgmrf.alerts.Alarm` of this rate of false alarms per line; or in
        words, "1/day", where time_unit is in seconds.
    memory, warm_up, adapt : default 100.0, 100.0 and "yes"
        As for `kgmrf.alerts.Alarm` and `watch`.
    alerts_only : bool, default False
        Write only the lines at which an alarm begins or ends.
    """

    format: Literal["json", "csv", "arrow", "parquet"] = "json"
    fields: tuple[str, ...] | None = None
    digits: int = 9
    time_unit: float | None = None
    same_time: Literal["drop", "use"] = "drop"
    on_error: Literal["stop", "skip"] = "stop"
    tracker: dict[str, Any] = field(default_factory=dict)
    mean: Literal["zero", "expanding", "ewm", "linear"] = "zero"
    key: str | None = None
    time: str | None = None
    columns: tuple[str, ...] | None = None
    max_gap: float | None = None
    forget_after: float | None = None
    reorder: float | None = None
    alert: str | None = None
    memory: float = 100.0
    warm_up: float = 100.0
    adapt: Literal["yes", "slow", "no"] = "yes"
    alerts_only: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean", _deprecated.word(self.mean, _deprecated.MEANS, "mean"))

    def lasting(self) -> dict[str, Any]:
        """The settings that a state depends on, as JSON gives them back; others may change."""
        names = ("format", "time_unit", "mean", "key", "time", "columns")
        tracker = {"gains": "auto", **self.tracker}  # the default, said or not
        lasting = {"tracker": tracker, **{name: getattr(self, name) for name in names}}
        if self.format == "parquet":  # the same tables
            lasting["format"] = "arrow"
        return dict(json.loads(json.dumps(lasting)))


@dataclass
class Counts:
    """Lines read (also over restarts), taken in, and dropped, and why; tracks forgotten; alarms.

    Parameters
    ----------
    lines : int, default 0
        Lines read, also over restarts.
    used : int, default 0
        Lines taken in.
    late : int, default 0
        Lines dropped: earlier than the newest of their track.
    duplicate : int, default 0
        Lines dropped: of a time that is taken.
    bad : int, default 0
        Lines that could not be used.
    forgotten : int, default 0
        Tracks forgotten.
    alarms : int, default 0
        Alarms raised.
    """

    lines: int = 0
    used: int = 0
    late: int = 0
    duplicate: int = 0
    bad: int = 0
    forgotten: int = 0
    alarms: int = 0


class Fault(NamedTuple):
    """A line that was not used: its number, counted from 1, what is wrong, and its text.

    Parameters
    ----------
    line : int
        Its number, counted from 1.
    reason : str
        What is wrong.
    text : bytes
        The line.
    """

    line: int
    reason: str
    text: bytes


class LineError(ValueError):
    """A line that no stream can begin with: ``row`` of the block, counted from 0, and why."""

    def __init__(self, row: int, fault: str) -> None:
        super().__init__(fault)
        self.row = row


class StreamError(ValueError):
    """A line that ended the stream; ``before`` is the output of the lines before it.

    Parameters
    ----------
    message : str
        What is wrong.
    before : bytes
        Output of the lines before it.
    fault : Fault, default None
        The line, if it is known.
    """

    def __init__(self, message: str, before: bytes, fault: Fault | None = None) -> None:
        super().__init__(message)
        self.before = before
        self.fault = fault
