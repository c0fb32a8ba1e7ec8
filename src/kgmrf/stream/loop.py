"""Lines in, lines out: read, order, track, write, a block at a time.

What holds when the process dies at any moment: an output line is written before the checkpoint
that covers it, so nothing is lost; after a restart the lines since the last checkpoint are written
once more, the same as before. That is at least once. The state itself takes in every line once.
"""

from __future__ import annotations

import math
from codecs import BOM_UTF8
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kgmrf import _npz
from kgmrf._types import Mask, Numbers
from kgmrf.centring import RunningMean, off_the_mean
from kgmrf.factors import DENSE
from kgmrf.io.write import FIELDS
from kgmrf.results import Estimate
from kgmrf.stream import state
from kgmrf.stream.clocks import JUMP, LATE, Clocks, Columns
from kgmrf.stream.csv_lines import CsvReader
from kgmrf.stream.json_lines import JsonReader
from kgmrf.stream.pool import Pool
from kgmrf.stream.records import Parsed, Reader, too_large
from kgmrf.stream.settings import Counts, Fault, LineError, Settings, StreamError
from kgmrf.stream.writer import header_of, text_of

MATRIX = {"samples": "covariance", "covariance": "covariance", "rotation": "rotation"}
PLURAL = {"samples": "samples", "covariance": "covariances", "rotation": "rotations"}
FROM_COVARIANCE = ("volatility", "correlation")
SWEEPS = 8
"""Idle tracks are looked for this often in the time after which they are forgotten."""


class Moved(NamedTuple):
    """Rows that were taken in, in order: keys, times, fields of the estimate after each row."""

    keys: list[str]
    times: Numbers
    fields: dict[str, Numbers]


class Stream:
    """Tracks fed by lines; `take` turns a block of input lines into output text.

    ``faults`` are the lines that could not be used, in order, until somebody takes them away.

    >>> stream = Stream(Settings(fields=("covariance",), digits=3))
    >>> stream.take([b'{"key": "a", "time": 0, "x": [3.0, 4.0]}'])
    b'{"key":"a","time":0.0,"covariance":[[18.0,10.2],[10.2,32.0]]}\\n'
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.counts = Counts()
        maker: Any = CsvReader if settings.format == "csv" else JsonReader
        self.reader: Reader = maker(key=settings.key, time=settings.time)
        self.pool: Pool | None = None
        self.fields: tuple[str, ...] = ()
        self.clocks = Clocks(settings)
        self.means, self.keep = Columns(), 1.0
        self.told_header = False
        self.faults: list[Fault] = []
        self.swept = -math.inf

    # ------------------------------------------------------------------ lines

    def take(self, lines: list[bytes]) -> bytes:
        """Take in complete lines; returns the output.

        A line that cannot be used is left out, counted and added to ``faults``; or, if the stream
        is to stop there, `StreamError` is raised after everything before it has been taken in.
        """
        stop, first = self.settings.on_error == "stop", self.counts.lines
        if not first and lines:  # a mark that some editors put before all text
            lines = [lines[0].removeprefix(BOM_UTF8), *lines[1:]]
        try:
            parsed = self.reader.parse(lines, stop=stop)
        except LineError as error:
            self.counts.lines += error.row
            fault = Fault(first + error.row + 1, error.fault, lines[error.row])
            raise StreamError(f"line {fault.line}: {fault.reason}", b"", fault) from None
        faults = dict(parsed.faults)
        if len(parsed.rows):
            parsed = self._usable(parsed, faults)
        if stop and faults:
            parsed = parsed.select(np.flatnonzero(parsed.rows < min(faults)))
        pieces = self._moved(parsed, faults) if len(parsed.rows) else []
        text = b"".join(map(self._text, pieces))
        if faults and stop:
            row = min(faults)
            fault = Fault(first + row + 1, faults[row], lines[row])
            self.counts.lines += row
            raise StreamError(f"line {fault.line}: {fault.reason}", text, fault)
        self.counts.lines += len(lines)
        self.counts.bad += len(faults)
        self.faults += [Fault(first + row + 1, faults[row], lines[row]) for row in sorted(faults)]
        self._sweep()
        return text

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
        n = len(keys)
        if values.shape != (n, pool.d) or times.shape != (n,):
            raise ValueError(
                f"{n} keys, times {times.shape} and values {values.shape} do not fit: "
                f"every row has one time and d = {pool.d} values"
            )
        faults = too_large(values)
        faults |= dict.fromkeys(np.flatnonzero(np.isinf(times)).tolist(), "infinite")
        if faults and self.settings.on_error == "stop":
            raise self._stopped(keys, faults)
        parsed = Parsed(keys, times, values, np.ones(n), np.arange(n), {}).without(faults)
        pieces = self._moved(parsed, faults)
        if faults and self.settings.on_error == "stop":
            raise self._stopped(keys, faults)
        self.counts.lines += n
        self.counts.bad += len(faults)
        self._sweep()
        names = pieces[0].fields if pieces else ()
        return Moved(
            [key for piece in pieces for key in piece.keys],
            np.concatenate([np.zeros(0), *(piece.times for piece in pieces)]),
            {name: np.concatenate([p.fields[name] for p in pieces]) for name in names},
        )

    def _stopped(self, keys: list[str], faults: dict[int, str]) -> StreamError:
        row = min(faults)
        return StreamError(
            f"row {self.counts.lines + row + 1} of {keys[row]!r}: {faults[row]}", b""
        )

    def _usable(self, parsed: Parsed, faults: dict[int, str]) -> Parsed:
        """The lines whose matrices are such, with the samples behind each; others are faults."""
        pool = self._pool()
        values, bad = pool.checked(parsed.values)
        wrong = dict.fromkeys(bad.tolist(), f"this is not a valid {MATRIX[pool.kind]} matrix")
        counts = np.ones(len(parsed.keys))
        if pool.kind == "covariance":
            default = self.settings.tracker.get("n_samples") or math.nan
            counts = np.where(np.isnan(parsed.counts), default, parsed.counts)
            unknown = ~(counts > 0) & ~np.isnan(parsed.values[:, 0, 0])
            told = "how many samples are behind the covariance? Give n_samples or --n-samples"
            wrong = {**dict.fromkeys(np.flatnonzero(unknown).tolist(), told), **wrong}
            counts = np.where(counts > 0, counts, 1.0)
        if self.settings.forget_after is not None:
            told = "it has no time, and --forget-after needs one"
            wrong |= dict.fromkeys(np.flatnonzero(np.isnan(parsed.times)).tolist(), told)
        parsed = parsed._replace(values=values, counts=counts)
        if wrong:
            faults |= {int(parsed.rows[k]): reason for k, reason in wrong.items()}
            parsed = parsed.without(wrong)
        return parsed

    def _pool(self) -> Pool:
        if self.pool is None:
            d = self.reader.d
            kind = self.reader.kind
            mean = self.settings.mean
            if mean != "zero" and kind != "samples":
                raise ValueError(f"--mean {mean} is for samples; these lines hold a {kind}")
            self.pool = Pool(kind, d, self.settings.tracker)
            if mean != "zero":
                none = np.zeros((3, d))
                self.means, self.keep = Columns(sums=none), RunningMean(mean).keep
            known = {*self.pool.bank.estimate().fields()}
            known |= set() if kind == "rotation" else {*DENSE, *FROM_COVARIANCE}
            self.fields = self.settings.fields or (MATRIX[kind], "log_likelihood")
            for name in self.fields:
                if name not in known:
                    there = ", ".join(field for field in FIELDS if field in known)
                    raise ValueError(
                        f"--fields has {name!r}, which a stream of {PLURAL[kind]} does not have; "
                        f"it has {there}"
                    )
        return self.pool

    def _text(self, moved: Moved) -> bytes:
        form = self.settings.format
        text = text_of(*moved, form, self.settings.digits, self.reader.style or "")
        if not self.told_header and moved.keys:
            self.told_header = True
            return header_of(moved.fields) + text if form == "csv" else text
        return text

    # ------------------------------------------------------------------ time

    def _moved(self, parsed: Parsed, faults: dict[int, str]) -> list[Moved]:
        """Take in lines that can be used, in pieces; those that jump too far become faults."""
        pool, pieces = self._pool(), []
        stop = self.settings.on_error == "stop"
        while len(parsed.keys):
            tracks = self._numbers(parsed.keys)
            times = self.clocks.numbered(tracks, parsed.times)
            seen = self.clocks.admit(tracks, times)
            if seen.stale is not None:
                idle = self.clocks.idle(len(pool))
                idle[tracks] = False  # these come again, and may be new by then
                idle[seen.stale] = True
                self._forget(idle)
                continue
            here = parsed._replace(times=times).select(np.arange(seen.n))
            rest = np.arange(seen.n, len(parsed.keys))
            faults |= {int(parsed.rows[k]): reason for k, reason in seen.reasons.items()}
            self.counts.late += int((seen.verdict == LATE).sum())
            if stop and (seen.verdict == JUMP).any():
                first = int(np.argmax(seen.verdict == JUMP))
                seen.verdict[first:], rest = JUMP, rest[:0]
            good = np.flatnonzero(seen.verdict == 0)
            pieces += self._advance(tracks[good], here.select(good))
            parsed = parsed.select(rest)
        return [piece for piece in pieces if piece.keys]

    def _numbers(self, keys: list[str]) -> Numbers:
        pool = self._pool()
        tracks = pool.numbers(keys)
        self.clocks.make_room(len(pool))
        self.means.make_room(len(pool))
        return tracks

    def _advance(self, tracks: Numbers, parsed: Parsed) -> list[Moved]:
        """Take in lines; those that are late are counted and left out."""
        pool, times = self._pool(), parsed.times
        keep, before = self.clocks.in_order(tracks, times, self.counts)
        if not keep.all():
            kept = np.flatnonzero(keep)
            parsed, tracks, times = parsed.select(kept), tracks[kept], times[kept]
            before = before[kept]
        if not len(tracks):
            return []
        # A track begins at its first line; nothing drifts before. Nor longer than the longest gap.
        step = np.minimum(np.where(np.isnan(before), 0.0, times - before), self.settings.gap)
        values = (
            self._centred(tracks, parsed.values) if self.settings.mean != "zero" else parsed.values
        )
        dt = step / self.settings.time_unit
        needed = ["covariance" if name in FROM_COVARIANCE else name for name in self.fields]
        taken = pool.bank.take(tracks, values, dt=dt, n_samples=parsed.counts, fields=needed)
        found = {name: getattr(Estimate(taken), name) for name in self.fields}
        self.clocks.last[tracks] = times  # the last line of a track wins, and it is the latest
        self.counts.used += len(tracks)
        return [Moved(parsed.keys, times, found)]

    def _centred(self, tracks: Numbers, values: Numbers) -> Numbers:
        """Samples off the mean of their track; tracks with equally many go together."""
        order = np.argsort(tracks, kind="stable")
        names, starts, lengths = np.unique(tracks[order], return_index=True, return_counts=True)
        known = self.means.arrays["sums"]
        centred = np.empty_like(values)
        for length in np.unique(lengths):
            these = np.flatnonzero(lengths == length)
            rows = order[starts[these] + np.arange(length)[:, None]]
            which = names[these]
            sums = np.moveaxis(known[which], 1, 0)
            centred[rows], sums = off_the_mean(values[rows], sums, self.keep)
            known[which] = np.moveaxis(sums, 0, 1)
        return centred

    def _sweep(self) -> None:
        """Forget idle tracks, every now and then."""
        if self.settings.forget_after is None or self.pool is None:
            return
        if self.clocks.watermark >= self.swept + self.settings.forget_after / SWEEPS:
            self.swept = self.clocks.watermark
            self._forget(self.clocks.idle(len(self.pool)))

    def _forget(self, idle: Mask) -> None:
        if idle.any():
            for part in (self._pool(), self.clocks, self.means):
                part.keep(~idle)
            self.counts.forgotten += int(idle.sum())

    # ------------------------------------------------------------------ state

    def save(self, path: Path, pending: bytes = b"", **more: Any) -> None:
        """Write everything to one file, whole or not at all.

        pending: output that was not delivered. more: what else belongs to this state, such as the
        place in the input; JSON can hold it.
        """
        header, arrays = state.content(self)
        arrays["pending"] = np.frombuffer(pending, dtype=np.uint8)
        _npz.write(path, {**header, "more": more}, arrays)

    def restore(self, path: Path) -> dict[str, Any]:
        """Go on where `save` stood; returns what else it was given, and ``pending``."""
        return state.restored(self, str(path), *_npz.read(path))

    def to_bytes(self) -> bytes:
        """The content of the file that `save` writes, for an engine that keeps it itself."""
        return _npz.pack(*state.content(self))

    def from_bytes(self, stored: bytes) -> dict[str, Any]:
        """Go on where `to_bytes` stood."""
        return state.restored(self, "this", *_npz.unpack(stored))
