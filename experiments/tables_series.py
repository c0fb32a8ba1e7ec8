"""Tables on series: horizons, gaps, late channels, many channels, portfolios."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments import horizons, low_rank, portfolios
from experiments.markup import markdown
from experiments.reading import read
from experiments.streams import data, rivals


def best_rival(found: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The rival with the best score at one horizon."""
    name = max(found["rivals"], key=lambda r: float(found["rivals"][r]["score"]))
    return name, found["rivals"][name]


def ahead(results: Path) -> str:
    """One row per stream: by horizon the coverage, and how far ours is ahead of the best rival."""
    rows = []
    for name in data.STREAMS:
        found = read(results, "horizons", f"{name}.ahead")
        if not found:
            continue
        cells = []
        for h in map(str, horizons.AHEAD[1:]):
            at = found["by_horizon"][h]
            rival, one = best_rival(at)
            low, high = one["interval"]
            lead = f"{one['ours_ahead']:+.2f} ({low:.2f} to {high:.2f}), {rivals.NAMES[rival]}"
            cells += [f"{at['coverage']['0.95']:.3f}", lead]
        rows.append([name, *cells])
    head = [""]
    for h in horizons.AHEAD[1:]:
        head += [f"h = {h}: covers", "ahead of the best"]
    return markdown(head, rows)


def gaps(results: Path) -> str:
    """The first row after a gap, and how many of them were within regions of 95 %."""
    rows = []
    for name in data.STREAMS:
        found = read(results, "horizons", f"{name}.gaps")
        if found:
            covers = f"{found['coverage']['0.95']:.3f}"
            rows.append([name, str(found["gaps"]), f"{found['first_row']:.2f}", covers])
    return markdown(["", "gaps", "score of the first row after", "95 % regions cover"], rows)


def late_channels(results: Path) -> str:
    """A row for each number of values that the channel has had."""
    found = read(results, "late_channels", "usual")
    if not found:
        return ""
    low, middle, high = found["volatility"]
    rows = [
        [
            str(k),
            f"{middle[i]:.2f} ({low[i]:.2f} to {high[i]:.2f})",
            f"{found['correlation'][i]:.2f}",
        ]
        for i, k in enumerate(found["rows"])
    ]
    head = ["values", "volatility over that with a full history (95 %)", "correlations, share"]
    return markdown(head, rows)


def low_rank_simulated(results: Path) -> str:
    """Log-likelihood per row and risk, from row 20 on; rivals at their best setting for each."""
    lines = []
    for d in (200, 500):
        for ending, word in (("", "constant volatility"), ("_clustered", "clustered")):
            methods = (read(results, "low_rank", f"simulated_{d}{ending}") or {}).get("methods")
            cells = []
            for kind in ("true covariance", "ours", *low_rank.RIVALS) if methods else ():
                rows = [row for key, row in methods.items() if key.startswith(kind)]
                score = max(row["log_likelihood"]["20 to 2 d"] for row in rows)
                least = min(row["risk"]["20 to 2 d"] for row in rows)
                cells.append(f"{score:.1f} ({least:.4f})")
            lines += [(f"d = {d}, {word}", *cells)] if cells else []
    names = (name.rstrip(",") for name in low_rank.RIVALS)
    return markdown(("nats per row (risk)", "true covariance", "**KGMRF()**", *names), lines)


def low_rank_subspace(results: Path) -> str:
    """Error of the subspace, ours and OPAST's with its best forgetting factor."""
    lines = []
    for speed, row in (read(results, "low_rank", "subspace") or {}).items():
        best = min(value for name, value in row.items() if name != "ours")
        lines.append((speed, f"{row['ours']:.3f}", f"{best:.3f}"))
    return markdown(("axes turn by, radians per row", "**KGMRF(rank=5)**", "OPAST"), lines)


def low_rank_velocity(results: Path) -> str:
    """What `rotating_axes=True` adds, in nats per row."""
    found = (read(results, "low_rank", "velocity") or {}).items()
    lines = [(key, f"{row['without']:.1f}", f"{row['gain']:+.2f}") for key, row in found]
    return markdown(("a direction lasts for", "KGMRF(rank=5)", "rotating_axes=True adds"), lines)


def low_rank_cost(results: Path) -> str:
    """CPU time and memory as the number of channels grows."""
    found = read(results, "low_rank", "cost") or {}
    sizes = tuple(found.get("default", ()))
    lines = []
    for key, name in (("default", "us per row"), ("kilobytes of a track", "kB of state")):
        lines += [(name, *(f"{found[key][d]:,.0f}" for d in sizes))] if sizes else []
    return markdown(("channels", *(f"{int(d):,}" for d in sizes)), lines)


def _rows(results: Path, stream: str, model: str) -> list[tuple[dict[str, float], dict[str, Any]]]:
    """Settings and results of an estimator, the defaults first."""
    units = [u for u in portfolios.units(False) if u.name.startswith(f"{stream}.{model}")]
    units = [u for u in units if u.settings["model"] == model]
    rows = [(u.settings["given"], read(results, "portfolios", u.name)) for u in units]
    return [(given, row) for given, row in rows if row]


def _in_hindsight(rows: Any, key: Any) -> Any:
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
                rows = _rows(results, stream, model)
                if not rows:
                    continue
                chosen = [(model, rows[0][1])]
                best = _in_hindsight(rows, lambda row, h=horizon: row[h]["qlike"])
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
            rows = _rows(results, stream, model)
            if not rows:
                continue
            chosen = [(model, rows[0][1])]
            best = _in_hindsight(rows, lambda row: row["minimum_variance"]["daily"]["volatility"])
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


TABLES = {
    "horizons": ahead,
    "gaps": gaps,
    "late_channels": late_channels,
    "low_rank": low_rank_simulated,
    "low_rank_subspace": low_rank_subspace,
    "low_rank_velocity": low_rank_velocity,
    "low_rank_cost": low_rank_cost,
    "portfolios": judged,
    "least_variance": least_variance,
}
