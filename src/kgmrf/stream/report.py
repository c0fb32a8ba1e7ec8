"""What a running stream says about itself: a line now and then, and numbers for Prometheus."""

from __future__ import annotations

import json
import sys
import time as clock
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO

from kgmrf import _npz
from kgmrf.stream.loop import Stream
from kgmrf.stream.settings import Counts, Fault

NAMED = 5
"""Lines that cannot be used and are named on stderr; more are counted only."""


class Report:
    """Statistics, bad lines and metrics of one run.

    Parameters
    ----------
    stats : float, default 0.0
        Seconds between two lines of statistics on ``err``; 0: none.
    metrics : Path, default None
        File for Prometheus, written again each time.
    bad_lines : Path, default None
        File that lines which could not be used are appended to, as JSON with their number and the
        reason.
    err : IO[str], default None
        Where to say things.
    talk : bool, default True
        Whether to say there also what was assumed.
    """

    def __init__(
        self,
        stats: float = 0.0,
        metrics: Path | None = None,
        bad_lines: Path | None = None,
        err: IO[str] | None = None,
        talk: bool = True,
    ) -> None:
        self.stats, self.metrics = stats, metrics
        self.err, self.talk = err, talk
        self.bad_lines_file = None if bad_lines is None else open(bad_lines, "ab")  # noqa: SIM115
        self.named = 0
        self.period = stats or (15.0 if metrics is not None else 0.0)
        self.since = clock.monotonic()
        self.lines = 0

    def say(self, text: str) -> None:
        """One line on stderr."""
        if self.err is not None:
            self.err.write(f"kgmrf: {text}\n")
            self.err.flush()

    def remark(self, text: str) -> None:
        """What was assumed, as one line on stderr."""
        if self.talk:
            self.say(text)

    def begin(self, stream: Stream) -> None:
        """The stream is ready: count from here."""
        self.lines = stream.counts.lines
        self.since = clock.monotonic()

    def errors(self, stream: Stream) -> None:
        """Take the lines that could not be used off the stream, write them down and name them."""
        for remark in stream.remarks:
            self.remark(remark)
        stream.remarks.clear()
        found, stream.errors = stream.errors, []
        for fault in found:
            self.letter(fault)
            self.named += 1
            if self.named <= NAMED:
                self.say(f"line {fault.line} skipped: {fault.reason}")
            if self.named == NAMED:
                where = (
                    "in the file of --bad-lines" if self.bad_lines_file else "with --bad-lines FILE"
                )
                self.say(f"more such lines are counted only; all of them are {where}")
        if self.bad_lines_file is not None and found:
            self.bad_lines_file.flush()

    def letter(self, fault: Fault) -> None:
        """Write down one line that could not be used."""
        if self.bad_lines_file is not None:
            text = fault.text.decode("utf-8", "backslashreplace")
            letter = {"line": fault.line, "reason": fault.reason, "text": text}
            self.bad_lines_file.write(json.dumps(letter).encode() + b"\n")

    def tick(self, stream: Stream, *, last: bool = False) -> None:
        """Say how things stand, if it is time."""
        now = clock.monotonic()
        if not self.period or (now - self.since < self.period and not last):
            return
        rate = (stream.counts.lines - self.lines) / max(now - self.since, 1e-9)
        self.since, self.lines = now, stream.counts.lines
        tracks = 0 if stream.pool is None else len(stream.pool)
        memory = resident()
        if self.metrics is not None:
            text = prometheus(stream.counts, tracks, rate, memory)
            try:
                with _npz.replacing(self.metrics) as file:
                    file.write(text.encode())
            except OSError as error:  # no reason to end a stream
                self.say(f"no metrics: {error.strerror}: {self.metrics}")
        if self.stats:
            counts = stream.counts
            room = "unknown" if memory is None else f"{memory / 1e6:.0f}MB"
            self.say(
                f"stats lines={counts.lines} keys={tracks} bad={counts.bad} late={counts.late} "
                f"duplicate={counts.duplicate} forgotten={counts.forgotten} "
                f"alarms={counts.alarms} lines/s={rate:.0f} memory={room}"
            )

    def close(self) -> None:
        """Finish the file of lines that could not be used."""
        if self.bad_lines_file is not None:
            self.bad_lines_file.close()


def prometheus(counts: Counts, tracks: int, rate: float, memory: int | None) -> str:
    """The numbers in Prometheus' text format."""
    rows: list[tuple[str, str, float]] = [
        ("counter", f"{name}_total", value) for name, value in asdict(counts).items()
    ]
    rows += [("gauge", "tracks", tracks), ("gauge", "lines_per_second", rate)]
    rows += [("gauge", "last_report_seconds", clock.time())]
    if memory is not None:
        rows.append(("gauge", "resident_bytes", memory))
    return "".join(
        f"# TYPE kgmrf_stream_{name} {kind}\nkgmrf_stream_{name} {round(value, 3)}\n"
        for kind, name, value in rows
    )


def resident() -> int | None:
    """Resident memory in bytes (its largest so far on macOS); None where nobody tells."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    with suppress(OSError), open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
    scale = 1 if sys.platform == "darwin" else 1024
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * scale
