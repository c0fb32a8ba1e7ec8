"""CSV rows of a stream, read a block at a time."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from kgmrf._align import taken
from kgmrf._names import is_clock, is_nanoseconds, is_stamp, nanoseconds_of
from kgmrf.io import dates
from kgmrf.io.columns import axes_of, quaternion_of, tidy
from kgmrf.io.dates import number
from kgmrf.io.rates import _RATE_NAME
from kgmrf.io.text import plain_table
from kgmrf.stream import records as rec
from kgmrf.stream.records import Reader
from kgmrf.stream.settings import LineError


class CsvReader(Reader):
    """A header, then rows: key and time by name, all other columns are channels.

    A first column without a name is the time, if no other is. Columns qx, qy, qz, qw are a
    quaternion instead, and w_x, w_y, w_z beside them a measured rate. Empty cells were not seen. A
    later header, as after a restart, may have the columns in another order.
    """

    named = False
    lasting: tuple[str, ...] = ("header", "style", "channels", "rated")

    def __init__(
        self,
        header: Sequence[str] | None = None,
        channels: tuple[str, ...] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.channels = channels or self.channels
        self.header: list[str] = []
        self.rate_at: tuple[int, ...] = ()
        if header is not None:
            self._take_names(list(header), 0)

    def _learn(self, header: list[str], row: int) -> None:
        """Take a line for the header."""
        names = [str(name).strip() for name in header]
        numbers = sum(type(_plain_cell(name)) is float for name in names)
        plain = any(name.lower() == "key" or is_clock(name) for name in names)
        if numbers == len(names) or (
            not plain and not any(self.requested) and 2 * numbers > len(names)
        ):
            raise LineError(
                row, "is data, not a header; the first line names the columns: key,time,a,b"
            )
        self._take_names(names, row)

    def _take_names(self, names: list[str], row: int) -> None:
        """Find key, time and channels among the names of columns."""
        if len(set(names)) < len(names):
            raise LineError(row, "the header has a column twice")
        key, time = (
            rec.find_key(names, self.requested[0], row),
            rec.find_time(names, self.requested[1], row),
        )
        # A first column without a name is the index of a data frame.
        index = tidy(names)[1]
        self.key_at = None if key is None else names.index(key)
        self.time_at = index if time is None else names.index(time)
        self.rest_at = None if time is None else nanoseconds_of(names, time)
        self.key, self.time = key or "key", time or "time"
        alone = next(filter(is_nanoseconds, names), None)
        if self.time_at is None and alone is not None:
            raise LineError(
                row, f"has nanoseconds, {alone!r}, without seconds; name the time with --time NAME"
            )
        others = (self.key_at, self.time_at, index, *self._apart(names))
        # Another clock is no channel either.
        free = [
            k for k, n in enumerate(names) if k not in others and not (is_stamp(n) or is_clock(n))
        ]
        turns = quaternion_of(names)
        if len(turns) > 1:
            raise LineError(row, "the header has more than one quaternion")
        self.what = "quaternion" if turns else "x"
        self.used = list(turns[0]) if turns else self._channels(names, free, row)
        if not self.used or len(self.used) > rec.LARGEST_D:
            raise LineError(row, f"the header has {len(self.used)} channels")
        self.d = 3 if turns else len(self.used)
        self._take_rates(names, row)
        self.header = names

    def _take_rates(self, names: list[str], row: int) -> None:
        """Find the columns with measured rates beside rotations, among those that were chosen."""
        found = self._rate_columns(names) if self.kind == "rotation" else []
        if self.columns is not None:
            found = [axes for axes in found if {names[k] for k in axes} <= {*self.columns}]
        if len(found) > 1:
            shown = ", ".join(repr(names[columns[0]]) for columns in found)
            raise LineError(
                row,
                f"the header has the rates of more than one gyroscope ({shown}, ...); choose one "
                "with --columns, such as --columns qx,qy,qz,qw,w_x,w_y,w_z",
            )
        if found and self.rated is False:
            raise LineError(
                row,
                f"the header has a rate, {names[found[0][0]]!r}, where lines before had none; "
                "leave it out, or use another state",
            )
        self.rate_at = found[0] if found else ()
        self.rated = bool(self.rated or found)

    def _rate_columns(self, names: list[str]) -> list[tuple[int, ...]]:
        """The columns of each gyroscope."""
        return axes_of(names, _RATE_NAME, "xyz")

    def _apart(self, names: list[str]) -> tuple[int, ...]:
        """Columns that are no channels, whatever they hold."""
        return ()

    def _channels(self, names: list[str], free: list[int], row: int) -> list[int]:
        """The column of each channel, -1 for one that this header lacks; the first header says
        which channels there are, unless the user did."""
        known = self.channels
        if known is None:
            self.channels = tuple(names[k] for k in free)
            return free
        unknown = [names[k] for k in free if names[k] not in known]
        if self.columns is None and unknown:
            raise LineError(
                row,
                f"the header has an unknown channel {unknown[0]!r}; {', '.join(known[:8])} are "
                "followed. Choose channels with --columns, or use another state",
            )
        gone = [name for name in known if name not in names]
        if gone and self.columns is not None and not self.header:
            raise LineError(row, f"has no {gone[0]!r} (--columns); it has {', '.join(names[:12])}")
        self._without(gone)
        return [names.index(name) if name in names else -1 for name in known]

    def _items(self, lines: list[bytes], errors: dict[int, str]) -> tuple[list[Any], list[int]]:
        rows = [row for row, line in enumerate(lines) if line.strip()]
        if rows and not self.header:
            first = rows.pop(0)
            try:
                cells = _cells(lines[first])
            except ValueError as error:
                raise LineError(first, str(error)) from None
            self._learn(cells, first)
        elif rows and rows[0] == 0 and (header := self._header_in(lines[0])):
            if header != self.header:
                self._learn(header, 0)
            rows = rows[1:]  # a header again, after a restart
        return [lines[row] for row in rows], rows

    def _header_in(self, line: bytes) -> list[str] | None:
        """The names in a line that is a header again, perhaps with the columns in another order."""
        with suppress(ValueError):
            names = [cell.strip() for cell in _cells(line)]
            words = all(number(name) is None and dates.seconds(name) is None for name in names)
            if names == self.header or (words and 2 * len({*names} & {*self.header}) > len(names)):
                return names
        return None

    def _plain(self, items: list[Any]) -> tuple[Any, ...] | None:
        text = b"\n".join(items)
        if self.style or b'"' in text:
            return None
        if b"\r" in text:
            items = [line.rstrip(b"\r") for line in items]
        keys, columns = [""] * len(items), list(range(len(self.header)))
        try:
            if self.key_at is not None:
                cells = [line.split(b",", self.key_at + 1) for line in items]
                keys = [row.pop(self.key_at).decode() for row in cells]
                items = [b",".join(row) for row in cells]
                del columns[self.key_at]
            table = plain_table(b"\n".join(items))
        except (UnicodeDecodeError, IndexError):
            return None
        if table is None or table.shape != (len(keys), len(columns)):
            return None
        stamps = nans = np.full(len(keys), math.nan)
        if self.time_at is not None:
            stamps = table[:, columns.index(self.time_at)]
            if self.rest_at is not None:
                stamps = stamps + 1e-9 * table[:, columns.index(self.rest_at)]
            if not np.isfinite(stamps).all():
                return None
            self.style = ""
        places = [-1 if k < 0 else columns.index(k) for k in self.used]
        found = keys, stamps, taken(table, places), nans
        if not self.rated:
            return found
        return *found, taken(table, [columns.index(k) for k in self.rate_at] or [-1] * 3)

    def _read(self, item: Any) -> tuple[Any, ...]:
        cells = _cells(item)
        if len(cells) != len(self.header):
            raise ValueError(f"{len(cells)} cells where the header has {len(self.header)}")
        stamp: Any = None
        if self.time_at is not None:
            stamp = _plain_cell(cells[self.time_at])
        if self.rest_at is not None:
            part = _plain_cell(cells[self.rest_at])
            stamp = rec.in_parts(stamp, part, self.time, self.header[self.rest_at])
        time = self._stamp(stamp)
        rate = list(self.rate_at) or [-1] * 3
        used = [*self.used, *(rate if self.rated else ())]
        numbers = [math.nan if k < 0 else number(cells[k]) for k in used]
        if None in numbers:
            k = used[numbers.index(None)]
            name = self.header[k]
            hint = f"; if it names the track, give --key {name}" if self.key_at is None else ""
            raise ValueError(f"column {name!r}: {cells[k][:40]!r} is not a number{hint}")
        key, n = "" if self.key_at is None else cells[self.key_at], len(self.used)
        found = key, time, numbers[:n], math.nan
        return (*found, numbers[n:]) if self.rated else found


def _cells(line: bytes) -> list[str]:
    """The cells of one row; ValueError if it is none."""
    try:
        return next(csv.reader([line.decode().rstrip("\r\n")], strict=True), [])
    except UnicodeDecodeError:
        raise ValueError("not UTF-8") from None
    except csv.Error as error:
        raise ValueError(f"not CSV: {error}") from None


def _plain_cell(cell: str) -> float | str:
    """A number, or the word that stands there instead."""
    found = number(cell)
    return cell if found is None or math.isnan(found) else found
