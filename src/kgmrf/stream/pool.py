"""Many keyed tracks, each with a state and a time of its own, moved a block of lines at a time.

The tracks are those of a `kgmrf.TrackerBank`. Which lines come together in a block makes no
difference to any track: none at all with the default, rounding with a single law.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kgmrf import _check
from kgmrf._types import Mask, Numbers
from kgmrf.bank import TrackerBank
from kgmrf.geometry import so
from kgmrf.io.source import Kind


class Pool:
    """Tracks by key: a `TrackerBank`, and ``names`` in the order in which they came.

    kind: "samples", "covariance" or "rotation". settings: of `KGMRF` or `RotationTracker`.
    """

    def __init__(self, kind: Kind, d: int, settings: dict[str, Any]) -> None:
        self.kind, self.d = kind, d
        follows = "rotation" if kind == "rotation" else "covariance"
        self.bank = TrackerBank(0, d, kind=follows, n_threads=1, **settings)
        self.names: list[str] = []
        self._number: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.names)

    def numbers(self, keys: list[str]) -> Numbers:
        """The number of the track of every key; unknown keys become new tracks."""
        known = self._number
        for key in dict.fromkeys(keys):
            if key not in known:
                known[key] = len(self.names)
                self.names.append(key)
        short = len(self.names) - len(self.bank)
        if short > 0:  # room doubles, so that adding tracks one by one stays cheap
            self.bank.add(max(short, len(self.bank), 16))
        return np.fromiter(map(known.__getitem__, keys), dtype=np.int64, count=len(keys))

    def keep(self, which: Mask) -> None:
        """Those tracks alone, numbered anew in their order."""
        self.names = [name for name, kept in zip(self.names, which.tolist(), strict=True) if kept]
        self._number = {name: k for k, name in enumerate(self.names)}
        self.bank = self.bank.select(np.flatnonzero(which))

    def checked(self, values: Numbers) -> tuple[Numbers, Numbers]:
        """Matrices ready to be taken in, and the numbers of those that are none (and left out)."""
        if self.kind == "samples":
            return values, np.zeros(0, dtype=int)
        observed: Mask = np.asarray(~np.isnan(values).any(axis=(-2, -1)))
        check = _check.rotations if self.kind == "rotation" else _check.covariances
        matrices, used = check(values, observed, "line", "skip")
        if self.kind == "rotation":
            matrices = so.project(matrices)
        bad = np.flatnonzero(observed & ~used)
        return np.where(used[:, None, None], matrices, np.nan), bad
