"""The words of `kgmrf.kernels.lanes` for arrays, for when Numba is switched off.

Here an address beyond the end of an array is an error, as it is not in compiled code.
"""

from __future__ import annotations

from typing import Any

import numpy as np

LANES = 8


def load(a: Any, i: int) -> Any:
    """Lanes a[i] ... a[i + 7]."""
    return a[i : i + LANES].copy()


def load_first(a: Any, i: int, n: int) -> Any:
    """Lanes a[i] ... a[i + n - 1], then zeros."""
    lanes = np.zeros(LANES)
    n = max(0, min(n, LANES))
    lanes[:n] = a[i : i + n]
    return lanes


def store(a: Any, i: int, v: Any) -> None:
    """a[i] ... a[i + 7] = v."""
    a[i : i + LANES] = v


def _block(i: int, n: int) -> Any:
    return i + np.arange(LANES)[:, None] * n + np.arange(LANES)


def flip(a: Any, i: int, n: int, b: Any, j: int, m: int) -> None:
    """Block j of b = block i of a, transposed."""
    b[_block(j, m)] = a[_block(i, n)].T


def add_flip(a: Any, i: int, j: int, n: int, x: float) -> None:
    """Block j += x block i, transposed."""
    a[_block(j, n)] += x * a[_block(i, n)].T


def spread(x: float) -> Any:
    """``x`` in every lane."""
    return np.full(LANES, x)


def fma(x: Any, y: Any, z: Any) -> Any:
    """X y + z; lanes may be infinite or NaN."""
    with np.errstate(all="ignore"):
        return x * y + z


def div(x: Any, y: Any) -> Any:
    """X / y; lanes beyond the matrix may divide by zero."""
    with np.errstate(all="ignore"):
        return x / y


def root(x: Any) -> Any:
    """Square root; lanes beyond the matrix may be anything."""
    with np.errstate(all="ignore"):
        return np.sqrt(x)


def above(x: Any, y: Any, p: Any, q: Any) -> Any:
    """``p`` where x > y, else ``q``."""
    return np.where(x > y, p, q)


def first(n: int, p: Any, q: Any) -> Any:
    """``p`` in the first n lanes, else ``q``."""
    return np.where(np.arange(LANES) < n, p, q)


def any_above(x: Any, y: Any) -> bool:
    """Whether x > y in some lane."""
    return bool(np.any(x > y))


def total(x: Any) -> Any:
    """Sum of the lanes."""
    return np.sum(x)


def highest(x: Any) -> Any:
    """The largest lane."""
    return np.max(x)


def fetch(a: Any, i: int) -> None:
    """Nothing to be done."""


def bare(a: Any) -> Any:
    """All numbers in one dimension."""
    return a.reshape(-1)


def after(a: Any, n: int) -> Any:
    """All numbers from the n-th on."""
    return a[n:]


def four_rows(a: Any, i: int, down: int, along: int, j: int) -> Any:
    """Four rows of a product with the 8 x 8 block at j."""
    right = np.array([load(a, j + k * LANES) for k in range(LANES)])
    rows = [[a[i + r * down + k * along] for k in range(LANES)] for r in range(4)]
    return tuple(np.array(row) @ right for row in rows)


def dense_row(a: Any, i: int, n: int, j: int, to: int, plus: int, x: Any, d: int) -> None:
    """A row of a product of d x d matrices of lanes, plus x times another."""
    rows = [
        sum(load(a, i + k * n) * load(a, j + LANES * (k * d + c)) for k in range(d))
        for c in range(d)
    ]
    for c, row in enumerate(rows):
        store(a, to + LANES * c, x * load(a, plus + LANES * c) + row)
