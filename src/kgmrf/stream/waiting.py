"""Lines that are held back for a while, so that late ones can be sorted in."""

from __future__ import annotations

import heapq
import math
from typing import Any, TypeAlias

import numpy as np

from kgmrf._types import Mask, Numbers
from kgmrf.stream.records import Parsed

Held: TypeAlias = tuple[float, int, Any, float]
"""Time, number of its arrival, which decides between equals, values, samples behind them."""

HELD = {
    "held_track": np.int64,
    "held_time": float,
    "held_number": np.int64,
    "held_values": float,
    "held_count": float,
}
"""The track and the entries of `Held`, as arrays of a state."""


class Waiting:
    """Lines by track, earliest first."""

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
            waiting = self.held.setdefault(track, [])
            line = (time, self.arrivals, parsed.values[k], float(parsed.counts[k]))
            heapq.heappush(waiting, line)
            before = now.get(track, float(newest[k]))
            now[track] = time if math.isnan(before) else max(before, time)
            while waiting and waiting[0][0] <= now[track] - self.wait:
                out.append((track, parsed.keys[k], heapq.heappop(waiting)))
        return _lines(out, parsed.values.shape[1:])

    def all_of(
        self, tracks: list[int], names: list[str], shape: tuple[int, ...]
    ) -> tuple[Numbers, Parsed]:
        """The lines of tracks that wait for nothing more."""
        every = [(track, line) for track in tracks for line in sorted(self.held.pop(track, []))]
        return _lines([(track, names[track], line) for track, line in every], shape)

    def keep(self, which: Mask) -> None:
        """Tracks are numbered anew: those that stay, in their order."""
        number = np.cumsum(which) - 1
        self.held = {int(number[t]): lines for t, lines in self.held.items() if which[t]}

    # ------------------------------------------------------------------ state

    def arrays(self, shape: tuple[int, ...]) -> dict[str, Numbers]:
        """Everything that waits, as arrays."""
        lines = [(track, *line) for track, waiting in self.held.items() for line in waiting]
        found = {
            name: np.array([line[k] for line in lines], dtype=kind)
            for k, (name, kind) in enumerate(HELD.items())
        }
        return found | {"held_values": found["held_values"].reshape(len(lines), *shape)}

    def restore(self, arrays: dict[str, Numbers], n_tracks: int, shape: tuple[int, ...]) -> None:
        """The inverse of `arrays` (names without head); ValueError if these are not such."""
        track, time, number, values, count = found = [arrays[name[5:]] for name in HELD]
        n = len(track)
        wanted = [(n,), (n,), (n,), (n, *shape), (n,)]
        if [a.shape for a in found] != wanted or [a.dtype for a in found] != [*HELD.values()]:
            raise ValueError("its waiting lines do not fit together")
        if n and not (track.min() >= 0 and track.max() < n_tracks and np.isfinite(time).all()):
            raise ValueError("its waiting lines have no track or no time")
        if np.isinf(values).any() or not (count > 0).all():
            raise ValueError("its waiting lines are no observations")
        self.arrivals, self.held = int(number.max()) if n else 0, {}
        for k in range(n):
            line = (float(time[k]), int(number[k]), values[k], float(count[k]))
            heapq.heappush(self.held.setdefault(int(track[k]), []), line)


def _lines(out: list[tuple[int, str, Held]], shape: tuple[int, ...]) -> tuple[Numbers, Parsed]:
    n, lines = len(out), [line for _, _, line in out]
    parsed = Parsed(
        [key for _, key, _ in out],
        np.array([line[0] for line in lines], dtype=float),
        np.array([line[2] for line in lines], dtype=float).reshape(n, *shape),
        np.array([line[3] for line in lines], dtype=float),
        np.arange(n),
        {},
    )
    return np.array([track for track, _, _ in out], dtype=np.int64), parsed
