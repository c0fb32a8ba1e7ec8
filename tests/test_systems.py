"""Linux, macOS and Windows: what only one of them has is never taken for granted."""

from __future__ import annotations

import ast
import io
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import kgmrf
from kgmrf import KGMRF

SOURCES = sorted(Path(kgmrf.__file__).parent.rglob("*.py"))
POSIX_ONLY = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "termios"}
WINDOWS_ONLY = {"msvcrt", "winreg", "_winapi"}


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux without what Windows lacks, and with a lock such as Windows has."""
    fcntl = pytest.importorskip("fcntl", reason="this is Windows: the other tests tell")
    for name in ("sched_getaffinity", "fchmod", "O_DIRECTORY", "O_NOFOLLOW", "O_CLOEXEC", "fork"):
        monkeypatch.delattr(os, name, raising=False)
    for name in POSIX_ONLY - {"posix"}:
        monkeypatch.setitem(sys.modules, name, None)

    def locking(handle: int, mode: int, size: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)

    monkeypatch.setitem(sys.modules, "msvcrt", SimpleNamespace(LK_NBLCK=2, locking=locking))
    monkeypatch.setattr("kgmrf.stream.endpoints.POLLS", False)


@pytest.mark.usefixtures("elsewhere")
def test_states_are_written_and_read_without_posix(tmp_path: Path) -> None:
    tracker = KGMRF()
    tracker.filter(np.random.default_rng(0).normal(size=(50, 2)))
    for _ in range(2):  # the second time over the first
        tracker.save(tmp_path / "state.npz")
    same = kgmrf.load(tmp_path / "state.npz")
    np.testing.assert_array_equal(same.forecast(1).covariance, tracker.forecast(1).covariance)
    assert [path.name for path in tmp_path.iterdir()] == ["state.npz"]
    assert kgmrf.TrackerBank(3, 2).update(np.ones((3, 2))) is not None


@pytest.mark.usefixtures("elsewhere")
def test_a_stream_runs_locks_and_goes_on_without_posix(tmp_path: Path) -> None:
    from kgmrf.stream import Settings, run
    from kgmrf.stream.report import resident
    from kgmrf.stream.run import Lock, Locked

    lines = [json.dumps({"key": "a", "time": t, "x": [1.0, float(t % 3)]}) for t in range(6)]
    state = tmp_path / "tracks.state"
    for part in (lines[:4], lines[4:]):
        (tmp_path / "in.jsonl").write_bytes("".join(line + "\r\n" for line in part).encode())
        with (tmp_path / "in.jsonl").open("rb") as source, (tmp_path / "out").open("ab") as sink:
            run(Settings(), source.fileno(), sink.fileno(), state=state)
    out = (tmp_path / "out").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["time"] for line in out if line] == [0, 1, 2, 3, 4, 5]
    with Lock(state), pytest.raises(Locked, match="is in use by process"):
        Lock(state).__enter__()
    assert resident() is None


@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
def test_a_terminal_that_knows_few_letters_ends_nothing(
    encoding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("typer")
    from kgmrf.cli import main

    rows = np.random.default_rng(0).normal(size=(120, 2))
    path = tmp_path / "größe.csv"
    np.savetxt(path, rows, delimiter=",", header="a,b", comments="")
    for words in (["compare"], ["track"], ["diagnose"]):
        screen = io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True)
        monkeypatch.setattr(sys, "stdout", screen)
        monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(io.BytesIO(), encoding=encoding))
        assert main([*words, str(path)]) in (0, 1)
        monkeypatch.undo()
        assert b".csv: " in screen.buffer.getvalue()  # type: ignore[attr-defined]


def calls(tree: ast.AST) -> list[ast.Call]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def opens_text_without_encoding(call: ast.Call) -> bool:
    name: Any = getattr(call.func, "id", getattr(call.func, "attr", ""))
    if any(word.arg == "encoding" for word in call.keywords):
        return False
    if name in ("read_text", "write_text"):
        return True
    if not (isinstance(call.func, ast.Name) and name in ("open", "fdopen")):
        return False
    mode = [word.value for word in call.keywords if word.arg == "mode"] + call.args[1:2]
    return not (mode and isinstance(mode[0], ast.Constant) and "b" in str(mode[0].value))


def test_text_has_an_encoding_and_imports_are_for_every_system() -> None:
    for path in SOURCES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        bare = [call.lineno for call in calls(tree) if opens_text_without_encoding(call)]
        assert not bare, f"{path}: no encoding= in lines {bare}"
        for node in tree.body:
            if isinstance(node, ast.Import):
                assert not {n.name for n in node.names} & (POSIX_ONLY | WINDOWS_ONLY), path
            if isinstance(node, ast.ImportFrom):
                assert node.module not in POSIX_ONLY | WINDOWS_ONLY, path
