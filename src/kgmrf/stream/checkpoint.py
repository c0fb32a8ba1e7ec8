"""The state of a stream in one file that is either the old one or the new one, never half."""

from __future__ import annotations

import io
import json
import math
import os
from pathlib import Path
from typing import IO, Any

import numpy as np

from kgmrf import _npz
from kgmrf._types import Numbers

FORMAT = 1
"""Version of the state files of streams."""


def write(path: Path, header: dict[str, Any], arrays: dict[str, Numbers]) -> None:
    """Write beside the file, force it to the disk, then put it in the file's place.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "stream.state"
    >>> write(path, {"lines": 3}, {"last": np.zeros(2)})
    >>> read(path)[0]["lines"]
    3
    """
    part = path.with_name(f".{path.name}.part")
    with open(part, "wb") as file:
        _put(file, header, arrays)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)
    if hasattr(os, "O_DIRECTORY"):
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def pack(header: dict[str, Any], arrays: dict[str, Numbers]) -> bytes:
    """The bytes of the file that `write` would write, for engines that keep states themselves.

    >>> unpack(pack({"lines": 3}, {"last": np.zeros(2)}))[0]["lines"]
    3
    """
    file = io.BytesIO()
    _put(file, header, arrays)
    return file.getvalue()


def _put(file: IO[bytes], header: dict[str, Any], arrays: dict[str, Numbers]) -> None:
    text = json.dumps({"format": FORMAT, **header}).encode()
    content: dict[str, Any] = {f"array_{name}": array for name, array in arrays.items()}
    np.savez(file, header=np.frombuffer(text, dtype=np.uint8), **content)


def unpack(state: bytes) -> tuple[dict[str, Any], dict[str, Numbers]]:
    """What `pack` packed, with the care of `read`."""
    return _get(io.BytesIO(state), "this")


def read(path: Path) -> tuple[dict[str, Any], dict[str, Numbers]]:
    """What `write` wrote. A file from a stranger can never run code or fill the memory."""
    with open(path, "rb") as file:
        return _get(file, str(path))


def _get(file: IO[bytes], name: str) -> tuple[dict[str, Any], dict[str, Numbers]]:
    try:
        found = _npz.read_all(file)
        header = json.loads(bytes(found.pop("header")).decode())
        if header["format"] != FORMAT:
            raise ValueError(f"it has format {header['format']}, this version reads {FORMAT}")
        arrays = {word.removeprefix("array_"): array for word, array in found.items()}
    except _npz.DAMAGE as error:
        detail = " ".join(str(error).split())[:160] or type(error).__name__
        raise ValueError(f"{name} is not the state of a stream: {detail}") from error
    return header, arrays


def fits(arrays: dict[str, Numbers], expected: dict[str, Numbers], n: int) -> bool:
    """Whether the arrays are those of n tracks: same names, shapes and kinds of numbers."""
    return set(arrays) == set(expected) and all(
        array.shape == (n, *expected[name].shape[1:])
        and array.dtype == expected[name].dtype
        and math.prod(array.shape) * array.dtype.itemsize == array.nbytes
        for name, array in arrays.items()
    )
