"""Tables of the study for the documentation (``python -m experiments tables``)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments import rotating as scenes
from experiments import starts as start_up
from experiments.markup import markdown
from experiments.reading import read
from experiments.streams import data, rivals


def _number(value: float | None, places: int = 2) -> str:
    return "–" if value is None else f"{value:.{places}f}"


def streams(results: Path) -> str:
    """The default's t score, and every rival's, each as a t with nu and scale in hindsight."""
    names = list(data.STREAMS)
    own = [read(results, "streams", f"{s}.ours") for s in names]
    rows = [["**KGMRF()**, nothing tuned", *[_number(o and o["t"]) for o in own]]]
    for rival in rivals.RIVALS:
        found = [read(results, "streams", f"{s}.{rival}") for s in names]
        rows.append([rivals.NAMES[rival], *[_number(f and f["t"]["score"]) for f in found]])
    return markdown(["", *names], rows)


def more(results: Path) -> str:
    """How far ours is ahead of the best rival, coverage, and the weight with velocity."""
    rows = []
    for name in data.STREAMS:
        own = read(results, "streams", f"{name}.ours")
        found = {r: read(results, "streams", f"{name}.{r}") for r in rivals.RIVALS}
        done = {r: f["t"] for r, f in found.items() if f and f["t"]["score"] is not None}
        if not own or not done:
            continue
        best = max(done, key=lambda r: done[r]["score"])
        low, high = done[best]["interval"] or (None, None)
        ahead = f"{_number(done[best]['ours_ahead'])} ({_number(low)} to {_number(high)})"
        cover = " / ".join(_number(own["coverage"][level], 3) for level in ("0.95", "0.99"))
        share = f"{100 * own['weight_with_velocity']:.1f} %"
        still = read(results, "streams", f"{name}.still")
        earned = _number(still and still["ours_ahead"], 3)
        size = f"{own['rows']:,} x {own['d']}"
        rows.append([name, size, rivals.NAMES[best], ahead, cover, share, earned])
    head = ["", "rows x channels", "best rival", "ours ahead, nats per row (95 %)"]
    head += ["95 / 99 % regions cover", "weight with velocity", "nats that velocity earns"]
    return markdown(head, rows)


def starts(results: Path) -> str:
    """Nats per dimension by range of rows."""
    head, rows = ["nats per dimension"], []
    for unit in start_up.units(quick=False):
        found = read(results, "starts", unit.name)
        d, word = unit.settings["d"], unit.name.partition("_")[0]
        if found:
            head = ["nats per dimension", *[f"rows {r}" for r in found["ranges"]]]
            for name, values in found["rows"].items():
                rows.append([f"d = {d}, sizes {word}: {name}", *[_number(v) for v in values]])
    return markdown(head, rows)


def rotating(results: Path) -> str:
    """Degrees: ours, the previous default, the best EMA."""
    rows = []
    for unit in scenes.units(quick=False):
        found = read(results, "rotating", unit.name)
        if found:
            cells = [_number(found[k]) for k in ("ours", "previous", "ema")]
            rows.append([f"{unit.settings['d']}, {unit.settings['rate']:g}", *cells])
    return markdown(["d, rad per frame", "KGMRF()", "previous default", "best EMA"], rows)


def _after(who: str) -> Callable[[Any], str]:
    return lambda f: ", ".join(f"{rows} {_number(value, 1)}" for rows, value in f[who].items())


def _listed(*keys: str) -> Callable[[Any], str]:
    return lambda f: ", ".join(_number(f[k]) for k in keys)


_QUIET = "standard deviation 1/1,000 for 50-300 rows, again and again"
_LOST = "nats per dimension lost to the true density, by the best EWMA (t)"
_CELLS = "all cells, some missing, those rows dropped"
FAULTS: list[tuple[str, str, Callable[[Any], str]]] = [
    ("zeros_first", "25 zero rows first: final trace, true value 5", _listed("trace")),
    ("zeros_inside_20", "20 zero rows in the middle: the rows after", _after("ours")),
    ("zeros_inside_20", "the same rows under the true density", _after("oracle")),
    ("zeros_inside_200", "200 zero rows in the middle: the rows after", _after("ours")),
    ("stuck_channel_200", "one channel zero for 200 rows: the rows after", _after("ours")),
    (
        "outlier",
        "one row of five funds times 10^8: trace over the trace without it",
        lambda f: ", ".join(f"{words} {_number(value)}" for words, value in f.items()),
    ),
    (
        "units",
        "units of two funds times 10^9 and 10^-9: change of the score",
        lambda f: f"{f['mean_difference'] or 0.0:.0e}",
    ),
    (
        "rounded",
        "rows rounded to one standard deviation: score, and that of an EWMA of half-life 64",
        _listed("ours", "ewma_half_life_64"),
    ),
    *(
        (
            f"bursts_{d}",
            f"{_QUIET}, d = {d}: {_LOST}",
            lambda f: f"{_number(f['ours']['all'])}, {_number(f['ewma']['all'])}",
        )
        for d in (3, 9)
    ),
    *(
        (
            f"missing_{stream}",
            f"10 % of the cells missing, {stream}: {_CELLS}",
            _listed("every cell", "cells missing", "rows dropped"),
        )
        for stream in ("etf18", "factors8", "simulated")
    ),
]


def faults(results: Path) -> str:
    """What the default does during and after each fault."""
    rows = [
        [words, line(found)]
        for unit, words, line in FAULTS
        if (found := read(results, "faults", unit))
    ]
    return markdown(["fault", "measured"], rows)
