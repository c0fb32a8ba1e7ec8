"""requirements-hashed.txt: all packages of the install with the command line, with hashes."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HASHED = ROOT / "requirements-hashed.txt"
pytestmark = pytest.mark.skipif(not HASHED.exists(), reason="an installed copy")


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(path: Path) -> dict[str, tuple[str, str]]:
    """By name: the version, and all that follows it."""
    found = {}
    for entry in path.read_text().replace("\\\n", " ").splitlines():
        line = re.match(r"([\w.-]+)==(\S+)(.*)", entry)
        if line is not None:
            found[plain(line[1])] = (line[2], line[3])
    return found


def closure(name: str, extra: str = "") -> set[str]:
    """What an installed package needs here, and what that needs."""
    found: set[str] = set()
    todo = [(name, extra)]
    while todo:
        name, extra = todo.pop()
        for text in metadata.requires(name) or ():
            words, _, condition = text.partition(";")
            wanted = f'extra == "{extra}"' in condition.replace("'", '"') if condition else True
            needed = plain(re.match(r"[\w.-]+", words)[0])  # type: ignore[index]
            if wanted and needed not in found and needed != "kgmrf":
                found.add(needed)
                todo.append((needed, ""))
    return found


def test_every_package_is_pinned_as_in_the_constraints_and_has_hashes() -> None:
    """Versions alone do not say which bytes are installed: constraints.txt has no hashes."""
    hashed, pinned = pins(HASHED), pins(ROOT / "constraints.txt")
    for name, (version, more) in hashed.items():
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", more), name
        if name in pinned:
            assert version == pinned[name][0], name


def test_all_that_the_command_line_needs_is_there() -> None:
    needed = closure("kgmrf") | closure("kgmrf", "cli") | {"hatchling"}
    assert {"numpy", "numba", "llvmlite", "scipy", "orjson", "typer", "rich"} <= needed
    assert needed <= set(pins(HASHED))


@pytest.mark.slow
def test_pip_takes_it_with_hashes_required() -> None:
    """Downloads some 100 MB."""
    options = ["--dry-run", "--ignore-installed", "--require-hashes", "--only-binary", ":all:"]
    call = [sys.executable, "-m", "pip", "install", "-q", *options, "-r", str(HASHED)]
    done = subprocess.run(call, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
