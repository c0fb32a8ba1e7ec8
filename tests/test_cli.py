"""The command line: exit codes, one-line errors, files."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("typer", reason="typer is not installed: no command line")
pytest.importorskip("rich", reason="rich is not installed: no command line")

import kgmrf
from kgmrf import simulate
from kgmrf.cli import main


def python(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    # Found where this process found it, installed or not.
    path = {**os.environ, "PYTHONPATH": str(Path(kgmrf.__file__).parents[1])}
    call = [sys.executable, *arguments]
    return subprocess.run(call, capture_output=True, text=True, timeout=120, env=path, **options)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"kgmrf {kgmrf.__version__}\n"


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(word in text for word in ("demo", "simulate", "info"))


def test_without_a_command_there_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "Usage" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bogus"], "No such command 'bogus'; see kgmrf --help"),
        (["demo", "--nope"], "see kgmrf demo --help"),
        (["demo", "-o", "demo.gif"], "a figure ends in .png, .svg or .pdf, got 'demo.gif'"),
        (["demo", "-o", "nowhere/demo.png"], "the folder 'nowhere' for the figure does not exist"),
        (["simulate", "ellipse"], "--output"),
        (["simulate", "circle", "-o", "a.csv"], "circle"),
        (["simulate", "ellipse", "-o", "a.txt"], "--output ends in .npz or .csv, got 'a.txt'"),
        (["simulate", "ellipse", "-o", "a.csv", "--dropout", "2"], "--dropout"),
        (["simulate", "ellipse", "-o", "a.csv", "-d", "3"], "ellipse has no --dimension"),
        (["simulate", "camera-shake", "-o", "a.csv", "--rate", "1"], "camera-shake has no --rate"),
        (["simulate", "rotating-frame", "-d", "1", "-o", "a.csv"], "rotations need d >= 2, got 1"),
        (["simulate", "ellipse", "-o", "a.csv", "--rate", "nan"], "'--rate': nan is not a finite"),
        (["simulate", "rotating-frame", "-o", "a.csv", "--rate", "1e300"], "--rate must lie in"),
        (["simulate", "ellipse", "-o", "a.csv", "--rate=-inf"], "'--rate'"),
        (["simulate", "ellipse", "-o", "a.csv", "--dropout", "nan"], "'--dropout'"),
        (["simulate", "camera-shake", "-o", "a.csv", "--noise-std", "inf"], "'--noise-std'"),
        (["track", "a.csv", "--noise-floor", "inf"], "'--noise-floor': inf is not a finite"),
        (["simulate", "ellipse", "-o", "nowhere/a.csv"], "No such file or directory"),
    ],
)
def test_a_wrong_call_is_one_line_and_exit_code_2(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith("kgmrf: ")
    assert error.count("\n") == 1
    assert message in error
    assert not list(tmp_path.iterdir())


def test_a_traceback_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KGMRF_TRACEBACK", "1")
    with pytest.raises(ValueError, match="a figure ends in"):
        main(["demo", "-o", "demo.gif"])


def test_interrupted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(*, n_frames: int, **_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(simulate, "ellipse", interrupt)
    assert main(["simulate", "ellipse", "-o", "a.csv", "--frames", "5"]) == 130
    assert capsys.readouterr().err.strip() == "kgmrf: interrupted"


@pytest.mark.parametrize(
    ("module", "arguments", "extra"),
    [
        ("typer", ["info"], "cli"),
        ("rich", ["info"], "cli"),
        ("matplotlib", ["demo", "--quick", "--json"], "plots"),
    ],
)
def test_a_missing_extra_is_named_with_its_remedy(
    module: str, arguments: list[str], extra: str, tmp_path: Path
) -> None:
    program = (
        f"import sys; sys.modules[{module!r}] = None\n"
        f"from kgmrf.cli import main; sys.exit(main({arguments!r}))"
    )
    done = python("-c", program, cwd=tmp_path)
    assert done.returncode == 2
    assert f'pip install "kgmrf[{extra}]"' in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments", [["demo", "-o", "a.png"], ["track", "none.csv", "--plot", "a.png"]]
)
def test_a_figure_is_refused_before_the_work(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["info"])
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    module = sys.modules["kgmrf.commands.demo"]
    monkeypatch.setattr(module, "simulated", lambda *a, **k: pytest.fail("worked"))
    assert main(arguments) == 2
    assert "pip install" in capsys.readouterr().err


def test_the_version_needs_no_extra() -> None:
    program = (
        "import sys; sys.modules['typer'] = None\n"
        "from kgmrf.cli import main; sys.exit(main(['--version']))"
    )
    done = python("-c", program)
    assert (done.returncode, done.stdout) == (0, f"kgmrf {kgmrf.__version__}\n")


def test_an_unknown_missing_module_is_a_bug_and_shows_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "kgmrf.commands", None)
    with pytest.raises(ModuleNotFoundError):
        main(["info"])


def test_a_reader_that_goes_away_is_no_error() -> None:
    program = (
        "import sys\n"
        "from kgmrf import cli, commands\n"
        "def run(arguments): raise BrokenPipeError\n"
        "commands.run = run\n"
        "sys.exit(cli.main([]))"
    )
    done = python("-c", program)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(os.name == "nt", reason="pipes of another kind")
@pytest.mark.parametrize("arguments", [["stream", "-q"], ["info"]])
def test_a_reader_that_has_gone_away_is_no_error_of_any_command(arguments: list[str]) -> None:
    path = {**os.environ, "PYTHONPATH": str(Path(kgmrf.__file__).parents[1])}
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "kgmrf", *arguments],
            input=b'{"x": [1, 2]}\n{"x": [2, 1]}\n',
            stdout=write,
            stderr=subprocess.PIPE,
            timeout=120,
            env=path,
        )
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


def test_info_knows_versions(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["kgmrf"] == kgmrf.__version__
    assert found["packages"]["numpy"] == np.__version__
    assert {"torch", "opencv-contrib-python-headless"} <= set(found["packages"])
    assert main(["info"]) == 0
    assert np.__version__ in capsys.readouterr().out


def test_info_says_how_to_get_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from kgmrf.commands import info  # noqa: F401

    module = sys.modules["kgmrf.commands.info"]
    monkeypatch.setattr(module, "EXTRAS", {"no-such-package": "plots"})
    assert main(["info"]) == 0
    assert 'not installed: pip install "kgmrf[plots]"' in capsys.readouterr().out


def test_python_dash_m() -> None:
    done = python("-m", "kgmrf", "--version")
    assert done.stdout == f"kgmrf {kgmrf.__version__}\n"
    assert python("-m", "kgmrf", "bogus").returncode == 2


# ---------------------------------------------------------------------- simulate


def test_simulate_writes_the_scene_as_npz(tmp_path: Path) -> None:
    path = tmp_path / "ellipse.npz"
    call = ["simulate", "ellipse", "-o", str(path), "--seed", "3", "--frames", "20"]
    assert main(call) == 0
    scene = simulate.ellipse(n_frames=20, rng=3)
    with np.load(path, allow_pickle=False) as file:
        assert set(file.files) == set(scene._fields)
        assert np.array_equal(file["observations"], scene.observations)
        assert np.array_equal(file["covariance"], scene.covariance)
        assert file["n_samples"] == 8


def test_simulate_writes_the_scene_as_csv(tmp_path: Path) -> None:
    path = tmp_path / "scene.csv"
    call = ["simulate", "rotating-covariance", "-d", "3", "-o", str(path), "--frames", "30"]
    assert main([*call, "--dropout", "0.5", "--rate", "0.1", "--samples", "5"]) == 0
    truth = simulate.rotating_covariance(3, n_frames=30, rate=0.1, n_samples=5, rng=0)
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 30
    empty = [row["covariance_0_0"] == "" for row in rows]
    assert 0 < sum(empty) < 30
    for k, row in enumerate(rows):
        assert float(row["truth_0_2"]) == truth.covariance[k, 0, 2]
        if not empty[k]:
            assert float(row["covariance_1_2"]) == truth.observations[k, 1, 2]


@pytest.mark.parametrize("name", ["rotating-frame", "camera-shake", "steady-camera"])
def test_simulate_writes_rotations(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rotation.csv"
    call = ["simulate", name, "-o", str(path), "--frames", "25", "--noise-std", "0.01"]
    assert main([*call, "--dropout", "0.1"]) == 0
    assert "25 steps" in capsys.readouterr().out
    with open(path, newline="") as file:
        row = next(csv.DictReader(file))
    entries = [[float(row[f"rotation_{i}_{j}"]) for j in range(3)] for i in range(3)]
    assert np.allclose(np.asarray(entries).T @ entries, np.eye(3))


def test_the_demo_command_in_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "demo.png"
    assert main(["demo", "--quick", "-o", str(path)]) == 0
    out = capsys.readouterr().out
    assert path.is_file()
    assert "Figure:" in out
    assert "KGMRF" in out
