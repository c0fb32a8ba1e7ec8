"""State files, and .npy and .npz files read without trust.

A state file is an .npz without compression: a JSON header and arrays of numbers. Nothing in it is
executable, and reading it takes hardly more memory than its size: a header that claims more than
the file holds is refused, where ``numpy.load`` would make room for it first.

Writing is all or nothing: a new file of an unpredictable name beside the target is forced to the
disk and renamed. A full disk or a kill leaves the old file. A link is replaced, not followed.
"""

from __future__ import annotations

import errno
import io
import json
import math
import os
import re
import secrets
import stat
import struct
import zipfile
import zlib
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from tokenize import TokenError
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kgmrf._types import Numbers

if TYPE_CHECKING:
    from collections.abc import Iterator

FORMAT = 6
"""Version of all state files (trackers, banks, streams). It changes, and the changelog says so,
whenever an older release could not read a new file or would read it wrongly. Every other format is
refused by its number; there is no conversion, because a state can be made again from its data."""

MOST_ARRAYS = 1024
"""Arrays in one state file."""

PART = 1 << 18
"""Bytes that are read from a file at a time."""

LONGEST_HEADER = 1 << 20
"""Bytes of JSON in a state file: small, because objects take many times the room of their text."""

DAMAGE = (
    *(ArithmeticError, EOFError, KeyError, MemoryError, OSError, RuntimeError, SyntaxError),
    *(TypeError, ValueError, struct.error, zipfile.BadZipFile, zlib.error),
)
"""What reading a damaged file may raise, from zipfile, zlib, numpy's headers and JSON alike."""

SAFE = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_CLOEXEC", "O_BINARY"))
"""How files are opened to write, where the system knows how: no link is followed."""

ABSENT = (FileNotFoundError, IsADirectoryError, PermissionError)
"""What is wrong with the path and not with the file."""


# ---------------------------------------------------------------------- writing


@contextmanager
def replacing(path: str | Path) -> Iterator[IO[bytes]]:
    """A new file that takes the place of ``path`` when the block is left without an error."""
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "Is a folder, not a file", str(target))
    part = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | SAFE, 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            _keep_mode(target, file.fileno())
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def _keep_mode(target: Path, handle: int) -> None:
    """A file that was private stays private."""
    if hasattr(os, "fchmod"):
        with suppress(OSError):
            found = os.lstat(target)
            if stat.S_ISREG(found.st_mode):
                os.fchmod(handle, stat.S_IMODE(found.st_mode))


def _sync_folder(folder: Path) -> None:
    """Force the new name to the disk, on systems and file systems that can."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def clear_parts(path: str | Path) -> None:
    """Remove what killed writers of ``path`` left; only for one who holds the lock of ``path``."""
    target = Path(path)
    pattern = re.compile(re.escape(f".{target.name}.") + r"[0-9a-f]{16}\.part")
    for entry in target.parent.iterdir():
        if pattern.fullmatch(entry.name):
            with suppress(OSError):
                entry.unlink()


def write(path: str | Path, header: dict[str, Any], arrays: dict[str, Numbers]) -> None:
    """Put a state file in the place of ``path``, whole or not at all.

    header: what JSON can hold, `LONGEST_HEADER` bytes at most. arrays: numbers by name.
    """
    content = _content(header, arrays)
    with replacing(path) as file:
        np.savez(file, **content)


def pack(header: dict[str, Any], arrays: dict[str, Numbers]) -> bytes:
    """The bytes of the file that `write` would write, for engines that keep states themselves."""
    file = io.BytesIO()
    np.savez(file, **_content(header, arrays))
    return file.getvalue()


def _content(header: dict[str, Any], arrays: dict[str, Numbers]) -> dict[str, Any]:
    text = json.dumps({"format": FORMAT, **header}).encode()
    if len(text) > LONGEST_HEADER:
        raise ValueError(f"the header has {len(text)} bytes; {LONGEST_HEADER} are possible")
    named = {f"array_{name}": array for name, array in arrays.items()}
    return {"header": np.frombuffer(text, dtype=np.uint8), **named}


# ---------------------------------------------------------------------- reading


def read(path: str | Path) -> tuple[dict[str, Any], dict[str, Numbers]]:
    """Header and arrays that `write` wrote; ValueError if the file is anything else."""
    with open(path, "rb") as file:
        return _got(file, f"{path} is not a kgmrf state file")


def unpack(state: bytes) -> tuple[dict[str, Any], dict[str, Numbers]]:
    """What `pack` packed, with the care of `read`."""
    return _got(io.BytesIO(state), "this is not a kgmrf state")


def reason_of(error: BaseException) -> str:
    """An error as one short line."""
    return " ".join(str(error).split())[:160] or type(error).__name__


def _got(file: IO[bytes], fault: str) -> tuple[dict[str, Any], dict[str, Numbers]]:
    try:
        found = arrays_in(file)
        if "header" not in found:
            raise ValueError(f"it holds no header, only {', '.join(found)[:80] or 'nothing'}")
        text = found.pop("header")
        if text.dtype != np.uint8 or text.ndim != 1 or text.size > LONGEST_HEADER:
            raise ValueError(f"its header is {text.dtype} of shape {text.shape}")
        header = json.loads(text.tobytes().decode())
        if not isinstance(header, dict) or "format" not in header:
            raise ValueError("its header has no format")
        if header["format"] != FORMAT:
            raise ValueError(
                f"it has format {str(header['format'])[:20]}, this version reads {FORMAT}; make "
                "the state again from its data"
            )
    except DAMAGE as error:
        raise ValueError(f"{fault}: {reason_of(error)}") from error
    return header, {name.removeprefix("array_"): array for name, array in found.items()}


def arrays_in(file: IO[bytes]) -> dict[str, Numbers]:
    """The arrays of an .npz without compression, as numpy writes it.

    Together they are no larger than the file: entries that share bytes are refused.
    """
    size = file.seek(0, io.SEEK_END)
    found: dict[str, Numbers] = {}
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        if len(entries) > MOST_ARRAYS or sum(entry.file_size for entry in entries) > size:
            raise ValueError("it has too many arrays, or arrays that share bytes")
        for entry in entries:
            name = entry.filename.removesuffix(".npy")
            if entry.compress_type != zipfile.ZIP_STORED or entry.compress_size != entry.file_size:
                raise ValueError(f"{name[:40]} is compressed")
            if name in found:
                raise ValueError(f"{name[:40]} occurs twice")
            with archive.open(entry) as stream:
                found[name] = _array(stream, name, entry.file_size)
    return found


def _array(stream: IO[bytes], name: str, size: int) -> Numbers:
    header = read_header(stream)
    used = stream.tell()
    if size - used != header.n_bytes:
        raise ValueError(f"{name[:40]} should be {header.n_bytes} bytes, but is {size - used}")
    if header.dtype.kind not in "biuf" or not header.dtype.isnative:
        raise ValueError(f"{name[:40]} holds {header.dtype}, not numbers of this machine")
    array = np.empty(header.shape, header.dtype, order="F" if header.fortran else "C")
    raw = array.reshape(-1, order="A").view(np.uint8)
    done = 0
    while done < raw.size:  # a part at a time, into its place
        part = stream.read(min(PART, raw.size - done))
        if not part:
            raise EOFError(f"{name[:40]} ends early")
        raw[done : done + len(part)] = np.frombuffer(part, dtype=np.uint8)
        done += len(part)
    stream.read(1)  # to the end, where the checksum is
    if header.dtype.kind == "b" and raw.size and raw.max() > 1:
        raise ValueError(f"{name[:40]} holds truth values other than 0 and 1")
    return np.asarray(array, order="C")


# ---------------------------------------------------------------------- words


def packed_words(words: list[str]) -> tuple[Numbers, Numbers]:
    """Words as bytes, and where each ends: arrays that a state file can hold.

    >>> unpacked_words(*packed_words(["a", "", "bc"]))
    ['a', '', 'bc']
    """
    # Half of a pair of surrogates is possible in JSON, and in nothing else.
    raw = [word.encode("utf-8", "surrogatepass") for word in words]
    ends = np.cumsum(np.fromiter(map(len, raw), dtype=np.int64, count=len(raw)))
    return np.frombuffer(b"".join(raw), dtype=np.uint8), ends


def unpacked_words(text: Numbers, ends: Numbers) -> list[str]:
    """What `packed_words` packed; ValueError if it cannot be that."""
    if text.dtype != np.uint8 or ends.dtype != np.int64 or text.ndim != 1 or ends.ndim != 1:
        raise ValueError("its keys are not words")
    edges = [0, *ends.tolist()]
    if edges != sorted(edges) or edges[-1] != text.size:
        raise ValueError("its keys are not words")
    raw = text.tobytes()
    return [raw[a:b].decode("utf-8", "surrogatepass") for a, b in pairwise(edges)]


# ---------------------------------------------------------------------- npy and npz


class Header(NamedTuple):
    """What a .npy header says: type, shape, and whether columns come first."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool

    @property
    def n_bytes(self) -> int:
        """Size of the data that must follow."""
        return self.dtype.itemsize * math.prod(self.shape)


def read_header(stream: IO[bytes]) -> Header:
    """The header of a .npy stream, which is left at the first byte of the data."""
    version = np.lib.format.read_magic(stream)
    readers: dict[tuple[int, int], Any] = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in readers:
        raise ValueError(f"it has version {version} of the npy format")
    try:
        shape, fortran, dtype = readers[version](stream)
    except (SyntaxError, TokenError, RecursionError, MemoryError) as error:
        raise ValueError(f"its header is no dictionary: {type(error).__name__}") from error
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which are never loaded")
    if any(n < 0 for n in shape):
        raise ValueError(f"it has the shape {shape}")
    return Header(dtype, shape, fortran)
