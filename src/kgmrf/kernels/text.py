"""The compiled loops between numbers and text: many lines of one pattern at a time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kgmrf.kernels.compile import compiled

POWERS = 10.0 ** np.arange(23)
"""Powers of ten that are exact in double precision."""


@compiled("int64(uint8[::1], int64, uint8[::1], int64, int64)", fastmath=False)
def put(out: Any, at: int, words: Any, first: int, last: int) -> int:
    """Copy ``words[first:last]`` to ``out`` and return the place behind it."""
    for k in range(first, last):
        out[at] = words[k]
        at += 1
    return at


@compiled("float64(float64, int64, float64[::1])", fastmath=False)
def scaled(x: float, power: int, powers: Any) -> float:
    """x 10^power, rounded once for moderate powers."""
    while power > 22:
        x *= powers[22]
        power -= 22
    while power < -22:
        x /= powers[22]
        power += 22
    return x * powers[power] if power >= 0 else x / powers[-power]


@compiled("int64(uint8[::1], int64, float64, int64, float64[::1], uint8[::1])", fastmath=False)
def put_number(out: Any, at: int, x: float, digits: int, powers: Any, nothing: Any) -> int:
    """Write x to ``digits`` significant digits (at most 15), or ``nothing`` if it is not finite."""
    if not np.isfinite(x):
        return put(out, at, nothing, 0, nothing.size)
    if x < 0.0:
        out[at] = 45  # -
        at += 1
        x = -x
    if x == 0.0:
        out[at] = 48  # 0
        return at + 1
    # From the binary exponent, which is at most one too small.
    exponent = int(np.floor((math.frexp(x)[1] - 1) * 0.30102999566398120))
    if scaled(x, -1 - exponent, powers) >= 1.0:
        exponent += 1
    mantissa = int(np.rint(scaled(x, digits - 1 - exponent, powers)))
    top = int(powers[digits])
    # Just below a power of ten, rounding may reach it.
    if mantissa >= top:
        exponent += 1
        mantissa = int(np.rint(scaled(x, digits - 1 - exponent, powers)))
    elif mantissa < top // 10:
        exponent -= 1
        mantissa = min(int(np.rint(scaled(x, digits - 1 - exponent, powers))), top - 1)
    n = digits
    # Unsigned, and with a constant divisor, a division is a multiplication and a shift.
    rest, ten = np.uint64(mantissa), np.uint64(10)
    while n > 1:
        fewer = rest // ten
        if fewer * ten != rest:
            break
        rest = fewer
        n -= 1
    scientific = exponent < -5 or exponent >= 16
    point = 0 if scientific else exponent
    if point < 0:
        out[at] = 48
        out[at + 1] = 46  # .
        at += 2
        for _ in range(-point - 1):
            out[at] = 48
            at += 1
    # Digits from the last to the first; the point goes behind digit number `point`.
    width = max(n, point + 1)
    gap = 1 if 0 <= point < n - 1 else 0
    for k in range(n, width):
        out[at + k] = 48
    split = point if gap else n - 1
    for k in range(n - 1, split, -1):
        fewer = rest // ten
        out[at + k + 1] = 48 + (rest - fewer * ten)
        rest = fewer
    for k in range(split, -1, -1):
        fewer = rest // ten
        out[at + k] = 48 + (rest - fewer * ten)
        rest = fewer
    if gap:
        out[at + point + 1] = 46
    at += width + gap
    if scientific:
        out[at] = 101  # e
        at += 1
        if exponent < 0:
            out[at] = 45
            at += 1
            exponent = -exponent
        size = 100 if exponent >= 100 else 10 if exponent >= 10 else 1
        while size:
            out[at] = 48 + exponent // size % 10
            at += 1
            size //= 10
    return at


@compiled(
    "int64(uint8[::1], uint8[::1], int64[::1], float64[:, ::1], int64[::1], uint8[::1],"
    " int64[::1], int64, float64[::1], uint8[::1])",
    fastmath=False,
)
def put_lines(
    out: Any,
    heads: Any,
    head_ends: Any,
    values: Any,
    twins: Any,
    between: Any,
    between_ends: Any,
    digits: int,
    powers: Any,
    nothing: Any,
) -> int:
    """Line i is head i, then numbers and the words between them, in turn; returns the length.

    heads: the beginnings of all lines, joined, and where each ends. values: ``(lines, n)``. twins:
    for every number one before it that is the same, as in symmetric matrices, or itself.
    between: n + 1 words, joined, and where each ends: before, between and behind the numbers.
    """
    at, head = 0, 0
    begins, ends = np.empty(twins.size, np.int64), np.empty(twins.size, np.int64)
    for i in range(values.shape[0]):
        at = put(out, at, heads, head, head_ends[i])
        head = head_ends[i]
        word = 0
        for k in range(values.shape[1]):
            at = put(out, at, between, word, between_ends[k])
            word = between_ends[k]
            begins[k] = at
            if twins[k] < k:
                at = put(out, at, out, begins[twins[k]], ends[twins[k]])
            else:
                at = put_number(out, at, values[i, k], digits, powers, nothing)
            ends[k] = at
        at = put(out, at, between, word, between.size)
    return at


# --------------------------------------------------------------------------- lines in

KEY, TIME, CHANNELS, IGNORED = -2, -1, 0, -3
QUOTE, COMMA, NEWLINE = 34, 44, 10


@compiled("Tuple((float64, float64))(float64, float64)", fastmath=False)
def product(a: float, b: float) -> Any:
    """a b exactly, as the sum of two numbers (Dekker)."""
    p = a * b
    t = 134217729.0 * a
    ah = t - (t - a)
    t = 134217729.0 * b
    bh = t - (t - b)
    al, bl = a - ah, b - bh
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


@compiled("Tuple((float64, int64))(uint8[::1], int64, int64, float64[::1])", fastmath=False)
def take_number(text: Any, at: int, end: int, powers: Any) -> Any:
    """The JSON number at ``at`` and the place behind it; -1 if it is none, or not for here.

    Up to 19 digits with a power of ten up to 22 either way: mantissa and product are carried in
    twice the precision, so that the one rounding at the end gives the nearest number.
    """
    negative = at < end and text[at] == 45
    if negative:
        at += 1
    first = at
    mantissa, ten = np.uint64(0), np.uint64(10)
    digits, power = 0, 0
    while at < end and 48 <= text[at] <= 57:
        mantissa = mantissa * ten + np.uint64(text[at] - 48)
        if mantissa > 0:
            digits += 1
        at += 1
    if at == first or (text[first] == 48 and at - first > 1):
        return 0.0, -1
    if at < end and text[at] == 46:
        at += 1
        first = at
        while at < end and 48 <= text[at] <= 57:
            mantissa = mantissa * ten + np.uint64(text[at] - 48)
            if mantissa > 0:
                digits += 1
            at += 1
        power = first - at
        if at == first:
            return 0.0, -1
    if at < end and (text[at] == 101 or text[at] == 69):
        at += 1
        sign = 1
        if at < end and (text[at] == 43 or text[at] == 45):
            sign = 1 if text[at] == 43 else -1
            at += 1
        first = at
        exponent = 0
        while at < end and 48 <= text[at] <= 57 and exponent < 1000:
            exponent = exponent * 10 + (text[at] - 48)
            at += 1
        if at == first:
            return 0.0, -1
        power += sign * exponent
    if digits > 19 or power > 22 or power < -22:
        return 0.0, -1
    high = mantissa
    if mantissa >> np.uint64(53):
        # Only then: the rest has to be small beside it, or the sum is rounded twice.
        high = (mantissa >> np.uint64(11)) << np.uint64(11)
    top, low = np.float64(high), np.float64(mantissa - high)
    if power >= 0:
        value, rest = product(top, powers[power])
        value = value + (rest + low * powers[power])
    else:
        scale = powers[-power]
        value = top / scale
        back, rest = product(value, scale)
        value = value + (((top - back) - rest) + low) / scale
    if negative:
        value = -value
    return value, at


@compiled("int64(uint8[::1], int64, int64)", fastmath=False)
def skip_space(text: Any, at: int, end: int) -> int:
    """The next place that is neither a blank nor a tab nor a carriage return."""
    while at < end and (text[at] == 32 or text[at] == 9 or text[at] == 13):
        at += 1
    return at


@compiled("int64(uint8[::1], int64, int64, uint8)", fastmath=False)
def skip_mark(text: Any, at: int, end: int, mark: int) -> int:
    """The place behind a mark and the space about it; -1 if it is not there."""
    at = skip_space(text, at, end)
    if at >= end or text[at] != mark:
        return -1
    return skip_space(text, at + 1, end)


@compiled("int64(uint8[::1], int64, int64)", fastmath=False)
def skip_word(text: Any, at: int, end: int) -> int:
    """The place of the quote that ends a plain word: no escapes, no control characters, ASCII."""
    while at < end and text[at] != QUOTE:
        if text[at] == 92 or text[at] < 32 or text[at] > 126:
            return -1
        at += 1
    return at if at < end else -1


@compiled(
    "int64(uint8[::1], int64[::1], uint8[::1], int64[::1], float64[::1], int64[:, ::1],"
    " float64[::1], float64[:, ::1])",
    fastmath=False,
)
def take_json(
    text: Any,
    order: Any,
    names: Any,
    name_ends: Any,
    powers: Any,
    keys: Any,
    times: Any,
    values: Any,
) -> int:
    """Lines that are all ``{"key": "...", "time": ..., "x": [...]}`` in one order of the fields.

    order: KEY, TIME or CHANNELS for each field; names: their names, joined, and where each ends.
    Writes begin and end of every key, the times and the values. Returns how many lines were read
    before one that is different.
    """
    at = 0
    for line in range(times.size):
        end = at
        while end < text.size and text[end] != NEWLINE:
            end += 1
        at = skip_mark(text, at, end, 123)
        word = 0
        for k in range(order.size):
            if at < 0:
                return line
            if k:
                at = skip_mark(text, at, end, COMMA)
            if at < 0 or at >= end or text[at] != QUOTE:
                return line
            at += 1
            for i in range(word, name_ends[k]):
                if at >= end or text[at] != names[i]:
                    return line
                at += 1
            word = name_ends[k]
            if at >= end or text[at] != QUOTE:
                return line
            at = skip_mark(text, at + 1, end, 58)
            if at < 0:
                return line
            if order[k] == KEY:
                if at >= end or text[at] != QUOTE:
                    return line
                begin = at + 1
                at = skip_word(text, begin, end)
                if at < 0:
                    return line
                keys[line, 0], keys[line, 1] = begin, at
                at += 1
            elif order[k] == TIME:
                number, at = take_number(text, at, end, powers)
                times[line] = number
            else:
                at = skip_mark(text, at, end, 91)
                for j in range(values.shape[1]):
                    if at >= 0 and j:
                        at = skip_mark(text, at, end, COMMA)
                    if at < 0:
                        return line
                    number, at = take_number(text, at, end, powers)
                    if at < 0:
                        return line
                    values[line, j] = number
                at = skip_mark(text, at, end, 93)
        if at < 0 or skip_mark(text, at, end, 125) != end:
            return line
        at = end + 1
    return len(times)


@compiled(
    "int64(uint8[::1], int64[::1], float64[::1], int64[:, ::1], float64[::1], float64[:, ::1])",
    fastmath=False,
)
def take_csv(text: Any, columns: Any, powers: Any, keys: Any, times: Any, values: Any) -> int:
    """Rows of plain numbers and one plain key; columns: KEY, TIME, IGNORED or number of a channel.

    Returns how many rows were read before one that is different, such as one with an empty cell.
    """
    at = 0
    for line in range(times.size):
        end = at
        while end < text.size and text[end] != NEWLINE:
            end += 1
        for k in range(columns.size):
            if k:
                if at >= end or text[at] != COMMA:
                    return line
                at += 1
            role = columns[k]
            if role in (KEY, IGNORED):
                begin = at
                while at < end and text[at] != COMMA and text[at] != 13:
                    if text[at] == QUOTE or text[at] < 32 or text[at] > 126:
                        return line
                    at += 1
                if role == KEY:
                    keys[line, 0], keys[line, 1] = begin, at
            else:
                number, at = take_number(text, at, end, powers)
                if at < 0:
                    return line
                if role == TIME:
                    times[line] = number
                else:
                    values[line, role] = number
        if skip_space(text, at, end) != end:
            return line
        at = end + 1
    return len(times)
