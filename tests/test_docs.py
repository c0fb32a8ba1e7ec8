"""Every snippet of the documentation runs, page by page, in the order of reading."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [*sorted((ROOT / "docs").glob("**/*.md")), ROOT / "README.md"]
# A snippet, and what it prints if a block of text follows at once.
PYTHON = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.M | re.S)
SHELL = re.compile(r"^```sh\n(.*?)^```", re.M | re.S)
PICTURE = re.compile(r"!\[[^]]+\]\(images/(\w+)\.png\)")


def with_snippets(language: re.Pattern[str]) -> list[Path]:
    return [page for page in PAGES if language.search(page.read_text())]


@pytest.mark.parametrize("page", with_snippets(PYTHON), ids=lambda page: page.name)
def test_python_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    space: dict[str, object] = {}
    for snippet, printed in PYTHON.findall(page.read_text()):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(snippet, page.name, "exec"), space)
        assert not printed or out.getvalue() == printed, snippet
    assert os.getcwd() == str(tmp_path)


@pytest.mark.parametrize("page", with_snippets(SHELL), ids=lambda page: page.name)
def test_shell_runs(page: Path, tmp_path: Path) -> None:
    # The command of this environment, whether or not it is on the path.
    command = f'kgmrf() {{ "{sys.executable}" -m kgmrf "$@"; }}'
    snippets = "\n".join(SHELL.findall(page.read_text()))
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f"{command}\n{snippets}"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_every_picture_is_drawn_and_shown(tmp_path: Path) -> None:
    shown = {name for page in PAGES for name in PICTURE.findall(page.read_text())}
    code = f"import pictures, pathlib; pictures.draw(pathlib.Path({str(tmp_path)!r}))"
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT / "docs")])
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": path})
    drawn = {path.stem for path in tmp_path.glob("*.png") if path.stat().st_size > 5000}
    assert shown == drawn


def test_measured_tables_are_those_of_the_result_files(monkeypatch: pytest.MonkeyPatch) -> None:
    results = ROOT / "experiments" / "results"
    if not results.is_dir():
        pytest.skip("a copy without the experiments")
    monkeypatch.syspath_prepend(str(ROOT))  # they are not part of the installed package
    from experiments import tables

    filled = 0
    for page in tables.PAGES:
        text = page.read_text(encoding="utf-8")
        again = tables.rewritten(text, results)
        assert text == again, f"{page.name} is out of date: python -m experiments tables"
        filled += len(tables.BLOCK.findall(text))
    assert filled >= 2
