"""Eight numbers at a time: a vector type for Numba, with a plain twin for when it is switched off.

Numba does not vectorise short loops over the columns of a small matrix; written with these words,
a 7 x 7 product takes about a tenth of the time. LLVM maps the eight lanes to whatever the
processor has (one 512-bit register, two of 256 bits, four of 128).

    load(a, i)            lanes a[i], ..., a[i + 7] of a contiguous array, unchecked
    load_first(a, i, n)   the first n of them, zero in the others, which are not read
    store(a, i, v)        the inverse of load
    flip(a, i, n, b, j, m)              the 8 x 8 block of a at i, rows n apart, transposed to b
                          at j, rows m apart
    add_flip(a, i, j, n, x)             x times a block, transposed, added to the one at j
    spread(x)             x in every lane
    fma(x, y, z)          x y + z, rounded once
    x + y, x - y, x * y   lane by lane;  div(x, y), root(x) likewise
    above(x, y, p, q)     p where x > y, else q
    first(n, p, q)        p in the first n lanes, else q
    any_above(x, y)       whether x > y in some lane
    total(x), highest(x)  the sum of the lanes, the largest of them
    fetch(a, i)           a[i] will be needed soon: bring it into the cache
    bare(a)               the numbers of a contiguous array in one dimension, without its shape
    after(a, n)           those from the n-th on
    four_rows(a, i, n, m, j)            four rows of A B: A begins at i, n leads to its next row and
                          m to its next column; B is the 8 x 8 block at j, without gaps
    dense_row(a, i, n, j, to, plus, x, d)
                          a row of x P + A B, whose d x d numbers are lanes each: the row of A
                          begins at i, n leads to its next column; B at j, the row of P at plus;
                          d must be written as a number
"""

from typing import TYPE_CHECKING

import numba

if TYPE_CHECKING or numba.config.DISABLE_JIT:
    from kgmrf.kernels.lanes_plain import *  # noqa: F403
else:
    from kgmrf.kernels.lanes_compiled import *  # noqa: F403
