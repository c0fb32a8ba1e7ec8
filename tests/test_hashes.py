"""requirements-hashed.txt: all packages of the install with the command line, with hashes."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
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


def asked() -> set[str]:
    """What the package with its command line asks for, and the tools that build it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    words = [*project["dependencies"], *project["optional-dependencies"]["cli"]]
    return {first(text) for text in words} | {"scikit-build-core", "nanobind", "cmake", "ninja"}


def first(requirement: str) -> str:
    """The name in a requirement."""
    return plain(re.match(r"[\w.-]+", requirement)[0])  # type: ignore[index]


def closure(names: set[str]) -> set[str]:
    """Packages that are installed here, and what they need."""
    found, todo = set(names), sorted(names)
    while todo:
        for text in metadata.requires(todo.pop()) or ():
            if ";" not in text and first(text) not in found:
                found.add(first(text))
                todo.append(first(text))
    return found


def test_every_package_is_pinned_as_in_the_constraints_and_has_hashes() -> None:
    """Versions alone do not say which bytes are installed: constraints.txt has no hashes."""
    hashed, pinned = pins(HASHED), pins(ROOT / "constraints.txt")
    for name, (version, more) in hashed.items():
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", more), name
        if name in pinned:
            assert version == pinned[name][0], name


def test_all_that_the_command_line_needs_is_there() -> None:
    needed = closure(asked())
    assert {"numpy", "scipy", "orjson", "typer", "rich"} <= needed
    assert needed <= set(pins(HASHED))


@pytest.mark.slow
def test_pip_takes_it_with_hashes_required() -> None:
    """Downloads some 100 MB."""
    options = ["--dry-run", "--ignore-installed", "--require-hashes", "--only-binary", ":all:"]
    call = [sys.executable, "-m", "pip", "install", "-q", *options, "-r", str(HASHED)]
    done = subprocess.run(call, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
