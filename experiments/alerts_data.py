"""Labelled recordings for detectors of faults, and recordings without any.

    skab      SKAB, valve 1: 16 runs of a water loop, 8 sensors, a second a row, one long fault each
    shuttle   river's copy of Statlog Shuttle: 9 numbers, 7 % rare classes, rows in no order of time
    injected  six recordings without faults, each with ten that are put in: two spikes, shifts of a
              channel, channels four times as wide, channels that lose their correlation, stuck ones

What is in public packages besides: aeon's Daphnet recording has no labelled row, streamad's
multivariate set a single one; Kats, TSB-AD, tods, pysad, Orion, Merlion and tsad bring no data.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments import store
from experiments.streams.data import find
from kgmrf._types import Numbers

KINDS = ("spike", "shift", "width", "correlation", "stuck")
BACKGROUNDS = ("water", "gait", "weather", "transformer", "EEG", "simulated")
FAULT = 40
"""Rows of a fault that is put in; of a spike one."""


class Labelled(NamedTuple):
    """Rows ``(T, d)``, whether each is faulty ``(T,)``, and how many at the start are to fit on."""

    rows: Numbers
    faulty: Numbers
    fit: int


def _table(path: Path | None, delimiter: str = ",", header: int = 1) -> Numbers:
    if path is None:
        raise store.NotAvailable("the data are not here")
    if path.suffix == ".gz":
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            return np.genfromtxt(lines, delimiter=delimiter, skip_header=header)
    return np.genfromtxt(path, delimiter=delimiter, skip_header=header)


def skab() -> list[Labelled]:
    """The first 400 rows of each run are without fault, by SKAB's own protocol."""
    out = []
    for k in range(16):
        table = _table(find("alerts", "skab_valve1", f"{k}.csv.gz"), ";")
        out.append(Labelled(table[:, 1:9], table[:, 9] > 0.0, 400))
    return out


def shuttle() -> list[Labelled]:
    """The first 20,000 rows; to fit on are the first 2,000 normal ones."""
    try:
        import river.datasets
    except ImportError:
        raise store.NotAvailable("river is not installed") from None
    path = Path(river.datasets.__file__).parent / "shuttle.csv.gz"
    if not path.exists():
        raise store.NotAvailable("this river has no Shuttle")
    table = _table(path)[:20_000]
    rows, faulty = table[:, :9], table[:, 9] > 0.0
    first = np.flatnonzero(~faulty)[:2000]
    rest = np.setdiff1d(np.arange(len(rows)), first)
    order = np.concatenate([first, rest])
    return [Labelled(rows[order], faulty[order], len(first))]


def background(name: str) -> Numbers:
    """The first 5,000 rows of a recording without faults, as its sensors give them."""
    if name == "simulated":
        rng = np.random.default_rng(0)
        mix = rng.standard_normal((4, 4))
        size = np.exp(0.3 * np.sin(np.arange(5000) / 300.0))[:, None]
        return 10.0 + size * (rng.standard_t(8.0, (5000, 4)) @ mix)
    if name == "water":
        return _table(find("alerts", "skab_anomaly_free.csv.gz"), ";")[:5000, 1:]
    if name == "gait":
        return _table(find("streams", "gait_daphnet_s06r02.csv"))[:5000, 1:10]
    if name == "transformer":
        return _table(find("streams", "etth1.csv"), header=0)[:5000, -7:]
    file = {"weather": "beijing5.npz", "EEG": "ssvep8_subject02.npz"}[name]
    path = find("streams", file)
    if path is None:
        raise store.NotAvailable("the data are not here")
    with np.load(path) as held:
        return np.asarray(held["data"], dtype=float)[:5000]


def injected(name: str) -> list[Labelled]:
    """A recording with faults; a channel's spread is that of its first 1,000 rows."""
    rows = background(name).copy()
    t, d = rows.shape
    rng = np.random.default_rng(BACKGROUNDS.index(name))
    faulty, spread = np.zeros(t, bool), rows[:1000].std(axis=0) + 1e-12
    starts = 1000 + 390 * np.arange(10) + rng.integers(0, 300, 10)
    for start, kind in zip(starts.tolist(), rng.permutation(KINDS * 2), strict=True):
        length, k = 1 if kind == "spike" else FAULT, int(rng.integers(d))
        part, middle = slice(start, start + length), rows[start - 50 : start, k].mean()
        inside = rows[part, k]
        sign = rng.choice([-1.0, 1.0])
        rows[part, k] = {
            "spike": inside + 8.0 * sign * spread[k],
            "shift": inside + 3.0 * sign * spread[k],
            "width": middle + 4.0 * (inside - middle),
            "correlation": rows[start - 2 * length : start - length, k],
            "stuck": np.full(length, rows[start - 1, k]),
        }[str(kind)]
        faulty[part] = True
    return [Labelled(rows, faulty, 1000)]


def load(name: str) -> list[Labelled]:
    """The recordings of a set: skab, shuttle, or the name of a background with faults put in."""
    if name in BACKGROUNDS:
        return injected(name)
    return {"skab": skab, "shuttle": shuttle}[name]()
