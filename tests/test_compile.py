"""Compiled code: never stale, possible without a cache, and alive after a fork."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kgmrf
from kgmrf.kernels.compile import FINGERPRINT, fingerprint, sources

PACKAGE = Path(kgmrf.__file__).parent
HELPERS = (
    "kernels/quaternions.py",
    "kernels/plane.py",
    "density.py",
    "gains.py",
    "vision/cells.py",
)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package in a folder of its own, without any compiled code."""
    ignored = shutil.ignore_patterns("__pycache__")
    return Path(shutil.copytree(PACKAGE, tmp_path / "lib" / "kgmrf", ignore=ignored))


def run(code: str, package: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"}
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**inherited, "PYTHONPATH": str(package.parent), **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


def add_probe(package: Path, value: int) -> None:
    """A loop in one file whose value stands in another."""
    (package / "kernels" / "probe_helper.py").write_text(
        f"from kgmrf.kernels.compile import jit\n\n\n@jit\ndef value():\n    return {value}\n"
    )
    (package / "kernels" / "probe.py").write_text(
        "from kgmrf.kernels.compile import compiled\n"
        "from kgmrf.kernels.probe_helper import value\n\n\n"
        "@compiled()\ndef answer():\n    return value()\n\n\n"
        "@compiled()\ndef twice():\n    return 2 * value()\n"
    )


PROBE = "from kgmrf.kernels.probe import answer, twice; print(answer(), twice())"


# ------------------------------------------------------------------------- the fingerprint


def test_a_copy_has_the_same_fingerprint(copy: Path) -> None:
    assert fingerprint(copy) == FINGERPRINT


@pytest.mark.parametrize("name", HELPERS)
def test_the_fingerprint_changes_with_a_helper_file(copy: Path, name: str) -> None:
    with (copy / name).open("a") as file:
        file.write("\nANOTHER_NUMBER = 1.0\n")
    assert fingerprint(copy) != FINGERPRINT


def test_the_fingerprint_changes_with_a_new_or_a_renamed_file(copy: Path) -> None:
    seen = {fingerprint(copy)}
    add_probe(copy, 1)
    seen.add(fingerprint(copy))
    (copy / "kernels" / "probe.py").rename(copy / "kernels" / "probe_again.py")
    seen.add(fingerprint(copy))
    assert len(seen) == 3


def test_every_file_with_a_loop_is_in_the_fingerprint() -> None:
    inside = set(sources(PACKAGE))
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "kgmrf.kernels.compile":
                assert path in inside, f"{path} compiles loops; name it in kernels/compile.py"


def test_every_file_that_a_loop_takes_names_from_is_in_the_fingerprint() -> None:
    inside = set(sources(PACKAGE))
    missing = []
    for path in PACKAGE.glob("kernels/*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("kgmrf"):
                continue
            base = PACKAGE.joinpath(*node.module.split(".")[1:])  # type: ignore[union-attr]
            for name in node.names:
                target = base / f"{name.name}.py"
                target = target if target.exists() else base.with_suffix(".py")
                if target.exists() and target not in inside and target.name != "_types.py":
                    missing.append((path.name, target.name))
    assert not missing


def test_changed_helpers_are_compiled_anew(copy: Path, tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    for value in (1, 2):
        add_probe(copy, value)
        done = run(PROBE, copy, NUMBA_CACHE_DIR=cache)
        assert done.stdout.split() == [str(value), str(2 * value)], done.stderr


# ------------------------------------------------------------------------- nowhere to write


def test_without_a_writable_folder_code_is_made_in_memory(copy: Path) -> None:
    """Files stand where the folders of compiled code would be: that stops root, too."""
    add_probe(copy, 3)
    for folder in [copy, *(path for path in copy.rglob("*") if path.is_dir())]:
        (folder / "__pycache__").write_text("")
    nowhere = str(copy / "__init__.py")
    done = run(PROBE, copy, HOME=nowhere, XDG_CACHE_HOME=nowhere, LOCALAPPDATA=nowhere)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["3", "6"]
    assert done.stderr.count("compiling in memory") == 1
    assert "NUMBA_CACHE_DIR" in done.stderr


# ------------------------------------------------------------------------- fork

FORK = """
import os, signal, time
import numpy as np
from kgmrf import TrackerBank

bank = TrackerBank(2_048, 2, n_threads=2{settings})
x = np.random.default_rng(0).normal(size=(3, 2_048, 2))
bank.update(x[0])
child = os.fork()
if child == 0:
    bank.update(x[1])
    os._exit(0 if np.isfinite(bank.covariance).all() else 3)
for _ in range(600):
    done, status = os.waitpid(child, os.WNOHANG)
    if done:
        break
    time.sleep(0.1)
else:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise SystemExit("the child hangs")
assert status == 0, status
bank.update(x[2])
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="fork beside threads: Linux only")
@pytest.mark.parametrize("settings", ["", ', gains="zero_lag"'], ids=["default", "zero_lag"])
def test_a_fork_after_a_threaded_bank_goes_on(settings: str) -> None:
    """The child of a fork after a threaded bank hung for ever."""
    done = run(FORK.format(settings=settings), PACKAGE)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_other_releases_of_numba_compile_the_same_loops_in_the_ordinary_way(tmp_path: Path) -> None:
    code = (
        "import numpy as np, kgmrf; from kgmrf.kernels import compile as c; "
        "x = np.random.default_rng(0).normal(size=(40, 3)); "
        "print(c.quick is None, repr(kgmrf.KGMRF().filter(x).log_likelihood[-1].item()))"
    )
    plain = run(code, PACKAGE, KGMRF_COMPILER="plain", NUMBA_CACHE_DIR=str(tmp_path / "plain"))
    quick = run(code, PACKAGE)
    assert plain.returncode == 0, plain.stderr
    (is_plain, ours), (is_quick, other) = plain.stdout.split(), quick.stdout.split()
    assert (is_plain, is_quick) == ("True", "False")
    assert float(ours) == pytest.approx(float(other), rel=1e-9)
