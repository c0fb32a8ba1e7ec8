"""A read-only file system, another user, no home: what the page about containers promises."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

BOX = [
    *(
        "bwrap",
        "--ro-bind",
        "/",
        "/",
        "--dev",
        "/dev",
        "--proc",
        "/proc",
        "--unshare-user",
        "--unshare-net",
    ),
    *("--uid", "65534", "--gid", "65534", "--clearenv", "--setenv", "OMP_NUM_THREADS", "1"),
]


@pytest.fixture
def state() -> Iterator[Path]:
    if shutil.which("bwrap") is None or subprocess.run([*BOX, "true"], check=False).returncode:
        pytest.skip("no bwrap, or it may not make a sandbox here")
    made = Path("/tmp") / f"kgmrf-container-{os.getpid()}"
    made.mkdir()
    yield made
    shutil.rmtree(made)


def test_a_stream_runs_read_only_without_a_home(state: Path) -> None:
    """A read-only cache once was not used, and every start compiled."""
    call = [*BOX, "--setenv", "PYTHONPATH", os.environ.get("PYTHONPATH", "")]
    call += ["--bind", str(state), str(state), "--chdir", "/", sys.executable, "-m", "kgmrf"]
    lines = "".join(f'{{"key":"a","time":{k},"x":[1.0,{k % 3}]}}\n' for k in range(20))
    told = [*call, "stream", "-q", "--state", str(state / "t.state"), "--fields", "age"]
    done = subprocess.run(told, input=lines, capture_output=True, text=True, check=True)
    assert [json.loads(row)["time"] for row in done.stdout.splitlines()] == [*range(20)]
    later = '{"key":"a","time":20,"x":[1.0,1.0]}\n'
    done = subprocess.run(told, input=later, capture_output=True, text=True, check=True)
    assert len(done.stdout.splitlines()) == 1
    assert sorted(path.name for path in state.iterdir()) == ["t.state", "t.state.lock"]
    outside = [*call, "stream", "-q", "--state", "/t.state"]
    refused = subprocess.run(outside, input=later, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "/" in refused.stderr
    assert "Traceback" not in refused.stderr
