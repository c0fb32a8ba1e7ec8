"""The loop of ``kgmrf stream``: read, order, track, write, checkpoint.

What holds when the process dies at any moment: an output line is written before the checkpoint
that covers it, so nothing is lost; after a restart the lines since the last checkpoint are written
once more, the same as before. That is at least once. The state itself takes in every line once.
"""

from __future__ import annotations

import errno
import heapq
import json
import math
import os
import time as clock
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kgmrf._types import Numbers
from kgmrf.stream import checkpoint
from kgmrf.stream.lines import CsvReader, JsonReader, LineError, LineWriter, Parsed, reader_from
from kgmrf.stream.pool import Lines, Pool

READ = 1 << 20
LONGEST_LINE = 16_000_000
MATRIX = {"samples": "covariance", "covariance": "covariance", "rotation": "rotation"}


@dataclass(frozen=True)
class Settings:
    """What a stream is told; everything that changes an output line is kept in its state.

    format: "json" or "csv". fields: what to write beside key and time; None: the matrix and its
    log-likelihood. digits: significant digits of the output. time_unit: one unit of the trackers'
    time on the lines' clock. wait: how long, on that clock, a line is held back for earlier ones.
    same_time: "drop" a second line of a track with the same time, or "use" it as another
    observation of that moment. on_error: "stop" at a line that cannot be used, or "skip" it.
    tracker: settings of `kgmrf.KGMRF` or `kgmrf.RotationTracker`.
    """

    format: str = "json"
    fields: tuple[str, ...] | None = None
    digits: int = 9
    time_unit: float = 1.0
    wait: float = 0.0
    same_time: str = "drop"
    on_error: str = "stop"
    tracker: dict[str, Any] = field(default_factory=lambda: {"gains": "information"})

    def lasting(self) -> dict[str, Any]:
        """The settings as JSON gives them back."""
        return json.loads(json.dumps(asdict(self)))


@dataclass
class Counts:
    """Lines read (also over restarts), written, and dropped, and why."""

    lines: int = 0
    used: int = 0
    late: int = 0
    duplicate: int = 0
    bad: int = 0


class Held(NamedTuple):
    """A line that waits for earlier ones."""

    time: float
    number: int
    values: Any
    n_samples: float


class Moved(NamedTuple):
    """Rows that were taken in, in order: keys, times, fields of the estimate after each row."""

    keys: list[str]
    times: Numbers
    fields: dict[str, Numbers]


class Stream:
    """Tracks fed by lines; `take` turns a block of input lines into output text.

    >>> stream = Stream(Settings(fields=("covariance",), digits=3))
    >>> stream.take([b'{"key": "a", "time": 0, "x": [3.0, 4.0]}'])
    b'{"key":"a","time":0.0,"covariance":[[9,12],[12,16]]}\\n'
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.counts = Counts()
        self.reader: JsonReader | CsvReader = (
            CsvReader() if settings.format == "csv" else JsonReader()
        )
        self.pool: Pool | None = None
        self.writer: LineWriter | None = None
        self.held: dict[str, list[Held]] = {}
        self.newest: dict[str, float] = {}
        self.told_header = False
        self.arrivals = 0

    # ------------------------------------------------------------------ lines

    def take(self, lines: list[bytes]) -> bytes:
        """Take in complete lines; returns the output. A line that cannot be used: `LineError`,
        raised after everything before it has been taken in; the error carries that output."""
        try:
            parsed = self.reader.parse(lines)
        except LineError as error:
            before = self.take(lines[: error.row]) if error.row else b""
            if self.settings.on_error == "skip":
                self.counts.lines += 1
                self.counts.bad += 1
                return before + self.take(lines[error.row + 1 :])
            raise StreamError(f"line {self.counts.lines + 1}: {error.fault}", before) from None
        first = self.counts.lines
        if not len(parsed.rows):
            self.counts.lines += len(lines)
            return b""
        pool = self._pool()
        values, bad = pool.checked(parsed.values)
        counts, faulty = self._counted(parsed)
        wrong = sorted({*bad.tolist(), *faulty.tolist()})
        if wrong and self.settings.on_error == "stop":
            row = int(parsed.rows[wrong[0]])
            before = self.take(lines[:row]) if row else b""
            word = MATRIX[pool.kind]
            fault = (
                f"this is no {word}"
                if wrong[0] in bad
                else "how many samples are behind the covariance? Give n_samples or --samples"
            )
            raise StreamError(f"line {first + row + 1}: {fault}", before)
        self.counts.bad += len(wrong)
        keep = np.ones(len(parsed.keys), dtype=bool)
        keep[wrong] = False
        self.counts.lines += len(lines)
        parsed = parsed._replace(values=values, counts=counts)
        if wrong:
            parsed = _select(parsed, np.flatnonzero(keep))
        return self._process(parsed, pool)

    def take_rows(self, keys: list[str], times: Numbers, values: Numbers) -> Moved:
        """Take in samples that other software has parsed, by the same rules as lines.

        times: ``(n,)``, NaN: none. values: ``(n, d)``, NaN where nothing was seen.

        >>> stream = Stream(Settings(fields=("covariance",)))
        >>> moved = stream.take_rows(["a", "a"], np.array([1.0, 0.0]), np.eye(2))
        >>> moved.times.tolist(), moved.fields["covariance"].shape, stream.counts.late
        ([1.0], (1, 2, 2), 1)
        """
        times, values = np.asarray(times, dtype=float), np.asarray(values, dtype=float)
        if self.pool is None:
            self.reader = JsonReader("x", values.shape[-1])
        pool = self._pool()
        if values.shape != (len(keys), pool.d) or times.shape != (len(keys),):
            raise ValueError(
                f"{len(keys)} keys, times {times.shape} and values {values.shape} do not fit: "
                f"every row has one time and d = {pool.d} values"
            )
        bad = np.isinf(values).any(axis=-1) | np.isinf(times)
        if bad.any() and self.settings.on_error == "stop":
            row = int(np.argmax(bad))
            raise StreamError(f"row {self.counts.lines + row + 1} of {keys[row]!r}: infinite", b"")
        self.counts.lines += len(keys)
        self.counts.bad += int(bad.sum())
        parsed = Parsed(keys, times, values, np.ones(len(keys)), np.arange(len(keys)))
        return self._moved(_select(parsed, np.flatnonzero(~bad)) if bad.any() else parsed, pool)

    def _counted(self, parsed: Parsed) -> tuple[Numbers, Numbers]:
        """Samples behind each line, and the lines where that is unknown."""
        if self._pool().kind != "covariance":
            return np.ones(len(parsed.keys)), np.zeros(0, dtype=int)
        default = self.settings.tracker.get("n_samples") or math.nan
        counts = np.where(np.isnan(parsed.counts), default, parsed.counts)
        unknown = ~(counts > 0) & ~np.isnan(parsed.values[:, 0, 0])
        return np.where(counts > 0, counts, 1.0), np.flatnonzero(unknown)

    def _pool(self) -> Pool:
        if self.pool is None:
            d = self.reader.d
            self.pool = Pool(self.reader.kind, d, self.settings.tracker)
            fields = self.settings.fields or (MATRIX[self.reader.kind], "log_likelihood")
            shapes = {
                "covariance": (d, d),
                "rotation": (d, d),
                "velocity": (d, d),
                "angle_std": (d, d),
                "frame": (d, d),
                "spectrum": (d,),
            }
            known = {name: shapes.get(name, ()) for name in fields}
            self.writer = LineWriter(self.settings.format, known, self.settings.digits)
        return self.pool

    def _process(self, parsed: Parsed, pool: Pool) -> bytes:
        moved = self._moved(parsed, pool)
        if not moved.keys:
            return b""
        assert self.writer is not None
        text = self.writer.text(*moved)
        if not self.told_header:
            self.told_header = True
            return self.writer.header() + text
        return text

    def _moved(self, parsed: Parsed, pool: Pool) -> Moved:
        timed = ~np.isnan(parsed.times)
        if self.settings.wait > 0:
            parsed = self._held_back(parsed)
            timed = np.ones(len(parsed.keys), dtype=bool)
        tracks = pool.numbers(parsed.keys)
        times = parsed.times
        if not timed.all():
            times = self._numbered(tracks, times, timed)
        keep, before = self._in_order(tracks, times)
        if not keep.all():
            kept = np.flatnonzero(keep)
            parsed, tracks, times = _select(parsed, kept), tracks[kept], times[kept]
            before = before[kept]
        if not len(tracks):
            return Moved([], np.zeros(0), {})
        # A track begins at its first line; nothing drifts before.
        dt = np.where(np.isnan(before), 0.0, times - before) / self.settings.time_unit
        assert self.writer is not None
        fields = list(self.writer.fields)
        found = pool.advance(Lines(tracks, parsed.values, parsed.counts, dt), fields)
        pool.last[tracks] = times  # the last line of a track wins, and it is the latest
        self.counts.used += len(tracks)
        return Moved(parsed.keys, times, found)

    def _numbered(self, tracks: Numbers, times: Numbers, timed: Numbers) -> Numbers:
        """A line without a time comes one unit after the line before of its track."""
        assert self.pool is not None
        times = times.copy()
        now = dict(zip(tracks.tolist(), self.pool.last[tracks].tolist(), strict=True))
        unit = self.settings.time_unit
        for k, (track, known) in enumerate(zip(tracks.tolist(), timed.tolist(), strict=True)):
            if not known:
                times[k] = 0.0 if math.isnan(now[track]) else now[track] + unit
            now[track] = times[k] if math.isnan(now[track]) else max(now[track], times[k])
        return times

    def _in_order(self, tracks: Numbers, times: Numbers) -> tuple[Numbers, Numbers]:
        """Which lines are later than all before of their track, and the time of the line before."""
        assert self.pool is not None
        last = self.pool.last
        order = np.argsort(tracks, kind="stable")
        sorted_tracks, sorted_times = tracks[order], times[order]
        first = np.ones(len(order), dtype=bool)
        first[1:] = sorted_tracks[1:] != sorted_tracks[:-1]
        previous = np.where(first, last[sorted_tracks], np.append(np.nan, sorted_times[:-1]))
        strictly = self.settings.same_time == "drop"
        good = np.isnan(previous) | (
            sorted_times > previous if strictly else sorted_times >= previous
        )
        keep, before = np.empty(len(order), dtype=bool), np.empty(len(order))
        if good.all():
            keep[order], before[order] = True, previous
            return keep, before
        now: dict[int, float] = {}
        for k, (track, time) in enumerate(zip(tracks.tolist(), times.tolist(), strict=True)):
            latest = now.get(track, float(last[track]))
            before[k] = latest
            late = time < latest
            keep[k] = not (late or (strictly and time == latest))
            if keep[k]:
                now[track] = time
            elif late:
                self.counts.late += 1
            else:
                self.counts.duplicate += 1
        return keep, before

    def _held_back(self, parsed: Parsed) -> Parsed:
        """Keep new lines for a while and give back, in order of time, those that waited enough."""
        out: list[tuple[str, Held]] = []
        for k, key in enumerate(parsed.keys):
            if math.isnan(parsed.times[k]):
                raise StreamError("lines can only wait if they have a time", b"")
            self.arrivals += 1
            line = Held(
                float(parsed.times[k]), self.arrivals, parsed.values[k], float(parsed.counts[k])
            )
            waiting = self.held.setdefault(key, [])
            heapq.heappush(waiting, line)
            newest = max(self.newest.get(key, -math.inf), line.time)
            self.newest[key] = newest
            while waiting and waiting[0].time <= newest - self.settings.wait:
                out.append((key, heapq.heappop(waiting)))
        return self._as_parsed(out, parsed.values.shape[1:])

    def finish(self) -> bytes:
        """The lines that are still waiting, when no more will come."""
        if self.pool is None or not any(self.held.values()):
            return b""
        out = [(key, line) for key, waiting in self.held.items() for line in sorted(waiting)]
        self.held = {}
        d = self.pool.d
        shape = (d,) if self.pool.kind == "samples" else (d, d)
        wait, self.settings = self.settings, _without_wait(self.settings)
        try:
            return self._process(self._as_parsed(out, shape), self.pool)
        finally:
            self.settings = wait

    def _as_parsed(self, lines: list[tuple[str, Held]], shape: tuple[int, ...]) -> Parsed:
        return Parsed(
            [key for key, _ in lines],
            np.array([line.time for _, line in lines], dtype=float),
            np.array([line.values for _, line in lines], dtype=float).reshape(len(lines), *shape),
            np.array([line.n_samples for _, line in lines], dtype=float),
            np.arange(len(lines)),
        )

    # ------------------------------------------------------------------ state

    def save(self, path: Path, **more: Any) -> None:
        """Write everything to one file, whole or not at all."""
        checkpoint.write(path, *self._content(more))

    def to_bytes(self) -> bytes:
        """The content of the file that `save` writes, for an engine that keeps it itself."""
        return checkpoint.pack(*self._content({}))

    def _content(self, more: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Numbers]]:
        header: dict[str, Any] = {
            "settings": self.settings.lasting(),
            "counts": asdict(self.counts),
            "told_header": self.told_header,
            **more,
        }
        arrays: dict[str, Numbers] = {}
        if self.pool is not None:
            n = len(self.pool)
            header |= {
                "reader": self.reader.settings(),
                "keys": self.pool.names,
                "newest": self.newest,
                "arrivals": self.arrivals,
                "held": {
                    key: [
                        [h.time, h.number, np.asarray(h.values).tolist(), float(h.n_samples)]
                        for h in w
                    ]
                    for key, w in self.held.items()
                    if w
                },
            }
            arrays = {name: array[:n] for name, array in self.pool.memory.items()}
            arrays["last"] = self.pool.last[:n]
        return header, arrays

    def restore(self, path: Path) -> dict[str, Any]:
        """Go on where `save` stood; returns its header."""
        return self._restore(str(path), *checkpoint.read(path))

    def from_bytes(self, state: bytes) -> dict[str, Any]:
        """Go on where `to_bytes` stood; returns its header."""
        return self._restore("this", *checkpoint.unpack(state))

    def _restore(
        self, path: str, header: dict[str, Any], arrays: dict[str, Numbers]
    ) -> dict[str, Any]:
        lasting = header.get("settings")
        mine = self.settings.lasting()
        if isinstance(lasting, dict) and lasting != mine:
            differ = [name for name in mine if lasting.get(name) != mine[name]]
            raise ValueError(
                f"{path} was written with other settings ({', '.join(differ)}); use the same "
                "again, or another state file"
            )
        try:
            self.counts = Counts(**{k: int(v) for k, v in header["counts"].items()})
            self.told_header = bool(header["told_header"])
            if "keys" in header:
                self._restore_tracks(header, arrays)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise ValueError(f"{path} is not the state of a stream: {error}") from error
        return header

    def _restore_tracks(self, header: dict[str, Any], arrays: dict[str, Numbers]) -> None:
        keys = header["keys"]
        if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
            raise ValueError("its keys are not words")
        n = len(keys)
        self.reader = reader_from(header["reader"])
        # The size is checked before room is made for it: every state holds a d x d matrix.
        total = sum(array.nbytes for array in arrays.values())
        if self.reader.d < 1 or n * self.reader.d**2 * 8 > total or (n == 0 and total):
            raise ValueError(
                f"{n} tracks of dimension {self.reader.d} do not fit its {total} bytes"
            )
        pool = self._pool()
        expected = {**pool.memory, "last": pool.last}
        if len(set(keys)) != n or not checkpoint.fits(arrays, expected, n):
            raise ValueError("its arrays do not fit its tracks")
        pool.numbers(keys)
        for name, array in arrays.items():
            if name == "last":
                pool.last[:n] = array
            else:
                pool.memory[name][:n] = array
        shape = (pool.d,) if pool.kind == "samples" else (pool.d, pool.d)
        self.arrivals = int(header["arrivals"])
        self.newest = {str(key): float(t) for key, t in header["newest"].items()}
        for key, waiting in header["held"].items():
            self.held[str(key)] = [
                Held(float(t), int(k), np.asarray(v, dtype=float).reshape(shape), float(c))
                for t, k, v, c in waiting
            ]


class StreamError(ValueError):
    """A line that ended the stream; ``before`` is the output of the lines before it."""

    def __init__(self, message: str, before: bytes) -> None:
        super().__init__(message)
        self.before = before


def _select(parsed: Parsed, which: Numbers) -> Parsed:
    return Parsed(
        [parsed.keys[k] for k in which.tolist()],
        parsed.times[which],
        parsed.values[which],
        parsed.counts[which],
        parsed.rows[which],
    )


def _without_wait(settings: Settings) -> Settings:
    return Settings(**{**{k: getattr(settings, k) for k in asdict(settings)}, "wait": 0.0})


def run(
    settings: Settings,
    source: int,
    sink: int,
    *,
    state: Path | None = None,
    replay: bool = False,
    every: float = 5.0,
) -> Stream:
    """Feed a stream from one file descriptor to another until the input ends.

    state: checkpoint file; read first if it exists, written every ``every`` seconds and at the
    end. replay: the input starts again from its first line, so skip what the state has taken in.
    """
    stream = Stream(settings)
    skip = 0
    if state is not None:
        _check_state(state)
    if state is not None and state.exists():
        stream.restore(state)
        skip = stream.counts.lines if replay else 0
    saved = clock.monotonic()
    rest = b""

    def checkpointed() -> None:
        if state is not None:
            stream.save(state)

    try:
        while block := os.read(source, READ):
            text = rest + block
            end = text.rfind(b"\n") + 1
            rest = text[end:]
            if len(rest) > LONGEST_LINE:
                number = stream.counts.lines + skip + 1
                raise StreamError(f"line {number}: longer than {LONGEST_LINE} bytes", b"")
            lines = text[:end].split(b"\n")[:-1]
            if skip:
                passed = min(skip, len(lines))
                lines, skip = lines[passed:], skip - passed
            if lines:
                _write(sink, stream.take(lines))
                if clock.monotonic() - saved >= every:
                    checkpointed()
                    saved = clock.monotonic()
        if rest and not skip:
            _write(sink, stream.take([rest]))
        _write(sink, stream.finish())
    except StreamError as error:
        _write(sink, error.before)
        checkpointed()
        raise
    checkpointed()
    return stream


def _check_state(state: Path) -> None:
    """Refuse a checkpoint that cannot be written, before any line is."""
    if not state.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "No such folder", str(state.parent))
    if state.is_dir():
        raise IsADirectoryError(errno.EISDIR, "The state is a folder, not a file", str(state))
    if not os.access(state.parent, os.W_OK):
        raise PermissionError(errno.EACCES, "The state cannot be written in", str(state.parent))


def _write(sink: int, text: bytes) -> None:
    view = memoryview(text)
    while view:
        view = view[os.write(sink, view) :]
