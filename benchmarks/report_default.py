"""The report on the default: figures of ``results/default.json`` beside what was asked for."""

from __future__ import annotations

from typing import Any

BANK, LAW = "kgmrf bank, default, samples, 1 thread", "kgmrf bank, information, float64, 1 thread"


def default_text(found: dict[str, Any]) -> list[str]:
    """The page, line by line."""
    settings, results = found["settings"], found["results"]
    before, after = settings["load of the machine, before and after"]
    lines = [
        "# Speed of the default",
        "",
        f"{settings['processor']}, {settings['processors']} processors, Python "
        f"{settings['python']}, {settings['date']}, kgmrf {settings['kgmrf']} ({settings['commit']}"
        f"). Load of the machine {before} before and {after} after. Medians of rounds in which the "
        "contenders take turns; processor time, one thread; checks of the observations included.",
        "",
        "| | measured | asked | aim |",
        "|---|---|---|---|",
        *(f"| {' | '.join(row)} |" for row in bars(results)),
        f"| source lines of src/kgmrf | {settings['source lines']:,} | 30,000 | 27,000 |",
    ]
    for d, table in results["default: one step"].items():
        lines += ["", f"## d = {d}, microseconds per step", "", "| | |", "|---|---|"]
        lines += [f"| {name} | {1e6 * row['median']:.2f} |" for name, row in table.items()]
    many = results["default: many tracks"]
    lines += ["", f"## Bank of {many['tracks']:,} tracks, d = 7", ""]
    lines += ["| | nanoseconds per track | bytes per track |", "|---|---|---|"]
    for name, row in many["table"].items():
        size = many["bytes per track"].get(name)
        cell = "" if size is None else f"{size:,.0f}"
        lines += [f"| {name} | {1e9 * row['median']:,.0f} | {cell} |"]
    lines += ["", "## Streams and rotations", "", "| | microseconds |", "|---|---|"]
    for group in ("default: streams", "default: rotations"):
        lines += [f"| {n} | {1e6 * row['median']:.2f} |" for n, row in results[group].items()]
    lines += ["", "## A process of its own, processor seconds", ""]
    lines += ["| | seconds |", "|---|---|"]
    lines += [f"| {name} | {cost:.2f} |" for name, cost in results["default: first use"].items()]
    lines += [f"- {name}: absent ({reason})" for name, reason in found["absent"].items()]
    return lines


def bars(results: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """What, measured, asked, aimed at."""
    eight, eighteen = (results["default: one step"][d] for d in ("8", "18"))
    many, first = results["default: many tracks"], results["default: first use"]
    stream = results["default: streams"]

    def us(table: dict[str, Any], name: str) -> str:
        return f"{1e6 * table[name]['median']:.1f} us"

    def times(table: dict[str, Any], slow: str, quick: str, digits: int = 1) -> str:
        if slow not in table:
            return "absent"
        return f"{table[slow]['median'] / table[quick]['median']:.{digits}f}x"

    rival, batched = "pyRiemann geodesic", "pyRiemann batched"
    rows = [
        ("partial_fit(x), d = 8, against pyRiemann's geodesic step",)
        + (times(eight, rival, "kgmrf partial_fit"), "8x", "12x"),
        ("forecast(1).covariance, d = 8", us(eight, "kgmrf forecast(1).covariance"))
        + ("10 us", "4 us"),
        ("update(C), d = 18, m = 8", us(eighteen, "kgmrf update"), "60 us", "35 us"),
        ("filter(x), d = 8, per row", us(eight, "kgmrf filter"), "8 us", "5 us"),
        ("filter(x), d = 18, per row", us(eighteen, "kgmrf filter"), "30 us", "20 us"),
        ("one missing cell per row, d = 8, against none",)
        + (times(eight, "kgmrf filter, one missing cell per row", "kgmrf filter"), "3x", "2x"),
        ("bank, samples, d = 7, against pyRiemann batched",)
        + (times(many["table"], batched, BANK), "6x", "10x"),
        ("bank, bytes per track", f"{many['bytes per track'][BANK]:,.0f}", "4,600", "4,000"),
        ("single-law bank, d = 7, against pyRiemann batched",)
        + (times(many["table"], batched, LAW, 0), "28x", "35x"),
        ("stream, lines per second against the information law",)
        + (times(stream, "kgmrf stream, information", "kgmrf stream, default", 2), "0.5x", "1x"),
    ]
    rows += [
        (f"first use, {name}", f"{cost:.2f} s", "0.5 s", "0.3 s")
        for name, cost in first.items()
        if not name.startswith("nothing")
    ]
    return rows
