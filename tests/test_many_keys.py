"""A stream of very many keys needs hardly more memory than the rows of its tracks, at every moment:
while tracks are added, in a checkpoint, and when it is read."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgmrf import TrackerBank
from kgmrf.bank.capacity import extend
from kgmrf.stream import Settings, Stream

KEYS, D, BLOCK = 24_000, 5, 2000
MOST = 1.3
"""Times the rows' size, which is what the issue asks for."""


def rows_of(stream: Stream) -> int:
    assert stream.pool is not None
    return len(stream.pool) * stream.pool.bank._engine.size * 8


def peak(work: Callable[[], Any]) -> float:
    """The most bytes that Python and numpy held at once while this ran."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def filled(stream: Stream) -> None:
    rng = np.random.default_rng(0)
    for first in range(0, KEYS, BLOCK):
        keys = [f"k{k:07d}" for k in range(first, first + BLOCK)]
        stream.take_rows(keys, np.zeros(BLOCK), rng.normal(size=(BLOCK, D)))


def test_adding_saving_and_reading_need_the_rows_once(tmp_path: Path) -> None:
    if "coverage" in sys.modules:  # it looks at arrays, and those that are looked at are copied
        name = f"{__file__}::test_adding_saving_and_reading_need_the_rows_once"
        done = subprocess.run([sys.executable, "-m", "pytest", "-q", name], capture_output=True)
        assert done.returncode == 0, done.stdout.decode()
        return
    stream, path = Stream(Settings(fields=("age",))), tmp_path / "state"
    while_filled = peak(lambda: filled(stream))
    rows = rows_of(stream)
    assert rows > 4e7  # else all else would weigh more
    assert while_filled < MOST * rows
    assert peak(lambda: stream.save(path)) < (MOST - 1.0) * rows
    assert path.stat().st_size < 1.1 * rows
    other = Stream(Settings(fields=("age",)))
    assert peak(lambda: other.restore(path)) < MOST * rows
    for name, array in stream.pool.bank.state_dict(slice(KEYS)).items():  # type: ignore[union-attr]
        np.testing.assert_array_equal(other.pool.bank.state_dict()[name], array)  # type: ignore[union-attr]


def test_a_key_after_a_restart_does_not_copy_the_others(tmp_path: Path) -> None:
    stream, path = Stream(Settings(fields=("age",))), tmp_path / "state"
    filled(stream)
    stream.save(path)
    other = Stream(Settings(fields=("age",)))
    other.restore(path)
    more = peak(lambda: other.take_rows(["new"], np.zeros(1), np.ones((1, D))))
    assert more < 1.1 * rows_of(stream)  # what was there is moved, and not copied


def test_room_grows_in_place_and_beside_a_view() -> None:
    arrays = {"a": np.arange(6.0).reshape(2, 3)[:].copy()}
    extend(arrays, "a", 1, np.full(3, 7.0))
    view = arrays["a"][0]
    extend(arrays, "a", 2, np.full(3, 8.0))
    assert view.tolist() == [0.0, 1.0, 2.0]
    assert arrays["a"][:, 0].tolist() == [0.0, 3.0, 7.0, 8.0, 8.0]


@pytest.mark.parametrize("kind", ["covariance", "rotation"])
def test_tracks_that_are_added_are_fresh(kind: str) -> None:
    bank, whole = TrackerBank(0, 3, kind=kind), TrackerBank(40, 3, kind=kind)
    for n in (1, 7, 32):
        bank.add(n)
    for name, array in whole.state_dict().items():
        np.testing.assert_array_equal(bank.state_dict()[name], array)
