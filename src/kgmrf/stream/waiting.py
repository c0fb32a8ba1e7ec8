"""Lines that are held back for a while, so that late ones can be sorted in."""

from __future__ import annotations

import heapq
import math
from typing import Any, NamedTuple

import numpy as np

from kgmrf._types import Mask, Numbers
from kgmrf.stream.records import Parsed


class Held(NamedTuple):
    """A line that waits for earlier ones; number: of its arrival, which decides between equals."""

    time: float
    number: int
    values: Any
    n_samples: float


HELD = {
    "held_track": np.int64,
    "held_time": float,
    "held_number": np.int64,
    "held_values": float,
    "held_count": float,
}
"""The track and the fields of `Held`, as arrays of a state."""


class Waiting:
    """Lines by track, earliest first.

    >>> waiting = Waiting(wait=1.0)
    >>> one = np.ones((1, 2))
    >>> for time in (0.0, 2.0):
    ...     parsed = Parsed(["a"], np.array([time]), one, np.ones(1), np.zeros(1, int), {})
    ...     due = waiting.due(np.zeros(1, int), parsed, np.array([time]))
    >>> due[1].times.tolist()
    [0.0]
    """

    def __init__(self, wait: float) -> None:
        self.wait = wait
        self.held: dict[int, list[Held]] = {}
        self.arrivals = 0

    def due(self, tracks: Numbers, parsed: Parsed, newest: Numbers) -> tuple[Numbers, Parsed]:
        """Keep new lines and give back, in order of time, those that waited enough.

        newest: of the tracks of these lines before they came. Also given back: their tracks.
        """
        out: list[tuple[int, str, Held]] = []
        now: dict[int, float] = {}
        for k, track in enumerate(tracks.tolist()):
            self.arrivals += 1
            time = float(parsed.times[k])
            line = Held(time, self.arrivals, parsed.values[k], float(parsed.counts[k]))
            waiting = self.held.setdefault(track, [])
            heapq.heappush(waiting, line)
            before = now.get(track, float(newest[k]))
            now[track] = time if math.isnan(before) else max(before, time)
            while waiting and waiting[0].time <= now[track] - self.wait:
                out.append((track, parsed.keys[k], heapq.heappop(waiting)))
        return self._lines(out, parsed.values.shape[1:])

    def all_of(
        self, tracks: list[int], names: list[str], shape: tuple[int, ...]
    ) -> tuple[Numbers, Parsed]:
        """The lines of tracks that wait for nothing more."""
        out = [
            (track, names[track], line)
            for track in tracks
            for line in sorted(self.held.pop(track, []))
        ]
        return self._lines(out, shape)

    def _lines(
        self, out: list[tuple[int, str, Held]], shape: tuple[int, ...]
    ) -> tuple[Numbers, Parsed]:
        n = len(out)
        parsed = Parsed(
            [key for _, key, _ in out],
            np.array([line.time for _, _, line in out], dtype=float),
            np.array([line.values for _, _, line in out], dtype=float).reshape(n, *shape),
            np.array([line.n_samples for _, _, line in out], dtype=float),
            np.arange(n),
            {},
        )
        return np.array([track for track, _, _ in out], dtype=np.int64), parsed

    def keep(self, which: Mask) -> None:
        """Tracks are numbered anew: those that stay, in their order."""
        number = np.cumsum(which) - 1
        self.held = {int(number[t]): lines for t, lines in self.held.items() if which[t]}

    # ------------------------------------------------------------------ state

    def arrays(self, shape: tuple[int, ...]) -> dict[str, Numbers]:
        """Everything that waits, as arrays."""
        lines = [(track, *line) for track, waiting in self.held.items() for line in waiting]
        columns = zip(*lines, strict=True) if lines else [()] * len(HELD)
        found = {
            name: np.array(column, dtype=kind)
            for (name, kind), column in zip(HELD.items(), columns, strict=True)
        }
        return found | {"held_values": found["held_values"].reshape(len(lines), *shape)}

    def restore(self, arrays: dict[str, Numbers], n_tracks: int, shape: tuple[int, ...]) -> None:
        """The inverse of `arrays` (names without head); ValueError if these are not such."""
        track, time, number, values, count = (arrays[name[5:]] for name in HELD)
        n = len(track)
        if not (track.shape == number.shape == time.shape == count.shape == (n,)):
            raise ValueError("its waiting lines do not fit together")
        if values.shape != (n, *shape) or track.dtype.kind != "i" or number.dtype.kind != "i":
            raise ValueError("its waiting lines do not fit together")
        if n and not (track.min() >= 0 and track.max() < n_tracks and np.isfinite(time).all()):
            raise ValueError("its waiting lines have no track or no time")
        if np.isinf(values).any() or not (count > 0).all():
            raise ValueError("its waiting lines are no observations")
        self.arrivals = int(number.max()) if n else 0
        self.held = {}
        for k in range(n):
            line = Held(float(time[k]), int(number[k]), values[k], float(count[k]))
            heapq.heappush(self.held.setdefault(int(track[k]), []), line)
