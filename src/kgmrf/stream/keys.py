"""Keys of many lines as few words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kgmrf._types import Numbers


class Coded:
    """Keys as ``words`` and the place among them of each line, as columns of tables hold them.

    >>> keys = Coded(["a", "b"], np.array([0, 1, 0]))
    >>> len(keys), list(keys[1:])
    (3, ['b', 'a'])
    """

    def __init__(self, words: list[str], codes: Numbers) -> None:
        self.words, self.codes = words, codes

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, which: Any) -> Any:
        if isinstance(which, (int, np.integer)):
            return self.words[self.codes[which]]
        return Coded(self.words, self.codes[which])

    def __iter__(self) -> Iterator[str]:
        return map(self.words.__getitem__, self.codes.tolist())


def distinct(keys: Any) -> tuple[list[str], Numbers | None]:
    """The words that occur, and for each line its place among them (None: a line for each word,
    keys that are a list)."""
    if not isinstance(keys, Coded):
        return keys, None
    there = np.zeros(len(keys.words), dtype=bool)
    there[keys.codes] = True
    if there.all():
        return keys.words, keys.codes
    places = np.cumsum(there) - 1
    return [keys.words[k] for k in np.flatnonzero(there).tolist()], places[keys.codes]
