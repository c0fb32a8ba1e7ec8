"""The two ends of a stream: input that may stop, output that may be full, torn or gone."""

from __future__ import annotations

import os
import select
import signal
import stat
import sys
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

READ = 1 << 20
LONGEST_LINE = 16_000_000
PATIENCE = 0.2
"""Seconds between two looks at whether a signal came."""
_ATOMIC = 4096
"""Bytes that a pipe with room takes at once."""
POLLS = sys.platform != "win32"
"""Whether select works on pipes."""


class Stop:
    """Whether the process was asked to end, and by which signal."""

    signal: int | None = None
    blocked = False
    """Whether a call waits that only an exception can end, as on Windows."""

    def __bool__(self) -> bool:
        return self.signal is not None

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """SIGTERM and SIGINT only leave a mark; a second one ends the process as usual."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before: dict[int, Any] = {}

        def mark(number: int, frame: Any) -> None:
            self.signal = number
            for name, handler in before.items():
                signal.signal(name, handler)
            if self.blocked:
                raise KeyboardInterrupt

        try:
            for number in (signal.SIGTERM, signal.SIGINT):
                before[number] = signal.signal(number, mark)
            yield
        finally:
            for name, handler in before.items():
                signal.signal(name, handler)


class Source:
    """Complete lines from a file descriptor, a block at a time.

    An empty block means that nothing came for a moment; None, that no more will. A line of more
    than `LONGEST_LINE` bytes is given as a few words about it, which no reader can use.
    """

    def __init__(self, handle: int, stop: Stop) -> None:
        self.handle, self.stop = handle, stop
        self.rest = b""
        self.ended = False
        self.skipping = False

    def lines(self) -> list[bytes] | None:
        """The next block of lines."""
        if self.ended or self.stop:
            return None
        if POLLS:
            ready, _, _ = select.select([self.handle], [], [], PATIENCE)
            if not ready:
                return []
        try:
            self.stop.blocked = not POLLS
            block = os.read(self.handle, READ)
            self.stop.blocked = False
        except KeyboardInterrupt:
            return None
        if not block:
            self.ended = True
            rest, self.rest = self.rest, b""
            return [rest] if rest and not self.skipping else []
        if self.skipping:
            # The rest of a line that is too long, up to its end.
            end = block.find(b"\n")
            if end < 0:
                return []
            block, self.skipping = block[end + 1 :], False
        text = self.rest + block
        end = text.rfind(b"\n") + 1
        self.rest = text[end:]
        lines = text[:end].split(b"\n")[:-1]
        if len(self.rest) > LONGEST_LINE:
            lines.append(b"longer than %d bytes: %s" % (LONGEST_LINE, self.rest[:200]))
            self.rest, self.skipping = b"", True
        return lines


class Sink:
    """Text to a file descriptor; what could not be delivered stays in ``pending``."""

    lasting = True
    """Whether what was written can be read before the end."""

    def __init__(self, handle: int, stop: Stop) -> None:
        self.handle, self.stop = handle, stop
        self.pending = b""
        kind = os.fstat(handle).st_mode
        self.pipe = POLLS and (stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind))

    def write(self, text: bytes) -> None:
        """Everything, unless the process is asked to end while nobody reads."""
        self.pending += text
        done = 0
        view = memoryview(self.pending)
        try:
            while done < len(view):
                if self.pipe:
                    _, ready, _ = select.select([], [self.handle], [], PATIENCE)
                    if not ready:
                        if self.stop:
                            return
                        continue
                    done += os.write(self.handle, view[done : done + _ATOMIC])
                else:
                    done += os.write(self.handle, view[done:])
        finally:
            # From the start of a line that is torn: who goes on writes all of it.
            view.release()
            if done < len(self.pending):
                done = self._begin_of_torn(done)
            self.pending = self.pending[done:]

    def keep(self, pending: bytes) -> None:
        """Deliver this first, which an earlier process could not."""
        self.pending = pending

    def finish(self) -> None:
        """All is written."""

    def _begin_of_torn(self, done: int) -> int:
        """The first byte of what was delivered in part."""
        return self.pending.rfind(b"\n", 0, done) + 1

    def cut(self, size: int) -> None:
        """Shorten the file that is written to."""
        os.ftruncate(self.handle, size)
        if os.lseek(self.handle, 0, os.SEEK_CUR) > size:
            os.lseek(self.handle, 0, os.SEEK_END)

    def truncate_torn_line(self, *, resumed: bool) -> None:
        """End a torn last line of a file that is appended to: cut it off if this stream wrote it
        (it comes again), else end it."""
        found = os.fstat(self.handle)
        if not stat.S_ISREG(found.st_mode) or not found.st_size:
            return
        tail = self._tail(found.st_size)
        if tail is not None and tail.endswith(b"\n"):
            return
        if tail is None and not resumed:
            return
        whole = tail is not None and (b"\n" in tail or len(tail) == found.st_size)
        if tail is None or not (resumed and whole):
            os.write(self.handle, b"\n")  # perhaps an empty line, but never two lines in one
            return
        self.cut(found.st_size - (len(tail) - tail.rfind(b"\n") - 1))

    def names(self) -> list[str]:
        """What the file may be opened as, if the system lets us see what we write to."""
        names = [f"/proc/self/fd/{self.handle}"]
        with suppress(ImportError, OSError, AttributeError):
            import fcntl

            raw = fcntl.fcntl(self.handle, fcntl.F_GETPATH, bytes(1024))  # type: ignore[attr-defined]
            names.append(raw.rstrip(b"\0").decode())
        return names

    def _tail(self, size: int) -> bytes | None:
        """The end of the file, if it can be read."""
        for name in self.names():
            with suppress(OSError), open(name, "rb") as file:
                file.seek(max(0, size - LONGEST_LINE))
                return file.read(LONGEST_LINE)
        return None
