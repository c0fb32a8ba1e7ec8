"""The two ends of a stream of tables: Arrow's stream and file formats, and Parquet."""

from __future__ import annotations

import io
import os
import select
import stat
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from kgmrf.stream.endpoints import PATIENCE, POLLS, READ, Sink, Stop
from kgmrf.stream.settings import StreamError

ROWS = 1 << 16
"""Rows that are taken in together; so many estimates are held in memory."""
_MAGIC = {b"PAR1": "parquet", b"ARRO": "arrow file"}


class _Stopped(Exception):
    """The process was asked to end while it waited for input."""


class _Polled(io.RawIOBase):
    """A file descriptor that gives as many bytes as asked for, unless it ends or is to stop."""

    def __init__(self, handle: int, stop: Stop) -> None:
        self.handle, self.stop = handle, stop
        self.at_end = False
        self.taken = 0

    def readable(self) -> bool:
        return True

    def ready(self) -> bool:
        """Whether there is something to read, or the end."""
        return not POLLS or bool(select.select([self.handle], [], [], PATIENCE)[0])

    def read(self, size: int = -1) -> bytes:
        """``size`` bytes, or fewer at the end of the input."""
        parts: list[bytes] = []
        while size > 0 and not self.at_end:
            while not self.ready():
                if self.stop:
                    raise _Stopped
            part = os.read(self.handle, min(size, READ))
            self.at_end = not part
            size -= len(part)
            self.taken += len(part)
            parts.append(part)
        return b"".join(parts)


class TableSource:
    """Record batches of at most `ROWS` rows, from a stream or a file of Arrow, or from Parquet.

    As `kgmrf.stream.endpoints.Source`: an empty block means that nothing came for a moment, None
    that no more will. Streams may follow one another.
    """

    def __init__(self, handle: int, stop: Stop, form: str) -> None:
        self.handle, self.stop, self.form = handle, stop, form
        self.raw = _Polled(handle, stop)
        self.batches: Iterator[Any] | None = None
        self.batch: Any = None
        self.done = 0

    def lines(self) -> Any:
        """The next block of rows."""
        if self.stop:
            return None
        if self.batch is None and not self._next():
            return None if self.stop or self.batches is None else []
        batch = self.batch.slice(self.done, ROWS)
        self.done += len(batch)
        if self.done >= len(self.batch):
            self.batch = None
        return batch

    def _next(self) -> bool:
        """Read a batch, if one comes; ``batches`` is None at the end."""
        import pyarrow as pa

        try:
            if self.batches is None:
                self.batches = self._open()
            if self.batches is None:
                return False
            if POLLS and self.raw.taken and not self.raw.ready():
                return False
            self.batch, self.done = next(self.batches, None), 0
            if self.batch is not None:
                self.batch.validate(full=True)
                return True
            # Where a stream ended another may begin.
            self.batches = self._open() if self.raw.taken and not self.raw.at_end else None
            return False
        except _Stopped:
            self.batches = None
            return False
        except (pa.ArrowException, OSError, EOFError) as error:
            if self.stop:
                self.batches = None
                return False
            reason = " ".join(str(error).split())[:160]
            raise StreamError(f"the input is torn or no {self.form}: {reason}", b"") from error

    def _open(self) -> Iterator[Any] | None:
        import pyarrow as pa

        found = os.fstat(self.handle)
        seekable = stat.S_ISREG(found.st_mode)
        if seekable and not self.raw.taken:
            kind = _MAGIC.get(os.pread(self.handle, 4, 0), "stream")
            if not found.st_size:
                return None
            file = os.fdopen(os.dup(self.handle), "rb")
            if kind == "parquet" and self.form == "parquet":
                import pyarrow.parquet as pq

                return pq.ParquetFile(file).iter_batches(ROWS, use_threads=False)
            if kind == "arrow file" and self.form == "arrow":
                reader = pa.ipc.open_file(file)
                return map(reader.get_batch, range(reader.num_record_batches))
            if kind != "stream" or self.form == "parquet":
                raise StreamError(f"the input is no {self.form}; give its --format", b"")
        if self.form == "parquet":
            raise StreamError(
                "Parquet is read from its end: redirect a file, kgmrf stream --format parquet < "
                "FILE; for pipes use --format arrow",
                b"",
            )
        while not self.raw.ready():
            if self.stop:
                raise _Stopped
        taken = self.raw.taken
        try:
            return iter(pa.ipc.open_stream(self.raw))
        except pa.ArrowInvalid:
            if self.raw.at_end and self.raw.taken == taken:
                return None
            raise


def whole_messages(text: Any, end: int) -> int:
    """Where the last message of Arrow's stream format that is complete before ``end`` ends."""
    import pyarrow as pa

    source, whole = pa.BufferReader(pa.py_buffer(text)[:end]), 0
    with suppress(pa.ArrowException, EOFError, OSError):
        while True:
            pa.ipc.read_message(source)
            whole = source.tell()
    return min(whole, end)


class MessageSink(Sink):
    """Messages of Arrow's stream format to a file descriptor, after their schema.

    schema: gives the schema, base64, once there is one. What is appended to a file continues its
    stream. No mark of the end is written, so that another process can go on.
    """

    def __init__(self, handle: int, stop: Stop, schema: Callable[[], str | None]) -> None:
        super().__init__(handle, stop)
        self.schema, self.begun = schema, False

    def write(self, text: bytes) -> None:
        """Everything, unless the process is asked to end while nobody reads."""
        known = self.schema()
        if not self.begun and known is not None and (text or self.pending):
            first = b64decode(known)
            if not self.pending.startswith(first):
                self.pending = first + self.pending
            self.begun = True
        super().write(text)

    def finish(self) -> None:
        """Leave at least a schema, if it is known."""
        known = self.schema()
        if not self.begun and known is not None:
            self.begun = True
            super().write(b64decode(known))

    def keep(self, pending: bytes) -> None:
        """Deliver this first, which an earlier process could not; its schema comes by itself."""
        known = self.schema()
        self.pending = pending.removeprefix(b64decode(known)) if known is not None else pending

    def _begin_of_torn(self, done: int) -> int:
        return whole_messages(self.pending, done)

    def truncate_torn_line(self, *, resumed: bool) -> None:
        """Cut off a torn message of a file that is appended to; its schema must be this one."""
        found = os.fstat(self.handle)
        if not stat.S_ISREG(found.st_mode) or not found.st_size:
            return
        import pyarrow as pa

        known = self.schema()
        path = next(iter(self.names()), "")
        with pa.memory_map(path) as file:
            text = file.read_buffer()
            first = b"" if known is None else b64decode(known)
            if not first or bytes(text[: len(first)]) != first:
                raise ValueError(
                    "the output is appended to a file with other columns or without any; give a "
                    "new file"
                )
            whole = whole_messages(text, len(text))
        self.begun = True
        if whole < found.st_size:
            self.cut(whole)


class ParquetSink(MessageSink):
    """The same messages as the row groups of one Parquet file, which is there when it is ended."""

    lasting = False
    writer: Any = None

    def write(self, text: bytes) -> None:
        """Everything."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        known = self.schema()
        if known is None:
            return
        schema = pa.ipc.read_schema(pa.py_buffer(b64decode(known)))
        if self.writer is None:
            self.file = os.fdopen(os.dup(self.handle), "wb")
            self.writer = pq.ParquetWriter(self.file, schema)
        source, text = pa.BufferReader(self.pending + text), b""
        while source.tell() < source.size():
            batch = pa.ipc.read_record_batch(pa.ipc.read_message(source), schema)
            self.writer.write_batch(batch)
        self.pending = b""

    def finish(self) -> None:
        """End the file: before, nobody can read it."""
        self.write(b"")
        if self.writer is not None:
            self.writer.close()
            self.file.close()
            self.writer = None

    def truncate_torn_line(self, *, resumed: bool) -> None:
        """Refuse a file that has something in it."""
        found = os.fstat(self.handle)
        if stat.S_ISREG(found.st_mode) and found.st_size:
            raise ValueError("nothing can be appended to Parquet; give a new file")
