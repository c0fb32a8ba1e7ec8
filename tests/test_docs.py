"""Every Python snippet of the documentation runs, page by page, in the order of reading."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"]
SNIPPET = re.compile(r"^```python\n(.*?)^```", re.M | re.S)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_snippets_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snippets = SNIPPET.findall(page.read_text())
    if not snippets:
        pytest.skip("a page without code")
    monkeypatch.chdir(tmp_path)
    space: dict[str, object] = {}
    for snippet in snippets:
        exec(compile(snippet, page.name, "exec"), space)
    assert os.getcwd() == str(tmp_path)
