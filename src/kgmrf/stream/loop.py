"""Lines in, lines out: read, order, track, write, a block at a time.

What holds when the process dies at any moment: an output line is written before the checkpoint
that covers it, so nothing is lost; after a restart the lines since the last checkpoint are written
once more, the same as before. That is at least once. The state itself takes in every line once.
"""

from __future__ import annotations

import math
from base64 import b64encode
from codecs import BOM_UTF8
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kgmrf import _npz
from kgmrf._types import Numbers
from kgmrf.alerts.lines import Observed
from kgmrf.constants import FEWEST_SAMPLES, LONGEST, MOST_SAMPLES
from kgmrf.io.write import FIELDS
from kgmrf.model.factors import DENSE
from kgmrf.results import Estimate
from kgmrf.stream import alerts, state
from kgmrf.stream.json_lines import JsonReader
from kgmrf.stream.pool import DUPLICATE, LATE, OK, Pool
from kgmrf.stream.records import Parsed, Reader, too_large
from kgmrf.stream.reorder import Reorder
from kgmrf.stream.settings import Counts, Fault, LineError, Settings, StreamError
from kgmrf.stream.state import reader_of
from kgmrf.stream.table_rows import TableReader
from kgmrf.stream.table_text import batch_of
from kgmrf.stream.writer import header_of, text_of

SOURCES = {"volatility": "covariance", "correlation": "covariance", "surprise": "p_value"}
"""Fields that are made of another."""
TIMED = {"age": 1, "half_life": 1, "velocity": -1}
"""Fields with a unit of time, and its power."""

_COLUMNS = " (columns: with --columns qx,qy,qz,qw)"


class Output(NamedTuple):
    """Rows that were taken in, in order: keys, times, fields of the estimate after each row.

    Parameters
    ----------
    keys
        Key of each row.
    times : array
        Time of each row.
    fields : dict[str, Numbers]
        Fields of the estimate after each row, by name.
    """

    keys: Any
    times: Numbers
    fields: dict[str, Numbers]


class Stream:
    """Tracks fed by lines; `take` turns a block of input lines into output text.

    ``errors`` are the lines that could not be used, in order, until somebody takes them away.

    Parameters
    ----------
    settings : Settings
        The settings of the stream.

    Examples
    --------
    >>> stream = Stream(Settings(fields=("covariance",), digits=3))
    >>> stream.take([b'{"key": "a", "time": 0, "x": [3.0, 4.0]}'])
    b'{"key":"a","time":0.0,"covariance":[[18.0,10.2],[10.2,32.0]]}\\n'
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.alarm = alerts.alarm_of(settings)
        if settings.alerts_only and self.alarm is None:
            raise ValueError("--alerts-only needs --alert")
        self.counts = Counts()
        self.reader: Reader = reader_of(settings.format)(
            key=settings.key, time=settings.time, columns=settings.columns
        )
        if settings.tracker.get("gyroscope"):
            self.reader.rated = True
        self.pool: Pool | None = None
        self.held = Reorder.of(settings)
        self.fields: tuple[str, ...] = ()
        # The header that was written: the fields in CSV, the schema (base64) of tables.
        self.header: list[str] = []
        self.errors: list[Fault] = []
        self.remarks: list[str] = []  # likewise

    # ------------------------------------------------------------------ lines

    def take(self, lines: Any) -> bytes:
        """Take in complete lines; returns the output.

        lines: a list of bytes; of tables a record batch of Arrow. Then the output is the messages
        of Arrow's stream format that follow the schema, which is in ``header``.

        A line that cannot be used is left out, counted and added to ``errors``; or, if the stream
        is to stop there, `StreamError` is raised after everything before it has been taken in.
        """
        first, text = self.counts.lines, b""
        plain = type(lines) is list
        if not first and plain and lines:  # a mark that some editors put before all text
            lines = [lines[0].removeprefix(BOM_UTF8), *lines[1:]]
        try:
            parsed = self.reader.parse(lines)
            text = self._output(self._process(parsed, len(lines)))
            self.remarks += self.reader.remarks
            self.reader.remarks.clear()
            errors, stopped = parsed.errors, self.counts.lines < first + len(lines)
        except LineError as error:
            self.counts.lines += error.row
            errors, stopped = {error.row: str(error)}, True
        line_text = self.reader.text
        found = [
            Fault(first + row + 1, errors[row], line_text(lines, row) if row >= 0 else b"")
            for row in sorted(errors)  # of a line that was held only the number is known
        ]
        if stopped:
            raise StreamError(f"line {found[0].line}: {found[0].reason}", text, found[0])
        self.errors += found
        return text

    def flush(self) -> bytes:
        """Take in the lines that ``reorder`` holds back; returns the output."""
        if self.held is None or not len(self.held):
            return b""
        first, parsed = self.counts.lines, self.held.flush(self.counts.lines)
        text = self._output(self._in_order(parsed, 0))
        self.counts.bad += len(parsed.errors)
        self.errors += [Fault(first + k + 1, why, b"") for k, why in parsed.errors.items()]
        return text

    def take_rows(self, keys: list[str], times: Numbers, values: Numbers) -> Output:
        """Take in samples that other software has parsed, by the same rules as lines.

        times: ``(n,)``, NaN: none. values: ``(n, d)``, NaN where nothing was seen.

        >>> stream = Stream(Settings(fields=("covariance",)))
        >>> output = stream.take_rows(["a", "a"], np.array([1.0, 0.0]), np.eye(2))
        >>> output.times.tolist(), output.fields["covariance"].shape, stream.counts.late
        ([1.0], (1, 2, 2), 1)
        """
        times, values = np.asarray(times, dtype=float), np.asarray(values, dtype=float)
        if self.pool is None:
            self.reader = JsonReader("x", values.shape[-1])
        n, first, d = len(keys), self.counts.lines, self._pool().d
        if values.shape != (n, d) or times.shape != (n,):
            raise ValueError(
                f"{n} keys, times {times.shape} and values {values.shape} do not fit: "
                f"every row has one time and d = {d} values"
            )
        errors = too_large(values)
        errors |= dict.fromkeys(np.flatnonzero(np.isinf(times)).tolist(), "infinite")
        parsed = Parsed(keys, times, values, np.ones(n), np.arange(n), {}).refuse(errors)
        pieces = self._process(parsed, n)
        if self.counts.lines < first + n:
            row = min(parsed.errors)
            raise StreamError(f"row {first + row + 1} of {keys[row]!r}: {parsed.errors[row]}", b"")
        return joined(pieces) if pieces else Output([], np.zeros(0), {})

    def _pool(self) -> Pool:
        if self.pool is None:
            kind, mean = self.reader.kind, self.settings.mean
            if mean != "zero" and kind != "samples":
                raise ValueError(f"--mean {mean} is for samples; these lines hold {_lines(kind)}")
            if "noise_std" in self.settings.tracker and kind != "rotation":
                raise ValueError(f"--noise-std is for rotations; these lines hold {_lines(kind)}")
            self.pool = Pool(kind, self.reader.d, self.settings, rated=self._rated(kind))
            known = {*self.pool.bank.estimate().fields()}
            known |= set() if kind == "rotation" else {*DENSE, "volatility", "correlation"}
            known |= {"surprise"} if "p_value" in known else set()
            usual = (self.pool.bank.kind, "log_likelihood") if self.alarm is None else ()
            self.fields = self.settings.fields or usual
            for name in self.fields:
                if name not in known:
                    there = ", ".join(field for field in FIELDS if field in known)
                    raise ValueError(
                        f"--fields has {name!r}, which a stream of {_lines(kind)} does not have; "
                        f"it has {there}"
                    )
        return self.pool

    def _rated(self, kind: str) -> bool:
        """Whether rotations have measured rates; ValueError where that cannot be."""
        rated, gains = bool(self.reader.rated), self.settings.tracker.get("gains", "auto")
        if rated and kind != "rotation":
            raise ValueError(f"--rates is for rotations; these lines hold {_lines(kind)}")
        if rated and (self.reader.d != 3 or gains != "auto"):
            raise ValueError(
                "measured rates need rotations in three dimensions and --gains auto; leave the "
                f"rates out{_COLUMNS}"
            )
        if rated and self.alarm is not None:
            raise ValueError(
                "--alert does not watch rotations with measured rates; leave out --alert, or the "
                f"rates{_COLUMNS}"
            )
        return rated

    def _output(self, pieces: list[Output]) -> bytes:
        if isinstance(self.reader, TableReader) and pieces:
            pieces = [joined(pieces)]
        return b"".join(map(self._text, pieces))

    def _text(self, output: Output) -> bytes:
        form, names = self.settings.format, list(output.fields)
        if self.alarm is not None:
            d = self._pool().d
            channels = self.reader.channels or [str(k) for k in range(d)]
            output = output._replace(fields=alerts.in_words(output.fields, channels, form))
        if isinstance(self.reader, TableReader):
            return self._messages(output)
        text = text_of(*output, form, self.settings.digits, self.reader.style or "")
        if form == "csv" and self.header != names:  # other columns need another header
            self.header = names
            return header_of(output.fields) + text
        return text

    def _messages(self, output: Output) -> bytes:
        reader: Any = self.reader
        batch = batch_of(*output, dated=reader.style or "", key_kind=reader.key_kind)
        schema = b64encode(batch.schema.serialize()).decode()
        if self.header not in ([], [schema]):
            raise ValueError(
                "the columns of the output are others than those of the state, and a table cannot "
                "change them: use the same --fields, or another state and output"
            )
        self.header = [schema]
        return bytes(batch.serialize())

    # ------------------------------------------------------------------ tracks

    def _process(self, parsed: Parsed, n: int) -> list[Output]:
        """Take in the lines of a block of n that can be used, in pieces, and count all of them, or
        those before the one that stops the stream. The others are errors."""
        errors, stop = parsed.errors, self.settings.on_error == "stop"
        if len(parsed.keys):
            parsed = self._usable(parsed)
        if self.held is not None and len(parsed.keys):
            self._pool()  # what it does not know is said at once
            parsed = self.held.through(parsed, self.counts.lines)
            self.remarks += self.held.remark()
        if stop and errors:  # what comes behind does not matter
            parsed = parsed.part(parsed.rows < min(errors))
        pieces = self._in_order(parsed, n)
        self.counts.lines += min(errors) if stop and errors else n
        if not (stop and errors):
            self.counts.bad += len(errors)
            self.counts.forgotten += 0 if self.pool is None else self.pool.sweep()
        return pieces

    def _in_order(self, parsed: Parsed, n: int) -> list[Output]:
        """Take in lines as they come, up to one that stops the stream; n is beyond all of them."""
        errors, stop, pieces = parsed.errors, self.settings.on_error == "stop", []
        while len(parsed.keys):
            pool = self._pool()
            tracks = pool.numbers(parsed.keys)
            here = slice(pool.piece(tracks, parsed.times))
            tracks = tracks[here]
            seen = pool.admit(tracks, parsed.times[here])
            if not seen.verdict.size:
                self.counts.forgotten += pool.forget(self.settings.forget_after or 0.0)
                continue
            errors |= {int(parsed.rows[k]): reason for k, reason in seen.jumps.items()}
            self.counts.late += int((seen.verdict == LATE).sum())
            self.counts.duplicate += int((seen.verdict == DUPLICATE).sum())
            good = np.flatnonzero(seen.verdict == OK)
            if good.size:
                lines = parsed.part(good)._replace(times=seen.times[good])
                output = self._advance(tracks[good], lines, seen.before[good])
                pieces += [output] if len(output.keys) else []
            parsed = parsed.part(slice(n if stop and seen.jumps else seen.verdict.size, None))
        return pieces

    def _usable(self, parsed: Parsed) -> Parsed:
        """The lines that have all they need, with the samples behind each; others are errors."""
        wrong: dict[int, str] = {}
        counts = np.ones(len(parsed.keys))
        if self.reader.kind == "covariance":
            default = self.settings.tracker.get("n_samples") or math.nan
            counts = np.where(np.isnan(parsed.counts), default, parsed.counts)
            unknown = ~(counts > 0) & ~np.isnan(parsed.values[:, 0, 0])
            why = "how many samples are behind the covariance? Give n_samples or --n-samples"
            wrong = dict.fromkeys(np.flatnonzero(unknown).tolist(), why)
            beyond = (counts > 0) & ~((counts >= FEWEST_SAMPLES) & (counts <= MOST_SAMPLES))
            why = f"n_samples must lie between {FEWEST_SAMPLES:g} and {MOST_SAMPLES:g}"
            wrong |= dict.fromkeys(np.flatnonzero(beyond).tolist(), why)
            counts = np.where((counts > 0) & ~beyond, counts, 1.0)
        needs = [n for n in ("forget_after", "reorder") if getattr(self.settings, n) is not None]
        if needs:
            why = f"it has no time, and --{needs[0].replace('_', '-')} needs one"
            wrong |= dict.fromkeys(np.flatnonzero(np.isnan(parsed.times)).tolist(), why)
        return parsed._replace(counts=counts).refuse(wrong)

    def _advance(self, tracks: Numbers, parsed: Parsed, before: Numbers) -> Output:
        """Take in lines that are in order."""
        pool, times = self._pool(), parsed.times
        # A track begins at its first line; nothing drifts before.
        step = np.where(np.isnan(before), 0.0, times - before)
        learning = not pool.unit.frozen
        unit = pool.unit.of(step)
        if learning and pool.unit.frozen:
            self.remarks.append(pool.unit.words())
        names = list(dict.fromkeys(SOURCES.get(name, name) for name in self.fields))
        dt, shown = np.minimum(pool.counted(step, unit), LONGEST), self.fields
        heard: dict[str, Numbers] = {}
        if self.alarm is None:
            centred = pool.centred(tracks, parsed.values)
            given: Any = {"n_samples": parsed.counts, "fields": names, "rates": parsed.rates}
            taken = pool.bank.feed(tracks, centred, dt=dt, **given)
        else:
            lines = Observed(tracks, parsed.values, dt, parsed.counts)
            taken, heard = alerts.take(pool, self.alarm, self.settings.adapt, lines, names)
            shown = tuple(dict.fromkeys(("p_value", "surprise", *shown)))
            self.counts.alarms += alerts.begins(heard)
        self.counts.used += len(tracks)
        found = {name: getattr(Estimate(taken), name) for name in shown}
        for name, power in TIMED.items():
            if name in found and not pool.rated:  # counted in units; shown on the lines' clock
                array = found[name]
                found[name] = array * unit.reshape(-1, *(1,) * (array.ndim - 1)) ** power
        if self.alarm is None:
            return Output(parsed.keys, times, found)
        found = {"alarm": heard.pop("alarm"), **found, **heard}
        if not self.settings.alerts_only:
            return Output(parsed.keys, times, found)
        few = alerts.turning_points(found)
        some = {name: array[few] for name, array in found.items()}
        return Output(parsed.part(few).keys, times[few], some)

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


def joined(pieces: list[Output]) -> Output:
    """Several pieces as one."""
    if len(pieces) == 1:
        return pieces[0]
    words = [list(piece.keys) for piece in pieces]
    fields = {name: [piece.fields[name] for piece in pieces] for name in pieces[0].fields}
    return Output(
        [key for piece in words for key in piece],
        np.concatenate([piece.times for piece in pieces]),
        {name: np.concatenate(parts) for name, parts in fields.items()},
    )


def _lines(kind: str) -> str:
    return kind if kind == "samples" else f"{kind}s"
