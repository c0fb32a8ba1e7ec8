"""Arrays with the tracks first that grow without a second copy of themselves."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgmrf._types import Numbers

SHARE = 32
"""Room grows by a part of this: little of it stays empty, and adding tracks one by one stays
cheap."""


def more_room(room: int, needed: int) -> int:
    """By how much room that is too small grows.

    >>> more_room(0, 1), more_room(32_000, 1), more_room(32_000, 5_000)
    (16, 1000, 5000)
    """
    return max(needed, room // SHARE, 16)


def extend(owner: dict[str, Any], name: str, n: int, blank: Numbers) -> None:
    """Put ``n`` rows that are all ``blank`` behind the array ``owner[name]``.

    Large arrays are remapped by the system's page table, and not copied, unless somebody else looks
    at them.

    >>> arrays = {"a": np.zeros((2, 3))}
    >>> extend(arrays, "a", 2, np.ones(3))
    >>> arrays["a"][:, 0].tolist()
    [0.0, 0.0, 1.0, 1.0]
    """
    array = owner.pop(name)  # numpy resizes only what has one owner
    first, shape = len(array), (len(array) + n, *array.shape[1:])
    try:
        try:
            array.resize(shape)
        except ValueError:  # it is a view, or somebody has a view of it
            old, array = array, np.empty(shape, array.dtype)
            array[:first] = old
        array[first:] = blank
    finally:
        owner[name] = array
