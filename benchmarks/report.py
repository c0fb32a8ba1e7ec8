"""Read the result file; write the table and the figure. Measures nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.report_default import default_text
from kgmrf import plots

RESULTS = Path(__file__).parent / "results"


def report(name: str = "speed") -> Path:
    """``results/<name>.md`` (for speed ``.png`` too) from ``results/<name>.json``."""
    found = json.loads((RESULTS / f"{name}.json").read_text())
    path = RESULTS / f"{name}.md"
    if name.endswith("default"):
        path.write_text("\n".join(default_text(found)) + "\n")
        return path
    path.write_text("\n".join(_text(found)) + "\n")
    _figure(found["results"], RESULTS / f"{name}.png")
    return path


def _text(found: dict[str, Any]) -> list[str]:
    settings, results = found["settings"], found["results"]
    lines = [
        "# Speed",
        "",
        f"{settings['processor']}, {settings['processors']} processors, Python "
        f"{settings['python']}, {settings['date']}, kgmrf {settings['kgmrf']}. Medians of rounds "
        "in which the contenders take turns; processor time (what runs on several threads: time "
        "that passes), one BLAS thread; checks of the observations included.",
        "",
        "## Bars",
        "",
        "| | measured | asked | aim |",
        "|---|---|---|---|",
        *_bars(results),
    ]
    updates = results["one update"]
    lines += ["", "## One update from Python, microseconds", ""]
    names = list(updates["7"])
    lines += ["| | " + " | ".join(f"d = {d}" for d in updates) + " |"]
    lines += ["|---" * (len(updates) + 1) + "|"]
    for name in names:
        cells = [f"{1e6 * t[name]['median']:.2f}" if name in t else "" for t in updates.values()]
        lines += [f"| {name} | " + " | ".join(cells) + " |"]
    sequence = results["whole sequence"]
    lines += ["", "## Whole sequence of 2000 frames, d = 7, per frame", ""]
    lines += _table(sequence["table"], skip=("FMA",))
    many = results["many tracks"]
    lines += ["", f"## Bank of {many['tracks']:,} tracks, d = 7, per track", ""]
    lines += _table(many["table"], skip=("FMA", "copy"))
    lines += [
        "",
        "| | bytes per track | height of memory, states | share of roofline |",
        "|---|---|---|---|",
    ]
    for name, row in many["memory"].items():
        share = _roofline(many, name) / many["table"][name]["median"]
        lines += [
            f"| {name} | {row['bytes per track']:.0f} | {row['peak share']:.2f} | {share:.0%} |"
        ]
    turning = results["rotation bank"]
    lines += ["", f"## Bank of {turning['tracks']:,} rotations, d = 3, per track", ""]
    lines += _table(turning["table"])
    lines += ["", "## Growth: cost per track, d = 7, one thread", ""]
    lines += ["| tracks | nanoseconds |", "|---|---|"]
    lines += [f"| {int(n):,} | {1e9 * t['median']:.0f} |" for n, t in results["growth"].items()]
    lines += ["", "## Versions", ""]
    lines += [", ".join(f"{k} {v}" for k, v in settings["packages"].items()) + "."]
    for name, reason in found["absent"].items():
        lines += [f"- {name}: absent ({reason})"]
    return lines


def _table(table: dict[str, Any], skip: tuple[str, ...] = ()) -> list[str]:
    first = next(row["median"] for name, row in table.items() if name not in skip)
    lines = ["| | nanoseconds | times the first |", "|---|---|---|"]
    for name, row in table.items():
        if name not in skip:
            lines += [f"| {name} | {1e9 * row['median']:,.0f} | {row['median'] / first:.2f} |"]
    return lines


def _roofline(many: dict[str, Any], name: str) -> float:
    """Seconds per track if only arithmetic or only memory counted, whichever is more."""
    table = many["table"]
    arithmetic = many["multiply-adds"] * table["FMA"]["median"]
    return max(arithmetic, many["memory"][name]["traffic"] * table["copy"]["median"])


def _bars(results: dict[str, Any]) -> list[str]:
    update = results["one update"]["7"]
    sequence, many = results["whole sequence"], results["many tracks"]
    turning, growth = results["rotation bank"]["table"], results["growth"]
    info = "kgmrf bank, information, float64, 1 thread"
    floor = sequence["multiply-adds"] * sequence["table"]["FMA"]["median"]
    one = sequence["table"]["kgmrf filter, information"]["median"]
    rows = []

    def row(what: str, measured: str, asked: str, aim: str = "") -> None:
        rows.append(f"| {what} | {measured} | {asked} | {aim} |")

    def times(table: dict[str, Any], rival: str, own: str) -> str:
        return (
            f"{table[rival]['median'] / table[own]['median']:.0f}x" if rival in table else "absent"
        )

    rival = "pyRiemann geodesic"
    row("d = 7, one update", times(update, rival, "kgmrf update, information"), "30x", "60x")
    row("d = 7, sequence", times(sequence["table"], rival, "kgmrf filter, information"), "100x")
    row("d = 7, sequence, against multiply-adds alone", f"{one / floor:.1f}x", "", "15x")
    row(
        f"d = 7, {many['tracks']:,} tracks, one core",
        times(many["table"], "pyRiemann batched", info),
        "70x",
    )
    share = _roofline(many, info) / many["table"][info]["median"]
    row("share of the roofline", f"{share:.0%}", "15 %", "35 %")
    own = "kgmrf bank, zero_lag, float64, 1 thread"
    for rival in ("jaxlie jit", "scipy Rotation"):
        measured = turning[rival]["median"] / turning[own]["median"] if rival in turning else 0.0
        row(f"rotation bank, fixed gains, {rival}", f"{measured:.1f}x", "above 1x")
    costs = [t["median"] for t in growth.values()]
    row("growth: dearest over cheapest size", f"{max(costs) / min(costs):.2f}x", "flat")
    row(
        "memory at the height of an update, states",
        f"{many['memory'][info]['peak share']:.2f}",
        "2",
    )
    laws = [
        many["table"][f"kgmrf bank, {law}, float64, 1 thread"]["median"]
        for law in ("information", "zero_lag")
    ]
    row("information over fixed gains, bank", f"{laws[0] / laws[1]:.2f}x", "2.5x")
    pair = [update[f"kgmrf update, {law}"]["median"] for law in ("information", "zero_lag")]
    row("information over fixed gains, one update", f"{pair[0] / pair[1]:.2f}x", "2.5x")
    return rows


def _figure(results: dict[str, Any], path: Path) -> None:
    with plots.style():
        figure = plots.new_figure(height=2.6)
        left, right = figure.subplots(1, 2)
        labels = {left: _updates(left, results["one update"]), right: _banks(right, results)}
        for axes in (left, right):
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.minorticks_off()
        dimensions = [int(d) for d in results["one update"]]
        left.set_xticks(dimensions, [str(d) for d in dimensions])
        plots.label_lines(labels)
    plots.write_figure(figure, path)


def _updates(axes: Any, updates: dict[str, Any]) -> list[tuple[float, str, str]]:
    """One update against the dimension, every contender that was run on all of them."""
    everywhere = [name for name in updates["7"] if all(name in t for t in updates.values())]
    labels = []
    for name, colour in zip(everywhere, plots.CYCLE, strict=False):
        cost = [1e6 * t[name]["median"] for t in updates.values()]
        axes.plot([int(d) for d in updates], cost, marker="o", markersize=3, color=colour)
        labels.append((cost[-1], name.replace("kgmrf update, ", "kgmrf, "), colour))
    axes.set(xlabel="dimension d", ylabel="microseconds", title="one update from Python")
    return labels


def _banks(axes: Any, results: dict[str, Any]) -> list[tuple[float, str, str]]:
    """A track in a bank against the number of tracks; rivals at 100,000."""
    growth, many = results["growth"], results["many tracks"]["table"]
    cost = [1e9 * t["median"] for t in growth.values()]
    ours, quiet = plots.COLOURS["ours"], plots.COLOURS["quiet"]
    axes.plot([int(n) for n in growth], cost, marker="o", markersize=3, color=ours)
    labels = [(cost[-1], "kgmrf bank", ours)]
    for name in ("pyRiemann batched", "simdkalman batched", "numpy EMA batched"):
        if name in many:
            level = 1e9 * many[name]["median"]
            axes.axhline(level, linestyle=(0, (4, 2)), linewidth=0.8, color=quiet)
            labels.append((level, name, quiet))
    axes.set(xlabel="tracks", ylabel="nanoseconds per track", title="d = 7, one thread")
    return labels
