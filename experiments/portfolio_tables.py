"""Tables of `experiments.portfolios` (``python -m experiments tables``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments import portfolios
from experiments.markup import markdown
from experiments.reading import read


def _found(results: Path, stream: str, model: str) -> list[tuple[dict[str, float], dict[str, Any]]]:
    """Settings and results of an estimator, the defaults first."""
    units = [u for u in portfolios.units(False) if u.name.startswith(f"{stream}.{model}")]
    units = [u for u in units if u.settings["model"] == model]
    rows = [(u.settings["given"], read(results, "portfolios", u.name)) for u in units]
    return [(given, row) for given, row in rows if row]


def _best(rows: Any, key: Any) -> Any:
    """The setting that is best in hindsight, where there is more than one."""
    return min(rows, key=lambda one: key(one[1])) if len(rows) > 1 else None


def _words(given: dict[str, float]) -> str:
    return ", ".join(f"{value:g}" for value in given.values()) or "its defaults"


def judged(results: Path) -> str:
    """QLIKE, Mahalanobis ratio and bias statistic, one day and twenty days ahead."""
    head = ["", "days ahead", "QLIKE", "Mahalanobis ratio", "bias statistic"]
    lines = []
    for stream in portfolios.DATA:
        for horizon in map(str, portfolios.HORIZONS):
            for model in portfolios.GRIDS:
                rows = _found(results, stream, model)
                if not rows:
                    continue
                chosen = [(model, rows[0][1])]
                best = _best(rows, lambda row, h=horizon: row[h]["qlike"])
                if best is not None:
                    chosen.append((f"{model}, best in hindsight ({_words(best[0])})", best[1]))
                for name, row in chosen:
                    part = row[horizon]
                    shown = f"**{name}**" if model == portfolios.OURS else name
                    cells = [f"{part['qlike']:.3f}", f"{part['mahalanobis']:.2f}"]
                    lines.append([f"{stream}: {shown}", horizon, *cells, f"{part['bias']:.2f}"])
    return markdown(head, lines)


def least_variance(results: Path) -> str:
    """Volatility and turnover of the portfolio of least variance."""
    head = ["", "volatility, percent a year", "turnover a day"]
    head += ["smoothed: volatility", "smoothed: turnover"]
    lines = []
    for stream in portfolios.DATA:
        for model in portfolios.GRIDS:
            rows = _found(results, stream, model)
            if not rows:
                continue
            chosen = [(model, rows[0][1])]
            best = _best(rows, lambda row: row["minimum_variance"]["daily"]["volatility"])
            if best is not None:
                chosen.append((f"{model}, best in hindsight ({_words(best[0])})", best[1]))
            for name, row in chosen:
                cells = []
                for word in ("daily", "smoothed"):
                    part = row["minimum_variance"][word]
                    cells += [f"{part['volatility']:.2f}", f"{part['turnover']:.3f}"]
                shown = f"**{name}**" if model == portfolios.OURS else name
                lines.append([f"{stream}: {shown}", *cells])
    return markdown(head, lines)
