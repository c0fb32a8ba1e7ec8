"""A result is current while the files that it depends on are as they were."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    # The experiments are not part of the installed package.
    sys.path.insert(0, str(ROOT))

from experiments import __main__, catalogue, report, running, sources, store  # noqa: E402

if not sources.CORE.is_dir():
    pytest.skip("not a source tree", allow_module_level=True)

UNITS = {u.key: u for u in catalogue.select(["all"], quick=True)}


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the sources."""
    folder = tmp_path_factory.mktemp("tree")
    without = shutil.ignore_patterns("results", "figures", "_core*", "__pycache__", "*.html")
    for name in ("src", "experiments"):
        shutil.copytree(ROOT / name, folder / name, ignore=without)
    shutil.copy(ROOT / "CMakeLists.txt", folder)
    return folder


@pytest.fixture
def tree(copy, monkeypatch):
    """The copy, which the rule then looks at."""
    places = {"kgmrf": copy / "src" / "kgmrf", "experiments": copy / "experiments"}
    monkeypatch.setattr(sources, "ROOT", copy)
    monkeypatch.setattr(sources, "CORE", copy / "src" / "core")
    monkeypatch.setattr(sources, "PACKAGES", places)
    sources.forget()
    yield copy
    monkeypatch.undo()
    sources.forget()


@contextmanager
def added(path: Path, line: str) -> Iterator[None]:
    """A line at the end of a file, for a while."""
    before = path.read_text(encoding="utf-8")
    path.write_text(f"{before}{line}\n", encoding="utf-8")
    sources.forget()
    yield
    path.write_text(before, encoding="utf-8")
    sources.forget()


EVERYTHING = {u.experiment for u in UNITS.values()}
VIDEOS = {"otb", "otb_models", "otb_choice", "otb_unseen", "confidence", "steady"}
DEPENDS = [
    ("experiments/lag.py", "N = 1", {"lag"}),
    ("experiments/ellipse.py", "N = 1", {"ellipse", "ablation"}),
    ("experiments/paper_claims.toml", "new = 1", {"spectral_gap"}),
    ("src/kgmrf/constants.py", "N = 1", EVERYTHING),
    ("src/kgmrf/trackers/vector.py", "N = 1", EVERYTHING),
    ("src/kgmrf/alerts/alarm.py", "N = 1", {"alerts"}),
    ("src/kgmrf/vision/search.py", "N = 1", VIDEOS),
    ("experiments/otb_rivals.py", "N = 1", VIDEOS),
    ("src/core/matrix.hpp", "#define N", EVERYTHING),
    ("src/core/alarm.hpp", "#define N", {"alerts"}),
    ("src/core/score_adjoint.hpp", "#define N", {"layers"}),
    ("src/core/vision.hpp", "#define N", VIDEOS),
    # Nothing depends on what shows results, on faces of the package, on comments.
    ("experiments/report.py", "N = 1", set()),
    ("src/kgmrf/cli.py", "N = 1", set()),
    ("src/kgmrf/model/step.py", "# a comment", set()),
    ("src/kgmrf/model/step.py", '"""A docstring."""', set()),
    ("src/core/dense.hpp", "// a comment", set()),
]


@pytest.mark.parametrize(("name", "line", "wanted"), DEPENDS)
def test_an_edit_makes_what_depends_on_it_stale_and_nothing_else(tree, name, line, wanted):
    ours = [u for u in UNITS.values() if not any(re.fullmatch(r, u.key) for r in sources.RIVALS)]
    chosen = {u.function.partition(":")[0]: u for u in ours}.values()
    before = {u.key: sources.state(u) for u in chosen}
    with added(tree / name, line):
        assert {u.experiment for u in chosen if sources.state(u) != before[u.key]} == wanted
    assert {u.key: sources.state(u) for u in chosen} == before


def test_a_rival_depends_on_its_own_files_alone(tree):
    unit = store.Unit("otb", "CSRT.CarScale", "otb:follow")
    before = sources.state(unit)
    with added(tree / "src" / "kgmrf" / "model" / "step.py", "N = 1"):
        assert sources.state(unit) == before
    with added(tree / "experiments" / "otb_rivals.py", "N = 1"):
        assert sources.state(unit) != before


def test_the_files_of_a_rival_import_nothing_else_of_ours():
    # What otb.tracker loads for our own trackers, and names of types.
    allowed = {"kgmrf", "kgmrf.vision", "kgmrf.vision.clip", "kgmrf._types", "experiments"}
    allowed |= {"experiments.store"}
    for files in sources.RIVALS.values():
        names = {f.removeprefix("src/").removesuffix(".py").replace("/", ".") for f in files}
        for path in files:
            for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
                module = getattr(node, "module", None) or ""
                if module.partition(".")[0] in ("kgmrf", "experiments"):
                    assert module in names | allowed, (path, module)


def record(unit: store.Unit, folder: Path, state: str, status: str = "done") -> None:
    made = {**running.provenance(), "source": state}
    kept = {"experiment": unit.experiment, "unit": unit.name, "settings": unit.settings}
    kept |= {"status": status, "rerun": "", "reason": "", "data": {}, "made_with": made}
    store.write(unit.path(folder), kept)


def test_results_of_other_files_are_there_but_not_current(tmp_path):
    unit = UNITS["lag/lines"]
    assert not sources.current(unit, tmp_path)
    assert sources.stale([unit], tmp_path) == []
    for state, same in ((sources.state(unit), True), ("another", False)):
        record(unit, tmp_path, state)
        assert store.finished(unit, tmp_path)
        assert sources.current(unit, tmp_path) == same
        assert sources.stale([unit], tmp_path) == ([] if same else [unit])
    record(unit, tmp_path, sources.state(unit), "not available")
    assert not sources.current(unit, tmp_path)  # tried again
    assert sources.stale([unit], tmp_path) == []  # but these files said so


def test_a_result_whose_files_changed_while_it_ran_is_nobodys(tmp_path):
    unit = UNITS["lag/lines"]
    running.execute(unit, tmp_path, "as it was before")
    assert sources.stale([unit], tmp_path) == [unit]
    running.execute(unit, tmp_path)
    assert sources.current(unit, tmp_path)


def test_the_page_and_the_list_name_what_is_stale(tmp_path, capsys):
    old, new = UNITS["lag/lines"], UNITS["tensors/swelling"]
    record(old, tmp_path, "another")
    record(new, tmp_path, sources.state(new))
    assert "1 of 2 results are older than" in report.stale(tmp_path, quick=True)
    assert "(lag 1)" in report.stale(tmp_path, quick=True)
    __main__.main(["list", "--quick", "--results", str(tmp_path)])
    listed = capsys.readouterr().out
    assert "stale    lag/lines" in listed
    assert "done     tensors/swelling" in listed
    record(old, tmp_path, sources.state(old))
    assert report.stale(tmp_path, quick=True) == ""


def test_a_core_older_than_its_sources_is_refused(tree):
    built = tree / "src" / "kgmrf" / "_core.so"
    built.write_bytes(b"")
    running._check_core()
    os.utime(built, (1, 1))
    with pytest.raises(SystemExit, match="run make core first"):
        running._check_core()


def test_a_file_that_goes_while_a_run_goes_on_changes_the_state(tree):
    unit, path = UNITS["lag/lines"], tree / "experiments" / "lag.py"
    before, text = sources.state(unit), path.read_text(encoding="utf-8")
    path.unlink()
    assert sources.state(unit) != before
    path.write_text(text, encoding="utf-8")
    assert sources.state(unit) == before


def test_docstrings_and_comments_are_no_part_of_a_state():
    one = 'def f():\n    """Old."""\n    return "# kept"  # old\n'
    two = 'def f():\n    """New,\n    longer."""\n\n    return "# kept"\n'
    lines = [[s for s in sources._code(t).splitlines() if s] for t in (one, two)]
    assert lines[0] == lines[1] == ["def f():", '    return "# kept"']


RUN = """
import json, os, sys
from importlib import import_module
import kgmrf  # part of every graph; the units differ in the rest
for key, function, settings in json.load(sys.stdin):
    if (child := os.fork()) == 0:
        module, name = function.split(":")
        try:
            function = getattr(import_module(f"experiments.{module}"), name)
            settings is None or function(**settings)
        except Exception as error:
            if type(error).__name__ != "NotAvailable":
                raise
        mine = [m for m in sys.modules if m.partition(".")[0] in ("kgmrf", "experiments")]
        print(json.dumps([key, mine]), flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, key
"""

LONG = ("layers", "rotations", "rotation_faults", "gyroscope", "confidence", "recentring", "steady")
"""Their quick units take many seconds: what they import is looked at, not what they load later."""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="one process for each unit")
def test_every_module_that_a_run_loads_is_in_the_graph():
    first = {}
    for unit in UNITS.values():
        first.setdefault(unit.function.partition(":")[0], unit)
    words = [[u.key, u.function, None if m in LONG else u.settings] for m, u in first.items()]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        cwd=ROOT,
        env=environment,
        input=json.dumps(words),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        key, loaded = json.loads(line)
        module = f"experiments.{UNITS[key].function.partition(':')[0]}"
        loaded = {m for m in loaded if sources._path(m) is not None}
        assert len(loaded) > 50
        assert loaded <= sources.reachable(module, shown=True), key
        left_out = {m for m in loaded if not sources._only_shows(m)} - sources.reachable(module)
        assert not left_out, key
