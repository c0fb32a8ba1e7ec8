"""What a bank reads from files is tried out before it is believed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kgmrf import _check, _npz
from kgmrf._types import Numbers
from kgmrf.constants import ENTER_SAMPLES
from kgmrf.engines import Engine

if TYPE_CHECKING:
    from kgmrf.bank.bank import TrackerBank

DAMAGE = (*_npz.DAMAGE, AttributeError, AssertionError)

TRIED = 1 << 15
"""Numbers of the matrices of tracks from a file that are tried out at a time."""

CHECKED = 1 << 10
"""Rows from a file that are checked at a time."""

LIGHT = 2**20
"""Bytes that a file may ask for without bringing them along."""


def damaged(path: str | Path, error: BaseException) -> ValueError:
    """What to say of a file that is no bank."""
    return ValueError(f"{path} is not a bank file: {_npz.reason_of(error)}")


def read(path: str | Path) -> tuple[dict[str, Any], dict[str, Numbers], Numbers]:
    """Header, arrays and ids of a file, which has room for as many tracks as it says."""
    header, found = _npz.read(path)
    try:
        if header.get("kind") != "bank":
            raise ValueError("it holds something else")
        ids = found.pop("ids")
        if ids.ndim != 1 or ids.dtype != np.int64:
            raise ValueError(f"ids are {ids.dtype} of shape {ids.shape}")
        # Before room is made for it: one table of d x d at least, and one for each track.
        # Of many channels a few rows of a table.
        total, d = sum(array.nbytes for array in found.values()), int(header["settings"]["d"])
        if 4 * d * min(d, 64) * max(1, ids.size) > max(LIGHT, 4 * total):
            raise ValueError(f"it is too small for {ids.size} tracks of d = {d}")
    except DAMAGE as error:
        raise damaged(path, error) from error
    return header, found, ids


def check(kind: str, engine: Engine, rows: Numbers, records: Numbers, fresh: Numbers) -> None:
    """ValueError unless these could be tracks of this engine."""
    n = len(rows)
    if fresh.shape != (n,) or fresh.dtype != bool:
        raise ValueError(f"{n} rows and {fresh.shape} flags")
    if records.shape != (n, engine.kept) or records.dtype != np.float64:
        raise ValueError(f"records are {records.dtype} of shape {records.shape}")
    for begin in range(0, max(n, 1), CHECKED):  # a part at a time: its copies are small
        engine.check(rows[begin : begin + CHECKED])
        part = records[begin : begin + CHECKED]
        if kind == "rotation" and part.size:
            matrices = engine.view(part)["rotation"]
            there = np.asarray(~np.isnan(matrices).any(axis=(-2, -1)))
            _check.rotations(matrices, there, "its estimate", "raise", True)


def try_out(bank: TrackerBank) -> None:
    """ValueError unless a forecast, and observations like it, leave an estimate of every track."""
    step = max(1, TRIED // bank.d**2)
    for begin in range(0, len(bank), step):
        _try_out(bank.select(slice(begin, begin + step)))


def _try_out(bank: TrackerBank) -> None:
    n, kind = len(bank), bank.kind
    with np.errstate(all="ignore"):
        ahead = np.asarray(getattr(bank.forecast(), kind))
        if kind == "rotation":
            seen = np.where(np.isnan(ahead), np.eye(bank.d), ahead)
            _check.rotations(seen, np.ones(n, dtype=bool), "its estimate", "raise", True)
        else:
            variance = np.diagonal(ahead, axis1=-2, axis2=-1)
            seen = np.sqrt(np.where(variance > 0.0, variance, 1.0))
            seen = np.minimum(seen, _check.LARGEST_SAMPLE)
        for k in range(3 + int(ENTER_SAMPLES)):  # some faults show only later
            after = bank.feed(np.arange(n), seen, dt=np.ones(n), fields=kind)
            if k > 1 and np.isfinite(after[kind]).all():  # a channel that came late has to wait
                break
    if not np.isfinite(after[kind]).all():
        raise ValueError("a row gives no estimate")
