"""A bank whose tracks have keys, fed with tables: pandas, polars, pyarrow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kgmrf import _check, _npz
from kgmrf._align import OnOverlap, places_of, taken
from kgmrf._check import ObservationError
from kgmrf._extras import optional
from kgmrf._names import as_columns, clocks_among, nanoseconds_of
from kgmrf._threads import OneAtATime
from kgmrf._time import FIRST, Clock, stamps
from kgmrf._types import Mask, Numbers

KEYED = ("keys", "key_text", "key_ends", "stamps")
"""What a file holds of the keys: whole numbers, or words; and the time of each track's last row."""


class Keyed(OneAtATime):
    """The part of a `TrackerBank` that knows its tracks by keys."""

    kind: str
    d: int
    ids: Numbers
    channels: tuple[str, ...] | None
    _clock: Clock
    _fresh: Mask
    _missing: set[str]
    _known: dict[Any, int] | None = None  # the track of each key, in order
    _stamps: Numbers = np.zeros(0)  # of the last row of each track
    add: Any
    feed: Any
    _keep: Any

    @property
    def keys(self) -> list[Any]:
        """The key of every track, in order; [] without keys."""
        return list(self._known or ())

    def feed_table(
        self,
        table: Any,
        *,
        key: str,
        time: str | None = None,
        fields: str | Sequence[str] = ("covariance",),
        on_overlap: OnOverlap = "raise",
    ) -> Any:
        """S_t of each row's track after it; rows of all tracks in one table, of any narwhals kind.

        table: a column with the key of the track (words or whole numbers), one with the time, and
        the channels, which hold numbers; null and NaN: not observed. Channels go by name.
        time: the column of times or dates; default the one that is called time, date or the like;
        without any, rows are one unit apart. Other columns of such names are left out. Rows of a
        track must be in order of time; tracks may come in any order.
        fields: which of `kgmrf.results.FIELDS` to give back.
        on_overlap: rows that are not later than the last one of their track: "raise", "skip", or
        "use" as more observations of the same moment.

        New keys become new tracks; start with ``TrackerBank(0, d)``. A table of the same kind comes
        back, with a row for each that was taken in: key, time, and the fields as columns. The unit
        of time is ``time_unit``, or the median of the first eight intervals of the first table.

        >>> import pandas as pd
        >>> from kgmrf import TrackerBank
        >>> rows = pd.DataFrame({"sensor": ["a", "b", "a"], "t": [0, 0, 1], "x": [1.0, 2.0, 3.0]})
        >>> bank = TrackerBank(0, 1)
        >>> found = bank.feed_table(rows, key="sensor", fields=["age", "covariance"])
        >>> list(found.columns), bank.keys
        (['sensor', 't', 'age', 'covariance_x_x'], ['a', 'b'])
        """
        if self.kind == "rotation":
            raise ObservationError("tables hold samples; this bank follows rotations")
        self._known = {} if self._known is None else self._known
        if len(self._known) != len(self.ids):
            raise ValueError(
                f"{len(self.ids) - len(self._known)} tracks of this bank have no key; start with "
                f"TrackerBank(0, {self.d})"
            )
        _check.choice(on_overlap, ("raise", "skip", "use"), "on_overlap")
        frame, clock, rows, names = self._columns(table, key, time)
        words = _keys_of(frame[key].to_numpy(), key, self._known)
        times = None if clock is None else _times_of(frame[clock].to_numpy(), clock)
        before, unit = len(self._known), self._clock
        tracks = self._tracks_of(words)
        try:
            kept, steps, last = self._steps(tracks, times, words, on_overlap)
            self._learn(steps)
            found = self.feed(tracks[kept], rows[kept], dt=steps, fields=fields)
        except ValueError:
            self._keep(np.arange(before))  # an error changes nothing
            self._clock = unit
            raise
        self._stamps[tracks[kept]] = last
        self.channels = names
        columns = {key: frame[key].to_numpy()[kept]}
        if clock is not None:
            columns[clock] = frame[clock].to_numpy()[kept]
        return self._as_table(frame, columns | as_columns(found, 1, names))

    # ------------------------------------------------------------------ what is in a table

    def _columns(
        self, table: Any, key: str, time: str | None
    ) -> tuple[Any, str | None, Numbers, tuple[str, ...]]:
        """The table as narwhals sees it, the column of times, the samples ``(n, d)`` in the order
        of the channels, and the channels."""
        with optional():
            import narwhals as nw

        try:
            frame = nw.from_native(table, eager_only=True)
        except TypeError:
            raise TypeError(
                f"feed_table takes a table of pandas, polars, pyarrow or the like, got "
                f"{type(table).__name__}; for arrays use update or take"
            ) from None
        names = list(frame.columns)
        for name in filter(None, (key, time)):
            if name not in names:
                shown = ", ".join(map(str, names[:12]))
                raise ObservationError(f"the table has no column {name!r}; it has {shown}")
        clocks = [names[k] for k in clocks_among([str(name) for name in names]) if names[k] != key]
        clock = time or (clocks[0] if clocks else None)
        if clock is not None and nanoseconds_of(names, clock) is not None:
            raise ObservationError(f"the time {clock!r} is in two columns: make one of them")
        used = [name for name in names if name not in (key, clock, *clocks)]
        for name in used:
            if not frame.schema[name].is_numeric():
                raise ObservationError(
                    f"the column {name!r} holds {frame.schema[name]}, not numbers; drop it, or "
                    "name it with key= or time="
                )
        places = places_of([str(name) for name in used], self.channels, self._missing)
        known = self.channels or tuple(str(name) for name in used)
        if len(known) != self.d:
            raise ObservationError(
                f"the table has {len(known)} channels, {', '.join(known[:8])}; this bank has "
                f"d = {self.d}"
            )
        rows = frame.select(nw.col(used).cast(nw.Float64)).to_numpy().astype(float)
        return frame, clock, taken(rows, places), known

    def _as_table(self, frame: Any, columns: dict[str, Any]) -> Any:
        import narwhals as nw

        return nw.from_dict(columns, backend=frame.implementation).to_native()

    # ------------------------------------------------------------------ tracks

    def _tracks_of(self, words: list[Any]) -> Numbers:
        """The track of every key; unknown keys become new tracks."""
        known = self._known if self._known is not None else {}
        for word in words:
            known.setdefault(word, len(known))
        new = len(known) - len(self.ids)
        if new:
            self.add(new)
            self._stamps = np.concatenate([self._stamps, np.full(new, np.nan)])
        return np.fromiter(map(known.__getitem__, words), dtype=np.int64, count=len(words))

    def _steps(
        self, tracks: Numbers, times: Numbers | None, words: list[Any], on_overlap: str
    ) -> tuple[Numbers, Numbers, Numbers]:
        """Which rows are used, the time since the row before of the track, and their stamps."""
        order = np.argsort(tracks, kind="stable")
        which = tracks[order]
        follows: Mask = np.asarray(np.diff(which, prepend=-1) == 0)
        if times is None:  # a unit apart
            times = np.where(np.isnan(self._stamps[tracks]), 0.0, self._stamps[tracks] + 1.0)
            first = np.maximum.accumulate(np.where(follows, 0, np.arange(len(order))))
            times[order] += np.arange(len(order)) - first
        seen = times[order]
        before = np.where(follows, np.roll(seen, 1), self._stamps[which])
        late = seen < before if on_overlap == "use" else seen <= before
        kept = np.arange(len(order))
        if late.any():
            worst = int(np.flatnonzero(late)[np.argmin(order[late])])
            if on_overlap != "skip":
                row = int(order[worst])
                raise ObservationError(
                    f"row {row}, key {words[row]!r}, time {seen[worst]:.15g}: not later than the "
                    f"row before of its track, {before[worst]:.15g}. Sort the table by time, or "
                    'leave such rows out with on_overlap="skip"'
                )
            kept, before = _increasing(which, seen, self._stamps)
        steps = np.where(np.isnan(before), 0.0, seen[kept] - before)
        back = np.argsort(order[kept])  # as the rows came
        return order[kept][back], steps[back], seen[kept][back]

    def _learn(self, steps: Numbers) -> None:
        """The unit of time: the usual one of the first intervals."""
        usual = steps[steps > 0.0][:FIRST]
        if usual.size and not self._clock.frozen and self._fresh.all():
            self._clock = Clock(float(np.median(usual)))
        elif usual.size and not self._clock.frozen:
            self._clock = self._clock.copy()
            self._clock.count(np.array([np.median(usual)]), at_once=True)

    # ------------------------------------------------------------------ files

    def _keep_keys(self, which: Numbers | None) -> None:
        """Of these tracks alone, by position; None: of none."""
        if self._known is None:
            return
        words = list(self._known)
        self._known = None if which is None else {words[k]: i for i, k in enumerate(which)}
        self._stamps = np.zeros(0) if which is None else self._stamps[which]

    def _keys_to_save(self) -> dict[str, Numbers]:
        words = self.keys
        if not words:
            return {}
        found = {"stamps": self._stamps}
        if isinstance(words[0], int):
            return found | {"keys": np.array(words, dtype=np.int64)}
        text, ends = _npz.packed_words(words)
        return found | {"key_text": text, "key_ends": ends}

    def _keys_from(self, found: dict[str, Numbers]) -> None:
        """Take over what `_keys_to_save` gave; ValueError if it cannot be that."""
        if not found:
            return
        if "keys" in found:
            words: list[Any] = found["keys"].tolist()
        else:
            words = _npz.unpacked_words(found["key_text"], found["key_ends"])
        known = {word: k for k, word in enumerate(words)}
        known_times = found["stamps"]
        n = len(self.ids)
        if len(known) != n or known_times.shape != (n,) or known_times.dtype != np.float64:
            raise ValueError(f"its keys are not those of {n} tracks")
        self._known, self._stamps = known, known_times


def _keys_of(column: Numbers, name: str, known: dict[Any, int]) -> list[Any]:
    """Keys as words, or as whole numbers."""
    words = column.tolist()
    kinds = {type(word) for word in (*words, *list(known)[:1])}
    if kinds and kinds not in ({str}, {int}):
        bad = next((k for k, word in enumerate(words) if type(word) not in (str, int)), None)
        what = "words and numbers; 1 and '1' look the same"
        if bad is not None:
            what = f"{words[bad]!r} in row {bad}"
        raise ObservationError(
            f"the key {name!r} must be all words or all whole numbers, not {what}"
        )
    return words


def _times_of(column: Numbers, name: str) -> Numbers:
    """Stamps as numbers, dates in seconds."""
    try:
        found = np.asarray(stamps(column), dtype=float)
    except (TypeError, ValueError) as error:
        raise ObservationError(f"the time {name!r} holds neither numbers nor dates") from error
    if not np.isfinite(found).all():
        row = int(np.argmin(np.isfinite(found)))
        raise ObservationError(f"row {row} has no time: {name!r} is {column[row]!r}")
    return found


def _increasing(which: Numbers, seen: Numbers, last: Numbers) -> tuple[Numbers, Numbers]:
    """Of rows by track those that are later than all before of their track, and the time of the one
    that was used before each."""
    now: dict[int, float] = {}
    kept, before = [], []
    for k, (track, time) in enumerate(zip(which.tolist(), seen.tolist(), strict=True)):
        then = now.get(track, float(last[track]))
        if not time <= then:  # also the first, after NaN
            kept.append(k)
            before.append(then)
            now[track] = time
    return np.array(kept, dtype=np.int64), np.array(before)
