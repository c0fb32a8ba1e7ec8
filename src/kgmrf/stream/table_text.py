"""Estimates as messages of Arrow's stream format."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgmrf._types import Numbers
from kgmrf.io import dates
from kgmrf.stream.keys import Coded


def batch_of(
    keys: Any, times: Numbers, fields: dict[str, Numbers], *, dated: str, key_kind: str | None
) -> Any:
    """Estimates as a record batch: key, time, and a column for each field, matrices as lists.

    dated: style of dates, "": numbers. key_kind: "words" or "numbers".

    >>> found = {"covariance": np.zeros((1, 2, 2))}
    >>> batch_of(["a"], np.zeros(1), found, dated="D", key_kind="words").schema.field("time").type
    DataType(date32[day])
    """
    import pyarrow as pa

    coded = isinstance(keys, Coded)
    words = pa.array(keys.words if coded else list(keys), pa.string())
    key = words.take(pa.array(keys.codes)) if coded else words
    if key_kind == "numbers":
        key = pa.array([None if w == "" else int(w) for w in words.to_pylist()], pa.int64())
        key = key.take(pa.array(keys.codes)) if coded else key
    columns = {"key": key, "time": _stamps(times, dated)}
    columns |= {name: _nested(array) for name, array in fields.items()}
    return pa.record_batch(columns)


def _stamps(times: Numbers, dated: str) -> Any:
    import pyarrow as pa

    if not dated:
        return pa.array(times)
    if dated.startswith("D"):
        return pa.array(np.floor(times / 86400.0).astype(np.int32)).cast(pa.date32())
    zone = "UTC" if dated.endswith("Z") else None
    stamps = dates.instants(times).astype(np.int64)
    return pa.array(stamps).cast(pa.timestamp("us", tz=zone))


def _nested(values: Numbers) -> Any:
    """Arrays ``(n, a, b)`` as n lists of a lists of b numbers; objects are words or None."""
    import pyarrow as pa

    if values.dtype == object:
        return pa.array(values.tolist(), pa.string())
    found = pa.array(np.ascontiguousarray(values, dtype=float).reshape(-1))
    for size in reversed(values.shape[1:]):
        found = pa.FixedSizeListArray.from_arrays(found, size)
    return found
