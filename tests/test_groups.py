"""Every test is in exactly one group, and every group is run by somebody."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from groups import GROUPS, PATTERNS, QUICK

ROOT = Path(__file__).parents[1]
FILES = sorted(path.stem for path in Path(__file__).parent.glob("test_*.py"))


def test_every_test_is_in_exactly_one_group(request: pytest.FixtureRequest) -> None:
    wrong = [
        item.nodeid
        for item in request.session.items
        if len({mark.name for mark in item.iter_markers()} & GROUPS.keys()) != 1
    ]
    assert not wrong


def test_every_pattern_fits_a_file_that_no_earlier_one_takes() -> None:
    taken: set[str] = set()
    for group, pattern in PATTERNS:
        found = {name for name in FILES if fnmatchcase(name, pattern)} - taken
        assert found, (group, pattern)
        taken |= found
    assert taken == set(FILES)


def test_every_group_has_a_job_and_make_runs_the_quick_ones() -> None:
    workflow = (ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8")
    (listed,) = re.findall(r"group: \[([^]]*)\]", workflow)
    assert sorted(listed.split(", ")) == sorted(GROUPS)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (quick,) = re.findall(r"^QUICK := (.*)$", makefile, re.M)
    assert quick == " or ".join(QUICK)
