"""A stream as a process: one lock, checkpoints, signals, and an orderly end."""

from __future__ import annotations

import errno
import os
import signal
import socket
import stat
import time as clock
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

from kgmrf import _npz
from kgmrf.stream.endpoints import Sink, Source, Stop
from kgmrf.stream.loop import Stream
from kgmrf.stream.report import Report
from kgmrf.stream.settings import Settings, StreamError


def run(
    settings: Settings,
    source: int,
    sink: int,
    *,
    state: Path | None = None,
    replay: bool = False,
    every: float = 5.0,
    report: Report | None = None,
) -> Stream:
    """Feed a stream from one file descriptor to another until the input ends.

    SIGINT is raised as KeyboardInterrupt after the checkpoint.

    Parameters
    ----------
    settings : Settings
        The settings of the stream.
    source : int
        File descriptor of the input.
    sink : int
        File descriptor of the output.
    state : Path, default None
        Checkpoint file; read first if it exists, written every ``every`` seconds and at the end,
        whatever ends it: the input, SIGTERM, SIGINT, a line that cannot be used, a reader that went
        away, a full disk. None: no checkpoints.
    replay : bool, default False
        The input starts again from its first line, so skip what the state has taken in.
    every : float, default 5.0
        Seconds between two checkpoints.
    report : Report, default None
        Where statistics and bad lines go; None: nowhere but to the standard error.
    """
    stop, reporter = Stop(), report or Report()
    with ExitStack() as stack:
        stack.enter_context(stop.on_signals())
        if state is not None:
            _check_state(state)
            stack.enter_context(Lock(state))
            _npz.clear_parts(state)
        stack.callback(reporter.close)
        stream = Stream(settings)
        inlet, out = ends(stream, source, sink, stop)
        resumed = state is not None and state.exists()
        if state is not None and resumed:
            out.keep(stream.restore(state)["pending"])
        out.truncate_torn_line(resumed=resumed or replay)
        reporter.begin(stream)
        skip = stream.counts.lines if replay and resumed else 0
        _follow(stream, inlet, out, reporter, state, every, skip)
    if stop.signal == signal.SIGINT:
        raise KeyboardInterrupt
    return stream


def ends(stream: Stream, source: int, sink: int, stop: Stop) -> tuple[Any, Sink]:
    """What reads and writes the format of a stream."""
    form = stream.settings.format
    if form not in ("arrow", "parquet"):
        return Source(source, stop), Sink(sink, stop)
    from kgmrf.stream.table_endpoints import MessageSink, ParquetSink, TableSource

    maker = ParquetSink if form == "parquet" else MessageSink
    schema = lambda: stream.header[0] if stream.header else None  # noqa: E731
    return TableSource(source, stop, form), maker(sink, stop, schema)


def _follow(
    stream: Stream,
    source: Any,
    sink: Sink,
    report: Report,
    state: Path | None,
    every: float,
    skip: int,
) -> None:
    """Take in lines to the end, but for the first, and leave a checkpoint, also in failure."""
    saved, changed = clock.monotonic(), bool(sink.pending)

    def checkpoint() -> None:
        if state is not None:
            stream.save(state, sink.pending)

    def deliver(text: bytes) -> None:
        report.errors(stream)
        sink.write(text)

    try:
        sink.write(b"")  # what the process before could not deliver
        while (lines := source.lines()) is not None:
            passed = min(skip, len(lines))
            lines, skip = lines[passed:], skip - passed
            if len(lines):
                deliver(stream.take(lines))
                changed = True
            if changed and sink.lasting and clock.monotonic() - saved >= every:
                checkpoint()
                saved, changed = clock.monotonic(), False
            report.tick(stream)
        if text := stream.flush():
            deliver(text)
    except StreamError as error:
        # First the lines before it, then the checkpoint that covers them.
        readable = sink.lasting
        try:
            deliver(error.before)
            if text := stream.flush():
                deliver(text)
            sink.finish()
            readable = True
        finally:
            if error.fault is not None:
                report.letter(error.fault)
            if readable:
                checkpoint()
        raise
    except OSError:
        # The output is full or gone; what it did not take is part of the state, if the disk
        # takes that; otherwise the checkpoint before stays, which is as good.
        try:
            if sink.lasting:
                checkpoint()
        except OSError as error:
            report.say(f"no checkpoint: {error.strerror}; the one before is kept")
        raise
    sink.finish()
    checkpoint()
    if stream.pool is not None and stream.pool.unit.first and not stream.pool.unit.frozen:
        report.remark(stream.pool.unit.words())
    report.tick(stream, last=True)


def _check_state(state: Path) -> None:
    """Refuse a checkpoint that cannot be written, before any line is."""
    if not state.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "No such folder", str(state.parent))
    if state.is_dir():
        raise IsADirectoryError(errno.EISDIR, "The state is a folder, not a file", str(state))
    for path in (state, lock_of(state)):
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(os.stat(path).st_mode):
                raise ValueError(f"{path} is a pipe or device, not a file; give another --state")
    if not os.access(state.parent, os.W_OK):
        raise PermissionError(errno.EACCES, "The state cannot be written in", str(state.parent))


# ---------------------------------------------------------------------- the lock


def lock_of(state: Path) -> Path:
    """The file whose lock says that somebody uses a state."""
    return state.with_name(state.name + ".lock")


_BEHIND = 1 << 20
"""The byte that Windows locks; what stands before it can still be read."""


class Locked(ValueError):
    """Another process has the state."""


class Lock:
    """Hold ``NAME.lock`` beside a state file while the ``with`` block runs.

    The lock belongs to the open file and not to its presence: it ends with the process, however
    that ends, and a file that is left behind locks nothing. The file says who holds it. A file that
    has another name too, as a hard link has, is not ours to write to.
    """

    def __init__(self, state: Path) -> None:
        self.state = state
        self.path = lock_of(state)

    def __enter__(self) -> Self:
        self.handle = os.open(self.path, os.O_RDWR | os.O_CREAT | _npz.SAFE, 0o644)
        found = os.fstat(self.handle)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
            os.close(self.handle)
            raise Locked(
                f"{self.path} is not a file of its own, but a hard link, a pipe or a device; "
                "remove it, or give another --state"
            )
        if not _locked(self.handle):
            holder = os.read(self.handle, 200).decode(errors="replace").split()
            os.close(self.handle)
            who = f"process {holder[0]} on {holder[1]}" if len(holder) == 2 else "another process"
            raise Locked(f"{self.state} is in use by {who}; stop it first, or give another --state")
        os.ftruncate(self.handle, 0)
        os.write(self.handle, f"{os.getpid()} {socket.gethostname()}\n".encode())
        return self

    def __exit__(self, *error: object) -> None:
        os.ftruncate(self.handle, 0)
        os.close(self.handle)


def _locked(handle: int) -> bool:
    """Take the lock; False if somebody else has it."""
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        os.lseek(handle, _BEHIND, os.SEEK_SET)
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        except OSError:
            return False
        finally:
            os.lseek(handle, 0, os.SEEK_SET)
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True
