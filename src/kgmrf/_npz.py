"""Reading .npy and .npz without trust: nothing executable, no more memory than the file is worth.

``numpy.load`` allocates what a header claims before it has read a byte of data. Here a header that
claims more than the file holds is refused first.
"""

from __future__ import annotations

import zipfile
import zlib
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tokenize import TokenError
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kgmrf._types import Numbers

if TYPE_CHECKING:
    from collections.abc import Iterator

DAMAGE = (
    ArithmeticError,
    EOFError,
    KeyError,
    MemoryError,
    NotImplementedError,
    OSError,
    RecursionError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What reading a damaged file may raise, from zipfile, zlib, numpy's headers and JSON alike."""


class Header(NamedTuple):
    """What a .npy header says: type, shape, and whether columns come first."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool

    @property
    def n_bytes(self) -> int:
        """Size of the data that must follow."""
        size = self.dtype.itemsize
        for n in self.shape:
            size *= n
        return size


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


@contextmanager
def opened(path: str | Path | IO[bytes]) -> Iterator[zipfile.ZipFile]:
    """The zip file at ``path``, or in an open file."""
    source = open(path, "rb") if isinstance(path, (str, Path)) else nullcontext(path)  # noqa: SIM115
    with source as file, zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ValueError(f"{info.filename} is compressed in a way numpy does not write")
        yield archive


def names(archive: zipfile.ZipFile) -> list[str]:
    """The arrays in an .npz, by name."""
    return [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]


def read_all(path: str | Path | IO[bytes]) -> dict[str, Numbers]:
    """Every array of an .npz that was written without compression, checksums verified.

    Raises one of `DAMAGE` if anything is wrong with it.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "state.npz")
    >>> np.savez(path, a=np.arange(3))
    >>> read_all(path)["a"].tolist()
    [0, 1, 2]
    """
    found: dict[str, Numbers] = {}
    with opened(path) as archive:
        for info in archive.infolist():
            if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
                raise ValueError(f"{info.filename} is compressed")
            # Stored as it is, so the size was checked against the file when this is read.
            with archive.open(info) as stream:
                header = read_header(stream)
                data = stream.read()
            if len(data) != header.n_bytes:
                raise ValueError(
                    f"{info.filename} should be {header.n_bytes} bytes, but is {len(data)}"
                )
            array = np.frombuffer(data, dtype=header.dtype)
            if header.fortran:
                array = array.reshape(header.shape[::-1]).T
            name = info.filename.removesuffix(".npy")
            found[name] = array.reshape(header.shape).copy()
    return found
