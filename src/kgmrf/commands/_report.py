"""The risk report of ``kgmrf track --report``: one page that needs no other file."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kgmrf._types import Numbers
from kgmrf.commands._page import facts, picture, table, whole_page
from kgmrf.commands._portfolios import LEVELS, Portfolios, Track
from kgmrf.commands._run import Run
from kgmrf.io import Chunk, DataError
from kgmrf.plots import COLOURS, label_lines, new_figure, plot_risk, style
from kgmrf.plots._style import clock, time_axis
from kgmrf.plots.risk import KINDS
from kgmrf.results import Result, join

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SMALL = ("age", "nis", "log_likelihood", "weights", "half_life", "is_initial")
LARGE = ("age", "covariance", "is_initial")
MOST_CHANNELS = 40
"""Rows of the table of channels."""

MOST_DRAWN = 1500
"""Matrices that are kept for the pictures."""


class Report:
    """Keeps what a report needs of a file, chunk by chunk, and writes it."""

    def __init__(self, run: Run) -> None:
        if run.source.kind != "samples" or run.given.window != 1 or run.given.gains != "auto":
            raise DataError(
                f"{run.source.path}: --report is for samples, one row per step, and the self-tuned "
                "tracker; leave out --window and --gains"
            )
        self.run = run
        self.portfolios = Portfolios(run)
        self.small: list[Result] = []
        self.large: list[Result] = []
        self.every = 0
        self.missing = 0
        self.last: Result | None = None

    def take(self, chunk: Chunk, result: Result) -> None:
        """The next rows, and what the tracker said of them."""
        self.portfolios.take(chunk)
        self.missing += int(np.isnan(chunk.values).sum())
        self.every = self.every or max(1, int(np.ceil(len(result) / chunk.done / MOST_DRAWN)))
        first = (len(result) - self.run.n_frames) % self.every
        picked: Any = result[first :: self.every]
        self.large.append(picked.select(LARGE))
        self.small.append(result.select(SMALL))
        end: Any = result[-1:]
        self.last = end.select(LARGE)

    def write(self, path: Path) -> None:
        """All of it, as one page."""
        assert self.last is not None
        large, small = join([*self.large, self.last]), join(self.small)
        d, n = self.run.source.d, len(small)
        first = min(max(200, 5 * d), n // 2)
        steps, tracks = self.portfolios.tracks(first)
        parts = [self._head(small), self._channels()]
        for kind in KINDS:
            if d == 1 and kind in ("correlation", "surprise"):
                continue
            whole = large if kind in ("volatility", "correlation") else small
            parts.append(f"<section><h2>{HEADINGS[kind]}</h2>{TEXTS[kind]}")
            parts.append(_picture(f"{kind} along time", whole, kind) + "</section>")
        if len(steps):
            parts.append(self._portfolios(small, steps, tracks))
        parts.append(NOTES)
        title = f"Risk report: {self.run.source.path.name}"
        path.write_text(whole_page(title, parts), encoding="utf-8")

    def _head(self, small: Result) -> str:
        source, n = self.run.source, len(small)
        first, last = (_stamp(small, k) for k in (0, n - 1))
        cells = n * source.d
        about = [
            ("rows", f"{n:,}"),
            ("from", first),
            ("to", last),
            ("channels", f"{source.d}"),
            ("missing cells", f"{100.0 * self.missing / cells:.2g} %"),
        ]
        if self.run.n_scored:
            score = self.run.total_score / self.run.n_scored
            about.append(("log-likelihood per row", f"{score:.3f}"))
        return facts(f"Risk report: {source.path.name}", about)

    def _channels(self) -> str:
        """The next step: volatility, value at risk and expected shortfall of every channel."""
        ahead, names = self.run.tracker.forecast(self.run.unit), self.run.source.names
        one = ahead.density.project(np.eye(len(names)))
        columns = {"volatility": one.volatility}
        for level in LEVELS:
            columns[f"VaR {100 * level:g} %"] = one.value_at_risk(level)
            columns[f"ES {100 * level:g} %"] = one.expected_shortfall(level)
        order = np.argsort(-np.nan_to_num(one.volatility))[:MOST_CHANNELS]
        rows = [[names[k], *(_number(column[k]) for column in columns.values())] for k in order]
        more = ""
        if len(names) > MOST_CHANNELS:
            more = f"<p>The {MOST_CHANNELS} most volatile of {len(names)} channels.</p>"
        return (
            "<section><h2>The next step, channel by channel</h2>"
            "<p>In the units of the file. VaR: the loss that is exceeded with a probability of 5 "
            "or 1 %. ES, expected shortfall: the mean loss beyond it. Both come from the Student-t "
            f"forecast, about a mean of zero.</p>{more}{table(['', *columns], rows)}</section>"
        )

    def _portfolios(self, small: Result, steps: Numbers, tracks: list[Track]) -> str:
        heads = ["", *(track.name for track in tracks)]
        rows = [
            ["realised volatility", *(_number(t.returns.std()) for t in tracks)],
            ["forecast volatility, root mean square", *(_rms(t.volatility) for t in tracks)],
            ["turnover per step, sum of |changes of weights|",
             *(_number(t.turnover[1:].mean() if len(t.turnover) > 1 else 0.0) for t in tracks)],
        ]  # fmt: skip
        for level in LEVELS:
            share, words = 1.0 - level, f"{100 * level:g} %"
            found = [(t, *t.tests(level)) for t in tracks]
            expected = f"{len(steps) * share:.1f}"
            rows += [
                [f"losses beyond VaR {words} (expected {expected})",
                 *(f"{kupiec.exceeded}" for _, kupiec, _ in found)],
                ["p value, Kupiec (their number)", *(_p(kupiec) for _, kupiec, _ in found)],
                ["p value, Christoffersen (and independent)", *(_p(both) for _, _, both in found)],
                [f"mean loss beyond it over ES {words}", *(_over(t, level) for t in tracks)],
            ]  # fmt: skip
        drawn = picture(
            "returns and value at risk", lambda w: _risk_figure(small, steps, tracks, w)
        )
        last = _stamp(small, int(steps[0]))
        return (
            "<section><h2>Two portfolios, step by step</h2>"
            f"<p>{len(steps):,} steps from {escape(last)} on. Every step is forecast from the rows "
            "before it. Equal weights show whether the value at risk can be trusted: p values "
            "below 0.05 speak against it. Minimum variance is the portfolio of least forecast "
            "variance, short positions allowed, with new weights at every step: its turnover is "
            "the price of a forecast that follows quickly.</p>"
            f"{table(heads, rows, 'words')}{drawn}</section>"
        )


def _over(track: Track, level: float) -> str:
    hit = track.beyond(level)
    if not hit.any():
        return "–"
    return f"{(-track.returns[hit]).mean() / track.shortfall[level][hit].mean():.2f}"


def _p(test: Any) -> str:
    return f"{test.p_value:.3f}" if test.p_value >= 0.001 else "< 0.001"


def _rms(values: Numbers) -> str:
    return _number(np.sqrt(np.mean(values**2)))


def _number(value: float) -> str:
    return "–" if not np.isfinite(value) else f"{value:#.4g}"


def _stamp(result: Result, k: int) -> str:
    times, unit = clock(result)
    if unit != "date":
        return f"{times[k]:g}"
    return str(np.asarray(result.index)[k])[:19].removesuffix("T00:00:00").replace("T", " ")


def _risk_figure(small: Result, steps: Numbers, tracks: list[Track], width: float) -> Figure:
    with style():
        figure = new_figure(2.8, width)
        axes, one = figure.add_subplot(), tracks[0]
        times, unit = clock(small)
        at, hit, level = times[steps], one.beyond(LEVELS[-1]), LEVELS[-1]
        axes.plot(at, one.returns, ".", color=COLOURS["quiet"], markersize=1.5, alpha=0.6)
        axes.plot(at, -one.value_at_risk[level], color=COLOURS["ours"], linewidth=0.8)
        axes.plot(at[hit], one.returns[hit], "o", color=COLOURS["vermillion"], markersize=2.5)
        axes.set_title(f"Equal weights: returns, and value at risk {100 * level:g} %")
        axes.set_ylabel("return")
        time_axis(axes, times, unit)
        last = float(-one.value_at_risk[level][-1])
        label_lines({axes: [(last, f"VaR {100 * level:g} %", COLOURS["ours"])]})
    return figure


def _picture(words: str, result: Result, kind: str) -> str:
    return picture(words, lambda width: plot_risk(result, kind, width=width))


HEADINGS = {
    "volatility": "Volatility",
    "correlation": "Correlation",
    "weights": "What the forecast is made of",
    "surprise": "Surprise",
}
TEXTS = {
    "volatility": "<p>Standard deviation of every channel, per step.</p>",
    "correlation": "<p>All pairs along time, and the matrix after the last row.</p>",
    "weights": (
        "<p>Members of the forecast, weighted by how well they predicted so far. Much weight on "
        "short half-lives: the covariance is changing.</p>"
    ),
    "surprise": (
        "<p>How improbable every row was under the forecast before it. One row in 1,000 should be "
        "above the upper line; below, the share of rows outside the 95 % region over a moving "
        "window.</p>"
    ),
}
NOTES = (
    "<footer><p>Made by kgmrf. Grey background: rows without observation. Volatility, value at "
    "risk and expected shortfall are those of one step, of the Student-t density that the tracker "
    "forecasts; costs of trading are not counted.</p></footer>"
)
