"""Numbers in the text of the pages stand in result files; tables are written from them anyway."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent


def load(path: Path) -> Any:
    return json.loads(path.read_text())


def rows(text: str) -> dict[str, list[str]]:
    """The body of the table in a text: first cell -> the other cells, without stars."""
    lines = [line for line in text.splitlines() if line.startswith("|")][2:]
    cells = [[c.strip(" *`") for c in line.strip("|").split("|")] for line in lines]
    return {re.sub(r"[*`]", "", first): rest for first, *rest in cells}


def test_examples_of_the_layer() -> None:
    text = (ROOT / "docs" / "torch_laws.md").read_text()
    examples = ROOT / "examples" / "results"
    gains = load(examples / "torch_learn_gains.json")["results"]
    table = rows(text[text.index("### Learn gains") : text.index("### A Transformer")])
    for words, key in (
        ("best of the same grid in hindsight, on the test streams", "best fixed gain in hindsight"),
        ("fixed gains, learned", "fixed gains, learned"),
        ("information law, default", "information law, default"),
        ("information law, learned", "information law, learned"),
    ):
        found = gains[key]
        each = found.get("of_each_training_set")
        worst = f"{max(each):.2f}" if each else ""
        assert table[words] == [f"{found['test_degrees']:.2f}", worst]
    detector = load(examples / "torch_detector.json")["results"]
    for key in ("detector alone, filtered afterwards", "trained through the filter"):
        each = detector[key]["of_each_seed"]
        assert f"{min(each):.1f} to {max(each):.1f} |" in text
        assert f"{detector[key]['mean']:.1f}" in text


def test_measured_tables_of_the_layer() -> None:
    tables = runpy.run_path(str(ROOT / "examples" / "torch_tables.py"))
    of_ensemble, text = (
        (ROOT / "docs" / name).read_text() for name in ("torch.md", "torch_laws.md")
    )
    measured = {"direction", "flicker", "inertia", "speed", "spdnet"}
    names = [name for page in (of_ensemble, text) for _, name, _ in tables["BLOCK"].findall(page)]
    assert sorted(names) == sorted(measured)
    for page in (of_ensemble, text):
        assert page == tables["rewritten"](page), "out of date: python examples/torch_tables.py"
    speed = load(ROOT / "examples" / "results" / "torch_speed.json")["results"]
    turns, same = speed["rotations, batch 32"], speed["batch 32, d 3"]
    for value in (
        *(turns[key] for key in ("forward_us", "forward_backward_us")),
        *(same[f"{key}_forward_backward_us"] for key in ("layer", "readable")),
    ):
        assert f"{value:,.0f} µs" in text
