"""The state of a stream as a header and arrays, and back, checked."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from kgmrf._deprecated import MEANS
from kgmrf._npz import DAMAGE, packed_words, reason_of, unpacked_words
from kgmrf._types import Numbers
from kgmrf.stream.csv_lines import CsvReader
from kgmrf.stream.json_lines import JsonReader
from kgmrf.stream.records import LARGEST_D, NAMES, Reader
from kgmrf.stream.settings import Counts, Settings
from kgmrf.stream.table_rows import TableReader

if TYPE_CHECKING:
    from kgmrf.stream.loop import Stream


def content(stream: Stream) -> tuple[dict[str, Any], dict[str, Numbers]]:
    """Everything that a stream remembers."""
    header: dict[str, Any] = {
        "kind": "stream",
        "settings": stream.settings.lasting(),
        "counts": asdict(stream.counts),
        "told": stream.header,
    }
    arrays: dict[str, Numbers] = {}
    pool = stream.pool
    if pool is not None:
        reader = stream.reader
        header["reader"] = {name: getattr(reader, name) for name in reader.lasting}
        # JSON has no infinities and no NaN.
        header["unit"] = pool.unit.first
        header["clock"] = [t if math.isfinite(t) else None for t in (pool.watermark, pool.swept)]
        arrays = pool.state_dict()
        arrays["keys"], arrays["key_ends"] = packed_words(pool.names)
        if stream.held is not None:
            keys, held = stream.held.content()
            header["reorder"] = stream.held.numbers()
            arrays |= {f"held_{name}": array for name, array in held.items()}
            arrays["held_keys"], arrays["held_key_ends"] = packed_words(keys)
    return header, arrays


def restored(
    stream: Stream, path: str, header: dict[str, Any], arrays: dict[str, Numbers]
) -> dict[str, Any]:
    """Put what `content` gave into a fresh stream; returns what else was stored beside it."""
    if header.get("kind") != "stream":
        raise ValueError(f"{path} is not the state of a stream")
    lasting, mine = header.get("settings"), stream.settings.lasting()
    known = lasting if isinstance(lasting, dict) else mine
    known = {**known, "mean": MEANS.get(str(known.get("mean")), known.get("mean"))}
    differ = [name for name in mine if known.get(name) != mine[name]]
    if differ:
        raise ValueError(
            f"{path} was written with other settings ({', '.join(differ)}); use the same "
            "again, or another state file"
        )
    try:
        stream.counts = Counts(**{str(k): _whole(v) for k, v in header["counts"].items()})
        stream.header = [str(name) for name in header["told"]]
        more = dict(header.get("more", {}))
        pending = arrays.pop("pending", np.zeros(0, dtype=np.uint8))
        if pending.ndim != 1 or pending.dtype != np.uint8:
            raise ValueError("its output is not text")
        more["pending"] = pending.tobytes()
        if "reader" in header:
            _tracks(stream, header, arrays)
        elif arrays:
            raise ValueError("it has arrays and no tracks")
    except (*DAMAGE, AttributeError) as error:
        raise ValueError(f"{path} is not the state of a stream: {reason_of(error)}") from error
    return more


def _tracks(stream: Stream, header: dict[str, Any], arrays: dict[str, Numbers]) -> None:
    stream.reader = _reader(header["reader"], stream.settings)
    keys = unpacked_words(arrays.pop("keys"), arrays.pop("key_ends"))
    n, d = len(keys), stream.reader.d
    # The size is checked before room is made for it: every state holds a d x d matrix.
    total = sum(array.nbytes for array in arrays.values())
    if not 1 <= d <= LARGEST_D or n * d**2 * 8 > total:
        raise ValueError(f"{n} tracks of dimension {d} do not fit its {total} bytes")
    pool = stream._pool()
    held = {name: arrays.pop(name) for name in list(arrays) if name.startswith("held_")}
    held = {name.removeprefix("held_"): array for name, array in held.items()}
    if held:
        _restore_held(stream, header["reorder"], held)
    pool.load_state_dict(keys, arrays)
    pool.unit.restore(header.get("unit", []))
    mark, swept = header["clock"]
    pool.watermark = math.nan if mark is None else float(mark)
    pool.swept = -math.inf if swept is None else float(swept)


def _restore_held(stream: Stream, clock: Any, held: dict[str, Numbers]) -> None:
    """Put back the lines that were held in order to sort them."""
    keys = unpacked_words(held.pop("keys"), held.pop("key_ends"))
    if stream.held is not None:
        d = stream.reader.d
        shape = (d,) if stream.reader.kind == "samples" else (d, d)
        stream.held.restore(clock, keys, held, shape, bool(stream.reader.rated))
    elif keys:
        raise ValueError(f"it holds {len(keys)} lines that wait for their turn; give --reorder")


def reader_of(form: str) -> Any:
    """What reads this format."""
    if form in ("arrow", "parquet"):
        return TableReader
    return CsvReader if form == "csv" else JsonReader


def _reader(saved: dict[str, Any], settings: Settings) -> Reader:
    """The reader that saved this."""
    style = saved["style"]
    if style not in (None, "", "D", "s", "us", "DZ", "sZ", "usZ"):
        raise ValueError(f"unknown dates {str(style)[:20]!r}")
    rated = saved.get("rated") or False  # states of before have no rates
    if type(rated) is not bool:
        raise ValueError(f"{str(rated)[:20]!r} does not say whether it has rates")
    requested: dict[str, Any] = dict(
        key=settings.key, time=settings.time, columns=settings.columns, style=style, rated=rated
    )
    names = saved.get("channels")
    channels = None if names is None else tuple(str(name) for name in names)
    maker = reader_of(settings.format)
    if maker is CsvReader:
        return CsvReader([str(name) for name in saved["header"]], channels, **requested)
    what, d = saved["what"], saved["d"]
    if what not in NAMES or type(d) is not int:
        raise ValueError(f"unknown observation {str(what)[:20]!r}")
    reader = maker(what, d, **requested)
    if maker is JsonReader:
        reader.key, reader.time = str(saved["key"]), str(saved["time"])
    reader.channels = channels
    if what == "x" and channels is not None and len(channels) != d:
        raise ValueError(f"{len(channels)} channels of {d} have names")
    if saved.get("key_kind") in ("words", "numbers"):
        reader.key_kind = saved["key_kind"]
    return reader


def _whole(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{str(value)[:20]!r} is not a count")
    return value
