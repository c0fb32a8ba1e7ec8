"""Eight numbers at a time: the words of the compiler and those of arrays mean the same."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from kgmrf.kernels import lanes_compiled as fast
from kgmrf.kernels import lanes_plain as plain

pytestmark = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="needs the compiler")

WORDS = {
    "load and store": lambda k: lambda a, i, n: k.store(a, i, k.load(a, i + 9)),
    "load_first": lambda k: lambda a, i, n: k.store(a, i, k.load_first(a, i + 9, n)),
    "four_rows": lambda k: lambda a, i, n: k.store(a, i, k.four_rows(a, i, 9, 2, 80 + i)[3]),
    "four_rows of a transpose": lambda k: (
        lambda a, i, n: k.store(a, i, k.four_rows(a, i + 4, 1, 8, 80 + i)[0])
    ),
    "first": lambda k: lambda a, i, n: k.store(a, i, k.first(n, k.load(a, i), k.spread(2.0))),
    "flip": lambda k: lambda a, i, n: k.flip(a, i, 9, a, 100 + i, 10),
    "flip in place": lambda k: lambda a, i, n: k.flip(a, i, 11, a, i, 11),
    "add_flip": lambda k: lambda a, i, n: k.add_flip(a, i, 100 + i, 10, 0.5),
    "add_flip in place": lambda k: lambda a, i, n: k.add_flip(a, i, i, 8, -1.0),
    "above": lambda k: (
        lambda a, i, n: k.store(
            a, i, k.above(k.load(a, i), k.load(a, i + 8), k.load(a, i + 16), k.spread(3.0))
        )
    ),
    "root and div": lambda k: (
        lambda a, i, n: k.store(a, i, k.div(k.root(k.load(a, i) * k.load(a, i)), k.load(a, i + 8)))
    ),
    "fma": lambda k: (
        lambda a, i, n: k.store(
            a, i, k.fma(k.load(a, i), k.load(a, i + 8), k.load(a, 2) - k.load(a, 3))
        )
    ),
}
NUMBERS = {
    "total": lambda k: lambda a, i, n: k.total(k.load(a, i) + k.load(a, n)),
    "highest": lambda k: lambda a, i, n: k.highest(k.load(a, i)),
    "any_above": lambda k: lambda a, i, n: k.any_above(k.load(a, i), k.spread(a[n])),
}


def through_addresses(function):
    """The same through a bare address, two numbers further on."""
    bare, after = fast.bare, fast.after
    inner = numba.njit(function)
    return numba.njit(lambda a, i, n: inner(after(bare(a), 2), i, n))


@pytest.mark.parametrize("name", WORDS)
def test_words_change_arrays_alike(name):
    rng = np.random.default_rng(0)
    compiled, addressed = numba.njit(WORDS[name](fast)), through_addresses(WORDS[name](fast))
    for i, n in ((0, 8), (3, 5), (7, 1), (5, 0), (4, -3), (1, 20)):
        a = rng.standard_normal(240)
        b, c = a.copy(), a.copy()
        WORDS[name](plain)(a, i, n)
        compiled(b, i, n)
        np.testing.assert_allclose(b, a, rtol=1e-15, atol=1e-15)
        d = c.copy()
        WORDS[name](plain)(plain.after(plain.bare(c), 2), i, n)
        addressed(d, i, n)
        np.testing.assert_allclose(d, c, rtol=1e-15, atol=1e-15)


@pytest.mark.parametrize("name", NUMBERS)
def test_words_that_say_a_number_say_the_same(name):
    compiled = numba.njit(NUMBERS[name](fast))
    for seed in range(5):
        a = np.random.default_rng(seed).standard_normal(60)
        assert compiled(a, 4, seed) == pytest.approx(NUMBERS[name](plain)(a, 4, seed), abs=1e-15)


def test_numbers_beyond_the_first_are_not_touched():
    """At the end of an array a masked word reads and writes no further; NaN there stays alone."""
    a = np.full(16, np.nan)
    a[:3] = 1.0, 2.0, 3.0
    move = numba.njit(WORDS["load_first"](fast))
    b = np.concatenate([np.zeros(9), a])
    move(b, 0, 3)
    assert b[:8].tolist() == [1.0, 2.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0]
