"""Faults that users met in streams, files and banks, a test for each.

Most stand beside what they are about (test_stream_rules, test_stream_operation, test_state_files,
test_processes, test_compile, test_safe_laws, test_rotations, test_trajectories); here are the rest.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
import types
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kgmrf
from kgmrf import KGMRF, TrackerBank, _npz
from kgmrf.bank.steps import processors
from kgmrf.cli import main
from kgmrf.stream import Settings, Stream


def test_a_bank_file_whose_clocks_say_that_it_has_just_begun(tmp_path: Path) -> None:
    """Counts set to zero beside states that are further: once heap corruption, then NaN."""
    rows = np.random.default_rng(0).normal(size=(40, 8, 5, 3))
    seen = np.swapaxes(rows, -1, -2) @ rows / 5
    bank = TrackerBank(8, 3, n_samples=5)
    for one in seen[:9]:
        bank.update(one)
    path = tmp_path / "bank.npz"
    bank.save(path)
    header, arrays = _npz.read(path)
    header.pop("format")
    for places in (slice(0, 2), slice(2, 3), slice(2, 4), slice(2, 6)):
        changed = arrays["rows"].copy()
        changed[:, places] = 0.0
        path.write_bytes(_npz.pack(header, {**arrays, "rows": changed}))
        try:
            found = TrackerBank.load(path)
        except ValueError:
            continue
        for one in seen:
            found.update(one)
        assert np.isfinite(found.estimate().covariance).all(), places


def test_a_rotation_file_with_a_variance_of_zero(tmp_path: Path) -> None:
    """The file was accepted, and the second observation after it gave NaN."""
    bank, path = TrackerBank(1, 3, kind="rotation"), tmp_path / "bank.npz"
    for _ in range(3):
        bank.update(np.eye(3)[None])
    bank.save(path)
    header, arrays = _npz.read(path)
    header.pop("format")
    for place in range(186, 212, 5):
        changed = arrays["rows"].copy()
        changed[:, place] = 0.0
        path.write_bytes(_npz.pack(header, {**arrays, "rows": changed}))
        try:
            found = TrackerBank.load(path)
        except ValueError:
            continue
        for _ in range(4):
            found.update(np.eye(3)[None])
        assert np.isfinite(found.estimate().rotation).all(), place


def test_systems_without_sched_getaffinity(monkeypatch: pytest.MonkeyPatch) -> None:
    """It exists on Linux only; importing the bank failed elsewhere."""
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert processors() >= 1


def test_no_function_hides_a_module_of_its_name() -> None:
    """kgmrf.diagnose was a function, and the module kgmrf.diagnose could not be reached."""
    for name in kgmrf.__all__:
        if not isinstance(getattr(kgmrf, name), types.ModuleType):
            assert f"kgmrf.{name}" not in sys.modules, name


def test_results_are_freed_without_the_collector() -> None:
    """Results of the default formed cycles: 40 filters of 5,000 rows kept 150 MB."""
    rows = np.random.default_rng(0).normal(size=(50, 3))
    gc.collect()
    gc.disable()
    try:
        tracker = KGMRF()
        result = tracker.filter(rows)
        assert np.isfinite(result.covariance[-1]).all()
        left = [weakref.ref(result), weakref.ref(tracker)]
        del result, tracker
        assert [reference() for reference in left] == [None, None]
    finally:
        gc.enable()


def test_one_null_does_not_slow_its_block() -> None:
    """A single null sent its whole block through a reader that was 34 times slower."""
    rows = np.random.default_rng(0).normal(size=(4000, 3)).tolist()
    plain = [json.dumps({"key": "a", "time": k, "x": x}).encode() for k, x in enumerate(rows)]
    holed = [*plain]
    holed[100] = json.dumps({"key": "a", "time": 100, "x": [None, *rows[100][1:]]}).encode()

    def seconds(lines: list[bytes]) -> float:
        best = np.inf
        for _ in range(3):
            reader = Stream(Settings()).reader
            began = time.process_time()
            reader.parse(lines)
            best = min(best, time.process_time() - began)
        return best

    assert seconds(holed) < 5.0 * seconds(plain)


def test_a_simulated_table_can_be_tracked_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command asked how many samples are behind the covariances that it had written itself."""
    path = str(tmp_path / "e.csv")
    assert main(["simulate", "ellipse", "-o", path, "--frames", "40"]) == 0
    assert main(["track", path, "--json"]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["kind"] == "covariance"
    assert told["frames"] == 40
