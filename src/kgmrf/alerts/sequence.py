"""A recording that is watched: `watch`, and what it finds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kgmrf import _check
from kgmrf._check import ObservationError
from kgmrf._extras import optional
from kgmrf._types import Numbers
from kgmrf.alerts.alarm import Alarm, Event, events
from kgmrf.alerts.lines import ADAPT, Observed, take_watched
from kgmrf.bank import TrackerBank
from kgmrf.linear_mean import blank_rows, take_off
from kgmrf.model.centring import RunningMean, off_the_mean
from kgmrf.model.tail import surprise
from kgmrf.trackers import KGMRF

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure


class Alerts(NamedTuple):
    """What was found in a recording of T rows.

    Parameters
    ----------
    time : array
        ``(T,)``.
    p_value : array
        ``(T,)``, NaN where nothing was seen or forecast.
    status : array
        ``(T,)``: 0 quiet, 1 an alarm begins, 2 it lasts, 3 it ends.
    evidence : array
        ``(T,)``: 1 raises an alarm.
    contribution : array
        ``(T, d)``: of each channel to the squared distance, NaN outside alarms.
    events : list[Event]
        A list of `kgmrf.alerts.Event`.
    channels : tuple[str, ...]
        Names, or None.
    index
        Labels of the rows, or None.
    """

    time: Numbers
    p_value: Numbers
    status: Numbers
    evidence: Numbers
    contribution: Numbers
    events: list[Event]
    channels: tuple[str, ...] | None
    index: Any

    @property
    def surprise(self) -> Numbers:
        """-log10 p, ``(T,)``."""
        return surprise(self.p_value)

    def blame(self, event: Event) -> dict[str, float]:
        """The share of each channel in the squared distance over an event, the largest first."""
        stop = len(self.time) if event.end is None else event.end + 1
        rows = self.contribution[event.begin : max(stop, event.begin + 1)]
        known = np.where(np.isnan(rows), 0.0, rows).sum(axis=0)
        total = known.sum()
        names = self.channels or tuple(f"channel {k}" for k in range(rows.shape[-1]))
        share = known / total if total > 0.0 else known
        return {names[k]: float(share[k]) for k in np.argsort(-share, kind="stable")}

    def to_frame(self) -> pandas.DataFrame:
        """A pandas table with one row per event: onset, begin, end and peak as labels of the rows
        (times if there are none), surprise of the peak, and the channels to blame."""
        with optional():
            import pandas as pd

        def label(row: int | None) -> Any:
            if row is None:
                return None
            return self.time[row] if self.index is None else self.index[row]

        rows = [
            {
                **{name: label(getattr(event, name)) for name in ("onset", "begin", "end", "peak")},
                "surprise": event.surprise,
                "channels": ", ".join(list(self.blame(event))[:3]),
            }
            for event in self.events
        ]
        return pd.DataFrame(rows, columns=["onset", "begin", "end", "peak", "surprise", "channels"])

    def plot(self, signal: Any = None, path: str | Path | None = None) -> Figure:
        """The signal, the surprise and the alarms along time; with ``path`` also write it."""
        from kgmrf.plots import plot_alerts

        return plot_alerts(self, signal, path)


class _Single:
    """One track, as `kgmrf.alerts.lines.Home` wants it."""

    def __init__(self, tracker: KGMRF, d: int, alarm: Alarm) -> None:
        settings = {**tracker.settings(), "time_unit": 1.0}
        mean = settings.pop("mean")
        settings.pop("d", None)
        settings.pop("on_invalid", None)
        self.bank = TrackerBank(1, d, n_threads=1, **settings)
        self.columns = {"alarm": alarm.init(1)}
        self.lags = settings.pop("lags")
        self.mean = None if mean in ("zero", "linear") else RunningMean(mean)
        self.linear = mean == "linear"
        if self.linear:
            self.columns["sums"] = blank_rows(1, d, self.lags)
        elif self.mean is not None:
            self.columns["sums"] = np.zeros((1, 3, d))

    def centred(self, tracks: Numbers, values: Numbers) -> Numbers:
        if self.linear:
            return values - take_off(self.columns["sums"], tracks, values, self.lags)
        if self.mean is None:
            return values
        centred, sums = off_the_mean(values, self.columns["sums"][0], self.mean.keep)
        self.columns["sums"][0] = sums
        return centred


def watch(
    sequence: Any,
    alarm: Alarm | None = None,
    *,
    tracker: KGMRF | None = None,
    adapt: str = "yes",
    **given: Any,
) -> Alerts:
    """Alarms in a recording: samples ``(T, d)`` or covariances ``(T, d, d)``, in time order.

    Parameters
    ----------
    sequence
        Samples or covariances; NaN where there are none.
    alarm : Alarm, default None
        None: ``Alarm()``, at most one false alarm in 10,000 rows.
    tracker : KGMRF, default None
        None: ``KGMRF(mean="ewm")`` for samples; one that has seen nothing.
    adapt : str, default "yes"
        "yes" learns from all rows, so that an alarm ends when the new behaviour is known; "slow"
        from one row in ten while in an alarm; "no" from none: an alarm lasts until things are as
        before, for ever if they never are.
    **given
        times, mask, layout, n_samples and on_overlap as for :meth:`kgmrf.KGMRF.filter`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(2000, 3))
    >>> x[1500:1550, 1] *= 5.0
    >>> found = watch(x, Alarm(1e-4), adapt="no")
    >>> [(event.begin, event.end, list(found.blame(event))[0]) for event in found.events]
    [(1502, 1548, 'channel 1')]
    """
    alarm = Alarm() if alarm is None else alarm
    adapt = _check.choice(adapt, ADAPT, "adapt")
    if tracker is None:
        matrices = np.ndim(getattr(sequence, "values", sequence)) == 3
        tracker = KGMRF() if matrices else KGMRF(mean="ewm")
    if tracker.batch_shape is not None:
        raise ValueError("the tracker has seen something; give a new one")
    zero = tracker.with_settings(mean="zero")
    record = zero.prepare_sequence(sequence, **given)
    seen, shape = record.seen, record.observed.shape
    if len(shape) != 1 or (record.samples and seen.shape[1] != 1):
        raise ObservationError(
            f"watch takes one recording, samples (T, d) or covariances (T, d, d), got blocks of "
            f"shape {seen.shape}; watch several as a stream of keys, with kgmrf stream --alert"
        )
    values = seen[:, 0] if record.samples else seen
    values = np.where(record.observed.reshape(-1, *(1,) * (values.ndim - 1)), values, np.nan)
    home = _Single(tracker, values.shape[-1], alarm)
    lines = Observed(np.zeros(len(values), np.int64), values, record.dt, record.counts)
    fields, heard, share = take_watched(home, alarm, adapt, lines, ("p_value",))
    p, time = fields["p_value"], np.cumsum(record.dt) * zero.clock.unit
    found, channels = events(heard, p), record.channels
    return Alerts(time, p, heard.status, heard.evidence, share, found, channels, record.index)
