"""One process per state file: an advisory lock that the system takes back when the process dies."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from types import TracebackType
from typing import Self

_BEHIND = 1 << 20
"""The byte that Windows locks; what stands before it can still be read."""


class Locked(ValueError):
    """Another process has the state."""


class Lock:
    """Hold ``NAME.lock`` beside a state file while the ``with`` block runs.

    The lock belongs to the open file and not to its presence: it ends with the process, however
    that ends, and a file that is left behind locks nothing. The file says who holds it.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "tracks.state"
    >>> with Lock(path):
    ...     print((path.parent / "tracks.state.lock").read_text().split()[0] == str(os.getpid()))
    True
    """

    def __init__(self, state: Path) -> None:
        self.state = state
        self.path = state.with_name(state.name + ".lock")

    def __enter__(self) -> Self:
        flags = os.O_RDWR | os.O_CREAT
        for name in ("O_NOFOLLOW", "O_CLOEXEC", "O_BINARY"):
            flags |= getattr(os, name, 0)
        self.handle = os.open(self.path, flags, 0o644)
        if not _locked(self.handle):
            holder = os.read(self.handle, 200).decode(errors="replace").split()
            os.close(self.handle)
            who = f"process {holder[0]} on {holder[1]}" if len(holder) == 2 else "another process"
            raise Locked(f"{self.state} is in use by {who}; stop it first, or give another --state")
        os.ftruncate(self.handle, 0)
        os.write(self.handle, f"{os.getpid()} {socket.gethostname()}\n".encode())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
