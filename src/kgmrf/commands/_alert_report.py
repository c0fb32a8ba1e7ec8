"""The report of ``kgmrf alerts --report``: one page that needs no other file."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from kgmrf._types import Numbers
from kgmrf.alerts import Alarm, Alerts, Event
from kgmrf.commands._page import facts, picture, table, whole_page
from kgmrf.io import Source, dates
from kgmrf.plots import plot_alerts

MOST_EVENTS = 12
"""Alarms that get a picture of their own."""

MOST_LISTED = 200
"""Alarms in the table."""

LEVELS = (0.1, 0.01, 0.001)
"""p-values whose share is compared with what it should be."""


def stamp(found: Alerts, row: int, dated: str = "s") -> Any:
    """The time of a row as the file has it: a date as words, or a number."""
    if found.index is None:
        return float(f"{found.time[row]:.9g}")
    return dates.words(np.array([found.time[row]]), dated or "s")[0]


def shares_of(found: Alerts, event: Event) -> str:
    """The channels of an alarm with their shares, the largest first."""
    some = [(name, share) for name, share in found.blame(event).items() if share >= 0.05][:3]
    return ", ".join(f"{name} {100.0 * share:.0f} %" for name, share in some)


class AlertReport:
    """What was found in a recording, as a page."""

    def __init__(
        self, source: Source, found: Alerts, signal: Numbers, alarm: Alarm, adapt: str
    ) -> None:
        self.source, self.found, self.signal = source, found, signal
        self.alarm, self.adapt = alarm, adapt

    def write(self, path: Path) -> None:
        """All of it, as one page."""
        title = f"Alerts: {self.source.path.name}"
        parts = [self._head(title), self._alarms(), self._whole(), self._close(), self._trust()]
        path.write_text(whole_page(title, [*parts, NOTES]), encoding="utf-8")

    def _stamp(self, row: int | None) -> str:
        if row is None:
            return "lasts"
        return str(stamp(self.found, row, self.source.dates)).replace("T", " ")

    def _head(self, title: str) -> str:
        n, rate = len(self.found.time), self.alarm.rate
        inside = self.found.status > 0
        about = [
            ("alarms", f"{len(self.found.events)}"),
            ("false ones to be expected", f"at most {n * rate:.2g}"),
            ("rows", f"{n:,}"),
            ("rows in an alarm", f"{100.0 * inside.mean():.2g} %"),
            ("from", self._stamp(0)),
            ("to", self._stamp(n - 1)),
            ("channels", f"{self.source.d}"),
            ("learns in an alarm", self.adapt),
        ]
        return facts(title, about)

    def _alarms(self) -> str:
        events = self.found.events[:MOST_LISTED]
        if not events:
            return "<section><h2>Alarms</h2><p>None.</p></section>"
        rows = []
        for event in events:
            last = len(self.found.time) - 1 if event.end is None else event.end
            times = [self._stamp(row) for row in (event.onset, event.begin, event.peak, event.end)]
            size = [f"{event.surprise:.1f}", f"{last - event.onset + 1:,}"]
            rows.append([times[0], shares_of(self.found, event), *size, *times[1:]])
        heads = ["onset", "channels", "surprise", "rows", "alarm", "peak", "end"]
        more = len(self.found.events) - len(events)
        note = f"<p>The first {len(events)} of {len(self.found.events)}.</p>" if more else ""
        return (
            "<section><h2>Alarms</h2><p>Onset: where the evidence began to grow. Alarm: where "
            "there was enough of it. Surprise: -log10 of the smallest p-value. Channels: "
            "their share in the squared distance.</p>"
            f"{note}{table(heads, rows, 'stamps')}</section>"
        )

    def _whole(self) -> str:
        drawn = picture(
            "the recording, its surprise and the alarms",
            lambda width: plot_alerts(self.found, self.signal, width=width),
        )
        return f"<section><h2>The recording</h2><p>Shaded: alarms.</p>{drawn}</section>"

    def _close(self) -> str:
        parts, n = [], len(self.found.time)
        for event in sorted(self.found.events, key=lambda e: -e.surprise)[:MOST_EVENTS]:
            last = n - 1 if event.end is None else event.end
            margin = max(30, min(300, last - event.onset))
            rows = slice(max(0, event.onset - margin), min(n, last + margin + 1))
            words = f"{self._stamp(event.onset)}: {shares_of(self.found, event)}"
            parts.append(f"<h3>{escape(words)}</h3>{picture(words, self._drawer(rows))}")
        if not parts:
            return ""
        note = "<p>The most surprising first.</p>" if len(parts) > 1 else ""
        return f"<section><h2>Each alarm from nearby</h2>{note}{''.join(parts)}</section>"

    def _drawer(self, rows: slice) -> Any:
        return lambda width: plot_alerts(self.found, self.signal, rows=rows, width=width)

    def _trust(self) -> str:
        """Whether the p-values outside alarms are as rare as they say."""
        p = self.found.p_value[(self.found.status == 0) & ~np.isnan(self.found.p_value)]
        if not len(p):
            return ""
        rows = [
            [f"{level:g}", f"{(p <= level).mean():.3g}", f"{(p <= level).mean() / level:.2f}"]
            for level in LEVELS
        ]
        heads = ["p-value at most", "share of the rows", "share over nominal"]
        return (
            "<section><h2>Can the p-values be trusted?</h2><p>Rows outside alarms. A ratio far "
            "above 1 says that the forecast is too narrow for this recording and that false "
            f"alarms will come more often than asked for.</p>{table(heads, rows)}</section>"
        )


NOTES = (
    "<footer><p>Made by kgmrf. Every row is compared with its forecast from the rows before it. "
    "What changes more slowly than the tracker learns raises no alarm.</p></footer>"
)
