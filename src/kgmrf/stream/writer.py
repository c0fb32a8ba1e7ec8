"""Estimates as lines of text, a block at a time."""

from __future__ import annotations

import json
import math

import numpy as np

from kgmrf._types import Numbers
from kgmrf.kernels.engine import loops
from kgmrf.stream.records import Clock, as_bytes


class LineWriter:
    """Estimates as JSON lines or CSV rows: key, time, and the fields, to some digits.

    digits: significant digits; 16 and more write every bit, slowly.
    """

    def __init__(self, format_: str, fields: dict[str, tuple[int, ...]], digits: int) -> None:
        self.json = format_ == "json"
        self.fields = fields
        self.digits = digits
        self.words = self._json_words() if self.json else self._csv_words()
        self.twins = self._twins()

    def header(self) -> bytes:
        """The first line of CSV output."""
        if self.json:
            return b""
        names = []
        for name, shape in self.fields.items():
            names += [f"{name}{''.join(f'_{k}' for k in index)}" for index in np.ndindex(*shape)]
        return ",".join(["key", "time", *names]).encode() + b"\n"

    def _twins(self) -> Numbers:
        """Covariances are symmetric: what stands above the diagonal is copied below it."""
        twins: list[int] = []
        for name, shape in self.fields.items():
            places = len(twins) + np.arange(math.prod(shape)).reshape(shape)
            twins += (
                (np.minimum(places, places.T) if name == "covariance" else places).ravel().tolist()
            )
        return np.array(twins, dtype=np.int64)

    def _json_words(self) -> list[str]:
        """The words before, between and behind the numbers."""
        text = ""
        for name, shape in self.fields.items():
            text += f',"{name}":' + _nested(shape)
        return (text + "}\n").split("#")

    def _csv_words(self) -> list[str]:
        n = sum(math.prod(shape) for shape in self.fields.values())
        return [",", *[","] * (n - 1), "\n"]

    def text(
        self, keys: list[str], times: Numbers, found: dict[str, Numbers], clock: Clock | None = None
    ) -> bytes:
        """The lines of all estimates; clock: how times are written."""
        n = len(keys)
        if n == 0:
            return b""
        flat = np.concatenate([found[name].reshape(n, -1) for name in self.fields], axis=1)
        quoted = {key: self._quoted(key) for key in set(keys)}
        stamps = (clock or Clock()).words(times)
        pairs = zip(keys, stamps, strict=True)
        if self.json:
            mark = '"' if clock is not None and clock.style else ""
            heads = [f'{{"key":{quoted[k]},"time":{mark}{t}{mark}' for k, t in pairs]
        else:
            heads = [f"{quoted[k]},{t}" for k, t in pairs]
        if self.digits > 15:
            return self._exactly(heads, flat)
        return self._quickly(heads, flat)

    def _quoted(self, key: str) -> str:
        if self.json:
            return json.dumps(key)
        if any(mark in key for mark in ',"\r\n'):
            return '"' + key.replace('"', '""') + '"'
        return key

    def _exactly(self, heads: list[str], flat: Numbers) -> bytes:
        nothing = "null" if self.json else ""
        lines = []
        for head, row in zip(heads, flat.tolist(), strict=True):
            cells = [repr(v) if math.isfinite(v) else nothing for v in row]
            pairs = zip(self.words, cells, strict=False)
            lines.append(head + "".join(w + c for w, c in pairs) + self.words[-1])
        return "".join(lines).encode()

    def _quickly(self, heads: list[str], flat: Numbers) -> bytes:
        loop = loops("text")
        letters = "".join(heads)
        joined = letters.encode()
        starts = heads if letters.isascii() else [head.encode() for head in heads]
        words = [word.encode() for word in self.words]
        # A number has at most a sign, 15 digits or 16 before the point, a point, and e-308.
        room = len(joined) + len(heads) * sum(map(len, words)) + flat.size * 26
        out = np.empty(room, dtype=np.uint8)
        length = loop.put_lines(
            out,
            as_bytes(joined),
            np.cumsum(np.fromiter(map(len, starts), dtype=np.int64, count=len(heads))),
            np.ascontiguousarray(flat),
            self.twins,
            as_bytes(b"".join(words)),
            np.cumsum(np.array([len(w) for w in words], dtype=np.int64)),
            self.digits,
            loop.POWERS,
            as_bytes(b"null" if self.json else b""),
        )
        return out[:length].tobytes()


def _nested(shape: tuple[int, ...]) -> str:
    if not shape:
        return "#"
    return "[" + ",".join([_nested(shape[1:])] * shape[0]) + "]"
