"""Many keyed tracks, each with a state and a time of its own, moved a block of lines at a time.

The states of all tracks lie stacked, one array per part of the state. A block of lines is sorted
by track; tracks with equally many lines go through the compiled loop together. Which lines come
together in a block makes no difference to any track.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from kgmrf import _check
from kgmrf._types import Mask, Numbers
from kgmrf.geometry import so
from kgmrf.results import Result
from kgmrf.trackers import KGMRF, RotationTracker
from kgmrf.trackers._files import check_estimate

Kind: TypeAlias = Literal["samples", "covariance", "rotation"]


class Lines(NamedTuple):
    """Lines that are ready to be taken in, in order.

    track: number of the track, ``(n,)``. values: samples ``(n, d)`` or matrices ``(n, d, d)``, NaN
    where nothing was seen. counts: samples behind each, ``(n,)``. dt: time since the line before of
    the same track, ``(n,)``.
    """

    track: Numbers
    values: Numbers
    counts: Numbers
    dt: Numbers


class Pool:
    """Tracks by key; ``names`` in the order in which they came.

    kind: "samples", "covariance" or "rotation". settings: of `KGMRF` or `RotationTracker`.

    >>> pool = Pool("samples", 2, {"gains": "information"})
    >>> lines = Lines(pool.numbers(["a", "b"]), np.eye(2), np.ones(2), np.zeros(2))
    >>> pool.advance(lines, ["covariance"])["covariance"].shape
    (2, 2, 2)
    """

    def __init__(self, kind: Kind, d: int, settings: dict[str, Any]) -> None:
        self.kind, self.d = kind, d
        if kind == "rotation" and settings.get("gains", "auto") == "auto":
            raise ValueError(
                "rotations in a stream take a single gain law, such as gains=information"
            )
        maker: Any = RotationTracker if kind == "rotation" else KGMRF
        self.tracker = maker(d, **settings)
        self.tracker._start((1, d, d))
        blank = self.tracker._memory()
        # What has no axis for tracks is not part of a track (that the tracker is a fresh one).
        self._common = {name: array for name, array in blank.items() if array.ndim == 0}
        self._blank = {name: array for name, array in blank.items() if array.ndim}
        self.memory = {name: array[:0].copy() for name, array in self._blank.items()}
        self.names: list[str] = []
        self._number: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.names)

    def numbers(self, keys: list[str]) -> Numbers:
        """The number of the track of every key; unknown keys become new tracks."""
        known = self._number
        for key in dict.fromkeys(keys):
            if key not in known:
                known[key] = len(self.names)
                self.names.append(key)
        self._make_room()
        return np.fromiter(map(known.__getitem__, keys), dtype=np.int64, count=len(keys))

    def _make_room(self) -> None:
        """Room doubles, so that adding tracks one by one stays cheap."""
        room = len(next(iter(self.memory.values())))
        short = len(self.names) - room
        if short > 0:
            n = max(short, room, 16)
            for name, array in self._blank.items():
                new = np.broadcast_to(array, (n, *array.shape[1:]))
                self.memory[name] = np.concatenate([self.memory[name], new])

    def forget(self, tracks: Numbers) -> None:
        """Drop tracks by number; those that stay keep their order and are numbered anew from 0."""
        keep = np.ones(len(self.names), dtype=bool)
        keep[tracks] = False
        self.names = [name for name, kept in zip(self.names, keep.tolist(), strict=True) if kept]
        self._number = {name: k for k, name in enumerate(self.names)}
        self.memory = {name: array[: len(keep)][keep] for name, array in self.memory.items()}

    def check(self) -> None:
        """ValueError if what is remembered of a track, as from a file, is no state of one."""
        n = len(self.names)
        self.tracker.batch_shape = (n,)
        if n:
            memory = {name: array[:n] for name, array in self.memory.items()}
            self.tracker._remember({**self._common, **memory})
            check_estimate(self.tracker)

    def advance(self, lines: Lines, fields: list[str]) -> dict[str, Numbers]:
        """Take in lines and return the fields of the estimates after each of them."""
        n = len(lines.track)
        order = np.argsort(lines.track, kind="stable")
        tracks, starts, lengths = np.unique(
            lines.track[order], return_index=True, return_counts=True
        )
        found: dict[str, Numbers] = {}
        for tracks_, rows in self._groups(lines, order, tracks, starts, lengths):
            result = self._move(tracks_, _pick(lines, rows))
            for name in fields:
                array = self._field(result, name)
                if name not in found:
                    found[name] = np.empty((n, *array.shape[2:]))
                found[name][rows] = array
        return found

    def _groups(
        self, lines: Lines, order: Numbers, tracks: Numbers, starts: Numbers, lengths: Numbers
    ) -> Any:
        """Tracks ``(k,)`` with rows ``(length, k)`` of lines that can be taken in together."""
        alone = np.zeros(len(tracks), dtype=bool)
        if self.kind == "samples":
            nan = np.isnan(lines.values[order])
            # A sample with a hole is filled from the prediction for its time: one at a time.
            holes = nan.any(axis=-1) & ~nan.all(axis=-1)
            if holes.any():
                alone = np.add.reduceat(holes, starts) > 0
        for length in np.unique(lengths[~alone]):
            these = ~alone & (lengths == length)
            yield tracks[these], order[starts[these] + np.arange(length)[:, None]]
        for k in np.flatnonzero(alone):
            for row in range(starts[k], starts[k] + lengths[k]):
                yield tracks[k : k + 1], order[row : row + 1][:, None]

    def _move(self, tracks: Numbers, lines: Lines) -> Result:
        tracker = self.tracker
        tracker.batch_shape = tracks.shape
        tracker._remember({**self._common, **{k: v[tracks] for k, v in self.memory.items()}})
        values, counts = lines.values, lines.counts
        if self.kind == "samples":
            nan = np.isnan(values)
            there: Mask = np.asarray(~nan.all(axis=-1))
            if (nan.any(axis=-1) & there).any():
                # One line of one track, (1, 1, d): to the tracker, one sample of one frame.
                seen = tracker._expected(values, float(lines.dt[0, 0]))
            else:
                seen = values[..., :, None] * values[..., None, :]
        else:
            there, seen = np.asarray(~np.isnan(values[..., 0, 0])), values
        result: Result = tracker._run(seen, there, counts, lines.dt)
        memory = tracker._memory()
        for name, array in self.memory.items():
            array[tracks] = memory[name]
        return result

    def _field(self, result: Result, name: str) -> Numbers:
        """A field of a result, the same to the last bit however many lines came together."""
        if name == "covariance":
            frame = np.ascontiguousarray(result.frame)
            return (frame * result.spectrum[..., None, :]) @ np.swapaxes(frame, -1, -2)
        return np.asarray(getattr(result, name))

    def checked(self, values: Numbers) -> tuple[Numbers, Numbers]:
        """Matrices ready to be taken in, and the numbers of those that are none (and left out)."""
        if self.kind == "samples":
            return values, np.zeros(0, dtype=int)
        observed: Mask = np.asarray(~np.isnan(values).any(axis=(-2, -1)))
        check = _check.rotations if self.kind == "rotation" else _check.covariances
        matrices, used = check(values, observed, "line", "skip")
        if self.kind == "rotation":
            matrices = so.project(matrices)
        bad = np.flatnonzero(observed & ~used)
        return np.where(used[:, None, None], matrices, np.nan), bad


def _pick(lines: Lines, rows: Numbers) -> Lines:
    return Lines(*(part[rows] for part in lines))
