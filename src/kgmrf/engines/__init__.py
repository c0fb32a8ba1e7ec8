"""Engines: the mathematics of one way to follow something, as functions over arrays of tracks.

An engine has three verbs. The state of a track is one row of float64 numbers; everything that is
remembered of the track is in its row, so a tracker is one row, a bank is n rows, and a stream is
rows by key. All of them give the same numbers.

    rows = engine.init(n)                   (n, size), tracks that have seen nothing
    engine.advance(rows, which, ...)        lines of observations, in order; rows change in place
    engine.ahead(rows, dt)                  records of the forecast; rows stay

Above an engine, trackers and banks only check, remember and show.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kgmrf._types import Numbers


class View(Mapping[str, Numbers]):
    """Named fields of records, each made by ``_make`` when it is asked for."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._made: dict[str, Numbers] = {}

    def _make(self, name: str) -> dict[str, Numbers]:
        """The field, and others that come with it."""
        raise NotImplementedError

    def __getitem__(self, name: str) -> Numbers:
        if name not in self._names:
            raise KeyError(name)
        if name not in self._made:
            self._made |= self._make(name)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
