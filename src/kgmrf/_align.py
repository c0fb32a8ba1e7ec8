"""Names are a contract: what comes next is put in the order of the channels that are known.

Also rows: what was taken in before is refused, or left out.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from kgmrf._check import ObservationError, choice
from kgmrf._names import Named
from kgmrf._types import Mask, Numbers

OnOverlap: TypeAlias = Literal["raise", "skip", "use"]


class NothingNewError(ObservationError):
    """All rows were taken in before and are skipped."""


def places_of(names: Sequence[str], known: Sequence[str] | None, warned: set[str]) -> list[int]:
    """The place of each known channel among ``names``, -1 for one that is missing.

    Unknown and repeated names raise. Missing channels are gaps: a warning says so once, and they
    are put into ``warned``.

    >>> places_of(["b", "a"], ("a", "b"), set())
    [1, 0]
    """
    names = list(names)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ObservationError(f"the channel {twice!r} occurs twice; rename or drop one of them")
    if known is None:
        return list(range(len(names)))
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ObservationError(
            f"unknown channels {_listed(unknown)}; {_listed(known)} are followed here. Rename or "
            "drop columns, give an array to go by position, or start a new tracker"
        )
    missing = [name for name in known if name not in names]
    if warned.isdisjoint(missing) and missing:
        warnings.warn(
            f"the channels {_listed(missing)} are missing from now on and count as not observed",
            stacklevel=2,
        )
    warned.update(missing)
    return [names.index(name) if name in names else -1 for name in known]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:8])) + (", ..." if len(names) > 8 else "")


def taken(values: Any, places: Sequence[int]) -> Numbers:
    """The last axis of ``values`` in the order of ``places``, NaN for -1."""
    array = np.asarray(values)
    if list(places) == list(range(array.shape[-1])):
        return array
    found = array.astype(float)[..., list(places)]
    found[..., [place < 0 for place in places]] = np.nan
    return found


def aligned(found: Named, known: Sequence[str] | None, warned: set[str]) -> Named:
    """Named samples with the known channels, in their order; unnamed ones as they are."""
    if found.channels is None:
        return found
    places = places_of(found.channels, known, warned)
    values = taken(found.values, places)
    return found._replace(values=values, channels=tuple(known or found.channels))


def new_rows(stamps: Numbers | None, until: float | None, on_overlap: str) -> Mask | None:
    """Which rows are later than all before, or None for all of them.

    stamps: of the rows, or None. until: that of the last row that was taken in before.
    """
    choice(on_overlap, ("raise", "skip", "use"), "on_overlap")
    if stamps is None or on_overlap == "use" or not len(stamps):
        return None
    whole = stamps.dtype.kind == "i"
    least = np.iinfo(np.int64).min if whole else -np.inf
    known = stamps != least if whole else ~np.isnan(stamps)  # a row may lack its date
    same = until is not None and isinstance(until, int) == whole
    start = stamps.dtype.type(until) if same and until is not None else least
    times = np.where(known, stamps, least)
    before = np.maximum.accumulate(np.append(start, times[:-1]))
    later = np.asarray(~known | (times > before))
    if later.all():
        return None
    if not later.any() and on_overlap == "skip":
        raise NothingNewError(f"all {len(stamps)} rows were taken in before; until {shown(start)}")
    if on_overlap == "skip":
        return later
    k = int(np.argmin(later))
    which = "was taken in before" if stamps[k] <= start else "is not later than the row before it"
    raise ObservationError(
        f"row {k} of {len(stamps)}, at {shown(stamps[k])}, {which}: {int((~later).sum())} rows "
        'overlap. Leave them out with filter(..., on_overlap="skip"), or take them in again with '
        '"use"; for another recording start a new tracker, or give times= that go on'
    )


def shown(stamp: Any) -> str:
    """A stamp in words."""
    if isinstance(stamp, np.integer):
        return str(stamp.astype("datetime64[ns]")).removesuffix(".000000000")
    return f"{stamp:.15g}"
