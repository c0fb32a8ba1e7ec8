"""What the columns of a table mean: time, samples, entries of matrices, quaternions."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import pairwise, product
from math import isqrt

import numpy as np
from scipy.spatial.transform import Rotation

from kgmrf._names import clocks_among, is_nanoseconds, nanoseconds_of
from kgmrf._types import Numbers
from kgmrf.io import dates
from kgmrf.io.dates import number
from kgmrf.io.source import MOST_CHANNELS, DataError, Kind, Meaning

_NUMBERED = re.compile(r"\d+_\d+")
QUATERNION = ("qx", "qy", "qz", "qw")
_QUATERNION_NAME = re.compile(
    r"(?:.*[._])?(?:q|quat|quaternion|orientation)(?:[._]\w+)*?[._]?[xyzw]"
)
_POSITION_NAME = re.compile(
    r"(?:.*[._])?(?:t|p|pos|position|translation)(?:[._]\w+)*?[._]?[xyz]|[xyz]"
)
_UNIT = re.compile(r"\s*\[[^\]]*\]$")
_INDEX_NAMES = ("", "unnamed: 0")
"""How text calls a first column that is the index of a data frame."""
_STORED_INDEX = "__index_level_0__"
"""How Parquet calls it, wherever it stands."""
TUM = ("time", "tx", "ty", "tz", *QUATERNION)


def tidy(cells: Sequence[str]) -> tuple[list[str], int | None]:
    """Names of columns without marks of comments and units, and the number of an index column.

    >>> tidy(["#timestamp [ns]", "q_RS_w []"]), tidy(["", "a"])
    ((['timestamp', 'q_RS_w'], None), (['index', 'a'], 0))
    """
    names = [cell.strip() for cell in cells]
    names[0] = names[0].lstrip("#% ") if names[0].strip("#% ") else ""
    bare = [_UNIT.sub("", name) or name for name in names]
    names = bare if len(set(bare)) == len(set(names)) else names
    index = 0 if len(names) > 1 and names[0].lower() in _INDEX_NAMES else None
    if _STORED_INDEX in names:
        index = names.index(_STORED_INDEX)
    if index is not None:
        free = (word for word in ("index", "the index") if word not in names)
        names[index] = next(free, "")
    return [name or f"column {k + 1}" for k, name in enumerate(names)], index


def quaternion_of(names: Sequence[str]) -> list[tuple[int, ...]]:
    """Quaternions among columns: the places of x, y, z, w of each."""
    return axes_of(names, _QUATERNION_NAME, "xyzw")


def axes_of(names: Sequence[str], pattern: re.Pattern[str], axes: str) -> list[tuple[int, ...]]:
    """Columns that differ in the axis alone, which is their last letter, by the places of all."""
    lower = [_UNIT.sub("", name.strip()).lower() for name in names]
    stems = dict.fromkeys(name[:-1] for name in lower if pattern.fullmatch(name))
    return [
        tuple(lower.index(stem + axis) for axis in axes)
        for stem in stems
        if all(stem + axis in lower for axis in axes)
    ]


def infer_columns(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    where: str,
    *,
    named: bool = True,
    index: int | None = None,
    comma: bool = False,
    head: str = "",
    kind: Kind | None = None,
    time: str | None = None,
    columns: Sequence[str] | None = None,
) -> Meaning:
    """What a table holds, by its header and its first rows.

    where: the file, for messages. named: whether the header is from the file, or just numbers
    because it has none. index: number of a first column without a name, which is the time if its
    values grow. comma: whether numbers have a decimal comma. head: the text above the rows. kind,
    time, columns: what the user says.

    >>> infer_columns(["time", "a", "b"], [["0", "1", "2"]], "file.csv").used
    (1, 2)
    """
    twice = {name for name in header if header.count(name) > 1}
    if twice:
        raise DataError(f"{where}: the column {sorted(twice)[0]!r} occurs twice")
    clocks = clocks_among(header) if named else []
    clock = clocks[0] if clocks else None
    if time is not None:
        clock = _find(header, time, where)
    rest = nanoseconds_of(header, header[clock]) if named and clock is not None else None
    chosen = None if columns is None else [_find(header, name, where) for name in columns]
    remarks: list[str] = []
    what = "the first column" if index == 0 else "the index"
    if index is not None and clock is None and index not in (chosen or ()):
        if _grow([row[index] for row in rows]):
            clock = index
            remarks.append(f"{what} has no name and its values grow: taken as the time")
        elif chosen is None:
            raise DataError(
                f"{where}: {what} has no name, and its values do not grow as a time does; "
                "choose the channels with --columns, or a clock with --time"
            )
    dated = [k for k, cell in enumerate(rows[0] if rows else ()) if dates.seconds(cell) is not None]
    if clock is None and dated and dated[0] not in (chosen or ()):
        clock = dated[0]
        remarks.append(f"the column {header[clock]!r} holds dates: taken as the time")
    if index is not None and chosen is None and index != clock:
        remarks.append(f"{what} has no name: left out, as there is another time")
    if chosen is None:
        truth = {k for k, name in enumerate(header) if named and name.startswith("truth_")}
        others = {k for k in clocks if k != clock}
        remarks += [f"the column {header[k]!r} is another time: left out" for k in sorted(others)]
        others |= {k for k, name in enumerate(header) if named and is_nanoseconds(name)}
        chosen = [k for k in range(len(header)) if k not in {clock, index, rest, *truth, *others}]
    said = _values(header, kind, chosen, where)
    stamps = [] if clock is None else [row[clock] for row in rows]
    by_day = clock is not None and dates.are_days(header[clock], stamps)
    style = "D" if by_day else ""
    if stamps and dates.seconds(stamps[0]) is not None:
        style = dates.style(stamps)
    second = 1.0 if style or rest is not None else None
    if second is None and stamps:
        second = dates.per_second(head, number(stamps[0], comma) or 0.0)
    count = None
    if said.kind == "covariance" and "n_samples" in header and rows:
        count = number(rows[0][header.index("n_samples")], comma) or math.nan
        count = count if 0 < count < math.inf else None
    return said._replace(
        columns=tuple(header[k] for k in said.used),
        time=clock,
        rest=rest,
        by_day=by_day,
        remarks=tuple(remarks),
        dates=style,
        per_second=second,
        n_samples=count,
    )


def _grow(cells: list[str]) -> bool:
    """Whether these could be times: numbers or dates, each later than the one before."""
    found = [dates.seconds(cell) if (n := number(cell)) is None else n for cell in cells]
    times = [math.nan if stamp is None else stamp for stamp in found]
    return bool(times) and math.isfinite(times[0]) and all(a < b for a, b in pairwise(times))


def _values(header: Sequence[str], kind: Kind | None, wanted: list[int], where: str) -> Meaning:
    """What these columns beside the time are."""
    matrix_kinds: tuple[Kind, ...] = ("covariance", "rotation")
    for word in matrix_kinds:
        start = f"{word}_"
        places = {header[k].removeprefix(start): k for k in wanted if header[k].startswith(start)}
        if kind in (None, word) and (names := _labels(list(places), where)):
            return _matrix(word, names, places, where)
    turns = quaternion_of([header[k] for k in wanted]) if kind in (None, "rotation") else []
    if len(turns) > 1:
        first, second = (header[wanted[turn[0]]] for turn in turns[:2])
        raise DataError(
            f"{where} has quaternions {first!r}... and {second!r}...; choose one with --columns"
        )
    if turns:
        found = axes_of([header[k] for k in wanted], _POSITION_NAME, "xyz")
        place = found[0] if len(found) == 1 else ()
        used = tuple(wanted[k] for k in (*turns[0], *place))
        return Meaning("rotation", ("x", "y", "z"), used, quaternions, positions=bool(place))
    if not wanted:
        raise DataError(f"{where} has no column of values beside the time")
    if kind in (None, "samples"):
        _check_width(len(wanted), where)
        return Meaning("samples", tuple(header[k] for k in wanted), tuple(wanted))
    return _unnamed(kind, wanted, where)


def _labels(entries: list[str], where: str) -> tuple[str, ...]:
    """Names of channels in entries of a matrix, 0_1 or a_b: numbers, or those of its diagonal."""
    numbers = [int(n) for name in entries if _NUMBERED.fullmatch(name) for n in name.split("_")]
    if numbers:
        _check_width(1 + max(numbers), where)
        return tuple(map(str, range(1 + max(numbers))))
    halves = [(name[: len(name) // 2], name) for name in entries]
    return tuple(a for a, name in halves if a and name == f"{a}_{a}")


def _find(header: Sequence[str], name: str, where: str) -> int:
    if name in header:
        return header.index(name)
    if _UNIT.sub("", name) in header:
        return header.index(_UNIT.sub("", name))
    shown = ", ".join(header[:12]) + (", ..." if len(header) > 12 else "")
    raise DataError(f"{where} has no column {name!r}; it has {shown}")


def _check_width(d: int, where: str) -> None:
    if d > MOST_CHANNELS:
        raise DataError(f"{where} has d = {d}; the limit is {MOST_CHANNELS} channels")


def _matrix(kind: Kind, names: tuple[str, ...], places: dict[str, int], where: str) -> Meaning:
    """Matrices whose entries a_b stand in these columns; of a covariance a triangle is enough."""
    d = len(names)
    order = []
    for a, b in product(names, names):
        entry = f"{a}_{b}" if f"{a}_{b}" in places or kind == "rotation" else f"{b}_{a}"
        if entry not in places:
            raise DataError(f"{where} has no column {kind}_{a}_{b}, but entries up to d = {d}")
        order.append(places[entry])
    used = tuple(sorted(set(order)))
    pick = np.asarray([used.index(k) for k in order])
    return Meaning(kind, names, used, lambda rows: rows[:, pick].reshape(-1, d, d))


def _unnamed(kind: Kind, wanted: list[int], where: str) -> Meaning:
    """Matrices in columns without names: row by row, or the upper triangle row by row."""
    n = len(wanted)
    if kind == "rotation" and n == 4:
        return Meaning("rotation", ("x", "y", "z"), tuple(wanted), quaternions)
    d, half = isqrt(n), (isqrt(8 * n + 1) - 1) // 2
    if d * d == n:
        cells = [f"{i}_{j}" for i in range(d) for j in range(d)]
    elif kind == "covariance" and half * (half + 1) == 2 * n:
        cells = [f"{i}_{j}" for i in range(half) for j in range(i, half)]
    else:
        also = " or 4 (a quaternion x y z w)" if kind == "rotation" else " or d (d + 1) / 2"
        raise DataError(f"{where} has {n} columns of values; a {kind} takes d d{also}")
    return _matrix(kind, _labels(cells, where), dict(zip(cells, wanted, strict=True)), where)


def quaternions(rows: Numbers) -> Numbers:
    """Rotation matrices ``(n, 3, 3)`` of quaternions ``(n, 4)`` in the order x, y, z, w.

    Further columns are ignored. Any length but zero will do; zero gives infinities, which readers
    refuse, and NaN gives NaN.

    >>> quaternions(np.asarray([[0.0, 0.0, 1.0, 1.0]])).round(3)[0].tolist()
    [[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    """
    rows = rows[:, :4]
    size = np.abs(rows).max(axis=-1, keepdims=True)
    there = size > 0.0
    # Divided by the largest number first: the squares of 1e-200 are 0, those of 1e200 infinite.
    safe = np.where(there, rows, 1.0) / np.where(there, size, 1.0)
    matrix = Rotation.from_quat(safe).as_matrix()
    matrix[~there[:, 0]] = np.nan
    matrix[size[:, 0] == 0.0] = np.inf
    return matrix
