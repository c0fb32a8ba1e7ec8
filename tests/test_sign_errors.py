"""Six wrong signs in the transition of dense members: each is built, and fails the Jacobian law."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kgmrf.engines import core

ROOT = Path(__file__).parents[1]
SIGNS = {
    "angle by u": ("pick<quad>(turns, -minus_f, quad{})", "pick<quad>(turns, minus_f, quad{})"),
    "angle by frequency, of v": ("-w * ratio_im", "w * ratio_im"),
    "angle by frequency, of u": ("-w * ratio_re", "w * ratio_re"),
    "u by frequency": ("out.u_by_l = -wh * v2;", "out.u_by_l = wh * v2;"),
    "u by v": ("m.c * p[6 + a] - m.s * p[3 + a]", "m.c * p[6 + a] + m.s * p[3 + a]"),
    "angle by angle": ("turning.exp[b][a] * p[b] +", "turning.exp[a][b] * p[b] +"),
}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("cmake") is None
        or core.compiled() is None
        or not (ROOT / "src/core").exists(),
        reason="builds the core",
    ),
]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources."""
    folder = tmp_path_factory.mktemp("tree")
    for name in ("src", "tests"):
        shutil.copytree(
            ROOT / name, folder / name, ignore=shutil.ignore_patterns("_core*", "__pycache__")
        )
    for name in ("CMakeLists.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    return folder


def holds(tree: Path) -> bool:
    """Build the core, and ask whether the Jacobian law holds."""
    options = [
        "-DKGMRF_LEVELS=native",
        "-DKGMRF_IN_SOURCE=ON",
        f"-DPython_EXECUTABLE={sys.executable}",
    ]
    for call in (
        ["-S", str(tree), "-B", str(tree / "build"), "-G", "Ninja", *options],
        ["--build", str(tree / "build")],
    ):
        done = subprocess.run(["cmake", *call], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-2000:]
    law = ["tests/test_core_rotations.py", "-k", "jacobian"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *law],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree / "src")},
        capture_output=True,
        text=True,
    )
    assert " passed" in done.stdout or " failed" in done.stdout, done.stdout + done.stderr
    assert "skipped" not in done.stdout
    return done.returncode == 0


def test_the_law_holds_as_it_is(tree: Path) -> None:
    assert holds(tree)


@pytest.mark.parametrize("name", SIGNS)
def test_a_wrong_sign_fails(tree: Path, name: str) -> None:
    path, (right, wrong) = tree / "src/core/dense.hpp", SIGNS[name]
    text = path.read_text()
    assert text.count(right) == 1
    path.write_text(text.replace(right, wrong))
    try:
        assert not holds(tree)
    finally:
        path.write_text(text)
