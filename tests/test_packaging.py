"""What is shipped: a wheel and an sdist that build, are complete, and work beside nothing else."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import kgmrf

ROOT = Path(__file__).parents[1]
HARD = ("numpy", "array_api_compat", "scipy", "orjson")
"""The only packages that an installation without extras has."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an sdist and the wheel that was built from it, for this processor alone."""
    for name in ("build", "scikit_build_core", "nanobind"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed: nothing is built")
    if not (ROOT / "pyproject.toml").exists():
        pytest.skip("not in a source tree")
    folder = tmp_path_factory.mktemp("dist")
    call = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(
        [*call, "-C", "cmake.define.KGMRF_LEVELS=native"],
        capture_output=True,
        text=True,
        timeout=1800,
        env={
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        },
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return folder


@pytest.fixture(scope="module")
def empty(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the contents of the wheel, its hard dependencies, and nothing else."""
    return site(next(built.glob("*.whl")), tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def pure(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same of a wheel that was built without the core."""
    folder = tmp_path_factory.mktemp("pure")
    call = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    call += ["-C", "wheel.cmake=false", "-w", str(folder), str(next(built.glob("*.tar.gz")))]
    done = subprocess.run(call, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-2000:]
    wheel = next(folder.glob("*.whl"))
    assert wheel.name.endswith("-py3-none-any.whl")
    return site(wheel, tmp_path_factory.mktemp("pure-site"))


def site(wheel: Path, folder: Path) -> Path:
    """The folder, with a wheel and the hard dependencies in it."""
    for name in HARD:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        package = Path(spec.origin).parent
        # Wheels keep the libraries that they bring in a folder beside the package.
        for part in (package, package.with_name(f"{name}.libs")):
            if part.exists():
                (folder / part.name).symlink_to(part)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def isolated(folder: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A Python that sees the standard library and the folder, and no editable install."""
    lead = f"import sys\nsys.path.insert(0, {str(folder)!r})\n"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", lead + program, *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        env=environment,
    )


def test_the_wheel_is_complete(built: Path) -> None:
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        names = set(wheel.namelist())
        about = next(name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(wheel.read(about).decode())
        scripts = wheel.read(about.replace("METADATA", "entry_points.txt")).decode()
    sources = {
        path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src" / "kgmrf").rglob("*.py")
    }
    assert sources <= names
    assert "kgmrf/py.typed" in names
    assert not [name for name in names if not name.startswith(("kgmrf/", "kgmrf-"))]
    assert not [name for name in names if name.endswith(".pyc")]
    assert len([name for name in names if name.startswith("kgmrf/_core.")]) == 1
    assert metadata["Version"] == kgmrf.__version__
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert "kgmrf = kgmrf.cli:main" in scripts
    hard = [r for r in metadata.get_all("Requires-Dist", []) if "extra ==" not in r]
    assert len(hard) == 4


def test_the_sdist_can_be_tested(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "constraints.txt"} <= names
    assert {"src/kgmrf/__init__.py", "tests/conftest.py"} <= names
    assert {"CMakeLists.txt", "src/core/module.cpp", "src/core/declare.py"} <= names
    assert not [name for name in names if name.startswith("src/kgmrf/_core")]


def test_it_works_beside_its_hard_dependencies_alone(empty: Path) -> None:
    program = (
        "import importlib.util, kgmrf, numpy as np\n"
        "assert not importlib.util.find_spec('pandas') and not importlib.util.find_spec('typer')\n"
        f"assert kgmrf.__file__.startswith({str(empty)!r}), kgmrf.__file__\n"
        "scene = kgmrf.simulate.ellipse(0.08, n_frames=30, n_samples=8, rng=1)\n"
        "tracker = kgmrf.KGMRF(n_samples=8)\n"
        "print(tracker.filter(scene.observations).covariance.shape)\n"
        "from kgmrf.io import open_source\n"
        "from kgmrf.stream import Settings, Stream\n"
        "settings = Settings(digits=17, fields=('age',))\n"
        "print(Stream(settings).take([b'{\"x\": [1, 2]}']).decode().strip())\n"
    )
    done = isolated(empty, program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["(30, 2, 2)", '{"key":"","time":0.0,"age":0.0}']


def test_without_the_core_it_says_so_once_and_gives_the_same_numbers(
    empty: Path, pure: Path
) -> None:
    program = (
        "import kgmrf, numpy as np\n"
        "x = np.random.default_rng(0).normal(size=(40, 3))\n"
        "first = kgmrf.KGMRF().filter(x).covariance\n"
        "q = kgmrf.RotationTracker(noise_std=0.1).filter(np.tile(np.eye(3), (5, 1, 1)))\n"
        "wide = kgmrf.KGMRF().filter(np.random.default_rng(0).normal(size=(30, 70)))\n"
        "law = kgmrf.KGMRF(gains='information').filter(x).covariance\n"
        "bank = kgmrf.TrackerBank(2, 3)\n"
        "for row in x[:9]: bank.update(np.stack([row, -row]))\n"
        "from kgmrf.alerts import Alarm\n"
        "events = Alarm().find(np.full(9, 0.5))\n"
        "from kgmrf.vision import BoxTracker\n"
        "scene = np.random.default_rng(0).integers(0, 255, (60, 80, 3)).astype(np.uint8)\n"
        "box = BoxTracker()\n"
        "box.init(scene, (20, 15, 24, 20))\n"
        "seen, place = box.update(np.roll(scene, 3, 1))\n"
        "for found in (first, law, bank.covariance, q.rotation, wide.covariance[:, :9, :9]):\n"
        "    print(*(found[-1].round(8) + 0.0).ravel())\n"
        "print(seen, [round(v, 1) for v in place], events)\n"
    )
    with_core, without = isolated(empty, program), isolated(pure, program)
    assert with_core.returncode == 0, with_core.stderr
    assert without.returncode == 0, without.stderr
    assert with_core.stdout == without.stdout
    assert with_core.stderr == ""
    assert without.stderr.count("kgmrf runs without its compiled core") == 1


def test_without_the_command_line_extra_it_says_so(empty: Path) -> None:
    done = isolated(empty, "from kgmrf.cli import main; sys.exit(main(['info']))")
    assert done.returncode == 2
    assert done.stderr == 'kgmrf: this needs typer: pip install "kgmrf[cli]"\n'


def test_there_is_one_version() -> None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        installed = version("kgmrf")
    except PackageNotFoundError:
        pytest.skip("run from the source tree: nothing is installed to compare with")
    assert installed == kgmrf.__version__
