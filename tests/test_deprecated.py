"""Old names go on for one release: each warns, names the new one, and gives the same."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kgmrf
from kgmrf import KGMRF, TrackerBank, _deprecated, cli
from kgmrf.members import Average, Rotating, as_members
from kgmrf.stream import Settings, Stream
from kgmrf.trackers import Tracker

X = np.random.default_rng(0).normal(size=(60, 3))
DOCS = Path(__file__).parents[1] / "docs"


@pytest.mark.parametrize("old", _deprecated.MODULES)
def test_a_module_is_found_under_its_old_name(old: str) -> None:
    sys.modules.pop(old, None)
    with pytest.warns(DeprecationWarning, match=rf"{old} is now {_deprecated.MODULES[old]}"):
        found = importlib.import_module(old)
    assert found is importlib.import_module(_deprecated.MODULES[old])
    sys.modules.pop(old)


@pytest.mark.parametrize("name", _deprecated.STAYING)
def test_two_modules_are_found_in_both_places(name: str) -> None:
    found = importlib.import_module(name)
    assert found is importlib.import_module(_deprecated.STAYING[name])
    assert getattr(kgmrf, name.rpartition(".")[2]) is found


def old_methods(kind: type) -> dict[str, str]:
    found = {name: vars(kind)[name].__doc__ for name in vars(kind)}
    mark = "Deprecated: `"
    return {name: doc[len(mark) : -2] for name, doc in found.items() if str(doc).startswith(mark)}


@pytest.mark.parametrize("kind", [Tracker, TrackerBank, kgmrf.Result])
def test_old_methods_name_methods_that_exist(kind: type) -> None:
    table = old_methods(kind)
    assert table
    assert all(callable(getattr(kind, new)) for new in table.values())


def test_old_methods_give_what_the_new_ones_give() -> None:
    tracker = KGMRF()
    tracker.filter(X)
    with pytest.warns(DeprecationWarning, match=r"Tracker\.look is now current_values"):
        found: Any = tracker.look()  # type: ignore[attr-defined]
    np.testing.assert_array_equal(found["covariance"], tracker.current_values()["covariance"])
    with pytest.warns(DeprecationWarning, match="memory is now state_dict"):
        memory = tracker.memory()  # type: ignore[attr-defined]
    assert memory.keys() == tracker.state_dict().keys()
    bank, other = TrackerBank(1, 3), TrackerBank(1, 3)
    with pytest.warns(DeprecationWarning, match="take is now feed"):
        lines = bank.take([0] * 60, X, dt=np.ones(60), fields="time")  # type: ignore[attr-defined]
    assert len(lines["time"]) == len(other.feed([0] * 60, X, dt=np.ones(60), fields="time")["time"])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"mean": "running"}, {"mean": "expanding"}),
        ({"mean": "drift"}, {"mean": "ewm"}),
        ({"rank": 1, "velocity": True}, {"rank": 1, "rotating_axes": True}),
        (
            {"gains": "information", "warmup_samples": 9, "warmup_frames": 4},
            {"gains": "information", "pool_samples": 9, "pool_steps": 4},
        ),
    ],
)
def test_old_settings_are_the_new_ones(old: dict[str, Any], new: dict[str, Any]) -> None:
    with pytest.warns(DeprecationWarning, match="is now"):
        found = KGMRF(**old)
    assert found.settings() == KGMRF(**new).settings()
    np.testing.assert_array_equal(found.filter(X).covariance, KGMRF(**new).filter(X).covariance)


def test_old_fields_and_names() -> None:
    estimate = KGMRF().filter(X)[-1]
    with pytest.warns(DeprecationWarning, match="is_initial"):
        assert estimate.starting == estimate.is_initial  # type: ignore[union-attr]
    with pytest.warns(DeprecationWarning, match="UpdateStatus"):
        assert kgmrf.bank.Taken is kgmrf.bank.UpdateStatus  # type: ignore[attr-defined]
    with pytest.warns(DeprecationWarning, match=r"kgmrf\.baselines\.HoldLast"):
        assert kgmrf.trackers.HoldLast is kgmrf.HoldLast  # type: ignore[attr-defined]
    with pytest.warns(DeprecationWarning, match="errors"):
        assert Stream(Settings()).faults == []  # type: ignore[attr-defined]


def test_members_of_older_state_files() -> None:
    tables = [
        {"member": "Turning", "acceleration": 1e-6},
        {"member": "Average", "half_life": 8.0, "limited": True},
    ]
    assert as_members(tables, 2) == (Average(8.0, clip_outliers=True), Rotating(1e-6))


@pytest.mark.parametrize("words", [["--mean", "running"], ["--mean=running"]])
def test_a_command_takes_the_old_word(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "a.npy", X)
    call = ["track", str(tmp_path / "a.npy"), "--json"]
    assert cli.main([*call, *words]) == 0
    old = capsys.readouterr()
    assert "--mean running is now --mean expanding" in old.err
    assert cli.main([*call, "--mean", "expanding"]) == 0
    both = [json.loads(text) for text in (old.out, capsys.readouterr().out)]
    assert all(one.pop("seconds") >= 0 for one in both)
    assert both[0] == both[1]


def test_the_page_lists_every_old_name() -> None:
    page = (DOCS / "upgrading.md").read_text(encoding="utf-8")
    listed = [*_deprecated.MODULES.items(), *_deprecated.MEANS.items()]
    for kind in (Tracker, TrackerBank, kgmrf.Result):
        listed += old_methods(kind).items()
    assert not [old for old, new in listed if f"`{old}`" not in page or f"`{new}`" not in page]
