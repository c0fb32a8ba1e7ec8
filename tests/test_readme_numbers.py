"""Numbers in the text of the pages stand in result files; tables are written from them anyway."""

from __future__ import annotations

import json
import re
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
    text = (ROOT / "docs" / "torch.md").read_text()
    examples = ROOT / "examples" / "results"
    gains = load(examples / "torch_learn_gains.json")["results"]
    table = rows(text[text.index("### Learn gains") : text.index("### Which way")])
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
    direction = load(examples / "torch_direction.json")["results"].values()
    detector = load(examples / "torch_detector.json")["results"]
    for value in [100 * one["test_accuracy"] for one in direction]:
        assert f"{value:.1f} %" in text
    for key in ("detector alone, filtered afterwards", "trained through the filter"):
        each = detector[key]["of_each_seed"]
        assert f"{min(each):.1f} to {max(each):.1f} |" in text
        assert f"{detector[key]['mean']:.1f}" in text
    measured = rows(text[text.index("## Speed and memory") : text.index("On the CPU both")])
    for name, row in load(examples / "torch_speed.json")["results"].items():
        cells = measured[name.replace("batch ", "").replace(" d ", " ")]
        assert cells[2] == str(row["forward_ratio"])
        assert cells[5] == str(row["forward_backward_ratio"])
