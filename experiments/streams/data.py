"""Real streams, prepared as the study scores them, and where their files are.

The files are found through $KGMRF_DATA or at ../shared/data. They are not part of the project: a
stream whose file is absent is None here and "not available" in the results.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments import store
from kgmrf._types import Numbers


class Stream(NamedTuple):
    """Zero-mean samples ``(T, d)``, one per step, and the first row that counts."""

    samples: Numbers
    scored_from: int


def find(*parts: str) -> Path | None:
    """A file of the real data, or None."""
    root = os.environ.get("KGMRF_DATA")
    path = Path(root, *parts) if root else None
    return path if path is not None and path.exists() else None


def _csv(name: str, header: int = 1) -> Numbers | None:
    path = find("streams", name)
    if path is None:
        return None
    if path.suffix == ".gz":
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            return np.genfromtxt(lines, delimiter=",", skip_header=header)
    return np.genfromtxt(path, delimiter=",", skip_header=header)


def _sensor(rows: Numbers) -> Stream:
    """Differences over the standard deviation of each channel's differences, first 5,000 rows."""
    steps = np.diff(rows, axis=0)
    return _short(steps / steps.std(axis=0))


def _short(rows: Numbers) -> Stream:
    return Stream(rows[:5000], max(200, 5 * rows.shape[1]))


def etf18() -> Stream | None:
    """Daily returns of 18 funds, percent."""
    table = _csv("etf18_returns.csv")
    return None if table is None else Stream(100.0 * table[:, 1:], 500)


def factors8() -> Stream | None:
    """Daily returns of 8 equity factors, percent, first 6,000 days."""
    table = _csv("factors8_returns.csv")
    return None if table is None else Stream(100.0 * table[:6000, 1:], 500)


def ssvep8() -> Stream | None:
    """EEG of 8 channels during flicker, rows 20,000 on, standardised, then differenced."""
    path = find("streams", "ssvep8_subject02.npz")
    if path is None:
        return None
    with np.load(path) as record:
        rows = record["data"].astype(np.float64)[20000:32000]
    return Stream(np.diff((rows - rows.mean(0)) / rows.std(0), axis=0)[:6000], 500)


def eeg14() -> Stream | None:
    """EEG of 14 channels with gross artefacts: robustly scaled, clipped at 50, differenced."""
    table = _csv("eeg14_eye_state.csv")
    if table is None:
        return None
    rows = table[:, :14] - np.median(table[:, :14], axis=0)
    rows = rows / (1.4826 * np.median(np.abs(rows), axis=0))
    return Stream(np.diff(np.clip(rows, -50, 50), axis=0), 500)


def etth1() -> Stream | None:
    """Seven hourly readings of a transformer; the logger is stuck four times for 23 rows."""
    table = _csv("etth1.csv", header=0)
    return None if table is None else _sensor(table)


def gait_daphnet() -> Stream | None:
    """Nine accelerometer channels of a walking patient at 64 Hz."""
    table = _csv("gait_daphnet_s06r02.csv")
    return None if table is None else _sensor(table[:, 1:10])


def fx8() -> Stream | None:
    """Daily changes of seven exchange rates, percent; the pegged one and idle days left out."""
    table = _csv("fx8_rates.txt.gz", header=0)
    if table is None:
        return None
    returns = 100.0 * np.diff(np.log(np.delete(table, 4, axis=1)), axis=0)
    return _short(returns[np.any(returns != 0.0, axis=1)])


def ff_monthly() -> Stream | None:
    """Monthly returns of the three Fama-French factors since 1926, percent."""
    table = _csv("ff_monthly.csv.gz")
    return None if table is None else _short(table[:, 1:4])


STREAMS: dict[str, Callable[[], Stream | None]] = {
    "etf18": etf18,
    "factors8": factors8,
    "ssvep8": ssvep8,
    "eeg14": eeg14,
    "etth1": etth1,
    "gait_daphnet": gait_daphnet,
    "fx8": fx8,
    "ff_monthly": ff_monthly,
}


def load(name: str) -> Stream:
    """A stream by its name; NotAvailable where its file is not there."""
    stream = STREAMS[name]()
    if stream is None:
        raise store.NotAvailable(f"no file of {name}; set KGMRF_DATA to the folder of the data")
    return stream
