"""What a bank remembers, and its files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import numpy as np

from kgmrf import _npz
from kgmrf._check import OnInvalid
from kgmrf._threads import OneAtATime
from kgmrf._time import Clock
from kgmrf._types import Numbers
from kgmrf.bank.files import DAMAGE, check, damaged, read, try_out
from kgmrf.bank.keyed import KEYED
from kgmrf.engines import Engine
from kgmrf.linear_mean import check_rows

MEMORY = ("rows", "records", "fresh", "means")
"""What is remembered: all of the tracks, what the last observation said where the rows do not,
which have seen no step yet, and the rows of their linear means, if they have any."""


class Saved(OneAtATime):
    """The part of a `TrackerBank` that is written to files and read back."""

    kind: str
    d: int
    on_invalid: OnInvalid
    ids: Numbers
    channels: tuple[str, ...] | None
    _engine: Engine
    _raw: bool
    _rows: Numbers
    _records: Numbers
    _fresh: Numbers
    _means: Numbers
    _lags: int
    _next_id: int
    _clock: Clock
    _pattern: Any
    _positions: Any
    _rollback: Any
    _take_kind: Any
    _keep_keys: Any
    _keys_to_save: Any
    _keys_from: Any

    def state_dict(self, tracks: Any = None, *, copy: bool = True) -> dict[str, Numbers]:
        """All that is remembered of all tracks or some, one array per name with the tracks first:
        a snapshot, which later updates do not change; without ``copy`` a slice of the tracks is
        shown as it is, to be written at once."""
        which = self._positions(tracks) if copy else tracks
        return {name: getattr(self, f"_{name}")[which] for name in MEMORY}

    def load_state_dict(self, state: dict[str, Numbers]) -> None:
        """Replace all tracks by those that `state_dict` gave; ValueError if they cannot be states.

        The arrays are used and not copied: they are the bank's from here on.
        """
        if set(state) != {*MEMORY}:
            raise ValueError(f"it holds {', '.join(sorted(state))[:80]}")
        rows, records, fresh, means = (
            np.require(state[name], None, ["C", "A", "W"]) for name in MEMORY
        )
        with self._rollback():
            # The length of their rows says which engine they had.
            if self.kind == "covariance" and rows.shape[-1:] != (self._engine.size,):
                self._take_kind(raw=not self._raw)
            engine, n = self._engine, len(rows)
            check(self.kind, engine, rows, records, fresh)
            if means.shape != (n, self._means.shape[1]) or means.dtype != np.float64:
                raise ValueError(f"linear means are {means.dtype} of shape {means.shape}")
            if self._lags:
                check_rows(means, self.d, self._lags)
            self._rows, self._records, self._fresh, self._means = rows, records, fresh, means
            self.ids = np.arange(n, dtype=np.int64)
            bank: Any = self
            try_out(bank)
        self._next_id = n
        self._keep_keys(None)

    def settings(self) -> dict[str, Any]:
        """The arguments that build a bank like this one, as plain numbers, words and lists."""
        own = {"kind": self.kind, "d": self.d}
        return {**self._pattern.settings(), **own, "on_invalid": self.on_invalid}

    def save(self, path: str | Path) -> None:
        """Write settings and tracks to one file (npz with a JSON header, nothing executable)."""
        header = {
            "kind": "bank",
            "next_id": self._next_id,
            "clock": self._clock.numbers().tolist(),
            "settings": self.settings(),
            "channels": self.channels,
        }
        arrays = {name: getattr(self, f"_{name}") for name in MEMORY}
        _npz.write(path, header, {"ids": self.ids, **arrays, **self._keys_to_save()})

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a bank that `save` wrote. An untrusted file can never run code."""
        header, found, ids = read(path)
        try:
            make: Any = cls
            bank = make(0, **header["settings"])
            keys = {name: found.pop(name) for name in KEYED if name in found}
            bank.load_state_dict(found)
            bank._keys_from(keys)
            if len(bank) != ids.size:
                raise ValueError(f"{ids.size} ids for {len(bank)} tracks")
            bank._clock.restore(np.array(header["clock"], dtype=float))
            bank.ids = ids
            bank._next_id = int(header["next_id"])
            if header.get("channels") is not None:
                bank.channels = tuple(str(name) for name in header["channels"])
        except DAMAGE as error:
            raise damaged(path, error) from error
        return bank
