"""Real EEG for the experiments: the SSVEP-exoskeleton recordings, subjects 1 to 5.

Eight channels at 256 Hz, 32 trials of 5 s in a session: rest, and lights that flicker at 13, 17 and
21 Hz. Subjects 1, 3, 4, 5 have two sessions each, subject 2 one. Where the recordings are not there
(``KGMRF_DATA``), an experiment says so.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from experiments.store import NotAvailable
from experiments.streams.data import find
from kgmrf._types import Numbers

RATE = 256
FREQUENCIES = (13.0, 17.0, 21.0)
HALF_WIDTH = 1.0
"""Hz that the filter bank passes on each side of a frequency."""
REST = 1
SESSIONS = {1: ("01_0", "01_1"), 3: ("03_0", "03_1"), 4: ("04_0", "04_1"), 5: ("05_0", "05_1")}


class Session(NamedTuple):
    """A recording, filtered, and its trials."""

    rows: Numbers  # (T, d)
    onsets: Numbers  # (32,), row at which a trial begins
    classes: Numbers  # (32,), 1 is rest


def band(rows: Numbers, low: float, high: float) -> Numbers:
    """Rows passed by a Butterworth filter of order 4, forward and backward."""
    from scipy.signal import butter, sosfiltfilt

    sections = butter(4, [low, high], "band", fs=RATE, output="sos")
    return np.asarray(sosfiltfilt(sections, rows, axis=0))


@cache
def session(name: str, kind: str = "bank") -> Session:
    """One session: "bank" (24 channels: eight around each frequency), "wide" (1-40 Hz) or "raw".

    Filtered rows are divided by the deviation of the first 2,048 of them.
    """
    stem = f"ssvep8_s{name}" if "_" in name else f"ssvep8_subject{name}"
    file = find("streams", f"{stem}.npz")
    if file is None:
        raise NotAvailable(f"no streams/{stem}.npz; set KGMRF_DATA")
    with np.load(file) as found:
        data, events = found["data"].astype(float), found["events"]
    if kind == "bank":
        w = HALF_WIDTH
        rows = np.hstack([band(data, f - w, f + w) for f in FREQUENCIES])
    else:
        rows = band(data, 1.0, 40.0) if kind == "wide" else data
    if kind != "raw":
        rows = rows / rows[:2048].std()
    return Session(rows, events[:, 0], events[:, -1])


def everyone() -> list[str]:
    """The names of all sessions."""
    return [*(name for pair in SESSIONS.values() for name in pair), "02"]


def windows(
    of: Session, length: int = RATE, start: int = RATE, n: int = 4
) -> tuple[Numbers, Numbers]:
    """Windows ``(n, d, length)`` of all trials, some from ``start`` rows on, and their classes."""
    begin = of.onsets[:, None] + start + length * np.arange(n)
    found = np.stack([of.rows[k : k + length].T for k in begin.ravel()])
    return found, np.repeat(of.classes, n)
