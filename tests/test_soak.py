"""The soak of docs/reliability.md: a short version of each trial, and all of it with `-m slow`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = [
    pytest.mark.skipif(not (ROOT / "benchmarks").is_dir(), reason="a copy without benchmarks"),
    pytest.mark.skipif(os.name != "posix", reason="signals and limits of POSIX"),
]


@pytest.fixture
def soak(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks import soak

    return soak


@pytest.mark.parametrize(
    ("name", "n"), [("full_disks", 1), ("checkpoints", 200), ("nonsense", 3000)]
)
def test_a_short_soak_of_streams(soak: Any, name: str, n: int, tmp_path: Path) -> None:
    found = getattr(soak, name)(n, tmp_path)
    assert not soak.faults(found), found


def test_a_few_kills_of_the_command(soak: Any, tmp_path: Path) -> None:
    found = soak.kills(3, tmp_path, 20_000)
    assert found["kills"] == 3
    assert not soak.faults(found), found


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numbers that cannot be are meant here
@pytest.mark.parametrize(("name", "n"), [("data_files", 100), ("state_files", 600)])
def test_a_short_soak_of_files(soak: Any, name: str, n: int, tmp_path: Path) -> None:
    found = getattr(soak.mutants, name)(n, tmp_path)
    assert not soak.faults(found), found
    assert found["refused"] > n // 4


def test_a_soak_that_was_interrupted_goes_on(
    soak: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    trial = (lambda n, folder: calls.append(n) or {"lost": 0}, 200)
    monkeypatch.setattr(soak, "TRIALS", {"kills": trial, "steps": trial})
    output = tmp_path / "reliability.json"
    soak.run(0.1, output, ("kills",))
    assert calls == [20]
    assert list(soak.run(0.1, output)) == ["kills", "steps"]
    assert calls == [20, 20]
    soak.run(0.05, output)  # another share is another run
    assert calls == [20, 20, 10, 10]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_whole_soak(soak: Any, tmp_path: Path) -> None:
    where = os.environ.get("KGMRF_SOAK")
    share = soak.share_of_all()
    found = soak.run(share, ROOT / where if where else tmp_path / "reliability.json")
    assert found["kills"]["kills"] >= round(200 * share)
    assert found["states"]["files"] == round(100_000 * share)
    assert not sum(map(soak.faults, found.values())), found
