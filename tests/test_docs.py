"""Every snippet of the documentation runs, page by page, in the order of reading."""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [*sorted((ROOT / "docs").glob("**/*.md")), ROOT / "README.md"]
SNIPPET = re.compile(r"^```(python|sh)\n(.*?)^```(?:\n+```text\n(.*?)^```)?", re.M | re.S)
"""Code, and what it prints, if the page shows that."""
PICTURE = re.compile(r"!\[[^]]+\]\(images/(\w+)\.png\)")


def bash() -> str:
    """Windows finds its own bash first, which is another system; git brings one that is right."""
    git = shutil.which("git") if os.name == "nt" else None
    return "bash" if git is None else str(Path(git).parents[1] / "bin" / "bash.exe")


def shell(script: str) -> str:
    # The command of this environment, whether or not it is on the path.
    here = Path(sys.executable).as_posix()  # a page's `python` is that of its environment
    command = f'python() {{ "{here}" "$@"; }}\nkgmrf() {{ python -m kgmrf "$@"; }}'
    done = subprocess.run(
        [bash(), "-euo", "pipefail", "-c", f"{command}\n{script}"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONUTF8": "1"},
        capture_output=True,
        encoding="utf-8",
    )
    # A reader such as head may close the pipe early.
    assert done.returncode in (0, 141), done.stderr
    return done.stdout


def alike(printed: str, shown: str) -> bool:
    """Word by word; numbers may differ by one unit of the last digit, as between two machines."""
    pairs = list(zip(re.split(SPLIT, printed), re.split(SPLIT, shown), strict=False))
    return len(re.split(SPLIT, printed)) == len(re.split(SPLIT, shown)) and all(
        a == b or close(a, b) for a, b in pairs
    )


SPLIT = r"[\s,\[\]():{}\"]+"


def close(a: str, b: str) -> bool:
    try:
        x, y = float(a), float(b)
    except ValueError:
        return False
    digits = len(b.partition("e")[0].partition(".")[2])
    return math.isclose(x, y, rel_tol=1e-3, abs_tol=1.1 * 10.0**-digits)


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if SNIPPET.search(page.read_text(encoding="utf-8"))],
    ids=lambda page: page.name,
)
def test_snippets_run(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    space: dict[str, object] = {}
    for language, snippet, shown in SNIPPET.findall(page.read_text(encoding="utf-8")):
        capsys.readouterr()
        if language == "sh":
            printed = shell(snippet)
        else:
            exec(compile(snippet, page.name, "exec"), space)
            printed = capsys.readouterr().out
        assert not shown or alike(printed, shown), f"{page.name}: {snippet}\nprinted:\n{printed}"
    assert os.getcwd() == str(tmp_path)


def test_every_picture_is_drawn_and_shown(tmp_path: Path) -> None:
    shown = {name for page in PAGES for name in PICTURE.findall(page.read_text(encoding="utf-8"))}
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


def test_every_public_name_has_one_tier() -> None:
    import kgmrf

    text = (ROOT / "docs" / "versioning.md").read_text(encoding="utf-8")
    tiers = [
        part for part in re.split(r"^## ", text, flags=re.M) if part[:6] in ("Stable", "Provis")
    ]
    named = [re.findall(r"`(\w+)`", part.split("\n\n")[2]) for part in tiers]
    assert sorted(named[0] + named[1]) == sorted({*kgmrf.__all__, *kgmrf._OPTIONAL})


def test_no_page_installs_what_is_not_published() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"pip install (-U )?[\"']?kgmrf", text), page.name


def test_the_geometry_that_the_pages_promise_is_there() -> None:
    """docs/coming_from.md once promised distances that did not exist."""
    import kgmrf

    text = (ROOT / "docs" / "coming_from.md").read_text(encoding="utf-8")
    promised = re.search(r"`kgmrf\.geometry\.spd` has (.+?) of the affine-invariant", text)
    assert promised is not None
    names = re.findall(r"`(\w+)`", promised[1])
    assert names == ["log", "exp", "power", "sqrt", "geodesic", "distance"]
    assert all(callable(getattr(kgmrf.geometry.spd, name)) for name in names)
